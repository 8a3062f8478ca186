//! A large compressed trace of `torch.profiler`: operators nested three deep with shapes, their
//! launches and kernels, and arrows, which a reader has to skip.

use std::io::{BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

const OPERATORS: [&str; 6] = ["linear", "matmul", "layer_norm", "softmax", "gelu", "add"];

/// Writes a trace with `kernels` kernels, about 2 KB each.
pub(super) fn write(path: &Path, kernels: usize) {
    let file = std::fs::File::create(path).unwrap();
    let mut out = BufWriter::new(GzEncoder::new(file, Compression::fast()));
    let device = r#"{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85000000000, "computeMajor": 8, "computeMinor": 0, "numSms": 108}"#;
    writeln!(
        out,
        "{{\"schemaVersion\": 1, \"deviceProperties\": [{device}], \"traceEvents\": ["
    )
    .unwrap();
    for number in 0..kernels {
        kernel(&mut out, number);
    }
    writeln!(
        out,
        "{{\"ph\": \"M\", \"name\": \"end\", \"pid\": 1, \"tid\": 1}}]}}"
    )
    .unwrap();
    out.into_inner()
        .unwrap()
        .finish()
        .unwrap()
        .sync_all()
        .unwrap();
}

fn kernel(out: &mut impl Write, number: usize) {
    let ts = number as f64 * 30.0 + 0.125;
    let name = OPERATORS[number % OPERATORS.len()];
    let variant = number / OPERATORS.len() % 50;
    let rows = 64 * (1 + variant % 12);
    for depth in 0..3_usize {
        let inset = depth as f64;
        let id = number * 3 + depth;
        writeln!(
            out,
            r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::{name}{}", "pid": 1, "tid": {}, "ts": {}, "dur": {}, "args": {{"External id": {id}, "Record function id": {id}, "Sequence number": {number}, "Fwd thread id": 0, "Concrete Inputs": ["", "", "", "1.0"], "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Strides": [[1024, 1], [1024, 1], [1], []], "Input Dims": [[{rows}, 1024], [{}, 1024], [1024], []], "Ev Idx": {id}}}}},"#,
            ["", "_inner", "_out"][depth],
            1 + number / 24 % 2,
            ts + inset,
            25.0 - 2.0 * inset,
            256 * (1 + variant % 7),
        )
        .unwrap();
    }
    let thread = 1 + number / 24 % 2;
    writeln!(
        out,
        r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": {thread}, "ts": {}, "dur": 4.5, "args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}},"#,
        ts + 6.0,
    )
    .unwrap();
    writeln!(
        out,
        r#"{{"ph": "s", "id": {number}, "pid": 1, "tid": {thread}, "ts": {}, "cat": "ac2g", "name": "ac2g"}},"#,
        ts + 6.0,
    )
    .unwrap();
    writeln!(
        out,
        r#"{{"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, {name}_{variant}>(int)", "pid": 0, "tid": 7, "ts": {}, "dur": {}, "args": {{"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, "registers per thread": 32, "shared memory": 0, "blocks per SM": 0.5, "warps per SM": 2.0, "grid": [{}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 3}}}},"#,
        ts + 12.0,
        2.0 + (number % 90) as f64 / 10.0,
        1 + variant,
    )
    .unwrap();
}
