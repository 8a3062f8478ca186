//! Runs the `[[test]]` entries of cost files.

use super::{CostCase, ExpectedCost, UserCost, UserCosts};
use crate::base::units::{self, count};
use crate::cost::{OpCost, UnknownCost};

/// The result of one test.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The file that defines the test.
    pub file: String,
    /// The call as text, `my_lib::fused_mlp(fp16[8, 64], ...)`.
    pub call: String,
    /// Whether the test passed, or how it failed.
    pub outcome: CaseOutcome,
}

impl Proof {
    /// Whether the test passed.
    pub fn passed(&self) -> bool {
        self.outcome == CaseOutcome::Pass
    }
}

/// Whether a test passed, or how it failed. `Display` prints it for the author of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaseOutcome {
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
    Unpriced(String),
    /// An unknown cost is expected, but it is known.
    Priced {
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

impl std::fmt::Display for CaseOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CaseOutcome::Pass => write!(f, "ok"),
            CaseOutcome::Differs { what, want, got } => {
                write!(f, "{} {what}, not {}", count(*got), count(*want))
            }
            CaseOutcome::Unpriced(why) => write!(f, "cost unknown: {why}"),
            CaseOutcome::Priced { want, flops, bytes } => write!(
                f,
                "it should be unknown ({}), but costs {} FLOPs and {} bytes",
                want.name(),
                count(*flops),
                count(*bytes)
            ),
            CaseOutcome::Reason { want, got } => {
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
    pub fn prove(&self) -> Vec<Proof> {
        self.cases
            .iter()
            .map(|case| Proof {
                file: case.file.to_string(),
                call: format!("{}({})", case.op.display(), case.text),
                outcome: self.run(case),
            })
            .collect()
    }

    fn run(&self, case: &CostCase) -> CaseOutcome {
        let Some(cost) = self.find(&case.op, case.direction, false) else {
            return CaseOutcome::Unpriced("no cost is about it in this direction".into());
        };
        match (cost.price(&case.args, case.direction, None), case.expect) {
            (Ok(cost), ExpectedCost::Price { flops, bytes }) => compare(&cost, flops, bytes),
            (Err((_, why)), ExpectedCost::Price { .. }) => CaseOutcome::Unpriced(why),
            (Ok(cost), ExpectedCost::Unknown(want)) => CaseOutcome::Priced {
                want,
                flops: cost.flops(),
                bytes: cost.bytes(),
            },
            (Err((got, _)), ExpectedCost::Unknown(want)) if got == want => CaseOutcome::Pass,
            (Err((got, _)), ExpectedCost::Unknown(want)) => CaseOutcome::Reason { want, got },
        }
    }
}

fn example(case: &CostCase) -> String {
    let price = match case.expect {
        ExpectedCost::Unknown(reason) => format!("unknown, {}", reason.describe()),
        ExpectedCost::Price { flops, bytes } => {
            let flops = flops.map(|n| units::flops(n as f64));
            let bytes = bytes.map(|n| units::bytes(n as f64));
            let figures: Vec<String> = [flops, bytes].into_iter().flatten().collect();
            figures.join(", ")
        }
    };
    format!("{}({}): {price}", case.op.display(), case.text)
}

fn compare(cost: &OpCost, flops: Option<u64>, bytes: Option<u64>) -> CaseOutcome {
    if bytes.is_some() && !cost.bytes_known {
        return CaseOutcome::Unpriced(format!("its bytes: {}", UnknownCost::NoDType.describe()));
    }
    let figures = [
        ("FLOPs", flops, cost.flops()),
        ("bytes", bytes, cost.bytes()),
    ];
    for (what, want, got) in figures {
        if let Some(want) = want.filter(|want| *want != got) {
            return CaseOutcome::Differs { what, want, got };
        }
    }
    CaseOutcome::Pass
}
