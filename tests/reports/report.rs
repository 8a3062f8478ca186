//! The report for handwritten findings: the order of its statements, the escaping of hostile text,
//! GitHub's rendering of its Markdown, and reproducibility.

use std::sync::Arc;

use crate::formats::check;
use crate::sample::{FIX, MS, Sample, finding, sample};
use pyprof_advise::compare::merge;
use pyprof_advise::correlate::{
    ArgValue, Direction, ExcludedWork, Exclusion, SetUp, SiteId, Step, WithoutOperator,
};
use pyprof_advise::cost::Bound;
use pyprof_advise::facts::Member;
use pyprof_advise::judge::{Fault, Saving, SavingKind};
use pyprof_advise::profile::{CopyKind, DeviceId, MemoryCopy, MemoryKind, ProcessId, Span};
use pyprof_advise::report::{html, json, read_json, render_template, text};

#[test]
fn most_important_statements_come_first() {
    assert_eq!(
        sample().report().verdict,
        [
            "Fix \"Matmuls do not use Tensor Cores\" first: it should save 8.0 to 16 ms of the 50.0 ms \
             window (16 to 32 %).",
        ]
    );
    assert_eq!(
        sample().report().figures,
        [
            "Tesla V100-SXM2-16GB",
            "50.0 ms analyzed, no steps",
            "GPU busy 80 %",
            "90 % of kernel time can be compared with its ideal time: it takes 2.57x as long",
        ]
    );
    let text = sample().markdown();
    let order = [
        "# GPU advice for `net.sqlite`",
        "Fix \"Matmuls",
        "Tesla V100-SXM2-16GB · 50.0 ms analyzed",
        "## What to change",
        "| 1 | Matmuls do not use Tensor Cores | `blocks.*.mlp (24 layers)` | 8.0 to 16 ms (16 to 32 %) \
         | high |",
        "### 1. Matmuls",
        "`blocks.*.mlp (24 layers)`: 24 calls, 20.0 ms (50 % of GPU time). Warning, high confidence, \
         `tensor-cores/amp-off`.",
        "**What:** The matmuls run in `fp32`.",
        "**Why:** Tensor Cores are 8x faster.",
        "**Fix:**",
        FIX,
        "Source: `~/net.py:42`",
        "`fp32[64, 128]`",
        "## Layers",
        "| `blocks.*.mlp` (24 layers) | 24.0 ms | 60 % | 5.00x | math | 1 |",
        "Already within 10 %",
        "| `head` | `aten::mm` |",
        "## Skipped",
        "To apply 1 rule more, record shapes: `emit_nvtx(record_shapes=True)`.",
        "| shapes: `emit_nvtx(record_shapes=True)` | 4.00 ms | 1 | `site.m` |",
        "Cost unknown (10 % of kernel time)",
        "`aten::embedding_custom`",
        "## Method",
        "V100 SXM2 16GB (`v100-sxm2-16gb`)",
    ];
    let mut at = 0;
    for expected in order {
        at += text[at..]
            .find(expected)
            .unwrap_or_else(|| panic!("{expected:?} not found in order in\n{text}"));
    }
}

#[test]
fn markdown_renders_correctly_on_github() {
    let links = check::markdown(&sample().markdown()).links;
    assert_eq!(links, ["https://docs.nvidia.com/deeplearning/performance/"]);
}

#[test]
fn json_contains_the_report() {
    let report = sample().report();
    let value: serde_json::Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(value["schema_version"], 2);
    assert_eq!(value["findings"][0]["saving"]["counted_high_ns"], 16.0 * MS);
    assert_eq!(value["layers"][0]["name"], "blocks.*.mlp");
    assert!(value["summary"]["best_ideal_ns"].is_f64());
}

#[test]
fn equal_inputs_give_equal_reports() {
    let (a, b) = (sample(), sample());
    assert_eq!(a.markdown(), b.markdown());
    assert_eq!(json(&a.report()), json(&b.report()));
}

#[test]
fn many_findings_are_folded() {
    let mut s = sample();
    for i in 0..15 {
        let title = format!("Finding number {i}");
        s.finding(SiteId(1), &title, "head", 0.5);
        s.results
            .minor
            .push(finding(SiteId(1), &title, "head", 0.01));
    }
    let text = s.markdown();
    check::markdown(&text);
    assert!(text.contains("### 10. ") && !text.contains("### 11. "));
    assert!(text.contains("<summary>6 more findings</summary>\n\n| #"));
    assert!(text.contains(
        "<summary>15 minor findings (certain saving below 1 % of the window)</summary>\n\n| #"
    ));
    let report = s.report();
    let savings = report.findings.iter().filter_map(|f| f.saving.as_ref());
    let sum: f64 = savings.map(|s| s.counted_high_ns).sum();
    assert!((report.total_saving.gpu_high_ns - sum).abs() < 1.0);
}

#[test]
fn hostile_text_is_escaped() {
    let evil = "|x|<script>alert(1)</script>![i](http://e.vil/i) @octocat #1 www.e.vil \u{1b}[31m\
                \u{202e}`a``b` **b** [l](javascript:1)\n\n# h\n- [ ] t $$m$$ [^1]\0 /home/alice/z";
    let mut s = Sample::new();
    let site = s.site(evil, evil, 24.0, Some(6.0));
    s.site(evil, evil, 12.0, Some(11.5));
    s.site(evil, evil, 4.0, None);
    s.finding(site, "Title", evil, 16.0);
    let f = &mut s.results.findings[0];
    f.evidence = vec![(evil.into(), evil.into())];
    f.file = evil.into();
    f.references = vec![evil.into(), "javascript:alert(1)".into()];
    let run = &mut s.costed.run;
    run.profile.path = evil.into();
    run.profile.devices[0].name = Some(evil.into());
    run.profile.tool_version = Some(evil.into());
    run.profile.note("kernels_missing", evil);
    run.unreliable_idle = Some(evil.into());
    run.sites[0].source_line = Some(evil.into());
    run.args[0].items[0].value = ArgValue::Str(evil.into());
    Arc::make_mut(&mut s.costed.kernels[0][0]).base = evil.into();
    let choice = s.costed.gpu.as_mut().unwrap();
    choice.remarks.push(evil.into());
    s.results.faults.push(Fault {
        rule: evil.into(),
        message: evil.into(),
        count: 2,
    });
    let text = s.markdown();
    let rendered = check::markdown(&text);
    assert!(rendered.links.is_empty(), "{:?}", rendered.links);
    for trigger in ["@octocat", "#1 ", "http://", "www.e"] {
        assert!(!rendered.text.contains(trigger), "{trigger:?} in\n{text}");
    }
    for gone in ["\u{1b}", "\u{202e}", "\0", "alice"] {
        assert!(!text.contains(gone), "{gone:?} in\n{text}");
    }
    assert!(!json(&s.report()).contains("alice"));
}

#[test]
fn long_labels_are_bounded() {
    let long = "x".repeat(100_000);
    let mut s = Sample::new();
    let site = s.site(&long, &long, 24.0, Some(6.0));
    s.finding(site, "Title", &long, 16.0);
    s.results.findings[0].evidence = vec![(long.clone(), long.clone())];
    s.costed.run.profile.note("rows_skipped", long);
    assert!(s.markdown().len() < 10_000);
    assert!(json(&s.report()).len() < 20_000);
}

#[test]
fn many_layers_are_folded_and_counted() {
    let mut s = Sample::new();
    for i in 0..300 {
        s.site(&format!("layer_{i:03}"), "mm", 0.1, None);
    }
    let report = s.report();
    assert_eq!(report.layers.len(), 200);
    assert_eq!(report.layers_omitted.count, 100);
    assert_eq!(report.layers_omitted.time_ns, 10_000_000);
    let text = s.markdown();
    check::markdown(&text);
    assert!(text.contains("<summary>185 more rows"), "{text}");
    assert!(text.contains("100 further rows"));
    assert!(text.len() < 65_536, "a comment on GitHub holds no more");
}

#[test]
fn layers_of_several_streams_are_no_parts_of_a_pie() {
    // The GPU is busy for 40 ms.
    let of = |ms: f64| {
        let mut s = Sample::new();
        for i in 0..5 {
            s.site(&format!("layer_{i}"), "mm", ms / 5.0, None);
        }
        (
            s.markdown(),
            text(&s.report(), 100),
            html(&s.report()).unwrap(),
        )
    };
    let sentence =
        "Kernels of several streams run at the same time, so the shares add up to 125 %.";
    let (page, terminal, site) = of(50.0);
    assert!(page.contains(sentence) && site.contains(sentence), "{page}");
    // Without colors and breaks of lines.
    let parts = terminal
        .split('\u{1b}')
        .map(|part| match part.split_once('m') {
            Some((code, text)) if code.starts_with('[') => text,
            _ => part,
        });
    let words: Vec<&str> = parts.flat_map(str::split_whitespace).collect();
    assert!(words.join(" ").contains(sentence), "{terminal}");
    assert!(!page.contains("GPU time by layer"), "{page}");
    let (page, terminal, site) = of(41.0);
    assert!(page.contains("GPU time by layer"), "{page}");
    for output in [page, terminal, site] {
        assert!(!output.contains("Kernels of several streams"), "{output}");
    }
}

#[test]
fn healthy_and_skipped_have_different_messages() {
    let mut healthy = sample();
    healthy.results.findings.clear();
    healthy.results.skipped.clear();
    let said = healthy.report().verdict.join(" ");
    let expected = "100 rules found nothing worth changing.";
    assert!(said.contains(expected), "{said}");

    let mut unpriced = Sample::new();
    unpriced.site("head", "mm", 40.0, None);
    let said = unpriced.report().verdict.join(" ");
    assert!(
        said.contains("no kernel could be compared with what the GPU can do"),
        "{said}"
    );
    let text = unpriced.markdown();
    assert!(!text.contains("lready fast"), "{text}");
    unpriced.costed.coverage.cost_known_ns = 0;
    for recorded in [false, true] {
        unpriced.costed.run.profile.recorded.api_calls = recorded;
        let said = unpriced.report().verdict.join(" ");
        let asks = said.contains("Record the API calls that launch kernels");
        assert_eq!(asks, !recorded, "{said}");
    }
    // Reports that were saved do not say whether calls were recorded.
    let saved = [0, 1].map(|rank| {
        let mut report = read_json(&json(&unpriced.report())).unwrap();
        report.title = format!("rank{rank}");
        report
    });
    let said = merge(saved.into(), Vec::new()).unwrap().verdict.join(" ");
    assert!(said.contains("no kernel could be compared"), "{said}");
    assert!(!said.contains("Record the API calls"), "{said}");

    let mut empty = Sample::new();
    empty.costed.run.timeline.devices.clear();
    let said = empty.report().verdict;
    assert_eq!(said.len(), 2);
    assert!(said[0].starts_with("No GPU work was found"), "{said:?}");
    assert!(said[1].starts_with("Record GPU kernels"), "{said:?}");
    check::markdown(&empty.markdown());
}

#[test]
fn dominant_copies_and_graphs_are_reported_first() {
    let mut s = sample();
    s.costed.run.timeline.devices[0].exposed_copy_ns = 39_000_000;
    assert_eq!(
        s.report().verdict[0],
        "98 % of GPU time is copying, not computing; no rule found a copy that repeats."
    );

    for (bytes, ms) in [(8_000_000, 1), (80_000_000, 40)] {
        s.costed.run.profile.copies.push(MemoryCopy {
            span: Span {
                start: 0,
                end: ms * 1_000_000,
            },
            device: DeviceId(0),
            process: ProcessId(0),
            stream: 7,
            correlation: None,
            bytes,
            kind: CopyKind::DtoH,
            src: MemoryKind::Device,
            dst: MemoryKind::Pageable,
            captured: None,
        });
        s.costed.run.window.copies.push(true);
    }
    let said = &s.report().verdict[0];
    assert!(
        said.ends_with(
            "The longest copy, a device to host copy to pageable memory of 80.0 MB, takes 40.0 ms (2.00 GB/s)."
        ),
        "{said}"
    );

    let mut s = sample();
    s.costed.run.timeline.devices[0].graph_ns = 30_000_000;
    assert_eq!(
        s.report().verdict[0],
        "75 % of GPU time is CUDA graph launches recorded without the kernels inside them."
    );

    let mut s = Sample::new();
    s.site("x", "y", 40.0, None);
    let site = &mut s.costed.run.sites[0];
    (site.op, site.layer, site.missing) = (None, None, Some(WithoutOperator::GraphReplay));
    let report = s.report();
    assert!(
        report
            .figures
            .contains(&"100 % of kernel time has no known operator".to_owned()),
        "{:?}",
        report.figures
    );
    assert_eq!(report.unattributed[0].reason, "graph_replay");
    assert_eq!(report.layers[0].name, "(graph replay)");
    assert!(!report.layers[0].is_layer);
}

#[test]
fn untrusted_idle_gives_no_step_time_saving() {
    let mut s = sample();
    s.costed.run.unreliable_idle = Some("per-op markers stretched the host.".into());
    s.saving(0).step_ns = None;
    let report = s.report();
    assert_eq!(
        report.verdict,
        [
            "Idle time is inflated in this capture.",
            "Fix \"Matmuls do not use Tensor Cores\" first: it should save 8.0 to 16 ms of the 40.0 ms \
             of GPU time (20 to 40 %).",
        ]
    );
    let text = s.markdown();
    assert!(!text.contains("Wall time saved"), "{text}");
    assert!(text.contains("| GPU time saved |"), "{text}");
    assert!(text.contains(" of the idle part is unreliable: per-op markers stretched the host."));
    check::markdown(&text);
}

/// Steps of 10 ms, one behind the other.
fn five_steps(warmup: fn(u64) -> bool) -> Vec<Step> {
    let step = |number| Step {
        number,
        span: Span {
            start: 10_000_000 * number as i64,
            end: 10_000_000 * (number as i64 + 1),
        },
        gpu: None,
        warmup: warmup(number),
    };
    (0..5).map(step).collect()
}

#[test]
fn both_lengths_of_a_step_are_told_where_savings_are_a_part_of_the_shorter() {
    let mut s = sample();
    s.costed.run.steps = five_steps(|_| false);
    s.costed.run.profile.unrecorded.step_ns = Some(9_900_000);
    assert_eq!(s.report().figures[1], "5 steps of 10.0 ms");
    assert_eq!(s.report().time_notes, Vec::<String>::new());
    s.costed.run.profile.unrecorded.step_ns = Some(9_500_000);
    assert_eq!(
        s.report().figures[1],
        "5 steps of 10.0 ms (9.50 ms without recording)"
    );
    let note = "These times are as recorded, 10.0 ms per step. Without the recording a step takes 9.50 ms: the difference is idle time.";
    assert!(s.report().time_notes.contains(&note.to_owned()));
}

#[test]
fn step_time_is_per_step() {
    let mut s = sample();
    let mut other = s.costed.run.timeline.devices[0].clone();
    other.device = DeviceId(1);
    s.costed.run.timeline.devices.push(other);
    s.costed.run.steps = five_steps(|number| number == 0);
    let report = s.report();
    assert_eq!((report.summary.steps, report.summary.devices), (4, 2));
    let saving = report.findings[0].saving.as_ref().unwrap();
    // 16 ms of one device, divided by the 5 steps of 10 ms that fit into the window of 50 ms.
    assert_eq!(saving.step_low_ns, Some(1.6 * MS));
    assert_eq!(saving.step_high_ns, Some(3.2 * MS));
    assert_eq!(saving.counted_share, 0.2);
    let text = s.markdown();
    assert!(
        text.contains("Times and counts are per step and GPU, averaged over 4 steps; shares of GPU time are of the 8.00 ms"),
        "{text}"
    );
    // 16 ms of both devices, divided by 5 steps and 2 devices, is half of the step time of one.
    assert!(
        text.contains("| 1.6 to 3.2 ms (16 to 32 %) | 0.8 to 1.6 ms (10 to 20 %) |"),
        "{text}"
    );
    assert!(
        text.contains("50.0 ms analyzed, 4 steps of 10.0 ms"),
        "{text}"
    );
}

#[test]
fn overlaps_are_printed() {
    let mut s = sample();
    s.finding(SiteId(0), "Also this", "blocks.*.mlp", 4.0);
    (s.saving(1).claimed_ns, s.saving(1).overlap_ns) = (1.0 * MS, 3.0 * MS);
    s.saving(1).claimed_low_ns = 0.5 * MS;
    let text = s.markdown();
    assert!(text.contains("| 0.5 to 1.0 ms (1.2 to 2.5 %) |"), "{text}");
    let estimate = "Saving on its own: 2.0 to 4.0 ms, of which up to 3.00 ms is already counted above or not achievable.";
    assert!(text.contains(estimate), "{text}");
    (s.saving(1).claimed_ns, s.saving(1).overlap_ns) = (0.0, 4.0 * MS);
    assert!(s.markdown().contains("| in findings above |"));
}

#[test]
fn layers_have_no_limit_that_hardly_any_of_their_time_tells() {
    let bound = |other_ms: f64| {
        let mut s = sample();
        let replayed = s.site("replay", "mystery", other_ms, None);
        let small = s.site("copy", "add", 0.5, None);
        s.costed.run.sites[small.idx()].layer = s.costed.run.sites[replayed.idx()].layer;
        s.costed.sites[small.idx()].bound = Some(Bound::Latency);
        let rows = s.report().layers.into_iter();
        let mut rows = rows.filter(|row| row.name == "replay");
        rows.next().unwrap().bound
    };
    assert_eq!(bound(6.0), None);
    assert_eq!(bound(0.4).as_deref(), Some("latency"));
}

#[test]
fn latency_does_not_explain_work_ten_times_as_long_as_the_shortest_kernels() {
    let row = |shortest_ms: f64| {
        let mut s = sample();
        let slow = s.site("slow", "mm", 6.0, Some(0.01));
        let cost = &mut s.costed.sites[slow.idx()];
        cost.bound = Some(Bound::Latency);
        cost.reachable_ns = Some(shortest_ms * MS);
        let report = s.report();
        let layer = report.layers.iter().find(|row| row.name == "slow").unwrap();
        let site = report
            .sites
            .iter()
            .find(|row| row.layer.as_deref() == Some("slow"));
        (layer.slowdown, layer.bound.clone(), site.unwrap().slowdown)
    };
    assert_eq!(row(0.6), (Some(10.0), None, Some(10.0)));
    assert_eq!(row(0.7), (None, Some("latency".to_owned()), None));
}

#[test]
fn work_with_findings_is_not_listed_as_already_fast() {
    let mut s = sample();
    assert_eq!(s.report().already_fast.len(), 1);
    s.finding(SiteId(1), "Change the head", "head", 1.0);
    assert!(s.report().already_fast.is_empty());
    s.results.findings.pop();
    s.costed.sites[1].bound = Some(Bound::Latency);
    assert!(s.report().already_fast.is_empty());
}

#[test]
fn backward_of_work_to_be_fused_is_not_listed_as_already_fast() {
    let mut s = sample();
    let forward = s.site("head", "mm", 6.0, None);
    let layer = s.costed.run.sites[1].layer;
    s.costed.run.sites[forward.idx()].layer = layer;
    s.costed.run.sites[1].direction = Direction::Bprop;
    s.finding(forward, "Change the forward pass", "head", 1.0);
    assert_eq!(s.report().already_fast.len(), 1);
    s.results.findings[1].members = vec![Member::Chain(0)];
    assert!(s.report().already_fast.is_empty());
}

#[test]
fn recorded_environment_causes_one_warning() {
    let mut s = sample();
    s.costed.run.profile.recorded.environment = true;
    s.costed.run.profile.note("environment_block", "it has one");
    let text = s.markdown();
    assert_eq!(text.matches("environment").count(), 1, "{text}");
    assert!(!text.contains("it has one"));
    check::markdown(&text);
}

#[test]
fn setup_has_no_saving() {
    let mut s = sample();
    s.costed.run.window.setup = SetUp {
        ns: 900_000_000,
        copies: 294,
        copied_bytes: 13_600_000_000,
        copied_ns: 3_160_000_000,
        pageable_copies: 294,
        excluded: vec![ExcludedWork {
            why: Exclusion::WarmUp,
            kernels: 12,
            kernel_ns: 4_000_000,
        }],
        ..SetUp::default()
    };
    let text = s.markdown();
    for part in [
        "Excluded from all figures above",
        "900 ms before the analyzed window, with 294 copies of 13.6 GB in 3.16 s",
        "12 kernels (4.00 ms) in or before declared warm-up",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains("first launch took"));
    // Without steps, nothing shows whether it comes again.
    assert!(!text.contains("steady-state"));
    assert!(
        text.contains(
            "50.0 ms analyzed, no steps (the 900 ms before the first kernel are left out)"
        )
    );
    for (ns, told) in [(16_600_000, false), (16_700_000, true)] {
        s.costed.run.window.setup.ns = ns;
        assert_eq!(s.markdown().contains("are left out)"), told, "{ns}");
    }
}

#[test]
fn non_finite_numbers_do_not_break_reports() {
    let mut s = sample();
    let saving = s.saving(0);
    (saving.high_ns, saving.low_ns, saving.claimed_ns) = (f64::NAN, f64::INFINITY, f64::NAN);
    s.costed.sites[0].best_ideal_ns = Some(f64::NAN);
    s.costed.sites[1].best_ideal_ns = Some(0.0);
    s.costed.run.sites[2].time_ns = i64::MAX;
    s.costed.run.sites[1].calls = u32::MAX;
    check::markdown(&s.markdown());
    assert!(json(&s.report()).contains("null"));
}

#[test]
fn user_templates_are_rendered() {
    let report = sample().report();
    let template = "{% for f in findings %}{{ f.place | md }}: {{ f.saving.counted_high_ns | ns }}{% endfor %}";
    let made = render_template(&report, "mine.txt", template);
    assert_eq!(made.unwrap(), "blocks.\\*.mlp (24 layers): 16.0 ms");
    let html = render_template(&report, "mine.html", "{{ '<b>' }}");
    assert_eq!(html.unwrap(), "&lt;b&gt;");
}

#[test]
fn template_errors_have_a_position() {
    let report = sample().report();
    for (template, line, part) in [
        ("\n\n{{ nothing }}", 3, "undefined"),
        ("\n{% for %}", 2, "syntax error"),
        ("{% include '/etc/passwd' %}", 1, "not offered"),
        (
            "\n{% for x in findings %}{{ loop.cycle() }}{% endfor %}",
            2,
            "cycle",
        ),
        ("{{ file | nofilter }}", 1, "nofilter"),
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            1,
            "fuel",
        ),
    ] {
        let error = render_template(&report, "mine.md", template).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("mine.md:{line}: ")), "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_counts_once_another_finding_is_done_is_said_below_the_list() {
    let note = |first: Option<Saving>, then_ms: f64| {
        let mut s = sample();
        let head = s.site("norm", "layer_norm", 4.0, None);
        s.finding(head, "Norms are slow", "norm", 4.0);
        let [before, after] = s.results.findings.as_mut_slice() else {
            panic!("two findings");
        };
        before.rule = "host/first".into();
        before.saving = first.or(before.saving);
        after.after = Some(before.rule.clone());
        let saving = after.saving.as_mut().unwrap();
        saving.step_ns = Some(then_ms * MS);
        s.report().next_notes.join("\n")
    };
    assert_eq!(
        note(None, 4.0),
        "Once finding 1 is done, the GPU limits the window. Then finding 2, \"Norms are slow\", saves 2.0 to 4.0 ms of GPU time."
    );
    assert_eq!(
        note(None, 3.0),
        "Once finding 1 is done, the GPU may limit part of the window. Then finding 2, \"Norms are slow\", saves up to 3.00 ms of it."
    );
    let idle = |low_ms: f64| Saving {
        high_ns: 40.0 * MS,
        low_ns: low_ms * MS,
        claimed_ns: 40.0 * MS,
        claimed_low_ns: low_ms * MS,
        overlap_ns: 0.0,
        step_ns: Some(40.0 * MS),
        step_low_ns: Some(low_ms * MS),
        kind: SavingKind::Idle,
    };
    assert_eq!(
        note(Some(idle(26.0)), 3.0),
        "Once finding 1 is done, the window may take as little as 10.0 ms. Then finding 2, \"Norms are slow\", saves 2.0 to 3.0 ms of it."
    );
    assert!(note(Some(idle(24.0)), 3.0).contains("the GPU may limit part of"));
}

#[test]
fn findings_that_count_after_the_same_one_are_named_together() {
    let mut s = sample();
    for (layer, title) in [("norm", "Norms are slow"), ("act", "Activations are slow")] {
        let site = s.site(layer, "layer_norm", 4.0, None);
        s.finding(site, title, layer, 4.0);
    }
    let [first, rest @ ..] = s.results.findings.as_mut_slice() else {
        panic!("three findings");
    };
    first.rule = "host/first".into();
    for finding in rest {
        finding.after = Some(first.rule.clone());
    }
    assert_eq!(
        s.report().next_notes,
        [
            "Once finding 1 is done, the GPU limits the window. Then finding 2, \"Norms are slow\", saves 2.0 to 4.0 ms of GPU time and finding 3, \"Activations are slow\", saves 2.0 to 4.0 ms of GPU time."
        ]
    );
}

#[test]
fn one_change_that_several_findings_ask_for_is_said_once() {
    let note = |fixes: [&str; 2], estimated: bool| {
        let mut s = sample();
        let norm = s.site("norm", "layer_norm", 4.0, None);
        s.finding(norm, "Norms are slow", "norm", 4.0);
        let second = &mut s.results.findings[1];
        second.saving = second.saving.filter(|_| estimated);
        for (finding, fix) in s.results.findings.iter_mut().zip(fixes) {
            finding.changes = [("fusion".to_owned(), "compile".to_owned())].into();
            finding.fix = fix.to_owned();
        }
        s.report().next_notes.join("\n")
    };
    let both = ["rotate = torch.compile(rotate)", "torch.compile(norm)"];
    assert_eq!(
        note(both, true),
        "`model = torch.compile(model)` fuses what findings 1 and 2 are about with a single change (10 to 20 ms of the 50.0 ms window)."
    );
    assert_eq!(note(both, false), "");
    assert_eq!(note([both[0], "F.rms_norm(x)"], true), "");
}
