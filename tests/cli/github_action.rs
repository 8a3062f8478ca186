//! The GitHub Action: no value of a workflow becomes part of a script, and the scripts behave as
//! documented, tested with the built program and a fake `gh` that records its calls.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::cli_sandbox::{ROOT, Sandbox, has, lacks};
use serde_json::Value;

fn action() -> Value {
    let text = std::fs::read_to_string(Path::new(ROOT).join("action.yml")).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{e}"))
}

fn steps(action: &Value) -> &Vec<Value> {
    action["runs"]["steps"].as_array().unwrap()
}

fn script(name: &str) -> String {
    format!("{ROOT}/action/{name}.sh")
}

// ------------------------------------------------------------------------------------- action.yml

#[test]
fn scripts_contain_no_workflow_expressions() {
    let action = action();
    let mut scripts = 0;
    for step in steps(&action) {
        let Some(run) = step["run"].as_str() else {
            continue;
        };
        assert!(!run.contains("${{"), "{run}");
        assert_eq!(step["shell"], "bash", "{run}");
        scripts += 1;
    }
    assert!(scripts >= 5, "{scripts}");
    for name in ["install", "advise", "comment"] {
        let text = std::fs::read_to_string(script(name)).unwrap();
        lacks(&text, &["${{", "eval "]);
    }
}

#[test]
fn inputs_are_used_and_variables_are_set() {
    let action = action();
    let text = std::fs::read_to_string(Path::new(ROOT).join("action.yml")).unwrap();
    for (input, about) in action["inputs"].as_object().unwrap() {
        assert!(
            text.contains(&format!("inputs.{input}")),
            "{input} is not used"
        );
        assert!(about["description"].is_string(), "{input}");
        assert!(
            about["default"].is_string() || about["required"] == true,
            "{input}"
        );
    }
    for step in steps(&action) {
        let (Some(run), Some(given)) = (step["run"].as_str(), step["env"].as_object()) else {
            continue;
        };
        let name = run
            .split("/action/")
            .nth(1)
            .and_then(|r| r.split(".sh").next());
        let code = match name {
            Some(name) => std::fs::read_to_string(script(name)).unwrap(),
            None => run.to_owned(),
        };
        for variable in given
            .keys()
            .filter(|v| !["ACTION_PATH", "GH_TOKEN"].contains(&v.as_str()))
        {
            assert!(
                code.contains(&format!("${variable}")),
                "{run}: {variable} is not used"
            );
        }
        if let Some((_, after)) = code.split_once("# Environment: ") {
            let needed = after.split("and the runner").next().unwrap();
            let needed = needed
                .split([',', ' ', '\n'])
                .filter(|w| w.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
            for variable in needed.filter(|w| w.len() > 2) {
                let elsewhere = variable == "ACTION_REPOSITORY" && run.ends_with("key");
                assert!(
                    given.contains_key(variable) || elsewhere,
                    "{run}: {variable} is missing"
                );
            }
        }
    }
}

#[test]
fn document_names_every_input() {
    let document = std::fs::read_to_string(Path::new(ROOT).join("docs/ci.md")).unwrap();
    for input in action()["inputs"].as_object().unwrap().keys() {
        assert!(
            document.contains(&format!("`{input}`")),
            "docs/ci.md lacks `{input}`"
        );
    }
    // The workflows in it are valid YAML and follow the same rule.
    let blocks = document.split("```yaml\n").skip(1);
    let mut seen = 0;
    for block in blocks.filter_map(|b| b.split("```").next()) {
        let workflow: Value =
            serde_saphyr::from_str(block).unwrap_or_else(|e| panic!("{e}\n{block}"));
        let jobs = workflow["jobs"].as_object().into_iter().flatten();
        for step in jobs.flat_map(|(_, job)| job["steps"].as_array().unwrap()) {
            assert!(
                !step["run"].as_str().unwrap_or("").contains("${{"),
                "{step}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

#[test]
fn scripts_pass_shellcheck() {
    let scripts = ["install", "advise", "comment"].map(script);
    match Command::new("shellcheck").args(&scripts).output() {
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        ),
        Err(_) => eprintln!("no shellcheck here: the action's scripts were only run"),
    }
}

// --------------------------------------------------------------------------------------- scripts

/// The environment that GitHub's runners provide to the scripts.
struct Runner {
    sandbox: Sandbox,
    environment: BTreeMap<&'static str, String>,
}

impl Runner {
    fn new() -> Runner {
        let sandbox = Sandbox::new();
        std::fs::create_dir(sandbox.at("temp")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .parent()
            .unwrap();
        let path = format!(
            "{}:{}:{}",
            sandbox.at("bin").display(),
            program.display(),
            std::env::var("PATH").unwrap()
        );
        let at = |name: &str| sandbox.at(name).display().to_string();
        let environment = BTreeMap::from([
            ("PATH", path),
            ("RUNNER_TEMP", at("temp")),
            ("GITHUB_OUTPUT", at("output")),
            ("GITHUB_STEP_SUMMARY", at("summary")),
            ("GITHUB_PATH", at("path")),
            ("GITHUB_REPOSITORY", "someone/something".into()),
            ("ACTION_PATH", ROOT.into()),
            ("ACTION_REPOSITORY", "someone/pyprof-advise".into()),
            ("PROFILE", "net.sqlite".into()),
            ("GPU", "v100".into()),
            ("FAIL_ON", String::new()),
            ("BASELINE", String::new()),
            ("CONFIG", String::new()),
            ("ARGS", String::new()),
            ("ANNOTATE", "true".into()),
            ("NAME", "default".into()),
            ("VERSION", String::new()),
            ("ACTION_REF", String::new()),
            ("GH_TOKEN", String::new()),
            ("HEAD_REPOSITORY", String::new()),
            ("RUNNER_ENVIRONMENT", "github-hosted".into()),
            ("RUNNER_OS", "Linux".into()),
            ("RUNNER_ARCH", "X64".into()),
        ]);
        Runner {
            sandbox,
            environment,
        }
    }

    fn with(mut self, variable: &'static str, value: &str) -> Runner {
        self.environment.insert(variable, value.into());
        self
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Output {
        Command::new("bash")
            .arg(script(name))
            .args(arguments)
            .current_dir(self.sandbox.at("."))
            .env_remove("PYPROF_ADVISE_CONFIG")
            .envs(&self.environment)
            .output()
            .unwrap()
    }

    fn outputs(&self) -> BTreeMap<String, String> {
        let text = self.sandbox.read("output");
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(k, v)| (k.into(), v.into())).collect()
    }

    /// Adds a `gh` that records its calls and returns these ids of comments.
    fn with_gh(self, ids: &str, fails: &str) -> Runner {
        let gh = format!(
            "#!/usr/bin/env bash\necho \"$*\" >>gh.log\ncase \"$*\" in {fails}) exit 1 ;; esac\n\
             case \"$*\" in *--paginate*) printf '%s\\n' {ids} ;; *) cat temp/pyprof-advise-comment.md >body ;; esac\n"
        );
        self.sandbox.write("bin/gh", &gh);
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.sandbox.at("bin/gh"), executable).unwrap();
        self.sandbox.write("advice.md", "# Advice\n");
        let advice = self.sandbox.at("advice.md").display().to_string();
        self.with("MARKDOWN", &advice)
            .with("PULL_REQUEST", "7")
            .with("GH_TOKEN", "hunter2")
    }
}

#[track_caller]
fn code(output: &Output, want: i32) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(want), "{text}");
    text
}

#[test]
fn one_analysis_writes_every_format_before_the_gate_fails() {
    let runner = Runner::new().with("FAIL_ON", "error,saving=5%").with(
        "ARGS",
        "--top\n3\n\n--set\nprecision/amp-off.min_share=0.1\n",
    );
    let said = code(&runner.run("advise", &[]), 0);
    has(
        &said,
        &[
            "failed: --fail-on error: ",
            "::error ",
            "title=GEMM dimensions",
        ],
    );
    let outputs = runner.outputs();
    assert_eq!(outputs["status"], "1");
    let read = |name: &str| std::fs::read_to_string(&outputs[name]).unwrap();
    let report: Value = serde_json::from_str(&read("json")).unwrap();
    assert_eq!(report["top"], 3);
    let markdown = read("markdown");
    assert_eq!(
        markdown.lines().filter(|l| l.starts_with("### ")).count(),
        3
    );
    assert!(markdown.chars().count() <= 65_000);
    has(&read("html"), &["<!doctype html>"]);
    has(
        &runner.sandbox.read("summary"),
        &["# GPU advice for `net.sqlite`"],
    );
}

#[test]
fn the_report_of_readable_profiles_is_published_before_the_last_step_fails() {
    let runner = Runner::new().with("PROFILE", "net.sqlite\nnope.sqlite\n");
    let said = code(&runner.run("advise", &[]), 0);
    has(&said, &["error: unreadable, left out: nope.sqlite"]);
    let outputs = runner.outputs();
    assert_eq!(outputs["status"], "2");
    for (name, says) in [
        ("json", "nope.sqlite"),
        ("markdown", "Left out: `nope.sqlite`"),
        ("html", "1 of 2 files is left out"),
    ] {
        has(&std::fs::read_to_string(&outputs[name]).unwrap(), &[says]);
    }
    has(
        &runner.sandbox.read("summary"),
        &["1 of 2 files is left out"],
    );
    // A report that an earlier step has left is not published.
    let runner = runner.with("PROFILE", "nope.sqlite\n");
    std::fs::remove_file(runner.sandbox.at("output")).unwrap();
    code(&runner.run("advise", &[]), 2);
    assert!(!runner.sandbox.at("output").exists());
}

#[test]
fn suppressed_findings_are_hidden_in_every_format() {
    let runner = Runner::new()
        .with("CONFIG", "pa.toml")
        .with("FAIL_ON", "error")
        .with("BASELINE", "none.json");
    runner.sandbox.write(
        "pa.toml",
        "for-pr = true\n[[suppress]]\nrule = 'tensor-cores/gemm-unaligned'\nreason = 'the tokenizer'\n",
    );
    let said = code(&runner.run("advise", &[]), 0);
    has(&said, &["::notice::There is no baseline none.json yet"]);
    assert_eq!(runner.outputs()["status"], "0");
    let summary = runner.sandbox.read("summary");
    has(&summary, &["because: the tokenizer (hides 1 finding)"]);
    lacks(&summary, &["### 1. GEMM"]);
}

#[test]
fn several_profiles_are_reported_as_one_job() {
    let runner = Runner::new().with("PROFILE", "traces/rank*.sqlite\n");
    std::fs::create_dir(runner.sandbox.at("traces")).unwrap();
    for rank in ["traces/rank0.sqlite", "traces/rank 1.sqlite"] {
        std::fs::copy(runner.sandbox.at("net.sqlite"), runner.sandbox.at(rank)).unwrap();
    }
    code(&runner.run("advise", &[]), 0);
    has(&runner.sandbox.read("summary"), &["## Ranks"]);
    has(
        &std::fs::read_to_string(&runner.outputs()["html"]).unwrap(),
        &["<!doctype html>"],
    );
}

#[test]
fn invalid_inputs_fail_immediately() {
    for (variable, value, says) in [
        ("PROFILE", "missing.sqlite", "missing.sqlite"),
        ("PROFILE", "\n", "no file is named"),
        ("PROFILE", "--help", "--help"),
        ("NAME", "a -->", "::error::name"),
        ("ARGS", "--top=$(touch pwned)", "touch pwned"),
        ("GPU", "`touch pwned`; touch pwned", "no such GPU"),
    ] {
        let runner = Runner::new().with(variable, value);
        has(&code(&runner.run("advise", &[]), 2), &[says]);
        assert!(!runner.sandbox.at("pwned").exists(), "{value}");
        assert!(!runner.sandbox.at("output").exists(), "{value}");
    }
}

#[test]
fn a_single_comment_is_created_or_updated() {
    let marker = "<!-- pyprof-advise: default -->\n\n# Advice\n";
    // No comment yet.
    let runner = Runner::new().with_gh("", "never");
    code(&runner.run("comment", &[]), 0);
    let log = runner.sandbox.read("gh.log");
    has(
        &log,
        &["--method POST repos/someone/something/issues/7/comments"],
    );
    lacks(&log, &["PATCH", "hunter2"]);
    assert_eq!(runner.sandbox.read("body"), marker);
    // One of the action's comments.
    let runner = Runner::new().with_gh("11", "never");
    code(&runner.run("comment", &[]), 0);
    let log = runner.sandbox.read("gh.log");
    has(
        &log,
        &["--method PATCH repos/someone/something/issues/comments/11"],
    );
    lacks(&log, &["POST"]);
    // Another user's comment that begins like the action's, followed by the action's.
    let runner = Runner::new().with_gh("11 12", "*comments/11*");
    code(&runner.run("comment", &[]), 0);
    has(&runner.sandbox.read("gh.log"), &["comments/12"]);
    lacks(&runner.sandbox.read("gh.log"), &["POST"]);
    // A read-only token.
    let runner = Runner::new().with_gh("", "*--method*");
    has(
        &code(&runner.run("comment", &[]), 0),
        &["::warning::", "pull-requests: write"],
    );
    // Not a pull request.
    let runner = Runner::new().with_gh("", "never").with("PULL_REQUEST", "");
    code(&runner.run("comment", &[]), 0);
    assert!(!runner.sandbox.at("gh.log").exists());
}

#[test]
fn installations_have_a_cache_key() {
    let runner = Runner::new();
    code(&runner.run("install", &["key"]), 0);
    let key = &runner.outputs()["key"];
    assert!(
        key.len() >= 40 && key.bytes().all(|b| b.is_ascii_hexdigit()),
        "{key}"
    );
    let runner = Runner::new().with("VERSION", "1.2.3");
    code(&runner.run("install", &["key"]), 0);
    assert_eq!(runner.outputs()["key"], "1.2.3");
    for version in ["latest", "1.2.3; touch pwned", "--path=/"] {
        let runner = Runner::new().with("VERSION", version);
        has(
            &code(&runner.run("install", &["key"]), 2),
            &["::error::version"],
        );
    }
    // A cached program is not built again.
    let runner = Runner::new();
    runner
        .sandbox
        .write("temp/pyprof-advise/bin/pyprof-advise", "");
    let program = runner.sandbox.at("temp/pyprof-advise/bin/pyprof-advise");
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    code(&runner.run("install", &["install"]), 0);
    has(&runner.sandbox.read("path"), &["temp/pyprof-advise/bin"]);
}

#[test]
fn releases_are_downloaded_and_compared_with_their_checksum() {
    let released = |sums: &str| {
        let runner = Runner::new().with("ACTION_REF", "v1.2.3");
        let script = r#"set -e; mkdir -p rel/v1.2.3 prog; printf '#!/bin/sh\n' >prog/pyprof-advise; chmod +x prog/pyprof-advise
            tar -C prog -czf rel/v1.2.3/pyprof-advise-x86_64-unknown-linux-gnu.tar.gz .
            cd rel/v1.2.3; sha256sum -- *.tar.gz >SHA256SUMS"#;
        let made = Command::new("bash")
            .args(["-c", &format!("{script}; {sums}")])
            .current_dir(runner.sandbox.at("."))
            .status();
        assert!(made.unwrap().success());
        let releases = format!("file://{}", runner.sandbox.at("rel").display());
        runner.with("RELEASES", &releases)
    };
    let runner = released("true");
    has(
        &code(&runner.run("install", &["install"]), 0),
        &["was downloaded"],
    );
    assert!(
        runner
            .sandbox
            .at("temp/pyprof-advise/bin/pyprof-advise")
            .exists()
    );
    let runner = released("sed -i -E 's/^.{64}/'$(printf 0%.0s {1..64})'/' SHA256SUMS");
    has(
        &code(&runner.run("install", &["install"]), 2),
        &["is not the file"],
    );
}

#[test]
fn forks_on_own_machines_are_warned_of() {
    let runner = Runner::new()
        .with("HEAD_REPOSITORY", "stranger/something")
        .with("RUNNER_ENVIRONMENT", "self-hosted")
        .with("PROFILE", "");
    has(
        &code(&runner.run("advise", &[]), 2),
        &["::warning::", "a fork"],
    );
}

#[test]
fn every_action_is_pinned_by_its_commit() {
    let mut files = vec!["action.yml".to_owned(), "docs/ci.md".to_owned()];
    for entry in std::fs::read_dir(Path::new(ROOT).join(".github/workflows")).unwrap() {
        let name = entry.unwrap().file_name();
        files.push(format!(".github/workflows/{}", name.to_string_lossy()));
    }
    let mut seen = 0;
    for file in files {
        let text = std::fs::read_to_string(Path::new(ROOT).join(&file)).unwrap();
        for line in text
            .lines()
            .filter(|line| line.contains("uses: ") && line.contains('@'))
        {
            let (_, version) = line.split_once('@').unwrap();
            let commit = version.split(' ').next().unwrap();
            let pinned = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(pinned || commit == "REF", "{file}: {line}");
            seen += 1;
        }
    }
    assert!(seen >= 10, "{seen}");
}
