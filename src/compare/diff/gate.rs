//! Whether a comparison shows a regression: for `--fail-on regression=3%`.

use super::model::Diff;
use super::{SAME, normalized};
use crate::base::units::percent;

/// What a gate decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// No slowdown beyond the limit, where one would have been found.
    Pass,
    /// Slower by this share, which is more than the limit and more than chance explains.
    Fail(f64),
    /// It cannot be told, with the reason.
    Unknown(String),
}

/// Whether the second report is slower by more than `limit`, a share, and by more than chance explains.
/// Fewer than 1 of 1,000 pairs of equal runs fail.
pub fn gate(diff: &Diff, limit: f64) -> Decision {
    if let Some(why) = &diff.regression_unknown {
        return Decision::Unknown(why.clone());
    }
    let (Some(ratio), Some(noise)) = (normalized(diff), &diff.noise) else {
        return Decision::Unknown("nothing is known of the noise".to_owned());
    };
    let least = noise.gate_share.max(SAME);
    if ratio - 1.0 > limit.max(least) {
        return Decision::Fail(ratio - 1.0);
    }
    match least > limit.max(SAME) {
        true => Decision::Unknown(format!(
            "repetitions differ by {} and {}, so that a slowdown below {} could not be found; measured is {}. \
             Record more repetitions, or on a quieter machine",
            percent(noise.before_deviation),
            percent(noise.after_deviation),
            percent(noise.detectable_share.max(limit)),
            crate::base::units::change(ratio)
        )),
        false => Decision::Pass,
    }
}

/// Why it is not known whether there is a regression.
pub(super) fn unknown(diff: &Diff) -> Option<String> {
    if diff.gpus_differ {
        return Some("the GPUs differ".to_owned());
    }
    if !diff.comparable {
        return Some("the profiles have nothing in common that can be compared".to_owned());
    }
    if diff.unit.is_call() {
        return Some("the profiles have no unit of work in common, such as steps".to_owned());
    }
    diff.noise_unknown
        .as_ref()
        .map(|why| format!("the noise is unknown: {why}"))
}
