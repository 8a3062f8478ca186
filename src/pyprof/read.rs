//! Reads PyProf's dictionaries as data; PyProf itself evaluates them as code.

use std::hash::Hash;
use std::io::BufRead;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use serde_json::Value;

use super::names;
use super::numbered_ranges::SeqMarker;
use super::record::{BATCH, Dir, KernelName, LaunchContext, Record};
use crate::correlate::literal::{self, Literal};

/// Maximum length of a line. PyProf's own longest, with one marker repeated 702 times, has 90 KB.
const LONGEST_LINE: u64 = 64 << 20;

/// The reason why a line is not a dictionary of PyProf.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{line}: {problem}\n  {REMEDY}")]
pub struct DictionaryError {
    /// The input, as named by the caller.
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    /// The problem with the line.
    pub problem: String,
}

const REMEDY: &str = "expected one dictionary per line, as `pyprof-advise parse` and PyProf's `parse` write them; \
     write the file again from the profile";

/// Reads one dictionary per line: a Python literal, or JSON of `parse --format jsonl`. Empty lines are
/// skipped. `file` names the input in errors.
///
/// # Errors
/// At the first line that cannot be read, is not a dictionary, or lacks one of PyProf's keys.
pub fn read(file: &str, mut input: impl BufRead) -> Result<Vec<Record>, DictionaryError> {
    let mut records = Vec::new();
    let mut contexts = Shared::default();
    let mut names = Shared::default();
    let mut line = 0;
    loop {
        let lines = next_lines(&mut input);
        if lines.is_empty() {
            return Ok(records);
        }
        let parsed: Vec<Result<Option<Record>, String>> = lines
            .into_par_iter()
            .map(|line| parse_line(&line?))
            .collect();
        for parsed in parsed {
            line += 1;
            let record = parsed.map_err(|problem| DictionaryError {
                file: file.to_owned(),
                line,
                problem,
            })?;
            records.extend(record.map(|record| Record {
                context: contexts.share(record.context),
                name: names.share(record.name),
                ..record
            }));
        }
    }
}

/// Stores equal values once.
#[derive(Debug, Default)]
struct Shared<T>(FxHashSet<Arc<T>>);

impl<T: Hash + Eq> Shared<T> {
    fn share(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.0.get(&value) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&value));
        value
    }
}

/// The next lines, up to a few megabytes; none at the end of the input. A line that cannot be read is the
/// problem with it.
fn next_lines(input: &mut impl BufRead) -> Vec<Result<Vec<u8>, String>> {
    /// Bytes after which a batch ends.
    const ENOUGH: usize = 8 << 20;
    let mut lines = Vec::new();
    let mut bytes = 0;
    while bytes < ENOUGH && lines.len() < BATCH {
        let mut line = Vec::new();
        let mut limited = std::io::Read::take(&mut *input, LONGEST_LINE);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) => break,
            Err(error) => lines.push(Err(format!("cannot be read: {error}"))),
            Ok(_) if line.len() as u64 >= LONGEST_LINE => {
                lines.push(Err("a line of more than 64 MiB".into()));
            }
            Ok(read) => {
                bytes += read;
                lines.push(Ok(line));
                continue;
            }
        }
        break;
    }
    lines
}

/// The record in a line; `None` for an empty line.
fn parse_line(line: &[u8]) -> Result<Option<Record>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|_| "bytes that are not UTF-8 text".to_owned())?
        .trim_start_matches('\u{feff}')
        .trim();
    match text {
        "" => Ok(None),
        text => Fields(&entry(text)?).record().map(Some),
    }
}

/// A line as a literal; JSON has `null` for Python's `None`.
fn entry(text: &str) -> Result<Literal<'_>, String> {
    match literal::parse(text) {
        Err(_) if text.starts_with("{\"kShortName\"") => serde_json::from_str(text)
            .map(of_json)
            .map_err(|error| error.to_string()),
        read => read.map_err(|error| error.to_string()),
    }
}

/// Converts JSON. The JSON reader bounds the depth.
fn of_json(value: Value) -> Literal<'static> {
    match value {
        Value::Null => Literal::None,
        Value::Bool(value) => Literal::Bool(value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Literal::Int(whole),
            None => Literal::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Literal::Str(text.into()),
        Value::Array(items) => Literal::List(items.into_iter().map(of_json).collect()),
        Value::Object(entries) => Literal::Dict(
            entries
                .into_iter()
                .map(|(key, value)| (Literal::Str(key.into()), of_json(value)))
                .collect(),
        ),
    }
}

/// The dictionary of a line.
struct Fields<'l>(&'l Literal<'l>);

impl Fields<'_> {
    /// The record, or the first problem.
    fn record(&self) -> Result<Record, String> {
        if !matches!(self.0, Literal::Dict(_)) {
            return Err("not a dictionary".into());
        }
        let layer = self.texts("layer")?;
        let trace = self.texts("trace")?;
        let reprs = self.texts("reprMarkers")?;
        let markers = self.texts("marker")?;
        let seq_markers = self.texts("seqMarker")?;
        let mut context = LaunchContext {
            layer,
            trace,
            reprs,
            markers,
            dir: self.value("dir", "", |dir| Some(direction(dir)))?,
            mods: self.texts("mod")?,
            ops: self.texts("op")?,
        };
        keep_distinct_markers(&mut context);
        let long = self.text("kLongName")?;
        // A name that PyProf truncated is repaired; any other name is kept.
        let short = match self.text("kShortName")? {
            cut if cut == names::as_pyprof(&long) => names::short(&long),
            own => own,
        };
        Ok(Record {
            name: Arc::new(KernelName { short, long }),
            duration: self.number("kDuration")?,
            context: Arc::new(context),
            seq_markers: seq_markers.into_iter().map(SeqMarker::Text).collect(),
            seq: self.numbers("seqId")?,
            alt: self.numbers("altSeqId")?,
            sub: self.number_or_none("subSeqId")?.unwrap_or(0),
            tid: self.number_or_none("tid")?,
            device: self.small_number("device")?,
            stream: self.small_number("stream")?,
            call: self.small_number("call").ok(),
            grid: self.sizes("grid")?,
            block: self.sizes("block")?,
        })
    }

    fn value<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Literal<'_>) -> Option<T>,
    ) -> Result<T, String> {
        let value = self.0.get(key).ok_or_else(|| format!("no key '{key}'"))?;
        convert(value).ok_or_else(|| format!("'{key}' is not {expected}"))
    }

    fn text(&self, key: &str) -> Result<String, String> {
        self.value(key, "a string", text)
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, String> {
        self.value(key, "a list of strings", |value| {
            value.items()?.iter().map(text).collect()
        })
    }

    fn number(&self, key: &str) -> Result<u64, String> {
        self.value(key, "a whole number", natural)
    }

    fn number_or_none(&self, key: &str) -> Result<Option<u64>, String> {
        self.value(key, "a whole number", |value| match value {
            Literal::None => Some(None),
            value => natural(value).map(Some),
        })
    }

    fn small_number(&self, key: &str) -> Result<u32, String> {
        u32::try_from(self.number(key)?).map_err(|_| format!("'{key}' is not a number below 2^32"))
    }

    fn numbers(&self, key: &str) -> Result<Vec<u64>, String> {
        self.value(key, "a list of whole numbers", |value| {
            value.items()?.iter().map(natural).collect()
        })
    }

    fn sizes(&self, key: &str) -> Result<[u32; 3], String> {
        let size = |value: &Literal<'_>| u32::try_from(natural(value)?).ok();
        self.value(key, "three whole numbers", |value| match value.items()? {
            [x, y, z] => Some([size(x)?, size(y)?, size(z)?]),
            _ => None,
        })
    }
}

fn text(value: &Literal<'_>) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn natural(value: &Literal<'_>) -> Option<u64> {
    match value {
        Literal::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn direction(value: &Literal<'_>) -> Dir {
    match value.as_str() {
        Some("fprop") => Dir::Fprop,
        Some("bprop") => Dir::Bprop,
        _ => Dir::Na,
    }
}

/// Keeps the first of equal markers: PyProf repeats a marker for each range that has it.
fn keep_distinct_markers(context: &mut LaunchContext) {
    let mut seen = FxHashSet::default();
    let first: Vec<bool> = context.markers.iter().map(|m| seen.insert(m)).collect();
    // Modules and operators are parallel to the markers.
    for list in [&mut context.markers, &mut context.mods, &mut context.ops] {
        let mut keep = first.iter();
        list.retain(|_| keep.next().copied().unwrap_or(true));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pyprof::LineFormat;

    const LINE: &str = "{'kShortName': 'k', 'kDuration': 5, 'layer': ['a'], 'trace': [], \
        'reprMarkers': [], 'marker': [\"{'mod': 'm'}\"], 'seqMarker': [], 'seqId': [1], \
        'subSeqId': 2, 'altSeqId': [3], 'dir': 'bprop', 'mod': ['m'], 'op': ['o'], 'tid': None, \
        'device': 0, 'stream': 7, 'grid': (1, 2, 3), 'block': (4, 5, 6), 'kLongName': 'k<1>'}";

    fn lines(records: &[Record], format: LineFormat) -> Vec<String> {
        records.iter().map(|record| record.line(format)).collect()
    }

    fn of(text: &str) -> Result<Vec<Record>, DictionaryError> {
        read("net.dict", text.as_bytes())
    }

    #[test]
    fn lines_are_read_and_written_unchanged() {
        let records = of(&format!("{LINE}\n\n{LINE}")).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(lines(&records, LineFormat::Python), [LINE, LINE]);
        let json = lines(&records, LineFormat::Json).join("\n");
        assert_eq!(lines(&of(&json).unwrap(), LineFormat::Python), [LINE, LINE]);
    }

    #[test]
    fn repeated_markers_are_read_once() {
        let many = LINE
            .replace("[\"{'mod': 'm'}\"]", "['a', 'a', 'b', 'a']")
            .replace(
                "'mod': ['m'], 'op': ['o']",
                "'mod': ['A', 'A', 'B', 'A'], 'op': ['x', 'x', 'y', 'x']",
            );
        let records = of(&many).unwrap();
        let context = &records[0].context;
        let lists = [&context.markers, &context.mods, &context.ops];
        assert_eq!(lists, [&["a", "b"], &["A", "B"], &["x", "y"]]);
    }

    #[test]
    fn lines_are_read_in_any_formatting() {
        let spaced = LINE.replace("'kDuration': 5, ", "'kDuration' :  5 ,");
        let escaped = LINE.replace("'op': ['o']", "'op': ['\\x6f']");
        let json = lines(&of(LINE).unwrap(), LineFormat::Json).join("");
        for other in [&spaced, &escaped, &json] {
            for text in [
                format!("{LINE}\n{other}\n{LINE}\n{other}"),
                format!("{other}\r\n\n{LINE}\r\n{other}\n  {LINE}  \n"),
            ] {
                let read = of(&text).unwrap();
                assert_eq!(lines(&read, LineFormat::Python), [LINE; 4], "{text}");
            }
        }
    }

    /// A reader that returns a few bytes at a time, and an error at the end.
    struct Slow<'a>(&'a [u8], usize);

    impl std::io::Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let size = self.1.min(out.len()).min(self.0.len());
            let (now, later) = self.0.split_at(size);
            out.get_mut(..size).unwrap().copy_from_slice(now);
            self.0 = later;
            if size == 0 {
                return Err(std::io::Error::other("gone"));
            }
            Ok(size)
        }
    }

    #[test]
    fn read_errors_name_the_line() {
        let whole = format!("{LINE}\n{LINE}\n");
        for (text, want) in [
            (whole.clone(), "net.dict:3: cannot be read: gone"),
            (format!("{whole}{LINE}"), "net.dict:3: cannot be read: gone"),
            (
                format!("{LINE}\n[1]\n{LINE}"),
                "net.dict:2: not a dictionary",
            ),
        ] {
            let input = std::io::BufReader::with_capacity(16, Slow(text.as_bytes(), 7));
            let error = read("net.dict", input).unwrap_err().to_string();
            assert!(error.starts_with(want), "{error}");
        }
    }

    #[test]
    fn line_numbers_continue_across_batches() {
        let lines = BATCH + 1000;
        let mut text = format!("{LINE}\n").repeat(lines);
        assert_eq!(of(&text).unwrap().len(), lines);
        text.push_str("\n[1]\n");
        let error = of(&text).unwrap_err();
        assert_eq!(error.line, lines as u64 + 2);
    }

    #[test]
    fn invalid_lines_are_reported_with_their_number() {
        for (text, want) in [
            (
                "__import__('os').system('x')",
                "net.dict:3: a name, not a literal at byte 0",
            ),
            ("[1]", "net.dict:3: not a dictionary"),
            ("{'kShortName': 'k'}", "net.dict:3: no key"),
            (
                &LINE.replace("(1, 2, 3)", "(1, 2)"),
                "net.dict:3: 'grid' is not three whole numbers",
            ),
            (
                &LINE.replace("'kDuration': 5", "'kDuration': -5"),
                "'kDuration' is not a whole number",
            ),
        ] {
            let error = of(&format!("{LINE}\n{LINE}\n{text}\n"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
