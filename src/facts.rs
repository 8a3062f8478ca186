//! Floor 5: the fact table, the only interface between the analysis and the rules.
//!
//! Each fact has a name, a type, a unit, a description, the families it applies to and the data it
//! needs. The modules below contain the knowledge about GPUs; rules and reports above use names and
//! values only.

mod affected;
mod backward_passes;
mod before_update;
mod call_operators;
mod call_stacks;
mod chain;
mod closed_sets;
mod collectives;
mod computed_weights;
mod conversion;
mod copy;
mod cpu_use;
mod cutlass;
mod decoding;
mod devices_at_once;
mod embedding_tables;
mod enclosing_ops;
mod equal_calls;
mod equal_networks;
mod fact;
mod first_fp64;
mod framework_signs;
mod gap;
mod gpu;
mod gradient_sums;
mod graphs;
mod growing_cats;
mod growing_passes;
mod host;
mod host_work;
mod kernel;
mod late_layers;
mod layer;
mod loader_config;
mod main_kernel;
mod maker;
mod memory;
mod message;
mod needless_gradients;
mod needs;
mod padded_lengths;
mod plain_attention;
mod program;
mod range_paths;
mod reduction_copies;
mod rows_used;
mod run;
mod same_kernels;
mod site;
mod slice_gradients;
mod step;
mod step_comm;
mod step_shapes;
mod step_stability;
mod step_weight;
mod sync;
mod table;
mod table_series;
#[cfg(test)]
mod testing;
mod unrecorded;
mod update_ops;
mod view;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod whole_run_tests;
mod work_steps;
mod worker_start;

pub use affected::{AffectedSite, AffectedTime, LongGap, SitePart, StepWeight, Totals};
pub(crate) use copy::longest_copy;
pub use fact::{Answer, Fact, Lookup, Member, MemberKind, Type, Value};
pub use gpu::of_gpu;
pub(crate) use host_work::UNRECORDED_WORK;
pub use kernel::ENOUGH_CALLS;
pub(crate) use maker::product_of;
pub(crate) use memory::MemoryUse;
pub(crate) use message::message_of;
pub use needs::{how_to_record, how_to_record_without_pytorch, includes_gpu, is_recordable};
pub(crate) use program::shows_pytorch;
pub(crate) use step_comm::exposed_comm_per_step;
pub(crate) use step_weight::busy_weight;
pub use table::FactTable;
pub use view::{FactView, all, find};
pub(crate) use work_steps::steps_in_window;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_unique_documented_and_typed_by_their_names() {
        // The table refuses a fact that is declared twice.
        for fact in all() {
            let (prefix, _) = fact.name.split_once('.').expect("prefix.name");
            assert!(
                prefix == "gpu" || MemberKind::parse(prefix).is_some(),
                "{}",
                fact.name
            );
            assert!(
                fact.doc.len() > 5 && !fact.doc.ends_with('.'),
                "{}",
                fact.name
            );
            for (suffix, unit) in [
                ("_ns", "ns"),
                ("_bytes", "bytes"),
                ("_flops", "FLOP"),
                ("_share", "share"),
            ] {
                // Facts with per-dtype values are maps.
                if fact.name.ends_with(suffix) && fact.ty.scalar().is_some() {
                    assert_eq!(fact.unit(), unit, "{}", fact.name);
                    assert_eq!(fact.ty, Type::DOUBLE, "{}", fact.name);
                }
            }
        }
    }
}
