//! Savings of idle time that contain the copies behind it.

use super::fake_table::{Fake, load, rule};

#[test]
fn copies_that_go_away_with_idle_time_are_counted_once() {
    let gap = |saving: &str| {
        rule(&format!(
            "for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = '{saving}'\n"
        ))
    };
    let copy =
        rule("for_each = \"copy\"\nwhen = 'copy.exposed_ns > 0.0'\nsaving_ns = 'copy.exposed_ns'");
    let claimed = |saving: &str, idle: f64| {
        let rules = load(&[("host/gaps", &gap(saving)), ("copies/x", &copy)]).unwrap();
        let mut run = Fake::default();
        run.totals.reliable_idle_ns = idle;
        run.gap(0, 3e5, "x");
        run.members[0].2.copy_ns = 8e4;
        run.copy(0, 1e5);
        let results = run.judge(&rules);
        let of = |id: &str| {
            let mut found = results.findings.iter().chain(&results.minor);
            let saving = found.find(|f| f.rule == id).and_then(|f| f.saving);
            saving.map_or(0.0, |saving| saving.claimed_ns)
        };
        (of("host/gaps"), of("copies/x"))
    };
    assert_eq!(claimed("gap.time_ns", 1e6), (3e5, 1e5));
    assert_eq!(claimed("gap.time_ns + 8e4", 1e6), (3.8e5, 2e4));
    // No more than the copies behind the gap, and none in place of idle time.
    assert_eq!(claimed("gap.time_ns + 9e4", 1e6), (3.8e5, 2e4));
    assert_eq!(claimed("gap.time_ns", 2e5), (2e5, 1e5));
}
