//! The result of `try` as Markdown, as an HTML page, and as JSON.

use minijinja::value::Serde;
use minijinja::{Value, context};

use super::model::Trial;
use crate::compare::diff::tidy;
use crate::report::{BuiltIn, TemplateError, page, to_json};

const TEMPLATE: &str = include_str!("trial.md.jinja");

/// Markdown for GitHub and GitLab.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub(crate) fn markdown(trial: &Trial) -> Result<String, TemplateError> {
    let page = BuiltIn::new("trial.md.jinja", TEMPLATE)?;
    let text = page.render(context! { ..Value::from(Serde(trial)) })?;
    Ok(tidy(&text))
}

/// One HTML file that loads nothing from the network.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub(crate) fn html(trial: &Trial) -> Result<String, TemplateError> {
    Ok(page("Tried", &markdown(trial)?))
}

/// Indented JSON of the [`Trial`] with a final newline.
pub(crate) fn json(trial: &Trial) -> String {
    to_json(trial)
}
