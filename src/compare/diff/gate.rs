//! Whether a comparison shows a regression: for `--fail-on regression=3%`.

use super::measures::{normalized, normalized_range};
use super::model::Diff;
use crate::base::text::list;
use crate::base::units::percent;
use crate::compare::welch::SAME;
use crate::report::Report;

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
    let known = normalized(diff).zip(normalized_range(diff));
    let (Some((ratio, (low, high))), Some(noise)) = (known, &diff.noise) else {
        return Decision::Unknown("nothing is known of the noise".to_owned());
    };
    let least = noise.gate_share.max(SAME);
    let is_slower = |ratio: f64| ratio - 1.0 > limit.max(least);
    if is_slower(low) {
        return Decision::Fail(low - 1.0);
    }
    if is_slower(high) {
        return Decision::Unknown(format!(
            "the change is {} to {}, depending on how much recording slowed the host down on each side",
            crate::base::units::change(low),
            crate::base::units::change(high)
        ));
    }
    if let Some(range) = &diff.contradicting
        && is_slower(range.wall.ratio)
    {
        return Decision::Unknown(format!(
            "the units of work are not slower, but `{}` around them took {} longer; the noise of that is not known, \
             because it was recorded once",
            range.name,
            percent(range.wall.ratio - 1.0)
        ));
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

/// Why a trace that ends in the middle cannot tell whether there is a regression.
pub(super) fn cut(before: &Report, after: &Report) -> Option<String> {
    let files: Vec<&str> = [before, after]
        .iter()
        .flat_map(|report| report.cut_files.iter().map(String::as_str))
        .collect();
    let verb = if files.len() == 1 { "ends" } else { "end" };
    (!files.is_empty()).then(|| format!("{} {verb} in the middle", list(&files)))
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
    if let (None, Some(why)) = (&diff.wall, &diff.wall_not_compared) {
        return Some(format!("wall times are not compared, because {why}"));
    }
    diff.noise_unknown
        .as_ref()
        .map(|why| format!("the noise is unknown: {why}"))
}
