//! A kernel, its operator, and its share of the cost.

use std::sync::Arc;

use super::marker::Operator;
use super::params::{self, ParamsInput};
use super::record::{Dir, LaunchContext, Record};
use crate::correlate::{ArgValue, OpArgs, OpName};
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

/// The operator chosen for a kernel.
#[derive(Debug, Clone)]
pub(super) struct OpChoice {
    /// The operator; `None` if only the context names one.
    pub operator: Option<Arc<Operator>>,
    /// Whether it is the operator of the forward kernel, with the arguments of the forward call.
    pub from_forward: bool,
    /// The numbers of the range that names it.
    pub seq: Option<u64>,
    pub op_id: Option<u64>,
    /// The context with layer and source lines: for backward kernels, that of the forward kernel.
    pub context: Arc<LaunchContext>,
}

impl OpChoice {
    /// The arguments of the operator; `None` if unknown.
    pub(super) fn args(&self) -> Option<&OpArgs> {
        self.operator.as_ref()?.args.as_ref()
    }

    pub(super) fn op(&self) -> Option<&OpName> {
        Some(&self.operator.as_ref()?.name)
    }

    fn is_marked(&self) -> bool {
        self.operator.as_ref().is_some_and(|op| op.is_marker())
    }

    /// The choice for a backward kernel with a forward kernel.
    pub(super) fn with_forward(self, forward: &OpChoice) -> OpChoice {
        let has_lines = !self.context.trace.is_empty() || !self.context.layer.is_empty();
        if self.is_marked() && has_lines {
            return self;
        }
        // The autograd thread has no source lines.
        let context = Arc::clone(&forward.context);
        if self.is_marked() || self.args().is_some() {
            // It has arguments, so those of the forward kernel are not needed.
            return OpChoice { context, ..self };
        }
        OpChoice {
            from_forward: forward.args().is_some(),
            ..forward.clone()
        }
    }
}

/// A kernel's share of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share {
    pub flops: Option<u64>,
    /// `None` if unknown, and for helper kernels, whose traffic is not part of the cost.
    pub bytes: Option<u64>,
}
