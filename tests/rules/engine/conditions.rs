//! Conditions on one site: three-valued logic, lets, limits.

use pyprof_advise::facts::{AffectedTime, Member, Value};
use pyprof_advise::judge::RuleResults;

use super::fake_table::{Facts, Fake, d, i, ints, load, rule, s};

/// The result of `when` for one site with some facts: true, false, the missing facts, silent, a fault.
fn judge_one(when: &str, lets: &str, facts: &[(&str, Value)]) -> String {
    let text = rule(&format!("when = '''{when}'''\n[let]\n{lets}"));
    let rules = load(&[("host/x", &text)]).unwrap();
    let mut run = Fake::default();
    run.site(0, "a", 1e5, 1e4, facts);
    let results = run.judge(&rules);
    describe(&results)
}

fn describe(results: &RuleResults) -> String {
    let missing: Vec<&str> = results.skipped.iter().map(|n| n.fact.as_str()).collect();
    let mut missing = missing;
    missing.sort_unstable();
    if let Some(fault) = results.faults.first() {
        format!("fault: {}", fault.message)
    } else if !missing.is_empty() {
        format!("no {}", missing.join(", "))
    } else if results.findings.len() + results.minor.len() > 0 {
        "true".into()
    } else {
        "not picked".into()
    }
}

/// A condition, the facts of the site, and the expected result.
type Case<'a> = (&'a str, &'a [(&'a str, Value)], &'a str);

#[test]
fn conditions_have_three_values() {
    let gemm = ("site.family", s("gemm"));
    let m = ("site.m", i(7));
    let cases: &[Case<'_>] = &[
        ("site.m > 3", &[gemm.clone(), m.clone()], "true"),
        ("site.m > 9", &[gemm.clone(), m.clone()], "not picked"),
        ("site.m > 3", std::slice::from_ref(&gemm), "no site.m"),
        // A fact that does not apply to the family makes the rule silent.
        ("site.m > 3", &[("site.family", s("norm"))], "not picked"),
        ("!(site.m > 3)", &[("site.family", s("norm"))], "not picked"),
        ("site.m > 3 || true", &[("site.family", s("norm"))], "true"),
        // The deciding side takes precedence, on either side.
        (
            "site.m > 3 || site.family == \"gemm\"",
            std::slice::from_ref(&gemm),
            "true",
        ),
        (
            "site.family == \"gemm\" || site.m > 3",
            std::slice::from_ref(&gemm),
            "true",
        ),
        (
            "site.m > 3 && site.family == \"conv\"",
            std::slice::from_ref(&gemm),
            "not picked",
        ),
        (
            "site.family == \"conv\" && site.m > 3",
            std::slice::from_ref(&gemm),
            "not picked",
        ),
        (
            "site.m > 3 && site.n > 3",
            std::slice::from_ref(&gemm),
            "no site.m, site.n",
        ),
        (
            "site.m > site.n",
            std::slice::from_ref(&gemm),
            "no site.m, site.n",
        ),
        (
            "site.m > 3 || site.n > 3",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        ("!(site.m > 3)", std::slice::from_ref(&gemm), "no site.m"),
        (
            "site.m > 3 && site.calls > 1",
            &[("site.family", s("norm"))],
            "not picked",
        ),
        (
            "site.m > 3 || site.calls > 1",
            &[("site.family", s("norm"))],
            "no site.calls",
        ),
        // A fact that does not apply decides a conjunction, even before absent or failing operands.
        (
            "site.m > 3 && site.calls > 1 && 1 / site.calls > 0",
            &[("site.family", s("norm")), ("site.calls", i(0))],
            "not picked",
        ),
        (
            "site.calls > 1 && site.m > 3",
            &[("site.family", s("norm"))],
            "not picked",
        ),
        // Only the selected branch counts.
        (
            "site.family == \"gemm\" ? site.m > 3 : site.n > 3",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        (
            "site.n > 3 ? true : true",
            std::slice::from_ref(&gemm),
            "no site.n",
        ),
        (
            "(site.family == \"gemm\" ? site.m : site.n) > 3",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        (
            "(site.family == \"gemm\" ? site.n : site.m) > 3",
            &[gemm.clone(), m.clone()],
            "no site.n",
        ),
        // `has` tests for presence.
        (
            "has(site.m) && site.m > 3",
            std::slice::from_ref(&gemm),
            "not picked",
        ),
        ("!has(site.m)", std::slice::from_ref(&gemm), "true"),
        ("has(site.m)", &[gemm.clone(), m.clone()], "true"),
        // A missing key of a map fact is a fault of the rule, unless it is guarded.
        (
            "gpu.tc_align[site.math_dtype] > 1",
            &[
                ("gpu.tc_align", ints(&[("fp16", 8)])),
                ("site.math_dtype", s("fp32")),
            ],
            "fault: no such key `fp32` in a map; guard it with `in`",
        ),
        (
            "site.math_dtype in gpu.tc_align && gpu.tc_align[site.math_dtype] > 1",
            &[
                ("gpu.tc_align", ints(&[("fp16", 8)])),
                ("site.math_dtype", s("fp32")),
            ],
            "not picked",
        ),
        (
            "site.math_dtype in gpu.tc_align && gpu.tc_align[site.math_dtype] > 1",
            &[("site.math_dtype", s("fp32"))],
            "no gpu.tc_align",
        ),
        (
            "gpu.tc_align.fp16 == 8",
            &[("gpu.tc_align", ints(&[("fp16", 8)]))],
            "true",
        ),
        // Faults; CEL would return infinities.
        (
            "site.time_ns / (site.reachable_ns - site.reachable_ns) > 3.0",
            &[],
            "fault: `/`: the result is not a finite number",
        ),
        (
            "site.m / (site.m - site.m) > 3",
            &[gemm.clone(), m.clone()],
            "fault: `/`: an int overflow or a division by zero",
        ),
        (
            "site.m % 0 == 0",
            &[gemm.clone(), m.clone()],
            "fault: `%`: an int overflow or a division by zero",
        ),
        (
            "site.m * 9223372036854775807 > 0",
            &[gemm.clone(), m.clone()],
            "fault: `*`: an int overflow or a division by zero",
        ),
        (
            "divisible(site.m, site.m - 7)",
            &[gemm.clone(), m.clone()],
            "fault: `divisible`: a step of 0",
        ),
        ("site.calls > 0", &[("site.calls", Value::Int(1))], "true"),
        (
            "site.gpu_share < 2.0",
            &[("site.gpu_share", d(f64::NAN))],
            "fault: `site.gpu_share` is not a finite number",
        ),
        // A fault behind an undecided guard is ignored.
        (
            "site.m > 3 && 1 / 0 > 3",
            std::slice::from_ref(&gemm),
            "no site.m",
        ),
        (
            "site.m > 3 || 1 / 0 > 3",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        // Lists.
        (
            "site.names.exists(x, x.contains(\"dgemm\"))",
            &[(
                "site.names",
                Value::Strings(["a".into(), "x_dgemm".into()].into()),
            )],
            "true",
        ),
        (
            "site.names.filter(x, x.startsWith(\"a\")).size() == 1 && site.names.all(x, x != \"\") && site.names.exists_one(x, x == \"a\") && site.names.map(x, x.size()) == [1, 2]",
            &[(
                "site.names",
                Value::Strings(["a".into(), "bb".into()].into()),
            )],
            "true",
        ),
        ("site.names.exists(x, x == \"a\")", &[], "no site.names"),
        (
            "site.names[3] == \"a\"",
            &[("site.names", Value::Strings(["a".into()].into()))],
            "fault: an index past the end of a list",
        ),
        (
            "site.names.size() > 3",
            &[("site.names", Value::Strings(vec!["a".into(); 2_000].into()))],
            "fault: `site.names` has more than 1,024 items",
        ),
        // Numbers of different types can be compared.
        (
            "site.m < 7.5 && site.time_ns > 3 && 7 == 7.0",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        (
            "site.family in [\"conv\", \"gemm\"] && site.family != \"conv\"",
            std::slice::from_ref(&gemm),
            "true",
        ),
        (
            "ceil_to(site.m, 8) == 8 && round(site.time_ns / 1e4) == 10",
            &[gemm.clone(), m.clone()],
            "true",
        ),
        (
            "{\"gemm\": 1.5, \"conv\": 2.0}[site.family] > 1.0",
            std::slice::from_ref(&gemm),
            "true",
        ),
    ];
    for (when, facts, want) in cases {
        assert_eq!(judge_one(when, "", facts), *want, "{when} with {facts:?}");
    }
}

/// Conditions have the same result with computed operands: `x + 0` or a concatenated list instead of `x`.
#[test]
fn computed_operands_do_not_change_conditions() {
    let gemm = ("site.family", s("gemm"));
    let numbers = [i64::MIN, -1, 0, 1, 7, (1 << 53) + 1, i64::MAX];
    let doubles = [
        -1.0,
        0.0,
        0.5,
        7.0,
        9_007_199_254_740_992.0,
        f64::NAN,
        f64::INFINITY,
    ];
    let mut asked = 0;
    let mut same = |simple: &str, through: &str, facts: &[(&str, Value)]| {
        asked += 1;
        let simple = judge_one(simple, "", facts);
        assert_eq!(simple, judge_one(through, "", facts), "{through} {facts:?}");
    };
    for relation in ["<", "<=", ">", ">=", "==", "!="] {
        for m in numbers {
            for n in numbers {
                let facts = [gemm.clone(), ("site.m", i(m)), ("site.n", i(n))];
                let through = format!("site.m + 0 {relation} site.n");
                same(&format!("site.m {relation} site.n"), &through, &facts);
            }
            if !["==", "!="].contains(&relation) {
                for share in doubles {
                    let facts = [gemm.clone(), ("site.m", i(m)), ("site.gpu_share", d(share))];
                    let through = format!("site.m + 0 {relation} site.gpu_share");
                    same(
                        &format!("site.m {relation} site.gpu_share"),
                        &through,
                        &facts,
                    );
                    let through = format!("site.gpu_share + 0.0 {relation} site.m");
                    same(
                        &format!("site.gpu_share {relation} site.m"),
                        &through,
                        &facts,
                    );
                }
            }
        }
        for share in doubles {
            let facts = [gemm.clone(), ("site.gpu_share", d(share))];
            let through = format!("site.gpu_share + 0.0 {relation} 0.5");
            same(&format!("site.gpu_share {relation} 0.5"), &through, &facts);
        }
        // Absent on one side, on both, and not applicable.
        for facts in [
            vec![gemm.clone()],
            vec![gemm.clone(), ("site.m", i(1))],
            vec![("site.family", s("norm"))],
            vec![("site.family", s("norm")), ("site.calls", i(1))],
        ] {
            for (left, right) in [("m", "n"), ("n", "m"), ("m", "calls"), ("calls", "n")] {
                let through = format!("site.{left} + 0 {relation} site.{right}");
                same(
                    &format!("site.{left} {relation} site.{right}"),
                    &through,
                    &facts,
                );
            }
        }
    }
    let names = |list: &[&str]| Value::Strings(list.iter().map(|&w| w.into()).collect());
    for facts in [
        vec![("site.names", names(&["a", "b"]))],
        vec![("site.names", names(&["ab"]))],
        vec![("site.names", names(&[]))],
        vec![],
    ] {
        same(
            r#""b" in site.names"#,
            r#"site.names.exists(n, n == "b")"#,
            &facts,
        );
    }
    for facts in [vec![("run.trusted", Value::Bool(true))], vec![]] {
        same("run.trusted", "run.trusted == true", &facts);
    }
    assert!(asked > 800, "{asked}");
}

#[test]
fn lets_use_each_other_and_keep_their_reasons() {
    let lets = "pad = 'ceil_to(site.n, align)'\nalign = 'gpu.tc_align[site.math_dtype]'\nodd = 'pad != site.n'";
    let all = [
        ("site.family", s("gemm")),
        ("site.n", i(7)),
        ("site.math_dtype", s("fp16")),
        ("gpu.tc_align", ints(&[("fp16", 8)])),
    ];
    assert_eq!(judge_one("odd", lets, &all), "true");
    assert_eq!(
        judge_one("!odd || pad - align == 1", lets, &all),
        "not picked"
    );
    assert_eq!(judge_one("odd", lets, &all[..3]), "no gpu.tc_align");
    assert_eq!(
        judge_one("odd && site.n > 3", lets, &all[..3]),
        "no gpu.tc_align"
    );
    let other = [
        all[0].clone(),
        all[1].clone(),
        ("site.math_dtype", s("fp32")),
        all[3].clone(),
    ];
    assert_eq!(
        judge_one("odd", lets, &other),
        "fault: no such key `fp32` in a map; guard it with `in`"
    );
    assert_eq!(
        judge_one("pad > 1 && odd", lets, &[("site.family", s("norm"))]),
        "not picked"
    );
}

#[test]
fn strings_are_bounded() {
    let mut lets = String::from("l0 = 'site.label'");
    for n in 1..17 {
        lets.push_str(&format!("\nl{n} = 'l{0} + l{0}'", n - 1));
    }
    let facts = [("site.label", s(&"x".repeat(1_000)))];
    let said = judge_one("l16.contains(\"y\")", &lets, &facts);
    assert_eq!(said, "fault: `the result` is longer than 1 MiB");
}

#[test]
fn deepest_expression_runs_on_a_small_stack() {
    let chain = format!("site.m {} > 0", "- 1 ".repeat(36));
    let run = move || {
        judge_one(
            &chain,
            "",
            &[("site.family", s("gemm")), ("site.m", i(1_000))],
        )
    };
    let done = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(run)
        .unwrap();
    assert_eq!(done.join().unwrap(), "true");
}

/// The facts of the run decide for all members at once, but only where the condition asks for nothing else.
#[test]
fn the_run_may_decide_for_all_members() {
    let judged = |when: &str, steps: i64| {
        let rules = load(&[("host/x", &rule(&format!("when = '''{when}'''")))]).unwrap();
        let mut run = Fake::default();
        let steps = ("run.steps", i(steps));
        let of_run = Facts::new(std::slice::from_ref(&steps));
        (run.members).push((Member::Run, of_run, AffectedTime::default()));
        let gemm = ("site.family", s("gemm"));
        run.site(0, "a", 1e5, 1e4, &[gemm.clone(), steps.clone()]);
        run.site(1, "b", 1e5, 1e4, &[gemm, ("site.m", i(7)), steps]);
        describe(&run.judge(&rules))
    };
    for (when, steps, expected) in [
        ("site.time_ns > 0.0 && run.steps > 1", 2, "true"),
        // Without the run, the first site would miss a fact.
        ("site.m > 3 && run.steps > 1", 1, "not picked"),
        ("site.m > 3 && run.steps > 1", 2, "no site.m"),
        // Absent facts of sites are not facts of the run.
        ("has(site.m) && run.steps > 1", 2, "true"),
        ("run.steps > 1 && (has(site.m) || run.steps > 5)", 2, "true"),
    ] {
        assert_eq!(judged(when, steps), expected, "{when}");
    }
}
