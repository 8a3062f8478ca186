//! Reads one rule file into a checked [`Rule`], pushing every complaint.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

use ::toml::de::DeValue;

use super::advice::{Advice, Fix};
use super::check::{self, FactsByName, KnownNames, Mistake};
use super::edit::{self, RuleEdit};
use super::expr::{Expr, Let, Type};
use super::finding::{Confidence, SavingKind, Severity};
use super::keys::KEYS;
use super::load::{RuleFile, check_id};
use super::rule::{GroupBy, MIN_FRACTION, PROFILE, Param, Rule};
use super::template::{self, Template};
use super::test_cases::{CaseReader, free_value};
use crate::base::cel::FUNCTIONS;
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::glob::Glob;
use crate::base::toml::{self, At, Table};
use crate::facts::{self, MemberKind, Value};

/// Reads one rule file; `None` after complaints.
pub(super) fn rule(
    file: &RuleFile,
    facts: &FactsByName<'_>,
    complaints: &Complaints,
) -> Option<Rule> {
    let own = Complaints::new();
    let reader = RuleReader {
        source: file.decision.as_ref().unwrap_or(&file.source),
        tested: file.decision.is_some(),
        facts,
        complaints: &own,
    };
    let rule = reader.read(file);
    let failed = !own.is_empty();
    for complaint in own.sorted() {
        complaints.push(complaint);
    }
    rule.filter(|_| !failed)
}

impl Rule {
    /// What the rule says once it fires. Most rules do not fire on a profile, so that for an analysis the advice
    /// of a built-in rule is read when a finding first asks for it.
    ///
    /// # Errors
    /// What is wrong with the file of a built-in rule; tests see to it that nothing is.
    pub fn advice(&self) -> Result<&Advice, &str> {
        let advice = self.advice.get_or_init(|| advice(self));
        advice.as_ref().map_err(String::as_str)
    }
}

/// Reads the advice of a built-in rule.
fn advice(rule: &Rule) -> Result<Advice, String> {
    static FACTS: LazyLock<FactsByName<'static>> = LazyLock::new(|| FactsByName::new(facts::all()));
    let complaints = Complaints::new();
    let document = toml::parse(&rule.source, &complaints);
    let reader = RuleReader {
        source: &rule.source,
        tested: true,
        facts: &FACTS,
        complaints: &complaints,
    };
    let vocabulary = KnownNames {
        facts: &FACTS,
        kind: rule.for_each,
        params: &types(&rule.params),
        lets: &rule.lets,
        broken: &BTreeSet::new(),
        found: true,
    };
    let advice = reader.advice(&document.root(), &vocabulary);
    let advice = advice.filter(|_| complaints.is_empty());
    advice.ok_or_else(|| complaints.summary())
}

fn types(params: &BTreeMap<String, Param>) -> BTreeMap<String, Type> {
    let types = params.iter();
    types
        .map(|(name, param)| (name.clone(), Type::of(&param.value)))
        .collect()
}

struct RuleReader<'a> {
    source: &'a Arc<Source>,
    /// Whether tests of this crate have checked the file: keys and values are not checked again, unused names are
    /// not looked for, edits are not tried, and the template engine does not parse the sentences.
    tested: bool,
    facts: &'a FactsByName<'a>,
    complaints: &'a Complaints,
}

impl RuleReader<'_> {
    fn read(self, file: &RuleFile) -> Option<Rule> {
        let document = toml::parse(self.source, self.complaints);
        let unreadable = !self.complaints.is_empty();
        if let Some(why) = check_id(&file.id) {
            let title = "this path gives no rule id";
            let complaint = Complaint::about_file(&self.source.name, title, why);
            self.complaints.push(complaint);
        }
        if unreadable {
            return None;
        }
        let root = document.root();
        if !self.tested {
            root.check(KEYS, &[]);
        }
        let title = root.get_str("title");
        let severity = root.get_word("severity", &Severity::ALL);
        let confidence = root.get_word("confidence", &Confidence::ALL);
        let params = self.params(&root);
        let changes = self.changes(&root);
        self.check_vetoes(&root, &file.id);
        // Nothing can be said of an expression without knowing what it is over.
        let for_each = root.get_word("for_each", &MemberKind::ALL)?;
        let types = types(&params);
        let (lets, broken) = self.lets(&root, for_each, &types);
        let early = KnownNames {
            facts: self.facts,
            kind: for_each,
            params: &types,
            lets: &lets,
            broken: &broken,
            found: false,
        };
        let late = KnownNames {
            found: true,
            ..early
        };
        let when = self.condition(&root, "when", &early);
        let require = self.condition(&root, "require", &late);
        let error_when = self.condition(&root, "error_when", &late);
        let minor_when = self.condition(&root, "minor_when", &late);
        let saving_ns = self.number(&root, "saving_ns", &early);
        let saving_low_ns = self.saving_low(&root, &early);
        let outside_ns = self.number(&root, "outside_ns", &early);
        let launches_removed = self.number(&root, "launches_removed", &early);
        let adds_launches = self.condition(&root, "adds_launches", &early);
        let advice = match self.tested {
            true => Some(OnceLock::new()),
            false => self.advice(&root, &late).map(|advice| Ok(advice).into()),
        };
        let tests = match self.tested {
            true => Vec::new(),
            false => CaseReader {
                facts: self.facts,
                kind: for_each,
                params: &params,
            }
            .cases(&root),
        };
        let all_known = broken.is_empty();
        let settings = params
            .iter()
            .map(|(n, p)| (n.clone(), p.value.clone()))
            .collect();
        let rule = Rule {
            id: file.id.clone(),
            source: Arc::clone(&file.source),
            builtin: file.builtin,
            title: title?.value.trim().to_owned(),
            severity: severity?,
            confidence: confidence?,
            for_each,
            when: when?,
            group_by: root.get_word("group_by", &GroupBy::ALL),
            require,
            error_when,
            minor_when,
            saving_ns,
            saving_low_ns,
            outside_ns,
            launches_removed,
            adds_launches,
            replaces_work: root.get_flag("replaces_work"),
            removes_work: root.get_flag("removes_work"),
            saving_kind: root.get_word("saving_kind", &SavingKind::ALL),
            changes,
            supersedes: globs(&root, "supersedes"),
            unless: globs(&root, "unless"),
            also_fixes: globs(&root, "also_fixes"),
            vetoes: globs(&root, "vetoes"),
            lowers_confidence: globs(&root, "lowers_confidence"),
            advice: advice?,
            params,
            settings,
            lets,
            tests,
        };
        if all_known
            && self.complaints.is_empty()
            && let Some(Ok(advice)) = rule.advice.get()
        {
            self.unused(&root, &rule, advice);
        }
        Some(rule)
    }

    fn advice(&self, root: &Table<'_>, vocabulary: &KnownNames<'_>) -> Option<Advice> {
        let message = self.sentence(root, "message", vocabulary);
        let why = self.sentence(root, "why", vocabulary);
        let fixes = self.fixes(root, vocabulary);
        let edits = self.edits(root, vocabulary);
        Some(Advice {
            message: message?,
            why: why?,
            fixes: fixes?,
            edits,
            references: root.get_texts("references"),
        })
    }

    fn changes(&self, root: &Table<'_>) -> BTreeMap<String, String> {
        let entries = root.get_table("changes").map(|table| table.entries());
        let pairs = entries
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.value.to_owned(), value.str()?.value.to_owned())));
        pairs.collect()
    }

    fn check_vetoes(&self, root: &Table<'_>, id: &str) {
        let category = id.split('/').next().unwrap_or_default();
        for key in ["vetoes", "lowers_confidence"] {
            if category != PROFILE
                && let Some(value) = root.get(key)
            {
                let title = format!("`{key}` is for rules of the category `{PROFILE}`");
                root.complain(value.span(), title, "they judge the capture and run first");
            }
        }
    }

    fn params(&self, root: &Table<'_>) -> BTreeMap<String, Param> {
        let mut params = BTreeMap::new();
        let Some(table) = root.get_table("params") else {
            return params;
        };
        for (key, entry) in table.entries() {
            let Some(entry) = entry.table() else {
                continue;
            };
            let Some(value) = entry.get("value") else {
                continue;
            };
            let span = value.span();
            let Some(value) = free_value(&value) else {
                continue;
            };
            let fraction = |d: &f64| (0.0..=1.0).contains(d);
            if key.value == MIN_FRACTION && !matches!(&value, Value::Double(d) if fraction(d)) {
                let title = "`min_fraction` must be a fraction from 0.0 to 1.0";
                entry.complain(span, title, "");
            }
            let doc = entry
                .get_str("doc")
                .map_or("", |doc| doc.value.trim())
                .to_owned();
            params.insert(key.value.to_owned(), Param { value, doc });
        }
        params
    }

    fn expression(
        &self,
        root: &Table<'_>,
        text: &At<&str>,
        vocabulary: &KnownNames<'_>,
    ) -> Option<Expr> {
        let expr = check::compile(text.value, vocabulary)
            .map_err(|mistakes| self.mistakes(root, &text.span, mistakes))
            .ok()?;
        if !vocabulary.found && expr.uses.closure(vocabulary.lets).found {
            let title = "a let used here needs `found`, which does not exist yet";
            root.complain(
                text.span.clone(),
                title,
                "`found` is what `when` has matched",
            );
            return None;
        }
        Some(expr)
    }

    fn condition(&self, root: &Table<'_>, key: &str, vocabulary: &KnownNames<'_>) -> Option<Expr> {
        let is_bool = |ty: Type| ty == Type::BOOL;
        self.value(root, key, vocabulary, is_bool, "true or false")
    }

    fn number(&self, root: &Table<'_>, key: &str, vocabulary: &KnownNames<'_>) -> Option<Expr> {
        self.value(root, key, vocabulary, Type::is_number, "a number")
    }

    /// An expression of a type that fits, which is called `what`.
    fn value(
        &self,
        root: &Table<'_>,
        key: &str,
        vocabulary: &KnownNames<'_>,
        fits: fn(Type) -> bool,
        what: &str,
    ) -> Option<Expr> {
        let text = root.get_str(key)?;
        let expr = self.expression(root, &text, vocabulary)?;
        if !fits(expr.ty) {
            let title = format!("`{key}` must be {what}, this is {}", expr.ty.phrase());
            root.complain(text.span, title, "");
            return None;
        }
        Some(expr)
    }

    fn sentence(
        &self,
        table: &Table<'_>,
        key: &str,
        vocabulary: &KnownNames<'_>,
    ) -> Option<Template> {
        let text = table.get_str(key)?;
        let read = match self.tested {
            true => template::read,
            false => template::compile,
        };
        read(text.value, vocabulary)
            .map_err(|mistakes| self.mistakes(table, &text.span, mistakes))
            .ok()
    }

    /// The fix: a string, or tables of which all but the last have a condition.
    fn fixes(&self, root: &Table<'_>, vocabulary: &KnownNames<'_>) -> Option<Vec<Fix>> {
        let value = root.get("fix")?;
        if matches!(value.raw(), DeValue::String(_)) {
            let text = self.sentence(root, "fix", vocabulary)?;
            return Some(vec![Fix {
                when: None,
                also_fixes: Vec::new(),
                text,
            }]);
        }
        let tables = value.table_list()?;
        if tables.is_empty() {
            return value.wrong("`fix` is empty", "");
        }
        let mut fixes = Vec::new();
        for (index, table) in tables.iter().enumerate() {
            let conditional = table.has("when");
            if !conditional && index + 1 < tables.len() {
                let title = "only the last `[[fix]]` may lack `when`";
                table.complain(table.span(), title, "those after it would never be chosen");
            }
            let when = self.condition(table, "when", vocabulary);
            let text = self.sentence(table, "text", vocabulary);
            if let Some(text) = text
                && conditional == when.is_some()
            {
                fixes.push(Fix {
                    when,
                    also_fixes: globs(table, "also_fixes"),
                    text,
                });
            }
        }
        Some(fixes)
    }

    fn edits(&self, root: &Table<'_>, vocabulary: &KnownNames<'_>) -> Vec<RuleEdit> {
        let tables = root.get_table_list("edit");
        let edits = tables.iter().filter_map(|table| {
            let when = self.condition(table, "when", vocabulary);
            let edit = edit::read(table, !self.tested)?;
            Some(RuleEdit { when, edit })
        });
        edits.collect()
    }

    fn saving_low(&self, root: &Table<'_>, vocabulary: &KnownNames<'_>) -> Option<Expr> {
        let text = root.get_str("saving_low_ns")?;
        if !root.has("saving_ns") {
            let title = "`saving_low_ns` needs `saving_ns`, the upper end";
            root.complain(text.span, title, "");
            return None;
        }
        self.number(root, "saving_low_ns", vocabulary)
    }

    fn mistakes(&self, root: &Table<'_>, text: &Range<usize>, mistakes: Vec<Mistake>) {
        // A mistake without words repeats a complaint made elsewhere.
        for mistake in mistakes.into_iter().filter(|m| !m.title.is_empty()) {
            let at = toml::span_in_string(self.source, text, mistake.at);
            root.complain(at, mistake.title, mistake.label);
        }
    }

    /// The lets in an order in which each uses only those before it, and the names of the wrong.
    fn lets(
        &self,
        root: &Table<'_>,
        kind: MemberKind,
        params: &BTreeMap<String, Type>,
    ) -> (Vec<Let>, BTreeSet<String>) {
        let mut lets: Vec<Let> = Vec::new();
        let mut broken = BTreeSet::new();
        let Some(table) = root.get_table("let") else {
            return (lets, broken);
        };
        let mut open: Vec<(At<&str>, At<&str>, BTreeSet<&str>)> = Vec::new();
        for name in table.keys() {
            let text = table.get_str(name.value);
            if let Some(why) = bad_let_name(name.value) {
                table.complain(name.span, why, "");
                broken.insert(name.value.to_owned());
            } else if let Some(text) = text {
                let used = bare_names(text.value);
                open.push((name, text, used));
            } else {
                broken.insert(name.value.to_owned());
            }
        }
        while !open.is_empty() {
            let names: Vec<&str> = open.iter().map(|(name, ..)| name.value).collect();
            let ready = open
                .iter()
                .position(|(_, _, used)| !names.iter().any(|name| used.contains(name)));
            let Some(ready) = ready else {
                for (name, ..) in &open {
                    let title = format!("`{}` goes round in a circle", name.value);
                    let label = format!("among {}", names.join(", "));
                    table.complain(name.span.clone(), title, label);
                    broken.insert(name.value.to_owned());
                }
                break;
            };
            let (name, text, _) = open.remove(ready);
            let vocabulary = KnownNames {
                facts: self.facts,
                kind,
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

    fn unused(&self, root: &Table<'_>, rule: &Rule, advice: &Advice) {
        let optional = [
            &rule.require,
            &rule.error_when,
            &rule.minor_when,
            &rule.saving_ns,
            &rule.saving_low_ns,
            &rule.outside_ns,
            &rule.launches_removed,
            &rule.adds_launches,
        ];
        let of_fixes = advice.fixes.iter().map(|fix| &fix.when);
        let of_edits = advice.edits.iter().map(|edit| &edit.when);
        let mut uses = advice.sentence_uses();
        uses.extend(&rule.when.uses);
        for expr in optional
            .into_iter()
            .chain(of_fixes)
            .chain(of_edits)
            .flatten()
        {
            uses.extend(&expr.uses);
        }
        let uses = uses.closure(&rule.lets);
        let span = |table: &str, name: &str| {
            let mut keys = root.get_table(table)?.keys().into_iter();
            keys.find(|k| k.value == name).map(|k| k.span)
        };
        for name in rule.params.keys() {
            if name != MIN_FRACTION && !uses.params.contains(name) {
                let at = span("params", name).unwrap_or_default();
                root.complain(at, format!("the param `{name}` is never used"), "");
            }
        }
        for (index, named) in rule.lets.iter().enumerate() {
            if !uses.lets.contains(&index) {
                let at = span("let", &named.name).unwrap_or_default();
                root.complain(at, format!("the let `{}` is never used", named.name), "");
            }
        }
    }
}

/// The patterns of rule ids under a key.
fn globs(table: &Table<'_>, key: &str) -> Vec<Glob> {
    let list = table.get_str_list(key);
    list.iter().map(|item| Glob::new(item.value)).collect()
}

fn bad_let_name(name: &str) -> Option<String> {
    // Words of CEL, and words sentences give a meaning to.
    const RESERVED: [&str; 27] = [
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
        "per_step",
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
    let taken = RESERVED.contains(&name)
        || ["params", "found", "gpu"].contains(&name)
        || MemberKind::parse(name).is_some()
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
}
