//! Progress on standard error, only on a terminal.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};

use crate::read::Progress;

/// A progress bar, or nothing if standard error is not a terminal.
#[derive(Debug)]
pub(super) struct Bar(Option<Mutex<ProgressBar>>);

impl Bar {
    /// A bar, unless `quiet` or standard error is not a terminal.
    pub(super) fn new(quiet: bool) -> Bar {
        let wanted = !quiet && std::io::stderr().is_terminal();
        Bar(wanted.then(|| Mutex::new(ProgressBar::hidden())))
    }

    /// A bar that counts files.
    pub(super) fn of_files(quiet: bool, files: u64) -> Bar {
        let bar = Bar::new(quiet);
        bar.with(|bar| {
            *bar = ProgressBar::new(files);
            let template = "profiles {wide_bar} {human_pos} of {human_len}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
        });
        bar
    }

    /// Counts one file.
    pub(super) fn file_done(&self) {
        self.with(|bar| bar.inc(1));
    }

    /// Removes the bar.
    pub(super) fn done(&self) {
        self.with(|bar| bar.finish_and_clear());
    }

    fn with(&self, act: impl FnOnce(&mut ProgressBar)) {
        if let Some(bar) = &self.0
            && let Ok(mut bar) = bar.lock()
        {
            act(&mut bar);
        }
    }
}

impl Progress for Bar {
    fn phase(&self, name: &str, total: Option<u64>) {
        self.with(|bar| {
            bar.finish_and_clear();
            *bar = match total {
                Some(total) => ProgressBar::new(total),
                None => ProgressBar::new_spinner(),
            };
            let template = "{msg} {wide_bar} {human_pos} of {human_len} rows, {eta} left";
            if total.is_some()
                && let Ok(style) = ProgressStyle::with_template(template)
            {
                bar.set_style(style);
            }
            bar.set_message(name.to_owned());
        });
    }

    fn advance(&self, rows: u64) {
        self.with(|bar| bar.inc(rows));
    }
}
