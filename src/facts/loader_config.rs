//! Facts of how the program's DataLoaders are configured, where `pyprof-advise run` recorded it, and of what
//! their workers do.
//!
//! A program may use several loaders, and the trace does not tell which of them made a batch: a setting is
//! known where all of them agree on it.

use super::run::Runs;
use super::{Answer, Entry, FactTable, facts};
use crate::profile::LoaderConfig;

/// The setting, if all loaders agree on it.
fn agreed<T: PartialEq>(t: &FactTable<'_>, setting: fn(&LoaderConfig) -> T) -> Option<T> {
    let mut settings = t.costed.run.profile.loaders.iter().map(setting);
    let first = settings.next()?;
    settings.all(|other| other == first).then_some(first)
}

pub(super) const ENTRIES: &[Entry<Runs>] = facts! {
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
