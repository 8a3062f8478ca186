//! The `pyprof-advise` command; everything it does is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    pyprof_advise::cli::main()
}
