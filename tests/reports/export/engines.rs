//! The examples of docs/clusters.md, run exactly as printed there.

use assert_cmd::Command;

use super::four_ranks;
use crate::cli_sandbox::{ROOT, Sandbox, has};

/// The code block after `<!-- example: NAME -->`.
fn example(name: &str) -> String {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/clusters.md")).unwrap();
    let (_, after) = page
        .split_once(&format!("<!-- example: {name} -->\n```"))
        .unwrap_or_else(|| panic!("docs/clusters.md has no example {name}"));
    let (block, _) = after.split_once("\n```").unwrap();
    block.split_once('\n').unwrap().1.to_owned()
}

/// A program in the sandbox's folder, with pyprof-advise in its PATH.
fn program(sandbox: &Sandbox, name: &std::ffi::OsStr) -> Command {
    let advise = assert_cmd::cargo::cargo_bin("pyprof-advise");
    let mut path = vec![advise.parent().unwrap().to_owned()];
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    let mut command = Command::new(name);
    command
        .current_dir(sandbox.at(""))
        .env_remove("PYPROF_ADVISE_CONFIG")
        .env("PATH", std::env::join_paths(path).unwrap());
    command
}

fn python(sandbox: &Sandbox) -> Command {
    let python = std::env::var_os("PYPROF_ADVISE_PYTHON");
    program(sandbox, &python.unwrap_or_else(|| "python3".into()))
}

/// Whether Python has a module; without it, the test is reported as skipped.
fn has_module(sandbox: &Sandbox, module: &str) -> bool {
    let import = python(sandbox)
        .args(["-c", &format!("import {module}")])
        .output();
    let there = import.is_ok_and(|output| output.status.success());
    if !there {
        crate::shared::skip(&format!(
            "python3 (or PYPROF_ADVISE_PYTHON) cannot import {module}"
        ));
    }
    there
}

#[track_caller]
fn runs(sandbox: &Sandbox, script: &str) -> String {
    sandbox.write("script.py", script);
    let output = python(sandbox).arg("script.py").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{script}\n{}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Prints results without the column names, which DuckDB frames.
const RUN_SQL: &str = "import duckdb, sys\n\
    for row in duckdb.sql(open('query.sql').read()).fetchall(): print(*row, sep='|')\n";

#[test]
fn duckdb_query_finds_the_rank_that_computes_longer() {
    let sandbox = four_ranks();
    if !has_module(&sandbox, "duckdb") {
        return;
    }
    sandbox.fine("export reports -o sites.csv --quiet");
    sandbox.write("query.sql", &example("duckdb"));
    let rows = runs(&sandbox, RUN_SQL);
    // Rank 2 takes 4.8 ms in the product, the others 3.0 ms; waiting in collectives is not work.
    assert_eq!(
        rows.lines().collect::<Vec<_>>(),
        ["aten::mm|None|unknown|2|4.8|3.0|1.8"]
    );
    // The page has one line that converts the table to Parquet.
    let page = std::fs::read_to_string(format!("{ROOT}/docs/clusters.md")).unwrap();
    let convert = "COPY (FROM 'sites.csv') TO 'sites.parquet'";
    assert!(page.contains(convert));
    let types = format!(
        "import duckdb\nduckdb.sql(\"{convert}\")\n\
        for name, kind, *_ in duckdb.sql(\"DESCRIBE SELECT rank, time_ns FROM 'sites.parquet'\")\
        .fetchall(): print(name, kind)\n"
    );
    assert_eq!(runs(&sandbox, &types), "rank BIGINT\ntime_ns BIGINT\n");
}

/// The traces at the paths that the examples use, without the folder of reports.
fn traces() -> Sandbox {
    let sandbox = four_ranks();
    std::fs::create_dir(sandbox.at("traces")).unwrap();
    for rank in 0..4 {
        let name = format!("trace_{rank}.json");
        std::fs::rename(sandbox.at(&name), sandbox.at("traces").join(&name)).unwrap();
    }
    std::fs::remove_dir_all(sandbox.at("reports")).unwrap();
    sandbox
}

/// Checks that the reports of an example merge to the report of all profiles, except for paths.
fn merges_to_the_same(sandbox: &Sandbox) {
    let [mut merged, mut whole] =
        ["merge reports --quiet", "traces --quiet"].map(|line| sandbox.report(line));
    for report in [&mut merged, &mut whole] {
        report.as_object_mut().unwrap().remove("file");
    }
    assert!(merged == whole, "{merged:#}");
    assert_eq!(merged["job"]["straggler"], 2);
}

#[test]
#[cfg(unix)]
fn slurm_array_tasks_analyze_their_rank() {
    let sandbox = traces();
    for rank in 0..4 {
        let from = sandbox.at("traces").join(format!("trace_{rank}.json"));
        std::fs::rename(from, sandbox.at("traces").join(format!("rank{rank}.json"))).unwrap();
        sandbox.write("task.sh", &example("slurm").replace(".json.gz", ".json"));
        let mut task = program(&sandbox, "bash".as_ref());
        task.arg("task.sh")
            .env("SLURM_ARRAY_TASK_ID", rank.to_string())
            .assert()
            .success();
    }
    merges_to_the_same(&sandbox);
}

#[test]
#[ignore = "starts Ray, which takes its time: cargo test --test export -- --ignored"]
fn ray_analyzes_every_rank() {
    let sandbox = traces();
    if has_module(&sandbox, "ray") {
        runs(&sandbox, &example("ray"));
        merges_to_the_same(&sandbox);
    }
}

#[test]
#[ignore = "starts Spark, which takes its time: cargo test --test export -- --ignored"]
fn spark_analyzes_every_rank_and_reads_the_table() {
    let sandbox = traces();
    if !has_module(&sandbox, "pyspark") {
        return;
    }
    runs(&sandbox, &example("spark"));
    merges_to_the_same(&sandbox);
    sandbox.fine("export reports -o sites.csv --quiet");
    let shown = runs(&sandbox, &example("spark-query"));
    // The product of rank 2 comes first.
    let first = shown
        .lines()
        .find(|line| line.contains("aten::mm"))
        .unwrap();
    has(first, &["4.8", "3.0"]);
}
