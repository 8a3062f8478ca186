//! Findings that the fix of a better one repairs as well.

use pyprof_advise::correlate::SiteId;

use super::fake_table::{Fake, i, load, rule, s};

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
    assert!(
        joined
            .message
            .starts_with("says The same change takes care of `memory/b` ("),
        "{}",
        joined.message
    );
    let saving = joined.saving.unwrap();
    assert_eq!((saving.claimed_ns, saving.claimed_low_ns), (3e5, 1.5e5));
    let silenced: Vec<_> = (results.dropped.iter())
        .map(|s| (s.rule.as_str(), s.by.as_str()))
        .collect();
    assert_eq!(silenced, [("memory/b", "host/a")]);
    // A finding that ranks before stays.
    let large = saves(1.0, "when = 'site.m == 9'");
    let small = saves(0.25, "when = 'site.m < 9'\nalso_fixes = [\"memory/b\"]");
    let results = run.judge(&rules(&small, &large));
    let order: Vec<_> = results.findings.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(order, ["memory/b", "host/a"]);
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
