//! Formats a record as a line of `parse`: a Python dictionary with PyProf's keys in PyProf's order, or
//! the equivalent JSON.

use super::python;
use super::record::Record;

/// Formats of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// A Python dictionary, as PyProf writes it.
    Python,
    /// A JSON object with the same keys.
    Json,
}

impl Record {
    /// The line of the record, without line ending.
    pub fn line(&self, format: LineFormat) -> String {
        let out = String::with_capacity(1024);
        let mut line = Line { out, format };
        let context = &*self.context;
        line.text("kShortName", &self.name.short);
        line.number("kDuration", self.duration);
        line.texts("layer", &context.layer);
        line.texts("trace", &context.trace);
        line.texts("reprMarkers", &context.reprs);
        line.texts("marker", &context.markers);
        line.list("seqMarker", &self.seq_markers, |line, marker| {
            line.push_text(&marker.text());
        });
        line.numbers("seqId", &self.seq);
        line.number("subSeqId", self.sub);
        line.numbers("altSeqId", &self.alt);
        line.text("dir", context.dir.name());
        line.texts("mod", &context.mods);
        line.texts("op", &context.ops);
        match self.tid {
            Some(tid) => line.number("tid", tid),
            None => line.none("tid"),
        }
        line.number("device", self.device);
        line.number("stream", self.stream);
        if let Some(call) = self.call {
            line.number("call", call);
        }
        line.sizes("grid", self.grid);
        line.sizes("block", self.block);
        line.text("kLongName", &self.name.long);
        line.out.push('}');
        line.out
    }
}

/// A line up to the last entry that was added.
struct Line {
    out: String,
    format: LineFormat,
}

impl Line {
    fn is_python(&self) -> bool {
        self.format == LineFormat::Python
    }

    fn key(&mut self, key: &str) {
        if self.out.is_empty() {
            self.out.push('{');
        } else {
            self.comma();
        }
        let (quote, colon) = match self.format {
            LineFormat::Python => ("'", ": "),
            LineFormat::Json => ("\"", ":"),
        };
        for part in [quote, key, quote, colon] {
            self.out.push_str(part);
        }
    }

    fn comma(&mut self) {
        self.out.push_str(if self.is_python() { ", " } else { "," });
    }

    fn push_text(&mut self, text: &str) {
        match self.format {
            LineFormat::Python => python::push_str(&mut self.out, text),
            // Serializing a string cannot fail.
            LineFormat::Json => {
                let quoted = serde_json::to_string(text).unwrap_or_default();
                self.out.push_str(&quoted);
            }
        }
    }

    fn push_number(&mut self, number: u64) {
        self.out.push_str(itoa::Buffer::new().format(number));
    }

    fn list<T>(&mut self, key: &str, items: &[T], push: impl Fn(&mut Line, &T)) {
        self.key(key);
        self.out.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.comma();
            }
            push(self, item);
        }
        self.out.push(']');
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.push_text(text);
    }

    fn texts(&mut self, key: &str, texts: &[String]) {
        self.list(key, texts, |line, text| line.push_text(text));
    }

    fn number(&mut self, key: &str, number: impl Into<u64>) {
        self.key(key);
        self.push_number(number.into());
    }

    fn numbers(&mut self, key: &str, numbers: &[u64]) {
        self.list(key, numbers, |line, number| line.push_number(*number));
    }

    fn none(&mut self, key: &str) {
        self.key(key);
        self.out
            .push_str(if self.is_python() { "None" } else { "null" });
    }

    fn sizes(&mut self, key: &str, sizes: [u32; 3]) {
        if self.is_python() {
            self.key(key);
            self.out.push_str(&python::tuple(&sizes));
        } else {
            self.numbers(key, &sizes.map(u64::from));
        }
    }
}
