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
        program: "dlrm",
        first: "layers/embedding-gradient",
        said: &["host/copies-wait"],
        unsaid: &["layers/optimizer-foreach", "host/launch-bound"],
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
        first: "precision/amp-off",
        said: &["host/scalar-read-back"],
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
        program: "nanogpt_compiled",
        first: "tensor-cores/far-from-ideal",
        said: &[],
        unsaid: &["host/launch-bound", "memory/layout-transposes"],
    },
    Known {
        program: "ppo",
        first: "host/launch-bound",
        said: &["host/copies-wait", "host/scalar-read-back"],
        unsaid: &[],
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

#[test]
fn reports_of_known_programs_begin_with_what_matters_most() {
    for known in KNOWN {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/h100")
            .join(known.program);
        let output = Command::new(env!("CARGO_BIN_EXE_pyprof-advise"))
            .arg(&folder)
            .args(["--format", "json", "--quiet"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", known.program);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
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
