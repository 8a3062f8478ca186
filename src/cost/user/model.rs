//! Costs and tests of a user, and the cost of a call by them.

use std::sync::Arc;

use super::names::{CallContext, CallFailure, Query};
use crate::base::DType;
use crate::base::cel::{self, Value};
use crate::base::glob::Glob;
use crate::correlate::{Direction, OpArgs, OpName};
use crate::cost::kernel_name::{Family, Role};
use crate::cost::model::{Dims, FlopsClass, GemmSize, OpCost, RoleCost, UnknownCost};

/// All costs and tests of a user, in the order of the files.
#[derive(Debug, Clone, Default)]
pub struct UserCosts {
    pub(super) costs: Vec<UserCost>,
    pub(super) cases: Vec<CostCase>,
}

/// A checked `[[cost]]`.
#[derive(Debug, Clone)]
pub struct UserCost {
    /// The operator pattern as written in the file; `.` and `::` are the same.
    pub op: String,
    /// The file that defines it.
    pub file: Arc<str>,
    /// The kind of work.
    pub family: Family,
    /// The only direction it applies to; `None` for all.
    pub direction: Option<Direction>,
    /// Names of the arguments by position.
    pub args: Vec<String>,
    /// The source of the formulas.
    pub source: Option<String>,
    /// FLOPs of one call.
    pub flops: Formula,
    /// Compulsory DRAM bytes of one call.
    pub bytes: Formula,
    /// The dimensions, if the work is a matrix product.
    pub dims: Option<GemmDims>,
    pub(super) pattern: Glob,
}

/// The dimensions of a product `C[batch, m, n] = A[batch, m, k] B[batch, k, n]`.
#[derive(Debug, Clone)]
pub struct GemmDims {
    /// Rows of `A` and `C`.
    pub m: Formula,
    /// Columns of `B` and `C`.
    pub n: Formula,
    /// The dimension summed over.
    pub k: Formula,
    /// Number of independent products; 1 when `None`.
    pub batch: Option<Formula>,
}

/// A checked expression whose value is a number.
#[derive(Debug, Clone)]
pub struct Formula {
    /// The expression as written in the file.
    pub text: String,
    pub(super) expr: cel::Tree<Query>,
}

/// A checked `[[test]]`: an example call and its expected cost.
#[derive(Debug, Clone)]
pub struct CostCase {
    /// The operator that is called.
    pub op: OpName,
    /// The file that defines the test.
    pub file: Arc<str>,
    /// The direction of the call.
    pub direction: Direction,
    /// The arguments of the call.
    pub args: OpArgs,
    /// The arguments as written in the file.
    pub text: String,
    /// The expected cost.
    pub expect: ExpectedCost,
}

/// The result that a test expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedCost {
    /// A known cost.
    Known {
        /// FLOPs of the call; not compared when `None`.
        flops: Option<u64>,
        /// Bytes of the call; not compared when `None`.
        bytes: Option<u64>,
    },
    /// An unknown cost, for this reason.
    Unknown(UnknownCost),
}

/// Why a formula has no value: the reason, and a message for the author of the file.
type CostProblem = (UnknownCost, String);

impl UserCosts {
    /// Whether there are no costs.
    pub fn is_empty(&self) -> bool {
        self.costs.is_empty()
    }

    /// All costs, in the order of the files.
    pub fn costs(&self) -> &[UserCost] {
        &self.costs
    }

    /// All tests, in the order of the files.
    pub fn cases(&self) -> &[CostCase] {
        &self.cases
    }

    /// Whether any cost applies to an operator, in any direction.
    pub fn knows(&self, op: &OpName) -> bool {
        self.costs.iter().any(|c| c.is_about(op))
    }

    /// The cost that applies to a call: one for its direction takes precedence over one for any
    /// direction, then the first in the order of the files.
    ///
    /// `args_from_forward` means that the only known arguments of a backward call are those of its
    /// forward call. A cost for any direction does not apply then: it would return the cost of the
    /// forward.
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

/// The form of an operator's name that patterns are matched against: `.` between all parts.
fn spelled(op: &OpName) -> String {
    undotted(&op.display())
}

pub(super) fn undotted(name: &str) -> String {
    name.replace("::", ".")
}

impl UserCost {
    /// Whether it applies to an operator, in any direction.
    pub fn is_about(&self, op: &OpName) -> bool {
        self.pattern.matches(&spelled(op))
    }

    /// The cost of one call. `kernel_dtype` is the element type in the kernel's name, used for
    /// operands without a recorded type.
    ///
    /// # Errors
    /// The reason why the cost is unknown: data that the profile does not record, or
    /// [`UnknownCost::BadArguments`] when a formula fails.
    pub fn cost(
        &self,
        args: &OpArgs,
        direction: Direction,
        kernel_dtype: Option<DType>,
    ) -> Result<OpCost, UnknownCost> {
        self.cost_or_problem(args, direction, kernel_dtype)
            .map_err(|(reason, _)| reason)
    }

    pub(super) fn cost_or_problem(
        &self,
        args: &OpArgs,
        direction: Direction,
        kernel_dtype: Option<DType>,
    ) -> Result<OpCost, CostProblem> {
        let value = |formula: &Formula| formula.value(args, kernel_dtype);
        let flops = value(&self.flops)?;
        let (bytes, bytes_known) = match value(&self.bytes) {
            Ok(bytes) => (bytes, true),
            // As for built-in costs, FLOPs of math operators are useful without bytes.
            Err((UnknownCost::NoDType, _)) if self.family.is_math() => (0, false),
            Err(problem) => return Err(problem),
        };
        let dims = match &self.dims {
            None => Dims::None,
            Some(dims) => Dims::Gemm(GemmSize {
                batch: dims.batch.as_ref().map_or(Ok(1), value)?,
                m: value(&dims.m)?,
                n: value(&dims.n)?,
                k: value(&dims.k)?,
                // A cost file does not describe the strides of the operands.
                contiguous: (false, false, false),
            }),
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
            at_most: false,
            sequence: 1,
        })
    }
}

impl Formula {
    /// The value for a call, rounded to an integer; negative values are errors.
    fn value(&self, args: &OpArgs, kernel_dtype: Option<DType>) -> Result<u64, CostProblem> {
        let context = CallContext { args, kernel_dtype };
        let fault = |why: String| (UnknownCost::BadArguments, format!("`{}`: {why}", self.text));
        match cel::value(&self.expr, &context) {
            Ok(Value::Int(i)) => u64::try_from(i).map_err(|_| fault(format!("{i} is negative"))),
            // A count of 2^63 or more is a mistake in the formula.
            Ok(Value::Double(d)) if (0.0..9.223_372_036_854_776e18).contains(&d) => {
                Ok(d.round() as u64)
            }
            Ok(Value::Double(d)) => Err(fault(format!("{d} is no count"))),
            Ok(_) => Err(fault("no number".into())),
            Err(CallFailure::Query(reason, query)) => {
                Err((reason, format!("`{query}`: {}", reason.describe())))
            }
            Err(CallFailure::Fault(why)) => Err(fault(why)),
        }
    }
}
