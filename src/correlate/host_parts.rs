//! The parts of idle time by what the launching thread did: see [`super::host_time`].

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::host::Classes;
use crate::profile::{ClassId, OffCpuState, OsCallClass, StrId};

/// What a part of a gap was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPart {
    /// In a call of the operating system.
    OsCall {
        /// What it does.
        class: OsCallClass,
        /// The function, if the file has its name.
        name: Option<StrId>,
        /// The CUDA call that it was part of.
        inside: Option<StrId>,
        /// The innermost named function that led to it.
        caller: Option<StrId>,
    },
    /// Waiting for Python's lock, whatever the thread called meanwhile.
    PythonLock,
    /// The thread was on no CPU, outside recorded calls.
    OffCpu(OffCpuState),
    /// In a CUDA call, outside calls of the operating system.
    CudaCall {
        /// The call.
        name: StrId,
        /// The function that made it, if its callchain was recorded.
        caller: Option<StrId>,
    },
    /// In a call of cuDNN or cuBLAS, outside CUDA calls.
    LibraryCall(StrId),
    /// In a Python function of the program, or in something that it called.
    Function {
        /// The function.
        name: StrId,
        /// What it or the innermost function that it called does, where that is known.
        class: Option<ClassId>,
    },
    /// In a function or line, estimated from samples of a profiler of the host.
    Sampled {
        /// The function or line.
        place: StrId,
        /// What it or the innermost function that it called does, where that is known.
        class: Option<ClassId>,
    },
    /// Nothing else was recorded than, mostly, an NVTX range around it.
    Rest(Option<StrId>),
    /// The work that ended the gap had been launched already.
    Launched,
}

/// How much of a gap a part took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartSum {
    /// Time in ns.
    pub ns: i64,
    /// Number of calls, or of samples.
    pub count: u64,
    /// Bytes read or written; 0 where the file does not say.
    pub bytes: u64,
    /// Number of calls with known bytes.
    pub sized: u64,
}

impl PartSum {
    /// Adds another sum.
    pub fn add(&mut self, other: PartSum) {
        self.ns = self.ns.saturating_add(other.ns);
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sized = self.sized.saturating_add(other.sized);
    }
}

/// A function and its library, as far as a sample names them.
pub type SampledFunction = (Option<StrId>, Option<StrId>);

/// The parts of one or several gaps.
#[derive(Debug, Clone, Default)]
pub struct HostParts {
    /// Length of the gaps in ns: the sum of all parts.
    pub ns: i64,
    /// Number of gaps.
    pub gaps: u64,
    /// The parts.
    pub parts: FxHashMap<HostPart, PartSum>,
    /// Samples by function, of the parts without calls.
    pub samples: FxHashMap<SampledFunction, u64>,
}

impl HostParts {
    /// Adds the parts of other gaps.
    pub fn add(&mut self, other: &HostParts) {
        self.ns = self.ns.saturating_add(other.ns);
        self.gaps += other.gaps;
        for (part, sum) in &other.parts {
            self.parts.entry(*part).or_default().add(*sum);
        }
        for (function, count) in &other.samples {
            *self.samples.entry(*function).or_default() += count;
        }
    }

    /// Time in functions and lines by what they do, and by function, in ns. Where it was sampled, `host` says
    /// how much time the samples stand for.
    pub fn of_classes(&self, host: &HostTime) -> FxHashMap<(ClassId, Option<StrId>), f64> {
        let mut times = FxHashMap::default();
        let mut add = |class: Option<ClassId>, name: Option<StrId>, ns: f64| {
            if let Some(class) = class {
                *times.entry((class, name)).or_insert(0.0) += ns;
            }
        };
        let has_samples = HostTime::has_enough_samples(self);
        for (part, sum) in &self.parts {
            match *part {
                HostPart::Function { name, class } => add(class, Some(name), sum.ns as f64),
                HostPart::Sampled { place, class } if has_samples => {
                    add(class, Some(place), sum.ns as f64);
                }
                _ => {}
            }
        }
        if let Some(all_ns) = host.sampled_ns(self) {
            let each = all_ns / self.sampled().max(1) as f64;
            for (function, count) in &self.samples {
                let class = host.class_of_samples.get(function).copied();
                add(class, function.0, each * *count as f64);
            }
        }
        times
    }

    /// The sum of the parts for which `such` holds.
    pub fn sum(&self, such: impl Fn(&HostPart) -> bool) -> PartSum {
        let mut sum = PartSum::default();
        for (_, part) in self.parts.iter().filter(|(part, _)| such(part)) {
            sum.add(*part);
        }
        sum
    }

    /// Time before the launches that ended the gaps, in ns.
    pub fn waiting_ns(&self) -> i64 {
        let launched = self.sum(|part| *part == HostPart::Launched).ns;
        self.ns.saturating_sub(launched)
    }

    /// The number of samples.
    pub fn sampled(&self) -> u64 {
        self.samples.values().sum()
    }
}

/// What the launching threads did in the gaps of a run.
#[derive(Debug, Clone, Default)]
pub struct HostTime {
    /// The gaps of at least 100 us whose launching thread is known, by the row of their device and their
    /// own row.
    pub gaps: FxHashMap<(usize, usize), HostParts>,
    /// The gaps in which code was loaded, which are not analyzed.
    pub loads: HostParts,
    /// Whether calls of the operating system were recorded.
    pub has_os_calls: bool,
    /// Whether scheduling was recorded.
    pub has_scheduling: bool,
    /// Whether Python functions were recorded.
    pub has_functions: bool,
    /// Time between two samples of a thread, in ns; 0 without samples.
    pub sample_ns: i64,
    /// What sampled functions do, where that is known.
    pub class_of_samples: FxHashMap<SampledFunction, ClassId>,
    /// The classes of functions.
    pub classes: Arc<Classes>,
    /// Idle time before late launches that was spent outside of operators, by Python function.
    pub late: FxHashMap<StrId, LateTime>,
}

/// Idle time before late launches in a Python function.
#[derive(Debug, Clone, Copy, Default)]
pub struct LateTime {
    /// Outside of operators, in ns.
    pub ns: i64,
    /// The part inside calls of modules.
    pub in_modules_ns: i64,
}

impl HostTime {
    /// Fewer samples are not used: the error of the estimate is a third or more.
    const FEWEST_SAMPLES: u64 = 10;

    /// Whether the samples of a profiler of the host are enough to use. If not, their time is part of the
    /// remainder.
    pub fn has_enough_samples(parts: &HostParts) -> bool {
        let sampled = parts.sum(|part| matches!(part, HostPart::Sampled { .. }));
        sampled.count >= Self::FEWEST_SAMPLES
    }

    /// What the samples of these parts stand for, in ns: each for the time to the next one, and all of them
    /// for no more than the time in which nothing else was recorded. `None` with fewer than 10 samples.
    pub fn sampled_ns(&self, parts: &HostParts) -> Option<f64> {
        let samples = parts.sampled();
        let rest = parts.sum(|part| matches!(part, HostPart::Rest(_))).ns as f64;
        let stand_for = (self.sample_ns as f64 * samples as f64).min(rest);
        (samples >= Self::FEWEST_SAMPLES).then_some(stand_for)
    }
}
