//! Manufacturers of GPUs.

/// Manufacturer of a GPU. Advice about CUDA libraries applies to NVIDIA only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}
