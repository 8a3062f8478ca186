//! What PyTorch's allocator does with the memory of a GPU.

use super::ids::ThreadId;

/// A block that PyTorch's allocator handed out or took back, and how much of a GPU's memory it has since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryEvent {
    /// When it happened on the host, in ns on the clock of the profile.
    pub at: i64,
    /// The host thread.
    pub thread: ThreadId,
    /// The ordinal of the GPU.
    pub device: u32,
    /// Bytes handed out; negative for a block that was taken back.
    pub bytes: i64,
    /// Bytes in blocks that are in use.
    pub allocated: u64,
    /// Bytes that the allocator has of the GPU's memory.
    pub reserved: u64,
}
