//! Floor 5: the waist of the hourglass. One table of facts, each with name, type, unit, sentence,
//! the families it applies to and what the profile must carry. Below it everything knows GPUs;
//! above it there are only names and values.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::correlate::SiteId;
use crate::cost::{Costed, Family};

/// What a rule is judged over: its `over` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Over {
    Run,
    Step,
    Layer,
    Site,
    Chain,
    Kernel,
    Copy,
    Gap,
    Rank,
}

impl Over {
    /// Every subject with the word rule files use.
    pub const ALL: [(Over, &'static str); 9] = [
        (Over::Run, "run"),
        (Over::Step, "step"),
        (Over::Layer, "layer"),
        (Over::Site, "site"),
        (Over::Chain, "chain"),
        (Over::Kernel, "kernel"),
        (Over::Copy, "copy"),
        (Over::Gap, "gap"),
        (Over::Rank, "rank"),
    ];

    /// The word, which is also the prefix of its facts: `site` for `site.time_ns`.
    pub fn word(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(o, _)| *o == self)
            .map_or("run", |(_, w)| w)
    }

    /// The subject a word stands for.
    pub fn parse(word: &str) -> Option<Over> {
        Self::ALL.iter().find(|(_, w)| *w == word).map(|(o, _)| *o)
    }

    /// The fact prefixes a rule over this subject may use besides its own: a kernel has its site, a
    /// site its layer; everything has the run and the GPU.
    pub fn prefixes(self) -> &'static [&'static str] {
        match self {
            Over::Run => &["run", "gpu"],
            Over::Step => &["step", "run", "gpu"],
            Over::Layer => &["layer", "run", "gpu"],
            Over::Site => &["site", "layer", "run", "gpu"],
            Over::Chain => &["chain", "layer", "run", "gpu"],
            Over::Kernel => &["kernel", "site", "layer", "run", "gpu"],
            Over::Copy => &["copy", "run", "gpu"],
            Over::Gap => &["gap", "run", "gpu"],
            Over::Rank => &["rank", "run", "gpu"],
        }
    }
}

/// The type of a fact. Times, FLOPs, bytes and shares are doubles; dims and counts are ints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    Bool,
    Int,
    Double,
    Str,
    /// A list of strings, at most 1,024.
    Strings,
    /// A map from string to double.
    Doubles,
    /// A map from string to int.
    Ints,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Bool(bool),
    Int(i64),
    Double(f64),
    Str(Arc<str>),
    Strings(Arc<[Arc<str>]>),
    Doubles(Arc<BTreeMap<Arc<str>, f64>>),
    Ints(Arc<BTreeMap<Arc<str>, i64>>),
}

/// What asking for a fact gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Value(Value),
    /// It applies, but the profile does not hold it: the rule is *not judged*.
    Absent,
    /// It means nothing for this family: the rule is silent.
    DoesNotApply,
}

/// One entry of the fact table.
#[derive(Debug)]
pub struct Fact {
    /// `site.time_ns`: prefix, dot, name; units are in the name.
    pub name: &'static str,
    pub ty: Ty,
    /// `ns`, `bytes`, `share`, ...; empty for words and flags.
    pub unit: &'static str,
    pub doc: &'static str,
    /// Families it applies to; empty means all.
    pub families: &'static [Family],
    /// What the profile must carry, said as how to collect it; empty when always there.
    pub needs: &'static str,
}

/// Anything facts can be asked of: a member of a real run, or the facts of a rule's test.
pub trait Lookup: Sync {
    fn get(&self, name: &str) -> Answer;
}

/// One thing a rule can be judged on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    Run,
    Step(u32),
    /// Index into `Run::patterns`.
    Layer(u32),
    Site(SiteId),
    Chain(u32),
    /// A row of `Site::kernels`.
    Kernel(SiteId, u32),
    Copy(u32),
    Gap(u32),
    Rank(u32),
}

/// What a member stands for when savings are claimed and findings are shown.
#[derive(Debug, Clone, Default)]
pub struct Stake {
    /// The sites whose time it covers: ns, and the ns below which nothing can be claimed.
    pub sites: Vec<SiteStake>,
    /// Idle ns it covers.
    pub idle_ns: f64,
    /// Exposed copy ns it covers.
    pub copy_ns: f64,
    pub calls: u64,
    /// All GPU (or idle, or copy) ns it covers.
    pub time_ns: f64,
    /// Where, for people, not escaped: layer pattern and operator, or what else names it.
    pub place: String,
    /// The layer pattern it belongs to, if any.
    pub layer: Option<String>,
}

/// A site's part in a stake.
#[derive(Debug, Clone, Copy)]
pub struct SiteStake {
    pub site: SiteId,
    pub time_ns: f64,
    /// Reachable time: claims never go below it. 0 when unknown.
    pub floor_ns: f64,
}

/// The facts of one run.
#[derive(Debug)]
pub struct Table<'a> {
    pub costed: &'a Costed,
}

/// The facts of one member.
#[derive(Debug)]
pub struct View<'a> {
    pub table: &'a Table<'a>,
    pub member: Member,
}
