//! The built-in rules load and pass their tests.

use std::collections::BTreeMap;

use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::{Costed, VOCABULARY, estimate_costs};
use pyprof_advise::facts::{self, Answer, FactTable, Lookup, Member, Value};
use pyprof_advise::gpu::{Choice, How, select};
use pyprof_advise::judge::load::RuleFile;
use pyprof_advise::judge::{RuleSet, Selection, run_tests};
use pyprof_advise::profile::Profile;

/// The facts of a GPU, from an empty run on it.
pub(super) fn gpu_facts(id: &str) -> Option<BTreeMap<String, Value>> {
    let gpu = select::find(id).ok()?.gpu;
    let choice = Choice {
        gpu,
        how: How::Asked,
        remarks: Vec::new(),
    };
    let run = correlate(
        Profile::new(&pyprof_advise::read::NSYS_SQLITE, "empty"),
        &VOCABULARY,
    );
    let costed: Costed = estimate_costs(run, Some(choice));
    let table = FactTable::new(&costed);
    let view = table.view(Member::Run);
    let of_gpu = facts::all().iter().filter(|f| f.name.starts_with("gpu."));
    let known = of_gpu.filter_map(|f| match view.get(f.name) {
        Answer::Value(value) => Some((f.name.to_owned(), value)),
        _ => None,
    });
    Some(known.collect())
}

#[test]
fn built_in_rules_are_equal_when_loaded_without_tests() {
    let load = |files: &[RuleFile]| {
        let set = RuleSet::load(files, &Selection::default(), facts::all());
        set.unwrap_or_else(|complaints| panic!("{complaints}"))
    };
    let (whole, untested) = (
        load(&RuleSet::builtin_files()),
        load(&RuleSet::builtin_files_to_judge()),
    );
    assert_eq!(whole.len(), untested.len());
    for (whole, untested) in whole.rules().iter().zip(untested.rules()) {
        assert!(!whole.tests.is_empty() && untested.tests.is_empty());
        let mut whole = whole.clone();
        whole.tests.clear();
        whole.source = untested.source.clone();
        assert_eq!(format!("{whole:?}"), format!("{untested:?}"));
    }
}

#[test]
fn built_in_rules_load_and_pass_their_tests() {
    let files = RuleSet::builtin_files();
    let rules = RuleSet::load(&files, &Selection::default(), facts::all())
        .unwrap_or_else(|complaints| panic!("{complaints}"));
    assert!(rules.len() >= 30, "{} rules", rules.len());
    let failed: Vec<String> = run_tests(rules.rules(), facts::all(), &gpu_facts)
        .into_iter()
        .filter(|proof| !proof.passed())
        .map(|proof| format!("{}, {}: {}", proof.rule, proof.test, proof.outcome))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn explain_shows_a_finding_as_a_report_words_it() {
    let rules = pyprof_advise::judge::RuleSet::builtin().unwrap();
    let rule = rules.rules().iter().find(|r| r.id == "precision/tf32-off");
    let facts = pyprof_advise::facts::all();
    let page = pyprof_advise::judge::explain(rule.unwrap(), facts, &gpu_facts);
    let example = page.split("## Why").next().unwrap();
    for want in [
        "> **What:** fp32 matrix products on CUDA cores take 86 % of GPU time; the largest is",
        "> **Why:** Since PyTorch 1.12 fp32 matrix products do not use TF32 unless asked.",
        "> torch.set_float32_matmul_precision(\"high\")",
    ] {
        assert!(example.contains(want), "{want}\n{page}");
    }
    assert!(!example.contains("{{"), "{page}");
}
