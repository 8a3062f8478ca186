//! Formats one line per kernel: a Python dictionary with PyProf's keys in PyProf's order, or the
//! equivalent JSON. Shared parts are formatted once; a line copies them and adds its numbers.

use super::range_template::RangeTemplate;
use super::{KernelName, LaunchContext, LaunchDims, Record, Records, Text, push_number, python};

/// Formats of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// A Python dictionary, as PyProf writes it.
    Python,
    /// A JSON object with the same keys.
    Json,
}

/// Formats lines from parts that many lines share.
#[derive(Debug)]
pub(super) struct LineWriter {
    shape: LineFormat,
    names: Vec<NamePiece>,
    contexts: Vec<PlacePiece>,
    dims: Vec<Vec<u8>>,
}

/// The start and the end of a line: short and long name.
#[derive(Debug)]
struct NamePiece {
    short: Vec<u8>,
    long: Vec<u8>,
}

/// The values of a context, with the offsets at which numbers are inserted.
#[derive(Debug)]
struct PlacePiece {
    text: Vec<u8>,
    /// Offsets of the numbers of ranges.
    slots: Vec<usize>,
    /// Offset of the sequence numbers.
    seq: usize,
}

impl LineWriter {
    pub(super) fn new(shape: LineFormat) -> LineWriter {
        LineWriter {
            shape,
            names: Vec::new(),
            contexts: Vec::new(),
            dims: Vec::new(),
        }
    }

    /// Formats the shared parts that were added to `records` since the last call.
    pub(super) fn learn(&mut self, records: &Records) {
        let shape = self.shape;
        let names = records.names.iter().skip(self.names.len());
        self.names.extend(names.map(|name| shape.name(name)));
        let contexts = records.contexts.iter().skip(self.contexts.len());
        self.contexts
            .extend(contexts.map(|context| shape.context(context)));
        let dims = records.dims.iter().skip(self.dims.len());
        self.dims.extend(dims.map(|dims| shape.dims(dims)));
    }

    /// Appends a record's line, without the line end.
    pub(super) fn push(&self, out: &mut Vec<u8>, record: Record<'_>) {
        let own = record.own;
        let (Some(name), Some(context)) = (
            self.names.get(own.name.idx()),
            self.contexts.get(own.context.idx()),
        ) else {
            return;
        };
        out.extend_from_slice(&name.short);
        push_number(out, record.duration());
        let mut from = 0;
        for (slot, number) in context.slots.iter().zip(record.in_ranges()) {
            out.extend_from_slice(context.text.get(from..*slot).unwrap_or_default());
            push_number(out, *number);
            from = *slot;
        }
        out.extend_from_slice(context.text.get(from..context.seq).unwrap_or_default());
        self.shape.numbers(out, record.seq());
        self.shape.key(out, "subSeqId");
        push_number(out, record.sub());
        self.shape.key(out, "altSeqId");
        self.shape.numbers(out, record.alt());
        out.extend_from_slice(context.text.get(context.seq..).unwrap_or_default());
        self.shape.tid(out, record.tid());
        self.shape.key(out, "device");
        push_number(out, own.device);
        self.shape.key(out, "stream");
        push_number(out, own.stream);
        if let Some(call) = own.call {
            self.shape.key(out, "call");
            push_number(out, call);
        }
        out.extend_from_slice(self.dims.get(own.dims.idx()).map_or(&[], Vec::as_slice));
        out.extend_from_slice(&name.long);
    }
}

impl LineFormat {
    fn is_python(self) -> bool {
        self == LineFormat::Python
    }

    /// Appends `, 'name': `.
    fn key(self, out: &mut Vec<u8>, name: &str) {
        let (before, after) = match self {
            LineFormat::Python => (", '", "': "),
            LineFormat::Json => (",\"", "\":"),
        };
        for part in [before, name, after] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn string(self, out: &mut Vec<u8>, text: &str) {
        let mut literal = String::with_capacity(text.len() + 2);
        match self {
            LineFormat::Python => python::push_str(&mut literal, text),
            LineFormat::Json => literal.push_str(&json(text)),
        }
        out.extend_from_slice(literal.as_bytes());
    }

    fn list<T>(self, out: &mut Vec<u8>, items: &[T], mut item: impl FnMut(&mut Vec<u8>, &T)) {
        out.push(b'[');
        for (at, value) in items.iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(if self.is_python() { b", " } else { b"," });
            }
            item(out, value);
        }
        out.push(b']');
    }

    fn strings(self, out: &mut Vec<u8>, list: &[Text]) {
        self.list(out, list, |out, text| self.string(out, text));
    }

    fn numbers(self, out: &mut Vec<u8>, list: &[u64]) {
        self.list(out, list, |out, number| push_number(out, *number));
    }

    fn name(self, name: &KernelName) -> NamePiece {
        let mut short = Vec::new();
        // No separator precedes the first key.
        self.key(&mut short, "kShortName");
        let behind = if self.is_python() { 2 } else { 1 };
        short.drain(..behind);
        short.insert(0, b'{');
        self.string(&mut short, &name.short);
        self.key(&mut short, "kDuration");
        let mut long = Vec::new();
        self.key(&mut long, "kLongName");
        self.string(&mut long, &name.long);
        long.push(b'}');
        NamePiece { short, long }
    }

    fn context(self, context: &LaunchContext) -> PlacePiece {
        let mut text = Vec::new();
        for (key, list) in [
            ("layer", &context.layer),
            ("trace", &context.trace),
            ("reprMarkers", &context.reprs),
            ("marker", &context.markers),
        ] {
            self.key(&mut text, key);
            self.strings(&mut text, list);
        }
        self.key(&mut text, "seqMarker");
        let mut slots = Vec::new();
        self.list(&mut text, &context.seq_markers, |out, range_template| {
            self.range_template(out, range_template, &mut slots);
        });
        self.key(&mut text, "seqId");
        let seq = text.len();
        self.key(&mut text, "dir");
        self.string(&mut text, context.dir.name());
        self.key(&mut text, "mod");
        self.strings(&mut text, &context.mods);
        self.key(&mut text, "op");
        self.strings(&mut text, &context.ops);
        self.key(&mut text, "tid");
        PlacePiece { text, slots, seq }
    }

    /// Appends a template without its numbers, which need no escapes and do not affect the quotes.
    fn range_template(
        self,
        out: &mut Vec<u8>,
        range_template: &RangeTemplate,
        slots: &mut Vec<usize>,
    ) {
        let quote = match self {
            LineFormat::Python => python::quote(range_template.blank()),
            LineFormat::Json => '"',
        };
        let mut literal = String::from(quote);
        for (at, piece) in range_template.pieces().enumerate() {
            if at > 0 {
                slots.push(out.len() + literal.len());
            }
            match self {
                LineFormat::Python => python::push_inside(&mut literal, piece, quote),
                LineFormat::Json => {
                    let quoted = json(piece);
                    let inside = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"'));
                    literal.push_str(inside.unwrap_or_default());
                }
            }
        }
        literal.push(quote);
        out.extend_from_slice(literal.as_bytes());
    }

    fn tid(self, out: &mut Vec<u8>, tid: Option<u64>) {
        match tid {
            Some(tid) => push_number(out, tid),
            None => out.extend_from_slice(if self.is_python() { b"None" } else { b"null" }),
        }
    }

    fn dims(self, dims: &LaunchDims) -> Vec<u8> {
        let mut out = Vec::new();
        for (key, sizes) in [("grid", &dims.grid), ("block", &dims.block)] {
            self.key(&mut out, key);
            let shown = match self {
                LineFormat::Python => python::tuple(sizes),
                LineFormat::Json => {
                    let [x, y, z] = sizes;
                    format!("[{x},{y},{z}]")
                }
            };
            out.extend_from_slice(shown.as_bytes());
        }
        out
    }
}

fn json(text: &str) -> String {
    // Serializing a string cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}
