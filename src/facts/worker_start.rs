//! The start of a DataLoader's worker processes, for which the first batch of an epoch waits.
//!
//! The first batch also takes longer than the others because no worker has loaded ahead yet: with `n` workers it may
//! take as long as `n` others, but then `n - 1` more arrive at once. Only the delay that is not made up for is the
//! start of the workers.

use super::fact::{Answer, FactEntry, facts};
use super::gap::Loader;
use super::table::{FactTable, Runs};
use crate::base::statistics::median;
use crate::correlate::Run;
use crate::profile::{Span, ThreadId};

/// Fewest batches of an epoch from which their usual time follows.
const FEWEST: usize = 16;
/// Smallest share of the time of later batches for which the program waits. Where it waits less, batches are loaded
/// ahead, and how long one takes is not known.
const WAITING: f64 = 0.5;
/// Smallest part of the first wait that later batches do not make up for. Without a start of workers it is about
/// half: they make up for all of it, in waves.
const LEFT: f64 = 0.8;
/// Largest share of the first wait in which the GPU worked.
const BUSY: f64 = 0.1;

/// A start of workers within an epoch.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkerStart {
    /// How long the first batch took.
    first_ns: i64,
    /// Median of the others.
    usual_ns: i64,
    /// The part of `first_ns` that is the start of the workers.
    start_ns: f64,
    /// Name and length of the range of the epoch, where one is recorded.
    epoch: Option<(String, i64)>,
}

impl WorkerStart {
    /// The first epoch in which workers were started, if it is known that they are started in each one: it is not the
    /// first epoch of the program, or the recording says so.
    pub(super) fn of(run: &Run) -> Option<WorkerStart> {
        let loaders = &run.profile.loaders;
        if loaders.iter().any(|loader| loader.persistent) {
            return None;
        }
        let ends_with_epoch = loaders.iter().any(|loader| loader.workers > 0);
        let fetches = fetches(run);
        if fetches.is_empty() {
            return None;
        }
        let epochs = epochs(run);
        for epoch in (epochs.iter()).filter(|epoch| epoch.is_later || ends_with_epoch) {
            let inside = (fetches.iter()).filter(|(thread, span)| {
                *thread == epoch.thread && epoch.span.contains(span.start)
            });
            let spans: Vec<Span> = inside.map(|(_, span)| *span).collect();
            if let Some(start) = start(run, &spans) {
                return Some(WorkerStart {
                    epoch: Some((epoch.name.clone(), epoch.span.ns())),
                    ..start
                });
            }
        }
        if !ends_with_epoch || !epochs.is_empty() {
            return None;
        }
        let thread = fetches.first()?.0;
        let all = fetches.iter().filter(|(of, _)| *of == thread);
        let spans: Vec<Span> = all.map(|(_, span)| *span).collect();
        start(run, &spans)
    }
}

/// What the fetches of one epoch say.
fn start(run: &Run, fetches: &[Span]) -> Option<WorkerStart> {
    // The last one finds that there are no more batches.
    let (_, batches) = fetches.split_last()?;
    let (first, others) = batches.split_first()?;
    let (middle, quarter) = (batches.len() / 2, batches.len() / 4);
    let (half, last) = (batches.get(middle)?, others.last()?);
    let later = batches.get(middle + 1..)?;
    if batches.len() < FEWEST {
        return None;
    }
    let later_ns = last.end.saturating_sub(half.end) as f64;
    let waited: i64 = later.iter().map(|span| span.ns()).sum();
    if later_ns <= 0.0 || (waited as f64) < WAITING * later_ns {
        return None;
    }
    let period = later_ns / later.len() as f64;
    let delays = (1_u32..).zip(batches).take(middle + 1).skip(quarter);
    let delays: Vec<f64> = delays
        .map(|(count, span)| {
            span.end.saturating_sub(first.start) as f64 - f64::from(count) * period
        })
        .collect();
    let delay = delays.iter().sum::<f64>() / delays.len().max(1) as f64;
    let first_ns = first.ns() as f64;
    if delay < LEFT * first_ns || busy_ns(run, *first) > BUSY * first_ns {
        return None;
    }
    let mut waits: Vec<i64> = others.iter().map(|span| span.ns()).collect();
    Some(WorkerStart {
        first_ns: first.ns(),
        usual_ns: median(&mut waits)?,
        start_ns: delay.min(first_ns),
        epoch: None,
    })
}

fn busy_ns(run: &Run, span: Span) -> f64 {
    let kernels = run.profile.kernels.iter();
    kernels
        .map(|kernel| kernel.span.clip(span).ns().max(0) as f64)
        .sum()
}

/// The fetches of loaders with worker processes, in order of their starts.
fn fetches(run: &Run) -> Vec<(ThreadId, Span)> {
    let profile = &run.profile;
    let strings = profile.strings.iter();
    let by_name: Vec<bool> = strings
        .map(|(_, text)| Loader::of(text) == Some(Loader::MultiProcess))
        .collect();
    if !by_name.contains(&true) {
        return Vec::new();
    }
    let ranges = profile.ranges.iter();
    let of_loaders = ranges.filter(|range| by_name.get(range.text.idx()) == Some(&true));
    let mut fetches: Vec<(ThreadId, Span)> = of_loaders.map(|r| (r.thread, r.span)).collect();
    fetches.sort_unstable_by_key(|(thread, span)| (span.start, *thread));
    fetches
}

/// The range of an epoch.
struct Epoch {
    name: String,
    thread: ThreadId,
    span: Span,
    /// Whether epochs came before it, whether counted from 0 or from 1.
    is_later: bool,
}

/// The ranges of epochs, in order of their starts.
fn epochs(run: &Run) -> Vec<Epoch> {
    let profile = &run.profile;
    let strings = profile.strings.iter();
    let numbers: Vec<Option<u64>> = strings.map(|(_, text)| epoch_number(text)).collect();
    let mut epochs: Vec<Epoch> = (profile.ranges.iter())
        .filter_map(|range| {
            let number = numbers.get(range.text.idx()).copied().flatten()?;
            Some(Epoch {
                name: profile.text(range.text).to_owned(),
                thread: range.thread,
                span: range.span,
                is_later: number > 1,
            })
        })
        .collect();
    epochs.sort_by_key(|epoch| epoch.span.start);
    epochs
}

/// `Epoch 2`, `epoch_2`, `epoch: 2`.
fn epoch_number(text: &str) -> Option<u64> {
    const WORD: usize = "epoch".len();
    let (word, rest) = text.split_at_checked(WORD)?;
    let number = rest.trim_start_matches([' ', '_', '-', '#', ':', '=']);
    (word.eq_ignore_ascii_case("epoch")).then(|| number.parse().ok())?
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// Time that the worker processes of a DataLoader took to start before the first batch of an epoch, where they
    /// are known to start anew in each one; silent otherwise
    "run.worker_start_ns": DOUBLE => |t| of(t, |start| Some(start.start_ns)),
    /// How long the program waited for the first batch of the epoch of `run.worker_start_ns`
    "run.first_batch_ns": DOUBLE => |t| of(t, |start| Some(start.first_ns as f64)),
    /// Median wait for the other batches of that epoch
    "run.later_batch_ns": DOUBLE => |t| of(t, |start| Some(start.usual_ns as f64)),
    /// The range of that epoch: `Epoch 2`; silent where none is recorded
    "run.worker_start_epoch": STR => |t| of(t, |start| Some(start.epoch.as_ref()?.0.as_str())),
    /// Length of `run.worker_start_epoch`
    "run.worker_start_epoch_ns": DOUBLE => |t| of(t, |start| Some(start.epoch.as_ref()?.1 as f64)),
};

fn of<'a, T: Into<Answer>>(
    t: &'a FactTable<'_>,
    value: impl Fn(&'a WorkerStart) -> Option<T>,
) -> Answer {
    Answer::or_silent(t.worker_start.as_ref().and_then(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::profile::{LoaderConfig, RangeKind};

    const MS: i64 = 1_000_000;

    /// An epoch of 40 batches, for which the program waits this long each, with 10 ms of other work after each.
    fn epoch(name: &str, waits: impl Fn(i64) -> i64) -> ProfileBuilder {
        let mut profile = ProfileBuilder::new();
        let mut now = 1000 * MS;
        let start = now;
        for batch in 0..=40 {
            let wait = if batch < 40 { waits(batch) * MS } else { 1000 };
            let loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
            profile.range(loader, now, now + wait).kind = RangeKind::Annotation;
            now += wait;
            profile.launch(now + 1000);
            now += 10 * MS;
        }
        profile.range(name, start - MS, now);
        profile
    }

    fn start(profile: ProfileBuilder) -> Option<WorkerStart> {
        WorkerStart::of(&profile.run())
    }

    /// The first wait, then the others.
    fn first(ms: i64, others: i64) -> impl Fn(i64) -> i64 {
        move |batch| if batch == 0 { ms } else { others }
    }

    #[test]
    fn delay_of_the_first_batch_of_a_later_epoch_is_the_start_of_workers() {
        let found = start(epoch("Epoch 2", first(2000, 90))).unwrap();
        assert_eq!((found.first_ns, found.usual_ns), (2000 * MS, 90 * MS));
        assert_eq!(found.start_ns.round() as i64, 1910 * MS - 10 * MS);
        let (name, length_ns) = found.epoch.unwrap();
        assert_eq!((name.as_str(), length_ns / MS), ("Epoch 2", 5921));
        // The first epoch starts its workers with persistent workers, too.
        for first_epoch in ["Epoch 0", "Epoch 1", "Epochs", "train"] {
            assert_eq!(
                start(epoch(first_epoch, first(2000, 90))),
                None,
                "{first_epoch}"
            );
        }
    }

    #[test]
    fn recorded_configuration_tells_whether_workers_end_with_the_epoch() {
        let with = |persistent: bool, workers: u32, name: &str| {
            let mut profile = epoch(name, first(2000, 90));
            profile.profile.loaders = vec![LoaderConfig {
                workers,
                persistent,
                ..LoaderConfig::default()
            }];
            start(profile).map(|start| start.epoch.is_some())
        };
        assert_eq!(with(false, 2, "train"), Some(false));
        assert_eq!(with(false, 2, "Epoch 0"), Some(true));
        assert_eq!(with(true, 2, "Epoch 2"), None);
        assert_eq!(with(false, 0, "train"), None);
    }

    #[test]
    fn batches_that_make_up_for_the_first_are_no_start() {
        // Eight workers that take 800 ms per batch: the others arrive with the first.
        let wave = |batch: i64| if batch % 8 == 0 { 730 } else { 0 };
        assert_eq!(
            start(epoch("Epoch 2", |b| if b == 0 { 800 } else { wave(b) })),
            None
        );
        // A start of 3 s before the same waves.
        let late = start(epoch("Epoch 2", |b| if b == 0 { 3800 } else { wave(b) }));
        let start_ns = late.unwrap().start_ns;
        assert!(
            (3000.0..3800.0).contains(&(start_ns / MS as f64)),
            "{start_ns}"
        );
    }

    #[test]
    fn batches_loaded_ahead_tell_no_start() {
        // The GPU is slower than the loader: how long a batch takes is not known.
        assert_eq!(start(epoch("Epoch 2", first(2000, 1))), None);
    }

    #[test]
    fn numbers_of_epochs_are_read() {
        let of = |text: &str| epoch_number(text);
        assert_eq!(
            [of("Epoch 2"), of("epoch_13"), of("epoch: 4")],
            [Some(2), Some(13), Some(4)]
        );
        assert_eq!(
            [of("Epoch"), of("epochs 2"), of("Epoch 2/10"), of("é")],
            [None; 4]
        );
    }
}
