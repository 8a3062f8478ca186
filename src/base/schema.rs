//! Declarations of hand-written TOML files. Each kind of file has one list of keys, each with its doc
//! and the shape of its value: [`check`] validates a file against it and reports all mistakes at once,
//! [`document`] converts it to a JSON Schema for editors, and the reference pages print it. A loader
//! reads the valid values, which have the right types, and checks only conditions that involve several
//! values.

use std::fmt::Write as _;

use ::toml::de::DeValue;
use serde::{Serialize, Serializer};

use super::suggest::{did_you_mean, nearest};
use super::text;
use super::toml::{Item, Table};

/// The JSON Schema dialect.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Maximum number of words listed in a message; of longer lists, only the nearest word is named.
const MAX_LISTED: usize = 16;

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The key as written in files.
    pub name: &'static str,
    /// Whether the key is required. Lists of tables are not: their loaders report what is missing.
    pub required: bool,
    /// The description for the schema and the reference pages.
    pub doc: &'static str,
    /// The accepted values.
    pub shape: Shape,
}

/// Declares keys in the order of the reference: doc, `required` for required keys, name, and shape.
macro_rules! keys {
    ($($(#[doc = $doc:literal])+ $($required:ident)? $name:literal: $shape:expr,)*) => {
        &[$($crate::base::schema::Key {
            name: $name,
            required: !stringify!($($required)?).is_empty(),
            doc: concat!($($doc),+).trim_ascii_start(),
            shape: $shape,
        }),*]
    };
}
pub(crate) use keys;

/// The names of some keys.
fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|k| k.name).collect()
}

/// The set of values that a key accepts.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A string whose number of characters is in this range. If it must not be empty, it must not be
    /// blank either.
    Text(usize, usize),
    /// A string of one line that is not blank and has at most this many characters.
    Line(usize),
    /// A string of this form.
    Form(Form),
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// A boolean.
    Flag,
    /// Only `true`.
    Yes,
    /// A number above the first and at most the second.
    Above(f64, f64),
    /// Any finite number.
    Number,
    /// An integer from the first to the second.
    Whole(i64, i64),
    /// A power of two up to this number.
    PowerOfTwo(i64),
    /// A list of at most this many items of one shape.
    List(&'static Shape, usize),
    /// A table with these keys, of which exactly one set must be present (if there are any sets).
    Table(&'static [Key], Sets),
    /// `[[key]]` tables, with their minimum and maximum number.
    Tables(&'static [Key], Sets, usize, usize),
    /// A table of at most this many entries, with a form for the keys (or any keys) and a shape for the
    /// values.
    Map(Option<Form>, &'static Shape, usize),
    /// One of several shapes, distinguished by type.
    Either(&'static [Shape]),
    /// A custom schema and check. The check reports mistakes and returns whether the value is valid.
    Own(fn() -> Json, fn(&Item<'_>) -> bool),
}

/// The form of a string.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// A regular expression, for the schema.
    pub pattern: &'static str,
    /// Whether a string has the form; must agree with `pattern`.
    pub fits: fn(&str) -> bool,
    /// The end of the message for a string of another form, as in "must be a web address".
    pub what: &'static str,
}

/// Sets of keys, exactly one of which a table must contain.
pub type Sets = &'static [&'static [&'static str]];

/// Reports everything in a table that its declaration does not allow. Reported values are absent from
/// then on, so that each is reported once.
pub fn check(table: &Table<'_>, keys: &[Key], sets: Sets) {
    table.refuse_unknown(&names(keys));
    for key in keys {
        match table.get(key.name) {
            Some(value) => {
                check_value(&key.shape, &value);
            }
            None if key.required && !matches!(key.shape, Shape::Tables(..)) => {
                table.missing(key.name);
            }
            None => {}
        }
    }
    let complete = |set: &&&[&str]| set.iter().all(|key| table.has(key));
    if !sets.is_empty() && sets.iter().filter(complete).count() != 1 {
        let sets: Vec<String> = sets
            .iter()
            .map(|set| format!("`{}`", set.join("`, `")))
            .collect();
        let title = format!("exactly one of {} must be given", text::choice(&sets));
        table.complain(table.span(), title, "");
    }
}

/// Reports a value that does not have a shape; returns whether it has.
pub fn check_value(shape: &Shape, value: &Item<'_>) -> bool {
    let fits = fits(shape, value).is_some();
    if !fits {
        value.refuse();
    }
    fits
}

/// `None` if a value does not have a shape, which was reported.
fn fits(shape: &Shape, value: &Item<'_>) -> Option<()> {
    let path = || value.path();
    let no = |shown: &dyn std::fmt::Debug, what: String| {
        value.wrong(format!("`{}` cannot be {shown:?}", path()), what)
    };
    match shape {
        Shape::Text(least, most) => {
            let text = value.str()?.value;
            if *least > 0 && text.trim().is_empty() {
                return value.wrong(format!("`{}` is empty", path()), "");
            }
            if text.chars().count() > *most {
                let title = format!("`{}` has more than {most} characters", path());
                return value.wrong(title, "");
            }
        }
        Shape::Line(most) => {
            fits(&Shape::Text(1, usize::MAX), value)?;
            let line = value.str()?.value.trim();
            if line.contains('\n') || line.chars().count() > *most {
                let title = format!("`{}` must be one line of at most {most} characters", path());
                return value.wrong(title, "");
            }
        }
        Shape::Form(form) => {
            let text = value.str()?.value;
            if !(form.fits)(text) {
                let title = format!("`{}` must be {}, not `{text}`", path(), form.what);
                return value.wrong(title, "");
            }
        }
        Shape::Word(known) => word(value, &known())?,
        Shape::Flag => {
            value.bool()?;
        }
        Shape::Yes => {
            if !value.bool()?.value {
                return value.wrong(format!("`{}` can only be true", path()), "");
            }
        }
        Shape::Above(from, to) => {
            let number = value.float()?.value;
            if number <= *from || number > *to {
                return no(&number, format!("must be above {from} and at most {to}"));
            }
        }
        Shape::Number => {
            value.float()?;
        }
        Shape::Whole(from, to) => {
            let number = value.int()?.value;
            match (*from..=*to).contains(&number) {
                true => {}
                false if *to == i64::MAX => return no(&number, format!("must be at least {from}")),
                false => return no(&number, format!("must be {from} to {to}")),
            }
        }
        Shape::PowerOfTwo(most) => {
            let number = value.int()?.value;
            if number <= 0 || number & (number - 1) != 0 || number > *most {
                return no(&number, format!("a power of two up to {most}"));
            }
        }
        Shape::List(item, most) => list(shape, value, *most, item)?,
        Shape::Table(keys, sets) => check(&value.table()?, keys, sets),
        Shape::Tables(keys, sets, _, most) => {
            list(shape, value, *most, &Shape::Table(keys, sets))?;
        }
        Shape::Map(form, item, most) => {
            let table = value.table()?;
            few(value, *most)?;
            for (key, each) in table.entries() {
                if let Some(form) = form.filter(|form| !(form.fits)(key.value)) {
                    let title = format!("`{}` must be {}", key.value, form.what);
                    table.complain(key.span, title, "");
                }
                check_value(item, &each);
            }
        }
        Shape::Either(shapes) => match shapes.iter().find(|shape| takes(shape, value.raw())) {
            Some(shape) => fits(shape, value)?,
            None => return value.wrong_type(&alternatives(shapes)),
        },
        Shape::Own(_, own) => return own(value).then_some(()),
    }
    Some(())
}

/// Checks the items of a list; `None` if the list itself was reported.
fn list(shape: &Shape, value: &Item<'_>, most: usize, item: &Shape) -> Option<()> {
    let DeValue::Array(_) = value.raw() else {
        return value.wrong_type(phrase(shape));
    };
    few(value, most)?;
    for each in value.list()? {
        check_value(item, &each);
    }
    Some(())
}

fn few(value: &Item<'_>, most: usize) -> Option<()> {
    if value.len() > most {
        let title = format!("more than {most} entries in `{}`", value.path());
        return value.wrong(title, format!("{} of them", value.len()));
    }
    Some(())
}

fn word(value: &Item<'_>, known: &[&str]) -> Option<()> {
    let text = value.str()?.value;
    if known.contains(&text) {
        return Some(());
    }
    let near = did_you_mean(text, known.iter().copied());
    let title = format!("`{}` cannot be `{text}`{near}", value.path());
    let listed = known.len() <= MAX_LISTED || nearest(text, known.iter().copied()).is_none();
    let label = if listed {
        format!("one of {}", known.join(", "))
    } else {
        String::new()
    };
    value.wrong(title, label)
}

/// Whether a value of this type can have a shape.
fn takes(shape: &Shape, value: &DeValue<'_>) -> bool {
    match shape {
        Shape::Text(..) | Shape::Line(_) | Shape::Form(_) | Shape::Word(_) => {
            matches!(value, DeValue::String(_))
        }
        Shape::Flag | Shape::Yes => matches!(value, DeValue::Boolean(_)),
        Shape::Above(..) | Shape::Number => {
            matches!(value, DeValue::Integer(_) | DeValue::Float(_))
        }
        Shape::Whole(..) | Shape::PowerOfTwo(_) => matches!(value, DeValue::Integer(_)),
        Shape::List(..) | Shape::Tables(..) => matches!(value, DeValue::Array(_)),
        Shape::Table(..) | Shape::Map(..) => matches!(value, DeValue::Table(_)),
        Shape::Either(shapes) => shapes.iter().any(|shape| takes(shape, value)),
        Shape::Own(..) => true,
    }
}

/// A description of a shape, with its article.
fn phrase(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text(..) | Shape::Line(_) | Shape::Form(_) | Shape::Word(_) => "a string",
        Shape::Flag | Shape::Yes => "a boolean",
        Shape::Above(..) | Shape::Number => "a number",
        Shape::Whole(..) | Shape::PowerOfTwo(_) => "an integer",
        Shape::List(Shape::Text(..) | Shape::Form(_) | Shape::Word(_), _) => "a list of strings",
        Shape::List(..) => "a list",
        Shape::Tables(..) => "a list of tables",
        Shape::Table(..) | Shape::Map(..) => "a table",
        Shape::Either(_) | Shape::Own(..) => "another value",
    }
}

fn alternatives(shapes: &[Shape]) -> String {
    let mut phrases = Vec::new();
    let mut open: Vec<&Shape> = shapes.iter().rev().collect();
    while let Some(shape) = open.pop() {
        match shape {
            Shape::Either(inner) => open.extend(inner.iter().rev()),
            _ => phrases.push(phrase(shape).to_owned()),
        }
    }
    text::choice(&phrases)
}

/// A JSON value whose objects preserve key order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Json {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Number(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object, in this order of keys.
    Object(#[serde(serialize_with = "in_order")] Vec<(String, Json)>),
}

fn in_order<S: Serializer>(pairs: &[(String, Json)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(key, value)| (key, value)))
}

/// A string as JSON value.
pub fn text(words: &str) -> Json {
    Json::Text(words.to_owned())
}

/// An object as JSON value.
pub fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
    Json::Object(pairs.map(|(key, value)| (key.to_owned(), value)).into())
}

/// The schema of a whole file, indented, with a final newline.
pub fn document(title: &str, about: &str, keys: &'static [Key], sets: Sets) -> String {
    let mut pairs = vec![
        ("$schema".to_owned(), text(DIALECT)),
        ("title".to_owned(), text(title)),
        ("description".to_owned(), text(about)),
    ];
    if let Json::Object(own) = table(keys, sets) {
        pairs.extend(own);
    }
    // Serializing these values cannot fail.
    let mut out = serde_json::to_string_pretty(&Json::Object(pairs)).unwrap_or_default();
    let _ = writeln!(out);
    out
}

fn table(keys: &[Key], sets: Sets) -> Json {
    let mut pairs = vec![("type".to_owned(), text("object"))];
    let required: Vec<Json> = keys
        .iter()
        .filter(|k| k.required)
        .map(|k| text(k.name))
        .collect();
    if !required.is_empty() {
        pairs.push(("required".to_owned(), Json::List(required)));
    }
    if !sets.is_empty() {
        let set = |names: &&[&str]| {
            let names = names.iter().map(|n| text(n)).collect();
            object([("required", Json::List(names))])
        };
        let sets = sets.iter().map(set).collect();
        pairs.push(("oneOf".to_owned(), Json::List(sets)));
    }
    pairs.push(("additionalProperties".to_owned(), Json::Flag(false)));
    let properties = keys.iter().map(|key| {
        let mut own = vec![("description".to_owned(), text(key.doc))];
        if let Json::Object(shape) = of(&key.shape) {
            own.extend(shape);
        }
        (key.name.to_owned(), Json::Object(own))
    });
    pairs.push(("properties".to_owned(), Json::Object(properties.collect())));
    Json::Object(pairs)
}

/// The schema of one value.
pub fn of(shape: &Shape) -> Json {
    let count = |n: usize| Json::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let words = |known: &fn() -> Vec<&'static str>| {
        Json::List(known().into_iter().map(text).collect::<Vec<_>>())
    };
    match shape {
        Shape::Text(least, most) => object([
            ("type", text("string")),
            ("minLength", count(*least)),
            ("maxLength", count(*most)),
        ]),
        Shape::Line(most) => of(&Shape::Text(1, *most)),
        Shape::Form(form) => object([("type", text("string")), ("pattern", text(form.pattern))]),
        Shape::Word(known) => object([("enum", words(known))]),
        Shape::Flag => object([("type", text("boolean"))]),
        Shape::Yes => object([("const", Json::Flag(true))]),
        Shape::Above(from, to) => object([
            ("type", text("number")),
            ("exclusiveMinimum", Json::Number(*from)),
            ("maximum", Json::Number(*to)),
        ]),
        Shape::Number => object([("type", text("number"))]),
        Shape::Whole(from, to) => object([
            ("type", text("integer")),
            ("minimum", Json::Int(*from)),
            ("maximum", Json::Int(*to)),
        ]),
        Shape::PowerOfTwo(most) => {
            let powers = (0..63).map(|n| 1_i64 << n).take_while(|n| n <= most);
            object([("enum", Json::List(powers.map(Json::Int).collect()))])
        }
        Shape::List(item, most) => object([
            ("type", text("array")),
            ("maxItems", count(*most)),
            ("items", of(item)),
        ]),
        Shape::Table(keys, sets) => table(keys, sets),
        Shape::Tables(keys, sets, least, most) => object([
            ("type", text("array")),
            ("minItems", count(*least)),
            ("maxItems", count(*most)),
            ("items", table(keys, sets)),
        ]),
        Shape::Map(form, value, most) => object([
            ("type", text("object")),
            ("maxProperties", count(*most)),
            ("additionalProperties", Json::Flag(false)),
            (
                "patternProperties",
                Json::Object(vec![(form.map_or("", |f| f.pattern).to_owned(), of(value))]),
            ),
        ]),
        Shape::Either(shapes) => object([("anyOf", Json::List(shapes.iter().map(of).collect()))]),
        Shape::Own(make, _) => make(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: &[Key] = keys! {
        /// a number
        required "n": Shape::Whole(1, 9),
    };
    const KEYS: &[Key] = keys! {
        /// first as written,
        /// in two lines
        required "zebra": Shape::Text(1, 80),
        /// second
        "ant": Shape::Table(INNER, &[]),
        /// a power
        "size": Shape::PowerOfTwo(8),
    };

    #[test]
    fn schemas_list_keys_in_declaration_order() {
        let out = document("T", "About it.", KEYS, &[&["ant"], &["size"]]);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["required"], serde_json::json!(["zebra"]));
        let doc = &value["properties"]["zebra"]["description"];
        assert_eq!(doc, "first as written, in two lines");
        assert_eq!(value["properties"]["ant"]["properties"]["n"]["maximum"], 9);
        assert_eq!(
            value["properties"]["size"]["enum"],
            serde_json::json!([1, 2, 4, 8])
        );
        assert_eq!(value["additionalProperties"], false);
        assert!(out.find("zebra\": {") < out.find("\"ant\": {"), "{out}");
        assert!(out.ends_with("}\n"));
    }
}
