//! Rules for people: the page of a rule, from its file alone.

use std::fmt::Write as _;

use super::advice::Fix;
use super::rule::{Expect, MIN_FRACTION, Rule};
use super::rule_tests::{GpuFacts, first_example};
use super::template::plain_number;
use crate::base::{text, units};
use crate::facts::{Fact, Value};

/// Characters of one word, and items of one list or map, that are shown.
pub(super) const MAX_WORD: usize = 120;
const MAX_ITEMS: usize = 8;

/// The page of one rule, as Markdown: an example, then what its file says, in the order a reader asks. Texts that
/// the example shows as they are in the file are not repeated.
pub fn explain(rule: &Rule, facts: &[Fact], gpu: &GpuFacts<'_>) -> String {
    let mut page = String::new();
    let _ = writeln!(page, "# {}\n", rule.title);
    let _ = writeln!(
        page,
        "`{}` · {} · {} confidence · for each {}\n",
        rule.id,
        rule.severity.word(),
        rule.confidence.word(),
        rule.for_each.word(),
    );
    let advice = match rule.advice() {
        Ok(advice) => advice,
        Err(failure) => return page + failure,
    };
    let (why, fix) = example(&mut page, rule, facts, gpu).unwrap_or_default();
    if why.trim() != advice.why.source.trim() {
        let _ = writeln!(page, "## Why\n\n{}\n", advice.why.source.trim());
    }
    let is_shown = |only: &Fix| only.when.is_none() && only.text.source.trim() == fix.trim();
    if !matches!(advice.fixes.as_slice(), [only] if is_shown(only)) {
        fixes(&mut page, &advice.fixes);
    }
    conditions(&mut page, rule);
    params(&mut page, rule);
    relations(&mut page, rule);
    examples(&mut page, rule);
    page.push_str(&super::evidence::section(
        &rule.id,
        &super::evidence::rows().unwrap_or_default(),
    ));
    if !advice.references.is_empty() {
        let _ = writeln!(page, "## Read on\n");
        for link in &advice.references {
            let _ = writeln!(page, "- <{link}>");
        }
        page.push('\n');
    }
    let _ = writeln!(
        page,
        "## Message\n\n```jinja\n{}\n```",
        advice.message.source.trim()
    );
    page
}

/// A finding of the rule, from its first test that fires. Returns its reason and its fix.
fn example(
    page: &mut String,
    rule: &Rule,
    facts: &[Fact],
    gpu: &GpuFacts<'_>,
) -> Option<(String, String)> {
    let (message, why, fix) = first_example(rule, facts, gpu)?;
    let mut finding = format!(
        "**{}**\n\n**What:** {message}\n\n**Why:** {why}",
        rule.title
    );
    if !fix.is_empty() {
        let _ = write!(finding, "\n\n**Fix:**\n\n{fix}");
    }
    let _ = writeln!(page, "## Example\n");
    for line in finding.lines() {
        let _ = writeln!(page, "{}", format!("> {line}").trim_end());
    }
    page.push('\n');
    Some((why, fix))
}

fn fixes(page: &mut String, fixes: &[Fix]) {
    let _ = writeln!(page, "## What to do\n");
    for (index, fix) in fixes.iter().enumerate() {
        let otherwise = if index == 0 { "If" } else { "Otherwise, if" };
        match &fix.when {
            Some(when) => {
                let when = text::md_code(when.source.trim());
                let _ = writeln!(page, "{otherwise} {when}:\n");
            }
            None if index > 0 => {
                let _ = writeln!(page, "Otherwise:\n");
            }
            None => {}
        }
        let _ = writeln!(page, "{}\n", fix.text.source.trim());
    }
}

fn conditions(page: &mut String, rule: &Rule) {
    let _ = writeln!(page, "## When it fires\n\n```cel");
    let parts = [
        ("when", Some(&rule.when)),
        ("require", rule.require.as_ref()),
        ("error_when", rule.error_when.as_ref()),
        ("minor_when", rule.minor_when.as_ref()),
        ("saving_ns", rule.saving_ns.as_ref()),
        ("outside_ns", rule.outside_ns.as_ref()),
    ];
    for (key, expr) in parts {
        if let Some(expr) = expr {
            let _ = writeln!(page, "{key:<10} = {}", expr.source.trim());
        }
    }
    for named in &rule.lets {
        let _ = writeln!(page, "{:<10} = {}", named.name, named.expr.source.trim());
    }
    let _ = writeln!(page, "```\n");
    let grouped = match rule.group_by {
        Some(group_by) => format!(
            "All members it selects in a {} form one finding.",
            group_by.word()
        ),
        None => "Members of the same place form one finding.".to_owned(),
    };
    let _ = writeln!(page, "{grouped}\n");
}

fn params(page: &mut String, rule: &Rule) {
    let _ = writeln!(page, "## Parameters\n");
    let _ = writeln!(page, "| param | value | meaning |\n| --- | --- | --- |");
    for (name, param) in &rule.params {
        let value = rule.settings.get(name).unwrap_or(&param.value);
        let mut shown = literal(value);
        if *value != param.value {
            let _ = write!(shown, " (default {})", literal(&param.value));
        }
        let _ = writeln!(page, "| `{name}` | {shown} | {} |", text::md(&param.doc));
    }
    if !rule.params.contains_key(MIN_FRACTION) {
        let fraction = rule.min_fraction();
        let _ = writeln!(
            page,
            "| `{MIN_FRACTION}` | {fraction} | lower end of the saving as a share of the upper end |"
        );
    }
    let _ = writeln!(page, "\nChange one with `--set {}.NAME=VALUE`.\n", rule.id);
}

fn relations(page: &mut String, rule: &Rule) {
    let lists = [
        ("Replaces, on the same subject", &rule.supersedes),
        (
            "Left out where one of these fires on the same subject",
            &rule.unless,
        ),
        ("Its fix also repairs", &rule.also_fixes),
        ("If it fires, these are skipped", &rule.vetoes),
        ("Lowers the confidence of", &rule.lowers_confidence),
    ];
    let mut lines = String::new();
    for (what, globs) in lists {
        if !globs.is_empty() {
            let ids: Vec<String> = globs.iter().map(|g| format!("`{g}`")).collect();
            let _ = writeln!(lines, "- {what}: {}", ids.join(", "));
        }
    }
    for (key, value) in &rule.changes {
        let _ = writeln!(
            lines,
            "- Changes `{key}` to `{value}`; advice that wants another value contradicts it"
        );
    }
    if !lines.is_empty() {
        let _ = writeln!(page, "## Relations to other rules\n\n{lines}");
    }
}

fn examples(page: &mut String, rule: &Rule) {
    let _ = writeln!(page, "## Tests\n");
    for case in &rule.tests {
        let says = match &case.expect {
            Expect::Fires(message) => format!("fires: {message}"),
            Expect::Silent => "does not fire".to_owned(),
            Expect::Skipped(facts) => {
                format!("is skipped: no `{}`", facts.join("`, `"))
            }
        };
        let _ = writeln!(page, "- *{}*: {says}", text::md(&case.name));
    }
    page.push('\n');
}

/// A fact's value with its unit, for people. Not escaped; long words and lists are cut.
pub fn printed(unit: &str, value: &Value) -> String {
    match value {
        Value::Bool(b) => (if *b { "yes" } else { "no" }).to_owned(),
        Value::Int(i) => number(unit, *i as f64, &i.to_string()),
        Value::Double(d) => number(unit, *d, &plain_number(*d)),
        Value::Str(s) => text::clip(s, MAX_WORD),
        Value::Strings(list) => listed(list.iter().map(|s| text::clip(s, MAX_WORD)), list.len()),
        Value::Doubles(map) => {
            let pair = |(k, v): (&std::sync::Arc<str>, &f64)| {
                format!("{k} {}", number(unit, *v, &plain_number(*v)))
            };
            listed(map.iter().map(pair), map.len())
        }
        Value::Ints(map) => listed(map.iter().map(|(k, v)| format!("{k} {v}")), map.len()),
    }
}

fn listed(items: impl Iterator<Item = String>, count: usize) -> String {
    let mut shown: Vec<String> = items.take(MAX_ITEMS).collect();
    if count > MAX_ITEMS {
        shown.push(format!("and {} more", count - MAX_ITEMS));
    }
    shown.join(", ")
}

fn number(unit: &str, value: f64, plain: &str) -> String {
    match unit {
        "ns" => units::ns(value),
        "bytes" => units::bytes(value),
        "bytes/s" => units::rate(value),
        "flops" | "FLOP" => units::flops(value),
        "flops/s" | "FLOP/s" => units::flop_rate(value),
        "share" => units::percent(value),
        "" => plain.to_owned(),
        unit => format!("{plain} {unit}"),
    }
}

/// A value as a rule file would write it.
fn literal(value: &Value) -> String {
    match value {
        Value::Double(d) => d.to_string(),
        Value::Str(s) => text::md_code(s),
        other => printed("", other),
    }
}
