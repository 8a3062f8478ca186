//! The report as JSON: the [`Report`] itself.

use super::Report;

/// Pretty JSON with a final newline. Texts are as the profile has them, so whoever prints them
/// escapes them for the place they go to. Numbers that are not finite become `null`.
pub fn json(report: &Report) -> String {
    // Fails only for maps whose keys are not strings, and a report has no maps.
    let mut text = serde_json::to_string_pretty(report)
        .unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string());
    text.push('\n');
    text
}
