//! How far a faster kernel shortens a step.
//!
//! Where the host launches too late, the GPU waits for it: time that a kernel before the pause no longer
//! needs only makes the pause longer. That ends where the host waits for the GPU: it goes on earlier, and
//! so does everything after. So the time before a late launch counts as far as the GPU is busy there,
//! all other time fully.

use crate::correlate::{DeviceTimeline, GapCause};
use crate::profile::Span;

/// Where late launches follow, kernel time does not count from this busy share downwards ...
const NOTHING: f64 = 0.5;
/// ... and fully from this one upwards: the queue only runs dry now and then.
const ALL: f64 = 0.9;
/// A weight this close to 0 or 1 is no different from it.
const ROUNDED: f64 = 0.05;
/// Largest difference between the weights with and without the unreliable idle time.
const SAME: f64 = 0.25;

/// The share of saved kernel time by which steps become shorter, 0 to 1. `None` where recording overhead
/// leaves open which.
pub(crate) fn step_weight(devices: &[DeviceTimeline]) -> Option<f64> {
    let mut time = Time::default();
    for device in devices {
        time.add(device);
    }
    let (least, most) = (
        time.weight(time.late_ns),
        time.weight(time.reliable_late_ns),
    );
    (most - least <= SAME).then_some(least)
}

/// Busy and idle time of all devices, in ns.
#[derive(Debug, Default)]
struct Time {
    busy_ns: f64,
    /// Of it, before a late launch.
    before_late_ns: f64,
    /// Idle time of late launches.
    late_ns: f64,
    reliable_late_ns: f64,
}

impl Time {
    fn add(&mut self, device: &DeviceTimeline) {
        // From the end backwards: what comes after the work.
        let mut late = false;
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
            self.work(busy, late);
            match gap.cause {
                _ if gap.after_wait => late = false,
                // Nothing was launched any more.
                _ if gap.ended_by.is_none() => {}
                GapCause::AfterSync
                | GapCause::BlockingCopy
                | GapCause::Waiting
                | GapCause::ProfilerOverhead
                | GapCause::Unknown => {}
                GapCause::DataLoading
                | GapCause::Allocation
                | GapCause::ModuleLoad
                | GapCause::HostLate
                | GapCause::HostBusy => {
                    late = true;
                    self.late_ns += gap.span.ns() as f64;
                    self.reliable_late_ns += gap.reliable_ns as f64;
                }
            }
            until = gap.span.start;
        }
        let first = Span {
            start: device.span.start,
            end: until,
        };
        let busy = excluded.fold(first.ns(), |busy, span| {
            busy.saturating_sub(span.clip(first).ns())
        });
        self.work(busy, late);
    }

    fn work(&mut self, busy: i64, late: bool) {
        self.busy_ns += busy as f64;
        if late {
            self.before_late_ns += busy as f64;
        }
    }

    fn weight(&self, late_ns: f64) -> f64 {
        if self.busy_ns <= 0.0 {
            return 0.0;
        }
        let all = self.before_late_ns + late_ns;
        let share = if all > 0.0 {
            self.before_late_ns / all
        } else {
            1.0
        };
        let counts = ((share - NOTHING) / (ALL - NOTHING)).clamp(0.0, 1.0);
        match 1.0 - (1.0 - counts) * self.before_late_ns / self.busy_ns {
            weight if weight <= ROUNDED => 0.0,
            weight if weight >= 1.0 - ROUNDED => 1.0,
            weight => weight,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Gap;
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
        DeviceTimeline {
            device: DeviceId(0),
            span: Span {
                start: 0,
                end: 100 * count + 80,
            },
            excluded: Vec::new(),
            busy_ns: 80 * (count + 1),
            kernel_ns: 0,
            copy_ns: 0,
            comm_ns: 0,
            exposed_copy_ns: 0,
            exposed_comm_ns: 0,
            graph_ns: 0,
            gaps: gaps.collect(),
        }
    }

    fn weight(causes: &[(GapCause, bool)]) -> Option<f64> {
        step_weight(&[device(causes)])
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
        assert_eq!(step_weight(&[device]), None);
    }
}
