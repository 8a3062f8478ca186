//! How far a faster kernel shortens a step.
//!
//! Where the host launches too late, the GPU waits for it: time that a kernel before the pause no longer
//! needs only makes the pause longer. That ends where the host waits for the GPU: it goes on earlier, and
//! so does everything after. So the time before a late launch counts as far as the GPU is busy there,
//! all other time fully. Sites differ in this: the last layer may be waited for while all others run
//! ahead of late launches.

use super::affected::StepWeight;
use crate::correlate::{DeviceTimeline, Gap, GapCause, Run, launches_block};
use crate::profile::Span;

/// Where late launches follow, kernel time does not count from this busy share downwards ...
const NOTHING: f64 = 0.5;
/// ... and fully from this one upwards: the queue only runs dry now and then.
const ALL: f64 = 0.9;
/// A weight this close to 0 or 1 is no different from it.
const ROUNDED: f64 = 0.05;
/// Largest difference between the weights with and without the unreliable idle time.
const SAME: f64 = 0.25;
/// A host that works for less than this share of the time of the GPU would be ahead of it if it did not wait.
const AHEAD: f64 = 0.8;

/// How far kernel time shortens steps, for a run and for its sites.
#[derive(Debug, Default)]
pub(super) struct StepWeights {
    /// The share of saved kernel time by which steps become shorter, 0 to 1. `None` where recording overhead, or
    /// idle time of unknown cause, leaves open which.
    pub(super) of_run: Option<f64>,
    /// `None` where all kernels have the weight of the run.
    pub(super) late: Option<LateWork>,
}

impl StepWeights {
    pub(super) fn of(run: &Run) -> StepWeights {
        let devices = &run.timeline.devices;
        let mut time = Time::default();
        let ends = inner_ends(run);
        // Per device: the work before late launches.
        let mut before_late: Vec<Vec<Span>> = vec![Vec::new(); run.profile.devices.len()];
        for device in devices {
            let mut spans = Vec::new();
            time.add(device, &ends, |span| spans.push(span));
            spans.reverse();
            if let Some(slot) = before_late.get_mut(device.device.idx()) {
                *slot = spans;
            }
        }
        if time.is_of_turns(run) {
            return StepWeights {
                of_run: Some(1.0),
                late: None,
            };
        }
        let of_run = sure_weight(devices, &ends, &time);
        let differs = of_run.is_some_and(|weight| weight > 0.0 && weight < 1.0);
        StepWeights {
            of_run,
            late: differs.then(|| LateWork {
                kernels: parts_before(run, &before_late),
                counts: time.counts(time.late_ns),
            }),
        }
    }

    /// The weights of the sites; empty where all have the weight of the run.
    pub(super) fn of_sites(&self, run: &Run) -> Vec<StepWeight> {
        let late = self.late.as_ref();
        late.map_or_else(Vec::new, |late| late.site_weights(run, &late.kernels))
    }
}

/// Per kernel: the part of it in these spans of its device, which is all or nothing.
fn parts_before(run: &Run, late: &[Vec<Span>]) -> Vec<f64> {
    let mut at = vec![0; late.len()];
    let kernels = run.profile.kernels.iter().map(|kernel| {
        let device = kernel.device.idx();
        let (Some(late), Some(at)) = (late.get(device), at.get_mut(device)) else {
            return 0.0;
        };
        while late.get(*at).is_some_and(|s| s.end <= kernel.span.start) {
            *at += 1;
        }
        let is_late = late.get(*at).is_some_and(|s| s.start < kernel.span.end);
        f64::from(u8::from(is_late))
    });
    kernels.collect()
}

/// The weight of `time`, unless another one holds where idle time of unknown cause is that of late launches.
fn sure_weight(devices: &[DeviceTimeline], ends: &[i64], time: &Time) -> Option<f64> {
    let weight = time.sure_weight()?;
    let mut gaps = devices.iter().flat_map(|device| &device.gaps);
    if weight <= SAME || !gaps.any(|gap| gap.cause == GapCause::Unknown) {
        return Some(weight);
    }
    let all_late = Time::of(devices, ends, true);
    (weight - all_late.weight(all_late.late_ns) <= SAME).then_some(weight)
}

/// When the GPU was done with each step but the last.
fn inner_ends(run: &Run) -> Vec<i64> {
    let steps = run.steps.iter().filter(|step| !step.warmup);
    let mut ends: Vec<i64> = steps.filter_map(|step| Some(step.gpu?.end)).collect();
    ends.sort_unstable();
    ends.pop();
    ends
}

/// The part of kernel time that counts where late launches follow and the GPU is busy this share of the time.
pub(crate) fn busy_weight(share: f64) -> f64 {
    ((share - NOTHING) / (ALL - NOTHING)).clamp(0.0, 1.0)
}

/// The kernels before late launches.
#[derive(Debug)]
pub(super) struct LateWork {
    /// Per kernel of the run: the part of it that late launches follow.
    pub(super) kernels: Vec<f64>,
    /// The part of this work that counts.
    counts: f64,
}

impl LateWork {
    /// The weights of the sites of a run, with the part of each of its kernels that late launches follow.
    pub(super) fn site_weights(&self, run: &Run, late: &[f64]) -> Vec<StepWeight> {
        let mut before_late: Vec<f64> = vec![0.0; run.sites.len()];
        for ((kernel, link), late) in run.profile.kernels.iter().zip(&run.links).zip(late) {
            if let Some(ns) = link.site.and_then(|id| before_late.get_mut(id.idx())) {
                *ns += kernel.span.ns() as f64 * late;
            }
        }
        let counts = self.counts;
        let weights = run.sites.iter().zip(before_late).map(|(site, late)| {
            let share = (late / (site.time_ns as f64).max(1.0)).min(1.0);
            StepWeight {
                low: rounded(1.0 - share),
                high: rounded(1.0 - (1.0 - counts) * share),
            }
        });
        weights.collect()
    }
}

/// Busy and idle time of devices, in ns.
#[derive(Debug, Default)]
struct Time {
    /// Whether idle time of unknown cause counts as that of late launches.
    unknown_is_late: bool,
    busy_ns: f64,
    /// Of it, before a late launch.
    before_late_ns: f64,
    /// Of it, at the end of the window, where a late launch would have followed.
    tail_ns: f64,
    /// Idle time of late launches.
    late_ns: f64,
    reliable_late_ns: f64,
}

impl Time {
    /// `ends` are of all steps but the last.
    fn of(devices: &[DeviceTimeline], ends: &[i64], unknown_is_late: bool) -> Time {
        let mut time = Time {
            unknown_is_late,
            ..Time::default()
        };
        for device in devices {
            time.add(device, ends, |_| {});
        }
        time
    }

    /// Whether kernel time counts fully because launches wait for their kernels: as recorded, host and GPU take turns,
    /// and if launches did not wait, the host would be ahead.
    fn is_of_turns(&self, run: &Run) -> bool {
        self.late_ns > 0.0
            && self.late_ns < AHEAD * self.busy_ns
            && launches_block(&run.profile, run.links.iter().map(|link| link.launch))
    }

    /// Adds a device; `late_work` takes its work before late launches, the last first.
    fn add(&mut self, device: &DeviceTimeline, ends: &[i64], mut late_work: impl FnMut(Span)) {
        // From the end backwards: what comes after the work.
        let unknown_is_late = self.unknown_is_late;
        let begins_late = |gap: &Gap| begins_late(gap, unknown_is_late);
        let mut late = late_follows(device, ends, begins_late);
        let mut is_tail = true;
        let mut until = device.span.end;
        let mut excluded = device.excluded.iter().rev().peekable();
        for gap in device.gaps.iter().rev() {
            let work = Span {
                start: gap.span.end,
                end: until,
            };
            while excluded.next_if(|span| span.start >= until).is_some() {}
            let mut busy = work.ns();
            while let Some(span) = excluded.next_if(|span| span.end > work.start) {
                busy = busy.saturating_sub(span.clip(work).ns());
            }
            self.work(busy, late, is_tail);
            if late {
                late_work(work);
            }
            let own = begins_late(gap);
            if own == Some(true) {
                self.late_ns += match device.idle_is_unrecorded {
                    true => gap.reliable_ns as f64,
                    false => gap.span.ns() as f64,
                };
                self.reliable_late_ns += gap.reliable_ns as f64;
            }
            late = own.unwrap_or(late);
            is_tail &= own.is_none();
            until = gap.span.start;
        }
        let first = Span {
            start: device.span.start,
            end: until,
        };
        let busy = excluded.fold(first.ns(), |busy, span| {
            busy.saturating_sub(span.clip(first).ns())
        });
        self.work(busy, late, is_tail);
        if late {
            late_work(first);
        }
    }

    fn work(&mut self, busy: i64, late: bool, is_tail: bool) {
        self.busy_ns += busy as f64;
        match (late, is_tail) {
            (true, true) => self.tail_ns += busy as f64,
            (true, false) => self.before_late_ns += busy as f64,
            _ => {}
        }
    }

    /// `None` where it depends on idle time that recording may explain.
    fn sure_weight(&self) -> Option<f64> {
        let (least, most) = (
            self.weight(self.late_ns),
            self.weight(self.reliable_late_ns),
        );
        (most - least <= SAME).then_some(least)
    }

    /// The part of the work before late launches that counts.
    fn counts(&self, late_ns: f64) -> f64 {
        let all = self.before_late_ns + late_ns;
        if all > 0.0 {
            busy_weight(self.before_late_ns / all)
        } else {
            1.0
        }
    }

    fn weight(&self, late_ns: f64) -> f64 {
        if self.busy_ns <= 0.0 {
            return 0.0;
        }
        let late = self.before_late_ns + self.tail_ns;
        rounded(1.0 - (1.0 - self.counts(late_ns)) * late / self.busy_ns)
    }
}

/// Whether what follows a gap was launched late; `None` if the gap tells neither that nor that the host waited.
fn begins_late(gap: &Gap, unknown_is_late: bool) -> Option<bool> {
    match gap.cause {
        _ if gap.after_wait => Some(false),
        GapCause::Unknown if unknown_is_late => Some(true),
        // Nothing was launched any more.
        _ if gap.ended_by.is_none() => None,
        GapCause::Waiting | GapCause::ProfilerOverhead | GapCause::Unknown => None,
        // Still late after a wait.
        GapCause::AfterSync
        | GapCause::BlockingCopy
        | GapCause::DataLoading
        | GapCause::Allocation
        | GapCause::ModuleLoad
        | GapCause::SlowLaunch
        | GapCause::HostLate
        | GapCause::HostBusy => Some(true),
    }
}

/// Whether a late launch would follow the window: whether one follows most of the steps that end before.
fn late_follows(
    device: &DeviceTimeline,
    ends: &[i64],
    begins_late: impl Fn(&Gap) -> Option<bool>,
) -> bool {
    let mut after: Vec<Option<bool>> = device.gaps.iter().map(begins_late).collect();
    let mut next = None;
    for own in after.iter_mut().rev() {
        next = own.or(next);
        *own = next;
    }
    let after_steps = ends.iter().filter_map(|end| {
        let gap = device.gaps.partition_point(|gap| gap.span.end <= *end);
        after.get(gap).copied().flatten()
    });
    let (late, others): (Vec<bool>, Vec<bool>) = after_steps.partition(|late| *late);
    late.len() > others.len()
}

fn rounded(weight: f64) -> f64 {
    match weight {
        weight if weight <= ROUNDED => 0.0,
        weight if weight >= 1.0 - ROUNDED => 1.0,
        weight => weight,
    }
}

#[cfg(test)]
mod tests {
    use crate::facts::step_weight::*;
    use crate::profile::{CallId, DeviceId};

    /// A device that works for 80 and idles for 20, again and again.
    fn device(causes: &[(GapCause, bool)]) -> DeviceTimeline {
        let gaps = (0..).zip(causes).map(|(at, &(cause, after_wait))| Gap {
            span: Span {
                start: 100 * at + 80,
                end: 100 * at + 100,
            },
            cause,
            reliable_ns: 20,
            next: None,
            call: None,
            ended_by: Some(CallId(0)),
            after_wait,
        });
        let count = causes.len() as i64;
        let span = Span {
            start: 0,
            end: 100 * count + 80,
        };
        DeviceTimeline {
            busy_ns: 80 * (count + 1),
            gaps: gaps.collect(),
            ..DeviceTimeline::empty(DeviceId(0), span)
        }
    }

    fn weight_of(devices: &[DeviceTimeline], ends: &[i64]) -> Option<f64> {
        sure_weight(devices, ends, &Time::of(devices, ends, false))
    }

    fn weight(causes: &[(GapCause, bool)]) -> Option<f64> {
        weight_of(&[device(causes)], &[])
    }

    #[test]
    fn kernel_time_counts_fully_where_host_and_gpu_take_turns() {
        assert_eq!(weight(&[(GapCause::AfterSync, true); 4]), Some(1.0));
        assert_eq!(weight(&[(GapCause::HostBusy, true); 4]), Some(1.0));
        assert_eq!(weight(&[(GapCause::Waiting, false); 4]), Some(1.0));
    }

    #[test]
    fn kernel_time_before_a_late_launch_counts_by_busy_share() {
        // 80 % busy before each of them; nothing is known of what follows the last kernel.
        let weight = weight(&[(GapCause::HostLate, false); 4]).unwrap_or_default();
        assert!((weight - (1.0 - 0.25 * 0.8)).abs() < 1e-9, "{weight}");
    }

    #[test]
    fn idle_time_of_unknown_cause_leaves_open_what_counts() {
        let mut device = device(&[(GapCause::Unknown, false); 4]);
        // Busy enough to count whatever the cause is.
        assert_eq!(weight_of(std::slice::from_ref(&device), &[]), Some(1.0));
        for gap in &mut device.gaps {
            gap.span.start -= 60;
        }
        assert_eq!(weight_of(std::slice::from_ref(&device), &[]), None);
    }

    #[test]
    fn work_at_the_end_counts_as_at_the_end_of_other_steps() {
        let (late, wait) = ((GapCause::HostLate, false), (GapCause::AfterSync, true));
        let all = weight_of(&[device(&[late; 4])], &[80, 180, 280]).unwrap_or_default();
        assert!((all - 0.75).abs() < 1e-9, "{all}");
        // The host waits at the end of each step.
        let waits = [device(&[late, wait, late, wait, late])];
        let known = weight_of(&waits, &[180, 380]);
        assert_eq!(known, weight_of(&waits, &[]));
    }

    #[test]
    fn the_last_step_is_like_the_others() {
        use crate::correlate::testing::ProfileBuilder;
        use crate::profile::ThreadId;
        let weight = |waits: bool| {
            let mut b = ProfileBuilder::new();
            for step in 0..4 {
                let at = step * 1_000_000;
                b.range(&format!("step {step}"), at, at + 900_000);
                for launch in [at, at + 300_000] {
                    let kernel = b.launch(launch);
                    b.profile.kernels[kernel].span.end += 100_000;
                }
                if waits {
                    b.call(ThreadId(0), "cudaDeviceSynchronize", at + 310_000, 0)
                        .span
                        .end = at + 410_000;
                }
            }
            StepWeights::of(&b.run()).of_run
        };
        assert_eq!(weight(false), Some(0.0));
        assert_eq!(weight(true), Some(0.5));
    }

    #[test]
    fn a_wait_ends_what_a_late_launch_absorbs() {
        let late = (GapCause::HostLate, false);
        let wait = (GapCause::AfterSync, true);
        let before = weight(&[wait, late, late]).unwrap_or_default();
        assert!((before - (1.0 - 0.25 * 0.5)).abs() < 1e-9, "{before}");
        assert_eq!(weight(&[late, wait, late]), Some(before));
        assert_eq!(weight(&[]), Some(1.0));
        // One in five is too little to tell.
        assert_eq!(weight(&[wait, wait, wait, late]), Some(1.0));
    }

    #[test]
    fn the_weight_is_unknown_where_recording_may_have_made_launches_late() {
        let mut device = device(&[(GapCause::HostLate, false); 4]);
        for gap in &mut device.gaps {
            gap.reliable_ns = 0;
            gap.span.start -= 40;
        }
        assert_eq!(weight_of(&[device], &[]), None);
    }

    #[test]
    fn kernel_time_counts_fully_where_launches_wait_and_the_host_would_be_ahead() {
        use crate::correlate::testing::ProfileBuilder;
        // Kernels of 50 us, each launched a while after the last one has ended.
        let weights = |after: i64, launches_wait: bool| {
            let mut b = ProfileBuilder::new();
            for at in 0..60 {
                let kernel = b.launch(at * (50_000 + after));
                let span = &mut b.profile.kernels[kernel].span;
                span.end = span.start + 50_000;
                let end = span.end;
                if launches_wait {
                    b.profile.calls.last_mut().unwrap().span.end = end + 1_000;
                }
            }
            let run = b.run();
            let weights = StepWeights::of(&run);
            (weights.of_run, weights.of_sites(&run).len())
        };
        assert_eq!(weights(35_000, true), (Some(1.0), 0));
        // The host may limit the steps once launches do not wait.
        assert_eq!(weights(45_000, true), (None, 0));
        let (weight, sites) = weights(35_000, false);
        assert!(weight.unwrap() < 1.0);
        assert_eq!(sites, 1);
    }

    #[test]
    fn sites_that_the_host_waits_for_count_fully() {
        use crate::correlate::testing::ProfileBuilder;
        // Ten short kernels ahead of late launches, then a long one that the host waits for.
        let mut b = ProfileBuilder::new();
        for at in 0..10 {
            let kernel = b.launch(at * 100_000);
            b.profile.kernels[kernel].span.end = b.profile.kernels[kernel].span.start + 10_000;
        }
        let head = b.launch(1_000_000);
        b.profile.kernels[head].span.end = b.profile.kernels[head].span.start + 500_000;
        b.profile.kernels[head].name = b.profile.strings.intern("head");
        let run = b.run();
        let weights = StepWeights::of(&run);
        let (overall, weights) = (weights.of_run.unwrap(), weights.of_sites(&run));
        let of = |name: &str| {
            let site = run.sites.iter().position(|s| {
                let kernel = s.kernels.first();
                kernel.is_some_and(|k| run.profile.text(k.name) == name)
            });
            weights[site.unwrap()]
        };
        assert!((0.5..0.99).contains(&overall), "{overall}");
        assert_eq!(of("head"), StepWeight::exactly(1.0));
        let least = |end: fn(&StepWeight) -> f64| weights.iter().map(end).fold(1.0, f64::min);
        assert_eq!((least(|w| w.low), least(|w| w.high)), (0.0, 0.0));
    }
}
