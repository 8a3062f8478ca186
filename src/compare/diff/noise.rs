//! Run-to-run noise of the unit of work of two reports.

use super::model::{Noise, NoiseOf};
use super::unit::Common;
use crate::compare::welch::welch;

/// How much the means of two runs may differ by chance.
///
/// # Errors
/// With the reason when the noise is not known.
pub(super) fn of(of: NoiseOf, common: &Common<'_>) -> Result<Noise, String> {
    let values = |unit: &crate::report::WorkUnit| -> Vec<f64> {
        let list = match of {
            NoiseOf::Wall => &unit.wall_ns,
            NoiseOf::GpuTime => &unit.kernel_ns,
        };
        list.iter().map(|ns| *ns as f64).collect()
    };
    let (before, after) = (values(common.before), values(common.after));
    let welch = welch(&before, &after)?;
    Ok(Noise {
        of,
        share: welch.share,
        gate_share: welch.gate_share,
        detectable_share: welch.detectable_share,
        before_count: before.len() as u64,
        after_count: after.len() as u64,
        before_deviation: welch.before_deviation,
        after_deviation: welch.after_deviation,
    })
}
