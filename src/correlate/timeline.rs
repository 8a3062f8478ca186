//! What the devices did over time. (Stand-in: every kernel counts, nothing overlaps.)

use super::{SetUp, Timeline, Window};
use crate::profile::{CallId, Profile, RangeId, Span};

/// The window, and each kernel's part in it.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub timeline: Timeline,
    pub window: Window,
    /// Per kernel: ns inside the window during which nothing else ran on its device.
    pub exposed: Vec<i64>,
    /// Per kernel: it counts in the window.
    pub inside: Vec<bool>,
}

/// What correlation knows and the timeline needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hints<'a> {
    /// Per kernel.
    pub launches: &'a [Option<CallId>],
    pub data_loading: &'a [RangeId],
    /// Host time of declared warm-up.
    pub warmup: &'a [Span],
}

pub(crate) fn times(
    profile: &Profile,
    hints: &Hints<'_>,
    _is_communication: &dyn Fn(&str) -> bool,
) -> Times {
    let start = profile.kernels.iter().map(|k| k.span.start).min();
    let end = profile.kernels.iter().map(|k| k.span.end).max();
    let warm = |call: CallId| {
        let call = profile.calls.get(call.idx());
        call.is_some_and(|c| hints.warmup.iter().any(|w| w.contains(c.span.start)))
    };
    let _ = hints.data_loading;
    Times {
        timeline: Timeline::default(),
        window: Window {
            span: start.zip(end).map(|(start, end)| Span { start, end }),
            setup: SetUp::default(),
        },
        exposed: profile.kernels.iter().map(|k| k.span.ns()).collect(),
        inside: hints
            .launches
            .iter()
            .map(|l| !l.is_some_and(warm))
            .collect(),
    }
}
