//! Ranges of `nsys profile --pytorch=functions-trace`. No export with them is at hand: the domain is the one
//! that its documentation names, the texts are functions of its `pytorch.json` in the form `Class.method`.

use pyprof_advise::correlate::correlate;
use pyprof_advise::cost::VOCABULARY;

use super::{PID, TID, open, open_pruned, with};

/// A launch at `start` with its kernel, inside of a range with this text in this domain.
fn called(start: i64, function: &str, domain: i64) -> String {
    format!(
        "INSERT INTO NVTX_EVENTS VALUES ({start}, {}, 59, '{function}', {TID}, NULL, {domain});
         INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({}, {}, 0, {TID}, {start}, 2, 0);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {start}, {PID}, 1, 1,
             8, 1, 1, 128, 1, 1, 40, 0, 0, 0, NULL);",
        start + 100,
        start + 10,
        start + 20,
        start + 30,
        start + 80,
    )
}

#[test]
fn functions_that_nsys_traces_are_passes_and_no_operators() {
    let sql = [
        format!(
            "DELETE FROM NVTX_EVENTS; DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME;
             DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;
             INSERT INTO NVTX_EVENTS VALUES (0, NULL, 75, 'PyTorch', {TID}, NULL, 1);"
        ),
        called(1000, "Module.forward", 1),
        called(2000, "Tensor.backward", 1),
        called(3000, "AdamW.step", 1),
        called(4000, "GradScaler.unscale_", 1),
    ];
    let built = with(&sql.concat());
    for profile in [open(&built.path), open_pruned(&built.path)] {
        let run = correlate(profile.unwrap(), &VOCABULARY);
        assert!(run.op_calls.is_empty(), "{:?}", run.op_calls);
        // As with torch's own ranges, the step of an optimizer is a row among the layers.
        let layers: Vec<&str> = run.layers.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(layers, ["AdamW.step"]);
        let mut found: Vec<&str> = run.sites.iter().map(|s| s.direction.name()).collect();
        found.sort_unstable();
        assert_eq!(found, ["bprop", "fprop", "unknown", "update"]);
    }
}
