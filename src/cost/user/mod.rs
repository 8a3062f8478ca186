//! Cost files: FLOPs and bytes of a user's own functions and modules, in TOML.
//!
//! A `[[cost]]` names an operator (or several, with `*`) and defines the cost of a call by expressions
//! over its arguments. A `[[test]]` checks it on an example. A user's cost takes precedence over the
//! built-in one.
//!
//! ```toml
//! [[cost]]
//! op     = "my_lib::fused_mlp"
//! family = "gemm"
//! args   = ["x", "up", "down"]
//! flops  = '2 * numel("x") * dim("up", 0) * 2'
//! bytes  = 'bytes() + bytes("x")'
//!
//! [[test]]
//! op    = "my_lib::fused_mlp"
//! args  = ["fp16[8, 64]", "fp16[256, 64]", "fp16[64, 256]"]
//! flops = 524288
//! bytes = 67584
//! ```

pub(super) mod argument;
mod cost_tests;
mod keys;
mod model;
pub mod names;
mod read;
#[cfg(test)]
mod tests;

pub use cost_tests::{CostTestOutcome, CostTestResult};
pub use keys::{COST_KEYS, DIM_KEYS, TEST_KEYS, schema};
pub use model::{CostCase, ExpectedCost, Formula, GemmDims, UserCost, UserCosts};
pub use read::op_name;
