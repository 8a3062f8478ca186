//! Facts of collectives: bytes per call, number of ranks, and bandwidth.
//!
//! Algorithm and bus bandwidth are those of nccl-tests (doc/PERFORMANCE.md). The time of a collective
//! includes waiting for the slowest rank, so both are lower bounds of the links' bandwidth.

use super::site::{SiteScope, Sites};
use super::{Answer, Entry, fact};
use crate::cost::{Dims, Family};

const COMMUNICATION: &[Family] = &[Family::Communication];

/// Bytes of one call, its ranks, and the bytes each rank must send.
fn message(site: &SiteScope<'_>) -> Option<(u64, Option<u64>, Option<u64>)> {
    match site.dims() {
        Dims::Message {
            bytes,
            ranks,
            wire_bytes,
        } => Some((bytes, ranks, wire_bytes)),
        _ => None,
    }
}

/// Bytes per second of one call, over the mean time of its kernels.
fn rate(site: &SiteScope<'_>, bytes: Option<u64>) -> Answer {
    let mean_ns = site.site.time_ns as f64 / f64::from(site.site.calls.max(1));
    let rate = bytes.filter(|_| mean_ns > 0.0);
    Answer::maybe(
        rate.map(|bytes| bytes as f64 / mean_ns * 1e9),
        Answer::double,
    )
}

pub(super) const ENTRIES: &[Entry<Sites>] = &[
    fact!(
        "site.message_bytes",
        Double,
        "bytes",
        COMMUNICATION,
        MESSAGE,
        "What one call of a collective moves or reduces: the larger of input and output",
        |s| Answer::maybe(message(s).map(|m| m.0 as f64), Answer::double)
    ),
    fact!(
        "site.wire_bytes",
        Double,
        "bytes",
        COMMUNICATION,
        MESSAGE,
        "What each rank must send for one call, by nccl-tests; none for a group of unknown size",
        |s| Answer::maybe(
            message(s).and_then(|m| m.2).map(|b| b as f64),
            Answer::double
        )
    ),
    fact!(
        "site.group_size",
        Int,
        "",
        COMMUNICATION,
        MESSAGE,
        "Ranks that take part in a collective",
        |s| Answer::maybe(message(s).and_then(|m| m.1), Answer::int)
    ),
    fact!(
        "site.algorithm_bytes_per_s",
        Double,
        "bytes/s",
        COMMUNICATION,
        MESSAGE,
        "Algorithm bandwidth of nccl-tests: message over time, waiting for slower ranks included",
        |s| rate(s, message(s).map(|m| m.0))
    ),
    fact!(
        "site.bus_bytes_per_s",
        Double,
        "bytes/s",
        COMMUNICATION,
        MESSAGE,
        "Bus bandwidth of nccl-tests, which the links limit: what each rank must send over time",
        |s| rate(s, message(s).and_then(|m| m.2))
    ),
];
