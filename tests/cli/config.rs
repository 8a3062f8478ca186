//! Options from a file: reading, precedence, errors, and the file that `--dump-config` writes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::cli_sandbox::{ROOT, Sandbox, has, lacks};
use serde_json::Value;

/// A file with every key that can be combined.
const FULL: &str = r#"
gpu       = "v100"
rules     = ["mine.toml"]
select    = ["precision", "user/*"]
ignore    = ["precision/tf32-off"]
costs     = ["costs.toml"]
top       = 3
format    = "markdown"
output    = "advice.md"
max-chars = 20000
fail-on   = ["error", "saving=2.5%"]
baseline  = "main.json"
verbose   = true
color     = "never"

[set]
"precision/amp-off".min_share = 0.10
"user/mine".names = ["a", "b \"c\""]
"user/mine".word = "seven"

[[suppress]]
rule   = "precision"
reason = "one\n\"two\""

[[suppress]]
rule   = "host/*"
place  = 'head "x" \ *'
reason = "later"
until  = 2026-12-31
"#;

/// The keys of a `[[suppress]]`.
const SUPPRESSION: [&str; 4] = ["rule", "place", "reason", "until"];

fn configured(text: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("pa.toml", text);
    sandbox
}

// ------------------------------------------------------------------------------------- round trip

#[test]
fn dumped_configurations_read_back_equal() {
    let sandbox = configured(FULL);
    let first = sandbox.fine("--dump-config --config pa.toml");
    sandbox.write("second.toml", &first);
    assert_eq!(sandbox.fine("--dump-config --config second.toml"), first);
    has(
        &first,
        &[
            "select = [\"precision\", \"user/*\"]",
            "top = 3",
            "fail-on = [\"error\", \"saving=2.5%\"]",
            "\"precision/amp-off\".\"min_share\" = 0.10",
            "until  = 2026-12-31",
        ],
    );
    // The same options on the command line produce the same file.
    let flags = sandbox.fine(
        "--dump-config --gpu v100 --rules mine.toml --select precision,user/* --ignore precision/tf32-off \
         --costs costs.toml --top 3 --format markdown -o advice.md --max-chars 20000 \
         --fail-on error,saving=2.5% --baseline main.json --verbose --color never \
         --set precision/amp-off.min_share=0.10",
    );
    let own = |text: &str| text.split("\n# thresholds").next().unwrap().to_owned();
    assert_eq!(own(&flags), own(&first));
    // A configuration without values reads back empty.
    sandbox.write("nothing.toml", &sandbox.fine("--dump-config"));
    assert_eq!(
        sandbox.fine("--dump-config --config nothing.toml"),
        sandbox.read("nothing.toml")
    );
    assert_eq!(
        sandbox.fine("net.sqlite --config nothing.toml"),
        sandbox.fine("net.sqlite")
    );
}

#[test]
fn every_example_in_the_file_is_valid() {
    let sandbox = Sandbox::new();
    let dump = sandbox.fine("--dump-config");
    let mut examples = 0;
    for line in dump.lines() {
        let Some(example) = line.strip_prefix("# ").filter(|l| {
            let key = l.split(" = ").next().unwrap_or_default();
            let own = !key.contains([' ', '"', ':']) && !SUPPRESSION.contains(&key.trim());
            l.contains(" = ") && own
        }) else {
            continue;
        };
        sandbox.write("one.toml", &format!("{example}\n"));
        sandbox.fine("--dump-config --config one.toml");
        examples += 1;
    }
    assert!(examples >= 12, "{examples}\n{dump}");
    let tables = dump.split("\n# thresholds").nth(1).unwrap();
    let tables: Vec<&str> = tables
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| !line.starts_with("findings"))
        .collect();
    sandbox.write("tables.toml", &tables.join("\n"));
    let dump = sandbox.fine("--dump-config --config tables.toml");
    has(&dump, &["\n[[suppress]]", "\n[set]"]);
}

/// Options for a single run, and `--config` itself, are not keys.
#[test]
fn configuration_keys_equal_the_options() {
    let sandbox = Sandbox::new();
    let schema: Value = serde_json::from_str(&sandbox.fine("schema config")).unwrap();
    let mut keys: BTreeSet<&str> = schema["properties"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert!(keys.remove("suppress"));
    let help = sandbox.fine("--help");
    let options: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| {
            line.trim_start()
                .strip_prefix("--")
                .or(line.trim_start().get(4..)?.strip_prefix("--"))
        })
        .filter_map(|line| line.split([' ', ',', '<']).next())
        // What belongs to one profile, or to the command line.
        .filter(|option| {
            ![
                "host",
                "eager-trace",
                "why",
                "config",
                "dump-config",
                "help",
                "version",
            ]
            .contains(option)
        })
        .collect();
    assert_eq!(keys, options, "{help}");
}

// ---------------------------------------------------------------------------------------- the schema

#[test]
fn config_schema_is_fresh() {
    let sandbox = configured(FULL);
    let schema = sandbox.fine("schema config");
    let committed = Path::new(ROOT).join("docs/schema/config.json");
    if std::env::var_os("PYPROF_ADVISE_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&committed, &schema).unwrap();
    }
    assert!(
        std::fs::read_to_string(&committed).unwrap_or_default() == schema,
        "docs/schema/config.json is stale: `PYPROF_ADVISE_BLESS=1 cargo test fresh`"
    );
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let valid = |text: &str| {
        // The schema expects the TOML date as a string.
        let text = text.replace("until  = 2026-12-31", "until  = \"2026-12-31\"");
        let file: Value = toml::from_str(&text).unwrap();
        validator.is_valid(&file)
    };
    assert!(valid(FULL));
    assert!(valid(&sandbox.fine("--dump-config --config pa.toml")));
    for (from, to) in [
        ("top       = 3", "tpo = 3"),
        ("top       = 3", "top = -1"),
        ("\"markdown\"", "\"pdf\""),
        ("\"saving=2.5%\"", "\"saving=2.5\""),
        ("reason = \"later\"", ""),
        ("until ", "untill "),
    ] {
        assert!(FULL.contains(from), "{from}");
        assert!(!valid(&FULL.replacen(from, to, 1)), "{to} is let through");
    }
}

// ------------------------------------------------------------------------------------ precedence

#[test]
fn no_configuration_is_loaded_unless_named() {
    let sandbox = Sandbox::new();
    for name in ["pyprof-advise.toml", ".pyprof-advise.toml", "config.toml"] {
        sandbox.write(name, "this is = not even TOML");
    }
    sandbox.fine("net.sqlite");
}

#[test]
fn option_takes_precedence_over_the_environment_variable() {
    let sandbox = Sandbox::new().with("PYPROF_ADVISE_CONFIG", "env.toml");
    sandbox.write("env.toml", "top = 1\n");
    sandbox.write("other.toml", "top = 2\n");
    let headings = |text: String| text.lines().filter(|l| l.starts_with("### ")).count();
    assert_eq!(headings(sandbox.fine("net.sqlite")), 1);
    assert_eq!(headings(sandbox.fine("net.sqlite --config other.toml")), 2);
    assert_eq!(
        headings(sandbox.fine("net.sqlite --config other.toml --top 3")),
        3
    );
    // Commands without options from the file ignore a broken one.
    sandbox.write("env.toml", "broken");
    sandbox.fine("gpus list");
    has(&sandbox.refused("net.sqlite"), &["env.toml:1"]);
    assert_eq!(headings(sandbox.fine("net.sqlite --config=")), 5);
    let empty = Sandbox::new().with("PYPROF_ADVISE_CONFIG", "");
    assert_eq!(headings(empty.fine("net.sqlite")), 5);
    // The value of the variable is not printed in --help.
    lacks(&sandbox.fine("--help"), &["env.toml"]);
}

#[test]
fn command_line_takes_precedence() {
    let sandbox = configured(
        "gpu = \"a100\"\nselect = [\"precision\"]\ntop = 1\nformat = \"json\"\ncolor = \"never\"\n\
         [set]\n\"precision/amp-partial\".min_share = 0.9\n\"precision/fp64-leak\".min_share = 0.9\n",
    );
    let report = sandbox.report("net.sqlite --config pa.toml");
    assert_eq!(report["method"]["gpu"]["id"], "a100-sxm4-80gb");
    assert_eq!(report["top"], 1);
    let report = sandbox.report("net.sqlite --config pa.toml --gpu v100 --top 2 --select copies");
    assert_eq!(report["method"]["gpu"]["id"], "v100-sxm2-16gb");
    assert_eq!(report["top"], 2);
    let rules: Vec<&Value> = report["findings"].as_array().unwrap().iter().collect();
    assert!(rules.iter().all(|f| f["category"] == "copies"), "{rules:?}");
    // Parameters of rules are merged from both.
    let dump =
        sandbox.fine("--dump-config --config pa.toml --set precision/amp-partial.min_share=0.1");
    has(
        &dump,
        &[
            "\"precision/fp64-leak\".\"min_share\" = 0.9",
            "\"precision/amp-partial\".\"min_share\" = 0.1\n",
        ],
    );
    lacks(&dump, &["\"precision/amp-partial\".\"min_share\" = 0.9"]);
}

#[test]
fn later_output_format_replaces_earlier() {
    let sandbox = configured("for-pr = true\n");
    sandbox.write("limit.j2", "{{ title }}");
    sandbox.report("net.sqlite --config pa.toml");
    assert_eq!(
        sandbox.fine("net.sqlite --config pa.toml --template limit.j2"),
        "net.sqlite"
    );
    let short = sandbox.fine("net.sqlite --config pa.toml --max-chars 3000");
    assert!(short.chars().count() <= 3000);
    let sandbox = configured("format = \"html\"\n");
    has(
        &sandbox.fine("net.sqlite --config pa.toml"),
        &["<!doctype html>"],
    );
    has(
        &sandbox.fine("net.sqlite --config pa.toml --for-pr"),
        &["# GPU advice"],
    );
    let sandbox = configured("quiet = true\n");
    has(
        &sandbox.run("net.sqlite --config pa.toml -v").err,
        &["note: read in "],
    );
}

#[test]
fn all_keys_take_effect_and_paths_are_relative_to_the_file() {
    let sandbox = Sandbox::new();
    sandbox.fine(
        "net.sqlite --gpu v100 --format json -o ci/main.json"
            .replace("ci/", "")
            .as_str(),
    );
    std::fs::create_dir(sandbox.at("ci")).unwrap();
    std::fs::rename(sandbox.at("main.json"), sandbox.at("ci/main.json")).unwrap();
    sandbox.write("ci/short.j2", "{{ findings | length }} new\n");
    sandbox.write("ci/board.toml", &sandbox.fine("gpus show v100"));
    sandbox.write(
        "ci/pa.toml",
        "gpu = \"board.toml\"\nbaseline = \"main.json\"\ntemplate = \"short.j2\"\noutput = \"out.md\"\n\
         fail-on = [\"note\"]\n",
    );
    let said = sandbox.run("net.sqlite --config ci/pa.toml");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(sandbox.read("ci/out.md"), "0 new\n");
    // Other commands use the file too.
    let said = sandbox.run("merge ci/main.json --config ci/pa.toml");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

// ----------------------------------------------------------------------------------------- errors

#[test]
fn all_errors_are_reported_with_their_position() {
    let sandbox = configured(
        "gpu_name = \"v100\"\ntop = \"ten\"\nformat = \"markdwon\"\nselect = \"precision\"\nfail-on = [\"regression=3%\", 5]\n\
         [set]\n\"precision/amp-off.min_share\" = 0.1\n\"precision/amp-off\".sure = 2026-01-01\n\
         [[suppress]]\nrule = \"a/b\"\nplaec = \"x\"\n[[suppress]]\nrule = \" \"\nreason = \"r\"\nuntil = 2026-12-31T10:00:00\n",
    );
    let error = sandbox.refused("net.sqlite --config pa.toml");
    for (place, says) in [
        ("pa.toml:1:1", "unknown key `gpu_name`"),
        ("pa.toml:2:7", "`top` must be an integer"),
        ("pa.toml:3:10", "did you mean `markdown`?"),
        ("pa.toml:4:10", "`select` must be a list"),
        (
            "pa.toml:5:12",
            "pyprof-advise diff BEFORE AFTER --fail-on regression=3%",
        ),
        ("pa.toml:5:29", "must be a string"),
        (
            "pa.toml:7:33",
            "as in `\"precision/amp-off\".min_share = 0.1`",
        ),
        (
            "pa.toml:8:28",
            "a number, a boolean, a string or a list of strings",
        ),
        ("pa.toml:9:1", "`suppress[0].reason` is missing"),
        ("pa.toml:11:1", "did you mean `place`?"),
        ("pa.toml:13:8", "`suppress[1].rule` is empty"),
        ("pa.toml:15:9", "a day such as 2026-12-31"),
        ("pa.toml:10:8", "the rule `a/b`, which does not exist"),
        ("errors in pa.toml", "error: 13 errors"),
    ] {
        has(&error, &[place, says]);
    }
    lacks(&error, &["panicked"]);
    // Names of rules are checked in the same round.
    let sandbox =
        configured("top = \"ten\"\nselect = [\"precison/*\"]\n[set.\"host/none\"]\na = 1\n");
    let error = sandbox.refused("net.sqlite --config pa.toml");
    has(
        &error,
        &["`top` must be an integer", "precison/*", "host/none"],
    );
    has(&error, &["error: 3 errors in pa.toml"]);
}

#[test]
fn params_suppressions_and_rules_that_cannot_be_read_are_reported_together() {
    let sandbox = configured(
        "[[suppress]]\nrule = \"tensor-cores/gemm-unalined\"\nreason = \"x\"\n[set]\n\
         \"precision/amp-partial\".min_shar = 0.05\n\"copies/pageable\".min_fraction = \"much\"\n",
    );
    let error = sandbox.refused("net.sqlite --config pa.toml");
    has(
        &error,
        &[
            "pa.toml:2:8",
            "did you mean `tensor-cores/gemm-unaligned`?",
            "pa.toml:5:25",
            "has no param `min_shar`; did you mean `min_share`?",
            "pa.toml:6:19",
            "error: 3 errors in pa.toml",
        ],
    );
    lacks(&error, &["--set"]);
    let sandbox =
        configured("rules = [\"nope/\"]\ngpuu = \"v100\"\ntop = \"x\"\nselect = [\"hots\"]\n");
    let error = sandbox.refused("net.sqlite --config pa.toml");
    has(
        &error,
        &["nope/", "unknown key `gpuu`", "`top` must be an integer"],
    );
}

#[test]
fn unknown_rules_are_reported_with_their_position() {
    let sandbox = configured(
        "select = [\"precison\", \"host\"]\nignore = [\"user/mine\"]\nrules = [\"mine.toml\"]\n\
         [set]\n\"precision/amp-of\".min_share = 0.1\n\"user/mine\".most = 3\n",
    );
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let (_, rule) = readme.split_once("```toml\n# long-softmax.toml\n").unwrap();
    sandbox.write("mine.toml", rule.split_once("\n```\n").unwrap().0);
    let error = sandbox.refused("net.sqlite --config pa.toml");
    has(
        &error,
        &[
            "pa.toml:1:11",
            "did you mean `precision`?",
            "pa.toml:5:1",
            "did you mean `precision/amp-off`?",
            "2 errors in pa.toml",
        ],
    );
    lacks(&error, &["user/mine`"]);
}

#[test]
fn contradictory_keys_are_reported() {
    for (text, says) in [
        (
            "for-pr = true\nmax-chars = 900\n",
            "`max-chars` and `for-pr` exclude each other",
        ),
        (
            "format = \"json\"\ntemplate = \"x\"\n",
            "`format` and `template` exclude each other",
        ),
        (
            "quiet = true\nverbose = true\n",
            "`quiet` and `verbose` exclude each other",
        ),
        (
            "format = \"json\"\nfor-pr = true\n",
            "`for-pr` shortens Markdown",
        ),
        ("top = -1\n", "must be 0 to 100000"),
        ("max-chars = 3\n", "must be 500 to"),
        (
            "[[suppress]]\nrule = \"a\"\nreason = \"x\"\nuntil = 12:00:00\n",
            "a day such as",
        ),
    ] {
        has(
            &configured(text).refused("net.sqlite --config pa.toml"),
            &[says, "pa.toml:"],
        );
    }
    configured("for-pr = false\nmax-chars = 900\n").fine("net.sqlite --config pa.toml");
}

#[test]
fn output_never_replaces_the_configuration() {
    let sandbox = configured("top = 1\noutput = \"pa.toml\"\n");
    let error = sandbox.refused("net.sqlite --config pa.toml");
    has(
        &error,
        &["--output pa.toml would overwrite the configuration"],
    );
    assert!(sandbox.read("pa.toml").starts_with("top = 1"));
}

#[test]
fn unreadable_configuration_is_an_error() {
    let sandbox = Sandbox::new();
    has(
        &sandbox.refused("net.sqlite --config none.toml"),
        &["none.toml", "cannot be read"],
    );
    std::fs::write(sandbox.at("bytes.toml"), b"gpu = \"\xff\"").unwrap();
    has(
        &sandbox.refused("net.sqlite --config bytes.toml"),
        &["not UTF-8"],
    );
    sandbox.write("big.toml", &"#".repeat(2 << 20));
    has(
        &sandbox.refused("net.sqlite --config big.toml"),
        &["larger than 1 MiB"],
    );
    sandbox.write("deep.toml", &format!("set = {}1", "[".repeat(100_000)));
    sandbox.refused("net.sqlite --config deep.toml");
    sandbox.write(
        "ctrl.toml",
        "gpu = \"a\\u001b[31m\"\nformat = \"\\u001b[31m\"\n",
    );
    lacks(
        &sandbox.refused("net.sqlite --config ctrl.toml"),
        &["\u{1b}"],
    );
}

#[test]
fn document_explains_every_key_and_its_example_is_valid() {
    let document = std::fs::read_to_string(Path::new(ROOT).join("docs/configuration.md")).unwrap();
    let sandbox = Sandbox::new();
    let mut examples = 0;
    for block in document.split("```toml\n").skip(1) {
        sandbox.write("pa.toml", block.split("```").next().unwrap());
        sandbox.fine("--dump-config --config pa.toml");
        examples += 1;
    }
    assert!(examples > 0);
    for key in SUPPRESSION {
        has(&document, &[&format!("| `{key}` |")]);
    }
}
