//! Templates of users: what they may use, and the limits of their size, output, memory and time.
//!
//! The template engine bounds only the number of instructions. Time and memory are bounded in three ways:
//!
//! * What could grow without limit is refused before the template runs: statements that capture output, most
//!   functions, sums of texts that are assigned to names.
//! * Filters accept texts up to a limit.
//! * The rendering runs in a thread of its own, which is waited for within [`TIME`] and [`MEMORY`] only.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use minijinja::{Environment, Error, ErrorKind, Value};

use crate::base::jinja::{Tag, Token, tags};

/// Maximum length of a template in bytes.
pub const MAX_TEMPLATE: usize = 256 << 10;
/// Maximum length of what a template is rendered to, in bytes.
pub(super) const MAX_OUTPUT: usize = 64 << 20;
/// Maximum length of a text that a filter accepts, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// Maximum number of `~` and `+` in a tag, and of branches of all conditions.
const MOST_SUMS: usize = 32;
const MOST_BRANCHES: usize = 200;
/// How long a template may take.
pub(super) const TIME: Duration = Duration::from_secs(20);
/// How much memory may grow meanwhile, in bytes: many texts and lists, each within its limit. Looked at on Linux
/// only.
const MEMORY: u64 = 1 << 30;
/// The stack of the thread that renders. Depends on [`LONGEST_TAG`](crate::base::jinja::LONGEST_TAG).
const STACK: usize = 16 << 20;

/// Why a template could not be rendered.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}:{line}: {problem}\n  the values a template can use are those that --format json prints \
     (`pyprof-advise schema report` lists them)"
)]
pub struct TemplateError {
    /// Name of the template, as the user gave it.
    pub name: String,
    /// Counted from 1; 0 when not known.
    pub line: usize,
    /// The error message of the template engine.
    pub problem: String,
}

const STATEMENTS: [&str; 9] = [
    "if", "elif", "else", "endif", "for", "endfor", "set", "with", "endwith",
];
/// Filters of the engine that are offered, besides those that are added for reports.
const FILTERS: [&str; 42] = [
    "abs",
    "attr",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
];

/// What is refused in a template, with its line.
pub(super) fn check(name: &str, source: &str, ours: &[&str]) -> Result<(), TemplateError> {
    let fault = |at: usize, problem: String| {
        let before = source.get(..at).unwrap_or_default();
        Err(TemplateError {
            name: name.to_owned(),
            line: 1 + before.matches('\n').count(),
            problem,
        })
    };
    if source.len() > MAX_TEMPLATE {
        return fault(0, format!("a template of more than {MAX_TEMPLATE} bytes"));
    }
    let tags = tags(source);
    let branches = tags.iter().filter(|tag| tag.statement() == Some("elif"));
    if branches.count() > MOST_BRANCHES {
        return fault(0, format!("more than {MOST_BRANCHES} `elif`"));
    }
    for tag in tags {
        if let Some(problem) = refused(&tag, ours) {
            return fault(tag.at.start, problem);
        }
    }
    Ok(())
}

fn refused(tag: &Tag<'_>, ours: &[&str]) -> Option<String> {
    if let Some(problem) = tag.too_long() {
        return Some(problem);
    }
    let statement = tag.statement();
    if let Some(word) = statement.filter(|word| !STATEMENTS.contains(word)) {
        return Some(format!("`{word}` is not offered in templates"));
    }
    if let Some(word) = tag.calls().find(|word| *word != "range") {
        return Some(format!("the call of `{word}` is not offered; `range` is"));
    }
    if tag.tokens.contains(&Token::Word("recursive")) {
        return Some("`recursive` is not offered".to_owned());
    }
    let known = |word: &&str| FILTERS.contains(word) || ours.contains(word);
    if let Some(word) = tag.filters().find(|word| !known(word)) {
        return Some(format!("the filter `{word}` is not offered"));
    }
    let signs = |of: &[char]| {
        let is = |token: &&Token<'_>| matches!(token, Token::Sign(c) if of.contains(c));
        tag.tokens.iter().filter(is).count()
    };
    let names = matches!(statement, Some("set" | "with"));
    if names && signs(&['~', '+', '*']) > 0 {
        return Some(
            "sums and products cannot be named; print them where they are made".to_owned(),
        );
    }
    // `{% set x %}` captures what follows.
    if names && signs(&['=']) == 0 {
        return Some("`set` without `=` is not offered".to_owned());
    }
    if signs(&['~', '+']) > MOST_SUMS {
        return Some(format!("more than {MOST_SUMS} sums in one tag"));
    }
    let products = tag.tokens.iter().enumerate();
    let mut products = products.filter(|(_, token)| **token == Token::Sign('*'));
    if products.any(|(at, _)| !is_of_numbers(&tag.tokens, at)) {
        return Some("`*` stands between numbers only: `x|float * 100`".to_owned());
    }
    None
}

/// Whether both sides of the `*` at `at` are numbers: literals, or results of a filter that gives one.
fn is_of_numbers(tokens: &[Token<'_>], at: usize) -> bool {
    let token = |at: Option<usize>| at.and_then(|at| tokens.get(at));
    let before = match token(at.checked_sub(1)) {
        Some(Token::Number(_)) => true,
        Some(Token::Word("float" | "int" | "length" | "count" | "abs")) => {
            token(at.checked_sub(2)) == Some(&Token::Sign('|'))
        }
        _ => false,
    };
    before && matches!(token(at.checked_add(1)), Some(Token::Number(_)))
}

/// Replaces filters that could write without limit.
pub(super) fn bound(env: &mut Environment<'_>) {
    env.add_filter("indent", |text: String, width: usize| {
        let lines = text.matches('\n').count();
        fits(text.len().saturating_add(lines.saturating_mul(width)))?;
        Ok::<_, Error>(text.replace('\n', &format!("\n{}", " ".repeat(width.min(MAX_TEXT)))))
    });
    env.add_filter("replace", |text: String, from: String, to: String| {
        let times = text.matches(&from).count();
        fits(text.len().saturating_add(times.saturating_mul(to.len())))?;
        Ok::<_, Error>(text.replace(&from, &to))
    });
    env.add_filter("join", |list: Value, separator: Option<String>| {
        let separator = separator.unwrap_or_default();
        let mut out = String::new();
        for (n, item) in list.try_iter()?.enumerate() {
            if n > 0 {
                out.push_str(&separator);
            }
            match item.as_str() {
                Some(text) => out.push_str(text),
                None => out.push_str(&item.to_string()),
            }
            fits(out.len())?;
        }
        Ok::<_, Error>(out)
    });
    env.add_filter("tojson", |value: Value| {
        let json = serde_json::to_string(&value)
            .map_err(|e| Error::new(ErrorKind::BadSerialization, e.to_string()))?;
        // As the engine writes it: safe inside of HTML.
        let json = json.replace('<', "\\u003c").replace('>', "\\u003e");
        let json = json.replace('&', "\\u0026").replace('\'', "\\u0027");
        Ok::<_, Error>(Value::from_safe_string(json))
    });
}

/// An error if a text is longer than filters accept.
pub(super) fn fits(bytes: usize) -> Result<(), Error> {
    match bytes > MAX_TEXT {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("a text of more than {MAX_TEXT} bytes"),
        )),
    }
}

/// The error for a template whose output is too long.
pub(super) fn too_long() -> String {
    format!("it writes more than {} MiB", MAX_OUTPUT >> 20)
}

/// Runs `render` in a thread of its own and waits for it, but neither longer than `time` nor until it takes more
/// than [`MEMORY`]. A panic is an error.
pub(super) fn in_bounds<T: Send + 'static>(
    time: Duration,
    render: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    /// How often the memory is looked at; a thread takes up to some GB per second.
    const LOOK: Duration = Duration::from_millis(10);
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let _ = sender.send(render());
    };
    let (since, before) = (Instant::now(), resident());
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
    thread.map_err(|e| format!("no thread to render it in could be started: {e}"))?;
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(made) => return Ok(made),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err("the template engine failed".to_owned());
            }
            Err(mpsc::RecvTimeoutError::Timeout) if since.elapsed() >= time => {
                return Err(format!("it takes more than {} seconds", time.as_secs()));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if resident().saturating_sub(before) > MEMORY {
            return Err(format!("it takes more than {} MiB of memory", MEMORY >> 20));
        }
    }
}

/// Resident memory of the process in bytes; 0 where it cannot be read as on Linux (`man 5 proc`).
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
