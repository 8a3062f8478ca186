//! Facts of how the program's DataLoaders are configured, where `pyprof-advise run` recorded it, and of what
//! their workers do.
//!
//! A program may use several loaders, and the trace does not tell which of them made a batch: a setting is
//! known where all of them agree on it.

use super::run::Runs;
use super::{Answer, Entry, FactTable, fact};
use crate::profile::LoaderConfig;

/// The setting, if all loaders agree on it.
fn agreed<T: PartialEq>(t: &FactTable<'_>, setting: fn(&LoaderConfig) -> T) -> Option<T> {
    let mut settings = t.costed.run.profile.loaders.iter().map(setting);
    let first = settings.next()?;
    settings.all(|other| other == first).then_some(first)
}

pub(super) const ENTRIES: &[Entry<Runs>] = &[
    fact!(
        "run.worker_class",
        Str,
        "",
        &[],
        NOTHING,
        "What the functions do in which worker processes of DataLoaders spent most of their time, by a profile of py-spy (`--host`): `decoding or augmenting`, ... (docs/host.md)",
        |t| {
            let told = &t.costed.run.profile.host.told;
            let class = told.worker_class.as_ref();
            Answer::or_silent(class.map(|(class, _)| class.as_str()), Answer::word)
        }
    ),
    fact!(
        "run.worker_class_share",
        Double,
        "share",
        &[],
        NOTHING,
        "Share of the time of worker processes in functions of `run.worker_class`, over the whole run of py-spy",
        |t| {
            let told = &t.costed.run.profile.host.told;
            let class = told.worker_class.as_ref();
            Answer::or_silent(class.map(|(_, share)| *share), Answer::double)
        }
    ),
    fact!(
        "run.worker_function",
        Str,
        "",
        &[],
        NOTHING,
        "The function of the program in which worker processes spent most of the time of `run.worker_class`: `decode (data/images.py:12)`",
        |t| {
            let told = &t.costed.run.profile.host.told;
            Answer::or_silent(told.worker_function.as_deref(), Answer::word)
        }
    ),
    fact!(
        "run.loader_workers",
        Int,
        "",
        &[],
        NOTHING,
        "Worker processes of each DataLoader, where the recording says and all agree",
        |t| Answer::or_silent(agreed(t, |l| l.workers), |n| Answer::int(u64::from(n)))
    ),
    fact!(
        "run.loader_pins",
        Bool,
        "",
        &[],
        NOTHING,
        "Whether each DataLoader copies its batches to pinned memory, where the recording says and all agree",
        |t| Answer::or_silent(agreed(t, |l| l.pin_memory), Answer::flag)
    ),
    fact!(
        "run.loader_prefetch",
        Int,
        "",
        &[],
        NOTHING,
        "Batches that each worker of a DataLoader loads ahead, where the recording says and all agree",
        |t| Answer::or_silent(agreed(t, |l| l.prefetch).flatten(), |n| Answer::int(
            u64::from(n)
        ))
    ),
    fact!(
        "run.loader_persists",
        Bool,
        "",
        &[],
        NOTHING,
        "Whether the workers of each DataLoader live longer than an epoch, where the recording says and all agree",
        |t| Answer::or_silent(agreed(t, |l| l.persistent), Answer::flag)
    ),
];
