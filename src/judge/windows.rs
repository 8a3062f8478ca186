//! Two recordings of the same steps as one input of rules: idle time from the one that slowed the host least,
//! operators from the detailed one.

use super::evaluate::RuleInput;
use super::finding::SavingKind;
use super::rule::Rule;
use crate::facts::{AffectedTime, Answer, FactTable, FactView, Lookup, Member, MemberKind, Totals};

/// The category of rules about what the host does while the GPU waits.
const HOST: &str = "host";
/// How the names of facts about the idle time of a run and the length of its steps begin.
const IDLE_FACTS: [&str; 4] = [
    "run.idle_",
    "run.recording_",
    "run.longest_step_",
    "run.step_spread",
];

/// Whether a rule is about idle time, or about how reliable it is.
pub(super) fn is_about_idle(rule: &Rule) -> bool {
    match rule.for_each {
        MemberKind::Gap => true,
        MemberKind::Run if rule.is_profile() => {
            let uses = rule.condition_uses();
            let is_idle = |fact: &&str| IDLE_FACTS.iter().any(|start| fact.starts_with(start));
            uses.facts.iter().any(is_idle)
        }
        MemberKind::Run => rule.category() == HOST || rule.saving_kind() == SavingKind::Idle,
        _ => false,
    }
}

/// The input on which a rule is evaluated.
pub(super) fn input_of<'a>(input: &'a dyn RuleInput, rule: &Rule) -> &'a dyn RuleInput {
    match input.light() {
        Some(light) if is_about_idle(rule) => light,
        _ => input,
    }
}

/// The facts of two recordings of the same steps.
#[derive(Debug)]
pub struct WindowPair<'a> {
    detailed: &'a FactTable<'a>,
    light: LightWindow<'a>,
}

impl<'a> WindowPair<'a> {
    /// The detailed recording must have [the times](FactTable::timed_by) of the light one.
    pub fn new(detailed: &'a FactTable<'a>, light: &'a FactTable<'a>) -> WindowPair<'a> {
        WindowPair {
            detailed,
            light: LightWindow { light, detailed },
        }
    }
}

impl RuleInput for WindowPair<'_> {
    fn members(&self, kind: MemberKind) -> Vec<Member> {
        self.detailed.members(kind)
    }

    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_> {
        RuleInput::lookup(self.detailed, member)
    }

    fn affected(&self, member: Member) -> AffectedTime {
        self.detailed.affected(member)
    }

    fn affected_without_place(&self, member: Member) -> AffectedTime {
        self.detailed.affected_without_place(member)
    }

    fn totals(&self) -> Totals {
        self.detailed.totals()
    }

    fn light(&self) -> Option<&dyn RuleInput> {
        Some(&self.light)
    }
}

/// The light recording. What it lacks of the run, the detailed one may have.
#[derive(Debug)]
struct LightWindow<'a> {
    light: &'a FactTable<'a>,
    detailed: &'a FactTable<'a>,
}

impl RuleInput for LightWindow<'_> {
    fn members(&self, kind: MemberKind) -> Vec<Member> {
        self.light.members(kind)
    }

    fn lookup(&self, member: Member) -> Box<dyn Lookup + '_> {
        Box::new(Either {
            light: self.light.view(member),
            run: self.detailed.view(Member::Run),
        })
    }

    fn affected(&self, member: Member) -> AffectedTime {
        self.light.affected(member)
    }

    fn affected_without_place(&self, member: Member) -> AffectedTime {
        self.light.affected_without_place(member)
    }

    fn totals(&self) -> Totals {
        self.light.totals()
    }
}

/// The facts of a member of the light recording, and those of the run in the detailed one.
struct Either<'a> {
    light: FactView<'a>,
    run: FactView<'a>,
}

impl Lookup for Either<'_> {
    fn get(&self, name: &str) -> Answer {
        match self.light.get(name) {
            Answer::Absent => self.run.get(name),
            answer => answer,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;
    use crate::cost::{Costed, estimate_costs};
    use crate::facts;
    use crate::judge::{RuleSet, Selection};

    #[test]
    fn rules_about_idle_time_use_the_light_recording() {
        let files = RuleSet::builtin_files_for_analysis();
        let rules = RuleSet::load(&files, &Selection::default(), facts::all()).unwrap();
        for (id, about_idle) in [
            ("host/launch-bound", true),
            ("host/synchronizations", true),
            ("fusion/cuda-graph", true),
            ("profile/idle-unreliable", true),
            ("profile/uneven-steps", true),
            ("profile/no-shapes", false),
            ("precision/amp-off", false),
            ("copies/pageable", false),
            // Fewer launches may save idle time, but of operators.
            ("layers/optimizer-foreach", false),
        ] {
            assert_eq!(is_about_idle(rules.get(id).unwrap()), about_idle, "{id}");
        }
    }

    #[test]
    fn facts_of_the_run_that_the_light_recording_lacks_come_from_the_detailed_one() {
        let recorded = |api_calls: bool| -> Costed {
            let mut profile = ProfileBuilder::new();
            profile.launch(0);
            profile.launch(1_000_000);
            profile.profile.recorded.api_calls = api_calls;
            estimate_costs(profile.run(), None)
        };
        let (light, detailed) = (recorded(false), recorded(true));
        let (light, detailed) = (FactTable::new(&light), FactTable::new(&detailed));
        let both = WindowPair::new(&detailed, &light);
        let joined = both.light().unwrap().lookup(Member::Run);
        let (light, detailed) = (light.view(Member::Run), detailed.view(Member::Run));
        let mut filled = 0;
        for fact in facts::all().iter().filter(|f| f.name.starts_with("run.")) {
            let own = light.get(fact.name);
            filled += usize::from(own == Answer::Absent && detailed.get(fact.name) != own);
            let expected = match own {
                Answer::Absent => detailed.get(fact.name),
                own => own,
            };
            assert_eq!(joined.get(fact.name), expected, "{}", fact.name);
        }
        assert!(filled > 0);
    }
}
