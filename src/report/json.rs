//! Writes a [`Report`] as JSON, and reads it again.

use serde::Deserialize;

use super::model::{Report, SCHEMA_VERSION};

/// The JSON Schema (draft 2020-12) of the text that [`json`] returns, generated from the types.
pub const SCHEMA: &str = include_str!("../../docs/schema/report.json");

/// Indented JSON with a final newline. Texts are as the profile has them: programs that print them must
/// escape them.
pub fn json(report: &Report) -> String {
    to_json(report)
}

/// Indented JSON with a final newline.
pub(crate) fn to_json(value: &impl serde::Serialize) -> String {
    // Serializing fails only for maps whose keys are not strings.
    let mut text = serde_json::to_string_pretty(value)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string());
    text.push('\n');
    text
}

/// Why a text cannot be read as a report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\n  {remedy}")]
pub struct NotAReport {
    /// What was expected and what was found.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl NotAReport {
    fn new(problem: impl Into<String>, remedy: &str) -> NotAReport {
        NotAReport {
            problem: problem.into(),
            remedy: remedy.to_owned(),
        }
    }
}

/// The keys that distinguish a report from other JSON.
#[derive(Debug, Deserialize)]
struct Head {
    schema_version: Option<u64>,
    #[serde(rename = "traceEvents")]
    events: Option<serde::de::IgnoredAny>,
    regression_unknown: Option<serde::de::IgnoredAny>,
    before: Option<serde::de::IgnoredAny>,
}

const MAKE_ONE: &str = "give reports written with `pyprof-advise PROFILE --format json -o REPORT`";

/// Reads a text that [`json`] returned, without loss.
///
/// # Errors
/// When the text is not a report, has another `schema_version`, or lacks a key.
pub fn read_json(text: &str) -> Result<Report, NotAReport> {
    // Serde would read a list as the fields of the struct in order.
    if text.trim_start().starts_with('[') {
        return Err(NotAReport::new(
            "expected a report, found other JSON: a list",
            MAKE_ONE,
        ));
    }
    if !text.trim_start().starts_with('{') {
        let kind = match text.trim_start().chars().next() {
            Some('#') => "it looks like Markdown",
            Some('<') => "it looks like HTML",
            _ => "it is not JSON",
        };
        return Err(NotAReport::new(
            format!("not a JSON report ({kind})"),
            "write one with `pyprof-advise PROFILE --format json -o REPORT`",
        ));
    }
    let head: Head = serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() {
            "expected a report, found other JSON".to_owned()
        } else {
            format!("not a JSON report: {error}")
        };
        NotAReport::new(what, MAKE_ONE)
    })?;
    if head.before.is_some() || head.regression_unknown.is_some() {
        return Err(NotAReport::new(
            "expected a report, found a comparison that `pyprof-advise diff` wrote",
            MAKE_ONE,
        ));
    }
    match head.schema_version {
        Some(version) if version == u64::from(SCHEMA_VERSION) => {}
        Some(version) => {
            let remedy = if version < u64::from(SCHEMA_VERSION) {
                "it was written by an older version of pyprof-advise: make it again from the profile"
            } else {
                "it was written by a newer version of pyprof-advise: use that version, or make it again"
            };
            return Err(NotAReport::new(
                format!(
                    "expected a report of schema_version {SCHEMA_VERSION}, found schema_version {version}"
                ),
                remedy,
            ));
        }
        None if head.events.is_some() => {
            return Err(NotAReport::new(
                "expected a report, found a trace",
                "give profiles to `pyprof-advise` itself: `pyprof-advise rank0.json rank1.json`",
            ));
        }
        None => {
            return Err(NotAReport::new(
                "expected a report, found JSON without `schema_version`",
                MAKE_ONE,
            ));
        }
    }
    let mut report: Report = serde_json::from_str(text).map_err(|error| {
        NotAReport::new(
            format!("this report is damaged, or from another version of pyprof-advise: {error}"),
            "make it again with this version",
        )
    })?;
    // Larger numbers do not fit everywhere, and no report has so many findings.
    report.top = report.top.min(u32::MAX as usize);
    Ok(report)
}

/// Checks that the schema in `docs/schema` is that of the types, or renews it.
#[cfg(test)]
pub(crate) fn check_schema(mut schema: schemars::Schema, id: &str, name: &str, committed: &str) {
    schema.insert("$id".to_owned(), id.into());
    let made = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    if std::env::var_os("PYPROF_ADVISE_BLESS").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema");
        std::fs::write(format!("{folder}/{name}.json"), &made).unwrap();
        return;
    }
    assert!(
        made == committed,
        "docs/schema/{name}.json is stale: PYPROF_ADVISE_BLESS=1 cargo test fresh"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_schema_is_fresh() {
        let id = format!("urn:pyprof-advise:report:{SCHEMA_VERSION}");
        check_schema(schemars::schema_for!(Report), &id, "report", SCHEMA);
    }
}
