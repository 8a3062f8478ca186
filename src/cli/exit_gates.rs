//! Suppressions, the baseline and `--fail-on`: which findings are shown, and whether the exit status of a
//! written report is 1.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::args::{Console, FailOn, GateArgs};
use super::output::{self, CommandResult, Failure};
use super::{kept, multi_rank};
use crate::base::date::{self, Date};
use crate::base::glob::Glob;
use crate::base::suggest::did_you_mean;
use crate::base::text::{list_some, plain};
use crate::base::units::counted;
use crate::compare;
use crate::judge::{RuleSet, Severity};
use crate::report::{FindingReport, Report, SuppressionReport, SuppressionState, possible_savings};

/// Maximum number of rule ids in one line.
const NAMED: usize = 10;
/// Overrides the current date, in seconds since 1970, so that runs with expiring suppressions can be
/// repeated:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const TODAY: &str = "SOURCE_DATE_EPOCH";

/// The reason why a report fails, in one line with the rules; `None` if it passes.
fn reason(report: &Report, gates: &[FailOn]) -> Option<String> {
    let missing = missing(report).filter(|_| !gates.is_empty()).map(|why| {
        let gates: Vec<String> = gates.iter().map(FailOn::to_string).collect();
        format!("--fail-on {} was not checked on {why}", gates.join(","))
    });
    let mut reasons: Vec<String> = gates
        .iter()
        .filter_map(|gate| {
            let (why, findings) = match gate {
                FailOn::Severity(least) => severe(report, *least)?,
                FailOn::Saving(percent) => saving(report, *percent / 100.0)?,
            };
            Some(format!("--fail-on {gate}: {why}: {}", rules(&findings)))
        })
        .collect();
    reasons.extend(missing);
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// What a report lacks, so that no gate can pass: what is missing may be worse.
fn missing(report: &Report) -> Option<String> {
    let job = report.job.as_ref();
    let left_out = job.map_or(&[][..], |job| &job.left_out);
    let unread = left_out.iter().filter(|file| !file.repeated);
    let unread: Vec<String> = unread.map(|file| plain(&file.file)).collect();
    let files = job.map_or(1, |job| job.files) + unread.len() as u64;
    let cut: Vec<String> = report.cut_files.iter().map(|file| plain(file)).collect();
    let count = |missing: &[String], what: &str| {
        let names = list_some(missing, NAMED);
        format!("{} of {files} files {what} ({names})", missing.len())
    };
    match (unread.as_slice(), cut.as_slice()) {
        ([], []) => None,
        ([], [only]) if job.is_none() => Some(format!("all work: {only} ends in the middle")),
        ([], cut) => Some(format!("all work: {}", count(cut, "end in the middle"))),
        (unread, cut) => {
            let mut why = format!("all ranks: {}", count(unread, "could not be read"));
            if !cut.is_empty() {
                why.push_str(&format!(", {}", count(cut, "end in the middle")));
            }
            Some(why)
        }
    }
}

type Failed<'a> = (String, Vec<&'a FindingReport>);

fn severe(report: &Report, least: Severity) -> Option<Failed<'_>> {
    let findings = report.findings.iter();
    let findings: Vec<&FindingReport> = findings.filter(|f| f.severity >= least).collect();
    let count = counted(findings.len() as u64, "finding");
    (!findings.is_empty()).then_some((count, findings))
}

fn saving(report: &Report, limit: f64) -> Option<Failed<'_>> {
    let savings = possible_savings(report);
    let reached: Vec<_> = savings.into_iter().filter(|s| s.share >= limit).collect();
    let texts: Vec<&str> = reached.iter().map(|s| s.text.as_str()).collect();
    let why = format!("the findings could save {}", texts.join(" and "));
    let findings = reached.iter().flat_map(|s| s.findings.iter().copied());
    (!reached.is_empty()).then(|| (why, findings.collect()))
}

/// The distinct rules of findings, in the order of the report.
fn rules(findings: &[&FindingReport]) -> String {
    let mut ids: Vec<String> = Vec::new();
    for finding in findings {
        let id = plain(&finding.rule);
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    list_some(&ids, NAMED)
}

/// The gates of a run, loaded before a profile is read so that mistakes are reported at once.
pub(super) struct Gates<'a> {
    args: &'a GateArgs,
    baseline: Option<(String, Report)>,
    /// The rules that are evaluated; `None` for reports that are only merged.
    ran: Option<Vec<String>>,
}

impl<'a> Gates<'a> {
    pub(super) fn load(args: &'a GateArgs, ran: Option<Vec<String>>) -> Result<Gates<'a>, Failure> {
        for suppression in &args.suppressions {
            check_rule(suppression.rule.text(), ran.as_deref())?;
        }
        let baseline = match args.baseline.as_deref() {
            Some(path) => Some((multi_rank::shown(path), read_baseline(path)?)),
            None => None,
        };
        Ok(Gates {
            args,
            baseline,
            ran,
        })
    }

    /// Hides suppressed findings, then findings that are in the baseline.
    pub(super) fn filter(&self, report: &mut Report, console: Console) {
        let ran = |rules: &Glob| match &self.ran {
            Some(ran) => ran.iter().any(|id| rules.matches(id)),
            None => true,
        };
        compare::suppress(report, &self.args.suppressions, today(), &ran);
        for suppression in &report.suppressions {
            if let Some(warning) = warning(suppression) {
                console.warn(&warning);
            }
        }
        if let Some((file, baseline)) = &self.baseline {
            let ran = |rule: &str| match &self.ran {
                Some(ran) => ran.iter().any(|id| id == rule),
                None => true,
            };
            compare::against(report, baseline, file, &ran);
        }
    }

    /// Fails if the written report meets a condition of `--fail-on`, or lacks a part that could meet it.
    pub(super) fn check(&self, report: &Report) -> CommandResult {
        match reason(report, &self.args.fail_on) {
            Some(reason) => {
                output::labeled("failed", anstyle::AnsiColor::Red, &reason);
                Err(Failure::GateFailed)
            }
            None => Ok(()),
        }
    }
}

fn read_baseline(path: &Path) -> Result<Report, Failure> {
    kept::read(path).map_err(|failure| match failure {
        Failure::Unusable(why) => Failure::Unusable(format!("--baseline {why}")),
        other => other,
    })
}

/// The warning about a suppression without effect.
fn warning(s: &SuppressionReport) -> Option<String> {
    let at = s
        .place
        .as_ref()
        .map_or(String::new(), |p| format!(" at {}", plain(p)));
    let which = format!("the suppression of {}{at}", plain(&s.rule));
    let until = s.until.as_deref().unwrap_or_default();
    match s.state {
        SuppressionState::Used => None,
        SuppressionState::Expired if s.findings > 0 => Some(format!(
            "{which} expired on {until}: {} shown again",
            counted(s.findings, "finding")
        )),
        SuppressionState::Expired => Some(format!("{which} expired on {until}; remove it")),
        SuppressionState::Unused => Some(match &s.near_miss {
            Some(near) => format!("{which} hides nothing: {}", plain(near)),
            None => format!("{which} hides nothing: no finding has this rule and place"),
        }),
        SuppressionState::NotRun => None,
    }
}

/// Reports an error for a suppression of a rule that does not exist. `ran` are the rules of this run, with those
/// of the user.
fn check_rule(rule: &str, ran: Option<&[String]>) -> Result<(), Failure> {
    let files = RuleSet::builtin_files_for_analysis();
    let own = ran.unwrap_or_default().iter().map(String::as_str);
    let ids: Vec<&str> = files
        .iter()
        .map(|file| file.id.as_str())
        .chain(own)
        .collect();
    match unknown_suppression(rule, &ids) {
        Some(why) => Err(Failure::Unusable(format!(
            "{why}\n  `pyprof-advise rules list` names all"
        ))),
        None => Ok(()),
    }
}

/// Why the suppression of a rule or pattern is a mistake: without such a rule it would hide nothing, silently.
pub(super) fn unknown_suppression(rule: &str, ids: &[&str]) -> Option<String> {
    let glob = Glob::new(rule);
    // The rules of the user are unknown where reports are only shown or merged, or deselected.
    let known = rule.starts_with("user/") || ids.iter().any(|id| glob.matches(id));
    let near = did_you_mean(rule, ids.iter().copied());
    (!known).then(|| {
        format!(
            "a suppression names the rule `{}`, which does not exist{near}",
            plain(rule)
        )
    })
}

/// The current date in UTC, or the date in [`TODAY`].
fn today() -> Date {
    let told = std::env::var(TODAY)
        .ok()
        .and_then(|s| s.trim().parse().ok());
    let seconds = told.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    });
    date::of_unix(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_round_trip_through_text() {
        for text in [
            "note",
            "warning",
            "error",
            "saving=5%",
            "saving=2.5%",
            "saving=0%",
        ] {
            let gate: FailOn = text.parse().unwrap();
            assert_eq!(gate.to_string().parse(), Ok(gate), "{text}");
        }
        assert_eq!("saving= 12.5 %".parse(), Ok(FailOn::Saving(12.5)));
    }

    #[test]
    fn invalid_gates_are_explained() {
        for (text, says) in [
            ("warnings", "did you mean `warning`?"),
            ("", "expected `note`"),
            ("saving", "`saving=5%`"),
            ("saving=5", "expected a percentage"),
            ("saving=-1%", "expected a percentage"),
            ("saving=NaN%", "expected a percentage"),
            ("saving=1e3%", "expected a percentage"),
            ("regression=3%", "diff BEFORE AFTER --fail-on regression=3%"),
        ] {
            let error = text.parse::<FailOn>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
