//! Pairs of profiles from before and after a change whose effect their authors measured: what a finding
//! claims before the change contains what the change gained. The figures are those of the README beside
//! the profiles.

use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::{VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{Finding, RuleSet, Verdict, judge};
use pyprof_advise::read;

use crate::shared;

const MS: f64 = 1e6;

fn verdict(pair: &str) -> Option<Verdict> {
    let path = shared::path(&format!("profiles_pairs/{pair}"))?;
    let profile = read::open(&path, &read::NoProgress).unwrap();
    let gpu = select::choose(None, &profile).unwrap();
    let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
    let rules = RuleSet::builtin().unwrap_or_else(|c| panic!("{c}"));
    Some(judge(&rules, &FactTable::new(&costed)))
}

fn find<'v>(verdict: &'v Verdict, rule: &str) -> Option<&'v Finding> {
    let all = verdict.findings.iter().chain(&verdict.minor);
    all.into_iter().find(|finding| finding.rule == rule)
}

#[test]
fn mixed_precision_gains_what_is_claimed() {
    let Some(verdict) = verdict("incredere_t4/fp32.json.gz") else {
        return;
    };
    let saving = find(&verdict, "precision/amp-off").unwrap().saving.unwrap();
    // All kernels 17.2 -> 8.1 ms; those of calls in both runs 16.0 -> 6.3 ms.
    for gained in [9.1 * MS, 9.7 * MS] {
        assert!(
            saving.low_ns <= gained && gained <= saving.high_ns,
            "{gained} ns gained, {saving:?} claimed"
        );
    }
}

#[test]
fn hiding_all_to_all_is_net_of_what_splitting_the_batch_costs() {
    let Some(verdict) = verdict("lightllm/plain_rank0.json.gz") else {
        return;
    };
    let finding = find(&verdict, "communication/all-to-all-exposed").unwrap();
    let saving = finding.saving.unwrap();
    // The author split the batch: 39.4 ms of exchanges hidden, the window 2 ms longer.
    assert_eq!(saving.low_ns, 0.0, "{saving:?}");
    assert!(saving.high_ns < 39.4 * MS, "{saving:?}");
    assert!(!finding.fix.contains("Split the batch"), "{}", finding.fix);
    assert_ne!(verdict.findings[0].rule, finding.rule);
}

#[test]
fn waiting_for_other_ranks_is_not_claimed() {
    let Some(verdict) = verdict("moe/one_before/rank0.json.gz") else {
        return;
    };
    // The exchanges take 13.7 of 14.0 ms because the other rank is late.
    let claimed: f64 = (verdict.findings.iter().chain(&verdict.minor))
        .filter(|f| f.category == "communication")
        .filter_map(|f| f.saving)
        .map(|s| s.high_ns)
        .sum();
    assert!(claimed < 1.0 * MS, "{claimed}");
}

#[test]
fn runs_that_mostly_communicate_get_advice_on_communication() {
    let Some(verdict) = verdict("tokenomics_dim1024_rank0.json.gz") else {
        return;
    };
    let first = &verdict.findings[0];
    assert_eq!(first.rule, "communication/tensor-parallel-exposed");
    // NCCL takes 311 of 370 ms.
    assert!(first.saving.unwrap().high_ns <= 311.0 * MS);
}
