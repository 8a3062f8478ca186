//! How much of the GPU time of every profile a report explains, by kind of program.

use crate::{shared, survey};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pyprof_advise::Advisor;
use pyprof_advise::advisor::{Analysis, open};
use pyprof_advise::correlate::{OpName, SiteId};
use pyprof_advise::cost::{Family, UnknownCost};
use pyprof_advise::facts::{Answer, FactTable, Lookup, Member, MemberKind, Value};
use pyprof_advise::read::NoProgress;
use pyprof_advise::report::Report;

/// The least share of kernel time that a report must explain, in percent, by profile.
const FLOORS: &str = include_str!("explained_floors.csv");

/// Family, operator, cost, bound, advice or fast, explained: of kernel time, in percent.
type Shares = [f64; 6];

/// The share of a file in [`FLOORS`].
fn floor(file: &str) -> Option<f64> {
    let mut rows = FLOORS.lines().filter_map(|line| line.split_once(','));
    let share = rows.find_map(|(name, share)| (name == file).then_some(share))?;
    Some(share.parse().unwrap())
}

/// Kernel time of one profile in ns. A bound is a time that the work takes at least, where its cost is not
/// known.
#[derive(Debug, Default, Clone)]
pub(crate) struct Explained {
    kind: &'static str,
    file: String,
    all: f64,
    family: f64,
    operator: f64,
    cost: f64,
    /// With a bound, and no cost.
    bound: f64,
    /// With a finding, or as fast as well-tuned kernels.
    advice: f64,
    /// With a family, and one of a cost, a bound, or a recording that would tell the cost.
    explained: f64,
    /// Kernels and operators without cost and bound.
    missed: BTreeMap<String, f64>,
}

impl Explained {
    fn share(&self, part: f64) -> f64 {
        part / self.all.max(1.0)
    }

    fn parts(&self) -> [f64; 6] {
        [
            self.family,
            self.operator,
            self.cost,
            self.bound,
            self.advice,
            self.explained,
        ]
    }
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
    let mut kernels = table.members(MemberKind::Kernel).into_iter();
    let tensorrt = kernels.any(|kernel| match table.view(kernel).get("kernel.maker") {
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

/// Whether the report names the recording that would tell the cost: with the kernels without an operator,
/// with the operators whose cost is not known, or with the rules that lack it.
fn is_recordable(report: &Report, why: UnknownCost) -> bool {
    let mut unknown = report.cost_unknown.iter();
    match why {
        UnknownCost::NoOperator => !report.unattributed.is_empty(),
        UnknownCost::NoShapes | UnknownCost::NoScalars | UnknownCost::NoDType => true,
        _ => unknown.any(|row| row.reason == why.describe() && !row.recording.is_empty()),
    }
}

/// How much of the kernel time of a profile its report explains; none where no kernel takes time.
pub(crate) fn explained(
    analysis: &Analysis,
    table: &FactTable<'_>,
    path: &Path,
) -> Option<Explained> {
    let (costed, results) = (&analysis.costed, &analysis.results);
    let found: BTreeSet<SiteId> = (results.findings.iter().chain(&results.minor))
        .flat_map(|finding| finding.sites.iter().copied())
        .collect();
    let bounded: BTreeSet<Member> = (table.members(MemberKind::Kernel).into_iter())
        .filter(|kernel| {
            let view = table.view(*kernel);
            let known = |fact| matches!(view.get(fact), Answer::Value(_));
            known("kernel.weight_bytes") || known("site.least_bytes")
        })
        .collect();
    let mut sums = Explained {
        kind: kind(table),
        file: shared::name(path),
        ..Explained::default()
    };
    let told = |why: UnknownCost| is_recordable(&analysis.report, why);
    let sites = (costed.run.sites.iter())
        .zip(&costed.sites)
        .zip(&costed.kernels);
    for (index, ((site, cost), decoded)) in sites.enumerate() {
        let id = SiteId::new(index);
        let known = cost.cost.is_ok() && !cost.autotuning;
        let fast = !cost.at_most()
            && (cost.reachable_ns).is_some_and(|ns| site.time_ns as f64 <= 1.1 * ns);
        let why = cost.cost.as_ref().err().copied();
        for (row, (kernel, name)) in (0..).zip(site.kernels.iter().zip(decoded)) {
            let named = name.family != Family::Unknown;
            let bound = !known && bounded.contains(&Member::Kernel(id, row));
            let ns = kernel.time_ns as f64;
            let part = |holds: bool| if holds { ns } else { 0.0 };
            sums.all += ns;
            sums.family += part(named);
            sums.operator += part(site.op.is_some());
            sums.cost += part(known);
            sums.bound += part(bound);
            sums.advice += part(fast || found.contains(&id));
            sums.explained += part(named && (known || bound || why.is_some_and(told)));
            if !(named && (known || bound)) {
                let op = site.op.as_ref().map_or("-".to_owned(), OpName::display);
                let text = format!("{} {op} {why:?} {}", name.family.name(), name.label);
                *sums.missed.entry(text).or_default() += ns;
            }
        }
    }
    (sums.all > 0.0).then_some(sums)
}

/// Prints one row per profile with `--nocapture`, and what is not known of each with `MISSED=1`.
#[test]
fn most_gpu_time_of_compiled_and_served_programs_is_explained() {
    let Some(all) = survey::all() else { return };
    let mut rows: Vec<Explained> = (all.iter())
        .filter_map(|profile| profile.explained.clone())
        .collect();
    let prefill = shared::profile("tl_sglang_prefilldecode.json.gz");
    let decode = shared::profile("tl_sglang_decode.json.gz");
    if let Some((prefill, decode)) = prefill.zip(decode) {
        let advisor = Advisor::new().unwrap().eager(&prefill).unwrap();
        let profile = open(&decode, &NoProgress).unwrap();
        let analysis = advisor.analyze(profile, &mut |_| {}).unwrap();
        let table = FactTable::new(&analysis.costed);
        let row = explained(&analysis, &table, &decode).unwrap();
        // Attention of decoding is another operator than that of prefill.
        let operators = row.share(row.operator);
        assert!((0.77..0.79).contains(&operators), "{operators}");
        assert!(row.share(row.bound) > 0.75);
        rows.push(Explained {
            file: format!("{} with {}", row.file, shared::name(&prefill)),
            ..row
        });
    }
    rows.sort_by(|a, b| a.kind.cmp(b.kind).then(a.file.cmp(&b.file)));
    println!(
        "| Kind | Profile | ms | Family | Operator | Cost | Bound | Advice or fast | Explained |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    let line = |kind: &str, what: &str, ms: f64, shares: Shares| {
        let shares = shares.map(|share| format!("{share:.0}"));
        println!("| {kind} | {what} | {ms:.2} | {} |", shares.join(" | "));
    };
    let mut kinds: BTreeMap<&str, Vec<Shares>> = BTreeMap::new();
    for row in &rows {
        let shares = row.parts().map(|part| 100.0 * row.share(part));
        line(row.kind, &format!("`{}`", row.file), row.all / 1e6, shares);
        kinds.entry(row.kind).or_default().push(shares);
    }
    println!("\nMeans of the profiles of each kind; the number is that of the profiles:");
    for (kind, rows) in kinds {
        let n = rows.len() as f64;
        let mean = std::array::from_fn(|at| rows.iter().map(|row| row[at]).sum::<f64>() / n);
        line(kind, "all", n, mean);
    }
    if std::env::var_os("MISSED").is_some() {
        for row in &rows {
            println!("== {} {}", row.kind, row.file);
            let mut missed: Vec<_> = row.missed.iter().collect();
            missed.sort_by(|a, b| b.1.total_cmp(a.1));
            for (text, ns) in missed.into_iter().filter(|m| row.share(*m.1) > 0.003) {
                println!("{:5.1} %  {text}", 100.0 * row.share(*ns));
            }
        }
    }
    let short: Vec<String> = (rows.iter())
        .filter(|row| row.kind != "eager" && row.share(row.explained) < 0.8)
        .map(|row| format!("{}: {:.2}", row.file, row.share(row.explained)))
        .collect();
    assert!(short.is_empty(), "{}", short.join("\n"));
    // Floors are rounded to whole percents.
    let below: Vec<&str> = (rows.iter())
        .filter(|row| floor(&row.file).is_some_and(|f| 100.0 * row.share(row.explained) < f - 1.0))
        .map(|row| row.file.as_str())
        .collect();
    assert!(below.is_empty(), "below their floor: {below:?}");
}
