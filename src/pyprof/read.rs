//! Reads PyProf's dictionaries as data; PyProf itself evaluates them as code.

use std::io::{BufRead, Read};

use rayon::prelude::*;
use rustc_hash::FxHashSet;
use serde_json::Value;

use super::{Dir, Execution, LaunchContext, RangeTemplate, Records, Text, TextPool, count, names};
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

/// Number of bytes read at a time.
const BLOCK: u64 = 8 << 20;

/// Reads one dictionary per line: a Python literal, or JSON of `parse --format jsonl`. Empty lines are
/// skipped. `file` names the input in errors.
///
/// # Errors
/// At the first line that cannot be read, is not a dictionary, or lacks one of PyProf's keys.
pub fn read(file: &str, mut input: impl BufRead) -> Result<Records, DictionaryError> {
    let mut records = Records::default();
    let mut pool = TextPool::default();
    let mut line = 0;
    let mut block = Vec::new();
    let error = |line, problem| DictionaryError {
        file: file.to_owned(),
        line,
        problem,
    };
    loop {
        let problem = fill(&mut block, &mut input);
        let lines: Vec<&[u8]> = block.split_inclusive(|b| *b == b'\n').collect();
        if lines.is_empty() && problem.is_none() {
            return Ok(records);
        }
        let parsed: Vec<Result<Option<Literal<'_>>, String>> =
            lines.into_par_iter().map(parse_line).collect();
        for parsed in parsed {
            line += 1;
            let added = match parsed {
                Ok(None) => Ok(()),
                Ok(Some(entry)) => add(&entry, &mut pool, &mut records),
                Err(problem) => Err(problem),
            };
            added.map_err(|problem| error(line, problem))?;
        }
        if let Some(problem) = problem {
            return Err(error(line + 1, problem));
        }
    }
}

/// Fills `block` with whole lines: as many as fit, at least one. Returns the problem that prevented reading
/// the next line, if any.
fn fill(block: &mut Vec<u8>, input: &mut impl BufRead) -> Option<String> {
    block.clear();
    let broken = |error| format!("cannot be read: {error}");
    let mut problem = Read::take(&mut *input, BLOCK)
        .read_to_end(block)
        .err()
        .map(broken);
    let mut last = last_line(block);
    if problem.is_none() && last < block.len() {
        problem = Read::take(&mut *input, LONGEST_LINE)
            .read_until(b'\n', block)
            .err()
            .map(broken);
        if problem.is_none() && (block.len() - last) as u64 >= LONGEST_LINE {
            problem = Some("a line of more than 64 MiB".into());
        }
        if problem.is_none() {
            last = block.len();
        }
    }
    if problem.is_some() {
        block.truncate(last);
    }
    problem
}

/// The start of the incomplete last line.
fn last_line(block: &[u8]) -> usize {
    let end = block.iter().rposition(|b| *b == b'\n');
    end.map_or(0, |end| end + 1)
}

/// The literal in a line; `None` for an empty line.
fn parse_line(line: &[u8]) -> Result<Option<Literal<'_>>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|_| "bytes that are not UTF-8 text".to_owned())?
        .trim_start_matches('\u{feff}')
        .trim();
    match text {
        "" => Ok(None),
        text => entry(text).map(Some),
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

/// Adds the record of a line.
fn add(entry: &Literal<'_>, pool: &mut TextPool, records: &mut Records) -> Result<(), String> {
    if !matches!(entry, Literal::Dict(_)) {
        return Err("not a dictionary".into());
    }
    let get = |key: &str| entry.get(key).ok_or_else(|| format!("no key '{key}'"));
    let mut in_ranges = Vec::new();
    let mut texts =
        |key: &str| strings(get(key)?, pool).ok_or_else(|| wrong(key, "a list of strings"));
    let mut context = LaunchContext {
        layer: texts("layer")?,
        trace: texts("trace")?,
        reprs: texts("reprMarkers")?,
        markers: texts("marker")?,
        seq_markers: (texts("seqMarker")?.iter())
            .map(|text| RangeTemplate::cut(text, &mut in_ranges))
            .collect(),
        dir: match get("dir")?.as_str() {
            Some("fprop") => Dir::Fprop,
            Some("bprop") => Dir::Bprop,
            _ => Dir::Na,
        },
        mods: texts("mod")?,
        ops: texts("op")?,
    };
    once(&mut context);
    let text = |key: &str| {
        let value = get(key)?.as_str();
        value.ok_or_else(|| wrong(key, "a string"))
    };
    let whole = |key: &str| natural(get(key)?).ok_or_else(|| wrong(key, "a whole number"));
    let small = |key: &str| {
        let value = u32::try_from(whole(key)?);
        value.map_err(|_| wrong(key, "a number below 2^32"))
    };
    let ids = |key: &str| {
        let items = get(key)?.items();
        let all = items.and_then(|items| items.iter().map(natural).collect::<Option<Vec<u64>>>());
        all.ok_or_else(|| wrong(key, "a list of whole numbers"))
    };
    let dims = |key: &str| triple(get(key)?).ok_or_else(|| wrong(key, "three whole numbers"));
    let optional = |key: &str| match get(key)? {
        Literal::None => Ok(None),
        _ => whole(key).map(Some),
    };
    let long = text("kLongName")?;
    // A name that PyProf truncated is repaired; any other name is kept.
    let short = match text("kShortName")? {
        cut if cut == names::as_pyprof(long) => names::short(long),
        own => own.to_owned(),
    };
    let duration = i64::try_from(whole("kDuration")?).unwrap_or(i64::MAX);
    let (seq, alt) = (ids("seqId")?, ids("altSeqId")?);
    let sub = optional("subSeqId")?.unwrap_or(0);
    let tid = optional("tid")?;
    let (device, stream) = (small("device")?, small("stream")?);
    let dims = records.dims(dims("grid")?, dims("block")?);
    let lists = [in_ranges, seq, alt];
    let numbers = records.numbers.len();
    records.numbers.extend(lists.iter().flatten());
    let execution = Execution {
        duration,
        sub,
        numbers,
        counts: lists.map(|list| count(0, list.len())),
        name: records.name(pool.text(&short), pool.text(long)),
        context: records.context(context),
        tid: records.tid(tid),
        dims,
        device,
        stream,
        call: (entry.get("call").and_then(natural)).and_then(|call| u32::try_from(call).ok()),
    };
    records.push(execution);
    Ok(())
}

fn wrong(key: &str, expected: &str) -> String {
    format!("'{key}' is not {expected}")
}

/// Keeps the first of equal markers: PyProf repeats a marker for each range that has it.
fn once(context: &mut LaunchContext) {
    let mut seen: FxHashSet<Text> = FxHashSet::default();
    let first: Vec<bool> = context
        .markers
        .iter()
        .map(|marker| seen.insert(Text::clone(marker)))
        .collect();
    if first.iter().all(|first| *first) {
        return;
    }
    // Modules and operators are parallel to the markers.
    for list in [&mut context.markers, &mut context.mods, &mut context.ops] {
        let mut keep = first.iter();
        list.retain(|_| keep.next().copied().unwrap_or(true));
    }
}

fn strings(value: &Literal<'_>, pool: &mut TextPool) -> Option<Vec<Text>> {
    let items = value.items()?.iter();
    items.map(|item| Some(pool.text(item.as_str()?))).collect()
}

fn natural(value: &Literal<'_>) -> Option<u64> {
    match value {
        Literal::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn triple(value: &Literal<'_>) -> Option<[u32; 3]> {
    let [x, y, z] = value.items()? else {
        return None;
    };
    let dim = |d: &Literal<'_>| u32::try_from(natural(d)?).ok();
    Some([dim(x)?, dim(y)?, dim(z)?])
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

    fn lines(records: &Records, shape: LineFormat) -> Vec<String> {
        records.lines(shape).collect()
    }

    fn of(text: &str) -> Result<Records, DictionaryError> {
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
        let context = records.get(0).unwrap().context();
        let lists = [&context.markers, &context.mods, &context.ops];
        assert_eq!(
            lists.map(|l| l.iter().map(|t| &**t).collect::<Vec<_>>()),
            [["a", "b"], ["A", "B"], ["x", "y"]]
        );
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
    fn line_numbers_continue_across_blocks() {
        let lines = BLOCK as usize / LINE.len() + 1000;
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
