//! One row per kernel: its operator and its share of the cost.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::calls;
pub use super::kernel_row::KernelRow;
use super::kernel_row::Share;
use super::op_choice::Chooser;
use super::record::Record;
use crate::cost::DecodedName;
use crate::cost::kernel_name::decode;

/// The rows of records, in their order.
pub fn rows(records: impl IntoIterator<Item = Record>) -> Vec<KernelRow> {
    let mut chooser = Chooser::default();
    let mut decoded: FxHashMap<String, Arc<DecodedName>> = FxHashMap::default();
    let mut rows: Vec<KernelRow> = Vec::new();
    for mut record in records {
        let choice = chooser.next(&record, &rows);
        record.seq_markers = Vec::new();
        let long = &record.name.long;
        let kernel = match decoded.get(long) {
            Some(known) => Arc::clone(known),
            None => {
                let new = Arc::new(decode(long));
                decoded.insert(long.clone(), Arc::clone(&new));
                new
            }
        };
        rows.push(KernelRow {
            number: rows.len() + 1,
            record,
            choice,
            kernel,
            share: Share::default(),
        });
    }
    calls::share_costs(&mut rows);
    rows
}
