//! The report as JSON, there and back: the [`Report`] itself.

use super::Report;

/// The JSON Schema (draft 2020-12) of what [`json`] prints, made from the types themselves.
pub const SCHEMA: &str = include_str!("../../docs/schema/report.json");

/// Pretty JSON with a final newline. Texts are as the profile has them, so whoever prints them
/// escapes them for the place they go to.
pub fn json(report: &Report) -> String {
    // Fails only for maps whose keys are not strings, and a report has no maps.
    let mut text = serde_json::to_string_pretty(report)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string());
    text.push('\n');
    text
}

/// The report that [`json`] printed.
///
/// # Errors
/// With line and column, when the text is no report of this [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
pub fn from_json(text: &str) -> Result<Report, serde_json::Error> {
    serde_json::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        let mut schema = schemars::schema_for!(Report);
        schema.insert(
            "$id".to_owned(),
            format!("urn:pyprof-advise:report:{}", super::super::SCHEMA_VERSION).into(),
        );
        let made = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        if std::env::var_os("PYPROF_ADVISE_BLESS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema/report.json");
            std::fs::write(path, &made).unwrap();
            return;
        }
        assert!(
            made == SCHEMA,
            "docs/schema/report.json is stale: PYPROF_ADVISE_BLESS=1 cargo test --lib report::json"
        );
    }
}
