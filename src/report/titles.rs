//! The titles of findings of one rule.

use std::collections::{BTreeMap, BTreeSet};

use super::finding_report::FindingReport;
use crate::base::text::clip;

/// Characters of a name in a title.
const LONGEST: usize = 60;

/// Adds what they are about to the titles of findings that would read the same.
pub(super) fn tell_apart(findings: &mut [FindingReport], minor: &mut [FindingReport]) {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for finding in findings.iter().chain(minor.iter()) {
        let alike = names.entry(finding.title.clone()).or_default();
        alike.push(name(finding).to_owned());
    }
    for finding in findings.iter_mut().chain(minor) {
        let name = name(finding);
        let alike = names.get(&finding.title).filter(|names| names.len() > 1);
        let Some(alike) = alike.filter(|_| finding.title_suffix.is_empty() && !name.is_empty())
        else {
            continue;
        };
        let suffix = format!(": {}", clip(shortest(name, alike), LONGEST));
        finding.title.push_str(&suffix);
        finding.title_suffix = suffix;
    }
}

fn name(finding: &FindingReport) -> &str {
    match finding.subject.as_str() {
        "" => &finding.place,
        subject => subject,
    }
}

/// The layer of a place where that tells it from all others, else the operator, else both.
fn shortest<'a>(name: &'a str, names: &[String]) -> &'a str {
    let parts: [fn(&str) -> &str; 2] = [
        |name| name.split_once(" · ").map_or(name, |(layer, _)| layer),
        |name| name.split_once(" · ").map_or(name, |(_, work)| work),
    ];
    let tells_apart = |part: &&fn(&str) -> &str| {
        let mut seen = BTreeSet::new();
        names.iter().all(|name| seen.insert(part(name)))
    };
    parts
        .iter()
        .find(tells_apart)
        .map_or(name, |part| part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_long_as_it_must_be() {
        let of_first = |names: [&str; 2]| shortest(names[0], &names.map(str::to_owned)).to_owned();
        assert_eq!(of_first(["a.* · mm (fprop)", "b.* · mm (fprop)"]), "a.*");
        assert_eq!(of_first(["a.* · mm (fprop)", "b.* · mm (bprop)"]), "a.*");
        assert_eq!(
            of_first(["a.* · mm (fprop)", "a.* · mm (bprop)"]),
            "mm (fprop)"
        );
        assert_eq!(of_first(["mm (fprop)", "mm (bprop)"]), "mm (fprop)");
        let three = ["a · mm", "a · add", "b · mm"].map(str::to_owned);
        assert_eq!(shortest("a · mm", &three), "a · mm");
    }
}
