//! `export`: profiles and their reports give the same rows, unknown values are empty, and the examples
//! of docs/clusters.md run as printed.
//!
//! Tests that need DuckDB, Spark or Ray run if `python3` (or PYPROF_ADVISE_PYTHON) has them.

mod engines;

use crate::cli_sandbox::ranks::job;
use crate::cli_sandbox::{Sandbox, has, lacks};
use crate::shared;
use pyprof_advise::export::COLUMNS;
use serde_json::{Value, json};

/// Four ranks, of which the third computes longer, with their reports in a separate folder.
fn four_ranks() -> Sandbox {
    let sandbox = job([[(1000, 0), (1000, 0), (1600, 0), (1000, 0)]; 3]);
    for rank in 0..4 {
        sandbox.write("reports/.keep", "");
        sandbox.fine(&format!(
            "trace_{rank}.json --format json -o reports/r{rank}.json"
        ));
    }
    sandbox
}

/// The cells of a table's lines. In these tables, only arguments contain commas or quotes.
fn lines(csv: &str) -> Vec<Vec<String>> {
    let line = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    };
    csv.lines().map(line).collect()
}

fn at(name: &str) -> usize {
    COLUMNS.iter().position(|c| c.name == name).unwrap()
}

#[test]
fn profiles_and_their_reports_give_the_same_rows() {
    let sandbox = four_ranks();
    let from_profiles = sandbox.fine("export . --quiet");
    assert_eq!(from_profiles, sandbox.fine("export reports --quiet"));
    assert_eq!(
        from_profiles,
        sandbox.fine("export reports/r3.json trace_1.json reports/r0.json trace_2.json --quiet")
    );
    sandbox.fine("export reports -o sites.csv --quiet");
    assert_eq!(sandbox.read("sites.csv"), from_profiles);

    let table = lines(&from_profiles);
    let header: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    assert_eq!(table[0], header);
    assert!(table.iter().all(|line| line.len() == header.len()));
    let ranks: Vec<&str> = table[1..].iter().map(|l| l[at("rank")].as_str()).collect();
    assert_eq!(ranks, ["0", "0", "1", "1", "2", "2", "3", "3"]);
    let product = |rank: &str| {
        let mut rows = table.iter();
        let row = rows.find(|l| l[at("rank")] == rank && l[at("operator")] == "aten::mm");
        row.unwrap()
    };
    assert_eq!(product("2")[at("time_ns")], "4800000");
    assert_eq!(product("0")[at("time_ns")], "3000000");
    // Without recorded shapes the FLOPs are unknown, not 0.
    for unknown in ["arguments", "flops", "bytes", "ideal_ns", "slowdown"] {
        assert_eq!(product("0")[at(unknown)], "", "{unknown}");
    }
}

#[test]
fn rows_equal_the_sites_of_the_json_report() {
    let sandbox = Sandbox::new();
    let report = sandbox.report("net.sqlite");
    let table = lines(&sandbox.fine("export net.sqlite"));
    let sites = report["sites"].as_array().unwrap();
    assert_eq!(table.len() - 1, sites.len());
    assert!(sites.len() > 20);
    let mut compared = 0;
    for (row, site) in table[1..].iter().zip(sites) {
        for (key, value) in site.as_object().unwrap() {
            // Numbers of findings are meaningful only inside their report; `rules` has the names.
            // A cell holds no list.
            if key == "findings" || key == "clusters" {
                continue;
            }
            let cell = &row[at(key)];
            match value {
                Value::Null => assert_eq!(cell, "", "{key}"),
                Value::String(text) => assert_eq!(*cell, text.replace('"', ""), "{key}"),
                Value::Number(number) if number.is_f64() => {
                    assert_eq!(cell.parse().ok(), number.as_f64(), "{key}");
                }
                other => assert_eq!(*cell, other.to_string(), "{key}"),
            }
            compared += 1;
        }
        assert_eq!(row[at("file")], "net.sqlite");
        assert_eq!(row[at("rank")], "");
        assert_eq!(row[at("gpu")], "Tesla V100-SXM2-16GB");
        let busy = &report["summary"]["busy_ns"];
        assert_eq!(row[at("run_busy_ns")], busy.to_string());
    }
    assert!(compared >= 20 * 25, "only {compared} cells");
}

#[test]
fn failed_exports_leave_no_file() {
    let sandbox = four_ranks();
    let before = sandbox.names();
    has(
        &sandbox.refused("export reports -o none/sites.csv"),
        &["no folder"],
    );
    std::fs::create_dir(sandbox.at("sites.csv")).unwrap();
    has(
        &sandbox.refused("export reports -o sites.csv"),
        &["is a folder"],
    );
    std::fs::remove_dir(sandbox.at("sites.csv")).unwrap();
    assert_eq!(sandbox.names(), before);
}

/// Names and arguments of a profile may be any text: long, empty, hostile, in any alphabet.
#[test]
fn hostile_texts_and_extreme_numbers_stay_in_their_cells() {
    let sandbox = four_ranks();
    let mut report = sandbox.json("reports/r0.json");
    let odd = "\u{202e}=x\n\u{1b}[31m\"',;\u{0}层".repeat(2000);
    report["sites"][0]["kernel"] = json!(odd);
    report["sites"][0]["calls"] = json!(u64::MAX);
    report["sites"][0]["time_ns"] = json!(i64::MIN);
    report["sites"][0]["flops"] = json!(1e308);
    report["title"] = json!("");
    sandbox.write("odd.json", &report.to_string());
    let csv = sandbox.fine("export odd.json");
    assert!(!csv.contains('\u{1b}') && !csv.contains('\u{202e}'));
    let table = lines(&csv);
    assert_eq!(table.len(), 1 + report["sites"].as_array().unwrap().len());
    assert!(table.iter().all(|row| row.len() == COLUMNS.len()));
    let row = &table[1];
    assert_eq!(row[at("kernel")].matches('层').count(), 2000);
    assert_eq!(row[at("file")], "");
    assert_eq!(row[at("calls")], "");
    assert_eq!(row[at("time_ns")], i64::MIN.to_string());
    assert_eq!(row[at("flops")].parse(), Ok(1e308));
}

#[test]
fn rows_of_several_processes_have_no_rank() {
    let Some(profile) = shared::profile("mfu_2gpu_before.sqlite") else {
        return;
    };
    let sandbox = Sandbox::bare();
    let table = lines(&sandbox.fine(&format!("export {}", profile.display())));
    assert!(table.len() > 100);
    for row in &table[1..] {
        assert_eq!((&*row[at("rank")], &*row[at("processes")]), ("", "2"));
    }
}

#[test]
fn rules_are_named_in_the_rows_of_their_findings() {
    let sandbox = Sandbox::new();
    let report = sandbox.report("net.sqlite");
    let table = lines(&sandbox.fine("export net.sqlite"));
    let sites = report["sites"].as_array().unwrap();
    assert_eq!(table.len() - 1, sites.len());
    let mut named = 0;
    for (row, site) in table[1..].iter().zip(sites) {
        let cell = &row[at("rules")];
        for number in site["findings"].as_array().unwrap() {
            let findings = report["findings"].as_array().unwrap();
            let finding = findings.iter().find(|f| f["number"] == *number).unwrap();
            assert!(
                cell.split(';').any(|rule| finding["rule"] == rule),
                "{cell}"
            );
            named += 1;
        }
        assert_eq!(
            site["findings"].as_array().unwrap().is_empty(),
            cell.is_empty()
        );
    }
    assert!(named > 10, "only {named} rows have findings");
    // A report with hidden findings causes a remark.
    sandbox.fine("net.sqlite --format json -o main.json");
    sandbox.fine("net.sqlite --baseline main.json --format json -o new.json");
    has(
        &sandbox.run("export new.json").err,
        &["findings that a baseline or a suppression hid"],
    );
}

#[test]
fn invalid_outputs_are_reported_before_inputs_are_read() {
    let sandbox = four_ranks();
    let before = sandbox.names();
    for (line, words) in [
        ("export . -o sites.xlsx", &["ends with .csv"][..]),
        ("export . -o sites", &["ends with .csv"]),
        ("export trace_0.json -o trace_0.json", &["ends with"]),
        ("export none/", &["none"]),
        ("export", &["<PROFILE|REPORT>"]),
    ] {
        has(&sandbox.refused(line), words);
    }
    has(
        &sandbox.refused("export . -o sites.parquet"),
        &["ends with .csv", "DuckDB", "sites.parquet"],
    );
    assert_eq!(sandbox.names(), before);
    std::fs::rename(sandbox.at("trace_0.json"), sandbox.at("t.csv")).unwrap();
    has(&sandbox.refused("export . -o t.csv"), &["would overwrite"]);
}

#[test]
fn reports_of_jobs_are_errors() {
    let sandbox = four_ranks();
    sandbox.fine("merge reports --format json -o job.json");
    has(
        &sandbox.refused("export job.json"),
        &["of several profiles"],
    );
    let said = sandbox.run("export job.json trace_1.json");
    // Files that are named must be readable.
    assert_eq!(said.code, 2);
    has(&said.err, &["unreadable, left out: ", "job.json"]);
    assert_eq!(lines(&said.out).len(), 3);
}

#[test]
fn options_without_effect_on_reports_cause_a_warning() {
    let sandbox = four_ranks();
    let said = sandbox.run("export reports --gpu h100");
    assert_eq!(said.code, 0);
    has(&said.err, &["4 reports taken as they are", "--gpu"]);
    lacks(
        &sandbox.run("export trace_1.json --gpu h100").err,
        &["taken as"],
    );
}

#[test]
fn reports_in_a_folder_are_merged() {
    let sandbox = four_ranks();
    let folder = sandbox.fine("merge reports --quiet");
    let profiles = sandbox.fine(". --quiet").replace("./trace_", "trace_");
    assert!(folder == profiles, "{folder}");
    has(
        &sandbox.run("merge reports").err,
        &["ignored 1 file that is no report"],
    );
    has(
        &sandbox.refused("merge reports -o reports/r1.json"),
        &["would overwrite the report"],
    );
    std::fs::create_dir(sandbox.at("empty")).unwrap();
    has(
        &sandbox.refused("merge empty"),
        &["expected reports in this folder", "--format json"],
    );
}

#[test]
fn every_column_is_documented() {
    let page =
        std::fs::read_to_string(format!("{}/docs/clusters.md", crate::cli_sandbox::ROOT)).unwrap();
    for column in COLUMNS {
        let row = format!(
            "| `{}` | {} | {} |",
            column.name,
            column.values.name(),
            column.doc
        );
        assert!(page.contains(&row), "docs/clusters.md lacks:\n{row}");
    }
    let help = Sandbox::bare().fine("export --help");
    for column in COLUMNS {
        has(&help, &[&format!("\n  {} ", column.name)]);
    }
}
