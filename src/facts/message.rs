//! Facts of collectives: bytes per call, number of ranks, and bandwidth.
//!
//! Algorithm and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md). The time of a collective
//! includes waiting for the slowest rank, so both are lower bounds of the links' bandwidth.

use super::fact::{FactEntry, facts};
use super::site::{SiteScope, Sites};
use crate::base::DType;
use crate::correlate::ArgValue;
use crate::cost::{Dims, Family, SiteCost};

const COMMUNICATION: &[Family] = &[Family::Communication];

/// Bytes of one call, its ranks, and the bytes each rank must send.
pub(crate) type MessageSize = (u64, Option<u64>, Option<u64>);

fn size_of(dims: Dims) -> Option<MessageSize> {
    match dims {
        Dims::Message {
            bytes,
            ranks,
            wire_bytes,
        } => Some((bytes, ranks, wire_bytes)),
        _ => None,
    }
}

fn message(site: &SiteScope<'_>) -> Option<MessageSize> {
    size_of(site.dims())
}

/// The message of a site of collectives, where the profile has it.
pub(crate) fn message_of(cost: &SiteCost) -> Option<MessageSize> {
    let cost = cost.cost.as_ref().ok()?;
    size_of(cost.roles.first()?.dims)
}

/// Bytes of one call of a collective.
pub(super) fn message_bytes(cost: &SiteCost) -> Option<u64> {
    message_of(cost).map(|m| m.0)
}

/// The element type that the profiler recorded for the message.
fn dtype(site: &SiteScope<'_>) -> Option<DType> {
    let args = site.args()?;
    let recorded = match args.get(usize::MAX, "dtype") {
        Some(ArgValue::Str(word)) => DType::parse(word),
        _ => None,
    };
    recorded.or_else(|| args.tensors().find_map(|t| t.dtype))
}

/// Bytes per second of one call, over the mean time of its kernels.
fn rate(site: &SiteScope<'_>, bytes: Option<u64>) -> Option<f64> {
    let mean_ns = site.site.time_ns as f64 / f64::from(site.site.calls.max(1));
    let rate = bytes.filter(|_| mean_ns > 0.0);
    rate.map(|bytes| bytes as f64 / mean_ns * 1e9)
}

pub(super) const ENTRIES: &[FactEntry<Sites>] = facts! {
    /// What one call of a collective moves or reduces: the larger of input and output
    "site.message_bytes": DOUBLE needs MESSAGE of COMMUNICATION =>
        |s| message(s).map(|m| m.0 as f64),
    /// What each rank must send for one call, by nccl-tests; none for a group of unknown size
    "site.wire_bytes": DOUBLE needs MESSAGE of COMMUNICATION =>
        |s| message(s).and_then(|m| m.2).map(|b| b as f64),
    /// Ranks that take part in a collective
    "site.group_size": INT needs MESSAGE of COMMUNICATION => |s| message(s).and_then(|m| m.1),
    /// Element type of the message
    "site.message_dtype": STR needs MESSAGE of COMMUNICATION => |s| dtype(s).map(DType::name),
    /// Highest bus bandwidth that any call of any collective among as many ranks reached
    "site.best_bus_bytes_per_s": DOUBLE needs MESSAGE of COMMUNICATION => |s| {
        let ranks = message(s).and_then(|m| m.1);
        ranks.and_then(|ranks| s.table.collectives.best_rates.get(&ranks).copied())
    },
    /// Algorithm bandwidth of nccl-tests: message over time, waiting for slower ranks included
    "site.algorithm_bytes_per_s": DOUBLE needs MESSAGE of COMMUNICATION =>
        |s| rate(s, message(s).map(|m| m.0)),
    /// Bus bandwidth of nccl-tests, which the links limit: what each rank must send over time
    "site.bus_bytes_per_s": DOUBLE needs MESSAGE of COMMUNICATION =>
        |s| rate(s, message(s).and_then(|m| m.2)),
};
