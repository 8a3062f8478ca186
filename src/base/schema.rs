//! The keys of the TOML files people write, as data: loaders refuse what is not in these tables,
//! documents print them, and [`document`] turns them into a JSON Schema for editors.

use std::fmt::Write as _;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// The dialect of the schemas.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub required: bool,
    pub doc: &'static str,
    /// What may stand behind it.
    pub shape: Shape,
}

/// A key, for tables of them.
pub const fn key(name: &'static str, required: bool, doc: &'static str, shape: Shape) -> Key {
    Key {
        name,
        required,
        doc,
        shape,
    }
}

/// The names of some keys.
pub fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|k| k.name).collect()
}

/// What a value may be. A schema cannot say everything a loader checks, and says nothing it does not.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A string of so many characters, and at most so many.
    Text(usize, usize),
    /// A string of a form, as a regular expression both ECMAScript and Rust understand.
    Form(&'static str),
    /// One of a few words.
    Word(fn() -> Vec<&'static str>),
    Flag,
    /// Only `true`.
    Yes,
    /// A number above the first and at most the second.
    Above(f64, f64),
    /// A number from the first to the second.
    Within(f64, f64),
    Number,
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// A power of two up to this.
    PowerOfTwo(i64),
    /// A list of at most so many of one shape.
    List(&'static Shape, usize),
    /// A table with these keys, of which exactly one set must be there (if there are any sets).
    Table(&'static [Key], Sets),
    /// `[[key]]`: at least so many tables.
    Tables(&'static [Key], Sets, usize),
    /// A table whose keys have a form, and its values a shape.
    Map(&'static str, &'static Shape),
    /// A table whose keys are words, and its values of a shape.
    Words(fn() -> Vec<&'static str>, &'static Shape),
    /// One of several.
    Either(&'static [Shape]),
    /// What only its owner can say.
    Own(fn() -> Json),
}

/// Sets of keys, of which a table has exactly one.
pub type Sets = &'static [&'static [&'static str]];

/// A JSON value whose objects keep their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    Flag(bool),
    Int(i64),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Flag(flag) => serializer.serialize_bool(*flag),
            Json::Int(int) => serializer.serialize_i64(*int),
            Json::Number(number) => serializer.serialize_f64(*number),
            Json::Text(text) => serializer.serialize_str(text),
            Json::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Json::Object(pairs) => {
                let mut map = serializer.serialize_map(Some(pairs.len()))?;
                for (key, value) in pairs {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

/// A string as JSON.
pub fn text(words: &str) -> Json {
    Json::Text(words.to_owned())
}

/// An object as JSON.
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
    // Writing values of our own into a string cannot fail.
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
        Shape::Form(form) => object([("type", text("string")), ("pattern", text(form))]),
        Shape::Word(known) => object([("enum", words(known))]),
        Shape::Flag => object([("type", text("boolean"))]),
        Shape::Yes => object([("const", Json::Flag(true))]),
        Shape::Above(from, to) => object([
            ("type", text("number")),
            ("exclusiveMinimum", Json::Number(*from)),
            ("maximum", Json::Number(*to)),
        ]),
        Shape::Within(from, to) => object([
            ("type", text("number")),
            ("minimum", Json::Number(*from)),
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
        Shape::Tables(keys, sets, least) => object([
            ("type", text("array")),
            ("minItems", count(*least)),
            ("items", table(keys, sets)),
        ]),
        Shape::Map(form, value) => object([
            ("type", text("object")),
            ("additionalProperties", Json::Flag(false)),
            (
                "patternProperties",
                Json::Object(vec![((*form).to_owned(), of(value))]),
            ),
        ]),
        Shape::Words(known, value) => object([
            ("type", text("object")),
            ("propertyNames", object([("enum", words(known))])),
            ("additionalProperties", of(value)),
        ]),
        Shape::Either(shapes) => object([("anyOf", Json::List(shapes.iter().map(of).collect()))]),
        Shape::Own(make) => make(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INNER: &[Key] = &[key("n", true, "a number", Shape::Whole(1, 9))];
    const KEYS: &[Key] = &[
        key("zebra", true, "first as written", Shape::Text(1, 80)),
        key("ant", false, "second", Shape::Table(INNER, &[])),
        key("size", false, "a power", Shape::PowerOfTwo(8)),
    ];

    #[test]
    fn keys_become_a_schema_in_the_order_they_are_written() {
        let out = document("T", "About it.", KEYS, &[&["ant"], &["size"]]);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["required"], serde_json::json!(["zebra"]));
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
