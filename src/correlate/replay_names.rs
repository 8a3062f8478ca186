//! Operators and layers for the kernels of graph replays, from a recording of the same model without
//! graphs.

use rustc_hash::FxHashMap;

use super::layers::LayerTable;
use super::model::{Direction, LayerId, LayerSource, OpName};
use super::scope_query::Placement;
use crate::profile::{KernelId, Strings};

/// What a kernel of a replay does, by the matching kernel of a recording without graphs. Shapes are those
/// of the other recording, so none are kept but those that do not depend on the batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayedWork {
    /// The operator.
    pub op: OpName,
    /// The layer, and what named it there.
    pub layer: Option<(LayerSource, String)>,
    /// The direction of the work.
    pub direction: Direction,
    /// Bytes of the weights that the operator multiplies with.
    pub weight_bytes: Option<u64>,
    /// Bytes of keys and values that the operator reads for each token of a request so far.
    pub bytes_per_key: Option<u64>,
}

/// The kernels of graph replays that match kernels of another recording.
#[derive(Debug, Clone, Default)]
pub struct ReplayNames {
    /// Name of the other recording.
    pub file: String,
    /// Distinct work.
    pub works: Vec<ReplayedWork>,
    /// Per matched kernel: its row of `works`.
    pub of_kernel: FxHashMap<KernelId, u32>,
    /// Number of analysed kernels that were launched by replays.
    pub replayed: u64,
}

impl ReplayNames {
    /// The work of a kernel.
    pub(super) fn work(&self, kernel: KernelId) -> Option<(u32, &ReplayedWork)> {
        let row = *self.of_kernel.get(&kernel)?;
        Some((row, self.works.get(row as usize)?))
    }

    /// Puts the matched kernels into their layers.
    pub(super) fn place(
        &self,
        settings: &mut FxHashMap<KernelId, Placement<LayerId>>,
        layers: &mut LayerTable,
        labels: &mut Strings,
    ) {
        let mut kernels: Vec<KernelId> = self.of_kernel.keys().copied().collect();
        // Layers are numbered in this order, which must not depend on that of a hash map.
        kernels.sort_unstable();
        for kernel in kernels {
            let Some((_, work)) = self.work(kernel) else {
                continue;
            };
            let Some((source, name)) = &work.layer else {
                continue;
            };
            let label = labels.intern(name);
            let layer = layers.intern(*source, label, labels);
            let setting = settings.entry(kernel).or_insert(Placement {
                layer: None,
                direction: work.direction,
                recomputed: false,
                line: None,
            });
            (setting.layer, setting.direction) = (Some(layer), work.direction);
        }
    }
}
