//! Identifies boards by name: the device name in a profile, or the name given on the command line.
//! The name of the chip is not used: an RTX 4090 and an L40S have the same AD102.

use super::Vendor;
use super::load::{Spec, built_in};
use crate::profile::Device;

/// A device name, split into the board and the MIG slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceName<'a> {
    /// Name of the board.
    pub board: &'a str,
    /// The MIG slice, if the name contains one.
    pub mig: Option<Mig>,
}

/// `MIG 1g.5gb`: a slice of a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mig {
    /// Compute slices, of seven on most GPUs.
    pub compute: u32,
    /// GB of memory, as the profile's name states it.
    pub memory_gb: f64,
}

impl<'a> DeviceName<'a> {
    /// Splits a device name into the board and the MIG slice.
    pub fn new(name: &'a str) -> DeviceName<'a> {
        let name = name.trim();
        let split = name.rfind(" MIG ").and_then(|at| {
            let board = name.get(..at)?;
            let slice = name.get(at + " MIG ".len()..)?;
            Some((board, Mig::parse(slice)?))
        });
        match split {
            Some((board, mig)) => DeviceName {
                board: board.trim(),
                mig: Some(mig),
            },
            None => DeviceName {
                board: name,
                mig: None,
            },
        }
    }
}

impl Mig {
    /// Parses `1g.5gb`, `3g.20gb`, `1g.5gb+me`.
    fn parse(slice: &str) -> Option<Mig> {
        let slice = slice.trim().split('+').next()?;
        let (compute, memory) = slice.split_once("g.")?;
        let compute = compute.parse().ok().filter(|n| (1..=8).contains(n))?;
        let memory_gb = memory.strip_suffix("gb")?.parse().ok();
        memory_gb
            .filter(|gb: &f64| gb.is_finite() && *gb > 0.0)
            .map(|memory_gb| Mig { compute, memory_gb })
    }

    /// Share of the board's bandwidth, L2 and memory. Memory is divided into eighths, and a slice such
    /// as `1g.10gb` may have two of them on a 40 GB board.
    pub fn memory_share(&self, board_bytes: Option<f64>) -> f64 {
        let whole_gb = board_bytes.map(|b| b / (1024.0 * 1024.0 * 1024.0));
        let eighths = match whole_gb {
            Some(gb) if gb > 0.0 => (8.0 * self.memory_gb / gb).round(),
            _ => f64::from(match self.compute {
                3 => 4,
                7 => 8,
                n => n,
            }),
        };
        eighths.clamp(1.0, 8.0) / 8.0
    }

    /// Fraction of the board's SMs, for profiles that do not state the SM count.
    pub fn compute_share(&self) -> f64 {
        (f64::from(self.compute) / 7.0).min(1.0)
    }
}

/// Normalizes a name: lower case, one space for every separator, without the vendor and registration
/// marks.
pub fn normalize(name: &str) -> String {
    let lower = name.to_lowercase().replace("(r)", " ").replace("(tm)", " ");
    let words: Vec<&str> = lower
        .split(|c: char| c.is_whitespace() || c == '-' || c == '_')
        .filter(|w| !w.is_empty())
        .collect();
    let skip = usize::from(matches!(words.first(), Some(&"nvidia" | &"amd")) && words.len() > 1);
    words.get(skip..).unwrap_or_default().join(" ")
}

/// [`normalize`] without spaces, so that `rtx4090` equals `RTX 4090`.
fn squash(name: &str) -> String {
    normalize(name).replace(' ', "")
}

/// The boards that match a given name, sorted by id; several for a shared alias.
pub fn asked(name: &str) -> Vec<&'static Spec> {
    let wanted = squash(name);
    let same = |other: &str| squash(other) == wanted;
    let own =
        |s: &Spec| same(&s.gpu.id) || same(&s.gpu.name) || s.device_names.iter().any(|n| same(n));
    let exact: Vec<_> = built_in().iter().filter(|s| own(s)).collect();
    if !exact.is_empty() || wanted.is_empty() {
        return exact;
    }
    let alias = |s: &&Spec| s.aliases.iter().any(|a| same(a));
    built_in().iter().filter(alias).collect()
}

/// The default board of an alias that several boards share.
pub fn default_of<'a>(name: &str, boards: &[&'a Spec]) -> Option<&'a Spec> {
    let wanted = squash(name);
    let is_default = |s: &&&Spec| s.default_for.iter().any(|a| squash(a) == wanted);
    let stated = boards.iter().find(is_default);
    stated.or(boards.first()).copied()
}

/// The board of a profile's device: by exact name, then by name without spelling variants, then by a
/// name that several boards share, if SM count and memory leave one of them.
pub fn of_device(device: &Device) -> Option<(&'static Spec, Option<Mig>)> {
    let name = DeviceName::new(device.name.as_deref()?);
    let wanted = normalize(name.board);
    if wanted.is_empty() {
        return None;
    }
    named(device, |n| n == name.board)
        .or_else(|| named(device, |n| normalize(n) == wanted))
        .or_else(|| narrowed(name.board, device))
        .map(|spec| (spec, name.mig))
}

/// The board with this device name. Of several (an RTX 3080 has 10 or 12 GB), the first that fits the
/// other attributes of the device, otherwise the first of the default aliases.
fn named(device: &Device, same: impl Fn(&str) -> bool) -> Option<&'static Spec> {
    let has_name = |s: &&Spec| s.device_names.iter().any(|n| same(n));
    let boards: Vec<&Spec> = built_in().iter().filter(has_name).collect();
    let fitting = boards.iter().filter(|s| fits(s, device));
    let usual = |s: &&&Spec| !s.default_for.is_empty();
    let fitting: Vec<&&Spec> = fitting.collect();
    let all: Vec<&&Spec> = boards.iter().collect();
    let candidates = if fitting.is_empty() { all } else { fitting };
    let chosen = candidates
        .iter()
        .find(|s| usual(s))
        .or(candidates.first())?;
    Some(**chosen)
}

fn narrowed(name: &str, device: &Device) -> Option<&'static Spec> {
    let mut boards = asked(name);
    boards.retain(|s| fits(s, device));
    default_of(name, &boards)
}

/// Whether generation, SM count and memory of the device match the board, as far as the profile records
/// them. Memory may differ by 10 %, because error correction and the driver use some of it.
pub fn fits(spec: &Spec, device: &Device) -> bool {
    let gpu = &spec.gpu;
    let capability = match &spec.gfx {
        Some(gfx) => device.compute_capability.is_none_or(|cc| gfx_is(gfx, cc)),
        None => device
            .compute_capability
            .is_none_or(|cc| gpu.compute_capability == Some(cc)),
    };
    let sms = match (gpu.sms(), device.sm_count.filter(|&n| n > 0)) {
        (Some(table), Some(own)) => table == own,
        _ => true,
    };
    let memory = match (gpu.memory_bytes, device.memory_bytes) {
        (Some(table), Some(own)) => (own as f64 / table - 1.0).abs() <= 0.10,
        _ => true,
    };
    capability && sms && memory
}

/// Whether ROCm reports a `gfx` name as this compute capability: `gfx90a` as 9.0 and `gfx942` as 9.4,
/// which is the name without its last digit.
fn gfx_is(gfx: &str, (major, minor): (u32, u32)) -> bool {
    let digits = gfx.strip_prefix("gfx").unwrap_or_default();
    let generation = digits
        .get(..digits.len().saturating_sub(1))
        .unwrap_or_default();
    generation == format!("{major}{minor}")
}

/// The boards of a vendor with the device's generation, SMs (compute units) and memory, for devices
/// whose name is missing or not a product's. Empty unless the profile states all of them; ROCm does not
/// always state the generation. Boards with a variable clock are left out.
pub fn by_attributes(device: &Device, vendor: Vendor) -> Vec<&'static Spec> {
    let generation = vendor == Vendor::Amd || device.compute_capability.is_some();
    if !generation || device.memory_bytes.is_none() || device.sm_count.is_none_or(|n| n == 0) {
        return Vec::new();
    }
    built_in()
        .iter()
        .filter(|s| s.gpu.vendor == vendor && !s.variable_clock && fits(s, device))
        .collect()
}

/// Up to three built-in names similar to the given one, nearest first.
pub fn near(name: &str) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for spec in built_in() {
        names.push(&spec.gpu.id);
        names.extend(spec.aliases.iter().map(String::as_str));
    }
    let mut found: Vec<&'static str> = Vec::new();
    while found.len() < 3
        && let Some(next) = crate::base::suggest::nearest(name, names.iter().copied())
    {
        found.push(next);
        names.retain(|n| squash(n) != squash(next));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_variants_of_names_are_removed() {
        assert_eq!(normalize("NVIDIA A100-SXM4-40GB"), "a100 sxm4 40gb");
        assert_eq!(normalize("AMD Instinct(TM) MI300X"), "instinct mi300x");
        assert_eq!(normalize(" Tesla_T4 "), "tesla t4");
        assert_eq!(normalize("NVIDIA"), "nvidia");
        assert_eq!(squash("RTX 4090"), squash("rtx4090"));
    }

    #[test]
    fn mig_slices_are_split_off() {
        let name = DeviceName::new("NVIDIA A100-SXM4-40GB MIG 1g.5gb");
        assert_eq!(name.board, "NVIDIA A100-SXM4-40GB");
        let mig = name.mig.unwrap();
        assert_eq!((mig.compute, mig.memory_gb), (1, 5.0));
        let gib = 1024.0_f64.powi(3);
        assert_eq!(mig.memory_share(Some(40.0 * gib)), 1.0 / 8.0);
        let wide = DeviceName::new("x MIG 1g.20gb+me").mig.unwrap();
        assert_eq!(wide.memory_share(Some(80.0 * gib)), 2.0 / 8.0);
        let half = DeviceName::new("x MIG 3g.47gb").mig.unwrap();
        assert_eq!(half.memory_share(Some(94.0 * gib)), 4.0 / 8.0);
        assert_eq!(half.memory_share(None), 4.0 / 8.0);
        for odd in [
            "NVIDIA MIG thing",
            "x MIG 0g.5gb",
            "x MIG 1g.gb",
            "x MIG 1g.-5gb",
            "MIG",
        ] {
            assert_eq!(DeviceName::new(odd).mig, None, "{odd}");
        }
    }
}
