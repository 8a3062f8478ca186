//! Findings that the fix of a better one repairs as well.

use pyprof_advise::correlate::SiteId;

use super::fake_table::{Fake, dropped, i, load, rule, s};

#[test]
fn findings_that_a_better_one_repairs_become_a_part_of_it() {
    let saves =
        |share: f64, more: &str| rule(&format!("saving_ns = 'site.time_ns * {share:?}'\n{more}"));
    let rules =
        |first: &str, second: &str| load(&[("host/a", first), ("memory/b", second)]).unwrap();
    let mut run = Fake::default();
    let with_m = |m: i64| vec![("site.family", s("gemm")), ("site.m", i(m))];
    run.site(0, "a", 4e5, 0.0, &with_m(1));
    run.site(1, "b", 2e5, 0.0, &with_m(9));
    let first = saves(0.5, "when = 'site.m < 9'\nalso_fixes = [\"memory/b\"]");
    let second = saves(0.5, "when = 'site.m == 9'");
    let results = run.judge(&rules(&first, &second));
    let [joined] = results.findings.as_slice() else {
        panic!("{:?}", results.findings);
    };
    assert_eq!(joined.rule, "host/a");
    assert_eq!(joined.sites, [SiteId(0), SiteId(1)]);
    let places: Vec<&str> = joined
        .places
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(places, ["a: linear", "b: linear"]);
    assert_eq!(joined.place, "a: linear and 1 more place");
    assert!(
        joined
            .message
            .starts_with("says The same change takes care of `memory/b` ("),
        "{}",
        joined.message
    );
    let saving = joined.saving.unwrap();
    assert_eq!((saving.claimed_ns, saving.claimed_low_ns), (3e5, 1.5e5));
    assert_eq!(dropped(&results), [("memory/b", "host/a")]);
    // A finding that ranks before stays.
    let large = saves(1.0, "when = 'site.m == 9'");
    let small = saves(0.25, "when = 'site.m < 9'\nalso_fixes = [\"memory/b\"]");
    let results = run.judge(&rules(&small, &large));
    let order: Vec<_> = results.findings.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(order, ["memory/b", "host/a"]);
}

#[test]
fn minor_findings_become_a_part_of_a_larger_one_that_repairs_them() {
    let minor = "when = 'site.m == 9'\nsaving_ns = 'site.time_ns * 0.5'";
    let rules = |also: &str| {
        let first = rule(&format!(
            "when = 'site.m < 9'\nsaving_ns = 'site.time_ns'\n{also}"
        ));
        load(&[("host/a", &first), ("memory/b", &rule(minor))]).unwrap()
    };
    let mut run = Fake::default();
    let with_m = |m: i64| vec![("site.family", s("gemm")), ("site.m", i(m))];
    run.site(0, "a", 4e5, 0.0, &with_m(1));
    run.site(1, "b", 2e4, 0.0, &with_m(9));
    let results = run.judge(&rules(""));
    assert_eq!((results.findings.len(), results.minor.len()), (1, 1));
    let results = run.judge(&rules("also_fixes = [\"memory/b\"]"));
    assert_eq!((results.findings.len(), results.minor.len()), (1, 0));
    assert_eq!(results.findings[0].saving.unwrap().claimed_ns, 4.1e5);
}

#[test]
fn gpu_time_that_goes_away_with_idle_time_is_part_of_the_upper_end() {
    let idle = rule(
        "saving_kind = \"idle\"\nfor_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\nalso_fixes = [\"layers/x\"]",
    );
    let work = rule("saving_ns = 'site.time_ns'");
    let rules = load(&[("host/launches", &idle), ("layers/x", &work)]).unwrap();
    let with = |work: f64| {
        let mut run = Fake::default();
        run.site(0, "a", work, 0.0, &[("site.family", s("gemm"))]);
        run.gap(0, 8e5, "host_late");
        run.judge(&rules)
    };
    let results = with(1e5);
    let [joined] = results.findings.as_slice() else {
        panic!("{:?}", results.findings);
    };
    assert_eq!(
        joined.message,
        "says The same change takes care of `layers/x` (10 % of GPU time), and saves 5.0 to 10 % of GPU time as well."
    );
    let saving = joined.saving.unwrap();
    assert_eq!((saving.claimed_ns, saving.step_ns), (8e5, Some(9e5)));
    // From a tenth of the step on, its own fix is worth a row.
    let results = with(2e5);
    let rules: Vec<_> = results.findings.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(rules, ["host/launches", "layers/x"]);
}

#[test]
fn a_finding_says_what_a_smaller_change_of_the_same_setting_saves() {
    let by = |more: &str| rule(&format!("saving_ns = 'site.time_ns * 0.9'\n{more}"));
    let small = rule(
        "saving_ns = 'site.time_ns * 0.8'\nchanges = { precision = \"tf32\" }\nunless = [\"precision/mixed\"]",
    );
    let message = |by: &str| {
        let rules = load(&[("precision/mixed", by), ("precision/tf32", &small)]).unwrap();
        let mut run = Fake::default();
        run.site(0, "a", 5e5, 0.0, &[("site.family", s("gemm"))]);
        let results = run.judge(&rules);
        assert_eq!(results.findings.len(), 1);
        results.findings[0].message.clone()
    };
    assert_eq!(
        message(&by("changes = { precision = \"mixed\" }")),
        "says The smaller change of `precision/tf32` alone saves 20 to 40 % of GPU time."
    );
    assert_eq!(message(&by("changes = { precision = \"tf32\" }")), "says");
    assert_eq!(message(&by("")), "says");
}

#[test]
fn findings_of_one_rule_are_joined_where_their_fix_is_the_same() {
    let text = "saving_ns = 'site.time_ns * 0.5'\nalso_fixes = [\"host/a\"]";
    let one = load(&[("host/a", &rule(text))]).unwrap();
    let mut run = Fake::default();
    for (number, m) in [(0, 1), (1, 1), (2, 9)] {
        let facts = [("site.family", s("gemm")), ("site.m", i(m))];
        run.site(number, &format!("l{number}"), 1e5, 0.0, &facts);
    }
    let results = run.judge(&one);
    let sites: Vec<_> = results.findings.iter().map(|f| f.sites.len()).collect();
    assert_eq!(sites, [3]);
    let variants = rule(&format!(
        "{text}\n[[fix]]\nwhen = 'site.m == 9'\ntext = \"pad\"\n[[fix]]\ntext = \"compile\""
    ))
    .replace("fix = \"do it\"\n", "");
    let two = load(&[("host/a", &variants)]).unwrap();
    let results = run.judge(&two);
    let fixes: Vec<_> = results
        .findings
        .iter()
        .map(|f| (f.fix.as_str(), f.sites.len()))
        .collect();
    assert_eq!(fixes, [("compile", 2), ("pad", 1)]);
}

#[test]
fn a_chain_suppresses_findings_about_sites_that_it_takes_most_of() {
    let chains = |parts: &[&[(u32, f64)]]| {
        let by = rule("for_each = \"chain\"\nwhen = '1 > 0'\nsupersedes = [\"memory/vague\"]");
        let rules = load(&[("host/chain", &by), ("memory/vague", &rule(""))]).unwrap();
        let mut run = Fake::default();
        run.site(0, "a", 1e5, 0.0, &[("site.family", s("gemm"))]);
        for (number, parts) in (0..).zip(parts) {
            run.chain(number, parts);
        }
        let results = run.judge(&rules);
        (results.findings.iter()).any(|f| f.rule == "memory/vague")
    };
    // All copies of a layer are one site where shapes are not recorded.
    assert!(chains(&[&[(0, 5e4)]]));
    assert!(!chains(&[&[(0, 5.1e4)]]));
    assert!(!chains(&[&[(0, 3e4)], &[(0, 3e4)]]));
    assert!(chains(&[&[(1, 1e5)]]));
}

#[test]
fn what_may_save_nothing_supersedes_no_certain_saving() {
    let found = |low: &str, certain: f64| {
        let by = rule(&format!(
            "saving_ns = 'site.time_ns'\nsaving_low_ns = '{low}'\nsupersedes = [\"memory/certain\"]"
        ));
        let other = rule(&format!(
            "saving_ns = '{certain:?}'\nsaving_low_ns = '{certain:?}'"
        ));
        let rules = load(&[("layers/by", by.as_str()), ("memory/certain", &other)]).unwrap();
        let mut run = Fake::default();
        run.site(0, "a", 4e5, 0.0, &[("site.family", s("gemm"))]);
        let results = run.judge(&rules);
        let all = results.findings.iter().chain(&results.minor);
        all.map(|f| f.rule.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found("1000.0", 1e5), ["layers/by"]);
    assert_eq!(found("0.0", 1e5), ["memory/certain", "layers/by"]);
    // A detail of the step, which takes 2 ms.
    assert_eq!(found("0.0", 1.9e4), ["layers/by"]);
}
