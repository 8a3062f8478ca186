//! The keys of rule files: what the loader takes, the documents explain and editors complete.

use super::load::check_id;
use super::read::{MAX_LIST, MAX_TITLE, SAVINGS};
use super::rule::{CATEGORIES, GroupBy};
use super::{Confidence, Severity};
use super::{expr, template};
use crate::base::cel;
use crate::base::schema::{self, Json, Key, Shape, key, object, text};
use crate::facts::{self, MemberKind, Ty};

const EXPRESSION: Shape = Shape::Text(1, cel::MAX_SOURCE);
const SENTENCE: Shape = Shape::Text(1, template::MAX_SOURCE);
const NAME: &str = "^[a-z][a-z0-9_]*$";
const RULES: Shape = Shape::List(&Shape::Text(1, 200), MAX_LIST);
/// What a param, or a fact without its type, may be.
const VALUE: Shape = Shape::Either(&[
    Shape::Text(0, 2_000),
    Shape::Number,
    Shape::Flag,
    Shape::List(&Shape::Text(0, 2_000), expr::MAX_ITEMS),
]);

/// Every key of a rule file, in the order in which rules are written.
pub const KEYS: &[Key] = &[
    key(
        "title",
        true,
        "one line that states the problem",
        Shape::Text(1, MAX_TITLE),
    ),
    key(
        "severity",
        true,
        "`note`, `warning` or `error`: how bad; the saving says how much",
        Shape::Word(severities),
    ),
    key(
        "confidence",
        true,
        "`low`, `medium` or `high`: how sure",
        Shape::Word(|| Confidence::ALL.map(|(_, word)| word).into()),
    ),
    key(
        "for_each",
        true,
        "what is judged: `run`, `step`, `layer`, `site`, `chain`, `kernel`, `copy`, `gap` or `rank`",
        Shape::Word(|| MemberKind::ALL.map(|(_, word)| word).into()),
    ),
    key("when", true, "the condition that picks members", EXPRESSION),
    key(
        "group_by",
        false,
        "make one finding per `run`, `layer` or `rank`; else members of one place are one finding",
        Shape::Word(|| GroupBy::ALL.map(|(_, word)| word).into()),
    ),
    key(
        "require",
        false,
        "condition on `found.NAME` that a finding must meet",
        EXPRESSION,
    ),
    key(
        "error_when",
        false,
        "condition under which the severity is `error`",
        EXPRESSION,
    ),
    key(
        "saving_ns",
        false,
        "ns given back per member, upper end",
        EXPRESSION,
    ),
    key(
        "saving_kind",
        false,
        "`gpu`, `idle` or `copy`: which kind of time, where `for_each` does not imply it",
        Shape::Word(|| SAVINGS.map(|(_, word)| word).into()),
    ),
    key(
        "changes",
        false,
        "what the advice changes; two values for one key on one site contradict",
        Shape::Map("", &Shape::Text(0, 200)),
    ),
    key(
        "supersedes",
        false,
        "vaguer rules this one silences on the same subject",
        RULES,
    ),
    key(
        "unless",
        false,
        "rules whose findings on the same subject make this one pointless",
        RULES,
    ),
    key(
        "vetoes",
        false,
        "rules that mean nothing where this holds (category `profile` only)",
        RULES,
    ),
    key(
        "lowers_confidence",
        false,
        "rules whose confidence drops one level where this holds (category `profile` only)",
        RULES,
    ),
    key(
        "message",
        true,
        "what is the matter, with its numbers",
        SENTENCE,
    ),
    key("why", true, "why it costs time", SENTENCE),
    key("fix", true, "what to do, with code", SENTENCE),
    key(
        "references",
        false,
        "where to read on",
        Shape::List(&Shape::Form("^https?://\\S+$"), MAX_LIST),
    ),
    key(
        "params",
        false,
        "thresholds: `{ value = ..., doc = \"...\" }`, changed with `--set`",
        Shape::Map(NAME, &Shape::Table(PARAM_KEYS, &[])),
    ),
    key(
        "let",
        false,
        "named sub-expressions",
        Shape::Map(NAME, &EXPRESSION),
    ),
    key(
        "test",
        true,
        "examples that prove the rule; at least one fires and one is silent",
        Shape::Tables(CASE_KEYS, &[&["fires"], &["silent"], &["skipped"]], 2),
    ),
];

/// The keys of a param.
pub const PARAM_KEYS: &[Key] = &[
    key("value", true, "its value where nobody sets another", VALUE),
    key(
        "doc",
        true,
        "what the threshold means, and where it comes from",
        Shape::Text(1, 2_000),
    ),
];

/// Every key of a `[[test]]`.
pub const CASE_KEYS: &[Key] = &[
    key("name", true, "what the example shows", Shape::Text(1, 200)),
    key(
        "gpu",
        false,
        "the id of a built-in GPU, whose `gpu.` facts hold",
        Shape::Text(1, 200),
    ),
    key(
        "facts",
        false,
        "what is known of the one member and of `found`; all else is absent",
        Shape::Own(known_facts),
    ),
    key(
        "params",
        false,
        "thresholds of this example, instead of the rule's own",
        Shape::Map(NAME, &VALUE),
    ),
    key("fires", false, "the message, word for word", SENTENCE),
    key("silent", false, "`true`: the rule says nothing", Shape::Yes),
    key(
        "skipped",
        false,
        "facts for want of which the rule cannot say",
        Shape::List(&Shape::Word(fact_names), MAX_LIST),
    ),
    key(
        "saving_ns",
        false,
        "the saving of a firing example, to one part in a thousand",
        Shape::Number,
    ),
    key(
        "severity",
        false,
        "the severity of a firing example",
        Shape::Word(severities),
    ),
];

fn severities() -> Vec<&'static str> {
    Severity::ALL.map(|(_, word)| word).into()
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
    let found = expr::FOUND.iter().map(|(name, ty, doc)| {
        let ty = match *ty {
            expr::Type::INT => Ty::Int,
            expr::Type::STR => Ty::Str,
            _ => Ty::Double,
        };
        of(name, doc, json_type(ty))
    });
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

fn json_type(ty: Ty) -> Json {
    let plain = |word: &str| object([("type", text(word))]);
    match ty {
        Ty::Bool => plain("boolean"),
        Ty::Int => plain("integer"),
        Ty::Double => plain("number"),
        Ty::Str => plain("string"),
        Ty::Strings => object([("type", text("array")), ("items", plain("string"))]),
        Ty::Doubles => object([
            ("type", text("object")),
            ("additionalProperties", plain("number")),
        ]),
        Ty::Ints => object([
            ("type", text("object")),
            ("additionalProperties", plain("integer")),
        ]),
    }
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
