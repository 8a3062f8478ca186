//! Operators and layers for the kernels of graph replays, from a recording of the same model without
//! graphs.

use rustc_hash::FxHashMap;

use super::layers::LayerTable;
use super::model::{Direction, LayerId, LayerSource, ReplayNames, ReplayedWork};
use super::scope_query::Placement;
use crate::profile::{KernelId, Profile, Strings};

/// Puts the kernels of graphs whose regions the program has named into those regions.
pub(super) fn place_regions(
    profile: &Profile,
    placements: &mut FxHashMap<KernelId, Placement<LayerId>>,
    layers: &mut LayerTable,
    labels: &mut Strings,
) {
    for (kernel, region) in &profile.graph_regions {
        let label = labels.intern(profile.text(region.name));
        let layer = layers.intern(LayerSource::GraphRegion, label, labels);
        let direction = region.backward.then_some(Direction::Bprop);
        put(placements, *kernel, layer, direction);
    }
}

/// Puts a kernel into a layer; its direction stays as it is known where none is given.
fn put(
    placements: &mut FxHashMap<KernelId, Placement<LayerId>>,
    kernel: KernelId,
    layer: LayerId,
    direction: Option<Direction>,
) {
    let placement = placements.entry(kernel).or_insert(Placement {
        layer: None,
        direction: Direction::Unknown,
        recomputed: false,
        line: None,
    });
    placement.layer = Some(layer);
    placement.direction = direction.unwrap_or(placement.direction);
}

impl ReplayNames {
    /// The work of a kernel.
    pub(super) fn work(&self, kernel: KernelId) -> Option<(u32, &ReplayedWork)> {
        let row = *self.of_kernel.get(&kernel)?;
        Some((row, self.work.get(row as usize)?))
    }

    /// Puts the matched kernels into their layers.
    pub(super) fn place(
        &self,
        placements: &mut FxHashMap<KernelId, Placement<LayerId>>,
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
            put(placements, kernel, layer, Some(work.direction));
        }
    }
}
