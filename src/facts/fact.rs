//! What a fact is, and what it may be asked of.

use std::sync::Arc;

pub use crate::base::cel::{Type, Value};
use crate::base::words::words;
use crate::correlate::SiteId;
use crate::cost::Family;

words! {
    /// The kind of thing a rule is evaluated for: one finding per member of this kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum MemberKind with fn word {
        /// The whole run.
        Run = "run",
        /// A numbered step.
        Step = "step",
        /// A layer pattern, such as `blocks.*.mlp`.
        Layer = "layer",
        /// All calls with the same layer, operator, direction, shapes and dtypes.
        Site = "site",
        /// A recognized sequence of operator calls.
        Chain = "chain",
        /// A kernel of a site.
        Kernel = "kernel",
        /// Memory copies with the same direction, kinds of memory and kind of call.
        Copy = "copy",
        /// Idle intervals with the same device, cause and operator.
        Gap = "gap",
        /// A process, usually one rank of a distributed job.
        Rank = "rank",
    }
}

impl MemberKind {
    /// The subject of a word.
    pub fn parse(word: &str) -> Option<MemberKind> {
        Self::ALL.iter().find(|(_, w)| *w == word).map(|(o, _)| *o)
    }

    /// The fact prefixes that a rule for this subject may use. Kernels also have the facts of their
    /// site, sites those of their layer, and all have those of the run and the GPU.
    pub fn prefixes(self) -> &'static [&'static str] {
        match self {
            MemberKind::Run => &["run", "gpu"],
            MemberKind::Step => &["step", "run", "gpu"],
            MemberKind::Layer => &["layer", "run", "gpu"],
            MemberKind::Site => &["site", "layer", "run", "gpu"],
            MemberKind::Chain => &["chain", "layer", "run", "gpu"],
            MemberKind::Kernel => &["kernel", "site", "layer", "run", "gpu"],
            MemberKind::Copy => &["copy", "run", "gpu"],
            MemberKind::Gap => &["gap", "run", "gpu"],
            MemberKind::Rank => &["rank", "run", "gpu"],
        }
    }
}

/// The result of looking up a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The fact is known.
    Value(Value),
    /// The fact applies, but the profile does not record it: the rule is skipped.
    Absent,
    /// The fact has no meaning for this member: the rule reports nothing.
    DoesNotApply,
}

/// One entry of the fact table.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// `site.time_ns`: prefix, dot, name; units are in the name.
    pub name: &'static str,
    /// The type of its value. Times, FLOPs, bytes and shares are doubles; dims and counts are ints.
    pub ty: Type,
    /// One sentence without a full stop, for the reference page.
    pub doc: &'static str,
    /// Families it applies to; empty means all.
    pub families: &'static [Family],
    /// The data the profile must contain, phrased as how to record it; empty when always there.
    pub needs: &'static str,
}

/// A source of facts: a member of a run, or the facts of a rule's test.
pub trait Lookup: Sync {
    /// Returns the fact of this name; [`Answer::Absent`] for a name that is not in the table.
    fn get(&self, name: &str) -> Answer;
}

/// A member of a run that rules are evaluated for. Numbers are rows of the fact table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Member {
    /// The whole run.
    Run,
    /// Index into `Run::steps`.
    Step(u32),
    /// Index into `Run::patterns`.
    Layer(u32),
    /// Index into `Run::sites`.
    Site(SiteId),
    /// A recognized sequence of operator calls.
    Chain(u32),
    /// A site, and the row in its `Site::kernels`.
    Kernel(SiteId, u32),
    /// A group of memory copies.
    Copy(u32),
    /// A group of idle intervals.
    Gap(u32),
    /// A process with work inside the window.
    Rank(u32),
}

/// A subject type, with the type that its facts are computed from.
pub(super) trait Subject {
    type Of<'a>;
}

/// A fact and the function that computes it.
pub(super) struct FactEntry<S: Subject> {
    pub(super) fact: Fact,
    pub(super) get: for<'a, 'b> fn(&'a S::Of<'b>) -> Answer,
}

impl Fact {
    /// A fact of all families that every profile has.
    pub const fn new(name: &'static str, ty: Type, doc: &'static str) -> Fact {
        Fact {
            name,
            ty,
            doc,
            families: &[],
            needs: "",
        }
    }

    /// `ns`, `bytes`, `share`, ..., which the end of its name says; empty for words and flags.
    pub fn unit(&self) -> &'static str {
        const UNITS: [(&str, &str); 7] = [
            ("_ns", "ns"),
            ("_bytes", "bytes"),
            ("_share", "share"),
            ("_per_s", "bytes/s"),
            ("site.flops", "FLOP"),
            ("flops", "FLOP/s"),
            ("align", "elements"),
        ];
        let unit = UNITS.iter().find(|(end, _)| self.name.ends_with(end));
        unit.map_or("", |(_, unit)| unit)
    }
}

impl Answer {
    /// The share of a part in a whole; does not apply if the whole is 0.
    pub(super) fn share(part: f64, whole: f64) -> Answer {
        Answer::or_silent((whole > 0.0).then_some(part / whole))
    }

    /// A value that no other capture would add: does not apply if it is unknown.
    pub(super) fn or_silent(value: Option<impl Into<Answer>>) -> Answer {
        value.map_or(Answer::DoesNotApply, Into::into)
    }
}

/// A value that the profile does not record is absent.
impl<T: Into<Answer>> From<Option<T>> for Answer {
    fn from(value: Option<T>) -> Answer {
        value.map_or(Answer::Absent, Into::into)
    }
}

impl From<f64> for Answer {
    fn from(value: f64) -> Answer {
        let finite = value.is_finite().then_some(value);
        finite.map_or(Answer::Absent, |value| Answer::Value(Value::Double(value)))
    }
}

impl From<u64> for Answer {
    fn from(value: u64) -> Answer {
        Answer::Value(Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
    }
}

impl From<u32> for Answer {
    fn from(value: u32) -> Answer {
        Answer::Value(Value::Int(value.into()))
    }
}

impl From<bool> for Answer {
    fn from(value: bool) -> Answer {
        Answer::Value(Value::Bool(value))
    }
}

impl From<&str> for Answer {
    fn from(value: &str) -> Answer {
        Answer::Value(Value::Str(value.into()))
    }
}

impl From<String> for Answer {
    fn from(value: String) -> Answer {
        Answer::from(value.as_str())
    }
}

impl From<Arc<[Arc<str>]>> for Answer {
    fn from(value: Arc<[Arc<str>]>) -> Answer {
        Answer::Value(Value::Strings(value))
    }
}

/// Declares facts: description, name and type, what a profile may lack (one of [`needs`](super::needs)), the families, and
/// how the answer follows from the subject.
macro_rules! facts {
    ($($(#[doc = $doc:literal])+ $name:literal: $ty:ident $(needs $needs:ident)? $(of $families:expr)? =>
        |$subject:ident| $answer:expr,)*) => {
        &[$($crate::facts::fact::FactEntry {
            fact: $crate::facts::fact::Fact {
                $(needs: $crate::facts::needs::$needs,)?
                $(families: $families,)?
                ..$crate::facts::fact::Fact::new(
                    $name,
                    $crate::facts::fact::Type::$ty,
                    concat!($($doc),+).trim_ascii_start(),
                )
            },
            get: |$subject| $crate::facts::fact::Answer::from($answer),
        }),*]
    };
}
pub(super) use facts;
