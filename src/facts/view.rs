//! Looks facts up: which there are, and what they say of a member.

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use super::chain::{ChainScope, Chains};
use super::copy::{Copies, CopyScope};
use super::fact::{Answer, Fact, FactEntry, Lookup, Member, Subject};
use super::gpu::{GpuScope, GpuSubject};
use super::kernel::{KernelScope, Kernels};
use super::layer::{LayerScope, LayerSums, Layers};
use super::site::{SiteScope, Sites};
use super::step::{Ranks, StepScope, StepSubject};
use super::table::{FactTable, GapScope, Gaps, Runs};
use crate::cost::Family;

/// The facts of one member.
pub struct FactView<'a> {
    table: &'a FactTable<'a>,
    member: Member,
    /// Looked up once, because dozens of rules use several facts each.
    site: Option<SiteScope<'a>>,
    kernel: Option<KernelScope<'a>>,
}

impl std::fmt::Debug for FactView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FactView").field(&self.member).finish()
    }
}

impl FactTable<'_> {
    /// The facts of a member.
    pub fn view(&self, member: Member) -> FactView<'_> {
        let site = match member {
            Member::Site(id) | Member::Kernel(id, _) => SiteScope::new(self, id),
            _ => None,
        };
        let kernel = match member {
            Member::Kernel(_, row) => site.and_then(|site| KernelScope::new(site, row as usize)),
            _ => None,
        };
        FactView {
            table: self,
            member,
            site,
            kernel,
        }
    }
}

/// A fact entry, by its subject type.
enum Question {
    Run(&'static FactEntry<Runs>),
    Gpu(&'static FactEntry<GpuSubject>),
    Site(&'static FactEntry<Sites>),
    Kernel(&'static FactEntry<Kernels>),
    Layer(&'static FactEntry<Layers>),
    Chain(&'static FactEntry<Chains>),
    Copy(&'static FactEntry<Copies>),
    Gap(&'static FactEntry<Gaps>),
    Step(&'static FactEntry<StepSubject>),
    Rank(&'static FactEntry<Ranks>),
}

/// Facts by name, each with its entry.
type Questions = FxHashMap<&'static str, (Fact, Question)>;

/// Every fact by name. A map, because rules look up hundreds of facts per site.
static QUESTIONS: LazyLock<Questions> = LazyLock::new(|| {
    fn add<S: Subject>(
        to: &mut Questions,
        entries: impl IntoIterator<Item = &'static FactEntry<S>>,
        wrap: fn(&'static FactEntry<S>) -> Question,
    ) {
        for entry in entries {
            let other = to.insert(entry.fact.name, (entry.fact, wrap(entry)));
            assert!(other.is_none(), "{} is declared twice", entry.fact.name);
        }
    }
    let mut all = FxHashMap::default();
    let of_run = [
        super::run::ENTRIES,
        super::graphs::ENTRIES,
        super::host::ENTRIES,
        super::sync::ENTRIES,
        super::memory::ENTRIES,
        super::loader_config::ENTRIES,
        super::worker_start::ENTRIES,
        super::cpu_use::ENTRIES,
        super::framework_signs::ENTRIES,
        super::program::ENTRIES,
        super::embedding_tables::RUN_ENTRIES,
        super::equal_networks::RUN_ENTRIES,
        super::host_work::RUN_ENTRIES,
        super::gradient_sums::ENTRIES,
        super::needless_gradients::ENTRIES,
        super::step_stability::ENTRIES,
        super::first_fp64::ENTRIES,
        super::growing_passes::RUN_ENTRIES,
        super::decoding::ENTRIES,
        super::padded_lengths::ENTRIES,
        super::computed_weights::RUN_ENTRIES,
        super::gap::RUN_ENTRIES,
    ];
    add(&mut all, of_run.into_iter().flatten(), Question::Run);
    add(&mut all, super::gpu::ENTRIES, Question::Gpu);
    add(&mut all, super::site::ENTRIES, Question::Site);
    add(&mut all, super::main_kernel::ENTRIES, Question::Site);
    add(&mut all, super::message::ENTRIES, Question::Site);
    add(&mut all, super::conversion::ENTRIES, Question::Site);
    add(&mut all, super::computed_weights::ENTRIES, Question::Site);
    add(
        &mut all,
        super::embedding_tables::SITE_ENTRIES,
        Question::Site,
    );
    add(&mut all, super::table_series::ENTRIES, Question::Site);
    add(&mut all, super::slice_gradients::ENTRIES, Question::Site);
    add(
        &mut all,
        super::needless_gradients::SITE_ENTRIES,
        Question::Site,
    );
    add(
        &mut all,
        super::growing_passes::SITE_ENTRIES,
        Question::Site,
    );
    add(&mut all, super::maker::ENTRIES, Question::Kernel);
    add(&mut all, super::cutlass::ENTRIES, Question::Kernel);
    add(&mut all, super::kernel::ENTRIES, Question::Kernel);
    add(&mut all, super::layer::ENTRIES, Question::Layer);
    add(&mut all, super::chain::ENTRIES, Question::Chain);
    add(&mut all, super::copy::ENTRIES, Question::Copy);
    add(&mut all, super::gap::entries(), Question::Gap);
    add(&mut all, super::step::STEP_ENTRIES, Question::Step);
    add(&mut all, super::step::RANK_ENTRIES, Question::Rank);
    all
});

/// The whole table, sorted by name.
pub fn all() -> &'static [Fact] {
    static ALL: LazyLock<Vec<Fact>> = LazyLock::new(|| {
        let mut facts: Vec<Fact> = QUESTIONS.values().map(|(fact, _)| *fact).collect();
        facts.sort_by_key(|fact| fact.name);
        facts
    });
    &ALL
}

/// The fact with this name.
pub fn find(name: &str) -> Option<&'static Fact> {
    QUESTIONS.get(name).map(|(fact, _)| fact)
}

impl Lookup for FactView<'_> {
    fn get(&self, name: &str) -> Answer {
        self.answer(name).unwrap_or(Answer::Absent)
    }
}

impl FactView<'_> {
    /// The answer; `None` if the member has no such fact, for example a site fact of a run.
    fn answer(&self, name: &str) -> Option<Answer> {
        let table = self.table;
        Some(match (&QUESTIONS.get(name)?.1, self.member) {
            (Question::Run(entry), _) => (entry.get)(table),
            (Question::Gpu(entry), _) => (entry.get)(&GpuScope::new(table)),
            (Question::Site(entry), _) => {
                let site = self.site.as_ref()?;
                if excludes(entry.fact.families, site.cost.family) {
                    return Some(Answer::DoesNotApply);
                }
                (entry.get)(site)
            }
            (Question::Kernel(entry), _) => {
                let kernel = self.kernel.as_ref()?;
                if excludes(entry.fact.families, kernel.name.family) {
                    return Some(Answer::DoesNotApply);
                }
                (entry.get)(kernel)
            }
            (Question::Layer(entry), _) => {
                let sums = self.layer()?;
                (entry.get)(&LayerScope { table, sums })
            }
            (Question::Chain(entry), Member::Chain(i)) => {
                let chain = table.chains.get(i as usize)?;
                (entry.get)(&ChainScope { table, chain })
            }
            (Question::Copy(entry), Member::Copy(i)) => {
                let group = table.copies.get(i as usize)?;
                (entry.get)(&CopyScope { table, group })
            }
            (Question::Gap(entry), Member::Gap(i)) => {
                let group = table.gaps.get(i as usize)?;
                (entry.get)(&GapScope { table, group })
            }
            (Question::Step(entry), Member::Step(i)) => {
                let step = table.costed.run.steps.get(i as usize)?;
                (entry.get)(&StepScope { table, step })
            }
            (Question::Rank(entry), Member::Rank(i)) => (entry.get)(table.ranks.get(i as usize)?),
            _ => return None,
        })
    }

    /// The layer that the member is or belongs to.
    fn layer(&self) -> Option<&LayerSums> {
        let table = self.table;
        match self.member {
            Member::Layer(i) => table.layer(i),
            Member::Site(id) | Member::Kernel(id, _) => table.layer_of(id),
            Member::Chain(i) => {
                let name = &table.chains.get(i as usize)?.layer;
                table.layer(*table.layer_rows.get(name)?)
            }
            _ => None,
        }
    }
}

fn excludes(families: &[Family], family: Family) -> bool {
    !families.is_empty() && !families.contains(&family)
}
