//! The report as Markdown, and as whatever a user's template makes of it.
//!
//! The built-in Markdown travels the road users' templates travel: `markdown.md.jinja` is rendered
//! over the same values `--format json` prints. A template can read nothing but the report: there is
//! no loader, so `include` and `import` find no files.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};

use super::Report;
use crate::base::{text, units};

const MARKDOWN: &str = include_str!("markdown.md.jinja");

/// Instructions a user's template may take: a second or so. The built-in one takes about a
/// hundred thousand on a large report.
const FUEL: u64 = 5_000_000;

/// Why a template could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}:{line}: {problem}\n  the values a template can use are those that --format json prints"
)]
pub struct TemplateError {
    /// The template's name, as the user gave it.
    pub name: String,
    /// Counted from 1; 0 when not known.
    pub line: usize,
    pub problem: String,
}

/// The report as Markdown for GitHub and GitLab.
///
/// # Errors
/// Only when the built-in template is broken, which the tests rule out.
pub fn markdown(report: &Report) -> Result<String, TemplateError> {
    render(report, "markdown.md.jinja", MARKDOWN, None)
}

/// Renders a user's template over the report.
///
/// Undefined values are errors. Values in templates whose name ends in `.html` are escaped by
/// themselves; others pass profile text through the filters `md`, `code`, `html` or `plain`.
///
/// # Errors
/// With the line, when the template cannot be parsed, uses something the report does not have, or
/// runs for too long.
pub fn render_template(
    report: &Report,
    source_name: &str,
    template_text: &str,
) -> Result<String, TemplateError> {
    render(report, source_name, template_text, Some(FUEL))
}

fn render(
    report: &Report,
    name: &str,
    source: &str,
    fuel: Option<u64>,
) -> Result<String, TemplateError> {
    let fault = |error: &minijinja::Error| TemplateError {
        name: name.to_owned(),
        line: error.line().unwrap_or(0),
        problem: match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        },
    };
    let mut env = environment().map_err(|e| fault(&e))?;
    env.set_fuel(fuel);
    env.render_named_str(name, source, Serde(report))
        .map_err(|e| fault(&e))
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|name| match name.rsplit('.').next() {
        Some("html" | "htm" | "xml") => AutoEscape::Html,
        _ => AutoEscape::None,
    });
    env.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()?,
    );
    add_filters(&mut env);
    Ok(env)
}

fn add_filters(env: &mut Environment<'static>) {
    // Text from profiles, for one place each.
    env.add_filter("md", |s: String| text::md(&s));
    env.add_filter("prose", |s: String| text::md_prose(&s));
    env.add_filter("code", |s: String| text::md_code(&s));
    env.add_filter("html", |s: String| text::html(&s));
    env.add_filter("plain", |s: String| text::plain(&s));
    env.add_filter("clip", |s: String, max: usize| text::clip(&s, max));
    // Numbers.
    env.add_filter("ns", units::ns);
    env.add_filter("ns_to", units::ns_range);
    env.add_filter("bytes", units::bytes);
    env.add_filter("rate", units::rate);
    env.add_filter("flop_rate", units::flop_rate);
    env.add_filter("percent", units::percent);
    env.add_filter("times", units::times);
    env.add_filter("count", units::count);
    env.add_filter("counted", |n: u64, noun: String| units::counted(n, &noun));
    // A rule's reference, as a link when it is nothing but an address.
    env.add_filter("link", link);
}

fn link(address: String) -> String {
    let safe = address.chars().all(|c| {
        c.is_ascii_alphanumeric()
            || matches!(c, ':' | '/' | '.' | '-' | '_' | '#' | '?' | '=' | '%')
    });
    if safe && address.starts_with("https://") {
        format!("<{address}>")
    } else {
        text::md(&address)
    }
}
