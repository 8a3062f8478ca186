//! The events of PyTorch's allocator.

use serde_json::json;

use super::{profile, today};

#[test]
fn memory_of_gpus_is_read_and_that_of_the_host_is_not() {
    let event = |ts: f64, bytes: i64, allocated: i64, kind: u32| {
        json!({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 42, "tid": 42,
               "ts": ts, "args": {"Total Reserved": 4_096, "Total Allocated": allocated, "Bytes": bytes,
                                  "Device Id": 0, "Device Type": kind, "Addr": 1}})
    };
    let mut trace = today();
    let events = trace["traceEvents"].as_array_mut().unwrap();
    events.push(event(120.5, -512, 1_024, 1));
    events.push(event(110.0, 1_536, 1_536, 1));
    events.push(event(111.0, 99, 99, 0));
    // A damaged one.
    events.push(json!({"ph": "i", "name": "[memory]", "ts": 5, "args": {"Device Type": 1}}));
    let p = profile(&trace.to_string());
    let read: Vec<_> = p
        .memory
        .iter()
        .map(|e| (e.at, e.bytes, e.allocated, e.reserved))
        .collect();
    assert_eq!(
        read,
        [
            (110_000, 1_536, 1_536, 4_096),
            (120_500, -512, 1_024, 4_096)
        ]
    );
}
