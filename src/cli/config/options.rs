//! The options of a configuration file, which fill in what the command line lacks.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::base::diag::{Complaint, Complaints, Source};
use crate::cli::args::{Console, GateArgs, ReportArgs, RuleArgs};
use crate::cli::exit_gates::unknown_suppression;
use crate::cli::rules;
use crate::facts;
use crate::formats::OutputFormat;
use crate::judge::{RuleSet, Selection, pattern_of};

/// The contents of a configuration file; missing values are `None`, empty or false.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Config {
    pub(crate) gpu: Option<String>,
    pub(crate) rules: RuleArgs,
    pub(crate) costs: Vec<PathBuf>,
    pub(crate) classes: Vec<PathBuf>,
    pub(crate) report: ReportArgs,
    pub(crate) gates: GateArgs,
    pub(crate) console: Console,
    /// The positions of rule names, which are checked once the rules are known.
    pub(super) names: Vec<RuleName>,
}

/// A rule name, a pattern or a parameter in a configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RuleName {
    pub(super) text: String,
    pub(super) kind: NameKind,
    pub(super) file: Arc<Source>,
    pub(super) span: Range<usize>,
}

/// What a rule is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// To select it, to leave it out, or to set its parameters.
    Rule,
    /// To hide its findings.
    Suppression,
    /// `category/rule.param=value`, as for `--set`.
    Setting,
}

impl Config {
    /// Reports names and parameters of rules that do not exist, and paths of rules that cannot be read.
    pub(super) fn check_rules(&self, given: &[PathBuf], complaints: &Complaints) {
        let mut paths = given.to_vec();
        let own = &self.rules.paths;
        paths.extend(own.iter().filter(|path| !given.contains(path)).cloned());
        if self.names.is_empty() {
            return;
        }
        let files = match rules::files(&paths) {
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

    pub(crate) fn fill_rules(&self, args: &mut RuleArgs) {
        fill(&mut args.paths, &self.rules.paths);
        fill(&mut args.select, &self.rules.select);
        fill(&mut args.ignore, &self.rules.ignore);
        // The later of two values for one parameter applies.
        args.set.splice(0..0, self.rules.set.iter().cloned());
    }

    /// Adds options of the report. Some exclude each other: if the command line has one of them, the
    /// others in the file are ignored.
    pub(crate) fn fill_report(&self, args: &mut ReportArgs) {
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

    pub(crate) fn fill_gates(&self, args: &mut GateArgs) {
        let own = &self.gates;
        fill(&mut args.fail_on, &own.fail_on);
        args.baseline = args.baseline.take().or_else(|| own.baseline.clone());
        args.suppressions.clone_from(&own.suppressions);
    }

    pub(crate) fn fill_console(&self, console: &mut Console) {
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
