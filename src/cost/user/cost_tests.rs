//! Runs the `[[test]]` entries of cost files.

use super::model::{CostCase, ExpectedCost, UserCost, UserCosts};
use crate::base::units::{self, count};
use crate::cost::model::{OpCost, UnknownCost};

/// The result of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct CostTestResult {
    /// The file that defines the test.
    pub file: String,
    /// The call as text, `my_lib::fused_mlp(fp16[8, 64], ...)`.
    pub call: String,
    /// Whether the test passed, or how it failed.
    pub outcome: CostTestOutcome,
}

impl CostTestResult {
    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.outcome == CostTestOutcome::Pass
    }
}

/// Whether a test passed, or how it failed. `Display` prints it for the author of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostTestOutcome {
    /// The cost is as expected.
    Pass,
    /// The number of FLOPs or bytes differs.
    Differs {
        /// The unit of the number: `FLOPs` or `bytes`.
        what: &'static str,
        /// The expected number.
        want: u64,
        /// The actual number.
        got: u64,
    },
    /// A known cost is expected, but it is unknown; with the reason as text.
    CostUnknown(String),
    /// An unknown cost is expected, but it is known.
    CostKnown {
        /// The expected reason.
        want: UnknownCost,
        /// The actual FLOPs.
        flops: u64,
        /// The actual bytes.
        bytes: u64,
    },
    /// The cost is unknown for another reason than expected.
    Reason {
        /// The expected reason.
        want: UnknownCost,
        /// The actual reason.
        got: UnknownCost,
    },
}

impl std::fmt::Display for CostTestOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CostTestOutcome::Pass => write!(f, "ok"),
            CostTestOutcome::Differs { what, want, got } => {
                write!(f, "{} {what}, not {}", count(*got), count(*want))
            }
            CostTestOutcome::CostUnknown(why) => write!(f, "cost unknown: {why}"),
            CostTestOutcome::CostKnown { want, flops, bytes } => write!(
                f,
                "it should be unknown ({}), but costs {} FLOPs and {} bytes",
                want.name(),
                count(*flops),
                count(*bytes)
            ),
            CostTestOutcome::Reason { want, got } => {
                write!(f, "unknown because of {}, not {}", got.name(), want.name())
            }
        }
    }
}

impl UserCosts {
    /// The tests of a cost as lines of text: `f(fp16[8, 64]): 1.02 kFLOP, 2.05 kB`.
    pub fn examples(&self, cost: &UserCost) -> Vec<String> {
        let about = |case: &&CostCase| {
            let found = self.find(&case.op, case.direction, false);
            found.is_some_and(|found| std::ptr::eq(found, cost))
        };
        self.cases.iter().filter(about).map(example).collect()
    }

    /// Runs all tests, in the order of the files.
    pub fn run_tests(&self) -> Vec<CostTestResult> {
        self.cases
            .iter()
            .map(|case| CostTestResult {
                file: case.file.to_string(),
                call: format!("{}({})", case.op.display(), case.text),
                outcome: self.run(case),
            })
            .collect()
    }

    fn run(&self, case: &CostCase) -> CostTestOutcome {
        let Some(cost) = self.find(&case.op, case.direction, false) else {
            return CostTestOutcome::CostUnknown("no cost is about it in this direction".into());
        };
        match (
            cost.cost_or_problem(&case.args, case.direction, None),
            case.expect,
        ) {
            (Ok(cost), ExpectedCost::Known { flops, bytes }) => compare(&cost, flops, bytes),
            (Err((_, why)), ExpectedCost::Known { .. }) => CostTestOutcome::CostUnknown(why),
            (Ok(cost), ExpectedCost::Unknown(want)) => CostTestOutcome::CostKnown {
                want,
                flops: cost.flops(),
                bytes: cost.bytes(),
            },
            (Err((got, _)), ExpectedCost::Unknown(want)) if got == want => CostTestOutcome::Pass,
            (Err((got, _)), ExpectedCost::Unknown(want)) => CostTestOutcome::Reason { want, got },
        }
    }
}

fn example(case: &CostCase) -> String {
    let cost = match case.expect {
        ExpectedCost::Unknown(reason) => format!("unknown, {}", reason.describe()),
        ExpectedCost::Known { flops, bytes } => {
            let flops = flops.map(|n| units::flops(n as f64));
            let bytes = bytes.map(|n| units::bytes(n as f64));
            let figures: Vec<String> = [flops, bytes].into_iter().flatten().collect();
            figures.join(", ")
        }
    };
    format!("{}({}): {cost}", case.op.display(), case.text)
}

fn compare(cost: &OpCost, flops: Option<u64>, bytes: Option<u64>) -> CostTestOutcome {
    if bytes.is_some() && !cost.bytes_known {
        return CostTestOutcome::CostUnknown(format!(
            "its bytes: {}",
            UnknownCost::NoDType.describe()
        ));
    }
    let figures = [
        ("FLOPs", flops, cost.flops()),
        ("bytes", bytes, cost.bytes()),
    ];
    for (what, want, got) in figures {
        if let Some(want) = want.filter(|want| *want != got) {
            return CostTestOutcome::Differs { what, want, got };
        }
    }
    CostTestOutcome::Pass
}
