//! The operators of PyTorch that the launching threads ran on the CPU in their pauses.

use crate::base::time_by::TimeBy;
use crate::correlate::pruning::{LONG_RANGE_NS, OPERATORS};
use crate::profile::{HostRange, Profile, RangeKind, Span, StrId};

/// Ranges whose operators belong on the CPU: a data loader joins samples, an optimizer updates parameters that are
/// kept there, and a tensor is copied to pinned memory. Those that make many views of a tensor do nothing else,
/// wherever it lies.
const EXPECTED: &[&str] = &[
    "enumerate(DataLoader)",
    "Optimizer.step#",
    "aten::pin_memory",
    "aten::_pin_memory",
    "aten::unbind",
    "aten::split",
    "aten::chunk",
    "aten::tensor_split",
];

/// What takes less time is a view of a tensor of the GPU, or not faster there: launching a kernel takes some 10 us.
const LEAST_NS: i64 = 100_000;

/// Different operators of one pause. Bounds the memory for hostile files.
const MOST_OPS: usize = 1 << 10;

/// Time per operator in one pause.
pub(super) type Times = TimeBy<StrId>;

/// An operator that has not ended.
#[derive(Debug)]
struct Open {
    span: Span,
    text: StrId,
    is_long: bool,
    /// A call of the device was made inside.
    calls_device: bool,
}

/// The operators of one thread.
#[derive(Debug)]
struct ThreadOps<'a> {
    pauses: &'a [Span],
    /// Per pause.
    times: Vec<Times>,
    /// From the outside.
    open: Vec<Open>,
    /// Those that ended inside the outermost open one without a call of the device. None encloses another.
    on_cpu: Vec<(Span, StrId)>,
    /// When the last of the expected ranges ends.
    expected_until: i64,
    /// The first pause that has not ended.
    at: usize,
}

/// The times of the operators in pauses, given per thread in the order of their ends. Of operators that call each other
/// the outermost counts that makes no call of the device: `aten::to` makes one if it copies to the GPU, and the
/// conversion inside it does not.
///
/// One pass over ranges and calls, which are in the order of their starts.
pub(super) fn times(profile: &Profile, threads: &[Vec<Span>]) -> Vec<Vec<Times>> {
    let mut ops: Vec<ThreadOps<'_>> =
        (threads.iter().map(|pauses| ThreadOps::of(pauses))).collect();
    let mut ranges = profile.ranges.iter().peekable();
    let enter = |range: &HostRange, ops: &mut [ThreadOps<'_>]| {
        if let Some(ops) = ops.get_mut(range.thread.idx()) {
            ops.enter(profile, range);
        }
    };
    for call in &profile.calls {
        while let Some(range) = ranges.next_if(|range| range.span.start <= call.span.start) {
            enter(range, &mut ops);
        }
        if let Some(ops) = ops.get_mut(call.thread.idx()) {
            ops.close(call.span.start);
            if let Some(open) = ops.open.last_mut() {
                open.calls_device = true;
            }
        }
    }
    for range in ranges {
        enter(range, &mut ops);
    }
    let all = ops.into_iter().map(|mut ops| {
        ops.close(i64::MAX);
        ops.times
    });
    all.collect()
}

impl<'a> ThreadOps<'a> {
    fn of(pauses: &'a [Span]) -> ThreadOps<'a> {
        ThreadOps {
            pauses,
            times: vec![Times::default(); pauses.len()],
            open: Vec::new(),
            on_cpu: Vec::new(),
            expected_until: i64::MIN,
            at: 0,
        }
    }

    fn enter(&mut self, profile: &Profile, range: &HostRange) {
        let start = range.span.start;
        let ended = |pause: &Span| pause.end <= start;
        while self.pauses.get(self.at).is_some_and(ended) {
            self.at += 1;
        }
        // Most are in no pause.
        let touches = |pause: &Span| pause.start < range.span.end;
        if !self.pauses.get(self.at).is_some_and(touches) {
            return;
        }
        let text = profile.text(range.text);
        if EXPECTED.iter().any(|prefix| text.starts_with(prefix)) {
            self.expected_until = self.expected_until.max(range.span.end);
        } else if text.starts_with(OPERATORS) && start >= self.expected_until {
            let least = match range.kind {
                RangeKind::CpuOp => LEAST_NS,
                // Of these, shorter ones may have been removed.
                _ => LONG_RANGE_NS,
            };
            self.close(start);
            self.open.push(Open {
                span: range.span,
                text: range.text,
                is_long: range.span.ns() >= least,
                calls_device: false,
            });
        }
    }

    /// Closes the operators that have ended by a time.
    fn close(&mut self, time: i64) {
        while let Some(ended) = self.open.pop_if(|open| open.span.end <= time) {
            if ended.calls_device {
                if let Some(around) = self.open.last_mut() {
                    around.calls_device = true;
                }
            } else if ended.is_long {
                let inside = |(span, _): &mut (Span, StrId)| span.start >= ended.span.start;
                while self.on_cpu.pop_if(inside).is_some() {}
                self.on_cpu.push((ended.span, ended.text));
            }
            if self.open.is_empty() {
                for (span, text) in std::mem::take(&mut self.on_cpu) {
                    self.add(span, text);
                }
            }
        }
    }

    fn add(&mut self, span: Span, text: StrId) {
        let first = self.pauses.partition_point(|pause| pause.end <= span.start);
        let later = self.pauses.iter().zip(&mut self.times).skip(first);
        for (pause, times) in later.take_while(|(pause, _)| pause.start < span.end) {
            if times.len() < MOST_OPS || times.contains(text) {
                times.add(text, span.clip(*pause).ns());
            }
        }
    }
}
