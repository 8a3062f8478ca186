//! How a program loads its data.

/// The configuration of a DataLoader that the program used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoaderConfig {
    /// Number of worker processes; 0 loads in the training process.
    pub workers: u32,
    /// Whether batches are copied to pinned memory.
    pub pin_memory: bool,
    /// Batches that each worker loads ahead; `None` without workers.
    pub prefetch: Option<u32>,
    /// Whether workers live longer than an epoch.
    pub persistent: bool,
}
