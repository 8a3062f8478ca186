//! Compares what runs of a program compute.

use serde::{Deserialize, Serialize};

use crate::base::units::{percent, significant};
use crate::capture::CheckValues;

/// Below this size, values are compared as if they had it: a loss of zero has no relative difference.
const TINY: f64 = 1e-12;

/// The first values that a run has computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    /// `loss` or `output`.
    what: String,
    values: Vec<f64>,
}

impl Values {
    /// The values of a run; `None` where one is not a number as Python prints it.
    pub(crate) fn of(check: &CheckValues) -> Option<Values> {
        let values: Result<Vec<f64>, _> = check.values.iter().map(|text| text.parse()).collect();
        Some(Values {
            what: check.what.clone(),
            values: values.ok()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn losses(values: &[f64]) -> Values {
        Values {
            what: "loss".to_owned(),
            values: values.to_vec(),
        }
    }

    /// The largest difference, relative to the larger of two values; infinite where only one is finite.
    fn difference(&self, other: &Values) -> f64 {
        if self.what != other.what {
            return f64::INFINITY;
        }
        let apart = |(a, b): (&f64, &f64)| match (a.is_finite(), b.is_finite()) {
            (true, true) => (a - b).abs() / a.abs().max(b.abs()).max(TINY),
            (false, false) => 0.0,
            _ => f64::INFINITY,
        };
        let pairs = self.values.iter().zip(&other.values);
        pairs.map(apart).fold(0.0, f64::max)
    }
}

/// Whether a treated program computes the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Check {
    /// The result.
    pub(crate) result: CheckResult,
    /// What was compared: `loss`, the scalar on which `backward()` is called, or `output`, the norm of what
    /// the model returns; `null` where nothing was.
    pub(crate) what: Option<String>,
    /// Number of values that were compared, from the first.
    pub(crate) values: u64,
    /// The largest relative difference; `null` where nothing was compared or it is infinite.
    pub(crate) difference: Option<f64>,
    /// The largest relative difference that counts as the same.
    pub(crate) tolerance: f64,
    /// The result in words.
    pub(crate) text: String,
}

/// The result of a comparison of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum CheckResult {
    /// Within the tolerance.
    Same,
    /// Beyond the tolerance.
    Differs,
    /// Nothing to compare, or untreated runs differ among themselves.
    NotChecked,
}

/// Compares the runs with a treatment with those without.
pub(crate) fn check(untreated: &[Values], treated: &[Values], tolerance: f64) -> Check {
    let not_checked = |why: String| Check {
        result: CheckResult::NotChecked,
        what: None,
        values: 0,
        difference: None,
        tolerance,
        text: format!("not checked: {why}"),
    };
    let (Some(first), Some(_)) = (untreated.first(), treated.first()) else {
        return not_checked("the program calls no backward() and returns no tensor".to_owned());
    };
    if untreated.len() < 2 {
        return not_checked("it takes two runs without treatments".to_owned());
    }
    let largest = |runs: &[Values]| {
        runs.iter()
            .map(|run| first.difference(run))
            .fold(0.0, f64::max)
    };
    let own = largest(untreated);
    if own > tolerance {
        return not_checked(format!(
            "two runs without it already differ by {}",
            shown(own)
        ));
    }
    let difference = largest(treated);
    let is_same = difference <= tolerance;
    let values = treated
        .iter()
        .map(|run| run.values.len())
        .min()
        .unwrap_or(0);
    let values = values.min(first.values.len());
    let limit = shown(tolerance);
    let what = &first.what;
    Check {
        result: match is_same {
            true => CheckResult::Same,
            false => CheckResult::Differs,
        },
        what: Some(what.clone()),
        values: values as u64,
        difference: difference.is_finite().then_some(difference),
        tolerance,
        text: match is_same {
            true => format!(
                "{what} same within {limit} (differs by {})",
                shown(difference)
            ),
            false => format!("{what} DIFFERS by {}, more than {limit}", shown(difference)),
        },
    }
}

/// A relative difference in percent, with as many digits as it takes.
pub(super) fn shown(difference: f64) -> String {
    match difference {
        0.0 => "nothing".to_owned(),
        d if !d.is_finite() => "a value that is not a number".to_owned(),
        d if d < 1e-6 => "less than 0.0001 %".to_owned(),
        d if d < 1e-3 => format!("{} %", significant(d * 100.0)),
        d => percent(d),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(untreated: &[&[f64]], treated: &[&[f64]], tolerance: f64) -> (CheckResult, String) {
        let values = |runs: &[&[f64]]| -> Vec<Values> {
            runs.iter().map(|run| Values::losses(run)).collect()
        };
        let check = check(&values(untreated), &values(treated), tolerance);
        (check.result, check.text)
    }

    #[test]
    fn values_are_compared_relative_to_their_size() {
        let same: &[&[f64]] = &[&[2.0, 1.0], &[2.0, 1.0]];
        let (result_, text) = result(same, &[&[2.0, 1.0]], 1e-3);
        assert_eq!(result_, CheckResult::Same);
        assert_eq!(text, "loss same within 0.1 % (differs by nothing)");
        assert_eq!(result(same, &[&[2.001, 1.0]], 1e-3).0, CheckResult::Same);
        let (result_, text) = result(same, &[&[2.0, 1.1]], 1e-2);
        assert_eq!(result_, CheckResult::Differs);
        assert_eq!(text, "loss DIFFERS by 9.1 %, more than 1.0 %");
    }

    #[test]
    fn a_value_that_is_not_a_number_differs_from_one_that_is() {
        let same: &[&[f64]] = &[&[2.0], &[2.0]];
        assert_eq!(result(same, &[&[f64::NAN]], 0.5).0, CheckResult::Differs);
        let nan: &[&[f64]] = &[&[f64::NAN], &[f64::NAN]];
        assert_eq!(result(nan, &[&[f64::NAN]], 0.5).0, CheckResult::Same);
    }

    #[test]
    fn runs_that_differ_among_themselves_are_not_checked() {
        let (result_, text) = result(&[&[1.0], &[1.5]], &[&[1.0]], 1e-2);
        assert_eq!(result_, CheckResult::NotChecked);
        assert_eq!(
            text,
            "not checked: two runs without it already differ by 33 %"
        );
        assert_eq!(
            result(&[&[1.0]], &[&[1.0]], 1e-2).0,
            CheckResult::NotChecked
        );
        assert_eq!(result(&[], &[], 1e-2).0, CheckResult::NotChecked);
    }
}
