//! A series of reports, oldest first: how the unit of work changes from one to the next.

use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};

use super::build::diff;
use super::measures::{idle_share, is_beyond_noise, kernels_tell_little, measure, normalized};
use super::model::{Diff, DiffSide, UnitSide};
use super::narrative;
use crate::base::units::{change, ns};
use crate::report::{Report, TemplateError, document, page, to_json};

/// Version of the fields of [`Trend`]. New fields do not change it; removed, renamed and changed fields
/// raise it.
pub const TREND_VERSION: u32 = 1;
/// The JSON Schema (draft 2020-12) of the text that [`trend_json`] returns, generated from the types.
pub const TREND_SCHEMA: &str = include_str!("../../../docs/schema/trend.json");

const TEMPLATE: &str = include_str!("trend.md.jinja");

/// A series of reports, oldest first. Times are in nanoseconds per unit of work on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trend {
    /// [`TREND_VERSION`] of the program that wrote the series.
    pub schema_version: u32,
    /// The result in a few plain sentences, the most important first.
    pub verdict: Vec<String>,
    /// What to know before relying on the series, in plain sentences.
    pub cautions: Vec<String>,
    /// The unit of work of the first and the last report, in words: `a step`.
    pub unit: String,
    /// One row per report, oldest first.
    pub rows: Vec<TrendRow>,
}

/// One report of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrendRow {
    /// The report, with its totals.
    pub report: DiffSide,
    /// The unit of work that it has in common with the first report; `null` without one.
    pub unit: Option<UnitSide>,
    /// Share of the wall time of the unit in which the GPU did not work; of the window without a unit.
    pub idle_share: f64,
    /// Change from the report before; `null` for the first one.
    pub from_previous: Option<TrendChange>,
    /// Change from the first report; `null` for the first one.
    pub from_first: Option<TrendChange>,
}

/// The change between two reports of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrendChange {
    /// Wall time after over wall time before, per unit of data where the sizes changed; `null` where nothing
    /// can be compared.
    pub ratio: Option<f64>,
    /// Half of the 95 % confidence interval as a share; `null` where it is not known.
    pub noise: Option<f64>,
    /// Whether the difference exceeds the noise and 2 %.
    pub beyond_noise: bool,
    /// Why it is not known whether there is a regression; `null` when it is known.
    pub unknown: Option<String>,
}

/// Compares each report of a series with the one before and with the first.
pub fn trend(reports: &[Report]) -> Trend {
    let pairs = |from: fn(usize) -> usize| -> Vec<Diff> {
        let pair = |at: usize| Some(diff(reports.get(from(at))?, reports.get(at)?));
        (1..reports.len()).filter_map(pair).collect()
    };
    let previous = pairs(|at| at - 1);
    let first = pairs(|_| 0);
    let mut rows: Vec<TrendRow> = Vec::new();
    if let Some(diff) = first.first() {
        rows.push(TrendRow {
            report: diff.before.clone(),
            idle_share: idle(diff.unit_of_work.as_ref().map(|u| &u.before), &diff.before),
            unit: diff.unit_of_work.as_ref().map(|unit| unit.before),
            from_previous: None,
            from_first: None,
        });
    }
    for (from_first, from_previous) in first.iter().zip(&previous) {
        rows.push(TrendRow {
            report: from_first.after.clone(),
            idle_share: idle(
                from_first.unit_of_work.as_ref().map(|u| &u.after),
                &from_first.after,
            ),
            unit: from_first.unit_of_work.as_ref().map(|unit| unit.after),
            from_previous: Some(of(from_previous)),
            from_first: Some(of(from_first)),
        });
    }
    Trend {
        schema_version: TREND_VERSION,
        verdict: opening(&first, &previous),
        cautions: cautions(&first),
        unit: first.last().map_or_else(String::new, narrative::unit_name),
        rows,
    }
}

fn idle(unit: Option<&UnitSide>, report: &DiffSide) -> f64 {
    unit.map_or(report.idle_share, idle_share)
}

fn of(diff: &Diff) -> TrendChange {
    let ratio = normalized(diff).filter(|_| diff.comparable && !kernels_tell_little(diff));
    TrendChange {
        ratio,
        noise: diff.noise.map(|noise| noise.share),
        beyond_noise: ratio.is_some_and(|ratio| is_beyond_noise(diff, ratio)),
        unknown: diff.regression_unknown.clone(),
    }
}

/// The whole way, then the largest change between neighbors with its cause.
fn opening(first: &[Diff], previous: &[Diff]) -> Vec<String> {
    let Some(whole) = first.last() else {
        return Vec::new();
    };
    let mut sentences: Vec<String> = whole.verdict.first().cloned().into_iter().collect();
    let apart = |diff: &&Diff| normalized(diff).map_or(0.0, |ratio| (ratio - 1.0).abs());
    let known = previous.iter().filter(|diff| of(diff).beyond_noise);
    let largest = known.max_by(|a, b| apart(a).total_cmp(&apart(b)));
    sentences.push(
        match largest.and_then(|diff| Some((diff, measure(diff)?))) {
            Some((diff, by)) => format!(
                "The largest change between neighbors is {}, from {} to {}, at `{}`.{}",
                change(by.ratio),
                ns(by.before_ns),
                ns(by.after_ns),
                diff.after.title.replace('`', "'"),
                narrative::cause(diff).map_or(String::new(), |cause| format!(" {cause}"))
            ),
            None => "No change between neighbors exceeds the noise and 2 %.".to_owned(),
        },
    );
    sentences
}

/// Remarks of the comparisons with the first report, each once.
fn cautions(first: &[Diff]) -> Vec<String> {
    let mut cautions: Vec<String> = Vec::new();
    let mut add = |text: String| {
        if !cautions.contains(&text) {
            cautions.push(text);
        }
    };
    let units: Vec<String> = first.iter().map(narrative::unit_name).collect();
    if units.iter().any(|unit| Some(unit) != units.first()) {
        add("Not all reports have the same unit of work in common with the first one, so that lengths in the table \
             are not all of the same work."
            .to_owned());
    }
    for diff in first {
        for caution in &diff.cautions {
            add(caution.clone());
        }
    }
    cautions
}

/// The series as Markdown for GitHub and GitLab.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn trend_markdown(trend: &Trend) -> Result<String, TemplateError> {
    let values = context! { ..Value::from(Serde(trend)) };
    document("trend.md.jinja", TEMPLATE, values)
}

/// The series as one HTML file that loads nothing from the network.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn trend_html(trend: &Trend) -> Result<String, TemplateError> {
    Ok(page("Trend", &trend_markdown(trend)?))
}

/// Indented JSON of the [`Trend`] with a final newline. Texts are as the profiles have them.
pub fn trend_json(trend: &Trend) -> String {
    to_json(trend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trend_schema_is_fresh() {
        let id = format!("urn:pyprof-advise:trend:{TREND_VERSION}");
        let schema = schemars::schema_for!(Trend);
        crate::report::check_schema(schema, &id, "trend", TREND_SCHEMA);
    }
}
