//! Evaluates one rule on all members it is over.

use std::collections::BTreeMap;

use rayon::prelude::*;

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
    /// The same, but it need not say where that is.
    fn stake_anywhere(&self, member: Member) -> Stake {
        self.stake(member)
    }
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

    fn stake_anywhere(&self, member: Member) -> Stake {
        Table::stake_anywhere(self, member)
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
        self.add_many(message, 1);
    }

    fn add_many(&mut self, message: String, count: u64) {
        let full = self.0.len() >= Self::MOST && !self.0.contains_key(&message);
        let message = if full {
            "other failures".to_owned()
        } else {
            message
        };
        *self.0.entry(message).or_default() += count;
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
    /// Judges the next member.
    fn member(&mut self, rule: &Rule, member: Member, facts: &dyn Lookup, bench: &dyn Bench) {
        let scene = Scene::new(facts, &rule.settings, &rule.lets, None);
        match scene.picks(&rule.when) {
            Ok(false) => {}
            Ok(true) => {
                let saving = saving(rule, &scene, &mut self.faults);
                self.picks.push(Pick {
                    member,
                    stake: bench.stake(member),
                    saving,
                });
            }
            Err(why) => self.undecided(why, member),
        }
    }

    /// Adds what was made of the members behind these.
    fn append(&mut self, behind: Judged) {
        self.picks.extend(behind.picks);
        for (fact, members) in behind.missing {
            self.missing.entry(fact).or_default().extend(members);
        }
        for (message, count) in behind.faults.0 {
            self.faults.add_many(message, count);
        }
    }

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

/// Judges every member of one kind by the rules over that kind: what each rule makes of them.
pub(super) fn examine(rules: &[&Rule], members: &[Member], bench: &dyn Bench) -> Vec<Judged> {
    /// Members that one thread judges. Who is judged with whom decides which messages are kept apart.
    const PIECE: usize = 64;
    let none = || rules.iter().map(|_| Judged::default()).collect();
    let pieces = members.par_chunks(PIECE).map(|members| {
        let mut judged: Vec<Judged> = none();
        for &member in members {
            let lookup = bench.lookup(member);
            for (rule, judged) in rules.iter().zip(&mut judged) {
                judged.member(rule, member, &*lookup, bench);
            }
        }
        judged
    });
    // In order of the members, however the work was shared out.
    let pieces: Vec<Vec<Judged>> = pieces.collect();
    pieces.into_iter().fold(none(), |mut all, piece| {
        for (all, piece) in all.iter_mut().zip(piece) {
            all.append(piece);
        }
        all
    })
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
