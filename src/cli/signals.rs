//! Removes temporary files when SIGINT, SIGTERM or SIGHUP ends the program. The process still ends by
//! that signal, as shells and schedulers expect.
//!
//! While a program runs for [`run`](super::run()), signals are the program's: Ctrl-C reaches it from the
//! terminal, and what only this process receives is passed on.
//!
//! Unix only: on other systems a temporary file may remain.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// The process that signals are passed on to; 0 without one.
#[cfg(unix)]
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The signal that arrived while a program or a series of them ran; 0 without one.
static INTERRUPTED: AtomicI32 = AtomicI32::new(0);

/// Whether a series of programs runs, which ends with what it has done.
static SERIES: AtomicBool = AtomicBool::new(false);

/// Whether a signal has arrived that asks a series of programs to end.
pub(super) fn is_interrupted() -> bool {
    interrupted_by().is_some()
}

/// The signal that has asked a series of programs to end.
pub(super) fn interrupted_by() -> Option<i32> {
    let signal = INTERRUPTED.load(SeqCst);
    (signal != 0).then_some(signal)
}

/// While it exists, a signal between two programs ends this process no more than one during a program does:
/// [`is_interrupted`] tells of it.
#[derive(Debug)]
pub(super) struct SignalsDuringSeries;

impl SignalsDuringSeries {
    /// Begins a series.
    pub(super) fn begin() -> SignalsDuringSeries {
        SERIES.store(true, SeqCst);
        SignalsDuringSeries
    }
}

impl Drop for SignalsDuringSeries {
    fn drop(&mut self) {
        SERIES.store(false, SeqCst);
    }
}

/// Passes signals on to a program while it exists.
#[derive(Debug)]
pub(super) struct PassedOn;

impl PassedOn {
    /// Passes signals on to the process with this id.
    pub(super) fn to(program: u32) -> PassedOn {
        #[cfg(unix)]
        PROGRAM.store(i32::try_from(program).unwrap_or_default(), SeqCst);
        #[cfg(not(unix))]
        let _ = program;
        PassedOn
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        #[cfg(unix)]
        PROGRAM.store(0, SeqCst);
    }
}

/// Sends a signal to the program that runs, or notes it for the series; returns whether there is either.
#[cfg(unix)]
fn passed_on(signal: i32) -> bool {
    use rustix::process::{Pid, Signal, kill_process};
    let program = PROGRAM.load(SeqCst);
    let program = Pid::from_raw(program);
    if program.is_none() && !SERIES.load(SeqCst) {
        return false;
    }
    INTERRUPTED.store(signal, SeqCst);
    let Some(program) = program else {
        return true;
    };
    // The terminal sends Ctrl-C to both processes; a second one would interrupt the program's clean-up.
    let signal = match signal {
        signal_hook::consts::SIGTERM => Some(Signal::TERM),
        signal_hook::consts::SIGHUP => Some(Signal::HUP),
        _ => None,
    };
    if let Some(signal) = signal {
        let _ = kill_process(program, signal);
    }
    true
}

/// Installs the handlers; does nothing if no thread can be started.
#[cfg(unix)]
pub(super) fn install() {
    use std::sync::mpsc;

    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use crate::base::temporary;

    let (give, take) = mpsc::channel::<Signals>();
    let waiting = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let Ok(mut signals) = take.recv() else {
                return;
            };
            for signal in &mut signals {
                if passed_on(signal) {
                    continue;
                }
                let _guard = temporary::lock_and_remove_all();
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        });
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let wanted = [SIGINT, SIGTERM, SIGHUP];
    let wanted = wanted
        .iter()
        .filter(|&&signal| !is_ignored(&status, signal));
    // Without the thread, the signal would be caught but not handled.
    if waiting.is_ok()
        && let Ok(signals) = Signals::new(wanted)
    {
        let _ = give.send(signals);
    }
}

#[cfg(not(unix))]
pub(super) fn install() {}

/// Whether the parent process set a signal to be ignored (`nohup`, `&` in a script), by the mask in
/// `/proc/self/status` (see `man 5 proc`); `false` without that file.
#[cfg(unix)]
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1).unwrap_or(u32::MAX);
    mask.and_then(|mask| mask.checked_shr(bit))
        .is_some_and(|shifted| shifted & 1 == 1)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn signals_between_the_programs_of_a_series_are_noted() {
        let term = signal_hook::consts::SIGTERM;
        assert!(!passed_on(term), "no program and no series");
        assert_eq!(interrupted_by(), None);
        let series = SignalsDuringSeries::begin();
        assert!(passed_on(term));
        assert_eq!(interrupted_by(), Some(term));
        drop(series);
        assert!(!passed_on(term));
        INTERRUPTED.store(0, SeqCst);
    }

    #[test]
    fn signal_numbers_in_the_mask_start_at_one() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_ignored(status, 1), "SIGHUP, as nohup leaves it");
        assert!(is_ignored(status, 13), "SIGPIPE, as Rust leaves it");
        assert!(!is_ignored(status, 2) && !is_ignored(status, 64) && !is_ignored(status, 0));
        assert!(!is_ignored("", 2));
    }
}
