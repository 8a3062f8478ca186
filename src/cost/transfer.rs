//! Device memory traffic of memory copies and sets, from the byte counts in their records.

use crate::profile::CopyKind;

/// The bytes that a copy of `bytes` reads and writes in the memory of one device. A copy within the
/// device reads and writes every byte. A copy to or from elsewhere accesses device memory once per
/// byte, and the link limits it. Saturates.
pub fn copy_dram_bytes(kind: CopyKind, bytes: u64) -> u64 {
    match kind {
        CopyKind::DtoD => bytes.saturating_mul(2),
        CopyKind::HtoH => 0,
        CopyKind::HtoD | CopyKind::DtoH | CopyKind::PtoP | CopyKind::Other => bytes,
    }
}

/// The bytes that a memory set of `bytes` writes to device memory.
pub fn set_dram_bytes(bytes: u64) -> u64 {
    bytes
}
