//! Manufacturers of GPUs.

use crate::base::words::words;

words! {
    /// Manufacturer of a GPU. Advice about CUDA libraries applies to NVIDIA only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Vendor with fn name {
        /// NVIDIA.
        Nvidia = "nvidia",
        /// AMD.
        Amd = "amd",
    }
}
