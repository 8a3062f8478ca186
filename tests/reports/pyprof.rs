//! `parse` and `prof` compared with PyProf's output for the same profiles, and checks of their
//! consistency.
//!
//! Every difference from PyProf's output must be of one of the kinds that `docs/pyprof-differences.md`
//! lists, and every kind that is listed as occurring must occur.

use crate::{shared, synthetic};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pyprof_advise::correlate::{Run, correlate};
use pyprof_advise::cost::{VOCABULARY, ops};
use pyprof_advise::profile::KernelId;
use pyprof_advise::pyprof::rows::{self, KernelRow};
use pyprof_advise::pyprof::{self, LineFormat, Record, table};
use pyprof_advise::read;

const PAGE: &str = include_str!("../../docs/pyprof-differences.md");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn fixture() -> PathBuf {
    root().join("fixtures/net.sqlite")
}

fn reference(name: &str) -> Option<String> {
    let path = shared::path("reference")?.join(name);
    let mut text = String::new();
    let file = fs::File::open(&path).unwrap();
    if name.ends_with(".gz") {
        let mut unpacked = flate2::read::GzDecoder::new(file);
        unpacked.read_to_string(&mut text).unwrap();
    } else {
        BufReader::new(file).read_to_string(&mut text).unwrap();
    }
    Some(text)
}

fn run(path: &Path) -> Run {
    correlate(read::open(path, &read::NoProgress).unwrap(), &VOCABULARY)
}

fn records(path: &Path) -> Vec<Record> {
    pyprof::records(&run(path)).collect()
}

fn dict(records: &[Record]) -> String {
    records
        .iter()
        .map(|record| record.line(LineFormat::Python) + "\n")
        .collect()
}

/// Every cell of the rows.
fn cells(records: &[Record]) -> String {
    let columns = table::columns("all").unwrap();
    let mut out = Vec::new();
    let rows = rows::rows(records.to_vec());
    table::write(
        &mut out,
        &columns,
        &table::TableLayout::Csv { raw: false },
        &rows,
    )
    .unwrap();
    String::from_utf8(out).unwrap()
}

/// Runs the program with a text on standard input.
fn program(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn said(arguments: &[&str], input: &str) -> String {
    let output = program(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str], input: &str) -> String {
    let output = program(arguments, input);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

// ------------------------------------------------------------------------------ the example profile

#[test]
fn profile_and_its_dictionaries_give_the_same_rows() {
    let net = fixture();
    let net = net.to_str().unwrap();
    let columns = ["-c", "all", "--csv"];
    let straight = said(&[&["prof", net], &columns[..]].concat(), "");
    let python = said(&["parse", net], "");
    let json = said(&["parse", net, "--format", "jsonl"], "");
    assert!(straight.lines().count() > 100);
    assert_eq!(python.lines().count() + 1, straight.lines().count());
    for lines in [&python, &json] {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), lines).unwrap();
        let path = file.path().to_str().unwrap();
        let of_file = said(&[&["prof", path], &columns[..]].concat(), "");
        let of_stream = said(&[&["prof"], &columns[..]].concat(), lines);
        assert!(of_file == straight, "from the file");
        assert!(of_stream == straight, "from standard input");
    }
    for line in json.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line.as_object().unwrap().len(), 19);
    }
}

/// The program's output with this number of threads.
fn with_threads(threads: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .args(arguments)
        .env("RAYON_NUM_THREADS", threads)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}");
    output.stdout
}

/// Number of kernels for several batches of lines and a part of one.
const MANY: usize = 36_000;

/// A profile of `kernels` kernels: layers of numbered operators and their backward.
fn many(kernels: usize) -> synthetic::Built {
    let mut text = String::from("device 0 cc=7.0 = Tesla V100-SXM2-16GB\n");
    for number in 0..kernels / 2 {
        let layer = number % 7;
        text.push_str(&format!(
            "range layer:{layer}\n  range aten::mm, seq = {number}, op_id = {number}, sizes = [[{layer}, 8], [8, 4]]\n    kernel volta_sgemm_64x32_nn 4 9us\n\
             range MmBackward0, seq = {number}, op_id = {}\n  kernel volta_sgemm_32x32_nt {layer} 7us\n",
            number + 1
        ));
    }
    synthetic::build(&text)
}

#[test]
fn output_does_not_depend_on_threads() {
    let many = many(MANY);
    let profile = many.path();
    let profile = profile.to_str().unwrap();
    let lines = with_threads("1", &["parse", profile]);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &lines).unwrap();
    let dictionaries = file.path().to_str().unwrap();
    assert_eq!(lines.iter().filter(|b| **b == b'\n').count(), MANY);
    for arguments in [
        &["parse", profile][..],
        &["parse", profile, "--format", "jsonl"],
        &["prof", profile, "-c", "all", "--csv"],
        &["prof", profile, "-w", "130"],
        &["prof", dictionaries, "-c", "all", "--csv"],
    ] {
        let alone = with_threads("1", arguments);
        assert!(with_threads("16", arguments) == alone, "{arguments:?}");
    }
    let rows = ["-c", "all", "--csv"];
    let straight = with_threads("2", &[&["prof", profile], &rows[..]].concat());
    assert!(with_threads("2", &[&["prof", dictionaries], &rows[..]].concat()) == straight);
}

/// A closed pipe ends the program soon and without a message.
#[test]
fn closed_pipe_is_not_an_error() {
    let many = many(MANY);
    let profile = many.path();
    for command in ["parse", "prof"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .args([command, profile.to_str().unwrap()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{command}: {errors}"
        );
    }
}

#[test]
fn default_columns_are_eight_separated_by_spaces() {
    let text = said(&["prof", "fixtures/net.sqlite"], "");
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("Idx Direction Sub Module Op Kernel Params Sil(ns)")
    );
    for line in lines {
        assert_eq!(line.split(' ').count(), 8, "{line}");
    }
}

#[test]
fn columns_and_width_can_be_chosen() {
    let net = "fixtures/net.sqlite";
    let text = said(&["prof", net, "-c", "sil,idx", "--csv"], "");
    assert!(text.starts_with("\"Sil(ns)\",\"Idx\"\n\""), "{text:.60}");
    let text = said(&["prof", net, "-w", "130"], "");
    let widths: BTreeSet<usize> = text.lines().map(|l| l.chars().count()).collect();
    assert_eq!(widths.len(), 1, "{widths:?}");
    assert!(text.lines().count() > 100);
    let error = refused(&["prof", net, "-c", "idx,krnel"], "");
    assert!(error.contains("did you mean `kernel`?"), "{error}");
    let error = refused(&["prof", net, "-w", "40"], "");
    assert!(error.contains("-w 40 is too narrow"), "{error}");
    refused(&["prof", net, "-w", "400", "--csv"], "");
}

#[test]
fn invalid_input_is_reported_with_its_line() {
    let line = records(&fixture())[0].line(LineFormat::Python);
    let error = refused(&["prof"], &format!("{line}\nprint(1)\n"));
    assert!(error.contains("standard input:2: "), "{error}");
    let error = refused(&["prof", "README.md"], "");
    assert!(error.contains("README.md"), "{error}");
    let error = refused(&["parse", "no-such.sqlite"], "");
    assert!(error.contains("no such file"), "{error}");
    // Text in a line is never executed.
    let error = refused(&["prof"], "__import__('os').system('echo evaluated')\n");
    assert!(
        error.contains("standard input:1: a name, not a literal"),
        "{error}"
    );
}

/// The records of a described profile.
fn described(description: &str) -> Vec<Record> {
    let records = records(&synthetic::build(description).path());
    let lines = dict(&records);
    let again = pyprof::read("net.dict", lines.as_bytes()).unwrap();
    assert_eq!(dict(&again), lines);
    records
}

#[test]
fn kernels_without_a_known_launch_keep_known_values() {
    let records = described(
        "\
device 0 cc=7.0 = Tesla V100-SXM2-16GB
range layer:enc
  range layer:att
    op torch.mm f32[64,32] f32[32,8] @ net.py:3
      kernel volta_sgemm_64x32_nn 4 9us
kernel alone 1 5us launch=none
range aten::mm
  graph 20us
    kernel replayed 1 6us
",
    );
    let rows = rows::rows(records);
    let of = |name: &str| {
        let mut named = rows.iter().filter(|row| row.record.name.short == name);
        named.next().unwrap()
    };
    let product = of("volta_sgemm_64x32_nn");
    assert_eq!(product.context().layer.join(":"), "enc:att");
    assert_eq!(product.params(), "M=8,N=64,K=32,fp32,");
    assert_eq!(product.flops(), Some(2 * 64 * 32 * 8));
    for name in ["alone", "replayed"] {
        let row = of(name);
        assert_eq!(row.record.context.dir.name(), "na", "{name}");
        assert_eq!((row.op(), row.flops()), ("na", None), "{name}");
    }
    assert_eq!(of("alone").record.tid, None);
}

#[test]
fn equal_neighboring_kernels_are_separate_calls() {
    let records = described(
        "\
device 0 cc=7.0 = Tesla V100-SXM2-16GB
repeat i 1 2 3
  op Tensor.mul_ f32[1000] f32[1000]
    kernel elementwise_kernel 4 9us
op torch.mm f32[64,32] f32[32,8]
  kernel volta_sgemm_64x32_nn 4 9us
  kernel splitKreduce_kernel 4 3us
",
    );
    let rows = rows::rows(records);
    let flops = |name: &str| -> Vec<Option<u64>> {
        let own = rows.iter().filter(|row| row.record.name.short == name);
        own.map(KernelRow::flops).collect()
    };
    assert_eq!(flops("elementwise_kernel"), [Some(1000); 3]);
    assert_eq!(flops("volta_sgemm_64x32_nn"), [Some(2 * 64 * 32 * 8)]);
    assert_eq!(flops("splitKreduce_kernel"), [Some(0)]);
}

#[test]
fn the_kernels_of_one_call_of_a_trace_share_its_cost() {
    // PyTorch splits a copy of more than 2^31 bytes into equal kernels.
    let mut events = Vec::new();
    for call in 0..2 {
        let ts = 100 * call;
        events.push(
            serde_json::json!({"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "pid": 1,
            "tid": 1, "ts": ts, "dur": 90, "args": {"Input Dims": [[4000], [4000], []],
            "Input type": ["float", "c10::Half", "Scalar"]}}),
        );
        for piece in 0..4 {
            let (at, id) = (ts + 10 * piece, 4 * call + piece + 1);
            events.push(
                serde_json::json!({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel",
                "pid": 1, "tid": 1, "ts": at + 1, "dur": 1, "args": {"correlation": id}}),
            );
            events.push(
                serde_json::json!({"ph": "X", "cat": "kernel", "name": "elementwise_kernel",
                "pid": 0, "tid": 7, "ts": 1000 + at, "dur": 5, "args": {"device": 0, "stream": 7,
                "correlation": id, "grid": [8, 1, 1], "block": [128, 1, 1]}}),
            );
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("net.pt.trace.json");
    fs::write(
        &path,
        serde_json::json!({ "traceEvents": events }).to_string(),
    )
    .unwrap();
    let records = records(&path);
    let again = pyprof::read("net.dict", dict(&records).as_bytes()).unwrap();
    assert_eq!(dict(&again), dict(&records));
    for records in [records, again] {
        let rows = rows::rows(records);
        let bytes: Vec<u64> = rows.iter().map(|row| row.bytes().unwrap()).collect();
        // Each call reads 2 and writes 4 bytes per element.
        assert_eq!(bytes, [6000; 8]);
    }
}

/// Per operator call of the run: the cost in the cost table, and the sum over the rows of its kernels,
/// if both are known. A backward call with fewer kernels than gradients in the profile counts only the
/// gradients with kernels.
fn calls_and_rows(path: &Path) -> (usize, Vec<String>) {
    let run = run(path);
    let rows = rows::rows(pyprof::records(&run));
    let mut sums: BTreeMap<usize, (u64, Vec<KernelId>)> = BTreeMap::new();
    for (at, (link, row)) in run.links.iter().zip(rows.iter()).enumerate() {
        if let (Some(op), Some(flops)) = (link.op, row.flops()) {
            let sum = sums.entry(op.idx()).or_default();
            sum.0 += flops;
            sum.1.push(KernelId::new(at));
        }
    }
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (at, (sum, kernels)) in sums {
        let call = &run.op_calls[at];
        let Some(args) = call.args.map(|a| &run.args[a.idx()]) else {
            continue;
        };
        let op = run.op_name(call).unwrap();
        let cost = ops::cost(op, args, call.direction, call.args_from_forward, None);
        let Ok(cost) = cost else { continue };
        compared += 1;
        let roles: Vec<u64> = cost.roles.iter().map(|r| r.flops).collect();
        let some = (0_u32..1 << roles.len()).any(|set| {
            let chosen = (0..).zip(&roles).filter(|(bit, _)| set >> bit & 1 == 1);
            chosen.map(|(_, flops)| flops).sum::<u64>() == sum && (set > 0 || sum == 0)
        });
        if !some {
            let op = op.display();
            wrong.push(format!(
                "{op}: {sum} of {roles:?} in {} kernels",
                kernels.len()
            ));
        }
    }
    (compared, wrong)
}

#[test]
fn rows_of_a_call_add_up_to_its_cost() {
    let (compared, wrong) = calls_and_rows(&fixture());
    assert!(compared > 100, "{compared}");
    assert!(wrong.is_empty(), "of {compared}:\n{}", wrong.join("\n"));
}

#[test]
fn rows_of_real_calls_add_up_to_their_cost() {
    for name in ["lm_net.sql", "mmagic.sqlite"] {
        let Some(path) = shared::profile(name) else {
            return;
        };
        let (compared, wrong) = calls_and_rows(&path);
        assert!(compared > 70, "{name}: {compared}");
        assert!(
            wrong.is_empty(),
            "{name}, of {compared}:\n{}",
            wrong.join("\n")
        );
    }
}

#[test]
fn dictionaries_of_real_profiles_give_equal_rows() {
    for name in [
        "lm_net.sql",
        "mmagic.sqlite",
        "h100_2gpu_1s.sqlite",
        "mfu_2gpu_before.sqlite",
        "blink_nccl_8v100.nvvp",
        "cs336zx_2_7B_nvtx.sqlite",
    ] {
        let Some(path) = shared::profile(name) else {
            return;
        };
        let records = records(&path);
        let again = pyprof::read(name, dict(&records).as_bytes()).unwrap();
        assert!(dict(&again) == dict(&records), "{name}");
        assert!(cells(&again) == cells(&records), "{name}");
    }
}

// ------------------------------------------------------------------------------------ dictionaries

/// A dictionary's keys, in order, each with the start of its value: `[`, a quote, or any text.
const KEYS: [&str; 19] = [
    "{'kShortName': ",
    ", 'kDuration': ",
    ", 'layer': [",
    ", 'trace': [",
    ", 'reprMarkers': [",
    ", 'marker': [",
    ", 'seqMarker': [",
    ", 'seqId': [",
    ", 'subSeqId': ",
    ", 'altSeqId': [",
    ", 'dir': '",
    ", 'mod': [",
    ", 'op': [",
    ", 'tid': ",
    ", 'device': ",
    ", 'stream': ",
    ", 'grid': (",
    ", 'block': (",
    ", 'kLongName': ",
];

/// The values of a line as text, by key.
fn fields(line: &str) -> Vec<(&'static str, &str)> {
    let mut starts = Vec::new();
    let mut from = 0;
    for key in KEYS {
        let at = from
            + line[from..]
                .find(key)
                .unwrap_or_else(|| panic!("{key}: {line}"));
        starts.push(at);
        from = at + key.len();
    }
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    KEYS.into_iter()
        .zip(starts.iter().zip(ends))
        .map(|(key, (start, end))| (key, &line[start + key.len()..end]))
        .map(|(key, value)| (key.split('\'').nth(1).unwrap(), value))
        .collect()
}

/// The distinct strings of a list whose strings have the same kind of quotes.
fn once(list: &str) -> Vec<&str> {
    let list = list.trim_end_matches(']');
    let quote = &list[..1];
    let mut seen = BTreeSet::new();
    let inside = list.trim_matches(|c| quote.contains(c));
    inside
        .split(&format!("{quote}, {quote}"))
        .filter(|item| seen.insert(item.to_owned()))
        .collect()
}

/// Whether PyProf truncated a name: empty, another function's, or a CUTLASS kernel without its name.
fn is_cut(short: &str) -> bool {
    matches!(short, "" | "std::enable_if")
        || (short.starts_with("cutlass") && short.ends_with("Kernel"))
}

fn dict_kind(key: &str, ours: &str, theirs: &str) -> Option<&'static str> {
    let without_types = |name: &str| name.replace("void ", "");
    match key {
        "kLongName" if without_types(ours) == without_types(theirs) => Some("long-name"),
        "kShortName" if is_cut(theirs.trim_matches('\'')) && ours.len() > theirs.len() => {
            Some("short-name")
        }
        "marker" if once(ours) == once(theirs) && ours.len() < theirs.len() => {
            Some("repeated-markers")
        }
        // They are listed per marker.
        "mod" | "op" if ours.len() < theirs.len() => Some("repeated-markers"),
        _ => None,
    }
}

/// The kinds of difference between our dictionaries and PyProf's.
fn dictionaries(name: &str, theirs: &str) -> Option<BTreeSet<&'static str>> {
    let ours = dict(&records(&shared::profile(name)?));
    let theirs = reference(theirs)?;
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let mut kinds = BTreeSet::new();
    for (number, (ours, theirs)) in (1..).zip(ours.lines().zip(theirs.lines())) {
        if ours == theirs {
            continue;
        }
        let (ours, theirs) = (fields(ours), fields(theirs));
        for ((key, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
            if ours != theirs {
                let kind = dict_kind(key, ours, theirs);
                kinds.insert(kind.unwrap_or_else(|| {
                    panic!("{name}:{number}: {key}\nours   {ours}\ntheirs {theirs}")
                }));
            }
        }
    }
    Some(kinds)
}

#[test]
fn dictionaries_of_lm_net_equal_pyprofs() {
    let Some(kinds) = dictionaries("lm_net.sql", "lm_net.pyprof.dict") else {
        return;
    };
    assert_eq!(Vec::from_iter(kinds), ["long-name"]);
}

#[test]
fn dictionaries_of_mmagic_equal_pyprofs_with_distinct_markers() {
    let Some(kinds) = dictionaries("mmagic.sqlite", "mmagic.pyprof.dict.gz") else {
        return;
    };
    assert_eq!(Vec::from_iter(kinds), ["repeated-markers", "short-name"]);
}

// --------------------------------------------------------------------------------------------- rows

type Row = BTreeMap<String, String>;

/// Parses CSV as PyProf and `prof --csv` write it: a line per row, every cell quoted.
fn table(csv: &str) -> Vec<Row> {
    let cells = |line: &str| -> Vec<String> {
        let inside = line.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        inside
            .split("\",\"")
            .map(|cell| cell.replace("\"\"", "\""))
            .collect()
    };
    let mut lines = csv.lines();
    let headers = cells(lines.next().unwrap());
    lines
        .map(|line| headers.iter().cloned().zip(cells(line)).collect())
        .collect()
}

/// A cell that differs from PyProf's.
struct Difference<'a> {
    column: &'a str,
    ours: &'a Row,
    theirs: &'a Row,
}

impl Difference<'_> {
    fn mine(&self) -> &str {
        &self.ours[self.column]
    }

    fn pyprofs(&self) -> &str {
        &self.theirs[self.column]
    }

    fn is(&self, column: &str, op: &str) -> bool {
        self.column == column && self.theirs["Op"] == op
    }

    fn is_cost(&self) -> bool {
        matches!(self.column, "FLOPs" | "Bytes")
    }

    fn number(text: &str) -> Option<u64> {
        text.parse().ok()
    }

    /// Whether our number is PyProf's times a ratio.
    fn ratio(&self, of: u64, to: u64) -> bool {
        let number = |text| Self::number(text);
        number(self.mine())
            .zip(number(self.pyprofs()))
            .is_some_and(|(a, b)| a * to == b * of)
    }

    fn more_by(&self, ours: u64, theirs: u64) -> bool {
        let number = |text| Self::number(text);
        number(self.mine())
            .zip(number(self.pyprofs()))
            .is_some_and(|(a, b)| a + theirs == b + ours)
    }

    fn no_cost(&self) -> bool {
        self.theirs["FLOPs"] == "0" && self.theirs["Bytes"] == "0"
    }

    fn backward(&self) -> bool {
        self.theirs["Direction"] == "bprop"
    }

    /// Whether the cell has PyProf's wrong bytes: for `M=200,N=(35,20),K=200,fp32,`, PyProf multiplies
    /// only the last of three terms with 4 bytes.
    fn linear_bytes(&self) -> bool {
        let dim = |name: &str| -> u64 {
            let params = &self.theirs["Params"];
            let value = params.split(&format!("{name}=")).nth(1).unwrap();
            let value = match value.strip_prefix('(') {
                Some(tuple) => tuple.split(')').next().unwrap(),
                None => value.split(',').next().unwrap(),
            };
            value
                .split(',')
                .map(|d| d.parse::<u64>().unwrap())
                .product()
        };
        let (m, n, k) = (dim("M"), dim("N"), dim("K"));
        Self::number(self.mine()) == Some(4 * (m * n + m * k + n * k))
    }
}

/// A kind of difference: its id in the page, and the function that recognizes it.
type Kind = (&'static str, fn(&Difference<'_>) -> bool);

const KINDS: &[Kind] = &[
    ("no-launch-record", |d| d.column == "Idx"),
    ("short-name", |d| {
        d.column == "Kernel" && is_cut(d.pyprofs())
    }),
    ("operator-id", |d| {
        d.column == "Op" && d.pyprofs().contains(", op_id = ") && !d.mine().contains(", op_id")
    }),
    ("innermost-operator", |d| {
        let other = d.ours["Module"] != d.theirs["Module"] || d.ours["Op"] != d.theirs["Op"];
        matches!(d.column, "Module" | "Op" | "Params") && other && d.theirs["Module"] != "na"
    }),
    ("aborted", |d| {
        d.theirs["FLOPs"] == "ERROR" && matches!(d.column, "Params" | "TC" | "FLOPs" | "Bytes")
    }),
    ("unknown", |d| {
        let na = d.column == "TC" && d.pyprofs() == "na" && d.mine() == "-";
        na || (d.is_cost() && d.ours["FLOPs"] == "-" && d.pyprofs() == "0" && d.mine() == "-")
    }),
    ("tensor-core", |d| {
        d.column == "TC" && matches!(d.pyprofs(), "-" | "na") && matches!(d.mine(), "0" | "1")
    }),
    ("helpers", |d| {
        d.column == "Bytes" && d.ours["FLOPs"] == "0" && d.mine() == "-" && d.pyprofs() == "0"
    }),
    ("later-kernels", |d| {
        d.is_cost() && d.theirs["Op"] == "norm" && d.theirs["Sub"] != "0" && d.no_cost()
    }),
    ("embedding-gradient", |d| {
        d.is_cost() && d.theirs["Op"] == "embedding" && d.backward()
    }),
    ("no-formula", |d| {
        let others = ["norm", "embedding"].contains(&d.theirs["Op"].as_str());
        d.is_cost() && d.no_cost() && !others && d.mine() != "-"
    }),
    ("linear-bytes", |d| {
        d.is("Bytes", "linear") && d.linear_bytes()
    }),
    ("bias", |d| {
        d.is("Bytes", "bias") && Difference::number(d.mine()) > Difference::number(d.pyprofs())
    }),
    ("scalar", |d| {
        d.column == "Bytes"
            && !d.backward()
            && d.theirs["Params"].contains(";[]")
            && d.more_by(0, 4)
    }),
    ("scalar-gradient", |d| {
        d.column == "Bytes" && d.backward() && d.theirs["Params"].contains(";[]") && d.ratio(2, 3)
    }),
    ("softmax", |d| {
        let ratio = match (d.column, d.backward()) {
            ("FLOPs", false) => (5, 21),
            ("FLOPs", true) => (4, 21),
            (_, false) => (2, 3),
            (_, true) => (3, 5),
        };
        d.is_cost() && d.theirs["Op"] == "log_softmax" && d.ratio(ratio.0, ratio.1)
    }),
    ("dropout", |d| {
        d.theirs["Op"] == "dropout"
            && ((d.column == "FLOPs" && d.ratio(2, 5)) || (d.column == "Bytes" && d.ratio(9, 8)))
    }),
    ("norm", |d| {
        let first = d.theirs["Sub"] == "0";
        (d.is("FLOPs", "norm") && first && d.more_by(0, 1))
            || (d.is("Bytes", "norm") && first && d.more_by(4, 0))
    }),
];

/// The kinds of difference between our rows and PyProf's, with the number of cells.
fn compare(name: &str, csv: &str) -> Option<BTreeMap<&'static str, usize>> {
    let path = shared::profile(name)?;
    let ours = said(&["prof", path.to_str().unwrap(), "-c", "all", "--csv"], "");
    let theirs = table(&reference(csv)?);
    // PyProf omits kernels without launch record.
    let kept = |row: &Row| row["Direction"] != "na";
    let ours: Vec<Row> = table(&ours).into_iter().filter(kept).collect();
    assert_eq!(ours.len(), theirs.len(), "{name}");
    let mut met = BTreeMap::new();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert!(ours.keys().eq(theirs.keys()));
        for column in theirs.keys().filter(|c| ours[*c] != theirs[*c]) {
            let difference = Difference {
                column,
                ours,
                theirs,
            };
            let kinds: Vec<&str> = KINDS
                .iter()
                .filter(|(_, explains)| explains(&difference))
                .map(|(id, _)| *id)
                .collect();
            let [kind] = kinds[..] else {
                panic!(
                    "{name}, row {}: {column} is of the kinds {kinds:?}\nours   {ours:?}\ntheirs {theirs:?}",
                    theirs["Idx"]
                );
            };
            *met.entry(kind).or_default() += 1;
        }
    }
    Some(met)
}

#[test]
fn rows_of_lm_net_equal_pyprofs_where_pyprof_is_correct() {
    let Some(met) = compare("lm_net.sql", "lm_net.pyprof.csv") else {
        return;
    };
    for kind in ["no-launch-record", "short-name", "operator-id"] {
        assert!(!met.contains_key(kind), "{kind}");
    }
    assert!(met["innermost-operator"] > 100);
}

/// The kinds of the page, and those that it lists as not occurring in the reference files.
fn listed() -> (BTreeSet<&'static str>, BTreeSet<&'static str>) {
    let mut met = BTreeSet::new();
    let mut unmet = BTreeSet::new();
    for section in PAGE.split("\n## ") {
        let ids = section.lines().filter_map(|line| {
            let id = line.strip_prefix("| `")?.split('`').next()?;
            Some(id)
        });
        let list = if section.starts_with("Not found") {
            &mut unmet
        } else {
            &mut met
        };
        for id in ids {
            assert!(list.insert(id), "{id} is listed twice");
        }
    }
    assert!(met.is_disjoint(&unmet));
    (met, unmet)
}

#[test]
fn page_lists_the_kinds_of_this_test() {
    let (met, unmet) = listed();
    let known: BTreeSet<&str> = (KINDS.iter().map(|(id, _)| *id))
        .chain(["long-name", "repeated-markers"])
        .collect();
    assert_eq!(met, known);
    assert!(unmet.len() > 10);
}

#[test]
fn every_kind_of_the_page_occurs() {
    let mut met = BTreeSet::new();
    for (name, csv) in [
        ("lm_net.sql", "lm_net.pyprof.csv"),
        ("mmagic.sqlite", "mmagic.pyprof.csv"),
        ("h100_2gpu_1s.sqlite", "h100_2gpu_1s.pyprof.csv"),
    ] {
        let Some(kinds) = compare(name, csv) else {
            return;
        };
        met.extend(kinds.into_keys());
    }
    for (name, file) in [
        ("lm_net.sql", "lm_net.pyprof.dict"),
        ("mmagic.sqlite", "mmagic.pyprof.dict.gz"),
    ] {
        met.extend(dictionaries(name, file).unwrap_or_default());
    }
    assert_eq!(met, listed().0);
}

#[test]
fn dictionaries_written_by_pyprof_give_equal_rows() {
    for (name, file) in [
        ("lm_net.sql", "lm_net.pyprof.dict"),
        ("mmagic.sqlite", "mmagic.pyprof.dict.gz"),
    ] {
        let (Some(path), Some(theirs)) = (shared::profile(name), reference(file)) else {
            return;
        };
        let theirs = pyprof::read(file, theirs.as_bytes()).unwrap();
        assert!(cells(&theirs) == cells(&records(&path)), "{name}");
    }
}
