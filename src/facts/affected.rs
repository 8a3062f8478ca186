//! The part of a run that a finding is about, and the totals that it is compared with.

use std::collections::BTreeMap;

use crate::correlate::SiteId;

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
