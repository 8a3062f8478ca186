//! Builds a [`Report`] from the result of the rules: sums times, shortens texts, limits and sorts
//! lists.

use indexmap::IndexMap;

use super::basis::steps_in_window;
use super::figures::{SEARCH, cost_known, finite, kernel_count, label, share, sum, title};
use super::finding_report::{CallUnit, FindingPlace, FindingReport, SavingReport, total_saving};
use super::model::{
    Ceiling, CostUnknown, GpuUsed, Method, Options, Report, SCHEMA_VERSION, SkippedRules,
    StepsFrom, Summary, Unattributed, UserCosted,
};
use super::rows::{LongestCopy, Synchronizations};
use super::serving::Serving;
use super::{evidence, host, launching, layers, narrative, sites, timeline, work_units};
use rustc_hash::FxHashSet;

use crate::base::units::bytes;
use crate::base::{DType, text};
use crate::correlate::{DeviceTimeline, WithoutOperator};
use crate::cost::{Costed, SiteCost, UnknownCost};
use crate::facts::{
    FactTable, Member, MemoryUse, exposed_comm_per_step, how_to_record,
    how_to_record_without_pytorch, is_recordable, longest_copy, product_of, shows_pytorch,
};
use crate::gpu::{Choice, Gpu, SelectedBy, Vendor};
use crate::judge::evidence::cited;
use crate::judge::{Fault, Finding, RuleResults, Saving, SavingKind};
use crate::read::TRACE_CUT;

/// Longest sentence taken from a profile or a reader, in characters.
const MAX_SENTENCE: usize = 400;
/// Most GPU names in the opening.
const MAX_GPU_NAMES: usize = 3;
/// Most places listed per finding.
const MAX_PLACES: usize = 100;
/// Most operators listed per reason for an unknown cost.
pub(crate) const MAX_UNKNOWN_NAMES: usize = 5;

impl Report {
    /// Builds the report of one profile from its facts and what the rules found.
    pub fn new(facts: &FactTable<'_>, results: &RuleResults, options: &Options) -> Report {
        Self::of_windows(facts, facts, results, options)
    }

    /// Builds the report of a detailed recording from its facts and what the rules found in it and in a light
    /// recording of the same steps, where idle time is from.
    pub fn of_windows(
        facts: &FactTable<'_>,
        light: &FactTable<'_>,
        results: &RuleResults,
        options: &Options,
    ) -> Report {
        let costed = facts.costed;
        let profile = &costed.run.profile;
        let of_idle = summary(light);
        let summary = summary(facts);
        // Only these look at every kernel, call and gap; the rest looks at sites.
        let ((timeline, ranks), (units, launching)) = rayon::join(
            || {
                rayon::join(
                    || timeline::of(&costed.run, &summary),
                    || super::ranks::of(costed, &summary),
                )
            },
            || match options.comparable {
                true => rayon::join(|| work_units::of(costed), || launching::of(&costed.run)),
                false => Default::default(),
            },
        );
        let finding = |number: usize, f: &Finding| {
            let is_idle = f.saving.is_some_and(|s| s.kind == SavingKind::Idle);
            let summary = if f.of_light || is_idle {
                &of_idle
            } else {
                &summary
            };
            finding(costed, summary, number as u64, f)
        };
        let findings: Vec<_> = results
            .findings
            .iter()
            .enumerate()
            .map(|(i, f)| finding(i + 1, f))
            .collect();
        let minor = results.minor.iter().map(|f| finding(0, f)).collect();
        let capture = results.capture.iter().map(|f| finding(0, f)).collect();
        let numbers = layers::numbers_by_site(costed, results);
        let pytorch = shows_pytorch(costed);
        let (layers, layers_omitted) = layers::rows(costed, &numbers, summary.busy_ns);
        let (sites, sites_omitted) = sites::rows(costed, numbers, options, summary.busy_ns);
        let mut report = Report {
            schema_version: SCHEMA_VERSION,
            title: title(&profile.path),
            file: label(&profile.path),
            verdict: Vec::new(),
            figures: Vec::new(),
            hidden_notes: Vec::new(),
            next_notes: Vec::new(),
            time_notes: Vec::new(),
            cautions: Vec::new(),
            top: options.top,
            total_saving: total_saving(&findings),
            ranks,
            collectives: super::collectives::rows(costed),
            job: None,
            baseline: None,
            suppressions: Vec::new(),
            hidden: Vec::new(),
            findings,
            minor,
            capture,
            layers,
            layers_omitted,
            repeating: super::repeating::of(costed, summary.busy_ns),
            sites,
            sites_omitted,
            timeline,
            host_profiles: Vec::new(),
            host: host::of(&costed.run, summary.device_window_ns),
            units,
            launching,
            synchronizations: Synchronizations::of(facts),
            already_fast: layers::already_fast(costed, results, summary.busy_ns),
            setup: costed.run.window.setup.clone(),
            skipped: skipped(results, costed, pytorch),
            unattributed: unattributed(costed, pytorch),
            cost_unknown: cost_unknown(costed),
            faults: faults(results),
            notes: notes(costed, pytorch),
            cut_files: Vec::new(),
            method: method(costed, results),
            windows: None,
            program: None,
            summary,
        };
        report.cautions = narrative::cautions(&report, profile.recorded.environment);
        let cut = cut(costed);
        if !cut.is_empty() {
            report.cut_files.push(report.file.clone());
            report.cautions.splice(0..0, cut);
        }
        report.sum_up();
        report
    }
}

/// Text of a profile as a sentence: without home folders, and shortened.
fn sentence(text: &str) -> String {
    text::clip(&text::without_home(text), MAX_SENTENCE)
}

/// `part / whole`; `None` when `whole` is 0.
fn share_of(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn summary(facts: &FactTable<'_>) -> Summary {
    let costed = facts.costed;
    let run = &costed.run;
    let devices = &run.timeline.devices;
    let totals = facts.totals();
    let step = run.step_time();
    let exposed_comm_ns = sum(devices.iter().map(|d| d.exposed_comm_ns));
    let device_window_ns = sum(devices.iter().map(DeviceTimeline::analysed_ns));
    let busy_ns = sum(devices.iter().map(|d| d.busy_ns));
    let (cost_known_ns, best_ideal_ns) = cost_known(run.sites.iter().zip(&costed.sites));
    Summary {
        gpu: gpu_name(costed),
        devices: devices.len() as u64,
        steps: step.map_or(0, |s| s.steps),
        work_steps: step.and_then(|s| s.work_steps),
        step_ns: step.map(|s| s.ns),
        host_step_ns: step.and_then(|s| s.host_ahead_ns),
        unrecorded_step_ns: run.profile.unrecorded.step_ns.map(|ns| ns as f64),
        exposed_comm_per_step_ns: step
            .filter(|_| exposed_comm_ns > 0)
            .and_then(|_| exposed_comm_per_step(run)),
        window_ns: run.analysed_ns(),
        device_window_ns,
        busy_ns,
        busy_share: share(busy_ns as f64, device_window_ns as f64),
        kernel_ns: sum(devices.iter().map(|d| d.kernel_ns)),
        exposed_copy_ns: sum(devices.iter().map(|d| d.exposed_copy_ns)),
        longest_copy: longest_copy(run).map(|(copy, what)| LongestCopy {
            what,
            bytes: copy.bytes,
            ns: copy.span.ns(),
        }),
        comm_ns: sum(devices.iter().map(|d| d.comm_ns)),
        exposed_comm_ns,
        graph_ns: sum(devices.iter().map(|d| d.graph_ns)),
        kernel_time_ns: sum(run.sites.iter().map(|s| s.time_ns)),
        kernels: run.sites.iter().map(kernel_count).sum(),
        with_operator_ns: sum(run
            .sites
            .iter()
            .filter(|s| s.op.is_some())
            .map(|s| s.time_ns)),
        cost_known_ns,
        best_ideal_ns,
        slowdown: best_ideal_ns.map(|ideal| cost_known_ns / ideal),
        slowdown_at_least: costed.sites.iter().any(SiteCost::at_most),
        idle_unreliable: run.unreliable_idle.as_deref().map(sentence),
        recording_overhead: run.recording_overhead.map(str::to_owned),
        reliable_idle_ns: sum(devices.iter().map(DeviceTimeline::reliable_idle_ns)),
        unexplained_idle_ns: run.unexplained_idle_ns,
        graph_launch_idle_ns: run.graph_launch_idle_ns,
        step_weight: totals.step_weight,
        host_work_ns: (totals.host_slack_ns).map(|slack| (totals.window_ns - slack).max(0.0)),
        steps_from: run.step_origin.as_ref().map(|origin| StepsFrom {
            source: origin.source,
            text: label(&origin.text),
        }),
        window_range: run.window.inside.as_deref().map(label),
        serving: run.batch.as_ref().and_then(Serving::of),
    }
}

/// Names of the devices in the profile, else the GPU in use.
fn gpu_name(costed: &Costed) -> Option<String> {
    let mut names = device_names(costed);
    names.dedup();
    if names.len() > MAX_GPU_NAMES {
        names.truncate(MAX_GPU_NAMES);
        names.push("others".to_owned());
    }
    let recorded = (!names.is_empty()).then(|| names.join(" and "));
    let chosen = costed.gpu.as_ref();
    match (recorded, chosen) {
        (Some(name), Some(choice)) if choice.how == SelectedBy::WhatIf => {
            Some(format!("{name}, analyzed as {}", choice.gpu.name))
        }
        (Some(name), _) => Some(name),
        (None, Some(choice)) => Some(choice.gpu.name.clone()),
        (None, None) => None,
    }
}

/// Names of the devices with work in the window; of all devices when none has any.
fn device_names(costed: &Costed) -> Vec<String> {
    let profile = &costed.run.profile;
    let used: FxHashSet<usize> = costed
        .run
        .timeline
        .devices
        .iter()
        .map(|d| d.device.idx())
        .collect();
    let mut names: Vec<String> = profile
        .devices
        .iter()
        .enumerate()
        .filter(|(i, _)| used.is_empty() || used.contains(i))
        .filter_map(|(_, d)| d.name.as_deref())
        .filter(|name| !name.trim().is_empty())
        .map(label)
        .collect();
    names.sort();
    names
}

fn finding(costed: &Costed, summary: &Summary, number: u64, f: &Finding) -> FindingReport {
    let saving = f.saving.and_then(|s| saving(summary, &s));
    let elsewhere = cited(&f.rule, saving.as_ref().map(|s| s.counted_share));
    FindingReport {
        number,
        rule: label(&f.rule),
        rule_file: label(&f.file),
        category: f.category.clone(),
        title: f.title.clone(),
        title_suffix: String::new(),
        severity: f.severity,
        confidence: f.confidence,
        place: label(&f.place),
        subject: label(&f.subject),
        places: places(f),
        places_omitted: f.places.len().saturating_sub(MAX_PLACES) as u64,
        since_baseline: None,
        after: f.after.clone(),
        measured: None,
        changes: f.changes.clone(),
        measured_elsewhere: elsewhere.iter().map(|text| sentence(text)).collect(),
        whole_run: f.members.iter().all(|m| *m == Member::Run),
        calls: f.calls,
        calls_unit: calls_unit(&f.members),
        members: f.members.len() as u64,
        time_ns: finite(f.time_ns),
        share: finite(f.share).min(1.0),
        saving,
        removes_launches: f.removes_launches,
        outside_ns: f.outside_ns.filter(|ns| ns.is_finite()),
        message: f.message.trim().to_owned(),
        why: f.why.trim().to_owned(),
        fix: f.fix.trim().to_owned(),
        references: f.references.iter().map(|r| sentence(r)).collect(),
        edits: f.edits.clone(),
        evidence: evidence::of(costed, f),
        on_ranks: None,
    }
}

/// What the calls of a finding are. Idle time stays that where other findings became a part of it; otherwise all
/// members of a rule are of one kind.
fn calls_unit(members: &[Member]) -> CallUnit {
    let gap = members
        .iter()
        .find(|member| matches!(member, Member::Gap(_)));
    match gap.or(members.first()) {
        Some(Member::Kernel(..)) => CallUnit::Kernel,
        Some(Member::Copy(_)) => CallUnit::Copy,
        Some(Member::Gap(_)) => CallUnit::Gap,
        _ => CallUnit::Call,
    }
}

fn places(f: &Finding) -> Vec<FindingPlace> {
    let shown = f.places.iter().take(MAX_PLACES);
    shown
        .map(|(place, time_ns)| FindingPlace {
            place: label(place),
            time_ns: finite(*time_ns),
        })
        .collect()
}

/// `None` for an estimate that is not finite, such as a division by zero in a rule.
fn saving(summary: &Summary, s: &Saving) -> Option<SavingReport> {
    let numbers = [
        s.low_ns,
        s.high_ns,
        s.claimed_low_ns,
        s.claimed_ns,
        s.overlap_ns,
    ];
    if !numbers.iter().all(|n| n.is_finite()) {
        return None;
    }
    let whole = match s.kind {
        SavingKind::Gpu | SavingKind::Copy => summary.busy_ns,
        SavingKind::Idle => summary.device_window_ns,
    };
    let steps = steps_in_window(summary);
    let per_step = |ns: Option<f64>| ns.map(|ns| finite(ns / steps));
    Some(SavingReport {
        kind: s.kind,
        low_ns: s.low_ns,
        high_ns: s.high_ns,
        counted_low_ns: s.claimed_low_ns,
        counted_high_ns: s.claimed_ns,
        counted_share: share(s.claimed_ns, whole as f64),
        overlap_ns: s.overlap_ns,
        step_low_ns: per_step(s.step_low_ns),
        step_high_ns: per_step(s.step_ns),
    })
}

/// One row per thing to record: a profile without shapes lacks a dozen facts.
fn skipped(results: &RuleResults, costed: &Costed, pytorch: bool) -> Vec<SkippedRules> {
    let collect = match pytorch {
        true => how_to_record,
        false => how_to_record_without_pytorch,
    };
    let gpu_known = costed.gpu.is_some();
    let mut by_needs: IndexMap<&str, SkippedRules> = IndexMap::new();
    for missing in &results.skipped {
        let needs = collect(&missing.needs, &costed.run.profile, gpu_known);
        let row = by_needs.entry(needs).or_insert_with(|| SkippedRules {
            needs: needs.to_owned(),
            facts: Vec::new(),
            rules: Vec::new(),
            time_ns: 0.0,
            recordable: is_recordable(missing.needs.as_str()) && is_recordable(needs),
        });
        row.facts.push(label(&missing.fact));
        row.rules.extend(missing.rules.iter().map(|r| label(r)));
        row.time_ns = row.time_ns.max(finite(missing.time_ns));
    }
    SkippedRules::in_order(by_needs.into_values())
}

fn faults(results: &RuleResults) -> Vec<Fault> {
    results
        .faults
        .iter()
        .map(|f| Fault {
            rule: label(&f.rule),
            message: sentence(&f.message),
            count: f.count,
        })
        .collect()
}

/// Kernels without an operator, for one reason.
#[derive(Debug, Default)]
struct WithoutOperatorTime {
    kernels: u64,
    ns: i64,
    /// Time of kernels that TensorRT and nvFuser made, which have no operators in any recording.
    tensorrt_ns: i64,
    nvfuser_ns: i64,
}

fn unattributed(costed: &Costed, pytorch: bool) -> Vec<Unattributed> {
    let run = &costed.run;
    let total = sum(run.sites.iter().map(|s| s.time_ns));
    let mut by_reason: IndexMap<WithoutOperator, WithoutOperatorTime> = IndexMap::new();
    for (site, names) in run.sites.iter().zip(&costed.kernels) {
        let Some(missing) = site.missing else {
            continue;
        };
        let entry = by_reason.entry(missing).or_default();
        entry.kernels += kernel_count(site);
        entry.ns = entry.ns.saturating_add(site.time_ns);
        for (kernel, name) in site.kernels.iter().zip(names) {
            match product_of(name) {
                Some("TensorRT") => entry.tensorrt_ns += kernel.time_ns,
                Some("nvFuser") => entry.nvfuser_ns += kernel.time_ns,
                _ => {}
            }
        }
    }
    by_reason.sort_by(|a, x, b, y| y.ns.cmp(&x.ns).then(a.cmp(b)));
    by_reason
        .into_iter()
        .map(|(missing, time)| {
            let profile = &run.profile;
            let mostly = |ns: i64| 2 * i128::from(ns) >= i128::from(time.ns);
            let markers = match () {
                () if mostly(time.tensorrt_ns) => narrative::TENSORRT_LAYERS,
                () if mostly(time.nvfuser_ns) => narrative::NVFUSER_KERNELS,
                () if !pytorch => narrative::NOT_PYTORCH,
                () if profile.recorded.ranges => profile.format.name_operators,
                () => profile.format.record_operators,
            };
            let (reason, text) = narrative::missing(missing, profile.format, markers);
            Unattributed {
                reason: reason.to_owned(),
                text,
                kernels: time.kernels,
                time_ns: time.ns,
                share: share(time.ns as f64, total as f64),
            }
        })
        .collect()
}

fn cost_unknown(costed: &Costed) -> Vec<CostUnknown> {
    let sites = &costed.run.sites;
    let total = sum(sites.iter().map(|s| s.time_ns));
    let mut by_reason: IndexMap<&str, IndexMap<String, i64>> = IndexMap::new();
    for (site, cost) in sites.iter().zip(&costed.sites) {
        let unknown = match &cost.cost {
            Err(unknown) => unknown.describe(),
            Ok(_) if cost.autotuning => SEARCH,
            Ok(_) => continue,
        };
        // Kernels without an operator have their own list.
        if let Some(op) = &site.op {
            let time = by_reason
                .entry(unknown)
                .or_default()
                .entry(label(&op.display()))
                .or_default();
            *time = time.saturating_add(site.time_ns);
        }
    }
    let mut rows: Vec<CostUnknown> = by_reason
        .into_iter()
        .map(|(unknown, mut operators)| {
            operators.sort_by(|a, x, b, y| y.cmp(x).then_with(|| a.cmp(b)));
            let time_ns = sum(operators.values().copied());
            CostUnknown {
                reason: unknown.to_owned(),
                time_ns,
                share: share(time_ns as f64, total as f64),
                operators: operators.into_keys().take(MAX_UNKNOWN_NAMES).collect(),
                recording: recording(costed, unknown).to_owned(),
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        b.time_ns
            .cmp(&a.time_ns)
            .then_with(|| a.reason.cmp(&b.reason))
    });
    rows
}

/// The recording that tells how fast work is whose cost no recording of shapes tells.
fn recording(costed: &Costed, reason: &str) -> &'static str {
    let unmeasured = [
        UnknownCost::UnknownOp,
        UnknownCost::DataDependent,
        UnknownCost::BadArguments,
    ];
    let vendor = costed.gpu.as_ref().map(|choice| choice.gpu.vendor);
    match vendor {
        _ if !unmeasured.iter().any(|why| why.describe() == reason) => "",
        Some(Vendor::Amd) => {
            "`rocprof-compute profile` measures how close to the peaks their kernels run"
        }
        _ => "`ncu --section SpeedOfLight` measures how close to the peaks their kernels run",
    }
}

/// Remarks of the reader, without the environment block, which has its own caution, and without the one for
/// programs of PyTorch if this is none.
fn notes(costed: &Costed, pytorch: bool) -> Vec<String> {
    let profile = &costed.run.profile;
    profile
        .notes
        .iter()
        .filter(|n| !(profile.recorded.environment && n.code == "environment_block"))
        .filter(|n| pytorch || n.code != "ranges_missing")
        .filter(|n| n.code != TRACE_CUT)
        .map(|n| sentence(&n.text))
        .chain(MemoryUse::of(&costed.run).map(|memory| memory_note(&memory)))
        .collect()
}

/// What the reader says of a trace whose end is missing.
fn cut(costed: &Costed) -> Vec<String> {
    let notes = costed.run.profile.notes.iter();
    let cut = notes.filter(|note| note.code == TRACE_CUT);
    cut.map(|note| sentence(&note.text)).collect()
}

/// What the program used of the memory of its GPU.
fn memory_note(memory: &MemoryUse) -> String {
    let of = memory.capacity.map_or_else(String::new, |capacity| {
        format!(" of {}", bytes(capacity as f64))
    });
    let growth = match memory.growth {
        Some(growth) if growth > 0.0 => {
            format!(" From step to step {} more stay in use.", bytes(growth))
        }
        _ => String::new(),
    };
    let names = memory.operators.iter();
    let names = names.map(|(op, given)| format!("{} ({})", label(op), bytes(*given as f64)));
    let names: Vec<String> = names.collect();
    let most = match names.as_slice() {
        [] => String::new(),
        names => format!(" Most is allocated in {}.", names.join(", ")),
    };
    format!(
        "PyTorch's allocator had at most {}{of} of the GPU's memory, {} of it in tensors.{growth}{most}",
        bytes(memory.reserved as f64),
        bytes(memory.allocated as f64),
    )
}

fn method(costed: &Costed, results: &RuleResults) -> Method {
    let profile = &costed.run.profile;
    let coverage = &costed.coverage;
    let mut assumptions: Vec<String> = costed
        .sites
        .iter()
        .filter_map(|s| s.cost.as_ref().ok()?.note)
        .map(str::to_owned)
        .collect();
    assumptions.sort();
    assumptions.dedup();
    Method {
        program: concat!("pyprof-advise ", env!("CARGO_PKG_VERSION")).to_owned(),
        format: profile.format.name.to_owned(),
        file_bytes: profile.file_bytes,
        tool_version: profile.tool_version.as_deref().map(label),
        export_schema: profile.schema_version.as_deref().map(label),
        devices: device_names(costed),
        gpu: costed.gpu.as_ref().map(gpu_used),
        cost_known_share: share_of(coverage.cost_known_ns, coverage.kernel_ns),
        attributable_share: share_of(coverage.attributable_ns, coverage.kernel_ns),
        cost_known_attributable_share: share_of(
            coverage.attributable_cost_known_ns,
            coverage.attributable_ns,
        ),
        lacks_api_calls: !profile.recorded.api_calls,
        layer_source: costed.run.layer_source.map(|s| s.describe().to_owned()),
        assumptions,
        user_costs: user_costs(costed),
        switches: profile.switches.clone(),
        rules_run: results.rules_run as u64,
    }
}

/// User costs by file, in the order of the time of their operators.
fn user_costs(costed: &Costed) -> Vec<UserCosted> {
    let mut files: IndexMap<&str, UserCosted> = IndexMap::new();
    for (site, cost) in costed.run.sites.iter().zip(&costed.sites) {
        let (Some(file), Some(op)) = (&cost.cost_file, &site.op) else {
            continue;
        };
        let used = files.entry(file).or_insert_with(|| UserCosted {
            file: label(file),
            operators: Vec::new(),
            calls: 0,
            time_ns: 0,
        });
        let operator = label(&op.display());
        if !used.operators.contains(&operator) {
            used.operators.push(operator);
        }
        used.calls += u64::from(site.calls);
        used.time_ns = used.time_ns.saturating_add(site.time_ns);
    }
    files.into_values().collect()
}

fn gpu_used(choice: &Choice) -> GpuUsed {
    let gpu = &choice.gpu;
    let how = match choice.how {
        SelectedBy::Asked => "named with --gpu",
        SelectedBy::WhatIf => "named with --gpu, although the profile was taken on another one",
        SelectedBy::Named => "by the device name in the profile",
        SelectedBy::Attributes => "by the compute units and the memory in the profile",
        SelectedBy::Derived => "derived from the device attributes in the profile: approximate",
        SelectedBy::Kernels => "inferred from the names and grids of kernels: approximate",
    };
    GpuUsed {
        id: gpu.id.clone(),
        name: gpu.name.clone(),
        how: how.to_owned(),
        remarks: choice.remarks.iter().map(|r| sentence(r)).collect(),
        what_if: choice.how == SelectedBy::WhatIf,
        inferred: !choice.how.is_stated(),
        bandwidth_bytes_per_s: finite(gpu.bandwidth),
        nvlink_bytes_per_s: gpu.nvlink,
        fp32_flops_per_s: gpu.flops.get(&DType::Fp32).copied(),
        matrix_unit: match gpu.vendor {
            Vendor::Nvidia => "Tensor Cores",
            Vendor::Amd => "matrix cores",
        }
        .to_owned(),
        tensor_16bit_flops_per_s: tensor_16bit(gpu),
        ceilings: ceilings(gpu),
        reachable_math_share: gpu.reachable.math,
        reachable_memory_share: gpu.reachable.memory,
        shortest_kernel_ns: gpu.reachable.kernel_ns,
        sources: gpu.sources.clone(),
    }
}

fn ceilings(gpu: &Gpu) -> Vec<Ceiling> {
    let rates = [(true, &gpu.tensor_flops), (false, &gpu.flops)];
    let mut ceilings: Vec<Ceiling> = rates
        .into_iter()
        .flat_map(|(tensor_core, rates)| rates.iter().map(move |rate| (tensor_core, rate)))
        .map(|(tensor_core, (dtype, rate))| Ceiling {
            dtype: dtype.name().to_owned(),
            tensor_core,
            flops_per_s: finite(*rate),
        })
        .collect();
    // The sort is stable: equal rates keep the order of their types.
    ceilings.sort_by(|a, b| b.flops_per_s.total_cmp(&a.flops_per_s));
    ceilings
}

fn tensor_16bit(gpu: &Gpu) -> Option<f64> {
    gpu.tensor_flops
        .get(&DType::Fp16)
        .or_else(|| gpu.tensor_flops.get(&DType::Bf16))
        .copied()
}
