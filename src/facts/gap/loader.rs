//! The kind of data loader that ran in an idle interval.

use crate::base::words::words;
use crate::correlate::{DeviceTimeline, Gap, Run};
use crate::profile::{Span, ThreadId};

words! {
    /// What loaded the batch.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Loader with fn name {
        /// A DataLoader without worker processes.
        SingleProcess = "single_process",
        /// A DataLoader with worker processes.
        MultiProcess = "multi_process",
        /// A range of the program, or of a framework.
        Other = "other",
    }
}

impl Loader {
    /// torch/utils/data/dataloader.py: `_BaseDataLoaderIter.__next__`
    pub(crate) fn of(text: &str) -> Option<Loader> {
        let class = text.strip_prefix("enumerate(DataLoader)#")?;
        if class.starts_with("_SingleProcessDataLoaderIter") {
            Some(Loader::SingleProcess)
        } else if class.starts_with("_MultiProcessingDataLoaderIter") {
            Some(Loader::MultiProcess)
        } else {
            None
        }
    }
}

/// Per thread, the ranges in which PyTorch fetched a batch, in order of their starts.
#[derive(Debug)]
pub(super) struct LoaderRanges(Vec<Vec<(Span, Loader)>>);

impl LoaderRanges {
    pub(super) fn of(run: &Run) -> LoaderRanges {
        let profile = &run.profile;
        let kinds: Vec<Option<Loader>> = (profile.strings.iter())
            .map(|(_, text)| Loader::of(text))
            .collect();
        let mut threads: Vec<Vec<(Span, Loader)>> = vec![Vec::new(); profile.threads.len()];
        if kinds.iter().all(Option::is_none) {
            return LoaderRanges(threads);
        }
        for range in &profile.ranges {
            let kind = kinds.get(range.text.idx()).copied().flatten();
            if let Some((kind, list)) = kind.zip(threads.get_mut(range.thread.idx())) {
                list.push((range.span, kind));
            }
        }
        LoaderRanges(threads)
    }

    /// The loader that took most of the gap, on the thread that the device waited for. One fetch does not begin
    /// inside another.
    pub(super) fn kind(&self, run: &Run, device: &DeviceTimeline, gap: &Gap) -> Loader {
        let thread = device.awaited_thread(&run.profile, gap);
        let thread = thread.unwrap_or(ThreadId(0));
        let ranges = self.0.get(thread.idx()).map_or(&[][..], Vec::as_slice);
        let touching = gap.span.overlapping(ranges, |(span, _)| *span);
        let longest = touching.max_by_key(|(span, _)| span.clip(gap.span).ns());
        longest.map_or(Loader::Other, |(_, kind)| *kind)
    }
}
