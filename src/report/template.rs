//! Templates over the report: the built-in ones and those of users.
//!
//! All are rendered over the values that `--format json` prints. A template can read only the report:
//! there is no loader, so `include` and `import` find no files.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value, context};

use super::basis::Basis;
use super::model::Report;
use super::repeating::RepeatingKernels;
use super::user_template::{self, TemplateError};
use super::{collectives, layers, markdown_text, narrative, opening};
use crate::base::jinja::Bounded;
use crate::base::{text, units};

/// Instructions that a user's template may take, about a second. The built-in ones take about a
/// hundred thousand on a large report.
const FUEL: u64 = 5_000_000;

/// Renders a user's template over the report.
///
/// Undefined values are errors. In templates whose name ends in `.html` values are escaped
/// automatically; others pass text of the profile through the filters `md`, `code`, `html` or
/// `plain`.
///
/// # Errors
/// With the line, when the template cannot be parsed, uses a value that the report does not have, or
/// runs for too long.
pub fn render_template(
    report: &Report,
    source_name: &str,
    template_text: &str,
) -> Result<String, TemplateError> {
    let problem = |problem: String| TemplateError {
        name: source_name.to_owned(),
        line: 0,
        problem,
    };
    let mut env = environment().map_err(|e| fault(source_name, &e))?;
    user_template::check(source_name, template_text, OURS)?;
    user_template::bound(&mut env);
    env.set_fuel(Some(FUEL));
    // Names what is undefined.
    env.set_debug(true);
    let values = Value::from(Serde(report));
    let (name, text) = (source_name.to_owned(), template_text.to_owned());
    let render = move || {
        let mut out = Bounded::new(user_template::MAX_OUTPUT);
        let template = env.template_from_named_str(&name, &text);
        let done = template.and_then(|t| t.render_captured_to(values, &mut out).map(drop));
        match done {
            Ok(()) => Ok(String::from_utf8_lossy(&out.bytes).into_owned()),
            Err(_) if out.full => Err(TemplateError {
                name,
                line: 0,
                problem: user_template::too_long(),
            }),
            Err(e) => Err(fault(&name, &e)),
        }
    };
    user_template::in_bounds(user_template::TIME, render).map_err(problem)?
}

/// A built-in template, ready to be rendered over any values.
pub(crate) struct BuiltIn {
    name: &'static str,
    env: Environment<'static>,
}

impl BuiltIn {
    pub(crate) fn new(name: &'static str, source: &'static str) -> Result<BuiltIn, TemplateError> {
        let fault = |e| fault(name, &e);
        let mut env = environment().map_err(fault)?;
        env.add_template(name, source).map_err(fault)?;
        Ok(BuiltIn { name, env })
    }

    pub(crate) fn render(&self, values: Value) -> Result<String, TemplateError> {
        self.env
            .get_template(self.name)
            .and_then(|template| template.render(values))
            .map_err(|e| fault(self.name, &e))
    }
}

/// The values of the Markdown and the HTML page of a report: its own, of which a page may show fewer, and what
/// both say besides.
pub(super) fn page_values(report: &Report, basis: &Basis, shown: &Report) -> Value {
    context! {
        basis => Value::from(Serde(basis)),
        collectives_table => Value::from(Serde(collectives::table(report, basis))),
        without_a_known_loss => Value::from(Serde(opening::without_a_known_loss(report))),
        repeating_text => report.repeating.as_ref().map(RepeatingKernels::sentences),
        capture_again => narrative::capture_again(report),
        layers_overlap => layers::overlap_sentence(report),
        one_saving => basis.one_saving(report),
        ..Value::from(Serde(shown))
    }
}

/// A built-in Markdown template over `values`, with one empty line between blocks and none at the end. Text of a
/// profile never spans lines.
pub(crate) fn document(
    name: &'static str,
    source: &'static str,
    values: Value,
) -> Result<String, TemplateError> {
    let text = BuiltIn::new(name, source)?.render(values)?;
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.trim().lines() {
        empty = match line.is_empty() {
            true => empty + 1,
            false => 0,
        };
        if empty <= 1 {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

fn fault(name: &str, error: &minijinja::Error) -> TemplateError {
    TemplateError {
        name: name.to_owned(),
        line: error.line().unwrap_or(0),
        problem: match error.detail() {
            Some(detail) if error.kind() == ErrorKind::UndefinedError => detail.to_owned(),
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        },
    }
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

/// Makes [`OURS`] and [`add_filters`] of one list.
macro_rules! filters {
    ($($name:literal => $filter:expr,)*) => {
        /// The names of our filters.
        const OURS: &[&str] = &[$($name),*];

        fn add_filters(env: &mut Environment<'static>) {
            $(env.add_filter($name, $filter);)*
        }
    };
}

filters! {
    // Escape text of a profile for one place each.
    "md" => |s: String| bounded(&s, text::md),
    "cell" => |s: String| bounded(&s, cell),
    "prose" => |s: String| bounded(&s, text::md_prose),
    "code" => |s: String| bounded(&s, text::md_code),
    "html" => |s: String| bounded(&s, text::html),
    "plain" => |s: String| bounded(&s, text::plain),
    "clip" => |s: String, max: usize| text::clip(&s, max),
    // Print numbers.
    "ns" => units::ns,
    "ns_to" => units::ns_range,
    "bytes" => units::bytes,
    "rate" => units::rate,
    "flop_rate" => units::flop_rate,
    "percent" => units::percent,
    "percent_to" => units::percent_range,
    "times" => units::times,
    "count" => units::count,
    "average" => units::average,
    "change" => units::change,
    "signed_ns" => units::signed_ns,
    "place_name" => |s: String| {
        crate::judge::place_name(&s).to_owned()
    },
    "per_step_count" => units::per_step_count,
    "plural" => |noun: String| units::plural(&noun),
    "counted" => |n: u64, noun: String| units::counted(n, &noun),
    // Turn ids of ours into words.
    "part_of_time" => |word: String| {
        narrative::part_of_time(&word)
    },
    "cause" => |word: String| narrative::cause(&word),
    "suppression" => |state: String, findings: u64| {
        narrative::suppression(&state, findings)
    },
    // For pages: markup that is safe, and widths.
    "prose_html" => |s: String| {
        Value::from_safe_string(markdown_text::html(&s))
    },
    "sentence_html" => |s: String| {
        Value::from_safe_string(markdown_text::html(&text::md_prose(&s)))
    },
    "css_percent" => |share: f64| {
        format!("{:.2}%", (share * 100.0).clamp(0.0, 100.0))
    },
    "is_web" => |s: String| is_web(&s),
    // A reference of a rule, as a link if it is an address and nothing else.
    "link" => link,
}

/// An escaped text, if it is not too long: what is escaped again and again grows without limit.
fn bounded(raw: &str, escape: impl Fn(&str) -> String) -> Result<String, minijinja::Error> {
    user_template::fits(raw.len())?;
    Ok(escape(raw))
}

/// Markdown in a table cell: pipes that are not escaped yet are escaped.
fn cell(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut escaped = false;
    for c in markdown.chars() {
        if c == '|' && !escaped {
            out.push('\\');
        }
        escaped = c == '\\' && !escaped;
        out.push(if c == '\n' { ' ' } else { c });
    }
    out
}

fn link(address: String) -> String {
    if is_web(&address) {
        format!("<{address}>")
    } else {
        text::md(&address)
    }
}

/// Whether a text is a web address and nothing else.
pub(super) fn is_web(address: &str) -> bool {
    let plain = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, ':' | '/' | '.' | '-' | '_' | '#' | '?' | '=' | '%')
    };
    address.starts_with("https://") && address.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renders a template of a user over no report.
    fn rendered(text: &str) -> Result<String, TemplateError> {
        user_template::check("t", text, OURS)?;
        let mut env = environment().map_err(|e| fault("t", &e))?;
        user_template::bound(&mut env);
        env.set_fuel(Some(FUEL));
        env.render_named_str("t", text, ())
            .map_err(|e| fault("t", &e))
    }

    #[test]
    fn templates_that_would_never_end_are_refused() {
        let doubled = "{% set x=x~x %}".repeat(50);
        let replaced = "{% set x=x|replace('a','aaaaaaaaaaaaaaaa') %}".repeat(50);
        let escaped = format!(
            "{{% set x = '\\\\' %}}{}",
            "{% set x=x|md|md|md|md %}".repeat(20)
        );
        for text in [
            "{{ [1]|batch(1000000000000, 0)|list|length }}",
            "{{ [1]|slice(100000000000)|list|length }}",
            "{% for i in range(9) %}{{ loop.cycle() }}{% endfor %}",
            "{{ \"%9999999999d\"|format(1) }}",
            "{{ \"a\nb\"|indent(10000000000) }}",
            "{{ range(99999)|join(\"x\"*99999)|length }}",
            "{{ range(99999)|join('xxxxxxxxxxxxxxxxxxxxxxxxxxxx')|length }}",
            "{% set ns=namespace(x=0) %}{% set ns.x=ns %}{{ ns }}",
            "{% set x %}a{% endset %}",
            "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
            "{% call f() %}{% endcall %}",
            "{% filter upper %}a{% endfilter %}",
            "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            "{{ '}}' ~ a.b() }}",
            "{{ {'a': {'b': 1}}|pprint }}",
            "{#} {{ '#} {{ [1]|batch(1000000000000, 0)|list|length }} ' }}",
            "{{ x * 100000000000 }}",
            &format!("{{{{ 1{} }}}}", "|string".repeat(100_000)),
            &format!("{{{{ 1{} }}}}", "|string".repeat(100)),
            &format!("{{{{ {}1 }}}}", "not ".repeat(2_000)),
            &format!("{{{{ a{} }}}}", ".b".repeat(2_000)),
            &format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(9_000)),
            &format!("{{% set x='aaaaaaaaaa' %}}{doubled}{{{{ x|length }}}}"),
            &format!("{{% set x='aaaaaaaaaa' %}}{replaced}{{{{ x|length }}}}"),
            &escaped,
        ] {
            let error = rendered(text).unwrap_err();
            assert!(error.line > 0, "{error}");
        }
        assert!(rendered(&"x".repeat(user_template::MAX_TEMPLATE + 1)).is_err());
    }

    #[test]
    fn what_templates_need_is_offered() {
        for (text, made) in [
            ("{% set n = [3, 4] %}{{ n|sum }} {{ n|join('-') }}", "7 3-4"),
            (
                "{{ 'a\nb'|indent(2) }}{{ 'aXb'|replace('X', '~') }}",
                "a\n  ba~b",
            ),
            ("{{ '0.5'|float * 100 }} {{ 2 * 3 }}", "50.0 6"),
            ("{{ {'a': '<'}|tojson }}", "{\"a\":\"\\u003c\"}"),
            (
                "{% for i in range(2) if i is odd %}{{ loop.index ~ 'x' }}{% endfor %}",
                "1x",
            ),
        ] {
            assert_eq!(rendered(text).unwrap(), made, "{text}");
        }
    }

    #[test]
    fn panics_are_errors() {
        let time = user_template::TIME;
        let failed: Result<(), String> = user_template::in_bounds(time, || panic!("of the engine"));
        assert!(failed.unwrap_err().contains("failed"));
    }

    #[test]
    fn templates_are_not_waited_for_without_end() {
        let short = std::time::Duration::from_millis(20);
        let late = user_template::in_bounds(short, move || std::thread::sleep(50 * short));
        assert!(late.unwrap_err().contains("seconds"));
    }
}
