//! The findings as SARIF 2.1.0, the exchange format of static analysis:
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>.
//!
//! Results point to source lines where the profile has call stacks, and always to the layer. Results
//! without a line point to the profile, because code scanning requires a file.

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::basis::Basis;
use super::finding_report::{
    FindingList, FindingReport, HiddenFinding, HiddenReason, NEW, SuppressionReport,
};
use super::model::Report;
use super::source_lines::{self, SourceLine};
use super::template::is_web;
use super::{markdown_text, narrative};
use crate::base::text;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
/// Base of relative paths; the viewer of the log knows where it is.
const ROOT: &str = "SRCROOT";

/// A SARIF log of one run with one result per finding, largest saving first. Hidden findings follow,
/// marked in the terms of SARIF, so that viewers hide them.
pub fn sarif(report: &Report) -> String {
    let shown = report.findings.iter().map(|finding| (finding, None));
    let hidden = report.hidden.iter();
    let hidden = hidden
        .filter(|h| h.list == FindingList::Findings)
        .map(|h| (&h.finding, Some(h)));
    let findings: Vec<(&FindingReport, Option<&HiddenFinding>)> = shown.chain(hidden).collect();
    let mut rules: IndexMap<&str, &FindingReport> = IndexMap::new();
    for (finding, _) in &findings {
        rules.entry(&finding.rule).or_insert(finding);
    }
    let mut seen: IndexMap<String, u32> = IndexMap::new();
    let results: Vec<Value> = findings
        .iter()
        .map(|(finding, hidden)| {
            let index = rules.get_index_of(finding.rule.as_str()).unwrap_or(0);
            let mut result = result(report, finding, index, fingerprint(finding, &mut seen));
            if let Some(result) = result.as_object_mut() {
                result.extend(standing(report, finding, *hidden));
            }
            result
        })
        .collect();
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "pyprof-advise",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.values().map(|f| rule(f)).collect::<Vec<_>>(),
            }},
            "automationDetails": { "id": "pyprof-advise/" },
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": { ROOT: { "description": { "text": "The root of the repository." } } },
            "artifacts": [{
                "location": profile(report),
                "description": { "text": "The profile that was analyzed." },
                "roles": ["analysisTarget"],
            }],
            "invocations": [{
                "executionSuccessful": true,
                "toolExecutionNotifications": notifications(report),
            }],
            "results": results,
            "properties": { "verdict": quiet(&report.verdict.join(" ")) },
        }],
    });
    // Serializing fails only for maps whose keys are not strings.
    let mut out = serde_json::to_string_pretty(&log).unwrap_or_default();
    out.push('\n');
    out
}

/// State of a result in baseline and suppressions: `baselineState` and `suppressions`, sections
/// 3.27.24 and 3.27.23.
fn standing(
    report: &Report,
    finding: &FindingReport,
    hidden: Option<&HiddenFinding>,
) -> Vec<(String, Value)> {
    let mut own = Vec::new();
    if report.baseline.is_some() {
        let state = match finding.since_baseline.as_deref() {
            None => "unchanged",
            Some(NEW) => "new",
            Some(_) => "updated",
        };
        own.push(("baselineState".to_owned(), json!(state)));
    }
    if !report.suppressions.is_empty() {
        let by = hidden.filter(|h| h.reason == HiddenReason::Suppressed);
        let by = by.and_then(|h| usize::try_from(h.suppression?).ok());
        let by = by.and_then(|at| report.suppressions.get(at));
        let suppression = |s: &SuppressionReport| json!({ "kind": "external", "status": "accepted", "justification": quiet(&s.reason) });
        let list: Vec<Value> = by.map(suppression).into_iter().collect();
        own.push(("suppressions".to_owned(), json!(list)));
    }
    own
}

fn rule(f: &FindingReport) -> Value {
    let references: String = f
        .references
        .iter()
        .filter(|r| is_web(r))
        .map(|r| format!("\n- <{r}>"))
        .collect();
    let why = markdown_text::plain(&f.why);
    let (help, help_markdown) = if f.fix.is_empty() {
        (why.clone(), format!("{}\n{references}", f.why))
    } else {
        (
            format!("{why}\n\n{}", markdown_text::plain(&f.fix)),
            format!("{}\n\n**Fix:**\n\n{}\n{references}", f.why, f.fix),
        )
    };
    let mut rule = json!({
        "id": text::plain(&f.rule),
        "name": name(&f.rule),
        "shortDescription": { "text": quiet(f.title.strip_suffix(&f.title_suffix).unwrap_or(&f.title)) },
        "fullDescription": { "text": quiet(&why) },
        "help": {
            "text": quiet(&help),
            "markdown": help_markdown,
        },
        "defaultConfiguration": { "level": f.severity.word() },
        "properties": {
            "tags": ["performance", "gpu", text::plain(&f.category)],
            "precision": f.confidence.word(),
        },
    });
    if let (Some(rule), Some(reference)) = (
        rule.as_object_mut(),
        f.references.iter().find(|r| is_web(r)),
    ) {
        rule.insert("helpUri".to_owned(), json!(reference));
    }
    rule
}

/// The name of a rule that SARIF wants beside its id: `TensorCoresAmpOff`.
fn name(id: &str) -> String {
    id.split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(|word| {
            let first = word.get(..1)?.to_ascii_uppercase();
            Some(first + word.get(1..)?)
        })
        .collect()
}

fn result(report: &Report, f: &FindingReport, rule_index: usize, fingerprint: String) -> Value {
    let saving = narrative::saving(f, &Basis::of(&report.summary));
    let message = format!(
        "{}. {}: {}",
        f.title,
        text::plain(&f.place),
        markdown_text::plain(&f.message)
    );
    let mut plain = vec![message, saving.clone()];
    let mut markdown = vec![
        format!("**{}** ({})", text::md(&f.title), text::md(&f.place)),
        f.message.clone(),
        text::md(&saving),
    ];
    if f.fix.is_empty() {
        plain.retain(|part| !part.is_empty());
        markdown.retain(|part| !part.is_empty());
    } else {
        plain.push(markdown_text::plain(&f.fix));
        markdown.push(f.fix.clone());
    }
    let share = f.saving.as_ref().map_or(0.0, |s| s.counted_share);
    json!({
        "ruleId": text::plain(&f.rule),
        "ruleIndex": rule_index,
        "level": f.severity.word(),
        "rank": (share * 100.0).clamp(0.0, 100.0),
        "message": {
            "text": quiet(&plain.join("\n\n")),
            "markdown": markdown.join("\n\n"),
        },
        "locations": locations(report, f),
        "partialFingerprints": { "ruleAndPlace/v1": fingerprint },
        "properties": {
            "number": f.number,
            "confidence": f.confidence.word(),
            "calls": f.calls,
            "time_ns": f.time_ns,
            "saving": f.saving,
        },
    })
}

fn locations(report: &Report, f: &FindingReport) -> Vec<Value> {
    let layer = json!([{ "fullyQualifiedName": text::plain(&f.place), "kind": "module" }]);
    let lines: Vec<Value> = f
        .evidence
        .source_lines
        .iter()
        .filter_map(|line| SourceLine::parse(line))
        .map(|place| {
            json!({
                "physicalLocation": {
                    "artifactLocation": { "uri": place.uri(), "uriBaseId": ROOT },
                    "region": { "startLine": place.line },
                },
                "logicalLocations": layer,
            })
        })
        .collect();
    if !lines.is_empty() {
        return lines;
    }
    vec![json!({
        "physicalLocation": { "artifactLocation": profile(report) },
        "logicalLocations": layer,
    })]
}

/// Location of the profile. A slash in its title is part of a file name, not a folder.
fn profile(report: &Report) -> Value {
    let name = source_lines::uri(&text::plain(&report.title)).replace('/', "%2F");
    json!({ "uri": name, "index": 0 })
}

/// Identifies a finding across runs with changed lines and times: a hash of rule and place, and a
/// counter for equal ones.
fn fingerprint(f: &FindingReport, seen: &mut IndexMap<String, u32>) -> String {
    let hash = fnv(&format!("{}\n{}", f.rule, f.place));
    let count = seen.entry(hash.clone()).or_insert(0);
    *count += 1;
    format!("{hash}:{count}")
}

/// FNV-1a hash of 64 bits, which is the same on all platforms.
fn fnv(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn notifications(report: &Report) -> Vec<Value> {
    let faults = report.faults.iter().map(|fault| {
        (
            "error",
            format!("Rule {} failed: {}", fault.rule, fault.message),
        )
    });
    let notes = report.cautions.iter().map(|c| ("warning", c.clone()));
    faults
        .chain(notes)
        .map(|(level, text)| json!({ "level": level, "message": { "text": quiet(&text) } }))
        .collect()
}

/// Plain text of a message. Viewers turn `[words](target)` into links and may notify `@name`; neither
/// is left in the text.
fn quiet(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(text::code_line).collect();
    text::without_mentions(&lines.join("\n").replace("](", "] ("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_hashes_are_stable() {
        assert_eq!(name("tensor-cores/amp-off"), "TensorCoresAmpOff");
        assert_eq!(fnv(""), "cbf29ce484222325");
        assert_eq!(fnv("a"), "af63dc4c8601ec8c");
    }
}
