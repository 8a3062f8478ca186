//! How far kernel time counts where launches come late.

use pyprof_advise::facts::StepWeight;
use pyprof_advise::judge::SavingKind;

use super::fake_table::{Fake, d, load, rule, s};

#[test]
fn work_that_the_host_waits_for_precedes_work_ahead_of_late_launches() {
    let rules = load(&[("layers/x", &rule("saving_ns = 'site.time_ns'"))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "body", 4e5, 0.0, &[("site.family", s("gemm"))]);
    run.site(1, "head", 3e5, 0.0, &[("site.family", s("gemm"))]);
    run.totals.step_weight = Some(0.5);
    run.members[0].2.sites[0].step_weight = Some(StepWeight {
        low: 0.0,
        high: 0.1,
    });
    run.members[1].2.sites[0].step_weight = Some(StepWeight::exactly(1.0));
    let results = run.judge(&rules);
    let wall: Vec<_> = (results.findings.iter().chain(&results.minor))
        .map(|f| (f.place.as_str(), f.saving.unwrap().step_ns))
        .collect();
    assert_eq!(
        wall,
        [("head: linear", Some(3e5)), ("body: linear", Some(4e4))]
    );
}

#[test]
fn kernel_time_counts_where_another_finding_brings_launches_in_time() {
    let left_for_then = |idle: &str| {
        let launches = format!(
            "saving_kind = \"idle\"\nsaving_ns = '{idle}'\nsaving_low_ns = '{idle}'\nchanges = {{ launches = \"fewer\" }}"
        );
        let rules = [
            ("host/launches", rule(&launches)),
            ("layers/x", rule("saving_ns = 'site.time_ns'")),
        ];
        let rules = rules.each_ref().map(|(id, text)| (*id, text.as_str()));
        let mut run = Fake::default();
        run.site(0, "body", 3e5, 0.0, &[("site.family", s("gemm"))]);
        run.totals.step_weight = Some(0.5);
        run.members[0].2.sites[0].step_weight = Some(StepWeight::exactly(0.0));
        let results = run.judge(&load(&rules).unwrap());
        let mut all = results.findings.iter().chain(&results.minor);
        all.any(|f| f.rule == "layers/x" && f.after.as_deref() == Some("host/launches"))
    };
    // The GPU works 1 ms and idles 1 ms: without most of that, it is what limits a step.
    assert!(left_for_then("900000.0"));
    assert!(!left_for_then("200000.0"));
}

#[test]
fn kernel_time_counts_in_part_where_only_the_upper_end_brings_launches_in_time() {
    let then = |idle_high: f64, work: f64| {
        let launches = format!(
            "saving_kind = \"idle\"\nsaving_ns = '{idle_high:?}'\nsaving_low_ns = '200000.0'\nchanges = {{ launches = \"fewer\" }}"
        );
        let rules = [
            ("host/launches", rule(&launches)),
            ("layers/x", rule("saving_ns = 'site.time_ns'")),
        ];
        let rules = rules.each_ref().map(|(id, text)| (*id, text.as_str()));
        let mut run = Fake::default();
        run.site(0, "body", work, 0.0, &[("site.family", s("gemm"))]);
        run.totals.step_weight = Some(0.5);
        run.members[0].2.sites[0].step_weight = Some(StepWeight::exactly(0.0));
        let results = run.judge(&load(&rules).unwrap());
        let is_it = |f: &&pyprof_advise::judge::Finding| f.rule == "layers/x";
        let major = results.findings.iter().find(is_it);
        let finding = major.or(results.minor.iter().find(is_it)).unwrap();
        let saving = finding.saving.unwrap();
        assert_eq!(saving.step_low_ns, Some(0.0));
        (
            saving.step_ns.unwrap(),
            finding.after.is_some(),
            major.is_some(),
        )
    };
    // The GPU works 1 ms of 2 ms. Then it works 1 ms of 1.25 ms, so that three quarters of its time count.
    let (step_ns, is_after, is_major) = then(7.5e5, 4e5);
    assert!((step_ns - 3e5).abs() < 1.0, "{step_ns}");
    assert!(is_after && is_major);
    // Less than a tenth of the step, and more than a twentieth of the GPU's work.
    let (step_ns, is_after, is_major) = then(7.5e5, 2e5);
    assert!((step_ns - 1.5e5).abs() < 1.0, "{step_ns}");
    assert!(is_after && !is_major);
    // Hardly more than half of the time is the GPU's.
    let (step_ns, is_after, is_major) = then(2e5, 4e5);
    assert!((step_ns - 4e5 * 0.1389).abs() < 10.0, "{step_ns}");
    assert!(!is_after && !is_major);
    // Without all idle time nearly all of it counts: that is not certain.
    assert!((then(1e6, 3e5).0 - 2.7e5).abs() < 1e-6);
}

#[test]
fn collectives_that_go_away_with_late_launches_save_their_time_as_well() {
    let saved_with = |id: &str, launches: f64, more: &str| {
        let text = rule(&format!(
            "saving_ns = 'site.time_ns * 0.5'\nlaunches_removed = '0.5'\n{more}"
        ));
        let rules = load(&[(id, text.as_str())]).unwrap();
        let mut run = Fake::default();
        run.totals.step_weight = Some(0.2);
        run.totals.late_launch_ns = 4e5;
        run.site(0, "a", 2e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.launch_ns = launches;
        let results = run.judge(&rules);
        let mut all = results.findings.iter().chain(&results.minor);
        let saving = all.next().unwrap().saving.unwrap();
        (saving.kind, saving.claimed_ns, saving.step_ns)
    };
    let saved = |id: &str, launches: f64| saved_with(id, launches, "");
    use SavingKind::{Gpu, Idle};
    let both = saved("communication/x", 4e5);
    assert_eq!(both, (Idle, 3e5, Some(3e5)));
    assert_eq!(saved("layers/x", 4e5), (Idle, 2e5, Some(2e5)));
    // So may other work that is no longer done at all.
    let removed = saved_with("layers/x", 4e5, "removes_work = true");
    assert_eq!(removed, (Idle, 3e5, Some(3e5)));
    // Launches that are not late leave the time of the collectives.
    assert_eq!(saved("communication/x", 0.0).0, Gpu);
}

#[test]
fn faster_launches_and_fewer_launches_do_not_save_the_same_gaps() {
    let faster =
        rule("for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns * 0.9'");
    let fewer = rule("saving_ns = 'site.time_ns'\nlaunches_removed = '0.5'");
    let rules = load(&[("host/faster", faster.as_str()), ("host/fewer", &fewer)]).unwrap();
    let mut run = Fake::default();
    run.totals.step_weight = Some(0.2);
    run.totals.reliable_idle_ns = 8e5;
    run.totals.late_launch_ns = 4e5;
    run.site(0, "a", 1e5, 0.0, &[("site.family", s("gemm"))]);
    run.members[0].2.launch_ns = 2e5;
    run.gap(0, 4e5, "host_late");
    run.members[1].2.launch_ns = 4e5;
    let saved = |run: &Fake, rule: &str| {
        let results = run.judge(&rules);
        let mut all = results.findings.iter().chain(&results.minor);
        let finding = all.find(|f| f.rule.as_str() == rule).unwrap();
        finding.saving.unwrap().claimed_ns
    };
    // Together they take what the gaps have.
    assert_eq!(saved(&run, "host/fewer"), 1e5);
    assert_eq!(saved(&run, "host/faster"), 3e5);
    // Where there is enough for both, both keep theirs.
    run.members[1].1.0.insert("gap.time_ns".into(), d(2e5));
    assert_eq!(saved(&run, "host/fewer"), 1e5);
    assert_eq!(saved(&run, "host/faster"), 1.8e5);
}

#[test]
fn once_launches_are_replayed_fewer_of_them_save_what_less_work_does() {
    let replayed = |idle: f64, confidence: &str| {
        let replays = rule(&format!(
            "for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = '{idle:?}'\nsaving_low_ns = '{idle:?}'\nchanges = {{ launches = \"fewer\" }}"
        ));
        let replays = replays.replace("\"high\"", &format!("\"{confidence}\""));
        let fewer = rule("saving_ns = 'site.time_ns * 0.5'\nlaunches_removed = '0.5'");
        let rules = load(&[("host/replays", replays.as_str()), ("layers/fused", &fewer)]).unwrap();
        let mut run = Fake::default();
        run.totals.step_weight = Some(0.2);
        run.totals.late_launch_ns = 1e6;
        run.site(0, "a", 1e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.launch_ns = 3e5;
        run.gap(0, 1e6, "host_late");
        run.members[1].2.launch_ns = 1e6;
        let results = run.judge(&rules);
        let mut all = results.findings.iter().chain(&results.minor);
        let fused = all.find(|f| f.rule == "layers/fused").unwrap();
        fused.saving.unwrap().kind
    };
    assert_eq!(replayed(5e5, "high"), SavingKind::Gpu);
    // Where much may still be late, or the replay is not sure, launches count.
    assert_eq!(replayed(3e5, "high"), SavingKind::Idle);
    assert_eq!(replayed(5e5, "medium"), SavingKind::Idle);
}

#[test]
fn what_makes_some_launches_claims_before_what_makes_all_of_them_faster() {
    let saved = |confidence: &str| {
        let faster = rule(
            "for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\nchanges = { launches = \"fewer\" }",
        );
        let faster = faster.replace("\"high\"", &format!("\"{confidence}\""));
        let some = rule("saving_ns = 'site.time_ns * 0.5'\nlaunches_removed = '1.0'");
        let rules = load(&[("host/faster", faster.as_str()), ("layers/some", &some)]).unwrap();
        let mut run = Fake::default();
        run.totals.step_weight = Some(0.2);
        run.totals.reliable_idle_ns = 4e5;
        run.totals.late_launch_ns = 1e7;
        run.site(0, "a", 1e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.launch_ns = 3e5;
        run.gap(0, 4e5, "host_late");
        run.members[1].2.launch_ns = 4e5;
        let results = run.judge(&rules);
        let mut all = results.findings.iter().chain(&results.minor);
        let some = all.find(|f| f.rule == "layers/some").unwrap();
        some.saving.unwrap().claimed_ns
    };
    assert_eq!(saved("medium"), 3e5);
    assert_eq!(saved("high"), 0.0);
}

#[test]
fn findings_are_measured_by_what_a_large_one_leaves_of_the_step() {
    let after = |idle_low: f64, work: f64| {
        let idle = rule(&format!(
            "saving_kind = \"idle\"\nfor_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\nsaving_low_ns = '{idle_low:?}'"
        ));
        let rules = [
            ("host/waits", idle),
            ("layers/x", rule("saving_ns = 'site.time_ns'")),
        ];
        let rules = rules.each_ref().map(|(id, text)| (*id, text.as_str()));
        let mut run = Fake::default();
        run.totals.window_ns = 1e7;
        run.totals.idle_ns = 9e6;
        run.totals.reliable_idle_ns = 9e6;
        run.totals.late_launch_ns = 9e6;
        run.site(0, "body", work, 0.0, &[("site.family", s("gemm"))]);
        run.gap(0, 9e6, "data_loading");
        let results = run.judge(&load(&rules).unwrap());
        let [minor] = results.minor.as_slice() else {
            panic!("{:?}", results.minor);
        };
        minor.after.clone()
    };
    // 0.5 % of the step at least, and 5 % of what is left of it.
    assert_eq!(after(5.1e6, 1e5).as_deref(), Some("host/waits"));
    assert_eq!(after(4.9e6, 1e5), None);
    assert_eq!(after(5.1e6, 1e4), None);
}

#[test]
fn launches_that_go_away_save_what_the_host_works_for_them() {
    let saved_with = |more: &str, weight: f64, host_ns: f64, late_ns: f64| {
        let fewer = format!("saving_ns = 'site.time_ns * 0.1'\nlaunches_removed = '0.5'\n{more}");
        let fewer = rule(&fewer);
        let rules = load(&[("layers/fewer", fewer.as_str())]).unwrap();
        let mut run = Fake::default();
        run.totals.step_weight = Some(weight);
        run.totals.late_launch_ns = late_ns;
        run.totals.reliable_idle_ns = 1e6;
        run.site(0, "a", 1e5, 0.0, &[("site.family", s("gemm"))]);
        run.members[0].2.launch_ns = 1e5;
        run.members[0].2.host_ns = host_ns;
        let results = run.judge(&rules);
        let mut all = results.findings.iter().chain(&results.minor);
        let saving = all.next().unwrap().saving.unwrap();
        (saving.kind, saving.claimed_low_ns, saving.claimed_ns)
    };
    let saved = |weight: f64, host_ns: f64, late_ns: f64| saved_with("", weight, host_ns, late_ns);
    use SavingKind::Idle;
    // Half of the launches go away, and of what they save half is certain.
    assert_eq!(saved(0.0, 0.0, 1e6), (Idle, 2.5e4, 5e4));
    assert_eq!(saved(0.0, 8e5, 1e6), (Idle, 2e5, 4e5));
    // Late launches follow half of the work.
    assert_eq!(saved(0.5, 8e5, 1e6), (Idle, 1e5, 2e5));
    // Not more than the GPU waits for launches.
    assert_eq!(saved(0.0, 8e5, 3e5), (Idle, 1.5e5, 3e5));
    // The GPU sets the length of the steps, or the host enters compiled code instead.
    let of_gaps = (Idle, 2.5e4, 5e4);
    assert_eq!(saved(0.76, 8e5, 1e6), of_gaps);
    let compile = "changes = { fusion = \"compile\" }";
    assert_eq!(saved_with(compile, 0.0, 8e5, 1e6), of_gaps);
}
