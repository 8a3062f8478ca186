//! Facts of how the threads of the program had CPUs, where `pyprof-advise run` recorded it, and of the switches in
//! its environment.

use super::fact::{Answer, FactEntry, Value, facts};
use super::table::{FactTable, Runs};
use crate::profile::RunTime;

/// Time of all workers as a number of CPUs.
fn cpus_of_workers(t: &FactTable<'_>, time: fn(RunTime) -> u64) -> Option<f64> {
    let used = t.costed.run.profile.cpu_use;
    let workers = used.workers.filter(|_| used.window_ns > 0)?;
    Some(time(workers) as f64 / used.window_ns as f64)
}

pub(super) const ENTRIES: &[FactEntry<Runs>] = facts! {
    /// CPUs that the program may use, by its affinity and the limit of its container, where the recording
    /// says
    "run.cpus": INT => |t| {
        let cpus = Some(t.costed.run.profile.cpu_use.cpus);
        Answer::or_silent(cpus.filter(|cpus| *cpus > 0))
    },
    /// Share of the recorded time in which the thread that takes steps was ready to run, while other
    /// threads had the CPUs, where the recording says
    "run.thread_ready_share": DOUBLE => |t| {
        let used = t.costed.run.profile.cpu_use;
        let ready = used.thread.filter(|_| used.window_ns > 0);
        let share = ready.map(|time| time.ready_ns as f64 / used.window_ns as f64);
        Answer::or_silent(share.map(|share| share.min(1.0)))
    },
    /// CPUs that the worker processes of DataLoaders used together on average, where the recording says
    "run.worker_cpus": DOUBLE => |t| Answer::or_silent(cpus_of_workers(t, |time| time.ran_ns)),
    /// CPUs that the worker processes would have used if no thread had waited for one
    "run.worker_cpus_wanted": DOUBLE => |t| {
        let wanted = |time: RunTime| time.ran_ns.saturating_add(time.ready_ns);
        Answer::or_silent(cpus_of_workers(t, wanted))
    },
    /// Environment variables of the program that change performance, where the file has them:
    /// `CUDA_LAUNCH_BLOCKING=1`
    "run.switches": STRINGS => |t| {
        let switches = t.costed.run.profile.switches.iter();
        let texts = switches.map(|switch| format!("{}={}", switch.name, switch.value).into());
        Answer::Value(Value::Strings(texts.collect()))
    },
};
