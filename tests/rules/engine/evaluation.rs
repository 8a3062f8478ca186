//! Evaluation of rules on handmade runs: three-valued logic, folding, suppression, claims and order.

use pyprof_advise::correlate::SiteId;
use pyprof_advise::facts::Value;
use pyprof_advise::judge::{
    Confidence, Finding, RuleResults, SavingKind, Severity, run_tests, why,
};

use super::fake_table::{FACTS, Fake, dropped, i, ints, load, rule, s};

fn gemm() -> Vec<(&'static str, Value)> {
    vec![("site.family", s("gemm"))]
}

fn only(results: &RuleResults) -> &Finding {
    assert_eq!(results.findings.len(), 1, "{:?}", results.findings);
    &results.findings[0]
}

#[test]
fn equal_blocks_give_one_finding() {
    let rules = load(&[(
        "host/x",
        &rule("saving_ns = 'site.time_ns - site.reachable_ns'"),
    )])
    .unwrap();
    let mut run = Fake::default();
    for n in 0..24 {
        run.site(n, "blocks.*", 1e4 + f64::from(n), 1e3, &gemm());
    }
    run.site(24, "head", 9e4, 1e3, &gemm());
    let results = run.judge(&rules);
    let places: Vec<_> = results
        .findings
        .iter()
        .map(|f| (f.place.as_str(), f.members.len(), f.calls))
        .collect();
    assert_eq!(
        places,
        [("blocks.*: linear", 24, 240), ("head: linear", 1, 10)]
    );
    assert_eq!(results.findings[0].sites.len(), 24);
}

#[test]
fn grouped_findings_are_summed_and_show_the_worst() {
    let text = rule(
        r#"
group_by = "run"
require = 'found.gpu_share >= params.min_share'
error_when = 'found.count >= 3'
saving_ns = 'site.time_ns - site.reachable_ns'
message = "{{ found.count }} with {{ found.calls }} calls, {{ found.time_ns | ns }}, {{ found.gpu_share | percent }} of GPU, {{ found.kernel_share | percent }}, {{ found.saving_ns | ns }}, worst {{ found.worst }} at {{ site.time_ns | ns }}"
[params]
min_share = { value = 0.3, doc = "d" }
"#,
    );
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 5e4, &gemm());
    run.site(1, "b", 2e5, 1e5, &gemm());
    let results = run.judge(&rules);
    let finding = only(&results);
    assert_eq!(
        finding.message,
        "2 with 20 calls, 300 us, 30 % of GPU, 30 %, 150 us, worst b: linear at 200 us"
    );
    assert_eq!(
        (finding.severity, finding.place.as_str()),
        (Severity::Warning, "b: linear and 1 more place")
    );
    assert_eq!(
        finding.evidence,
        [("site.family".to_owned(), "gemm".to_owned())]
    );
    run.site(2, "c", 1e4, 5e3, &gemm());
    assert_eq!(only(&run.judge(&rules)).severity, Severity::Error);
    run.totals.gpu_busy_ns = 1e7;
    assert!(run.judge(&rules).findings.is_empty(), "not enough");
}

#[test]
fn findings_without_a_known_loss_are_minor_whatever_their_time() {
    let text = rule("group_by = \"run\"\nminor_when = 'found.count < 2'");
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 9e5, 0.0, &gemm());
    let results = run.judge(&rules);
    assert!(results.findings.is_empty());
    assert_eq!(results.minor.len(), 1);
    run.site(1, "b", 1e4, 0.0, &gemm());
    assert_eq!(run.judge(&rules).findings.len(), 1);
}

#[test]
fn findings_are_grouped_by_layer_and_rank() {
    let by = |gather: &str| {
        let keys = format!("group_by = \"{gather}\"\nwhen = 'site.family != \"conv\"'");
        load(&[("host/x", &rule(&keys))]).unwrap()
    };
    let mut run = Fake::default();
    for (n, layer, rank) in [
        (0, "a", 0),
        (1, "b", 0),
        (2, "a", 1),
        (3, "b", 1),
        (4, "c", 1),
    ] {
        let mut facts = gemm();
        facts.push(("site.rank", i(rank)));
        facts.push(("kernel.label", s(if n < 2 { "gemm" } else { "conv" })));
        facts[0].1 = s(if n == 0 { "attention" } else { "gemm" });
        run.site(n, layer, 1e5, 0.0, &facts);
    }
    let count = |gather| {
        let mut sizes: Vec<_> = run
            .judge(&by(gather))
            .findings
            .iter()
            .map(|f| f.members.len())
            .collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(count("run"), [5]);
    assert_eq!(count("kernel"), [2, 3]);
    assert_eq!(count("family"), [1, 4]);
    assert_eq!(count("layer"), [1, 2, 2]);
    assert_eq!(count("rank"), [2, 3]);
}

#[test]
fn finding_without_a_saving_is_kept() {
    let text = rule("saving_ns = 'site.time_ns - double(site.m)'");
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &gemm());
    let results = run.judge(&rules);
    assert_eq!(only(&results).saving, None);
    assert!(results.skipped.is_empty() && results.faults.is_empty());
    let text = rule("saving_ns = 'site.time_ns / (site.reachable_ns - site.reachable_ns)'");
    let results = run.judge(&load(&[("host/x", &text)]).unwrap());
    assert_eq!(only(&results).saving, None);
    assert_eq!(
        (results.faults[0].count, results.faults[0].rule.as_str()),
        (1, "host/x")
    );
}

#[test]
fn no_nanosecond_is_claimed_twice() {
    let first = rule("title = \"first\"\nsaving_ns = 'site.time_ns * 0.5'");
    let second =
        rule("title = \"second\"\nconfidence = \"medium\"\nsaving_ns = 'site.time_ns * 0.6'");
    let rules = load(&[("host/a", &second), ("host/b", &first)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 2e4, &gemm());
    let results = run.judge(&rules);
    let all = results.findings.iter().chain(&results.minor);
    let got: Vec<_> = all
        .map(|f| {
            let saving = f.saving.unwrap();
            (
                f.title.as_str(),
                saving.high_ns,
                saving.claimed_ns,
                saving.overlap_ns,
                saving.low_ns,
            )
        })
        .collect();
    // 0.5 x 1.0 exceeds 0.6 x 0.7; of 80 us above the floor, 30 remain for the second.
    assert_eq!(
        got,
        [
            ("first", 5e4, 5e4, 0.0, 2.5e4),
            ("second", 6e4, 3e4, 3e4, 3e4)
        ]
    );
    let total: f64 = results
        .findings
        .iter()
        .map(|f| f.saving.unwrap().claimed_ns)
        .sum();
    assert!(total <= 8e4);
}

#[test]
fn idle_and_copy_savings_are_claimed_separately() {
    let idle = rule("for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'\n");
    let also =
        rule("for_each = \"run\"\nwhen = 'run.trusted'\nsaving_kind = \"idle\"\nsaving_ns = '9e5'");
    let copy = rule(
        "for_each = \"copy\"\nwhen = 'copy.exposed_ns > 0.0'\nsaving_ns = 'copy.exposed_ns * 4.0'",
    );
    let rules = load(&[
        ("host/gaps", &idle),
        ("host/run", &also),
        ("copies/x", &copy),
    ])
    .unwrap();
    let mut run = Fake::default();
    run.totals.devices = 2;
    run.totals.devices_at_once = 2.0;
    run.gap(0, 3e5, "x");
    run.gap(1, 2e5, "x");
    run.copy(0, 5e4);
    run.run(&[("run.trusted", Value::Bool(true))]);
    let results = run.judge(&rules);
    let of = |id: &str| {
        let found = results.findings.iter().filter(|f| f.rule == id);
        let savings: Vec<_> = found.map(|f| f.saving.unwrap()).collect();
        (
            savings.iter().map(|s| s.claimed_ns).sum::<f64>(),
            savings.iter().map(|s| s.step_ns.unwrap()).sum::<f64>(),
            savings[0].kind,
        )
    };
    // The run's 900 us are the largest saving; 100 us of idle time remain for the gaps.
    assert_eq!(of("host/run"), (9e5, 4.5e5, SavingKind::Idle));
    assert_eq!(of("host/gaps"), (1e5, 5e4, SavingKind::Idle));
    assert_eq!(of("copies/x"), (5e4, 2.5e4, SavingKind::Copy));
    let gap = results
        .findings
        .iter()
        .find(|f| f.place == "gap 0")
        .unwrap();
    assert!((gap.share - 0.15).abs() < 1e-9, "of the window");
}

#[test]
fn step_time_requires_trusted_idle_time() {
    let rules = load(&[("host/x", &rule("saving_ns = 'site.time_ns'"))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 4e5, 0.0, &gemm());
    run.members[0].2.sites[0].exposed_share = 0.5;
    run.totals.step_weight = Some(0.4);
    assert_eq!(only(&run.judge(&rules)).saving.unwrap().step_ns, Some(8e4));
    run.totals.step_weight = None;
    assert_eq!(only(&run.judge(&rules)).saving.unwrap().step_ns, None);
}

#[test]
fn launches_that_go_away_save_idle_time_where_that_shortens_the_steps_more() {
    let text = "saving_ns = 'site.time_ns'\nlaunches_removed = '0.5'";
    let rules = load(&[("host/x", &rule(text))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &gemm());
    run.members[0].2.launch_ns = 1.6e5;
    let saving = |run: &Fake| {
        let results = run.judge(&rules);
        let finding = only(&results);
        let saving = finding.saving.unwrap();
        (saving.kind, saving.low_ns, saving.high_ns, finding.share)
    };
    assert_eq!(saving(&run), (SavingKind::Gpu, 5e4, 1e5, 0.1));
    run.totals.step_weight = Some(0.7);
    assert_eq!(saving(&run), (SavingKind::Idle, 4e4, 8e4, 0.1));
    // No more than the idle time that can be relied on is counted.
    run.totals.reliable_idle_ns = 6e4;
    let counted = only(&run.judge(&rules)).saving.unwrap().claimed_ns;
    assert_eq!(counted, 6e4);
    run.totals.step_weight = None;
    assert_eq!(saving(&run).0, SavingKind::Gpu);
    // Below 1 % of the window, launches are no finding of their own.
    run.totals.step_weight = Some(0.0);
    run.members[0].2.launch_ns = 1.9e4;
    let minor = &run.judge(&rules).minor[0];
    assert_eq!(minor.saving.unwrap().kind, SavingKind::Gpu);
}

#[test]
fn largest_savings_come_first_and_minor_findings_last() {
    let kernel = rule("saving_ns = 'site.time_ns'");
    let unknown = rule("severity = \"error\"\nwhen = 'site.time_ns > 0.0'");
    let idle = rule("for_each = \"gap\"\nwhen = 'gap.time_ns > 0.0'\nsaving_ns = 'gap.time_ns'");
    let note = rule("for_each = \"run\"\nseverity = \"note\"\nwhen = '!run.trusted'");
    let files = [
        ("host/kernel", kernel.as_str()),
        ("host/unknown", &unknown),
        ("host/idle", &idle),
        ("profile/note", &note),
    ];
    let rules = load(&files).unwrap();
    let mut run = Fake::default();
    run.site(0, "big", 4e5, 0.0, &gemm());
    run.site(1, "small", 1e5, 0.0, &gemm());
    run.site(2, "sliver", 4.9e3, 0.0, &gemm());
    run.gap(0, 2e5, "x");
    run.gap(1, 9.9e3, "x");
    run.run(&[("run.trusted", Value::Bool(false))]);
    let order = |results: &RuleResults| {
        let name = |f: &Finding| format!("{} {}", f.rule, f.place);
        (
            results.findings.iter().map(name).collect::<Vec<_>>(),
            results.minor.iter().map(name).collect::<Vec<_>>(),
        )
    };
    let results = run.judge(&rules);
    let capture: Vec<&str> = results.capture.iter().map(|f| f.rule.as_str()).collect();
    assert_eq!(capture, ["profile/note"], "no advice on the program");
    let (findings, minor) = order(&results);
    assert_eq!(
        findings,
        [
            "host/kernel big: linear",
            "host/idle gap 0",
            "host/kernel small: linear",
            "host/unknown big: linear",
            "host/unknown small: linear",
        ]
    );
    assert_eq!(
        minor,
        [
            "host/idle gap 1",
            "host/kernel sliver: linear",
            "host/unknown sliver: linear"
        ]
    );
    // For a host-bound step, idle time comes first and kernels follow.
    run.totals.step_weight = Some(0.2);
    assert_eq!(order(&run.judge(&rules)).0[0], "host/idle gap 0");
}

#[test]
fn specific_finding_suppresses_general_finding() {
    let sharp = rule("when = 'site.m > 3'\nsupersedes = [\"memory/vague\"]");
    let vague =
        rule("group_by = \"run\"\nrequire = 'found.count >= 2'\nmessage = \"{{ found.count }}\"");
    let rules = load(&[("host/sharp", &sharp), ("memory/vague", &vague)]).unwrap();
    let mut run = Fake::default();
    let mut big = gemm();
    big.push(("site.m", i(9)));
    let mut small = gemm();
    small.push(("site.m", i(1)));
    run.site(0, "a", 1e5, 0.0, &big);
    run.site(1, "b", 1e5, 0.0, &small);
    run.site(2, "c", 1e5, 0.0, &small);
    let results = run.judge(&rules);
    let vague = results
        .findings
        .iter()
        .find(|f| f.rule == "memory/vague")
        .unwrap();
    assert_eq!(
        (vague.message.as_str(), vague.sites.as_slice()),
        ("2", &[SiteId(1), SiteId(2)][..])
    );
    assert_eq!(dropped(&results), [("memory/vague", "host/sharp")]);
    // The rest must still meet `require`.
    run.members.pop();
    let results = run.judge(&rules);
    assert!(results.findings.iter().all(|f| f.rule != "memory/vague"));
}

#[test]
fn suppressed_findings_still_suppress() {
    let a = rule("supersedes = [\"host/b\"]");
    let b = rule("supersedes = [\"host/c\"]");
    let rules = load(&[("host/a", &a), ("host/b", &b), ("host/c", &rule(""))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &gemm());
    assert_eq!(only(&run.judge(&rules)).rule, "host/a");
}

#[test]
fn unless_suppresses_findings_on_the_same_subject_only() {
    let a = rule("when = 'site.m > 3'");
    let b = rule("unless = [\"host/*\"]");
    let rules = load(&[("host/a", &a), ("memory/b", &b)]).unwrap();
    let mut run = Fake::default();
    let mut big = gemm();
    big.push(("site.m", i(9)));
    run.site(0, "a", 1e5, 0.0, &big);
    run.site(1, "b", 1e5, 0.0, &gemm());
    let results = run.judge(&rules);
    let left: Vec<_> = results
        .findings
        .iter()
        .map(|f| (f.rule.as_str(), f.place.as_str()))
        .collect();
    assert_eq!(left, [("host/a", "a: linear"), ("memory/b", "b: linear")]);
    // Two rules about the run have the same subject.
    let a = rule("for_each = \"run\"\nwhen = 'true'");
    let b = rule("for_each = \"run\"\nwhen = 'true'\nunless = [\"host/a\"]");
    let rules = load(&[("host/a", &a), ("memory/b", &b)]).unwrap();
    run.run(&[]);
    assert_eq!(only(&run.judge(&rules)).rule, "host/a");
}

#[test]
fn rules_about_the_capture_veto_others_or_lower_their_confidence() {
    let veto = rule(
        "for_each = \"run\"\nwhen = '!run.trusted'\nvetoes = [\"host/*\"]\nlowers_confidence = [\"memory/*\"]",
    );
    let kernel = rule("saving_ns = 'site.time_ns'\nmessage = \"{{ found.saving_ns | ns }}\"");
    let files = [
        ("profile/veto", veto.as_str()),
        ("host/a", &kernel),
        ("memory/b", &kernel),
    ];
    let rules = load(&files).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &gemm());
    run.run(&[("run.trusted", Value::Bool(false))]);
    let results = run.judge(&rules);
    assert_eq!(results.findings[0].rule, "memory/b");
    assert_eq!(results.findings[0].message, "100 us");
    assert_eq!(results.findings[0].confidence, Confidence::Medium);
    assert_eq!(dropped(&results)[0], ("host/a", "profile/veto"));
    run.members.pop();
    run.run(&[("run.trusted", Value::Bool(true))]);
    let results = run.judge(&rules);
    // Both claim the same time, so nothing remains for the second.
    assert_eq!((results.findings.len(), results.minor.len()), (1, 1));
    assert!(results.dropped.is_empty());
}

#[test]
fn contradicting_advice_keeps_the_larger_saving() {
    let a = rule("changes = { precision = \"bf16\" }\nsaving_ns = 'site.time_ns * 0.5'");
    let b = rule(
        "when = 'site.m > 3'\nchanges = { precision = \"fp32\" }\nsaving_ns = 'site.time_ns * 0.9'",
    );
    let c = rule(
        "changes = { shape = \"padded\" }\nsaving_ns = 'site.time_ns * 0.1'\n[params]\nmin_fraction = { value = 1.0, doc = \"d\" }",
    );
    let rules = load(&[("host/a", &a), ("host/b", &b), ("host/c", &c)]).unwrap();
    let mut run = Fake::default();
    let mut big = gemm();
    big.push(("site.m", i(9)));
    run.site(0, "a", 1e5, 0.0, &big);
    run.site(1, "b", 1e5, 0.0, &gemm());
    let results = run.judge(&rules);
    let of = |id: &str| -> Vec<SiteId> {
        let all = results.findings.iter().chain(&results.minor);
        all.filter(|f| f.rule == id)
            .flat_map(|f| f.sites.clone())
            .collect()
    };
    assert_eq!(of("host/b"), [SiteId(0)]);
    assert_eq!(of("host/a"), [SiteId(1)], "it contradicts host/b on site 0");
    assert_eq!(of("host/c").len(), 2);
    assert_eq!(dropped(&results)[0], ("host/a", "host/b"));
}

#[test]
fn missing_facts_are_reported_once_with_how_to_record_them() {
    let a = rule("when = 'site.m > 3'");
    let b = rule("when = 'site.m > 3 && gpu.tc_align.fp16 > 3'");
    let rules = load(&[("host/a", &a), ("host/b", &b)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &gemm());
    run.site(1, "b", 2e5, 0.0, &gemm());
    let results = run.judge(&rules);
    let shapes = results.skipped.iter().find(|n| n.fact == "site.m").unwrap();
    assert_eq!(shapes.rules, ["host/a", "host/b"]);
    assert_eq!(
        (shapes.members, shapes.time_ns, shapes.needs.as_str()),
        (2, 3e5, "tensor shapes")
    );
    assert!(
        results
            .skipped
            .iter()
            .any(|n| n.fact == "gpu.tc_align" && n.needs.contains("--gpu"))
    );
    assert_eq!(results.rules_run, 2);
}

#[test]
fn profile_text_is_escaped() {
    let text = rule(
        r#"message = "{{ site.label }} and {{ site.label | code }}"
fix = """```python
{{ site.label | word }}
```"""
why = "{{ site.names }} {{ site.names | join(' / ') }}""#,
    );
    let rules = load(&[("host/x", &text)]).unwrap();
    let hostile = "<img src=x> [a](http://b) @team `x` | **b**\n# h\u{1b}[31m {{ site.m }} ```";
    let mut facts = gemm();
    facts.push(("site.label", s(hostile)));
    facts.push((
        "site.names",
        Value::Strings(["*a*".into(), "<b>".into()].into()),
    ));
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 0.0, &facts);
    let results = run.judge(&rules);
    let finding = only(&results);
    for text in [&finding.message, &finding.why] {
        let bare = text.split('`').next().unwrap();
        for live in ["<img", "](", "**b", "*a*", "<b>"] {
            assert!(
                !bare.replace("\\*", "").replace("\\]", "").contains(live),
                "{live} in {text}"
            );
        }
        assert!(!text.contains('\n') && !text.contains('\u{1b}'), "{text}");
    }
    assert_eq!(finding.fix.matches("```").count(), 2, "{}", finding.fix);
    assert!(!finding.message.contains("{{ site.m }}") || !finding.message.contains("9"));
}

#[test]
fn failing_message_falls_back_to_the_title() {
    let cases = [
        ("{{ site.m }}", "guard it with `is defined`"),
        (
            "{% for a in site.names %}{% for b in site.names %}{% for c in site.names %}{{ a }}{% endfor %}{% endfor %}{% endfor %}",
            "",
        ),
        (
            "{% for a in site.names %}{{ site.label }}{% endfor %}",
            "longer than 4096 bytes",
        ),
        ("{{ site.label | ns }}", "a number was expected"),
        ("{{ site.time_ns | code }}", "a string was expected"),
        (
            "{{ gpu.tc_align }}",
            "a number, a word or a list was expected",
        ),
    ];
    for (message, want) in cases {
        let rules = load(&[("host/x", &rule(&format!("message = \"{message}\"")))]).unwrap();
        let mut facts = gemm();
        facts.push(("site.label", s(&"x".repeat(150))));
        facts.push((
            "site.names",
            Value::Strings(vec!["abcdefgh".into(); 200].into()),
        ));
        facts.push(("gpu.tc_align", ints(&[("fp16", 8)])));
        let mut run = Fake::default();
        run.site(0, "a", 1e5, 0.0, &facts);
        let results = run.judge(&rules);
        assert_eq!(only(&results).message, "A title");
        assert!(
            results.faults[0].message.contains(want),
            "{message}: {:?}",
            results.faults
        );
        assert!(results.faults[0].message.starts_with("message: "));
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let a = rule("saving_ns = 'site.time_ns * 0.5'\nsupersedes = [\"memory/*\"]");
    let b = rule("group_by = \"run\"\nsaving_ns = 'site.time_ns * 0.5'");
    let c = rule("group_by = \"layer\"\nwhen = 'site.m > 3 || true'");
    let rules = load(&[
        ("host/a", &a),
        ("host/b", &b),
        ("memory/c", &c),
        ("memory/d", &b),
    ])
    .unwrap();
    let mut run = Fake::default();
    for n in 0..200 {
        run.site(n, &format!("l{}", n % 17), 1e3, 1e2, &gemm());
    }
    let print = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| format!("{:?}", run.judge(&rules)))
    };
    let one = print(1);
    for threads in [2, 3, 8] {
        assert_eq!(print(threads), one, "{threads} threads");
    }
}

#[test]
fn empty_runs_are_healthy() {
    let rules = load(&[("host/x", &rule(""))]).unwrap();
    let results = Fake::default().judge(&rules);
    assert!(results.findings.is_empty() && results.skipped.is_empty());
}

#[test]
fn why_explains_the_decision_of_a_rule() {
    let text = rule(
        "when = 'site.family == \"gemm\" && site.m > params.least && odd'\nsaving_ns = 'site.time_ns'\n[params]\nleast = { value = 3, doc = \"d\" }\n[let]\nodd = '!divisible(site.m, 8)'",
    );
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    let mut known = gemm();
    known.push(("site.m", i(9)));
    run.site(0, "a", 1e5, 0.0, &known);
    run.site(1, "b", 1e5, 0.0, &gemm());
    run.site(2, "c", 1e5, 0.0, &[("site.family", s("conv"))]);
    let said = why(&rules.rules()[0], &run, &run.judge(&rules));
    for want in [
        "3 sites: 1 matched, 1 did not match, 1 skipped (data missing), 0 not applicable, 0 failed",
        "a: linear (100 us): matched",
        "  site.m = 9",
        "  params.least = 3",
        "  odd = yes, from !divisible(site.m, 8)",
        "  site.family == \"gemm\": true",
        "  site.m > params.least: unknown (no site.m)",
        "a finding:\n  a: linear: 10 % of GPU time, saves 50 to 100 us",
        "no site.m in 1 of them; it needs tensor shapes",
        "  saving_ns = 100 us",
        "  site.m = unknown (no site.m)",
    ] {
        assert!(said.contains(want), "{want}\n{said}");
    }
}

#[test]
fn explain_describes_a_rule() {
    let text = rule("[params]\nmin_fraction = { value = 0.25, doc = \"half of *it*\" }");
    let rules = load(&[("host/x", &text)]).unwrap();
    let page =
        pyprof_advise::judge::explain(&rules.rules()[0], pyprof_advise::facts::all(), &|_| None);
    for want in [
        "# A title",
        "`host/x` · warning · high confidence",
        "when       = site.family == \"gemm\"",
        "| `min_fraction` | 0.25 |",
        "*b*: does not fire",
        "--set host/x.NAME=VALUE",
    ] {
        assert!(page.contains(want), "{want}\n{page}");
    }
}

#[test]
fn a_rule_explains_the_variants_of_its_fix() {
    let text = rule(&format!("{FIXES}, {{ text = \"otherwise\" }}]"));
    let rules = load(&[("host/x", &text)]).unwrap();
    let page =
        pyprof_advise::judge::explain(&rules.rules()[0], pyprof_advise::facts::all(), &|_| None);
    let want = "## What to do\n\nIf `site.m > 8`:\n\nfirst {{ site.m }}\n\n\
                Otherwise, if `site.m > 4`:\n\nsecond\n\nOtherwise:\n\notherwise\n\n## ";
    assert!(page.contains(want), "{page}");
}

/// The outcome of one test of a rule.
fn proof(body: &str, test: &str) -> Result<(), String> {
    let rest =
        "\n[[test]]\nname = \"f\"\nfires = \"says\"\n[[test]]\nname = \"s\"\nsilent = true\n";
    let text = rule(&format!("{body}\n[[test]]\nname = \"t\"\n{test}{rest}"));
    let rules = load(&[("host/x", &text)]).unwrap();
    let gpu =
        |id: &str| (id == "g").then(|| [("gpu.tc_align".to_owned(), ints(&[("fp16", 8)]))].into());
    let proofs = run_tests(rules.rules(), FACTS, &gpu);
    proofs.into_iter().find(|p| p.test == "t").unwrap().outcome
}

const FIXES: &str = "fix = [{ when = 'site.m > 8', text = \"first {{ site.m }}\" }, \
                     { when = 'site.m > 4', text = \"second\" }";

#[test]
fn the_first_fix_whose_condition_holds_is_chosen() {
    let fix = |end: &str, m: Option<i64>| {
        let rules = load(&[("host/x", &rule(&format!("{FIXES}{end}")))]).unwrap();
        let mut facts = gemm();
        facts.retain(|(name, _)| *name != "site.m");
        facts.extend(m.map(|m| ("site.m", Value::Int(m))));
        let mut run = Fake::default();
        run.site(0, "a", 1e5, 0.0, &facts);
        only(&run.judge(&rules)).fix.clone()
    };
    let otherwise = ", { text = \"otherwise\" }]";
    assert_eq!(fix(otherwise, Some(9)), "first 9");
    assert_eq!(fix(otherwise, Some(5)), "second");
    assert_eq!(fix(otherwise, Some(1)), "otherwise");
    assert_eq!(fix(otherwise, None), "otherwise");
    assert_eq!(fix("]", Some(1)), "");
    assert_eq!(fix("]", None), "");
}

#[test]
fn rule_tests_pass_and_fail_with_the_right_reason() {
    let body = "when = 'site.m > 3 && gpu.tc_align.fp16 == 8'\nsaving_ns = 'site.time_ns'\nrequire = 'found.gpu_share > params.x'\nerror_when = 'found.count > 1'\nmessage = \"m={{ site.m }} {{ site.label }} {{ found.calls }} {{ found.time_ns | ns }}\"\n[params]\nx = { value = 0.1, doc = \"d\" }";
    let facts = "gpu = \"g\"\nfacts = { \"site.m\" = 9, \"site.label\" = \"a*b\", \"site.time_ns\" = 100, \"found.gpu_share\" = 0.5, site.calls = 4 }\n";
    let says = "m=9 a*b 4 100 ns";
    let fires = format!("{facts}fires = \"{says}\"\n");
    let no_gpu = facts.replace("gpu = \"g\"\n", "");
    let launches = format!("launches_removed = 'min(site.time_ns, 0.8)'\n{body}");
    // A fact that does not apply to the family makes the rule silent.
    let norm = "gpu = \"g\"\nfacts = { \"site.family\" = \"norm\" }\nsilent = true";
    for (body, test) in [
        (body, fires.clone()),
        (
            body,
            format!("{fires}saving_ns = 100\nseverity = \"warning\""),
        ),
        (body, format!("{fires}saving_low_ns = 50\nfix = \"do\"")),
        (&launches, format!("{fires}launches_removed = 0.8")),
        (body, format!("{no_gpu}skipped = [\"gpu.tc_align\"]")),
        (body, norm.to_owned()),
    ] {
        assert_eq!(proof(body, &test), Ok(()), "{test}");
    }
    for (test, why) in [
        (
            format!("{fires}saving_ns = 90"),
            "saving_ns: expected 90, actual 100",
        ),
        (
            format!("{fires}saving_low_ns = 90"),
            "saving_low_ns: expected 90, actual 50",
        ),
        (
            format!("{fires}launches_removed = 0.5"),
            "launches_removed: expected 0.5, actual none",
        ),
        (
            format!("{fires}fix = \"another one\""),
            "the fix lacks words\n  expected: another one\n  actual:   ",
        ),
        (
            format!("{fires}severity = \"error\""),
            "severity: expected error, actual warning",
        ),
        (
            format!("{facts}fires = \"m=9\""),
            "the message differs\n  expected: m=9\n  actual:   m=9 a*b 4 100 ns",
        ),
        (
            format!("{facts}silent = true"),
            "it should not fire, but fires: m=9 a*b 4 100 ns",
        ),
        (
            format!("{fires}params = {{ x = 0.9 }}"),
            "it should fire, but `require` is not met",
        ),
        (
            fires.replace("= 9", "= 2"),
            "it should fire, but its condition does not hold",
        ),
        (
            fires.replace("\"g\"", "\"v1000\""),
            "there is no GPU `v1000`",
        ),
        (
            format!("{no_gpu}skipped = [\"site.m\"]"),
            "it should be skipped for lack of site.m, but is skipped: no gpu.tc_align",
        ),
        (
            format!("{facts}skipped = [\"site.m\"]"),
            "it should be skipped for lack of site.m, but fires: ",
        ),
        (
            format!("{no_gpu}silent = true"),
            "it should not fire, but is skipped: no gpu.tc_align",
        ),
    ] {
        let outcome = proof(body, &test).unwrap_err();
        assert!(outcome.starts_with(why), "{test}: {outcome}");
    }
    let fewer = format!("{fires}launches_removed = 0.7");
    let why = "launches_removed: expected 0.7, actual 0.8".to_owned();
    assert_eq!(proof(&launches, &fewer), Err(why));
    let faulty = "facts = { \"site.m\" = 1 }\nsilent = true";
    let outcome = proof("when = 'site.m / 0 > 3'", faulty).unwrap_err();
    assert!(outcome.starts_with("the rule failed: "), "{outcome}");
}

#[test]
fn replaced_work_leaves_nothing_to_other_findings() {
    let fuse = "replaces_work = true\nsaving_ns = 'site.time_ns * 0.9'\n";
    let fuse = rule(fuse).replace("site.family == \"gemm\"", "site.m == 7");
    let pad = rule("saving_ns = 'site.time_ns * 0.5'");
    let rules = load(&[("layers/fuse", &fuse), ("host/pad", &pad)]).unwrap();
    let mut run = Fake::default();
    let attention = [("site.family", s("gemm")), ("site.m", i(7))];
    run.site(0, "attention", 3e5, 2e5, &attention);
    run.site(1, "head", 1e5, 1e4, &gemm());
    let results = run.judge(&rules);
    let said: Vec<_> = results
        .findings
        .iter()
        .map(|f| (f.rule.as_str(), f.place.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("layers/fuse", "attention: linear"),
            ("host/pad", "head: linear")
        ]
    );
    assert!(results.minor.is_empty(), "{:?}", results.minor);
    // The reachable time of replaced work is no lower bound.
    assert_eq!(results.findings[0].saving.unwrap().claimed_ns, 2.7e5);
    assert_eq!(dropped(&results), [("host/pad", "layers/fuse")]);
    // What goes away altogether does so whatever else is replaced.
    let drop = rule("removes_work = true\nsaving_ns = 'site.time_ns * 0.5'");
    let rules = load(&[("layers/fuse", &fuse), ("host/drop", &drop)]).unwrap();
    assert!(run.judge(&rules).dropped.is_empty());
}

#[test]
fn findings_are_ranked_by_the_lower_end_of_their_saving() {
    let unsure = "saving_ns = 'site.time_ns'\nsaving_low_ns = 'site.time_ns * 0.1'\n";
    let unsure = rule(unsure).replace("site.family == \"gemm\"", "site.m == 7");
    let perhaps = "saving_ns = 'site.time_ns'\nsaving_low_ns = '0.0'\n";
    let perhaps = rule(perhaps).replace("site.family == \"gemm\"", "site.m == 8");
    let sure =
        "saving_ns = 'site.time_ns'\n[params]\nmin_fraction = { value = 1.0, doc = \"d\" }\n";
    let sure = rule(sure).replace("site.family == \"gemm\"", "site.m == 9");
    let rules = [
        ("host/unsure", unsure.as_str()),
        ("host/perhaps", &perhaps),
        ("host/sure", &sure),
    ];
    let rules = load(&rules).unwrap();
    let mut run = Fake::default();
    for (number, m, time) in [(0, 7, 2e5), (1, 8, 4e5), (2, 9, 3e4)] {
        let facts = [("site.family", s("gemm")), ("site.m", i(m))];
        run.site(number, "layer", time, 0.0, &facts);
    }
    let results = run.judge(&rules);
    let ranges: Vec<_> = results
        .findings
        .iter()
        .map(|f| (f.rule.as_str(), f.saving.unwrap()))
        .map(|(rule, s)| (rule, s.claimed_low_ns, s.claimed_ns, s.step_low_ns))
        .collect();
    assert_eq!(
        ranges,
        [
            ("host/sure", 3e4, 3e4, Some(3e4)),
            ("host/unsure", 2e4, 2e5, Some(2e4)),
            ("host/perhaps", 0.0, 4e5, Some(0.0)),
        ]
    );
}

#[test]
fn savings_below_one_percent_by_their_lower_end_are_minor() {
    let numbered = |time: f64, sure: &str, step_weight: Option<f64>| {
        let text = format!("saving_ns = 'site.time_ns'\nsaving_low_ns = 'site.time_ns * {sure}'");
        let rules = load(&[("layers/x", &rule(&text))]).unwrap();
        let mut run = Fake::default();
        run.totals.step_weight = step_weight;
        run.site(0, "layer", time, 0.0, &gemm());
        let results = run.judge(&rules);
        assert_eq!(results.findings.len() + results.minor.len(), 1);
        !results.findings.is_empty()
    };
    // The step takes 2 ms.
    assert!(numbered(2e5, "0.1", Some(1.0)));
    assert!(!numbered(1.99e5, "0.1", Some(1.0)));
    assert!(numbered(4e5, "0.1", Some(0.5)));
    assert!(!numbered(3.99e5, "0.1", Some(0.5)));
    assert!(!numbered(9e5, "0.9", Some(0.0)), "the host limits the step");
    // What may save nothing must be able to save ten times as much.
    assert!(numbered(2e5, "0.0", Some(1.0)));
    assert!(!numbered(1.99e5, "0.0", Some(1.0)));
    // Of the GPU's work where recording leaves open what limits the step.
    assert!(numbered(1e5, "0.1", None));
    assert!(!numbered(9.9e4, "0.1", None));
}

#[test]
fn time_that_does_not_count_carries_no_saving() {
    let rules = load(&[("host/x", &rule("saving_ns = 'site.time_ns'"))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "search", 5e5, 0.0, &gemm());
    run.members[0].2.uncounted = true;
    run.site(1, "layer", 1e5, 0.0, &gemm());
    assert_eq!(only(&run.judge(&rules)).place, "layer: linear");
}

#[test]
fn savings_are_at_most_the_time_they_are_about() {
    let rules = load(&[("host/x", &rule("saving_ns = 'site.time_ns * 5.0'"))]).unwrap();
    let mut run = Fake::default();
    run.site(0, "layer", 1e5, 0.0, &gemm());
    assert_eq!(only(&run.judge(&rules)).saving.unwrap().high_ns, 1e5);
}
