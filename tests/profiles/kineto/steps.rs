//! Steps of `torch.profiler`.

use serde_json::json;

use super::{profile, run};

#[test]
fn steps_that_touch_are_all_counted() {
    // Begin and length are rounded, each by itself: the second step seems to begin before the first ends.
    let step = |number: u32, ts: f64, dur: f64| {
        json!({"ph": "X", "cat": "user_annotation", "name": format!("ProfilerStep#{number}"), "pid": 42,
               "tid": 42, "ts": ts, "dur": dur})
    };
    let numbers = |second: f64| {
        let trace = json!({"traceEvents": [step(1, 0.0, 100.001), step(2, second, 100.0),
                                           step(3, second + 100.0, 50.0)]});
        let run = run(profile(&trace.to_string()));
        let spans = run
            .steps
            .iter()
            .map(|s| (s.number, s.span.start, s.span.end));
        spans.collect::<Vec<_>>()
    };
    assert_eq!(
        numbers(100.0),
        [
            (1, 0, 100_000),
            (2, 100_000, 200_000),
            (3, 200_000, 250_000)
        ]
    );
    // One that begins inside another is a part of it.
    assert_eq!(numbers(60.0), [(1, 0, 100_001), (3, 160_000, 210_000)]);
}
