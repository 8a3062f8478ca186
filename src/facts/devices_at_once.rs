//! How many devices work at the same time.

use crate::correlate::DeviceTimeline;
use crate::profile::Span;

/// Devices take turns where the time in which any of them works exceeds what chance gives by this part of what it would
/// if no two ever worked at the same time ...
const TURNS: f64 = 0.8;
/// ... and if that is this share of the time, so that the two can be told apart.
const CLEARLY: f64 = 0.05;
/// More devices than one process computes on; bounds the work.
const MOST_DEVICES: usize = 32;

/// How many devices work at the same time: kernel time saved on all of them, summed, shortens steps by one part in so
/// many. All of them, unless each works while the others wait, as with the layers of one model on several GPUs.
pub(super) fn at_once(devices: &[DeviceTimeline]) -> f64 {
    in_turns(devices).unwrap_or(devices.len() as f64).max(1.0)
}

/// The mean number of working devices while any works, if they take turns.
fn in_turns(devices: &[DeviceTimeline]) -> Option<f64> {
    let starts = devices.iter().map(|device| device.span.start);
    let ends = devices.iter().map(|device| device.span.end);
    let common = Span {
        start: starts.max()?,
        end: ends.min()?,
    };
    if !(2..=MOST_DEVICES).contains(&devices.len()) || common.ns() <= 0 {
        return None;
    }
    let whole = common.ns() as f64;
    let idle = |device: &DeviceTimeline| -> f64 {
        let gaps = device
            .gaps
            .iter()
            .map(|gap| gap.span.clip(common).ns().max(0) as f64);
        gaps.sum::<f64>() / whole
    };
    let idle: Vec<f64> = devices.iter().map(idle).collect();
    let sum: f64 = idle.iter().map(|idle| 1.0 - idle).sum();
    let by_chance = 1.0 - idle.iter().product::<f64>();
    let any = 1.0 - all_idle_ns(devices, common) / whole;
    let without_overlap = sum.min(1.0);
    let clearly = without_overlap - by_chance >= CLEARLY;
    let take_turns = any - by_chance >= TURNS * (without_overlap - by_chance);
    (clearly && take_turns).then(|| sum / any)
}

/// The time of a span in which all devices are idle, in ns.
fn all_idle_ns(devices: &[DeviceTimeline], span: Span) -> f64 {
    let mut at = vec![0_usize; devices.len()];
    let mut sum = 0.0;
    loop {
        // The gap of each device that may overlap those of the others, and the first of them to end.
        let mut common = span;
        let mut first: Option<(i64, usize)> = None;
        for (row, (device, at)) in devices.iter().zip(&at).enumerate() {
            let Some(gap) = device.gaps.get(*at) else {
                return sum;
            };
            common = common.clip(gap.span);
            if first.is_none_or(|(end, _)| gap.span.end < end) {
                first = Some((gap.span.end, row));
            }
        }
        sum += common.ns().max(0) as f64;
        let Some(next) = first.and_then(|(_, row)| at.get_mut(row)) else {
            return sum;
        };
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::{Gap, GapCause};
    use crate::profile::DeviceId;

    /// A device that works from each start to each end in 1000 ns.
    fn device(work: &[(i64, i64)]) -> DeviceTimeline {
        let span = Span {
            start: 0,
            end: 1000,
        };
        let starts = work.iter().map(|(start, _)| *start).chain([1000]);
        let ends = [0].into_iter().chain(work.iter().map(|(_, end)| *end));
        let gaps = ends.zip(starts).filter(|(start, end)| start < end);
        let gaps = gaps.map(|(start, end)| Gap {
            span: Span { start, end },
            cause: GapCause::Waiting,
            reliable_ns: end - start,
            next: None,
            call: None,
            ended_by: None,
            after_wait: false,
        });
        DeviceTimeline {
            busy_ns: work.iter().map(|(start, end)| end - start).sum(),
            gaps: gaps.collect(),
            ..DeviceTimeline::empty(DeviceId(0), span)
        }
    }

    #[test]
    fn devices_that_work_beside_each_other_all_count() {
        let alike = || device(&[(0, 300), (400, 900)]);
        assert_eq!(at_once(&[alike()]), 1.0);
        assert_eq!(at_once(&[alike(), alike(), alike()]), 3.0);
        assert_eq!(at_once(&[alike(), device(&[(0, 100)])]), 2.0);
        assert_eq!(at_once(&[]), 1.0);
    }

    #[test]
    fn devices_that_take_turns_count_as_one() {
        let first = || device(&[(0, 200), (500, 700)]);
        let second = |late: i64| device(&[(200 + late, 500 + late), (700 + late, 900 + late)]);
        assert_eq!(at_once(&[first(), second(0)]), 1.0);
        // 20 ns beside each other: still turns. By chance they would be 200.
        let overlapping = at_once(&[first(), second(-10)]);
        assert!((overlapping - 0.9 / 0.88).abs() < 1e-9, "{overlapping}");
        // 80 ns: no longer.
        assert_eq!(at_once(&[first(), second(-40)]), 2.0);
        // Little work meets by chance as rarely.
        let seldom = |at: i64| device(&[(at, at + 200)]);
        assert_eq!(at_once(&[seldom(0), seldom(500)]), 2.0);
        assert_eq!(at_once(&[seldom(0), device(&[(200, 500)])]), 1.0);
    }
}
