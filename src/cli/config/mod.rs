//! `--config FILE`: options from a TOML file. Command-line options take precedence.
//!
//! An option replaces the file's value of the same name; parameters of rules (`set`) are merged one by
//! one. Only a file named by the option or by the environment variable is read, so that the command
//! line determines what a run does.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::exit_gates::unknown_suppression;
use super::{AdviseArgs, Console, Failure, GateArgs, ReportArgs, RuleArgs, output};
use crate::base::diag::{Complaint, Complaints, Source};
use crate::facts;
use crate::formats::OutputFormat;
use crate::judge::{RuleSet, Selection, pattern_of};

mod dump;
mod keys;
mod read;

pub(super) use dump::dump;
pub(super) use keys::schema;

/// The environment variable that names a configuration file, like `--config`.
pub(super) const VARIABLE: &str = "PYPROF_ADVISE_CONFIG";

/// The contents of a configuration file; missing values are `None`, empty or false.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Config {
    pub(super) gpu: Option<String>,
    pub(super) rules: RuleArgs,
    pub(super) costs: Vec<PathBuf>,
    pub(super) classes: Vec<PathBuf>,
    pub(super) report: ReportArgs,
    pub(super) gates: GateArgs,
    pub(super) console: Console,
    /// The positions of rule names, which are checked once the rules are known.
    names: Vec<RuleName>,
}

/// A rule name, a pattern or a parameter in a configuration file.
#[derive(Debug, Clone, PartialEq)]
struct RuleName {
    text: String,
    kind: NameKind,
    file: Arc<Source>,
    span: Range<usize>,
}

/// What a rule is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    /// To select it, to leave it out, or to set its parameters.
    Rule,
    /// To hide its findings.
    Suppression,
    /// `category/rule.param=value`, as for `--set`.
    Setting,
}

/// Parses a path that may be empty: an empty variable names no file, and an empty option overrides the
/// variable.
pub(super) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

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

impl Config {
    /// Reports names and parameters of rules that do not exist, and paths of rules that cannot be read.
    fn check_rules(&self, given: &[PathBuf], complaints: &Complaints) {
        let mut paths = given.to_vec();
        let own = &self.rules.paths;
        paths.extend(own.iter().filter(|path| !given.contains(path)).cloned());
        if self.names.is_empty() {
            return;
        }
        let files = match super::rules::files(&paths) {
            Ok(files) => files,
            // Any name may be that of a rule which could not be read.
            Err(unread) => return complaints.append(&unread),
        };
        let ids: Vec<&str> = files.iter().map(|file| file.id.as_str()).collect();
        let complain = |name: &RuleName, why: String| {
            complaints.push(Complaint::error(&name.file, name.span.clone(), why, ""));
        };
        let mut settings = Vec::new();
        for name in &self.names {
            let checked = match name.kind {
                NameKind::Rule => pattern_of(&name.text, &ids).map(drop),
                NameKind::Suppression => unknown_suppression(&name.text, &ids).map_or(Ok(()), Err),
                NameKind::Setting => {
                    settings.push(name);
                    Ok(())
                }
            };
            if let Err(why) = checked {
                complain(name, why);
            }
        }
        if settings.is_empty() {
            return;
        }
        // Mistakes in rules are reported when they are loaded for the analysis.
        if let Ok(mut rules) = RuleSet::load(&files, &Selection::default(), facts::all()) {
            for name in settings {
                let param = name.text.split('=').next().unwrap_or_default();
                let known = (param.rsplit_once('.')).is_some_and(|(rule, _)| ids.contains(&rule));
                if let Err(why) = rules.set(&name.text, &ids)
                    && known
                {
                    complain(name, why);
                }
            }
        }
    }

    pub(super) fn fill_rules(&self, args: &mut RuleArgs) {
        fill(&mut args.paths, &self.rules.paths);
        fill(&mut args.select, &self.rules.select);
        fill(&mut args.ignore, &self.rules.ignore);
        // The later of two values for one parameter applies.
        args.set.splice(0..0, self.rules.set.iter().cloned());
    }

    /// Adds options of the report. Some exclude each other: if the command line has one of them, the
    /// others in the file are ignored.
    pub(super) fn fill_report(&self, args: &mut ReportArgs) {
        let own = &self.report;
        let limited = args.for_pr || args.max_chars.is_some();
        // The ending of a file names a format too.
        let of_file = args.output.as_deref().and_then(OutputFormat::of_file);
        let shaped = args.format.or(of_file).is_some() || args.template.is_some();
        if !shaped && (!limited || own.format.is_some_and(|format| format.can_shorten)) {
            args.format = own.format;
        }
        if !shaped && !limited {
            args.template.clone_from(&own.template);
        }
        let format = args.format.or(of_file);
        let can_shorten = format.is_none_or(|format| format.can_shorten);
        if !limited && can_shorten && args.template.is_none() {
            args.max_chars = own.max_chars;
            args.for_pr = own.for_pr;
        }
        args.output = args.output.take().or_else(|| own.output.clone());
        args.top = args.top.or(own.top);
        args.source = args.source.take().or_else(|| own.source.clone());
    }

    pub(super) fn fill_gates(&self, args: &mut GateArgs) {
        let own = &self.gates;
        fill(&mut args.fail_on, &own.fail_on);
        args.baseline = args.baseline.take().or_else(|| own.baseline.clone());
        args.suppressions.clone_from(&own.suppressions);
    }

    pub(super) fn fill_console(&self, console: &mut Console) {
        let asked = console.quiet || console.verbose;
        console.quiet |= self.console.quiet && !asked;
        console.verbose |= self.console.verbose && !asked;
        console.color = console.color.or(self.console.color);
    }
}

/// Sets a list to the file's if the command line has none.
fn fill<T: Clone>(args: &mut Vec<T>, config: &[T]) {
    if args.is_empty() {
        args.extend_from_slice(config);
    }
}
