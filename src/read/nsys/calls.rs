//! CUDA runtime and driver calls.

use rustc_hash::FxHashMap;

use super::Pids;
use crate::profile::{ApiCall, ApiClass, Span, StrId};
use crate::read::build::{
    Builder, Damage, Distinct, NameKey, Names, StringTable, call_correlation,
};
use crate::read::sqlite::{Cells, Sink};
use crate::read::unversioned;

/// The calls of one rowid range.
#[derive(Clone, Default)]
pub(super) struct Calls {
    pub(super) names: Names,
    threads: Distinct<i64>,
    rows: Vec<Row>,
    damage: Damage,
}

#[derive(Clone, Copy)]
struct Row {
    span: Span,
    correlation: u64,
    /// Number in [`Calls::threads`].
    thread: u32,
    name: NameKey,
}

impl Sink for Calls {
    const COLUMNS: &'static [&'static str] =
        &["start", "end", "globalTid", "correlationId", "nameId"];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        self.damage.rows += 1;
        let Some(span) = self.damage.span(cells.int(0), cells.int(1)) else {
            return;
        };
        let Some(thread) = self.damage.owner(cells.int(2)) else {
            return;
        };
        let name = match cells.int(4) {
            Some(id) => self.names.id(id),
            None => self.names.text(cells.bytes(4).unwrap_or_default()),
        };
        self.rows.push(Row {
            span,
            correlation: call_correlation(cells.int(3)),
            thread: self.threads.number(thread),
            name,
        });
    }
}

/// Moves the calls into the profile, under names without version suffix.
pub(super) fn add(parts: Vec<Calls>, strings: &StringTable, pids: &Pids, builder: &mut Builder) {
    let mut damage = Damage::default();
    let total = parts.iter().map(|part| part.rows.len()).sum();
    builder.profile.calls.reserve_exact(total);
    let mut classes: FxHashMap<StrId, (StrId, ApiClass)> = FxHashMap::default();
    for part in parts {
        damage.add(&part.damage);
        let names = part.names.resolve(strings, &mut builder.profile.strings);
        let threads: Vec<_> = part
            .threads
            .values()
            .iter()
            .map(|&global| pids.thread(builder, global))
            .collect();
        for row in part.rows {
            let Some(&thread) = threads.get(row.thread as usize) else {
                continue;
            };
            let raw = names.get(row.name);
            let strings = &mut builder.profile.strings;
            let &mut (name, class) = classes.entry(raw).or_insert_with(|| {
                let text = unversioned(strings.get(raw)).to_owned();
                (strings.intern(&text), ApiClass::of(&text))
            });
            builder.profile.calls.push(ApiCall {
                span: row.span,
                thread,
                correlation: row.correlation,
                name,
                class,
            });
        }
    }
    damage.note(&mut builder.profile, "API call", "thread", "name");
}
