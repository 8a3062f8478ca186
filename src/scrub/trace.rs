//! Copies a trace of torch.profiler token by token: members of the trace object that no report needs
//! are omitted, strings are cleaned, and everything else is copied unchanged.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use serde_json::value::RawValue;

use super::credentials::{NameMeaning, NameMeanings};
use super::outcome::{ScrubError, ScrubSummary, cannot_write};
use super::redactor::{JSON_WORDS, REMOVED, Redactor};
use crate::base::units;
use crate::read::{self, LONGEST_VALUE, More, Progress, ReadError, TextWindow};

/// Members of the trace object that are copied. Others (host, user and job names, log lines, the name
/// of the file, environments) are omitted.
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

/// Copies the trace `from` to `to`, compressed if `packed`.
pub(super) fn copy(
    from: &Path,
    to: &Path,
    packed: bool,
    progress: &dyn Progress,
) -> Result<(ScrubSummary, Redactor), ScrubError> {
    let too_long = || ReadError {
        path: from.display().to_string(),
        problem: format!(
            "holds a value or open brackets of more than {}, which no trace of torch.profiler does",
            units::bytes(LONGEST_VALUE as f64)
        ),
        remedy: "capture it again with `export_chrome_trace` or `tensorboard_trace_handler`"
            .to_owned(),
    };
    let mut redactor = Redactor::with_format_words(KEPT);
    let whole = read::trace_text(from, progress, |more| learn(more, &mut redactor))?;
    if !whole {
        return Err(too_long().into());
    }
    redactor.build_index();
    let file = File::create(to).map_err(|e| cannot_write(to, &e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = read::trace_text(from, progress, |more| {
        let written = if packed {
            let mut encoder = GzEncoder::new(&mut out, Compression::default());
            let written = write(more, &redactor, &mut encoder)?;
            encoder.finish()?;
            written
        } else {
            write(more, &redactor, &mut out)?
        };
        out.flush()?;
        Ok(written)
    })?;
    match written.map_err(|e: io::Error| cannot_write(to, &e))? {
        (summary, true) => Ok((summary, redactor)),
        (_, false) => Err(too_long().into()),
    }
}

/// Cleans JSON in a cell of a database.
pub(super) fn clean_json(text: &str, redactor: &Redactor) -> String {
    let mut out = Vec::new();
    let mut copy = TraceCopier::new(redactor, &mut out);
    copy.whole_trace = false;
    // Writing to memory does not fail.
    let _ = copy.all(&mut Tokens::new(&mut once(text)));
    String::from_utf8_lossy(&out).trim_end().to_owned()
}

/// A [`More`] that appends a text at once.
fn once(text: &str) -> impl FnMut(&mut String) -> bool {
    let mut text = Some(text);
    move |to| text.take().map(|text| to.push_str(text)).is_some()
}

/// Learns names and secrets from the members of the trace object. Returns false if a value is longer
/// than any in a trace.
fn learn(more: More<'_>, redactor: &mut Redactor) -> bool {
    let mut depth = 0_usize;
    let mut key = String::new();
    let mut after_colon = false;
    let mut meanings = NameMeanings::default();
    let mut tokens = Tokens::new(more);
    while let Some(token) = tokens.next() {
        match token {
            Token::Open(byte) => {
                depth += 1;
                // In `{"user": ["a"]}`, a value follows the bracket; in `{"user": {"id": 1}}`, a key.
                after_colon &= byte == b'[';
            }
            Token::Close(_) => depth = depth.saturating_sub(1),
            Token::Mark(b':') => after_colon = true,
            Token::Mark(_) => after_colon = false,
            Token::Text(raw) if after_colon => {
                // Events describe the program; the members of the outer object describe the machine.
                if depth <= 2 || meanings.of(&key) != NameMeaning::Nothing {
                    redactor.learn(&key, &decoded(raw));
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
    tokens.is_complete()
}

/// Copies a trace to `out`. Returns a summary of the changes, and whether the copy is complete.
fn write(
    more: More<'_>,
    redactor: &Redactor,
    out: &mut dyn Write,
) -> io::Result<(ScrubSummary, bool)> {
    let mut copy = TraceCopier::new(redactor, out);
    let mut tokens = Tokens::new(more);
    copy.all(&mut tokens)?;
    let summary = ScrubSummary {
        left_out: copy.left_out,
        changed: copy.changed,
        ..ScrubSummary::default()
    };
    Ok((summary, tokens.is_complete()))
}

/// A token of JSON text.
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

/// The tokens of a text, up to a truncated string.
struct Tokens<'m> {
    window: TextWindow<'m>,
    /// Number of open brackets.
    depth: usize,
}

impl<'m> Tokens<'m> {
    fn new(more: More<'m>) -> Self {
        Tokens {
            window: TextWindow::new(more),
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

    /// The end of the number or word that ends the text.
    fn last(&self) -> Option<usize> {
        let cut = self.window.too_long || *self.window.rest().first()? == b'"';
        (!cut).then_some(self.window.text.len())
    }

    /// Whether all tokens were read; false if one is longer than any in a trace.
    fn is_complete(&self) -> bool {
        !self.window.too_long
    }
}

/// The end of the token at `at`; `None` if it depends on more text.
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

/// The value of a string with its quotes; unchanged if it is not valid JSON.
fn decoded(raw: &str) -> Cow<'_, str> {
    let inner = raw.get(1..raw.len() - 1).unwrap_or_default();
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str::<String>(raw).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// How the value of the current member is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    Copied,
    /// Removed: a text that names a person, a machine or a secret.
    Hidden,
    /// Not copied: an environment.
    Dropped,
}

struct TraceCopier<'w, 'o> {
    redactor: &'w Redactor,
    out: &'o mut dyn Write,
    meanings: NameMeanings,
    /// Open brackets.
    open: Vec<u8>,
    /// Whether the next string of an object is a key.
    key_next: bool,
    member: Member,
    /// The name of the current member, if its value has to be looked at together with it.
    telling: Option<String>,
    /// The number of open brackets at which writing resumes.
    skipped_to: Option<usize>,
    /// Whether the last token was a number or a word: blanks that are not copied must separate the next.
    after_word: bool,
    /// Whether a comma precedes the next member of the trace object.
    comma: bool,
    /// Whether a member of the trace object was written.
    written: bool,
    /// Whether the outermost object is a trace, of which only [`KEPT`] members are copied.
    whole_trace: bool,
    left_out: u64,
    changed: u64,
}

impl<'w, 'o> TraceCopier<'w, 'o> {
    fn new(redactor: &'w Redactor, out: &'o mut dyn Write) -> Self {
        TraceCopier {
            redactor,
            out,
            meanings: NameMeanings::default(),
            open: Vec::new(),
            key_next: false,
            member: Member::Copied,
            telling: None,
            skipped_to: None,
            after_word: false,
            comma: false,
            written: false,
            whole_trace: true,
            left_out: 0,
            changed: 0,
        }
    }

    fn all(&mut self, tokens: &mut Tokens<'_>) -> io::Result<()> {
        while let Some(token) = tokens.next() {
            let after_word = match token {
                Token::Space(_) => self.after_word,
                Token::Bare(_) => true,
                _ => false,
            };
            match token {
                Token::Open(byte) => self.opened(byte)?,
                Token::Close(byte) => {
                    self.closed(byte)?;
                    if self.open.is_empty() {
                        // Text after the trace object does not belong to the trace.
                        return self.out.write_all(b"\n");
                    }
                }
                Token::Mark(byte) => self.mark(byte)?,
                Token::Text(raw) => self.string(raw)?,
                Token::Bare(raw) => self.bare(raw)?,
                Token::Space(_) if self.open.is_empty() || self.in_trace_object() => {}
                Token::Space(space) => self.put(space.as_bytes())?,
            }
            self.after_word = after_word;
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
        // In `{"user": ["a", "b"]}`, the strings of the list are removed too.
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
            Member::Copied if self.is_told(&value) => self.removed(),
            Member::Copied => self.cleaned(raw, &value),
            Member::Hidden | Member::Dropped if value.is_empty() => self.put(b"\"\""),
            Member::Hidden | Member::Dropped => self.removed(),
        }
    }

    /// Whether a value is a secret because of its name.
    fn is_told(&self, value: &str) -> bool {
        self.telling.as_ref().is_some_and(|key| {
            let together = format!("{key}=\"{value}\"");
            let found = self.redactor.next(together.as_bytes(), 0);
            found.is_some_and(|found| found.end > key.len())
        })
    }

    /// Writes the replacement of a string.
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
        self.telling = self.meanings.tells(key).then(|| key.to_owned());
        self.member = match self.meanings.of(key) {
            NameMeaning::Nothing => Member::Copied,
            NameMeaning::Environment => Member::Dropped,
            NameMeaning::Secret | NameMeaning::User | NameMeaning::Host | NameMeaning::Place => {
                Member::Hidden
            }
        };
        self.cleaned(raw, key)
    }

    fn cleaned(&mut self, raw: &str, value: &str) -> io::Result<()> {
        let text = match self.redactor.clean(value) {
            Cow::Borrowed(_) => Cow::Borrowed(raw),
            // A string that could not be decoded is written unchanged.
            Cow::Owned(clean) => match serde_json::from_str::<&RawValue>(raw) {
                Ok(_) => Cow::Owned(Value::String(clean).to_string()),
                Err(_) => Cow::Owned(format!("\"{clean}\"")),
            },
        };
        // An escape may match together with the following text: the host `n1` in `\n1`.
        if text.contains('\\') && self.redactor.next(text.as_bytes(), 0).is_some() {
            return self.removed();
        }
        self.changed += u64::from(matches!(text, Cow::Owned(_)));
        self.put(text.as_bytes())
    }

    /// Copies numbers and keywords of JSON; replaces anything else by `null`.
    fn bare(&mut self, raw: &str) -> io::Result<()> {
        const LONGEST: usize = 64;
        let unsigned = raw.trim_start_matches(['+', '-']);
        let word = JSON_WORDS.contains(&unsigned);
        let digits = |b: u8| b.is_ascii_digit() || b"+-.eE".contains(&b);
        let known = word || (raw.len() <= LONGEST && raw.bytes().all(digits));
        // A byte order mark may precede the object.
        let outside = self.open.is_empty();
        let kept = known && matches!(self.redactor.clean(raw), Cow::Borrowed(_));
        if self.after_word && !outside {
            self.put(b" ")?;
        }
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
        let mut redactor = Redactor::with_format_words(KEPT);
        assert!(learn(&mut in_pieces(text, usize::MAX), &mut redactor));
        redactor.build_index();
        let whole = written(text, usize::MAX, &redactor);
        for length in 1..8 {
            assert_eq!(written(text, length, &redactor), whole, "{length}");
        }
        whole
    }

    fn written(text: &str, length: usize, redactor: &Redactor) -> String {
        let mut out = Vec::new();
        assert!(
            write(&mut in_pieces(text, length), redactor, &mut out)
                .unwrap()
                .1
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn members_about_the_machine_are_left_out() {
        let text = r#"{"host_name": "node17.example", "schemaVersion": 1, "env": {"A": [1, {"b": 2}]},
            "job": "x", "traceEvents": [{"name": "on node17.example", "ts": 1.50, "args": {"user": "x", "env": {"A": "b"}, "n": [1, 2]}}],
            "traceName": "/tmp/x.json"} secret"#;
        assert_eq!(
            copied(text),
            "{\"schemaVersion\":1,\"traceEvents\":[{\"name\": \"on removed\", \"ts\": 1.50, \"args\": {\"user\": \"removed\", \"env\": null, \"n\": [1, 2]}}]}\n"
        );
    }

    #[test]
    fn words_of_the_format_are_not_removed() {
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
    fn lists_and_damaged_events_are_copied_unchanged() {
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
    fn the_last_word_of_a_long_name_tells() {
        let before = "\u{fffd}".repeat(40);
        for name in [format!("{before}atappkey"), "x".repeat(90) + "password"] {
            assert_eq!(
                copied(&format!("[{{\"{name}\": \"cuda_runtime\"}}]")),
                format!("[{{\"{name}\": \"removed\"}}]\n")
            );
        }
    }

    #[test]
    fn words_without_a_comma_stay_apart() {
        let glued = "{\"traceEvents\"\"dbpwd\":\0\t\0";
        assert_eq!(copied(glued), "{\"traceEvents\"\"dbpwd\":null null");
        assert_eq!(
            copied("{\"traceEvents\": 12 true\n{\"a\": 3 x}}"),
            "{\"traceEvents\":12 true{\"a\": 3  null}}\n"
        );
    }

    #[test]
    fn escapes_do_not_hide_secrets() {
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
    fn json_cells_of_a_database_keep_their_members() {
        let mut redactor = Redactor::default();
        redactor.build_index();
        assert_eq!(
            clean_json(r#"{"a": "/home/dave", "env": {"X": 1}}"#, &redactor),
            "{\"a\": \"~\", \"env\": null}"
        );
    }

    #[test]
    fn overlong_values_stop_the_copy() {
        for (beginning, unit) in [("[\"", "x"), ("", "["), ("[", "1")] {
            let unit = unit.repeat(1 << 20);
            let mut pieces = 0;
            let mut more = |text: &mut String| {
                text.push_str(if pieces == 0 { beginning } else { &unit });
                pieces += 1;
                true
            };
            assert!(!learn(&mut more, &mut Redactor::default()));
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
