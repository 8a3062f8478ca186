//! Which side of a comparison is faster where recording slowed one of them down, and where the whole and its steps
//! disagree.

use std::path::Path;

use pyprof_advise::Advisor;
use pyprof_advise::compare::diff::{Decision, Diff, diff, gate, markdown};
use pyprof_advise::report::{Report, UnitKind};

use crate::cli_sandbox::{ROOT, has};

fn fault(name: &str) -> Report {
    let folder = Path::new(ROOT).join("fixtures/host/faults");
    let advisor = Advisor::new().unwrap();
    advisor
        .report(folder.join(format!("{name}.pt.trace.json.gz")))
        .unwrap()
}

/// A report whose steps take so many times as long, which recording slowed down, so that only a share of its idle
/// time is reliable.
fn slowed(of: &Report, longer: f64, reliable: f64, why: &str) -> Report {
    let mut report = with_steps(of, longer);
    let s = &mut report.summary;
    let idle = (s.device_window_ns - s.busy_ns) as f64;
    s.reliable_idle_ns = (idle * reliable) as i64;
    s.idle_unreliable = Some(format!("{why} slowed the host down"));
    s.recording_overhead = Some(why.to_owned());
    report
}

fn with_steps(of: &Report, longer: f64) -> Report {
    let mut report = of.clone();
    let steps = report
        .units
        .iter_mut()
        .filter(|unit| unit.kind == UnitKind::Step);
    for ns in steps.flat_map(|unit| &mut unit.wall_ns) {
        *ns = (*ns as f64 * longer) as i64;
    }
    report
}

/// The host was waited for before, for 12 to 206 ms of each step, and Python calls are most of what is left.
#[test]
fn waits_that_recording_cannot_explain_are_compared() {
    for name in ["collect", "decode", "checkpoint", "read_back", "select"] {
        let (slow, fast) = (
            fault(&format!("{name}.fault")),
            fault(&format!("{name}.repaired")),
        );
        let repaired = diff(&slow, &fast);
        assert!(repaired.wall.unwrap().ratio < 0.7, "{:?}", repaired.verdict);
        assert_eq!(repaired.regression, None);
        let broken = diff(&fast, &slow);
        let range = broken.wall_range.unwrap();
        assert!(range.ratio_low > 1.4 && range.ratio_high > range.ratio_low);
        let failed = gate(&broken, 0.03);
        assert!(
            matches!(failed, Decision::Fail(by) if (by - (range.ratio_low - 1.0)).abs() < 1e-9),
            "{failed:?}"
        );
        assert_eq!(broken.regression, Some(range.ratio_low - 1.0));
        assert!(broken.parts.iter().any(|part| part.what == "idle"));
    }
}

fn is_left_open(diff: &Diff) -> bool {
    let Decision::Unknown(why) = gate(diff, 0.03) else {
        return false;
    };
    has(&why, &["wall times are not compared, because"]);
    has(&diff.verdict[0], &["Whether a step is faster is not known"]);
    assert!(!markdown(diff).unwrap().contains("gate would"));
    diff.wall.is_none() && diff.wall_range.is_some() && !diff.no_change && diff.regression.is_none()
}

#[test]
fn directions_that_recording_leaves_open_are_not_checked() {
    let plain = fault("collect.fault");
    assert!(is_left_open(&diff(
        &plain,
        &slowed(&plain, 1.2, 0.7, "stacks")
    )));
    let less = diff(&plain, &slowed(&plain, 1.2, 0.95, "stacks"));
    assert!(less.wall.is_some() && less.wall_range.unwrap().ratio_low > 1.1);
    // The slower may be faster by its lower end, or by that of the other one.
    let before = slowed(&plain, 1.0, 0.7, "ranges");
    assert!(is_left_open(&diff(
        &before,
        &slowed(&plain, 1.2, 0.7, "stacks")
    )));
    assert!(is_left_open(&diff(
        &slowed(&plain, 1.0, 0.99, "stacks"),
        &slowed(&plain, 1.2, 0.5, "stacks")
    )));
}

#[test]
fn captures_recorded_alike_are_compared_as_recorded() {
    let plain = fault("collect.fault");
    let before = slowed(&plain, 1.0, 0.7, "stacks");
    let both = diff(&before, &slowed(&plain, 1.2, 0.7, "stacks"));
    assert!((both.wall.unwrap().ratio - 1.2).abs() < 0.001);
    assert!(both.wall_range.is_none());
    // The same options, but recording may explain less of one than a report doubts.
    let mut after = slowed(&plain, 1.2, 0.82, "stacks");
    after.summary.idle_unreliable = None;
    let one = diff(&before, &after);
    let range = one.wall_range.unwrap();
    assert!(one.wall.is_some() && (range.ratio_low - 1.2).abs() < 0.001);
    assert!(
        (range.ratio_high - 1.2 * 0.82 / 0.7).abs() < 0.01,
        "{range:?}"
    );
}

/// A report with a range of so many seconds around its steps, and so many of a finding outside of them.
fn in_epoch(of: &Report, seconds: f64, outside: f64) -> Report {
    let mut report = of.clone();
    let mut epoch = report.units[0].clone();
    epoch.kind = UnitKind::Range;
    epoch.name = "epoch".to_owned();
    epoch.count = 1;
    epoch.held_share = 1.0;
    epoch.wall_ns = vec![(seconds * 1e9) as i64];
    report.units.push(epoch);
    report.findings[0].outside_ns = Some(outside * 1e9);
    report
}

#[test]
fn range_that_contradicts_its_steps_comes_first() {
    let plain = fault("collect.fault");
    let before = in_epoch(&plain, 2.0, 0.2);
    let after = in_epoch(&with_steps(&plain, 0.8), 2.4, 0.7);
    let slower = diff(&before, &after);
    let title = &plain.findings[0].title;
    let first = format!(
        "`epoch` takes 1.57 s outside of its steps, before 968 ms; of that, \"{title}\" costs 700 ms, before 200 ms."
    );
    has(
        &slower.verdict.join(" "),
        &[
            "`epoch` around all of the work takes 20 % more wall time: 2.40 s, before 2.00 s; but a step takes 20 % less",
            &first,
        ],
    );
    let unchecked = gate(&slower, 0.05);
    assert!(
        matches!(&unchecked, Decision::Unknown(why) if why.contains("`epoch` around them took 20 % longer")),
        "{unchecked:?}"
    );
    // Both faster, or the steps as before: nothing contradicts.
    let both = diff(&before, &in_epoch(&with_steps(&plain, 0.8), 1.7, 0.2));
    assert!(both.contradicting.is_none());
    let same = diff(&before, &in_epoch(&plain, 2.4, 0.6));
    assert!(same.contradicting.is_none());
}
