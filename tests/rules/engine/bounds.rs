//! Rules cannot cause hangs or excessive memory: every limit has its own error.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use pyprof_advise::facts::Value;
use pyprof_advise::judge::load::{MAX_FILES, RuleFile};
use pyprof_advise::judge::{RuleSet, Selection};

use super::fake_table::{FACTS, Fake, file, load, rule, s};

/// The messages of loading, which must be fast even in debug builds on a busy machine.
fn quickly(files: &[RuleFile]) -> String {
    let since = Instant::now();
    let said = match RuleSet::load(files, &Selection::default(), FACTS) {
        Ok(_) => String::new(),
        Err(complaints) => complaints.render(false),
    };
    let took = since.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(said.len() < 1 << 20, "{} bytes of complaints", said.len());
    said
}

fn one(body: &str) -> String {
    quickly(&[file("host/x", &rule(body))])
}

fn has(said: &str, want: &str) {
    assert!(
        said.contains(want),
        "{want}\n{}",
        said.get(..2_000).unwrap_or(said)
    );
}

#[test]
fn too_many_entries_are_reported_without_checking_them() {
    for (table, entry) in [
        ("let", "'1'"),
        ("params", "{ value = 1, doc = \"d\" }"),
        ("changes", "\"x\""),
    ] {
        let mut body = format!("[{table}]\n");
        for n in 0..20_000 {
            let _ = writeln!(body, "a{n} = {entry}");
        }
        has(&one(&body), &format!("more than 64 entries in `{table}`"));
    }
    for key in ["supersedes", "unless", "also_fixes", "references"] {
        let list = vec!["\"host/*\""; 20_000].join(", ");
        has(
            &one(&format!("{key} = [{list}]")),
            &format!("more than 64 entries in `{key}`"),
        );
    }
    let tests = "[[test]]\nname = \"a\"\nsilent = true\n".repeat(20_000);
    has(&one(&tests), "more than 256 entries in `test`");
}

#[test]
fn maximum_number_of_nested_lets_loads_quickly() {
    let mut body = String::from("when = 'l63 > 0'\n[let]\n");
    // In reverse order, so that each pass finds its let last.
    for n in (1..64).rev() {
        let _ = writeln!(body, "l{n} = 'max(l{}, {n})'", n - 1);
    }
    body.push_str("l0 = '1'\n");
    let said = one(&body);
    assert!(
        said.is_empty() || said.contains("nested too deep in its lets"),
        "{said}"
    );
}

#[test]
fn params_have_a_maximum_size() {
    let long = "x".repeat(100_000);
    let body = format!(
        "when = 'site.family in params.p'\n[params]\np = {{ value = [\"{long}\"], doc = \"d\" }}"
    );
    has(
        &one(&body),
        "`params.p.value[0]` has more than 2000 characters",
    );
    let many = vec!["\"x\""; 2_000].join(",");
    let body = format!(
        "when = 'site.family in params.p'\n[params]\np = {{ value = [{many}], doc = \"d\" }}"
    );
    has(&one(&body), "entries in `params.p.value`");
}

#[test]
fn too_many_rules_are_an_error() {
    let text = rule("");
    let files: Vec<RuleFile> = (0..10_000)
        .map(|n| file(&format!("host/r{n}"), &text))
        .collect();
    has(&quickly(&files), &format!("more than {MAX_FILES} rules"));
}

#[test]
fn thousand_mutual_suppressions_are_reported_quickly() {
    let text = rule("supersedes = [\"*\"]");
    let files: Vec<RuleFile> = (0..1_000)
        .map(|n| file(&format!("host/r{n}"), &text))
        .collect();
    has(&quickly(&files), "ends up overriding itself");
}

#[test]
fn chains_of_superseding_rules_are_not_cycles() {
    let texts: Vec<String> = (0..300)
        .map(|n| rule(&format!("supersedes = [\"host/r{}\"]", n + 1)))
        .collect();
    let mut files: Vec<RuleFile> = (texts.iter().enumerate())
        .map(|(n, text)| file(&format!("host/r{n}"), text))
        .collect();
    files.push(file("host/r300", &rule("")));
    assert_eq!(quickly(&files), "");
}

#[test]
fn messages_cannot_grow_exponentially() {
    for (message, want) in [
        (
            "{% set a = 'xx' %}{% set a = a ~ a %}{{ a }}",
            "`set` is not offered",
        ),
        ("{%- set a %}x{% endset %}", "`set` is not offered"),
        (
            "{% with a = 1 %}{{ a }}{% endwith %}",
            "`with` is not offered",
        ),
        ("{% macro f() %}x{% endmacro %}", "`macro` is not offered"),
        ("{% include 'x' %}", "`include` is not offered"),
        ("{{ 'x' * 100000000 }}", "`*` stands beside numbers only"),
        (
            "{{ site.family * 100000000 }}",
            "`*` stands beside numbers only",
        ),
        ("{{ (1, 2) * 100000000 }}", "`*` stands beside numbers only"),
        (
            "{% for x in site.names %}{{ x * 100000000 }}{% endfor %}",
            "`*` stands beside numbers only",
        ),
        (
            "{% if 'x' * 100000000 %}{% endif %}",
            "`*` stands beside numbers only",
        ),
        (
            "{{ site.family | replace('a', 'b') }}",
            "unknown filter `replace`",
        ),
        (
            "{{ site.m | percnt }}",
            "unknown filter `percnt`; did you mean `percent`?",
        ),
    ] {
        has(&one(&format!("message = \"\"\"{message}\"\"\"")), want);
    }
    for message in [
        "{{ site.m * 2 + 1 }} * {{ (site.m * site.n) | count }}",
        "{{ '|' }} {% if site.m is defined %}a|b{% endif %}",
    ] {
        assert_eq!(
            one(&format!("message = \"\"\"{message}\"\"\"")),
            "",
            "{message}"
        );
    }
}

/// The message of a rule that fires, and its fault if there is one.
fn spoken(message: &str, names: usize) -> (String, Option<String>) {
    let text = rule(&format!("message = \"\"\"{message}\"\"\""));
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    let list = Value::Strings(vec!["a word".into(); names].into());
    run.site(
        0,
        "a",
        1e5,
        1e4,
        &[("site.family", s("gemm")), ("site.names", list)],
    );
    let results = run.judge(&rules);
    let fault = results.faults.first().map(|f| f.message.clone());
    (results.findings[0].message.clone(), fault)
}

#[test]
fn templates_have_limited_time_and_output() {
    let nested = "{% for a in site.names %}{% for b in site.names %}{% for c in site.names %}{% if a == 'x' %}y{% endif %}{% endfor %}{% endfor %}{% endfor %}";
    let (said, fault) = spoken(nested, 1_000);
    assert_eq!(said, "A title");
    has(&fault.unwrap(), "it takes too many steps");
    let (said, fault) = spoken("{% for a in site.names %}{{ a }}, {% endfor %}", 1_000);
    assert_eq!(said, "A title");
    has(&fault.unwrap(), "longer than 4096 bytes");
    let (said, fault) = spoken("{{ site.names | length }}", 1_000);
    assert_eq!((said.as_str(), fault), ("1000", None));
}

#[test]
fn lists_of_facts_are_bounded() {
    let text = rule("when = 'site.names.exists(x, x == \"b\")'");
    let rules = load(&[("host/x", &text)]).unwrap();
    for (items, faults) in [(1_024, 0), (1_025, 1)] {
        let mut run = Fake::default();
        let list = Value::Strings(vec!["a".into(); items].into());
        run.site(0, "a", 1e5, 1e4, &[("site.names", list)]);
        assert_eq!(run.judge(&rules).faults.len(), faults, "{items} items");
    }
}
