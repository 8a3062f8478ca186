//! Floor 5: the fact table, the only interface between the analysis and the rules.
//!
//! Each fact has a name, a type, a unit, a description, the families it applies to and the data it
//! needs. The modules below contain the knowledge about GPUs; rules and reports above use names and
//! values only.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::statistics::median;
use crate::base::words::words;
use crate::correlate::SiteId;
use crate::cost::Family;
use crate::profile::{Profile, RangeKind};

mod backward_passes;
mod before_update;
mod call_operators;
mod call_stacks;
mod chain;
mod closed_sets;
mod collectives;
mod computed_weights;
mod conversion;
mod copy;
mod cpu_use;
mod cutlass;
mod decoding;
mod devices_at_once;
mod embedding_tables;
mod enclosing_ops;
mod equal_calls;
mod equal_networks;
mod first_fp64;
mod framework_signs;
mod gap;
mod gpu;
mod gradient_sums;
mod graphs;
mod growing_cats;
mod growing_passes;
mod host;
mod host_work;
mod kernel;
mod late_layers;
mod layer;
mod loader_config;
mod main_kernel;
mod maker;
mod memory;
mod message;
mod needless_gradients;
mod padded_lengths;
mod plain_attention;
mod program;
mod range_paths;
mod reduction_copies;
mod rows_used;
mod run;
mod same_kernels;
mod site;
mod slice_gradients;
mod step;
mod step_comm;
mod step_shapes;
mod step_stability;
mod step_weight;
mod sync;
mod table;
mod table_series;
mod unrecorded;
mod update_ops;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod whole_run_tests;
mod work_steps;
mod worker_start;

pub use crate::base::cel::{Type, Value};
pub(crate) use copy::longest_copy;
pub(crate) use host_work::UNRECORDED_WORK;
pub use kernel::ENOUGH_CALLS;
pub(crate) use maker::product_of;
pub(crate) use memory::MemoryUse;
pub(crate) use message::message_of;
pub(crate) use program::shows_pytorch;
pub(crate) use step_comm::exposed_comm_per_step;
pub(crate) use step_weight::{busy_weight, step_weight};
pub use table::{FactTable, FactView, all, find};
pub(crate) use work_steps::steps_in_window;

words! {
    /// The kind of thing a rule is evaluated for: one finding per member of this kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MemberKind with fn word {
        /// The whole run.
        Run = "run",
        /// A numbered step.
        Step = "step",
        /// A layer pattern, such as `blocks.*.mlp`.
        Layer = "layer",
        /// All calls with the same layer, operator, direction, shapes and dtypes.
        Site = "site",
        /// A recognized sequence of operator calls.
        Chain = "chain",
        /// A kernel of a site.
        Kernel = "kernel",
        /// Memory copies with the same direction, kinds of memory and kind of call.
        Copy = "copy",
        /// Idle intervals with the same device, cause and operator.
        Gap = "gap",
        /// A process, usually one rank of a distributed job.
        Rank = "rank",
    }
}

impl MemberKind {
    /// The subject of a word.
    pub fn parse(word: &str) -> Option<MemberKind> {
        Self::ALL.iter().find(|(_, w)| *w == word).map(|(o, _)| *o)
    }

    /// The fact prefixes that a rule for this subject may use. Kernels also have the facts of their
    /// site, sites those of their layer, and all have those of the run and the GPU.
    pub fn prefixes(self) -> &'static [&'static str] {
        match self {
            MemberKind::Run => &["run", "gpu"],
            MemberKind::Step => &["step", "run", "gpu"],
            MemberKind::Layer => &["layer", "run", "gpu"],
            MemberKind::Site => &["site", "layer", "run", "gpu"],
            MemberKind::Chain => &["chain", "layer", "run", "gpu"],
            MemberKind::Kernel => &["kernel", "site", "layer", "run", "gpu"],
            MemberKind::Copy => &["copy", "run", "gpu"],
            MemberKind::Gap => &["gap", "run", "gpu"],
            MemberKind::Rank => &["rank", "run", "gpu"],
        }
    }
}

/// The result of looking up a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The fact is known.
    Value(Value),
    /// The fact applies, but the profile does not record it: the rule is skipped.
    Absent,
    /// The fact has no meaning for this member: the rule reports nothing.
    DoesNotApply,
}

/// One entry of the fact table.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// `site.time_ns`: prefix, dot, name; units are in the name.
    pub name: &'static str,
    /// The type of its value. Times, FLOPs, bytes and shares are doubles; dims and counts are ints.
    pub ty: Type,
    /// One sentence without a full stop, for the reference page.
    pub doc: &'static str,
    /// Families it applies to; empty means all.
    pub families: &'static [Family],
    /// The data the profile must contain, phrased as how to record it; empty when always there.
    pub needs: &'static str,
}

/// A source of facts: a member of a run, or the facts of a rule's test.
pub trait Lookup: Sync {
    /// Returns the fact of this name; [`Answer::Absent`] for a name that is not in the table.
    fn get(&self, name: &str) -> Answer;
}

/// A member of a run that rules are evaluated for. Numbers are rows of the fact table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// The whole run.
    Run,
    /// Index into `Run::steps`.
    Step(u32),
    /// Index into `Run::patterns`.
    Layer(u32),
    /// Index into `Run::sites`.
    Site(SiteId),
    /// A recognized sequence of operator calls.
    Chain(u32),
    /// A site, and the row in its `Site::kernels`.
    Kernel(SiteId, u32),
    /// A group of memory copies.
    Copy(u32),
    /// A group of idle intervals.
    Gap(u32),
    /// A process with work inside the window.
    Rank(u32),
}

/// The part of the run that a member covers, for assigning savings and for display.
#[derive(Debug, Clone, Default)]
pub struct AffectedTime {
    /// The affected sites, each with its time and its reachable time.
    pub sites: Vec<AffectedSite>,
    /// The backward calls of the operators it covers, where it covers a chain: they change with it.
    pub backward: Vec<AffectedSite>,
    /// Where it covers a chain: its calls and kernels of each site.
    pub parts: BTreeMap<SiteId, SitePart>,
    /// Whether no time of it counts: a library's algorithm search, which a steady step does not repeat.
    pub uncounted: bool,
    /// Idle time it covers, ns.
    pub idle_ns: f64,
    /// Idle time in which the GPU waited for late launches: of the kernels it covers, or all of it for a gap of
    /// that cause, ns.
    pub launch_ns: f64,
    /// What the host works for the launches of the kernels it covers, from call to call, in ns; 0 if unknown.
    pub host_ns: f64,
    /// The part of its idle time after a wait, while the host launches again but is not ahead of the GPU yet. Without
    /// the wait, the host takes as long for these launches.
    pub catch_up_ns: f64,
    /// Of idle time: the longest interval, ns.
    pub longest_ns: f64,
    /// The longest pauses of the host it covers, each in another place.
    pub long_gaps: Vec<LongGap>,
    /// Exposed copy time it covers, ns.
    pub copy_ns: f64,
    /// How far saved copy time shortens steps; `None` where it does so fully.
    pub copy_weight: Option<StepWeight>,
    /// Operator calls, kernel executions, copies or intervals it covers.
    pub calls: u64,
    /// Of idle time: the calls of the host behind it.
    pub waits: u64,
    /// All GPU (or idle, or copy) time it covers, ns.
    pub time_ns: f64,
    /// Its location for display, not escaped: layer pattern and operator, or another name.
    pub place: String,
    /// The layer pattern it belongs to, if any.
    pub layer: Option<String>,
}

impl AffectedTime {
    /// The sites it covers and, with them, the backward calls of a chain.
    pub(crate) fn all_sites(&self) -> impl Iterator<Item = &AffectedSite> {
        self.sites.iter().chain(&self.backward)
    }
}

/// The calls of a site that a finding covers, and their kernels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SitePart {
    /// Whether it is the whole site; then nothing else is set.
    pub whole: bool,
    /// Number of calls.
    pub calls: u64,
    /// Executions and time in ns, by the row in `Site::kernels`.
    pub kernels: BTreeMap<u32, (u64, f64)>,
}

impl SitePart {
    /// Adds executions of a kernel.
    pub(crate) fn add_kernel(&mut self, row: u32, count: u64, ns: f64) {
        let kernel = self.kernels.entry(row).or_default();
        *kernel = (kernel.0 + count, kernel.1 + ns);
    }

    /// Adds other calls.
    pub(crate) fn add(&mut self, other: &SitePart) {
        self.whole |= other.whole;
        self.calls += other.calls;
        for (row, (count, ns)) in &other.kernels {
            self.add_kernel(*row, *count, *ns);
        }
    }
}

/// A gap of an [`AffectedTime`].
#[derive(Debug, Clone, PartialEq)]
pub struct LongGap {
    /// Its length without what recording explains, in ns.
    pub ns: f64,
    /// Markdown: "in `zoom (ndimage/_interpolation.py:739)`", "before `aten::nonzero`".
    pub place: String,
}

impl LongGap {
    /// Most gaps that are named, each in another place.
    const MOST: usize = 4;

    /// The first gap in each place, of gaps that come longest first.
    pub(crate) fn in_each_place(gaps: impl Iterator<Item = LongGap>) -> Vec<LongGap> {
        let mut kept: Vec<LongGap> = Vec::new();
        for gap in gaps {
            if kept.iter().all(|other| other.place != gap.place) {
                kept.push(gap);
            }
            if kept.len() == LongGap::MOST {
                break;
            }
        }
        kept
    }
}

/// The part of a site in an [`AffectedTime`].
#[derive(Debug, Clone, Copy)]
pub struct AffectedSite {
    /// The site.
    pub site: SiteId,
    /// The affected part of its GPU time, in ns.
    pub time_ns: f64,
    /// Reachable time in ns: savings never reduce the time below it. 0 if unknown.
    pub floor_ns: f64,
    /// Share of the time during which nothing else ran on the device: this part shortens a step.
    pub exposed_share: f64,
    /// Share of the time during which only communication ran beside it: this part shortens a step as far as the step
    /// does not wait for the communication.
    pub beside_comm_share: f64,
    /// How far saved time shortens steps: less where late launches follow its kernels. `None` where that
    /// is unknown.
    pub step_weight: Option<StepWeight>,
}

/// Share of saved kernel time by which steps become shorter, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepWeight {
    /// Surely: as recorded, a late launch absorbs all that kernels before it save.
    pub low: f64,
    /// At most: without recording, launches may be less late.
    pub high: f64,
}

impl StepWeight {
    /// A weight without a range.
    pub fn exactly(weight: f64) -> StepWeight {
        StepWeight {
            low: weight,
            high: weight,
        }
    }
}

/// The totals that shares and step times refer to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Union of GPU work, summed over devices.
    pub gpu_busy_ns: f64,
    /// Kernel time, summed over kernels and devices; graphs recorded as a whole count as kernels.
    pub kernel_ns: f64,
    /// Analyzed window, summed over devices, as long as it is without a recording where that is known.
    pub window_ns: f64,
    /// Window minus busy time, summed over devices.
    pub idle_ns: f64,
    /// Exposed copies, summed over devices.
    pub copy_ns: f64,
    /// Time in communication kernels, summed over devices.
    pub comm_ns: f64,
    /// What can be saved of computation beside communication before the steps wait for that, at most; summed over
    /// devices.
    pub comm_slack_ns: f64,
    /// The window without what the host works, summed over devices: nothing that leaves its work as it is shortens
    /// steps by more. `None` where that is unknown.
    pub host_slack_ns: Option<f64>,
    /// Devices with work inside the window.
    pub devices: u32,
    /// How many of them work at the same time: GPU time saved, summed over devices, shortens steps by one part in so
    /// many: from 1 to `devices`. 0, the default, means 1.
    pub devices_at_once: f64,
    /// Share of saved kernel time by which steps become shorter, 0 to 1: a faster kernel does not shorten
    /// a host-bound step. `None` if recording overhead leaves open which.
    pub step_weight: Option<f64>,
    /// Idle time that recording overhead cannot explain, in ns.
    pub reliable_idle_ns: f64,
    /// The part of it in which the GPU waited for launches that came late.
    pub late_launch_ns: f64,
    /// Worker processes of a data loader set the pace: the host waits for them however fast the rest is, so
    /// that nothing else surely shortens a step.
    pub paced_by_workers: bool,
}

impl Totals {
    /// Below this weight of kernel time the host limits the steps, and idle time is what to look at first.
    const HOST_BOUND: f64 = 0.25;

    /// The number of devices, to divide by: at least 1.
    pub(crate) fn device_count(&self) -> f64 {
        f64::from(self.devices.max(1))
    }

    /// Returns whether the host limits the steps: faster kernels hardly shorten them.
    pub fn host_bound(&self) -> bool {
        Self::is_host_bound(self.step_weight)
    }

    /// As [`Totals::host_bound`], of a weight of kernel time.
    pub(crate) fn is_host_bound(step_weight: Option<f64>) -> bool {
        step_weight.is_some_and(|weight| weight < Self::HOST_BOUND)
    }
}

/// A subject type, with the type that its facts are computed from.
trait Subject {
    type Of<'a>;
}

/// The subject type of run facts.
struct Runs;

impl Subject for Runs {
    type Of<'a> = FactTable<'a>;
}

/// A fact and the function that computes it.
struct Entry<S: Subject> {
    fact: Fact,
    get: for<'a, 'b> fn(&'a S::Of<'b>) -> Answer,
}

/// The `gpu.` facts of a GPU, or of an unknown one, for the tests of rules.
pub fn of_gpu(gpu: Option<&crate::gpu::Gpu>) -> BTreeMap<String, Value> {
    gpu::of(gpu)
}

/// Descriptions of the data that facts need, phrased as how to record it.
mod needs {
    use crate::profile::DataKind;

    pub(super) const SHAPES: &str = "tensor shapes: `emit_nvtx(record_shapes=True)`, PyProf markers, or torch.profiler with `record_shapes=True`";
    pub(super) const STRIDES: &str =
        "tensor strides: torch.profiler with `record_shapes=True` of a recent PyTorch";
    pub(super) const GPU: &str =
        "the GPU: name it with `--gpu`, or capture with a tool that records it";
    /// Replaces [`GPU`] where the GPU is named, and its specification lacks the figure.
    pub(super) const GPU_SPEC: &str = "figures of this GPU that no specification has: describe them in a file for `--gpu FILE` (`pyprof-advise gpus`)";
    pub(super) const KERNEL_NAME: &str =
        "kernel names that say what they do (those of Triton and custom kernels do not)";
    pub(super) const LAUNCH_CONFIG: &str =
        "launch configurations (registers, shared memory) in the export";
    pub(super) const GPU_AND_LAUNCH: &str = "the GPU (`--gpu NAME`) and the kernel's launch configuration, which kernels without a launch call may lack";
    pub(super) const GPU_AND_SHAPES: &str =
        "the GPU (`--gpu NAME`) and tensor shapes (`record_shapes=True`)";
    pub(super) const STEPS: &str =
        "numbered step ranges: `torch.cuda.nvtx.range_push(f\"step {i}\")`, or `prof.step()`";
    pub(super) const MORE_STEPS: &str = "at least four numbered step ranges: `torch.cuda.nvtx.range_push(f\"step {i}\")`, or `prof.step()`";
    pub(super) const COMPILE_IDS: &str =
        "`torch.compile` of PyTorch 2.2 or later, whose ranges carry the number of the compilation";
    pub(super) const MORE_MATH: &str =
        "tensor shapes, and matrix products or convolutions that run 20 times or more";
    pub(super) const MESSAGE: &str = "collectives with their message sizes: torch.profiler of PyTorch 2.2 or later, or `record_shapes=True`";
    pub(super) const MEMORY_KINDS: &str = "the kind of memory of each copy, which Nsight Systems and torch.profiler record on NVIDIA GPUs";
    pub(super) const RANGES_OF_OPS: &str =
        "operators on the host: torch.profiler, or `emit_nvtx` under Nsight Systems";
    pub(super) const API: &str = "the CUDA API call that issued it: `nsys profile -t cuda,nvtx`, started before the work is launched";
    pub(super) const OS_CALLS: &str =
        "calls of the operating system: `nsys profile --trace=cuda,nvtx,osrt`";
    pub(super) const SCHEDULING: &str = "when threads run: `nsys profile --cpuctxsw=process-tree`";
    pub(super) const HOST_FUNCTIONS: &str = "functions of the host: torch.profiler with `with_stack=True`, or `nsys profile --sample=process-tree`";
    /// Replaces [`HOST_FUNCTIONS`] in traces of torch.profiler.
    pub(super) const HOST_STACKS: &str =
        "functions of the host: torch.profiler of PyTorch 1.11 or later with `with_stack=True`";
    pub(super) const HOST_ACTIVITY: &str = "what the host did: torch.profiler with `with_stack=True`, or `nsys profile --trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree`";
    pub(super) const LAYERS: &str = "layer names: `layer:NAME` ranges, FSDP, or module stacks";

    /// Replaces what only PyTorch records where the program shows nothing of it.
    pub(super) const PYTORCH: &str =
        "nothing: operators, shapes, layers and steps are recorded of programs of PyTorch only";

    /// Data that profilers record in different ways.
    pub(super) const KINDS: &[(&str, DataKind)] = &[
        (SHAPES, DataKind::Shapes),
        (LAUNCH_CONFIG, DataKind::LaunchConfig),
        (STEPS, DataKind::Steps),
        (API, DataKind::ApiCalls),
        (LAYERS, DataKind::Layers),
    ];
    /// Used instead of [`SHAPES`] if the profile has shapes and only the cost is unknown.
    pub(super) const COSTS: &str =
        "a cost model for the operators listed below (`--costs FILE` adds yours)";
}

/// Whether a new capture can record what a fact needs.
pub fn is_recordable(needs: &str) -> bool {
    let other = [
        needs::KERNEL_NAME,
        needs::COSTS,
        needs::GPU,
        needs::GPU_SPEC,
        needs::GPU_AND_LAUNCH,
        needs::LAUNCH_CONFIG,
        needs::MORE_MATH,
        "",
        needs::PYTORCH,
        // A program that compiles nothing has none.
        needs::COMPILE_IDS,
    ];
    !other.contains(&needs)
}

/// How to record the data that a fact needs, for the profiler that wrote the file. `gpu_known`: whether
/// the specification of the GPU is known.
pub fn how_to_record<'a>(needs: &'a str, profile: &Profile, gpu_known: bool) -> &'a str {
    let has_operators = || profile.ranges.iter().any(|r| r.kind == RangeKind::CpuOp);
    if needs == needs::SHAPES && profile.recorded.shapes && has_operators() {
        return needs::COSTS;
    }
    let named = || profile.devices.iter().any(|d| d.name.is_some());
    match needs {
        needs::GPU_AND_LAUNCH if gpu_known => {
            return how_to_record(needs::LAUNCH_CONFIG, profile, gpu_known);
        }
        needs::GPU_AND_SHAPES if gpu_known => {
            return how_to_record(needs::SHAPES, profile, gpu_known);
        }
        needs::GPU_AND_SHAPES if profile.recorded.shapes && has_operators() => {
            return how_to_record(needs::GPU, profile, gpu_known);
        }
        needs::HOST_FUNCTIONS if profile.format.has_stacks => return needs::HOST_STACKS,
        needs::GPU | needs::GPU_AND_LAUNCH if gpu_known || named() => return needs::GPU_SPEC,
        _ => {}
    }
    let kind = needs::KINDS.iter().find(|(name, _)| *name == needs);
    kind.and_then(|(_, kind)| profile.format.how_to_record(*kind))
        .unwrap_or(needs)
}

/// As [`how_to_record`], of a program that shows nothing of PyTorch.
pub fn how_to_record_without_pytorch<'a>(
    needs: &'a str,
    profile: &Profile,
    gpu_known: bool,
) -> &'a str {
    match needs {
        needs::SHAPES
        | needs::STRIDES
        | needs::STEPS
        | needs::MORE_STEPS
        | needs::MORE_MATH
        | needs::RANGES_OF_OPS
        | needs::LAYERS => needs::PYTORCH,
        needs::GPU_AND_SHAPES if gpu_known => needs::PYTORCH,
        _ => how_to_record(needs, profile, gpu_known),
    }
}

/// Whether data named by [`how_to_record`] includes the GPU, which `--gpu` gives.
pub fn includes_gpu(needs: &str) -> bool {
    [
        needs::GPU,
        needs::GPU_SPEC,
        needs::GPU_AND_LAUNCH,
        needs::GPU_AND_SHAPES,
    ]
    .contains(&needs)
}

impl Fact {
    /// A fact of all families that every profile has.
    pub const fn new(name: &'static str, ty: Type, doc: &'static str) -> Fact {
        Fact {
            name,
            ty,
            doc,
            families: &[],
            needs: "",
        }
    }

    /// `ns`, `bytes`, `share`, ..., which the end of its name says; empty for words and flags.
    pub fn unit(&self) -> &'static str {
        const UNITS: [(&str, &str); 7] = [
            ("_ns", "ns"),
            ("_bytes", "bytes"),
            ("_share", "share"),
            ("_per_s", "bytes/s"),
            ("site.flops", "FLOP"),
            ("flops", "FLOP/s"),
            ("align", "elements"),
        ];
        let unit = UNITS.iter().find(|(end, _)| self.name.ends_with(end));
        unit.map_or("", |(_, unit)| unit)
    }
}

impl Answer {
    /// The share of a part in a whole; does not apply if the whole is 0.
    fn share(part: f64, whole: f64) -> Answer {
        Answer::or_silent((whole > 0.0).then_some(part / whole))
    }

    /// A value that no other capture would add: does not apply if it is unknown.
    fn or_silent(value: Option<impl Into<Answer>>) -> Answer {
        value.map_or(Answer::DoesNotApply, Into::into)
    }
}

/// A value that the profile does not record is absent.
impl<T: Into<Answer>> From<Option<T>> for Answer {
    fn from(value: Option<T>) -> Answer {
        value.map_or(Answer::Absent, Into::into)
    }
}

impl From<f64> for Answer {
    fn from(value: f64) -> Answer {
        let finite = value.is_finite().then_some(value);
        finite.map_or(Answer::Absent, |value| Answer::Value(Value::Double(value)))
    }
}

impl From<u64> for Answer {
    fn from(value: u64) -> Answer {
        Answer::Value(Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Answer {
    fn from(value: u32) -> Answer {
        Answer::Value(Value::Int(value.into()))
    }
}

impl From<bool> for Answer {
    fn from(value: bool) -> Answer {
        Answer::Value(Value::Bool(value))
    }
}

impl From<&str> for Answer {
    fn from(value: &str) -> Answer {
        Answer::Value(Value::Str(value.into()))
    }
}

impl From<String> for Answer {
    fn from(value: String) -> Answer {
        Answer::from(value.as_str())
    }
}

impl From<Arc<[Arc<str>]>> for Answer {
    fn from(value: Arc<[Arc<str>]>) -> Answer {
        Answer::Value(Value::Strings(value))
    }
}

/// Declares facts: description, name and type, what a profile may lack (one of [`needs`]), the families, and
/// how the answer follows from the subject.
macro_rules! facts {
    ($($(#[doc = $doc:literal])+ $name:literal: $ty:ident $(needs $needs:ident)? $(of $families:expr)? =>
        |$subject:ident| $answer:expr,)*) => {
        &[$($crate::facts::Entry {
            fact: $crate::facts::Fact {
                $(needs: $crate::facts::needs::$needs,)?
                $(families: $families,)?
                ..$crate::facts::Fact::new(
                    $name,
                    $crate::facts::Type::$ty,
                    concat!($($doc),+).trim_ascii_start(),
                )
            },
            get: |$subject| $crate::facts::Answer::from($answer),
        }),*]
    };
}
use facts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_unique_documented_and_typed_by_their_names() {
        // The table refuses a fact that is declared twice.
        for fact in all() {
            let (prefix, _) = fact.name.split_once('.').expect("prefix.name");
            assert!(
                prefix == "gpu" || MemberKind::parse(prefix).is_some(),
                "{}",
                fact.name
            );
            assert!(
                fact.doc.len() > 5 && !fact.doc.ends_with('.'),
                "{}",
                fact.name
            );
            for (suffix, unit) in [
                ("_ns", "ns"),
                ("_bytes", "bytes"),
                ("_flops", "FLOP"),
                ("_share", "share"),
            ] {
                // Facts with per-dtype values are maps.
                if fact.name.ends_with(suffix) && fact.ty.scalar().is_some() {
                    assert_eq!(fact.unit(), unit, "{}", fact.name);
                    assert_eq!(fact.ty, Type::DOUBLE, "{}", fact.name);
                }
            }
        }
    }
}
