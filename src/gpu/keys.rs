//! The keys of GPU files: what the loader takes, with the ranges it holds numbers to.

use super::load::RATED;
use crate::base::DType;
use crate::base::schema::{self, Key, Shape, key};

const TEXT: Shape = Shape::Text(0, 2_000);
const TEXTS: Shape = Shape::List(&TEXT, 1_000);
const ALIASES: Shape = Shape::List(&Shape::Form("^[a-z0-9-]+$"), 1_000);
/// MHz: any clock of a GPU, and no figure in GHz or Hz.
const MHZ: Shape = Shape::Above(10.0, 20_000.0);
/// KB (1024 bytes) of shared memory.
const KB: Shape = Shape::Whole(1, 65_536);
/// TFLOP/s beyond which a rate is a slip of units.
pub(super) const MAX_TERA: f64 = 1e6;
/// Elements of the largest alignment.
pub(super) const MAX_ALIGN: u32 = 1_024;
pub(super) const CONFIDENCES: [&str; 3] = ["high", "medium", "low"];

/// Every key of a GPU file.
pub const KEYS: &[Key] = &[
    key("name", true, "the board as people call it", TEXT),
    key(
        "vendor",
        true,
        "`nvidia` or `amd`",
        Shape::Word(|| vec!["nvidia", "amd"]),
    ),
    key(
        "architecture",
        true,
        "`Volta`, `Hopper`, `CDNA3`, ...",
        TEXT,
    ),
    key("chip", false, "the silicon: `GV100`", TEXT),
    key(
        "gfx",
        false,
        "LLVM's name of an AMD architecture: `gfx942`; AMD GPUs need it",
        Shape::Form("^gfx[0-9A-Fa-f]{3,}$"),
    ),
    key(
        "compute_capability",
        false,
        "`8.0`, as a string; NVIDIA GPUs need it",
        Shape::Form("^[0-9]{1,2}\\.[0-9]{1,2}$"),
    ),
    key(
        "sm_count",
        false,
        "streaming multiprocessors (AMD: compute units) in use",
        Shape::Whole(1, 10_000),
    ),
    key(
        "boost_mhz",
        false,
        "clock at which the rates outside Tensor Cores are quoted, MHz",
        MHZ,
    ),
    key(
        "tensor_mhz",
        false,
        "clock at which the Tensor Core rates are quoted, MHz, where it differs",
        MHZ,
    ),
    key(
        "power_w",
        false,
        "board power, W",
        Shape::Above(1.0, 100_000.0),
    ),
    key(
        "device_names",
        false,
        "`cudaDeviceProp.name`, exactly, as profiles carry it",
        TEXTS,
    ),
    key("aliases", false, "what people type after `--gpu`", ALIASES),
    key(
        "default_for",
        false,
        "aliases shared with other boards that mean this one unless the profile names another",
        ALIASES,
    ),
    key(
        "confidence",
        false,
        "how sure the numbers are",
        Shape::Word(|| CONFIDENCES.into()),
    ),
    key("sources", true, "where the numbers come from", TEXTS),
    key("notes", false, "what should be known besides", TEXT),
    key(
        "flops",
        true,
        "dense TFLOP/s outside Tensor Cores by data type; fp32 is needed",
        Shape::Words(plain_types, &RATE),
    ),
    key(
        "tensor_flops",
        false,
        "dense TFLOP/s (int8: TOP/s) on Tensor Cores by data type, accumulating in fp32",
        Shape::Words(tensor_types, &RATE),
    ),
    key(
        "tensor_align",
        false,
        "elements a dimension must be a multiple of for Tensor Cores, by data type",
        Shape::Words(tensor_types, &Shape::PowerOfTwo(MAX_ALIGN as i64)),
    ),
    key("memory", true, "the DRAM", Shape::Table(MEMORY_KEYS, &[])),
    key(
        "limits",
        false,
        "what one streaming multiprocessor holds",
        Shape::Table(LIMIT_KEYS, &[]),
    ),
    key(
        "links",
        false,
        "the ways off the board",
        Shape::Table(LINK_KEYS, &[]),
    ),
    key(
        "reachable",
        false,
        "shares of the peaks that well-tuned kernels reach",
        Shape::Table(REACHABLE_KEYS, &[]),
    ),
];

const RATE: Shape = Shape::Above(0.0, MAX_TERA);

/// Every key of `[memory]`.
pub const MEMORY_KEYS: &[Key] = &[
    key(
        "size_gb",
        false,
        "size in 2^30 bytes",
        Shape::Above(0.0, 100_000.0),
    ),
    key("kind", false, "`HBM2`, `GDDR6`, ...", TEXT),
    key(
        "bandwidth_gbs",
        true,
        "peak bandwidth in 10^9 bytes per second",
        Shape::Above(0.0, 1e6),
    ),
    key(
        "l2_mb",
        false,
        "last-level cache in 2^20 bytes",
        Shape::Above(0.0, 100_000.0),
    ),
    key(
        "ignore_profile_bandwidth",
        false,
        "profiles are known to carry a wrong bandwidth for this chip",
        Shape::Flag,
    ),
];

/// Every key of `[limits]`.
pub const LIMIT_KEYS: &[Key] = &[
    key("shared_kb", false, "shared memory, KB of 1024 bytes", KB),
    key(
        "shared_per_block_kb",
        false,
        "shared memory one block can have, KB of 1024 bytes",
        KB,
    ),
    key(
        "registers",
        false,
        "registers of 32 bits",
        Shape::Whole(1, 1 << 24),
    ),
    key(
        "threads",
        false,
        "resident threads: a multiple of 32",
        Shape::Whole(32, 65_536),
    ),
    key("blocks", false, "resident blocks", Shape::Whole(1, 65_536)),
    key("schedulers", false, "warp schedulers", Shape::Whole(1, 64)),
];

/// Every key of `[links]`.
pub const LINK_KEYS: &[Key] = &[
    key(
        "pcie_gen",
        false,
        "generation of PCI Express",
        Shape::Whole(1, 10),
    ),
    key(
        "nvlink_gbs",
        false,
        "all NVLinks, both directions together, 10^9 bytes per second",
        Shape::Above(0.0, 1e6),
    ),
];

/// Every key of `[reachable]`.
pub const REACHABLE_KEYS: &[Key] = &[
    key("math", false, "of the math peak", Shape::Above(0.0, 1.0)),
    key(
        "memory",
        false,
        "of the DRAM bandwidth",
        Shape::Above(0.0, 1.0),
    ),
];

fn tensor_types() -> Vec<&'static str> {
    RATED.map(DType::name).into()
}

/// TF32 has no rate outside Tensor Cores.
fn plain_types() -> Vec<&'static str> {
    let plain = RATED.into_iter().filter(|d| *d != DType::Tf32);
    plain.map(DType::name).collect()
}

/// One of these says which instructions it has.
const GENERATION: schema::Sets = &[&["compute_capability"], &["gfx"]];

/// The JSON Schema of GPU files.
pub fn schema() -> String {
    let about = "A GPU: its peaks and limits, for `pyprof-advise --gpu FILE` and gpu_specs/.";
    schema::document("pyprof-advise GPU", about, KEYS, GENERATION)
}
