//! Interface through which the stage that uses ranges tells readers which ones it needs.
//!
//! More than half of the ranges of a large file enclose no GPU work and name nothing that is reported.
//! [`crate::correlate`] decides which; a reader only passes its rows on.

use crate::profile::{HostRange, ProcessId, Profile, SerialNumber, StartCounts, Strings, ThreadId};

/// Decides which ranges of a profile are needed.
pub trait Pruning: Sync {
    /// Starts to prune a profile whose kernels and calls are complete, its calls in any order.
    /// Returns `None` if every range is needed.
    fn start(&self, profile: &Profile) -> Option<Box<dyn PartPruner>>;

    /// Adds the needed ranges among the deferred ones to the profile, in order of start, and counts the
    /// others in [`Profile::pruned_ranges`].
    fn restore(&self, deferred: DeferredRanges, profile: &mut Profile);

    /// Removes the ranges that are not needed from a complete profile.
    fn prune(&self, profile: &mut Profile);
}

/// Prunes the ranges of one part of a file, batch by batch.
pub trait PartPruner: Send + Sync {
    /// Returns a pruner for another part of the same file, whose texts and threads are numbered
    /// independently.
    fn for_another_part(&self) -> Box<dyn PartPruner>;

    /// Removes ranges that are not needed from `ranges`: consecutive ranges of the file in order of
    /// start.
    fn prune(&mut self, ranges: &mut Vec<HostRange>, part: &Part<'_>, removed: &mut RemovedRanges);
}

impl Clone for Box<dyn PartPruner> {
    fn clone(&self) -> Self {
        self.for_another_part()
    }
}

/// The meanings of the numbers in the ranges of one part of a file.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The texts. A range whose text has a number beyond them is always kept.
    pub texts: &'a Strings,
    /// The thread in the profile, by number of the thread in the part. `None` for a thread that
    /// made no call.
    pub threads: &'a [Option<ThreadId>],
}

/// The ranges removed from one part of a file.
#[derive(Debug, Clone, Default)]
pub struct RemovedRanges {
    /// Number of ranges that are not needed.
    pub dropped: u64,
    /// How many of them started when: thread, by its number in the part, slice of
    /// [`StartCounts::slice`], starts.
    pub dropped_starts: Vec<(ThreadId, i64, u32)>,
    /// Ranges that are needed if a backward node has their sequence number, in order of start.
    pub deferred: Vec<HostRange>,
    /// Thread, by its number in the part, and sequence number of every range that may be a backward
    /// node.
    pub nodes: Vec<(ThreadId, SerialNumber)>,
}

impl RemovedRanges {
    /// Counts a range that is not needed.
    pub fn drop(&mut self, range: &HostRange) {
        self.dropped += 1;
        let slice = StartCounts::slice(range.span.start);
        match self.dropped_starts.last_mut() {
            Some((thread, last, starts)) if (*thread, *last) == (range.thread, slice) => {
                *starts = starts.saturating_add(1);
            }
            _ => self.dropped_starts.push((range.thread, slice, 1)),
        }
    }
}

/// Ranges of a whole file that are needed if a backward node has their sequence number.
#[derive(Debug, Clone, Default)]
pub struct DeferredRanges {
    /// The ranges, in order of start.
    pub ranges: Vec<HostRange>,
    /// Sequence numbers of the backward nodes.
    pub nodes: Vec<(ProcessId, SerialNumber)>,
    /// Whether all of them are needed, because there are backward nodes with unknown numbers.
    pub all_needed: bool,
}
