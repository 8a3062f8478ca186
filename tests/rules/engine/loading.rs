//! Loading: all mistakes are reported at once, with their positions.

use pyprof_advise::judge::{RuleSet, Selection, scaffold};

use super::fake_table::{FACTS, file, load, load_with, rule};

const TESTS: &str =
    "\n[[test]]\nname = \"a\"\nfires = \"says\"\n[[test]]\nname = \"b\"\nsilent = true\n";

/// The messages of loading one rule.
fn complaints(text: &str) -> String {
    load(&[("host/x", text)]).err().unwrap_or_default()
}

#[test]
fn valid_rules_load() {
    assert_eq!(complaints(&rule("")), "");
    let full = rule(
        r#"
group_by = "run"
require = 'found.gpu_share >= params.min_share'
error_when = 'found.count > 3'
saving_ns = 'site.time_ns - double(site.calls) * half'
saving_kind = "gpu"
changes = { shape = "padded" }
message = "{{ site.m }} {{ gpu.flops.bf16 | flop_rate }} {{ half }} {{ found.worst }}{% if site.n is defined %}!{% endif %}"
references = ["https://example.org/a"]
[params]
min_share = { value = 0.01, doc = "because" }
[let]
half = 'site.reachable_ns / two'
two = '2.0'
"#,
    );
    assert_eq!(complaints(&full), "");
}

#[test]
fn only_rules_on_a_cycle_are_reported_as_superseding_themselves() {
    let all: Vec<(&str, String)> = [
        ("host/a", "host/b"),
        ("host/b", "host/a"),
        ("host/between", "host/c"),
        ("host/c", "host/d"),
        ("host/d", "host/c"),
    ]
    .map(|(id, by)| (id, rule(&format!("supersedes = [\"{by}\"]"))))
    .into();
    let mut files: Vec<(&str, &str)> = all.iter().map(|(id, text)| (*id, text.as_str())).collect();
    let into = rule("supersedes = [\"host/a\", \"host/between\"]");
    files[1].1 = &into;
    let said = load(&files).unwrap_err();
    assert_eq!(
        said.matches("ends up overriding itself").count(),
        4,
        "{said}"
    );
    assert!(!said.contains("`host/between` ends up"), "{said}");
}

#[test]
fn missing_keys_are_named() {
    for key in [
        "title",
        "severity",
        "confidence",
        "for_each",
        "when",
        "message",
        "why",
        "fix",
    ] {
        let text: String = rule("")
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} =")))
            .map(|line| format!("{line}\n"))
            .collect();
        let said = complaints(&text);
        assert!(
            said.contains(&format!("`{key}` is missing")),
            "{key}: {said}"
        );
    }
}

#[test]
fn all_complaints_are_reported_at_once_with_carets() {
    let text = rule(
        "severity = \"bad\"\nwhen = '''site.family == \"gemm\" &&\n  site.famly == \"x\" && site.m + 1.0 > 2.0'''\nmessage = \"é {{ site.mm }}\"",
    );
    let said = complaints(&text);
    assert_eq!(said.matches("error:").count(), 4, "{said}");
    assert!(
        said.contains("^^^^^^^^^^\n") || said.contains("^^^^^^^^^^ "),
        "{said}"
    );
    // For an expression of several lines, the caret is under the name on its second line.
    let line = said
        .lines()
        .position(|l| l.contains("site.famly == \"x\""))
        .unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let column = lines[line].find("site.famly").unwrap();
    assert_eq!(lines[line + 1].find('^'), Some(column), "{said}");
    let line = said
        .lines()
        .position(|l| l.contains("{{ site.mm }}"))
        .unwrap();
    let chars = |text: &str, what: char| text.chars().position(|c| c == what).unwrap();
    let name = lines[line]
        .chars()
        .collect::<String>()
        .split("site.mm")
        .next()
        .unwrap()
        .chars()
        .count();
    assert_eq!(chars(lines[line + 1], '^'), name, "{said}");
}

#[test]
fn invalid_lets_are_reported_once() {
    let text =
        rule("when = 'a && b'\nmessage = \"{{ a }}\"\n[let]\na = 'site.famly == \"x\"'\nb = 'a'");
    let said = complaints(&text);
    assert_eq!(said.matches("error:").count(), 1, "{said}");
}

#[test]
fn expressions_and_messages_have_a_maximum_length() {
    let long = format!("when = '{}'", vec!["site.m > 1"; 300].join(" && "));
    assert!(complaints(&rule(&long)).contains("`when` has more than 2000 characters"));
    let many = format!("when = '{}'", vec!["1>0"; 250].join("||"));
    assert!(complaints(&rule(&many)).contains("too many parts"));
    let deep = |n: usize| format!("when = '{}true{}'", "(".repeat(n), ")".repeat(n));
    assert!(complaints(&rule(&deep(400))).contains("too many parts"));
    assert_eq!(complaints(&rule(&deep(16))), "");
    let chain = format!("when = 'site.m {} > 0'", "-1".repeat(70));
    assert!(complaints(&rule(&chain)).contains("too many parts"));
    let mut lets = String::from("when = 'l9 > 0'\n[let]\nl0 = '1'\n");
    for n in 1..10 {
        lets.push_str(&format!("l{n} = 'l{}{}'\n", n - 1, " + 1".repeat(10)));
    }
    assert!(complaints(&rule(&lets)).contains("nested too deep in its lets"));
    // The longest permitted chains, on a small stack.
    for (first, each) in [
        ("1 > 0", "||1>0"),
        ("1 > 0", "-1"),
        ("site.names[0] == \"\"", "[0]"),
        ("1 > 0", "?1>0:1>0"),
    ] {
        let long = format!("when = '{first}{}'", each.repeat(199 / each.len().min(3)));
        let _ = complaints(&rule(&long));
        let long = format!("when = '{first}{}'", each.repeat(16));
        let _ = complaints(&rule(&long));
    }
    let long = format!("message = '{}'", "x".repeat(9_000));
    assert!(complaints(&rule(&long)).contains("has more than 8000 characters"));
}

#[test]
fn relations_between_rules_are_checked() {
    let a = rule("supersedes = [\"host/b\"]");
    let b = rule("supersedes = [\"host/a\"]");
    let said = load(&[("host/a", &a), ("host/b", &b)]).unwrap_err();
    assert!(
        said.contains("`host/a` ends up overriding itself"),
        "{said}"
    );
    let said = load(&[("host/a", &rule("")), ("host/a", &rule(""))]).unwrap_err();
    assert!(said.contains("there are two rules `host/a`"), "{said}");
    for (key, value) in [
        ("supersedes", "[\"host/bb\"]"),
        ("unless", "[\"host/bb\"]"),
        ("also_fixes", "[\"host/bb\"]"),
        ("supersedes", "[\"memory/*\"]"),
    ] {
        let a = rule(&format!("{key} = {value}"));
        let said = load(&[("host/a", &a), ("host/bbb", &rule(""))]).unwrap_err();
        assert!(
            said.contains(&format!("`{key}` names no other rule")),
            "{said}"
        );
        assert!(said.contains('^'), "{said}");
    }
    let said = load(&[
        ("host/a", &rule("unless = [\"host/bb\"]")),
        ("host/bbb", &rule("")),
    ]);
    assert!(said.unwrap_err().contains("did you mean `host/bbb`?"));
    for key in ["vetoes = [\"hots/*\"]", "lowers_confidence = [\"hots/*\"]"] {
        let said = load(&[("profile/a", &rule(key)), ("host/b", &rule(""))]).unwrap_err();
        assert!(said.contains("names no other rule"), "{said}");
    }
    let said = load(&[("hsot/a", &rule(""))]).unwrap_err();
    assert!(
        said.contains("unknown category `hsot`; did you mean `host`"),
        "{said}"
    );
    // A relation to an invalid rule is not a second mistake.
    let said = load(&[
        ("host/a", &rule("unless = [\"host/b\"]")),
        ("host/b", "title = 3"),
    ]);
    assert!(!said.unwrap_err().contains("names no other rule"));
}

#[test]
fn clashes_with_built_in_rules_are_reported_with_a_remedy() {
    let mut builtin = file("host/a", &rule(""));
    builtin.builtin = true;
    let mine = file("host/a", &rule(""));
    let said = RuleSet::load(&[builtin, mine], &Selection::default(), FACTS).unwrap_err();
    let said = said.render(false);
    assert!(
        said.contains("there is a built-in rule `host/a`") && said.contains("--set"),
        "{said}"
    );
}

#[test]
fn rules_are_selected_and_parameters_are_set() {
    let a = rule(
        "when = 'site.m > params.x'\n[params]\nx = { value = 3, doc = \"d\" }\ny = { value = 0.5, doc = \"d\" }\n[let]\n",
    );
    let a = a.replace(
        "site.m > params.x",
        "site.m > params.x && site.time_ns > params.y",
    );
    let files = [
        ("host/a", a.as_str()),
        ("host/b", &rule("")),
        ("memory/c", &rule("")),
    ];
    let ids = |select: &[&str], ignore: &[&str]| {
        let selection = Selection {
            select: select.iter().map(|s| (*s).to_owned()).collect(),
            ignore: ignore.iter().map(|s| (*s).to_owned()).collect(),
            set: Vec::new(),
        };
        load_with(&files, &selection).map(|set| {
            set.rules()
                .iter()
                .map(|r| r.id.clone())
                .collect::<Vec<_>>()
                .join(" ")
        })
    };
    assert_eq!(ids(&[], &[]).unwrap(), "host/a host/b memory/c");
    assert_eq!(ids(&["host"], &[]).unwrap(), "host/a host/b");
    assert_eq!(ids(&["*/c", "host/a"], &[]).unwrap(), "host/a memory/c");
    assert_eq!(ids(&["host"], &["host/b"]).unwrap(), "host/a");
    assert!(
        ids(&["hots"], &[])
            .unwrap_err()
            .contains("did you mean `host`?")
    );
    assert!(
        ids(&[], &["memory/d"])
            .unwrap_err()
            .contains("did you mean `memory/c`?")
    );

    let set = |setting: &str| {
        let selection = Selection {
            set: vec![setting.to_owned()],
            ..Selection::default()
        };
        load_with(&files, &selection)
    };
    assert!(set("host/a.x=4").is_ok());
    assert!(set("host/a.y=4").is_ok(), "an int may stand for a double");
    assert!(
        (set("host/a.min_fraction=0.25")
            .unwrap()
            .get("host/a")
            .unwrap()
            .min_fraction()
            - 0.25)
            .abs()
            < 1e-9
    );
    for (setting, want) in [
        ("host/a.x=4.5", "`host/a.x` must be an int, not `4.5`"),
        ("host/a.y=nan", "must be a double"),
        ("host/a.yy=1", "has no param `yy`"),
        ("host/aa.x=1", "no rule `host/aa`; did you mean `host/a`?"),
        ("host/a.min_fraction=2", "a fraction from 0 to 1"),
        ("host/a", "expected `category/rule.param=value`"),
    ] {
        let said = set(setting).unwrap_err();
        assert!(said.contains(want), "{setting}: {said}");
    }
}

#[test]
fn folders_of_rules_are_found_and_wrong_paths_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let good = rule("");
    std::fs::create_dir(folder.path().join("host")).unwrap();
    std::fs::write(folder.path().join("host/b.toml"), &good).unwrap();
    std::fs::write(folder.path().join("a.toml"), &good).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "no rule").unwrap();
    let files = pyprof_advise::judge::load::find(folder.path()).unwrap();
    let ids: Vec<&str> = files.iter().map(|f| f.id.as_str()).collect();
    assert_eq!(ids, ["user/a", "host/b"]);
    assert!(RuleSet::load(&files, &Selection::default(), FACTS).is_ok());
    let one = pyprof_advise::judge::load::find(&folder.path().join("host/b.toml")).unwrap();
    assert_eq!(one[0].id, "user/b");
    std::fs::create_dir(folder.path().join("misc")).unwrap();
    std::fs::write(folder.path().join("misc/b.toml"), &good).unwrap();
    std::fs::write(folder.path().join("misc/c.toml"), "titel = 1").unwrap();
    let files = pyprof_advise::judge::load::find(folder.path()).unwrap();
    let said = RuleSet::load(&files, &Selection::default(), FACTS)
        .unwrap_err()
        .render(false);
    assert!(said.contains("unknown category `misc`"), "{said}");
    assert!(said.contains("did you mean `title`"), "{said}");
    let said = pyprof_advise::judge::load::find(&folder.path().join("none.toml")).unwrap_err();
    assert!(said.render(false).contains("cannot be read"));
}

#[test]
fn new_rules_load_unchanged() {
    let text = scaffold("fusion/my-idea");
    let set = load(&[("fusion/my-idea", &text)]).unwrap();
    let proofs = pyprof_advise::judge::run_tests(set.rules(), FACTS, &|_| None);
    assert_eq!(proofs.len(), 3);
    for proof in proofs {
        assert_eq!(proof.outcome, Ok(()), "{}", proof.test);
    }
}

#[test]
fn arbitrary_text_does_not_panic() {
    let nonsense = [
        "\u{0}",
        "[[[",
        "when = '''",
        "a.b.c = 1",
        "[let]\nx = '\"'",
        "when = 3",
        "[[test]]",
        "test = 3",
        "params = []",
        "let = { a = { b = 1 } }",
        "lowers_confidence = 3",
        "changes = []",
    ];
    for text in nonsense {
        assert!(load(&[("host/x", text)]).is_err(), "{text}");
        assert!(load(&[("host/x", &rule(text))]).is_err(), "{text}");
    }
    let expressions = [
        "((((",
        "a.b.c.d.e",
        "site.m[",
        "{1: 2}",
        "{}",
        "[]",
        "site{a: 1}",
        "\"\\u{110000}\"",
        "1e999",
        "x.y()",
        "site.m.exists(x, y, z)",
        "has(site)",
        "has(1)",
        ".site.m > 1",
        "site.?m",
        "site[?\"m\"]",
        "9223372036854775808 > 1",
        "true ? 1 : 2",
        "type(site.m) == int",
        "dyn(site.m) == 1",
        "optional.none()",
        "string(1) == \"1\"",
        "`a`",
        "'\\'",
        "site.m > 1 // x",
        "for in if",
        "@result",
        "site . m . n",
    ];
    for text in expressions {
        let body = format!("when = \"\"\"{}\"\"\"", text.replace('\\', "\\\\"));
        let said = complaints(&rule(&body));
        let fine = text == "site.m > 1 // x";
        assert_eq!(said.is_empty(), fine, "{text}: {said}");
    }
    assert!(complaints(&rule(&format!("x = 1{TESTS}"))).contains("unknown key"));
}
