//! The report as Markdown for GitHub and GitLab, whole or shortened.
//!
//! A comment on GitHub holds 65,536 characters. To fit a limit, whole items are left out, the least
//! important first: stricter and stricter [`Limits`] are tried until the text fits. The text says
//! what is missing.

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use super::basis::Basis;
use super::charts::Charts;
use super::folded_work;
use super::model::Report;
use super::template::{BuiltIn, page_values};
use super::user_template::TemplateError;
use crate::base::text;

const TEMPLATE: &str = include_str!("markdown.md.jinja");

/// Most characters of a comment on a pull request: GitHub's limit is 65,536, and a heading above the
/// report needs room.
pub const PR_CHARS: usize = 65_000;
/// Rows of the table of the most expensive work.
const MAX_WORK: usize = 10;
/// No limit: more than any list holds.
const ALL: usize = 1_000_000;

/// How many whole items of each list are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Limits {
    /// The limit in characters, for the sentence that names it.
    max_chars: usize,
    shortened: bool,
    charts: bool,
    /// Rows of the table of top findings.
    rows: usize,
    /// Findings of those rows that are explained in full.
    full: usize,
    /// Findings of those that say why their advice helps.
    why: usize,
    /// Findings of those that show their evidence.
    evidence: usize,
    more_rows: usize,
    more_text: usize,
    minor: usize,
    capture: usize,
    layers: usize,
    sites: usize,
    /// Places listed in the evidence of a finding.
    places: usize,
    already_fast: usize,
    /// Rows of each list of what is missing, and of the cautions.
    lists: usize,
    method: bool,
}

impl Limits {
    const NONE: Limits = Limits {
        max_chars: 0,
        shortened: false,
        charts: true,
        rows: ALL,
        full: ALL,
        why: ALL,
        evidence: ALL,
        more_rows: ALL,
        more_text: ALL,
        minor: 50,
        capture: ALL,
        layers: ALL,
        sites: 10,
        places: 10,
        already_fast: ALL,
        lists: 20,
        method: true,
    };
}

/// Makes the limits stricter, one after the other: each applies on top of those before it.
const STRICTER: &[fn(&mut Limits)] = &[
    |l| l.minor = 20,
    |l| l.layers = 100,
    |l| l.minor = 10,
    |l| l.layers = 50,
    |l| l.more_text = 20,
    |l| l.minor = 0,
    |l| l.layers = 30,
    |l| l.more_text = 10,
    |l| l.sites = 0,
    |l| l.more_text = 5,
    |l| l.layers = 15,
    |l| l.lists = 10,
    |l| l.places = 3,
    |l| l.more_text = 0,
    |l| l.evidence = 10,
    |l| l.already_fast = 0,
    |l| l.lists = 5,
    |l| l.charts = false,
    |l| l.more_rows = 50,
    |l| l.layers = 8,
    |l| l.evidence = 5,
    |l| l.method = false,
    |l| l.lists = 3,
    |l| l.evidence = 3,
    |l| l.more_rows = 20,
    |l| l.capture = 3,
    |l| l.evidence = 1,
    |l| l.layers = 4,
    |l| l.lists = 1,
    |l| l.evidence = 0,
    |l| l.layers = 0,
    |l| l.more_rows = 0,
    |l| l.capture = 1,
    |l| l.lists = 0,
    // What to change is kept longest: a finding loses its reason before it is left out.
    |l| l.why = 5,
    |l| l.full = 20,
    |l| l.why = 2,
    |l| l.full = 10,
    |l| l.why = 0,
    |l| l.capture = 0,
    |l| l.full = 7,
    |l| l.full = 5,
    |l| l.rows = 20,
    |l| l.full = 3,
    |l| l.rows = 10,
    |l| l.full = 2,
    |l| l.full = 1,
    |l| l.rows = 5,
    |l| l.full = 0,
    |l| l.rows = 3,
    |l| l.rows = 1,
];

/// The whole report as Markdown for GitHub and GitLab.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn markdown(report: &Report) -> Result<String, TemplateError> {
    let page = Page::new(report)?;
    page.render(&Limits::NONE)
}

/// The report as Markdown of at most `max_chars` characters. The least important items are left out,
/// and the text says how many.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn markdown_within(report: &Report, max_chars: usize) -> Result<String, TemplateError> {
    let page = Page::new(report)?;
    let whole = page.render(&Limits::NONE)?;
    if fits(&whole, max_chars) {
        return Ok(whole);
    }
    let mut limits = Limits {
        max_chars,
        shortened: true,
        ..Limits::NONE
    };
    let stages: Vec<Limits> = STRICTER
        .iter()
        .map(|stricter| {
            stricter(&mut limits);
            limits
        })
        .collect();
    // Each step makes the text shorter, so a binary search finds the first that fits.
    let mut best = None;
    let (mut low, mut high) = (0, stages.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(limits) = stages.get(middle) else {
            break;
        };
        let text = page.render(limits)?;
        if fits(&text, max_chars) {
            best = Some(text);
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(best.unwrap_or_else(|| gist(report, max_chars)))
}

fn fits(text: &str, max_chars: usize) -> bool {
    text.chars().count() <= max_chars
}

/// The heading and as many sentences of the opening as fit.
fn gist(report: &Report, max_chars: usize) -> String {
    let note = format!("\n(The rest is left out to fit {max_chars} characters.)\n");
    let with_note = |text: &str| fits(&format!("{text}{note}"), max_chars);
    let mut out = format!("# GPU advice for {}\n", text::md_code(&report.title));
    if !with_note(&out) {
        "# GPU advice\n".clone_into(&mut out);
    }
    for sentence in &report.verdict {
        let longer = format!("{out}\n{}\n", text::md_prose(sentence));
        if !with_note(&longer) {
            break;
        }
        out = longer;
    }
    if with_note(&out) {
        out.push_str(&note);
    }
    out
}

/// The template with the values of one report, which can be rendered several times.
struct Page {
    template: BuiltIn,
    values: Value,
}

impl Page {
    fn new(report: &Report) -> Result<Page, TemplateError> {
        let basis = Basis::of(&report.summary);
        let charts = Charts::of(report, &basis);
        let work = folded_work::rows(report, MAX_WORK);
        Ok(Page {
            template: BuiltIn::new("markdown.md.jinja", TEMPLATE)?,
            values: context! {
                charts => Value::from(Serde(charts)),
                work => Value::from(Serde(work)),
                ..page_values(report, &basis, report)
            },
        })
    }

    fn render(&self, limits: &Limits) -> Result<String, TemplateError> {
        self.template.render(context! {
            limits => Value::from(Serde(limits)),
            ..self.values.clone()
        })
    }
}
