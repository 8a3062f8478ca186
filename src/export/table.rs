//! The table and its columns.

use crate::compare;
use crate::report::{Rank, Report, SiteRow};

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

/// A count as `i64`; `None` if too large.
fn count(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// Makes [`COLUMNS`] of names, types, values and documentation.
macro_rules! columns {
    ($(#[doc = $doc:literal] $name:literal: $ty:ident($value:expr),)*) => {
        /// The columns, in order: rank, work, measured time, ideal time.
        pub const COLUMNS: &[ExportColumn] = &[$(ExportColumn {
            name: $name,
            doc: $doc.trim_ascii_start(),
            values: ColumnValue::$ty($value),
        }),*];
    };
}

columns! {
    /// name of the profile
    "file": Text(|r| Some(&r.report.title)),
    /// distributed rank; empty when not known, and for several processes
    "rank": Int(|r| r.rank?.rank.and_then(count)),
    /// where the rank comes from: `profile`, `file name`, `position`
    "rank_from": Text(|r| r.rank?.rank_from.as_deref()),
    /// ranks of the whole job, when the profile says
    "world_size": Int(|r| r.rank?.world_size.and_then(count)),
    /// processes in the profile that used a GPU
    "processes": Int(|r| count(r.report.ranks.len() as u64)),
    /// GPUs in the profile
    "devices": Int(|r| count(r.report.summary.devices)),
    /// name of the GPU for display
    "gpu": Text(|r| r.report.summary.gpu.as_deref()),
    /// the GPU that ideal times are of, as `gpus list` names it
    "gpu_spec": Text(|r| Some(&r.report.method.gpu.as_ref()?.id)),
    /// the profile was taken on another GPU than `gpu_spec`
    "what_if": Flag(|r| Some(r.report.method.gpu.as_ref()?.what_if)),
    /// steps in the analyzed window; empty if the profile marks none
    "run_steps": Int(|r| count(r.report.summary.steps).filter(|n| *n > 0)),
    /// mean length of those steps
    "run_step_ns": Float(|r| r.report.summary.step_ns),
    /// length of the analyzed window
    "run_window_ns": Int(|r| Some(r.report.summary.window_ns)),
    /// the part of the window during which some work ran, summed over GPUs
    "run_busy_ns": Int(|r| Some(r.report.summary.busy_ns)),
    /// sum of all kernel durations
    "run_kernel_time_ns": Int(|r| Some(r.report.summary.kernel_time_ns)),
    /// where in the model: `blocks.7.mlp`
    "layer": Text(|r| r.site.layer.as_deref()),
    /// the layers it is like: `blocks.*.mlp`
    "pattern": Text(|r| r.site.pattern.as_deref()),
    /// `aten::addmm`; empty when the profile does not say
    "operator": Text(|r| r.site.operator.as_deref()),
    /// why there is none: `no_launch`, `graph_replay`, `no_range`, `no_operator`
    "missing": Text(|r| r.site.missing.as_deref()),
    /// `fprop`, `bprop`, `update` or `unknown`
    "direction": Text(|r| Some(&r.site.direction)),
    /// forward work done again in the backward pass
    "recomputed": Flag(|r| Some(r.site.recomputed)),
    /// `bf16[4096, 1600], bf16[1600, 50257]`; empty without shapes
    "arguments": Text(|r| Some(r.site.arguments.as_str()).filter(|text| !text.is_empty())),
    /// they are those of the matching forward call
    "arguments_from_forward": Flag(|r| Some(r.site.arguments_from_forward)),
    /// `gemm`, `conv`, `pointwise`, `communication`, ...
    "family": Text(|r| Some(&r.site.family)),
    /// what the math runs in
    "dtype": Text(|r| r.site.dtype.as_deref()),
    /// whether it ran on Tensor Cores; empty when that is not known
    "tensor_core": Flag(|r| r.site.tensor_core),
    /// the kernel that takes most of it
    "kernel": Text(|r| r.site.kernel.as_deref()),
    /// operator calls
    "calls": Int(|r| count(r.site.calls)),
    /// kernels executed
    "kernels": Int(|r| count(r.site.kernels)),
    /// measured GPU time, summed over the calls
    "time_ns": Int(|r| Some(r.site.time_ns)),
    /// the part of `time_ns` during which nothing else ran on the GPU
    "exposed_ns": Int(|r| Some(r.site.exposed_ns)),
    /// of the time during which the GPU was busy, at most 1
    "share": Float(|r| Some(r.site.share)),
    /// floating-point operations, summed over the calls
    "flops": Float(|r| r.site.flops),
    /// DRAM bytes, summed over the calls
    "bytes": Float(|r| r.site.bytes),
    /// `flops / bytes`
    "intensity": Float(|r| r.site.intensity),
    /// ideal time in the unit and precision the work ran in
    "ideal_ns": Float(|r| r.site.ideal_ns),
    /// ideal time on the best unit and precision available to it
    "best_ideal_ns": Float(|r| r.site.best_ideal_ns),
    /// what well-tuned kernels take there
    "reachable_ns": Float(|r| r.site.reachable_ns),
    /// `time_ns / best_ideal_ns`, for latency-bound work `time_ns / reachable_ns` from 10 on; empty for collectives
    "slowdown": Float(|r| r.site.slowdown),
    /// whether `slowdown` is the least that it can be: some of the work may be less than counted
    "slowdown_at_least": Flag(|r| Some(r.site.slowdown_at_least)),
    /// what limits it: `math`, `memory` or `latency`
    "bound": Text(|r| r.site.bound.as_deref()),
    /// why FLOPs or bytes are not known
    "cost_unknown": Text(|r| r.site.cost_unknown.as_deref()),
    /// `model/net.py:42`, where the profile has call stacks
    "source_line": Text(|r| r.site.source_line.as_deref()),
    /// rules with findings about it
    "rules": Texts(rules),
    /// program and version: `pyprof-advise 0.1.0`
    "program": Text(|r| Some(&r.report.method.program)),
}
