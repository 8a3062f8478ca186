//! The simulated events of a description, with times. Both writers use them.

use std::collections::HashMap;

use super::text;

/// The tool whose file format is written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Nsys,
    Nvprof,
}

/// The storage of range texts in an nsys file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextStyle {
    Inline,
    Registered,
    /// Registered if a text occurs more than once.
    #[default]
    Mixed,
}

/// All events, sorted by start.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) format: Format,
    pub(super) schema: String,
    pub(super) tool: String,
    pub(super) text: TextStyle,
    pub(super) devices: Vec<Device>,
    /// Process ids and their devices.
    pub(super) processes: Vec<(i64, i64)>,
    pub(super) threads: Vec<Thread>,
    pub(super) kernels: Vec<Kernel>,
    pub(super) copies: Vec<Copy>,
    pub(super) sets: Vec<Set>,
    pub(super) syncs: Vec<Sync>,
    pub(super) graphs: Vec<Graph>,
    pub(super) calls: Vec<Call>,
    pub(super) ranges: Vec<Range>,
    pub(super) overheads: Vec<(Where, i64, i64)>,
    pub(super) drops: Vec<String>,
    pub(super) sql: Vec<String>,
    /// The end of the capture, ns.
    pub(super) end: i64,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) attributes: HashMap<String, i64>,
}

/// A thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Where {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) at: Where,
    pub(super) name: String,
}

/// The properties of all work on a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) pid: i64,
    pub(super) device: i64,
    pub(super) stream: i64,
    pub(super) correlation: i64,
    pub(super) node: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) work: Work,
    pub(super) grid: [i64; 3],
    pub(super) shape: KernelShape,
}

/// The properties of a kernel in a `define`.
#[derive(Debug, Clone)]
pub(super) struct KernelShape {
    pub(super) name: String,
    pub(super) block: [i64; 3],
    pub(super) regs: i64,
    pub(super) fixed: i64,
    pub(super) dynamic: i64,
    pub(super) local: i64,
}

impl KernelShape {
    pub(super) const KEYS: [&str; 5] = ["block", "regs", "static", "dynamic", "local"];

    pub(super) fn named(name: &str) -> KernelShape {
        KernelShape {
            name: name.to_owned(),
            block: [128, 1, 1],
            regs: 32,
            fixed: 0,
            dynamic: 0,
            local: 0,
        }
    }

    /// Sets one of [`Self::KEYS`].
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "block" => self.block = text::dims(value)?,
            "regs" => self.regs = text::int(value)?,
            "static" => self.fixed = text::size(value)?,
            "dynamic" => self.dynamic = text::size(value)?,
            _ => self.local = text::size(value)?,
        }
        Ok(())
    }
}

/// `copyKind` of CUPTI and of nsys, which agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToDevice = 1,
    ToHost = 2,
    OnDevice = 8,
    Peer = 10,
}

/// Memory kinds as numbered by nsys; CUPTI's numbers are higher by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    Pageable = 0,
    Pinned = 1,
    Device = 2,
}

#[derive(Debug)]
pub(super) struct Copy {
    pub(super) work: Work,
    pub(super) bytes: i64,
    pub(super) direction: Direction,
    pub(super) from: Memory,
    pub(super) to: Memory,
}

#[derive(Debug)]
pub(super) struct Set {
    pub(super) work: Work,
    pub(super) bytes: i64,
}

/// A synchronization; `kind` as numbered by CUPTI: 1 event, 2 stream waits, 3 stream, 4 context.
#[derive(Debug)]
pub(super) struct Sync {
    pub(super) work: Work,
    pub(super) kind: i64,
}

#[derive(Debug)]
pub(super) struct Graph {
    pub(super) work: Work,
    pub(super) id: i64,
}

/// A CUDA call on the host, with its name without version suffix.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) at: Where,
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) name: String,
    pub(super) correlation: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeKind {
    PushPop,
    StartEnd,
    Mark,
}

#[derive(Debug)]
pub(super) struct Range {
    pub(super) at: Where,
    pub(super) kind: RangeKind,
    pub(super) start: i64,
    /// `None` for a range that is never closed.
    pub(super) end: Option<i64>,
    pub(super) text: String,
}
