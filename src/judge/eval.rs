//! Evaluates one rule on all members it is over.

use std::collections::BTreeMap;

use super::expr::{Scene, Undecided};
use super::rule::Rule;
use crate::facts::{self, Fact, Lookup, Member, Over, Stake, Table, Totals};

/// What rules are judged on: members with facts, and the time each stands for.
///
/// The fact table of a run is one; tests have their own.
pub trait Bench: Sync {
    /// The fact table.
    fn facts(&self) -> &[Fact];
    /// Everything of one kind, in a fixed order.
    fn members(&self, over: Over) -> Vec<Member>;
    /// The facts of one member.
    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_>;
    /// What one member stands for.
    fn stake(&self, member: Member) -> Stake;
    /// The run's sums.
    fn totals(&self) -> Totals;
}

impl Bench for Table<'_> {
    fn facts(&self) -> &[Fact] {
        facts::all()
    }

    fn members(&self, over: Over) -> Vec<Member> {
        Table::members(self, over)
    }

    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_> {
        Box::new(self.view(member))
    }

    fn stake(&self, member: Member) -> Stake {
        Table::stake(self, member)
    }

    fn totals(&self) -> Totals {
        Table::totals(self)
    }
}

/// A member the condition picked.
#[derive(Debug, Clone)]
pub(super) struct Pick {
    pub(super) member: Member,
    pub(super) stake: Stake,
    /// ns given back, upper end; `None` where it cannot be said.
    pub(super) saving: Option<f64>,
}

/// A rule's failures: message and count.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(BTreeMap<String, u64>);

impl Faults {
    /// Different messages of one rule that are kept apart.
    const MOST: usize = 5;

    pub(super) fn add(&mut self, message: String) {
        let full = self.0.len() >= Self::MOST && !self.0.contains_key(&message);
        let message = if full {
            "other failures".to_owned()
        } else {
            message
        };
        *self.0.entry(message).or_default() += 1;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0
            .iter()
            .map(|(message, count)| (message.as_str(), *count))
    }
}

/// Members that could not be judged, by the fact that was absent.
pub(super) type Missing = BTreeMap<&'static str, Vec<Member>>;

/// What a rule makes of a run, before anything is gathered.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) picks: Vec<Pick>,
    pub(super) missing: Missing,
    pub(super) faults: Faults,
}

impl Judged {
    /// Notes why something was undecided. A fact that does not apply is nobody's business.
    pub(super) fn undecided(&mut self, why: Undecided, member: Member) {
        match why {
            Undecided::Silent => {}
            Undecided::Fault(message) => self.faults.add(message),
            Undecided::NotJudged(facts) => {
                for fact in facts {
                    self.missing.entry(fact).or_default().push(member);
                }
            }
        }
    }
}

/// Judges every member, in order.
pub(super) fn examine(rule: &Rule, members: &[Member], bench: &dyn Bench) -> Judged {
    let mut judged = Judged::default();
    for &member in members {
        let lookup = bench.lookup(member);
        let scene = Scene::new(&*lookup, &rule.settings, &rule.lets, None);
        match scene.picks(&rule.when) {
            Ok(false) => {}
            Ok(true) => {
                let saving = saving(rule, &scene, &mut judged.faults);
                judged.picks.push(Pick {
                    member,
                    stake: bench.stake(member),
                    saving,
                });
            }
            Err(why) => judged.undecided(why, member),
        }
    }
    judged
}

/// The saving of a picked member. Without it the finding still stands, so only faults are noted.
pub(super) fn saving(rule: &Rule, scene: &Scene<'_>, faults: &mut Faults) -> Option<f64> {
    match scene.number(rule.saving_ns.as_ref()?) {
        Ok(saving) => Some(saving.max(0.0)),
        Err(Undecided::Fault(message)) => {
            faults.add(format!("saving_ns: {message}"));
            None
        }
        Err(_) => None,
    }
}
