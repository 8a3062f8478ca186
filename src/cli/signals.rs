//! Removes temporary files when SIGINT, SIGTERM or SIGHUP ends the program. The process still ends by
//! that signal, as shells and schedulers expect.
//!
//! Unix only: on other systems a temporary file may remain.

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
    use super::is_ignored;

    #[test]
    fn signal_numbers_in_the_mask_start_at_one() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert!(is_ignored(status, 1), "SIGHUP, as nohup leaves it");
        assert!(is_ignored(status, 13), "SIGPIPE, as Rust leaves it");
        assert!(!is_ignored(status, 2) && !is_ignored(status, 64) && !is_ignored(status, 0));
        assert!(!is_ignored("", 2));
    }
}
