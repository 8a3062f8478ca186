//! Run-to-run noise: how much the means of the steps of two runs differ by chance.

use std::collections::BTreeMap;

use super::model::{Noise, NoiseOf};
use crate::report::{Report, StepRow};

/// Fewest steps of a run for which noise is known.
const ENOUGH: usize = 3;

/// Quantiles of Student's t for a two-sided 95 % interval with 1 to 10 degrees of freedom:
/// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2,
/// <https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm>.
const T_95: [f64; 10] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
];

/// How much the means of two runs may differ by chance: Welch's interval, which does not assume equal
/// variances. `of`: lengths of the steps, or GPU time in them.
///
/// # Errors
/// With the reason when the noise is not known.
pub(super) fn of(of: NoiseOf, before: &Report, after: &Report) -> Result<Noise, String> {
    let (x, y) = (values(of, before)?, values(of, after)?);
    let (Some(mx), Some(my)) = (Moments::of(&x), Moments::of(&y)) else {
        return Err(format!(
            "it takes {ENOUGH} steps of each run, and there are {} before and {} after",
            x.len(),
            y.len()
        ));
    };
    let (x, y) = (mx, my);
    let (vx, vy) = (x.variance / x.count, y.variance / y.count);
    let error = (vx + vy).sqrt();
    // Degrees of freedom after Welch and Satterthwaite.
    let freedom = (vx + vy).powi(2)
        / (vx.powi(2) / (x.count - 1.0) + vy.powi(2) / (y.count - 1.0)).max(f64::MIN_POSITIVE);
    Ok(Noise {
        of,
        share: super::share(t(freedom) * error, x.mean),
        before_steps: x.count as u64,
        after_steps: y.count as u64,
        before_deviation: super::share(x.variance.sqrt(), x.mean),
        after_deviation: super::share(y.variance.sqrt(), y.mean),
    })
}

/// One value per analysed step; the mean over processes, because their steps run together.
fn values(of: NoiseOf, report: &Report) -> Result<Vec<f64>, String> {
    let steps = report.timeline.steps.iter().filter(|s| !s.warmup);
    let ahead = report.summary.host_step_ns.is_some();
    let value = |step: &StepRow| match of {
        NoiseOf::GpuTime if step.kernel_ns > 0 => Some(step.kernel_ns as f64),
        NoiseOf::GpuTime => None,
        // The host runs ahead: the start of each step on the GPU counts.
        NoiseOf::Step if ahead => Some(step.gpu_start_ns? as f64),
        NoiseOf::Step => Some(step.ns as f64),
    };
    let values = steps.map(|s| Some((s.number, value(s)?)));
    let values: Option<Vec<(u64, f64)>> = values.collect();
    let values = by_step(&values.ok_or("what the GPU did for each step is not known")?);
    if of == NoiseOf::Step && ahead {
        let pairs = values.iter().zip(values.iter().skip(1));
        return Ok(pairs.map(|(this, next)| next - this).collect());
    }
    Ok(values)
}

/// Mean of the values of each step, in the order of the steps.
fn by_step(values: &[(u64, f64)]) -> Vec<f64> {
    let mut steps: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (number, value) in values {
        let (sum, count) = steps.entry(*number).or_default();
        *sum += value;
        *count += 1.0;
    }
    steps
        .into_values()
        .map(|(sum, count)| sum / count)
        .collect()
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

/// Quantile of Student's t; beyond the table by the first term of its expansion around the normal
/// distribution.
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
    fn student_t_is_near_the_tables() {
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
    fn moments_need_three_steps() {
        assert!(Moments::of(&[1.0, 2.0]).is_none());
        let m = Moments::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((m.count, m.mean, m.variance), (3.0, 2.0, 1.0));
    }
}
