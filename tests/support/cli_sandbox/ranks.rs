//! Traces of synthetic ranks: how long each computes, starts late, and waits.

use serde_json::{Value, json};

use super::Sandbox;

/// The times of one rank in each step, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) compute: u32,
    /// Idle time before the collective.
    pub(crate) late: u32,
    pub(crate) collective: u32,
}

/// A trace of torch.profiler with one matrix product and one all-reduce per step.
pub(crate) struct Trace {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: u32,
    pub(crate) gpu: &'static str,
    pub(crate) group_size: Option<u32>,
    /// Elements of fp32 in each all-reduce.
    pub(crate) elements: Option<u32>,
    /// Number of the first step.
    pub(crate) first_step: usize,
    pub(crate) steps: Vec<Step>,
}

impl Trace {
    pub(crate) fn of(rank: u32, steps: &[Step]) -> Trace {
        Trace {
            rank: Some(rank),
            world_size: 4,
            gpu: "NVIDIA A100-SXM4-40GB",
            group_size: None,
            elements: None,
            first_step: 1,
            steps: steps.to_vec(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut events = Vec::new();
        let mut now = 1000;
        for (number, step) in self.steps.iter().enumerate() {
            let start = now;
            let id = 2 * number as u32 + 1;
            for (id, at, args) in [(id, now + 1, json!({})), (id + 1, now + 10, self.message())] {
                let op = if id % 2 == 1 {
                    "aten::mm"
                } else {
                    "c10d::allreduce_"
                };
                events.push(host("cpu_op", op, at, 8, args));
                let launch = json!({"correlation": id});
                events.push(host("cuda_runtime", "cudaLaunchKernel", at + 1, 4, launch));
            }
            now += 20;
            events.push(kernel("ampere_sgemm_128x64_tn", now, step.compute, id));
            now += step.compute + step.late;
            let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
            events.push(kernel(name, now, step.collective, id + 1));
            now += step.collective + 5;
            let name = format!("ProfilerStep#{}", number + self.first_step);
            events.push(host(
                "user_annotation",
                &name,
                start,
                now - start,
                json!({}),
            ));
        }
        let mut trace = json!({
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": self.gpu, "computeMajor": 8, "computeMinor": 0,
                "numSms": 108, "warpSize": 32}],
            "traceEvents": events,
        });
        if let Some(rank) = self.rank {
            trace["distributedInfo"] =
                json!({"backend": "nccl", "rank": rank, "world_size": self.world_size});
        }
        trace.to_string()
    }

    fn message(&self) -> Value {
        let mut message = match self.group_size {
            Some(size) => json!({"Group size": size, "Collective name": "allreduce"}),
            None => json!({}),
        };
        if let Some(elements) = self.elements {
            message["In msg nelems"] = json!(elements);
            message["Out msg nelems"] = json!(elements);
            message["dtype"] = json!("Float");
        }
        message
    }
}

fn host(cat: &str, name: &str, ts: u32, dur: u32, args: Value) -> Value {
    json!({"ph": "X", "cat": cat, "name": name, "pid": 42, "tid": 42, "ts": ts, "dur": dur,
           "args": args})
}

fn kernel(name: &str, ts: u32, dur: u32, id: u32) -> Value {
    json!({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
           "args": {"device": 0, "context": 1, "stream": 7, "correlation": id, "grid": [8, 4, 1],
                    "block": [256, 1, 1]}})
}

/// Four ranks whose steps take equally long, because they wait for each other. Per step and rank:
/// compute time, and idle time after it.
pub(crate) fn job<const STEPS: usize>(steps: [[(u32, u32); 4]; STEPS]) -> Sandbox {
    let sandbox = Sandbox::bare();
    for rank in 0..4 {
        let steps: Vec<Step> = steps
            .iter()
            .map(|ranks| {
                let (compute, late) = ranks[rank];
                let last = ranks.iter().map(|(c, l)| c + l).max().unwrap();
                // 100 us of transfer after the last rank has joined.
                let collective = last - (compute + late) + 100;
                Step {
                    compute,
                    late,
                    collective,
                }
            })
            .collect();
        let trace = Trace::of(rank as u32, &steps);
        sandbox.write(&format!("trace_{rank}.json"), &trace.text());
    }
    sandbox
}
