//! One row per kernel: its operator and its share of the cost.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::calls::{self, Share};
use super::op_choice::{Chooser, OpChoice};
use super::params::{self, ParamsInput};
use super::{Dir, LaunchContext, Record};
use crate::correlate::{ArgValue, OpArgs};
use crate::cost::kernel_name::decode;
use crate::cost::{DecodedName, TensorCore};

/// A kernel with its operator and its share of the cost. Texts are not escaped for a terminal.
#[derive(Debug)]
pub struct KernelRow {
    /// The number of the kernel, from 1.
    pub number: usize,
    /// The record, without its `seq_markers`, of which a row only needs the operator.
    pub record: Record,
    pub(super) choice: OpChoice,
    pub(super) kernel: Arc<DecodedName>,
    pub(super) share: Share,
}

impl KernelRow {
    /// The context with layer and source lines: for a backward kernel, that of its forward kernel.
    pub fn context(&self) -> &LaunchContext {
        &self.choice.context
    }

    /// Module of the operator; `na` if unknown.
    pub fn module(&self) -> &str {
        or_na(match &self.choice.operator {
            Some(operator) => Some(&operator.name.module),
            None => self.context().mods.first(),
        })
    }

    /// The operator; `na` if unknown.
    pub fn op(&self) -> &str {
        match self.params_input() {
            Some(input) if params::is_bias(&input) => "bias",
            _ => or_na(match &self.choice.operator {
                Some(operator) => Some(&operator.name.name),
                None => self.context().ops.first(),
            }),
        }
    }

    /// Shapes and types of its arguments, in PyProf's spelling.
    pub fn params(&self) -> String {
        match self.params_input() {
            Some(input) => params::params(&input),
            None => shapes(self.choice.args()),
        }
    }

    fn params_input(&self) -> Option<ParamsInput<'_>> {
        let operator = self.choice.operator.as_deref()?;
        operator.is_marker().then(|| ParamsInput {
            op: &operator.name,
            args: &operator.marker_args,
            dir: if self.choice.from_forward {
                self.record.context.dir
            } else {
                // Recorded arguments are those of the product itself, in either direction.
                Dir::Fprop
            },
            sub: self.record.sub,
            kernel: &self.kernel,
        })
    }

    /// Whether the kernel runs on Tensor Cores; `None` for other work or a name that does not tell.
    pub fn tensor_core(&self) -> Option<bool> {
        match self.kernel.tensor_core {
            _ if !self.kernel.family.is_math() => None,
            TensorCore::Yes => Some(true),
            TensorCore::No => Some(false),
            TensorCore::Unknown => None,
        }
    }

    /// The kernel's share of the FLOPs of its call; `None` if unknown.
    pub fn flops(&self) -> Option<u64> {
        self.share.flops
    }

    /// The kernel's share of the DRAM bytes of its call; `None` if unknown.
    pub fn bytes(&self) -> Option<u64> {
        self.share.bytes
    }
}

/// The rows of records, in their order.
pub fn rows(records: impl IntoIterator<Item = Record>) -> Vec<KernelRow> {
    let mut chooser = Chooser::default();
    let mut decoded: FxHashMap<String, Arc<DecodedName>> = FxHashMap::default();
    let mut rows: Vec<KernelRow> = Vec::new();
    for mut record in records {
        let choice = chooser.next(&record, &rows);
        record.seq_markers = Vec::new();
        let long = &record.name.long;
        let kernel = match decoded.get(long) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(decode(long));
                decoded.insert(long.clone(), Arc::clone(&new));
                new
            }
        };
        rows.push(KernelRow {
            number: rows.len() + 1,
            record,
            choice,
            kernel,
            share: Share::default(),
        });
    }
    calls::share_costs(&mut rows);
    rows
}

fn or_na(name: Option<&String>) -> &str {
    match name.map_or("", String::as_str) {
        "" => "na",
        name => name,
    }
}

/// Shapes of a range without PyProf's markers: `[35,20];[20,8]`, or PyProf's words for none.
fn shapes(args: Option<&OpArgs>) -> String {
    let shapes: Vec<String> = args
        .into_iter()
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
