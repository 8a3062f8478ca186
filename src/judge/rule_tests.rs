//! Runs the tests of rule files. A test lists facts, not a profile; the message of a test that fires
//! is compared word for word.

use std::collections::BTreeMap;

use super::evaluate::{self, Faults, Range};
use super::expr::{EvalContext, Expr, Found, Undecided};
use super::finding::Severity;
use super::rule::{Case, Expect, Rule};
use super::template::Template;
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
    /// How it differs from what is expected, if it does.
    pub outcome: Result<(), String>,
}

impl TestResult {
    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.outcome.is_ok()
    }
}

/// Runs every test of some rules.
pub fn run_tests<'a>(
    rules: impl IntoIterator<Item = &'a Rule>,
    facts: &[Fact],
    gpu: &GpuFacts<'_>,
) -> Vec<TestResult> {
    let of_rule = |rule: &'a Rule| {
        rule.tests.iter().map(|case| TestResult {
            rule: rule.id.clone(),
            test: case.name.clone(),
            outcome: run(rule, case, facts, gpu),
        })
    };
    rules.into_iter().flat_map(of_rule).collect()
}

/// The facts of a test.
#[derive(Debug)]
pub(super) struct Example<'a> {
    pub(super) given: BTreeMap<String, Value>,
    pub(super) facts: &'a [Fact],
}

impl<'a> Example<'a> {
    /// The facts of a test and those of its GPU.
    ///
    /// # Errors
    /// The id of a GPU that does not exist.
    pub(super) fn new(
        case: &Case,
        facts: &'a [Fact],
        gpu: &GpuFacts<'_>,
    ) -> Result<Example<'a>, String> {
        let mut given = match &case.gpu {
            Some(id) => gpu(id).ok_or_else(|| id.clone())?,
            None => crate::facts::of_gpu(None),
        };
        // Most rules are about programs of PyTorch.
        given.insert("run.pytorch".to_owned(), Value::Bool(true));
        given.extend(case.facts.clone());
        Ok(Example { given, facts })
    }
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
pub(super) enum Said {
    Fired(Fired),
    Nothing(&'static str),
    Skipped(Vec<String>),
}

/// A finding on an example.
pub(super) struct Fired {
    pub(super) message: String,
    saving: Option<Range>,
    launches_removed: Option<f64>,
    severity: Severity,
    minor: bool,
    why: String,
    /// Index of the variant of the fix, and its text.
    pub(super) fix: Option<(usize, String)>,
}

/// A sentence of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sentence {
    Message,
    Why,
    /// The variant of the fix of this index.
    Fix(usize),
}

impl Sentence {
    /// The key in the rule file.
    pub(super) fn key(self) -> &'static str {
        match self {
            Sentence::Message => "message",
            Sentence::Why => "why",
            Sentence::Fix(_) => "fix",
        }
    }
}

/// How a rule failed on an example.
pub(super) struct ExampleFailure {
    /// The sentence that failed; `None`: a condition.
    pub(super) sentence: Option<Sentence>,
    /// The error message.
    pub(super) message: String,
}

impl From<String> for ExampleFailure {
    fn from(message: String) -> ExampleFailure {
        ExampleFailure {
            sentence: None,
            message,
        }
    }
}

impl std::fmt::Display for ExampleFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.sentence {
            Some(sentence) => write!(f, "{}: {}", sentence.key(), self.message),
            None => write!(f, "{}", self.message),
        }
    }
}

/// The first test in which the rule fires, as a report words it: message, explanation and fix.
pub(super) fn first_example(
    rule: &Rule,
    facts: &[Fact],
    gpu: &GpuFacts<'_>,
) -> Option<(String, String, String)> {
    let firing = |case: &&Case| matches!(case.expect, Expect::Fires(_));
    let case = rule.tests.iter().find(firing)?;
    match say(rule, case, &Example::new(case, facts, gpu).ok()?).ok()? {
        Said::Fired(fired) => {
            let fix = fired.fix.map(|(_, text)| text).unwrap_or_default();
            Some((fired.message, fired.why, fix))
        }
        _ => None,
    }
}

fn run(rule: &Rule, case: &Case, facts: &[Fact], gpu: &GpuFacts<'_>) -> Result<(), String> {
    let example = Example::new(case, facts, gpu);
    let example = example.map_err(|id| format!("there is no GPU `{id}`"))?;
    let said = say(rule, case, &example).map_err(|failures| {
        let failures: Vec<String> = failures.iter().map(ExampleFailure::to_string).collect();
        format!("the rule failed: {}", failures.join("\n  "))
    })?;
    match (said, &case.expect) {
        (Said::Nothing(_), Expect::Silent) => Ok(()),
        (said, Expect::Silent) => Err(format!("it should not fire, but {}", said.describe())),
        // What an example leaves out is absent too; it need not list all of that.
        (Said::Skipped(got), Expect::Skipped(want))
            if want.iter().all(|fact| got.contains(fact)) =>
        {
            Ok(())
        }
        (said, Expect::Skipped(want)) => Err(format!(
            "it should be skipped for lack of {}, but {}",
            want.join(", "),
            said.describe()
        )),
        (Said::Fired(fired), Expect::Fires(want)) => compare(case, want, fired),
        (said, Expect::Fires(_)) => Err(format!("it should fire, but {}", said.describe())),
    }
}

fn compare(case: &Case, want: &str, fired: Fired) -> Result<(), String> {
    if fired.message != want {
        let got = fired.message;
        return Err(format!(
            "the message differs\n  expected: {want}\n  actual:   {got}"
        ));
    }
    let (high, low) = (fired.saving.map(|s| s.high), fired.saving.map(|s| s.low));
    // Hand-written figures are rounded: one part in a thousand, or a nanosecond.
    let numbers = [
        ("saving_ns", case.saving_ns, high, 1.0),
        ("saving_low_ns", case.saving_low_ns, low, 1.0),
        (
            "launches_removed",
            case.launches_removed,
            fired.launches_removed,
            0.0,
        ),
    ];
    for (key, want, got, rounding) in numbers {
        let Some(want) = want else { continue };
        let near = |got: f64| (got - want).abs() <= (want.abs() * 1e-3).max(rounding);
        if !got.is_some_and(near) {
            let got = got.map_or("none".to_owned(), |got| got.to_string());
            return Err(format!("{key}: expected {want}, actual {got}"));
        }
    }
    if let Some(want) = case.severity.filter(|want| *want != fired.severity) {
        let (want, got) = (want.word(), fired.severity.word());
        return Err(format!("severity: expected {want}, actual {got}"));
    }
    match (case.minor, fired.minor) {
        (false, true) => return Err("the finding is minor, by `minor_when`".to_owned()),
        (true, false) => return Err("the finding is not minor".to_owned()),
        _ => {}
    }
    let fix = fired.fix.as_ref().map(|(_, text)| text.as_str());
    match &case.fix {
        Some(want) if !fix.is_some_and(|fix| fix.contains(want)) => Err(format!(
            "the fix lacks words\n  expected: {want}\n  actual:   {}",
            fix.unwrap_or("no fix")
        )),
        _ => Ok(()),
    }
}

impl Said {
    fn describe(&self) -> String {
        match self {
            Said::Fired(fired) => format!("fires: {}", fired.message),
            Said::Nothing(why) => (*why).to_owned(),
            Said::Skipped(facts) => format!("is skipped: no {}", facts.join(", ")),
        }
    }
}

/// Evaluates the rule on the example as the one member of a run.
///
/// # Errors
/// The failure of a condition, or of every sentence that fails.
pub(super) fn say(
    rule: &Rule,
    case: &Case,
    example: &Example<'_>,
) -> Result<Said, Vec<ExampleFailure>> {
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
    let removed = rule.launches_removed.as_ref();
    let launches_removed =
        removed.and_then(|expr| evaluate::number("launches_removed", expr, &early, &mut faults));
    if let Some((message, _)) = faults.iter().next() {
        return Err(vec![message.to_owned().into()]);
    }
    let found = found(rule, example, saving);
    let context = EvalContext::new(example, &settings, &rule.lets, Some(&found));
    if let Some(require) = &rule.require {
        match context.holds(require) {
            Ok(true) => {}
            Ok(false) => return Ok(Said::Nothing("`require` is not met")),
            Err(why) => return undecided(why),
        }
    }
    let holds =
        |key: &str, condition: &Option<Expr>| match condition.as_ref().map(|c| context.holds(c)) {
            Some(Ok(holds)) => Ok(holds),
            Some(Err(Undecided::Fault(message))) => {
                Err(vec![ExampleFailure::from(format!("{key}: {message}"))])
            }
            Some(Err(_)) | None => Ok(false),
        };
    let severity = match holds("error_when", &rule.error_when)? {
        true => Severity::Error,
        false => rule.severity,
    };
    let minor = holds("minor_when", &rule.minor_when)?;
    let render = |sentence: Sentence, template: &Template| {
        let said = match template.render_plain(&context, &rule.lets) {
            Ok(said) if said.is_empty() => Err("it is empty".to_owned()),
            said => said,
        };
        said.map_err(|message| ExampleFailure {
            sentence: Some(sentence),
            message,
        })
    };
    let advice = rule.advice().map_err(|why| vec![why.to_owned().into()])?;
    let fix = advice
        .fix(&context)
        .map_err(|why| vec![format!("fix: {why}").into()])?;
    let why = render(Sentence::Why, &advice.why);
    let fix_text = fix.map(|(index, fix)| render(Sentence::Fix(index), &fix.text));
    let edits = advice
        .edits(&context)
        .map_err(|why| format!("edit: {why}").into());
    let message = render(Sentence::Message, &advice.message);
    match (why, fix_text.transpose(), edits, message) {
        (Ok(why), Ok(fix_text), Ok(_), Ok(message)) => Ok(Said::Fired(Fired {
            message,
            saving,
            launches_removed,
            severity,
            minor,
            why,
            fix: fix.map(|(index, _)| index).zip(fix_text),
        })),
        (why, fix_text, edits, message) => {
            let failures = [why.err(), fix_text.err(), edits.err(), message.err()];
            Err(failures.into_iter().flatten().collect())
        }
    }
}

fn undecided(why: Undecided) -> Result<Said, Vec<ExampleFailure>> {
    match why {
        Undecided::NotApplicable => Ok(Said::Nothing("a fact it uses does not apply")),
        Undecided::Fault(message) => Err(vec![message.into()]),
        Undecided::Absent(facts) => {
            let facts = facts.into_iter().map(str::to_owned).collect();
            Ok(Said::Skipped(facts))
        }
    }
}

/// `found` as the test gives it, else as its one member has it.
fn found(rule: &Rule, example: &Example<'_>, saving: Option<Range>) -> Found {
    let mut found = Found::default();
    found.set("found.count", Value::Int(1));
    found.set("found.calls", Value::Int(1));
    for name in [
        "calls",
        "time_ns",
        "gpu_share",
        "exposed_ns",
        "kernel_share",
        "longest_ns",
    ] {
        if let Answer::Value(value) = example.get(&format!("{}.{name}", rule.for_each.word())) {
            found.set(&format!("found.{name}"), value);
        }
    }
    let (low, high) = saving.map_or((0.0, 0.0), |s| (s.low, s.high));
    found.set("found.saving_ns", Value::Double(high));
    found.set("found.saving_low_ns", Value::Double(low));
    for (name, value) in &example.given {
        found.set(name, value.clone());
    }
    found
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;
    use crate::base::cel::tests::{assert_same, oracle};
    use crate::base::diag::Complaints;
    use crate::facts;
    use crate::gpu::load::built_in;
    use crate::judge::examples::facts_of_sentences;
    use crate::judge::expr::{Expr, FOUND};
    use crate::judge::{RuleSet, check_examples};
    use rayon::prelude::*;
    use std::collections::BTreeSet;

    fn built_in_rules() -> RuleSet {
        RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"))
    }

    fn gpu_facts(id: &str) -> Option<BTreeMap<String, Value>> {
        let spec = built_in().iter().find(|spec| spec.gpu.id == id)?;
        Some(facts::of_gpu(Some(&spec.gpu)))
    }

    #[test]
    fn built_in_sentences_do_not_need_optional_facts() {
        let complaints = Complaints::new();
        let rules = built_in_rules();
        check_examples(rules.rules(), facts::all(), &gpu_facts, &complaints);
        assert!(complaints.is_empty(), "{complaints}");
    }

    /// A sentence often has one part per family or kind, and the tests of its rule reach only some.
    #[test]
    fn built_in_sentences_render_for_every_value_of_a_string_fact() {
        let of_rule = |rule: &Rule| {
            let mut failures = BTreeSet::new();
            let mut rendered = 0;
            let mut used = facts_of_sentences(rule, rule.advice().unwrap());
            let closed = facts::all().iter().filter(|fact| used.contains(&fact.name));
            let closed: Vec<&Fact> = closed.filter(|fact| !fact.values().is_empty()).collect();
            used.retain(|name| {
                facts::all()
                    .iter()
                    .any(|f| f.name == *name && !f.needs.is_empty())
            });
            let firing = |case: &&Case| matches!(case.expect, Expect::Fires(_));
            for case in rule.tests.iter().filter(firing) {
                for fact in &closed {
                    for value in fact.values() {
                        let example = Example::new(case, facts::all(), &gpu_facts);
                        let mut example = example.unwrap_or_else(|id| panic!("no GPU `{id}`"));
                        let value = Value::Str((*value).into());
                        example.given.insert(fact.name.to_owned(), value.clone());
                        // With all facts, and without each optional one.
                        for without in used.iter().copied().chain([""]) {
                            let kept = example.given.remove(without);
                            rendered += 1;
                            for failure in say(rule, case, &example).err().unwrap_or_default() {
                                let of = format!("{}, {} = {value:?}", rule.id, fact.name);
                                failures.insert(format!("{of}, without `{without}`: {failure}"));
                            }
                            example
                                .given
                                .extend(kept.map(|kept| (without.to_owned(), kept)));
                        }
                    }
                }
            }
            (rendered, failures)
        };
        let rules = built_in_rules();
        let (rendered, failures): (Vec<usize>, Vec<BTreeSet<String>>) =
            rules.rules().par_iter().map(of_rule).unzip();
        let rendered: usize = rendered.iter().sum();
        let failures: Vec<String> = failures.into_iter().flatten().collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
        assert!(rendered > 5_000, "only {rendered}");
    }

    /// Whether a fact is known only for programs of PyTorch.
    fn of_pytorch(name: &str) -> bool {
        const BEGINNINGS: [&str; 9] = [
            "site.enclosing_ops",
            "gap.enclosing_ops",
            "gap.loader",
            "gap.op_name",
            "run.loader",
            "run.phase",
            "run.serving_engine",
            "run.transformers_pipeline",
            "run.worker",
        ];
        let needs = facts::all().iter().find(|fact| fact.name == name);
        let needs = needs.map_or("", |fact| fact.needs);
        let operators = [
            "record_shapes",
            "operators on the host",
            "torch.compile",
            "layer names",
        ];
        BEGINNINGS.iter().any(|begin| name.starts_with(begin))
            || operators.iter().any(|words| needs.contains(words))
    }

    /// What a rule says of a program without PyTorch, on the facts of its own tests that such programs have.
    #[test]
    fn fixes_for_other_programs_do_not_name_pytorch() {
        let mut wrong = Vec::new();
        let mut said = 0;
        for rule in built_in_rules().rules() {
            // Chains are sequences of the operators of PyTorch, or of its kernels.
            if rule.for_each == facts::MemberKind::Chain {
                continue;
            }
            let firing = |case: &&Case| matches!(case.expect, Expect::Fires(_));
            for case in rule.tests.iter().filter(firing) {
                let example = Example::new(case, facts::all(), &gpu_facts);
                let mut example = example.unwrap_or_else(|id| panic!("no GPU `{id}`"));
                let made_by = |word: &str| {
                    example.given.get("kernel.maker") == Some(&Value::Str(word.into()))
                };
                if made_by("pytorch") || made_by("inductor") || made_by("library") {
                    continue;
                }
                example.given.retain(|name, value| {
                    let operator = matches!(value, Value::Str(text) if text.contains("::"));
                    !of_pytorch(name) && !operator
                });
                let changed = [
                    ("run.pytorch", Value::Bool(false)),
                    ("site.has_op", Value::Bool(false)),
                    ("site.op_name", Value::Str("".into())),
                    ("site.direction", Value::Str("unknown".into())),
                ];
                for (name, value) in changed {
                    example.given.insert(name.to_owned(), value);
                }
                for framework in ["xla", "tensorrt", "other"] {
                    let framework = Value::Str(framework.into());
                    example.given.insert("run.framework".to_owned(), framework);
                    let Ok(Said::Fired(fired)) = say(rule, case, &example) else {
                        continue;
                    };
                    said += 1;
                    let fix = fired.fix.map(|(_, text)| text).unwrap_or_default();
                    let words = ["torch", "Torch", "DataLoader", "nn."];
                    if let Some(word) = words.iter().find(|word| fix.contains(**word)) {
                        wrong.push(format!("{}: {}: {word}", rule.id, case.name));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(said > 500, "only {said}");
    }

    /// Every expression of every built-in rule on the facts of its own tests. Where an operand is
    /// absent or does not apply, both fail; numbers that are not finite fail only here.
    #[test]
    fn built_in_expressions_agree_with_the_cel_crate() {
        let mut compared = 0;
        for rule in built_in_rules().rules() {
            for case in &rule.tests {
                let example = Example::new(case, facts::all(), &gpu_facts);
                let example = example.unwrap_or_else(|id| panic!("{}: no GPU `{id}`", rule.id));
                compared += compare_with_oracle(rule, case, &example);
            }
        }
        assert!(compared > 1_000, "only {compared} results");
    }

    /// Returns how many results both engines computed.
    fn compare_with_oracle(rule: &Rule, case: &Case, example: &Example<'_>) -> usize {
        let mut settings = rule.settings.clone();
        settings.extend(case.params.clone());
        let early = EvalContext::new(example, &settings, &rule.lets, None);
        let saving = evaluate::saving(rule, &early, &mut Faults::default());
        let found = found(rule, example, saving);
        let context = EvalContext::new(example, &settings, &rule.lets, Some(&found));

        let mut names = example.given.clone();
        for (name, value) in &settings {
            names.insert(format!("params.{name}"), value.clone());
        }
        for (name, ..) in FOUND {
            if let Some(value) = found.get(name) {
                names.insert((*name).to_owned(), value.clone());
            }
        }
        let prefixes = [rule.for_each.prefixes(), &["params", "found"]].concat();
        let result = |expr: &Expr, names: &BTreeMap<String, Value>| {
            let ours = context.value(expr).map_err(|why| format!("{why:?}"));
            assert_same(&expr.source, &ours, &oracle(&expr.source, &prefixes, names));
            ours
        };

        let mut compared = 0;
        for named in &rule.lets {
            if let Ok(value) = result(&named.expr, &names) {
                names.insert(named.name.clone(), value);
                compared += 1;
            }
        }
        let conditions = [
            &rule.require,
            &rule.error_when,
            &rule.minor_when,
            &rule.saving_ns,
            &rule.outside_ns,
        ];
        let fixes = &rule.advice().unwrap().fixes;
        let fixes = fixes.iter().filter_map(|fix| fix.when.as_ref());
        let conditions = conditions.into_iter().flatten().chain(fixes);
        for expr in conditions.chain([&rule.when]) {
            compared += usize::from(result(expr, &names).is_ok());
        }
        compared
    }
}
