//! Costs users write: FLOPs and bytes of their own functions and modules, in TOML.
//!
//! A `[[cost]]` names an operator, or several with `*`, and says what a call costs in expressions
//! over its arguments; a `[[test]]` holds it to that. A user's cost wins over the built-in one.
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

use std::path::PathBuf;
use std::sync::Arc;

use super::{Dims, Family, FlopsClass, OpCost, Role, RoleCost, UnknownCost};
use crate::base::DType;
use crate::base::cel::{self, Value};
use crate::base::diag::{Complaints, Source};
use crate::base::glob::Glob;
use crate::correlate::{Direction, OpArgs, OpName};
use names::{CallContext, Failed, Query};

mod argument;
mod keys;
pub mod names;
mod prove;
mod read;
#[cfg(test)]
mod tests;

pub use keys::{COST_KEYS, DIM_KEYS, TEST_KEYS, schema};
pub use prove::{Outcome, Proof};
pub use read::op_name;

/// The costs of a user, in the order of the files.
#[derive(Debug, Clone, Default)]
pub struct UserCosts {
    costs: Vec<UserCost>,
    cases: Vec<Case>,
}

/// One `[[cost]]`, checked.
#[derive(Debug, Clone)]
pub struct UserCost {
    /// As it is written; `.` and `::` are the same.
    pub op: String,
    /// The file it stands in.
    pub file: Arc<str>,
    pub family: Family,
    /// Calls of this direction only.
    pub direction: Option<Direction>,
    /// Names of the arguments, by position.
    pub args: Vec<String>,
    /// Where the formulas come from.
    pub source: Option<String>,
    pub flops: Formula,
    pub bytes: Formula,
    pub dims: Option<GemmDims>,
    pattern: Glob,
}

/// The dimensions of a product `C[batch, m, n] = A[batch, m, k] B[batch, k, n]`.
#[derive(Debug, Clone)]
pub struct GemmDims {
    pub m: Formula,
    pub n: Formula,
    pub k: Formula,
    pub batch: Option<Formula>,
}

/// A checked expression that gives a number.
#[derive(Debug, Clone)]
pub struct Formula {
    /// As the file has it.
    pub text: String,
    expr: cel::Expr<Query>,
}

/// A `[[test]]`: a call, and what it costs.
#[derive(Debug, Clone)]
pub struct Case {
    pub op: OpName,
    pub file: Arc<str>,
    pub direction: Direction,
    pub args: OpArgs,
    /// The arguments as the file has them.
    pub text: String,
    pub expect: Expect,
}

/// What a test expects. A figure that is not given is not compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Price {
        flops: Option<u64>,
        bytes: Option<u64>,
    },
    Unknown(UnknownCost),
}

/// Why a formula has no value: the reason, and the same in words for the author.
type Trouble = (UnknownCost, String);

impl UserCosts {
    /// Reads and checks the files at some paths.
    ///
    /// # Errors
    /// What could not be read, and everything that is wrong with the rest.
    pub fn load(paths: &[PathBuf]) -> Result<UserCosts, Complaints> {
        let complaints = Complaints::new();
        let mut sources = Vec::new();
        for path in paths {
            match Source::read(path) {
                Ok(source) => sources.push(source),
                Err(complaint) => complaints.push(complaint),
            }
        }
        match UserCosts::read(&sources) {
            Ok(costs) if !complaints.has_errors() => return Ok(costs),
            Ok(_) => {}
            Err(others) => {
                for complaint in others.sorted() {
                    complaints.push(complaint);
                }
            }
        }
        Err(complaints)
    }

    /// Reads and checks files.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn read(sources: &[Arc<Source>]) -> Result<UserCosts, Complaints> {
        read::files(sources)
    }

    pub fn is_empty(&self) -> bool {
        self.costs.is_empty()
    }

    pub fn costs(&self) -> &[UserCost] {
        &self.costs
    }

    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Whether a cost is about an operator, whatever its direction.
    pub fn knows(&self, op: &OpName) -> bool {
        self.costs.iter().any(|c| c.is_about(op))
    }

    /// The cost of a call: one for its direction before one for any, then in the order of the files.
    ///
    /// Backward work that is known only by its forward call's arguments is priced by a cost for that
    /// direction: what the forward costs says nothing of it.
    pub fn find(
        &self,
        op: &OpName,
        direction: Direction,
        args_from_forward: bool,
    ) -> Option<&UserCost> {
        if self.costs.is_empty() {
            return None;
        }
        let name = spelled(op);
        let about = || self.costs.iter().filter(|c| c.pattern.matches(&name));
        about()
            .find(|c| c.direction == Some(direction))
            .or_else(|| about().find(|c| c.direction.is_none() && !args_from_forward))
    }
}

/// An operator's name as patterns are matched against it: `.` between all parts.
fn spelled(op: &OpName) -> String {
    undotted(&op.display())
}

fn undotted(name: &str) -> String {
    name.replace("::", ".")
}

impl UserCost {
    /// Whether it is about an operator, whatever its direction.
    pub fn is_about(&self, op: &OpName) -> bool {
        self.pattern.matches(&spelled(op))
    }

    /// What one call costs.
    ///
    /// # Errors
    /// What the profile does not record, or [`UnknownCost::BadArguments`] where the formulas fail.
    pub fn cost(
        &self,
        args: &OpArgs,
        direction: Direction,
        kernel_dtype: Option<DType>,
    ) -> Result<OpCost, UnknownCost> {
        self.price(args, direction, kernel_dtype)
            .map_err(|(reason, _)| reason)
    }

    fn price(
        &self,
        args: &OpArgs,
        direction: Direction,
        kernel_dtype: Option<DType>,
    ) -> Result<OpCost, Trouble> {
        let value = |formula: &Formula| formula.value(args, kernel_dtype);
        let flops = value(&self.flops)?;
        let (bytes, bytes_known) = match value(&self.bytes) {
            Ok(bytes) => (bytes, true),
            // As for built-in costs: the FLOPs of matrix work are worth having alone.
            Err((UnknownCost::NoDType, _)) if self.family.is_math() => (0, false),
            Err(trouble) => return Err(trouble),
        };
        let dims = match &self.dims {
            None => Dims::None,
            Some(dims) => Dims::Gemm {
                batch: dims.batch.as_ref().map_or(Ok(1), value)?,
                m: value(&dims.m)?,
                n: value(&dims.n)?,
                k: value(&dims.k)?,
                // The file does not say how its operands lie in memory: nothing is claimed.
                contiguous: (false, false, false),
            },
        };
        let role = match direction {
            Direction::Bprop => Role::Bwd,
            Direction::Update => Role::Opt,
            Direction::Fprop | Direction::Unknown => Role::Fwd,
        };
        let class = match (flops, self.family.is_math()) {
            (0, _) => FlopsClass::Zero,
            (_, true) => FlopsClass::Exact,
            (_, false) => FlopsClass::Convention,
        };
        Ok(OpCost {
            family: self.family,
            class,
            roles: vec![RoleCost {
                role,
                flops,
                bytes,
                dims,
            }],
            note: None,
            bytes_known,
        })
    }
}

impl Formula {
    /// A number that is not negative, rounded.
    fn value(&self, args: &OpArgs, kernel_dtype: Option<DType>) -> Result<u64, Trouble> {
        let context = CallContext { args, kernel_dtype };
        let fault = |why: String| (UnknownCost::BadArguments, format!("`{}`: {why}", self.text));
        match cel::value(&self.expr, &context) {
            Ok(Value::Int(i)) => u64::try_from(i).map_err(|_| fault(format!("{i} is negative"))),
            // Beyond 2^63 a count means nothing.
            Ok(Value::Double(d)) if (0.0..9.223_372_036_854_776e18).contains(&d) => {
                Ok(d.round() as u64)
            }
            Ok(Value::Double(d)) => Err(fault(format!("{d} is no count"))),
            Ok(_) => Err(fault("no number".into())),
            Err(Failed::Query(reason, query)) => {
                Err((reason, format!("`{query}`: {}", reason.describe())))
            }
            Err(Failed::Fault(why)) => Err(fault(why)),
        }
    }
}
