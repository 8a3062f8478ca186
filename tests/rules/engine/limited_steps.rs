//! How far steps become shorter where communication or the host limits them.

use pyprof_advise::facts::StepWeight;
use pyprof_advise::judge::{RuleResults, Saving};

use super::fake_table::{Fake, i, load, rule, s};

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

#[test]
fn kernel_time_is_divided_by_the_devices_that_work_at_the_same_time() {
    let gaps = "for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\n";
    let of_gpu = rule("saving_ns = 'site.time_ns'");
    let rules = load(&[("host/x", &rule(gaps)), ("layers/x", &of_gpu)]).unwrap();
    let mut run = Fake::default();
    run.totals.devices = 4;
    run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
    run.gap(0, 4e5, "after_sync");
    for (at_once, expected) in [(4.0, (5e4, 1e5)), (1.0, (2e5, 4e5)), (0.0, (2e5, 4e5))] {
        run.totals.devices_at_once = at_once;
        let results = run.judge(&rules);
        assert_eq!(step(&results, "layers/x"), expected);
        assert_eq!(step(&results, "host/x"), (5e4, 1e5));
    }
}

#[test]
fn steps_do_not_become_shorter_than_the_work_of_the_host() {
    let saved = |more: &str, host_slack_ns: Option<f64>| {
        let by_name = |name: &str| {
            format!("when = 'site.family == \"{name}\"'\nsaving_ns = 'site.time_ns'\n")
        };
        let rules = load(&[
            ("layers/x", &rule(&by_name("gemm"))),
            ("layers/y", &rule(&(by_name("norm") + more))),
        ]);
        let mut run = Fake::default();
        run.totals.host_slack_ns = host_slack_ns;
        run.totals.window_ns = host_slack_ns.unwrap_or_default();
        run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
        run.site(1, "head", 3e5, 0.0, &[("site.family", s("norm"))]);
        let results = run.judge(&rules.unwrap());
        [step(&results, "layers/x"), step(&results, "layers/y")]
    };
    let whole = (1.5e5, 3e5);
    assert_eq!(saved("", None), [(2e5, 4e5), whole]);
    assert_eq!(saved("", Some(7e5)), [(2e5, 4e5), whole]);
    // The upper end of the first one leaves 0.1 ms to the second one, its lower end leaves enough.
    assert_eq!(saved("", Some(5e5)), [(2e5, 4e5), (1.5e5, 1.5e5)]);
    // The host waits for certain in four fifths of the time.
    assert_eq!(saved("", Some(1e5)), [(8e4, 1e5), (0.0, 0.0)]);
    // With fewer launches the host has less to do.
    for fewer in [
        "launches_removed = '0.5'\n",
        "changes = { launches = \"fewer\" }\n",
        "changes = { fusion = \"compile\" }\n",
    ] {
        assert_eq!(saved(fewer, Some(1e5)), [(8e4, 1e5), whole], "{fewer}");
    }
    // Also a saving that may be nothing has no more than the others left.
    let uncertain = "saving_low_ns = '0.0'\n";
    assert_eq!(saved(uncertain, Some(5e5)), [(2e5, 4e5), (0.0, 1e5)]);
}

#[test]
fn without_a_profiler_the_host_works_less() {
    let rules = load(&[("layers/x", &rule("saving_ns = 'site.time_ns'"))]).unwrap();
    let mut run = Fake::default();
    run.totals.host_slack_ns = Some(1e5);
    run.totals.window_ns = 4e5;
    run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
    // Of the 0.3 ms that the host works as recorded, up to two fifths are the profiler's.
    assert_eq!(step(&run.judge(&rules), "layers/x"), (8e4, 2.2e5));
}

#[test]
fn the_host_catches_up_behind_waits_only_while_it_waits() {
    let gaps = |low: &str| {
        rule(&format!(
            "for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\n{low}"
        ))
    };
    let of_gpu = rule("saving_ns = 'site.time_ns'");
    let saved = |low: &str, catch_up_ns: f64| {
        let rules = load(&[("host/x", &gaps(low)), ("layers/x", &of_gpu)]);
        let mut run = Fake::default();
        run.totals.host_slack_ns = Some(5e5);
        run.totals.window_ns = 5e5;
        run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
        run.gap(0, 3e5, "after_sync");
        run.members[1].2.catch_up_ns = catch_up_ns;
        let results = run.judge(&rules.unwrap());
        let saving = saving(&results, "host/x");
        let (low, high) = step(&results, "host/x");
        assert!((saving.claimed_ns - high).abs() < 1e-6);
        assert!((saving.claimed_low_ns - low).abs() < 1e-6);
        assert!((saving.overlap_ns - (3e5 - high)).abs() < 1e-6);
        (low.round(), high.round())
    };
    assert_eq!(saved("", 0.0), (1.5e5, 3e5));
    // The GPU saves 0.4 of the 0.5 ms that the host waits. Of 0.2 ms half is left.
    assert_eq!(saved("", 2e5), (1e5, 2e5));
    assert_eq!(saved("saving_low_ns = '0.0'\n", 2e5), (0.0, 2e5));
}

#[test]
fn fewer_launches_shorten_steps_by_the_smaller_of_host_and_gpu_time() {
    let rules = load(&[(
        "layers/x",
        &rule("saving_ns = 'site.time_ns'\nlaunches_removed = '0.5'"),
    )])
    .unwrap();
    let saved = |host_ns: f64, change: &dyn Fn(&mut Fake)| {
        let mut run = Fake::default();
        run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.host_ns = host_ns;
        run.members[0].2.sites[0].step_weight = Some(StepWeight {
            low: 0.0,
            high: 0.25,
        });
        change(&mut run);
        step(&run.judge(&rules), "layers/x")
    };
    // Late launches follow: kernel time alone counts by a quarter at most.
    assert_eq!(saved(0.0, &|_| {}), (0.0, 1e5));
    // Half of the launches go.
    assert_eq!(saved(1e5, &|_| {}), (2.5e4, 1e5));
    assert_eq!(saved(6e5, &|_| {}), (1.5e5, 3e5));
    assert_eq!(saved(2e6, &|_| {}), (2e5, 4e5));
    // Other work hides half of it, or workers set the pace.
    let beside = |run: &mut Fake| run.members[0].2.sites[0].exposed_share = 0.5;
    assert_eq!(saved(2e6, &beside), (1e5, 2e5));
    let paced = |run: &mut Fake| run.totals.paced_by_workers = true;
    assert_eq!(saved(2e6, &paced), (0.0, 1e5));
}

#[test]
fn more_launches_leave_no_certain_saving_where_the_gpu_waits_for_them() {
    let saved = |more: &str, late_launch_ns: f64| {
        let text = rule(&format!("saving_ns = 'site.time_ns'\n{more}"));
        let rules = load(&[("layers/x", text.as_str())]).unwrap();
        let mut run = Fake::default();
        run.totals.window_ns = 2e6;
        run.totals.late_launch_ns = late_launch_ns;
        run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
        step(&run.judge(&rules), "layers/x")
    };
    let adds = "adds_launches = 'site.family == \"gemm\"'";
    assert_eq!(saved(adds, 4.9e5), (2e5, 4e5));
    assert_eq!(saved(adds, 5e5), (0.0, 4e5));
    assert_eq!(saved("", 5e5), (2e5, 4e5));
    assert_eq!(
        saved("adds_launches = 'site.family == \"norm\"'", 5e5),
        (2e5, 4e5)
    );
}

#[test]
fn communication_makes_no_other_work_a_smaller_part() {
    let is_found = |category: &str, comm_ns: f64| {
        let id = format!("{category}/x");
        let text = rule("require = 'found.kernel_share >= 0.5'\nsaving_ns = 'site.time_ns'");
        let rules = load(&[(id.as_str(), &text)]).unwrap();
        let mut run = Fake::default();
        run.totals.comm_ns = comm_ns;
        run.site(0, "body", 2e5, 0.0, &[("site.family", s("gemm"))]);
        let results = run.judge(&rules);
        !results.findings.is_empty() || !results.minor.is_empty()
    };
    assert!(!is_found("layers", 5.9e5));
    assert!(is_found("layers", 6e5));
    assert!(!is_found("communication", 6e5));
}

#[test]
fn certain_idle_time_precedes_kernel_time_of_unknown_effect() {
    let gaps = rule("for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'");
    let rules = load(&[
        ("host/x", &gaps),
        ("layers/x", &rule("saving_ns = 'site.time_ns'")),
    ])
    .unwrap();
    let first = |step_weight: Option<f64>, idle: f64| {
        let mut run = Fake::default();
        run.totals.step_weight = step_weight;
        run.site(0, "body", 8e5, 0.0, &[("site.family", s("gemm"))]);
        run.gap(0, idle, "x");
        run.judge(&rules).findings[0].rule.clone()
    };
    // Half of it is certain; a twentieth of the window is 0.1 ms.
    assert_eq!(first(None, 2e5), "host/x");
    assert_eq!(first(None, 1.9e5), "layers/x");
    assert_eq!(first(Some(1.0), 2e5), "layers/x");
}

#[test]
fn removed_work_takes_its_reachable_time_along() {
    let claimed = |share: f64, before: &str| {
        let removes = format!(
            "when = 'site.m == 7'\nremoves_work = true\nsaving_ns = 'site.time_ns * {share:?}'"
        );
        let faster = rule(&format!("when = 'site.m == 7'\n{before}"));
        let rules = load(&[("layers/gone", &rule(&removes)), ("memory/faster", &faster)]).unwrap();
        let mut run = Fake::default();
        run.site(0, "body", 4e5, 1e5, &[("site.m", i(7))]);
        let results = run.judge(&rules);
        saving(&results, "layers/gone").claimed_ns
    };
    assert_eq!(claimed(1.0, ""), 4e5);
    // Half of the calls go away, and with them half of what the others cannot be faster than.
    assert_eq!(claimed(0.5, ""), 2e5);
    // What a better finding saves of all of them, it saves of those that go away.
    assert_eq!(
        claimed(0.5, "saving_ns = '240000.0'\nsaving_low_ns = '240000.0'"),
        8e4
    );
}
