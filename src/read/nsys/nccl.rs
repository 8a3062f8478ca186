//! The messages of collectives, from the payloads of NCCL's own NVTX ranges.
//!
//! NCCL 2.15 and later attaches the size of the message to each range, and the number of ranks to the one
//! that makes a communicator. Exports hold payloads if made with `nsys export --include-blobs=true`.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Pids, RANGES, STRINGS};
use crate::base::units;
use crate::profile::{ApiClass, KernelId, Message, Profile, Span, ThreadId, collective_in};
use crate::read::builder::{Builder, sort_by_start};
use crate::read::names::{PartName, PartNames, StringTable};
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::{Cells, Db, Sink};

/// Bytes before the fields of a payload: domain, schema, and sizes.
pub(super) const HEADER: usize = 32;
/// Where the header has the number of the schema.
const SCHEMA: usize = 8;

/// A field of a payload.
#[derive(Debug, Clone, Copy)]
struct Field {
    offset: usize,
    bytes: usize,
}

impl Field {
    /// A field of a type of which NVTX's `nvToolsExtPayload.h` says the size; NCCL uses INT, UINT64 and SIZE.
    fn new(kind: i64, offset: i64) -> Option<Field> {
        let bytes = match kind {
            // INT, UINT, INT32, UINT32.
            5 | 6 | 15 | 16 => 4,
            // LONGLONG, ULONGLONG, INT64, UINT64, SIZE.
            9 | 10 | 17 | 18 | 22 => 8,
            _ => return None,
        };
        let offset = HEADER.checked_add(usize::try_from(offset).ok()?)?;
        Some(Field { offset, bytes })
    }

    fn read(self, payload: &[u8]) -> Option<u64> {
        let end = self.offset.checked_add(self.bytes)?;
        let bytes = payload.get(self.offset..end)?.iter().rev();
        Some(bytes.fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }
}

/// Where the payloads of one schema have what is read from them.
#[derive(Debug, Clone, Copy, Default)]
struct Schema {
    communicator: Option<Field>,
    bytes: Option<Field>,
    ranks: Option<Field>,
}

/// The schemas by domain and number. All processes declare the same ones.
#[derive(Debug, Clone, Default)]
struct Schemas(FxHashMap<(i64, i64), Schema>);

const SCHEMA_COLUMNS: [&str; 5] = ["domainId", "schemaId", "type", "name", "offset"];

impl Sink for Schemas {
    fn row(&mut self, cells: &Cells<'_>) {
        let (Some(domain), Some(id), Some(kind)) = (cells.int(0), cells.int(1), cells.int(2))
        else {
            return;
        };
        // The first field has no offset.
        let field = Field::new(kind, cells.int(4).unwrap_or(0));
        let schema = match cells.bytes(3) {
            Some(b"NCCL communicator ID") => |s: &mut Schema, f| s.communicator = f,
            Some(b"Message size [bytes]") => |s: &mut Schema, f| s.bytes = f,
            Some(b"No. of ranks") => |s: &mut Schema, f| s.ranks = f,
            _ => return,
        };
        schema(self.0.entry((domain, id)).or_default(), field);
    }
}

/// What the payload of a range says.
#[derive(Debug, Clone, Copy)]
enum Payload {
    None,
    /// It cannot be read.
    Damaged,
    Message {
        communicator: Option<u64>,
        bytes: u64,
    },
    Ranks {
        communicator: u64,
        ranks: u64,
    },
}

impl Schemas {
    fn read(&self, domain: i64, payload: &[u8]) -> Payload {
        let schema = Field {
            offset: SCHEMA,
            bytes: 4,
        };
        let found = schema
            .read(payload)
            .and_then(|id| self.0.get(&(domain, id.cast_signed())));
        let Some(schema) = found else {
            // NCCL has more payloads than those with messages.
            return Payload::None;
        };
        let read = |field: Option<Field>| field.and_then(|f| f.read(payload));
        let communicator = read(schema.communicator);
        match (communicator, schema.bytes, schema.ranks) {
            (_, Some(bytes), _) => match bytes.read(payload) {
                Some(bytes) => Payload::Message {
                    communicator,
                    bytes,
                },
                None => Payload::Damaged,
            },
            (Some(communicator), None, Some(ranks)) => match ranks.read(payload) {
                Some(ranks) => Payload::Ranks {
                    communicator,
                    ranks,
                },
                None => Payload::Damaged,
            },
            _ => Payload::None,
        }
    }
}

/// The bytes of a payload, which some exports write as hexadecimal digits.
pub(super) fn bytes_of(cell: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pairs = cell.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    });
    match pairs.collect::<Option<Vec<u8>>>() {
        Some(decoded) => decoded.into(),
        None => cell.into(),
    }
}

#[derive(Debug, Clone, Copy)]
struct Row<N> {
    span: Span,
    /// `globalTid`.
    thread: i64,
    name: N,
    payload: Payload,
}

/// The ranges of one part of the table that are in the domain of NCCL.
#[derive(Clone)]
struct Rows {
    schemas: Arc<Schemas>,
    domains: Arc<FxHashSet<i64>>,
    names: PartNames,
    rows: Vec<Row<PartName>>,
}

const COLUMNS: [&str; 6] = [
    "start",
    "end",
    "globalTid",
    "text|textId",
    "domainId",
    "binaryData",
];

impl Sink for Rows {
    fn row(&mut self, cells: &Cells<'_>) {
        let Some(domain) = cells.int(4).filter(|d| self.domains.contains(d)) else {
            return;
        };
        let (Some(start), Some(end), Some(thread)) = (cells.int(0), cells.int(1), cells.int(2))
        else {
            return;
        };
        let payload = match cells.bytes(5) {
            Some(cell) => self.schemas.read(domain, &bytes_of(cell)),
            None => Payload::None,
        };
        self.rows.push(Row {
            span: Span { start, end },
            thread,
            name: self.names.of_cell(cells, 3),
            payload,
        });
    }
}

/// What a range of NCCL tells about messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    GroupStart,
    GroupEnd,
    Collective(&'static str),
    Send,
    Receive,
}

impl Call {
    fn of(name: &str) -> Option<Call> {
        let call = name.strip_prefix("nccl")?.trim_end_matches("()");
        Some(match call {
            "GroupStart" => Call::GroupStart,
            "GroupEnd" => Call::GroupEnd,
            "Send" => Call::Send,
            "Recv" => Call::Receive,
            "Bcast" => Call::Collective("broadcast"),
            _ => Call::Collective(collective_in(call)?),
        })
    }
}

/// A message that NCCL was asked to exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exchange {
    call: Call,
    communicator: Option<u64>,
    /// What one rank sends or receives, by the kind of the collective.
    bytes: u64,
}

/// Messages that a program asked for, each with the range in which its kernels were launched.
#[derive(Debug, Default)]
pub(super) struct Messages {
    exchanges: Vec<(ThreadId, Span, Vec<Exchange>)>,
    /// Ranks of communicators that were made during the capture.
    ranks: FxHashMap<u64, u64>,
    damaged: u64,
}

impl Messages {
    /// Reads the payloads of the ranges, if the file has any of NCCL.
    pub(super) fn read(
        db: &Db,
        pids: &Pids,
        builder: &mut Builder,
        progress: &dyn Progress,
    ) -> Result<Messages, ReadError> {
        let mut schemas = Schemas::default();
        for part in db.scan(
            "NVTX_PAYLOAD_SCHEMA_ENTRIES",
            &SCHEMA_COLUMNS,
            &schemas,
            progress,
        )? {
            schemas.0.extend(part.0);
        }
        schemas
            .0
            .retain(|_, s| s.bytes.is_some() || s.ranks.is_some());
        if schemas.0.is_empty() {
            return Ok(Messages::default());
        }
        let empty = Rows {
            domains: Arc::new(schemas.0.keys().map(|(domain, _)| *domain).collect()),
            schemas: Arc::new(schemas),
            names: PartNames::default(),
            rows: Vec::new(),
        };
        let parts = db.scan(RANGES, &COLUMNS, &empty, progress)?;
        if !(parts.iter().flat_map(|part| &part.rows)).any(|r| !matches!(r.payload, Payload::None))
        {
            return Ok(Messages::default());
        }
        let ids = parts.iter().flat_map(|part| part.names.ids()).collect();
        let strings = StringTable::read(db, STRINGS, ids, progress)?;
        let mut rows = Vec::new();
        for part in parts {
            let names = part.names.resolve(&strings, &mut builder.profile.strings);
            rows.extend(part.rows.into_iter().map(|row| Row {
                span: row.span,
                thread: row.thread,
                name: names.get(row.name),
                payload: row.payload,
            }));
        }
        sort_by_start(&mut rows, |row| row.span.start);

        let mut messages = Messages::default();
        let mut groups: FxHashMap<ThreadId, Group> = FxHashMap::default();
        for row in rows {
            if let Payload::Ranks {
                communicator,
                ranks,
            } = row.payload
            {
                messages.ranks.insert(communicator, ranks);
            }
            messages.damaged += u64::from(matches!(row.payload, Payload::Damaged));
            let name = row
                .name
                .map_or("", |name| builder.profile.strings.get(name));
            let Some(call) = Call::of(name) else { continue };
            let thread = pids.thread(builder, row.thread);
            let group = groups.entry(thread).or_default();
            if let Some(exchanges) = group.take(call, row.payload) {
                messages.exchanges.push((thread, row.span, exchanges));
            }
        }
        Ok(messages)
    }

    /// Gives the kernels of collectives their messages.
    pub(super) fn attach(self, profile: &mut Profile) {
        if self.damaged > 0 {
            let damaged = units::count(self.damaged);
            let text = format!(
                "NVTX payloads of NCCL that end before the size of their message: {damaged}; these sizes are \
                 unknown."
            );
            profile.note("payloads_damaged", text);
        }
        if self.exchanges.is_empty() {
            return;
        }
        let mut kernels = FxHashMap::default();
        for (at, kernel) in profile.kernels.iter().enumerate() {
            if let Some(correlation) = kernel.correlation
                && profile.text(kernel.name).contains("nccl")
            {
                kernels.insert((kernel.process, correlation), KernelId::new(at));
            }
        }
        let mut launches: FxHashMap<ThreadId, Vec<(i64, KernelId)>> = FxHashMap::default();
        for call in profile.calls.iter().filter(|c| c.class == ApiClass::Launch) {
            if let Some(key) = profile.process_of(call.thread).zip(call.correlation)
                && let Some(kernel) = kernels.get(&key)
            {
                let of_thread = launches.entry(call.thread).or_default();
                of_thread.push((call.span.start, *kernel));
            }
        }
        for (thread, span, exchanges) in &self.exchanges {
            let Some(launches) = launches.get(thread) else {
                continue;
            };
            let first = launches.partition_point(|(start, _)| *start < span.start);
            let last = launches.partition_point(|(start, _)| *start <= span.end);
            let launched = launches.get(first..last).unwrap_or_default();
            let Some(text) = self.text(exchanges, launched.len()) else {
                continue;
            };
            let args = profile.strings.intern(&text);
            let messages = launched.iter().map(|(_, kernel)| Message {
                kernel: *kernel,
                args,
            });
            profile.messages.extend(messages);
        }
        profile.messages.sort_by_key(|message| message.kernel);
        profile.messages.dedup_by_key(|message| message.kernel);
    }

    /// The arguments of each of `kernels` that were launched for the messages of one call or group; `None`
    /// where it is not certain which kernel exchanges what.
    fn text(&self, exchanges: &[Exchange], kernels: usize) -> Option<String> {
        let (first, others) = exchanges.split_first()?;
        let ranks = first.communicator.and_then(|c| self.ranks.get(&c).copied());
        let sum = |call| {
            let of_call = exchanges.iter().filter(|a| a.call == call);
            of_call.fold(0_u64, |sum, a| sum.saturating_add(a.bytes))
        };
        let (name, incoming, outgoing) = match first.call {
            Call::Collective(name) => {
                let alike = others.iter().all(|o| o.call == first.call);
                let bytes = match kernels {
                    1 if alike => sum(first.call),
                    n if n == exchanges.len() && others.iter().all(|o| o == first) => first.bytes,
                    _ => return None,
                };
                let of_all = || bytes.checked_mul(ranks?);
                let (incoming, outgoing) = match name {
                    "all_gather" => (bytes, of_all()?),
                    "reduce_scatter" => (of_all()?, bytes),
                    "all_to_all" | "gather" | "scatter" => (of_all()?, of_all()?),
                    _ => (bytes, bytes),
                };
                (name, incoming, outgoing)
            }
            Call::Send | Call::Receive if kernels == 1 => {
                let other = |o: &Exchange| matches!(o.call, Call::Collective(_));
                if others.iter().any(other) {
                    return None;
                }
                // Exchanges with all ranks include a message to oneself, which no link carries; whether there is
                // one is not known where the number of ranks is not.
                let count = |call| exchanges.iter().filter(|a| a.call == call).count() as u64;
                let sends = count(Call::Send);
                let name = match ranks {
                    Some(ranks) if sends == ranks && count(Call::Receive) == ranks => "all_to_all",
                    None if sends > 1 => "all_to_all",
                    _ => "send_recv",
                };
                (name, sum(Call::Send), sum(Call::Receive))
            }
            _ => return None,
        };
        let ranks = ranks.map_or(String::new(), |n| format!(",\"Group size\":{n}"));
        Some(format!(
            "{{\"Collective name\":\"{name}\",\"In msg bytes\":{incoming},\"Out msg bytes\":{outgoing}{ranks}}}"
        ))
    }
}

/// What a thread has asked for since it began a group, whose kernels are launched at its end.
#[derive(Debug, Default)]
struct Group {
    depth: u32,
    exchanges: Vec<Exchange>,
}

impl Group {
    /// The messages for which kernels are launched in the range of this call.
    fn take(&mut self, call: Call, payload: Payload) -> Option<Vec<Exchange>> {
        match (call, payload) {
            (Call::GroupStart, _) => self.depth += 1,
            (Call::GroupEnd, _) => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Some(std::mem::take(&mut self.exchanges));
                }
            }
            (
                call,
                Payload::Message {
                    communicator,
                    bytes,
                },
            ) => {
                let exchange = Exchange {
                    call,
                    communicator,
                    bytes,
                };
                if self.depth == 0 {
                    return Some(vec![exchange]);
                }
                self.exchanges.push(exchange);
            }
            _ => {}
        }
        None
    }
}
