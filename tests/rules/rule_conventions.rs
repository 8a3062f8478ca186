//! The conventions of built-in rules, beyond those that loading checks: sources, coverage of their
//! tests, the work that advice changes, and that idle time is claimed only if it is reliable.

use std::collections::{BTreeMap, BTreeSet};

use pyprof_advise::base::glob::Glob;
use pyprof_advise::facts;
use pyprof_advise::judge::{Rule, RuleSet, SavingKind, rule::Expect};

/// Rules that are evaluated although a fact in their condition may be absent, with the reason.
const JUDGED_ANYWAY: &[(&str, &str)] = &[
    (
        "host/gpu-idle",
        "asks for the operator with `has`: pauses without one count where they are a large part of the window",
    ),
    (
        "host/pipeline-preprocessing",
        "asks for the function with `has`: only a pause in one that prepares inputs counts",
    ),
    (
        "layers/attention-math-backend",
        "asks for the width of the scores with `has`: without shapes the kernels still show it",
    ),
    (
        "layers/attention-unfused",
        "asks for the width of the scores with `has`: without shapes the kernels still show it",
    ),
    (
        "layers/many-embedding-tables",
        "asks for the efficiency with `has`, to leave out lookups near the speed of the memory",
    ),
    (
        "layers/rope-unfused",
        "asks for the compute capability with `has`, to leave out GPUs too old for torch.compile",
    ),
    (
        "layers/random-numbers",
        "asks for the compute capability with `has`, to leave out GPUs too old for torch.compile",
    ),
    (
        "layers/optimizer-foreach",
        "asks for the layer with `has`, to leave out operators that are not in the range of an optimizer",
    ),
    (
        "memory/engine-reformats",
        "asks for the layer with `has`: only TensorRT names layers so",
    ),
    (
        "memory/layout-transposes",
        "asks for the layer with `has`, to leave those of TensorRT to their own rule",
    ),
    (
        "parallelism/dominant-kernel",
        "speaks most of all where shapes are missing, and only leaves out what is known to be fast",
    ),
    (
        "memory/constants-rebuilt",
        "asks for type and rank of a triangle with `has`: without shapes it may be part of the model",
    ),
    (
        "parallelism/register-spill",
        "asks for local memory with `has`: where a trace lacks it, no kernel is suspect",
    ),
    (
        "memory/memory-bound-share",
        "asks with `has` for what rules a compiler out: an unknown GPU does not",
    ),
    (
        "precision/cast-overhead",
        "asks for the types and the tensor with `has`: labels of kernels tell of both without shapes",
    ),
];

/// Categories whose advice rewrites the work of a site.
const REWRITING: &[&str] = &[
    "fusion",
    "layers",
    "memory",
    "precision",
    "shapes",
    "tensor-cores",
];

/// Rules of these categories without a `changes` key, with the reason.
const CHANGES_NOTHING: &[(&str, &str)] = &[
    (
        "fusion/graph-breaks",
        "the model is compiled already; the advice is to find out what breaks it",
    ),
    (
        "fusion/recompiles",
        "the model is compiled already; the advice is to find out what recompiles it",
    ),
    (
        "memory/low-bandwidth",
        "offers several ways that depend on the operator, and insists on none",
    ),
    (
        "tensor-cores/far-from-ideal",
        "its advice follows the cause it finds; where a cause has a rule, that rule speaks instead",
    ),
    (
        "tensor-cores/older-architecture-kernels",
        "asks for newer libraries, which leaves the work as it is",
    ),
];

fn rules() -> RuleSet {
    RuleSet::builtin().unwrap_or_else(|complaints| panic!("{complaints}"))
}

/// Whether a rule is in a list of exceptions; all rules in such a list must exist and need it.
fn excepted(list: &[(&str, &str)], rule: &Rule) -> bool {
    list.iter().any(|(id, reason)| {
        assert!(reason.len() > 20, "{id}: no reason");
        *id == rule.id
    })
}

fn missing(list: &[(&str, &str)], needed: &BTreeSet<String>) -> Vec<String> {
    let idle = list.iter().filter(|(id, _)| !needed.contains(*id));
    idle.map(|(id, _)| (*id).to_owned()).collect()
}

/// Facts in the conditions that may be absent from a profile.
fn may_be_absent(rule: &Rule) -> BTreeSet<&'static str> {
    let mut uses = rule.condition_uses();
    if let Some(enough) = &rule.require {
        uses.extend(&enough.uses.closure(&rule.lets));
    }
    let needs = |name: &str| facts::find(name).is_some_and(|fact| !fact.needs.is_empty());
    uses.facts.into_iter().filter(|name| needs(name)).collect()
}

#[test]
fn rules_name_public_sources() {
    for rule in rules().rules() {
        let references = &rule.advice().unwrap().references;
        assert!(!references.is_empty(), "{}: no references", rule.id);
        let distinct: BTreeSet<&String> = references.iter().collect();
        assert_eq!(distinct.len(), references.len(), "{}", rule.id);
        for reference in references {
            let page = reference.strip_prefix("https://");
            assert!(
                page.is_some_and(|p| p.contains('.') && !p.contains(char::is_whitespace)),
                "{}: {reference}",
                rule.id
            );
        }
    }
}

#[test]
fn params_are_documented() {
    for rule in rules().rules() {
        for (name, param) in &rule.params {
            assert!(
                param.doc.split_whitespace().count() >= 3 && !param.doc.ends_with('.'),
                "{}.{name}: {:?}",
                rule.id,
                param.doc
            );
        }
    }
}

/// The numbers written out in an expression, without those in strings.
fn numbers(expression: &str) -> Vec<f64> {
    let outside = expression.split('"').step_by(2);
    let words =
        outside.flat_map(|part| part.split(|c: char| !(c.is_alphanumeric() || "._".contains(c))));
    let written = words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    written
        .map(|word| word.parse().unwrap_or_else(|_| panic!("{word}")))
        .collect()
}

/// Times, rates and shares that a GPU or a library decides belong to the calibration, thresholds to the params.
#[test]
fn expressions_do_not_write_out_what_was_measured() {
    // Nothing, all, double, half, and a second in nanoseconds.
    const ARITHMETIC: [f64; 5] = [0.0, 1.0, 2.0, 0.5, 1e9];
    let mut wrong = Vec::new();
    let mut read = 0;
    for rule in rules().rules() {
        let savings = [&rule.saving_ns, &rule.saving_low_ns, &rule.launches_removed];
        let conditions = [&rule.require, &rule.error_when, &rule.minor_when];
        let fixes = &rule.advice().unwrap().fixes;
        let of_fixes = fixes.iter().filter_map(|fix| fix.when.as_ref());
        let lets = rule.lets.iter().map(|named| &named.expr);
        let others = conditions.into_iter().flatten().chain(of_fixes).chain(lets);
        let checked = (savings.into_iter().flatten().map(|saving| (saving, true)))
            .chain(others.chain([&rule.when]).map(|other| (other, false)));
        for (expression, is_saving) in checked {
            for number in numbers(&expression.source) {
                read += 1;
                let is_free = ARITHMETIC.contains(&number);
                if !is_free && (is_saving || number >= 1_000.0) {
                    wrong.push(format!("{}: {number} in {}", rule.id, expression.source));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read > 200, "{read}");
}

#[test]
fn numbers_of_expressions_are_found() {
    let found =
        numbers(r#"max(gap.time_ns - 1500.0 * double(gap.count), x2.fp16["fp16 8"] * 1e9, .5)"#);
    assert_eq!(found, [1500.0, 1e9]);
}

#[test]
fn rules_have_tests_for_firing_silent_and_missing_facts() {
    let mut wrong = Vec::new();
    let mut without = BTreeSet::new();
    for rule in rules().rules() {
        let count =
            |kind: fn(&Expect) -> bool| rule.tests.iter().filter(|t| kind(&t.expect)).count();
        assert!(count(|e| matches!(e, Expect::Fires(_))) > 0, "{}", rule.id);
        assert!(count(|e| matches!(e, Expect::Silent)) > 0, "{}", rule.id);
        let may_be_absent = may_be_absent(rule);
        if may_be_absent.is_empty() || count(|e| matches!(e, Expect::Skipped(_))) > 0 {
            continue;
        }
        without.insert(rule.id.clone());
        if !excepted(JUDGED_ANYWAY, rule) {
            wrong.push(format!("{}: {may_be_absent:?}", rule.id));
        }
    }
    assert!(wrong.is_empty(), "no `skipped` test:\n{}", wrong.join("\n"));
    assert!(missing(JUDGED_ANYWAY, &without).is_empty());
}

/// An analysis reads a rule up to its first test.
#[test]
fn tests_are_the_last_part_of_a_rule() {
    let rules = rules();
    for rule in rules.rules() {
        let text = &rule.source.text;
        let (_, tests) = text.split_once("\n[[test]]\n").unwrap();
        let mut headers = tests.lines().filter(|line| line.starts_with('['));
        let other = headers.find(|line| *line != "[[test]]");
        assert_eq!(other, None, "{}", rule.id);
    }
}

#[test]
fn skipped_tests_only_omit_optional_facts() {
    for rule in rules().rules() {
        for case in &rule.tests {
            let Expect::Skipped(names) = &case.expect else {
                continue;
            };
            for name in names {
                let needs = facts::find(name).map_or("", |fact| fact.needs);
                assert!(!needs.is_empty(), "{}: `{name}` is always there", rule.id);
            }
        }
    }
}

#[test]
fn rewriting_fixes_name_the_work_they_change() {
    let mut wrong = Vec::new();
    let mut without = BTreeSet::new();
    for rule in rules().rules() {
        if !REWRITING.contains(&rule.category()) || !rule.changes.is_empty() {
            continue;
        }
        without.insert(rule.id.clone());
        if !excepted(CHANGES_NOTHING, rule) {
            wrong.push(rule.id.clone());
        }
    }
    assert!(wrong.is_empty(), "no `changes`: {}", wrong.join(", "));
    assert!(missing(CHANGES_NOTHING, &without).is_empty());
}

#[test]
fn values_of_changes_have_one_spelling() {
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in rules().rules() {
        for (key, value) in &rule.changes {
            values.entry(key.clone()).or_default().insert(value.clone());
        }
    }
    for (key, values) in &values {
        let plain: BTreeSet<String> = values
            .iter()
            .map(|v| v.chars().filter(char::is_ascii_alphanumeric).collect())
            .collect();
        assert_eq!(plain.len(), values.len(), "{key}: {values:?}");
    }
}

/// The rules that check the capture must reach all rules that claim idle time, including future ones.
#[test]
fn idle_rules_require_reliable_idle_time() {
    let rules = rules();
    let find = |id: &str| rules.rules().iter().find(|r| r.id == id).unwrap();
    let reached = |globs: &[Glob], id: &str| globs.iter().any(|glob| glob.matches(id));
    let mut claiming = 0;
    for rule in rules.rules() {
        if rule.saving_kind() != SavingKind::Idle || rule.saving_ns.is_none() {
            continue;
        }
        claiming += 1;
        let id = rule.id.as_str();
        assert!(
            reached(&find("profile/profiler-overhead").lowers_confidence, id),
            "profiler-overhead leaves out {id}"
        );
        let blocking = &find("profile/launch-blocking").vetoes;
        assert!(reached(blocking, id), "launch-blocking leaves out {id}");
        let mut uses = rule.condition_uses();
        uses.extend(&rule.saving_ns.as_ref().unwrap().uses.closure(&rule.lets));
        assert!(
            uses.facts.contains(&"run.reliable_idle_share"),
            "{id} claims idle time that recording overhead may explain"
        );
        assert!(
            reached(&find("profile/idle-unreliable").lowers_confidence, id),
            "profile/idle-unreliable leaves out {id}"
        );
    }
    assert!(claiming > 8, "{claiming}");
}

/// Interfaces of PyTorch that fixes show, with their first release. Found in the wheels of the releases;
/// where the release before was not looked at, the true one may be older.
const FIRST_RELEASES: &[(&str, (u32, u32))] = &[
    ("F.grouped_mm(", (2, 10)),
    ("F.linear_cross_entropy", (2, 13)),
    ("F.rms_norm", (2, 8)),
    ("activate_flash_attention_impl", (2, 10)),
    ("activation_memory_budget", (2, 4)),
    ("allow_fp16_accumulation", (2, 7)),
    ("create_selective_checkpoint_contexts", (2, 5)),
    ("enable_gqa=True)", (2, 5)),
    ("flex_attention", (2, 5)),
    ("fp32_precision = \"tf32\"", (2, 9)),
    ("get_ema_multi_avg_fn", (2, 2)),
    ("lr=lr, momentum=momentum, fused=True", (2, 4)),
    ("self.norm = torch.nn.RMSNorm", (2, 8)),
    ("set_priority=True", (2, 7)),
    ("`sdpa_kernel", (2, 4)),
    ("with sdpa_kernel(", (2, 4)),
    ("torch.amp.GradScaler(", (2, 3)),
    ("torch.amp.custom_fwd", (2, 4)),
    ("varlen.varlen_attn", (2, 10)),
];

/// The parts of a rule file with one variant of its fix each, and what comes before them. Tests are
/// left out.
fn variants(rule: &Rule) -> Vec<String> {
    let text = rule
        .source
        .text
        .split("[[test]]")
        .next()
        .unwrap_or_default();
    text.split("[[fix]]").map(str::to_owned).collect()
}

/// The releases of PyTorch 2 that a text names: `2.10`.
fn releases(text: &str) -> impl Iterator<Item = (u32, u32)> + '_ {
    text.split_whitespace().filter_map(|word| {
        let word = word.trim_matches(|c: char| !c.is_ascii_digit());
        let (major, minor) = word.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?)).filter(|r: &(u32, u32)| r.0 == 2)
    })
}

#[test]
fn fixes_name_the_first_release_of_what_they_show() {
    let mut wrong = Vec::new();
    let mut shown = BTreeSet::new();
    for rule in rules().rules() {
        for text in variants(rule) {
            for (shows, release) in FIRST_RELEASES.iter().filter(|(s, _)| text.contains(s)) {
                shown.insert(*shows);
                if !releases(&text).any(|named| named >= *release) {
                    wrong.push(format!("{}: `{shows}` needs {release:?}", rule.id));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused = FIRST_RELEASES.iter().map(|(shows, _)| *shows);
    let unused: Vec<&str> = unused.filter(|shows| !shown.contains(shows)).collect();
    assert!(unused.is_empty(), "no fix shows {unused:?}");
}

/// Rules that offer the compiler's search for kernels without asking for 68 SMs, with the reason.
const SEARCHES_ANYWAY: &[(&str, &str)] = &[
    (
        "parallelism/dominant-kernel",
        "the tiles of flex_attention are searched on every GPU",
    ),
    (
        "parallelism/small-grid",
        "the variant for many terms names the limit in its code and has another way beside it",
    ),
    (
        "tensor-cores/older-architecture-kernels",
        "asks for compute capability 9.0 or 10.x, whose boards all have more",
    ),
];

/// Inductor does not search for matrix kernels on GPUs with fewer than 68 SMs (`is_big_gpu`).
#[test]
fn searches_for_kernels_are_offered_to_large_gpus_only() {
    let mut found = BTreeSet::new();
    let mut wrong = Vec::new();
    for rule in rules().rules() {
        for text in variants(rule) {
            let asks = text.lines().any(|line| {
                line.starts_with("when")
                    && (line.contains("gpu.sm_count") || line.contains("searchable"))
            });
            if text.contains("max-autotune-no-cudagraphs") && !asks {
                found.insert(rule.id.clone());
                if !excepted(SEARCHES_ANYWAY, rule) {
                    wrong.push(rule.id.clone());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(missing(SEARCHES_ANYWAY, &found).is_empty());
}

#[test]
fn sentences_give_totals_per_step() {
    const TOTALS: [&str; 26] = [
        "chain.count",
        "copy.count",
        "copy.exposed_ns",
        "copy.time_ns",
        "copy.total_bytes",
        "found.calls",
        "found.exposed_ns",
        "found.time_ns",
        "gap.count",
        "gap.time_ns",
        "kernel.time_ns",
        "kernel.transfer_ns",
        "run.blocking_memset_ns",
        "run.blocking_memsets",
        "run.bucket_copy_ns",
        "run.gloo_calls",
        "run.kernels",
        "run.memset_ns",
        "run.memsets",
        "run.round_trip_bytes",
        "run.round_trip_ns",
        "run.round_trips",
        "run.small_kernels",
        "run.sync_calls",
        "run.sync_op_calls",
        "site.time_ns",
    ];
    let mut totals = 0;
    let mut wrong = Vec::new();
    for rule in rules().rules() {
        // Those are about the capture, not about its steps.
        if rule.category() == "profile" {
            continue;
        }
        for text in rule.advice().unwrap().sentences() {
            for printed in text.source.split("{{ ").skip(1) {
                let Some(total) = TOTALS
                    .iter()
                    .find(|t| printed.starts_with(&format!("{t} |")))
                else {
                    continue;
                };
                totals += 1;
                if !printed[total.len()..].starts_with(" | per_step") {
                    wrong.push(format!("{}: `{total}`", rule.id));
                }
            }
        }
    }
    assert!(totals > 90, "{totals}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A report trims what a sentence inserts, so a blank at its edge would be lost.
#[test]
fn inserted_words_have_no_blank_at_their_edges() {
    let mut wrong = Vec::new();
    for file in RuleSet::builtin_files() {
        let text = &file.source.text;
        for inserted in text
            .split("{{")
            .skip(1)
            .filter_map(|rest| rest.split("}}").next())
        {
            let words = inserted.split('\'').skip(1).step_by(2);
            let at_edge = |word: &&str| word.trim() != *word && word.trim().len() > 1;
            wrong.extend(
                words
                    .filter(at_edge)
                    .map(|word| format!("{}: '{word}'", file.id)),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
