//! What host threads did, as far as a profiler of the host recorded it.

use super::ids::{Span, StrId, ThreadId};

/// Shorter idle time of a GPU is not explained: a launch takes that long on a busy host.
pub(crate) const SHORTEST_GAP_NS: i64 = 100_000;

/// Calls, samples and scheduling of the threads that use CUDA, in the time in which a GPU had no work.
/// All other rows are left out while the file is read. Every list is sorted by thread, then by time.
#[derive(Debug, Clone, Default)]
pub struct HostActivity {
    /// Calls of the operating system. Those of one thread do not overlap: of nested calls, the outer one.
    pub os_calls: Vec<OsCall>,
    /// Samples of running threads.
    pub samples: Vec<CpuSample>,
    /// Intervals in which a thread did not run on any CPU.
    pub off_cpu: Vec<OffCpu>,
    /// The functions that made CUDA calls, as far as callchains tell.
    pub cuda_callers: Vec<CudaCaller>,
    /// Calls of cuDNN and cuBLAS. Those of one thread do not overlap: of nested calls, the outer one.
    pub library_calls: Vec<LibraryCall>,
    /// Intervals in which a thread waited for Python's lock (the GIL). Those of one thread do not overlap.
    pub lock_waits: Vec<(ThreadId, Span)>,
    /// Samples of Python stacks.
    pub python: PythonSamples,
    /// Median time between two samples of a thread, in ns; 0 without samples.
    pub sample_ns: i64,
    /// Whether the file records calls of the operating system.
    pub has_os_calls: bool,
    /// Whether the file records when threads were scheduled.
    pub has_scheduling: bool,
    /// Rows were left out from this time on (ns), because there are too many of them.
    pub complete_until: Option<i64>,
    /// Samples of a profiler of the host, on the clock of this profile.
    pub timed: Vec<TimedSample>,
    /// By how much its clock may differ from that of this profile, in ns.
    pub timed_error_ns: i64,
    /// What profiles of the host say about the whole run.
    pub summary: HostSummary,
}

/// What profiles of the host say about a whole run: about workers of a DataLoader and about imports. It needs no
/// common clock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostSummary {
    /// What worker processes of a DataLoader did most of their time, and the share of their time in it, 0 to 1.
    pub worker_class: Option<(String, f64)>,
    /// The function of the program in which they did so for the longest time.
    pub worker_function: Option<String>,
    /// Time of all imports, in ns.
    pub import_ns: Option<f64>,
    /// The module that took longest to import, without those that it imports, and its time in ns.
    pub slowest_import: Option<(String, f64)>,
}

impl HostActivity {
    /// Whether there is nothing that could explain what a thread did.
    pub fn is_empty(&self) -> bool {
        self.os_calls.is_empty()
            && self.samples.is_empty()
            && self.off_cpu.is_empty()
            && self.cuda_callers.is_empty()
            && self.library_calls.is_empty()
            && self.lock_waits.is_empty()
            && self.python.samples.is_empty()
            && self.timed.is_empty()
    }
}

/// An interval in which a thread did not run on any CPU.
#[derive(Debug, Clone, Copy)]
pub struct OffCpu {
    /// The thread.
    pub thread: ThreadId,
    /// From the event that took it off a CPU to the one that put it on one again.
    pub span: Span,
    /// Why, as far as the file says.
    pub state: OffCpuState,
}

/// Why a thread was on no CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OffCpuState {
    /// It could have run: others had the CPUs.
    Ready,
    /// It waited for something.
    Waiting,
    /// The file does not say.
    Unknown,
}

/// The function that made a CUDA call.
#[derive(Debug, Clone, Copy)]
pub struct CudaCaller {
    /// The thread of the call.
    pub thread: ThreadId,
    /// When the call began, in ns.
    pub start: i64,
    /// The innermost named function outside the CUDA libraries and the C library.
    pub caller: StrId,
}

/// A call of cuDNN or cuBLAS.
#[derive(Debug, Clone, Copy)]
pub struct LibraryCall {
    /// The thread that made it.
    pub thread: ThreadId,
    /// From entering to leaving it.
    pub span: Span,
    /// The function: `cublasSgemm_v2`.
    pub name: StrId,
}

/// Samples of Python stacks that the profiler of the GPU took itself, by thread, then by time.
#[derive(Debug, Clone, Default)]
pub struct PythonSamples {
    /// Functions and their callers; a caller comes before those that it calls.
    pub frames: Vec<StackFrame>,
    /// The samples.
    pub samples: Vec<PythonSample>,
    /// Median time between two samples of a thread, in ns; 0 without samples.
    pub sample_ns: i64,
}

/// A function of a Python stack.
#[derive(Debug, Clone, Copy)]
pub struct StackFrame {
    /// The function, if the file has its name.
    pub function: Option<StrId>,
    /// The file that it is in, as Python names it.
    pub file: Option<StrId>,
    /// The line, counted from 1; 0 where it is unknown.
    pub line: u32,
    /// The row of its caller.
    pub caller: Option<u32>,
}

/// One sample of a Python stack.
#[derive(Debug, Clone, Copy)]
pub struct PythonSample {
    /// The sampled thread.
    pub thread: ThreadId,
    /// When, in ns.
    pub time: i64,
    /// The row of the innermost function in [`PythonSamples::frames`].
    pub frame: u32,
}

/// One call of the operating system or its runtime library.
#[derive(Debug, Clone, Copy)]
pub struct OsCall {
    /// The thread that made it.
    pub thread: ThreadId,
    /// From entering to leaving it.
    pub span: Span,
    /// The function: `ioctl`; `None` if the file does not contain its name.
    pub name: Option<StrId>,
    /// What it does.
    pub class: OsCallClass,
    /// Bytes read or written; 0 where the file does not say.
    pub bytes: u64,
    /// The innermost named function outside the C library and the driver that led to it.
    pub caller: Option<StrId>,
}

/// One sample of a running thread.
#[derive(Debug, Clone, Copy)]
pub struct CpuSample {
    /// The sampled thread.
    pub thread: ThreadId,
    /// When, in ns.
    pub time: i64,
    /// The function that ran, as far as it has a name.
    pub function: Option<StrId>,
    /// The file name of the library or program that it is part of.
    pub module: Option<StrId>,
}

/// What a function does: a row of the classes of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u16);

/// One sample of a thread by a profiler of the host, which has written a file of its own.
#[derive(Debug, Clone, Copy)]
pub struct TimedSample {
    /// The sampled thread.
    pub thread: ThreadId,
    /// When, in ns.
    pub time: i64,
    /// The time before it that it stands for, in ns, up to the sample before.
    pub weight_ns: i64,
    /// What it did, where that is known.
    pub class: Option<ClassId>,
    /// The function or line: `load (data/images.py:12)`.
    pub place: StrId,
}

/// What a call of the operating system does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OsCallClass {
    /// Reads a file or a pipe.
    Read,
    /// Writes a file or a pipe.
    Write,
    /// Opens, closes or examines a file.
    File,
    /// Waits for another thread or process, or for something to read.
    Wait,
    /// Sleeps for a fixed time.
    Sleep,
    /// Asks a driver for something; in a program that uses CUDA, nearly always that of the GPU.
    Driver,
    /// Sends or receives through a socket.
    Network,
    /// Maps or unmaps memory.
    Memory,
    /// Starts a thread or a process, or loads a library.
    Start,
    /// Anything else.
    Other,
}

/// Names of calls by class, without the endings that [`OsCallClass::of`] removes.
const CLASSES: &[(OsCallClass, &[&str])] = &[
    (
        OsCallClass::Read,
        &[
            "read",
            "pread",
            "readv",
            "preadv",
            "fread",
            "fgets",
            "fgetc",
            "getc",
            "getline",
            "getdelim",
            "fscanf",
            "readahead",
            "aio_read",
            "sendfile",
            "getdents",
            "readdir",
        ],
    ),
    (
        OsCallClass::Write,
        &[
            "write",
            "pwrite",
            "writev",
            "pwritev",
            "fwrite",
            "fputs",
            "fputc",
            "fflush",
            "fsync",
            "fdatasync",
            "sync",
            "msync",
            "syncfs",
            "ftruncate",
            "truncate",
            "aio_write",
        ],
    ),
    (
        OsCallClass::File,
        &[
            "open",
            "openat",
            "creat",
            "fopen",
            "freopen",
            "fdopen",
            "close",
            "fclose",
            "stat",
            "lstat",
            "fstat",
            "fstatat",
            "statx",
            "statfs",
            "fstatfs",
            "access",
            "faccessat",
            "lseek",
            "fseek",
            "opendir",
            "closedir",
            "rename",
            "unlink",
            "mkdir",
            "rmdir",
            "link",
            "symlink",
            "readlink",
            "chmod",
            "chown",
            "flock",
            "fcntl",
            "dup",
            "dup2",
            "pipe",
            "pipe2",
            "realpath",
            "getcwd",
        ],
    ),
    (
        OsCallClass::Wait,
        &[
            "futex",
            "poll",
            "ppoll",
            "select",
            "pselect",
            "epoll_wait",
            "epoll_pwait",
            "waitpid",
            "wait",
            "wait3",
            "wait4",
            "waitid",
            "sigwait",
            "sigtimedwait",
            "sigsuspend",
            "pause",
            "flockfile",
            "msgrcv",
            "semop",
            "semtimedop",
        ],
    ),
    (
        OsCallClass::Sleep,
        &[
            "sleep",
            "usleep",
            "nanosleep",
            "clock_nanosleep",
            "sched_yield",
        ],
    ),
    (OsCallClass::Driver, &["ioctl"]),
    (
        OsCallClass::Network,
        &[
            "socket",
            "connect",
            "accept",
            "accept4",
            "bind",
            "listen",
            "send",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "recv",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
            "shutdown",
            "getaddrinfo",
            "gethostbyname",
            "socketpair",
        ],
    ),
    (
        OsCallClass::Memory,
        &[
            "mmap",
            "munmap",
            "mprotect",
            "mremap",
            "madvise",
            "brk",
            "sbrk",
            "mlock",
            "munlock",
            "shmat",
            "shmdt",
            "shm_open",
            "shm_unlink",
        ],
    ),
    (
        OsCallClass::Start,
        &[
            "fork",
            "vfork",
            "clone",
            "execve",
            "posix_spawn",
            "posix_spawnp",
            "system",
            "popen",
            "pclose",
            "pthread_create",
            "dlopen",
            "dlclose",
            "exit",
        ],
    ),
];

/// How functions that wait for locks and other threads begin.
const WAITS: [&str; 8] = [
    "sem_",
    "pthread_cond_",
    "pthread_mutex_",
    "pthread_rwlock_",
    "pthread_join",
    "pthread_barrier_",
    "pthread_spin_",
    "mq_",
];

/// Functions that return how many bytes they read or wrote. Others return a pointer or a number of items.
const RETURN_BYTES: [&str; 10] = [
    "read", "pread", "readv", "preadv", "getline", "sendfile", "write", "pwrite", "writev",
    "pwritev",
];

/// A name without what C libraries add to it: `fgets` for `__fgets_unlocked`, `pread` for `pread64`.
fn plain(name: &str) -> &str {
    let name = name.trim_start_matches("__").trim_end_matches("_unlocked");
    name.strip_suffix("64").unwrap_or(name)
}

impl OsCallClass {
    /// Whether a function returns the number of bytes that it read or wrote.
    pub(crate) fn returns_bytes(name: &str) -> bool {
        RETURN_BYTES.contains(&plain(name))
    }

    /// The class of a function by its name.
    pub fn of(name: &str) -> OsCallClass {
        let name = plain(name);
        if WAITS.iter().any(|start| name.starts_with(start)) {
            return OsCallClass::Wait;
        }
        (CLASSES.iter())
            .find(|(_, names)| names.contains(&name))
            .map_or(OsCallClass::Other, |(class, _)| *class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_operating_system_are_classified_by_name() {
        for (name, class) in [
            ("ioctl", OsCallClass::Driver),
            ("open64", OsCallClass::File),
            ("fgets_unlocked", OsCallClass::Read),
            ("pthread_cond_timedwait", OsCallClass::Wait),
            ("sem_timedwait", OsCallClass::Wait),
            ("__poll", OsCallClass::Wait),
            ("clock_nanosleep", OsCallClass::Sleep),
            ("recvmsg", OsCallClass::Network),
            ("mmap64", OsCallClass::Memory),
            ("pthread_create", OsCallClass::Start),
            ("fsync", OsCallClass::Write),
            ("getrandom", OsCallClass::Other),
        ] {
            assert_eq!(OsCallClass::of(name), class, "{name}");
        }
    }
}
