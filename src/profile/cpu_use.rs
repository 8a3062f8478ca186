//! How the threads of a program had CPUs while a GPU was profiled.

/// CPUs of a program, and what its threads had of them. 0 or `None` where it was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// CPUs that the program may use, by its affinity and the limit of its container.
    pub cpus: u32,
    /// How long the threads were looked at, in ns.
    pub window_ns: u64,
    /// The thread that takes steps.
    pub thread: Option<RunTime>,
    /// The worker processes of DataLoaders, together.
    pub workers: Option<RunTime>,
}

/// Time of threads, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTime {
    /// On a CPU.
    pub ran_ns: u64,
    /// Ready to run, while other threads had the CPUs.
    pub ready_ns: u64,
}
