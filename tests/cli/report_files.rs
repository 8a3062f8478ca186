//! Files that a report is written to, kept in, or quotes from, and files that cannot be read.

use crate::cli_sandbox::{Sandbox, has, lacks};

#[test]
fn ending_that_contradicts_the_format_is_an_error() {
    let sandbox = Sandbox::new();
    for (arguments, says) in [
        ("-o a.json --format markdown", "the ending means json"),
        ("-o a.md --format html", "--format means html"),
        (
            "-o a.html --for-pr",
            "--max-chars or --for-pr means markdown",
        ),
        ("-o a.csv", "pyprof-advise export PROFILE -o a.csv"),
        ("-o a.foo", "no format has this ending"),
    ] {
        has(
            &sandbox.refused(&format!("net.sqlite {arguments}")),
            &[says],
        );
    }
    sandbox.fine("net.sqlite -o a.MD --format markdown");
    sandbox.fine("net.sqlite -o advice --format html");
    assert!(sandbox.read("advice").starts_with("<!doctype html>"));
    assert_eq!(sandbox.names(), ["a.MD", "advice", "net.sqlite"]);
}

#[test]
fn named_file_that_cannot_be_read_gives_exit_status_2() {
    let sandbox = Sandbox::new();
    for arguments in [
        "net.sqlite gone.sqlite -q",
        "net.sqlite gone.sqlite --fail-on error",
    ] {
        let said = sandbox.run(&format!("{arguments} -o job.md"));
        assert_eq!(said.code, 2, "{arguments}");
        has(&said.err, &["error: unreadable, left out: gone.sqlite"]);
        has(
            &sandbox.read("job.md"),
            &["Left out: `gone.sqlite`", "1 of 2 files is left out"],
        );
    }
    assert_eq!(
        sandbox.run("export net.sqlite gone.sqlite -o a.csv").code,
        2
    );
    assert!(sandbox.read("a.csv").lines().count() > 10);
}

#[test]
fn unreadable_member_of_a_folder_is_a_warning_and_fails_a_gate() {
    let sandbox = Sandbox::bare();
    std::fs::create_dir(sandbox.at("runs")).unwrap();
    sandbox.example("runs/r0.sqlite");
    let whole = std::fs::read(sandbox.at("runs/r0.sqlite")).unwrap();
    std::fs::write(sandbox.at("runs/r1.sqlite"), &whole[..whole.len() / 2]).unwrap();
    let said = sandbox.run("runs -o job.md");
    assert_eq!(said.code, 0, "{}", said.err);
    has(&said.err, &["warning: unreadable, left out: "]);
    assert_eq!(sandbox.run("runs -o job.md --fail-on saving=99%").code, 1);
}

#[test]
fn kept_reports_are_shown_in_any_format() {
    let sandbox = Sandbox::new();
    sandbox.fine("net.sqlite -o kept.json");
    sandbox.fine("net.sqlite -o now.html");
    sandbox.fine("show kept.json -o again.html");
    assert_eq!(sandbox.read("again.html"), sandbox.read("now.html"));
    has(
        &sandbox.fine("show kept.json"),
        &["# GPU advice for `net.sqlite`"],
    );
    has(
        &sandbox.fine("show kept.json --baseline kept.json"),
        &["findings are hidden: already in the baseline"],
    );
    has(&sandbox.refused("show net.sqlite"), &["not a JSON report"]);
    has(
        &sandbox.refused("show kept.json -o kept.json"),
        &["would overwrite the report"],
    );
}

#[test]
fn other_files_in_place_of_a_report_are_named() {
    let sandbox = Sandbox::new();
    sandbox.fine("net.sqlite -o kept.json");
    sandbox.fine("net.sqlite -o kept.md");
    sandbox.fine("diff kept.json net.sqlite -o diff.json");
    has(
        &sandbox.refused("net.sqlite --baseline kept.md"),
        &[
            "not a JSON report (it looks like Markdown)",
            "--format json",
        ],
    );
    has(
        &sandbox.refused("net.sqlite --baseline diff.json"),
        &["found a comparison that `pyprof-advise diff` wrote"],
    );
}

/// A rule whose edit fits the source line of the example's most expensive finding.
const EDITING_RULE: &str = r#"
title      = "The head is slow"
severity   = "note"
confidence = "low"
for_each   = "site"
when       = '''site.family == "gemm" && site.gpu_share > 0.1'''
message    = "{{ site.op | code }} takes {{ site.gpu_share | percent }} of GPU time."
why        = "It is large."
fix        = "Make it smaller."

[[edit]]
find    = '''lm_head[(]x[)]'''
replace = "small_head(x)"
before  = "return self.lm_head(x)"
after   = "return self.small_head(x)"

[[test]]
name  = "a large head"
facts = { "site.family" = "gemm", "site.op" = "linear", "site.gpu_share" = 0.2 }
fires = "`linear` takes 20 % of GPU time."

[[test]]
name   = "a small head"
facts  = { "site.family" = "gemm", "site.gpu_share" = 0.01 }
silent = true
"#;

#[test]
fn suggested_changes_are_shown_on_the_quoted_line() {
    let sandbox = Sandbox::new();
    let mut code: Vec<String> = (1..=120).map(|n| format!("    x = layer_{n}(x)")).collect();
    code[110] = "    return self.lm_head(x)  # \u{1b}[31m``` <script>".to_owned();
    sandbox.write("code/net/model.py", &code.join("\n"));
    sandbox.write("rule.toml", EDITING_RULE);
    let run = |format: &str| {
        let options = "--source code --rules rule.toml --select user/rule --format";
        sandbox.fine(&format!("net.sqlite {options} {format}"))
    };
    let markdown = run("markdown");
    has(
        &markdown,
        &[
            "  ```diff\n    109 x = layer_109(x)\n",
            "\n  - 111 return self.lm_head(x)  # ",
            "\n  + 111 return self.small_head(x)  # ",
        ],
    );
    let page = run("html");
    has(&page, &["<ins>111+ return self.small_head(x)"]);
    let text = run("text");
    has(&text, &["+ 111 | return self.small_head(x)"]);
    for report in [&markdown, &page, &text] {
        lacks(report, &["\u{1b}", "``` <script>\n```"]);
    }
    lacks(&page, &["``` <script>"]);
    // A rule whose edit does not fit shows the line only.
    code[110] = "    return self.head(x)".to_owned();
    sandbox.write("code/net/model.py", &code.join("\n"));
    let markdown = run("markdown");
    has(&markdown, &["  111> return self.head(x)"]);
    lacks(&markdown, &["```diff"]);
}

#[test]
fn source_lines_are_quoted_from_the_folder() {
    let sandbox = Sandbox::new();
    let mut code: Vec<String> = (1..=120).map(|n| format!("    x = layer_{n}(x)")).collect();
    code[109] = "    api_key = \"correct-horse-battery\"".to_owned();
    code[110] = "    return self.lm_head(x)  # \u{1b}[31m``` <script>".to_owned();
    sandbox.write("code/net/model.py", &code.join("\n"));
    let plain = sandbox.fine("net.sqlite");
    lacks(&plain, &["layer_109"]);
    let quoted = sandbox.fine("net.sqlite --source code --select tensor-cores");
    has(
        &quoted,
        &[
            "- `net/model.py`, line 111:",
            "  109  x = layer_109(x)",
            "  111> return self.lm_head(x)",
            "  113  x = layer_113(x)",
        ],
    );
    lacks(
        &quoted,
        &["layer_108(x)", "layer_114(x)", "correct-horse", "\u{1b}"],
    );
    let page = sandbox.fine("net.sqlite --source code --format html");
    has(&page, &["111&gt; return self.lm_head(x)"]);
    lacks(&page, &["correct-horse", "<script> "]);
    has(
        &sandbox.fine("net.sqlite --source code --format text --color never"),
        &["> 111 | return self.lm_head(x)"],
    );
    has(
        &sandbox.refused("net.sqlite --source nowhere"),
        &["--source nowhere"],
    );
    has(
        &sandbox.refused("net.sqlite --source net.sqlite"),
        &["expected a folder"],
    );
}

#[test]
fn a_loader_is_changed_where_the_files_of_the_profile_have_one() {
    let sandbox = Sandbox::new();
    let loader = "train = DataLoader(data, batch_size=8)\n";
    let quoted = |code: &str| {
        sandbox.write("code/net/model.py", code);
        sandbox.fine("net.sqlite --source code --select copies/pageable")
    };
    has(
        &quoted(&format!("import torch\n{loader}")),
        &[
            "\n  - 2 train = DataLoader(data, batch_size=8)\n",
            "\n  + 2 train = DataLoader(data, batch_size=8, pin_memory=True)\n",
        ],
    );
    // Which of two loaders is meant cannot be told.
    lacks(&quoted(&loader.repeat(2)), &["```diff"]);
    lacks(&quoted("import torch\n"), &["```diff"]);
}

#[test]
fn rules_can_be_named_without_their_category() {
    let sandbox = Sandbox::bare();
    assert_eq!(
        sandbox.fine("rules explain amp-off"),
        sandbox.fine("rules explain precision/amp-off")
    );
    has(
        &sandbox.refused("rules explain amp-of"),
        &["did you mean `precision/amp-off`?"],
    );
}
