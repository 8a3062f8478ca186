//! Calls in which the host waits for the GPU.

use super::basis::Basis;
use super::figures::label;
use super::finding_report::FindingReport;
use super::model::Report;
use super::rows::Synchronizations;
use crate::base::units::{self, per_step_count};
use crate::facts::FactTable;

/// Calls from which they are a habit. Fewer count if there is one per step.
const HABIT: u64 = 10;

/// Rules whose findings are about such calls.
const RULES: [&str; 7] = [
    "host/copies-wait",
    "host/data-dependent-shape",
    "host/explicit-sync",
    "host/scalar-read-back",
    "host/sync-stalls",
    "host/synchronizations",
    "copies/pageable",
];

impl Synchronizations {
    pub(super) fn of(facts: &FactTable<'_>) -> Option<Synchronizations> {
        let waits = facts.waits().filter(|waits| waits.calls > 0)?;
        let text = |id| label(facts.costed.run.profile.text(id));
        Some(Synchronizations {
            calls: waits.calls,
            ns: waits.ns,
            call: waits.api.map(text),
            operator: waits.op.map(text),
            copied_bytes: waits.bytes,
            to_gpu: waits.to_gpu,
            line: waits.line.clone(),
        })
    }

    /// The sum over the ranks of a job, with the details of the rank that waits longest.
    pub(crate) fn sum<'a>(
        all: impl Iterator<Item = &'a Synchronizations> + Clone,
    ) -> Option<Synchronizations> {
        let longest = all.clone().max_by(|a, b| a.ns.total_cmp(&b.ns))?;
        Some(Synchronizations {
            calls: all.clone().fold(0, |sum, s| sum.saturating_add(s.calls)),
            ns: all.map(|s| s.ns).sum(),
            ..longest.clone()
        })
    }
}

/// What is known of the calls where no finding is about them.
pub(super) fn note(report: &Report) -> Option<String> {
    let waits = report.synchronizations.as_ref()?;
    let steps = report.summary.steps;
    let said = |finding: &FindingReport| RULES.contains(&finding.rule.as_str());
    let mut findings = report.findings.iter().chain(&report.minor);
    if (waits.calls < HABIT && (steps < 2 || waits.calls < steps)) || findings.any(said) {
        return None;
    }
    let basis = Basis::of(&report.summary);
    let times = per_step_count(waits.calls as f64 / basis.divisor);
    let mut text = format!(
        "The host waits for the GPU {times} {}{}{}, {} in all",
        if times == "1" { "time" } else { "times" },
        if basis.per.is_empty() { "" } else { " " },
        basis.per,
        units::ns(waits.ns / basis.divisor)
    );
    if let Some(call) = &waits.call {
        text += &format!(", mostly in `{call}`");
    }
    if let Some(operator) = &waits.operator {
        text += &format!(" inside `{operator}`");
    }
    if let Some(bytes) = waits.copied_bytes {
        let direction = if waits.to_gpu { " to the GPU" } else { "" };
        text += &format!(", after copies of {}{direction}", units::bytes(bytes));
    }
    if let Some(line) = &waits.line {
        text += &format!(", at `{line}`");
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::RULES;
    use crate::judge::RuleSet;

    #[test]
    fn rules_that_advise_fewer_waits_are_listed() {
        let rules = RuleSet::builtin().unwrap();
        for id in RULES {
            assert!(rules.get(id).is_some(), "there is no rule {id}");
        }
        let advise_fewer = rules
            .rules()
            .iter()
            .filter(|r| r.changes.contains_key("syncs"));
        for rule in advise_fewer {
            assert!(
                RULES.contains(&rule.id.as_str()),
                "{} is not listed",
                rule.id
            );
        }
    }
}
