//! How much of the GPU time of every profile a report explains, by kind of program.

use crate::shared;
use std::collections::BTreeSet;
use std::path::Path;

use pyprof_advise::correlate::{SiteId, correlate};
use pyprof_advise::cost::{Family, UnknownCost, VOCABULARY, estimate_costs};
use pyprof_advise::facts::{Answer, FactTable, Lookup, Member, MemberKind, Value};
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{RuleSet, judge};
use pyprof_advise::read;

/// Kernel time of one profile in ns.
#[derive(Debug, Default)]
struct Explained {
    kind: &'static str,
    file: String,
    all: f64,
    family: f64,
    operator: f64,
    cost: f64,
    bound: f64,
    /// With a finding, or as fast as well-tuned kernels.
    advice: f64,
    /// With a family, and one of a cost, a bound, or a recording that would tell the cost.
    explained: f64,
    /// Kernels and operators that are not.
    missed: Vec<(f64, String)>,
}

/// The kind of program, by what ran for most of the time.
fn kind(table: &FactTable<'_>) -> &'static str {
    let view = table.view(Member::Run);
    let number = |fact| match view.get(fact) {
        Answer::Value(Value::Double(n)) => n,
        _ => 0.0,
    };
    let is_served = matches!(view.get("run.serving_engine"), Answer::Value(_));
    let graphs = number("run.graph_replay_share").max(number("run.graph_share"));
    let members = table.members(MemberKind::Kernel);
    let tensorrt = members
        .into_iter()
        .any(|kernel| match table.view(kernel).get("kernel.maker") {
            Answer::Value(Value::Str(maker)) => &*maker == "tensorrt",
            _ => false,
        });
    match () {
        () if is_served => "served",
        () if tensorrt => "engine",
        () if graphs >= 0.5 => "captured",
        () if number("run.compiled_share").max(number("run.triton_share")) >= 0.1 => "compiled",
        () => "eager",
    }
}

/// Whether recording more would tell the cost: a report names the recording for each of these reasons.
fn is_recordable(why: &UnknownCost) -> bool {
    matches!(
        why,
        UnknownCost::NoOperator
            | UnknownCost::NoShapes
            | UnknownCost::NoScalars
            | UnknownCost::NoDType
    )
}

fn explained(path: &Path, rules: &RuleSet) -> Option<Explained> {
    let profile = read::open(path, &read::NoProgress).ok()?;
    if profile.kernels.is_empty() {
        return None;
    }
    let gpu = select::choose(None, &profile).ok()?;
    let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
    let table = FactTable::new(&costed);
    let verdict = judge(rules, &table);
    let found: BTreeSet<SiteId> = (verdict.findings.iter().chain(&verdict.minor))
        .flat_map(|finding| finding.sites.iter().copied())
        .collect();
    let bounded: BTreeSet<_> = (table.members(MemberKind::Kernel).into_iter())
        .filter(|kernel| matches!(table.view(*kernel).get("kernel.bound_ns"), Answer::Value(_)))
        .collect();
    let mut sums = Explained {
        kind: kind(&table),
        file: shared::name(path),
        ..Explained::default()
    };
    let sites = costed
        .run
        .sites
        .iter()
        .zip(&costed.sites)
        .zip(&costed.kernels);
    for (index, ((site, cost), decoded)) in sites.enumerate() {
        let id = SiteId::new(index);
        let known = cost.cost.is_ok() && !cost.autotuning;
        let fast = (cost.reachable_ns).is_some_and(|ns| site.time_ns as f64 <= 1.1 * ns);
        for (row, (kernel, name)) in site.kernels.iter().zip(decoded).enumerate() {
            let ns = kernel.time_ns as f64;
            let named = name.family != Family::Unknown;
            let bound = bounded.contains(&Member::Kernel(id, u32::try_from(row).unwrap()));
            let told = known || bound || cost.cost.as_ref().err().is_some_and(is_recordable);
            let add = |part: &mut f64, holds: bool| *part += if holds { ns } else { 0.0 };
            add(&mut sums.all, true);
            add(&mut sums.family, named);
            add(&mut sums.operator, site.op.is_some());
            add(&mut sums.cost, known);
            add(&mut sums.bound, bound);
            add(&mut sums.advice, fast || found.contains(&id));
            add(&mut sums.explained, named && told);
            if !(named && (known || bound)) {
                let op = site.op.as_ref().map_or("-".to_owned(), |op| op.display());
                let why = cost.cost.as_ref().err();
                let family = name.family.name();
                let text = format!("{family} {op} {why:?} {}", name.label);
                sums.missed.push((ns, text));
            }
        }
    }
    Some(sums)
}

/// Prints one row per profile. Run it with `--nocapture`.
#[test]
fn most_gpu_time_of_compiled_and_served_programs_is_explained() {
    let Some(mut files) = shared::profiles() else {
        return;
    };
    files.extend(shared::pairs());
    let rules = RuleSet::builtin().unwrap();
    let mut rows: Vec<Explained> = files.iter().filter_map(|f| explained(f, &rules)).collect();
    rows.sort_by(|a, b| a.kind.cmp(b.kind).then(a.file.cmp(&b.file)));
    println!(
        "| Kind | Profile | ms | Family | Operator | Cost | Bound | Advice or fast | Explained |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for row in &rows {
        let percent = |part: f64| format!("{:.0}", 100.0 * part / row.all);
        let parts = [
            row.family,
            row.operator,
            row.cost,
            row.bound,
            row.advice,
            row.explained,
        ];
        let file = row.file.rsplit('/').next().unwrap();
        let parts = parts.map(percent).join(" | ");
        println!(
            "| {} | `{file}` | {:.2} | {parts} |",
            row.kind,
            row.all / 1e6
        );
    }
    if std::env::var_os("MISSED").is_some() {
        for row in &mut rows {
            println!("== {} {}", row.kind, row.file);
            let mut by: std::collections::BTreeMap<String, f64> = Default::default();
            for (ns, text) in &row.missed {
                *by.entry(text.clone()).or_default() += ns;
            }
            let mut by: Vec<_> = by.into_iter().collect();
            by.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (text, ns) in by.iter().take(25).filter(|b| b.1 > 0.003 * row.all) {
                println!("{:5.1} %  {text}", 100.0 * ns / row.all);
            }
        }
    }
}
