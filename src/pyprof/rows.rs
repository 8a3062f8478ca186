//! One row per kernel: its operator and its share of the cost.

use indexmap::IndexSet;
use rayon::prelude::*;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::calls::{self, KernelTable, Share};
use super::op_choice::{self, OpChoice, OpChoices};
use super::params::{self, ParamsInput};
use super::{CellsId, ChoiceId, ContextId, Dir, LaunchContext, NameId, Record, Records};
use crate::correlate::{ArgValue, OpArgs};
use crate::cost::kernel_name::decode;
use crate::cost::{DecodedName, TensorCore};

/// The columns that `prof` adds to a record. Texts are not escaped for a terminal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KernelRow<'a> {
    /// The context with layer and source lines: for a backward kernel, that of its forward kernel.
    pub context: &'a LaunchContext,
    /// Module of the operator; `na` if unknown.
    pub module: &'a str,
    /// The operator; `na` if unknown.
    pub op: &'a str,
    /// Shapes and types of its arguments, in PyProf's spelling.
    pub params: &'a str,
    /// Whether the kernel runs on Tensor Cores; `None` for other work or a name that does not tell.
    pub tensor_core: Option<bool>,
    /// The kernel's share of the FLOPs of its call; `None` if unknown.
    pub flops: Option<u64>,
    /// The kernel's share of the DRAM bytes of its call; `None` if unknown.
    pub bytes: Option<u64>,
}

/// The rows of all records.
#[derive(Debug)]
pub struct KernelRows<'r> {
    pub(super) records: &'r Records,
    list: Vec<Own>,
    pub(super) cells: IndexSet<RowCells, FxBuildHasher>,
    /// By name.
    pub(super) tensor_core: Vec<Option<bool>>,
}

/// A row: its numbers, and handles of shared parts.
#[derive(Debug, Clone, Copy)]
struct Own {
    context: ContextId,
    cells: CellsId,
    share: Share,
}

/// The formatted cells of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RowCells {
    pub module: String,
    pub op: String,
    pub params: String,
}

/// A kernel in the table: its record and its row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'r> {
    /// The index of the kernel, counted from 0.
    pub at: usize,
    pub record: Record<'r>,
    /// The context with layer and source lines.
    pub context: ContextId,
    pub cells: CellsId,
    pub flops: Option<u64>,
    pub bytes: Option<u64>,
}

impl<'r> KernelRows<'r> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The row of the kernel at an index.
    pub fn get(&self, at: usize) -> Option<KernelRow<'_>> {
        let line = self.line(at)?;
        let cells = self.cells.get_index(line.cells.idx())?;
        let tensor_core = self.tensor_core.get(line.record.own.name.idx());
        Some(KernelRow {
            context: self.records.contexts.get_index(line.context.idx())?,
            module: &cells.module,
            op: &cells.op,
            params: &cells.params,
            tensor_core: tensor_core.copied().flatten(),
            flops: line.flops,
            bytes: line.bytes,
        })
    }

    /// All rows, in order of start time.
    pub fn iter(&self) -> impl Iterator<Item = KernelRow<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    pub(super) fn line(&self, at: usize) -> Option<Line<'r>> {
        let own = self.list.get(at)?;
        Some(Line {
            at,
            record: self.records.get(at)?,
            context: own.context,
            cells: own.cells,
            flops: own.share.flops,
            bytes: own.share.bytes,
        })
    }
}

/// The rows of all records, in their order. The cost of a call is computed once and divided among its
/// kernels.
pub fn rows(records: &Records) -> KernelRows<'_> {
    let names: Vec<&str> = records.names.iter().map(|name| &*name.long).collect();
    let decoded: Vec<DecodedName> = names.par_iter().map(|name| decode(name)).collect();
    let tensor_core = decoded.iter().map(tensor_core).collect();
    let (choices, chosen) = op_choice::choose(records);
    let table = KernelTable {
        records,
        choices,
        chosen,
        decoded,
        long_names: numbered(names.iter()),
        alike: numbered(
            records
                .contexts
                .iter()
                .map(|p| (&p.markers, &p.trace, &p.layer)),
        ),
    };
    let shares = calls::shares(&table);
    let mut writer = RowBuilder {
        table: &table,
        cells: IndexSet::default(),
        known: FxHashMap::default(),
    };
    let list = records
        .iter()
        .zip(&table.chosen)
        .zip(shares)
        .map(|((record, chosen), share)| writer.row(record, *chosen, share))
        .collect();
    KernelRows {
        records,
        list,
        cells: writer.cells,
        tensor_core,
    }
}

/// A number for each item, equal for equal items.
fn numbered<T: std::hash::Hash + Eq>(items: impl Iterator<Item = T>) -> Vec<u32> {
    let mut known: IndexSet<T, FxBuildHasher> = IndexSet::default();
    items
        .map(|item| u32::try_from(known.insert_full(item).0).unwrap_or(u32::MAX))
        .collect()
}

fn tensor_core(kernel: &DecodedName) -> Option<bool> {
    match kernel.tensor_core {
        _ if !kernel.family.is_math() => None,
        TensorCore::Yes => Some(true),
        TensorCore::No => Some(false),
        TensorCore::Unknown => None,
    }
}

/// The key of the cells of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Decides {
    choice: ChoiceId,
    /// `None` unless a marker's parameters depend on the kernel.
    kernel: Option<(Dir, u64, NameId)>,
}

/// Formats the cells, once per chosen operator.
struct RowBuilder<'w> {
    table: &'w KernelTable<'w>,
    cells: IndexSet<RowCells, FxBuildHasher>,
    known: FxHashMap<Decides, (ContextId, CellsId)>,
}

impl RowBuilder<'_> {
    fn row(&mut self, record: Record<'_>, chosen: ChoiceId, share: Share) -> Own {
        let table = self.table;
        let choice = table.choices.get(chosen);
        let marked = choice.is_some_and(|choice| choice.marker.is_some());
        let decides = Decides {
            choice: chosen,
            kernel: marked.then(|| {
                let sub = params::sub_that_counts(record.sub());
                (record.context().dir, sub, record.own.name)
            }),
        };
        let (context, cells) = match (self.known.get(&decides), choice) {
            (Some(known), _) => *known,
            (None, Some(choice)) => {
                let cells = cells(&table.choices, choice, record, &table.decoded);
                let id = CellsId::new(self.cells.insert_full(cells).0);
                self.known.insert(decides, (choice.context, id));
                (choice.context, id)
            }
            // Every record has a choice, so this is not reached.
            (None, None) => (record.own.context, CellsId(0)),
        };
        Own {
            context,
            cells,
            share,
        }
    }
}

fn cells(
    choices: &OpChoices,
    choice: &OpChoice,
    record: Record<'_>,
    decoded: &[DecodedName],
) -> RowCells {
    let name = choices.op(choice.op);
    let kernel = decoded.get(record.own.name.idx());
    let (op, params) = match (&choice.marker, kernel) {
        (Some(marker), Some(kernel)) => params::cells(&ParamsInput {
            marker,
            dir: if choice.from_forward {
                record.context().dir
            } else {
                // Recorded arguments are those of the product itself, in either direction.
                Dir::Fprop
            },
            sub: record.sub(),
            kernel,
        }),
        _ => {
            let args = choice.args.and_then(|args| choices.shapes(args));
            (
                name.map(|n| n.name.clone()).unwrap_or_default(),
                shapes(args),
            )
        }
    };
    let or_na = |text: String| {
        if text.is_empty() {
            "na".to_owned()
        } else {
            text
        }
    };
    RowCells {
        module: or_na(name.map(|n| n.module.clone()).unwrap_or_default()),
        op: or_na(op),
        params,
    }
}

/// The shared part that the texts of a column depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Name,
    /// The kernel's own context.
    Context,
    /// The context with layer and source lines.
    Source,
    RowCells,
    Tid,
    Dims,
}

impl Of {
    /// The number of such parts.
    pub(super) fn count(self, rows: &KernelRows<'_>) -> usize {
        let records = rows.records;
        match self {
            Of::Name => records.names.len(),
            Of::Context | Of::Source => records.contexts.len(),
            Of::RowCells => rows.cells.len(),
            Of::Tid => records.tids.len(),
            Of::Dims => records.dims.len(),
        }
    }

    /// The index of a kernel's part.
    pub(super) fn of(self, line: &Line<'_>) -> usize {
        let own = line.record.own;
        match self {
            Of::Name => own.name.idx(),
            Of::Context => own.context.idx(),
            Of::Source => line.context.idx(),
            Of::RowCells => line.cells.idx(),
            Of::Tid => own.tid.idx(),
            Of::Dims => own.dims.idx(),
        }
    }
}

/// Shapes of a range without PyProf's markers: `[35,20];[20,8]`, or PyProf's words for none.
fn shapes(args: Option<&OpArgs>) -> String {
    let shapes: Vec<String> = args
        .iter()
        .flat_map(|args| &args.items)
        .filter_map(|arg| match &arg.value {
            ArgValue::Tensor(tensor) => {
                let dims: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
                let dtype = tensor.dtype.map_or("", |d| d.name());
                Some(format!("[{}]{dtype}", dims.join(",")))
            }
            _ => None,
        })
        .collect();
    if shapes.is_empty() {
        "na=na,".to_owned()
    } else {
        shapes.join(";")
    }
}
