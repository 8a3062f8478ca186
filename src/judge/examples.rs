//! Checks that need the tests of a rule file to be run, although all of them may pass: every variant
//! of a fix is chosen by a test, and no sentence fails where an optional fact is absent.

use std::collections::BTreeSet;
use std::ops::Range;

use super::advice::Advice;
use super::rule::{Case, Expect, Rule};
use super::rule_tests::{Example, GpuFacts, Said, Sentence, say};
use crate::base::diag::{Complaint, Complaints};
use crate::base::toml::{self, Table};
use crate::facts::Fact;

/// Complains about variants of the fix that no test chooses, and about sentences that fail in a test
/// when an optional fact is taken away although the rule still fires.
pub fn check_examples<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    facts: &[Fact],
    gpu: &GpuFacts<'_>,
    complaints: &Complaints,
) {
    for rule in rules {
        check_rule(rule, facts, gpu, complaints);
    }
}

fn check_rule(rule: &Rule, facts: &[Fact], gpu: &GpuFacts<'_>, complaints: &Complaints) {
    let Ok(advice) = rule.advice() else {
        return;
    };
    let optional = optional_facts(rule, advice, facts);
    let mut chosen = BTreeSet::new();
    let mut unguarded = BTreeSet::new();
    let firing = |case: &&Case| matches!(case.expect, Expect::Fires(_));
    for case in rule.tests.iter().filter(firing) {
        // `rules test` reports a GPU that does not exist.
        let Ok(mut example) = Example::new(case, facts, gpu) else {
            continue;
        };
        match say(rule, case, &example) {
            Ok(Said::Fired(fired)) => chosen.extend(fired.fix.map(|(index, _)| index)),
            _ => continue,
        }
        for &name in &optional {
            let Some(value) = example.given.remove(name) else {
                continue;
            };
            let failures = say(rule, case, &example).err().unwrap_or_default();
            for failure in failures {
                let Some(sentence) = failure.sentence else {
                    continue;
                };
                if !unguarded.insert((sentence, name)) {
                    continue;
                }
                let title = format!("`{}` fails where `{name}` is absent", sentence.key());
                let help = format!(
                    "the test `{}` without that fact: {}",
                    case.name, failure.message
                );
                let guard =
                    format!("guard it with `{{% if {name} is defined %}}` or require it in `when`");
                let at = mention(rule, sentence, name);
                complaints.push(Complaint::error(&rule.source, at, title, guard).with_help(help));
            }
            example.given.insert(name.to_owned(), value);
        }
    }
    let conditional = advice.fixes.iter().any(|fix| fix.when.is_some());
    for index in (0..advice.fixes.len()).filter(|index| conditional && !chosen.contains(index)) {
        let table = |root: &Table<'_>| root.get_table_list("fix").get(index).map(Table::span);
        let at = span(rule, table);
        let title = "no test that fires chooses this fix";
        complaints.push(Complaint::error(&rule.source, at, title, ""));
    }
}

/// The facts used by the sentences of a rule that not every profile has.
fn optional_facts(rule: &Rule, advice: &Advice, facts: &[Fact]) -> Vec<&'static str> {
    let mut names = facts_of_sentences(rule, advice);
    names.retain(|name| {
        let fact = facts.iter().find(|fact| fact.name == *name);
        fact.is_some_and(|fact| !fact.needs.is_empty())
    });
    names
}

/// The facts used by the sentences of a rule and by the conditions of its fixes.
pub(super) fn facts_of_sentences(rule: &Rule, advice: &Advice) -> Vec<&'static str> {
    let mut uses = advice.sentence_uses();
    for when in advice.fixes.iter().filter_map(|fix| fix.when.as_ref()) {
        uses.extend(&when.uses);
    }
    uses.closure(&rule.lets).facts
}

/// Where a sentence of a rule file mentions a fact; all of the sentence where it does not.
fn mention(rule: &Rule, sentence: Sentence, fact: &str) -> Range<usize> {
    let all = span(rule, |root| {
        let sentence = match sentence {
            Sentence::Fix(index) => match root.get_table_list("fix").get(index) {
                Some(variant) => variant.get("text"),
                None => root.get("fix"),
            },
            Sentence::Message | Sentence::Why => root.get(sentence.key()),
        };
        sentence.map(|sentence| sentence.span())
    });
    rule.source.find_in(all, fact)
}

/// A place in a rule file, which is parsed again to find it.
pub(super) fn span(rule: &Rule, find: impl Fn(&Table<'_>) -> Option<Range<usize>>) -> Range<usize> {
    let ignored = Complaints::new();
    let document = toml::parse(&rule.source, &ignored);
    find(&document.root()).unwrap_or_default()
}
