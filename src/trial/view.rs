//! The result of `try` as Markdown and as an HTML page.

use minijinja::value::Serde;
use minijinja::{Value, context};

use super::model::Trial;
use crate::report::{TemplateError, document, page};

const TEMPLATE: &str = include_str!("trial.md.jinja");

/// Markdown for GitHub and GitLab.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub(crate) fn markdown(trial: &Trial) -> Result<String, TemplateError> {
    let values = context! { ..Value::from(Serde(trial)) };
    document("trial.md.jinja", TEMPLATE, values)
}

/// One HTML file that loads nothing from the network.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub(crate) fn html(trial: &Trial) -> Result<String, TemplateError> {
    Ok(page("Tried", &markdown(trial)?))
}
