//! The forms of credentials in `forms.toml`: prefixes, alphabets and lengths that issuers document and that
//! rule sets for secret scanning publish.

use std::sync::{LazyLock, OnceLock};

use regex::bytes::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;
use serde::Deserialize;

/// Maximum number of bytes after the beginning of a credential that are compared with its form, so that the
/// search stays linear. The longest forms have 600.
const LOOKED_AT: usize = 1024;
/// What may be between a name and its value: more of the name, quotes, an operator, quotes.
const BETWEEN: &str =
    r#"[ \t\w.-]{0,20}[\s'"\\]{0,4}(?:=>|:{1,3}=|\|\||\?=|[=>:,])[`'"\s=\\]{0,6}"#;
/// What may follow a value.
const AFTER: &str = r#"(?:[`'"\s;,&)}\]<>|\\\x00]|$)"#;

/// The file of forms.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    start: Vec<Start>,
    named: Vec<Named>,
    left_out: Vec<UnusedForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    #[allow(dead_code, reason = "names the form in tests")]
    id: String,
    from: String,
    starts: Vec<String>,
    rest: String,
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    digit: bool,
    before: Option<Before>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    bytes: usize,
    form: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[allow(dead_code, reason = "names the form in tests")]
    id: String,
    from: String,
    words: Vec<String>,
    value: String,
}

/// A rule of a published set that is not searched for.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct UnusedForm {
    pub(super) id: String,
    #[serde(rename = "from")]
    pub(super) source: String,
    pub(super) because: String,
}

/// A credential that is recognized at one of its beginnings.
struct Form {
    start: Vec<u8>,
    /// For the name before a value: either case.
    ignores_case: bool,
    alone: bool,
    digit: bool,
    /// The number of bytes before the beginning that belong to it, and their form.
    before: Option<(usize, Expression)>,
    /// What follows the beginning. For a name, the first group is the credential.
    rest: Expression,
}

/// An expression that is compiled when it is first needed.
struct Expression {
    text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Expression {
    fn new(text: String) -> Expression {
        Expression {
            text,
            compiled: OnceLock::new(),
        }
    }

    fn get(&self) -> Option<&Regex> {
        let compile = || RegexBuilder::new(&self.text).unicode(false).build().ok();
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// All forms, by their first two bytes.
#[derive(Default)]
pub(super) struct Forms {
    /// The list has a mistake, so nothing is known: every text counts as a credential.
    unreadable: bool,
    forms: Vec<Form>,
    by_pair: FxHashMap<[u8; 2], Vec<usize>>,
    /// The number of forms by source.
    pub(super) sources: Vec<(String, usize)>,
    pub(super) left_out: Vec<UnusedForm>,
}

static FORMS: LazyLock<Forms> = LazyLock::new(|| Forms::of(include_str!("forms.toml")));

/// All forms that are known.
pub(super) fn known() -> &'static Forms {
    &FORMS
}

impl Forms {
    /// The forms of a file. Without any, secrets would stay in copies unnoticed, so a file with a mistake
    /// hides everything.
    fn of(file: &str) -> Forms {
        let Ok(listed) = toml::from_str::<Listed>(file) else {
            return Forms {
                unreadable: true,
                ..Forms::default()
            };
        };
        let mut forms = Vec::new();
        let mut sources: Vec<(String, usize)> = Vec::new();
        let mut count = |from: &str| match sources.iter_mut().find(|(source, _)| source == from) {
            Some((_, times)) => *times += 1,
            None => sources.push((from.to_owned(), 1)),
        };
        for entry in &listed.start {
            count(&entry.from);
            for start in &entry.starts {
                let before = entry.before.as_ref();
                forms.push(Form {
                    start: start.clone().into_bytes(),
                    ignores_case: false,
                    alone: entry.alone,
                    digit: entry.digit,
                    before: before.map(|b| (b.bytes, Expression::new(format!("^(?:{})$", b.form)))),
                    rest: Expression::new(format!("^(?:{})", entry.rest)),
                });
            }
        }
        for entry in &listed.named {
            count(&entry.from);
            for word in &entry.words {
                forms.push(Form {
                    start: word.to_ascii_lowercase().into_bytes(),
                    ignores_case: true,
                    alone: false,
                    digit: false,
                    before: None,
                    rest: Expression::new(format!("^(?i:{BETWEEN}({}){AFTER})", entry.value)),
                });
            }
        }
        let mut by_pair: FxHashMap<[u8; 2], Vec<usize>> = FxHashMap::default();
        for (at, form) in forms.iter().enumerate() {
            for pair in form.pairs() {
                by_pair.entry(pair).or_default().push(at);
            }
        }
        Forms {
            unreadable: false,
            forms,
            by_pair,
            sources,
            left_out: listed.left_out,
        }
    }

    /// Whether a name contains a word that gives its value away.
    pub(super) fn names(&self, name: &str) -> bool {
        let small = name.to_ascii_lowercase();
        let mut words = self.forms.iter().filter(|form| form.ignores_case);
        self.unreadable
            || words.any(|form| memchr::memmem::find(small.as_bytes(), &form.start).is_some())
    }

    /// The first two bytes of all forms.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [u8; 2]> {
        let all = self.unreadable.then_some(u16::MIN..=u16::MAX);
        let all = all.into_iter().flatten().map(u16::to_be_bytes);
        all.chain(self.by_pair.keys().copied())
    }

    /// The credential whose beginning is at `at`: its start and end.
    pub(super) fn at(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let pair = [*text.get(at)?, *text.get(at + 1)?];
        if self.unreadable {
            return Some((at, text.len()));
        }
        let forms = self.by_pair.get(&pair)?.iter();
        // Of several forms, as of an old and a new one of the same issuer, the longest counts.
        forms
            .filter_map(|form| self.forms.get(*form)?.at(text, at))
            .max_by_key(|(start, end)| end - start)
    }
}

impl Form {
    fn pairs(&self) -> Vec<[u8; 2]> {
        let [first, second, ..] = self.start.as_slice() else {
            return Vec::new();
        };
        let cases = |byte: u8| match self.ignores_case {
            true => vec![byte.to_ascii_lowercase(), byte.to_ascii_uppercase()],
            false => vec![byte],
        };
        let mut pairs: Vec<[u8; 2]> = cases(*first)
            .into_iter()
            .flat_map(|a| cases(*second).into_iter().map(move |b| [a, b]))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    fn at(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let from = at + self.start.len();
        let begins = text.get(at..from)?;
        let same = match self.ignores_case {
            true => begins.eq_ignore_ascii_case(&self.start),
            false => begins == self.start,
        };
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        if !same || (self.alone && text.get(..at)?.last().is_some_and(is_word)) {
            return None;
        }
        let start = match &self.before {
            None => at,
            Some((bytes, form)) => {
                let start = at.checked_sub(*bytes)?;
                let before = text.get(start..at)?;
                match form.get() {
                    Some(form) => form.find(before).map(|_| start)?,
                    None => start,
                }
            }
        };
        let rest = text.get(from..)?;
        let window = rest.get(..LOOKED_AT).unwrap_or(rest);
        let Some(rest) = self.rest.get() else {
            return Some((start, from + window.len()));
        };
        let found = rest.find(window)?;
        // Finding groups takes many times as long.
        if self.ignores_case {
            let value = rest.captures(window)?.get(1)?;
            return Some((from + value.start(), from + value.end()));
        }
        if self.digit && !found.as_bytes().iter().any(u8::is_ascii_digit) {
            return None;
        }
        let mut end = from + found.end();
        if found.end() == window.len() {
            let inside = |b: &&u8| is_word(b) || b"+/=.-".contains(b);
            let more = text.get(end..).unwrap_or_default();
            end += more.iter().take_while(inside).count();
        }
        Some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;

    /// An example of each form, with its name: the text around it, and the part that must go.
    fn examples() -> Vec<(String, String, String)> {
        let listed: Listed = toml::from_str(include_str!("forms.toml")).unwrap();
        let mut runner = TestRunner::deterministic();
        let mut example = |form: &str| -> String {
            let strategy = proptest::string::string_regex(form).unwrap();
            strategy.new_tree(&mut runner).unwrap().current()
        };
        let mut all = Vec::new();
        for entry in &listed.start {
            for start in &entry.starts {
                let before = entry.before.as_ref().map(|b| example(&b.form));
                let digit = if entry.digit { "7" } else { "" };
                let rest = example(&entry.rest) + digit;
                let secret = format!("{}{start}{rest}", before.unwrap_or_default());
                all.push((entry.id.clone(), format!("x {secret} y"), secret));
            }
        }
        for entry in &listed.named {
            for word in &entry.words {
                let value = example(&entry.value);
                for text in [
                    format!("{word}_key={value} y"),
                    format!("{{\"{}\": \"{value}\"}}", word.to_ascii_uppercase()),
                    format!("{word}: '{value}'"),
                ] {
                    all.push((entry.id.clone(), text, value.clone()));
                }
            }
        }
        all
    }

    #[test]
    fn every_form_is_found() {
        let forms = known();
        assert!(forms.forms.len() > 200);
        for form in &forms.forms {
            assert!(form.rest.get().is_some(), "{}", form.rest.text);
            if let Some((_, before)) = &form.before {
                assert!(before.get().is_some(), "{}", before.text);
            }
        }
        for (id, text, secret) in examples() {
            let bytes = text.as_bytes();
            let found = (0..bytes.len()).find_map(|at| forms.at(bytes, at));
            let (start, end) = found.unwrap_or_else(|| panic!("{id}: {text}"));
            let taken = &text[start..end];
            assert!(
                taken.contains(&secret) || secret.contains(taken),
                "{id}: {text}: {taken}"
            );
            // Of an exact length, what follows may look like more of it.
            assert!(taken.len() * 2 > secret.len(), "{id}: {text}: {taken}");
        }
    }

    #[test]
    fn a_list_or_a_form_with_a_mistake_hides_everything() {
        let text = b"an ordinary text";
        let broken = Forms::of("[[start]]\nid = 1");
        assert_eq!(broken.at(text, 3), Some((3, text.len())));
        assert_eq!(broken.pairs().count(), 1 << 16);
        assert!(broken.names("anything"));
        let entry = |rest: &str, before: &str| {
            let start = format!(
                "id = 'a'\nfrom = 'b'\nstarts = ['ordi']\nrest = '{rest}'\nbefore = {{ bytes = 3, form = '{before}' }}"
            );
            Forms::of(&format!("named = []\nleft_out = []\n[[start]]\n{start}"))
        };
        assert_eq!(entry("[a-z]{4}", "an ").at(text, 3), Some((0, 11)));
        assert_eq!(entry("[a-z]{4}", "no ").at(text, 3), None);
        assert_eq!(entry("[a-z", "an ").at(text, 3), Some((0, text.len())));
        assert_eq!(entry("[a-z]{4}", "[").at(text, 3), Some((0, 11)));
    }

    #[test]
    fn ordinary_names_have_no_such_form() {
        let forms = known();
        for text in [
            "hf_",
            "hf_transformers_modeling_llama_attention",
            "sk-learn",
            "AKIA",
            "npm_run",
            "eyJhbGciOiJIUzI1NiJ9",
            "task_test_performance_of_everything_here",
            "SK",
            "API-",
            "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>",
            "linear: (4096, 4096)",
            "nn.Module: Linear_12",
            "xray=resnet50",
            "wandb: Run 3 of 17",
            "triton_poi_fused__to_copy_add_mul_0d1d2d3de",
            "adobe = photoshop",
            "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8",
            "/tmp/cache/5f4b1dcbf2a7e8f3aa0d8b1b3c9e4f5a6b7c8d9e0f1a2b3c4d5e6f708192a3b4.cubin",
        ] {
            let bytes = text.as_bytes();
            let found = (0..bytes.len()).find_map(|at| forms.at(bytes, at));
            assert_eq!(found, None, "{text}");
        }
    }

    #[test]
    fn every_example_leaves_texts_traces_and_databases() {
        super::super::tests::all_leave(&examples());
    }
}
