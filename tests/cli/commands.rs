//! The command line of the built program: its output, exit status, and errors.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use crate::cli_sandbox::{ROOT, Sandbox, has, lacks, said};
use pyprof_advise::formats::FORMATS;
use rusqlite::Connection;
use serde_json::Value;

/// The README's example rule.
fn example_rule() -> String {
    let readme = std::fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let (_, after) = readme.split_once("```toml\n# long-softmax.toml\n").unwrap();
    after.split_once("\n```\n").unwrap().0.to_owned() + "\n"
}

// ------------------------------------------------------------------------------------------- help

#[test]
fn help_has_examples_and_lists_every_command() {
    let sandbox = Sandbox::new();
    let long = sandbox.fine("--help");
    has(
        &long,
        &[
            "Usage: pyprof-advise [OPTIONS] <PROFILE>",
            "--gpu <NAME|FILE>",
            "--rules <PATH>",
            "--why <RULE>",
            "nsys profile -t cuda,nvtx",
            "Examples:",
            "Exit status: 0",
        ],
    );
    assert!(
        long.lines().all(|line| line.chars().count() <= 100),
        "{long}"
    );
    let short = sandbox.fine("-h");
    assert!(short.lines().count() < long.lines().count());
    for command in [
        "rules",
        "gpus",
        "rules list",
        "rules new",
        "gpus show",
        "completions",
    ] {
        has(
            &sandbox.fine(&format!("{command} --help")),
            &["Usage: pyprof-advise"],
        );
    }
}

#[test]
fn version_matches_the_package() {
    let version = Sandbox::new().fine("--version");
    assert_eq!(
        version.trim(),
        concat!("pyprof-advise ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn no_arguments_teach_the_first_steps_and_exit_with_2() {
    let said = Sandbox::new().run("");
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    has(
        &said.err,
        &[
            "pyprof-advise run -- python train.py",
            "torch.profiler.profile(record_shapes=True)",
            "pyprof-advise trace.json.gz -o report.html",
            "pyprof-advise diff before.json.gz after.json.gz",
            "pyprof-advise --help",
        ],
    );
    assert!(said.err.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn invalid_options_are_named() {
    let sandbox = Sandbox::new();
    has(
        &sandbox.refused("net.sqlite --tops 3"),
        &["--tops", "'--top'"],
    );
    has(
        &sandbox.refused("net.sqlite --top many"),
        &["--top", "many"],
    );
    has(
        &sandbox.refused("net.sqlite --format pdf"),
        &["pdf", "markdown", "json"],
    );
    has(
        &sandbox.refused("net.sqlite --format json --template x"),
        &["--template", "--format"],
    );
    has(
        &sandbox.refused("net.sqlite gpus list"),
        &["`gpus`", "the command comes first"],
    );
    has(&sandbox.refused("completions tcsh"), &["tcsh", "bash"]);
}

// ------------------------------------------------------------------------------------- the report

#[test]
fn reports_are_markdown_on_standard_output_without_messages() {
    let sandbox = Sandbox::new();
    let said = sandbox.run("net.sqlite --gpu v100");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.starts_with("# "), "{}", said.out);
    has(
        &said.out,
        &["## What to change", "**Fix:**", "## Layers", "## Skipped"],
    );
    assert_eq!(
        said.out,
        sandbox.fine("net.sqlite --gpu v100"),
        "the same twice"
    );
    assert_eq!(sandbox.names(), ["net.sqlite"], "nothing is left behind");
    let bytes = |path: &Path| std::fs::read(path).unwrap();
    let original = Path::new(ROOT).join("fixtures/net.sqlite");
    assert!(
        bytes(&sandbox.at("net.sqlite")) == bytes(&original),
        "the input changed"
    );
}

#[test]
fn json_has_a_schema_version() {
    let report: Value =
        serde_json::from_str(&Sandbox::new().fine("net.sqlite --format json")).unwrap();
    assert_eq!(report["schema_version"], 2);
    assert!(report["findings"].as_array().unwrap().len() >= 5);
    assert_eq!(report["faults"], Value::Array(Vec::new()));
}

#[test]
fn output_file_is_replaced_atomically() {
    let sandbox = Sandbox::new();
    let printed = sandbox.fine("net.sqlite");
    sandbox.write(
        "advice.md",
        "yesterday's advice, much longer\n".repeat(10_000).as_str(),
    );
    let said = sandbox.run("net.sqlite -o advice.md");
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    assert_eq!(sandbox.read("advice.md"), printed);
    assert_eq!(sandbox.names(), ["advice.md", "net.sqlite"]);
}

#[test]
fn extension_of_the_output_file_selects_the_format() {
    let sandbox = Sandbox::new();
    for format in FORMATS {
        let want = sandbox.fine(&format!("net.sqlite --format {}", format.name));
        for ending in format.endings {
            sandbox.fine(&format!("net.sqlite -o advice{ending}"));
            let have = sandbox.read(&format!("advice{ending}"));
            assert!(have == want, "{ending}");
        }
    }
    let markdown = sandbox.fine("net.sqlite --format markdown");
    let have = |options: &str, file: &str| {
        sandbox.fine(&format!("net.sqlite {options} -o {file}"));
        sandbox.read(file)
    };
    assert!(have("--format markdown", "a.md") == markdown);
    assert!(have("", "a") == markdown);
    assert!(have("--for-pr", "b.report").starts_with("# "));
}

#[test]
fn output_file_never_replaces_the_profile() {
    let sandbox = Sandbox::new();
    let before = std::fs::read(sandbox.at("net.sqlite")).unwrap();
    for output in ["net.sqlite", "./net.sqlite"] {
        let error = sandbox.refused(&format!("net.sqlite -o {output}"));
        has(&error, &["would overwrite the profile"]);
    }
    assert!(std::fs::read(sandbox.at("net.sqlite")).unwrap() == before);
}

#[test]
fn unwritable_output_is_named_without_the_temporary_file() {
    let sandbox = Sandbox::new();
    let error = sandbox.refused("net.sqlite -o nowhere/advice.md");
    has(
        &error,
        &[
            "cannot write nowhere/advice.md",
            "there is no folder nowhere",
        ],
    );
    lacks(&error, &[".tmp"]);
    std::fs::create_dir(sandbox.at("folder")).unwrap();
    has(
        &sandbox.refused("net.sqlite -o folder"),
        &["cannot write folder", "it is a folder"],
    );
    assert_eq!(sandbox.names(), ["folder", "net.sqlite"]);
}

#[cfg(unix)]
#[test]
fn output_to_devices_and_links_replaces_neither() {
    use std::os::unix::fs::FileTypeExt;
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.fine("net.sqlite -o /dev/null"), "");
    let null = std::fs::metadata("/dev/null").unwrap().file_type();
    assert!(null.is_char_device());
    sandbox.write("real.md", "");
    std::os::unix::fs::symlink("real.md", sandbox.at("link.md")).unwrap();
    sandbox.fine("net.sqlite -o link.md");
    assert!(sandbox.at("link.md").is_symlink());
    has(&sandbox.read("real.md"), &["## What to change"]);
}

#[test]
fn user_templates_render_the_report() {
    let sandbox = Sandbox::new();
    sandbox.write("short.j2", "{{ file }}: {{ findings | length }} findings\n");
    let text = sandbox.fine("net.sqlite --template short.j2");
    assert!(
        text.starts_with("net.sqlite: ") && text.ends_with(" findings\n"),
        "{text}"
    );
    sandbox.write("syntax.j2", "one\n{% for x in %}\n");
    has(
        &sandbox.refused("net.sqlite --template syntax.j2"),
        &["syntax.j2:2"],
    );
    sandbox.write("value.j2", "{{ summary.bussy_share }}\n");
    has(
        &sandbox.refused("net.sqlite --template value.j2"),
        &["value.j2:1", "bussy_share"],
    );
    sandbox.write(
        "endless.j2",
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
    );
    has(
        &sandbox.refused("net.sqlite --template endless.j2"),
        &["endless.j2"],
    );
    has(
        &sandbox.refused("net.sqlite --template none.j2"),
        &["cannot read", "none.j2"],
    );
}

#[test]
fn top_limits_the_findings_shown() {
    let sandbox = Sandbox::new();
    let headings = |text: &str| text.lines().filter(|l| l.starts_with("### ")).count();
    assert_eq!(headings(&sandbox.fine("net.sqlite --top 3")), 3);
    assert_eq!(headings(&sandbox.fine("net.sqlite --top 0")), 0);
    has(&sandbox.fine("net.sqlite --top 3"), &["<summary>"]);
}

#[test]
fn closed_pipe_is_not_an_error() {
    let sandbox = Sandbox::new();
    for arguments in [&["net.sqlite"][..], &["rules", "facts"], &["gpus", "list"]] {
        let mut child = Process::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .current_dir(sandbox.at(""))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(output.stderr, b"", "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_an_error() {
    let sandbox = Sandbox::new();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Process::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .current_dir(sandbox.at(""))
        .arg("net.sqlite")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    has(
        &String::from_utf8(output.stderr).unwrap(),
        &["error: standard output: "],
    );
}

// --------------------------------------------------------------------------- colors and verbosity

const ESCAPE: &str = "\u{1b}[";

#[test]
fn color_is_printed_only_on_request() {
    let sandbox = Sandbox::new();
    lacks(&sandbox.refused("missing.sqlite"), &[ESCAPE]);
    lacks(&sandbox.refused("missing.sqlite --color never"), &[ESCAPE]);
    let always = sandbox.run("missing.sqlite --color always");
    assert_eq!(always.code, 2);
    has(&always.err, &[ESCAPE]);
    let mut plain = sandbox.command("missing.sqlite");
    lacks(&said(plain.env("NO_COLOR", "1")).err, &[ESCAPE]);
    // Markdown is never colored.
    lacks(&sandbox.fine("net.sqlite --color always"), &[ESCAPE]);
    sandbox.write("bad.toml", "title = 1\n");
    has(
        &sandbox
            .run("net.sqlite --rules bad.toml --color always")
            .err,
        &[ESCAPE],
    );
    lacks(&sandbox.run("net.sqlite --rules bad.toml").err, &[ESCAPE]);
}

#[test]
fn quiet_and_verbose_set_the_amount_of_messages() {
    let sandbox = Sandbox::new();
    with_secrets(&sandbox);
    let said = sandbox.run("net.sqlite");
    assert_eq!(said.code, 0);
    has(&said.err, &["warning: ", "environment variables"]);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert_eq!(sandbox.run("net.sqlite --quiet").err, "");
    has(
        &sandbox.run("net.sqlite -v").err,
        &["note: read in ", "note: evaluated rules in "],
    );
    has(&sandbox.run("missing.sqlite -q").err, &["error: "]);
}

// -------------------------------------------------------------------------------- unusable inputs

#[test]
fn unsupported_files_give_one_error() {
    let sandbox = Sandbox::new();
    sandbox.write("empty.sqlite", "");
    sandbox.write("notes.txt", "see the meeting notes\n");
    sandbox.write("random.bin", "\u{1}\u{2}\u{3}\u{fffd}");
    std::fs::create_dir(sandbox.at("folder")).unwrap();
    let other = Connection::open(sandbox.at("other.sqlite")).unwrap();
    other
        .execute_batch("CREATE TABLE moz_places (id INTEGER)")
        .unwrap();
    drop(other);
    let whole = std::fs::read(sandbox.at("net.sqlite")).unwrap();
    std::fs::write(sandbox.at("cut.sqlite"), &whole[..whole.len() / 2]).unwrap();
    for (file, what) in [
        ("missing.sqlite", "no such file"),
        ("folder", "expected profiles in this folder"),
        ("empty.sqlite", "found an empty file"),
        ("notes.txt", "found a text file"),
        ("random.bin", "expected an Nsight Systems"),
        ("other.sqlite", "database of another program"),
        ("cut.sqlite", "damaged or cut"),
    ] {
        let error = sandbox.refused(file);
        has(&error, &[file, what]);
        lacks(&error, &["environment", "a Nsight", "a nvprof", "a SQLite"]);
        assert_eq!(error.matches("error: ").count(), 1, "{error}");
    }
    assert!(std::fs::read(sandbox.at("net.sqlite")).unwrap() == whole);
}

#[test]
fn profile_without_kernels_explains_how_to_record_them() {
    let sandbox = Sandbox::new();
    with_secrets(&sandbox);
    let database = Connection::open(sandbox.at("net.sqlite")).unwrap();
    database
        .execute_batch("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
        .unwrap();
    drop(database);
    let error = sandbox.refused("net.sqlite");
    has(
        &error,
        &[
            "this Nsight Systems SQLite export has no kernels",
            "CUDA API calls",
            "nsys profile",
        ],
    );
    lacks(&error, &["environment", "a Nsight"]);
    assert_eq!(
        error.matches("nsys profile").count(),
        1,
        "the advice stands once:\n{error}"
    );
    // A failed report writes no file.
    sandbox.refused("net.sqlite -o advice.md");
    assert_eq!(sandbox.names(), ["net.sqlite"]);
}

/// Adds to the example profile the private data that real exports contain about the captured machine.
fn with_secrets(sandbox: &Sandbox) {
    let database = Connection::open(sandbox.at("net.sqlite")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT,
                 nameEnum INTEGER, value TEXT);
             INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local', 'EnvVars', 1,
                 'WANDB_API_KEY=0123456789hunter2');
             CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT);
             INSERT INTO META_DATA_CAPTURE VALUES
                 ('PROCESS_0:ENVIRONMENT_VARIABLE_0', 'HF_TOKEN=hf_hunter2_abcdefgh');
             INSERT INTO StringIds (id, value) SELECT max(id) + 1, 'AWS_SECRET=hunter2aws'
                 FROM StringIds;",
        )
        .unwrap();
}

#[test]
fn the_environment_of_the_captured_machine_is_never_printed() {
    let sandbox = Sandbox::new();
    with_secrets(&sandbox);
    for arguments in [
        "net.sqlite",
        "net.sqlite -v",
        "net.sqlite --format json",
        "net.sqlite --why precision/amp-partial",
    ] {
        let said = sandbox.run(arguments);
        assert_eq!(said.code, 0);
        lacks(&said.out, &["hunter2", "WANDB", "HF_TOKEN"]);
        lacks(&said.err, &["hunter2", "WANDB", "HF_TOKEN"]);
    }
    has(&sandbox.fine("net.sqlite"), &["environment variables"]);
}

// -------------------------------------------------------------------------------------------- GPUs

#[test]
fn unknown_gpu_suggests_similar_names() {
    let sandbox = Sandbox::new();
    for arguments in ["net.sqlite --gpu v1000", "gpus show v1000"] {
        has(
            &sandbox.refused(arguments),
            &["no such GPU `v1000`", "`v100`", "gpus list"],
        );
    }
    lacks(
        &sandbox.refused("net.sqlite --gpu zzzzzzzzzz"),
        &["did you mean"],
    );
    // Reported before the profile is read, which may take long.
    has(
        &sandbox.refused("missing.sqlite --gpu v1000"),
        &["no such GPU"],
    );
}

#[test]
fn custom_gpu_extends_a_known_gpu() {
    let sandbox = Sandbox::new();
    sandbox.write("my.toml", &sandbox.fine("gpus show v100"));
    let report: Value =
        serde_json::from_str(&sandbox.fine("net.sqlite --gpu my.toml --format json")).unwrap();
    assert_eq!(report["method"]["gpu"]["how"], "named with --gpu");
    // For a custom file, the values as they were read, with units.
    has(&sandbox.fine("gpus show my.toml"), &["900 GB/s", "16 GiB"]);
}

#[test]
fn errors_in_gpu_files_show_their_position() {
    let sandbox = Sandbox::new();
    let text = sandbox.fine("gpus show v100");
    sandbox.write(
        "my.toml",
        &text.replace("sm_count           = 80", "smcount = -3"),
    );
    for arguments in ["net.sqlite --gpu my.toml", "gpus show my.toml"] {
        let error = sandbox.refused(arguments);
        has(&error, &["--> my.toml:", "^", "smcount"]);
    }
    has(
        &sandbox.refused("net.sqlite --gpu none.toml"),
        &["none.toml", "No such file"],
    );
}

#[test]
fn gpus_are_listed_with_the_names_for_the_gpu_option() {
    let list = Sandbox::new().fine("gpus list");
    has(
        &list,
        &["v100-sxm2-16gb", "h100-sxm5-80gb", "4090", "mi300x"],
    );
    assert!(list.lines().count() >= 67, "{list}");
}

// ------------------------------------------------------------------------------------------- rules

#[test]
fn example_rule_of_the_readme_works() {
    let sandbox = Sandbox::new();
    sandbox.write("long-softmax.toml", &example_rule());
    has(
        &sandbox.fine("rules check long-softmax.toml"),
        &["1 rule is fine"],
    );
    has(
        &sandbox.fine("rules test long-softmax.toml"),
        &["2 passed, 0 failed"],
    );
    has(
        &sandbox.fine("rules list --rules long-softmax.toml"),
        &["user/long-softmax", "precision/amp-off"],
    );
    has(
        &sandbox.fine("rules explain user/long-softmax --rules long-softmax.toml"),
        &["wider than we agreed on", "min_ns"],
    );
    let why = sandbox.fine("net.sqlite --rules long-softmax.toml --why user/long-softmax");
    has(&why, &["user/long-softmax", "site.time_ns"]);
    let only = "net.sqlite --rules long-softmax.toml --select user";
    has(
        &sandbox.fine(only),
        &["A softmax is wider than we agreed on", "over 33278 classes"],
    );
}

#[test]
fn user_rules_can_be_configured_and_can_supersede_built_in_rules() {
    let sandbox = Sandbox::new();
    let rule = example_rule();
    let before = |key: &str| rule.find(key).unwrap();
    let (head, tail) = rule.split_at(before("message "));
    let supersedes = "supersedes = [\"layers/double-log-softmax\"]\n";
    sandbox.write("ours.toml", &format!("{head}{supersedes}{tail}"));
    has(
        &sandbox.fine("rules test ours.toml"),
        &["2 passed, 0 failed"],
    );
    let rules = |arguments: &str| -> Vec<String> {
        let text = sandbox.fine(&format!("net.sqlite --format json {arguments}"));
        let report: Value = serde_json::from_str(&text).unwrap();
        let lists = ["findings", "minor"].iter();
        lists
            .flat_map(|list| report[list].as_array().unwrap().clone())
            .map(|f| f["rule"].as_str().unwrap().to_owned())
            .collect()
    };
    let (own, built_in) = (
        "user/ours".to_owned(),
        "layers/double-log-softmax".to_owned(),
    );
    let with = rules("--rules ours.toml");
    assert!(with.contains(&own) && !with.contains(&built_in), "{with:?}");
    for arguments in ["--ignore user/ours", "--set user/ours.min_ns=1e12"] {
        let without = rules(&format!("--rules ours.toml {arguments}"));
        assert!(!without.contains(&own), "{without:?}");
        assert!(without.contains(&built_in), "{without:?}");
    }
    let select = "--select user,layers/double-log-softmax";
    has(
        &sandbox.fine(&format!("net.sqlite --rules ours.toml {select}")),
        &["`user/ours`", "Rule file: `ours.toml`"],
    );
    has(
        &sandbox.fine("net.sqlite --rules ours.toml --why user/ours"),
        &["user/ours: ", "site.time_ns = ", "matched"],
    );
}

#[test]
fn rules_in_folders_are_reported_with_their_paths() {
    let sandbox = Sandbox::new();
    sandbox.write("ours/memory/long-softmax.toml", &example_rule());
    has(
        &sandbox.fine("rules list --rules ours"),
        &["memory/long-softmax"],
    );
}

const BAD_RULE: &str = r#"title      = "A rule with mistakes"
severity   = "dreadful"
confidence = "high"
for_each   = "site"
when       = '''site.famly == "gemm" && site.time_ns > params.min_ns'''
message    = "{{ site.opp }} is slow."
why        = "Because."
fix        = "Do not."
refrences  = []

[[test]]
name  = "fires"
facts = { "site.family" = "gemm" }
fires = "gemm is slow."
"#;

#[test]
fn all_errors_of_a_rule_file_are_reported_together() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.toml", BAD_RULE);
    let error = sandbox.refused("net.sqlite --rules bad.toml");
    has(
        &error,
        &[
            "--> bad.toml:2:", // dreadful
            "--> bad.toml:5:", // famly, and the param that is nowhere
            "--> bad.toml:6:", // opp
            "--> bad.toml:9:", // refrences
            "dreadful",
            "site.family", // suggested
            "references",  // suggested
            "^",
        ],
    );
    let last = error.lines().last().unwrap();
    assert!(
        last.starts_with("error: ") && last.ends_with("errors in bad.toml"),
        "{last}"
    );
    // A failed check sets the exit status to 1.
    let checked = sandbox.run("rules check bad.toml");
    assert_eq!((checked.code, checked.out.as_str()), (1, ""));
    assert_eq!(checked.err, error);
    assert_eq!(sandbox.run("rules test bad.toml").code, 1);
}

#[test]
fn a_file_with_the_id_of_a_built_in_rule_is_refused_with_all_its_mistakes() {
    let sandbox = Sandbox::new();
    sandbox.write("mine/precision/amp-off.toml", BAD_RULE);
    for command in ["check", "test"] {
        let said = sandbox.run(&format!("rules {command} mine"));
        assert_eq!(said.code, 1, "{}", said.err);
        has(
            &said.err,
            &[
                "there is a built-in rule `precision/amp-off`",
                "dreadful",
                "site.family",
                "references",
            ],
        );
    }
}

#[test]
fn rules_check_and_test_report_what_the_examples_do_not_cover() {
    let sandbox = Sandbox::new();
    let fix = "[[fix]]\nwhen = 'site.cols > 1000000'\ntext = \"Split {{ site.cols }} columns.\"\n\
               [[fix]]\ntext = \"Keep it.\"\n\n[[test]]";
    let text = example_rule();
    let (start, rest) = text.split_once("fix ").unwrap();
    let (_, end) = rest.split_once("references").unwrap();
    let text = format!("{start}references{end}").replacen("[[test]]", fix, 1);
    sandbox.write("long-softmax.toml", &text);
    for command in ["check", "test"] {
        let said = sandbox.run(&format!("rules {command} long-softmax.toml"));
        assert_eq!(said.code, 1, "{}", said.err);
        has(
            &said.err,
            &["no test that fires chooses this fix", "[[fix]]"],
        );
    }
}

#[test]
fn failing_rule_tests_give_exit_status_1() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "long-softmax.toml",
        &example_rule().replace("52.0 us", "53.0 us"),
    );
    let said = sandbox.run("rules test long-softmax.toml");
    assert_eq!(said.code, 1);
    has(
        &said.out,
        &[
            "user/long-softmax",
            "the GPT-2 vocabulary",
            "1 passed, 1 failed",
        ],
    );
    has(&said.out, &["53.0 us", "52.0 us"]);
}

#[test]
fn missing_rule_files_are_reported() {
    let sandbox = Sandbox::new();
    for arguments in [
        "net.sqlite --rules none.toml",
        "rules check none.toml",
        "rules test none.toml",
    ] {
        let said = sandbox.run(arguments);
        assert_eq!(said.code, 2, "{arguments}");
        has(&said.err, &["none.toml", "No such file"]);
        assert_eq!(
            said.err.matches("error").count() - said.err.matches("os error").count(),
            1
        );
    }
}

#[test]
fn rules_are_selected_ignored_and_set() {
    let sandbox = Sandbox::new();
    let rules = |arguments: &str| -> Vec<String> {
        let text = sandbox.fine(&format!("net.sqlite --format json {arguments}"));
        let report: Value = serde_json::from_str(&text).unwrap();
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .map(|f| f["rule"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = rules("");
    assert!(
        all.iter().any(|r| r == "layers/double-log-softmax"),
        "{all:?}"
    );
    let layers = rules("--select layers");
    assert!(!layers.is_empty() && layers.iter().all(|r| r.starts_with("layers/")));
    assert_eq!(rules("--select layers/*"), layers);
    assert_eq!(
        rules("--select layers/double-log-softmax"),
        ["layers/double-log-softmax"]
    );
    let without = rules("--ignore layers/double-log-softmax,copies");
    assert!(
        without
            .iter()
            .all(|r| r != "layers/double-log-softmax" && !r.starts_with("copies/"))
    );
    let set = rules("--select precision/amp-partial --set precision/amp-partial.min_share=0.9");
    assert_eq!(set, [] as [&str; 0]);
}

#[test]
fn misspelled_rules_and_params_get_suggestions() {
    let sandbox = Sandbox::new();
    for (arguments, parts) in [
        (
            "--select precison",
            &["`precison`", "did you mean `precision`"][..],
        ),
        (
            "--select precision/amp-of",
            &["did you mean `precision/amp-off`"],
        ),
        ("--ignore nothing/*", &["`nothing/*`"]),
        (
            "--set precision/amp-off.min_shar=0.1",
            &["`min_shar`", "did you mean `min_share`"],
        ),
        (
            "--set precision/amp-off.min_share=much",
            &["must be", "`much`"],
        ),
        (
            "--set precision/amp-of.min_share=0.1",
            &["did you mean `precision/amp-off`"],
        ),
        ("--set min_share", &["category/rule.param=value"]),
        (
            "--why precision/amp-of",
            &["did you mean `precision/amp-off`", "rules list"],
        ),
    ] {
        let error = sandbox.refused(&format!("net.sqlite {arguments}"));
        has(&error, parts);
        assert_eq!(error.matches("error: ").count(), 1, "{error}");
    }
    has(
        &sandbox.refused("rules explain precision/amp-of"),
        &["did you mean `precision/amp-off`"],
    );
    has(
        &sandbox.refused("rules explain batch-norm"),
        &["rules with that word: ", "`layers/batch-norm-slow`"],
    );
    has(&sandbox.refused("rules facts nosuchfact"), &["nosuchfact"]);
}

#[test]
fn why_shows_the_values_a_rule_used() {
    let sandbox = Sandbox::new();
    let why = sandbox.fine("net.sqlite --why precision/amp-partial");
    has(
        &why,
        &["precision/amp-partial", "when ", "site.math_dtype = "],
    );
    assert!(!why.contains("## "), "no report besides");
    sandbox.fine("net.sqlite --why precision/amp-partial -o why.txt");
    assert_eq!(sandbox.read("why.txt"), why);
}

#[test]
fn built_in_rules_are_listed_explained_and_tested() {
    let sandbox = Sandbox::new();
    let list = sandbox.fine("rules list");
    assert!(list.lines().count() >= 20, "{list}");
    let ids = list
        .lines()
        .map(|line| line.split_whitespace().next().unwrap());
    // docs/rules has the page of every rule; here is one of each category.
    let of_categories: BTreeMap<&str, &str> =
        ids.map(|id| (id.split('/').next().unwrap(), id)).collect();
    assert!(of_categories.len() >= 10, "{of_categories:?}");
    for id in of_categories.values() {
        let page = sandbox.fine(&format!("rules explain {id}"));
        has(&page, &[id, "> **Why:**", "## When it fires"]);
        // Every rule says what to do, in its example or below it.
        assert!(
            page.contains("> **Fix:**") || page.contains("## What to do"),
            "{page}"
        );
    }
    has(&sandbox.fine("rules test"), &[" passed, 0 failed"]);
    has(
        &sandbox.fine("rules facts site.time"),
        &["site.time_ns (double, ns)"],
    );
    has(
        &sandbox.fine("rules facts found"),
        &["found.gpu_share (double)"],
    );
    assert!(sandbox.fine("rules facts").len() > sandbox.fine("rules facts site.").len());
}

#[test]
fn new_rule_passes_its_tests_and_never_overwrites() {
    let sandbox = Sandbox::new();
    has(
        &sandbox.fine("rules new fusion/my-idea"),
        &["rules/fusion/my-idea.toml", "rules test"],
    );
    sandbox.fine("rules check rules");
    has(&sandbox.fine("rules test rules"), &["0 failed"]);
    sandbox.fine("net.sqlite --rules rules");
    let written = sandbox.read("rules/fusion/my-idea.toml");
    has(
        &sandbox.refused("rules new fusion/my-idea"),
        &["exists already"],
    );
    assert_eq!(sandbox.read("rules/fusion/my-idea.toml"), written);
    has(&sandbox.refused("rules new my-idea"), &["category/"]);
    has(
        &sandbox.refused("rules new nonsense/my-idea"),
        &["nonsense", "fusion"],
    );
    has(
        &sandbox.refused("rules new fusion/../../x"),
        &["fusion/../../x"],
    );
    assert_eq!(sandbox.names(), ["net.sqlite", "rules"]);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        has(
            &sandbox.fine(&format!("completions {shell}")),
            &["pyprof-advise", "template"],
        );
    }
}
