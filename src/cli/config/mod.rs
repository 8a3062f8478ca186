//! `--config FILE`: options from a TOML file. Command-line options take precedence.
//!
//! An option replaces the file's value of the same name; parameters of rules (`set`) are merged one by
//! one. Only a file named by the option or by the environment variable is read, so that the command
//! line determines what a run does.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};

use super::{
    AdviseArgs, Color, CommandResult, Console, FailOn, Failure, GateArgs, ReportArgs, RuleArgs,
    output,
};
use crate::base::diag::{Complaint, Complaints, Source};
use crate::compare::Suppression;
use crate::formats::OutputFormat;
use crate::judge::pattern_of;

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
    pub(super) rules: Vec<PathBuf>,
    pub(super) select: Vec<String>,
    pub(super) ignore: Vec<String>,
    pub(super) costs: Vec<PathBuf>,
    pub(super) classes: Vec<PathBuf>,
    pub(super) top: Option<usize>,
    pub(super) format: Option<OutputFormat>,
    pub(super) template: Option<PathBuf>,
    pub(super) source: Option<PathBuf>,
    pub(super) output: Option<PathBuf>,
    pub(super) max_chars: Option<u32>,
    pub(super) for_pr: bool,
    pub(super) fail_on: Vec<FailOn>,
    pub(super) baseline: Option<PathBuf>,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    pub(super) color: Option<Color>,
    /// `category/rule.param=value`, as `--set` takes it.
    pub(super) set: Vec<String>,
    pub(super) suppress: Vec<Suppression>,
    /// The positions of rule names, which are checked once the rules are known.
    names: Vec<RuleName>,
}

/// A rule name or pattern in a configuration file.
#[derive(Debug, Clone, PartialEq)]
struct RuleName {
    text: String,
    file: Arc<Source>,
    span: Range<usize>,
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
        config.check_rules(paths, &complaints)?;
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
        rules: args.rules.paths.clone(),
        select: args.rules.select.clone(),
        ignore: args.rules.ignore.clone(),
        costs: args.costs.clone(),
        classes: args.classes.clone(),
        top: Some(args.report.top()),
        format: args.report.format,
        template: args.report.template.clone(),
        source: args.report.source.clone(),
        output: args.report.output.clone(),
        max_chars: args.report.max_chars,
        for_pr: args.report.for_pr,
        fail_on: args.gates.fail_on.clone(),
        baseline: args.gates.baseline.clone(),
        quiet: console.quiet,
        verbose: console.verbose,
        color: Some(console.color()),
        set: args.rules.set.clone(),
        suppress: args.gates.suppressions.clone(),
        names: Vec::new(),
    }
}

impl Config {
    /// Reports names of rules that do not exist. Suppressions are excluded because they may outlive
    /// their rule; the report mentions those.
    fn check_rules(&self, paths: &[PathBuf], complaints: &Complaints) -> CommandResult {
        if self.names.is_empty() {
            return Ok(());
        }
        let mut paths = paths.to_vec();
        paths.extend(
            self.rules
                .iter()
                .filter(|p| !paths.contains(p))
                .cloned()
                .collect::<Vec<_>>(),
        );
        let ids = super::rules::ids(&paths)?;
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        for name in &self.names {
            if let Err(why) = pattern_of(&name.text, &ids) {
                complaints.push(Complaint::error(&name.file, name.span.clone(), why, ""));
            }
        }
        Ok(())
    }

    pub(super) fn fill_rules(&self, args: &mut RuleArgs) {
        fill(&mut args.paths, &self.rules);
        fill(&mut args.select, &self.select);
        fill(&mut args.ignore, &self.ignore);
        // The later of two values for one parameter applies.
        args.set.splice(0..0, self.set.iter().cloned());
    }

    /// Adds options of the report. Some exclude each other: if the command line has one of them, the
    /// others in the file are ignored.
    pub(super) fn fill_report(&self, args: &mut ReportArgs) {
        let limited = args.for_pr || args.max_chars.is_some();
        // The ending of a file names a format too.
        let named = args
            .output
            .as_deref()
            .and_then(OutputFormat::of_file)
            .is_some();
        let shaped = args.format.is_some() || args.template.is_some() || named;
        if !shaped && (!limited || self.format.is_some_and(|format| format.can_shorten)) {
            args.format = self.format;
        }
        if !shaped && !limited {
            args.template.clone_from(&self.template);
        }
        let of_file = args.output.as_deref().and_then(OutputFormat::of_file);
        let can_shorten = args
            .format
            .or(of_file)
            .is_none_or(|format| format.can_shorten);
        if !limited && can_shorten && args.template.is_none() {
            args.max_chars = self.max_chars;
            args.for_pr = self.for_pr;
        }
        args.output = args.output.take().or_else(|| self.output.clone());
        args.top = args.top.or(self.top);
        args.source = args.source.take().or_else(|| self.source.clone());
    }

    pub(super) fn fill_gates(&self, args: &mut GateArgs) {
        fill(&mut args.fail_on, &self.fail_on);
        args.baseline = args.baseline.take().or_else(|| self.baseline.clone());
        args.suppressions.clone_from(&self.suppress);
    }

    pub(super) fn fill_console(&self, console: &mut Console) {
        let asked = console.quiet || console.verbose;
        console.quiet |= self.quiet && !asked;
        console.verbose |= self.verbose && !asked;
        console.color = console.color.or(self.color);
    }
}

/// Sets a list to the file's if the command line has none.
fn fill<T: Clone>(args: &mut Vec<T>, config: &[T]) {
    if args.is_empty() {
        args.extend_from_slice(config);
    }
}
