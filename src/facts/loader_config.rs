//! Facts of how the program's DataLoaders are configured, where `pyprof-advise run` recorded it, which kind
//! of them fetched batches, and of what their workers do.
//!
//! A program may use several loaders, and the trace does not tell which of them made a batch: a setting is
//! known where all of them agree on it.

use super::fact::{Answer, FactEntry, facts};
use super::framework_signs::records_framework;
use super::gap::Loader;
use super::table::{FactTable, Runs};
use crate::profile::LoaderConfig;

/// The setting, if all loaders agree on it.
fn agreed<T: PartialEq>(t: &FactTable<'_>, setting: fn(&LoaderConfig) -> T) -> Option<T> {
    let mut settings = t.costed.run.profile.loaders.iter().map(setting);
    let first = settings.next()?;
    settings.all(|other| other == first).then_some(first)
}

/// The word for steps in which no DataLoader fetched a batch.
pub(super) const NO_LOADER: &str = "none";

/// The kind of DataLoader that fetched batches; `None` where nothing would show it, or kinds differ.
fn loader(t: &FactTable<'_>) -> Option<&'static str> {
    let run = &t.costed.run;
    let mut kinds = (run.profile.strings.iter()).filter_map(|(_, text)| Loader::of(text));
    let Some(kind) = kinds.next() else {
        return (t.sums.steps > 0 && records_framework(run)).then_some(NO_LOADER);
    };
    kinds.all(|other| other == kind).then(|| kind.name())
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// What the functions do in which worker processes of DataLoaders spent most of their time, by a
    /// profile of py-spy (`--host`): `decoding or augmenting`, ... (docs/host.md)
    "run.worker_class": STR => |t| {
        let summary = &t.costed.run.profile.host.summary;
        let class = summary.worker_class.as_ref();
        Answer::or_silent(class.map(|(class, _)| class.as_str()))
    },
    /// Share of the time of worker processes in functions of `run.worker_class`, over the whole run of
    /// py-spy
    "run.worker_class_share": DOUBLE => |t| {
        let summary = &t.costed.run.profile.host.summary;
        let class = summary.worker_class.as_ref();
        Answer::or_silent(class.map(|(_, share)| *share))
    },
    /// The function of the program in which worker processes spent most of the time of `run.worker_class`:
    /// `decode (data/images.py:12)`
    "run.worker_function": STR => |t| {
        let summary = &t.costed.run.profile.host.summary;
        Answer::or_silent(summary.worker_function.as_deref())
    },
    /// The kind of DataLoader that fetched batches: `single_process` (without worker processes),
    /// `multi_process`, or `none` in recorded steps with operators and without a fetch; silent where kinds
    /// differ or nothing would show it
    "run.loader": STR => |t| Answer::or_silent(loader(t)),
    /// Worker processes of each DataLoader, where the recording says and all agree
    "run.loader_workers": INT => |t| Answer::or_silent(agreed(t, |l| l.workers)),
    /// Whether each DataLoader copies its batches to pinned memory, where the recording says and all agree
    "run.loader_pins": BOOL => |t| Answer::or_silent(agreed(t, |l| l.pin_memory)),
    /// Batches that each worker of a DataLoader loads ahead, where the recording says and all agree
    "run.loader_prefetch": INT => |t| Answer::or_silent(agreed(t, |l| l.prefetch).flatten()),
    /// Whether the workers of each DataLoader live longer than an epoch, where the recording says and all
    /// agree
    "run.loader_persists": BOOL => |t| Answer::or_silent(agreed(t, |l| l.persistent)),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::facts::Value;
    use crate::facts::testing::of_run;

    /// The kind of loader in two steps with these ranges.
    fn kind(ranges: &[&str]) -> Answer {
        let mut b = ProfileBuilder::new();
        for step in 0..2 {
            let start = step * 10_000;
            b.range(&format!("ProfilerStep#{step}"), start, start + 9_000);
            for range in ranges {
                b.range(range, start + 100, start + 200);
            }
            b.launch(start + 150);
        }
        of_run(b, "run.loader")
    }

    #[test]
    fn the_kind_of_loader_is_that_of_its_class() {
        let word = |word: &str| Answer::Value(Value::Str(word.into()));
        let fetch = |class: &str| format!("enumerate(DataLoader)#{class}.__next__");
        let multi = fetch("_MultiProcessingDataLoaderIter");
        let single = fetch("_SingleProcessDataLoaderIter");
        assert_eq!(kind(&[&multi]), word("multi_process"));
        assert_eq!(kind(&[&single]), word("single_process"));
        assert_eq!(kind(&[&single, &multi]), Answer::DoesNotApply);
        assert_eq!(kind(&["aten::add, seq = 1"]), word("none"));
        assert_eq!(kind(&["epoch"]), Answer::DoesNotApply);
    }
}
