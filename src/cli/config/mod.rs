//! `--config FILE`: options from a TOML file. Command-line options take precedence.
//!
//! An option replaces the file's value of the same name; parameters of rules (`set`) are merged one by
//! one. Only a file named by the option or by the environment variable is read, so that the command
//! line determines what a run does.

use std::path::{Path, PathBuf};

use super::args::{AdviseArgs, Console, ReportArgs};
use super::output::{self, Failure};
use crate::base::diag::{Complaints, Source};

mod dump;
mod keys;
mod options;
mod read;

pub(super) use dump::dump;
pub(super) use keys::schema;
use options::Config;

/// The configuration in a file; empty without a file or with an empty path. With `rules`, the rule files of
/// the command line, names of rules that do not exist are mistakes too.
pub(super) fn load(path: Option<&Path>, rules: Option<&[PathBuf]>) -> Result<Config, Failure> {
    let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(Config::default());
    };
    let source = Source::read(path).map_err(|complaint| output::refuse(&complaint.into()))?;
    let complaints = Complaints::new();
    let config = read::config(&source, path.parent(), &complaints);
    if let Some(paths) = rules {
        config.check_rules(paths, &complaints);
    }
    if !complaints.is_empty() {
        return Err(output::refuse(&complaints));
    }
    Ok(config)
}

/// Checks that a valid configuration reads back equal after it is written.
#[cfg(any(test, fuzzing))]
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub(crate) fn round_trip(text: &str) {
    let understood = |text: &str| {
        let complaints = Complaints::new();
        let source = Source::new("fuzzed.toml", text);
        let config = read::config(&source, None, &complaints);
        (
            Config {
                names: Vec::new(),
                ..config
            },
            complaints.render(false),
        )
    };
    let (config, complaints) = understood(text);
    let control = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!complaints.contains(control), "{complaints:?}");
    if complaints.is_empty() {
        let written = dump(&config);
        let (again, complaints) = understood(&written);
        assert_eq!(complaints, "", "{written}");
        assert_eq!(again, config, "{written}");
    }
}

/// The effective options: the command line over the configuration.
pub(super) fn effective(args: &AdviseArgs, console: Console) -> Config {
    Config {
        gpu: args.gpu.clone(),
        rules: args.rules.clone(),
        costs: args.costs.clone(),
        classes: args.classes.clone(),
        report: ReportArgs {
            top: Some(args.report.top()),
            ..args.report.clone()
        },
        gates: args.gates.clone(),
        console: Console {
            color: Some(console.color()),
            ..console
        },
        names: Vec::new(),
    }
}
