use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;

/// The `cel` crate's result for an expression over dotted names and single words, with the functions
/// of rule files registered: the oracle of the differential tests.
pub(crate) fn oracle(
    source: &str,
    prefixes: &[&str],
    names: &BTreeMap<String, Value>,
) -> Result<cel::Value, String> {
    let mut groups: HashMap<&str, HashMap<String, cel::Value>> = HashMap::new();
    for prefix in prefixes {
        groups.insert(prefix, HashMap::new());
    }
    let mut context = cel::Context::default();
    for (name, value) in names {
        match name.split_once('.') {
            Some((prefix, rest)) => {
                let group = groups.entry(prefix).or_default();
                group.insert(rest.to_owned(), to_cel(value));
            }
            None => context.add_variable_from_value(name.clone(), to_cel(value)),
        }
    }
    for (prefix, group) in groups {
        context.add_variable_from_value(prefix.to_owned(), cel::Value::Map(group.into()));
    }
    for function in FUNCTIONS {
        let run = move |cel::extractors::Arguments(args): cel::extractors::Arguments| {
            let args: Vec<Value> = args.iter().filter_map(from_cel).collect();
            let fail = |why| cel::ExecutionError::function_error(function.name, why);
            function
                .call(&args)
                .map(|value| to_cel(&value))
                .map_err(fail)
        };
        context.add_function(function.name, run).unwrap();
    }
    let program = cel::Program::compile(source).map_err(|e| e.to_string())?;
    program.execute(&context).map_err(|e| e.to_string())
}

fn to_cel(value: &Value) -> cel::Value {
    let text = |s: &Arc<str>| cel::Value::String(Arc::new(s.to_string()));
    match value {
        Value::Bool(b) => cel::Value::Bool(*b),
        Value::Int(i) => cel::Value::Int(*i),
        Value::Double(d) => cel::Value::Float(*d),
        Value::Str(s) => text(s),
        Value::Strings(list) => cel::Value::List(Arc::new(list.iter().map(text).collect())),
        Value::Doubles(map) => {
            let pairs = map
                .iter()
                .map(|(k, v)| (k.to_string(), cel::Value::Float(*v)));
            cel::Value::Map(pairs.collect::<HashMap<_, _>>().into())
        }
        Value::Ints(map) => {
            let pairs = map
                .iter()
                .map(|(k, v)| (k.to_string(), cel::Value::Int(*v)));
            cel::Value::Map(pairs.collect::<HashMap<_, _>>().into())
        }
    }
}

fn from_cel(value: &cel::Value) -> Option<Value> {
    match value {
        cel::Value::Bool(b) => Some(Value::Bool(*b)),
        cel::Value::Int(i) => Some(Value::Int(*i)),
        cel::Value::Float(d) => Some(Value::Double(*d)),
        cel::Value::String(s) => Some(Value::Str(s.as_str().into())),
        _ => None,
    }
}

/// Asserts that our result equals that of the oracle. If ours fails, CEL must fail too, unless it
/// returns a number that is not finite.
pub(crate) fn assert_same(
    source: &str,
    ours: &Result<Value, String>,
    cel: &Result<cel::Value, String>,
) {
    match (ours, cel) {
        (Ok(ours), Ok(cel)) => assert_eq!(&to_cel(ours), cel, "{source}"),
        (Err(why), Ok(cel)) => {
            assert!(
                why.contains("not a finite number"),
                "{source}: {why}, CEL says {cel:?}"
            );
        }
        (Ok(ours), Err(cel)) => panic!("{source}: {ours:?}, CEL says {cel}"),
        (Err(_), Err(_)) => {}
    }
}

/// The facts of a test; others are absent.
#[derive(Debug)]
struct Facts(BTreeMap<String, Value>);

const NAMES: [(&str, Type); 9] = [
    ("site.b", Type::BOOL),
    ("site.c", Type::BOOL),
    ("site.i", Type::INT),
    ("site.j", Type::INT),
    ("site.x", Type::DOUBLE),
    ("site.y", Type::DOUBLE),
    ("site.s", Type::STR),
    ("site.names", Type::List(Some(Scalar::Str))),
    ("site.table", Type::Map(Scalar::Int)),
];

impl NameResolver for Facts {
    type Name = &'static str;

    fn find(&self, name: &str) -> Result<(&'static str, Type), NoName> {
        let known = NAMES.iter().find(|(known, _)| *known == name).copied();
        known.ok_or_else(|| NoName::Unknown(format!("unknown fact `{name}`")))
    }

    fn is_whole(&self, _word: &str) -> bool {
        false
    }

    fn may_be_absent(&self, _name: &&'static str) -> bool {
        true
    }

    fn values(&self, name: &&'static str) -> &'static [&'static str] {
        match *name {
            "site.s" => &["a", "b", "ab", ""],
            _ => &[],
        }
    }
}

impl EvalFailure for String {
    fn fault(message: String) -> String {
        message
    }

    fn join(self, right: String, _and: bool) -> String {
        format!("{self}; {right}")
    }
}

impl Bindings for Facts {
    type Name = &'static str;
    type Failure = String;

    fn get(&self, name: &&'static str) -> Result<Value, String> {
        self.0
            .get(*name)
            .cloned()
            .ok_or_else(|| format!("no {name}"))
    }
}

fn run(source: &str, facts: &Facts) -> Result<Value, String> {
    let checked = check(source, facts).unwrap_or_else(|m| panic!("{source}: {m:?}"));
    value(&checked.expr, facts)
}

fn facts() -> impl Strategy<Value = Facts> {
    let int = prop_oneof![3 => -3..4_i64, 1 => any::<i64>()];
    let double = prop_oneof![
        Just(0.0),
        Just(1.0),
        Just(-2.5),
        Just(9_007_199_254_740_993.0),
        Just(1e300),
        any::<i32>().prop_map(f64::from)
    ];
    let word =
        || prop_oneof![Just("a"), Just("b"), Just("ab"), Just("")].prop_map(Arc::<str>::from);
    let one = |name: &'static str, value: BoxedStrategy<Value>| {
        prop::option::weighted(0.8, value).prop_map(move |v| v.map(|v| (name.to_owned(), v)))
    };
    let of = move |ty: Type| match ty {
        Type::BOOL => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::INT => int.clone().prop_map(Value::Int).boxed(),
        Type::DOUBLE => double.clone().prop_map(Value::Double).boxed(),
        Type::STR => word().prop_map(Value::Str).boxed(),
        Type::List(_) => prop::collection::vec(word(), 0..4)
            .prop_map(|words| Value::Strings(words.into()))
            .boxed(),
        Type::Map(_) => prop::collection::btree_map(word(), -2..9_i64, 0..3)
            .prop_map(|map| Value::Ints(Arc::new(map)))
            .boxed(),
    };
    let each: Vec<_> = NAMES.map(|(name, ty)| one(name, of(ty))).into();
    each.prop_map(|facts| Facts(facts.into_iter().flatten().collect()))
}

/// A well-typed expression, in brackets if it contains operators.
fn expression(ty: Type, depth: u32) -> BoxedStrategy<String> {
    let name = NAMES
        .iter()
        .filter(|(_, t)| *t == ty)
        .map(|(n, _)| (*n).to_owned());
    let mut leaves: Vec<String> = name.collect();
    match ty {
        Type::BOOL => leaves.extend([
            "true".into(),
            "has(site.i)".into(),
            "!has(site.names)".into(),
        ]),
        Type::INT => leaves.extend([
            "3".into(),
            "-1".into(),
            "0x1f".into(),
            "9223372036854775807".into(),
        ]),
        Type::DOUBLE => leaves.extend(["0.5".into(), "-1e3".into(), ".25".into()]),
        _ => leaves.extend(["\"a\"".into(), "'b'".into(), r#""\x61""#.into()]),
    }
    let leaf = prop::sample::select(leaves).boxed();
    if depth == 0 || !matches!(ty, Type::One(_)) {
        return leaf;
    }
    let of = |ty| expression(ty, depth - 1);
    // Comprehensions are not nested.
    let leaf_of = |ty| expression(ty, 0);
    let two = |ty, signs: &'static [&'static str]| {
        (of(ty), prop::sample::select(signs), of(ty))
            .prop_map(|(a, sign, b)| format!("({a} {sign} {b})"))
    };
    let choice =
        (of(Type::BOOL), of(ty), of(ty)).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})"));
    let relations: &[&str] = &["<", "<=", ">", ">=", "==", "!="];
    match ty {
        Type::BOOL => prop_oneof![
            leaf,
            choice,
            two(Type::BOOL, &["&&", "||", "==", "!="]),
            (of(ty), of(ty), of(ty))
                .prop_map(|(a, b, c)| format!("{a} && {b} || !({c})"))
                .prop_map(|e| format!("({e})")),
            two(Type::INT, relations),
            two(Type::DOUBLE, relations),
            two(Type::STR, relations),
            (
                of(Type::INT),
                prop::sample::select(relations),
                of(Type::DOUBLE)
            )
                .prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            (of(Type::STR), of(Type::STR)).prop_map(|(a, b)| format!("({a} in [{b}, \"b\"])")),
            (of(Type::INT), of(Type::INT)).prop_map(|(a, b)| format!("({a} in [{b}, 3])")),
            of(Type::STR).prop_map(|a| format!("({a} in site.names)")),
            of(Type::STR).prop_map(|a| format!("({a} in site.table)")),
            (of(Type::STR), of(Type::STR)).prop_map(|(a, b)| format!("{a}.contains({b})")),
            (of(Type::STR), of(Type::STR)).prop_map(|(a, b)| format!("{a}.startsWith({b})")),
            (of(Type::STR), of(Type::STR)).prop_map(|(a, b)| format!("{a}.endsWith({b})")),
            leaf_of(Type::STR).prop_map(|a| format!("site.names.all(n, n != {a})")),
            leaf_of(Type::STR).prop_map(|a| format!("site.names.exists(n, n == {a})")),
            leaf_of(Type::STR).prop_map(|a| format!("site.names.exists_one(n, n + \"a\" == {a})")),
            leaf_of(Type::STR)
                .prop_map(|a| format!("(site.names.filter(n, n < {a}) + [\"a\"] == [\"a\"])")),
            of(Type::INT).prop_map(|a| format!("({a} in site.names.map(n, n.size()))")),
        ]
        .boxed(),
        Type::INT => prop_oneof![
            leaf,
            choice,
            two(Type::INT, &["+", "-", "*", "/", "%"]),
            of(Type::INT).prop_map(|a| format!("-({a})")),
            of(Type::DOUBLE).prop_map(|a| format!("int({a})")),
            of(Type::DOUBLE).prop_map(|a| format!("ceil({a})")),
            two(Type::INT, &[","]).prop_map(|both| format!("max{both}")),
            of(Type::STR).prop_map(|a| format!("size({a})")),
            of(Type::STR).prop_map(|a| format!("site.table[{a}]")),
            of(Type::STR).prop_map(|a| format!("{{\"a\": 1, \"b\": 2}}[{a}]")),
            Just("site.table.a".to_owned()),
            Just("site.names.size()".to_owned()),
        ]
        .boxed(),
        Type::DOUBLE => prop_oneof![
            leaf,
            choice,
            two(Type::DOUBLE, &["+", "-", "*", "/"]),
            of(Type::INT).prop_map(|a| format!("double({a})")),
            two(Type::DOUBLE, &[","]).prop_map(|both| format!("min{both}")),
        ]
        .boxed(),
        _ => prop_oneof![
            leaf,
            choice,
            two(Type::STR, &["+"]),
            of(Type::INT).prop_map(|a| format!("site.names[{a}]")),
        ]
        .boxed(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(4_000), ..ProptestConfig::default() })]

    /// A deliberate difference: CEL allows infinities. Strings that `site.s` cannot have are not
    /// generated.
    #[test]
    fn results_equal_those_of_the_cel_crate(facts in facts(), source in expression(Type::BOOL, 3)) {
        let ours = run(&source, &facts);
        assert_same(&source, &ours, &oracle(&source, &["site"], &facts.0));
    }

    #[test]
    fn arbitrary_text_does_not_make_the_parser_panic(source in "[a-c.()\\[\\]{}!&|=<>?:,+*/%'\"\\\\ \\n0-9éxrbu-]{0,40}") {
        let _ = check(&source, &Facts(BTreeMap::new()));
    }
}

#[test]
fn functions_are_sorted_and_documented() {
    assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
    for f in FUNCTIONS {
        assert!(f.usage.starts_with(f.name) && !f.doc.is_empty());
    }
}

#[test]
fn functions_return_values_or_errors() {
    let facts = Facts(BTreeMap::new());
    for (source, expected) in [
        ("ceil_to(50257, 8)", Value::Int(50264)),
        ("ceil_to(50264, 8)", Value::Int(50264)),
        ("ceil_to(-3, 8)", Value::Int(0)),
        ("floor_to(50257, 8)", Value::Int(50256)),
        ("ceil_to(2.5, 2)", Value::Double(4.0)),
        ("min(3, 1, 2)", Value::Int(1)),
        ("max(3, 1.5)", Value::Double(3.0)),
        ("round(2.5)", Value::Int(3)),
        ("abs(-2.0)", Value::Double(2.0)),
        ("divisible(16, 8)", Value::Bool(true)),
        ("divisible(17, 8)", Value::Bool(false)),
        ("int(-2.7)", Value::Int(-2)),
        ("2 + 3 * 4 - 10 / 3", Value::Int(11)),
        ("7 - 2 - 1", Value::Int(4)),
        ("true ? 1 : false ? 2 : 3", Value::Int(1)),
        ("-2 * -3 // six", Value::Int(6)),
    ] {
        assert_eq!(run(source, &facts), Ok(expected), "{source}");
    }
    for source in [
        "ceil_to(1, 0)",
        "divisible(1, 0)",
        "round(1e300)",
        "int(1e300)",
        "ceil_to(9223372036854775807, 8)",
        "abs(-9223372036854775808)",
    ] {
        assert!(run(source, &facts).is_err(), "{source}");
    }
}

#[test]
fn common_mistakes_are_explained_at_their_position() {
    let facts = Facts(BTreeMap::new());
    for (source, at, title, label) in [
        (
            "site.i = 3",
            "=",
            "`=` is not an operator",
            "to compare, write `==`",
        ),
        (
            "site.b and site.c",
            "and",
            "`and` is not an operator",
            "write `&&`",
        ),
        (
            "site.b or site.c",
            "or",
            "`or` is not an operator",
            "write `||`",
        ),
        ("not site.b", "not", "`not` is not an operator", "write `!`"),
        (
            "site.b & site.c",
            "&",
            "`&` is not an operator",
            "write `&&`",
        ),
        (
            "site.b | site.c",
            "|",
            "`|` is not an operator",
            "write `||`",
        ),
        (
            "site.i if site.b else 3",
            "if",
            "`if` is not an operator",
            "write `condition ? a : b`",
        ),
        (
            "site.b == True",
            "True",
            "`True` is Python's",
            "write `true`",
        ),
        ("(site.b", "(", "`(` is never closed", ""),
        ("site.i >", "", "a value is missing after `>`", ""),
        ("site.s == \"a", "\"a", "this string is never closed", ""),
        (
            "site.i 3",
            "3",
            "unexpected `3`",
            "an operator is missing before it",
        ),
        ("site.b)", ")", "unexpected `)`", ""),
        (
            "len(site.s) > 1",
            "len",
            "unknown function `len`; did you mean `size`?",
            "",
        ),
        (
            "0 < site.i < 3",
            "<",
            "a bool cannot be compared with an int",
            "write `a < b && b < c`",
        ),
        (
            "site.s == \"c\"",
            "\"c\"",
            "`c` is not one of its values",
            "one of a, b, ab, ",
        ),
        (
            "site.s in [\"a\", \"c\"]",
            "\"c\"",
            "`c` is not one of its values",
            "one of a, b, ab, ",
        ),
        (
            "site.i + 1.0 > 1.0",
            "site.i",
            "`+` of an int and a double",
            "`site.i` is an int: write double(site.i)",
        ),
    ] {
        let mistakes = check(source, &facts).unwrap_err();
        let first = &mistakes[0];
        assert_eq!(mistakes.len(), 1, "{source}: {mistakes:?}");
        assert_eq!(
            (first.title.as_str(), first.label.as_str()),
            (title, label),
            "{source}"
        );
        assert_eq!(&source[first.at.clone()], at, "{source}");
    }
}
