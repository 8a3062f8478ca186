//! What was measured before recording began.

/// What a program took while nothing was recorded: recording makes its host slower. `None` where it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unrecorded {
    /// Median length of the last steps, in ns.
    pub step_ns: Option<u64>,
    /// Most memory of one GPU that PyTorch's allocator had reserved until then.
    pub memory_reserved_bytes: Option<u64>,
}
