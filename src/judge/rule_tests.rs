//! Runs a rule's own tests: its examples are its documentation, and they are held to.
//!
//! Rules are proved on facts, never on whole profiles, and the sentence is compared word for word:
//! wording is under test like everything else.

use std::collections::BTreeMap;

use super::evaluate::{self, Faults};
use super::expr::{EvalContext, Found, Undecided};
use super::rule::{Case, Expect, Rule};
use super::{Severity, template};
use crate::facts::{Answer, Fact, Lookup, Value};

/// The `gpu.` facts of a GPU's id.
pub type GpuFacts<'a> = dyn Fn(&str) -> Option<BTreeMap<String, Value>> + Sync + 'a;

/// A test and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct TestResult {
    /// Id of the rule.
    pub rule: String,
    /// Name of the test.
    pub test: String,
    /// Its outcome.
    pub outcome: TestOutcome,
}

impl TestResult {
    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.outcome == TestOutcome::Pass
    }
}

/// How a test went.
#[derive(Debug, Clone, PartialEq)]
pub enum TestOutcome {
    /// The test passed.
    Pass,
    /// The rule should have fired; contains what happened instead.
    Missing(String),
    /// The rule should not have fired; contains its message.
    Noisy(String),
    /// The rule fired with a different message.
    Sentence {
        /// Expected message.
        want: String,
        /// Actual message.
        got: String,
    },
    /// The rule should have been skipped because facts are absent; contains what happened instead.
    NotSkipped {
        /// Facts expected to be absent.
        want: Vec<String>,
        /// What happened instead.
        got: String,
    },
    /// The rule fired with a different saving, ns.
    Saving {
        /// Expected saving.
        want: f64,
        /// Actual saving, if any.
        got: Option<f64>,
    },
    /// The rule fired with a different severity.
    Severity {
        /// Expected severity.
        want: Severity,
        /// Actual severity.
        got: Severity,
    },
    /// The rule failed, with the error message.
    Fault(String),
    /// The test names a GPU id that does not exist.
    NoGpu(String),
}

impl std::fmt::Display for TestOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TestOutcome::Pass => write!(f, "ok"),
            TestOutcome::Missing(got) => write!(f, "missing: it should fire, but {got}"),
            TestOutcome::Noisy(said) => write!(f, "noisy: it should be silent, but says\n  {said}"),
            TestOutcome::Sentence { want, got } => {
                write!(f, "another sentence\n  wanted: {want}\n  said:   {got}")
            }
            TestOutcome::NotSkipped { want, got } => {
                write!(
                    f,
                    "it should not be judged for want of {}, but {got}",
                    want.join(", ")
                )
            }
            TestOutcome::Saving { want, got } => match got {
                Some(got) => write!(f, "a saving of {got} ns, not {want} ns"),
                None => write!(f, "no saving, not {want} ns"),
            },
            TestOutcome::Severity { want, got } => {
                write!(f, "severity {}, not {}", got.word(), want.word())
            }
            TestOutcome::Fault(message) => write!(f, "the rule failed: {message}"),
            TestOutcome::NoGpu(id) => write!(f, "there is no GPU `{id}`"),
        }
    }
}

/// Runs every test of some rules.
pub fn run_tests<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    facts: &[Fact],
    gpu: &GpuFacts<'_>,
) -> Vec<TestResult> {
    let mut results = Vec::new();
    for rule in rules {
        for case in &rule.tests {
            results.push(TestResult {
                rule: rule.id.clone(),
                test: case.name.clone(),
                outcome: run(rule, case, facts, gpu),
            });
        }
    }
    results
}

/// The facts of a test.
#[derive(Debug)]
struct Example<'a> {
    given: BTreeMap<String, Value>,
    facts: &'a [Fact],
}

impl Lookup for Example<'_> {
    fn get(&self, name: &str) -> Answer {
        if let Some(value) = self.given.get(name) {
            return Answer::Value(value.clone());
        }
        let Some((prefix, _)) = name.split_once('.') else {
            return Answer::Absent;
        };
        let families = self
            .facts
            .iter()
            .find(|f| f.name == name)
            .map(|f| f.families);
        match (families, self.given.get(&format!("{prefix}.family"))) {
            (Some(families), Some(Value::Str(family)))
                if !families.is_empty() && !families.iter().any(|f| f.name() == &**family) =>
            {
                Answer::DoesNotApply
            }
            _ => Answer::Absent,
        }
    }
}

/// What a rule does with an example.
enum Said {
    Fired {
        message: String,
        saving: Option<f64>,
        severity: Severity,
    },
    Nothing(&'static str),
    NotJudged(Vec<String>),
}

fn run(rule: &Rule, case: &Case, facts: &[Fact], gpu: &GpuFacts<'_>) -> TestOutcome {
    let mut given = BTreeMap::new();
    if let Some(id) = &case.gpu {
        match gpu(id) {
            Some(facts) => given = facts,
            None => return TestOutcome::NoGpu(id.clone()),
        }
    }
    given.extend(case.facts.clone());
    match (say(rule, case, &Example { given, facts }), &case.expect) {
        (Err(fault), _) => TestOutcome::Fault(fault),
        (Ok(Said::Fired { message, .. }), Expect::Silent) => TestOutcome::Noisy(message),
        (Ok(Said::Nothing(_)), Expect::Silent) => TestOutcome::Pass,
        (Ok(Said::NotJudged(facts)), Expect::Silent) => {
            TestOutcome::Noisy(format!("(not judged for want of {})", facts.join(", ")))
        }
        // What an example leaves out is absent too; it need not list all of that.
        (Ok(Said::NotJudged(got)), Expect::Skipped(want))
            if want.iter().all(|fact| got.contains(fact)) =>
        {
            TestOutcome::Pass
        }
        (Ok(said), Expect::Skipped(want)) => TestOutcome::NotSkipped {
            want: want.clone(),
            got: said.describe(),
        },
        (Ok(said @ (Said::Nothing(_) | Said::NotJudged(_))), Expect::Fires(_)) => {
            TestOutcome::Missing(said.describe())
        }
        (
            Ok(Said::Fired {
                message,
                saving,
                severity,
            }),
            Expect::Fires(want),
        ) => compare(case, want, message, saving, severity),
    }
}

fn compare(
    case: &Case,
    want: &str,
    message: String,
    saving: Option<f64>,
    severity: Severity,
) -> TestOutcome {
    if message != want {
        return TestOutcome::Sentence {
            want: want.to_owned(),
            got: message,
        };
    }
    if let Some(want) = case.saving_ns {
        // Hand-written figures are rounded: one part in a thousand, or a nanosecond.
        let near = |got: f64| (got - want).abs() <= (want.abs() * 1e-3).max(1.0);
        if !saving.is_some_and(near) {
            return TestOutcome::Saving { want, got: saving };
        }
    }
    match case.severity {
        Some(want) if want != severity => TestOutcome::Severity {
            want,
            got: severity,
        },
        _ => TestOutcome::Pass,
    }
}

impl Said {
    fn describe(&self) -> String {
        match self {
            Said::Fired { message, .. } => format!("fires: {message}"),
            Said::Nothing(why) => (*why).to_owned(),
            Said::NotJudged(facts) => format!("is not judged for want of {}", facts.join(", ")),
        }
    }
}

/// Judges the example as the one member of a run.
fn say(rule: &Rule, case: &Case, example: &Example<'_>) -> Result<Said, String> {
    let mut settings = rule.settings.clone();
    settings.extend(case.params.clone());
    let early = EvalContext::new(example, &settings, &rule.lets, None);
    match early.holds(&rule.when) {
        Ok(true) => {}
        Ok(false) => return Ok(Said::Nothing("its condition does not hold")),
        Err(why) => return undecided(why),
    }
    let mut faults = Faults::default();
    let saving = evaluate::saving(rule, &early, &mut faults);
    if let Some((message, _)) = faults.iter().next() {
        return Err(message.to_owned());
    }
    let found = found(rule, example, saving);
    let context = EvalContext::new(example, &settings, &rule.lets, Some(&found));
    if let Some(enough) = &rule.require {
        match context.holds(enough) {
            Ok(true) => {}
            Ok(false) => return Ok(Said::Nothing("what it found is not enough")),
            Err(why) => return undecided(why),
        }
    }
    let mut severity = rule.severity;
    if let Some(error_when) = &rule.error_when {
        match context.holds(error_when) {
            Ok(true) => severity = Severity::Error,
            Err(Undecided::Fault(message)) => return Err(format!("error_when: {message}")),
            _ => {}
        }
    }
    let sentence = |what: &str, template: &template::Template| {
        let said = template.render_plain(&context, &rule.lets);
        said.map_err(|failure| format!("{what}: {failure}"))
    };
    sentence("why", &rule.why)?;
    sentence("fix", &rule.fix)?;
    Ok(Said::Fired {
        message: sentence("message", &rule.message)?,
        saving,
        severity,
    })
}

fn undecided(why: Undecided) -> Result<Said, String> {
    match why {
        Undecided::NotApplicable => Ok(Said::Nothing("a fact it uses does not apply")),
        Undecided::Fault(message) => Err(message),
        Undecided::Absent(facts) => {
            let facts = facts.into_iter().map(str::to_owned).collect();
            Ok(Said::NotJudged(facts))
        }
    }
}

/// `found` as the test gives it, else as its one member has it.
fn found(rule: &Rule, example: &Example<'_>, saving: Option<f64>) -> Found {
    let mut found = Found::default();
    let member = |name: &str| match example.get(&format!("{}.{name}", rule.for_each.word())) {
        Answer::Value(value) => Some(value),
        _ => None,
    };
    found.set("found.count", Value::Int(1));
    let own = [
        ("found.calls", "calls"),
        ("found.time_ns", "time_ns"),
        ("found.gpu_share", "gpu_share"),
        ("found.kernel_share", "kernel_share"),
    ];
    for (name, fact) in own {
        match member(fact) {
            Some(Value::Int(calls)) if fact == "calls" => found.set(name, Value::Int(calls)),
            Some(Value::Double(value)) if fact != "calls" => found.set(name, Value::Double(value)),
            _ => {}
        }
    }
    if member("calls").is_none() {
        found.set("found.calls", Value::Int(1));
    }
    found.set("found.saving_ns", Value::Double(saving.unwrap_or(0.0)));
    for (name, value) in &example.given {
        found.set(name, value.clone());
    }
    found
}
