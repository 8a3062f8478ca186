//! The string facts with a small set of known values.

use std::sync::LazyLock;

use super::fact::Fact;
use super::gap::{CpuWork, Loader};
use super::maker::Maker;
use super::program::Framework;
use super::{chain, copy, kernel, loader_config};
use crate::base::DType;
use crate::correlate::{Direction, GapCause};
use crate::cost::{Bound, Family};
use crate::gpu::Vendor;
use crate::profile::{COLLECTIVES, CopyKind};
use crate::read::READERS;

/// Facts by the set of their values; the words come from the types that the facts are computed from.
static SETS: LazyLock<Vec<(&[&str], Vec<&str>)>> = LazyLock::new(|| {
    let mut families = words(Family::ALL);
    families.push(Family::Unknown.name());
    let dtypes: &[&str] = &[
        "site.dtype",
        "site.math_dtype",
        "site.best_dtype",
        "site.message_dtype",
        "site.cast_from",
        "site.cast_to",
        "kernel.dtype",
        "chain.dtype",
    ];
    vec![
        (
            &["site.direction", "chain.direction"],
            words(Direction::ALL),
        ),
        (&["site.bound"], words(Bound::ALL)),
        (&["chain.kind"], words(chain::Kind::ALL)),
        (&["kernel.collective"], COLLECTIVES.into()),
        (&["kernel.occupancy_limit"], kernel::OCCUPANCY_LIMITS.into()),
        (&["copy.direction"], words(CopyKind::ALL)),
        (&["copy.host_memory"], words(copy::MEMORIES)),
        (&["gap.cause"], words(GapCause::ALL)),
        (&["gap.loader"], words(Loader::ALL)),
        (
            &["gap.cpu_work", "copy.after_cpu_work"],
            words(CpuWork::ALL),
        ),
        (
            &["run.loader"],
            [
                Loader::SingleProcess.name(),
                Loader::MultiProcess.name(),
                loader_config::NO_LOADER,
            ]
            .into(),
        ),
        (&["gpu.vendor"], words(Vendor::ALL)),
        (&["kernel.maker"], Maker::WORDS.into()),
        (&["run.framework"], words(Framework::ALL)),
        (&["site.family", "kernel.family"], families),
        (dtypes, DType::names().collect()),
        (
            &["run.format"],
            READERS.iter().map(|reader| reader.format().id).collect(),
        ),
    ]
});

/// The words of a table.
fn words<T, const N: usize>(table: [(T, &'static str); N]) -> Vec<&'static str> {
    table.map(|(_, word)| word).into()
}

impl Fact {
    /// All values of a string fact with a closed set; empty if it can be any string.
    pub fn values(&self) -> &'static [&'static str] {
        let set = SETS.iter().find(|(facts, _)| facts.contains(&self.name));
        set.map_or(&[], |(_, values)| values)
    }
}
