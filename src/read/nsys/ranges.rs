//! NVTX ranges and marks.

use rusqlite::types::ValueRef;
use rustc_hash::FxHashMap;

use super::enums::{EventKind, Meaning};
use super::{Pids, process_key};
use crate::profile::{Range, RangeKind, Span, StrId, Strings, ThreadId};
use crate::read::build::{Builder, Damage, Distinct, StringTable, name_range};
use crate::read::sqlite::{Cells, Sink};

/// The ranges of one rowid range. Handles in the rows are local until [`add`] maps them.
#[derive(Clone)]
pub(super) struct Ranges {
    kinds: Meaning<EventKind>,
    texts: Strings,
    threads: Distinct<i64>,
    /// Process and domain id of every domain but the default one.
    domains: Distinct<(i64, i64)>,
    rows: Vec<Range>,
    /// Rows whose text is registered: index into `rows`, id in `StringIds`.
    registered: Vec<(u32, i64)>,
    /// Domains that got their name here: process, domain id, name or its id.
    named: Vec<(i64, i64, DomainName)>,
    damage: Damage,
}

#[derive(Clone)]
enum DomainName {
    Id(i64),
    Text(StrId),
}

impl Ranges {
    pub(super) fn new(kinds: Meaning<EventKind>) -> Ranges {
        Ranges {
            kinds,
            texts: Strings::default(),
            threads: Distinct::default(),
            domains: Distinct::default(),
            rows: Vec::new(),
            registered: Vec::new(),
            named: Vec::new(),
            damage: Damage::default(),
        }
    }

    /// Ids of `StringIds` these rows refer to.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        let domains = self.named.iter().filter_map(|(_, _, name)| match name {
            DomainName::Id(id) => Some(*id),
            DomainName::Text(_) => None,
        });
        self.registered.iter().map(|(_, id)| *id).chain(domains)
    }

    /// The text of a row, or the id of a registered one. Some exports keep ids in the text column.
    fn text<'a>(cells: &Cells<'a, '_>) -> Result<Option<i64>, &'a [u8]> {
        match cells.bytes(TEXT) {
            Some(bytes) => Err(bytes),
            None => Ok(cells.int(TEXT).or_else(|| cells.int(TEXT_ID))),
        }
    }

    fn name_domain(&mut self, cells: &Cells<'_, '_>) {
        let (Some(thread), Some(domain)) = (cells.int(THREAD), cells.int(DOMAIN)) else {
            return;
        };
        let name = match Self::text(cells) {
            Err(bytes) => DomainName::Text(self.texts.intern(&String::from_utf8_lossy(bytes))),
            Ok(Some(id)) => DomainName::Id(id),
            Ok(None) => return,
        };
        self.named.push((process_key(thread), domain, name));
    }
}

const START: usize = 0;
const END: usize = 1;
const TYPE: usize = 2;
const THREAD: usize = 3;
const TEXT: usize = 4;
const TEXT_ID: usize = 5;
const DOMAIN: usize = 6;

impl Sink for Ranges {
    const COLUMNS: &'static [&'static str] = &[
        "start",
        "end",
        "eventType=59",
        "globalTid",
        "text",
        "textId",
        "domainId",
    ];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        let kind = match self.kinds.of(cells.int(TYPE)) {
            Some(EventKind::Range(kind)) => kind,
            Some(EventKind::Domain) => return self.name_domain(cells),
            // Categories, names of threads and streams: not intervals.
            None if cells.int(TYPE).is_some() => return,
            None => {
                self.damage.rows += 1;
                self.damage.value::<()>(None);
                return;
            }
        };
        self.damage.rows += 1;
        let start = cells.int(START);
        let span = match (kind, cells.raw(END)) {
            (RangeKind::Mark, ValueRef::Null) => self.damage.span(start, start),
            // The program never closed it, or the capture ended first.
            (_, ValueRef::Null) => self.damage.start(start).map(|start| Span {
                start,
                end: i64::MAX,
            }),
            _ => self.damage.span(start, cells.int(END)),
        };
        let Some(span) = span else { return };
        let Some(thread) = self.damage.owner(cells.int(THREAD)) else {
            return;
        };
        let mut range = Range {
            span,
            thread: ThreadId(self.threads.number(thread)),
            kind,
            text: StrId(0),
            domain: None,
            seq: None,
            op_id: None,
            args: None,
        };
        if let Some(domain) = cells.int(DOMAIN).filter(|&d| d != 0) {
            range.domain = Some(StrId(self.domains.number((process_key(thread), domain))));
        }
        match Self::text(cells) {
            Err(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                name_range(&mut range, &mut self.texts, &text);
            }
            Ok(Some(id)) => {
                let row = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
                self.registered.push((row, id));
            }
            Ok(None) => range.text = self.texts.intern(""),
        }
        self.rows.push(range);
    }
}

/// Moves the ranges into the profile.
pub(super) fn add(parts: Vec<Ranges>, strings: &StringTable, pids: &Pids, builder: &mut Builder) {
    let mut damage = Damage::default();
    let names = domain_names(&parts, strings);
    let total = parts.iter().map(|part| part.rows.len()).sum();
    builder.profile.ranges.reserve_exact(total);
    // The parts of a registered text, by its id.
    let mut registered: FxHashMap<i64, Range> = FxHashMap::default();
    for mut part in parts {
        damage.add(&part.damage);
        let profile = &mut builder.profile;
        let texts: Vec<StrId> = part
            .texts
            .iter()
            .map(|(_, text)| profile.strings.intern(text))
            .collect();
        let domains: Vec<StrId> = part
            .domains
            .values()
            .iter()
            .map(|key| match names.get(key) {
                Some(name) => profile.strings.intern(name),
                None => profile.strings.intern(&format!("domain {}", key.1)),
            })
            .collect();
        let threads: Vec<ThreadId> = part
            .threads
            .values()
            .iter()
            .map(|&global| pids.thread(builder, global))
            .collect();
        let global = |id: StrId| texts.get(id.idx()).copied().unwrap_or(StrId(u32::MAX));
        for range in &mut part.rows {
            range.text = global(range.text);
            range.args = range.args.map(global);
            range.domain = range.domain.and_then(|d| domains.get(d.idx()).copied());
            if let Some(&thread) = threads.get(range.thread.idx()) {
                range.thread = thread;
            }
        }
        for (row, id) in part.registered {
            let Some(range) = part.rows.get_mut(row as usize) else {
                continue;
            };
            let parts = registered.entry(id).or_insert_with(|| {
                let mut parts = *range;
                let text = strings.get(id).unwrap_or_default();
                name_range(&mut parts, &mut builder.profile.strings, text);
                parts
            });
            range.text = parts.text;
            range.seq = parts.seq;
            range.op_id = parts.op_id;
            range.args = parts.args;
        }
        builder.profile.ranges.append(&mut part.rows);
    }
    damage.note(&mut builder.profile, "NVTX", "thread", "event type");
}

/// Names of domains by process and id; the first row wins.
fn domain_names(parts: &[Ranges], strings: &StringTable) -> FxHashMap<(i64, i64), String> {
    let mut names = FxHashMap::default();
    for part in parts {
        for (process, domain, name) in &part.named {
            let text = match name {
                DomainName::Id(id) => strings.get(*id),
                DomainName::Text(id) => Some(part.texts.get(*id)),
            };
            if let Some(text) = text {
                names
                    .entry((*process, *domain))
                    .or_insert_with(|| text.to_owned());
            }
        }
    }
    names
}
