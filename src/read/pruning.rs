//! Interface through which the stage that uses ranges tells readers which ones it needs.
//!
//! More than half of the ranges of a large file enclose no GPU work and name nothing that is reported.
//! [`crate::correlate`] decides which; a reader only passes its rows on.

use crate::profile::{
    HostRange, ProcessId, Profile, RangeKind, SerialNumber, Span, StartCounts, StrId, Strings,
    ThreadId,
};

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
    fn prune(&mut self, ranges: &mut Vec<PartRange>, part: &Part<'_>, removed: &mut RemovedRanges);
}

impl Clone for Box<dyn PartPruner> {
    fn clone(&self) -> Self {
        self.for_another_part()
    }
}

/// A range of one part of a file: a [`HostRange`] whose text, thread and domain are known by their numbers in the
/// part.
#[derive(Debug, Clone, Copy)]
pub struct PartRange {
    /// When it was open.
    pub span: Span,
    /// The thread that opened it.
    pub thread: PartThread,
    /// What kind of range it is.
    pub kind: RangeKind,
    /// The text.
    pub text: PartText,
    /// The domain, when it is not the default one.
    pub domain: Option<PartDomain>,
    /// The autograd sequence number.
    pub seq: Option<SerialNumber>,
    /// The number of the operator call.
    pub op_id: Option<SerialNumber>,
    /// The text of the arguments, in [`Part::texts`].
    pub args: Option<StrId>,
}

/// The text of a [`PartRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartText {
    /// The row has the text; it is in [`Part::texts`].
    Written(StrId),
    /// The row has a number of the table of strings, which is read later. Such texts are numbered per part.
    Registered(u32),
}

/// A thread, by its number in a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartThread(pub u32);

/// A domain, by its number in a part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartDomain(pub u32);

/// The meanings of the numbers in the ranges of one part of a file.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The texts that stand in the rows.
    pub texts: &'a Strings,
    /// The thread in the profile, by [`PartThread`]. `None` for a thread that made no call.
    pub threads: &'a [Option<ThreadId>],
}

/// The ranges removed from one part of a file.
#[derive(Debug, Clone, Default)]
pub struct RemovedRanges {
    /// Number of ranges that are not needed.
    pub dropped: u64,
    /// How many of them started when: thread, slice of [`StartCounts::slice`], starts.
    pub dropped_starts: Vec<(PartThread, i64, u32)>,
    /// Ranges that are needed if a backward node has their sequence number, in order of start. They have written
    /// texts and the default domain.
    pub deferred: Vec<PartRange>,
    /// Thread and sequence number of every range that may be a backward node.
    pub nodes: Vec<(PartThread, SerialNumber)>,
}

impl RemovedRanges {
    /// Counts a range that is not needed.
    pub fn drop(&mut self, range: &PartRange) {
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
