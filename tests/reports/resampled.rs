//! How often a gate is wrong: on pairs of runs that are *resampled* from the steps of real profiles, not
//! measured. Each run takes steps of one profile at random, with repetition, and keeps what belongs
//! together: the wall, busy and kernel time of a step and the time of each kernel in it.

use std::collections::HashMap;
use std::fmt::Write;

use pyprof_advise::compare::diff::{Decision, diff, gate};
use pyprof_advise::compare::merge;
use pyprof_advise::correlate::{Run, correlate};
use pyprof_advise::cost::{VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::RuleResults;
use pyprof_advise::read;
use pyprof_advise::report::{Options, Report, SiteRow, UnitKind, WorkUnit};

use crate::shared;

/// Pairs per profile and change.
const PAIRS: u64 = 100;
/// Fewest steps of a profile to draw from.
const STEPS: usize = 10;
/// The injected slowdown, as a share of the wall time of a step.
const SLOWER: f64 = 0.03;
/// Largest standard deviation of the steps for which the slowdown must be found.
const QUIET: f64 = 0.01;
/// Share of the pairs in which it must be found.
const FOUND: f64 = 0.95;
/// Sites kept per report: those with the longest time.
const SITES: usize = 60;

/// A profile with a unit of work that repeats often enough, and the time of each site in each repetition.
struct Source {
    name: String,
    report: Report,
    unit: WorkUnit,
    /// Per repetition and site: kernel time, number of kernels.
    sites: Vec<Vec<(i64, u64)>>,
}

/// What is slower in the second run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Nothing,
    OneLayer,
    Launches,
    OneRank,
}

impl Source {
    fn read(file: &str, kind: UnitKind, text: &str) -> Option<Source> {
        let path = shared::path(file)?;
        let profile = read::open(&path, &read::NoProgress).unwrap();
        let gpu = select::choose(None, &profile).unwrap();
        let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
        let facts = FactTable::new(&costed);
        let mut report = Report::new(&facts, &RuleResults::default(), &Options::default());
        let unit = report
            .units
            .iter()
            .find(|u| u.kind == kind && u.name.contains(text));
        let unit = unit.unwrap_or_else(|| panic!("{file}: no {text}")).clone();
        assert!(
            unit.wall_ns.len() >= STEPS,
            "{file}: {}",
            unit.wall_ns.len()
        );
        let sites = fold(&mut report, &times(&costed.run, &unit));
        Some(Source {
            name: format!("{file} {text}"),
            report,
            unit,
            sites,
        })
    }

    fn mean_ns(&self) -> f64 {
        let all: i64 = self.unit.wall_ns.iter().sum();
        all as f64 / self.unit.wall_ns.len() as f64
    }

    /// Standard deviation of the wall time, as a share of its mean.
    fn noise(&self) -> f64 {
        let mean = self.mean_ns();
        let squares = self
            .unit
            .wall_ns
            .iter()
            .map(|ns| (*ns as f64 - mean).powi(2));
        (squares.sum::<f64>() / (self.unit.wall_ns.len() as f64 - 1.0)).sqrt() / mean
    }

    /// A run of as many steps, drawn at random.
    fn run(&self, random: &mut Random, change: Change) -> Report {
        let count = self.unit.wall_ns.len();
        let drawn: Vec<usize> = (0..count).map(|_| random.below(count)).collect();
        let mut report = self.report.clone();
        let take = |list: &[i64]| -> Vec<i64> { drawn.iter().map(|at| list[*at]).collect() };
        let mut unit = WorkUnit {
            wall_ns: take(&self.unit.wall_ns),
            busy_ns: take(&self.unit.busy_ns),
            kernel_ns: take(&self.unit.kernel_ns),
            comm_ns: take(&self.unit.comm_ns),
            kernels: drawn.iter().map(|at| self.unit.kernels[*at]).collect(),
            start_ns: Vec::new(),
            ..self.unit.clone()
        };
        let extra = SLOWER * self.mean_ns();
        let slow = self.layer();
        let mean: f64 = self.sites.iter().map(|row| row[slow].0 as f64).sum::<f64>() / count as f64;
        for (at, site) in report.sites.iter_mut().enumerate() {
            let rows = || drawn.iter().map(|step| self.sites[*step][at]);
            site.time_ns = rows().map(|(ns, _)| ns).sum();
            site.kernels = rows().map(|(_, kernels)| kernels).sum();
            site.calls = site.kernels;
        }
        for (at, step) in drawn.iter().enumerate() {
            let more = match change {
                Change::Nothing => 0,
                // In proportion to what the layer took in this step.
                Change::OneLayer => (extra * self.sites[*step][slow].0 as f64 / mean) as i64,
                Change::Launches | Change::OneRank => extra as i64,
            };
            unit.wall_ns[at] += more;
            if change == Change::OneLayer {
                unit.busy_ns[at] += more;
                unit.kernel_ns[at] += more;
                report.sites[slow].time_ns += more;
            }
        }
        if change == Change::Launches {
            // Ten more gaps of the class of 20 to 100 us and longer, in every step.
            let class = report
                .launching
                .gaps
                .iter_mut()
                .find(|class| class.from_ns == 20_000)
                .unwrap();
            class.count += 10 * count as u64;
            class.ns += extra as i64 * count as i64;
        }
        let sum = |list: &[i64]| list.iter().sum::<i64>();
        let s = &mut report.summary;
        s.window_ns = sum(&unit.wall_ns);
        s.device_window_ns = s.window_ns;
        s.busy_ns = sum(&unit.busy_ns);
        s.kernel_time_ns = sum(&unit.kernel_ns);
        s.kernels = unit.kernels.iter().map(|n| u64::from(*n)).sum();
        s.busy_share = s.busy_ns as f64 / s.window_ns as f64;
        s.devices = 1;
        s.idle_unreliable = None;
        if unit.kind == UnitKind::Step {
            s.steps = count as u64;
            s.step_ns = Some(s.window_ns as f64 / count as f64);
        } else {
            (s.steps, s.step_ns) = (0, None);
        }
        report.unattributed.clear();
        unit.held_share = 1.0;
        report.units = vec![unit];
        report
    }

    /// The site with the longest time.
    fn layer(&self) -> usize {
        let time = |at: usize| self.sites.iter().map(|row| row[at].0).sum::<i64>();
        (0..self.report.sites.len())
            .max_by_key(|at| time(*at))
            .unwrap()
    }

    /// Two ranks of a job. Where one becomes slower, the other waits for it in each step.
    fn job(&self, random: &mut Random, change: Change) -> Report {
        let mut ranks = [self.run(random, change), self.run(random, change)];
        for (number, rank) in (0..).zip(&mut ranks) {
            rank.ranks.truncate(1);
            rank.ranks[0].rank = Some(number);
            rank.title = format!("rank{number}");
        }
        merge(ranks.to_vec(), Vec::new()).unwrap()
    }

    fn pair(&self, seed: u64, change: Change) -> (Report, Report) {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ (seed << 20));
        match change {
            Change::OneRank => (
                self.job(&mut random, Change::Nothing),
                self.job(&mut random, change),
            ),
            _ => (
                self.run(&mut random, Change::Nothing),
                self.run(&mut random, change),
            ),
        }
    }
}

/// Sums the rows of layers that repeat, such as `blocks.0` and `blocks.1`, of which a repetition holds only one;
/// keeps those with the longest time.
fn fold(report: &mut Report, times: &[Vec<(i64, u64)>]) -> Vec<Vec<(i64, u64)>> {
    let mut places: HashMap<_, usize> = HashMap::new();
    let mut rows: Vec<SiteRow> = Vec::new();
    let of: Vec<usize> = (report.sites.iter())
        .map(|site| {
            let key = (
                site.pattern.clone(),
                site.operator.clone(),
                site.direction.clone(),
                site.arguments.clone(),
                site.operator.is_none().then(|| site.kernel.clone()),
            );
            *places.entry(key).or_insert_with(|| {
                let clusters = Vec::new();
                rows.push(SiteRow {
                    clusters,
                    ..site.clone()
                });
                rows.len() - 1
            })
        })
        .collect();
    let mut sums = vec![vec![(0, 0); rows.len()]; times.len()];
    for (sum, row) in sums.iter_mut().zip(times) {
        for (at, (ns, kernels)) in of.iter().zip(row) {
            sum[*at].0 += ns;
            sum[*at].1 += kernels;
        }
    }
    // The rows are in order of their first site, which is the longest one.
    rows.truncate(SITES);
    report.sites = rows;
    sums
}

/// Kernel time and number of kernels of each site in each repetition, on the first GPU.
fn times(run: &Run, unit: &WorkUnit) -> Vec<Vec<(i64, u64)>> {
    let origin = run.window.span.unwrap().start;
    let device = run.timeline.devices[0].device;
    // The rows of a report: sites by time, equal ones in their own order.
    let mut order: Vec<usize> = (0..run.sites.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(run.sites[*at].time_ns));
    let mut row_of = vec![0; run.sites.len()];
    for (row, site) in order.into_iter().enumerate() {
        row_of[site] = row;
    }
    let mut rows = vec![vec![(0, 0); run.sites.len()]; unit.wall_ns.len()];
    for (kernel, link) in run.profile.kernels.iter().zip(&run.links) {
        let Some(site) = link.site.filter(|_| kernel.device == device) else {
            continue;
        };
        let at = kernel.span.start - origin;
        let step = unit.start_ns.partition_point(|start| *start <= at);
        let Some(step) = step.checked_sub(1) else {
            continue;
        };
        if at < unit.start_ns[step] + unit.wall_ns[step] {
            let (ns, kernels) = &mut rows[step][row_of[site.idx()]];
            *ns += kernel.span.ns();
            *kernels += 1;
        }
    }
    rows
}

/// Numbers that are the same in every run of the test: SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) as usize % limit
    }
}

/// Profiles with ten repetitions and more of a unit of work.
const SOURCES: [(&str, UnitKind, &str); 9] = [
    ("profiles/cs336jsun.sqlite", UnitKind::Range, "Forward"),
    (
        "profiles/saf_False_b.json.gz",
        UnitKind::Range,
        "generate_masks 0 1 0 3",
    ),
    (
        "profiles/saf_True_b.json.gz",
        UnitKind::Range,
        "generate_masks 0 1 0 3",
    ),
    (
        "profiles/tl_h100_qwen.json.gz",
        UnitKind::Kernel,
        "flash_fwd",
    ),
    (
        "profiles/tl_sglang_prefilldecode.json.gz",
        UnitKind::Kernel,
        "",
    ),
    (
        "profiles/mfu_2gpu_before.sqlite",
        UnitKind::Kernel,
        "flash_fwd",
    ),
    (
        "profiles/mfu_2gpu_after.sqlite",
        UnitKind::Kernel,
        "flash_fwd",
    ),
    (
        "profiles_pairs/aiprof/1_baseline.sqlite",
        UnitKind::Step,
        "",
    ),
    ("profiles_pairs/aiprof/2_workers.sqlite", UnitKind::Step, ""),
];

#[test]
fn gates_find_small_slowdowns_and_raise_no_false_alarm() {
    if shared::path("profiles").is_none() {
        return;
    }
    let mut log = String::new();
    let mut wrong = Vec::new();
    let mut quiet = 0;
    for (file, kind, text) in SOURCES {
        let Some(source) = Source::read(file, kind, text) else {
            return;
        };
        let is_quiet = source.noise() <= QUIET;
        quiet += usize::from(is_quiet);
        let mut alarms = 0;
        let mut detectable: f64 = 0.0;
        for seed in 0..PAIRS {
            let (before, after) = source.pair(seed, Change::Nothing);
            let compared = diff(&before, &after);
            detectable = detectable.max(compared.noise.unwrap().detectable_share);
            alarms += u64::from(matches!(gate(&compared, SLOWER), Decision::Fail(_)));
        }
        let _ = write!(
            log,
            "\n{}: {} repetitions, deviation {:.2} %: {alarms} false alarms of {PAIRS} resamples; found at 3 %:",
            source.name,
            source.unit.wall_ns.len(),
            100.0 * source.noise()
        );
        if alarms > 0 {
            wrong.push(format!("{}: {alarms} false alarms", source.name));
        }
        for change in [Change::OneLayer, Change::Launches, Change::OneRank] {
            let found = (0..PAIRS)
                .filter(|seed| is_found(&source, *seed, change))
                .count();
            let share = found as f64 / PAIRS as f64;
            let _ = write!(log, " {change:?} {:.1} %", 100.0 * share);
            if is_quiet && share < FOUND {
                wrong.push(format!("{}: {change:?} found in {share}", source.name));
            }
        }
        if !is_quiet {
            let _ = write!(
                log,
                "; smallest that would be found {:.1} %",
                100.0 * detectable
            );
        }
    }
    println!("{log}");
    assert!(quiet >= 4, "{quiet} quiet profiles: {log}");
    assert!(wrong.is_empty(), "{wrong:#?}{log}");
}

/// Whether the slowdown is found, and its cause named.
fn is_found(source: &Source, seed: u64, change: Change) -> bool {
    let (before, after) = source.pair(seed, change);
    let compared = diff(&before, &after);
    // Half of the measured slowdowns are below the injected one.
    let fails = matches!(gate(&compared, 2.0 / 3.0 * SLOWER), Decision::Fail(_));
    let said = compared.verdict.join(" ");
    fails
        && compared.regression.is_some()
        && match change {
            Change::OneLayer => compared.slower.first().is_some_and(|row| {
                let site = &source.report.sites[source.layer()];
                let name = site.operator.as_deref().or(site.kernel.as_deref()).unwrap();
                row.place.contains(name)
            }),
            Change::Launches => said.contains("host slower") && said.contains("20 to 100 us"),
            _ => true,
        }
}
