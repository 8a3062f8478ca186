//! Runs the tests of cost files: a formula without an example is a guess.

use super::{Case, Expect, UserCost, UserCosts};
use crate::base::units::{self, count};
use crate::cost::{OpCost, UnknownCost};

/// A test and how it went.
#[derive(Debug, Clone, PartialEq)]
pub struct Proof {
    /// The file the test stands in.
    pub file: String,
    /// `my_lib::fused_mlp(fp16[8, 64], ...)`.
    pub call: String,
    pub outcome: Outcome,
}

impl Proof {
    pub fn passed(&self) -> bool {
        self.outcome == Outcome::Pass
    }
}

/// How a test went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Pass,
    /// Another number of FLOPs or bytes.
    Differs {
        what: &'static str,
        want: u64,
        got: u64,
    },
    /// It should have a price; says why it has none.
    Unpriced(String),
    /// It should have no price, or no bytes, and has.
    Priced {
        want: UnknownCost,
        flops: u64,
        bytes: u64,
    },
    /// It should have no price, for another reason.
    Reason {
        want: UnknownCost,
        got: UnknownCost,
    },
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Outcome::Pass => write!(f, "ok"),
            Outcome::Differs { what, want, got } => {
                write!(f, "{} {what}, not {}", count(*got), count(*want))
            }
            Outcome::Unpriced(why) => write!(f, "it has no price: {why}"),
            Outcome::Priced { want, flops, bytes } => write!(
                f,
                "it should be unknown ({}), but costs {} FLOPs and {} bytes",
                want.name(),
                count(*flops),
                count(*bytes)
            ),
            Outcome::Reason { want, got } => {
                write!(f, "unknown because of {}, not {}", got.name(), want.name())
            }
        }
    }
}

impl UserCosts {
    /// The tests of a cost as examples: `f(fp16[8, 64]): 1.02 kFLOP, 2.05 kB`.
    pub fn examples(&self, cost: &UserCost) -> Vec<String> {
        let about = |case: &&Case| {
            let found = self.find(&case.op, case.direction, false);
            found.is_some_and(|found| std::ptr::eq(found, cost))
        };
        self.cases.iter().filter(about).map(example).collect()
    }

    /// Runs every test.
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

    fn run(&self, case: &Case) -> Outcome {
        let Some(cost) = self.find(&case.op, case.direction, false) else {
            return Outcome::Unpriced("no cost is about it in this direction".into());
        };
        match (cost.price(&case.args, case.direction, None), case.expect) {
            (Ok(cost), Expect::Price { flops, bytes }) => compare(&cost, flops, bytes),
            (Err((_, why)), Expect::Price { .. }) => Outcome::Unpriced(why),
            (Ok(cost), Expect::Unknown(want)) => Outcome::Priced {
                want,
                flops: cost.flops(),
                bytes: cost.bytes(),
            },
            (Err((got, _)), Expect::Unknown(want)) if got == want => Outcome::Pass,
            (Err((got, _)), Expect::Unknown(want)) => Outcome::Reason { want, got },
        }
    }
}

fn example(case: &Case) -> String {
    let price = match case.expect {
        Expect::Unknown(reason) => format!("unknown, {}", reason.describe()),
        Expect::Price { flops, bytes } => {
            let flops = flops.map(|n| units::flops(n as f64));
            let bytes = bytes.map(|n| units::bytes(n as f64));
            let figures: Vec<String> = [flops, bytes].into_iter().flatten().collect();
            figures.join(", ")
        }
    };
    format!("{}({}): {price}", case.op.display(), case.text)
}

fn compare(cost: &OpCost, flops: Option<u64>, bytes: Option<u64>) -> Outcome {
    if bytes.is_some() && !cost.bytes_known {
        return Outcome::Unpriced(format!("its bytes: {}", UnknownCost::NoDType.describe()));
    }
    let figures = [
        ("FLOPs", flops, cost.flops()),
        ("bytes", bytes, cost.bytes()),
    ];
    for (what, want, got) in figures {
        if let Some(want) = want.filter(|want| *want != got) {
            return Outcome::Differs { what, want, got };
        }
    }
    Outcome::Pass
}
