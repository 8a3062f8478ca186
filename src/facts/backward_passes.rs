//! How many backward passes ran: more than optimizer steps where a program accumulates gradients.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::range_paths::by_string;
use crate::correlate::{EVALUATES, Run};
use crate::profile::{ProcessId, SerialNumber, ThreadId};

/// The backward passes of one thread so far.
#[derive(Debug, Default)]
struct Passes {
    count: u64,
    /// End of the node that runs, ns: nodes inside belong to a checkpoint that computes again.
    until: i64,
    /// The highest sequence number seen.
    highest: Option<SerialNumber>,
}

/// Number of backward passes, summed over processes; 0 where nothing records them.
///
/// Autograd runs the nodes of a pass roughly in the reverse order of their sequence numbers, which the
/// forward pass counts up. A node with a higher number than all before belongs to a new forward pass. A
/// process has a thread per GPU; each runs a part of every pass.
pub(super) fn count(run: &Run) -> u64 {
    let mut is_node = by_string(run, |text| text.starts_with(EVALUATES));
    if !is_node.contains(&true) {
        // Before PyTorch 1.7, nodes have no range of the engine around them.
        is_node = by_string(run, is_bare_node);
    }
    if !is_node.contains(&true) {
        return 0;
    }
    let mut threads: FxHashMap<ThreadId, Passes> = FxHashMap::default();
    for range in &run.profile.ranges {
        if range.seq.is_none() || is_node.get(range.text.idx()) != Some(&true) {
            continue;
        }
        let passes = threads.entry(range.thread).or_default();
        if range.span.start < passes.until {
            continue;
        }
        passes.until = range.span.end;
        if range.seq > passes.highest {
            passes.highest = range.seq;
            passes.count += 1;
        }
    }
    let mut processes: BTreeMap<ProcessId, u64> = BTreeMap::new();
    for (thread, passes) in threads {
        if let Some(thread) = run.profile.thread(thread) {
            let most = processes.entry(thread.process).or_default();
            *most = passes.count.max(*most);
        }
    }
    processes.into_values().sum()
}

/// Whether the name is that of a node itself: `AddmmBackward`, `MulBackward0`.
fn is_bare_node(text: &str) -> bool {
    let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = name.strip_suffix("Backward").unwrap_or_default();
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    /// A node of autograd with its sequence number.
    fn node(profile: &mut ProfileBuilder, thread: ThreadId, number: u64, start: i64, end: i64) {
        let text = format!("{EVALUATES}MulBackward0, seq = {number}");
        profile.range_on(thread, &text, start, end);
    }

    #[test]
    fn each_forward_pass_has_one_backward_pass() {
        let mut profile = ProfileBuilder::new();
        let thread = profile.thread(ProcessId(0));
        let other_gpu = profile.thread(ProcessId(0));
        for pass in 0..3 {
            let (first, start) = (pass * 100, pass as i64 * 10_000);
            for (at, number) in [9, 7, 8, 2].into_iter().enumerate() {
                let start = start + at as i64 * 1_000;
                node(&mut profile, thread, first + number, start, start + 500);
                // What a checkpoint computes again counts anew.
                node(
                    &mut profile,
                    thread,
                    first + number + 50,
                    start + 100,
                    start + 200,
                );
            }
            node(&mut profile, other_gpu, first + 3, start, start + 500);
        }
        assert_eq!(count(&profile.run()), 3);
    }

    #[test]
    fn forward_operators_are_no_backward_pass() {
        let mut profile = ProfileBuilder::new();
        profile.range("aten::mul, seq = 4", 0, 100);
        profile.range("aten::mul, seq = 5", 200, 300);
        assert_eq!(count(&profile.run()), 0);
    }
}
