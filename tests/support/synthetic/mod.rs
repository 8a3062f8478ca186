//! Builds Nsight Systems or nvprof SQLite databases from short descriptions.
//!
//! A description is simulated like a program: a host clock advances line by line, launches are recorded
//! on it, and their work queues on the GPU. Descriptions contain no timestamps, so they are easy to read
//! and edit. `fixtures/net.txt` is the long example; a short one:
//!
//! ```text
//! device 0 cc=7.0 sms=80 bandwidth=898GB/s = Tesla V100-SXM2-16GB
//! define gemm block=256 regs=128 static=49152 = volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_tn
//! range step 0
//!   op torch.nn.functional.linear f16[64,32] f16[128,32] None @ model.py:12
//!     kernel gemm 8x4 31us
//!     grad MmBackward
//!       kernel gemm 8x4 60us
//!   backward
//! ```
//!
//! There is one command per line; lines with deeper indentation (spaces) belong to the command above;
//! `# ` starts a comment. Durations have the units `ns us ms s`, sizes `B KB MB GB KiB MiB GiB` or none.
//!
//! | settings | |
//! | --- | --- |
//! | `format nsys 3.11.1` / `format nvprof` | the file format; nsys 3.11.1 by default |
//! | `tool 2024.2.1.106` | version of the profiler |
//! | `text inline`, `registered`, `mixed` | nsys: NVTX text in `text`, in `textId`, or (`mixed`, the default) in `textId` where it occurs twice |
//! | `timing launch=5us ...` | timing of host and GPU, see `Timing` in `settings.rs` |
//! | `roots user=DIR lib=DIR` | folders put before the files of `@`; `lib:` marks the second |
//! | `device N KEY=VALUE... = NAME` | `cc sms clock bandwidth memory l2 warps blocks regs shared optin`, all optional |
//! | `define NAME KEY=VALUE... = KERNEL` | a kernel: `block regs static dynamic local`; once one is defined, all must be |
//! | `drop TABLE`, `drop TABLE.COLUMN` | omit it from the file |
//! | `sql STATEMENT` | run on the finished database, for content without a command |
//!
//! | structure | |
//! | --- | --- |
//! | `process PID [device=N] [correlation=N]` | its lines run in that process (default 1000); clocks and correlation ids start again |
//! | `thread TID [NAME]` | its lines run on that thread of the process |
//! | `repeat VAR A B C` | its lines once per word, `{VAR}` replaced |
//! | `template NAME VAR...`, `use NAME WORD...` | its lines, inserted by `use` |
//!
//! | on the host | |
//! | --- | --- |
//! | `range TEXT` | NVTX push/pop around its lines |
//! | `between TEXT` | NVTX start/end around its lines |
//! | `open TEXT` | a range that is pushed and never popped |
//! | `mark TEXT` | a point |
//! | `op MODULE.OP ARG... [-> NAME...] [@ FILE:LINE...]` | a PyTorch call under PyProf and `emit_nvtx`: trace marker, PyProf marker, `NAME, seq = N`; without a module only the last. `ARG`: `f16[8,4]`, `3`, `0.1`, `True`, `None`, `'sum'`, `(1,1)`, `dim=-1` |
//! | `grad NODE` | inside `op`: the work of its backward node |
//! | `backward [TID]` | simulates the recorded `grad`s, last first, on the autograd thread |
//! | `wait TIME`, `overhead TIME` | the host is busy otherwise; the profiler is busy |
//! | `call API TIME` | a CUDA call without GPU work |
//! | `sync stream`, `device`, `event`, `wait` | the first three block until the GPU is done |
//!
//! | on the GPU | |
//! | --- | --- |
//! | `kernel NAME GRID TIME [KEY=VALUE...]` | as in `define`, and `stream`, `start` (absolute), `launch=API`, `launch=none` |
//! | `copy h2d|d2h|d2d|p2p pageable|pinned|device SIZE TIME [stream= api=]` | a copy; the host waits for pageable ones |
//! | `set SIZE TIME` | a memset |
//! | `graph TIME` | a CUDA graph as one record; with `kernel` lines below, its nodes instead |
// Each test program uses a part of this module, and a test may panic.
#![allow(dead_code)]
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod capture;
mod nsys;
mod nvprof;
mod settings;
mod simulate;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use capture::{Capture, Format};
use rusqlite::Connection;

/// A mistake in a description, with its position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.problem)
    }
}

/// Simulates the program of a description; `file` is for messages.
pub(crate) fn simulate(file: &str, description: &str) -> Result<Capture, Mistake> {
    text::lines(description)
        .and_then(|lines| simulate::simulate(&lines))
        .map_err(|(line, problem)| Mistake {
            file: file.to_owned(),
            line,
            problem,
        })
}

/// Writes a capture into an empty database.
pub(crate) fn write(capture: &Capture, database: &mut Connection) -> rusqlite::Result<()> {
    let transaction = database.transaction()?;
    match capture.format {
        Format::Nsys => nsys::write(capture, &transaction)?,
        Format::Nvprof => nvprof::write(capture, &transaction)?,
    }
    for dropped in &capture.drops {
        transaction.execute_batch(&match dropped.split_once('.') {
            Some((table, column)) => format!("ALTER TABLE {table} DROP COLUMN {column}"),
            None => format!("DROP TABLE {dropped}"),
        })?;
    }
    for statement in &capture.sql {
        transaction.execute_batch(statement)?;
    }
    transaction.commit()
}

/// A database file that is removed with its folder.
pub(crate) struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("net.sqlite")
    }
}

/// Builds a database from a description in a temporary folder. For tests: panics with `file:line:
/// problem`.
pub(crate) fn build(description: &str) -> Built {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let built = Built { folder };
    build_at(&built.path(), "description", description);
    built
}

/// Builds a database from a description at `path`, where no file may exist. Panics as [`build`] does.
pub(crate) fn build_at(path: &Path, file: &str, description: &str) {
    let capture = simulate(file, description).unwrap_or_else(|mistake| panic!("{mistake}"));
    let mut database = Connection::open(path).expect("a new database");
    write(&capture, &mut database).unwrap_or_else(|error| panic!("{file}: {error}"));
}
