//! A set of rules that fit together: loaded from files, cross-checked, selected, tuned.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::check::FactsByName;
use super::examples::{check_examples, span};
use super::expr::Type;
use super::load::{self, RuleFile};
use super::read;
use super::rule::{MIN_FRACTION, Rule};
use super::rule_tests::GpuFacts;
use crate::base::InvalidArgument;
use crate::base::diag::{Complaint, Complaints};
use crate::base::glob::Glob;
use crate::base::suggest::{did_you_mean, nearest};
use crate::base::text;
use crate::facts::{Fact, Value};

/// The built-in rule files: everything in `rules/`, put into the program when it was built.
const BUILTIN: &[(&str, &str, &str)] = include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// What the user asked for on the command line.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Ids, categories or globs; empty means all.
    pub select: Vec<String>,
    /// Ids, categories or globs, taken away from what is selected.
    pub ignore: Vec<String>,
    /// `category/stem.param=value`.
    pub set: Vec<String>,
}

/// Rules in the order of their ids.
#[derive(Debug, Clone, Default)]
pub struct RuleSet {
    rules: Vec<Rule>,
}

impl RuleSet {
    /// The files of the built-in rules, to be loaded with a user's own.
    pub fn builtin_files() -> Vec<RuleFile> {
        load::embedded(BUILTIN, false)
    }

    /// The same for an analysis of a profile: their tests are not read, and what a rule says only once it fires.
    pub fn builtin_files_for_analysis() -> Vec<RuleFile> {
        load::embedded(BUILTIN, true)
    }

    /// The built-in rules, all of them, as they are.
    ///
    /// # Errors
    /// Everything that is wrong with them; the tests see to it that nothing is.
    pub fn builtin() -> Result<RuleSet, Complaints> {
        RuleSet::load(
            &RuleSet::builtin_files(),
            &Selection::default(),
            crate::facts::all(),
        )
    }

    /// Loads rule files, built-in and a user's together, and keeps what is selected.
    ///
    /// # Errors
    /// Everything that is wrong with any file, with the rules taken together, or with the selection.
    pub fn load(
        files: &[RuleFile],
        selection: &Selection,
        facts: &[Fact],
    ) -> Result<RuleSet, Complaints> {
        let complaints = Complaints::new();
        let (set, _) = RuleSet::read(files, selection, facts, &complaints);
        complaints.accept(set)
    }

    /// Loads all rules of some files, and checks those of a user on their own examples too.
    ///
    /// # Errors
    /// Everything that is wrong with any file or with the rules taken together.
    pub fn check(
        files: &[RuleFile],
        facts: &[Fact],
        gpu: &GpuFacts<'_>,
    ) -> Result<RuleSet, Complaints> {
        let complaints = Complaints::new();
        let (set, duplicates) = RuleSet::read(files, &Selection::default(), facts, &complaints);
        let own = set.rules.iter().filter(|rule| !rule.builtin);
        check_examples(own.chain(&duplicates), facts, gpu, &complaints);
        complaints.accept(set)
    }

    /// The selected rules, and the rules whose id is taken, which are read only for their mistakes.
    fn read(
        files: &[RuleFile],
        selection: &Selection,
        facts: &[Fact],
        complaints: &Complaints,
    ) -> (RuleSet, Vec<Rule>) {
        if files.len() > load::MAX_FILES {
            complaints.push(load::too_many("rules"));
            return (RuleSet::default(), Vec::new());
        }
        let (unique, duplicates) = unique(files, complaints);
        let facts = FactsByName::new(facts);
        let rule = |file: &&RuleFile| read::rule(file, &facts, complaints);
        let mut rules: Vec<Rule> = unique.par_iter().filter_map(rule).collect();
        let duplicates = duplicates.par_iter().filter_map(rule).collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        // Relations to a rule that is wrong itself are not wrong.
        let mut ids: Vec<&str> = unique.iter().map(|file| file.id.as_str()).collect();
        ids.sort_unstable();
        check_relations(&rules, &ids, complaints);
        check_circles(&rules, complaints);
        let mut set = RuleSet { rules };
        set.tune(&selection.set, &ids, complaints);
        set.pick(selection, &ids, complaints);
        (set, duplicates)
    }

    /// The rules, by id.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule of an id.
    pub fn get(&self, id: &str) -> Option<&Rule> {
        let at = self.rules.binary_search_by(|rule| rule.id.as_str().cmp(id));
        at.ok().and_then(|at| self.rules.get(at))
    }

    /// The rule of an id.
    ///
    /// # Errors
    /// When there is none; the message names the nearest id.
    pub fn find(&self, id: &str) -> Result<&Rule, InvalidArgument> {
        let stem = |rule: &&Rule| rule.id.rsplit_once('/').is_some_and(|(_, stem)| stem == id);
        let mut by_stem = self.rules.iter().filter(stem);
        let only = match (by_stem.next(), by_stem.next()) {
            (Some(rule), None) => Some(rule),
            _ => None,
        };
        self.get(id).or(only).ok_or_else(|| {
            let near = near_id(id, self.rules.iter().map(|r| r.id.as_str()));
            InvalidArgument(format!("no rule `{id}`{near} (`rules list` names all)"))
        })
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn tune(&mut self, settings: &[String], ids: &[&str], complaints: &Complaints) {
        for setting in settings {
            if let Err(why) = self.set(setting, ids) {
                complaints.push(Complaint::about_file("--set", why, ""));
            }
        }
    }

    /// Applies one `category/stem.param=value`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub(crate) fn set(&mut self, setting: &str, ids: &[&str]) -> Result<(), String> {
        let form = || format!("expected `category/rule.param=value`, got `{setting}`");
        let (name, text) = setting.split_once('=').ok_or_else(form)?;
        let (id, param) = name.trim().rsplit_once('.').ok_or_else(form)?;
        let Some(rule) = self.rules.iter_mut().find(|rule| rule.id == id) else {
            if ids.contains(&id) {
                return Ok(());
            }
            let near = near_id(id, ids.iter().copied());
            return Err(format!("no rule `{id}`{near}"));
        };
        let ty = match rule.params.get(param) {
            Some(known) => Type::of(&known.value),
            None if param == MIN_FRACTION => Type::DOUBLE,
            None => {
                let known = rule.params.keys().map(String::as_str);
                let near = did_you_mean(param, known.chain([MIN_FRACTION]));
                return Err(format!("the rule `{id}` has no param `{param}`{near}"));
            }
        };
        let value = parse_setting(text.trim(), ty).ok_or_else(|| {
            format!(
                "`{id}.{param}` must be {}, not `{}`",
                ty.phrase(),
                text.trim()
            )
        })?;
        if param == MIN_FRACTION && !matches!(value, Value::Double(d) if (0.0..=1.0).contains(&d)) {
            return Err(format!("`{id}.{param}` must be a fraction from 0 to 1"));
        }
        rule.settings.insert(param.to_owned(), value);
        Ok(())
    }

    fn pick(&mut self, selection: &Selection, ids: &[&str], complaints: &Complaints) {
        let globs = |patterns: &[String], option: &str| -> Vec<Glob> {
            let glob = |pattern: &String| match pattern_of(pattern, ids) {
                Ok(glob) => Some(glob),
                Err(why) => {
                    complaints.push(Complaint::about_file(option, why, ""));
                    None
                }
            };
            patterns.iter().filter_map(glob).collect()
        };
        let select = globs(&selection.select, "--select");
        let ignore = globs(&selection.ignore, "--ignore");
        self.rules.retain(|rule| {
            let chosen = select.is_empty() || select.iter().any(|g| g.matches(&rule.id));
            chosen && !ignore.iter().any(|g| g.matches(&rule.id))
        });
    }
}

/// Rules named in an error for a word that no id resembles.
const LISTED: usize = 6;

/// The id nearest to what was typed; the folder may be wrong or left out. If there is none, the ids that
/// contain what was typed as words.
fn near_id<'a>(typed: &str, ids: impl Iterator<Item = &'a str> + Clone) -> String {
    let near = did_you_mean(typed, ids.clone());
    if !near.is_empty() {
        return near;
    }
    let stem = |id: &'a str| id.rsplit('/').next().unwrap_or(id);
    let typed = typed.rsplit('/').next().unwrap_or(typed);
    if let Some(near) = nearest(typed, ids.clone().map(stem)) {
        let id = ids.into_iter().find(|id| stem(id) == near);
        return id.map_or(String::new(), |id| format!("; did you mean `{id}`?"));
    }
    // A topic rather than a rule: `amp`, `batch-norm`.
    let words = |text: &'a str| text.split(['-', '/']);
    let typed: Vec<&str> = typed.split(['-', '_', ' ']).collect();
    let named = ids.filter(|id| typed.iter().all(|word| words(id).any(|w| w == *word)));
    let named: Vec<String> = named.take(LISTED).map(|id| format!("`{id}`")).collect();
    match named.is_empty() {
        true => String::new(),
        false => format!("; rules with that word: {}", named.join(", ")),
    }
}

/// An id, a category or a glob that stands for at least one rule.
///
/// # Errors
/// A sentence with the nearest id or category, when it stands for none.
pub(crate) fn pattern_of(pattern: &str, ids: &[&str]) -> Result<Glob, String> {
    let glob = if pattern.contains(['/', '*']) {
        Glob::new(pattern)
    } else {
        Glob::new(&format!("{pattern}/*"))
    };
    if ids.iter().any(|id| glob.matches(id)) {
        return Ok(glob);
    }
    let categories = ids.iter().filter_map(|id| id.split('/').next());
    let near = match did_you_mean(pattern, ids.iter().copied().chain(categories)) {
        near if near.is_empty() => near_id(pattern, ids.iter().copied()),
        near => near,
    };
    Err(format!("no rule or category `{pattern}`{near}"))
}

/// Reads a value as TOML would; words may do without quotes, ints may stand for doubles.
fn parse_setting(text: &str, ty: Type) -> Option<Value> {
    use super::expr::Scalar;
    match ty {
        Type::One(Scalar::Bool) => text.parse().ok().map(Value::Bool),
        Type::One(Scalar::Int) => text.replace('_', "").parse().ok().map(Value::Int),
        Type::One(Scalar::Double) => {
            let number: f64 = text.replace('_', "").parse().ok()?;
            number.is_finite().then_some(Value::Double(number))
        }
        Type::One(Scalar::Str) => Some(Value::Str(text.trim_matches('"').into())),
        Type::List(_) => {
            let as_toml = toml::from_str(&format!("v={text}"));
            let words = as_toml.map(|mut table: BTreeMap<String, Vec<String>>| table.remove("v"));
            if let Ok(Some(words)) = words {
                return Some(Value::Strings(words.into_iter().map(Into::into).collect()));
            }
            let inner = text.trim_start_matches('[').trim_end_matches(']');
            let items = inner.split(',').map(|w| w.trim().trim_matches('"'));
            Some(Value::Strings(
                items.filter(|w| !w.is_empty()).map(Into::into).collect(),
            ))
        }
        Type::Map(_) => None,
    }
}

/// The first file of each id, and the others, which are complained about.
fn unique<'a>(
    files: &'a [RuleFile],
    complaints: &Complaints,
) -> (Vec<&'a RuleFile>, Vec<&'a RuleFile>) {
    let mut first: BTreeMap<&str, &RuleFile> = BTreeMap::new();
    let mut unique = Vec::new();
    let mut duplicates = Vec::new();
    for file in files {
        if let Some(other) = first.get(file.id.as_str()) {
            let (title, why) = if other.builtin {
                let why = "change it with `--set`, leave it out with `--ignore`, or name your file \
                           differently";
                (
                    format!("there is a built-in rule `{}`", file.id),
                    why.to_owned(),
                )
            } else {
                let title = format!("there are two rules `{}`", file.id);
                (title, format!("the other is {}", other.source.name))
            };
            complaints.push(Complaint::error(&file.source, 0..0, title, "").with_help(why));
            duplicates.push(file);
        } else {
            first.insert(&file.id, file);
            unique.push(file);
        }
    }
    (unique, duplicates)
}

/// Complains about relations to rules that do not exist.
fn check_relations(rules: &[Rule], ids: &[&str], complaints: &Complaints) {
    for rule in rules {
        let relations = [
            ("supersedes", &rule.supersedes),
            ("unless", &rule.unless),
            ("vetoes", &rule.vetoes),
            ("lowers_confidence", &rule.lowers_confidence),
            (ALSO_FIXES, &rule.also_fixes),
        ];
        // Advice that has not been read yet was checked by tests.
        let advice = rule.advice.get().and_then(|advice| advice.as_ref().ok());
        let fixes = advice.into_iter().flat_map(|advice| &advice.fixes);
        let of_fixes = fixes.map(|fix| (ALSO_FIXES, &fix.also_fixes));
        for (key, globs) in relations.into_iter().chain(of_fixes) {
            for glob in globs {
                // Findings of one rule can have one repair.
                let may_be_own = key == ALSO_FIXES;
                let fits = |id: &str| may_be_own || id != rule.id;
                let mut named = matching(ids, glob).filter_map(|at| ids.get(at));
                if named.any(|id| fits(id)) {
                    continue;
                }
                let others = ids.iter().filter(|id| fits(id));
                let near = did_you_mean(glob.text(), others.copied());
                let title = format!("`{key}` names no other rule: `{glob}`{near}");
                complain_about(rule, key, glob.text(), title, complaints);
            }
        }
    }
}

/// The key that also stands in a `[[fix]]`.
const ALSO_FIXES: &str = "also_fixes";

/// Complains at the place where `key` of a rule says `text`.
fn complain_about(rule: &Rule, key: &str, text: &str, title: String, complaints: &Complaints) {
    let all = span(rule, |root| {
        let value = root.get(key).or_else(|| root.get("fix"));
        value.map(|value| value.span())
    });
    let span = rule.source.find_in(all, text);
    complaints.push(Complaint::error(&rule.source, span, title, ""));
}

/// Complains about rules that override each other in a circle: none of them would ever report anything.
fn check_circles(rules: &[Rule], complaints: &Complaints) {
    let ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
    let mut edges: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    let mut edge = |by: usize, rule: usize| {
        if by != rule
            && let Some(edges) = edges.get_mut(by)
        {
            edges.push(rule);
        }
    };
    for (at, rule) in rules.iter().enumerate() {
        for glob in &rule.supersedes {
            matching(&ids, glob).for_each(|other| edge(at, other));
        }
        for glob in &rule.unless {
            matching(&ids, glob).for_each(|other| edge(other, at));
        }
    }
    for circle in circles(&edges) {
        let members: Vec<&Rule> = circle.iter().filter_map(|at| rules.get(*at)).collect();
        for rule in &members {
            let others = members.iter().filter(|other| other.id != rule.id);
            let others: Vec<&str> = others.map(|other| other.id.as_str()).collect();
            let shown = text::list_some(&others, 5);
            let title = format!("`{}` ends up overriding itself", rule.id);
            let help = format!("`supersedes` and `unless` lead back to it through {shown}");
            complaints.push(Complaint::error(&rule.source, 0..0, title, "").with_help(help));
        }
    }
}

/// Where the ids that a pattern matches stand among sorted ids.
fn matching<'a>(ids: &'a [&str], glob: &'a Glob) -> impl Iterator<Item = usize> + 'a {
    let from = ids.partition_point(|id| *id < glob.start());
    let same_start =
        (ids.iter().enumerate().skip(from)).take_while(|(_, id)| id.starts_with(glob.start()));
    same_start
        .filter(|(_, id)| glob.matches(id))
        .map(|(at, _)| at)
}

/// The strongly connected components of several nodes, each sorted (Kosaraju's algorithm).
fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut back: Vec<Vec<usize>> = vec![Vec::new(); edges.len()];
    for (from, list) in edges.iter().enumerate() {
        for &to in list {
            if let Some(back) = back.get_mut(to) {
                back.push(from);
            }
        }
    }
    let mut seen = BTreeSet::new();
    let finish_order: Vec<usize> = (0..edges.len())
        .flat_map(|start| finished(start, edges, &mut seen))
        .collect();
    seen.clear();
    let mut circles = Vec::new();
    for &start in finish_order.iter().rev() {
        let mut circle = finished(start, &back, &mut seen);
        circle.sort_unstable();
        circles.push(circle);
    }
    circles.retain(|circle| circle.len() > 1);
    circles
}

/// The nodes that can be reached from one and are not yet `seen`, in the order in which a depth-first search
/// leaves them.
fn finished(start: usize, edges: &[Vec<usize>], seen: &mut BTreeSet<usize>) -> Vec<usize> {
    let mut order = Vec::new();
    let mut path: Vec<(usize, usize)> = Vec::new();
    path.extend(seen.insert(start).then_some((start, 0)));
    while let Some((at, tried)) = path.last_mut() {
        match edges.get(*at).and_then(|list| list.get(*tried)) {
            Some(&next) => {
                *tried += 1;
                path.extend(seen.insert(next).then_some((next, 0)));
            }
            None => {
                order.push(*at);
                path.pop();
            }
        }
    }
    order
}

/// Whether findings of `by` remove those of `rule` on the same subject.
pub(super) fn overrides(by: &Rule, rule: &Rule) -> bool {
    by.id != rule.id
        && (by.supersedes.iter().any(|g| g.matches(&rule.id))
            || rule.unless.iter().any(|g| g.matches(&by.id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_toml_or_as_words() {
        for (text, words) in [
            ("[\"a,b\", 'c\"']", &["a,b", "c\""][..]),
            ("[]", &[][..]),
            ("a, \"b\"", &["a", "b"][..]),
            ("[a, b]", &["a", "b"][..]),
        ] {
            let words = words.iter().map(|word| (*word).into()).collect();
            let read = parse_setting(text, Type::STRINGS);
            assert_eq!(read, Some(Value::Strings(words)), "{text}");
        }
    }
}
