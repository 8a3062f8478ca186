//! The facts of one run and of its members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rustc_hash::{FxHashMap, FxHashSet};

use super::affected::{AffectedSite, AffectedTime, StepWeight, Totals};
use super::before_update::BeforeUpdate;
use super::call_operators::CallOperators;
use super::chain::{self, Chain};
use super::collectives::{self, Collectives};
use super::computed_weights::ComputedWeights;
use super::conversion::ParameterShapes;
use super::copy::{self, CopyGroup};
use super::devices_at_once::at_once;
use super::embedding_tables::EmbeddingTables;
use super::enclosing_ops::{EnclosingOps, operator_in};
use super::equal_calls::EqualCalls;
use super::fact::{Member, MemberKind, Subject};
use super::framework_signs::{self, FrameworkSigns, Signs};
use super::gap::{self, GapGroup};
use super::gradient_sums::GradientSums;
use super::growing_passes::GrowingPasses;
use super::host::Host;
use super::host_work::HostWork;
use super::layer::LayerSums;
use super::memory::MemoryUse;
use super::needless_gradients::NeedlessGradients;
use super::padded_lengths::PaddedLengths;
use super::program::ProgramSigns;
use super::range_paths::{RangePaths, by_string};
use super::run::Sums;
use super::same_kernels::SameKernels;
use super::slice_gradients::SliceGradients;
use super::step::{self, RankScope};
use super::step_stability::StepStability;
use super::step_weight::StepWeights;
use super::sync::SyncWaits;
use super::table_series::TableSeries;
use super::worker_start::WorkerStart;
use super::{growing_cats, plain_attention, reduction_copies, rows_used, unrecorded};
use crate::base::DType;
use crate::correlate::{DeviceTimeline, Direction, GapCause, Run, SiteId};
use crate::cost::Costed;
use crate::cost::roofline::is_memory_family;
use crate::profile::{CopyKind, KernelId, StrId};

/// The facts of one run: shared sums, and the members that are not rows of the run.
#[derive(Debug)]
pub struct FactTable<'a> {
    /// The run with its costs.
    pub costed: &'a Costed,
    pub(super) totals: Totals,
    pub(super) sums: Sums,
    pub(super) host: Host,
    pub(super) waits: Option<SyncWaits>,
    pub(super) memory: Option<MemoryUse>,
    pub(super) framework: FrameworkSigns,
    pub(super) step_stability: StepStability,
    pub(super) processes: usize,
    pub(super) enclosing_ops: EnclosingOps,
    pub(super) slices: SliceGradients,
    /// Per site: the sums of all sites with calls like its own.
    pub(super) equal_calls: Vec<Option<EqualCalls>>,
    /// Sites of concatenations that grow one tensor in a loop.
    pub(super) growing_cats: BTreeSet<SiteId>,
    /// Rows that the program uses of products that it uses in part.
    pub(super) rows_used: BTreeMap<SiteId, u64>,
    pub(super) growing_passes: GrowingPasses,
    pub(super) padded_lengths: PaddedLengths,
    /// Kernels of plain attention in compiled code, by site and name.
    pub(super) plain_attention: FxHashSet<(SiteId, StrId)>,
    /// In-place forward work that autograd did not record.
    pub(super) unrecorded: BTreeSet<SiteId>,
    pub(super) parameters: Option<ParameterShapes>,
    pub(super) computed_weights: ComputedWeights,
    pub(super) embedding_tables: EmbeddingTables,
    pub(super) table_series: TableSeries,
    pub(super) gradient_sums: GradientSums,
    pub(super) needless_gradients: NeedlessGradients,
    pub(super) program: ProgramSigns,
    pub(super) worker_start: Option<WorkerStart>,
    pub(super) copies: Vec<CopyGroup>,
    /// Kernel time between a backward pass and the optimizer step, per site, in ns.
    pub(super) before_update: FxHashMap<SiteId, i64>,
    pub(super) gaps: Vec<GapGroup>,
    pub(super) chains: Vec<Chain>,
    /// One row per pattern; the last one is for sites without a known layer.
    layers: Vec<LayerSums>,
    /// The first row with each name.
    pub(super) layer_rows: FxHashMap<String, u32>,
    /// Processes with work inside the window.
    pub(super) ranks: Vec<RankScope>,
    /// Kernel time per label, ns.
    pub(super) labels: FxHashMap<&'a str, f64>,
    /// Kernel time of the label with most of it, ns.
    pub(super) largest_label_ns: f64,
    /// Per site: idle time in which the GPU waited for the launches of its kernels, in ns.
    launch_ns: Vec<f64>,
    /// Per site: what the host works for the launches of its kernels, in ns.
    pub(super) host_ns: Vec<f64>,
    host_work: Option<HostWork>,
    /// Per site: share of saved kernel time by which steps become shorter; empty where it is that of the
    /// run.
    site_weights: Vec<StepWeight>,
    pub(super) collectives: Collectives,
}

/// The subject type of run facts.
pub(super) struct Runs;

impl Subject for Runs {
    type Of<'a> = FactTable<'a>;
}

/// A group in its table.
pub(super) struct GapScope<'a> {
    pub(super) table: &'a FactTable<'a>,
    pub(super) group: &'a GapGroup,
}

/// The subject type of gap facts.
pub(super) struct Gaps;
impl Subject for Gaps {
    type Of<'a> = GapScope<'a>;
}

impl<'a> FactTable<'a> {
    /// Computes the data that facts need, once, on all threads.
    pub fn new(costed: &'a Costed) -> FactTable<'a> {
        let run = &costed.run;
        let signs = Signs::of(run);
        let counts = by_string(run, |name| {
            framework_signs::is_sign(name) || operator_in(name).is_some()
        });
        let looked: OnceLock<(RangePaths, EnclosingOps)> = OnceLock::new();
        // Neither of the two may use rayon: a thread that waits inside the lock for parallel work could
        // steal a job that waits for the same lock.
        let look = || {
            looked.get_or_init(|| {
                let paths = RangePaths::of(run, &counts);
                let enclosing_ops = EnclosingOps::of(run, &paths);
                (paths, enclosing_ops)
            })
        };
        let (mut sums, mut ranks) = (Sums::default(), Vec::new());
        let mut collectives = Collectives::default();
        let (mut copies, mut framework) = (Vec::new(), FrameworkSigns::default());
        let (mut chains, mut gaps) = (Vec::new(), Vec::new());
        let mut before_update = FxHashMap::default();
        let (mut host, mut step_stability) = (Host::default(), StepStability::default());
        let (mut waits, mut memory) = (None, None);
        let (mut step_weights, mut site_weights) = (StepWeights::default(), Vec::new());
        let (mut parameters, mut program) = (None, ProgramSigns::default());
        let (mut equal_calls, mut worker_start) = (Vec::new(), None);
        let mut embedding_tables = EmbeddingTables::default();
        let mut needless_gradients = NeedlessGradients::default();
        let mut padded_lengths = PaddedLengths::default();
        let (mut totals, mut launch_ns) = (Totals::default(), Vec::new());
        let mut host_work = None;
        rayon::scope(|jobs| {
            // Spawned first, because it takes longest and recognizing chains may wait for it.
            jobs.spawn(|_| {
                look();
            });
            jobs.spawn(|_| sums = Sums::of(costed));
            jobs.spawn(|_| {
                let names = collectives::names(costed);
                (ranks, collectives) = rayon::join(
                    || step::ranks(run, &names),
                    || Collectives::of(costed, &names),
                );
            });
            jobs.spawn(|_| {
                let (ops, before) =
                    rayon::join(|| CallOperators::of(run), || BeforeUpdate::of(run));
                rayon::scope(|jobs| {
                    jobs.spawn(|_| before_update = before.sites(run));
                    jobs.spawn(|_| copies = copy::groups(run, &ops));
                    jobs.spawn(|_| gaps = gap::groups(costed, &ops, &before));
                    jobs.spawn(|_| waits = SyncWaits::of(run, &ops));
                    jobs.spawn(|_| host = Host::of(run, &ops));
                });
            });
            jobs.spawn(|_| framework = FrameworkSigns::of(costed, &signs));
            jobs.spawn(|_| chains = chain::recognize(costed, &|| &look().1));
            jobs.spawn(|_| memory = MemoryUse::of(run));
            jobs.spawn(|_| {
                step_weights = StepWeights::of(run);
                site_weights = step_weights.of_sites(run);
            });
            jobs.spawn(|_| parameters = ParameterShapes::of(run));
            jobs.spawn(|_| embedding_tables = EmbeddingTables::of(costed));
            jobs.spawn(|_| needless_gradients = NeedlessGradients::of(run));
            jobs.spawn(|_| padded_lengths = PaddedLengths::of(run));
            jobs.spawn(|_| program = ProgramSigns::of(costed));
            jobs.spawn(|_| worker_start = WorkerStart::of(run));
            jobs.spawn(|_| equal_calls = EqualCalls::of(costed));
            jobs.spawn(|_| step_stability = StepStability::of(costed));
            jobs.spawn(|_| totals = totals_of(run));
            jobs.spawn(|_| launch_ns = of_sites(run, &launch_ns_of_kernels(run)));
            jobs.spawn(|_| host_work = HostWork::of(run));
        });
        totals.step_weight = step_weights.of_run;
        totals.host_slack_ns = host_work.as_ref().and_then(|work| work.slack_ns);
        totals.paced_by_workers = gap::waits_for_workers_ns(&gaps) > PACED * totals.window_ns;
        let layers = layers(costed);
        let labels = labels(costed);
        let (paths, enclosing_ops) = looked.into_inner().unwrap_or_default();
        let (mut rows_used, mut growing_passes) = (BTreeMap::new(), GrowingPasses::default());
        if !sums.training {
            rows_used = rows_used::of(costed);
            growing_passes = GrowingPasses::of(costed, &rows_used);
        }
        let gradient_sums = framework.gradient_sums(run, &enclosing_ops);
        let computed_weights = ComputedWeights::of(costed, parameters.as_ref(), &enclosing_ops);
        FactTable {
            costed,
            totals,
            gradient_sums,
            needless_gradients,
            rows_used,
            growing_passes,
            padded_lengths,
            sums,
            host,
            waits,
            memory,
            framework: framework.with_paths(costed, &signs, &paths),
            collectives,
            step_stability,
            processes: ranks.len(),
            copies,
            before_update,
            gaps,
            chains,
            slices: SliceGradients::of(run, &paths),
            table_series: TableSeries::of(costed, &enclosing_ops),
            enclosing_ops,
            equal_calls,
            growing_cats: growing_cats::of(costed),
            plain_attention: plain_attention::of(costed),
            unrecorded: unrecorded::of(costed),
            parameters,
            computed_weights,
            embedding_tables,
            program,
            worker_start,
            layer_rows: first_rows(&layers),
            layers,
            ranks,
            largest_label_ns: labels.values().copied().fold(0.0, f64::max),
            labels,
            launch_ns,
            host_ns: match &host_work {
                Some(work) => of_sites(run, &work.of_kernels),
                None => Vec::new(),
            },
            host_work,
            site_weights,
        }
    }

    /// A string of the profile.
    pub(super) fn text(&self, id: StrId) -> &'a str {
        self.costed.run.profile.text(id)
    }

    /// Lets the times of the GPU's clock be those of another recording of the same steps, which slowed the host
    /// less: idle time, how far a faster kernel shortens a step, and the idle time before launches. Work stays that
    /// of this recording.
    pub fn timed_by(mut self, light: &FactTable<'_>) -> FactTable<'a> {
        let (run, of_light) = (&self.costed.run, &light.costed.run);
        let pairs = SameKernels::of(of_light, run);
        self.site_weights = match StepWeights::of(of_light).late {
            Some(late) => late.site_weights(run, &pairs.carry(&late.kernels)),
            None => Vec::new(),
        };
        self.launch_ns = of_sites(run, &pairs.carry(&launch_ns_of_kernels(of_light)));
        self.host_ns = match &light.host_work {
            Some(work) => of_sites(run, &pairs.carry(&work.of_kernels)),
            None => Vec::new(),
        };
        self.totals = Totals {
            gpu_busy_ns: self.totals.gpu_busy_ns,
            kernel_ns: self.totals.kernel_ns,
            copy_ns: self.totals.copy_ns,
            devices: self.totals.devices,
            devices_at_once: self.totals.devices_at_once,
            ..light.totals
        };
        self
    }

    /// The totals that shares and step times refer to.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The calls in which launching threads wait for the GPU; `None` if no calls were recorded.
    pub(crate) fn waits(&self) -> Option<&SyncWaits> {
        self.waits.as_ref()
    }

    /// All members of one kind, in a fixed order.
    pub fn members(&self, kind: MemberKind) -> Vec<Member> {
        fn rows(count: usize, wrap: fn(u32) -> Member) -> Vec<Member> {
            (0..u32::try_from(count).unwrap_or(u32::MAX))
                .map(wrap)
                .collect()
        }
        let run = &self.costed.run;
        match kind {
            MemberKind::Run => vec![Member::Run],
            MemberKind::Step => rows(run.steps.len(), Member::Step),
            MemberKind::Layer => rows(self.layers.len(), Member::Layer)
                .into_iter()
                .filter(|m| matches!(m, Member::Layer(i) if self.layer(*i).is_some_and(|l| l.time_ns > 0.0)))
                .collect(),
            MemberKind::Site => (0..run.sites.len()).map(|i| Member::Site(SiteId::new(i))).collect(),
            MemberKind::Chain => rows(self.chains.len(), Member::Chain),
            MemberKind::Kernel => run
                .sites
                .iter()
                .enumerate()
                .flat_map(|(i, site)| {
                    let kernels = u32::try_from(site.kernels.len()).unwrap_or(u32::MAX);
                    (0..kernels).map(move |k| Member::Kernel(SiteId::new(i), k))
                })
                .collect(),
            MemberKind::Copy => rows(self.copies.len(), Member::Copy),
            MemberKind::Gap => rows(self.gaps.len(), Member::Gap),
            MemberKind::Rank => rows(self.ranks.len(), Member::Rank),
        }
    }

    pub(super) fn layer(&self, index: u32) -> Option<&LayerSums> {
        self.layers.get(index as usize)
    }

    /// The layer row of a site: that of its pattern, or the one for unknown layers.
    pub(super) fn layer_of(&self, site: SiteId) -> Option<&LayerSums> {
        let run = &self.costed.run;
        let pattern = run
            .site(site)?
            .layer
            .and_then(|id| run.layer(id))
            .map_or(run.patterns.len(), |l| l.pattern.idx());
        self.layers.get(pattern)
    }

    /// The part of the run that a member covers, with its location for display.
    pub fn affected(&self, member: Member) -> AffectedTime {
        self.affected_time(member, true).unwrap_or_default()
    }

    /// Like [`affected`](Self::affected), without the location, which is expensive for thousands of
    /// members.
    pub fn affected_without_place(&self, member: Member) -> AffectedTime {
        self.affected_time(member, false).unwrap_or_default()
    }

    fn affected_time(&self, member: Member, placed: bool) -> Option<AffectedTime> {
        let run = &self.costed.run;
        Some(match member {
            Member::Run => AffectedTime {
                idle_ns: self.totals.idle_ns,
                copy_ns: self.totals.copy_ns,
                calls: 1,
                time_ns: self.totals.gpu_busy_ns,
                place: "the whole run".into(),
                ..AffectedTime::default()
            },
            Member::Step(i) => {
                let step = run.steps.get(i as usize)?;
                AffectedTime {
                    calls: 1,
                    time_ns: step.span.ns() as f64,
                    place: format!("step {}", step.number),
                    ..AffectedTime::default()
                }
            }
            Member::Layer(i) => {
                let sums = self.layer(i)?;
                let sites = (sums.sites.iter())
                    .filter(|id| !self.is_search(**id))
                    .filter_map(|id| self.affected_site(*id, None))
                    .collect();
                AffectedTime {
                    sites,
                    calls: u64::from(sums.instances),
                    time_ns: sums.time_ns,
                    place: if sums.name.is_empty() {
                        "no layer known".into()
                    } else {
                        sums.name.clone()
                    },
                    layer: Some(sums.name.clone()).filter(|n| !n.is_empty()),
                    ..AffectedTime::default()
                }
            }
            Member::Site(id) => {
                let site = run.site(id)?;
                let (place, layer) = self.whereabouts(id, placed);
                AffectedTime {
                    uncounted: self.is_search(id),
                    sites: self.affected_site(id, None).into_iter().collect(),
                    launch_ns: of_site(&self.launch_ns, id),
                    host_ns: of_site(&self.host_ns, id),
                    calls: u64::from(site.calls),
                    time_ns: site.time_ns as f64,
                    place,
                    layer,
                    ..AffectedTime::default()
                }
            }
            Member::Kernel(id, row) => {
                let kernel = run.site(id)?.kernels.get(row as usize)?;
                let (place, layer) = self.whereabouts(id, placed);
                let part = self.affected_site(id, Some(kernel.time_ns as f64));
                let share = |ns: i64| ns as f64 / (kernel.time_ns as f64).max(1.0);
                let part = part.map(|part| AffectedSite {
                    exposed_share: share(kernel.exposed_ns),
                    beside_comm_share: share(kernel.beside_comm_ns),
                    ..part
                });
                AffectedTime {
                    uncounted: self.is_search(id),
                    sites: part.into_iter().collect(),
                    launch_ns: self.of_kernel(&self.launch_ns, id, kernel.count),
                    host_ns: self.of_kernel(&self.host_ns, id, kernel.count),
                    calls: u64::from(kernel.count),
                    time_ns: kernel.time_ns as f64,
                    place,
                    layer,
                    ..AffectedTime::default()
                }
            }
            Member::Chain(i) => {
                let chain = self.chains.get(i as usize)?;
                let sites_of = |sites: &BTreeMap<SiteId, f64>| {
                    let counted = sites.iter().filter(|(id, _)| !self.is_search(**id));
                    let sites_of = counted.filter_map(|(id, ns)| {
                        let mut affected = self.affected_site(*id, Some(*ns))?;
                        // A fused operator may be faster than the reachable time of its parts.
                        affected.floor_ns = 0.0;
                        Some(affected)
                    });
                    sites_of.collect()
                };
                let place = if chain.layer.is_empty() {
                    format!("{} ({})", chain.ops, chain.direction.name())
                } else {
                    format!(
                        "{} · {} ({})",
                        chain.layer,
                        chain.ops,
                        chain.direction.name()
                    )
                };
                let sum = |of_sites: &[f64]| -> f64 {
                    let all = chain.sites.iter().chain(&chain.backward);
                    let parts = all.chain(&chain.between).map(|(id, ns)| {
                        let whole = run.site(*id).map_or(0.0, |s| s.time_ns as f64);
                        of_site(of_sites, *id) * (ns / whole.max(1.0)).min(1.0)
                    });
                    parts.sum()
                };
                AffectedTime {
                    parts: chain.parts.clone(),
                    launch_ns: sum(&self.launch_ns),
                    host_ns: sum(&self.host_ns),
                    uncounted: chain.sites.keys().all(|id| self.is_search(*id)),
                    sites: sites_of(&chain.sites),
                    backward: sites_of(&chain.backward),
                    calls: chain.count,
                    time_ns: chain.time_ns,
                    place,
                    layer: Some(chain.layer.clone()).filter(|l| !l.is_empty()),
                    ..AffectedTime::default()
                }
            }
            Member::Copy(i) => {
                let group = self.copies.get(i as usize)?;
                // The host waits for none of these, so late launches may absorb what they save.
                let of_run = self.totals.step_weight.filter(|weight| *weight < 1.0);
                let inside = of_run.filter(|_| group.kind == CopyKind::DtoD);
                AffectedTime {
                    copy_ns: group.exposed_ns,
                    copy_weight: inside.map(|high| StepWeight { low: 0.0, high }),
                    calls: group.count,
                    time_ns: group.time_ns,
                    place: group.place(),
                    ..AffectedTime::default()
                }
            }
            Member::Gap(i) => {
                let group = self.gaps.get(i as usize)?;
                let late = group.cause == GapCause::HostLate;
                AffectedTime {
                    idle_ns: group.time_ns,
                    launch_ns: if late { group.time_ns } else { 0.0 },
                    catch_up_ns: group.sums.catch_up as f64,
                    longest_ns: group.sums.longest.counted as f64,
                    copy_ns: group.sums.copy as f64,
                    long_gaps: group.long_gaps.clone(),
                    calls: group.count,
                    waits: if late { 0 } else { group.waits },
                    time_ns: group.time_ns,
                    place: format!("GPU {} idle", group.ordinal),
                    ..AffectedTime::default()
                }
            }
            Member::Rank(i) => {
                let rank = self.ranks.get(i as usize)?;
                AffectedTime {
                    calls: 1,
                    time_ns: rank.kernel_ns,
                    place: format!("rank {}", rank.number),
                    ..AffectedTime::default()
                }
            }
        })
    }

    /// Whether a site is a library's algorithm search.
    fn is_search(&self, id: SiteId) -> bool {
        let cost = self.costed.cost_of(id);
        cost.is_some_and(|cost| cost.autotuning)
    }

    /// The part of a site in an [`AffectedTime`]; `part_ns` if only some of its time is affected.
    fn affected_site(&self, id: SiteId, part_ns: Option<f64>) -> Option<AffectedSite> {
        let site = self.costed.run.site(id)?;
        let whole = site.time_ns as f64;
        let time_ns = part_ns.unwrap_or(whole).min(whole);
        let share = if whole > 0.0 { time_ns / whole } else { 0.0 };
        let cost = self.costed.cost_of(id)?;
        let reachable = cost.reachable_ns.unwrap_or(0.0).min(whole) * share;
        let floor_ns = match cost.math_dtype {
            // The finding may be that fp64 is not needed, so its reachable time is no limit.
            Some(DType::Fp64) => 0.0,
            // Mixed precision halves the bytes of work that only moves them.
            Some(DType::Fp32) if is_memory_family(cost.family) => reachable / 2.0,
            _ => reachable,
        };
        Some(AffectedSite {
            site: id,
            time_ns,
            floor_ns,
            exposed_share: site.exposed_ns as f64 / whole.max(1.0),
            beside_comm_share: site.beside_comm_ns as f64 / whole.max(1.0),
            step_weight: (self.site_weights.get(id.idx()).copied())
                .or(self.totals.step_weight.map(StepWeight::exactly)),
        })
    }

    /// The part of a value of a site for some of its kernels, by their number.
    fn of_kernel(&self, of_sites: &[f64], id: SiteId, count: u32) -> f64 {
        let kernels = self.costed.run.site(id);
        let all = kernels.map_or(0, |site| site.kernels.iter().map(|k| k.count).sum());
        of_site(of_sites, id) * f64::from(count) / f64::from(all.max(1))
    }

    fn layer_name(&self, id: SiteId) -> Option<String> {
        self.layer_of(id)
            .map(|l| l.name.clone())
            .filter(|n| !n.is_empty())
    }

    /// Location and layer of a site, if requested.
    fn whereabouts(&self, id: SiteId, asked: bool) -> (String, Option<String>) {
        if asked {
            (self.site_place(id), self.layer_name(id))
        } else {
            (String::new(), None)
        }
    }

    /// `blocks.*.mlp: linear (bprop)`, or the kernel's label when no operator is known.
    fn site_place(&self, id: SiteId) -> String {
        let site = self.costed.run.site(id);
        let what = match site.and_then(|s| Some((s.op.as_ref()?, s.direction))) {
            Some((op, Direction::Unknown)) => op.display(),
            Some((op, direction)) => format!("{} ({})", op.display(), direction.name()),
            None => match self.costed.main_kernel(id) {
                Some(kernel) => kernel.label.clone(),
                None => "unknown kernel".into(),
            },
        };
        match self.layer_name(id) {
            Some(layer) => format!("{layer} · {what}"),
            None => what,
        }
    }
}

/// Kernel time per label, without algorithm searches, ns.
fn labels(costed: &Costed) -> FxHashMap<&str, f64> {
    let mut labels: FxHashMap<&str, f64> = FxHashMap::default();
    let sites = costed.run.sites.iter().zip(&costed.kernels);
    for ((site, names), cost) in sites.zip(&costed.sites) {
        if cost.autotuning {
            continue;
        }
        for (kernel, name) in site.kernels.iter().zip(names) {
            *labels.entry(&name.label).or_default() += kernel.time_ns as f64;
        }
    }
    labels
}

fn of_site(of_sites: &[f64], id: SiteId) -> f64 {
    of_sites.get(id.idx()).copied().unwrap_or(0.0)
}

/// Share of the window spent in waiting for worker processes from which these set the pace.
const PACED: f64 = 0.1;

/// The totals, without what is known of workers, of the host's work and of the weight of kernel time.
fn totals_of(run: &Run) -> Totals {
    let devices = &run.timeline.devices;
    let sum = |field: fn(&DeviceTimeline) -> i64| -> f64 {
        devices.iter().map(|d| field(d) as f64).sum()
    };
    let busy = sum(|d| d.busy_ns);
    let window = sum(DeviceTimeline::unrecorded_ns);
    let reliable_idle = sum(DeviceTimeline::reliable_idle_ns);
    Totals {
        gpu_busy_ns: busy,
        kernel_ns: run.sites.iter().map(|s| s.time_ns as f64).sum::<f64>() + sum(|d| d.graph_ns),
        window_ns: window,
        idle_ns: window - busy,
        reliable_idle_ns: reliable_idle,
        late_launch_ns: run
            .timeline
            .late_launches()
            .map(|gap| gap.reliable_ns as f64)
            .sum(),
        paced_by_workers: false,
        copy_ns: sum(|d| d.exposed_copy_ns),
        comm_ns: sum(|d| d.comm_ns),
        comm_slack_ns: sum(|d| d.comm_slack_ns),
        host_slack_ns: None,
        devices: u32::try_from(devices.len()).unwrap_or(u32::MAX),
        devices_at_once: at_once(devices),
        step_weight: None,
    }
}

/// Per site: the sum over its kernels.
fn of_sites(run: &Run, kernels: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; run.sites.len()];
    for (link, ns) in run.links.iter().zip(kernels) {
        if let Some(sum) = link.site.and_then(|site| sums.get_mut(site.idx())) {
            *sum += ns;
        }
    }
    sums
}

/// Per kernel: idle time in which the GPU waited for its launch, in ns; for the reduction of a gradient also for copies.
fn launch_ns_of_kernels(run: &Run) -> Vec<f64> {
    let mut times = vec![0.0; run.profile.kernels.len()];
    for (kernel, ns) in before_launches(run) {
        if let Some(time) = times.get_mut(kernel.idx()) {
            *time += ns;
        }
    }
    reduction_copies::add_idle_time(run, &mut times);
    times
}

/// Kernels that were launched late, with the idle time before them in ns. One call launches a whole CUDA graph, however
/// few kernels are in it.
fn before_launches(run: &Run) -> impl Iterator<Item = (KernelId, f64)> + '_ {
    let captured = |id: &KernelId| {
        let kernel = run.profile.kernel(*id);
        kernel.is_some_and(|kernel| kernel.captured.is_some())
    };
    run.timeline.late_launches().filter_map(move |gap| {
        let next = gap.next.filter(|kernel| !captured(kernel))?;
        Some((next, gap.reliable_ns as f64))
    })
}

/// Sums per pattern; the last row is for sites without a layer.
fn layers(costed: &Costed) -> Vec<LayerSums> {
    let run = &costed.run;
    let mut layers: Vec<LayerSums> = run
        .patterns
        .iter()
        .map(|p| LayerSums {
            name: p.name.clone(),
            instances: p.layers,
            ..LayerSums::default()
        })
        .collect();
    layers.push(LayerSums::default());
    let unknown = run.patterns.len();
    let sites = run.sites.iter().zip(&costed.sites).zip(&costed.kernels);
    for (row, ((site, cost), decoded)) in sites.enumerate() {
        let pattern = run.layer_of(site).map_or(unknown, |l| l.pattern.idx());
        let Some(sums) = layers.get_mut(pattern) else {
            continue;
        };
        sums.sites.push(SiteId::new(row));
        sums.time_ns += site.time_ns as f64;
        for (kernel, name) in site.kernels.iter().zip(decoded) {
            sums.kernels += u64::from(kernel.count);
            if is_memory_family(name.family) {
                sums.memory_ns += kernel.time_ns as f64;
            }
        }
        if let Some(best) = cost.best_ideal_ns {
            sums.best_ideal_ns += best;
            sums.ideal_time_ns += site.time_ns as f64;
        }
    }
    layers
}

/// The first row with each name.
fn first_rows(layers: &[LayerSums]) -> FxHashMap<String, u32> {
    let mut rows = FxHashMap::default();
    for (row, layer) in (0..).zip(layers) {
        rows.entry(layer.name.clone()).or_insert(row);
    }
    rows
}
