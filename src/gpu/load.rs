//! Reads GPU specs: the files of `gpu_specs/`, embedded at build time, and a user's own file, both
//! through the same checks. A file's mistakes come out together, each with a caret.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::keys::{
    CONFIDENCES, KEYS, LIMIT_KEYS, LINK_KEYS, MAX_ALIGN, MAX_TERA, MEMORY_KEYS, REACHABLE_KEYS,
};
use super::{Gpu, Vendor};
use crate::base::DType;
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::schema::{Key, Shape, names};
use crate::base::suggest;
use crate::base::toml::{self, At, Table};

/// `(file name, text)` of every file in `gpu_specs/`.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/gpu_specs.rs"));

/// Data types a rate can be given for, under the names used in files.
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

/// Multiply-adds per SM and clock beyond which a rate is a slip of units. The most of any GPU so
/// far: 256 outside Tensor Cores (fp16 on GA100 and GH100), 24,576 on them (fp4 on GB110).
const MAX_FMA: f64 = 512.0;
const MAX_TENSOR_FMA: f64 = 65_536.0;

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;
const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;

/// A GPU's file: what the model needs of it, and what people and the matching of names need.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub gpu: Gpu,
    pub chip: Option<String>,
    /// LLVM's name of an AMD architecture: `gfx942`.
    pub gfx: Option<String>,
    /// `cudaDeviceProp.name`, exactly.
    pub device_names: Vec<String>,
    /// What people type. An alias may stand in several files.
    pub aliases: Vec<String>,
    /// The shared aliases that mean this board unless the profile names another of theirs.
    pub default_for: Vec<String>,
    /// MHz at which the rates outside Tensor Cores are quoted.
    pub boost_mhz: Option<f64>,
    /// MHz at which the Tensor Core rates are quoted, where it differs.
    pub tensor_mhz: Option<f64>,
    pub power_w: Option<f64>,
    pub memory_kind: Option<String>,
    /// The bandwidth that profiles report for this chip is known to be wrong.
    pub ignore_profile_bandwidth: bool,
    /// Bytes, after opting in.
    pub shared_per_block: Option<u32>,
    pub confidence: Option<String>,
    pub notes: Option<String>,
}

/// The file of a GPU built in, with its comments: what `gpus show` prints to start from.
pub fn text_of(id: &str) -> Option<&'static str> {
    let file = BUILT_IN
        .iter()
        .find(|(file, _)| file.strip_suffix(".toml") == Some(id))?;
    Some(file.1)
}

/// The GPUs built in, sorted by id.
pub fn built_in() -> &'static [Spec] {
    static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| check_built_in().0);
    &SPECS
}

/// The GPUs built in and every complaint about their files; a test holds the latter empty.
pub fn check_built_in() -> (Vec<Spec>, Complaints) {
    let complaints = Complaints::new();
    let mut specs: Vec<Spec> = BUILT_IN
        .iter()
        .filter_map(|(name, text)| {
            let source = Source::new(format!("gpu_specs/{name}"), *text);
            parse(stem(name), &source, &complaints)
        })
        .collect();
    specs.sort_by(|a, b| a.gpu.id.cmp(&b.gpu.id));
    (specs, complaints)
}

/// Loads a user's file.
///
/// # Errors
/// Every complaint about the file, when one of them makes it unusable.
pub fn load(path: &Path) -> Result<Spec, Complaints> {
    let source = Source::read(path)?;
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("gpu");
    parse_source(stem(name), &source)
}

/// Loads a spec from text; `id` is the file's stem.
///
/// # Errors
/// Every complaint about the text, when one of them makes it unusable.
pub fn parse_source(id: &str, source: &Arc<Source>) -> Result<Spec, Complaints> {
    let complaints = Complaints::new();
    parse(id, source, &complaints).ok_or(complaints)
}

fn stem(name: &str) -> &str {
    name.strip_suffix(".toml").unwrap_or(name)
}

/// The spec, or `None` after at least one error.
fn parse(id: &str, source: &Arc<Source>, complaints: &Complaints) -> Option<Spec> {
    // One collector per file, so that another file's errors do not count against this one.
    let own = Complaints::new();
    let spec = {
        let document = toml::parse(source, &own);
        read(id, &document.root())
    };
    let failed = own.has_errors();
    for complaint in own.sorted() {
        complaints.push(complaint);
    }
    spec.filter(|_| !failed)
}

/// Reads every key before deciding, so that all complaints come out. `None` when a key is missing
/// that the model cannot do without.
fn read(id: &str, root: &Table) -> Option<Spec> {
    let name = root.req_str("name");
    let vendor = vendor(root);
    let architecture = root.req_str("architecture").map_or("", |a| a.value);
    let (compute_capability, gfx) = generation(root, vendor);
    let sm_count = count(root, KEYS, "sm_count");
    let boost_mhz = number(root, KEYS, "boost_mhz");
    let tensor_mhz = number(root, KEYS, "tensor_mhz");
    let flops_table = root.req_table("flops");
    let flops = flops_table.as_ref().map(|t| rates(t, false));
    if let (Some(table), Some(rates)) = (&flops_table, &flops)
        && !rates.contains_key(&DType::Fp32)
        && !table.has("fp32")
    {
        table.complain(table.span(), "`flops.fp32` is missing", "in this table");
    }
    let tensor_flops = root.get_table("tensor_flops").map(|t| rates(&t, true));
    let plausible = Plausible {
        sm_count,
        boost_mhz,
        tensor_mhz: tensor_mhz.or(boost_mhz),
    };
    plausible.check(root, "flops", flops.as_ref(), MAX_FMA);
    plausible.check(root, "tensor_flops", tensor_flops.as_ref(), MAX_TENSOR_FMA);
    let tensor_align = alignments(root, tensor_flops.as_ref());
    let memory = Memory::read(root);
    let limits = Limits::read(root);
    let links = links(root);
    let (reachable_math, reachable_memory) = reachable(root, vendor);
    let aliases = aliases(root);
    let default_for = default_for(root, &aliases);
    let confidence = confidence(root);
    let sources = texts(root.req_str_list("sources"));
    let spec = Spec {
        chip: root.get_str("chip").map(owned),
        power_w: number(root, KEYS, "power_w"),
        device_names: texts(root.get_str_list("device_names")),
        notes: root.get_str("notes").map(owned),
        gpu: Gpu {
            id: id.to_owned(),
            name: name.map(owned).unwrap_or_default(),
            vendor: vendor.unwrap_or(Vendor::Nvidia),
            architecture: match &gfx {
                Some(gfx) => format!("{architecture} ({gfx})"),
                None => architecture.to_owned(),
            },
            compute_capability,
            sm_count: sm_count.unwrap_or(0),
            flops: flops.unwrap_or_default(),
            tensor_flops: tensor_flops.unwrap_or_default(),
            tensor_align,
            bandwidth: memory.bandwidth.unwrap_or(0.0),
            memory_bytes: memory.bytes,
            l2_bytes: memory.l2_bytes,
            shared_per_sm: limits.shared,
            registers_per_sm: limits.registers,
            max_threads_per_sm: limits.threads,
            max_blocks_per_sm: limits.blocks,
            warp_schedulers: limits.schedulers,
            pcie_gen: links.0,
            nvlink: links.1,
            reachable_math,
            reachable_memory,
            sources,
        },
        gfx,
        aliases,
        default_for,
        boost_mhz,
        tensor_mhz,
        memory_kind: memory.kind,
        ignore_profile_bandwidth: memory.ignore_profile_bandwidth,
        shared_per_block: limits.shared_per_block,
        confidence,
    };
    root.finish(&names(KEYS));
    Some(spec)
}

fn owned(text: At<&str>) -> String {
    text.value.to_owned()
}

fn texts(list: Option<Vec<At<&str>>>) -> Vec<String> {
    list.unwrap_or_default().into_iter().map(owned).collect()
}

fn vendor(root: &Table) -> Option<Vendor> {
    let text = root.req_str("vendor")?;
    match text.value {
        "nvidia" => Some(Vendor::Nvidia),
        "amd" => Some(Vendor::Amd),
        other => {
            let title = format!("unknown vendor `{other}`");
            root.complain(text.span, title, "either `nvidia` or `amd`");
            None
        }
    }
}

/// `compute_capability` of NVIDIA GPUs, `gfx` of AMD ones: one is required, the other refused.
fn generation(root: &Table, vendor: Option<Vendor>) -> (Option<(u32, u32)>, Option<String>) {
    let refuse = |key: &str, why: &str| {
        if let Some(value) = root.get(key) {
            value.complain(format!("`{key}` does not apply"), why);
        }
    };
    match vendor {
        Some(Vendor::Nvidia) => {
            refuse("gfx", "AMD GPUs only");
            (
                root.req_str("compute_capability")
                    .and_then(|c| capability(root, c)),
                None,
            )
        }
        Some(Vendor::Amd) => {
            refuse("compute_capability", "NVIDIA GPUs only");
            (None, root.req_str("gfx").and_then(|g| gfx_name(root, g)))
        }
        None => (None, None),
    }
}

fn capability(root: &Table, text: At<&str>) -> Option<(u32, u32)> {
    let parsed = text.value.split_once('.').and_then(|(major, minor)| {
        let part = |digits: &str| digits.parse().ok().filter(|n| *n < 100);
        Some((part(major)?, part(minor)?))
    });
    if parsed.is_none() {
        let title = format!("`{}` is not a compute capability", text.value);
        root.complain(text.span, title, "major.minor, for example \"8.0\"");
    }
    parsed
}

fn gfx_name(root: &Table, text: At<&str>) -> Option<String> {
    let digits = text.value.strip_prefix("gfx").unwrap_or_default();
    if digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Some(owned(text));
    }
    let title = format!("`{}` is not a gfx name", text.value);
    root.complain(text.span, title, "for example \"gfx942\"");
    None
}

/// Rates in TFLOP/s by data type, as FLOP/s.
fn rates(table: &Table, tensor: bool) -> BTreeMap<DType, f64> {
    let mut rates = BTreeMap::new();
    for (key, value) in table.entries() {
        let Some(dtype) = rated(table, &key) else {
            continue;
        };
        let Some(rate) = value.float() else { continue };
        if dtype == DType::Tf32 && !tensor {
            let title = "TF32 has no rate outside Tensor Cores";
            table.complain(key.span, title, "belongs in `[tensor_flops]`");
        } else if in_range(table, key.value, &rate, &(0.0..MAX_TERA)) {
            rates.insert(dtype, rate.value * TERA);
        }
    }
    rates
}

/// The data type of a key, or a complaint.
fn rated(table: &Table, key: &At<&str>) -> Option<DType> {
    let found = RATED.into_iter().find(|d| d.name() == key.value);
    if found.is_none() {
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
        table.push(complaint.with_help(format!("data types: {}", names.join(", "))));
    }
    found
}

/// What rates are held against: SMs x multiply-adds per clock x 2 x clock.
struct Plausible {
    sm_count: Option<u32>,
    boost_mhz: Option<f64>,
    tensor_mhz: Option<f64>,
}

impl Plausible {
    fn check(&self, root: &Table, key: &str, rates: Option<&BTreeMap<DType, f64>>, limit: f64) {
        let mhz = match key {
            "flops" => self.boost_mhz,
            _ => self.tensor_mhz,
        };
        let (Some(sms), Some(mhz), Some(rates)) = (self.sm_count, mhz, rates) else {
            return;
        };
        let Some(table) = root.get_table(key) else {
            return;
        };
        for (dtype, rate) in rates {
            let fma = rate / (f64::from(sms) * 2.0 * mhz * 1e6);
            if let Some(value) = table.get(dtype.name())
                && fma > limit
            {
                let title = format!("`{key}.{dtype}` is more than this GPU can do");
                let label = format!("{fma:.0} multiply-adds per SM and clock; at most {limit:.0}");
                let help = "rates are in TFLOP/s, dense, for all SMs at `boost_mhz`";
                let complaint = Complaint::error(root.source(), value.span(), title, label);
                root.push(complaint.with_help(help));
            }
        }
    }
}

fn alignments(root: &Table, rates: Option<&BTreeMap<DType, f64>>) -> BTreeMap<DType, u32> {
    let mut found = BTreeMap::new();
    let Some(table) = root.get_table("tensor_align") else {
        return found;
    };
    for (key, value) in table.entries() {
        let Some(dtype) = rated(&table, &key) else {
            continue;
        };
        let Some(elements) = value.int() else {
            continue;
        };
        let fits = u32::try_from(elements.value).ok();
        match fits.filter(|n| n.is_power_of_two() && *n <= MAX_ALIGN) {
            _ if !rates.is_some_and(|r| r.contains_key(&dtype)) => {
                let title = format!("`tensor_align.{dtype}` without a rate");
                table.complain(key.span, title, "`tensor_flops` has no such data type");
            }
            Some(n) => {
                found.insert(dtype, n);
            }
            None => {
                let title = format!("`{}` cannot be {}", value.path(), elements.value);
                value.complain(title, format!("a power of two up to {MAX_ALIGN} elements"));
            }
        }
    }
    found
}

struct Memory {
    bytes: Option<f64>,
    kind: Option<String>,
    bandwidth: Option<f64>,
    l2_bytes: Option<f64>,
    ignore_profile_bandwidth: bool,
}

impl Memory {
    fn read(root: &Table) -> Memory {
        let table = root.req_table("memory");
        let t = table.as_ref();
        let of = |key| t.and_then(|t| number(t, MEMORY_KEYS, key));
        let memory = Memory {
            bytes: of("size_gb").map(|n| n * GIB),
            kind: t.and_then(|t| t.get_str("kind")).map(owned),
            bandwidth: of("bandwidth_gbs").map(|n| n * GIGA),
            l2_bytes: of("l2_mb").map(|n| n * MIB),
            ignore_profile_bandwidth: t
                .and_then(|t| t.get_bool("ignore_profile_bandwidth"))
                .is_some_and(|b| b.value),
        };
        if let Some(t) = t {
            if !t.has("bandwidth_gbs") {
                t.complain(
                    t.span(),
                    "`memory.bandwidth_gbs` is missing",
                    "in this table",
                );
            }
            t.finish(&names(MEMORY_KEYS));
        }
        memory
    }
}

#[derive(Default)]
struct Limits {
    shared: Option<u32>,
    shared_per_block: Option<u32>,
    registers: Option<u32>,
    threads: Option<u32>,
    blocks: Option<u32>,
    schedulers: Option<u32>,
}

impl Limits {
    fn read(root: &Table) -> Limits {
        let Some(t) = root.get_table("limits") else {
            return Limits::default();
        };
        let of = |key| count(&t, LIMIT_KEYS, key);
        let kib = |key| of(key).map(|kb| kb * 1024);
        let limits = Limits {
            shared: kib("shared_kb"),
            shared_per_block: kib("shared_per_block_kb"),
            registers: of("registers"),
            threads: of("threads"),
            blocks: of("blocks"),
            schedulers: of("schedulers"),
        };
        let odd = limits.threads.filter(|n| !n.is_multiple_of(32));
        if let (Some(n), Some(value)) = (odd, t.get("threads")) {
            let title = format!("`limits.threads` cannot be {n}");
            value.complain(title, "threads come in warps of 32");
        }
        if limits.shared.is_some()
            && limits.shared < limits.shared_per_block
            && let Some(value) = t.get("shared_per_block_kb")
        {
            value.complain("a block cannot have more shared memory than its SM", "");
        }
        t.finish(&names(LIMIT_KEYS));
        limits
    }
}

fn links(root: &Table) -> (Option<u32>, Option<f64>) {
    let Some(t) = root.get_table("links") else {
        return (None, None);
    };
    let pcie = count(&t, LINK_KEYS, "pcie_gen");
    let nvlink = number(&t, LINK_KEYS, "nvlink_gbs").map(|n| n * GIGA);
    t.finish(&names(LINK_KEYS));
    (pcie, nvlink)
}

/// Shares of the peaks that well-tuned kernels reach. Without an entry: 0.80 of the math peak on
/// NVIDIA and 0.60 on AMD (the best matrix multiplications found by shape sweeps reach 73 to 87 %
/// and 51 to 68 %: stas00/ml-engineering, accelerator chapter), and 0.85 of the DRAM bandwidth.
fn reachable(root: &Table, vendor: Option<Vendor>) -> (f64, f64) {
    let usual = match vendor {
        Some(Vendor::Amd) => 0.60,
        _ => 0.80,
    };
    let Some(t) = root.get_table("reachable") else {
        return (usual, 0.85);
    };
    let math = number(&t, REACHABLE_KEYS, "math").unwrap_or(usual);
    let memory = number(&t, REACHABLE_KEYS, "memory").unwrap_or(0.85);
    t.finish(&names(REACHABLE_KEYS));
    (math, memory)
}

fn aliases(root: &Table) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for alias in root.get_str_list("aliases").unwrap_or_default() {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if alias.value.is_empty() || !alias.value.bytes().all(plain) {
            let title = format!("`{}` cannot be an alias", alias.value);
            root.complain(alias.span, title, "lower-case letters, digits and `-`");
        } else if kept.iter().any(|k| k == alias.value) {
            root.complain(
                alias.span,
                format!("alias `{}` stands twice", alias.value),
                "",
            );
        } else {
            kept.push(owned(alias));
        }
    }
    kept
}

fn default_for(root: &Table, aliases: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    for alias in root.get_str_list("default_for").unwrap_or_default() {
        if aliases.iter().any(|a| a == alias.value) {
            kept.push(owned(alias));
        } else {
            let title = format!("`{}` is not an alias of this GPU", alias.value);
            root.complain(alias.span, title, "must stand in `aliases` too");
        }
    }
    kept
}

fn confidence(root: &Table) -> Option<String> {
    let text = root.get_str("confidence")?;
    if CONFIDENCES.contains(&text.value) {
        return Some(owned(text));
    }
    let title = format!("unknown confidence `{}`", text.value);
    root.complain(text.span, title, CONFIDENCES.join(" or "));
    None
}

/// A number in the range its key allows.
fn number(table: &Table, keys: &[Key], key: &str) -> Option<f64> {
    let value = table.get_float(key)?;
    let known = keys.iter().find(|k| k.name == key)?;
    let Shape::Above(from, to) = known.shape else {
        return Some(value.value);
    };
    in_range(table, key, &value, &(from..to)).then_some(value.value)
}

/// A number above the range's start and not above its end.
fn in_range(table: &Table, key: &str, value: &At<f64>, range: &Range<f64>) -> bool {
    let fits = value.value > range.start && value.value <= range.end;
    if !fits {
        let title = format!("`{}` cannot be {:?}", table.path_of(key), value.value);
        let label = format!("must be above {} and at most {}", range.start, range.end);
        table.complain(value.span.clone(), title, label);
    }
    fits
}

/// A whole number in the range its key allows.
fn count(table: &Table, keys: &[Key], key: &str) -> Option<u32> {
    let value = table.get_int(key)?;
    let known = keys.iter().find(|k| k.name == key)?;
    let fits = |from: i64, to: i64| (from..=to).contains(&value.value);
    match known.shape {
        Shape::Whole(from, to) if !fits(from, to) => {
            let title = format!("`{}` cannot be {}", table.path_of(key), value.value);
            table.complain(value.span, title, format!("must be {from} to {to}"));
            None
        }
        _ => u32::try_from(value.value).ok(),
    }
}
