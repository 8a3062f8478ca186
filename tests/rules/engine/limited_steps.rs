//! How far steps become shorter where communication or the host limits them.

use pyprof_advise::judge::{RuleResults, Saving};

use super::fake_table::{Fake, load, rule, s};

fn saving(results: &RuleResults, rule: &str) -> Saving {
    let mut all = results.findings.iter().chain(&results.minor);
    let finding = all.find(|finding| finding.rule == rule).unwrap();
    finding.saving.unwrap()
}

/// The ends of what a rule saves of a step.
fn step(results: &RuleResults, rule: &str) -> (f64, f64) {
    let saving = saving(results, rule);
    (saving.step_low_ns.unwrap(), saving.step_ns.unwrap())
}

#[test]
fn work_beside_communication_counts_as_the_upper_end_while_steps_are_longer_than_communication() {
    let rules = load(&[("layers/x", &rule("saving_ns = 'site.time_ns'"))]).unwrap();
    let saved = |comm_slack_ns: f64, comm_ns: f64| {
        let mut run = Fake::default();
        run.site(0, "body", 8e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.sites[0].exposed_share = 0.25;
        run.members[0].2.sites[0].beside_comm_share = 0.5;
        run.totals.comm_slack_ns = comm_slack_ns;
        run.totals.comm_ns = comm_ns;
        step(&run.judge(&rules), "layers/x")
    };
    // Half of it is certain: of 0.8 ms, 0.2 ms ran alone and 0.4 ms beside communication.
    assert_eq!(saved(8e5, 8e5), (1e5, 6e5));
    assert_eq!(saved(3e5, 8e5), (1e5, 5e5));
    // Communication takes 1.7 of 2 ms.
    assert_eq!(saved(8e5, 1.7e6), (1e5, 3e5));
    assert_eq!(saved(8e5, 1.9e6), (1e5, 2e5));
}
