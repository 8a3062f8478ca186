//! The command line of pyprof-advise.
fn main() {}
