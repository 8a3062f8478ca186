//! A comparison as Markdown, as an HTML page, and as JSON.

use minijinja::value::Serde;
use minijinja::{Value, context};

use super::model::Diff;
use super::narrative;
use crate::base::text::capitalized;
use crate::report::{TemplateError, document, page, to_json};

/// The JSON Schema (draft 2020-12) of the text that [`json`] returns, generated from the types.
pub const SCHEMA: &str = include_str!("../../../docs/schema/diff.json");

const TEMPLATE: &str = include_str!("diff.md.jinja");

/// The comparison as Markdown for GitHub and GitLab. Every list is limited, so that it fits a
/// comment.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn markdown(diff: &Diff) -> Result<String, TemplateError> {
    render(diff, true)
}

/// The comparison as one HTML file that loads nothing from the network.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn html(diff: &Diff) -> Result<String, TemplateError> {
    let title = format!("{} to {}", diff.before.title, diff.after.title);
    Ok(page(&title, &render(diff, false)?))
}

/// Indented JSON of the [`Diff`] with a final newline. Texts are as the profiles have them.
pub fn json(diff: &Diff) -> String {
    to_json(diff)
}

fn render(diff: &Diff, folds: bool) -> Result<String, TemplateError> {
    let levels: Vec<&str> = diff.matched.iter().map(|m| m.level.words()).collect();
    let unit_name = capitalized(&narrative::unit_name(diff));
    let values = context! { folds, levels, unit_name, ..Value::from(Serde(diff)) };
    document("diff.md.jinja", TEMPLATE, values)
}

#[cfg(test)]
mod tests {
    use super::super::model::SCHEMA_VERSION;
    use super::*;

    #[test]
    fn diff_schema_is_fresh() {
        let id = format!("urn:pyprof-advise:diff:{SCHEMA_VERSION}");
        crate::report::check_schema(schemars::schema_for!(Diff), &id, "diff", SCHEMA);
    }
}
