//! The neutral model of a profile, which every reader fills and every analysis reads.
//!
//! Typed tables with `u32` handles, interned strings, times as signed nanoseconds (real files hold
//! negative ones). A reader copies what the file says and absorbs every schema difference; it draws
//! no conclusions.
//!
//! An `Option` is `None` where the file does not say.

mod collective;
mod correlation_map;
mod cpu_use;
mod format;
mod host_activity;
mod host_range;
mod ids;
mod loader_config;
mod memory_event;
mod row_map;
mod rows;
mod start_counts;
mod switches;
mod unrecorded;

pub use collective::{COLLECTIVES, collective_in};
pub(crate) use correlation_map::CorrelationMap;
pub use cpu_use::{CpuUse, RunTime};
pub use format::{Container, DataKind, Format, RangeArgs};
pub(crate) use host_activity::SHORTEST_GAP_NS;
pub use host_activity::{
    ClassId, CpuSample, CudaCaller, HostActivity, HostSummary, LibraryCall, OffCpu, OffCpuState,
    OsCall, OsCallClass, PythonSample, PythonSamples, StackFrame, TimedSample,
};
pub(crate) use host_range::NumberedName;
pub use host_range::{HostRange, RangeKind, RangeText};
pub(crate) use ids::SpanSums;
pub use ids::{
    CallId, CaptureId, ConfigId, DeviceId, KernelId, ProcessId, RangeId, SerialNumber, Span, StrId,
    Strings, ThreadId,
};
pub use loader_config::LoaderConfig;
pub use memory_event::MemoryEvent;
pub(crate) use row_map::RowMap;
pub(crate) use start_counts::SortedStarts;
pub use start_counts::StartCounts;
pub use switches::Switch;
pub use unrecorded::Unrecorded;

/// One GPU execution of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// When it ran.
    pub span: Span,
    /// The demangled name as the file gives it, or the mangled one when there is no other.
    pub name: StrId,
    /// The GPU it ran on.
    pub device: DeviceId,
    /// The process that launched it.
    pub process: ProcessId,
    /// The CUDA stream; unique within its context.
    pub stream: u32,
    /// The CUDA context; 0 where the file does not say.
    pub context: u32,
    /// Joins to [`ApiCall::correlation`] **within the same process** only.
    pub correlation: Option<SerialNumber>,
    /// Its launch configuration.
    pub config: ConfigId,
    /// Whether it ran as a node of a CUDA graph, as far as the file says.
    pub in_graph: bool,
    /// The capture of that node, if it is recorded.
    pub captured: Option<CaptureId>,
}

/// The moment in which the program captured a kernel into a CUDA graph. The host ranges around it describe the
/// kernel in every replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    /// When it happened, in ns on the clock of the profile.
    pub time: i64,
    /// The host thread that captured it.
    pub thread: ThreadId,
}

/// The launch configuration of a kernel. Interned: few distinct ones exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LaunchConfig {
    /// Thread blocks by dimension; all 0 where the file does not say.
    pub grid: [u32; 3],
    /// Threads per block by dimension; all 0 where the file does not say.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static shared memory per block, in bytes.
    pub static_shared: Option<u32>,
    /// Dynamic shared memory per block, in bytes.
    pub dynamic_shared: Option<u32>,
    /// Local memory per thread, in bytes; above 0 usually means that registers were spilled.
    pub local_per_thread: Option<u32>,
}

impl LaunchConfig {
    /// Whether the file gives grid and block. Many do not for kernels without a launch call.
    pub fn is_known(&self) -> bool {
        self.grid != [0; 3] && self.block != [0; 3]
    }

    /// The number of thread blocks in the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&d| u64::from(d.max(1))).product()
    }

    /// The number of threads per block.
    pub fn threads(&self) -> u64 {
        self.block.iter().map(|&d| u64::from(d.max(1))).product()
    }
}

/// One CUDA runtime or driver call on the host.
#[derive(Debug, Clone, Copy)]
pub struct ApiCall {
    /// From entering to leaving the call.
    pub span: Span,
    /// The host thread that made it.
    pub thread: ThreadId,
    /// Joins to the GPU work it started, **within the same process** only.
    pub correlation: Option<SerialNumber>,
    /// Without version suffix: `cudaLaunchKernel`, not `cudaLaunchKernel_v7000`.
    pub name: StrId,
    /// What it does.
    pub class: ApiClass,
}

/// What an API call of CUDA or HIP does, as far as rules need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiClass {
    /// Launches a kernel.
    Launch,
    /// Launches a CUDA graph.
    GraphLaunch,
    /// Copies memory: `cudaMemcpy` and the like without `Async`.
    CopySync,
    /// Copies memory asynchronously.
    CopyAsync,
    /// Sets memory: `cudaMemset` and the like without `Async`.
    SetSync,
    /// Sets memory asynchronously.
    SetAsync,
    /// Waits: `cudaDeviceSynchronize`, `cudaStreamSynchronize`, `cudaEventSynchronize`,
    /// `cuCtxSynchronize`. Not `cudaStreamWaitEvent`, which does not block the host.
    Sync,
    /// Allocates, maps or registers memory.
    Alloc,
    /// Frees, unmaps or unregisters memory.
    Free,
    /// Loads or unloads a module or a library, often as part of the first launch.
    ModuleLoad,
    /// Anything else.
    Other,
}

impl ApiClass {
    /// The class of an API name without version suffix.
    pub fn of(name: &str) -> ApiClass {
        let has = |needle: &str| name.contains(needle);
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| name.starts_with(p));
        if has("GraphLaunch") {
            ApiClass::GraphLaunch
        } else if has("LaunchKernel")
            || has("LaunchCooperative")
            || name == "cudaLaunch"
            || name == "cuLaunch"
            || name == "cuLaunchGrid"
        {
            ApiClass::Launch
        } else if has("Synchronize") {
            ApiClass::Sync
        } else if starts(&["cudaMemcpy", "cuMemcpy", "hipMemcpy"]) {
            if has("Async") {
                ApiClass::CopyAsync
            } else {
                ApiClass::CopySync
            }
        } else if starts(&["cudaMemset", "cuMemset", "hipMemset"]) {
            if has("Async") {
                ApiClass::SetAsync
            } else {
                ApiClass::SetSync
            }
        } else if starts(&[
            "cudaMalloc",
            "cudaHostAlloc",
            "cudaHostRegister",
            "cuMemAlloc",
            "cuMemHostAlloc",
            "cuMemHostRegister",
            "cuMemCreate",
            "cuMemMap",
            "hipMalloc",
            "hipHostMalloc",
            "hipHostRegister",
            "hipExtMalloc",
        ]) {
            ApiClass::Alloc
        } else if starts(&[
            "cudaFree",
            "cudaHostUnregister",
            "cuMemHostUnregister",
            "hipHostUnregister",
            "cuMemFree",
            "cuMemUnmap",
            "cuMemRelease",
            "hipFree",
            "hipHostFree",
        ]) {
            ApiClass::Free
        } else if starts(&[
            "cuModuleLoad",
            "cuLibraryLoad",
            "cudaModuleLoad",
            "cudaLibraryLoad",
            "hipModuleLoad",
            "cuModuleUnload",
            "cuLibraryUnload",
        ]) {
            ApiClass::ModuleLoad
        } else {
            ApiClass::Other
        }
    }
}

use crate::base::words::words;

words! {
    /// The direction of a memory copy.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum CopyKind with fn name {
        /// Host to device.
        HtoD = "host_to_device",
        /// Device to host.
        DtoH = "device_to_host",
        /// Within a device.
        DtoD = "device_to_device",
        /// Host to host.
        HtoH = "host_to_host",
        /// From one device to another.
        PtoP = "peer_to_peer",
        /// Unified-memory migrations, array copies, anything else.
        #[default]
        Other = "other",
    }
}

/// Where memory lies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MemoryKind {
    /// Host memory that the operating system may swap out.
    Pageable,
    /// Page-locked host memory.
    Pinned,
    /// Device memory.
    Device,
    /// Unified memory.
    Managed,
    /// A CUDA array.
    Array,
    /// The file does not say.
    #[default]
    Unknown,
}

/// One memory copy on the GPU's clock.
#[derive(Debug, Clone, Copy)]
pub struct MemoryCopy {
    /// When it ran.
    pub span: Span,
    /// The GPU it ran on; for a copy between two GPUs, the one that recorded it.
    pub device: DeviceId,
    /// The process that started it.
    pub process: ProcessId,
    /// The CUDA stream.
    pub stream: u32,
    /// Joins to [`ApiCall::correlation`] **within the same process** only.
    pub correlation: Option<SerialNumber>,
    /// Bytes copied.
    pub bytes: u64,
    /// The direction.
    pub kind: CopyKind,
    /// Where the source lies.
    pub src: MemoryKind,
    /// Where the destination lies.
    pub dst: MemoryKind,
    /// The capture of the graph's node that it ran as, if it is recorded.
    pub captured: Option<CaptureId>,
}

/// One memset on the GPU's clock.
#[derive(Debug, Clone, Copy)]
pub struct MemorySet {
    /// When it ran.
    pub span: Span,
    /// The GPU it ran on.
    pub device: DeviceId,
    /// The process that started it.
    pub process: ProcessId,
    /// The CUDA stream.
    pub stream: u32,
    /// Joins to [`ApiCall::correlation`] **within the same process** only.
    pub correlation: Option<SerialNumber>,
    /// Bytes set.
    pub bytes: u64,
    /// Where they lie.
    pub mem: MemoryKind,
    /// The capture of the graph's node that it ran as, if it is recorded.
    pub captured: Option<CaptureId>,
}

/// A whole CUDA graph launch recorded as one interval: the kernels inside are not in the file.
#[derive(Debug, Clone, Copy)]
pub struct GraphTrace {
    /// The executable graph: launches of one do the same work.
    pub exec: Option<u32>,
    /// When it ran.
    pub span: Span,
    /// The GPU it ran on.
    pub device: DeviceId,
    /// The process that started it.
    pub process: ProcessId,
    /// Joins to [`ApiCall::correlation`] **within the same process** only.
    pub correlation: Option<SerialNumber>,
}

/// A synchronization on the host or between streams (CUPTI SYNCHRONIZATION).
#[derive(Debug, Clone, Copy)]
pub struct Synchronization {
    /// How long it took.
    pub span: Span,
    /// The process that asked for it.
    pub process: ProcessId,
    /// Joins to [`ApiCall::correlation`] **within the same process** only.
    pub correlation: Option<SerialNumber>,
    /// What was waited for.
    pub kind: SyncKind,
}

/// What a synchronization waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncKind {
    /// The host blocks on an event.
    Event,
    /// One stream waits for an event; the host does not block.
    StreamWait,
    /// The host blocks on a stream.
    Stream,
    /// The host blocks on the whole context or device.
    Context,
    /// Nothing was waited for, or the file does not say.
    Unknown,
}

impl SyncKind {
    /// What a call of CUDA or HIP waits for, by its name; `None` for a call that is no synchronization.
    pub(crate) fn of_call(name: &str) -> Option<SyncKind> {
        let has = |word: &str| name.contains(word);
        if has("StreamWaitEvent") {
            Some(SyncKind::StreamWait)
        } else if has("StreamSynchronize") {
            Some(SyncKind::Stream)
        } else if has("EventSynchronize") {
            Some(SyncKind::Event)
        } else if has("DeviceSynchronize") || has("CtxSynchronize") || has("ThreadSynchronize") {
            Some(SyncKind::Context)
        } else if has("Query") {
            Some(SyncKind::Unknown)
        } else {
            None
        }
    }
}

/// Time spent by the profiler itself.
#[derive(Debug, Clone, Copy)]
pub struct Overhead {
    /// When it was spent.
    pub span: Span,
    /// The host thread it was spent on.
    pub thread: Option<ThreadId>,
    /// What it was spent on.
    pub name: StrId,
}

/// A host thread.
#[derive(Debug, Clone)]
pub struct Thread {
    /// The process it belongs to.
    pub process: ProcessId,
    /// Its number in the operating system, as far as the file says.
    pub tid: u64,
}

/// A process of the captured program.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its number in the operating system, as far as the file says.
    pub pid: u64,
    /// The distributed rank.
    pub rank: Option<u32>,
    /// The number of ranks in the job.
    pub world_size: Option<u32>,
    /// The number of ranks in every process group of more than one rank that sends between GPUs, where it is the
    /// same for all of them.
    pub group_size: Option<u32>,
}

/// A GPU, as the file describes it.
#[derive(Debug, Clone, Default)]
pub struct Device {
    /// The CUDA ordinal used by the kernel rows.
    pub ordinal: u32,
    /// As CUDA reports it, e.g. `NVIDIA A100-SXM4-40GB`.
    pub name: Option<String>,
    /// Major and minor compute capability.
    pub compute_capability: Option<(u32, u32)>,
    /// Streaming multiprocessors.
    pub sm_count: Option<u32>,
    /// DRAM bandwidth in bytes per second.
    pub bandwidth: Option<f64>,
    /// Core clock in Hz.
    pub clock_hz: Option<f64>,
    /// L2 cache in bytes.
    pub l2_bytes: Option<u64>,
    /// DRAM in bytes.
    pub memory_bytes: Option<u64>,
    /// Warps that a multiprocessor can hold.
    pub max_warps_per_sm: Option<u32>,
    /// Thread blocks that a multiprocessor can hold.
    pub max_blocks_per_sm: Option<u32>,
    /// 32-bit registers per multiprocessor.
    pub registers_per_sm: Option<u32>,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_per_sm: Option<u32>,
    /// Shared memory that a thread block can opt in to, in bytes.
    pub shared_per_block_optin: Option<u32>,
}

/// A remark of the reader about the file, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// A permanent word for rules and tests: `kernels_missing`, `rows_skipped`, `environment_block`, ...
    pub code: &'static str,
    /// One sentence with the numbers. Plain text, not yet escaped.
    pub text: String,
}

/// What the capture recorded. Tells "there were none" from "not recorded".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recorded {
    /// Kernels.
    pub kernels: bool,
    /// API calls.
    pub api_calls: bool,
    /// Host ranges.
    pub ranges: bool,
    /// Memory copies and memsets.
    pub copies: bool,
    /// Synchronizations.
    pub syncs: bool,
    /// Shapes of operands, for operators that have any.
    pub shapes: bool,
    /// Environment variables of the captured machine. They are only warned about, apart from [`Profile::switches`].
    pub environment: bool,
    /// That the program ran on Windows.
    pub windows: bool,
    /// The file holds a sample of what was recorded: most of its events were taken out.
    pub thinned: bool,
}

/// The message that a collective kernel exchanges with other GPUs, as its own record or NCCL's describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The kernel.
    pub kernel: KernelId,
    /// A JSON object: `Collective name`, `Group size`, and `In msg nelems`, `Out msg nelems`, `dtype` or
    /// `In msg bytes`, `Out msg bytes`.
    pub args: StrId,
}

/// The region of a program that captured a kernel of a CUDA graph
/// (`torch.cuda.graph_annotations.mark_kernels`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphRegion {
    /// Its name, as the program gives it.
    pub name: StrId,
    /// Whether the kernel is part of the backward pass of the region.
    pub backward: bool,
}

/// Everything read from one file. Kernels, calls and ranges are sorted by start, ties by file order.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The format of the file.
    pub format: &'static Format,
    /// The path as the user gave it.
    pub path: String,
    /// File size in bytes.
    pub file_bytes: u64,
    /// The version of the profiler, such as `2024.2.1.106`.
    pub tool_version: Option<String>,
    /// The version of the schema, such as `3.11.1`.
    pub schema_version: Option<String>,
    /// All strings that other tables refer to.
    pub strings: Strings,
    /// The processes of the program.
    pub processes: Vec<Process>,
    /// Their host threads.
    pub threads: Vec<Thread>,
    /// The GPUs that ran something, or all listed ones where none did; sorted by ordinal.
    pub devices: Vec<Device>,
    /// GPUs listed in the file, whether used or not; never integrated ones.
    pub listed_gpus: u32,
    /// Distinct launch configurations.
    pub configs: Vec<LaunchConfig>,
    /// Kernel executions.
    pub kernels: Vec<Kernel>,
    /// API calls.
    pub calls: Vec<ApiCall>,
    /// Host ranges.
    pub ranges: Vec<HostRange>,
    /// The number of ranges that the reader left out because nothing above needs them: operators of
    /// PyTorch without a number in which nothing was launched.
    pub pruned_ranges: u64,
    /// When they started.
    pub pruned_starts: StartCounts,
    /// Memory copies.
    pub copies: Vec<MemoryCopy>,
    /// Memsets.
    pub sets: Vec<MemorySet>,
    /// CUDA graphs that were recorded as a whole.
    pub graphs: Vec<GraphTrace>,
    /// The captures of kernels that CUDA graphs replay.
    pub captures: Vec<Capture>,
    /// Synchronizations.
    pub syncs: Vec<Synchronization>,
    /// Time spent by the profiler.
    pub overheads: Vec<Overhead>,
    /// What PyTorch's allocator did, where the program recorded it (`profile_memory=True`).
    pub memory: Vec<MemoryEvent>,
    /// Messages of collectives, sorted by kernel.
    pub messages: Vec<Message>,
    /// Regions that captured kernels of CUDA graphs, sorted by kernel.
    pub graph_regions: Vec<(KernelId, GraphRegion)>,
    /// The distinct configurations of the DataLoaders of the program, where `pyprof-advise run` recorded
    /// them.
    pub loaders: Vec<LoaderConfig>,
    /// How the threads of the program had CPUs.
    pub cpu_use: CpuUse,
    /// What `pyprof-advise run` measured before it recorded.
    pub unrecorded: Unrecorded,
    /// What host threads did while a GPU had no work.
    pub host: HostActivity,
    /// The time of the calendar at time 0 of the profile, in ns since 1970 (UTC), where the file says it.
    pub unix_zero_ns: Option<i64>,
    /// Environment variables of the program that change performance, by name.
    pub switches: Vec<Switch>,
    /// What the capture recorded.
    pub recorded: Recorded,
    /// Remarks about the file.
    pub notes: Vec<Note>,
}

impl Profile {
    /// An empty profile of a format, for readers to fill.
    pub fn new(format: &'static Format, path: &str) -> Profile {
        Profile {
            format,
            path: path.to_owned(),
            file_bytes: 0,
            tool_version: None,
            schema_version: None,
            strings: Strings::default(),
            processes: Vec::new(),
            threads: Vec::new(),
            devices: Vec::new(),
            listed_gpus: 0,
            configs: Vec::new(),
            kernels: Vec::new(),
            calls: Vec::new(),
            ranges: Vec::new(),
            pruned_ranges: 0,
            pruned_starts: StartCounts::default(),
            copies: Vec::new(),
            sets: Vec::new(),
            graphs: Vec::new(),
            captures: Vec::new(),
            syncs: Vec::new(),
            overheads: Vec::new(),
            memory: Vec::new(),
            messages: Vec::new(),
            graph_regions: Vec::new(),
            loaders: Vec::new(),
            cpu_use: CpuUse::default(),
            unrecorded: Unrecorded::default(),
            host: HostActivity::default(),
            unix_zero_ns: None,
            switches: Vec::new(),
            recorded: Recorded::default(),
            notes: Vec::new(),
        }
    }

    /// The text of an interned string.
    pub fn text(&self, id: StrId) -> &str {
        self.strings.get(id)
    }

    /// The process of a thread.
    pub fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        Some(self.threads.get(thread.idx())?.process)
    }

    /// The value of a call's correlation id in its process, to be set; `None` for a number outside the map.
    pub(crate) fn slot_of_call<'m, V: Copy>(
        &self,
        call: &ApiCall,
        map: &'m mut CorrelationMap<V>,
    ) -> Option<&'m mut Option<V>> {
        map.slot(self.process_of(call.thread)?, call.correlation)
    }

    /// The launch configuration of a kernel.
    pub fn config(&self, kernel: &Kernel) -> LaunchConfig {
        self.configs
            .get(kernel.config.idx())
            .copied()
            .unwrap_or_default()
    }

    /// Adds a note once per code and text.
    pub fn note(&mut self, code: &'static str, text: impl Into<String>) {
        let note = Note {
            code,
            text: text.into(),
        };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_calls_are_classified_by_name() {
        for (name, class) in [
            ("cudaLaunchKernel", ApiClass::Launch),
            ("cudaLaunchKernelExC", ApiClass::Launch),
            ("cuLaunchKernelEx", ApiClass::Launch),
            ("cudaGraphLaunch", ApiClass::GraphLaunch),
            ("cudaStreamSynchronize", ApiClass::Sync),
            ("cudaStreamWaitEvent", ApiClass::Other),
            ("cudaMemcpyAsync", ApiClass::CopyAsync),
            ("cudaMemcpy2D", ApiClass::CopySync),
            ("cuModuleLoadData", ApiClass::ModuleLoad),
            ("cudaMalloc", ApiClass::Alloc),
            ("cudaFree", ApiClass::Free),
        ] {
            assert_eq!(ApiClass::of(name), class, "{name}");
        }
    }

    #[test]
    fn row_types_stay_small() {
        // A profile has millions of each.
        assert_eq!(size_of::<Option<StrId>>(), 4);
        assert_eq!(size_of::<Option<SerialNumber>>(), 6);
        assert_eq!(size_of::<HostRange>(), 48);
        assert_eq!(size_of::<Kernel>(), 56);
        assert_eq!(size_of::<ApiCall>(), 32);
    }

    #[test]
    fn handles_and_serial_numbers_round_trip() {
        for row in [0, 1, u32::MAX - 1] {
            assert_eq!(StrId(row).row(), row);
            assert_eq!(format!("{:?}", StrId(row)), format!("StrId({row})"));
        }
        // Beyond every table either way.
        assert_eq!(StrId(u32::MAX), StrId(u32::MAX - 1));
        assert!(StrId(0) < StrId(1));
        for beyond in [u64::MAX, 65_535 << 32] {
            assert_eq!(SerialNumber::new(beyond), None);
        }
        for number in [
            0,
            7,
            65_535,
            65_536,
            u64::from(u32::MAX),
            1 << 47,
            (65_535 << 32) - 1,
        ] {
            assert_eq!(
                SerialNumber::new(number).map(SerialNumber::get),
                Some(number)
            );
        }
    }

    #[test]
    fn strings_are_interned_once() {
        let mut s = Strings::default();
        let a = s.intern("a");
        assert_eq!(s.intern("a"), a);
        assert_ne!(s.intern("b"), a);
        assert_eq!((s.get(a), s.len()), ("a", 2));
        assert_eq!(s.get(StrId(99)), "");
    }
}
