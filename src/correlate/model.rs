//! The types of a correlated profile: what [`correlate`](super::correlate) works out.

use serde::{Deserialize, Serialize};

use crate::base::DType;
use crate::handle;
use crate::profile::{
    CallId, ConfigId, DeviceId, KernelId, Profile, RangeId, SerialNumber, Span, StrId,
};

handle! {
    /// A node of the scope tree.
    ScopeId,
    /// A row of [`Run::op_calls`].
    OpCallId,
    /// A row of [`Run::op_names`].
    OpNameId,
    /// A row of [`Run::args`].
    ArgsId,
    /// A row of [`Run::layers`].
    LayerId,
    /// A row of [`Run::patterns`].
    PatternId,
    /// A row of [`Run::sites`].
    SiteId,
    /// A row of [`Run::steps`].
    StepId,
}

/// A profile with everything that can be worked out from its rows alone.
#[derive(Debug, Clone)]
pub struct Run {
    pub profile: Profile,
    /// One per kernel, same index.
    pub links: Vec<Link>,
    /// The scope tree: ranges that enclose a launch, and those a backward pass refers to, with
    /// parent pointers.
    pub scopes: Vec<Scope>,
    pub op_calls: Vec<OpCall>,
    pub op_names: Vec<OpName>,
    pub args: Vec<OpArgs>,
    pub layers: Vec<Layer>,
    pub patterns: Vec<LayerPattern>,
    /// In order of GPU time, largest first; ties by first kernel.
    pub sites: Vec<Site>,
    /// Numbered steps; empty when the file marks none.
    pub steps: Vec<Step>,
    /// Per process: its own part of the steps it took part in, in time order. A step of several
    /// processes spans all of theirs.
    pub process_steps: Vec<Vec<(Span, StepId)>>,
    pub window: Window,
    pub timeline: Timeline,
    pub attribution: AttributionTotals,
    /// Why idle time in this capture is not evidence; `None` when it may be trusted.
    pub unreliable_idle: Option<String>,
    /// Which source gave most layers their names.
    pub layer_source: Option<LayerSource>,
}

impl Run {
    /// The operator of a call.
    pub fn op_name(&self, call: &OpCall) -> Option<&OpName> {
        self.op_names.get(call.op.idx())
    }
}

/// What is known of one kernel's origin.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub launch: Option<CallId>,
    /// Innermost range around the launch.
    pub scope: Option<ScopeId>,
    pub op: Option<OpCallId>,
    pub step: Option<StepId>,
    /// The site it is counted in; `None` outside the window.
    pub site: Option<SiteId>,
    /// Why there is no operator, when there is none.
    pub missing: Option<WithoutOperator>,
}

/// Why a kernel has no operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutOperator {
    /// No launch row with its correlation id in its process: launched before the capture began, or
    /// the rows were dropped.
    NoLaunch,
    /// Launched by replaying a CUDA graph: the replay call is the only host event there is.
    GraphReplay,
    /// The launch stands in no range at all.
    NoRange,
    /// The launch stands in ranges, but none of them names an operator.
    NoOperator,
}

/// A node of the scope tree.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    pub range: RangeId,
    pub parent: Option<ScopeId>,
    /// That of the range: most who walk the tree ask for nothing else.
    pub text: StrId,
}

/// Direction of the work, in PyProf's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Fprop,
    Bprop,
    /// Optimizer, gradient clipping and scaling.
    Update,
    Unknown,
}

impl Direction {
    /// The word used in reports and rules.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Fprop => "fprop",
            Direction::Bprop => "bprop",
            Direction::Update => "update",
            Direction::Unknown => "unknown",
        }
    }
}

/// An operator's name as a profile spells it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName {
    /// `torch.nn.functional`, `Tensor`, `aten`, `flash_attn`; empty for bare `emit_nvtx` names.
    pub module: String,
    /// `conv2d`, `addmm`, `__mul__`; for a backward node without an inner operator the autograd
    /// name, `AddmmBackward0`.
    pub name: String,
}

impl OpName {
    /// As shown to people: `aten::addmm`, `torch.nn.functional.conv2d`, `AddmmBackward0`.
    pub fn display(&self) -> String {
        if self.module.is_empty() {
            self.name.clone()
        } else if self.module.starts_with("torch")
            || self.module.contains('.')
            || self.module == "Tensor"
        {
            format!("{}.{}", self.module, self.name)
        } else {
            format!("{}::{}", self.module, self.name)
        }
    }
}

/// One operator invocation: the innermost range that names an operator we understand.
#[derive(Debug, Clone, Copy)]
pub struct OpCall {
    pub range: RangeId,
    pub op: OpNameId,
    pub args: Option<ArgsId>,
    /// The arguments are those of the matching forward call (backward nodes list none themselves).
    pub args_from_forward: bool,
    pub direction: Direction,
    /// Forward work done again inside the backward pass (activation checkpointing).
    pub recomputed: bool,
    pub layer: Option<LayerId>,
    pub seq: Option<SerialNumber>,
    /// The forward call of a backward one.
    pub forward: Option<OpCallId>,
    pub step: Option<StepId>,
}

/// The arguments of an operator call; interned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpArgs {
    pub items: Vec<Arg>,
}

/// One argument, with its keyword when it was passed by keyword.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    pub name: Option<String>,
    pub value: ArgValue,
}

/// What a profile says of an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgValue {
    Tensor(Tensor),
    List(Vec<ArgValue>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
    None,
    /// Present, but the profile does not say what it is (a scalar in `sizes = [[64, 8], []]`).
    Unknown,
}

/// A tensor argument. Shapes are in elements, strides in elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tensor {
    pub shape: Vec<u64>,
    pub dtype: Option<DType>,
    pub strides: Option<Vec<i64>>,
}

impl OpArgs {
    /// The tensors in order, lists flattened.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.items.iter().flat_map(|a| match &a.value {
            ArgValue::Tensor(t) => vec![t],
            ArgValue::List(items) => items
                .iter()
                .filter_map(|v| match v {
                    ArgValue::Tensor(t) => Some(t),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        })
    }

    /// The positional argument at `index`, or the one passed as keyword `name`.
    pub fn get(&self, index: usize, name: &str) -> Option<&ArgValue> {
        self.items
            .iter()
            .find(|a| a.name.as_deref() == Some(name))
            .or_else(|| {
                self.items
                    .get(index)
                    .filter(|a| a.name.as_deref().is_none_or(str::is_empty))
            })
            .map(|a| &a.value)
    }

    /// The tensor at `index`, or the one passed as keyword `name`.
    pub fn tensor(&self, index: usize, name: &str) -> Option<&Tensor> {
        match self.get(index, name) {
            Some(ArgValue::Tensor(t)) => Some(t),
            _ => None,
        }
    }
}

/// Where a layer's name came from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerSource {
    /// `layer:NAME` ranges.
    LayerRange,
    /// FSDP pre/post forward and backward brackets.
    Fsdp,
    /// nn.Module stack: Kineto python events, module hierarchy, `funcStack`.
    Module,
    /// Any other range or annotation the user pushed.
    UserRange,
    /// The innermost user source line of a call stack.
    SourceLine,
    /// Nothing better than the operator.
    Op,
}

impl LayerSource {
    /// How the report says it.
    pub fn describe(self) -> &'static str {
        match self {
            LayerSource::LayerRange => "`layer:` ranges",
            LayerSource::Fsdp => "FSDP module brackets",
            LayerSource::Module => "the nn.Module stack",
            LayerSource::UserRange => "user ranges",
            LayerSource::SourceLine => "source lines of call stacks",
            LayerSource::Op => "operator names (nothing in the profile names layers)",
        }
    }
}

/// Where in the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Not escaped: profile text.
    pub name: String,
    pub source: LayerSource,
    pub pattern: PatternId,
}

/// Layers that differ only in instance numbers: `blocks.0` ... `blocks.23` are `blocks.*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerPattern {
    pub name: String,
    /// Distinct layers folded into it.
    pub layers: u32,
}

/// All op calls with the same layer, operator, direction, shapes, dtypes and stride class; or, for
/// kernels without an operator, all with the same name and launch configuration.
#[derive(Debug, Clone)]
pub struct Site {
    pub op: Option<OpName>,
    pub args: Option<ArgsId>,
    pub args_from_forward: bool,
    /// What the kernel of each call says of its message itself, where the operator does not say or is
    /// not known: fields of a collective, by keyword.
    pub message: Option<ArgsId>,
    pub direction: Direction,
    pub recomputed: bool,
    pub layer: Option<LayerId>,
    /// Why there is no operator, when there is none.
    pub missing: Option<WithoutOperator>,
    /// Operator calls (or kernels, without an operator).
    pub calls: u32,
    /// Sum of its kernels' durations.
    pub time_ns: i64,
    /// The part of `time_ns` during which nothing else ran on the same device.
    pub exposed_ns: i64,
    /// In order of time, largest first.
    pub kernels: Vec<SiteKernel>,
    /// Innermost user source line, when call stacks say.
    pub source_line: Option<String>,
    pub first: KernelId,
}

/// The executions of one kernel with one launch configuration inside a site.
#[derive(Debug, Clone, Copy)]
pub struct SiteKernel {
    pub name: StrId,
    pub config: ConfigId,
    pub count: u32,
    pub time_ns: i64,
    pub exposed_ns: i64,
    /// Shortest and longest single execution.
    pub min_ns: i64,
    pub max_ns: i64,
    /// Position of its first execution among the kernels of its op call (0 = first).
    pub order: u32,
}

/// One training or inference iteration, from numbered ranges only.
#[derive(Debug, Clone)]
pub struct Step {
    pub number: u64,
    /// On the host's clock.
    pub span: Span,
    /// From the first to the last kernel that was launched in it; `None` when there is none.
    pub gpu: Option<Span>,
    /// Outside the window: declared warm-up.
    pub warmup: bool,
}

/// The part of the capture that is judged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    /// From the first kernel of the window to the end of the last GPU work.
    pub span: Option<Span>,
    pub setup: SetUp,
}

/// What lies before the window: named in the report, never sold as a saving.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetUp {
    /// From the first event of the file to the first kernel.
    pub ns: i64,
    pub copies: u64,
    pub copied_bytes: u64,
    pub copied_ns: i64,
    pub pageable_copies: u64,
    /// Kernels of declared warm-up steps.
    pub warmup_kernels: u64,
    /// Longest single first launch (lazy loading) inside the capture, 0 when none stands out.
    pub first_launch_ns: i64,
}

/// What each device did inside the window.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    pub devices: Vec<DeviceTimeline>,
}

/// One device inside the window. All figures are unions of intervals: overlap counts once.
#[derive(Debug, Clone)]
pub struct DeviceTimeline {
    pub device: DeviceId,
    /// The device's part of the window: first to last GPU work inside it.
    pub span: Span,
    /// Kernels, copies, sets and graph traces.
    pub busy_ns: i64,
    /// Kernels (with communication) and graph traces.
    pub kernel_ns: i64,
    pub copy_ns: i64,
    pub comm_ns: i64,
    /// Copies while no kernel ran.
    pub exposed_copy_ns: i64,
    /// Communication while no other kernel ran.
    pub exposed_comm_ns: i64,
    pub graph_ns: i64,
    /// Idle intervals longer than 0 ns, in time order.
    pub gaps: Vec<Gap>,
}

impl DeviceTimeline {
    pub fn idle_ns(&self) -> i64 {
        self.span.ns() - self.busy_ns
    }

    /// Busy share of the device's window, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        if self.span.ns() == 0 {
            0.0
        } else {
            self.busy_ns as f64 / self.span.ns() as f64
        }
    }
}

/// An interval in which a device did nothing.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    pub span: Span,
    pub cause: GapCause,
    /// The kernel that ended the gap.
    pub next: Option<KernelId>,
    /// The host call blamed, when one was.
    pub call: Option<CallId>,
}

/// Why a device was idle; each idle nanosecond has exactly one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GapCause {
    /// The profiler was writing its own buffers.
    ProfilerOverhead,
    /// A data loading range was open on the launching thread.
    DataLoading,
    /// The host had just returned from a synchronising call and the queue had run dry.
    AfterSync,
    /// A pageable or synchronous copy held the host.
    BlockingCopy,
    /// Memory was being allocated or freed.
    Allocation,
    /// Code was being loaded or the driver set up: a first launch, a module load, a first call that
    /// takes far longer than its like.
    ModuleLoad,
    /// The next kernel was launched only after the previous one had ended, by no more than a few
    /// operators take on the host.
    HostLate,
    /// The same, but for so long that the host did something else than launch work.
    HostBusy,
    /// Launched in time, started late: waiting on another stream, device or rank.
    Waiting,
    Unknown,
}

impl GapCause {
    /// The word used in rules.
    pub fn name(self) -> &'static str {
        match self {
            GapCause::ProfilerOverhead => "profiler_overhead",
            GapCause::DataLoading => "data_loading",
            GapCause::AfterSync => "after_sync",
            GapCause::BlockingCopy => "blocking_copy",
            GapCause::Allocation => "allocation",
            GapCause::ModuleLoad => "module_load",
            GapCause::HostLate => "host_late",
            GapCause::HostBusy => "host_busy",
            GapCause::Waiting => "waiting",
            GapCause::Unknown => "unknown",
        }
    }
}

/// How much of the kernel time could be attributed. Times in ns, of the whole capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AttributionTotals {
    pub kernels: u64,
    pub kernel_ns: i64,
    pub launched: u64,
    pub launched_ns: i64,
    pub with_op: u64,
    pub with_op_ns: i64,
    pub with_shapes: u64,
    pub with_shapes_ns: i64,
    /// A name better than the operator's.
    pub with_layer: u64,
    pub with_layer_ns: i64,
    pub no_launch: u64,
    pub no_launch_ns: i64,
    pub graph_replay: u64,
    pub graph_replay_ns: i64,
}

/// What the floors above know about operator names.
pub struct Vocabulary<'a> {
    /// Whether an operator name is one the cost table (or the rules) understands.
    pub knows_op: &'a (dyn Fn(&OpName) -> bool + Sync),
    /// Whether a kernel, by its name, moves data between GPUs.
    pub is_communication: &'a (dyn Fn(&str) -> bool + Sync),
}
