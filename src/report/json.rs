//! The report as JSON: the [`Report`] itself.

use super::Report;

/// Pretty JSON with a final newline; texts are as the profile has them, so a reader must escape
/// them for wherever they go.
///
/// # Errors
/// None that a report can cause; serde's interface has one.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}
