//! Diagnostics with source spans for hand-written files (rules, GPU specs, costs, configuration).
//!
//! Checks push into one [`Complaints`] and continue, so that all mistakes of a file are reported at
//! once, each with `file:line:column`, the line and a caret. Control characters of the file are never
//! printed.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annotate_snippets::renderer::Renderer;
use annotate_snippets::{AnnotationKind, Group, Level, Origin, Snippet};

/// Maximum number of complaints stored; the rest are counted.
const MAX_KEPT: usize = 1_000;
/// Maximum number of complaints rendered.
const MAX_SHOWN: usize = 50;
/// Maximum number of bytes read by [`Source::read`]: hand-written files have a few kilobytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Maximum length of a displayed title, label or help, in bytes.
const MAX_SENTENCE: usize = 1_000;
/// Maximum number of bytes of a line from the start of a span on.
const MAX_CONTEXT: usize = 300;

/// A text file that is checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The path as it is shown.
    pub name: String,
    /// Its content.
    pub text: Cow<'static, str>,
}

impl Source {
    /// A file with this name and content.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        Arc::new(Source {
            name: name.into(),
            text: Cow::Owned(text.into()),
        })
    }

    /// A file that is part of the program; its content is not copied.
    pub fn embedded(name: impl Into<String>, text: &'static str) -> Arc<Source> {
        Arc::new(Source {
            name: name.into(),
            text: Cow::Borrowed(text),
        })
    }

    /// Where `text` stands within a part of the file; all of the part if it does not.
    pub fn find_in(&self, part: Range<usize>, text: &str) -> Range<usize> {
        let inside = self.text.get(part.clone()).unwrap_or_default();
        match inside.find(text) {
            Some(at) => part.start + at..part.start + at + text.len(),
            None => part,
        }
    }

    /// Reads a UTF-8 file of at most 1 MiB.
    ///
    /// # Errors
    /// One message, without a caret, with the reason why the file could not be read.
    pub fn read(path: &Path) -> Result<Arc<Source>, Complaint> {
        use std::io::Read as _;
        let name = path.display().to_string();
        let refuse = |why: String| Complaint::about_file(&name, "this file cannot be read", why);
        let file = std::fs::File::open(path).map_err(|e| refuse(e.to_string()))?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| refuse(e.to_string()))?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(refuse("it is larger than 1 MiB".into()));
        }
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            refuse(format!("it is not UTF-8 text (byte {at})"))
        })?;
        Ok(Source::new(name, text))
    }

    /// Line and column of a byte offset, both counted from 1; columns count characters.
    /// An offset past the end or inside a character is moved back to the nearest boundary.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line_at(offset);
        let before = self.text.get(..line.start).unwrap_or_default();
        let number = before.bytes().filter(|&b| b == b'\n').count() + 1;
        let offset = floor_boundary(&self.text, offset);
        let inside = self.text.get(line.start..offset).unwrap_or_default();
        (number, inside.chars().count() + 1)
    }

    /// The bytes of the line around an offset, without its line ending.
    fn line_at(&self, offset: usize) -> Range<usize> {
        let offset = floor_boundary(&self.text, offset);
        let (before, after) = self
            .text
            .split_at_checked(offset)
            .unwrap_or((&self.text, ""));
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let end = after.find('\n').map_or(self.text.len(), |i| offset + i);
        let line = self.text.get(start..end).unwrap_or_default();
        start..start + line.strip_suffix('\r').unwrap_or(line).len()
    }
}

/// The nearest character boundary at or before `offset`.
fn floor_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The file it is about.
    pub file: Arc<Source>,
    /// A byte range of [`Source::text`]; clipped to its first line for display.
    pub span: Range<usize>,
    /// The problem: `unknown key `tilte``.
    pub title: String,
    /// The text beside the caret: `expected a string, found an integer`. May be empty.
    pub label: String,
    /// How to correct the mistake.
    pub help: Option<String>,
}

impl Complaint {
    /// An error at a byte range of a file; `label` is printed beside the caret.
    pub fn error(
        file: &Arc<Source>,
        span: Range<usize>,
        title: impl Into<String>,
        label: impl Into<String>,
    ) -> Complaint {
        Complaint {
            file: Arc::clone(file),
            span,
            title: title.into(),
            label: label.into(),
            help: None,
        }
    }

    /// An error about a file as a whole, shown without any of its text.
    pub fn about_file(name: &str, title: impl Into<String>, why: impl Into<String>) -> Complaint {
        Complaint::error(&Source::new(name, ""), 0..0, title, why)
    }

    #[must_use]
    /// Adds a line that explains how to correct the mistake.
    pub fn with_help(mut self, help: impl Into<String>) -> Complaint {
        self.help = Some(help.into());
        self
    }

    /// The complaint with its line and a caret, as several lines without a final newline.
    pub fn render(&self, color: bool) -> String {
        let title = visible(shorten(&self.title));
        let label = visible(shorten(&self.label));
        let name = visible(&self.file.name);
        // An option of the command line is no file with a place in it.
        let is_option = self.file.text.is_empty() && name.starts_with("--");
        let title = match is_option {
            true => Cow::Owned(format!("{name}: {title}")),
            false => title,
        };
        let mut group = Group::with_title(Level::ERROR.primary_title(title));
        if self.file.text.is_empty() {
            if !is_option {
                group = group.element(Origin::path(name));
            }
            if !label.is_empty() {
                group = group.element(Level::NOTE.message(label));
            }
        } else {
            let (line, _) = self.file.position(self.span.start);
            let (text, caret) = self.excerpt();
            let mut mark = AnnotationKind::Primary.span(caret);
            if !label.is_empty() {
                mark = mark.label(label);
            }
            let snippet = Snippet::source(text).path(name).line_start(line);
            group = group.element(snippet.annotation(mark));
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(visible(shorten(help))));
        }
        let renderer = if color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group])
    }

    /// The span's first line, escaped and cut after the span, and the span inside it.
    /// Nothing is cut or widened before the span: the renderer counts the column itself.
    fn excerpt(&self) -> (String, Range<usize>) {
        let text = &self.file.text;
        let line = self.file.line_at(self.span.start);
        let start = floor_boundary(text, self.span.start).clamp(line.start, line.end);
        let end = floor_boundary(text, self.span.end).clamp(start, line.end);
        let to = floor_boundary(text, start.saturating_add(MAX_CONTEXT)).min(line.end);
        let part = |range: Range<usize>| visible(text.get(range).unwrap_or_default());
        let before = part(line.start..start);
        let inside = part(start..end.min(to));
        let after = part(end.min(to)..to);
        let caret = before.len()..before.len() + inside.len();
        (format!("{before}{inside}{after}"), caret)
    }
}

/// Shortens text for a message: names from the file can be as long as the file.
fn shorten(text: &str) -> &str {
    text.get(..floor_boundary(text, MAX_SENTENCE))
        .unwrap_or(text)
}

/// `text` with every character replaced that could control a terminal or reorder its text: C0 and C1
/// controls, line separators, bidirectional overrides, invisible characters. Each character is replaced by one
/// character. Tabs remain; the renderer expands them.
pub fn visible(text: &str) -> Cow<'_, str> {
    let shown = |c: char| match c {
        '\t' => c,
        '\u{2028}' | '\u{2029}' => '\u{fffd}',
        c => super::text::shown(c),
    };
    match text.chars().all(|c| shown(c) == c) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().map(shown).collect()),
    }
}

/// Complaints from any number of files and threads, returned in a fixed order.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<Kept>);

#[derive(Debug, Default, Clone)]
struct Kept {
    list: Vec<Complaint>,
    /// Complaints beyond [`MAX_KEPT`].
    dropped: usize,
}

impl Complaints {
    /// An empty collection.
    pub fn new() -> Complaints {
        Complaints::default()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a complaint; beyond a limit, complaints are only counted.
    pub fn push(&self, complaint: Complaint) {
        let mut kept = self.kept();
        if kept.list.len() < MAX_KEPT {
            kept.list.push(complaint);
        } else {
            kept.dropped += 1;
        }
    }

    /// Adds all complaints of another list.
    pub fn append(&self, others: &Complaints) {
        let others = others.kept();
        others.list.iter().for_each(|one| self.push(one.clone()));
        self.kept().dropped += others.dropped;
    }

    /// The number of complaints, including those that are not stored.
    pub fn len(&self) -> usize {
        let kept = self.kept();
        kept.list.len() + kept.dropped
    }

    /// Whether there are no complaints.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `value`, unless there are complaints about it.
    ///
    /// # Errors
    /// The complaints.
    pub fn accept<T>(self, value: T) -> Result<T, Complaints> {
        match self.is_empty() {
            true => Ok(value),
            false => Err(self),
        }
    }

    /// The complaints by file name and position, independent of the order in which they were
    /// pushed.
    pub fn sorted(&self) -> Vec<Complaint> {
        let mut list = self.kept().list.clone();
        list.sort_by(|a, b| {
            let key = |c: &Complaint| (c.span.start, c.span.end);
            (a.file.name.cmp(&b.file.name))
                .then_with(|| key(a).cmp(&key(b)))
                .then_with(|| a.title.cmp(&b.title))
        });
        list
    }

    /// All complaints with their lines, separated by blank lines, with a final newline; empty if there
    /// are none.
    pub fn render(&self, color: bool) -> String {
        let sorted = self.sorted();
        let mut out = String::new();
        for complaint in sorted.iter().take(MAX_SHOWN) {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&complaint.render(color));
            out.push('\n');
        }
        let hidden = self.len() - sorted.len().min(MAX_SHOWN);
        if hidden > 0 {
            out.push_str(&format!("\n... and {hidden} more\n"));
        }
        out
    }

    /// One line: `2 errors in my.toml`.
    pub fn summary(&self) -> String {
        let kept = self.kept();
        let mut files: Vec<&str> = kept.list.iter().map(|c| c.file.name.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        let n = kept.list.len() + kept.dropped;
        if n == 0 {
            return "no complaints".into();
        }
        let what = super::units::counted(n as u64, "error");
        match files.as_slice() {
            [one] => format!("{what} in {}", visible(one)),
            many => format!("{what} in {} files", many.len()),
        }
    }
}

impl Clone for Complaints {
    fn clone(&self) -> Complaints {
        Complaints(Mutex::new(self.kept().clone()))
    }
}

impl From<Complaint> for Complaints {
    fn from(complaint: Complaint) -> Complaints {
        let complaints = Complaints::new();
        complaints.push(complaint);
        complaints
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Complaints {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, what: &str) -> Complaint {
        let start = text.find(what).unwrap();
        let file = Source::new("a.toml", text);
        Complaint::error(&file, start..start + what.len(), "wrong", "here")
    }

    #[test]
    fn complaints_show_line_column_and_caret() {
        let c = at("one = 1\ntwo = 2\n", "2").with_help("try 3");
        assert_eq!(
            c.render(false),
            "\
error: wrong
 --> a.toml:2:7
  |
2 | two = 2
  |       ^ here
  |
  = help: try 3"
        );
        assert!(c.render(true).contains("\x1b["));
    }

    #[test]
    fn columns_count_characters_and_carets_follow_width() {
        let c = at("\u{e9}\u{4e2d}\u{6587} = 5", "5");
        assert_eq!(
            c.render(false),
            "\
error: wrong
 --> a.toml:1:7
  |
1 | \u{e9}\u{4e2d}\u{6587} = 5
  |         ^ here"
        );
    }

    #[test]
    fn tabs_are_expanded_and_carriage_returns_removed() {
        let c = at("x = 1\r\n\ty = [2]\r\nz = 3\r\n", "[2]");
        assert_eq!(
            c.render(false),
            "\
error: wrong
 --> a.toml:2:6
  |
2 |     y = [2]
  |         ^^^ here"
        );
    }

    #[test]
    fn spans_over_several_lines_show_the_first() {
        let c = at("s = '''\nabc\n'''\n", "'''\nabc\n'''");
        assert_eq!(
            c.render(false),
            "\
error: wrong
 --> a.toml:1:5
  |
1 | s = '''
  |     ^^^ here"
        );
    }

    #[test]
    fn hostile_text_cannot_control_the_terminal() {
        let text = "k = \"\x1b[2J\u{9b}31m\u{202e}evil\u{200d}\"";
        let file = Source::new("a\x1b]0;x\x07.toml", text);
        let c = Complaint::error(&file, 4..text.len(), "t\x1b[1m", "l\x07\n")
            .with_help("h\u{85}\u{2028}");
        let shown = c.render(false);
        assert!(shown.lines().all(|line| visible(line) == line), "{shown:?}");
        assert!(shown.contains("\u{241b}[2J"));
    }

    #[test]
    fn invalid_spans_do_not_panic() {
        for text in ["", "\n", "a", "\u{e9}\n\u{4e2d}", "a\r\nb\r\n", "\r"] {
            let file = Source::new("x", text);
            for start in 0..text.len() + 4 {
                for end in [0, start, start + 1, start + 3, usize::MAX] {
                    let c = Complaint::error(&file, start..end, "t", "l");
                    assert!(c.render(false).starts_with("error: t\n"));
                }
            }
        }
        let file = Source::new("x", "x".repeat(1_000_000));
        let shown = Complaint::error(&file, 500_000..900_000, "t", "l").render(false);
        assert!(
            shown.contains("x:1:500001") && shown.len() < 3_000,
            "{shown}"
        );
    }

    #[test]
    fn complaints_are_sorted_and_summarized() {
        let a = Source::new("a.toml", "1\n2\n");
        let b = Source::new("b.toml", "1\n");
        let all = Complaints::new();
        assert_eq!(all.summary(), "no complaints");
        all.push(Complaint::error(&b, 0..1, "last", ""));
        all.push(Complaint::error(&a, 2..3, "second", ""));
        all.push(Complaint::error(&a, 0..1, "first", ""));
        let titles: Vec<_> = all.sorted().into_iter().map(|c| c.title).collect();
        assert_eq!(titles, ["first", "second", "last"]);
        assert!(!all.is_empty());
        assert_eq!(all.summary(), "3 errors in 2 files");
        assert_eq!(all.to_string().matches("-->").count(), 3);
    }

    #[test]
    fn complaints_beyond_the_limit_are_only_counted() {
        let a = Source::new("a.toml", "1\n");
        let all = Complaints::new();
        for _ in 0..5_000 {
            all.push(Complaint::error(&a, 0..1, "again", ""));
        }
        assert_eq!((all.len(), all.sorted().len()), (5_000, MAX_KEPT));
        assert!(all.render(false).ends_with("\n... and 4950 more\n"));
        assert_eq!(all.summary(), "5,000 errors in a.toml");
    }

    #[test]
    fn unreadable_files_are_reported_as_one_complaint() {
        let c = Source::read(Path::new("/nonexistent/x.toml")).unwrap_err();
        let shown = c.render(false);
        assert!(
            shown.starts_with("error: this file cannot be read\n"),
            "{shown}"
        );
        assert!(shown.contains("/nonexistent/x.toml"), "{shown}");
    }
}
