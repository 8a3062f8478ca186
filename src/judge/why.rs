//! `--why`: why a rule says what it says about a profile, as plain text.
//!
//! First what came of it in the report, then how many members met its condition, then for the
//! largest ones, those that met it first, every fact with its value and how each part of the condition came out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::evaluate::{self, RuleInput};
use super::explain::{MAX_WORD, printed};
use super::expr::{EvalContext, Expr, FOUND, Name, Undecided};
use super::finding::{Finding, RuleResults, SavingKind};
use super::floors::FLOOR;
use super::grouping::{self, FindingDraft};
use super::rule::Rule;
use super::windows::input_of;
use crate::base::toml::quoted;
use crate::base::{text, units};
use crate::facts::{Answer, Fact, Member, Value};

/// Members, and findings of one kind, that are shown.
const SHOWN: usize = 5;

/// Explains the result of a rule in a run. `results` are those of all rules.
pub fn why(rule: &Rule, input: &dyn RuleInput, results: &RuleResults) -> String {
    let input = input_of(input, rule);
    let mut out = String::new();
    let _ = writeln!(out, "{}: {}", rule.id, text::plain(&rule.title));
    let _ = writeln!(out, "from {}", text::plain(&rule.source.name));
    let _ = writeln!(out, "when {}", text::plain(&rule.when.source));
    let members = input.members(rule.for_each);
    let mut views: Vec<(MemberOutcome, f64, Member)> = Vec::with_capacity(members.len());
    let mut missing: BTreeMap<&'static str, u64> = BTreeMap::new();
    for &member in &members {
        let lookup = input.lookup(member);
        let context = EvalContext::new(&*lookup, &rule.settings, &rule.lets, None);
        let held = context.holds(&rule.when);
        if let Err(Undecided::Absent(facts)) = &held {
            for fact in facts {
                *missing.entry(fact).or_default() += 1;
            }
        }
        views.push((
            MemberOutcome::of(&held),
            input.affected(member).time_ns,
            member,
        ));
    }
    let count = |outcome| views.iter().filter(|(v, ..)| *v == outcome).count();
    in_report(
        &mut out,
        rule,
        input,
        results,
        count(MemberOutcome::Matched),
    );
    let word = match rule.for_each.word() {
        "copy" => "kind of copies",
        "gap" => "cause of gaps",
        word => word,
    };
    let of = match (word, members.len()) {
        ("kind of copies", n) if n != 1 => format!("{n} kinds of copies"),
        ("cause of gaps", n) if n != 1 => format!("{n} causes of gaps"),
        (word, n) => units::counted(n as u64, word),
    };
    let _ = writeln!(
        out,
        "{of}: {} matched, {} did not match, {} skipped (data missing), {} not applicable, {} failed",
        count(MemberOutcome::Matched),
        count(MemberOutcome::NotMatched),
        count(MemberOutcome::Skipped),
        count(MemberOutcome::NotApplicable),
        count(MemberOutcome::Failed),
    );
    for (fact, members) in missing {
        let needs = input.facts().iter().find(|f| f.name == fact);
        let needs = needs.map(|f| f.needs).filter(|n| !n.is_empty());
        let needs = needs.map_or(String::new(), |needs| format!("; it needs {needs}"));
        let _ = writeln!(out, "no {fact} in {members} of them{needs}");
    }
    let matched = |outcome: MemberOutcome| outcome == MemberOutcome::Matched;
    views.sort_by(|a, b| {
        (matched(b.0).cmp(&matched(a.0)))
            .then(b.1.total_cmp(&a.1))
            .then(a.0.cmp(&b.0))
            .then(a.2.cmp(&b.2))
    });
    for (outcome, _, member) in views.iter().take(SHOWN) {
        out.push('\n');
        one_member(&mut out, rule, input, *member, *outcome);
    }
    let rest = views.len().saturating_sub(SHOWN);
    if rest > 0 {
        let _ = writeln!(out, "\n... and {rest} more");
    }
    text::without_commands(&out)
}

/// What hides a finding, to be copied into a configuration file.
fn suppression(out: &mut String, finding: &Finding) {
    let _ = writeln!(
        out,
        "to hide the first, put this into a configuration file:\n  [[suppress]]\n  rule = {}\n  place = {}\n  reason = \"why it stays\"",
        quoted(&finding.rule),
        quoted(&plain(&finding.place)),
    );
}

/// What came of the rule in the report.
fn in_report(
    out: &mut String,
    rule: &Rule,
    input: &dyn RuleInput,
    results: &RuleResults,
    matched: usize,
) {
    let basis = per_step(input);
    let own = |list: &[Finding]| -> Vec<String> {
        let own = list.iter().filter(|f| f.rule == rule.id);
        own.map(|finding| expected_saving(rule, finding, &basis))
            .collect()
    };

    let floor = format!("a minor finding, below {}", units::percent(FLOOR));
    let mut said = false;
    for (list, how) in [
        (&results.findings, "a finding"),
        (&results.minor, floor.as_str()),
        (&results.capture, "a finding about the capture"),
    ] {
        said |= listed(out, how, &own(list));
    }
    let mut dropped: Vec<String> = results
        .dropped
        .iter()
        .filter(|s| s.rule == rule.id)
        .map(|s| format!("{} at {}", s.by, plain(&s.place)))
        .collect();
    dropped.sort();
    dropped.dedup();
    said |= listed(out, "covered by another finding", &dropped);
    let failed = results.faults.iter().filter(|f| f.rule == rule.id);
    let failed: Vec<String> = failed.map(|f| plain(&f.message)).collect();
    said |= listed(out, "failed", &failed);
    if said {
        let shown = results.findings.iter().chain(&results.minor);
        if let Some(finding) = shown.chain(&results.capture).find(|f| f.rule == rule.id) {
            suppression(out, finding);
        }
        return;
    }
    if matched == 0 {
        let _ = writeln!(out, "silent: `when` is true nowhere in this profile");
        return;
    }
    let _ = writeln!(out, "silent: `require` is not met");
    let members = input.members(rule.for_each);
    let matches = evaluate::evaluate(&[rule], &members, input);
    let matches: Vec<_> = matches.into_iter().flat_map(|j| j.matches).collect();
    let mut drafts = grouping::drafts(0, rule, &matches, input);
    drafts.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    for draft in drafts.iter().take(SHOWN) {
        not_enough(out, rule, input, draft);
    }
}

/// A heading with at most [`SHOWN`] lines below it; says whether there was anything.
fn listed(out: &mut String, how: &str, lines: &[String]) -> bool {
    if lines.is_empty() {
        return false;
    }
    let _ = writeln!(out, "{how}:");
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(out, "  {line}");
    }
    let rest = lines.len().saturating_sub(SHOWN);
    if rest > 0 {
        let _ = writeln!(out, "  ... and {rest} more");
    }
    true
}

/// What times are divided by, and what that is called: ` per step`.
fn per_step(input: &dyn RuleInput) -> (f64, &'static str) {
    let lookup = input.lookup(Member::Run);
    let number = |name: &str| match lookup.get(name) {
        Answer::Value(Value::Double(number)) if number > 0.0 => Some(number),
        _ => None,
    };
    let several = matches!(lookup.get("run.devices"), Answer::Value(Value::Int(2..)));
    match number("run.steps_times_gpus") {
        Some(divisor) if several => (divisor, " per step and GPU"),
        Some(divisor) => (divisor, " per step"),
        None => (1.0, ""),
    }
}

fn expected_saving(rule: &Rule, finding: &Finding, (divisor, per): &(f64, &'static str)) -> String {
    let place = plain(&finding.place);
    let share = units::percent(finding.share);
    let whole = if grouping::is_idle_time(rule) {
        "the window"
    } else {
        "GPU time"
    };
    match &finding.saving {
        None => format!("{place}: {share} of {whole}, saving not estimated"),
        Some(saving) => {
            let of = match saving.kind {
                SavingKind::Gpu => " of GPU time",
                SavingKind::Idle => " of idle time",
                SavingKind::Copy => " of copying",
            };
            let overlap = if saving.overlap_ns >= 1.0 {
                let by = units::ns(saving.overlap_ns / divisor);
                format!(", of which {by} is counted in other findings")
            } else {
                String::new()
            };
            format!(
                "{place}: {share} of {whole}, saves {}{of}{per} on its own{overlap}",
                units::ns_range(saving.low_ns / divisor, saving.high_ns / divisor)
            )
        }
    }
}

/// A would-be finding that `require` refused.
fn not_enough(out: &mut String, rule: &Rule, input: &dyn RuleInput, draft: &FindingDraft) {
    let (Some(require), Some(worst)) = (&rule.require, draft.worst()) else {
        return;
    };
    let lookup = input.lookup(worst.member);
    let context = EvalContext::new(&*lookup, &rule.settings, &rule.lets, Some(&draft.found));
    let _ = writeln!(out, "  {}", plain(&draft.place));
    let source = sources_of(require, rule);
    for (name, ..) in FOUND.iter().filter(|(name, ..)| source.contains(name)) {
        if let Some(value) = draft.found.get(name) {
            let unit = match *name {
                name if name.ends_with("_ns") => "ns",
                name if name.ends_with("_share") => "share",
                _ => "",
            };
            let _ = writeln!(out, "    {name} = {}", text::plain(&printed(unit, value)));
        }
    }
    for param in &require.uses.closure(&rule.lets).params {
        let _ = write!(out, "  ");
        line(out, rule, &context, &Name::Param(param.clone()), None);
    }
    parts(out, "    ", require, &context);
}

/// The text of an expression and of the lets it uses.
fn sources_of(expr: &Expr, rule: &Rule) -> String {
    let mut all = expr.source.clone();
    for index in &expr.uses.closure(&rule.lets).lets {
        if let Some(named) = rule.lets.get(*index) {
            all.push('\n');
            all.push_str(&named.expr.source);
        }
    }
    all
}

/// How a condition came out for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MemberOutcome {
    Matched,
    Failed,
    Skipped,
    NotMatched,
    NotApplicable,
}

impl MemberOutcome {
    fn of(held: &Result<bool, Undecided>) -> MemberOutcome {
        match held {
            Ok(true) => MemberOutcome::Matched,
            Ok(false) => MemberOutcome::NotMatched,
            Err(Undecided::Absent(_)) => MemberOutcome::Skipped,
            Err(Undecided::NotApplicable) => MemberOutcome::NotApplicable,
            Err(Undecided::Fault(_)) => MemberOutcome::Failed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            MemberOutcome::Matched => "matched",
            MemberOutcome::Failed => "failed",
            MemberOutcome::Skipped => "skipped (data missing)",
            MemberOutcome::NotMatched => "did not match",
            MemberOutcome::NotApplicable => "does not apply",
        }
    }
}

fn one_member(
    out: &mut String,
    rule: &Rule,
    input: &dyn RuleInput,
    member: Member,
    outcome: MemberOutcome,
) {
    let affected = input.affected(member);
    let lookup = input.lookup(member);
    let context = EvalContext::new(&*lookup, &rule.settings, &rule.lets, None);
    let place = plain(&affected.place);
    let _ = writeln!(
        out,
        "{place} ({}): {}",
        units::ns(affected.time_ns),
        outcome.word()
    );
    let uses = rule.condition_uses();
    for name in &uses.facts {
        let name = Name::Fact(name);
        let fact = input.facts().iter().find(|f| Name::Fact(f.name) == name);
        line(out, rule, &context, &name, fact);
    }
    for param in &uses.params {
        line(out, rule, &context, &Name::Param(param.clone()), None);
    }
    for index in &uses.lets {
        line(out, rule, &context, &Name::Let(*index), None);
    }
    parts(out, "  ", &rule.when, &context);
    if let Some(saving) = &rule.saving_ns
        && outcome == MemberOutcome::Matched
    {
        let said = match context.number(saving) {
            Ok(ns) => units::ns(ns),
            Err(why) => undecided(&why),
        };
        let _ = writeln!(out, "  saving_ns = {said}");
    }
}

fn line(
    out: &mut String,
    rule: &Rule,
    context: &EvalContext<'_>,
    name: &Name,
    fact: Option<&Fact>,
) {
    let value = match context.get(name) {
        Ok(value) => printed(fact.map_or("", Fact::unit), &value),
        Err(why) => undecided(&why),
    };
    let from = match name {
        Name::Let(index) => rule.lets.get(*index).map(|l| text::plain(&l.expr.source)),
        _ => None,
    };
    let from = from.map_or(String::new(), |source| format!(", from {source}"));
    let _ = writeln!(
        out,
        "  {} = {}{from}",
        name.text(&rule.lets),
        text::plain(&value)
    );
}

/// Every part of a condition in its own words, with how it came out.
fn parts(out: &mut String, indent: &str, condition: &Expr, context: &EvalContext<'_>) {
    for part in condition.operands() {
        let text = condition.source.get(part.at.clone()).unwrap_or_default();
        let held = outcome(&context.part_holds(part));
        let _ = writeln!(out, "{indent}{}: {held}", text::plain(text));
    }
}

fn plain(place: &str) -> String {
    text::plain(&text::clip(place, MAX_WORD))
}

fn outcome(held: &Result<bool, Undecided>) -> String {
    match held {
        Ok(held) => held.to_string(),
        Err(why) => undecided(why),
    }
}

fn undecided(why: &Undecided) -> String {
    match why {
        Undecided::Absent(facts) => format!("unknown (no {})", facts.join(", ")),
        Undecided::NotApplicable => "does not apply here".to_owned(),
        Undecided::Fault(message) => format!("failed: {message}"),
    }
}
