//! Functions of callchains: of calls, the one that led to them; of samples, the one that ran.
//!
//! There may be a hundred million frames, so one per chain is kept, and the string table is looked at first
//! to know which frames tell nothing.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::STRINGS;
use super::Samples;
use crate::read::integer_rows::for_each_row;
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::{Cells, Db, Sink};

const FRAME_COLUMNS: [&str; 5] = ["id", "stackDepth", "symbol", "module", "unresolved"];

/// The columns without which a table of callchains cannot be read.
pub(super) const NEEDED: &[&str] = &["id", "stackDepth", "symbol", "module"];

/// Frames of a callchain looked at from the inside, for one that tells more than the C library.
const DEPTH: i64 = 24;

/// Libraries whose functions only pass a call on, by how their file names begin.
const PASSING_ON: &[&str] = &[
    "libc.",
    "libc-",
    "libpthread",
    "ld-",
    "libdl",
    "librt",
    "libcuda.",
    "libcudart",
    "libcupti",
    "libnvidia",
    "libToolsInjection",
    "libosrt",
    "[",
];

/// How functions of Python's interpreter begin that only call others.
const INTERPRETER: &[&[u8]] = &[
    b"_PyEval_",
    b"PyEval_",
    b"_PyObject_",
    b"PyObject_",
    b"_PyFunction_",
    b"PyVectorcall_",
    b"PyRun_",
    b"_PyRun_",
    b"Py_BytesMain",
    b"Py_RunMain",
    b"_start",
    b"__libc_start",
];

/// Whether a text names something. Functions without a name are addresses or `[Unknown]`.
pub(super) fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && !text.starts_with(b"0x") && !text.starts_with(b"[")
}

/// Strings that tell nothing in a callchain.
#[derive(Clone, Default)]
struct Uninformative {
    /// Functions without a name, and those that run any Python function.
    nameless: FxHashSet<i64>,
    /// Libraries that pass calls on.
    passing_on: FxHashSet<i64>,
}

const STRING_COLUMNS: [&str; 2] = ["id", "value"];

impl Sink for Uninformative {
    fn row(&mut self, cells: &Cells<'_>) {
        let (Some(id), Some(text)) = (cells.int(0), cells.bytes(1)) else {
            return;
        };
        let text = text.trim_ascii();
        if !is_name(text) || INTERPRETER.iter().any(|start| text.starts_with(start)) {
            self.nameless.insert(id);
        }
        let file = text.rsplit(|byte| matches!(byte, b'/' | b'\\')).next();
        let file = file.unwrap_or(text);
        if file.is_empty() || PASSING_ON.iter().any(|s| file.starts_with(s.as_bytes())) {
            self.passing_on.insert(id);
        }
    }
}

/// The id of the innermost named function outside [`PASSING_ON`] of each of these callchains.
pub(super) fn callers(
    db: &Db,
    table: &str,
    chains: impl Iterator<Item = i64>,
    progress: &dyn Progress,
) -> Result<FxHashMap<i64, i64>, ReadError> {
    let wanted: FxHashSet<i64> = chains.filter(|id| *id != 0).collect();
    if wanted.is_empty() || db.lacks(table, NEEDED)? != Some(Vec::new()) {
        return Ok(FxHashMap::default());
    }
    let mut uninformative = Uninformative::default();
    for part in db.scan(
        STRINGS,
        &STRING_COLUMNS,
        &Uninformative::default(),
        progress,
    )? {
        uninformative.nameless.extend(part.nameless);
        uninformative.passing_on.extend(part.passing_on);
    }
    let mut best: FxHashMap<i64, (i64, i64)> = FxHashMap::default();
    let empty = Frames {
        wanted: Arc::new(wanted),
        uninformative: Arc::new(uninformative),
        frames: Vec::new(),
    };
    db.stream(table, &FRAME_COLUMNS, &empty, progress, |part| {
        for (chain, depth, symbol) in part.frames.drain(..) {
            let known = best.entry(chain).or_insert((depth, symbol));
            if depth < known.0 {
                *known = (depth, symbol);
            }
        }
    })?;
    let symbols = best.into_iter().map(|(chain, (_, symbol))| (chain, symbol));
    Ok(symbols.collect())
}

/// The frames of one part of a table that tell something.
#[derive(Clone)]
struct Frames {
    wanted: Arc<FxHashSet<i64>>,
    uninformative: Arc<Uninformative>,
    /// Chain, depth and function.
    frames: Vec<(i64, i64, i64)>,
}

impl Sink for Frames {
    fn row(&mut self, cells: &Cells<'_>) {
        let (Some(chain), Some(depth)) = (cells.int(0), cells.int(1)) else {
            return;
        };
        let (Some(symbol), Some(module)) = (cells.int(2), cells.int(3)) else {
            return;
        };
        if (0..DEPTH).contains(&depth)
            && self.wanted.contains(&chain)
            && cells.int(4).is_none_or(|unresolved| unresolved == 0)
            && !self.uninformative.nameless.contains(&symbol)
            && !self.uninformative.passing_on.contains(&module)
        {
            self.frames.push((chain, depth, symbol));
        }
    }
}

/// The function that ran in a sample, by the ids of its name and its library.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafFunction {
    pub(super) symbol: Option<i64>,
    pub(super) module: Option<i64>,
}

impl LeafFunction {
    pub(super) fn ids(self) -> impl Iterator<Item = i64> {
        [self.symbol, self.module].into_iter().flatten()
    }
}

/// The function that ran in each sample, by the id of the sample.
pub(super) fn leaves(
    db: &Db,
    table: &str,
    samples: &Samples,
    progress: &dyn Progress,
) -> Result<FxHashMap<i64, LeafFunction>, ReadError> {
    let mut found: FxHashMap<i64, LeafFunction> = FxHashMap::default();
    if samples.rows.is_empty() {
        return Ok(found);
    }
    let ids: FxHashSet<i64> = samples.rows.iter().map(|row| row.id).collect();
    for_each_row(db, table, FRAME_COLUMNS, progress, |row| {
        let [Some(id), Some(depth), symbol, module, unresolved] = row else {
            return;
        };
        if depth == 0 && ids.contains(&id) {
            let symbol = symbol.filter(|_| unresolved.is_none_or(|is| is == 0));
            found.insert(id, LeafFunction { symbol, module });
        }
    })?;
    Ok(found)
}
