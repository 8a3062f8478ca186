//! Findings about different work of one site leave each other's savings alone.

use pyprof_advise::correlate::SiteId;
use pyprof_advise::facts::{Member, SitePart};
use pyprof_advise::judge::{RuleResults, RuleSet};

use super::fake_table::{Fake, load, rule, s};

/// A rule that replaces chains or kernels and saves `saving_ns` of each, more of one in `layers` than in `memory`.
fn replacing(rules: &[(&str, &str, &str)]) -> RuleSet {
    let text = |for_each: &str, saving_ns: &str| {
        rule(&format!(
            "for_each = \"{for_each}\"\nwhen = '1 > 0'\nreplaces_work = true\nsaving_ns = '{saving_ns}'"
        ))
    };
    let files: Vec<(&str, String)> = (rules.iter())
        .map(|(id, for_each, saving_ns)| (*id, text(for_each, saving_ns)))
        .collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(id, text)| (*id, &**text)).collect();
    load(&files).unwrap()
}

/// The place of each finding, and what it saves.
fn claimed(results: &RuleResults) -> Vec<(&str, f64)> {
    let all = results.findings.iter().chain(&results.minor);
    let mut all: Vec<(&str, f64)> = all
        .map(|finding| (&*finding.place, finding.saving.unwrap().claimed_ns))
        .collect();
    all.sort_by(|a, b| a.0.cmp(b.0));
    all
}

/// A site of 0.3 ms, of which two chains take 0.18 and 0.12 ms: all of two kernels, without a third one of its time.
fn two_chains() -> Fake {
    let mut run = Fake::default();
    run.site(0, "a", 4e5, 0.0, &[("site.family", s("gemm"))]);
    for (number, ns) in [(0, 1.8e5), (1, 1.2e5)] {
        run.chain(number, &[(0, ns)]);
        let mut part = SitePart::default();
        part.kernels.insert(number, (10, ns));
        let affected = &mut run.members.last_mut().unwrap().2;
        affected.parts.insert(SiteId(0), part);
    }
    run
}

/// Adds the kernels of the chains, and a third one.
fn with_kernels(mut run: Fake) -> Fake {
    for (row, ns) in [(0, 1.8e5), (1, 1.2e5), (2, 1e5)] {
        run.chain(row, &[(0, ns)]);
        let kernel = run.members.last_mut().unwrap();
        kernel.0 = Member::Kernel(SiteId(0), row);
        kernel.2.place = format!("kernel {row}");
    }
    run
}

#[test]
fn chains_of_one_site_keep_their_savings() {
    let rules = replacing(&[("layers/x", "chain", "100000.0")]);
    let results = two_chains().judge(&rules);
    assert_eq!(claimed(&results), [("chain 0", 1e5), ("chain 1", 1e5)]);
}

#[test]
fn findings_on_the_same_chain_share_its_time() {
    // The second one is about work that the first one replaces.
    let rules = replacing(&[
        ("layers/x", "chain", "100000.0"),
        ("layers/y", "chain", "90000.0"),
    ]);
    let results = two_chains().judge(&rules);
    assert_eq!(claimed(&results), [("chain 0", 1e5), ("chain 1", 1e5)]);
    assert_eq!(results.dropped.len(), 2);
    // The first one is too small to replace anything.
    let rules = replacing(&[
        ("layers/x", "chain", "30000.0"),
        ("layers/y", "chain", "25000.0"),
    ]);
    let mut run = two_chains();
    run.totals.gpu_busy_ns *= 10.0;
    run.totals.window_ns *= 10.0;
    let results = run.judge(&rules);
    let saved: Vec<f64> = claimed(&results).iter().map(|(_, ns)| *ns).collect();
    assert_eq!(saved, [3e4, 0.0, 3e4, 0.0]);
}

#[test]
fn chains_and_kernels_share_the_time_of_the_kernels_that_both_have() {
    let rules = replacing(&[
        ("layers/x", "chain", "100000.0"),
        ("memory/y", "kernel", "50000.0"),
    ]);
    let results = with_kernels(two_chains()).judge(&rules);
    let expected = [("chain 0", 1e5), ("chain 1", 1e5), ("kernel 2", 5e4)];
    assert_eq!(claimed(&results), expected);
    // The kernels claim first.
    let rules = replacing(&[
        ("layers/x", "chain", "50000.0"),
        ("memory/y", "kernel", "60000.0"),
    ]);
    let mut run = with_kernels(two_chains());
    run.members
        .retain(|(member, ..)| *member != Member::Kernel(SiteId(0), 0));
    let results = run.judge(&rules);
    let expected = [("chain 0", 5e4), ("kernel 1", 6e4), ("kernel 2", 6e4)];
    assert_eq!(claimed(&results), expected);
}

#[test]
fn a_finding_on_the_whole_site_leaves_nothing_to_chains() {
    let whole = rule("replaces_work = true\nsaving_ns = '200000.0'");
    let chain =
        rule("for_each = \"chain\"\nwhen = '1 > 0'\nreplaces_work = true\nsaving_ns = '50000.0'");
    let rules = load(&[("layers/x", &whole), ("memory/y", &chain)]).unwrap();
    let results = two_chains().judge(&rules);
    assert_eq!(claimed(&results), [("a: linear", 2e5)]);
}

#[test]
fn backward_calls_of_a_chain_may_be_those_of_another_one() {
    let rules = replacing(&[("layers/x", "chain", "100000.0")]);
    let saved = |is_backward: [bool; 2]| {
        let mut run = two_chains();
        let chains = run
            .members
            .iter_mut()
            .filter(|(m, ..)| matches!(m, Member::Chain(_)));
        for ((.., affected), is_backward) in chains.zip(is_backward) {
            if is_backward {
                affected.backward = std::mem::take(&mut affected.sites);
                affected.sites.push(affected.backward[0]);
                affected.sites[0].site = SiteId(7);
                affected.sites[0].time_ns = 1.0;
                affected.parts.clear();
            }
        }
        let results = run.judge(&rules);
        let saved: f64 = claimed(&results).iter().map(|(_, ns)| ns).sum();
        saved.round()
    };
    assert_eq!(saved([true, true]), 2e5);
    // The first one claims 0.1 ms of it, and then it goes with all of its 0.18 ms of 0.4 ms.
    assert_eq!(saved([true, false]), 2e5 - (1.8e5_f64 * 0.3).round());
}
