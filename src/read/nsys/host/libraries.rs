//! Calls of cuDNN and cuBLAS, and waiting for Python's lock. Exports before 2024 have tables of such calls; later
//! ones write NVTX ranges in domains of their own, as `--trace=python-gil` does for the lock.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::{Filter, FrameNames, Rows, Tables};
use crate::profile::{HostRange, LibraryCall, Profile, Span, StrId, Strings, ThreadId};
use crate::read::integer_rows::for_each_row;
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::Db;

const TABLES: [&str; 2] = ["CUDNN_EVENTS", "CUBLAS_EVENTS"];
const NEEDED: &[&str] = &["start", "end", "globalTid", "nameId"];
/// NVTX domains of these calls.
const DOMAINS: [&str; 2] = ["cuDNN", "cuBLAS"];
/// The domain and the text of the ranges in which a thread waits for Python's lock.
const LOCK: [&str; 2] = ["GIL Trace", "Waiting for GIL"];

/// Where the file has such calls.
pub(super) struct Sources {
    tables: Vec<&'static str>,
    domains: Vec<StrId>,
    lock: Option<(StrId, StrId)>,
}

impl Sources {
    pub(super) fn of(
        db: &Db,
        tables: &mut Tables,
        strings: &Strings,
    ) -> Result<Sources, ReadError> {
        let mut found = Vec::new();
        for table in TABLES {
            if tables.has(db, table, NEEDED, "calls of cuDNN and cuBLAS")? {
                found.push(table);
            }
        }
        let [domain, text] = LOCK.map(|text| strings.find(text));
        Ok(Sources {
            tables: found,
            domains: DOMAINS.iter().filter_map(|d| strings.find(d)).collect(),
            lock: domain.zip(text),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.domains.is_empty() && self.lock.is_none()
    }

    /// The calls that are kept.
    pub(super) fn calls(
        &self,
        db: &Db,
        kept: &mut Rows,
        profile: &Profile,
        progress: &dyn Progress,
    ) -> Result<Calls, ReadError> {
        const COLUMNS: [&str; 4] = ["globalTid", "start", "end", "nameId"];
        let mut rows = Vec::new();
        let filter = std::sync::Arc::clone(&kept.filter);
        for table in &self.tables {
            for_each_row(
                db,
                table,
                COLUMNS,
                progress,
                |[global, start, end, name]| {
                    if let Some((thread, span)) = filter.interval(global, start, end)
                        && let Some(name) = name
                        && !kept.is_full(rows.len(), span.start)
                    {
                        let name = Name::Id(name);
                        rows.push((thread, span, name));
                    }
                },
            )?;
        }
        if !self.domains.is_empty() {
            let is_call =
                |range: &&HostRange| range.domain.is_some_and(|d| self.domains.contains(&d));
            for range in profile.ranges.iter().filter(is_call) {
                let span = range.span;
                if span.ns() > 0
                    && filter.is_idle(span)
                    && span.end < i64::MAX
                    && !kept.is_full(rows.len(), span.start)
                {
                    rows.push((range.thread, span, Name::Text(range.text)));
                }
            }
        }
        Ok(Calls(rows))
    }

    /// When threads waited for Python's lock.
    pub(super) fn lock_waits(
        &self,
        filter: &Filter,
        ranges: &[HostRange],
    ) -> Vec<(ThreadId, Span)> {
        let Some((domain, text)) = self.lock else {
            return Vec::new();
        };
        let mut waits: FxHashMap<ThreadId, Vec<Span>> = FxHashMap::default();
        for range in ranges {
            if range.domain == Some(domain)
                && range.text == text
                && range.span.end < i64::MAX
                && filter.is_idle(range.span)
            {
                waits.entry(range.thread).or_default().push(range.span);
            }
        }
        let mut all: Vec<(ThreadId, Span)> = Vec::new();
        for (thread, spans) in waits {
            all.extend(Span::union(spans).into_iter().map(|span| (thread, span)));
        }
        all.sort_by_key(|(thread, span)| (*thread, span.start));
        all
    }
}

/// A name by the id of its string, or in the profile already.
#[derive(Debug, Clone, Copy)]
enum Name {
    Id(i64),
    Text(StrId),
}

/// Calls that are not named yet.
pub(super) struct Calls(Vec<(ThreadId, Span, Name)>);

impl Calls {
    /// Ids of the string table.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.0.iter().filter_map(|(_, _, name)| match name {
            Name::Id(id) => Some(*id),
            Name::Text(_) => None,
        })
    }

    /// The calls with their names, those of one thread without overlap.
    pub(super) fn named(mut self, names: &mut FrameNames<'_>) -> Vec<LibraryCall> {
        (self.0).sort_by_key(|(thread, span, _)| (*thread, span.start, Reverse(span.end)));
        let mut calls: Vec<LibraryCall> = Vec::new();
        for (thread, mut span, name) in self.0 {
            let last = calls.last().filter(|last| last.thread == thread);
            if let Some(until) = last.map(|last| last.span.end) {
                span.start = span.start.max(until);
            }
            let name = match name {
                Name::Id(id) => names.name(id),
                Name::Text(text) => Some(text),
            };
            if let Some(name) = name.filter(|_| span.ns() > 0) {
                calls.push(LibraryCall { thread, span, name });
            }
        }
        calls
    }
}
