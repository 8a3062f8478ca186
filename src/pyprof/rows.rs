//! One row per kernel: the operator behind it and what it cost.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::calls::{self, Share, Work};
use super::choice::{Choice, Chooser};
use super::params::{self, Input};
use super::{Dir, Place, Record, Text};
use crate::correlate::{ArgValue, OpArgs, OpName};
use crate::cost::kernel_name::decode;
use crate::cost::{Decoded, TensorCore};

/// What `prof` adds to a record. Cells hold profile text, not yet made safe for a terminal.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Layer and source lines: for a backward kernel those of its forward kernel.
    pub place: Arc<Place>,
    pub module: String,
    pub op: String,
    pub params: String,
    /// `None` where the question does not apply or the kernel's name does not answer it.
    pub tensor_core: Option<bool>,
    /// The kernel's share of its call; `None` when unknown.
    pub flops: Option<u64>,
    /// DRAM bytes, likewise.
    pub bytes: Option<u64>,
}

/// The rows of all records, same order. Each call is priced once and its cost shared over its
/// kernels.
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut chooser = Chooser::default();
    let mut names: FxHashMap<&Text, Arc<Decoded>> = FxHashMap::default();
    let works: Vec<Work<'_>> = records
        .iter()
        .map(|record| Work {
            record,
            choice: chooser.next(record),
            decoded: Arc::clone(
                names
                    .entry(&record.long_name)
                    .or_insert_with(|| Arc::new(decode(&record.long_name))),
            ),
        })
        .collect();
    let mut shares = vec![Share::default(); works.len()];
    let partners = Partners::of(&works);
    for call in calls::group(&works) {
        let members: Vec<&Work<'_>> = call.iter().filter_map(|&at| works.get(at)).collect();
        let partners = members
            .first()
            .map_or(&[][..], |first| partners.of_work(first));
        for (at, share) in call.iter().zip(calls::share(&members, partners)) {
            if let Some(slot) = shares.get_mut(*at) {
                *slot = share;
            }
        }
    }
    works
        .iter()
        .zip(shares)
        .map(|(work, share)| row(work, share))
        .collect()
}

/// An operator with its arguments.
pub(super) type Operator = (Arc<OpName>, Arc<OpArgs>);

/// Operators by device, sequence number and direction: what one direction leaves open, the other may
/// list. Only operators with arguments of their own.
#[derive(Debug, Default)]
struct Partners(FxHashMap<(u32, u64, bool), Vec<Operator>>);

impl Partners {
    /// Of one number: more than an operator has.
    const MOST: usize = 16;

    fn of(works: &[Work<'_>]) -> Partners {
        let mut partners = Partners::default();
        for work in works {
            let (choice, record) = (&work.choice, work.record);
            let own = choice
                .args
                .as_ref()
                .filter(|_| choice.marker.is_some() && !choice.from_forward);
            let (Some(args), Some(seq)) = (own, record.seq.first()) else {
                continue;
            };
            let key = (record.device, *seq, record.place.dir == Dir::Bprop);
            let known = partners.0.entry(key).or_default();
            let same = |(op, other): &Operator| op == &choice.op && Arc::ptr_eq(other, args);
            if known.len() < Self::MOST && !known.iter().any(same) {
                known.push((Arc::clone(&choice.op), Arc::clone(args)));
            }
        }
        partners
    }

    /// The operators of the other direction.
    fn of_work(&self, work: &Work<'_>) -> &[Operator] {
        let record = work.record;
        let key =
            (record.seq.first()).map(|seq| (record.device, *seq, record.place.dir != Dir::Bprop));
        key.and_then(|key| self.0.get(&key))
            .map_or(&[], Vec::as_slice)
    }
}

fn row(work: &Work<'_>, share: Share) -> Row {
    let choice = &work.choice;
    let (op, params) = match &choice.marker {
        Some(marker) => params::cells(&Input {
            marker,
            dir: if choice.from_forward {
                work.record.place.dir
            } else {
                // Arguments of its own are those of the product at hand, whichever way it goes.
                Dir::Fprop
            },
            sub: work.record.sub,
            kernel: &work.decoded,
        }),
        None => (choice.op.name.clone(), shapes(choice)),
    };
    let or_na = |text: String| {
        if text.is_empty() {
            "na".to_owned()
        } else {
            text
        }
    };
    Row {
        place: Arc::clone(&choice.place),
        module: or_na(choice.op.module.clone()),
        op: or_na(op),
        params,
        tensor_core: match work.decoded.tensor_core {
            _ if !work.decoded.family.is_math() => None,
            TensorCore::Yes => Some(true),
            TensorCore::No => Some(false),
            TensorCore::Unknown => None,
        },
        flops: share.flops,
        bytes: share.bytes,
    }
}

/// Shapes of a range without PyProf's markers: `[35,20];[20,8]`, or PyProf's words for none.
fn shapes(choice: &Choice) -> String {
    let shapes: Vec<String> = choice
        .args
        .iter()
        .flat_map(|args| &args.items)
        .filter_map(|arg| match &arg.value {
            ArgValue::Tensor(tensor) => {
                let dims: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
                let dtype = tensor.dtype.map_or("", |d| d.name());
                Some(format!("[{}]{dtype}", dims.join(",")))
            }
            _ => None,
        })
        .collect();
    if shapes.is_empty() {
        "na=na,".to_owned()
    } else {
        shapes.join(";")
    }
}
