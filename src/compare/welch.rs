//! Whether two sets of repetitions differ by more than chance: the statistics of `diff` and of `try`.

use crate::base::statistics::mean_and_deviation;
use crate::report::share;

/// Relative differences below this count as none, as for the ranks of a job.
pub(crate) const SAME: f64 = 0.02;

/// Fewest repetitions of a run for which noise is known.
pub(crate) const ENOUGH: usize = 3;

/// Quantiles of Student's t with 1 to 10 degrees of freedom: NIST/SEMATECH e-Handbook of Statistical
/// Methods, 1.3.6.7.2, <https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm>. For a two-sided
/// 95 % interval ...
const T_95: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];
/// ... and for a one-sided one of 99.9 %, which 1 of 1,000 equal runs exceeds.
const T_999: [f64; 10] = [
    318.313, 22.327, 10.215, 7.173, 5.893, 5.208, 4.782, 4.499, 4.296, 4.143,
];
/// The same quantiles of the normal distribution.
const Z_95: f64 = 1.96;
const Z_999: f64 = 3.09;
/// The quantile that 95 of 100 exceed from below.
const Z_POWER: f64 = 1.645;

/// How much the means of two runs may differ by chance. Shares are of the mean before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Welch {
    /// Mean of the repetitions before.
    pub(crate) before: f64,
    /// Mean of the repetitions after.
    pub(crate) after: f64,
    /// Half of the 95 % confidence interval of the difference of the means.
    pub(crate) share: f64,
    /// The same for a one-sided interval of 99.9 %.
    pub(crate) gate_share: f64,
    /// Smallest slowdown beyond [`SAME`] that a gate finds in 95 of 100 runs like these.
    pub(crate) detectable_share: f64,
    /// Sample standard deviation of the repetitions before, as a share of their mean.
    pub(crate) before_deviation: f64,
    /// Sample standard deviation of the repetitions after, as a share of their mean.
    pub(crate) after_deviation: f64,
}

/// Compares repetitions before and after by Welch's interval, which does not assume equal variances.
///
/// # Errors
/// With the reason when the noise is not known.
pub(crate) fn welch(before: &[f64], after: &[f64]) -> Result<Welch, String> {
    let (Some(x), Some(y)) = (Moments::of(before), Moments::of(after)) else {
        return Err(format!(
            "it takes {ENOUGH} repetitions in each run, and there are {} before and {} after",
            before.len(),
            after.len()
        ));
    };
    let (vx, vy) = (x.variance / x.count, y.variance / y.count);
    let error = (vx + vy).sqrt();
    // Degrees of freedom after Welch and Satterthwaite.
    let freedom = (vx + vy).powi(2)
        / (vx.powi(2) / (x.count - 1.0) + vy.powi(2) / (y.count - 1.0)).max(f64::MIN_POSITIVE);
    let gate_share = share(t(&T_999, Z_999, freedom) * error, x.mean);
    Ok(Welch {
        before: x.mean,
        after: y.mean,
        share: share(t(&T_95, Z_95, freedom) * error, x.mean),
        gate_share,
        detectable_share: gate_share.max(SAME) + share(Z_POWER * error, x.mean),
        before_deviation: share(x.deviation, x.mean),
        after_deviation: share(y.deviation, y.mean),
    })
}

/// Whether a change exceeds the noise, a share, and 2 %.
pub(crate) fn is_beyond(ratio: f64, noise: f64) -> bool {
    (ratio - 1.0).abs() > noise.max(SAME)
}

struct Moments {
    count: f64,
    mean: f64,
    deviation: f64,
    /// Variance, higher where neighbors are alike: then the values hold less than their number says.
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Moments> {
        if values.len() < ENOUGH {
            return None;
        }
        let (mean, deviation) = mean_and_deviation(values);
        let (mean, deviation) = (mean?, deviation?);
        let count = values.len() as f64;
        let squares = deviation.powi(2) * (count - 1.0);
        let pairs = values.iter().zip(values.iter().skip(1));
        let together: f64 = pairs.map(|(a, b)| (a - mean) * (b - mean)).sum();
        // The correlation of a few values is itself noise.
        let correlation = share(together, squares).clamp(0.0, 0.9);
        let known = (1.0 - 10.0 / count).max(0.0);
        let factor = 1.0 + known * (2.0 * correlation / (1.0 - correlation));
        Some(Moments {
            count,
            mean,
            deviation,
            variance: deviation.powi(2) * factor,
        })
    }
}

/// Quantile of Student's t; beyond the table by the first terms of its expansion around the quantile `z` of
/// the normal distribution.
fn t(table: &[f64; 10], z: f64, freedom: f64) -> f64 {
    let whole = if freedom.is_finite() { freedom } else { 1.0 };
    let index = (whole.floor().max(1.0) as usize).saturating_sub(1);
    match table.get(index) {
        Some(value) => *value,
        None => {
            let first = (z.powi(3) + z) / 4.0;
            let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
            z + first / whole + second / whole.powi(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_t_is_near_the_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (4.9, 2.776), (10.0, 2.228)] {
            assert!((t(&T_95, Z_95, freedom) - wanted).abs() < 1e-9);
        }
        for (freedom, wanted) in [(12.0, 2.179), (20.0, 2.086), (60.0, 2.0), (1e9, 1.96)] {
            let t = t(&T_95, Z_95, freedom);
            assert!((t - wanted).abs() < 0.02, "{freedom}: {t}");
        }
        for (freedom, wanted) in [(12.0, 3.930), (20.0, 3.552), (60.0, 3.232)] {
            let t = t(&T_999, Z_999, freedom);
            assert!((t - wanted).abs() < 0.03, "{freedom}: {t}");
        }
        assert_eq!(t(&T_95, Z_95, f64::NAN), 12.706);
    }

    #[test]
    fn moments_need_three_steps() {
        assert!(Moments::of(&[1.0, 2.0]).is_none());
        let m = Moments::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((m.count, m.mean, m.variance), (3.0, 2.0, 1.0));
    }

    #[test]
    fn drifting_steps_are_noisier_than_their_deviation() {
        let drift: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i / 10)).collect();
        let shuffled: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i % 4)).collect();
        let (drift, shuffled) = (
            Moments::of(&drift).unwrap(),
            Moments::of(&shuffled).unwrap(),
        );
        assert!(drift.variance > 2.0 * shuffled.variance);
    }
}
