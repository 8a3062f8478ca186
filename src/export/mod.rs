//! Floor 7: the work of several ranks as one table, for engines that ask questions of their own:
//! DuckDB, Spark, polars, a spreadsheet.
//!
//! One row per rank and site. Nothing is added up over ranks: whoever asks decides what to compare.
//! Reports, not profiles, go in, so the table can be made where the profiles no longer are.

use crate::compare;
use crate::report::{Rank, Report, SiteRow};

mod csv;

pub use csv::csv;

/// The sites of several reports, those of rank 0 first; in each, most time first.
#[derive(Debug)]
pub struct Table {
    reports: Vec<Report>,
    /// What is odd about the reports taken together, and what the table lacks: plain sentences.
    pub remarks: Vec<String>,
}

impl Table {
    /// The table of reports that are of one profile each. Ranks are numbered as
    /// [`compare::merge`] numbers them.
    pub fn new(mut reports: Vec<Report>) -> Table {
        let mut remarks = match reports.len() {
            1 => Vec::new(),
            _ => compare::number_ranks(&mut reports),
        };
        remarks.extend(reports.iter().filter_map(lacking));
        Table { reports, remarks }
    }

    /// Every row.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.reports.iter().flat_map(|report| {
            let rank = match report.ranks.as_slice() {
                [own] => Some(own),
                _ => None,
            };
            report
                .sites
                .iter()
                .map(move |site| Row { report, rank, site })
        })
    }
}

/// What a report does not have that its table would show.
fn lacking(report: &Report) -> Option<String> {
    let omitted = report.sites_omitted.count;
    if omitted > 0 {
        return Some(format!(
            "{}: the {omitted} smallest rows are missing: a report lists {} at most",
            report.title,
            report.sites.len()
        ));
    }
    (!report.hidden.is_empty()).then(|| {
        format!(
            "{}: findings that a baseline or a suppression hid are not among its rules",
            report.title
        )
    })
}

/// One row: a site, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub report: &'a Report,
    /// `None` where the profile holds several processes: their work is one row.
    pub rank: Option<&'a Rank>,
    pub site: &'a SiteRow,
}

/// Ids of the rules with findings about a row.
fn rules<'a>(row: &Row<'a>) -> Vec<&'a str> {
    let find = |number: &u64| {
        let mut findings = row.report.findings.iter();
        findings.find(|finding| finding.number == *number)
    };
    let found = row.site.findings.iter().filter_map(find);
    let mut rules: Vec<&str> = found.map(|finding| finding.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// How a column's value is found, and with it the column's type. What is not known is `None`, never
/// 0 or an empty text.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    Text(for<'a> fn(&Row<'a>) -> Option<&'a str>),
    Int(fn(&Row<'_>) -> Option<i64>),
    Float(fn(&Row<'_>) -> Option<f64>),
    Flag(fn(&Row<'_>) -> Option<bool>),
    /// Any number of texts, also none.
    Texts(for<'a> fn(&Row<'a>) -> Vec<&'a str>),
}

impl Values {
    /// The type in words.
    pub fn name(self) -> &'static str {
        match self {
            Values::Text(_) => "text",
            Values::Int(_) => "integer",
            Values::Float(_) => "double",
            Values::Flag(_) => "boolean",
            Values::Texts(_) => "list of texts",
        }
    }
}

/// One column. Units are in the names; a name that the JSON report's sites have too means the same.
#[derive(Debug)]
pub struct Column {
    pub name: &'static str,
    /// What it holds, and when it is empty.
    pub doc: &'static str,
    pub values: Values,
}

const fn column(name: &'static str, values: Values, doc: &'static str) -> Column {
    Column { name, doc, values }
}

/// A count that the formats can hold.
fn count(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// The columns, in order: whose row it is, what the work is, what it took, what it should take.
pub const COLUMNS: &[Column] = &[
    column(
        "file",
        Values::Text(|r| Some(&r.report.title)),
        "name of the profile",
    ),
    column(
        "rank",
        Values::Int(|r| r.rank?.rank.and_then(count)),
        "distributed rank; empty when not known, and for several processes",
    ),
    column(
        "rank_from",
        Values::Text(|r| r.rank?.rank_from.as_deref()),
        "where the rank comes from: `profile`, `file name`, `position`",
    ),
    column(
        "world_size",
        Values::Int(|r| r.rank?.world_size.and_then(count)),
        "ranks of the whole job, when the profile says",
    ),
    column(
        "processes",
        Values::Int(|r| count(r.report.ranks.len() as u64)),
        "processes in the profile that used a GPU",
    ),
    column(
        "devices",
        Values::Int(|r| count(r.report.summary.devices)),
        "GPUs in the profile",
    ),
    column(
        "gpu",
        Values::Text(|r| r.report.summary.gpu.as_deref()),
        "what to call the GPU",
    ),
    column(
        "gpu_spec",
        Values::Text(|r| Some(&r.report.method.gpu.as_ref()?.id)),
        "the GPU that ideal times are of, as `gpus list` names it",
    ),
    column(
        "what_if",
        Values::Flag(|r| Some(r.report.method.gpu.as_ref()?.what_if)),
        "the profile was taken on another GPU than `gpu_spec`",
    ),
    column(
        "run_steps",
        Values::Int(|r| count(r.report.summary.steps).filter(|n| *n > 0)),
        "numbered steps that were judged; empty when the profile marks none",
    ),
    column(
        "run_step_ns",
        Values::Float(|r| r.report.summary.step_ns),
        "mean length of those steps",
    ),
    column(
        "run_window_ns",
        Values::Int(|r| Some(r.report.summary.window_ns)),
        "wall time that was judged",
    ),
    column(
        "run_busy_ns",
        Values::Int(|r| Some(r.report.summary.busy_ns)),
        "the part of it during which some work ran, summed over GPUs",
    ),
    column(
        "run_kernel_time_ns",
        Values::Int(|r| Some(r.report.summary.kernel_time_ns)),
        "sum of all kernel durations",
    ),
    column(
        "layer",
        Values::Text(|r| r.site.layer.as_deref()),
        "where in the model: `blocks.7.mlp`",
    ),
    column(
        "pattern",
        Values::Text(|r| r.site.pattern.as_deref()),
        "the layers it is like: `blocks.*.mlp`",
    ),
    column(
        "operator",
        Values::Text(|r| r.site.operator.as_deref()),
        "`aten::addmm`; empty when the profile does not say",
    ),
    column(
        "missing",
        Values::Text(|r| r.site.missing.as_deref()),
        "why there is none: `no_launch`, `graph_replay`, `no_range`, `no_operator`",
    ),
    column(
        "direction",
        Values::Text(|r| Some(&r.site.direction)),
        "`fprop`, `bprop`, `update` or `unknown`",
    ),
    column(
        "recomputed",
        Values::Flag(|r| Some(r.site.recomputed)),
        "forward work done again in the backward pass",
    ),
    column(
        "arguments",
        Values::Text(|r| Some(r.site.arguments.as_str()).filter(|text| !text.is_empty())),
        "`bf16[4096, 1600], bf16[1600, 50257]`; empty without shapes",
    ),
    column(
        "arguments_from_forward",
        Values::Flag(|r| Some(r.site.arguments_from_forward)),
        "they are those of the matching forward call",
    ),
    column(
        "family",
        Values::Text(|r| Some(&r.site.family)),
        "`gemm`, `conv`, `pointwise`, `communication`, ...",
    ),
    column(
        "dtype",
        Values::Text(|r| r.site.dtype.as_deref()),
        "what the math runs in",
    ),
    column(
        "tensor_core",
        Values::Flag(|r| r.site.tensor_core),
        "whether it ran on Tensor Cores; empty when that is not known",
    ),
    column(
        "kernel",
        Values::Text(|r| r.site.kernel.as_deref()),
        "the kernel that takes most of it",
    ),
    column(
        "calls",
        Values::Int(|r| count(r.site.calls)),
        "operator calls",
    ),
    column(
        "kernels",
        Values::Int(|r| count(r.site.kernels)),
        "kernels executed",
    ),
    column(
        "time_ns",
        Values::Int(|r| Some(r.site.time_ns)),
        "measured GPU time, summed over the calls",
    ),
    column(
        "exposed_ns",
        Values::Int(|r| Some(r.site.exposed_ns)),
        "the part of it during which nothing else ran on the GPU",
    ),
    column(
        "share",
        Values::Float(|r| Some(r.site.share)),
        "of all kernel time of the profile",
    ),
    column(
        "flops",
        Values::Float(|r| r.site.flops),
        "floating-point operations, summed over the calls",
    ),
    column(
        "bytes",
        Values::Float(|r| r.site.bytes),
        "DRAM bytes, likewise",
    ),
    column(
        "intensity",
        Values::Float(|r| r.site.intensity),
        "`flops / bytes`",
    ),
    column(
        "ideal_ns",
        Values::Float(|r| r.site.ideal_ns),
        "ideal time in the unit and precision the work ran in",
    ),
    column(
        "best_ideal_ns",
        Values::Float(|r| r.site.best_ideal_ns),
        "ideal time on the best unit and precision available to it",
    ),
    column(
        "reachable_ns",
        Values::Float(|r| r.site.reachable_ns),
        "what well-tuned kernels take there",
    ),
    column(
        "headroom",
        Values::Float(|r| r.site.headroom),
        "`time_ns / best_ideal_ns`, where that says something",
    ),
    column(
        "bound",
        Values::Text(|r| r.site.bound.as_deref()),
        "what limits it: `math`, `memory` or `latency`",
    ),
    column(
        "unpriced",
        Values::Text(|r| r.site.unpriced.as_deref()),
        "why FLOPs or bytes are not known",
    ),
    column(
        "source_line",
        Values::Text(|r| r.site.source_line.as_deref()),
        "`model/net.py:42`, where the profile has call stacks",
    ),
    column(
        "rules",
        Values::Texts(rules),
        "rules with findings about it",
    ),
    column(
        "program",
        Values::Text(|r| Some(&r.report.method.program)),
        "what judged the profile: `pyprof-advise 0.1.0`",
    ),
];
