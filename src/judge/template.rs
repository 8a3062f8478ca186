//! The sentences of a rule: minijinja templates over facts, params, lets and `found`.
//!
//! Words that come from the profile are hostile text, and the result is Markdown: they are escaped
//! unless a filter made them safe. A template is checked when its rule is loaded, asks for nothing
//! it does not name, runs on limited fuel and writes a limited amount.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use minijinja::value::{Value as Jinja, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior};

use super::check::{KnownNames, Mistake, NoName};
use super::expr::{EvalContext, Let, Name, Undecided, Uses};
use crate::base::jinja::{self, Bounded, Tag, Token};
use crate::base::suggest::did_you_mean;
use crate::base::{text, units};
use crate::facts::Value;

/// Bytes of a template's text.
pub const MAX_SOURCE: usize = 8_000;
/// Bytes one field may be rendered to.
pub const MAX_OUTPUT: usize = 4_096;
/// Instructions of one rendering; an ordinary sentence takes under a hundred.
const FUEL: u64 = 20_000;
/// Characters of one word from the profile.
const MAX_WORD: usize = 200;

/// A filter sentences may use.
#[derive(Debug)]
pub struct Filter {
    /// Name in templates.
    pub name: &'static str,
    /// What it prints, with an example.
    pub doc: &'static str,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    Number(fn(f64) -> String),
    Word(fn(&str) -> String),
    /// A total, divided; with the noun that it counts and its verb, if given.
    PerStep,
}

/// Every filter by name.
pub const FILTERS: &[Filter] = &[
    Filter {
        name: "bytes",
        doc: "bytes with a unit: `1.44 MB`",
        run: Run::Number(units::bytes),
    },
    Filter {
        name: "code",
        doc: "words as inline code, with the backticks",
        run: Run::Word(code),
    },
    Filter {
        name: "count",
        doc: "a number with its thousands apart: `1,002,500`, `2.5`",
        run: Run::Number(count),
    },
    Filter {
        name: "flop_rate",
        doc: "FLOP per second with a unit: `12.4 TFLOP/s`",
        run: Run::Number(units::flop_rate),
    },
    Filter {
        name: "flops",
        doc: "floating point operations with a unit: `9.33 GFLOP`",
        run: Run::Number(units::flops),
    },
    Filter {
        name: "ns",
        doc: "a duration with a unit: `4.56 ms`",
        run: Run::Number(units::ns),
    },
    Filter {
        name: "per_step",
        doc: "a total of the window per step and GPU, or as it is where no steps are known: \
              `copy.time_ns | per_step | ns`. `{{ per_step }}` prints ` per step`, ` per step and GPU`, or \
              nothing. With a noun and its verb, if it has one, it prints all of that: \
              `found.calls | per_step(\"copy\", \"take\")` prints `3 copies per step take`",
        run: Run::PerStep,
    },
    Filter {
        name: "percent",
        doc: "a share as a percentage: `12 %`",
        run: Run::Number(units::percent),
    },
    Filter {
        name: "rate",
        doc: "bytes per second with a unit: `27.7 GB/s`",
        run: Run::Number(units::rate),
    },
    Filter {
        name: "times",
        doc: "a ratio: `1.80x`",
        run: Run::Number(units::times),
    },
    Filter {
        name: "word",
        doc: "words for use inside a code block: letters, digits and `_.:*/-` only",
        run: Run::Word(word),
    },
];

/// A sentence that has been checked.
#[derive(Debug, Clone, Default)]
pub struct Template {
    /// Its text in the rule file.
    pub source: String,
    /// The names it uses, sorted by text.
    pub names: Vec<Name>,
}

impl Template {
    /// What the sentence uses.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::default();
        for name in &self.names {
            uses.name(name);
        }
        uses
    }

    /// The sentence for one context.
    ///
    /// # Errors
    /// Why it cannot be said: a name without a value that the sentence does not guard with
    /// `is defined`, or a limit.
    pub fn render(&self, context: &EvalContext<'_>, lets: &[Let]) -> Result<String, String> {
        self.render_in(&MARKDOWN, context, lets)
    }

    /// The sentence with the words of facts as they are: for comparing, not for showing.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_plain(&self, context: &EvalContext<'_>, lets: &[Let]) -> Result<String, String> {
        self.render_in(&PLAIN, context, lets)
    }

    fn render_in(
        &self,
        environment: &Environment<'_>,
        context: &EvalContext<'_>,
        lets: &[Let],
    ) -> Result<String, String> {
        let mut root = Branch::default();
        root.insert(
            PER_STEP,
            Jinja::from_safe_string(per_step(context).to_owned()),
        );
        for name in &self.names {
            let text = name.text(lets);
            match context.get(name) {
                Ok(value) => root.insert(&text, to_jinja(&value)),
                Err(Undecided::Fault(why)) => return Err(format!("`{text}`: {why}")),
                Err(_) => root.prepare(&text),
            }
        }
        let mut out = Bounded::new(MAX_OUTPUT);
        let template = environment
            .template_from_str(&self.source)
            .map_err(|e| reason(&e))?;
        let render = || template.render_captured_to(root.into_value(), &mut out);
        // What the engine is known to panic at is refused when a sentence is read.
        let Ok(done) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(render)) else {
            return Err("the template engine failed".to_owned());
        };
        match done {
            Ok(_) => Ok(sentence(&String::from_utf8_lossy(&out.bytes))),
            Err(_) if out.full => Err(format!("longer than {MAX_OUTPUT} bytes")),
            Err(error) if error.kind() == ErrorKind::UndefinedError => {
                Err(format!("{}; guard it with `is defined`", reason(&error)))
            }
            Err(error) => Err(reason(&error)),
        }
    }
}

/// Checks a sentence.
///
/// # Errors
/// Everything that is wrong with it, with byte ranges of its text.
pub fn compile(source: &str, vocabulary: &KnownNames<'_>) -> Result<Template, Vec<Mistake>> {
    if source.len() > MAX_SOURCE {
        let title = format!("a sentence of more than {MAX_SOURCE} bytes");
        return Err(vec![mistake(0..source.len(), title)]);
    }
    let tags = jinja::tags(source);
    if let Some((at, title)) = refused(source, &tags, vocabulary) {
        return Err(vec![mistake(at, title)]);
    }
    MARKDOWN.template_from_str(source).map_err(|error| {
        let at = error.range().unwrap_or(0..source.len());
        vec![mistake(at, format!("not a template: {}", reason(&error)))]
    })?;
    names(source, &tags, vocabulary)
}

/// Reads a sentence that was checked when the program was built.
///
/// # Errors
/// Names that are not known.
pub(super) fn read(source: &str, vocabulary: &KnownNames<'_>) -> Result<Template, Vec<Mistake>> {
    names(source, &jinja::tags(source), vocabulary)
}

fn mistake(at: Range<usize>, title: String) -> Mistake {
    Mistake {
        at,
        title,
        label: String::new(),
    }
}

/// Resolves the names of a sentence.
fn names(
    source: &str,
    tags: &[Tag<'_>],
    vocabulary: &KnownNames<'_>,
) -> Result<Template, Vec<Mistake>> {
    let mut used = jinja::names(tags);
    let divides = (tags.iter()).any(|tag| tag.filters().any(|filter| filter == PER_STEP));
    let mut names = Vec::new();
    if used.remove(PER_STEP) || divides {
        let facts = [STEPS_TIMES_GPUS, "run.devices"];
        let known = facts.iter().filter_map(|fact| vocabulary.known(fact));
        names.extend(known.map(|(name, _)| name));
    }
    let mut mistakes = Vec::new();
    for text in used {
        let first = text.split('.').next().unwrap_or_default();
        let is_let = vocabulary.lets.iter().any(|l| l.name == first);
        let name = if is_let { first } else { text.as_str() };
        match vocabulary.find(name) {
            Ok((found, _)) if !names.contains(&found) => names.push(found),
            Ok(_) => {}
            Err(NoName::Broken) => mistakes.push(mistake(0..0, String::new())),
            Err(NoName::Unknown(why)) => {
                let at = source.find(name);
                let at = at.map_or(0..source.len(), |a| a..a + name.len());
                mistakes.push(mistake(at, why));
            }
        }
    }
    if mistakes.is_empty() {
        Ok(Template {
            source: source.to_owned(),
            names,
        })
    } else {
        Err(mistakes)
    }
}

/// Statements a sentence may use. Others name texts, and a name can be doubled again and again.
const STATEMENTS: [&str; 6] = ["if", "elif", "else", "endif", "for", "endfor"];

/// The filter that divides, and the variable with the words for what it divides by.
const PER_STEP: &str = "per_step";
const STEPS_TIMES_GPUS: &str = "run.steps_times_gpus";

/// What totals are divided by, in words that follow a noun.
fn per_step(context: &EvalContext<'_>) -> &'static str {
    let known = |name| context.get(&Name::Fact(name)).ok();
    match (known(STEPS_TIMES_GPUS), known("run.devices")) {
        (None, _) => "",
        (Some(_), Some(Value::Int(2..))) => " per step and GPU",
        (Some(_), _) => " per step",
    }
}

/// A total of the window per step and GPU.
fn divided(state: &State<'_, '_>, value: &Jinja) -> Result<Jinja, Error> {
    let total = number(value).ok_or_else(|| not("a number", value))?;
    let run = state.lookup("run").unwrap_or_default();
    let divisor = run
        .get_attr("steps_times_gpus")
        .ok()
        .and_then(|v| number(&v));
    Ok(match divisor.filter(|by| *by > 0.0) {
        Some(by) => Jinja::from(total / by),
        None => value.clone(),
    })
}

/// Filters besides those of [`FILTERS`].
const PLAIN_FILTERS: [&str; 4] = ["default", "join", "length", "round"];

/// What in a template is not known, or could make words grow without limit: fuel counts steps, not
/// bytes.
fn refused(
    source: &str,
    tags: &[Tag<'_>],
    vocabulary: &KnownNames<'_>,
) -> Option<(Range<usize>, String)> {
    for tag in tags {
        let title = |title: String| Some((tag.at.clone(), title));
        if let Some(problem) = tag.too_long() {
            return title(problem);
        }
        if let Some(word) = tag.statement().filter(|word| !STATEMENTS.contains(word)) {
            return title(format!("`{word}` is not offered in sentences; use a let"));
        }
        let filters = FILTERS.iter().map(|f| f.name).chain(PLAIN_FILTERS);
        if let Some(word) = tag
            .filters()
            .find(|word| !filters.clone().any(|f| f == *word))
        {
            return title(format!(
                "unknown filter `{word}`{}",
                did_you_mean(word, filters)
            ));
        }
        // A method of the engine's `loop` panics, and others need no fuel for much work.
        if let Some(word) = tag.calls().next() {
            return title(format!(
                "the call of `{word}` is not offered in sentences; use a let"
            ));
        }
        if tag.tokens.contains(&Token::Word("recursive")) {
            return title("`recursive` is not offered in sentences".to_owned());
        }
        let inner = source.get(tag.at.start + 2..tag.at.end.saturating_sub(2));
        let inner = inner.unwrap_or_default();
        if tag.tokens.contains(&Token::Sign('*')) && !only_numbers(inner, vocabulary) {
            return title("`*` stands beside numbers only; use a let for the rest".to_owned());
        }
    }
    None
}

/// Whether a part of a template holds nothing that could be a text or a list: a text times a number
/// is a long text. Filters give texts, so they may only be the last thing done.
fn only_numbers(inner: &str, vocabulary: &KnownNames<'_>) -> bool {
    const WORDS: [&str; 9] = [
        "if", "elif", "else", "and", "or", "not", "is", "defined", "end",
    ];
    let sum = inner.split('|').next().unwrap_or_default();
    let filters = inner.get(sum.len()..).unwrap_or_default();
    if filters.contains('*') || sum.contains(['"', '\'', '[', '{', ',', '~']) {
        return false;
    }
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    sum.split(|c| !name(c)).all(|word| {
        let number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        word.is_empty()
            || number
            || WORDS.contains(&word)
            || (vocabulary.known(word)).is_some_and(|(_, ty)| ty.is_number())
    })
}

static MARKDOWN: LazyLock<Environment<'static>> = LazyLock::new(|| environment(escape));
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| environment(str::to_owned));

/// No loader, no default filters, nothing that reaches outside.
fn environment(escape: fn(&str) -> String) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(50);
    // Errors name what is undefined.
    env.set_debug(true);
    env.add_test("defined", |value: &Jinja| !value.is_undefined());
    env.add_filter(
        "default",
        |value: Jinja, other: Jinja| {
            if value.is_undefined() { other } else { value }
        },
    );
    env.add_filter("round", |value: &Jinja, digits: Option<usize>| {
        let number = number(value).ok_or_else(|| not("a number", value))?;
        let digits = digits.unwrap_or(0).min(6);
        Ok::<_, Error>(Jinja::from_safe_string(format!("{number:.digits$}")))
    });
    env.add_filter("length", |value: &Jinja| value.len());
    env.add_filter("join", move |value: &Jinja, separator: &str| {
        join(value, separator, escape)
    });
    for filter in FILTERS {
        match filter.run {
            Run::Number(print) => env.add_filter(filter.name, move |value: &Jinja| {
                let number = number(value).ok_or_else(|| not("a number", value))?;
                Ok::<_, Error>(Jinja::from_safe_string(print(number)))
            }),
            Run::PerStep => env.add_filter(
                filter.name,
                move |state: &State<'_, '_>,
                      value: &Jinja,
                      noun: Option<&str>,
                      verb: Option<&str>| {
                    let value = divided(state, value)?;
                    Ok::<_, Error>(match noun {
                        Some(noun) => {
                            Jinja::from_safe_string(counted(state, &value, noun, verb, escape))
                        }
                        None => value,
                    })
                },
            ),
            Run::Word(print) => env.add_filter(filter.name, move |value: &Jinja| {
                let word = value.as_str().ok_or_else(|| not("a string", value))?;
                Ok::<_, Error>(Jinja::from_safe_string(print(word)))
            }),
        }
    }
    env.set_formatter(move |out, _, value| {
        let printed = print(value, escape)?;
        out.write_str(&printed).map_err(Error::from)
    });
    env
}

/// How a value stands in a sentence when no filter says otherwise.
fn print(value: &Jinja, escape: fn(&str) -> String) -> Result<String, Error> {
    if value.is_undefined() {
        // An `if` without `else`; a name without a value has failed before it comes here.
        return Ok(String::new());
    }
    if let Some(words) = value.as_str() {
        let safe = value.is_safe();
        return Ok(if safe {
            words.to_owned()
        } else {
            escape(words)
        });
    }
    match value.kind() {
        ValueKind::Bool => Ok(value.to_string()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(number(value).map_or_else(String::new, plain_number)),
        ValueKind::Seq => {
            let joined = join(value, ", ", escape)?;
            Ok(joined.as_str().unwrap_or_default().to_owned())
        }
        _ => Err(not("a number, a word or a list", value)),
    }
}

/// The items, printed, as one safe word.
fn join(value: &Jinja, separator: &str, escape: fn(&str) -> String) -> Result<Jinja, Error> {
    let mut out = String::new();
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(&print(&item, escape)?);
        if out.len() > MAX_OUTPUT {
            break;
        }
    }
    Ok(Jinja::from_safe_string(out))
}

/// Profile text as Markdown that shows it and does nothing else.
pub(super) fn escape(words: &str) -> String {
    text::md(&text::clip(words, MAX_WORD))
}

fn code(words: &str) -> String {
    text::md_code(&text::clip(words, MAX_WORD))
}

/// What is harmless even inside a code block, where nothing can be escaped.
fn word(words: &str) -> String {
    let harmless = |c: &char| c.is_ascii_alphanumeric() || "_.:*/-".contains(*c);
    words.chars().filter(harmless).take(MAX_WORD).collect()
}

fn count(value: f64) -> String {
    match units::per_step_count(value.max(0.0)) {
        none if none == "0" && value > 0.0 => "under 0.1".to_owned(),
        count => count,
    }
}

/// One time.
const ONCE: &str = "once";

/// A text without blanks at its end, which does not begin with a small "once".
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    match text.strip_prefix(ONCE) {
        Some(rest) => format!("Once{rest}"),
        None => text.to_owned(),
    }
}

/// A number with its noun, what it is divided by, and its verb.
fn counted(
    state: &State<'_, '_>,
    value: &Jinja,
    noun: &str,
    verb: Option<&str>,
    escape: fn(&str) -> String,
) -> String {
    let count = count(number(value).unwrap_or_default());
    let one = count == "1";
    let noun = if one {
        noun.to_owned()
    } else {
        units::plural(noun)
    };
    let per = state.lookup(PER_STEP).unwrap_or_default();
    let what = match noun.as_str() {
        "time" => ONCE.to_owned(),
        noun => format!("{count} {}", escape(noun)),
    };
    let mut out = format!("{what}{}", per.as_str().unwrap_or_default());
    if let Some(verb) = verb {
        let verb = if one {
            units::plural(verb)
        } else {
            verb.to_owned()
        };
        out.push(' ');
        out.push_str(&escape(&verb));
    }
    out
}

/// A double without a unit: whole ones as ints.
pub(super) fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        units::significant(value)
    }
}

fn number(value: &Jinja) -> Option<f64> {
    if value.kind() == ValueKind::Number {
        f64::try_from(value.clone()).ok()
    } else {
        None
    }
}

fn not(what: &str, value: &Jinja) -> Error {
    if value.is_undefined() {
        return Error::from(ErrorKind::UndefinedError);
    }
    let message = format!("{what} was expected, not a {}", value.kind());
    Error::new(ErrorKind::InvalidOperation, message)
}

fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps".into(),
        kind => match error.detail() {
            Some(detail) => detail.chars().take(160).collect(),
            None => kind.to_string(),
        },
    }
}

fn to_jinja(value: &Value) -> Jinja {
    match value {
        Value::Bool(b) => Jinja::from(*b),
        Value::Int(i) => Jinja::from(*i),
        Value::Double(d) => Jinja::from(*d),
        Value::Str(s) => Jinja::from(&**s),
        Value::Strings(list) => list.iter().map(|s| Jinja::from(&**s)).collect(),
        Value::Doubles(map) => Jinja::from_pairs(map.iter().map(|(k, v)| (k.to_string(), *v))),
        Value::Ints(map) => Jinja::from_pairs(map.iter().map(|(k, v)| (k.to_string(), *v))),
    }
}

/// Dotted names as nested maps, as far as a template names them.
#[derive(Default)]
struct Branch(
    BTreeMap<String, BTreeMap<String, Jinja>>,
    BTreeMap<String, Jinja>,
);

impl Branch {
    fn insert(&mut self, name: &str, value: Jinja) {
        match name.split_once('.') {
            Some((prefix, rest)) => {
                let branch = self.0.entry(prefix.to_owned()).or_default();
                branch.insert(rest.to_owned(), value);
            }
            None => drop(self.1.insert(name.to_owned(), value)),
        }
    }

    /// Makes `is defined` answer for a missing fact instead of failing on its prefix.
    fn prepare(&mut self, name: &str) {
        if let Some((prefix, _)) = name.split_once('.') {
            self.0.entry(prefix.to_owned()).or_default();
        }
    }

    fn into_value(self) -> Jinja {
        let Branch(prefixes, mut all) = self;
        for (prefix, branch) in prefixes {
            all.insert(prefix, Jinja::from_pairs(branch));
        }
        Jinja::from_pairs(all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::FactsByName;
    use super::*;
    use crate::facts::MemberKind;
    use std::collections::BTreeSet;

    #[test]
    fn sentences_of_built_in_rules_name_what_the_engine_asks_for() {
        let rules = crate::judge::RuleSet::builtin().unwrap();
        for rule in rules.rules() {
            for sentence in rule.advice().unwrap().sentences() {
                let template = MARKDOWN.template_from_str(&sentence.source).unwrap();
                let named = jinja::names(&jinja::tags(&sentence.source));
                let asked = jinja::names_by_the_engine(&template);
                assert_eq!(named, asked, "{}: {}", rule.id, sentence.source);
            }
        }
    }

    #[test]
    fn calls_and_endless_tags_are_refused_in_sentences() {
        let vocabulary = KnownNames {
            facts: &FactsByName::default(),
            kind: MemberKind::Site,
            params: &BTreeMap::new(),
            lets: &[],
            broken: &BTreeSet::new(),
            found: false,
        };
        for sentence in [
            "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}",
            "{% for x in [1] %}{{ loop['cycle']() }}{% endfor %}",
            "{{ '}}' ~ loop.changed(1) }}",
            "{% for x in [[1]] recursive %}{{ x }}{% endfor %}",
            "{% set x = 1 %}",
            &format!("{{{{ 1{} }}}}", "|round".repeat(40)),
            &format!("{{{{ {}1 }}}}", "- ".repeat(1_000)),
        ] {
            assert!(
                refused(sentence, &jinja::tags(sentence), &vocabulary).is_some(),
                "{sentence}"
            );
        }
        for sentence in [
            "{% for x in [1, 2] %}{{ loop.index }}{% endfor %}",
            "{{ 1 | round(2) }} {% if (1 + 2) is defined %}a (b){% endif %}",
        ] {
            assert!(
                refused(sentence, &jinja::tags(sentence), &vocabulary).is_none(),
                "{sentence}"
            );
        }
    }
}
