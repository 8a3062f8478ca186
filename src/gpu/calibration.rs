//! What well-tuned work reaches on a GPU: shares of its peaks, from `calibration/*.toml`, one file per
//! architecture, embedded at build time. `[reachable]` of a GPU file takes precedence.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::keys::{ALIAS, REACHABLE_KEYS, TEXT};
use super::vendor::Vendor;
use crate::base::diag::{Complaints, Source};
use crate::base::schema::{Key, Shape, keys};
use crate::base::toml::{self, Table};

/// `(file name, text)` of every file in `calibration/`.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/calibration.rs"));

/// What well-tuned work reaches. A constant that predicts nothing on an architecture is `None` there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reachable {
    /// Share of the math peak that well-tuned matrix kernels reach.
    pub math: f64,
    /// Share of the DRAM bandwidth that well-tuned kernels reach.
    pub memory: f64,
    /// Share of the math peak that fused attention reaches.
    pub attention: f64,
    /// Share of PCI Express, 16 lanes before encoding, that copies from pinned memory reach.
    pub pinned_copy: f64,
    /// Time of the shortest useful kernels, ns.
    pub kernel_ns: f64,
    /// Time between a kernel and the next of its stream that waits for it already, ns.
    pub gap_ns: f64,
    /// Share of the ideal that an aligned product of ordinary size reaches.
    pub aligned_gemm: Option<f64>,
    /// Share of the ideal that a large product reaches with kernels built for the architecture.
    pub large_gemm: Option<f64>,
    /// Share of the ideal that a convolution with aligned channels reaches.
    pub aligned_conv: Option<f64>,
}

impl Reachable {
    /// The constants by name; `None` if one is missing that every architecture needs.
    pub(super) fn of(value: impl Fn(&str) -> Option<f64>) -> Option<Reachable> {
        Some(Reachable {
            math: value("math")?,
            memory: value("memory")?,
            attention: value("attention")?,
            pinned_copy: value("pinned_copy")?,
            kernel_ns: value("kernel_ns")?,
            gap_ns: value("gap_ns")?,
            aligned_gemm: value("aligned_gemm"),
            large_gemm: value("large_gemm"),
            aligned_conv: value("aligned_conv"),
        })
    }

    /// A constant by its name in files.
    pub fn get(&self, name: &str) -> Option<f64> {
        match name {
            "math" => Some(self.math),
            "memory" => Some(self.memory),
            "attention" => Some(self.attention),
            "pinned_copy" => Some(self.pinned_copy),
            "kernel_ns" => Some(self.kernel_ns),
            "gap_ns" => Some(self.gap_ns),
            "aligned_gemm" => self.aligned_gemm,
            "large_gemm" => self.large_gemm,
            "aligned_conv" => self.aligned_conv,
            _ => None,
        }
    }

    /// The values of both under which nothing is estimated to become faster than on either.
    #[must_use]
    pub(super) fn slower(&self, other: &Reachable) -> Reachable {
        let least = |name: &str| {
            let (a, b) = (self.get(name)?, other.get(name)?);
            Some(if name.ends_with("_ns") {
                a.max(b)
            } else {
                a.min(b)
            })
        };
        Reachable::of(least).unwrap_or(*self)
    }
}

/// A constant and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced {
    /// The value.
    pub value: f64,
    /// Where it comes from.
    pub source: String,
}

/// One constant of an architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// The value of most boards.
    pub usual: Sourced,
    /// Boards that differ, by id.
    pub boards: BTreeMap<String, Sourced>,
}

impl Constant {
    /// The value for a board.
    pub fn of(&self, board: &str) -> &Sourced {
        self.boards.get(board).unwrap_or(&self.usual)
    }
}

/// A file of `calibration/`: the constants of an architecture.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// Name of the architecture, as in GPU files: `Hopper`.
    pub architecture: String,
    /// Manufacturer.
    pub vendor: Vendor,
    /// The constants by name.
    pub constants: BTreeMap<&'static str, Constant>,
}

impl Calibration {
    /// What work reaches on a board.
    pub fn reachable(&self, board: &str) -> Option<Reachable> {
        Reachable::of(|name| Some(self.constants.get(name)?.of(board).value))
    }
}

const SOURCE: Shape = Shape::Line(400);
const SHARE: Shape = Shape::Above(0.0, 1.0);
const SHARE_OF_BOARD: Shape = Shape::Table(
    keys! {
        /// the value
        required "value": SHARE,
        /// where it comes from
        required "source": SOURCE,
    },
    &[],
);
const SHARE_KEYS: &[Key] = keys! {
    /// the value of most boards
    required "value": SHARE,
    /// where it comes from
    required "source": SOURCE,
    /// boards that differ, by id
    "boards": Shape::Map(Some(ALIAS), &SHARE_OF_BOARD, 1_000),
};
const TIME: Shape = Shape::Above(0.0, 1e6);
const TIME_OF_BOARD: Shape = Shape::Table(
    keys! {
        /// the value
        required "value": TIME,
        /// where it comes from
        required "source": SOURCE,
    },
    &[],
);
const TIME_KEYS: &[Key] = keys! {
    /// the value of most boards
    required "value": TIME,
    /// where it comes from
    required "source": SOURCE,
    /// boards that differ, by id
    "boards": Shape::Map(Some(ALIAS), &TIME_OF_BOARD, 1_000),
};

/// Every key of a file of `calibration/`. The constants are those of `[reachable]`.
const KEYS: &[Key] = keys! {
    /// the architecture, as in GPU files
    required "architecture": TEXT,
    /// `nvidia` or `amd`
    required "vendor": Shape::Word(|| vec!["nvidia", "amd"]),
    /// of the math peak
    required "math": Shape::Table(SHARE_KEYS, &[]),
    /// of the DRAM bandwidth
    required "memory": Shape::Table(SHARE_KEYS, &[]),
    /// of the math peak, by fused attention
    required "attention": Shape::Table(SHARE_KEYS, &[]),
    /// of PCI Express
    required "pinned_copy": Shape::Table(SHARE_KEYS, &[]),
    /// of the shortest useful kernels
    required "kernel_ns": Shape::Table(TIME_KEYS, &[]),
    /// between kernels that wait for each other
    required "gap_ns": Shape::Table(TIME_KEYS, &[]),
    /// of the ideal, by aligned products
    "aligned_gemm": Shape::Table(SHARE_KEYS, &[]),
    /// of the ideal, by large products
    "large_gemm": Shape::Table(SHARE_KEYS, &[]),
    /// of the ideal, by aligned convolutions
    "aligned_conv": Shape::Table(SHARE_KEYS, &[]),
};

/// The built-in calibrations, sorted by file name.
pub fn built_in() -> &'static [Calibration] {
    static FILES: LazyLock<Vec<Calibration>> = LazyLock::new(|| check_built_in().0);
    &FILES
}

/// The built-in calibrations and all messages about their files; a test checks that there are none.
pub fn check_built_in() -> (Vec<Calibration>, Complaints) {
    let complaints = Complaints::new();
    let read = |(name, text): &(&str, &'static str)| {
        parse(
            &Source::embedded(format!("calibration/{name}"), text),
            &complaints,
        )
    };
    let files = BUILT_IN.iter().filter_map(read).collect();
    (files, complaints)
}

/// A calibration from text.
///
/// # Errors
/// All messages about the text.
pub fn parse_source(source: &std::sync::Arc<Source>) -> Result<Calibration, Complaints> {
    let complaints = Complaints::new();
    let read = parse(source, &complaints);
    match read.filter(|_| complaints.is_empty()) {
        Some(calibration) => Ok(calibration),
        None => Err(complaints),
    }
}

fn parse(source: &std::sync::Arc<Source>, complaints: &Complaints) -> Option<Calibration> {
    let document = toml::parse(source, complaints);
    let root = document.root();
    root.check(KEYS, &[]);
    let sourced = |table: &Table| {
        Some(Sourced {
            value: table.get_number("value")?,
            source: table.get_text("source")?,
        })
    };
    let constant = |key: &Key| {
        let table = root.get_table(key.name)?;
        let boards = table.get_table("boards");
        let boards = boards.map_or_else(Vec::new, |boards| boards.entries());
        let boards = boards
            .into_iter()
            .filter_map(|(id, value)| Some((id.value.to_owned(), sourced(&value.table()?)?)));
        let constant = Constant {
            usual: sourced(&table)?,
            boards: boards.collect(),
        };
        Some((key.name, constant))
    };
    Some(Calibration {
        architecture: root.get_text("architecture")?,
        vendor: root.get_word("vendor", &Vendor::ALL)?,
        constants: REACHABLE_KEYS.iter().filter_map(constant).collect(),
    })
}

/// The calibration of an architecture.
pub fn of_architecture(architecture: &str) -> Option<&'static Calibration> {
    built_in().iter().find(|c| c.architecture == architecture)
}

/// What work reaches on a board of an architecture. Of an architecture without a calibration, the least
/// that boards of its vendor reach.
pub(super) fn reachable(board: &str, architecture: &str, vendor: Vendor) -> Option<Reachable> {
    if let Some(calibration) = of_architecture(architecture) {
        return calibration.reachable(board);
    }
    let others = built_in().iter().filter(|c| c.vendor == vendor);
    others
        .filter_map(|c| c.reachable(board))
        .reduce(|a, b| a.slower(&b))
}

/// The time between queued kernels where the GPU is unknown: the longest of any architecture, so that no
/// saving is estimated too high.
pub fn gap_ns_of_any() -> f64 {
    let all = built_in().iter().filter_map(|c| c.constants.get("gap_ns"));
    all.map(|constant| constant.usual.value).fold(0.0, f64::max)
}
