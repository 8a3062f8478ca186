//! The types of a correlated profile: what [`correlate`](super::correlate) works out.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::host_parts::HostTime;
use super::serving_batch::ServingBatch;
use crate::base::DType;
use crate::base::time_by::TimeBy;
use crate::base::words::words;
use crate::handle;
use crate::profile::{
    ApiCall, CallId, ConfigId, CopyKind, DeviceId, Kernel, KernelId, Profile, RangeId, Span, StrId,
    ThreadId,
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
    /// The profile itself.
    pub profile: Profile,
    /// The call that started each copy, in the order of [`Profile::copies`]: the first with its correlation id.
    pub copy_calls: Vec<Option<CallId>>,
    /// The same of each memset, in the order of [`Profile::sets`].
    pub set_calls: Vec<Option<CallId>>,
    /// The same of each whole graph, in the order of [`Profile::graphs`].
    pub graph_calls: Vec<Option<CallId>>,
    /// The step in which each whole graph was launched, in the same order.
    pub graph_steps: Vec<Option<StepId>>,
    /// What is known of each kernel, in the order of [`Profile::kernels`].
    pub links: Vec<Link>,
    /// The scope tree: ranges that enclose a launch, and those a backward pass refers to, with
    /// parent pointers.
    pub scopes: Vec<Scope>,
    /// Innermost scope of each capture of a kernel into a CUDA graph, in the order of [`Profile::captures`].
    pub capture_scopes: Vec<Option<ScopeId>>,
    /// Operator calls that launched kernels, in order of their first kernels.
    pub op_calls: Vec<OpCall>,
    /// Distinct operator names.
    pub op_names: Vec<OpName>,
    /// Arguments of operators and messages; equal texts share a row.
    pub args: Vec<OpArgs>,
    /// Distinct layers.
    pub layers: Vec<Layer>,
    /// Patterns that layers fold into.
    pub patterns: Vec<LayerPattern>,
    /// Sites inside the window, in order of GPU time, largest first; ties by first kernel.
    pub sites: Vec<Site>,
    /// The steps; empty when nothing shows them.
    pub steps: Vec<Step>,
    /// What the steps were recognized by; `None` without steps.
    pub step_origin: Option<StepOrigin>,
    /// Per process: its own part of the steps it took part in, in time order. A step of several
    /// processes spans all of theirs.
    pub process_steps: Vec<Vec<(Span, StepId)>>,
    /// The ranges that the user's program pushed, without steps, operators and layers, in time order.
    pub user_ranges: Vec<RangeId>,
    /// The part of the capture that is analyzed.
    pub window: Window,
    /// What each device did inside the window.
    pub timeline: Timeline,
    /// What the host did while devices were idle.
    pub host: HostTime,
    /// Why idle time in this capture is unreliable: what slowed the host down. `None` when it is
    /// reliable.
    pub unreliable_idle: Option<String>,
    /// What was recorded that slows the host down, however much of the idle time comes from it.
    pub recording_overhead: Option<&'static str>,
    /// Idle time in ns, summed over devices, before and between nodes of CUDA graphs that had been launched in
    /// time: what they waited for is not recorded.
    pub unexplained_idle_ns: i64,
    /// Idle time in ns, summed over devices, in which the host was launching a CUDA graph whose nodes are
    /// recorded one by one, which makes the launch slow.
    pub graph_launch_idle_ns: i64,
    /// The calls of the window in which threads that launch kernels wait for the GPU, in time order.
    pub waits: Vec<Wait>,
    /// The calls that wait for the GPU inside a layer whose calls the profile marks.
    pub waits_in_layers: FxHashSet<CallId>,
    /// What the host did in the longest gaps, by the row of the device and that of the gap.
    pub activities: FxHashMap<GapKey, Activity>,
    /// The source that named the layers of most kernel time.
    pub layer_source: Option<LayerSource>,
    /// The requests that the analyzed executions of a served model work on, where ranges say so and all
    /// agree.
    pub batch: Option<ServingBatch>,
    /// Number of these executions; 0 without `batch`.
    pub executions: u64,
    /// What kernels of graph replays do, by a recording without graphs; `None` where none was given or none
    /// fits.
    pub replay_names: Option<ReplayNames>,
}

impl Run {
    /// Returns the innermost range that describes the work of a kernel: around its launch or, for a kernel that
    /// a CUDA graph replays, around its capture.
    pub fn scope_of_work(&self, kernel: &Kernel, link: &Link) -> Option<ScopeId> {
        let captured = kernel.captured;
        let scope = captured.and_then(|id| *self.capture_scopes.get(id.idx())?);
        scope.or(link.scope)
    }

    /// Returns the operator of a call.
    pub fn op_name(&self, call: &OpCall) -> Option<&OpName> {
        self.op_names.get(call.op.idx())
    }
}

/// What is known of where one kernel comes from.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// The API call that launched it.
    pub launch: Option<CallId>,
    /// Innermost range around the launch.
    pub scope: Option<ScopeId>,
    /// The operator call it belongs to.
    pub op: Option<OpCallId>,
    /// The step it was launched in.
    pub step: Option<StepId>,
    /// The site it is counted in; `None` outside the window.
    pub site: Option<SiteId>,
    /// Why there is no operator, when there is none.
    pub missing: Option<WithoutOperator>,
}

/// Why a kernel has no operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WithoutOperator {
    /// No launch row with its correlation id in its process: launched before the capture began, or
    /// the rows were dropped.
    NoLaunch,
    /// Launched by replaying a CUDA graph: the replay call is the only host event there is.
    GraphReplay,
    /// No range encloses the launch.
    NoRange,
    /// Ranges enclose the launch, but none of them names an operator.
    NoOperator,
}

/// A node of the scope tree.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// The range.
    pub range: RangeId,
    /// The innermost scope around it.
    pub parent: Option<ScopeId>,
    /// The text of the range, copied here because most walks of the tree need nothing else.
    pub text: StrId,
}

words! {
    /// Direction of the work, in PyProf's words.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Direction with fn name {
        /// Forward pass.
        Fprop = "fprop",
        /// Backward pass.
        Bprop = "bprop",
        /// Optimizer, gradient clipping and scaling.
        Update = "update",
        /// The profile does not say.
        Unknown = "unknown",
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
    /// Returns the name as reports show it: `aten::addmm`, `torch.nn.functional.conv2d`, `AddmmBackward0`.
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
    /// The range of the call.
    pub range: RangeId,
    /// The name of the operator.
    pub op: OpNameId,
    /// The arguments, if the profile lists them.
    pub args: Option<ArgsId>,
    /// Whether the arguments are those of the matching forward call (backward nodes list none
    /// themselves).
    pub args_from_forward: bool,
    /// Direction of the work.
    pub direction: Direction,
    /// Whether it is forward work done again inside the backward pass (activation checkpointing).
    pub recomputed: bool,
    /// Where in the model.
    pub layer: Option<LayerId>,
    /// The forward call of a backward one.
    pub forward: Option<OpCallId>,
    /// The step its first kernel was launched in.
    pub step: Option<StepId>,
}

/// The arguments of an operator call; interned.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpArgs {
    /// The arguments in the order of the call.
    pub items: Vec<Arg>,
}

/// One argument, with its keyword when it was passed by keyword.
#[derive(Debug, Clone, PartialEq)]
pub struct Arg {
    /// The keyword.
    pub name: Option<String>,
    /// The value.
    pub value: ArgValue,
}

impl Arg {
    /// Whether it is a tensor of known shape, or a list with one.
    pub fn has_tensors(&self) -> bool {
        let sized = |value: &ArgValue| matches!(value, ArgValue::Tensor(t) if !t.shape.is_empty());
        match &self.value {
            ArgValue::List(items) => items.iter().any(sized),
            value => sized(value),
        }
    }
}

/// What a profile says of an argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgValue {
    /// A tensor.
    Tensor(Tensor),
    /// A list or tuple.
    List(Vec<ArgValue>),
    /// An integer.
    Int(i64),
    /// A floating-point number; infinities and NaN occur.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string, or a value that is known only as text.
    Str(String),
    /// Python's `None`.
    None,
    /// An argument of which the profile does not say what it is (a scalar in `sizes = [[64, 8], []]`).
    Unknown,
}

/// A tensor argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Sizes of the dimensions, in elements.
    pub shape: Vec<u64>,
    /// Type of an element, if recorded.
    pub dtype: Option<DType>,
    /// Distance between neighbors along each dimension, in elements; as long as `shape`.
    pub strides: Option<Vec<i64>>,
}

impl Tensor {
    /// The number of its elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().copied().fold(1, u64::saturating_mul)
    }
}

impl OpArgs {
    /// Returns the tensors in order, with those in lists.
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

    /// Returns the positional argument at `index`, or the one passed as keyword `name`.
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

    /// Returns the tensor at `index`, or the one passed as keyword `name`.
    pub fn tensor(&self, index: usize, name: &str) -> Option<&Tensor> {
        match self.get(index, name) {
            Some(ArgValue::Tensor(t)) => Some(t),
            _ => None,
        }
    }
}

/// Where a layer's name came from, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerSource {
    /// `layer:NAME` ranges.
    LayerRange,
    /// FSDP pre/post forward and backward brackets.
    Fsdp,
    /// nn.Module stack: Kineto python events, module hierarchy, `funcStack`.
    Module,
    /// Names that the program gave the kernels of a CUDA graph.
    GraphRegion,
    /// Any other range or annotation the user pushed.
    UserRange,
    /// The innermost user source line of a call stack.
    SourceLine,
    /// Nothing better than the operator.
    Op,
}

impl LayerSource {
    /// Whether it surrounds all that a layer does, what launches no kernels included.
    pub fn is_around_layers(self) -> bool {
        matches!(self, LayerSource::LayerRange | LayerSource::Module)
    }

    /// Returns the words of the report.
    pub fn describe(self) -> &'static str {
        match self {
            LayerSource::LayerRange => "ranges that name layers",
            LayerSource::Fsdp => "FSDP module brackets",
            LayerSource::Module => "the nn.Module stack",
            LayerSource::GraphRegion => "regions that captured CUDA graphs (`mark_kernels`)",
            LayerSource::UserRange => "user ranges",
            LayerSource::SourceLine => "source lines of call stacks",
            LayerSource::Op => "operator names (nothing in the profile names layers)",
        }
    }
}

/// Where in the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Layer {
    /// Its name: text of the profile, not escaped.
    pub name: String,
    /// What named it.
    pub source: LayerSource,
    /// The pattern it folds into.
    pub pattern: PatternId,
}

/// Layers that differ only in instance numbers: `blocks.0` ... `blocks.23` are `blocks.*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayerPattern {
    /// The common name, with `*` for instance numbers.
    pub name: String,
    /// Number of distinct layers folded into it.
    pub layers: u32,
}

/// All op calls with the same layer, operator, direction, shapes, dtypes and stride class; or, for
/// kernels without an operator, all with the same name and launch configuration.
#[derive(Debug, Clone)]
pub struct Site {
    /// The operator, if known.
    pub op: Option<OpName>,
    /// Arguments of the calls.
    pub args: Option<ArgsId>,
    /// As [`OpCall::args_from_forward`].
    pub args_from_forward: bool,
    /// Fields of the collective that each call performs, by keyword, as recorded with its kernel. Set
    /// only where the operator is unknown or its arguments lack them.
    pub message: Option<ArgsId>,
    /// Direction of the work.
    pub direction: Direction,
    /// As [`OpCall::recomputed`].
    pub recomputed: bool,
    /// Where in the model.
    pub layer: Option<LayerId>,
    /// Why there is no operator, when there is none.
    pub missing: Option<WithoutOperator>,
    /// The entry of [`ReplayNames`] that names operator and layer.
    pub replayed: Option<u32>,
    /// Number of operator calls (of kernels, without an operator).
    pub calls: u32,
    /// Sum of its kernels' durations, in ns.
    pub time_ns: i64,
    /// Time in which its kernels, one or several, ran on a device and nothing else, in ns.
    pub exposed_ns: i64,
    /// Time in which its kernels ran and nothing else but communication, in ns; 0 for communication.
    pub beside_comm_ns: i64,
    /// In order of time, largest first.
    pub kernels: Vec<SiteKernel>,
    /// Innermost user source line, when call stacks say.
    pub source_line: Option<String>,
    /// Its first kernel.
    pub first: KernelId,
}

/// The executions of one kernel with one launch configuration inside a site.
#[derive(Debug, Clone, Copy)]
pub struct SiteKernel {
    /// Kernel name.
    pub name: StrId,
    /// Launch configuration.
    pub config: ConfigId,
    /// Number of executions.
    pub count: u32,
    /// Sum of their durations, in ns.
    pub time_ns: i64,
    /// As [`Site::exposed_ns`], for its executions.
    pub exposed_ns: i64,
    /// As [`Site::beside_comm_ns`].
    pub beside_comm_ns: i64,
    /// Shortest execution, in ns.
    pub min_ns: i64,
    /// Longest execution, in ns.
    pub max_ns: i64,
}

/// What a kernel of a replay does, by the matching kernel of a recording without graphs. Shapes are those
/// of the other recording, so none are kept but those that do not depend on the batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayedWork {
    /// The operator; `None` for a kernel of the same family that another operator may have launched, as
    /// attention in decoding and in prefill.
    pub op: Option<OpName>,
    /// The layer, and what named it there.
    pub layer: Option<(LayerSource, String)>,
    /// The direction of the work.
    pub direction: Direction,
    /// Bytes of the weights that the operator multiplies with.
    pub weight_bytes: Option<u64>,
    /// Bytes of keys and values that the operator reads for each token of a request so far.
    pub bytes_per_key: Option<u64>,
}

/// The kernels of graph replays that match kernels of another recording.
#[derive(Debug, Clone, Default)]
pub struct ReplayNames {
    /// Name of the other recording.
    pub file: String,
    /// Distinct work.
    pub work: Vec<ReplayedWork>,
    /// Per matched kernel: its row of `work`.
    pub of_kernel: FxHashMap<KernelId, u32>,
    /// Number of analyzed kernels that were launched by replays.
    pub replayed: u64,
}

/// One training or inference iteration.
#[derive(Debug, Clone)]
pub struct Step {
    /// The number in its range; its position for steps without numbers.
    pub number: u64,
    /// On the host's clock.
    pub span: Span,
    /// From the first to the last kernel that was launched in it; `None` when there is none.
    pub gpu: Option<Span>,
    /// Whether it is left out of the window: declared warm-up, or a first iteration that is not like
    /// the others.
    pub warmup: bool,
}

/// What the steps of a run were recognized by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepOrigin {
    /// The kind of evidence.
    pub source: StepSource,
    /// The text of the ranges, with `#` for numbers; empty for [`StepSource::KernelSequence`]. Text of
    /// the profile, not escaped.
    pub text: String,
}

/// The kinds of evidence for steps, most certain first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepSource {
    /// Ranges that number the steps.
    Numbered,
    /// Ranges that name a step without numbering it.
    NamedRange,
    /// `Optimizer.step` ranges.
    Optimizer,
    /// The ranges in which a data loader returns a batch.
    DataLoader,
    /// A range of the user that is repeated with about the same work.
    RepeatedRange,
    /// A sequence of kernels, or of CUDA graphs that are recorded whole, that repeats. Inferred, not recorded.
    KernelSequence,
}

/// The part of the capture that is analyzed.
#[derive(Debug, Clone, Default)]
pub struct Window {
    /// From the start of the first analyzed step, or without steps from the first analyzed kernel, to
    /// the end of the last step or of the last GPU work, whichever is later.
    pub span: Option<Span>,
    /// What lies outside.
    pub setup: SetUp,
    /// The shortest range of the user in which all of its work was launched. Text of the profile, not
    /// escaped.
    pub inside: Option<String>,
    /// Host time whose work is not analyzed, in time order.
    pub excluded: Vec<ExcludedTime>,
    /// Per copy: whether it is analyzed.
    pub copies: Vec<bool>,
    /// Per memset: whether it is analyzed.
    pub sets: Vec<bool>,
    /// Idle time inside the span, per device in time order, while code was loaded or compiled or memory was set up. It is not
    /// part of the analyzed time.
    pub loads: Vec<Span>,
}

impl Window {
    /// Returns the host time whose work is not analyzed, in time order and without overlap.
    pub(crate) fn excluded_spans(&self) -> Vec<Span> {
        Span::union(self.excluded.iter().map(|e| e.span).collect())
    }
}

/// Host time whose work is not analyzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExcludedTime {
    /// On the host's clock.
    pub span: Span,
    /// The reason.
    pub why: Exclusion,
}

/// Why a part of the capture is not analyzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// The user declared it warm-up, or it is the little work before declared warm-up.
    WarmUp,
    /// A first iteration that takes longer than the others.
    FirstIteration,
    /// Before the first or after the last step.
    OutsideSteps,
    /// A library tried algorithms for an operator.
    AlgorithmSearch,
    /// On a device that does next to nothing beside the busiest.
    IdleDevice,
}

/// What lies outside the window: reported, but never counted as a saving.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SetUp {
    /// From the first event of the file to the start of the window, in ns.
    pub ns: i64,
    /// Number of copies.
    pub copies: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Time during which a copy ran, in ns.
    pub copied_ns: i64,
    /// Number of copies from or to pageable memory.
    pub pageable_copies: u64,
    /// Number of copies behind a pause after the last kernel, in a capture without steps.
    #[serde(default)]
    pub copies_after: u64,
    /// Work that is not analyzed, by reason.
    pub excluded: Vec<ExcludedWork>,
    /// Idle time inside the window, summed over devices, while code was loaded or compiled or memory was set up, in ns. It
    /// is not part of the analyzed time.
    pub loading_ns: i64,
    /// Idle time inside the window, summed over devices, while the profiler worked for itself, in ns. It
    /// is not part of the analyzed time.
    pub profiler_ns: i64,
    /// Longest first launch of a kernel (lazy loading) inside the capture, in ns; 0 when none stands
    /// out.
    pub first_launch_ns: i64,
}

/// GPU work that is not analyzed for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExcludedWork {
    /// The reason.
    pub why: Exclusion,
    /// Number of kernels.
    pub kernels: u64,
    /// Sum of their durations, in ns.
    pub kernel_ns: i64,
}

/// What each device did inside the window.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// The devices that worked inside the window.
    pub devices: Vec<DeviceTimeline>,
}

impl Timeline {
    /// The idle time before late launches, as far as recording does not explain it.
    pub fn late_launches(&self) -> impl Iterator<Item = &Gap> {
        let gaps = self.devices.iter().flat_map(|device| &device.gaps);
        gaps.filter(|gap| gap.cause == GapCause::HostLate && gap.reliable_ns > 0)
    }
}

/// One device inside the window. All times are lengths of unions of intervals, in ns: overlap counts
/// once.
#[derive(Debug, Clone)]
pub struct DeviceTimeline {
    /// The device.
    pub device: DeviceId,
    /// The device's part of the window.
    pub span: Span,
    /// Parts of `span` that are not analyzed and in which no analyzed work ran, in time order.
    pub excluded: Vec<Span>,
    /// Time in kernels, copies, memsets or graph traces.
    pub busy_ns: i64,
    /// Time in kernels (with communication) or graph traces.
    pub kernel_ns: i64,
    /// Time in copies.
    pub copy_ns: i64,
    /// Time in communication kernels.
    pub comm_ns: i64,
    /// Time in copies while no kernel ran.
    pub exposed_copy_ns: i64,
    /// Time in communication kernels while no other kernel ran.
    pub exposed_comm_ns: i64,
    /// How much can be saved of what is computed beside communication before the steps wait for that, at most.
    pub comm_slack_ns: i64,
    /// Time in graph traces.
    pub graph_ns: i64,
    /// Idle intervals longer than 0 ns, in time order.
    pub gaps: Vec<Gap>,
    /// Whether the reliable part of the gaps is what steps have that are not recorded.
    pub idle_is_unrecorded: bool,
    /// The thread whose step ends with the window, if the device is idle then.
    pub end_thread: Option<ThreadId>,
}

impl DeviceTimeline {
    /// A device to which no work or idle time is added yet.
    pub(crate) fn empty(device: DeviceId, span: Span) -> DeviceTimeline {
        DeviceTimeline {
            device,
            span,
            excluded: Vec::new(),
            busy_ns: 0,
            kernel_ns: 0,
            copy_ns: 0,
            comm_ns: 0,
            exposed_copy_ns: 0,
            exposed_comm_ns: 0,
            comm_slack_ns: 0,
            graph_ns: 0,
            gaps: Vec::new(),
            idle_is_unrecorded: false,
            end_thread: None,
        }
    }

    /// Whether no work followed a gap: it ends with the window.
    pub fn is_at_end(&self, gap: &Gap) -> bool {
        gap.ended_by.is_none() && gap.span.end == self.span.end
    }

    /// The thread that the device waited for: the one that launched the work behind the gap, or whose step ends
    /// with it.
    pub(crate) fn awaited_thread(&self, profile: &Profile, gap: &Gap) -> Option<ThreadId> {
        match gap.ended_by {
            Some(_) => gap.launch(profile).map(|call| call.thread),
            None => self.end_thread.filter(|_| self.is_at_end(gap)),
        }
    }

    /// Returns the analyzed time of the device, in ns: its part of the window without what is excluded.
    pub fn analysed_ns(&self) -> i64 {
        let excluded = self.excluded.iter().map(|span| span.ns());
        self.span.ns() - excluded.fold(0, i64::saturating_add)
    }

    /// Returns the analyzed time of the device as long as it is without a recording, where that is known, in ns.
    pub fn unrecorded_ns(&self) -> i64 {
        match self.idle_is_unrecorded {
            true => self.busy_ns.saturating_add(self.reliable_idle_ns()),
            false => self.analysed_ns(),
        }
    }

    /// Returns the idle time of the device in its analyzed time, in ns.
    pub fn idle_ns(&self) -> i64 {
        self.analysed_ns() - self.busy_ns
    }

    /// Returns the idle time that recording overhead cannot explain, in ns.
    pub fn reliable_idle_ns(&self) -> i64 {
        let gaps = self.gaps.iter().map(|gap| gap.reliable_ns);
        gaps.fold(0, i64::saturating_add)
    }
}

/// An interval in which a device was idle.
#[derive(Debug, Clone, Copy)]
pub struct Gap {
    /// The interval.
    pub span: Span,
    /// Why.
    pub cause: GapCause,
    /// The part of the gap that neither recording overhead nor work that was not recorded can explain, in
    /// ns. All of it, unless operators were marked, Python stacks recorded, or a node of a graph waited.
    pub reliable_ns: i64,
    /// The kernel that ended the gap; `None` if a copy or the end of the window did.
    pub next: Option<KernelId>,
    /// The host call that caused it, if the cause is a call.
    pub call: Option<CallId>,
    /// The call that launched what ended the gap.
    pub ended_by: Option<CallId>,
    /// Whether the launching thread had waited for the GPU in this gap or up to it, whatever it did next.
    pub after_wait: bool,
}

impl Gap {
    /// The call that launched what ended the gap.
    pub fn launch<'p>(&self, profile: &'p Profile) -> Option<&'p ApiCall> {
        profile.call(self.ended_by?)
    }
}

/// A gap by its device's row and its own.
pub type GapKey = (usize, usize);

/// What the launching thread did in a gap, up to the launch that ended it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// The operator, function or range that the thread was in for more than half of the time: one of `cpu_ops`,
    /// or the one with the least time of those. None that is around nearly the whole window.
    pub op: Option<StrId>,
    /// The same of what was called many times in it, where each call was short.
    pub short_calls: Option<StrId>,
    /// The outermost range that the thread entered in the gap and in which it launched the work that
    /// ended the gap.
    pub before: Option<StrId>,
    /// A copy from host memory ended the gap.
    pub before_copy: bool,
    /// What operators of PyTorch computed on the CPU.
    pub cpu_ops: CpuOps,
}

/// Operators of PyTorch on the CPU, in which no call of the device was made. One that another of them called is part
/// of that, and those that belong on the CPU are left out: see the module `gap_activity`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuOps {
    /// Time in all of them, in ns.
    pub ns: i64,
    /// Those with most time, longest first, with their time in ns.
    pub most: Vec<(StrId, i64)>,
}

impl CpuOps {
    /// From the time of each operator.
    pub(crate) fn of(times: &TimeBy<StrId>, most: usize) -> CpuOps {
        let ns = times.ns();
        let mut times = times.sorted();
        times.truncate(most);
        CpuOps { ns, most: times }
    }
}

words! {
    /// Why a device was idle; each idle nanosecond has exactly one cause.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum GapCause with fn name {
        /// The profiler was writing its own buffers.
        ProfilerOverhead = "profiler_overhead",
        /// A data loading range was open on the launching thread.
        DataLoading = "data_loading",
        /// The host had just returned from a synchronizing call, and no work was queued; or it was still late after
        /// one, in a step in which it would run ahead of the GPU if it never waited.
        AfterSync = "after_sync",
        /// The same of a pageable or synchronous copy that blocked the host.
        BlockingCopy = "blocking_copy",
        /// Memory was being allocated or freed.
        Allocation = "allocation",
        /// Code was being loaded or the driver set up: a first launch, a module load, a first call that
        /// takes far longer than its like.
        ModuleLoad = "module_load",
        /// Launching the next work took the host most of the interval.
        SlowLaunch = "slow_launch",
        /// The next kernel was launched only after the previous one had ended, by no more than a few
        /// operators, or the optimizer's, take on the host.
        HostLate = "host_late",
        /// The same, but so much later that the host must have done something other than launch work.
        HostBusy = "host_busy",
        /// Launched in time, started late: waiting on another stream, device or rank.
        Waiting = "waiting",
        /// No cause was found.
        Unknown = "unknown",
    }
}

/// One synchronizing call, and the copy that it waits for: its own, or the last one queued before it.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// The call.
    pub id: CallId,
    /// The thread that waits.
    pub thread: ThreadId,
    /// On the host's clock.
    pub span: Span,
    /// Name of the call.
    pub api: StrId,
    /// Kind and bytes of the copy; `None` where no copy was queued before it.
    pub copy: Option<(CopyKind, u64)>,
}

/// What the modules above know about names of operators and kernels.
pub struct Vocabulary<'a> {
    /// Whether an operator name is one the cost table (or the rules) understands.
    pub knows_op: &'a (dyn Fn(&OpName) -> bool + Sync),
    /// Whether a kernel, by its name, moves data between GPUs.
    pub is_communication: &'a (dyn Fn(&str) -> bool + Sync),
}
