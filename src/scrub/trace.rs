//! A trace of torch.profiler, copied token by token: members of the trace object that no report
//! needs are left out, strings are cleaned, everything else stays as it was written.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use serde_json::value::RawValue;

use super::credentials::{Meaning, Meanings};
use super::words::{JSON_WORDS, REMOVED, Words};
use super::{ScrubError, Summary, cannot_write};
use crate::base::units;
use crate::read::{self, LONGEST_VALUE, More, Progress, ReadError, Window};

/// Members of the trace object that are copied. Whatever else is there - host, user and job names,
/// log lines, the file's own name, environment blocks - is left out.
const KEPT: &[&str] = &[
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "with_stack",
    "with_flops",
    "with_modules",
    "profile_memory",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
    "rocprofiler-sdk_version",
    "traceEvents",
];

pub(super) fn copy(
    from: &Path,
    to: &Path,
    packed: bool,
    progress: &dyn Progress,
) -> Result<(Summary, Words), ScrubError> {
    let too_long = || ReadError {
        path: from.display().to_string(),
        problem: format!(
            "holds a value or open brackets of more than {}, which no trace of torch.profiler does",
            units::bytes(LONGEST_VALUE as f64)
        ),
        remedy: "capture it again with `export_chrome_trace` or `tensorboard_trace_handler`"
            .to_owned(),
    };
    let mut words = Words::besides(KEPT);
    let whole = read::trace_text(from, progress, |more| learn(more, &mut words))?;
    if !whole {
        return Err(too_long().into());
    }
    words.settle();
    let file = File::create(to).map_err(|e| cannot_write(to, &e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = read::trace_text(from, progress, |more| {
        let written = if packed {
            let mut encoder = GzEncoder::new(&mut out, Compression::default());
            let written = write(more, &words, &mut encoder)?;
            encoder.finish()?;
            written
        } else {
            write(more, &words, &mut out)?
        };
        out.flush()?;
        Ok(written)
    })?;
    match written.map_err(|e: io::Error| cannot_write(to, &e))? {
        (summary, true) => Ok((summary, words)),
        (_, false) => Err(too_long().into()),
    }
}

/// Cleans JSON that is a cell of a database.
pub(super) fn clean_json(text: &str, words: &Words) -> String {
    let mut out = Vec::new();
    let mut copy = Copy::new(words, &mut out);
    copy.whole_trace = false;
    // Writing into memory does not fail.
    let _ = copy.all(&mut Tokens::new(&mut once(text)));
    String::from_utf8_lossy(&out).trim_end().to_owned()
}

/// A text as the only piece of itself.
fn once(text: &str) -> impl FnMut(&mut String) -> bool {
    let mut text = Some(text);
    move |to| text.take().map(|text| to.push_str(text)).is_some()
}

/// Names and secrets that the members of the trace object give away; false where a value is longer
/// than any of a trace.
fn learn(more: More<'_>, words: &mut Words) -> bool {
    let mut depth = 0_usize;
    let mut key = String::new();
    let mut after_colon = false;
    let mut meanings = Meanings::default();
    let mut tokens = Tokens::new(more);
    while let Some(token) = tokens.next() {
        match token {
            Token::Open(byte) => {
                depth += 1;
                // `{"user": ["a"]}` has a name behind its bracket, `{"user": {"id": 1}}` a key.
                after_colon &= byte == b'[';
            }
            Token::Close(_) => depth = depth.saturating_sub(1),
            Token::Mark(b':') => after_colon = true,
            Token::Mark(_) => after_colon = false,
            Token::Text(raw) if after_colon => {
                // Events are many and speak of the program; the members around them of the machine.
                if depth <= 2 || meanings.of(&key) != Meaning::Nothing {
                    words.learn(&key, &decoded(raw));
                }
                after_colon = false;
            }
            Token::Text(raw) if depth <= 3 => {
                key.clear();
                key.push_str(&decoded(raw));
            }
            Token::Bare(_) => after_colon = false,
            Token::Text(_) | Token::Space(_) => {}
        }
    }
    tokens.are_all()
}

/// What was copied, and whether all was.
fn write(more: More<'_>, words: &Words, out: &mut dyn Write) -> io::Result<(Summary, bool)> {
    let mut copy = Copy::new(words, out);
    let mut tokens = Tokens::new(more);
    copy.all(&mut tokens)?;
    let summary = Summary {
        left_out: copy.left_out,
        changed: copy.changed,
        ..Summary::default()
    };
    Ok((summary, tokens.are_all()))
}

/// A piece of JSON text.
enum Token<'t> {
    Open(u8),
    Close(u8),
    /// `,` or `:`.
    Mark(u8),
    /// A string with its quotes.
    Text(&'t str),
    /// A number or a word.
    Bare(&'t str),
    /// Blanks; more may follow.
    Space(&'t str),
}

/// The pieces of a text; a string that is cut off ends them.
struct Tokens<'m> {
    window: Window<'m>,
    /// Open brackets.
    depth: usize,
}

impl<'m> Tokens<'m> {
    fn new(more: More<'m>) -> Self {
        Tokens {
            window: Window::new(more),
            depth: 0,
        }
    }

    fn next(&mut self) -> Option<Token<'_>> {
        let end = match self.window.end(token_end) {
            Some(end) => end,
            None => self.last()?,
        };
        let first = *self.window.rest().first()?;
        self.depth = match first {
            b'{' | b'[' => self.depth + 1,
            b'}' | b']' => self.depth.saturating_sub(1),
            _ => self.depth,
        };
        if self.depth > LONGEST_VALUE {
            self.window.too_long = true;
            return None;
        }
        let text = self.window.take(end);
        Some(match first {
            b'{' | b'[' => Token::Open(first),
            b'}' | b']' => Token::Close(first),
            b',' | b':' => Token::Mark(first),
            b'"' => Token::Text(text),
            _ if first.is_ascii_whitespace() => Token::Space(text),
            _ => Token::Bare(text),
        })
    }

    /// Where the text ends in a number or a word.
    fn last(&self) -> Option<usize> {
        let cut = self.window.too_long || *self.window.rest().first()? == b'"';
        (!cut).then_some(self.window.text.len())
    }

    /// Whether none was longer than any of a trace, once there are no more.
    fn are_all(&self) -> bool {
        !self.window.too_long
    }
}

/// Where the token at `at` ends; `None` where the text ends before that is known.
fn token_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let run = |is: fn(&u8) -> bool| rest.iter().position(|b| !is(b)).map(|length| at + length);
    match *rest.first()? {
        b'{' | b'[' | b'}' | b']' | b',' | b':' => Some(at + 1),
        b'"' => read::after_json_string(bytes, at),
        b if b.is_ascii_whitespace() => Some(run(u8::is_ascii_whitespace).unwrap_or(bytes.len())),
        _ => run(|b| !b.is_ascii_whitespace() && !b"{}[],:\"".contains(b)),
    }
}

/// What a string with its quotes says; as written where it is not valid JSON.
fn decoded(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// What is done with the value of the member at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Copied,
    /// A text that names a person, a machine or a secret.
    Hidden,
    /// An environment: nothing of it is copied.
    Dropped,
}

struct Copy<'w, 'o> {
    words: &'w Words,
    out: &'o mut dyn Write,
    meanings: Meanings,
    /// Open brackets.
    open: Vec<u8>,
    /// The next string of an object is a key.
    key_next: bool,
    member: Member,
    /// Nothing is written until the brackets are this few again.
    skipped_to: Option<usize>,
    /// A comma of the trace object that is written with the next member that is kept.
    comma: bool,
    /// A member of the trace object was written.
    written: bool,
    /// The outermost object is a trace, of which only known members are kept.
    whole_trace: bool,
    left_out: u64,
    changed: u64,
}

impl<'w, 'o> Copy<'w, 'o> {
    fn new(words: &'w Words, out: &'o mut dyn Write) -> Self {
        Copy {
            words,
            out,
            meanings: Meanings::default(),
            open: Vec::new(),
            key_next: false,
            member: Member::Copied,
            skipped_to: None,
            comma: false,
            written: false,
            whole_trace: true,
            left_out: 0,
            changed: 0,
        }
    }

    fn all(&mut self, tokens: &mut Tokens<'_>) -> io::Result<()> {
        while let Some(token) = tokens.next() {
            match token {
                Token::Open(byte) => self.opened(byte)?,
                Token::Close(byte) => {
                    self.closed(byte)?;
                    if self.open.is_empty() {
                        // Nothing that follows belongs to the trace.
                        return self.out.write_all(b"\n");
                    }
                }
                Token::Mark(byte) => self.mark(byte)?,
                Token::Text(raw) => self.string(raw)?,
                Token::Bare(raw) => self.bare(raw)?,
                Token::Space(_) if self.open.is_empty() || self.in_trace_object() => {}
                Token::Space(space) => self.put(space.as_bytes())?,
            }
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.skipped_to {
            Some(_) => Ok(()),
            None => self.out.write_all(bytes),
        }
    }

    fn in_trace_object(&self) -> bool {
        self.whole_trace && self.open.as_slice() == b"{"
    }

    fn opened(&mut self, byte: u8) -> io::Result<()> {
        let dropped = self.member == Member::Dropped && self.skipped_to.is_none();
        if dropped {
            self.out.write_all(b"null")?;
            self.left_out += 1;
            self.skipped_to = Some(self.open.len());
        }
        self.put(&[byte])?;
        self.open.push(byte);
        self.key_next = byte == b'{';
        // `{"user": ["a", "b"]}`: what hides a text hides a list of them.
        if byte == b'{' {
            self.member = Member::Copied;
        }
        Ok(())
    }

    fn closed(&mut self, byte: u8) -> io::Result<()> {
        if self.open.len() <= 1 {
            self.skipped_to = None;
        }
        self.put(&[byte])?;
        self.open.pop();
        self.key_next = false;
        self.member = Member::Copied;
        if self
            .skipped_to
            .is_some_and(|depth| self.open.len() <= depth)
            && !self.in_trace_object()
        {
            self.skipped_to = None;
        }
        Ok(())
    }

    fn mark(&mut self, byte: u8) -> io::Result<()> {
        if byte == b',' {
            let in_object = self.open.last() == Some(&b'{');
            self.key_next = in_object;
            if in_object {
                self.member = Member::Copied;
            }
            if self.in_trace_object() {
                self.skipped_to = None;
                self.comma = self.written;
                return Ok(());
            }
        }
        self.put(&[byte])
    }

    fn string(&mut self, raw: &str) -> io::Result<()> {
        let value = decoded(raw);
        if std::mem::take(&mut self.key_next) {
            return self.key(raw, &value);
        }
        if self.skipped_to.is_some() {
            return Ok(());
        }
        match self.member {
            Member::Copied => self.cleaned(raw, &value),
            Member::Hidden | Member::Dropped if value.is_empty() => self.put(b"\"\""),
            Member::Hidden | Member::Dropped => self.removed(),
        }
    }

    /// What stands in place of a string.
    fn removed(&mut self) -> io::Result<()> {
        self.changed += 1;
        self.put(format!("\"{REMOVED}\"").as_bytes())
    }

    fn key(&mut self, raw: &str, key: &str) -> io::Result<()> {
        if self.in_trace_object() {
            if !KEPT.contains(&key) {
                self.left_out += 1;
                self.skipped_to = Some(1);
                return Ok(());
            }
            if std::mem::take(&mut self.comma) {
                self.put(b",")?;
            }
            self.written = true;
            return self.put(raw.as_bytes());
        }
        self.member = match self.meanings.of(key) {
            Meaning::Nothing => Member::Copied,
            Meaning::Environment => Member::Dropped,
            Meaning::Secret | Meaning::User | Meaning::Host | Meaning::Place => Member::Hidden,
        };
        self.cleaned(raw, key)
    }

    fn cleaned(&mut self, raw: &str, value: &str) -> io::Result<()> {
        let text = match self.words.clean(value) {
            Cow::Borrowed(_) => Cow::Borrowed(raw),
            // What did not decode is text as written, and stays so.
            Cow::Owned(clean) => match serde_json::from_str::<&RawValue>(raw) {
                Ok(_) => Cow::Owned(Value::String(clean).to_string()),
                Err(_) => Cow::Owned(format!("\"{clean}\"")),
            },
        };
        // An escape may spell something with what follows it: the host `n1` in a line break and `1`.
        if text.contains('\\') && self.words.next(text.as_bytes(), 0).is_some() {
            return self.removed();
        }
        self.changed += u64::from(matches!(text, Cow::Owned(_)));
        self.put(text.as_bytes())
    }

    /// Numbers and the words of JSON; of anything else nothing is known.
    fn bare(&mut self, raw: &str) -> io::Result<()> {
        const LONGEST: usize = 64;
        let unsigned = raw.trim_start_matches(['+', '-']);
        let word = JSON_WORDS.contains(&unsigned);
        let digits = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
        let known = word || (raw.len() <= LONGEST && raw.bytes().all(digits));
        // A byte order mark is the reader's business.
        let outside = self.open.is_empty();
        let kept = known && matches!(self.words.clean(raw), Cow::Borrowed(_));
        self.put(if kept && !outside {
            raw.as_bytes()
        } else if outside {
            b""
        } else {
            b"null"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::in_pieces;
    use proptest::prelude::*;

    fn copied(text: &str) -> String {
        let mut words = Words::besides(KEPT);
        assert!(learn(&mut in_pieces(text, usize::MAX), &mut words));
        words.settle();
        let whole = written(text, usize::MAX, &words);
        for length in 1..8 {
            assert_eq!(written(text, length, &words), whole, "{length}");
        }
        whole
    }

    fn written(text: &str, length: usize, words: &Words) -> String {
        let mut out = Vec::new();
        assert!(
            write(&mut in_pieces(text, length), words, &mut out)
                .unwrap()
                .1
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn members_that_tell_of_the_machine_are_left_out() {
        let text = r#"{"host_name": "node17.example", "schemaVersion": 1, "env": {"A": [1, {"b": 2}]},
            "job": "x", "traceEvents": [{"name": "on node17.example", "ts": 1.50, "args": {"user": "x", "env": {"A": "b"}, "n": [1, 2]}}],
            "traceName": "/tmp/x.json"} secret"#;
        assert_eq!(
            copied(text),
            "{\"schemaVersion\":1,\"traceEvents\":[{\"name\": \"on removed\", \"ts\": 1.50, \"args\": {\"user\": \"removed\", \"env\": null, \"n\": [1, 2]}}]}\n"
        );
    }

    #[test]
    fn words_of_the_format_are_nobodys_name() {
        for (text, copy) in [
            (
                r#"{"host_name": {"tensorcore": 1}, "traceEvents": [{"name": "tensorcore x"}]}"#,
                "{\"traceEvents\":[{\"name\": \"tensorcore x\"}]}\n",
            ),
            (
                r#"{"host_name": 1n{"tensorcore": 1}, "traceEvents": [{"name": "tensorcore x"}]}"#,
                "{\"traceEvents\":[{\"name\": \"tensorcore x\"}]}\n",
            ),
            (
                r#"{"host_name": "traceEvents", "traceEvents": [{"name": "x"}]}"#,
                "{\"traceEvents\":[{\"name\": \"x\"}]}\n",
            ),
            (
                r#"{"my_token": "chemaVersion", "schemaVersion": 1, "traceEvents": [{"a": "xchemaVersiony"}]}"#,
                "{\"schemaVersion\":1,\"traceEvents\":[{\"a\": \"xchemaVersiony\"}]}\n",
            ),
            (
                r#"{"host_name": "null[{", "traceEvents": [x[{"host": "null[{"}]]}"#,
                "{\"traceEvents\":[null[{\"host\": \"removed\"}]]}\n",
            ),
            (
                r#"{"my_token": "remove", "traceEvents": [{"token": "remove"}]}"#,
                "{\"traceEvents\":[{\"token\": \"removed\"}]}\n",
            ),
            (
                r#"{"host_name": ["node17"], "traceEvents": [{"name": "node17 x"}]}"#,
                "{\"traceEvents\":[{\"name\": \"removed x\"}]}\n",
            ),
        ] {
            assert_eq!(copied(text), copy, "{text}");
        }
    }

    #[test]
    fn lists_of_events_and_damaged_ones_stay_what_they_are() {
        for text in [
            "[{\"ph\": \"X\", \"dur\": NaN, \"a\": [1e400, -2, {}]}]\n",
            "[{\"ph\": \"X\", \"b\": \"C:\\data\\x\"}]\n",
            "{\"traceEvents\":[{\"a\": 1},,{\"a\": 2}]}\n",
        ] {
            assert_eq!(copied(text), text);
        }
        assert_eq!(
            copied("[{\"a\": -Infinity, \"b\": n1.exa}ple\"}, true]\n"),
            "[{\"a\": -Infinity, \"b\": null}null"
        );
        assert_eq!(
            copied("{\"traceEvents\": [{\"a\": 1}, {\"b\": \"cu"),
            "{\"traceEvents\":[{\"a\": 1}, {\"b\": "
        );
    }

    #[test]
    fn escapes_hide_nothing() {
        let text = r#"[{"name": "\u0068f_abcdefghijklmnopqrstuvwxyz0123 \/home\/dave\/x"}]"#;
        assert_eq!(copied(text), "[{\"name\": \"removed ~/x\"}]\n");
        let spelt = r#"[{"host": "n1.example", "a": "b\n1.example", "c": "d\n2"}]"#;
        assert_eq!(
            copied(spelt),
            "[{\"host\": \"removed\", \"a\": \"removed\", \"c\": \"d\\n2\"}]\n"
        );
        let wrong = r#"[{"name": "C:\Users\dave\x\q"}]"#;
        assert_eq!(
            copied(wrong),
            "[{\"name\": \"C:\\Users\\someone\\x\\q\"}]\n"
        );
    }

    #[test]
    fn cells_of_a_database_keep_their_members() {
        let mut words = Words::default();
        words.settle();
        assert_eq!(
            clean_json(r#"{"a": "/home/dave", "env": {"X": 1}}"#, &words),
            "{\"a\": \"~\", \"env\": null}"
        );
    }

    #[test]
    fn what_no_trace_holds_is_given_up() {
        for (beginning, unit) in [("[\"", "x"), ("", "["), ("[", "1")] {
            let unit = unit.repeat(1 << 20);
            let mut pieces = 0;
            let mut more = |text: &mut String| {
                text.push_str(if pieces == 0 { beginning } else { &unit });
                pieces += 1;
                true
            };
            assert!(!learn(&mut more, &mut Words::default()));
            assert!(pieces << 20 <= 3 * LONGEST_VALUE, "{pieces}");
        }
    }

    proptest! {
        #[test]
        fn valid_json_stays_valid(text in r#"(\{"(host|traceEvents|a|env)":|\[|\]|\}|,|"x"|1|"/home/dave"| ){0,24}"#) {
            let copy = copied(&text);
            if serde_json::from_str::<Value>(&text).is_ok() && text.trim_start().starts_with(['{', '[']) {
                prop_assert!(serde_json::from_str::<Value>(&copy).is_ok(), "{text} -> {copy}");
            }
        }
    }
}
