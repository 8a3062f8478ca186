//! Findings as workflow commands of GitHub Actions, which the runner shows as annotations of lines.
//!
//! `::warning file=a.py,line=3,title=T::message`, documented at
//! <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>. The runner
//! accepts such a line anywhere in the output of a step, so no other text may look like one.

use super::basis::Basis;
use super::finding_report::FindingReport;
use super::model::Report;
use super::source_lines::SourceLine;
use super::{markdown_text, narrative};
use crate::base::text;
use crate::base::units::counted;
use crate::judge::Severity;

/// Most annotations per level that GitHub shows for a step:
/// <https://docs.github.com/rest/checks/runs>.
const MAX_PER_LEVEL: usize = 10;
/// Longest message, in characters. The report has the details.
const MAX_MESSAGE: usize = 2_000;

/// One annotation per finding, largest saving first; those that GitHub would not show are counted.
pub fn github(report: &Report) -> String {
    let mut out = String::new();
    let mut left = 0;
    let mut used = [0_usize; 3];
    let basis = Basis::of(&report.summary);
    for finding in &report.findings {
        let Some(count) = used.get_mut(finding.severity as usize) else {
            continue;
        };
        if *count == MAX_PER_LEVEL {
            left += 1;
            continue;
        }
        *count += 1;
        out.push_str(&command(finding, &basis));
    }
    if left > 0 {
        out.push_str(&format!(
            "{} not annotated: GitHub shows {MAX_PER_LEVEL} of a level per step.\n",
            counted(left, "finding")
        ));
    }
    if report.findings.is_empty() {
        let verdict = report.verdict.join(" ");
        out.push_str(&format!(
            "::notice title=pyprof-advise::{}\n",
            data(&text::plain(&verdict))
        ));
    }
    out
}

fn command(finding: &FindingReport, basis: &Basis) -> String {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let mut properties = Vec::new();
    let lines = &finding.evidence.source_lines;
    if let Some(place) = lines.iter().find_map(|line| SourceLine::parse(line)) {
        properties.push(format!("file={}", property(&place.path)));
        properties.push(format!("line={}", place.line));
    }
    // The runner ignores a property without a value.
    let title = Some(text::plain(&finding.title)).filter(|t| !t.is_empty());
    let title = title.unwrap_or_else(|| "pyprof-advise".to_owned());
    properties.push(format!("title={}", property(&title)));
    format!(
        "::{level} {}::{}\n",
        properties.join(","),
        data(&message(finding, basis))
    )
}

fn message(finding: &FindingReport, basis: &Basis) -> String {
    let parts = [
        format!(
            "{}: {}",
            text::plain(&finding.place),
            markdown_text::plain(&finding.message)
        ),
        narrative::saving(finding, basis),
        markdown_text::plain(&finding.fix),
        format!("Rule {}", text::plain(&finding.rule)),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    text::clip(&parts.join("\n\n"), MAX_MESSAGE)
}

/// The message of a command.
fn data(text: &str) -> String {
    // `##[` starts a command of the runner's older syntax anywhere in a line.
    text.replace("##[", "# #[")
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_commands_is_escaped() {
        assert_eq!(data("100 %\r\n::error::x"), "100 %25%0D%0A::error::x");
        assert_eq!(property("a:b,c%"), "a%3Ab%2Cc%25");
        assert_eq!(data("##[command]x"), "# #[command]x");
    }
}
