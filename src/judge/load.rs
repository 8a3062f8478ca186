//! Reads rule files: TOML with spans first, then a checked [`Rule`], pushing every complaint.
//!
//! Built-in rules and a user's rules come through here alike.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::{self, Mistake, Vocabulary};
use super::expr::{Expr, FOUND, Let, Type, Uses};
use super::functions::FUNCTIONS;
use super::rule::{CATEGORIES, Case, Expect, Gather, Glob, PROFILE, Param, Rule, SURE, USER};
use super::template::{self, Template};
use super::{Confidence, SavingKind, Severity};
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::suggest::did_you_mean;
use crate::base::toml::{self, At, Table};
use crate::facts::{Fact, Over, Ty, Value};

/// A rule file that has been read but not looked at.
#[derive(Debug, Clone)]
pub struct RuleFile {
    /// `category/stem`.
    pub id: String,
    pub source: Arc<Source>,
    pub builtin: bool,
}

/// A key of a rule file.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    pub required: bool,
    pub doc: &'static str,
}

const fn key(name: &'static str, required: bool, doc: &'static str) -> Key {
    Key {
        name,
        required,
        doc,
    }
}

/// Every key of a rule file, in the order in which rules are written.
pub const KEYS: &[Key] = &[
    key("title", true, "one line that states the problem"),
    key(
        "severity",
        true,
        "`note`, `warning` or `error`: how bad; the saving says how much",
    ),
    key("confidence", true, "`low`, `medium` or `high`: how sure"),
    key(
        "over",
        true,
        "what is judged: `run`, `step`, `layer`, `site`, `chain`, `kernel`, `copy`, `gap` or `rank`",
    ),
    key("when", true, "the condition that picks members"),
    key(
        "gather",
        false,
        "make one finding per `run`, `layer` or `rank`; else members of one place are one finding",
    ),
    key(
        "enough",
        false,
        "condition on `found.NAME` that a finding must meet",
    ),
    key(
        "error_when",
        false,
        "condition under which the severity is `error`",
    ),
    key("saving_ns", false, "ns given back per member, upper end"),
    key(
        "saves",
        false,
        "`gpu`, `idle` or `copy`: which time, where `over` does not say",
    ),
    key(
        "changes",
        false,
        "what the advice changes; two values for one key on one site contradict",
    ),
    key(
        "supersedes",
        false,
        "vaguer rules this one silences on the same subject",
    ),
    key(
        "unless",
        false,
        "rules whose findings on the same subject make this one pointless",
    ),
    key(
        "vetoes",
        false,
        "rules that mean nothing where this holds (category `profile` only)",
    ),
    key(
        "scales",
        false,
        "rules whose savings are multiplied where this holds (category `profile` only)",
    ),
    key("message", true, "what is the matter, with its numbers"),
    key("why", true, "why it costs time"),
    key("fix", true, "what to do, with code"),
    key("references", false, "where to read on"),
    key(
        "params",
        false,
        "thresholds: `{ value = ..., doc = \"...\" }`, changed with `--set`",
    ),
    key("let", false, "named sub-expressions"),
    key(
        "test",
        true,
        "examples that prove the rule; at least one fires and one is silent",
    ),
];

const CASE_KEYS: [&str; 9] = [
    "name",
    "gpu",
    "facts",
    "params",
    "fires",
    "silent",
    "not_judged",
    "saving_ns",
    "severity",
];

const SEVERITIES: [(Severity, &str); 3] = [
    (Severity::Note, "note"),
    (Severity::Warning, "warning"),
    (Severity::Error, "error"),
];
const CONFIDENCES: [(Confidence, &str); 3] = [
    (Confidence::Low, "low"),
    (Confidence::Medium, "medium"),
    (Confidence::High, "high"),
];
const SAVINGS: [(SavingKind, &str); 3] = [
    (SavingKind::Gpu, "gpu"),
    (SavingKind::Idle, "idle"),
    (SavingKind::Copy, "copy"),
];

/// Folders below the given one that are looked into, and files taken.
const MAX_DEPTH: usize = 4;
const MAX_FILES: usize = 5_000;

/// The rule files of an embedded folder, as `(path below it, text)`.
pub fn embedded(entries: &[(&str, &str)]) -> Vec<RuleFile> {
    let file = |(path, text): &(&str, &str)| RuleFile {
        id: path.strip_suffix(".toml").unwrap_or(path).to_owned(),
        source: Source::new(format!("rules/{path}"), *text),
        builtin: true,
    };
    entries.iter().map(file).collect()
}

/// The rule files at a path: one file, or all of a folder and its category folders.
///
/// A single file is `user/<stem>`; in a folder, a file keeps its path: `category/stem`.
///
/// # Errors
/// What could not be read, or is named in a way that gives no id.
pub fn find(path: &Path) -> Result<Vec<RuleFile>, Complaints> {
    let complaints = Complaints::new();
    let mut files = Vec::new();
    if path.is_dir() {
        let mut paths = Vec::new();
        walk(path, MAX_DEPTH, &mut paths, &complaints);
        paths.sort();
        for file in &paths {
            let relative = file.strip_prefix(path).unwrap_or(file);
            take(file, relative, &mut files, &complaints);
        }
        if files.is_empty() && complaints.is_empty() {
            let name = path.display().to_string();
            complaints.push(Complaint::about_file(&name, "no rules in this folder", ""));
        }
    } else {
        let relative = path.file_name().map_or(path, Path::new);
        take(path, relative, &mut files, &complaints);
    }
    if complaints.has_errors() {
        Err(complaints)
    } else {
        Ok(files)
    }
}

fn walk(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>, complaints: &Complaints) {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let name = folder.display().to_string();
            let title = "this folder cannot be read";
            complaints.push(Complaint::about_file(&name, title, error.to_string()));
            return;
        }
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if paths.len() >= MAX_FILES {
            return;
        }
        if path.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, paths, complaints);
            }
        } else if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        }
    }
}

fn take(path: &Path, relative: &Path, files: &mut Vec<RuleFile>, complaints: &Complaints) {
    let name = path.display().to_string();
    match Source::read(path) {
        Err(complaint) => complaints.push(complaint),
        Ok(source) => match id_of(relative) {
            Ok(id) => files.push(RuleFile {
                id,
                source,
                builtin: false,
            }),
            Err(why) => {
                complaints.push(Complaint::about_file(
                    &name,
                    "this path gives no rule id",
                    why,
                ));
            }
        },
    }
}

/// The id a path relative to its rule folder stands for.
///
/// # Errors
/// Why it stands for none.
pub fn id_of(relative: &Path) -> Result<String, String> {
    let plain = relative.with_extension("");
    let parts: Option<Vec<&str>> = plain.iter().map(|part| part.to_str()).collect();
    let parts = parts.ok_or("it is not UTF-8")?;
    let id = match parts.as_slice() {
        [stem] => format!("{USER}/{stem}"),
        [category, stem] => format!("{category}/{stem}"),
        _ => return Err("rules lie in the folder or in one of its category folders".into()),
    };
    match check_id(&id) {
        Some(why) => Err(why),
        None => Ok(id),
    }
}

/// What is wrong with an id, if anything.
pub fn check_id(id: &str) -> Option<String> {
    let Some((category, stem)) = id.split_once('/') else {
        return Some("an id is `category/stem`".into());
    };
    let known = CATEGORIES.iter().map(|(name, _)| *name).chain([USER]);
    if !known.clone().any(|name| name == category) {
        let near = did_you_mean(category, known.clone());
        let all = known.collect::<Vec<_>>().join(", ");
        return Some(format!(
            "unknown category `{category}`{near} (known: {all})"
        ));
    }
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if stem.is_empty() || !stem.chars().all(good) {
        return Some(format!(
            "`{stem}`: a rule is named in lower-case letters, digits and `-`"
        ));
    }
    None
}

/// Reads one rule file; `None` after complaints.
pub(super) fn rule(file: &RuleFile, facts: &[Fact], complaints: &Complaints) -> Option<Rule> {
    let own = Complaints::new();
    let rule = Reader::new(file, facts, &own).and_then(Reader::read);
    let failed = own.has_errors();
    for complaint in own.sorted() {
        complaints.push(complaint);
    }
    rule.filter(|_| !failed)
}

struct Reader<'a> {
    file: &'a RuleFile,
    facts: &'a [Fact],
    complaints: &'a Complaints,
}

impl<'a> Reader<'a> {
    fn new(file: &'a RuleFile, facts: &'a [Fact], complaints: &'a Complaints) -> Option<Self> {
        if let Some(why) = check_id(&file.id) {
            let title = "this path gives no rule id";
            complaints.push(Complaint::about_file(&file.source.name, title, why));
            return None;
        }
        Some(Reader {
            file,
            facts,
            complaints,
        })
    }

    fn read(self) -> Option<Rule> {
        let document = toml::parse(&self.file.source, self.complaints);
        if self.complaints.has_errors() {
            return None;
        }
        let root = document.root();
        let names: Vec<&str> = KEYS.iter().map(|k| k.name).collect();
        root.finish(&names);
        let title = self.line(&root, "title");
        let severity = self.word(&root, "severity", &SEVERITIES, true);
        let confidence = self.word(&root, "confidence", &CONFIDENCES, true);
        let over = self.word(&root, "over", &Over::ALL, true);
        let params = self.params(&root);
        let references = self.references(&root);
        let relations = self.relations(&root);
        let changes = self.changes(&root);
        let gather = self.word(&root, "gather", &Gather::ALL, false);
        let saves = self.word(&root, "saves", &SAVINGS, false);
        // Nothing can be said of an expression without knowing what it is over.
        let over = over?;
        let types: BTreeMap<String, Type> = params
            .iter()
            .map(|(name, param)| (name.clone(), type_of(&param.value)))
            .collect();
        let words = self.words(&root, over, &types);
        let tests = self.cases(&root, over, &params);
        let (words, lets, broken) = words;
        if broken.is_empty() && !self.complaints.has_errors() {
            self.unused(&root, &words, &params, &lets);
        }
        let settings = params
            .iter()
            .map(|(n, p)| (n.clone(), p.value.clone()))
            .collect();
        Some(Rule {
            id: self.file.id.clone(),
            source: Arc::clone(&self.file.source),
            builtin: self.file.builtin,
            title: title?,
            severity: severity?,
            confidence: confidence?,
            over,
            when: words.when?,
            gather,
            enough: words.enough,
            error_when: words.error_when,
            saving_ns: words.saving_ns,
            saves,
            changes,
            supersedes: relations.supersedes,
            unless: relations.unless,
            vetoes: relations.vetoes,
            scales: relations.scales,
            message: words.message?,
            why: words.why?,
            fix: words.fix?,
            references,
            params,
            settings,
            lets,
            tests,
        })
    }

    /// A text that must be there and not be blank.
    fn text<'t>(&self, root: &Table<'t>, key: &str) -> Option<At<&'t str>> {
        let text = root.req_str(key)?;
        if text.value.trim().is_empty() {
            root.complain(text.span, format!("`{key}` is empty"), "");
            return None;
        }
        Some(text)
    }

    fn line(&self, root: &Table<'_>, key: &str) -> Option<String> {
        let text = self.text(root, key)?;
        let line = text.value.trim();
        if line.contains('\n') || line.chars().count() > 120 {
            let title = format!("`{key}` must be one line of at most 120 characters");
            root.complain(text.span, title, "");
            return None;
        }
        Some(line.to_owned())
    }

    /// One of a few words.
    fn word<T: Copy>(
        &self,
        table: &Table<'_>,
        key: &str,
        known: &[(T, &str)],
        required: bool,
    ) -> Option<T> {
        let word = if required {
            table.req_str(key)?
        } else {
            table.get_str(key)?
        };
        let found = known.iter().find(|(_, name)| *name == word.value);
        if found.is_none() {
            let near = did_you_mean(word.value, known.iter().map(|(_, name)| *name));
            let all: Vec<&str> = known.iter().map(|(_, name)| *name).collect();
            let title = format!("`{key}` cannot be `{}`{near}", word.value);
            table.complain(word.span, title, format!("one of {}", all.join(", ")));
        }
        found.map(|(value, _)| *value)
    }

    fn references(&self, root: &Table<'_>) -> Vec<String> {
        let list = root.get_str_list("references").unwrap_or_default();
        for link in &list {
            let good = link.value.starts_with("https://") || link.value.starts_with("http://");
            if !good || link.value.contains(char::is_whitespace) {
                root.complain(link.span.clone(), "a reference must be a web address", "");
            }
        }
        list.into_iter().map(|link| link.value.to_owned()).collect()
    }

    fn changes(&self, root: &Table<'_>) -> BTreeMap<String, String> {
        let Some(table) = root.get_table("changes") else {
            return BTreeMap::new();
        };
        let text = |key: &str| table.get_str(key).map(|v| v.value.to_owned());
        let keys = table.keys();
        let pairs = keys
            .iter()
            .filter_map(|k| Some((k.value.to_owned(), text(k.value)?)));
        pairs.collect()
    }

    fn relations(&self, root: &Table<'_>) -> Relations {
        let globs = |key: &str| -> Vec<Glob> {
            let list = root.get_str_list(key).unwrap_or_default();
            list.iter().map(|item| Glob::new(item.value)).collect()
        };
        let mut scales = Vec::new();
        if let Some(table) = root.get_table("scales") {
            for key in table.keys() {
                let Some(factor) = table.get_float(key.value) else {
                    continue;
                };
                if !(0.0..=1.0).contains(&factor.value) {
                    let title = "a saving is scaled by a factor from 0 to 1";
                    table.complain(factor.span, title, "");
                }
                scales.push((Glob::new(key.value), factor.value));
            }
        }
        let category = self.file.id.split('/').next().unwrap_or_default();
        for key in ["vetoes", "scales"] {
            if category != PROFILE
                && let Some(value) = root.get(key)
            {
                let title = format!("`{key}` is for rules of the category `{PROFILE}`");
                root.complain(value.span(), title, "they judge the capture and run first");
            }
        }
        Relations {
            supersedes: globs("supersedes"),
            unless: globs("unless"),
            vetoes: globs("vetoes"),
            scales,
        }
    }

    fn params(&self, root: &Table<'_>) -> BTreeMap<String, Param> {
        let mut params = BTreeMap::new();
        let Some(table) = root.get_table("params") else {
            return params;
        };
        for (key, entry) in table.entries() {
            if !is_name(key.value) {
                table.complain(key.span.clone(), "a param is named like `min_share`", "");
            }
            let Some(entry) = entry.table() else {
                continue;
            };
            entry.finish(&["value", "doc"]);
            let doc = entry.req_str("doc");
            if let Some(doc) = &doc
                && doc.value.trim().is_empty()
            {
                entry.complain(
                    doc.span.clone(),
                    "`doc` is empty",
                    "say what the threshold means",
                );
            }
            let Some(value) = entry.get("value") else {
                entry.complain(
                    entry.span(),
                    format!("`params.{}` has no `value`", key.value),
                    "",
                );
                continue;
            };
            let span = value.span();
            let Some(value) = free_value(&value) else {
                continue;
            };
            if key.value == SURE {
                let good = matches!(&value, Value::Double(d) if (0.0..=1.0).contains(d));
                if !good {
                    entry.complain(span, "`sure` must be a share from 0.0 to 1.0", "");
                }
            }
            let doc = doc.map(|d| d.value.trim().to_owned()).unwrap_or_default();
            params.insert(key.value.to_owned(), Param { value, doc });
        }
        params
    }

    /// Lets, conditions and sentences.
    fn words(
        &self,
        root: &Table<'_>,
        over: Over,
        params: &BTreeMap<String, Type>,
    ) -> (Words, Vec<Let>, BTreeSet<String>) {
        let (lets, broken) = self.lets(root, over, params);
        let early = Vocabulary {
            facts: self.facts,
            over,
            params,
            lets: &lets,
            broken: &broken,
            found: false,
        };
        let late = Vocabulary {
            found: true,
            ..early
        };
        let early = Vocabulary {
            found: false,
            ..late
        };
        let sentence = |key: &str| {
            let text = self.text(root, key)?;
            match template::compile(text.value, &late) {
                Ok(template) => Some(template),
                Err(mistakes) => {
                    self.mistakes(root, &text.span, mistakes);
                    None
                }
            }
        };
        let words = Words {
            when: self.condition(root, "when", &early, true),
            enough: self.condition(root, "enough", &late, false),
            error_when: self.condition(root, "error_when", &late, false),
            saving_ns: self.saving(root, &early),
            message: sentence("message"),
            why: sentence("why"),
            fix: sentence("fix"),
        };
        (words, lets, broken)
    }

    fn expression(
        &self,
        root: &Table<'_>,
        text: &At<&str>,
        vocabulary: &Vocabulary<'_>,
    ) -> Option<Expr> {
        let expr = match check::compile(text.value, vocabulary) {
            Ok(expr) => expr,
            Err(mistakes) => {
                self.mistakes(root, &text.span, mistakes);
                return None;
            }
        };
        if !vocabulary.found && expr.uses.closure(vocabulary.lets).found {
            let title = "a let used here needs `found`, which does not exist yet";
            root.complain(
                text.span.clone(),
                title,
                "`found` is what `when` has picked",
            );
            return None;
        }
        Some(expr)
    }

    fn condition(
        &self,
        root: &Table<'_>,
        key: &str,
        vocabulary: &Vocabulary<'_>,
        required: bool,
    ) -> Option<Expr> {
        let text = if required {
            root.req_str(key)?
        } else {
            root.get_str(key)?
        };
        let expr = self.expression(root, &text, vocabulary)?;
        if expr.ty != Type::BOOL {
            let title = format!(
                "`{key}` must be true or false, this is {}",
                expr.ty.phrase()
            );
            root.complain(text.span, title, "");
            return None;
        }
        Some(expr)
    }

    fn saving(&self, root: &Table<'_>, vocabulary: &Vocabulary<'_>) -> Option<Expr> {
        let text = root.get_str("saving_ns")?;
        let expr = self.expression(root, &text, vocabulary)?;
        if !expr.ty.is_number() {
            let title = format!("`saving_ns` must be a number, this is {}", expr.ty.phrase());
            root.complain(text.span, title, "");
            return None;
        }
        Some(expr)
    }

    fn mistakes(&self, root: &Table<'_>, text: &Range<usize>, mistakes: Vec<Mistake>) {
        // A mistake without words repeats a complaint made elsewhere.
        for mistake in mistakes.into_iter().filter(|m| !m.title.is_empty()) {
            let at = toml::span_in_string(&self.file.source, text, mistake.at);
            root.complain(at, mistake.title, mistake.label);
        }
    }

    /// The lets in an order in which each uses only those before it, and the names of the wrong.
    fn lets(
        &self,
        root: &Table<'_>,
        over: Over,
        params: &BTreeMap<String, Type>,
    ) -> (Vec<Let>, BTreeSet<String>) {
        let mut lets: Vec<Let> = Vec::new();
        let mut broken = BTreeSet::new();
        let Some(table) = root.get_table("let") else {
            return (lets, broken);
        };
        let mut open: Vec<(At<&str>, At<&str>)> = Vec::new();
        for (name, value) in table.entries() {
            if let Some(why) = bad_let_name(name.value) {
                table.complain(name.span.clone(), why, "");
                broken.insert(name.value.to_owned());
            } else if let Some(text) = value.str() {
                open.push((name, text));
            } else {
                broken.insert(name.value.to_owned());
            }
        }
        while !open.is_empty() {
            let names: Vec<&str> = open.iter().map(|(name, _)| name.value).collect();
            let ready = open.iter().position(|(_, text)| {
                let used = bare_names(text.value);
                !names.iter().any(|name| used.contains(name))
            });
            let Some(ready) = ready else {
                for (name, _) in &open {
                    let title = format!("`{}` goes round in a circle", name.value);
                    let label = format!("among {}", names.join(", "));
                    table.complain(name.span.clone(), title, label);
                    broken.insert(name.value.to_owned());
                }
                break;
            };
            let (name, text) = open.remove(ready);
            let vocabulary = Vocabulary {
                facts: self.facts,
                over,
                params,
                lets: &lets,
                broken: &broken,
                found: true,
            };
            let expr = self.expression(&table, &text, &vocabulary).filter(|expr| {
                let good = expr.ty.keepable();
                if !good {
                    let title = format!("a let cannot be {}", expr.ty.phrase());
                    table.complain(text.span.clone(), title, "");
                }
                good
            });
            match expr {
                Some(expr) => lets.push(Let {
                    name: name.value.to_owned(),
                    expr,
                }),
                None => drop(broken.insert(name.value.to_owned())),
            }
        }
        (lets, broken)
    }

    fn unused(
        &self,
        root: &Table<'_>,
        words: &Words,
        params: &BTreeMap<String, Param>,
        lets: &[Let],
    ) {
        let mut uses = Uses::default();
        let conditions = [
            &words.when,
            &words.enough,
            &words.error_when,
            &words.saving_ns,
        ];
        for expr in conditions.into_iter().flatten() {
            uses.extend(&expr.uses);
        }
        for sentence in [&words.message, &words.why, &words.fix]
            .into_iter()
            .flatten()
        {
            uses.extend(&sentence.uses());
        }
        let uses = uses.closure(lets);
        let span = |table: &str, name: &str| {
            let table = root.get_table(table)?;
            table
                .keys()
                .into_iter()
                .find(|k| k.value == name)
                .map(|k| k.span)
        };
        for name in params.keys() {
            if name != SURE && !uses.params.contains(name) {
                let at = span("params", name).unwrap_or_default();
                root.complain(at, format!("the param `{name}` is never used"), "");
            }
        }
        for (index, named) in lets.iter().enumerate() {
            if !uses.lets.contains(&index) {
                let at = span("let", &named.name).unwrap_or_default();
                root.complain(at, format!("the let `{}` is never used", named.name), "");
            }
        }
    }

    fn cases(&self, root: &Table<'_>, over: Over, params: &BTreeMap<String, Param>) -> Vec<Case> {
        let tables = root.get_table_list("test");
        let mut cases = Vec::new();
        let mut names = BTreeSet::new();
        for table in &tables {
            if let Some(case) = self.case(table, over, params) {
                if !names.insert(case.name.clone()) {
                    let title = format!("two tests are named `{}`", case.name);
                    table.complain(table.span(), title, "");
                }
                cases.push(case);
            }
        }
        // Counted by key, so that a test that is wrong otherwise is not also called missing.
        let fires = tables.iter().any(|t| t.has("fires"));
        let silent = tables.iter().any(|t| t.has("silent"));
        for (there, what) in [(fires, "fires"), (silent, "is silent")] {
            if !there {
                let title = format!("no test in which the rule {what}");
                let complaint = Complaint::error(&self.file.source, 0..0, title, "")
                    .with_help("examples are a rule's tests: `rules new` writes the first ones");
                root.push(complaint);
            }
        }
        cases
    }

    fn case(
        &self,
        table: &Table<'_>,
        over: Over,
        params: &BTreeMap<String, Param>,
    ) -> Option<Case> {
        table.finish(&CASE_KEYS);
        let name = self.text(table, "name").map(|n| n.value.to_owned());
        let facts = match table.get_table("facts") {
            Some(facts) => self.case_facts(&facts, over),
            None => BTreeMap::new(),
        };
        Some(Case {
            name: name?,
            gpu: table.get_str("gpu").map(|g| g.value.to_owned()),
            facts,
            params: self.case_params(table, params),
            expect: self.expect(table)?,
            saving_ns: table.get_float("saving_ns").map(|s| s.value),
            severity: self.word(table, "severity", &SEVERITIES, false),
        })
    }

    fn expect(&self, table: &Table<'_>) -> Option<Expect> {
        let given = ["fires", "silent", "not_judged"].map(|key| table.has(key));
        if given.iter().filter(|g| **g).count() != 1 {
            let title = "a test says exactly one of `fires`, `silent` and `not_judged`";
            table.complain(table.span(), title, "");
            return None;
        }
        if let Some(fires) = table.get_str("fires") {
            return Some(Expect::Fires(fires.value.trim().to_owned()));
        }
        if let Some(silent) = table.get_bool("silent") {
            if !silent.value {
                table.complain(
                    silent.span,
                    "`silent` can only be true",
                    "write `fires` instead",
                );
                return None;
            }
            return Some(Expect::Silent);
        }
        let missing = table.get_str_list("not_judged")?;
        for name in &missing {
            let found = FOUND.iter().any(|(n, ..)| *n == name.value);
            if !found && !self.facts.iter().any(|f| f.name == name.value) {
                let near = did_you_mean(name.value, self.facts.iter().map(|f| f.name));
                let title = format!("unknown fact `{}`{near}", name.value);
                table.complain(name.span.clone(), title, "");
            }
        }
        let mut names: Vec<String> = missing.iter().map(|n| n.value.to_owned()).collect();
        names.sort();
        names.dedup();
        Some(Expect::NotJudged(names))
    }

    fn case_facts(&self, table: &Table<'_>, over: Over) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::new();
        for (key, value) in table.entries() {
            // `site.m = 1` without quotes is a table `site` to TOML.
            if !key.value.contains('.')
                && let Some(inner) = matches!(value.kind(), "a table")
                    .then(|| value.table())
                    .flatten()
            {
                for (rest, value) in inner.entries() {
                    let name = format!("{}.{}", key.value, rest.value);
                    self.case_fact(table, over, &name, &rest.span, &value, &mut facts);
                }
                continue;
            }
            self.case_fact(table, over, key.value, &key.span, &value, &mut facts);
        }
        facts
    }

    fn case_fact(
        &self,
        table: &Table<'_>,
        over: Over,
        name: &str,
        span: &Range<usize>,
        value: &toml::Value<'_>,
        facts: &mut BTreeMap<String, Value>,
    ) {
        let vocabulary = Vocabulary {
            facts: self.facts,
            over,
            params: &BTreeMap::new(),
            lets: &[],
            broken: &BTreeSet::new(),
            found: true,
        };
        let prefix = name.split('.').next().unwrap_or_default();
        let ty = match vocabulary.find(name) {
            Ok((_, ty)) if name.contains('.') && prefix != "params" => ty,
            Err(check::NoName::Unknown(why)) if name.contains('.') => {
                table.complain(span.clone(), why, "");
                return;
            }
            _ => {
                table.complain(span.clone(), format!("`{name}` is not a fact"), "");
                return;
            }
        };
        if let Some(value) = typed_value(value, ty) {
            facts.insert(name.to_owned(), value);
        }
    }

    fn case_params(
        &self,
        table: &Table<'_>,
        params: &BTreeMap<String, Param>,
    ) -> BTreeMap<String, Value> {
        let mut set = BTreeMap::new();
        let Some(table) = table.get_table("params") else {
            return set;
        };
        for (key, value) in table.entries() {
            match params.get(key.value) {
                Some(param) => {
                    if let Some(value) = typed_value(&value, type_of(&param.value)) {
                        set.insert(key.value.to_owned(), value);
                    }
                }
                None => {
                    let near = did_you_mean(key.value, params.keys().map(String::as_str));
                    let title = format!("unknown param `{}`{near}", key.value);
                    table.complain(key.span.clone(), title, "");
                }
            }
        }
        set
    }
}

struct Relations {
    supersedes: Vec<Glob>,
    unless: Vec<Glob>,
    vetoes: Vec<Glob>,
    scales: Vec<(Glob, f64)>,
}

struct Words {
    when: Option<Expr>,
    enough: Option<Expr>,
    error_when: Option<Expr>,
    saving_ns: Option<Expr>,
    message: Option<Template>,
    why: Option<Template>,
    fix: Option<Template>,
}

/// The type of a param's value.
pub(super) fn type_of(value: &Value) -> Type {
    Type::of(match value {
        Value::Bool(_) => Ty::Bool,
        Value::Int(_) => Ty::Int,
        Value::Double(_) => Ty::Double,
        Value::Str(_) => Ty::Str,
        Value::Strings(_) => Ty::Strings,
        Value::Doubles(_) => Ty::Doubles,
        Value::Ints(_) => Ty::Ints,
    })
}

/// A value whose type is what TOML says it is.
fn free_value(value: &toml::Value<'_>) -> Option<Value> {
    match value.kind() {
        "a string" => typed_value(value, Type::STR),
        "an integer" => typed_value(value, Type::INT),
        "a float" => typed_value(value, Type::DOUBLE),
        "a boolean" => typed_value(value, Type::BOOL),
        "a list" => typed_value(value, Type::of(Ty::Strings)),
        _ => value.wrong_type("a number, a string, a boolean or a list of strings"),
    }
}

/// A value that must be of a type; an integer may stand for a double.
fn typed_value(value: &toml::Value<'_>, ty: Type) -> Option<Value> {
    use super::expr::Scalar;
    match ty {
        Type::One(Scalar::Bool) => value.bool().map(|v| Value::Bool(v.value)),
        Type::One(Scalar::Int) => value.int().map(|v| Value::Int(v.value)),
        Type::One(Scalar::Double) => value.float().map(|v| Value::Double(v.value)),
        Type::One(Scalar::Str) => value.str().map(|v| Value::Str(v.value.into())),
        Type::List(_) => {
            let list = value.str_list()?;
            Some(Value::Strings(
                list.iter().map(|v| v.value.into()).collect(),
            ))
        }
        Type::Map(Scalar::Int) => {
            let entries = value.table()?.entries();
            let pairs = entries
                .iter()
                .map(|(k, v)| Some((k.value.into(), v.int()?.value)));
            pairs
                .collect::<Option<_>>()
                .map(|map| Value::Ints(Arc::new(map)))
        }
        Type::Map(_) => {
            let entries = value.table()?.entries();
            let pairs = entries
                .iter()
                .map(|(k, v)| Some((k.value.into(), v.float()?.value)));
            pairs
                .collect::<Option<_>>()
                .map(|map| Value::Doubles(Arc::new(map)))
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn bad_let_name(name: &str) -> Option<String> {
    // Words of CEL, and words sentences give a meaning to.
    const RESERVED: [&str; 26] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
        "has",
        "double",
        "int",
        "size",
        "string",
    ];
    if !is_name(name) {
        return Some("a let is named like `padded_n`".into());
    }
    let taken = RESERVED.contains(&name)
        || ["params", "found", "gpu"].contains(&name)
        || Over::parse(name).is_some()
        || FUNCTIONS.iter().any(|f| f.name == name);
    taken.then(|| format!("`{name}` already means something else"))
}

/// The names in an expression that stand neither after a dot nor in quotes.
fn bare_names(text: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut quote: Option<char> = None;
    let mut start: Option<usize> = None;
    let mut after_dot = false;
    let mut escaped = false;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if let Some(q) = quote {
            if !escaped && c == q {
                quote = None;
            }
            escaped = c == '\\' && !escaped;
            continue;
        }
        if c.is_ascii_alphanumeric() || c == '_' {
            start.get_or_insert(at);
            continue;
        }
        if let Some(from) = start.take()
            && !after_dot
        {
            names.insert(text.get(from..at).unwrap_or_default());
        }
        if !c.is_whitespace() {
            after_dot = c == '.';
        } else if at > 0 && !text.get(..at).is_some_and(|t| t.trim_end().ends_with('.')) {
            after_dot = false;
        }
        if c == '"' || c == '\'' {
            quote = Some(c);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_those_lets_could_be() {
        let names = bare_names("ceil_to(site.n, align) + x1 - \"y.z\".size() + gpu . z");
        assert_eq!(
            names.into_iter().collect::<Vec<_>>(),
            ["align", "ceil_to", "gpu", "site", "x1"]
        );
    }

    #[test]
    fn paths_give_ids() {
        assert_eq!(id_of(Path::new("mine.toml")).unwrap(), "user/mine");
        assert_eq!(id_of(Path::new("host/sync.toml")).unwrap(), "host/sync");
        for bad in [
            "hsot/sync.toml",
            "a/b/c.toml",
            "host/Sync.toml",
            "host/a b.toml",
        ] {
            assert!(id_of(Path::new(bad)).is_err(), "{bad}");
        }
        assert!(
            id_of(Path::new("hots/x.toml"))
                .unwrap_err()
                .contains("did you mean `host`")
        );
    }
}
