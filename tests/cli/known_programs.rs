//! Recordings of programs whose source lies beside them (`fixtures/h100`): what an engineer who knows the program
//! would change first is what the report says first.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What a report must say.
struct Known {
    program: &'static str,
    /// The rule of the first finding.
    first: &'static str,
    /// Rules with a finding, in the table or among the minor ones.
    said: &'static [&'static str],
    /// Rules whose advice does not fit the program.
    unsaid: &'static [&'static str],
}

const KNOWN: &[Known] = &[
    Known {
        program: "bert_graphs",
        first: "layers/attention-math-compiled",
        said: &[],
        unsaid: &["host/slow-launches", "precision/tf32-off"],
    },
    Known {
        program: "bert_infer",
        first: "host/launch-bound",
        said: &["precision/amp-off"],
        unsaid: &[],
    },
    Known {
        program: "dcgan",
        first: "host/made-on-the-cpu",
        said: &["host/launch-bound", "precision/amp-off"],
        unsaid: &[],
    },
    Known {
        program: "deeplab",
        first: "precision/amp-off",
        said: &["host/made-on-the-cpu", "memory/low-bandwidth"],
        unsaid: &["host/launch-bound"],
    },
    Known {
        program: "dlrm",
        first: "layers/embedding-gradient",
        said: &["host/copies-wait"],
        unsaid: &["layers/optimizer-foreach", "host/launch-bound"],
    },
    Known {
        program: "embed_infer",
        first: "precision/amp-off",
        said: &["shapes/padded-to-longest"],
        unsaid: &["host/launch-bound", "precision/tf32-off"],
    },
    Known {
        program: "gat",
        first: "layers/small-row-gather",
        said: &["host/data-dependent-shape", "layers/scatter-atomics"],
        unsaid: &["host/launch-bound"],
    },
    Known {
        program: "gpt2",
        first: "layers/gelu-unfused",
        said: &["fusion/cuda-graph", "tensor-cores/gemm-unaligned"],
        unsaid: &[],
    },
    Known {
        program: "host_sync",
        first: "host/scalar-read-back",
        said: &["precision/amp-off"],
        unsaid: &["host/launch-bound"],
    },
    Known {
        program: "llama_generate",
        first: "host/attention-plans",
        said: &["host/launch-bound"],
        unsaid: &["host/gpu-idle"],
    },
    Known {
        program: "lstm_lm",
        first: "fusion/cuda-graph",
        said: &["precision/amp-off"],
        unsaid: &["layers/optimizer-foreach"],
    },
    Known {
        program: "mingpt_decode",
        first: "layers/no-key-value-cache",
        said: &["host/launch-bound"],
        // A pass of one token per sequence has other operators and sizes than those that were recorded.
        unsaid: &[
            "layers/gelu-unfused",
            "layers/unused-rows",
            "precision/amp-off",
        ],
    },
    Known {
        program: "nanogpt_compiled",
        first: "tensor-cores/far-from-ideal",
        said: &[],
        unsaid: &["host/launch-bound", "memory/layout-transposes"],
    },
    Known {
        program: "nerf",
        first: "precision/amp-off",
        said: &["host/launch-bound", "host/sync-stalls"],
        unsaid: &[],
    },
    Known {
        program: "ppo",
        first: "host/launch-bound",
        said: &["host/copies-wait", "host/scalar-read-back"],
        // Some steps play more episodes, of the same sizes.
        unsaid: &["shapes/vary-between-steps"],
    },
    Known {
        program: "r3d",
        first: "host/prepared-on-the-cpu",
        said: &["host/launch-bound", "layers/batch-norm-slow"],
        unsaid: &["host/gpu-idle"],
    },
    Known {
        program: "resnet50",
        first: "copies/pageable",
        said: &["precision/amp-off", "host/launch-bound"],
        unsaid: &["host/loader-in-training-process"],
    },
    Known {
        program: "tf32",
        first: "precision/amp-off",
        said: &[],
        unsaid: &[],
    },
    Known {
        program: "unet_ema",
        first: "host/launch-bound",
        said: &["layers/weight-average", "precision/amp-off"],
        unsaid: &["layers/attention-unfused"],
    },
];

/// What following the advice of a rule was measured to save of each step, in ms, without a profiler
/// (fixtures/README.md).
const MEASURED: &[(&str, &str, f64)] = &[
    ("deeplab", "precision/amp-off", 39.3),
    ("embed_infer", "precision/amp-off", 27.2),
    ("nerf", "precision/amp-off", 14.1),
    ("nerf", "host/prepared-on-the-cpu", 2.1),
];

fn report_of(program: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/h100")
        .join(program);
    let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
        .arg(&folder)
        .args(["--format", "json", "--quiet"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{program}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn savings_are_those_that_were_measured() {
    for (program, rule, measured) in MEASURED {
        let report = report_of(program);
        let findings = report["findings"].as_array().unwrap();
        let finding = findings.iter().find(|f| f["rule"] == *rule);
        let saving = &finding.unwrap()["saving"];
        let ms = |end: &str| saving[end].as_f64().unwrap() / 1e6;
        let (low, high) = (ms("step_low_ns"), ms("step_high_ns"));
        assert!(
            (low..=high).contains(measured),
            "{program}, {rule}: {low} to {high}, measured {measured}"
        );
    }
}

#[test]
fn what_limits_the_steps_once_the_gpu_is_faster_is_said() {
    let notes = |program: &str| report_of(program)["next_notes"].to_string();
    // Without any kernel the host alone takes 19.5 ms of 41.5, and 16 bits save up to 30.
    assert!(notes("embed_infer").contains("Once finding 1 is done, the host may limit the step"));
    // The GPU is idle for most of each step already.
    assert!(!notes("ppo").contains("the host may limit"));
}

#[test]
fn reports_of_known_programs_begin_with_what_matters_most() {
    for known in KNOWN {
        let report = report_of(known.program);
        let rules = |key: &str| -> Vec<String> {
            let findings = report[key].as_array().unwrap().iter();
            findings
                .map(|f| f["rule"].as_str().unwrap().to_owned())
                .collect()
        };
        let found = rules("findings");
        let minor = rules("minor");
        let program = known.program;
        assert_eq!(
            found.first().map(String::as_str),
            Some(known.first),
            "{program}: {found:?}"
        );
        for rule in known.said {
            let is_said = found.iter().chain(&minor).any(|r| r == rule);
            assert!(is_said, "{program}, {rule}: {found:?} {minor:?}");
        }
        for rule in known.unsaid {
            let is_said = found.iter().chain(&minor).any(|r| r == rule);
            assert!(!is_said, "{program}, {rule}: {found:?} {minor:?}");
        }
    }
}
