//! FLOPs, bytes, calls and times of three H100 traces compared with the counts of TraceLens, by
//! operator and shape. Traces and tables are below the folder named by `PYPROF_ADVISE_SHARED`.

use crate::shared;
use crate::support::csv;
use std::collections::{HashMap, HashSet};

use pyprof_advise::correlate::{ArgValue, OpCallId, Run, correlate};
use pyprof_advise::cost::{Costed, OpCost, VOCABULARY, estimate_costs};
use pyprof_advise::read::{self, NoProgress};
use serde_json::Value;

const NETS: [&str; 3] = ["bertsmall", "qwen", "vit"];

/// The trace of a net, and TraceLens' table of it.
fn real(net: &str) -> Option<(Run, Vec<Vec<String>>)> {
    let traces = shared::path("profiles")?;
    let tables = shared::path("reference")?;
    let path = traces.join(format!("tl_h100_{net}.json.gz"));
    let profile = read::open(&path, &NoProgress).unwrap_or_else(|e| panic!("{e}"));
    let run = correlate(profile, &VOCABULARY);
    let table = tables.join(format!("tl_h100_{net}.tracelens.csv"));
    Some((run, csv::rows(&std::fs::read_to_string(table).unwrap())))
}

// ------------------------------------------------------------------------------- FLOPs and bytes

/// A row of TraceLens' table.
#[derive(Debug)]
struct Theirs {
    calls: usize,
    flops: f64,
    bytes: f64,
}

/// Operator, shapes and types in a form common to both.
type Key = (String, String, String);

/// `((512,), (), ((4, 1),))` as `[[512],[],[[4,1]]]`.
fn shapes(text: &str) -> String {
    let list = text.replace(",)", ")").replace('(', "[").replace(')', "]");
    list.replace(' ', "")
}

fn theirs(rows: &[Vec<String>]) -> HashMap<Key, Vec<Theirs>> {
    let column = |name: &str| rows[0].iter().position(|c| c.starts_with(name)).unwrap();
    let number = |row: &[String], at: usize| row[at].parse::<f64>().unwrap();
    let mut found: HashMap<Key, Vec<Theirs>> = HashMap::new();
    for row in rows[1..].iter().filter(|r| r[column("has_perf")] == "True") {
        let types = row[column("Input type")].replace('\'', "\"");
        let key = (
            row[0].clone(),
            shapes(&row[column("Input Dims")]),
            shapes(&types),
        );
        found.entry(key).or_default().push(Theirs {
            calls: row[column("operation_count")].parse().unwrap(),
            flops: number(row, column("GFLOPS")) * 1e9,
            // Their MB are of 2^20 bytes.
            bytes: number(row, column("Data Moved")) * 1024.0 * 1024.0,
        });
    }
    found
}

/// The keys of all ranges around a kernel: TraceLens uses the operator that was called, we use the one
/// that launched.
fn keys_around(run: &Run, kernel: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut scope = run.links[kernel].scope;
    while let Some(id) = scope {
        let node = run.scopes[id.idx()];
        let range = run.profile.ranges[node.range.idx()];
        if let Some(args) = range.args {
            let args: Value = serde_json::from_str(run.profile.text(args)).unwrap();
            let part = |name: &str| args[name].to_string().replace(' ', "");
            let name = run.profile.text(range.text).to_owned();
            keys.push((name, part("Input Dims"), part("Input type")));
        }
        scope = node.parent;
    }
    keys
}

/// A known reason why the figures of TraceLens differ from ours.
struct Kind {
    why: &'static str,
    ops: &'static [&'static str],
    /// Their FLOPs and bytes, from our cost and the sizes of the operands and result.
    theirs: fn(&Sizes) -> (f64, f64),
}

/// The inputs of the explanations.
struct Sizes {
    flops: f64,
    bytes: f64,
    /// Shapes of the operands, in order.
    shapes: Vec<Vec<u64>>,
    /// Bytes of an element of the first operand.
    element: f64,
}

impl Sizes {
    fn elements(&self, operand: usize) -> f64 {
        self.shapes[operand].iter().product::<u64>() as f64
    }

    fn last(&self, operand: usize) -> f64 {
        *self.shapes[operand].last().unwrap() as f64
    }
}

const KINDS: &[Kind] = &[
    Kind {
        why: "they count the bias as one FLOP per element of the result",
        ops: &["aten::addmm"],
        theirs: |s| (s.flops + s.shapes[1][0] as f64 * s.last(2), s.bytes),
    },
    Kind {
        why: "they count a FLOP for every element that is copied",
        ops: &["aten::copy_"],
        theirs: |s| (s.elements(0), s.bytes),
    },
    Kind {
        why: "they charge a layer norm six vectors of its width, as a batch norm that trains has, \
              for weight, bias and statistics",
        ops: &["aten::layer_norm"],
        theirs: |s| {
            let width = 6.0 * s.last(0);
            let tensors = 2.0 * s.elements(0);
            (s.flops + width, (tensors + width) * s.element)
        },
    },
    Kind {
        why: "they leave out the log-sum-exp that the backward pass needs",
        ops: &["aten::_scaled_dot_product_flash_attention"],
        theirs: |s| (s.flops, s.bytes - s.elements(0) / s.last(0) * 4.0),
    },
    Kind {
        why: "they leave out the log-sum-exp, and halve the FLOPs of a causal mask; ours are of the full \
              square, and the ideal time is of what the mask leaves",
        ops: &["aten::_scaled_dot_product_flash_attention"],
        theirs: |s| (s.flops / 2.0, s.bytes - s.elements(0) / s.last(0) * 4.0),
    },
    Kind {
        why: "they take the result of every reduction for one element",
        ops: &["aten::mean"],
        theirs: |s| (s.flops, (s.elements(0) + 1.0) * s.element),
    },
];

fn same(ours: f64, theirs: f64) -> bool {
    // TraceLens prints up to 17 digits of a division by 10^9 or 2^20.
    (ours - theirs).abs() <= 0.5 + 1e-9 * theirs.abs()
}

fn sizes(costed: &Costed, call: OpCallId, cost: &OpCost, key: &Key) -> Sizes {
    let dims: Vec<Value> = serde_json::from_str(&key.1).unwrap();
    let shapes = dims
        .iter()
        .map(|d| serde_json::from_value(d.clone()).unwrap_or_default());
    let args = costed.run.op_calls[call.idx()].args.unwrap();
    let first = costed.run.args[args.idx()].tensors().next().unwrap();
    Sizes {
        flops: cost.flops() as f64,
        bytes: cost.bytes() as f64,
        shapes: shapes.collect(),
        element: first.dtype.unwrap().bytes() as f64,
    }
}

#[test]
fn flops_and_bytes_equal_tracelens_or_differ_for_a_known_reason() {
    let mut used = HashSet::new();
    for net in NETS {
        let Some((run, rows)) = real(net) else { return };
        let theirs = theirs(&rows);
        let costed = estimate_costs(run, None);
        let run = &costed.run;
        let mut calls: HashMap<&Key, HashSet<usize>> = HashMap::new();
        for (kernel, link) in run.links.iter().enumerate() {
            let (Some(op), Some(site)) = (link.op, link.site) else {
                continue;
            };
            let keys = keys_around(run, kernel);
            let Some((key, rows)) = keys.iter().find_map(|k| theirs.get_key_value(k)) else {
                continue;
            };
            // PyTorch adds the bias in a separate operator; TraceLens omits it from the convolution.
            let inner = run.op_name(&run.op_calls[op.idx()]).unwrap().display();
            if (key.0.as_str(), inner.as_str()) == ("aten::convolution", "aten::add_") {
                continue;
            }
            if !calls.entry(key).or_default().insert(op.idx()) {
                continue;
            }
            let cost = costed.sites[site.idx()].cost.as_ref();
            let cost = cost.unwrap_or_else(|e| panic!("{net} {key:?}: {}", e.describe()));
            let ours = sizes(&costed, op, cost, key);
            let agree = |flops, bytes| {
                rows.iter()
                    .any(|r| same(flops, r.flops) && same(bytes, r.bytes))
            };
            if agree(ours.flops, ours.bytes) {
                continue;
            }
            let kind = KINDS.iter().find(|kind| {
                kind.ops.contains(&key.0.as_str()) && {
                    let (flops, bytes) = (kind.theirs)(&ours);
                    agree(flops, bytes)
                }
            });
            let kind = kind.unwrap_or_else(|| {
                panic!(
                    "{net} {key:?}: {} FLOPs, {} bytes here; there {rows:?}",
                    ours.flops, ours.bytes
                )
            });
            used.insert(kind.why);
        }
        for (key, rows) in &theirs {
            let expected: usize = rows.iter().map(|r| r.calls).sum();
            let found = calls.get(key).map_or(0, HashSet::len);
            assert_eq!(found, expected, "{net}: calls of {key:?}");
        }
    }
    for kind in KINDS {
        assert!(used.contains(kind.why), "explains nothing: {}", kind.why);
    }
}

// ------------------------------------------------------------------------------- calls and times

/// Calls and kernel time of every matrix product by shape, compared with TraceLens.
#[test]
fn calls_and_times_of_products_equal_tracelens() {
    for net in NETS {
        let Some((run, rows)) = real(net) else { return };
        let mut own: HashMap<(String, String), (HashSet<usize>, f64)> = HashMap::new();
        for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
            let Some(op) = link.op else { continue };
            let call = &run.op_calls[op.idx()];
            let Some(args) = call.args else { continue };
            let items = &run.args[args.idx()].items;
            let shapes: Vec<&Vec<u64>> = items
                .iter()
                .filter_map(|a| match &a.value {
                    ArgValue::Tensor(t) => Some(&t.shape),
                    _ => None,
                })
                .collect();
            let entry = own
                .entry((run.op_name(call).unwrap().display(), format!("{shapes:?}")))
                .or_default();
            entry.0.insert(op.idx());
            entry.1 += kernel.span.ns() as f64 / 1000.0;
        }
        let column = |name: &str| rows[0].iter().position(|c| c.starts_with(name)).unwrap();
        let (dims, count, time) = (
            column("Input Dims"),
            column("operation_count"),
            column("Kernel"),
        );
        let mut compared = 0;
        for row in &rows[1..] {
            if !matches!(row[0].as_str(), "aten::addmm" | "aten::mm" | "aten::bmm") {
                continue;
            }
            let list = row[dims]
                .replace(",)", ")")
                .replace('(', "[")
                .replace(')', "]");
            let list: Vec<Vec<u64>> = serde_json::from_str(&list).unwrap();
            let list: Vec<_> = list.into_iter().filter(|d| !d.is_empty()).collect();
            let (calls, us) = &own[&(row[0].clone(), format!("{list:?}"))];
            assert_eq!(calls.len().to_string(), row[count], "{net} {row:?}");
            let theirs: f64 = row[time].parse().unwrap();
            // TraceLens counts the memset before some products as a kernel of theirs.
            let memsets = 1.2 * calls.len() as f64;
            assert!(
                *us < theirs + 0.05 && theirs - us < memsets,
                "{net} {row:?}: {us}"
            );
            compared += 1;
        }
        assert!(compared >= 2, "{net}");
    }
}
