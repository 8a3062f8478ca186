//! The keys of rule files: what the loader takes, the documents explain and editors complete.

use super::edit::MAX_EDITS;
use super::finding::{Confidence, SavingKind, Severity};
use super::load::check_id;
use super::rule::{CATEGORIES, GroupBy};
use super::{expr, template};
use crate::base::cel::{self, Scalar, Type};
use crate::base::schema::{self, Form, Json, Key, Shape, keys, object, text};
use crate::facts::{self, MemberKind};

/// Characters of a title.
const MAX_TITLE: usize = 120;
/// Entries of a list in a rule file, params, and lets: lets are ordered by what they use, which
/// takes the square of their number.
const MAX_LIST: usize = 64;
/// Variants of a fix.
const MAX_FIXES: usize = 16;
/// Tests of one rule.
const MAX_CASES: usize = 256;

const EXPRESSION: Shape = Shape::Text(1, cel::MAX_SOURCE);
const SENTENCE: Shape = Shape::Text(1, template::MAX_SOURCE);
const NAME: Form = Form {
    pattern: "^[a-z][a-z0-9_]*$",
    fits: is_name,
    what: "named like `min_share`",
};
const LINK: Form = Form {
    pattern: "^https?://\\S+$",
    fits: |link| {
        let web = link.starts_with("https://") || link.starts_with("http://");
        web && !link.contains(char::is_whitespace)
    },
    what: "a web address",
};
const RULES: Shape = Shape::List(&Shape::Text(1, 200), MAX_LIST);
/// What a param, or a fact without its type, may be.
const VALUE: Shape = Shape::Either(&[
    Shape::Text(0, 2_000),
    Shape::Number,
    Shape::Flag,
    Shape::List(&Shape::Text(0, 2_000), expr::MAX_ITEMS),
]);

/// Every key of a rule file, in the order in which rules are written.
pub const KEYS: &[Key] = keys! {
    /// the problem, on one line: the heading of a finding
    required "title": Shape::Line(MAX_TITLE),
    /// `note`, `warning` or `error`; the saving, not the severity, says how much time is at stake
    required "severity": Shape::Word(severities),
    /// `low`, `medium` or `high`: how likely it is that a finding is right; findings are ranked by saving times confidence
    required "confidence": Shape::Word(|| Confidence::ALL.map(|(_, word)| word).into()),
    /// the kind of member that is examined: the `run`, a `step`, `layer`, `site` (all calls of one operator with the same
    /// shapes in one layer), `chain` (a known sequence of operators), `kernel`, `copy`, `gap` (idle time of one cause) or
    /// `rank`; facts of enclosing members are available too
    required "for_each": Shape::Word(|| MemberKind::ALL.map(|(_, word)| word).into()),
    /// the condition that selects members
    required "when": EXPRESSION,
    /// make one finding per `run`, `layer`, `rank`, `family` (kind of work), `cause` (of idle time), `kernel` (by
    /// label) or `change` (kernels of one library for one kind of work, an engine of TensorRT, else by label); else the
    /// members of one place, where repetitions of a layer are one
    "group_by": Shape::Word(|| GroupBy::ALL.map(|(_, word)| word).into()),
    /// condition on the whole finding, which can use `found`; other facts are those of its costliest member
    "require": EXPRESSION,
    /// condition under which the severity is `error`
    "error_when": EXPRESSION,
    /// condition under which a finding is minor whatever its time: it says what the time is, but nothing shows that any of it
    /// is lost
    "minor_when": EXPRESSION,
    /// upper end of the saving of one member, in ns
    "saving_ns": EXPRESSION,
    /// lower end of that saving, in ns; else `saving_ns` times `params.min_fraction`
    "saving_low_ns": EXPRESSION,
    /// the kind of time saved: `gpu`, `idle` or `copy`; else `idle` for gaps, `copy` for copies, and `gpu` otherwise
    "saving_kind": Shape::Word(|| SavingKind::ALL.map(|(_, word)| word).into()),
    /// time that the problem costs outside the steps, in ns, which no saving contains
    "outside_ns": EXPRESSION,
    /// share of the launches of the covered work that the fix removes, 0 to 1; the saving is this share of the idle time
    /// before these launches, where that is 1 % of the window or more and shortens the steps more than `saving_ns` does;
    /// else steps become shorter at least by this share of the host's time for these launches, up to `saving_ns`. In the
    /// category `communication`, `saving_ns` is added to the idle time
    "launches_removed": EXPRESSION,
    /// condition under which the fix makes the host launch more: where the GPU waits for late launches in a quarter of
    /// the window or more, none of the saving is certain to shorten the steps
    "adds_launches": EXPRESSION,
    /// what the fix changes; of two findings with different values of one key for the same site, the one with the larger
    /// lower end of its saving stays
    "changes": Shape::Map(None, &Shape::Text(0, 200), MAX_LIST),
    /// `true`: the fix removes or replaces the work it covers; other findings on that work are dropped
    "replaces_work": Shape::Yes,
    /// `true`: the fix removes the work it covers altogether, so findings that replace some of it by faster work do not
    /// drop it
    "removes_work": Shape::Yes,
    /// less specific rules that are dropped on the same sites (with a chain, on those of which it is most of the
    /// time): ids, or patterns such as `memory/*`
    "supersedes": RULES,
    /// the reverse: this rule is dropped where one of these has a finding; where both set a key of `changes` to different
    /// values, that finding says what this rule would save
    "unless": RULES,
    /// rules whose findings the fix repairs as well: one that ranks lower becomes a part of this one, and savings of the same
    /// kind of time add up, GPU time and idle time in the upper end of the step; the own id stands for findings with the same `[[fix]]`
    "also_fixes": RULES,
    /// rules that are skipped where this one has a finding (category `profile` only)
    "vetoes": RULES,
    /// rules whose confidence drops one level where this one has a finding (category `profile` only)
    "lowers_confidence": RULES,
    /// the problem, with its numbers
    required "message": SENTENCE,
    /// why the problem costs time
    required "why": SENTENCE,
    /// what to do, with code if possible, in Markdown; as `[[fix]]` tables, the first whose condition holds
    required "fix": Shape::Either(&[SENTENCE, Shape::Tables(FIX_KEYS, &[], 1, MAX_FIXES)]),
    /// changes of one source line that `--source` shows where they fit
    "edit": Shape::Tables(EDIT_KEYS, &[], 1, MAX_EDITS),
    /// links for further reading
    "references": Shape::List(&Shape::Form(LINK), MAX_LIST),
    /// every threshold with its reason, `{ value = ..., doc = "..." }`; users change one with `--set`
    "params": Shape::Map(Some(NAME), &Shape::Table(PARAM_KEYS, &[]), MAX_LIST),
    /// names for parts of expressions
    "let": Shape::Map(Some(NAME), &EXPRESSION, MAX_LIST),
    /// tests; at least one fires and one is silent
    required "test": Shape::Tables(CASE_KEYS, &[&["fires"], &["silent"], &["skipped"]], 2, MAX_CASES),
};

/// The keys of a `[[fix]]`.
pub const FIX_KEYS: &[Key] = keys! {
    /// condition of this fix, which may use `found`; the last `[[fix]]` may lack it
    "when": EXPRESSION,
    /// rules whose findings this fix repairs as well, besides those of the rule
    "also_fixes": RULES,
    /// what to do, with code
    required "text": SENTENCE,
};

/// The keys of an `[[edit]]`.
pub const EDIT_KEYS: &[Key] = keys! {
    /// condition of this edit, which may use `found`
    "when": EXPRESSION,
    /// regular expression that must match the line exactly once
    required "find": Shape::Text(1, 500),
    /// regular expression of lines that are left alone
    "unless": Shape::Text(1, 500),
    /// what takes the place of the match; `$1` is its first group
    required "replace": Shape::Text(0, 500),
    /// an example of such a line
    required "before": Shape::Text(1, 500),
    /// what the edit makes of it
    required "after": Shape::Text(1, 500),
};

/// The keys of a param.
pub const PARAM_KEYS: &[Key] = keys! {
    /// its value unless `--set` gives another
    required "value": VALUE,
    /// what the threshold means, and where it comes from
    required "doc": Shape::Text(1, 2_000),
};

/// Every key of a `[[test]]`.
pub const CASE_KEYS: &[Key] = keys! {
    /// what the test shows
    required "name": Shape::Text(1, 200),
    /// the id of a built-in GPU, which provides the `gpu.` facts; without it, only those are known that have a value for an
    /// unknown GPU, such as `gpu.kernel_gap_ns`
    "gpu": Shape::Text(1, 200),
    /// the facts, with names in quotes; all others are absent. `found.count` defaults to 1, `run.pytorch` to true;
    /// `found.time_ns`, `found.calls` and `found.gpu_share` to those of the member
    "facts": Shape::Own(known_facts, |facts| facts.table().is_some()),
    /// params of this test only
    "params": Shape::Map(None, &VALUE, MAX_LIST),
    /// the exact message
    "fires": SENTENCE,
    /// `true`: the rule has no finding
    "silent": Shape::Yes,
    /// missing facts without which the rule cannot decide
    "skipped": Shape::Own(missing_facts, |facts| facts.str_list().is_some()),
    /// the saving of a test that fires, to one part in a thousand
    "saving_ns": Shape::Number,
    /// the lower end of that saving, to one part in a thousand
    "saving_low_ns": Shape::Number,
    /// the share of the launches that the fix removes in a test that fires
    "launches_removed": Shape::Number,
    /// words of the fix of a test that fires, so that the variant is known
    "fix": Shape::Text(1, 500),
    /// the severity of a test that fires
    "severity": Shape::Word(severities),
    /// `true`: the finding of a test that fires is minor, by `minor_when`
    "minor": Shape::Yes,
};

fn severities() -> Vec<&'static str> {
    Severity::ALL.map(|(_, word)| word).into()
}

/// The loader itself looks the names up: it may know other facts than the built-in ones.
fn missing_facts() -> Json {
    schema::of(&Shape::List(&Shape::Word(fact_names), MAX_LIST))
}

fn fact_names() -> Vec<&'static str> {
    let facts = facts::all().iter().map(|f| f.name);
    facts.chain(expr::FOUND.iter().map(|(n, ..)| *n)).collect()
}

/// Every fact by name with its type, so that an editor completes and explains them.
fn known_facts() -> Json {
    let of = |name: &str, doc: &str, ty: Json| {
        let mut pairs = vec![("description".to_owned(), text(doc))];
        if let Json::Object(own) = ty {
            pairs.extend(own);
        }
        (name.to_owned(), Json::Object(pairs))
    };
    let facts = facts::all()
        .iter()
        .map(|f| of(f.name, f.doc, json_type(f.ty)));
    let found = expr::FOUND
        .iter()
        .map(|(name, ty, doc)| of(name, doc, json_type(*ty)));
    let mut prefixes: Vec<&str> = MemberKind::ALL.iter().map(|(_, word)| *word).collect();
    prefixes.extend(["gpu", "found"]);
    // `site.m = 1` without quotes is a table `site` to TOML.
    let nested = format!("^({})$", prefixes.join("|"));
    object([
        ("type", text("object")),
        ("additionalProperties", Json::Flag(false)),
        ("properties", Json::Object(facts.chain(found).collect())),
        (
            "patternProperties",
            Json::Object(vec![(nested, object([("type", text("object"))]))]),
        ),
    ])
}

fn json_type(ty: Type) -> Json {
    let one = |scalar: Scalar| {
        let word = match scalar {
            Scalar::Bool => "boolean",
            Scalar::Int => "integer",
            Scalar::Double => "number",
            Scalar::Str => "string",
        };
        object([("type", text(word))])
    };
    match ty {
        Type::One(scalar) => one(scalar),
        Type::List(item) => object([
            ("type", text("array")),
            ("items", one(item.unwrap_or(Scalar::Str))),
        ]),
        Type::Map(item) => object([
            ("type", text("object")),
            ("additionalProperties", one(item)),
        ]),
    }
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|c| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The JSON Schema of rule files.
pub fn schema() -> String {
    let about = format!(
        "A rule of pyprof-advise: rules/CATEGORY/NAME.toml, CATEGORY one of {}.",
        CATEGORIES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| check_id(&format!("{name}/x")).is_none())
            .collect::<Vec<_>>()
            .join(", ")
    );
    schema::document("pyprof-advise rule", &about, KEYS, &[])
}
