//! The exit status of reports: gates, baselines, suppressions.

use crate::cli_sandbox::{ROOT, Sandbox, has, lacks};
use pyprof_advise::formats::FORMATS;
use serde_json::{Value, json};

const NET: &str = "net.sqlite --gpu v100";
/// Seconds since 1970 in the middle of 2026.
const TODAY: &str = "1782000000";

/// A folder with the report of the example profile in `base.json`.
fn with_baseline() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.fine(&format!("{NET} --format json -o base.json"));
    sandbox
}

impl Sandbox {
    /// Changes the report in `base.json`.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut report = self.json("base.json");
        change(&mut report);
        self.write("base.json", &report.to_string());
    }
}

fn rules(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap().iter();
    list.map(|f| f["rule"].as_str().unwrap()).collect()
}

fn hidden(report: &Value, because: &str) -> Vec<String> {
    let hidden = report["hidden"].as_array().unwrap().iter();
    hidden
        .filter(|h| h["reason"] == because && h["list"] == "findings")
        .map(|h| h["finding"]["rule"].as_str().unwrap().to_owned())
        .collect()
}

// ------------------------------------------------------------------------------------------ gates

#[test]
fn severity_gates_fail_in_every_format_after_the_report_is_written() {
    let sandbox = Sandbox::new();
    for format in FORMATS.iter().map(|format| format.name) {
        let plain = sandbox.fine(&format!("{NET} --format {format}"));
        let said = sandbox.run(&format!("{NET} --format {format} --fail-on error"));
        assert_eq!(said.code, 1, "{format}");
        assert!(said.out == plain, "{format}: the gate changed the report");
        assert_eq!(
            said.err,
            "failed: --fail-on error: 1 finding: tensor-cores/gemm-unaligned\n"
        );
    }
    let said = sandbox.run(&format!("{NET} --fail-on warning -o advice.md --quiet"));
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    has(
        &said.err,
        &["--fail-on warning: 5 findings: ", "copies/pageable"],
    );
    has(
        &sandbox.read("advice.md"),
        &["## What to change", "## Method"],
    );
}

#[test]
fn gates_pass_without_matching_findings() {
    let sandbox = Sandbox::new();
    sandbox.fine(&format!("{NET} --select parallelism --fail-on error"));
    sandbox.fine(&format!("{NET} --fail-on saving=60%"));
    // Without findings there is no saving, so `saving=0%` passes too.
    sandbox.fine(&format!(
        "{NET} --select communication --fail-on saving=0%,note"
    ));
}

#[test]
fn saving_gate_uses_the_total_saving_of_the_report() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&format!("{NET} --fail-on saving=5%,error"));
    assert_eq!(said.code, 1);
    has(
        &said.err,
        &[
            "--fail-on saving=5%: the findings could save ",
            " of each ",
            "; --fail-on error: ",
        ],
    );
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    let report = sandbox.report(NET);
    let findings = report["findings"].as_array().unwrap();
    let per_step = findings
        .iter()
        .map(|f| f["saving"]["step_high_ns"].as_f64().unwrap());
    let step = report["summary"]["step_ns"].as_f64().unwrap();
    let share = per_step.sum::<f64>() / step * 100.0;
    for (limit, code) in [(share - 0.1, 1), (share + 0.1, 0)] {
        let said = sandbox.run(&format!("{NET} --fail-on saving={limit:.3}%"));
        assert_eq!(said.code, code, "{share} % against {limit} %");
    }
}

#[test]
fn minor_findings_do_not_fail_gates() {
    let sandbox = Sandbox::new();
    let report = sandbox.report(NET);
    let small = report["minor"][0]["rule"].as_str().unwrap();
    sandbox.fine(&format!("{NET} --select {small} --fail-on note"));
}

#[test]
fn invalid_gates_are_explained() {
    let sandbox = Sandbox::new();
    for (gate, says) in [
        ("eror", "did you mean `error`?"),
        ("saving=5", "`saving=5%`"),
        (
            "regression=3%",
            "pyprof-advise diff BEFORE AFTER --fail-on regression=3%",
        ),
    ] {
        has(
            &sandbox.refused(&format!("{NET} --fail-on {gate}")),
            &[says],
        );
    }
}

// --------------------------------------------------------------------------------------- baseline

#[test]
fn report_as_its_own_baseline_has_no_new_findings() {
    let sandbox = with_baseline();
    let before = sandbox.json("base.json");
    let report = sandbox.report(&format!("{NET} --baseline base.json --fail-on note"));
    assert_eq!(report["findings"], json!([]));
    assert_eq!(report["minor"], json!([]));
    assert_eq!(hidden(&report, "known"), rules(&before["findings"]));
    assert_eq!(report["baseline"]["file"], "base.json");
    assert_eq!(report["baseline"]["fixed"], json!([]));
    assert_eq!(report["total_saving"]["gpu_high_ns"], 0.0);
    for list in ["layers", "sites"] {
        for row in report[list].as_array().unwrap() {
            assert_eq!(row["findings"], json!([]), "{row}");
        }
    }
    let text = sandbox.fine(&format!("{NET} --baseline base.json"));
    has(
        &text,
        &[
            "There are no new findings.",
            "5 findings and 5 minor findings are hidden: already in the baseline.",
        ],
    );
    lacks(&text, &["## What to change", "found nothing worth"]);
}

#[test]
fn findings_missing_in_the_baseline_are_new_and_numbered_from_one() {
    let sandbox = with_baseline();
    sandbox.edit(|base| {
        base["findings"].as_array_mut().unwrap().remove(2);
    });
    let arguments = format!("{NET} --baseline base.json");
    let report = sandbox.report(&arguments);
    assert_eq!(rules(&report["findings"]), ["precision/amp-partial"]);
    assert_eq!(report["findings"][0]["number"], 1);
    assert_eq!(report["findings"][0]["since_baseline"], "new");
    let layers = report["layers"].as_array().unwrap();
    let about = layers
        .iter()
        .filter(|l| l["findings"] == json!([1]))
        .count();
    assert!(about > 0, "no layer names the finding");
    assert!(
        layers
            .iter()
            .all(|l| l["findings"] == json!([1]) || l["findings"] == json!([]))
    );
    assert_eq!(
        report["total_saving"]["gpu_high_ns"],
        report["findings"][0]["saving"]["counted_high_ns"]
    );
    let said = sandbox.run(&format!("{arguments} --fail-on warning"));
    assert_eq!(said.code, 1);
    assert_eq!(
        said.err,
        "failed: --fail-on warning: 1 finding: precision/amp-partial\n"
    );
    has(
        &said.out,
        &[
            "### 1. Mixed precision is on, but some matrix work stays in fp32",
            "4 findings and 5 minor findings are hidden: already in the baseline.",
        ],
    );
    // Findings of the baseline do not fail gates.
    sandbox.fine(&format!("{arguments} --fail-on error"));
}

#[test]
fn known_findings_that_became_worse_are_shown() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 3] = [
        (
            |f| f["severity"] = json!("note"),
            "known as a note, and an error now",
        ),
        (
            |f| f["share"] = json!(0.1),
            "known, and grown from 10 % to 29 %",
        ),
        (
            |f| {
                f["places"].as_array_mut().unwrap().remove(1);
            },
            "known, and new in lm_head",
        ),
    ];
    for (change, says) in cases {
        let sandbox = with_baseline();
        sandbox.edit(|base| change(&mut base["findings"][0]));
        let report = sandbox.report(&format!("{NET} --baseline base.json"));
        assert_eq!(
            rules(&report["findings"]),
            ["tensor-cores/gemm-unaligned"],
            "{says}"
        );
        let since = report["findings"][0]["since_baseline"].as_str().unwrap();
        has(since, &[says]);
        let text = sandbox.fine(&format!("{NET} --baseline base.json"));
        has(&text, &["**Since the baseline:** known"]);
        let page = sandbox.fine(&format!("{NET} --baseline base.json --format html"));
        has(&page, &["Since the baseline: known"]);
        let text = sandbox.fine(&format!(
            "{NET} --baseline base.json --format text --color never"
        ));
        has(&text, &["Since the baseline: known"]);
    }
}

#[test]
fn small_increases_are_not_worse() {
    let sandbox = with_baseline();
    sandbox.edit(|base| {
        for finding in base["findings"].as_array_mut().unwrap() {
            let share = finding["share"].as_f64().unwrap();
            finding["share"] = json!(share / 1.9);
            finding["evidence"] =
                json!({"facts": [], "operators": [], "kernels": [], "source_lines": []});
            finding["place"] = json!("named differently");
            finding["title"] = json!("worded differently");
        }
    });
    let report = sandbox.report(&format!("{NET} --baseline base.json"));
    assert_eq!(report["findings"], json!([]));
}

#[test]
fn missing_findings_count_as_fixed_only_if_the_rule_ran() {
    let sandbox = with_baseline();
    sandbox.edit(|base| {
        let mut gone = base["findings"][1].clone();
        gone["rule"] = json!("precision/amp-off");
        gone["place"] = json!("everywhere");
        base["findings"].as_array_mut().unwrap().push(gone);
    });
    let report = sandbox.report(&format!("{NET} --baseline base.json"));
    assert_eq!(rules(&report["baseline"]["fixed"]), ["precision/amp-off"]);
    assert_eq!(report["baseline"]["not_checked"], json!([]));
    has(
        &sandbox.fine(&format!("{NET} --baseline base.json")),
        &["Fixed since the baseline: precision/amp-off (everywhere)."],
    );
    let ignored = format!("{NET} --baseline base.json --ignore precision");
    let report = sandbox.report(&ignored);
    assert_eq!(report["baseline"]["fixed"], json!([]));
    let not_checked = rules(&report["baseline"]["not_checked"]);
    assert!(
        not_checked.contains(&"precision/amp-off"),
        "{not_checked:?}"
    );
    has(
        &sandbox.fine(&ignored),
        &["In the baseline, not checked this time: "],
    );
}

#[test]
fn skipped_rules_do_not_count_as_fixed() {
    let sandbox = with_baseline();
    // Without a GPU, rules that need its peaks are skipped.
    sandbox.write("small.toml", "");
    let database = rusqlite::Connection::open(sandbox.at("net.sqlite")).unwrap();
    database
        .execute_batch("DELETE FROM TARGET_INFO_GPU")
        .unwrap();
    drop(database);
    let report = sandbox.report("net.sqlite --baseline base.json");
    let not_checked = rules(&report["baseline"]["not_checked"]);
    assert!(
        not_checked.contains(&"tensor-cores/gemm-unaligned"),
        "{not_checked:?}"
    );
    let cautions = report["cautions"].to_string();
    has(
        &cautions,
        &[
            "The baseline was measured against V100 SXM2 16GB",
            "no known GPU",
        ],
    );
}

#[test]
fn report_made_with_a_baseline_can_be_a_baseline() {
    let sandbox = with_baseline();
    sandbox.fine(&format!(
        "{NET} --baseline base.json --format json -o second.json"
    ));
    let report = sandbox.report(&format!("{NET} --baseline second.json"));
    assert_eq!(report["findings"], json!([]));
    assert_eq!(report["baseline"]["fixed"], json!([]));
}

#[test]
fn invalid_baseline_is_reported_before_the_profile_is_read() {
    let sandbox = Sandbox::new();
    sandbox.write("trace.json", "{\"traceEvents\": []}");
    for (file, says) in [
        ("none.json", "none.json: "),
        ("trace.json", "expected a report, found a trace"),
        ("net.sqlite", "net.sqlite: not a JSON report"),
    ] {
        let error = sandbox.refused(&format!("missing.sqlite --baseline {file}"));
        has(&error, &["--baseline ", says]);
    }
}

#[test]
fn baselines_apply_to_jobs() {
    let sandbox = Sandbox::new();
    for rank in ["rank0.sqlite", "rank1.sqlite"] {
        std::fs::copy(sandbox.at("net.sqlite"), sandbox.at(rank)).unwrap();
    }
    let job = "rank0.sqlite rank1.sqlite --gpu v100";
    sandbox.fine(&format!("{job} --format json -o job.json"));
    let report = sandbox.report(&format!("{job} --baseline job.json --fail-on note"));
    assert_eq!(report["findings"], json!([]));
    // Reports with hidden findings are merged with all their findings.
    for rank in ["rank0", "rank1"] {
        sandbox.fine(&format!(
            "{rank}.sqlite --gpu v100 --format json -o {rank}.json"
        ));
        sandbox.fine(&format!(
            "{rank}.sqlite --gpu v100 --baseline {rank}.json --format json -o {rank}.new.json"
        ));
    }
    let whole = sandbox.report("merge rank0.json rank1.json");
    let unhidden = sandbox.report("merge rank0.new.json rank1.new.json");
    assert_eq!(rules(&whole["findings"]), rules(&unhidden["findings"]));
    assert_eq!(unhidden["hidden"], json!([]));
    let said = sandbox.run("merge rank0.json rank1.json --baseline job.json --fail-on note");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(
        sandbox
            .run("merge rank0.json rank1.json --fail-on error")
            .code,
        1
    );
    // A single report is rendered again, also that of a job.
    assert_eq!(sandbox.report("merge job.json"), sandbox.json("job.json"));
    assert_eq!(
        sandbox.fine("merge rank0.new.json"),
        sandbox.fine("rank0.sqlite --gpu v100 --baseline rank0.json")
    );
}

// ------------------------------------------------------------------------------------ suppression

fn suppressing(text: &str) -> Sandbox {
    let sandbox = Sandbox::new().with("SOURCE_DATE_EPOCH", TODAY);
    sandbox.write("pa.toml", text);
    sandbox
}

const CONFIGURED: &str = "net.sqlite --gpu v100 --config pa.toml";

#[test]
fn suppressed_findings_are_not_counted_and_the_reason_is_printed() {
    let sandbox = suppressing(
        "[[suppress]]\nrule = 'tensor-cores/gemm-unaligned'\nplace = 'lm_head'\n\
         reason = 'the tokenizer is fixed'\nuntil = 2026-12-31\n",
    );
    let said = sandbox.run(&format!("{CONFIGURED} --fail-on error"));
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    has(
        &said.out,
        &[
            "1 finding is suppressed by the configuration",
            "- Suppressed: `tensor-cores/gemm-unaligned` at `lm_head` until 2026-12-31, because: the \
             tokenizer is fixed (hides 1 finding)",
            "| 1 | Copies between host and GPU use pageable memory |",
        ],
    );
    let report = sandbox.report(CONFIGURED);
    assert_eq!(
        hidden(&report, "suppressed"),
        ["tensor-cores/gemm-unaligned"]
    );
    assert_eq!(report["hidden"][0]["suppression"], 0);
    assert_eq!(report["suppressions"][0]["state"], "used");
    let page = sandbox.fine(&format!("{CONFIGURED} --format html"));
    has(
        &page,
        &[
            "gemm-unaligned</code> at <code>lm_head</code> until",
            "the tokenizer is fixed",
        ],
    );
    lacks(
        &page,
        &["GEMM dimensions miss the Tensor Core alignment</a>"],
    );
}

#[test]
fn findings_in_several_places_are_suppressed_if_all_places_match() {
    for (place, state) in [("bridge.up", "unused"), ("*", "used"), ("bridge.*", "used")] {
        let sandbox = suppressing(&format!(
            "[[suppress]]\nrule = 'precision/amp-partial'\nplace = '{place}'\nreason = 'x'\n"
        ));
        let report = sandbox.report(CONFIGURED);
        assert_eq!(report["suppressions"][0]["state"], state, "{place}");
    }
}

#[test]
fn expired_suppressions_hide_nothing_and_are_reported() {
    let text = "[[suppress]]\nrule = 'copies'\nreason = 'later'\nuntil = 2026-06-20\n";
    // 2026-06-21 in UTC.
    let sandbox = suppressing(text);
    let said = sandbox.run(CONFIGURED);
    assert_eq!(
        said.err,
        "warning: the suppression of copies/* expired on 2026-06-20: 1 finding shown again\n"
    );
    has(
        &said.out,
        &[
            "Copies between host and GPU use pageable memory",
            "1 finding is shown again: its suppression has expired",
            "(has expired: 1 finding shown again)",
        ],
    );
    // A suppression is valid on its last day.
    let sandbox = suppressing(text).with("SOURCE_DATE_EPOCH", "1781913600");
    assert_eq!(sandbox.run(CONFIGURED).err, "");
    assert_eq!(
        hidden(&sandbox.report(CONFIGURED), "suppressed"),
        ["copies/pageable"]
    );
    // A valid suppression takes precedence over an expired one.
    let both = format!("{text}[[suppress]]\nrule = 'copies/pageable'\nreason = 'still'\n");
    let report = suppressing(&both).report(CONFIGURED);
    assert_eq!(report["hidden"][0]["suppression"], 1);
}

#[test]
fn unused_suppressions_are_reported() {
    let sandbox = suppressing(
        "[[suppress]]\nrule = 'communication/*'\nreason = 'a'\n\
         [[suppress]]\nrule = 'precision/amp-off'\nplace = 'head*'\nreason = 'c'\nuntil = 2020-01-01\n",
    );
    let said = sandbox.run(CONFIGURED);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", said.err);
    has(lines[0], &["communication/*", "hides nothing"]);
    has(
        lines[1],
        &[
            "precision/amp-off at head*",
            "expired on 2020-01-01; remove it",
        ],
    );
    has(
        &said.out,
        &[
            "(hides nothing: no finding has this rule and place)",
            "has expired, and there is",
        ],
    );
    assert_eq!(sandbox.run(&format!("{CONFIGURED} --quiet")).err, "");
    // A rule that did not run might have findings to hide.
    let report = sandbox.report(&format!("{CONFIGURED} --select host"));
    assert_eq!(report["suppressions"][0]["state"], "not_run");
}

#[test]
fn suppression_of_an_unknown_rule_is_an_error() {
    let sandbox = suppressing("[[suppress]]\nrule = 'precision/amp-of'\nreason = 'b'\n");
    let said = sandbox.run(CONFIGURED);
    assert_eq!(said.code, 2);
    has(
        &said.err,
        &["`precision/amp-of`, which does not exist; did you mean `precision/amp-off`?"],
    );
}

#[test]
fn shown_places_can_be_suppressed() {
    let shown = "lm_head · torch.nn.functional.linear (fprop) and 1 more place";
    let with = |place: &str| {
        suppressing(&format!(
            "[[suppress]]\nrule = 'tensor-cores/gemm-unaligned'\nplace = '{place}'\nreason = 'fixed size'\n"
        ))
    };
    for place in [shown, &shown.replace("_", "_\u{2060}"), "lm_head", "lm*"] {
        let report = with(place).report(CONFIGURED);
        assert_eq!(
            hidden(&report, "suppressed"),
            ["tensor-cores/gemm-unaligned"],
            "{place}"
        );
    }
    // A place of several.
    let said = with("lm_head · torch.nn.functional.linear (bprop)").run(CONFIGURED);
    has(
        &said.err,
        &[
            "hides nothing: it matches lm_head · torch.nn.functional.linear (bprop)",
            "but the finding is also at lm_head · torch.nn.functional.linear (fprop)",
            &format!("`place = \"{shown}\"` covers all of it"),
        ],
    );
}

#[test]
fn suppressions_and_baselines_are_combined() {
    let sandbox = with_baseline();
    sandbox.write("pa.toml", "[[suppress]]\nrule = 'copies'\nreason = 'x'\n");
    let report = sandbox.report(&format!("{CONFIGURED} --baseline base.json"));
    assert_eq!(report["findings"], json!([]));
    assert_eq!(hidden(&report, "suppressed"), ["copies/pageable"]);
    assert_eq!(hidden(&report, "known").len(), 4);
    assert_eq!(report["baseline"]["fixed"], json!([]));
    has(
        &sandbox.fine(&format!("{CONFIGURED} --baseline base.json")),
        &[
            "4 findings and 5 minor findings are hidden: already in the baseline.",
            "1 finding is suppressed",
        ],
    );
}

#[test]
fn reasons_and_baselines_are_escaped() {
    let sandbox = suppressing(
        "[[suppress]]\nrule = 'copies'\nreason = '''<img src=x onerror=alert(1)> @team | [a](javascript:x) `''' \n",
    );
    sandbox.fine(&format!("{NET} --format json -o base.json"));
    sandbox.edit(|base| {
        let mut gone = base["findings"][1].clone();
        gone["rule"] = json!("precision/amp-off");
        gone["place"] = json!("<script>alert(1)</script> @team | ``` ](javascript:x) \u{1b}[31m");
        base["title"] = json!("<b>x</b>`|@team");
        base["findings"].as_array_mut().unwrap().push(gone);
    });
    let arguments = format!("{CONFIGURED} --baseline base.json");
    let text = sandbox.fine(&arguments);
    lacks(&text, &["<img", "<script", "<b>", "@team", "\u{1b}"]);
    let arena = comrak::Arena::new();
    let document = comrak::parse_document(&arena, &text, &comrak::Options::default());
    for node in document.descendants() {
        if let comrak::nodes::NodeValue::Link(link) = &node.data.borrow().value {
            assert!(link.url.starts_with("https://"), "{}", link.url);
        }
    }
    let page = sandbox.fine(&format!("{arguments} --format html"));
    lacks(&page, &["<img", "<script>alert", "<b>x", "\u{1b}"]);
    let text = sandbox.fine(&format!("{arguments} --format text --color never"));
    lacks(&text, &["\u{1b}"]);
}

// ------------------------------------------------------------------------------------------ SARIF

#[test]
fn sarif_marks_suppressed_and_unchanged_results() {
    let sandbox = with_baseline();
    sandbox.edit(|base| {
        base["findings"].as_array_mut().unwrap().remove(2);
    });
    sandbox.write(
        "pa.toml",
        "[[suppress]]\nrule = 'copies'\nreason = 'we know'\n",
    );
    let arguments = format!("{CONFIGURED} --baseline base.json --format sarif");
    let log: Value = serde_json::from_str(&sandbox.fine(&arguments)).unwrap();
    let schema = format!("{ROOT}/tests/reports/formats/schema");
    let schema = std::fs::read_dir(schema)
        .unwrap()
        .map(|e| e.unwrap().path());
    let schema = schema
        .filter(|path| path.to_string_lossy().contains("sarif"))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .next()
        .unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    // Only JavaScript accepts a closing bracket without an opening one in a pattern.
    let mut schema = schema;
    for part in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][part]["properties"]["language"];
        language.as_object_mut().unwrap().remove("pattern");
    }
    jsonschema::validate(&schema, &log).unwrap_or_else(|e| panic!("{e}"));
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
    let of = |rule: &str| results.iter().find(|r| r["ruleId"] == rule).unwrap();
    assert_eq!(of("precision/amp-partial")["baselineState"], "new");
    assert_eq!(of("precision/amp-partial")["suppressions"], json!([]));
    assert_eq!(
        of("tensor-cores/gemm-unaligned")["baselineState"],
        "unchanged"
    );
    assert_eq!(of("copies/pageable")["baselineState"], "unchanged");
    assert_eq!(
        of("copies/pageable")["suppressions"][0]["justification"],
        "we know"
    );
    // Without suppressions and a baseline, the log mentions neither.
    let plain = sandbox.fine(&format!("{NET} --format sarif"));
    lacks(&plain, &["baselineState", "\"suppressions\""]);
}
