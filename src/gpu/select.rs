//! Selects the GPU whose peaks and limits are used for a profile.

use std::path::Path;

use super::candidates;
use super::family;
use super::load::{self, Spec, built_in};
use super::names::{self, DeviceName, Mig};
use super::{Choice, Gpu, SelectedBy, Vendor};
use crate::base::diag::{Complaints, visible};
use crate::base::statistics::median;
use crate::base::{text, units};
use crate::profile::{Device, Profile};

/// The relative difference between profile and table above which the report mentions it.
const NOTABLE: f64 = 0.03;
/// Maximum number of characters of a device name in messages.
const MAX_NAME: usize = 60;

/// Why no GPU could be selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// `--gpu` named something that is neither in the table nor a file.
    #[error(
        "no such GPU `{}`{} `pyprof-advise gpus list` lists all, and a file ending in .toml \
         describes one of your own",
        shown(asked),
        suggestion(near)
    )]
    Unknown {
        /// The value of `--gpu`.
        asked: String,
        /// Similar names, nearest first.
        near: Vec<&'static str>,
    },
    /// `--gpu` named a file with mistakes.
    #[error("{}\n{}", .0.summary(), .0)]
    File(Complaints),
}

fn suggestion(near: &[&str]) -> String {
    let quoted: Vec<String> = near.iter().map(|n| format!("`{n}`")).collect();
    match quoted.is_empty() {
        true => ".".into(),
        false => format!("; did you mean {}?", text::choice(&quoted)),
    }
}

/// The GPU for a profile: the one selected by `--gpu NAME|FILE`, with all its values; otherwise the one
/// that the profile names, with rates from the table and other values from the profile if it has them;
/// otherwise one derived from device attributes. `None` if the profile does not have enough of them.
///
/// # Errors
/// When `asked` is no known GPU and no readable file.
pub fn choose(asked: Option<&str>, profile: &Profile) -> Result<Option<Choice>, SelectError> {
    let device = main_device(profile);
    let Some(asked) = asked else {
        return Ok(device.and_then(|device| {
            let mut choice = of_device(device, profile)?;
            choice.remarks.extend(other_devices(device, profile));
            Some(choice)
        }));
    };
    let mut remarks = Vec::new();
    let spec = request(asked, device, &mut remarks)?;
    let mut how = SelectedBy::Asked;
    let mut gpu = spec.gpu.clone();
    if let Some(device) = device {
        if !same_board(&spec, device) {
            how = SelectedBy::WhatIf;
            remarks.insert(0, what_if(&spec.gpu, device));
        } else if let Some((named, mig)) = names::of_device(device)
            && *named == spec
        {
            // Naming the board that the profile names changes nothing.
            gpu = with_profile(named, mig, device, &mut remarks);
        }
    }
    remarks.extend(doubt(&spec, device));
    Ok(Some(Choice { gpu, how, remarks }))
}

/// The GPUs built in, sorted by id.
pub fn list() -> &'static [Spec] {
    built_in()
}

/// One GPU by name, alias (its default board) or file, as `--gpu` takes it.
///
/// # Errors
/// When `asked` is no known GPU and no readable file.
pub fn find(asked: &str) -> Result<Spec, SelectError> {
    request(asked, None, &mut Vec::new())
}

/// The device with the most kernel time; without kernels, the first that is a GPU.
fn main_device(profile: &Profile) -> Option<&Device> {
    let mut time = vec![0_i64; profile.devices.len()];
    for kernel in &profile.kernels {
        if let Some(sum) = time.get_mut(kernel.device.idx()) {
            *sum = sum.saturating_add(kernel.span.ns());
        }
    }
    let is_gpu = |d: &Device| d.sm_count != Some(0);
    let candidates = profile.devices.iter().zip(time).filter(|(d, _)| is_gpu(d));
    // `max_by_key` returns the last of equal elements; the first is wanted.
    candidates
        .rev()
        .max_by_key(|(_, time)| *time)
        .map(|(d, _)| d)
}

/// A sentence for the report if kernels also ran on boards of another model.
fn other_devices(analyzed: &Device, profile: &Profile) -> Option<String> {
    let ran = |index: usize| profile.kernels.iter().any(|k| k.device.idx() == index);
    let mut others: Vec<&str> = Vec::new();
    for (index, device) in profile.devices.iter().enumerate() {
        if let Some(name) = device.name.as_deref()
            && !name.is_empty()
            && device.name != analyzed.name
            && !others.contains(&name)
            && ran(index)
        {
            others.push(name);
        }
    }
    let first = others.first()?;
    let more = match others.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!(
        "Kernels also ran on {}{more}; all are compared with the GPU that has the most kernel time, {}.",
        shown(first),
        device_name(analyzed),
    ))
}

/// The GPU selected by `--gpu`. A known name takes precedence over a file of that name in the current
/// folder.
fn request(
    asked: &str,
    device: Option<&Device>,
    remarks: &mut Vec<String>,
) -> Result<Spec, SelectError> {
    let path = Path::new(asked);
    let is_toml = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("toml"));
    let boards = if is_toml {
        Vec::new()
    } else {
        names::asked(asked)
    };
    match boards.as_slice() {
        [one] => Ok((*one).clone()),
        [] if is_toml || path.is_file() => load::load(path).map_err(SelectError::File),
        [] => Err(SelectError::Unknown {
            asked: asked.to_owned(),
            near: names::near(asked),
        }),
        [first, ..] => Ok(pick(asked, first, &boards, device, remarks)),
    }
}

/// Of the boards that share an alias, the one that the profile names, otherwise the default.
fn pick(
    alias: &str,
    first: &Spec,
    boards: &[&Spec],
    device: Option<&Device>,
    remarks: &mut Vec<String>,
) -> Spec {
    let named = device
        .and_then(names::of_device)
        .and_then(|(spec, _)| boards.iter().find(|b| b.gpu.id == spec.gpu.id));
    let (spec, why) = match named {
        Some(spec) => (*spec, "the one the profile names"),
        None => (
            names::default_of(alias, boards).unwrap_or(first),
            "the usual one",
        ),
    };
    let others: Vec<&str> = boards
        .iter()
        .filter(|b| b.gpu.id != spec.gpu.id)
        .map(|b| b.gpu.id.as_str())
        .collect();
    remarks.push(format!(
        "`{}` covers several boards; {} was taken, {why}. The others: {}.",
        shown(alias),
        spec.gpu.name,
        others.join(", "),
    ));
    spec.clone()
}

/// Whether the profile may have been recorded on this board.
fn same_board(spec: &Spec, device: &Device) -> bool {
    let Some(name) = device.name.as_deref().filter(|n| is_telling(n)) else {
        return names::fits(spec, device);
    };
    let board = names::normalize(DeviceName::new(name).board);
    if spec
        .device_names
        .iter()
        .any(|n| names::normalize(n) == board)
    {
        return true;
    }
    match names::of_device(device) {
        Some((named, _)) => named.gpu.id == spec.gpu.id,
        // A board that is not in the table, compared with a spec file without device names.
        None => spec.device_names.is_empty() && names::fits(spec, device),
    }
}

/// Whether a device name identifies a board.
fn is_telling(name: &str) -> bool {
    let name = names::normalize(name);
    !matches!(name.as_str(), "" | "radeon graphics" | "graphics device")
}

fn what_if(gpu: &Gpu, device: &Device) -> String {
    format!(
        "What if: the profile was taken on {}, and is compared with the {} that `--gpu` names; \
         measured times stay those of the profile's GPU.",
        device_name(device),
        gpu.name,
    )
}

/// A sentence for the report if the published figures are unreliable.
fn doubt(spec: &Spec, device: Option<&Device>) -> Option<String> {
    if spec.variable_clock {
        let stated = device.is_some_and(|d| clock(d).is_some());
        return spec.boost_mhz.filter(|_| !stated).map(|mhz| {
            format!(
                "The clock of the {} depends on the laptop, and the profile does not state it; rates \
                 are those at {mhz:.0} MHz.",
                spec.gpu.name
            )
        });
    }
    (spec.confidence.as_deref() == Some("low")).then(|| {
        format!(
            "The published figures for the {} are incomplete or contradict each other.",
            spec.gpu.name
        )
    })
}

/// The GPU of a profile, without `--gpu`.
fn of_device(device: &Device, profile: &Profile) -> Option<Choice> {
    if let Some((spec, mig)) = names::of_device(device) {
        let mut remarks = Vec::new();
        let gpu = with_profile(spec, mig, device, &mut remarks);
        remarks.extend(doubt(spec, Some(device)));
        return Some(Choice {
            gpu,
            how: SelectedBy::Named,
            remarks,
        });
    }
    if is_amd(device, profile) {
        return of_attributes(device, Vendor::Amd);
    }
    // Only data-center chips: laptops and cut-down boards share the attributes of others.
    let data_center = device
        .compute_capability
        .is_some_and(family::is_data_center);
    let name = device.name.as_deref().unwrap_or_default();
    if (data_center || !is_telling(name))
        && let Some(choice) = of_attributes(device, Vendor::Nvidia)
    {
        return Some(choice);
    }
    derived(device)
}

/// The board of the table with the attributes of the device; of several, a GPU with their lowest rates.
fn of_attributes(device: &Device, vendor: Vendor) -> Option<Choice> {
    let boards = names::by_attributes(device, vendor);
    let gpu = candidates::slowest(&boards)?;
    let told = match device.name.as_deref().filter(|n| is_telling(n)) {
        Some(name) => format!("{} is not in the table of GPUs", shown(name)),
        None => "The profile does not name its GPU".to_owned(),
    };
    let units = match vendor {
        Vendor::Nvidia => "compute capability, SMs",
        Vendor::Amd => "compute units",
    };
    let lowest = if candidates::same_peaks(&boards) {
        ""
    } else {
        " Their lowest rates are used; `--gpu` names the right one."
    };
    let mut remarks = vec![format!(
        "{told}; {units} and memory are those of the {}.{lowest}",
        candidates::names(&boards),
    )];
    let gpu = match boards.as_slice() {
        [one] => with_profile(one, None, device, &mut remarks),
        _ => {
            let mut gpu = gpu;
            let usable = |b: &f64| b.is_finite() && *b > 0.0;
            gpu.bandwidth = device.bandwidth.filter(usable).unwrap_or(gpu.bandwidth);
            take_limits(&mut gpu, device);
            gpu
        }
    };
    Some(Choice {
        gpu,
        how: SelectedBy::Attributes,
        remarks,
    })
}

/// ROCm fills the same fields as CUDA: 9.0 is `gfx90a` there and Hopper here.
fn is_amd(device: &Device, profile: &Profile) -> bool {
    let name = device.name.as_deref().unwrap_or_default().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if says(&["amd", "radeon", "instinct"]) {
        return true;
    }
    if says(&["nvidia", "geforce", "tesla", "quadro", "rtx", "gtx"]) {
        return false;
    }
    // No NVIDIA GPU of this major version has this minor version.
    is_rocm(profile) || matches!(device.compute_capability, Some((9, minor)) if minor > 0)
}

/// Whether kernels were launched through HIP.
pub fn is_rocm(profile: &Profile) -> bool {
    let called = |api: &str| profile.strings.find(api).is_some();
    called("hipLaunchKernel")
        || called("hipModuleLaunchKernel")
        || called("hipExtModuleLaunchKernel")
        || called("hipGraphLaunch")
}

/// Whether the profile describes none of its GPUs: no product name, SM count or compute capability.
pub fn is_undescribed(profile: &Profile) -> bool {
    profile.devices.iter().all(|device| {
        !device.name.as_deref().is_some_and(is_telling)
            && device.sm_count.is_none()
            && device.compute_capability.is_none()
    })
}

/// A GPU derived from the attributes of an NVIDIA device that is not in the table.
fn derived(device: &Device) -> Option<Choice> {
    let own = clock(device);
    let hertz = own.or_else(|| usual_clock(device))?;
    let mut gpu = family::derive(device, hertz)?;
    let mut remarks = Vec::new();
    let (major, minor) = device.compute_capability?;
    let clock = format!("{:.2} GHz", hertz / 1e9);
    remarks.push(format!(
        "{} is not in the table of GPUs: its rates are derived from compute capability \
         {major}.{minor}, {} SMs and {}, and are approximate.",
        device_name(device),
        gpu.sm_count,
        match own {
            Some(_) => clock,
            None => format!("the usual clock of its generation, {clock}"),
        },
    ));
    if let Some(mig) = DeviceName::new(device.name.as_deref().unwrap_or_default()).mig {
        gpu.bandwidth *= mig.memory_share(None);
    }
    take_limits(&mut gpu, device);
    gpu.name = device_name(device);
    Some(Choice {
        gpu,
        how: SelectedBy::Derived,
        remarks,
    })
}

/// The median boost clock of the boards in the table with the device's generation and class.
fn usual_clock(device: &Device) -> Option<f64> {
    let name = device.name.as_deref().unwrap_or_default();
    let wanted = family::find(device.compute_capability?, name)?;
    let of = |s: &Spec| {
        let cc = s.gpu.compute_capability?;
        let same = family::find(cc, s.device_names.first()?)? == wanted;
        s.boost_mhz
            .filter(|_| same && !s.variable_clock)
            .map(|mhz| mhz * 1e6)
    };
    let mut clocks: Vec<f64> = built_in().iter().filter_map(of).collect();
    median(&mut clocks)
}

/// The GPU of the table with the values that the profile states: SMs, bandwidth, L2, memory, limits.
fn with_profile(spec: &Spec, mig: Option<Mig>, device: &Device, remarks: &mut Vec<String>) -> Gpu {
    let mut gpu = spec.gpu.clone();
    take_sms(&mut gpu, mig, device, remarks);
    if let Some(mig) = mig {
        take_slice(&mut gpu, mig, remarks);
    } else {
        take_bandwidth(&mut gpu, spec, device, remarks);
        if let Some(own) = device.l2_bytes.filter(|&b| b > 0).map(|b| b as f64) {
            let table = gpu.l2_bytes.replace(own);
            let what = "of L2 cache";
            remarks.extend(table.and_then(|t| differs(own, t, what, mebibytes)));
        }
    }
    if spec.variable_clock {
        take_clock(&mut gpu, spec, device);
    } else {
        clock_remark(spec, device, remarks);
    }
    take_limits(&mut gpu, device);
    gpu
}

/// Takes the SM count of the profile and scales the rates if it differs from the table: another bin
/// of the chip, or a MIG slice.
fn take_sms(gpu: &mut Gpu, mig: Option<Mig>, device: &Device, remarks: &mut Vec<String>) {
    let table = gpu.sms();
    let own = device.sm_count.filter(|&n| n > 0);
    let share = match (own, table, mig) {
        (Some(own), Some(table), _) => f64::from(own) / f64::from(table),
        (None, _, Some(mig)) => mig.compute_share(),
        _ => 1.0,
    };
    if let Some(own) = own {
        gpu.sm_count = own;
    } else {
        // A share of at most 1 of a u32 fits into a u32.
        let cut = (f64::from(gpu.sm_count) * share.min(1.0)).round() as u32;
        gpu.sm_count = cut;
    }
    if (share - 1.0).abs() <= NOTABLE {
        return;
    }
    for rate in gpu.flops.values_mut().chain(gpu.tensor_flops.values_mut()) {
        *rate *= share;
    }
    if let (None, Some(own), Some(table)) = (mig, own, table) {
        remarks.push(format!(
            "The profile counts {own} SMs where the table has {table} for the {}; its rates are \
             scaled to that.",
            gpu.name
        ));
    }
}

fn take_slice(gpu: &mut Gpu, mig: Mig, remarks: &mut Vec<String>) {
    let share = mig.memory_share(gpu.memory_bytes);
    gpu.bandwidth *= share;
    gpu.l2_bytes = gpu.l2_bytes.map(|b| b * share);
    gpu.memory_bytes = gpu.memory_bytes.map(|b| b * share);
    // MIG slices have no NVLink.
    gpu.nvlink = None;
    remarks.push(format!(
        "The profile was taken on a MIG slice of the {} ({}g.{}gb): rates are scaled to its SMs, \
         bandwidth and L2 to {:.0}/8 of the board's.",
        gpu.name,
        mig.compute,
        mig.memory_gb,
        share * 8.0,
    ));
}

fn take_bandwidth(gpu: &mut Gpu, spec: &Spec, device: &Device, remarks: &mut Vec<String>) {
    let usable = |b: &f64| b.is_finite() && *b > 0.0;
    let Some(own) = device.bandwidth.filter(usable) else {
        return;
    };
    if spec.ignore_profile_bandwidth {
        let difference = differs(own, gpu.bandwidth, "of DRAM bandwidth", units::rate);
        remarks.extend(difference.map(|_| {
            format!(
                "The profile's DRAM bandwidth, {}, is known to be wrong for the {}; {} is used.",
                units::rate(own),
                gpu.name,
                units::rate(gpu.bandwidth)
            )
        }));
        return;
    }
    remarks.extend(differs(
        own,
        gpu.bandwidth,
        "of DRAM bandwidth",
        units::rate,
    ));
    gpu.bandwidth = own;
}

fn differs(own: f64, table: f64, what: &str, print: fn(f64) -> String) -> Option<String> {
    ((own / table - 1.0).abs() > NOTABLE).then(|| {
        format!(
            "The profile gives {} {what} where the table has {}; the profile's value is used.",
            print(own),
            print(table)
        )
    })
}

/// A cache size as text, in MiB because cache sizes are powers of two.
fn mebibytes(bytes: f64) -> String {
    format!("{} MiB", units::significant(bytes / 1_048_576.0))
}

/// The clock of a device, Hz, if the profile states one.
fn clock(device: &Device) -> Option<f64> {
    device.clock_hz.filter(|hz| hz.is_finite() && *hz > 0.0)
}

/// Scales the rates to the clock of the profile.
fn take_clock(gpu: &mut Gpu, spec: &Spec, device: &Device) {
    if let (Some(own), Some(table)) = (clock(device), spec.boost_mhz) {
        for rate in gpu.flops.values_mut().chain(gpu.tensor_flops.values_mut()) {
            *rate *= own / (table * 1e6);
        }
    }
}

/// Adds a remark if the clock in the profile differs. Rates stay those at the clock of the table.
fn clock_remark(spec: &Spec, device: &Device, remarks: &mut Vec<String>) {
    let (Some(own), Some(table)) = (clock(device), spec.boost_mhz) else {
        return;
    };
    let table = table * 1e6;
    if (own / table - 1.0).abs() > NOTABLE {
        remarks.push(format!(
            "The profile gives a clock of {:.0} MHz where the table has {:.0} MHz; rates are \
             those of the table.",
            own / 1e6,
            table / 1e6
        ));
    }
}

/// Takes the memory size and the limits of an SM from the profile, if it states them.
fn take_limits(gpu: &mut Gpu, device: &Device) {
    if let Some(bytes) = device.memory_bytes.filter(|&b| b > 0) {
        gpu.memory_bytes = Some(bytes as f64);
    }
    let positive = |n: &u32| *n > 0;
    // AMD warps are 64 wide and the profile counts warps, so the table's thread limit is kept.
    if gpu.vendor == Vendor::Nvidia
        && let Some(warps) = device.max_warps_per_sm.filter(positive)
    {
        gpu.max_threads_per_sm = Some(warps.saturating_mul(32));
    }
    let take = |to: &mut Option<u32>, own: Option<u32>| *to = own.filter(positive).or(*to);
    take(&mut gpu.max_blocks_per_sm, device.max_blocks_per_sm);
    take(&mut gpu.registers_per_sm, device.registers_per_sm);
    take(&mut gpu.shared_per_sm, device.shared_per_sm);
}

fn device_name(device: &Device) -> String {
    match device.name.as_deref().map(str::trim) {
        None | Some("") => "an unnamed GPU".into(),
        Some(name) => shown(name),
    }
}

/// Text from a profile or the command line, escaped for display and cut to [`MAX_NAME`].
fn shown(text: &str) -> String {
    let text = visible(text);
    let mut short: String = text.chars().take(MAX_NAME).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
