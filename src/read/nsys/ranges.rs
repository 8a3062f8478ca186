//! NVTX ranges and marks.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rustc_hash::FxHashMap;

use super::enums::{Enumeration, EventKind};
use super::{Pids, RANGES, process_key};
use crate::profile::{HostRange, RangeKind, Span, StartCounts, StrId, Strings, ThreadId};
use crate::read::builder::{Builder, RangeName};
use crate::read::names::{Distinct, StringTable};
use crate::read::pruning::{
    self, DeferredRanges, PartDomain, PartPruner, PartRange, PartText, PartThread, Pruning,
    RemovedRanges,
};
use crate::read::reader::{Progress, ReadError};
use crate::read::skipped_rows::SkippedRows;
use crate::read::sqlite::{Cells, Db, Sink};

/// The ranges of one part of the table.
#[derive(Clone)]
struct Part {
    kinds: Enumeration<EventKind>,
    texts: Strings,
    threads: Distinct<i64>,
    /// Ids of registered texts.
    ids: Distinct<i64>,
    /// Process and domain id of every domain except the default one.
    domains: Distinct<(i64, i64)>,
    rows: Vec<PartRange>,
    /// Domains named in this part: process, domain id, name or its id.
    named: Vec<(i64, i64, DomainName)>,
    skipped: SkippedRows,
    pruner: Option<Box<dyn PartPruner>>,
    /// By `globalTid`: the threads that made a call.
    known_threads: Arc<FxHashMap<i64, ThreadId>>,
    /// The same by the numbers of `threads`, as far as looked up.
    calling: Vec<Option<ThreadId>>,
    removed: RemovedRanges,
    /// First and last start, and whether the rows are in order of start.
    first: i64,
    last: i64,
    sorted: bool,
    /// Whether any range has a payload.
    payloads: bool,
    in_profile: InProfile,
}

/// What the numbers of a [`Part`] are in the profile, as far as needed so far.
#[derive(Debug, Clone, Default)]
struct InProfile {
    texts: Vec<StrId>,
    threads: Vec<ThreadId>,
    ids: Vec<TextNumber>,
    domains: Vec<DomainNumber>,
}

/// A registered text, by its number in [`Ranges::ids`].
#[derive(Debug, Clone, Copy)]
struct TextNumber(u32);

/// A domain, by its number in [`Ranges::domains`].
#[derive(Debug, Clone, Copy)]
struct DomainNumber(u32);

#[derive(Clone)]
enum DomainName {
    Id(i64),
    Text(String),
}

impl Part {
    fn new(
        kinds: Enumeration<EventKind>,
        pruner: Option<Box<dyn PartPruner>>,
        builder: &Builder,
    ) -> Part {
        Part {
            kinds,
            texts: Strings::default(),
            threads: Distinct::default(),
            ids: Distinct::default(),
            domains: Distinct::default(),
            rows: Vec::new(),
            named: Vec::new(),
            skipped: SkippedRows::default(),
            pruner,
            known_threads: Arc::new(builder.global_threads().into_iter().collect()),
            calling: Vec::new(),
            removed: RemovedRanges::default(),
            first: i64::MAX,
            last: i64::MIN,
            sorted: true,
            payloads: false,
            in_profile: InProfile::default(),
        }
    }

    /// The text of a row, or the id of a registered one. Some exports store ids in the text column.
    fn text<'a>(cells: &Cells<'a>) -> Result<Option<i64>, &'a [u8]> {
        match cells.bytes(TEXT) {
            Some(bytes) => Err(bytes),
            None => Ok(cells.int(TEXT).or_else(|| cells.int(TEXT_ID))),
        }
    }

    fn name_domain(&mut self, cells: &Cells<'_>) {
        let (Some(thread), Some(domain)) = (cells.int(THREAD), cells.int(DOMAIN)) else {
            return;
        };
        let name = match Self::text(cells) {
            Err(bytes) => DomainName::Text(String::from_utf8_lossy(bytes).into_owned()),
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
const PAYLOAD: usize = 7;

const COLUMNS: [&str; 8] = [
    "start",
    "end",
    "eventType=59",
    "globalTid",
    "text",
    "textId",
    "domainId",
    "binaryData",
];

impl Sink for Part {
    fn row(&mut self, cells: &Cells<'_>) {
        self.payloads |= !matches!(cells.raw(PAYLOAD), ValueRef::Null);
        let kind = match self.kinds.of(cells.int(TYPE)) {
            Some(EventKind::Range(kind)) => kind,
            Some(EventKind::Domain) => return self.name_domain(cells),
            // Categories and names of threads and streams are not intervals.
            None if cells.int(TYPE).is_some() => return,
            None => {
                self.skipped.rows += 1;
                self.skipped.value::<()>(None);
                return;
            }
        };
        self.skipped.rows += 1;
        let start = cells.int(START);
        let end = cells.int(END);
        let is_open = end.is_none() && matches!(cells.raw(END), ValueRef::Null);
        let span = match kind {
            RangeKind::Mark if is_open => self.skipped.span(start, start),
            // Either the program never closed the range, or the capture ended first.
            _ if is_open => self.skipped.start(start).map(|start| Span {
                start,
                end: i64::MAX,
            }),
            _ => self.skipped.span(start, end),
        };
        let Some(span) = span else { return };
        let Some(thread) = self.skipped.owner(cells.int(THREAD)) else {
            return;
        };
        let (text, name) = match Self::text(cells) {
            Ok(Some(id)) => (PartText::Registered(self.ids.number(id)), None),
            Ok(None) => (PartText::Written(self.texts.intern("")), None),
            Err(bytes) => {
                let name = RangeName::of_bytes(bytes, &mut self.texts);
                (PartText::Written(name.text), Some(name))
            }
        };
        let domain = cells.int(DOMAIN).filter(|&d| d != 0);
        self.rows.push(PartRange {
            span,
            thread: PartThread(self.threads.number(thread)),
            kind,
            text,
            domain: domain.map(|d| PartDomain(self.domains.number((process_key(thread), d)))),
            seq: name.and_then(|name| name.seq),
            op_id: name.and_then(|name| name.op_id),
            args: name.and_then(|name| name.args),
        });
        self.first = self.first.min(span.start);
        self.sorted &= self.last <= span.start;
        self.last = self.last.max(span.start);
    }

    fn finish(&mut self) {
        if let Some(pruner) = &mut self.pruner {
            let new = self.threads.values().iter().skip(self.calling.len());
            let new = new.map(|global| self.known_threads.get(global).copied());
            self.calling.extend(new);
            let part = pruning::Part {
                texts: &self.texts,
                threads: &self.calling,
            };
            pruner.prune(&mut self.rows, &part, &mut self.removed);
        }
    }
}

impl InProfile {
    /// The range in the profile, without its domain, and without its text if that is registered.
    fn range(&self, range: PartRange, unnamed: StrId) -> HostRange {
        let text = |text: StrId| self.texts.get(text.idx()).copied().unwrap_or(unnamed);
        HostRange {
            span: range.span,
            thread: self.thread(range.thread).unwrap_or(ThreadId(u32::MAX)),
            kind: range.kind,
            text: match range.text {
                PartText::Written(written) => text(written),
                PartText::Registered(_) => unnamed,
            },
            domain: None,
            seq: range.seq,
            op_id: range.op_id,
            args: range.args.map(text),
        }
    }

    fn thread(&self, thread: PartThread) -> Option<ThreadId> {
        self.threads.get(thread.0 as usize).copied()
    }
}

/// Remaining work for the ranges in the profile: registered texts, names of domains, and ranges whose
/// pruning is not decided yet.
#[derive(Default)]
pub(super) struct Ranges {
    ids: Distinct<i64>,
    domains: Distinct<(i64, i64)>,
    named: Vec<(i64, i64, DomainName)>,
    /// The ranges, by their index in the profile, whose text is registered.
    without_text: Vec<(usize, TextNumber)>,
    /// The ranges, by their index in the profile, with a domain.
    without_domain: Vec<(usize, DomainNumber)>,
    skipped: SkippedRows,
    deferred: DeferredRanges,
    /// Whether any range has a payload.
    pub(super) payloads: bool,
}

impl Ranges {
    /// Adds the ranges to the profile, except those that `pruner` removes.
    pub(super) fn read(
        db: &Db,
        kinds: &Enumeration<EventKind>,
        pruner: Option<Box<dyn PartPruner>>,
        pids: &Pids,
        builder: &mut Builder,
        progress: &dyn Progress,
    ) -> Result<Ranges, ReadError> {
        let rows = db.most_rows(RANGES)?;
        builder.profile.ranges.reserve(rows);
        let pruned = pruner.is_some();
        let empty = Part::new(kinds.clone(), pruner, builder);
        let mut ranges = Ranges::default();
        if pruned {
            ranges.deferred.ranges.reserve(rows);
        }
        let mut sorted = true;
        let mut last = i64::MIN;
        db.stream(RANGES, &COLUMNS, &empty, progress, |part| {
            sorted &= part.sorted && last <= part.first;
            last = last.max(part.last);
            (part.first, part.last, part.sorted) = (i64::MAX, i64::MIN, true);
            ranges.take(part, pids, builder);
        })?;
        if pruned && !sorted {
            // Pruning needs rows in order of start, because it finds enclosing ranges.
            builder.profile.ranges.clear();
            builder.profile.pruned_ranges = 0;
            builder.profile.pruned_starts = StartCounts::default();
            return Ranges::read(db, kinds, None, pids, builder, progress);
        }
        Ok(ranges)
    }

    fn take(&mut self, part: &mut Part, pids: &Pids, builder: &mut Builder) {
        self.skipped.add(&std::mem::take(&mut part.skipped));
        self.payloads |= part.payloads;
        self.named.append(&mut part.named);
        let in_profile = &mut part.in_profile;
        for text in part.texts.texts_from(in_profile.texts.len()) {
            in_profile.texts.push(builder.profile.strings.intern(text));
        }
        for &global in part.threads.values().iter().skip(in_profile.threads.len()) {
            in_profile.threads.push(pids.thread(builder, global));
        }
        for &id in part.ids.values().iter().skip(in_profile.ids.len()) {
            in_profile.ids.push(TextNumber(self.ids.number(id)));
        }
        for &domain in part.domains.values().iter().skip(in_profile.domains.len()) {
            let number = self.domains.number(domain);
            in_profile.domains.push(DomainNumber(number));
        }
        let profile = &mut builder.profile;
        let removed = &mut part.removed;
        profile.pruned_ranges += std::mem::take(&mut removed.dropped);
        for (thread, slice, starts) in removed.dropped_starts.drain(..) {
            if let Some(thread) = in_profile.thread(thread) {
                profile.pruned_starts.add_slice(thread, slice, starts);
            }
        }
        let unnamed = profile.strings.intern("");
        let deferred = removed.deferred.drain(..);
        let deferred = deferred.map(|row| in_profile.range(row, unnamed));
        self.deferred.ranges.extend(deferred);
        for (thread, number) in removed.nodes.drain(..) {
            let process = (in_profile.thread(thread)).and_then(|t| profile.process_of(t));
            (self.deferred.nodes).extend(process.map(|process| (process, number)));
        }
        for row in part.rows.drain(..) {
            let index = profile.ranges.len();
            if let PartText::Registered(id) = row.text {
                let number = in_profile.ids.get(id as usize);
                self.without_text
                    .extend(number.map(|&number| (index, number)));
            }
            if let Some(domain) = row.domain {
                let number = in_profile.domains.get(domain.0 as usize);
                (self.without_domain).extend(number.map(|&number| (index, number)));
            }
            profile.ranges.push(in_profile.range(row, unnamed));
        }
    }

    /// Ids of `StringIds` the ranges refer to.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        let domains = self.named.iter().filter_map(|(_, _, name)| match name {
            DomainName::Id(id) => Some(*id),
            DomainName::Text(_) => None,
        });
        self.ids.values().iter().copied().chain(domains)
    }

    /// The domains of this name, as process and id.
    pub(super) fn domains_named(&self, name: &str, strings: &StringTable) -> Vec<(i64, i64)> {
        let has_name = |domain: &DomainName| match domain {
            DomainName::Id(id) => strings.get(*id) == Some(name),
            DomainName::Text(text) => text == name,
        };
        let named = self.named.iter().filter(|(_, _, domain)| has_name(domain));
        named.map(|(process, id, _)| (*process, *id)).collect()
    }

    /// Sets the texts and domains of the ranges.
    pub(super) fn name(
        mut self,
        strings: &StringTable,
        pruning: Option<&dyn Pruning>,
        builder: &mut Builder,
    ) {
        let profile = &mut builder.profile;
        let registered = self.registered(strings, &mut profile.strings);
        for (index, number) in std::mem::take(&mut self.without_text) {
            let range = profile.ranges.get_mut(index);
            if let Some((range, name)) = range.zip(registered.get(number.0 as usize)) {
                range.text = name.text;
                range.seq = name.seq;
                range.op_id = name.op_id;
                range.args = name.args;
            }
        }
        let domains = self.domains(strings, &mut profile.strings);
        for (index, number) in std::mem::take(&mut self.without_domain) {
            if let Some(range) = profile.ranges.get_mut(index) {
                range.domain = domains.get(number.0 as usize).copied();
            }
        }
        if let Some(pruning) = pruning {
            // A registered text may also be that of a backward node.
            self.deferred.all_needed = registered.iter().any(|name| name.seq.is_some());
            pruning.restore(std::mem::take(&mut self.deferred), profile);
        }
        self.skipped.note(profile, "NVTX", "thread", "event type");
    }

    /// The parts of every registered text.
    fn registered(&self, strings: &StringTable, into: &mut Strings) -> Vec<RangeName> {
        let ids = self.ids.values().iter();
        ids.map(|id| RangeName::split(strings.get(*id).unwrap_or_default(), into))
            .collect()
    }

    /// The names of the domains; the first row that names one counts.
    fn domains(&self, strings: &StringTable, into: &mut Strings) -> Vec<StrId> {
        let mut names: FxHashMap<(i64, i64), &str> = FxHashMap::default();
        for (process, domain, name) in &self.named {
            let text = match name {
                DomainName::Id(id) => strings.get(*id),
                DomainName::Text(text) => Some(text.as_str()),
            };
            if let Some(text) = text {
                names.entry((*process, *domain)).or_insert(text);
            }
        }
        let name = |key: &(i64, i64)| match names.get(key) {
            Some(name) => into.intern(name),
            None => into.intern(&format!("domain {}", key.1)),
        };
        self.domains.values().iter().map(name).collect()
    }
}
