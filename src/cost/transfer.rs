//! Copies and sets carry their bytes themselves: what of them the device's own memory moves.

use crate::profile::CopyKind;

/// Bytes a copy moves in the memory of one device: within the device they are read and written; to
/// and from elsewhere they cross it once, and the link limits the copy.
pub fn copy_dram_bytes(kind: CopyKind, bytes: u64) -> u64 {
    match kind {
        CopyKind::DtoD => bytes.saturating_mul(2),
        CopyKind::HtoH => 0,
        CopyKind::HtoD | CopyKind::DtoH | CopyKind::PtoP | CopyKind::Other => bytes,
    }
}

/// Bytes a set moves: they are written once.
pub fn set_dram_bytes(bytes: u64) -> u64 {
    bytes
}
