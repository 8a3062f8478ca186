//! The program in a shell: options before and after a command, completions, manual pages, help with
//! examples.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::cli_sandbox::{Sandbox, has, lacks};

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    list.lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

#[test]
fn global_options_are_accepted_before_and_after_a_command() {
    let sandbox = Sandbox::new();
    for options in ["--quiet", "-q", "--color never", "--verbose --color always"] {
        for command in [
            "parse net.sqlite",
            "rules list",
            "costs functions",
            "gpus list",
        ] {
            let before = sandbox.fine(&format!("{options} {command}"));
            assert_eq!(
                before,
                sandbox.fine(&format!("{command} {options}")),
                "{options}"
            );
        }
    }
    assert_eq!(sandbox.run("--quiet net.sqlite").code, 0);
}

#[test]
fn other_options_before_a_command_are_errors() {
    let sandbox = Sandbox::new();
    has(
        &sandbox.refused("--gpu v100 rules list"),
        &["`--gpu` is before the command `rules`"],
    );
    has(
        &sandbox.refused("--top 3 merge a.json"),
        &["`--top` is before the command `merge`"],
    );
    for line in ["net.sqlite --gpu v100 rules list", "net.sqlite rules list"] {
        has(
            &sandbox.refused(line),
            &["`rules` after a profile", "the command comes first"],
        );
    }
    // The variable is not an option of the command line, so it causes no error.
    let sandbox = sandbox.with("PYPROF_ADVISE_CONFIG", "pa.toml");
    sandbox.fine("rules list");
}

#[test]
fn every_command_has_examples() {
    let sandbox = Sandbox::new();
    let mut seen = 0;
    for command in commands(&sandbox.fine("--help")) {
        let help = sandbox.fine(&format!("{command} --help"));
        has(&help, &["Examples:\n", &format!("pyprof-advise {command}")]);
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
        for inner in commands(&help) {
            let help = sandbox.fine(&format!("{command} {inner} --help"));
            has(
                &help,
                &["Examples:\n", &format!("pyprof-advise {command} {inner}")],
            );
            seen += 1;
        }
        seen += 1;
    }
    assert!(seen >= 24, "{seen}");
}

#[test]
fn completions_contain_every_command_and_parse() {
    let sandbox = Sandbox::new();
    let help = sandbox.fine("--help");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = sandbox.fine(&format!("completions {shell}"));
        for command in commands(&help) {
            assert!(script.contains(command), "{shell} lacks {command}");
        }
        has(&script, &["fail-on", "dump-config"]);
        if ["bash", "zsh", "fish"].contains(&shell) {
            parses(shell, &script);
        }
    }
}

/// Checks the syntax of a script with a shell, if it is installed.
fn parses(shell: &str, script: &str) {
    let started = Command::new(shell)
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("no {shell} here: its completions were not parsed");
        return;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shell}: {error}");
}

#[test]
fn manual_pages_are_troff() {
    let sandbox = Sandbox::new();
    let page = sandbox.fine("man");
    has(
        &page,
        &[
            ".TH pyprof-advise 1",
            ".SH NAME",
            ".SH SYNOPSIS",
            ".SH OPTIONS",
            "fail\\-on",
            ".SH EXAMPLES\n.nf\n  pyprof\\-advise run",
            "Exit status: 0 a report was written",
        ],
    );
    let inner = sandbox.fine("man rules list");
    has(
        &inner,
        &[
            ".TH pyprof-advise-rules-list 1  \"pyprof-advise ",
            "pyprof\\-advise rules list",
        ],
    );
    lacks(&inner, &["fail\\-on"]);
    has(
        &sandbox.refused("man rules lst"),
        &["no command `rules lst`; did you mean `list`?"],
    );
}

#[test]
fn words_that_are_no_files_get_the_command_that_was_meant() {
    let sandbox = Sandbox::new();
    for (arguments, hints) in [
        (
            "report net.sqlite",
            ["no command `report`", "-o report.html"],
        ),
        (
            "dif net.sqlite net.sqlite",
            ["no command `dif`", "did you mean `diff`?"],
        ),
    ] {
        has(&sandbox.refused(arguments), &hints);
    }
    sandbox.fine("net.sqlite -o kept.json");
    has(
        &sandbox.refused("kept.json"),
        &["a report that pyprof-advise wrote", "`pyprof-advise show "],
    );
    // A file of that name is a profile.
    std::fs::copy(sandbox.at("net.sqlite"), sandbox.at("report")).unwrap();
    has(&sandbox.fine("report"), &["# GPU advice"]);
}

#[test]
fn help_of_commands_describes_them() {
    let sandbox = Sandbox::new();
    for (command, words) in [
        ("run", "records a few of its steps"),
        ("try", "computes the same"),
        ("repro", "self-contained Python script"),
        ("diff", "never by the length of a capture"),
        ("scrub", "safe to attach to an issue"),
    ] {
        let help = sandbox.fine(&format!("help {command}"));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        has(&help, &[words]);
    }
}
