//! The keys of GPU files, with the accepted ranges of numbers.

use super::vendor::Vendor;
use crate::base::diag::Complaint;
use crate::base::schema::{self, Form, Json, Key, Shape, check_value, keys, object, text};
use crate::base::toml::{At, Item, Table};
use crate::base::{DType, suggest};

/// Data types with rates, under the names used in files.
pub(super) const RATED: [DType; 8] = [
    DType::Fp64,
    DType::Fp32,
    DType::Tf32,
    DType::Fp16,
    DType::Bf16,
    DType::Fp8,
    DType::Int8,
    DType::Fp4,
];

pub(super) const TEXT: Shape = Shape::Text(0, 2_000);
const TEXTS: Shape = Shape::List(&TEXT, 1_000);
pub(super) const ALIAS: Form = Form {
    pattern: "^[a-z0-9-]+$",
    fits: |text| {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !text.is_empty() && text.bytes().all(plain)
    },
    what: "lower-case letters, digits and `-`",
};
const GFX: Form = Form {
    pattern: "^gfx[0-9A-Fa-f]{3,}$",
    fits: |text| {
        let digits = text.strip_prefix("gfx").unwrap_or_default();
        digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    },
    what: "a gfx name such as `gfx942`",
};
const CAPABILITY: Form = Form {
    pattern: "^[0-9]{1,2}\\.[0-9]{1,2}$",
    fits: |text| capability(text).is_some(),
    what: "a compute capability such as \"8.0\"",
};
const ALIASES: Shape = Shape::List(&Shape::Form(ALIAS), 1_000);
/// A clock in MHz. The range excludes values in GHz or Hz.
const MHZ: Shape = Shape::Above(10.0, 20_000.0);
/// KB (1024 bytes) of shared memory.
const KB: Shape = Shape::Whole(1, 65_536);
const CONFIDENCES: [&str; 3] = ["high", "medium", "low"];

/// Every key of a GPU file.
pub const KEYS: &[Key] = keys! {
    /// the board as people call it
    required "name": TEXT,
    /// `nvidia` or `amd`
    required "vendor": Shape::Word(|| Vendor::ALL.map(|(_, word)| word).into()),
    /// `Volta`, `Hopper`, `CDNA3`, ...
    required "architecture": TEXT,
    /// the silicon: `GV100`
    "chip": TEXT,
    /// LLVM's name of an AMD architecture: `gfx942`; AMD GPUs need it
    "gfx": Shape::Form(GFX),
    /// `8.0`, as a string; NVIDIA GPUs need it
    "compute_capability": Shape::Form(CAPABILITY),
    /// streaming multiprocessors (AMD: compute units) in use
    "sm_count": Shape::Whole(1, 10_000),
    /// clock at which the rates outside Tensor Cores are quoted, MHz
    "boost_mhz": MHZ,
    /// clock at which the Tensor Core rates are quoted, MHz, where it differs
    "tensor_mhz": MHZ,
    /// the clock depends on the laptop: rates are scaled to the clock in the profile
    "variable_clock": Shape::Flag,
    /// board power, W
    "power_w": Shape::Above(1.0, 100_000.0),
    /// `cudaDeviceProp.name`, exactly, as profiles carry it
    "device_names": TEXTS,
    /// names for `--gpu`
    "aliases": ALIASES,
    /// aliases shared with other boards that mean this one unless the profile names another
    "default_for": ALIASES,
    /// `high`, `medium` or `low`: how certain the numbers are
    "confidence": Shape::Word(|| CONFIDENCES.into()),
    /// sources of the numbers
    required "sources": TEXTS,
    /// remarks
    "notes": TEXT,
    /// dense TFLOP/s outside Tensor Cores by data type; fp32 is needed
    required "flops": Shape::Own(plain_schema, |v| by_type(v, &RATE, false)),
    /// dense TFLOP/s (int8: TOP/s) on Tensor Cores by data type, accumulating in fp32
    "tensor_flops": Shape::Own(tensor_schema, |v| by_type(v, &RATE, true)),
    /// elements a dimension must be a multiple of for Tensor Cores, by data type
    "tensor_align": Shape::Own(align_schema, |v| by_type(v, &ALIGN, true)),
    /// the DRAM
    required "memory": Shape::Table(MEMORY_KEYS, &[]),
    /// what one streaming multiprocessor holds
    "limits": Shape::Table(LIMIT_KEYS, &[]),
    /// links to the host and to other boards
    "links": Shape::Table(LINK_KEYS, &[]),
    /// what well-tuned work reaches, where it differs from the calibration of the architecture
    "reachable": Shape::Table(REACHABLE_KEYS, &[]),
};

/// TFLOP/s. Rates above the limit are in the wrong unit.
const RATE: Shape = Shape::Above(0.0, 1e6);
/// Elements.
const ALIGN: Shape = Shape::PowerOfTwo(1_024);

/// Every key of `[memory]`.
pub const MEMORY_KEYS: &[Key] = keys! {
    /// size in 2^30 bytes
    "size_gb": Shape::Above(0.0, 100_000.0),
    /// `HBM2`, `GDDR6`, ...
    "kind": TEXT,
    /// peak bandwidth in 10^9 bytes per second
    required "bandwidth_gbs": Shape::Above(0.0, 1e6),
    /// last-level cache in 2^20 bytes
    "l2_mb": Shape::Above(0.0, 100_000.0),
    /// profiles are known to carry a wrong bandwidth for this chip
    "ignore_profile_bandwidth": Shape::Flag,
};

/// Every key of `[limits]`.
pub const LIMIT_KEYS: &[Key] = keys! {
    /// shared memory, KB of 1024 bytes
    "shared_kb": KB,
    /// shared memory one block can have, KB of 1024 bytes
    "shared_per_block_kb": KB,
    /// registers of 32 bits
    "registers": Shape::Whole(1, 1 << 24),
    /// resident threads: a multiple of 32
    "threads": Shape::Whole(32, 65_536),
    /// resident blocks
    "blocks": Shape::Whole(1, 65_536),
    /// warp schedulers
    "schedulers": Shape::Whole(1, 64),
};

/// Every key of `[links]`.
pub const LINK_KEYS: &[Key] = keys! {
    /// generation of PCI Express
    "pcie_gen": Shape::Whole(1, 10),
    /// all NVLinks, both directions together, 10^9 bytes per second
    "nvlink_gbs": Shape::Above(0.0, 1e6),
};

/// Every key of `[reachable]`.
pub const REACHABLE_KEYS: &[Key] = keys! {
    /// share of the math peak that well-tuned matrix kernels reach
    "math": Shape::Above(0.0, 1.0),
    /// share of the DRAM bandwidth that well-tuned kernels reach
    "memory": Shape::Above(0.0, 1.0),
    /// share of the math peak that fused attention reaches
    "attention": Shape::Above(0.0, 1.0),
    /// share of the ideal that an aligned product of ordinary size reaches
    "aligned_gemm": Shape::Above(0.0, 1.0),
    /// share of the ideal that a large product reaches with kernels built for the architecture
    "large_gemm": Shape::Above(0.0, 1.0),
    /// share of the ideal that a convolution with aligned channels reaches
    "aligned_conv": Shape::Above(0.0, 1.0),
    /// share of 16 lanes of PCI Express, before encoding, that copies from pinned memory reach
    "pinned_copy": Shape::Above(0.0, 1.0),
    /// time of the shortest useful kernels, ns
    "kernel_ns": Shape::Above(0.0, 1e6),
    /// time between a kernel and the next of its stream that waits for it already, ns
    "gap_ns": Shape::Above(0.0, 1e6),
};

/// A compute capability: major and minor version.
pub(super) fn capability(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    let part = |digits: &str| digits.parse().ok().filter(|n| *n < 100);
    Some((part(major)?, part(minor)?))
}

/// Checks a table of values by data type. TF32 has no rate outside Tensor Cores.
fn by_type(value: &Item<'_>, shape: &Shape, tensor: bool) -> bool {
    let Some(table) = value.table() else {
        return false;
    };
    for (key, value) in table.entries() {
        match RATED.into_iter().find(|dtype| dtype.name() == key.value) {
            Some(DType::Tf32) if !tensor => {
                let title = "TF32 has no rate outside Tensor Cores";
                table.complain(key.span, title, "belongs in `[tensor_flops]`");
            }
            Some(_) => {
                check_value(shape, &value);
            }
            None => table.push(unknown_type(&table, &key)),
        }
    }
    true
}

fn unknown_type(table: &Table<'_>, key: &At<&str>) -> Complaint {
    let names = RATED.map(DType::name);
    let meant = DType::parse(key.value)
        .filter(|d| RATED.contains(d))
        .map(DType::name)
        .or_else(|| suggest::nearest(key.value, names));
    let label = match meant {
        Some(name) => format!("did you mean `{name}`?"),
        None => String::new(),
    };
    let title = format!("no rates are kept for a data type `{}`", key.value);
    let complaint = Complaint::error(table.source(), key.span.clone(), title, label);
    complaint.with_help(format!("data types: {}", names.join(", ")))
}

fn plain_schema() -> Json {
    types_schema(&RATE, false)
}

fn tensor_schema() -> Json {
    types_schema(&RATE, true)
}

fn align_schema() -> Json {
    types_schema(&ALIGN, true)
}

fn types_schema(shape: &Shape, tensor: bool) -> Json {
    let types = RATED.into_iter().filter(|d| tensor || *d != DType::Tf32);
    let names = types.map(|d| text(d.name())).collect();
    object([
        ("type", text("object")),
        ("propertyNames", object([("enum", Json::List(names))])),
        ("additionalProperties", schema::of(shape)),
    ])
}

/// The keys that identify the instruction set; one of them is required.
const GENERATION: schema::Sets = &[&["compute_capability"], &["gfx"]];

/// The JSON Schema of GPU files.
pub fn schema() -> String {
    let about = "A GPU: its peaks and limits, for `pyprof-advise --gpu FILE` and gpu_specs/.";
    schema::document("pyprof-advise GPU", about, KEYS, GENERATION)
}
