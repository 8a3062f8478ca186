//! How much steps of one run differ among themselves, and by how much two means may differ for that
//! reason alone.

use std::collections::BTreeMap;

use super::model::Noise;
use crate::report::Report;

/// Steps of a run from which its noise is known.
const ENOUGH: usize = 3;

/// Student's t for 95 % of both sides, for 1 to 10 degrees of freedom: NIST/SEMATECH e-Handbook of
/// Statistical Methods, 1.3.6.7.2, <https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm>.
const T_95: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// By how much the means of the steps of two reports may differ by chance: Welch's interval, which
/// asks for no equal variances.
///
/// # Errors
/// With the reason, when it is not known.
pub(super) fn of(before: &Report, after: &Report) -> Result<Noise, String> {
    let (x, y) = (lengths(before)?, lengths(after)?);
    let (Some(x), Some(y)) = (Moments::of(&x), Moments::of(&y)) else {
        return Err(format!(
            "it takes {ENOUGH} steps of each run, and there are {} before and {} after",
            x.len(),
            y.len()
        ));
    };
    let (vx, vy) = (x.variance / x.count, y.variance / y.count);
    let error = (vx + vy).sqrt();
    // Welch-Satterthwaite.
    let freedom = (vx + vy).powi(2)
        / (vx.powi(2) / (x.count - 1.0) + vy.powi(2) / (y.count - 1.0)).max(f64::MIN_POSITIVE);
    Ok(Noise {
        share: super::share(t(freedom) * error, x.mean),
        before_steps: x.count as u64,
        after_steps: y.count as u64,
        before_deviation: super::share(x.variance.sqrt(), x.mean),
        after_deviation: super::share(y.variance.sqrt(), y.mean),
    })
}

/// The lengths of the judged steps; of several processes the mean, for their steps go together.
fn lengths(report: &Report) -> Result<Vec<f64>, String> {
    if report.summary.host_step_ns.is_some() {
        return Err(
            "the host runs ahead of the GPU, so that the lengths of its steps are not those of the work"
                .to_owned(),
        );
    }
    let mut steps: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for step in report.timeline.steps.iter().filter(|s| !s.warmup) {
        let (sum, count) = steps.entry(step.number).or_default();
        *sum += step.ns as f64;
        *count += 1.0;
    }
    Ok(steps
        .into_values()
        .map(|(sum, count)| sum / count)
        .collect())
}

struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Moments {
    fn of(values: &[f64]) -> Option<Moments> {
        if values.len() < ENOUGH {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Some(Moments {
            count,
            mean,
            variance: squares / (count - 1.0),
        })
    }
}

/// Student's t; beyond the table by the first term of its expansion around the normal distribution.
fn t(freedom: f64) -> f64 {
    let whole = if freedom.is_finite() { freedom } else { 1.0 };
    let index = (whole.floor().max(1.0) as usize).saturating_sub(1);
    match T_95.get(index) {
        Some(value) => *value,
        None => 1.96 + 2.4 / whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn student_is_near_the_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (4.9, 2.776), (10.0, 2.228)] {
            assert!((t(freedom) - wanted).abs() < 1e-9);
        }
        for (freedom, wanted) in [(12.0, 2.179), (20.0, 2.086), (60.0, 2.0), (1e9, 1.96)] {
            assert!(
                (t(freedom) - wanted).abs() < 0.02,
                "{freedom}: {}",
                t(freedom)
            );
        }
        assert_eq!(t(f64::NAN), 12.706);
    }

    #[test]
    fn moments_need_three() {
        assert!(Moments::of(&[1.0, 2.0]).is_none());
        let m = Moments::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((m.count, m.mean, m.variance), (3.0, 2.0, 1.0));
    }
}
