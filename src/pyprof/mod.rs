//! Floor 7: what NVIDIA's PyProf printed, for those who have scripts that read it.
//!
//! PyProf (<https://github.com/NVIDIA/PyProf>, archived 2021) worked in two steps: `parse` wrote
//! one Python dictionary per kernel, `prof` read them back and wrote one row of columns each. Both
//! outputs are made here: [`records`] gives the dictionaries of a [`Run`](crate::correlate::Run),
//! [`read`] those of a file, and [`rows`](rows::rows) the rows of either, so that a profile and the
//! dictionaries made from it never disagree. `docs/pyprof-differences.md` lists where the output
//! differs from PyProf's, and why.

use std::sync::Arc;

use rustc_hash::FxHashSet;

mod calls;
mod choice;
mod dict;
mod event;
mod formats;
mod marker;
mod names;
mod params;
mod parse;
mod python;
mod read;
pub mod rows;
mod sequence;
pub mod table;

pub use dict::{json, python};
pub use parse::records;
pub use read::{ReadError, read};

/// A piece of profile text, kept once for all kernels that carry it.
pub type Text = Arc<str>;

/// What PyProf knows of one kernel execution: a line of `parse`'s output.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub short_name: Text,
    pub long_name: Text,
    /// Time on the GPU, ns.
    pub duration: i64,
    pub place: Arc<Place>,
    /// The autograd sequence number the kernel belongs to: one, or none.
    pub seq: Vec<u64>,
    /// Other sequence numbers around its launch, in ascending order.
    pub alt: Vec<u64>,
    /// Counts the kernels of one sequence number and operator.
    pub sub: u64,
    /// The thread that launched it; `None` when the profile does not say.
    pub tid: Option<u64>,
    pub device: u32,
    pub stream: u32,
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

/// What stands around a launch, shared by all kernels with the same surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// Names of `layer:` ranges, outermost first.
    pub layer: Vec<Text>,
    /// Source lines, outermost first, without those of PyTorch and PyProf themselves.
    pub trace: Vec<Text>,
    /// Markers with the settings of a module.
    pub reprs: Vec<Text>,
    /// Operator markers of PyProf, outermost first, each once.
    pub markers: Vec<Text>,
    /// Ranges of `emit_nvtx`, in PyProf's order.
    pub seq_markers: Vec<Text>,
    pub dir: Dir,
    pub mods: Vec<Text>,
    pub ops: Vec<Text>,
}

/// PyProf's directions. It knows of no update and calls everything `fprop` that is not `bprop`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dir {
    #[default]
    Fprop,
    Bprop,
    /// Nothing is known of the launch. PyProf drops such kernels.
    Na,
}

impl Dir {
    /// As PyProf prints it.
    pub fn name(self) -> &'static str {
        match self {
            Dir::Fprop => "fprop",
            Dir::Bprop => "bprop",
            Dir::Na => "na",
        }
    }
}

/// Keeps equal texts and equal surroundings once.
#[derive(Debug, Default)]
struct Pool {
    texts: FxHashSet<Text>,
    places: FxHashSet<Arc<Place>>,
}

impl Pool {
    fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Text = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn place(&mut self, place: Place) -> Arc<Place> {
        if let Some(known) = self.places.get(&place) {
            return Arc::clone(known);
        }
        let new = Arc::new(place);
        self.places.insert(Arc::clone(&new));
        new
    }
}
