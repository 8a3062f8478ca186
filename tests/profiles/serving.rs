//! Served models and the libraries of their kernels: what their operators cost, and what advice fits them.

use std::collections::BTreeSet;
use std::path::Path;

use pyprof_advise::correlate::{OpName, Run};
use pyprof_advise::cost::{UnknownCost, estimate_costs, ops};
use pyprof_advise::facts::{Answer, FactTable, Lookup, Member};
use pyprof_advise::report::{Report, markdown};
use serde_json::{Value, json};

use crate::kineto::{profile, run};
use crate::{shared, survey};

/// Namespaces of operators of serving engines and of the libraries that they use.
const NAMESPACES: &[&str] = &[
    "vllm",
    "_C",
    "_C_cache_ops",
    "_C_custom_ar",
    "_moe_C",
    "_vllm_fa2_C",
    "_vllm_fa3_C",
    "sglang",
    "sgl_kernel",
    "aiter",
    "flashinfer",
    "deep_gemm",
    "trtllm",
    "tensorrt_llm",
    "fbgemm",
    "symm_mem",
];

/// Operators of recordings that are not at hand, of which it is known that they take much time.
const MEASURED_ELSEWHERE: &[(&str, &str)] = &[
    ("vllm", "moe_forward"),
    ("vllm", "unified_attention_with_output"),
    ("_C", "fused_add_rms_norm"),
    ("_C", "rotary_embedding"),
    (
        "fbgemm",
        "split_embedding_codegen_lookup_rowwise_adagrad_function",
    ),
    ("fbgemm", "permute_2D_sparse_data"),
    ("fbgemm", "permute_pooled_embs_auto_grad"),
    ("fbgemm", "FloatToFP8RowwiseQuantized"),
    ("fbgemm", "FP8RowwiseQuantizedToFloat"),
];

/// Words of advice on training, in lower case.
const OF_TRAINING: &[&str] = &[
    "backward",
    "optimizer",
    "dataloader",
    "autocast",
    "gradscaler",
    "zero_grad",
    "train_step",
    "train.py",
    "gradient",
    "ddp",
];

/// The lines of a report's advice that are about training.
fn advice_on_training(report: &Report) -> Vec<String> {
    let page = markdown(report).unwrap();
    let advice = page.split("## Method").next().unwrap().lines();
    // Links may name what is documented elsewhere.
    let lines = advice.filter(|line| !line.starts_with("- See <"));
    let trains = |line: &&str| {
        let line = line.to_lowercase();
        OF_TRAINING.iter().any(|word| line.contains(word))
    };
    lines.filter(trains).map(str::to_owned).collect()
}

/// Module and name of operators.
pub(crate) type Operators = BTreeSet<(String, String)>;

/// The operators of serving engines and of their libraries.
pub(crate) fn operators_of_engines(run: &Run) -> Operators {
    let ops = run.sites.iter().filter_map(|site| site.op.as_ref());
    let ops = ops.filter(|op| NAMESPACES.contains(&op.module.as_str()));
    ops.map(|op| (op.module.clone(), op.name.clone())).collect()
}

/// The lines of advice on training in the report of a served model; none of another program.
pub(crate) fn advice_on_training_of_served(
    table: &FactTable<'_>,
    report: &Report,
    path: &Path,
) -> Option<Vec<String>> {
    let engine = table.view(Member::Run).get("run.serving_engine");
    let is_served = matches!(engine, Answer::Value(_)) || path.ends_with("memfusion_trt.sqlite");
    is_served.then(|| advice_on_training(report))
}

#[test]
fn served_models_have_costs_with_sources_and_no_advice_on_training() {
    let Some(all) = survey::all() else { return };
    let named = |(module, name): &(&str, &str)| ((*module).to_owned(), (*name).to_owned());
    let mut found: Operators = MEASURED_ELSEWHERE.iter().map(named).collect();
    let mut served = Vec::new();
    for profile in all {
        found.extend(profile.operators.iter().cloned());
        if let Some(advice) = &profile.served_advice_on_training {
            let name = shared::name(&profile.path);
            assert_eq!(advice, &[""; 0], "{name}");
            served.push(name);
        }
    }
    assert!(served.len() >= 6, "{served:?}");
    assert!(found.len() > 20, "{found:?}");
    for (module, name) in found {
        let op = OpName { module, name };
        let entry = ops::entry(&op).unwrap_or_else(|| panic!("{} has no entry", op.display()));
        let told = [entry.flops, entry.bytes, entry.source];
        assert!(told.iter().all(|text| !text.is_empty()), "{}", op.display());
    }
}

/// A synthetic trace: the operator and the ranges are as in real ones, the kernel's name as FlashAttention 3
/// has it. `flags` are `Is_causal` and `Is_local`.
fn served_attention(range: &str, flags: &str) -> Result<(u64, u64), UnknownCost> {
    let kernel = format!(
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, \
         x, x, 64, cutlass::bfloat16_t, float, cutlass::arch::Sm90, {flags}, false>, x> > >(y)"
    );
    let args = json!({"Input Dims": [[8, 4, 64], [8, 2, 64], [8, 2, 64], [8, 4, 64], [0], []],
        "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "c10::BFloat16", ""]});
    let op = "vllm::unified_attention_with_output";
    let event = |cat: &str, name: &str, ts: u64, dur: u64, args: Value| {
        let pid = u64::from(cat != "kernel");
        json!({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": 1, "ts": ts, "dur": dur, "args": args})
    };
    let launch = json!({"correlation": 5});
    let gpu = json!({"correlation": 5, "device": 0, "stream": 7});
    let trace = json!({"traceEvents": [
        event("user_annotation", range, 0, 90, json!({})),
        event("cpu_op", op, 1, 20, args),
        event("cuda_runtime", "cudaLaunchKernel", 5, 2, launch),
        event("kernel", &kernel, 30, 9, gpu)]});
    let costed = estimate_costs(run(profile(&trace.to_string())), None);
    let cost = costed.sites[0].cost.clone();
    cost.map(|cost| (cost.flops(), cost.bytes()))
}

#[test]
fn attention_over_cached_keys_costs_what_the_range_of_the_engine_tells() {
    let unknown = Err(UnknownCost::DataDependent);
    // 6 new tokens of 9 and 2 of 40; 8 rows of queries and results in bf16, 49 keys and values of 2 heads.
    let mixed = "execute_8_context_1(sq6sk9sqsq36sqsk54)_generation_2(sq2sk40sqsq2sqsk40)";
    let bytes = 2 * 8 * 4 * 64 * 2 + 49 * 2 * 128 * 2;
    let pairs = (4..=9).sum::<u64>() + 40;
    let causal = served_attention(mixed, "true, false");
    assert_eq!(causal, Ok((2 * 4 * 128 * pairs, bytes)));
    let full = served_attention(mixed, "false, false");
    assert_eq!(full, Ok((2 * 4 * 128 * 94, bytes)));
    // A window, a range without the keys, more tokens than there are queries.
    assert_eq!(served_attention(mixed, "false, true"), unknown);
    let short = "execute_context_1(6)_generation_2(2)";
    assert_eq!(served_attention(short, "true, false"), unknown);
    let more = "execute_9_context_1(sq7sk9sqsq49sqsk63)_generation_2(sq2sk40sqsq2sqsk40)";
    assert_eq!(served_attention(more, "true, false"), unknown);
    // Decoding: each token sees all keys, whatever the mask.
    let decode = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk40sqsq2sqsk40)";
    let decoded = served_attention(decode, "false, false");
    let bytes = 2 * 2 * 4 * 64 * 2 + 40 * 2 * 128 * 2;
    assert_eq!(decoded, Ok((2 * 4 * 128 * 40, bytes)));
}
