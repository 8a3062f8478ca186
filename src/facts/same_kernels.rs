//! Which kernels of two recordings of the same steps are the same.

use rustc_hash::FxHashMap;

use crate::correlate::Run;

/// The rows of the kernels of both recordings that have one name.
type Group = (Vec<usize>, Vec<usize>);

/// The kernels of one recording and those of another one, by device and name in the order of time.
#[derive(Debug)]
pub(super) struct SameKernels {
    groups: Vec<Group>,
    /// Number of kernels of the other recording.
    kernels: usize,
}

impl SameKernels {
    /// Pairs the kernels inside the windows of two recordings.
    pub(super) fn of(from: &Run, to: &Run) -> SameKernels {
        let mut groups: FxHashMap<(usize, &str), Group> = FxHashMap::default();
        for (key, at) in inside(from) {
            groups.entry(key).or_default().0.push(at);
        }
        for (key, at) in inside(to) {
            groups.entry(key).or_default().1.push(at);
        }
        SameKernels {
            groups: groups.into_values().collect(),
            kernels: to.profile.kernels.len(),
        }
    }

    /// What is known of each kernel of the first recording, for those of the other one: the value of the kernel with
    /// the same position among those of its name, or the mean where their numbers differ. 0 for other names.
    pub(super) fn carry(&self, values: &[f64]) -> Vec<f64> {
        let value = |at: &usize| values.get(*at).copied().unwrap_or(0.0);
        let mut carried = vec![0.0; self.kernels];
        for (from, to) in &self.groups {
            let mean = from.iter().map(value).sum::<f64>() / from.len().max(1) as f64;
            let is_same = from.len() == to.len();
            for (position, at) in to.iter().enumerate() {
                let same = from.get(position).filter(|_| is_same);
                if let Some(slot) = carried.get_mut(*at) {
                    *slot = same.map_or(mean, value);
                }
            }
        }
        carried
    }
}

/// The device, the name and the row of each kernel in the window.
fn inside(run: &Run) -> impl Iterator<Item = ((usize, &str), usize)> {
    let kernels = run.profile.kernels.iter().zip(&run.links).enumerate();
    let inside = kernels.filter(|(_, (_, link))| link.site.is_some());
    inside.map(|(at, (kernel, _))| ((kernel.device.idx(), run.profile.text(kernel.name)), at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::testing::ProfileBuilder;

    fn run(names: &[&str]) -> Run {
        let mut b = ProfileBuilder::new();
        for (at, name) in (0..).zip(names) {
            let kernel = b.launch(at * 100_000);
            b.profile.kernels[kernel].name = b.profile.strings.intern(name);
        }
        b.run()
    }

    #[test]
    fn values_go_to_the_kernels_of_the_same_name_and_position() {
        let light = run(&["a", "b", "a", "c", "c"]);
        let detailed = run(&["a", "a", "b", "c", "new"]);
        let pairs = SameKernels::of(&light, &detailed);
        let carried = pairs.carry(&[1.0, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(carried, [1.0, 3.0, 2.0, 5.0, 0.0]);
    }
}
