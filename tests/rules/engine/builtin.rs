//! The built-in rules load and pass their tests.

use std::collections::BTreeMap;

use pyprof_advise::base::diag::Source;
use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::{Costed, VOCABULARY, estimate_costs};
use pyprof_advise::facts::{self, Answer, FactTable, Lookup, Member, Value};
use pyprof_advise::gpu::{Choice, SelectedBy, select};
use pyprof_advise::judge::load::RuleFile;
use pyprof_advise::judge::{RuleSet, Selection, run_tests};
use pyprof_advise::profile::Profile;

/// The facts of a GPU, from an empty run on it.
pub(super) fn gpu_facts(id: &str) -> Option<BTreeMap<String, Value>> {
    let gpu = select::find(id).ok()?.gpu;
    let choice = Choice {
        gpu,
        how: SelectedBy::Asked,
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
fn built_in_rules_are_equal_when_their_advice_is_read_late() {
    let load = |files: &[RuleFile]| {
        let set = RuleSet::load(files, &Selection::default(), facts::all());
        set.unwrap_or_else(|complaints| panic!("{complaints}"))
    };
    let (whole, late) = (
        load(&RuleSet::builtin_files()),
        load(&RuleSet::builtin_files_for_analysis()),
    );
    assert_eq!(whole.len(), late.len());
    for (whole, late) in whole.rules().iter().zip(late.rules()) {
        assert!(!whole.tests.is_empty() && late.tests.is_empty());
        let mut whole = whole.clone();
        whole.tests.clear();
        for param in whole.params.values_mut() {
            param.doc.clear();
        }
        assert_ne!(format!("{whole:?}"), format!("{late:?}"));
        late.advice().unwrap();
        assert_eq!(format!("{whole:?}"), format!("{late:?}"));
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
        .filter_map(|proof| {
            let why = proof.outcome.err()?;
            Some(format!("{}, {}: {why}", proof.rule, proof.test))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Rules whose sign is training itself or a loader, so they do not fire where a model is served.
const OF_TRAINING: &[&str] = &[
    "communication/bucket-copies",
    "communication/every-micro-step",
    "communication/find-unused-parameters",
    "communication/fsdp-copies",
    "communication/fsdp-gather-exposed",
    "communication/pipeline-bubble",
    "communication/reduce-scatter-exposed",
    "host/checkpoint-in-the-loop",
    "host/data-loading",
    "host/loader-in-training-process",
    "host/logging-in-the-loop",
    "host/oversubscribed-workers",
    "host/slow-decoding",
    "host/too-few-workers",
    "host/workers-start-anew",
    "layers/embedding-gradient",
    "layers/finite-checks",
    "layers/gradient-norms",
    "layers/many-embedding-tables",
    "layers/optimizer-kernels",
    "layers/recompute",
    "precision/loss-scaling-with-bf16",
    "profile/work-outside-steps",
];

/// The tests of a rule that fire, with the facts of a serving engine and a fix that no rule has, so that
/// the outcome holds the fix that it has. Tests on training are left out.
fn as_served(source: &str) -> String {
    let mut rule: toml::Table = source.parse().unwrap();
    let mut tests = rule["test"].as_array().unwrap().clone();
    let mut served = Vec::new();
    for case in &tests {
        let mut facts = case["facts"].as_table().unwrap().clone();
        let trains = facts.iter().any(|(name, value)| match value.as_str() {
            Some(word) => matches!(word, "bprop" | "update") || word.ends_with("_backward"),
            None => {
                name == "run.loader_pins"
                    || (name == "run.training" && value.as_bool() == Some(true))
            }
        });
        if trains || case.get("fires").is_none() {
            continue;
        }
        facts.insert("run.serving_engine".to_owned(), "vLLM".into());
        facts.insert("run.training".to_owned(), false.into());
        facts.entry("run.pytorch").or_insert(true.into());
        let mut new = toml::Table::new();
        for key in ["gpu", "fires"] {
            new.extend(case.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        new.insert("name".to_owned(), format!("served {}", served.len()).into());
        new.insert("facts".to_owned(), facts.into());
        new.insert("fix".to_owned(), "\u{2603}".into());
        served.push(toml::Value::from(new));
    }
    // A rule has 256 tests at most.
    served.truncate(256_usize.saturating_sub(tests.len()));
    tests.extend(served);
    rule.insert("test".to_owned(), tests.into());
    rule.to_string()
}

#[test]
fn rules_give_no_advice_on_training_where_a_model_is_served() {
    let files: Vec<RuleFile> = RuleSet::builtin_files()
        .into_iter()
        .map(|mut file| {
            if !OF_TRAINING.contains(&file.id.as_str()) {
                file.source = Source::new(&file.id, as_served(&file.source.text));
            }
            file
        })
        .collect();
    let rules = RuleSet::load(&files, &Selection::default(), facts::all())
        .unwrap_or_else(|complaints| panic!("{complaints}"));
    let words = [
        "backward",
        "optimizer",
        "dataloader",
        "torch.autocast",
        "gradscaler",
        "zero_grad",
        "train_step",
        "train.py",
        "gradient",
    ];
    let mut read = 0;
    for proof in run_tests(rules.rules(), facts::all(), &gpu_facts) {
        let Err(outcome) = proof.outcome else {
            continue;
        };
        let Some((before, fix)) = outcome.split_once("\n  actual:   ") else {
            continue;
        };
        if !before.starts_with("the fix lacks words") || fix == "no fix" {
            continue;
        }
        read += 1;
        // NVIDIA's Model Optimizer converts models.
        let fix = fix.to_lowercase().replace("model optimizer", "");
        let word = words.iter().find(|word| fix.contains(**word));
        assert_eq!(word, None, "{}, {}: {fix}", proof.rule, proof.test);
    }
    assert!(read > 300, "{read}");
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
