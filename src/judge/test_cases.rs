//! Reads the tests of a rule file, and values whose type something else decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::check::{self, FactsByName, KnownNames};
use super::expr::{FOUND, Scalar, Type};
use super::finding::Severity;
use super::rule::{Case, Expect, Param};
use crate::base::cel;
use crate::base::diag::Complaint;
use crate::base::suggest::did_you_mean;
use crate::base::toml::{self, Table};
use crate::facts::{MemberKind, Value};

/// What the tests of a rule can name.
pub(super) struct CaseReader<'a> {
    pub(super) facts: &'a FactsByName<'a>,
    pub(super) kind: MemberKind,
    pub(super) params: &'a BTreeMap<String, Param>,
}

impl CaseReader<'_> {
    /// The tests of a rule file, of which one must fire and one be silent.
    pub(super) fn cases(&self, root: &Table<'_>) -> Vec<Case> {
        let tables = root.get_table_list("test");
        let mut cases = Vec::new();
        let mut names = BTreeSet::new();
        for table in &tables {
            if let Some(case) = self.case(table) {
                if !names.insert(case.name.clone()) {
                    let title = format!("two tests are named `{}`", case.name);
                    table.complain(table.span(), title, "");
                }
                cases.push(case);
            }
        }
        // Counted by key, so that a test that is wrong otherwise is not also called missing.
        let refused = root.has("test") && root.get("test").is_none();
        let fires = tables.iter().any(|t| t.has("fires"));
        let silent = tables.iter().any(|t| t.has("silent"));
        for (there, what) in [(fires, "fires"), (silent, "is silent")] {
            if !there && !refused {
                let title = format!("no test in which the rule {what}");
                let complaint = Complaint::error(root.source(), 0..0, title, "")
                    .with_help("examples are a rule's tests: `rules new` writes the first ones");
                root.push(complaint);
            }
        }
        cases
    }

    fn case(&self, table: &Table<'_>) -> Option<Case> {
        let name = table.get_text("name");
        let facts = match table.get_table("facts") {
            Some(facts) => self.case_facts(&facts),
            None => BTreeMap::new(),
        };
        Some(Case {
            name: name?,
            gpu: table.get_text("gpu"),
            facts,
            params: self.case_params(table),
            expect: self.expect(table)?,
            saving_ns: table.get_number("saving_ns"),
            saving_low_ns: table.get_number("saving_low_ns"),
            launches_removed: table.get_number("launches_removed"),
            fix: table.get_text("fix"),
            severity: table.get_word("severity", &Severity::ALL),
            minor: table.get_flag("minor"),
        })
    }

    fn expect(&self, table: &Table<'_>) -> Option<Expect> {
        if let Some(fires) = table.get_str("fires") {
            return Some(Expect::Fires(fires.value.trim().to_owned()));
        }
        if table.get_flag("silent") {
            return Some(Expect::Silent);
        }
        table.get("skipped")?;
        let missing = table.get_str_list("skipped");
        for name in &missing {
            let found = FOUND.iter().any(|(n, ..)| *n == name.value);
            if !found && self.facts.get(name.value).is_none() {
                let near = did_you_mean(name.value, self.facts.names());
                let title = format!("unknown fact `{}`{near}", name.value);
                table.complain(name.span.clone(), title, "");
            }
        }
        let mut names: Vec<String> = missing.iter().map(|n| n.value.to_owned()).collect();
        names.sort();
        names.dedup();
        Some(Expect::Skipped(names))
    }

    fn case_facts(&self, table: &Table<'_>) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::new();
        for (key, value) in table.entries() {
            // `site.m = 1` without quotes is a table `site` to TOML.
            if !key.value.contains('.')
                && value.kind() == "a table"
                && let Some(inner) = value.table()
            {
                for (rest, value) in inner.entries() {
                    let name = format!("{}.{}", key.value, rest.value);
                    self.case_fact(table, &name, &rest.span, &value, &mut facts);
                }
                continue;
            }
            self.case_fact(table, key.value, &key.span, &value, &mut facts);
        }
        facts
    }

    fn case_fact(
        &self,
        table: &Table<'_>,
        name: &str,
        span: &Range<usize>,
        value: &toml::Item<'_>,
        facts: &mut BTreeMap<String, Value>,
    ) {
        let vocabulary = KnownNames {
            facts: self.facts,
            kind: self.kind,
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
        let Some(typed) = typed_value(value, ty) else {
            return;
        };
        if let Value::Str(word) = &typed
            && let Some(fact) = self.facts.get(name)
            && let Some((title, label)) = cel::unknown_value(word, fact.values())
        {
            table.complain(value.span(), title, label);
        }
        facts.insert(name.to_owned(), typed);
    }

    fn case_params(&self, table: &Table<'_>) -> BTreeMap<String, Value> {
        let mut set = BTreeMap::new();
        let Some(table) = table.get_table("params") else {
            return set;
        };
        for (key, value) in table.entries() {
            match self.params.get(key.value) {
                Some(param) => {
                    if let Some(value) = typed_value(&value, Type::of(&param.value)) {
                        set.insert(key.value.to_owned(), value);
                    }
                }
                None => {
                    let near = did_you_mean(key.value, self.params.keys().map(String::as_str));
                    let title = format!("unknown param `{}`{near}", key.value);
                    table.complain(key.span.clone(), title, "");
                }
            }
        }
        set
    }
}

/// A value whose type is what TOML says it is.
pub(super) fn free_value(value: &toml::Item<'_>) -> Option<Value> {
    match value.kind() {
        "a string" => typed_value(value, Type::STR),
        "an integer" => typed_value(value, Type::INT),
        "a float" => typed_value(value, Type::DOUBLE),
        "a boolean" => typed_value(value, Type::BOOL),
        "a list" => typed_value(value, Type::STRINGS),
        _ => value.wrong_type("a number, a string, a boolean or a list of strings"),
    }
}

/// A value that must be of a type; an integer may stand for a double.
pub(super) fn typed_value(value: &toml::Item<'_>, ty: Type) -> Option<Value> {
    match ty {
        Type::One(Scalar::Bool) => value.bool().map(|v| Value::Bool(v.value)),
        Type::One(Scalar::Int) => value.int().map(|v| Value::Int(v.value)),
        Type::One(Scalar::Double) => value.float().map(|v| Value::Double(v.value)),
        Type::One(Scalar::Str) => value.str().map(|v| Value::Str(v.value.into())),
        Type::List(_) => {
            let list = value.str_list()?.into_iter();
            Some(Value::Strings(list.map(|v| v.value.into()).collect()))
        }
        Type::Map(Scalar::Int) => {
            let entries = value.table()?.entries().into_iter();
            let pairs = entries.map(|(k, v)| Some((k.value.into(), v.int()?.value)));
            Some(Value::Ints(Arc::new(pairs.collect::<Option<_>>()?)))
        }
        Type::Map(_) => {
            let entries = value.table()?.entries().into_iter();
            let pairs = entries.map(|(k, v)| Some((k.value.into(), v.float()?.value)));
            Some(Value::Doubles(Arc::new(pairs.collect::<Option<_>>()?)))
        }
    }
}
