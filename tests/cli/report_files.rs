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
    // That the report could not be written is said too.
    has(
        &sandbox.refused("net.sqlite gone.sqlite -o nodir/job.md"),
        &["left out: gone.sqlite", "cannot write nodir/job.md"],
    );
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
    let line = "failed: --fail-on saving=99%,note was not checked on all ranks: 1 of 2 files could not be read \
                (runs/r1.sqlite)\n";
    let gate = "--select communication --fail-on saving=99%,note -q";
    for format in ["md", "json"] {
        let said = sandbox.run(&format!("runs -o job.{format} {gate}"));
        assert_eq!((said.code, said.err.as_str()), (1, line));
    }
    // The kept report says the same.
    for again in ["show", "merge"] {
        let said = sandbox.run(&format!("{again} job.json --fail-on saving=99%,note -q"));
        assert_eq!((said.code, said.err.as_str()), (1, line), "{again}");
        sandbox.fine(&format!("{again} job.json"));
    }
    // A file that is given twice is read.
    let twice = "runs/r0.sqlite runs/r0.sqlite --select communication --fail-on saving=99%";
    sandbox.fine(twice);
}

/// A trace of torch.profiler with some kernels, from which the end is cut.
fn cut_trace() -> String {
    let mut text = String::from("{\"schemaVersion\": 1, \"traceEvents\": [\n");
    for step in 0..40 {
        let at = 1000 + 100 * step;
        text.push_str(&format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{at},"dur":5,"args":{{"correlation":{step}}}}},
{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{},"dur":50,"args":{{"device":0,"stream":7,"correlation":{step}}}}},
"#,
            at + 20
        ));
    }
    text.push_str(r#"{"ph":"X","cat":"cuda_runtime","na"#);
    text
}

#[test]
fn trace_that_ends_in_the_middle_is_called_so_everywhere_and_fails_gates() {
    let sandbox = Sandbox::bare();
    let text = cut_trace();
    sandbox.write("cut.json", &text);
    let whole = format!("{}]}}", text.rsplit_once(",\n").unwrap().0);
    sandbox.write("whole.json", &whole);
    let first = "This trace ends in the middle";
    let place = format!("at byte {}", text.len());
    let warning = "warning: the trace ends in the middle";
    for format in ["markdown", "text", "html", "json", "sarif"] {
        let said = sandbox.run(&format!("cut.json --format {format}"));
        assert_eq!(said.code, 0, "{}", said.err);
        has(&said.out, &[first]);
        has(&said.err, &[warning]);
        lacks(
            &sandbox.fine(&format!("whole.json --format {format}")),
            &[first],
        );
    }
    let report = sandbox.report("cut.json");
    assert_eq!(report["cut_files"], serde_json::json!(["cut.json"]));
    let cautions = report["cautions"].to_string().replace(',', "");
    has(&cautions, &[place.as_str()]);
    let sarif: serde_json::Value =
        serde_json::from_str(&sandbox.fine("cut.json --format sarif")).unwrap();
    let notifications = &sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"];
    has(&notifications.to_string(), &["ends in the middle"]);
    // Gates: of the trace, of its kept report, and of a folder with it.
    let line =
        "failed: --fail-on saving=100% was not checked on all work: cut.json ends in the middle\n";
    sandbox.fine("cut.json -o kept.json");
    for of in ["cut.json", "show kept.json"] {
        let said = sandbox.run(&format!("{of} --fail-on saving=100% -q"));
        assert_eq!((said.code, said.err.as_str()), (1, line), "{of}");
    }
    sandbox.fine("whole.json --fail-on saving=100%");
    let said = sandbox.run("cut.json whole.json --fail-on saving=100% -q");
    assert_eq!(said.code, 1);
    has(
        &said.err,
        &["all work: 1 of 2 files end in the middle (cut.json)"],
    );
    has(&said.out, &["1 of 2 traces ends in the middle"]);
    // Comparisons.
    let said = sandbox.fine("diff whole.json cut.json");
    has(&said, &["The second ends in the middle (cut.json)"]);
    lacks(
        &sandbox.fine("diff whole.json whole.json"),
        &["in the middle"],
    );
}

#[test]
fn cut_trace_without_kernels_is_not_called_one_without_cuda() {
    let sandbox = Sandbox::bare();
    let text = cut_trace();
    let before = text.find("\"cat\":\"kernel\"").unwrap();
    sandbox.write("cut.json", &text[..before]);
    let error = sandbox.refused("cut.json");
    has(
        &error,
        &[
            "ends in the middle, before any kernel",
            "at byte ",
            "Copy or unpack it again",
        ],
    );
    lacks(
        &error,
        &["with torch.profiler.profile", "CUDA was not traced"],
    );
}

#[test]
fn comparisons_refuse_endings_that_they_cannot_write() {
    let sandbox = Sandbox::new();
    for (arguments, says) in [
        ("-o d.sarif", "expected .md, .markdown, .html, .htm, .json;"),
        ("-o d.txt", "no format of comparisons has this ending"),
        ("-o d.pdf", "no format of comparisons has this ending"),
        ("-o d.md --format json", "--format means json"),
    ] {
        let error = sandbox.refused(&format!("diff net.sqlite net.sqlite {arguments}"));
        has(&error, &[says]);
    }
    sandbox.fine("diff net.sqlite net.sqlite -o d");
    assert!(sandbox.read("d").starts_with("# "));
    assert_eq!(sandbox.names(), ["d", "net.sqlite"]);
}

#[test]
fn copies_keep_the_kind_of_their_profile() {
    let sandbox = Sandbox::new();
    let whole = format!("{}]}}", cut_trace().rsplit_once(",\n").unwrap().0);
    sandbox.write("trace.json", &whole);
    for (arguments, says) in [
        ("net.sqlite x.json", "an SQLite database"),
        ("net.sqlite x.gz", "an SQLite database"),
        ("trace.json x.sqlite", "is JSON"),
    ] {
        has(&sandbox.refused(&format!("scrub {arguments}")), &[says]);
    }
    sandbox.fine("scrub net.sqlite safe");
    sandbox.fine("scrub trace.json safe.json.gz");
    assert_eq!(
        sandbox.names(),
        ["net.sqlite", "safe", "safe.json.gz", "trace.json"]
    );
}

#[test]
fn explanations_and_configurations_are_written_to_files_of_their_kind() {
    let sandbox = Sandbox::new();
    let why = "net.sqlite --why copies/pageable";
    for (arguments, says) in [
        ("--format json", "cannot be used with"),
        ("--fail-on note", "cannot be used with"),
        ("--for-pr", "cannot be used with"),
        ("-o why.html", "--why writes text"),
    ] {
        has(&sandbox.refused(&format!("{why} {arguments}")), &[says]);
    }
    let text = sandbox.fine(why);
    sandbox.fine(&format!("{why} -o why.txt"));
    assert_eq!(sandbox.read("why.txt"), text);
    let dumped = sandbox.fine("--top 3 --dump-config");
    sandbox.fine("--top 3 --dump-config -o pa.toml");
    assert_eq!(sandbox.read("pa.toml"), dumped);
    // The output of a configuration is that of reports.
    sandbox.write("ci.toml", "output = \"advice.md\"\nfail-on = [\"note\"]\n");
    assert_eq!(sandbox.fine(&format!("{why} --config ci.toml")), text);
    has(
        &sandbox.fine("--config ci.toml --dump-config"),
        &["output = \"advice.md\""],
    );
    assert!(!sandbox.at("advice.md").exists());
    // A file with another ending is one of the options.
    has(
        &sandbox.fine("-o pa.html --dump-config"),
        &["output = \"pa.html\""],
    );
    has(
        &sandbox.refused("--config pa.toml --dump-config -o pa.toml"),
        &["would overwrite the configuration"],
    );
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

#[test]
fn template_errors_name_the_undefined_value() {
    let sandbox = Sandbox::new();
    for (template, says) in [
        ("a\n{{ foo }}\n", "t.jinja:2: `foo` is undefined"),
        (
            "{{ findings[0].titel }}",
            "t.jinja:1: `findings[0].titel` is undefined",
        ),
    ] {
        sandbox.write("t.jinja", template);
        let error = sandbox.refused("net.sqlite --template t.jinja");
        has(&error, &[says, "pyprof-advise schema report"]);
    }
    // The example of docs/formats.md.
    let docs = format!("{}/docs/formats.md", crate::cli_sandbox::ROOT);
    let docs = std::fs::read_to_string(docs).unwrap();
    let loop_at = docs.find("{% for f in").unwrap();
    let example = docs[loop_at..].split('`').next().unwrap();
    sandbox.write("t.jinja", example);
    has(
        &sandbox.fine("net.sqlite --template t.jinja"),
        &["1 GEMM dimensions miss"],
    );
}

#[test]
fn standard_input_and_unfinished_copies_are_named() {
    let sandbox = Sandbox::bare();
    has(&sandbox.refused("-"), &["as `/dev/stdin`"]);
    sandbox.write("zero.json", &"\0".repeat(100_000));
    has(
        &sandbox.refused("zero.json"),
        &["a file that begins with zero bytes", "did not finish"],
    );
}
