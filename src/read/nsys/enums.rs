//! The enumerations of an export. Their numbers differ between exports and from CUPTI, so they are read
//! from the `ENUM_*` tables; the numbers below are used if an export has no such table.

use std::collections::BTreeMap;

use crate::profile::{CopyKind, MemoryKind, OffCpuState, RangeKind, SyncKind};
use crate::read::cupti;
use crate::read::reader::ReadError;
use crate::read::sqlite::Db;

/// The values of an enumeration by their numbers.
#[derive(Debug, Clone)]
pub(super) struct Enumeration<T>(BTreeMap<i64, T>);

impl<T: Copy> Enumeration<T> {
    /// The value of a number; `None` for an unknown one.
    pub(super) fn of(&self, number: Option<i64>) -> Option<T> {
        self.0.get(&number?).copied()
    }

    /// Reads the table if it exists, otherwise uses `fallback`.
    fn read(
        db: &Db,
        table: &str,
        parse: impl Fn(&str) -> Option<T>,
        fallback: &[(i64, T)],
    ) -> Result<Self, ReadError> {
        let rows = db.pairs(table, ["id", "name"])?;
        if rows.is_empty() {
            return Ok(Enumeration(fallback.iter().copied().collect()));
        }
        let known = rows.into_iter();
        let known = known.filter_map(|(id, name)| Some((id.parse().ok()?, parse(&name)?)));
        Ok(Enumeration(known.collect()))
    }
}

/// The meaning of a row of `NVTX_EVENTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    Range(RangeKind),
    /// The row names a domain.
    Domain,
}

/// `NVTX_EVENTS.eventType`. `Nvtxt...` rows come from imported text files.
pub(super) fn event_kinds(db: &Db) -> Result<Enumeration<EventKind>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_NSYS_EVENT_TYPE",
        |name| {
            Some(match name.replacen("Nvtxt", "Nvtx", 1).as_str() {
                "NvtxPushPopRange" => EventKind::Range(RangeKind::PushPop),
                "NvtxStartEndRange" => EventKind::Range(RangeKind::StartEnd),
                "NvtxMark" => EventKind::Range(RangeKind::Mark),
                "NvtxDomainCreate" => EventKind::Domain,
                _ => return None,
            })
        },
        // Verified with exports from 2022 to 2026.
        &[
            (59, EventKind::Range(RangeKind::PushPop)),
            (60, EventKind::Range(RangeKind::StartEnd)),
            (34, EventKind::Range(RangeKind::Mark)),
            (75, EventKind::Domain),
        ],
    )
}

/// The text after `KIND_` in names such as `CUDA_MEMCPY_KIND_HTOD`.
fn kind(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    match name.split_once("KIND_") {
        Some((_, kind)) => kind.to_owned(),
        None => name,
    }
}

/// `CUPTI_ACTIVITY_KIND_MEMCPY.copyKind`.
pub(super) fn copy_kinds(db: &Db) -> Result<Enumeration<CopyKind>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_CUDA_MEMCPY_OPER",
        |name| {
            Some(match kind(name).as_str() {
                "HTOD" => CopyKind::HtoD,
                "DTOH" => CopyKind::DtoH,
                "DTOD" => CopyKind::DtoD,
                "HTOH" => CopyKind::HtoH,
                "PTOP" => CopyKind::PtoP,
                _ => CopyKind::Other,
            })
        },
        // The numbers of `CUpti_ActivityMemcpyKind`, which this enumeration uses.
        &[
            (1, CopyKind::HtoD),
            (2, CopyKind::DtoH),
            (8, CopyKind::DtoD),
            (9, CopyKind::HtoH),
            (10, CopyKind::PtoP),
        ],
    )
}

/// `srcKind`, `dstKind`, `memKind`. These numbers differ from CUPTI's, which begin with 1 for pageable.
pub(super) fn memory_kinds(db: &Db) -> Result<Enumeration<MemoryKind>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_CUDA_MEM_KIND",
        |name| Some(cupti::memory_kind(&kind(name))),
        // Verified with all exports at hand.
        &[
            (0, MemoryKind::Pageable),
            (1, MemoryKind::Pinned),
            (2, MemoryKind::Device),
            (3, MemoryKind::Array),
            (4, MemoryKind::Managed),
            (5, MemoryKind::Device),
            (6, MemoryKind::Managed),
        ],
    )
}

/// `CUPTI_ACTIVITY_KIND_SYNCHRONIZATION.syncType`.
pub(super) fn sync_kinds(db: &Db) -> Result<Enumeration<SyncKind>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_CUPTI_SYNC_TYPE",
        |name| Some(cupti::sync_kind(name)),
        &cupti::SYNC_KINDS,
    )
}

/// `SCHED_EVENTS.threadState`, of a thread that leaves a CPU. Exports of Linux do not say more than that a
/// thread has ended.
pub(super) fn thread_states(db: &Db) -> Result<Enumeration<OffCpuState>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_SAMPLING_THREAD_STATE",
        |name| match name {
            "Running" => Some(OffCpuState::Ready),
            "Interruptible" | "Uninterruptible" | "Stopped" | "Waiting" => {
                Some(OffCpuState::Waiting)
            }
            _ => None,
        },
        // Verified with exports from 2022 to 2026.
        &[
            (1, OffCpuState::Ready),
            (2, OffCpuState::Waiting),
            (3, OffCpuState::Waiting),
            (4, OffCpuState::Waiting),
            (7, OffCpuState::Waiting),
        ],
    )
}

/// `SCHED_EVENTS.threadBlock`: what the thread waits for. Without the table of its numbers, they are not used.
pub(super) fn thread_blocks(db: &Db) -> Result<Enumeration<OffCpuState>, ReadError> {
    Enumeration::read(
        db,
        "ENUM_SCHEDULING_THREAD_BLOCK",
        |name| match name {
            "Preempted" | "DeferredPreempt" | "QuantumEnd" | "ReadyToRun" => {
                Some(OffCpuState::Ready)
            }
            "NonBlocked" | "Unknown" | "YieldExecution" => None,
            _ => Some(OffCpuState::Waiting),
        },
        &[],
    )
}
