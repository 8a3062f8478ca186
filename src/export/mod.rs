//! Floor 7: the work of several ranks as one table, for DuckDB, Spark, polars or a spreadsheet.
//!
//! One row per rank and site. Ranks are not summed up; queries choose what to compare. The table is
//! built from reports, so the profiles need not be on the same machine.

use crate::compare;
use crate::report::{Rank, Report, SiteRow};

mod csv;

pub use csv::csv;

/// The sites of several reports, those of rank 0 first, and those with the most time first within a
/// report.
#[derive(Debug)]
pub struct ExportTable {
    reports: Vec<Report>,
    /// Inconsistencies between the reports, and missing rows, as sentences.
    pub remarks: Vec<String>,
}

impl ExportTable {
    /// The table of reports of one profile each. Ranks are numbered as
    /// [`compare::merge`] numbers them.
    pub fn new(mut reports: Vec<Report>) -> ExportTable {
        let mut remarks = match reports.len() {
            1 => Vec::new(),
            _ => compare::number_ranks(&mut reports),
        };
        remarks.extend(reports.iter().filter_map(lacking));
        ExportTable { reports, remarks }
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = ExportRow<'_>> {
        self.reports.iter().flat_map(|report| {
            let rank = match report.ranks.as_slice() {
                [own] => Some(own),
                _ => None,
            };
            report
                .sites
                .iter()
                .map(move |site| ExportRow { report, rank, site })
        })
    }
}

/// A remark about rows or rules that are missing from a report.
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

/// One row: a site, its report and its rank.
#[derive(Debug, Clone, Copy)]
pub struct ExportRow<'a> {
    /// The report of the profile.
    pub report: &'a Report,
    /// The rank; `None` for a profile of several processes, whose work is one row.
    pub rank: Option<&'a Rank>,
    /// The work.
    pub site: &'a SiteRow,
}

/// Ids of the rules with findings about a row, sorted.
fn rules<'a>(row: &ExportRow<'a>) -> Vec<&'a str> {
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

/// The type of a column, and the function that returns its value. Unknown values are `None`, never 0 or an
/// empty text.
#[derive(Debug, Clone, Copy)]
pub enum ColumnValue {
    /// A text.
    Text(for<'a> fn(&ExportRow<'a>) -> Option<&'a str>),
    /// A whole number.
    Int(fn(&ExportRow<'_>) -> Option<i64>),
    /// A floating-point number.
    Float(fn(&ExportRow<'_>) -> Option<f64>),
    /// A boolean.
    Flag(fn(&ExportRow<'_>) -> Option<bool>),
    /// A list of texts, possibly empty.
    Texts(for<'a> fn(&ExportRow<'a>) -> Vec<&'a str>),
}

impl ColumnValue {
    /// The name of the type, for the documentation.
    pub fn name(self) -> &'static str {
        match self {
            ColumnValue::Text(_) => "text",
            ColumnValue::Int(_) => "integer",
            ColumnValue::Float(_) => "double",
            ColumnValue::Flag(_) => "boolean",
            ColumnValue::Texts(_) => "list of texts",
        }
    }
}

/// One column. Units are in the names; names shared with the sites of the JSON report have the same meaning.
#[derive(Debug)]
pub struct ExportColumn {
    /// The column's name.
    pub name: &'static str,
    /// What it contains, and when it is empty.
    pub doc: &'static str,
    /// Type and value.
    pub values: ColumnValue,
}

const fn column(name: &'static str, values: ColumnValue, doc: &'static str) -> ExportColumn {
    ExportColumn { name, doc, values }
}

/// A count as `i64`; `None` if too large.
fn count(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// The columns, in order: rank, work, measured time, ideal time.
pub const COLUMNS: &[ExportColumn] = &[
    column(
        "file",
        ColumnValue::Text(|r| Some(&r.report.title)),
        "name of the profile",
    ),
    column(
        "rank",
        ColumnValue::Int(|r| r.rank?.rank.and_then(count)),
        "distributed rank; empty when not known, and for several processes",
    ),
    column(
        "rank_from",
        ColumnValue::Text(|r| r.rank?.rank_from.as_deref()),
        "where the rank comes from: `profile`, `file name`, `position`",
    ),
    column(
        "world_size",
        ColumnValue::Int(|r| r.rank?.world_size.and_then(count)),
        "ranks of the whole job, when the profile says",
    ),
    column(
        "processes",
        ColumnValue::Int(|r| count(r.report.ranks.len() as u64)),
        "processes in the profile that used a GPU",
    ),
    column(
        "devices",
        ColumnValue::Int(|r| count(r.report.summary.devices)),
        "GPUs in the profile",
    ),
    column(
        "gpu",
        ColumnValue::Text(|r| r.report.summary.gpu.as_deref()),
        "name of the GPU for display",
    ),
    column(
        "gpu_spec",
        ColumnValue::Text(|r| Some(&r.report.method.gpu.as_ref()?.id)),
        "the GPU that ideal times are of, as `gpus list` names it",
    ),
    column(
        "what_if",
        ColumnValue::Flag(|r| Some(r.report.method.gpu.as_ref()?.what_if)),
        "the profile was taken on another GPU than `gpu_spec`",
    ),
    column(
        "run_steps",
        ColumnValue::Int(|r| count(r.report.summary.steps).filter(|n| *n > 0)),
        "steps in the analyzed window; empty if the profile marks none",
    ),
    column(
        "run_step_ns",
        ColumnValue::Float(|r| r.report.summary.step_ns),
        "mean length of those steps",
    ),
    column(
        "run_window_ns",
        ColumnValue::Int(|r| Some(r.report.summary.window_ns)),
        "length of the analyzed window",
    ),
    column(
        "run_busy_ns",
        ColumnValue::Int(|r| Some(r.report.summary.busy_ns)),
        "the part of the window during which some work ran, summed over GPUs",
    ),
    column(
        "run_kernel_time_ns",
        ColumnValue::Int(|r| Some(r.report.summary.kernel_time_ns)),
        "sum of all kernel durations",
    ),
    column(
        "layer",
        ColumnValue::Text(|r| r.site.layer.as_deref()),
        "where in the model: `blocks.7.mlp`",
    ),
    column(
        "pattern",
        ColumnValue::Text(|r| r.site.pattern.as_deref()),
        "the layers it is like: `blocks.*.mlp`",
    ),
    column(
        "operator",
        ColumnValue::Text(|r| r.site.operator.as_deref()),
        "`aten::addmm`; empty when the profile does not say",
    ),
    column(
        "missing",
        ColumnValue::Text(|r| r.site.missing.as_deref()),
        "why there is none: `no_launch`, `graph_replay`, `no_range`, `no_operator`",
    ),
    column(
        "direction",
        ColumnValue::Text(|r| Some(&r.site.direction)),
        "`fprop`, `bprop`, `update` or `unknown`",
    ),
    column(
        "recomputed",
        ColumnValue::Flag(|r| Some(r.site.recomputed)),
        "forward work done again in the backward pass",
    ),
    column(
        "arguments",
        ColumnValue::Text(|r| Some(r.site.arguments.as_str()).filter(|text| !text.is_empty())),
        "`bf16[4096, 1600], bf16[1600, 50257]`; empty without shapes",
    ),
    column(
        "arguments_from_forward",
        ColumnValue::Flag(|r| Some(r.site.arguments_from_forward)),
        "they are those of the matching forward call",
    ),
    column(
        "family",
        ColumnValue::Text(|r| Some(&r.site.family)),
        "`gemm`, `conv`, `pointwise`, `communication`, ...",
    ),
    column(
        "dtype",
        ColumnValue::Text(|r| r.site.dtype.as_deref()),
        "what the math runs in",
    ),
    column(
        "tensor_core",
        ColumnValue::Flag(|r| r.site.tensor_core),
        "whether it ran on Tensor Cores; empty when that is not known",
    ),
    column(
        "kernel",
        ColumnValue::Text(|r| r.site.kernel.as_deref()),
        "the kernel that takes most of it",
    ),
    column(
        "calls",
        ColumnValue::Int(|r| count(r.site.calls)),
        "operator calls",
    ),
    column(
        "kernels",
        ColumnValue::Int(|r| count(r.site.kernels)),
        "kernels executed",
    ),
    column(
        "time_ns",
        ColumnValue::Int(|r| Some(r.site.time_ns)),
        "measured GPU time, summed over the calls",
    ),
    column(
        "exposed_ns",
        ColumnValue::Int(|r| Some(r.site.exposed_ns)),
        "the part of `time_ns` during which nothing else ran on the GPU",
    ),
    column(
        "share",
        ColumnValue::Float(|r| Some(r.site.share)),
        "of all kernel time of the profile",
    ),
    column(
        "flops",
        ColumnValue::Float(|r| r.site.flops),
        "floating-point operations, summed over the calls",
    ),
    column(
        "bytes",
        ColumnValue::Float(|r| r.site.bytes),
        "DRAM bytes, summed over the calls",
    ),
    column(
        "intensity",
        ColumnValue::Float(|r| r.site.intensity),
        "`flops / bytes`",
    ),
    column(
        "ideal_ns",
        ColumnValue::Float(|r| r.site.ideal_ns),
        "ideal time in the unit and precision the work ran in",
    ),
    column(
        "best_ideal_ns",
        ColumnValue::Float(|r| r.site.best_ideal_ns),
        "ideal time on the best unit and precision available to it",
    ),
    column(
        "reachable_ns",
        ColumnValue::Float(|r| r.site.reachable_ns),
        "what well-tuned kernels take there",
    ),
    column(
        "slowdown",
        ColumnValue::Float(|r| r.site.slowdown),
        "`time_ns / best_ideal_ns`; empty for latency-bound work and collectives",
    ),
    column(
        "slowdown_at_least",
        ColumnValue::Flag(|r| Some(r.site.slowdown_at_least)),
        "whether `slowdown` is the least that it can be: some of the work may be less than counted",
    ),
    column(
        "bound",
        ColumnValue::Text(|r| r.site.bound.as_deref()),
        "what limits it: `math`, `memory` or `latency`",
    ),
    column(
        "cost_unknown",
        ColumnValue::Text(|r| r.site.cost_unknown.as_deref()),
        "why FLOPs or bytes are not known",
    ),
    column(
        "source_line",
        ColumnValue::Text(|r| r.site.source_line.as_deref()),
        "`model/net.py:42`, where the profile has call stacks",
    ),
    column(
        "rules",
        ColumnValue::Texts(rules),
        "rules with findings about it",
    ),
    column(
        "program",
        ColumnValue::Text(|r| Some(&r.report.method.program)),
        "program and version: `pyprof-advise 0.1.0`",
    ),
];
