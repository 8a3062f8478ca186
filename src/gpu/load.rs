//! Reads GPU specs: the files of `gpu_specs/`, embedded at build time, and a user's own file, both
//! with the same checks. All mistakes of a file are reported together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rayon::prelude::*;

use super::calibration::{self, Reachable};
use super::keys::{KEYS, RATED, capability};
use super::{Gpu, Vendor};
use crate::base::DType;
use crate::base::diag::{Complaint, Complaints, Source};
use crate::base::toml::{self, Table};

/// `(file name, text)` of every file in `gpu_specs/`.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/gpu_specs.rs"));

/// Multiply-adds per SM and clock above which a rate must be in the wrong unit. The current
/// maxima: 256 outside Tensor Cores (fp16 on GA100 and GH100), 24,576 on them (fp4 on GB110).
const MAX_FMA: f64 = 512.0;
const MAX_TENSOR_FMA: f64 = 65_536.0;

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;
const TERA: f64 = 1e12;
const GIGA: f64 = 1e9;

/// The contents of a GPU file: the values for the cost model, and those for display and for matching
/// names.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Peaks and limits.
    pub gpu: Gpu,
    /// Name of the silicon: `GV100`.
    pub chip: Option<String>,
    /// LLVM name of an AMD architecture: `gfx942`.
    pub gfx: Option<String>,
    /// Values of `cudaDeviceProp.name`, exactly.
    pub device_names: Vec<String>,
    /// Names for `--gpu`. Several files may contain the same alias.
    pub aliases: Vec<String>,
    /// Shared aliases that select this board unless the profile names another one.
    pub default_for: Vec<String>,
    /// MHz at which the rates outside Tensor Cores are quoted.
    pub boost_mhz: Option<f64>,
    /// MHz at which the Tensor Core rates are quoted, where it differs.
    pub tensor_mhz: Option<f64>,
    /// Whether the clock depends on the computer that the board is built into, as with laptops: rates
    /// are scaled to the clock of the profile, if it has one.
    pub variable_clock: bool,
    /// Board power, W.
    pub power_w: Option<f64>,
    /// Type of the DRAM: `HBM2`.
    pub memory_kind: Option<String>,
    /// Whether profiles report a wrong bandwidth for this chip.
    pub ignore_profile_bandwidth: bool,
    /// Maximum shared memory per block after opt-in, bytes.
    pub shared_per_block: Option<u32>,
    /// How reliable the numbers are: `high`, `medium` or `low`.
    pub confidence: Option<String>,
    /// Remarks on the numbers.
    pub notes: Option<String>,
}

/// The text of a built-in GPU file, with its comments, as a template for a user's own file.
pub fn text_of(id: &str) -> Option<&'static str> {
    let file = BUILT_IN
        .iter()
        .find(|(file, _)| file.strip_suffix(".toml") == Some(id))?;
    Some(file.1)
}

/// The built-in GPUs, sorted by id.
pub fn built_in() -> &'static [Spec] {
    static SPECS: LazyLock<Vec<Spec>> = LazyLock::new(|| check_built_in().0);
    &SPECS
}

/// The built-in GPUs and all messages about their files; a test checks that there are none.
pub fn check_built_in() -> (Vec<Spec>, Complaints) {
    let complaints = Complaints::new();
    let mut specs: Vec<Spec> = BUILT_IN
        .par_iter()
        .filter_map(|(name, text)| {
            let source = Source::embedded(format!("gpu_specs/{name}"), text);
            parse(stem(name), &source, &complaints)
        })
        .collect();
    specs.sort_by(|a, b| a.gpu.id.cmp(&b.gpu.id));
    (specs, complaints)
}

/// Loads a user's file.
///
/// # Errors
/// All messages about the file, if any of them is an error.
pub fn load(path: &Path) -> Result<Spec, Complaints> {
    let source = Source::read(path)?;
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("gpu");
    parse_source(stem(name), &source)
}

/// Loads a spec from text; `id` is the file's stem.
///
/// # Errors
/// All messages about the text, if any of them is an error.
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
        let root = document.root();
        root.check(KEYS, &[]);
        read(id, &root)
    };
    let failed = !own.is_empty();
    for complaint in own.sorted() {
        complaints.push(complaint);
    }
    spec.filter(|_| !failed)
}

/// The spec in a checked table. Missing required keys have already been reported.
fn read(id: &str, root: &Table) -> Option<Spec> {
    let vendor = root.get_word("vendor", &Vendor::ALL);
    let (compute_capability, gfx) = generation(root, vendor);
    let boost_mhz = root.get_number("boost_mhz");
    let tensor_mhz = root.get_number("tensor_mhz");
    let flops = rates(root, "flops");
    if let Some(table) = root.get_table("flops")
        && !table.has("fp32")
    {
        table.missing("fp32");
    }
    let tensor_flops = rates(root, "tensor_flops");
    let sm_count = root.get_whole("sm_count");
    plausible(root, "flops", &flops, sm_count, boost_mhz, MAX_FMA);
    let clock = tensor_mhz.or(boost_mhz);
    plausible(
        root,
        "tensor_flops",
        &tensor_flops,
        sm_count,
        clock,
        MAX_TENSOR_FMA,
    );
    let tensor_align = alignments(root, &tensor_flops);
    let aliases = aliases(root);
    let default_for = default_for(root, &aliases);
    let limits = root.get_table("limits");
    let limits = limits.as_ref();
    if let Some(limits) = limits {
        check_limits(limits);
    }
    let limit = |key: &str| limits.and_then(|t| t.get_whole::<u32>(key));
    let kib = |key: &str| limit(key).map(|kb| kb * 1024);
    let memory = root.get_table("memory")?;
    let links = root.get_table("links");
    let links = links.as_ref();
    let vendor = vendor?;
    let architecture = root.get_text("architecture")?;
    let reachable = reachable(root, id, &architecture, vendor)?;
    Some(Spec {
        chip: root.get_text("chip"),
        variable_clock: root.get_flag("variable_clock"),
        power_w: root.get_number("power_w"),
        device_names: root.get_texts("device_names"),
        notes: root.get_text("notes"),
        gpu: Gpu {
            id: id.to_owned(),
            name: root.get_text("name")?,
            vendor,
            architecture: match &gfx {
                Some(gfx) => format!("{architecture} ({gfx})"),
                None => architecture,
            },
            compute_capability,
            sm_count: sm_count.unwrap_or(0),
            flops,
            tensor_flops,
            tensor_align,
            bandwidth: memory.get_number("bandwidth_gbs")? * GIGA,
            memory_bytes: memory.get_number("size_gb").map(|n| n * GIB),
            l2_bytes: memory.get_number("l2_mb").map(|n| n * MIB),
            shared_per_sm: kib("shared_kb"),
            registers_per_sm: limit("registers"),
            max_threads_per_sm: limit("threads"),
            max_blocks_per_sm: limit("blocks"),
            warp_schedulers: limit("schedulers"),
            pcie_gen: links.and_then(|t| t.get_whole("pcie_gen")),
            nvlink: links
                .and_then(|t| t.get_number("nvlink_gbs"))
                .map(|n| n * GIGA),
            reachable,
            sources: root.get_texts("sources"),
        },
        gfx,
        aliases,
        default_for,
        boost_mhz,
        tensor_mhz,
        memory_kind: memory.get_text("kind"),
        ignore_profile_bandwidth: memory.get_flag("ignore_profile_bandwidth"),
        shared_per_block: kib("shared_per_block_kb"),
        confidence: root.get_text("confidence"),
    })
}

/// The `compute_capability` of NVIDIA GPUs or the `gfx` of AMD GPUs: one is required, the other is an
/// error.
fn generation(root: &Table, vendor: Option<Vendor>) -> (Option<(u32, u32)>, Option<String>) {
    let Some(vendor) = vendor else {
        return (None, None);
    };
    let (required, other, why) = match vendor {
        Vendor::Nvidia => ("compute_capability", "gfx", "AMD GPUs only"),
        Vendor::Amd => ("gfx", "compute_capability", "NVIDIA GPUs only"),
    };
    if let Some(value) = root.get(other) {
        value.complain(format!("`{other}` does not apply"), why);
    }
    if !root.has(required) {
        root.missing(required);
    }
    match vendor {
        Vendor::Nvidia => (
            root.get_text(required).and_then(|text| capability(&text)),
            None,
        ),
        Vendor::Amd => (None, root.get_text(required)),
    }
}

/// Rates in TFLOP/s by data type, as FLOP/s.
fn rates(root: &Table, key: &str) -> BTreeMap<DType, f64> {
    by_type(root, key, |table, name| {
        Some(table.get_number(name)? * TERA)
    })
}

/// The values of a table by data type.
fn by_type<T>(
    root: &Table,
    key: &str,
    of: impl Fn(&Table, &str) -> Option<T>,
) -> BTreeMap<DType, T> {
    let Some(table) = root.get_table(key) else {
        return BTreeMap::new();
    };
    let values = RATED
        .into_iter()
        .map(|dtype| Some((dtype, of(&table, dtype.name())?)));
    values.flatten().collect()
}

/// Reports rates beyond SMs x multiply-adds per clock x 2 x clock.
fn plausible(
    root: &Table,
    key: &str,
    rates: &BTreeMap<DType, f64>,
    sm_count: Option<u32>,
    mhz: Option<f64>,
    limit: f64,
) {
    let (Some(table), Some(sms), Some(mhz)) = (root.get_table(key), sm_count, mhz) else {
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

fn alignments(root: &Table, rates: &BTreeMap<DType, f64>) -> BTreeMap<DType, u32> {
    #[allow(clippy::redundant_closure_for_method_calls)] // The method is not general enough.
    let found = by_type(root, "tensor_align", |table, name| table.get_whole(name));
    let keys = root
        .get_table("tensor_align")
        .map_or_else(Vec::new, |table| table.keys());
    for key in keys {
        let dtype = RATED.into_iter().find(|dtype| dtype.name() == key.value);
        if let Some(dtype) = dtype.filter(|dtype| !rates.contains_key(dtype)) {
            let title = format!("`tensor_align.{dtype}` without a rate");
            root.complain(key.span, title, "`tensor_flops` has no such data type");
        }
    }
    found
}

fn check_limits(limits: &Table) {
    let threads = limits.get_whole::<u32>("threads");
    if let (Some(n), Some(value)) = (threads, limits.get("threads"))
        && !n.is_multiple_of(32)
    {
        value.complain(
            format!("`limits.threads` cannot be {n}"),
            "threads come in warps of 32",
        );
    }
    let shared = limits.get_whole::<u32>("shared_kb");
    if shared.is_some()
        && shared < limits.get_whole("shared_per_block_kb")
        && let Some(value) = limits.get("shared_per_block_kb")
    {
        value.complain("a block cannot have more shared memory than its SM", "");
    }
}

/// What well-tuned work reaches: the calibration of the architecture, below what the file states.
fn reachable(root: &Table, id: &str, architecture: &str, vendor: Vendor) -> Option<Reachable> {
    let calibrated = calibration::reachable(id, architecture, vendor)?;
    let Some(own) = root.get_table("reachable") else {
        return Some(calibrated);
    };
    Reachable::of(|name| own.get_number(name).or_else(|| calibrated.get(name)))
}

fn aliases(root: &Table) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for alias in root.get_str_list("aliases") {
        if kept.iter().any(|k| k == alias.value) {
            root.complain(
                alias.span,
                format!("alias `{}` stands twice", alias.value),
                "",
            );
        } else {
            kept.push(alias.value.to_owned());
        }
    }
    kept
}

fn default_for(root: &Table, aliases: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    for alias in root.get_str_list("default_for") {
        if aliases.iter().any(|a| a == alias.value) {
            kept.push(alias.value.to_owned());
        } else {
            let title = format!("`{}` is not an alias of this GPU", alias.value);
            root.complain(alias.span, title, "must stand in `aliases` too");
        }
    }
    kept
}
