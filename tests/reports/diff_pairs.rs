//! The first sentences about pairs of real profiles of which it is known what happened.

use super::diff::diff_of;
use crate::cli_sandbox::has;
use crate::{shared, synthetic};
use pyprof_advise::compare::diff::{Decision, Diff, FindingChange, MatchLevel, PartChange, gate};
use pyprof_advise::report::UnitKind;

/// The first two sentences about a pair of profiles, or `None` without the folder of shared profiles.
fn first_sentences(before: &str, after: &str) -> Option<String> {
    let (before, after) = (shared::path(before)?, shared::path(after)?);
    let (diff, _) = diff_of(&before, &after);
    parts_make_up_the_unit(&diff);
    Some(
        diff.verdict
            .iter()
            .take(2)
            .cloned()
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// The rows of one table are of one interval: the parts of a unit of work add up to its wall time.
fn parts_make_up_the_unit(diff: &Diff) {
    let Some(unit) = &diff.unit_of_work else {
        return;
    };
    let sum = |of: fn(&PartChange) -> f64, idle: bool| -> f64 {
        let parts = diff.parts.iter().filter(|part| idle || part.what != "idle");
        parts.map(of).sum()
    };
    for (of, side) in [
        (
            (|part| part.before_ns) as fn(&PartChange) -> f64,
            &unit.before,
        ),
        (|part| part.after_ns, &unit.after),
    ] {
        let (busy, all) = (sum(of, false), sum(of, true));
        assert!((busy - side.busy_ns).abs() <= 1.0, "{busy} of {side:?}");
        assert!((all - side.wall_ns).abs() <= 1.0, "{all} of {side:?}");
    }
}

/// What happened in each pair stands in the README files beside the profiles.
#[test]
fn first_sentences_say_what_happened() {
    const PAIRS: [(&str, &str, &[&str]); 10] = [
        (
            "profiles/mfu_2gpu_before.sqlite",
            "profiles/mfu_2gpu_after.sqlite",
            &[
                "flash_fwd_kernel",
                "13 % more wall time: 19.7 ms, before 17.5 ms, beyond the noise",
                "(idle 16 %), before",
                "The same kernels, host slower: 45.2 instead of 9.3 gaps of 20 to 100 us",
            ],
        ),
        (
            "profiles/saf_False_b.json.gz",
            "profiles/saf_True_b.json.gz",
            &[
                "`generate_masks 0 1` takes 498 ms, before 1.37 s",
                "kernels take 355 ms, before 1.23 s",
            ],
        ),
        (
            "profiles/saf_True_c.json.gz",
            "profiles/saf_True_b.json.gz",
            &["cannot be compared", "window is 498 ms, before 646 ms"],
        ),
        (
            "profiles/lm_net.sql",
            "profiles/da6bcc3_net.sql",
            &[
                "These are different programs",
                "160 kernels before and 284 kernels after",
            ],
        ),
        (
            "profiles_pairs/aiprof/1_baseline.sqlite",
            "profiles_pairs/aiprof/2_workers.sqlite",
            &[
                "117 ms, before 154 ms",
                "`Train` around them takes 12.1 s, before 11.8 s",
            ],
        ),
        (
            "profiles_pairs/aiprof/0_baseline_no_ranges.sqlite",
            "profiles_pairs/aiprof/1_baseline.sqlite",
            &[
                "20 % more wall time: 154 ms, before 128 ms, beyond the noise",
                "The same kernels, host slower: 145 ms instead of 120 ms in gaps above 10 ms",
            ],
        ),
        (
            "profiles_pairs/incredere_t4/fp32.json.gz",
            "profiles_pairs/incredere_t4/amp.json.gz",
            &[
                "but the repetitions vary too much to compare",
                "kernels take 2.55 ms, before 5.34 ms",
            ],
        ),
        (
            "profiles_pairs/ao_vit/1_basic.json.gz",
            "profiles_pairs/ao_vit/4_tuned.json.gz",
            &["A step takes 212 ms, before 414 ms (noise 0.2 %)"],
        ),
        (
            "profiles_pairs/lightllm/plain_rank0.json.gz",
            "profiles_pairs/lightllm/overlap_rank0.json.gz",
            &[
                "A graph launch takes as long as before",
                "without communication take 68 % more time",
            ],
        ),
        (
            "profiles_pairs/moe/one_before",
            "profiles_pairs/moe/one_after",
            &[
                "noise unknown",
                "A step waits 950 us for other ranks in collectives, before 46.1 us",
            ],
        ),
    ];
    for (before, after, wanted) in PAIRS {
        let Some(said) = first_sentences(before, after) else {
            return;
        };
        has(&said, wanted);
    }
}

/// The first profile was recorded without ranges. Its kernels are the same by name and grid.
#[test]
fn profile_without_operators_is_compared_by_kernel() {
    let pair = ["0_baseline_no_ranges", "1_baseline"];
    let [before, after] =
        pair.map(|name| shared::path(&format!("profiles_pairs/aiprof/{name}.sqlite")));
    let Some((before, after)) = before.zip(after) else {
        return;
    };
    let (diff, page) = diff_of(&before, &after);
    assert!(
        diff.appeared.is_empty() && diff.vanished.is_empty(),
        "{page}"
    );
    let matched: Vec<_> = diff
        .matched
        .iter()
        .map(|m| (m.level, m.before_share))
        .collect();
    assert!(
        matches!(matched.as_slice(), [(MatchLevel::Kernel, share)] if *share > 0.99),
        "{matched:?}"
    );
    let f = &diff.findings;
    assert!(f.fixed.is_empty() && f.new.is_empty(), "{f:#?}");
    let [idle] = f.still.as_slice() else {
        panic!("{f:#?}");
    };
    assert_eq!(idle.rule, "host/data-loading");
    assert!(idle.title.contains("(before: The GPU is idle"), "{idle:?}");
    has(&page, &["The first profile names no operators"]);
}

/// A program that launches a graph, recorded whole, and then a short kernel.
fn graphs(times: &[&str], more: &str) -> Diff {
    let build = |time: &str, count: usize| {
        let launch = format!("graph {time}\nkernel sample 1 5us\nwait 100us\n").repeat(count);
        synthetic::build(&format!("{more}\n{launch}"))
    };
    let [before, after] = times else {
        panic!("two times")
    };
    diff_of(&build(before, 8).path(), &build(after, 6).path()).0
}

#[test]
fn graphs_that_are_recorded_whole_are_compared() {
    // Replays of one graph are steps; else launches that are alike are compared.
    for (more, kind) in [
        (
            "sql UPDATE CUPTI_ACTIVITY_KIND_GRAPH_TRACE SET graphExecId = 1",
            UnitKind::Step,
        ),
        (
            "drop CUPTI_ACTIVITY_KIND_GRAPH_TRACE.graphExecId",
            UnitKind::GraphLaunch,
        ),
    ] {
        let slower = graphs(&["3ms", "4ms"], more);
        assert_eq!(slower.unit_of_work.as_ref().unwrap().kind, kind);
        let wall = slower.wall.unwrap();
        assert!((wall.ratio - 4.0 / 3.0).abs() < 0.02, "{wall:?}");
        assert!(!slower.no_change);
        assert!(matches!(gate(&slower, 0.03), Decision::Fail(by) if by > 0.3));
        let same = graphs(&["3ms", "3ms"], more);
        assert!(same.no_change, "{:?}", same.verdict);
        assert_eq!(gate(&same, 0.03), Decision::Pass);
    }
}

#[test]
fn without_a_unit_that_holds_them_graphs_recorded_whole_are_not_compared() {
    // No launches are known, and the little that can be matched did not change.
    let unknown = graphs(&["3ms", "4ms"], "drop CUPTI_ACTIVITY_KIND_RUNTIME");
    assert!(
        !unknown.comparable && !unknown.no_change,
        "{:?}",
        unknown.verdict
    );
    assert!(matches!(gate(&unknown, 0.03), Decision::Unknown(_)));
}

/// The author replaced the kernel that the finding was about, one of Inductor, by his own.
#[test]
fn findings_of_one_rule_about_different_kernels_are_fixed_and_new() {
    let path = |name: &str| shared::path(&format!("profiles_pairs/ao_vit/{name}.json.gz"));
    let Some((before, after)) = path("1_basic").zip(path("4_tuned")) else {
        return;
    };
    let (diff, _) = diff_of(&before, &after);
    let rules = |list: &[FindingChange]| -> Vec<String> {
        list.iter().map(|finding| finding.rule.clone()).collect()
    };
    assert_eq!(rules(&diff.findings.fixed), ["parallelism/dominant-kernel"]);
    assert_eq!(rules(&diff.findings.new), ["parallelism/dominant-kernel"]);
    assert!(diff.findings.still.is_empty());
}
