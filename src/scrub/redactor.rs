//! Finds secrets and names of persons and machines in texts, and replaces them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::credentials::{self, Holds, NameMeaning};
use super::forms;
use crate::correlate::OpName;
use crate::cost::ops;

/// The replacement for removed text.
pub(super) const REMOVED: &str = "removed";
/// The replacement for the name of a user inside a path.
const USER: &str = "someone";
/// Maximum number of names and values that are learned; bounds the work for hostile files.
const MAX_KNOWN: usize = 256;
/// Minimum length in bytes of a name that is searched for: shorter ones occur in too many other words.
const LEAST: usize = 4;
/// The words before a token in a header.
const SCHEMES: &[&str] = &["Bearer ", "bearer ", "Basic ", "basic "];
/// The words after `Authorization:` that precede the secret.
const AUTHORIZATIONS: &[&str] = &["bearer", "basic", "token", "apikey", "negotiate", "digest"];
/// Maximum length in bytes of a variable's value that is searched for elsewhere, and of the beginning of a value by
/// which it looks random.
const MAX_VALUE: usize = 4096;

/// The kinds of removed text, in report order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedactionKind {
    /// The value of a variable or setting whose name is that of a secret.
    Secret,
    /// A token, key or password, recognized by its form or by the name before it.
    Credential,
    /// `/home/NAME`, `/Users/NAME` and similar folders.
    HomeFolder,
    /// A user's name that occurs elsewhere in the file.
    User,
    /// A machine's name that occurs elsewhere in the file.
    Host,
    /// An e-mail address.
    Mail,
}

impl RedactionKind {
    /// All kinds, in report order.
    pub const ALL: [RedactionKind; 6] = [
        RedactionKind::Secret,
        RedactionKind::Credential,
        RedactionKind::HomeFolder,
        RedactionKind::User,
        RedactionKind::Host,
        RedactionKind::Mail,
    ];

    /// The name for lists, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            RedactionKind::Secret => "values of secret variables",
            RedactionKind::Credential => "tokens, keys and passwords by their form",
            RedactionKind::HomeFolder => "home folders",
            RedactionKind::User => "user names",
            RedactionKind::Host => "host names",
            RedactionKind::Mail => "e-mail addresses",
        }
    }
}

/// A part of a text to replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Redaction {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: RedactionKind,
    with: &'static str,
}

impl Redaction {
    fn new(start: usize, end: usize, kind: RedactionKind, with: &'static str) -> Redaction {
        Redaction {
            start,
            end,
            kind,
            with,
        }
    }
}

/// A name or value from a setting or a variable in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    text: String,
    kind: RedactionKind,
    /// Whether it is replaced wherever it occurs as a word, or only in paths and before an `@`.
    anywhere: bool,
}

/// Finds private text: by its form, or because the settings or the environment in the file contain it
/// as a secret or a name.
#[derive(Debug)]
pub(super) struct Redactor {
    /// Words of the file format, which are never removed.
    format_words: &'static [&'static str],
    learned: BTreeSet<Known>,
    /// The texts in `learned` by their first byte.
    by_byte: Vec<Vec<Known>>,
    /// By [`pair_number`]: whether a match may be recognized at the two bytes.
    pairs: Vec<bool>,
}

fn pair_number(pair: [u8; 2]) -> usize {
    usize::from(u16::from_be_bytes(pair))
}

impl Default for Redactor {
    fn default() -> Self {
        Redactor::with_format_words(&[])
    }
}

impl Redactor {
    /// A redactor that has learned nothing yet and never removes these words.
    pub(super) fn with_format_words(format_words: &'static [&'static str]) -> Self {
        Redactor {
            format_words,
            learned: BTreeSet::new(),
            by_byte: Vec::new(),
            pairs: Vec::new(),
        }
    }

    /// The number of learned names or values of a kind.
    pub(super) fn known(&self, kind: RedactionKind) -> usize {
        self.learned.iter().filter(|k| k.kind == kind).count()
    }

    /// Learns from a setting, a variable or a JSON member.
    pub(super) fn learn(&mut self, name: &str, value: &str) {
        let value = value.trim();
        self.learn_value(name, value);
        self.learn_from_text(value);
    }

    fn learn_value(&mut self, name: &str, value: &str) {
        match credentials::meaning(name) {
            NameMeaning::Secret => self.secret(value),
            NameMeaning::User => self.user(value),
            NameMeaning::Host => self.host(value),
            _ => {}
        }
    }

    /// Learns from `NAME=value` and home folders in a text.
    pub(super) fn learn_from_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        for (at, _) in text.match_indices('=') {
            let from = word_start(bytes, at);
            let name = text.get(from..at).unwrap_or_default();
            let capitals = !name.is_empty() && !name.bytes().any(|b| b.is_ascii_lowercase());
            if capitals {
                let window = bytes.get(..at + 1 + MAX_VALUE).unwrap_or(bytes);
                let end = value_end(window, at + 1);
                self.learn_value(name, text.get(at + 1..end).unwrap_or_default());
            }
        }
        for prefix in ["/home/", "/Users/"] {
            for (at, _) in text.match_indices(prefix) {
                let from = at + prefix.len();
                let end = name_end(text.as_bytes(), from);
                self.add(
                    text.get(from..end).unwrap_or_default(),
                    RedactionKind::User,
                    false,
                );
            }
        }
    }

    fn secret(&mut self, value: &str) {
        if value.len() >= 6 && !value.bytes().all(|b| b.is_ascii_digit()) {
            self.add(value, RedactionKind::Secret, true);
        }
    }

    fn user(&mut self, value: &str) {
        let name = value.split('@').next().unwrap_or(value);
        self.add(name, RedactionKind::User, !is_ordinary(name));
    }

    fn host(&mut self, value: &str) {
        self.add(value, RedactionKind::Host, !is_ordinary(value));
        if let Some((short, _)) = value.split_once('.') {
            self.add(short, RedactionKind::Host, !is_ordinary(short));
        }
    }

    fn add(&mut self, text: &str, kind: RedactionKind, anywhere: bool) {
        const NO_NAMES: &[&str] = &["root", "localhost", "Shared", "Public", "none"];
        // Secrets are removed inside words too.
        let is_part = |word: &&str| match kind {
            RedactionKind::Secret => word.contains(text),
            _ => *word == text,
        };
        let ours = self
            .format_words
            .iter()
            .chain(&[USER, REMOVED])
            .any(is_part);
        let plain = text.bytes().all(|b| b.is_ascii_graphic() || b >= 0x80);
        let fits =
            kind == RedactionKind::Secret || (text.len() >= LEAST && text.len() <= 80 && plain);
        // A number alone may be anything, such as a process id or a size.
        let starts_any = text.bytes().any(|b| b.is_ascii_alphabetic() || b >= 0x80);
        if fits
            && starts_any
            && !ours
            && !is_json(text)
            && !NO_NAMES.contains(&text)
            && self.learned.len() < MAX_KNOWN
        {
            self.learned.insert(Known {
                text: text.to_owned(),
                kind,
                anywhere,
            });
        }
    }

    /// Builds the index for searching. Must be called after the last text was learned.
    pub(super) fn build_index(&mut self) {
        // Longer texts first, so that a full host name is found before its first part.
        let mut sorted: Vec<&Known> = self.learned.iter().collect();
        sorted.sort_by_key(|k| (!k.anywhere, std::cmp::Reverse(k.text.len())));
        self.by_byte = vec![Vec::new(); 256];
        for known in &sorted {
            let first = known.text.as_bytes().first();
            let list = first.and_then(|byte| self.by_byte.get_mut(usize::from(*byte)));
            if let Some(list) = list {
                list.push((*known).clone());
            }
        }
        let texts = sorted.iter().map(|known| known.text.as_bytes());
        let schemes = SCHEMES.iter().map(|scheme| scheme.as_bytes());
        let beginnings = texts
            .chain(schemes)
            .filter_map(|text| text.first_chunk().copied());
        let bytes = (0..=u8::MAX).filter(|byte| form_at(*byte).is_some());
        let of_forms = bytes.flat_map(|byte| (0..=u8::MAX).map(move |next| [byte, next]));
        self.pairs = vec![false; 1 << 16];
        for pair in beginnings.chain(of_forms).chain(forms::known().pairs()) {
            if let Some(is_beginning) = self.pairs.get_mut(pair_number(pair)) {
                *is_beginning = true;
            }
        }
    }

    /// The text with all matches replaced.
    pub(super) fn clean<'t>(&self, text: &'t str) -> Cow<'t, str> {
        /// Maximum number of passes. A replacement may, with its neighbors, match again; this is rare.
        const PASSES: usize = 4;
        let Some(mut clean) = self.pass(text) else {
            return Cow::Borrowed(text);
        };
        for _ in 1..PASSES {
            match self.pass(&clean) {
                Some(cleaner) => clean = cleaner,
                None => break,
            }
        }
        Cow::Owned(clean)
    }

    /// The text with all matches replaced once; `None` without matches.
    fn pass(&self, text: &str) -> Option<String> {
        let mut out = String::new();
        let mut done = 0;
        let mut from = 0;
        while let Some(found) = self.next(text.as_bytes(), from) {
            // An address is found at its `@`, so its beginning may have been replaced already.
            let kept = text.get(done..found.start.max(done));
            from = found.end;
            if let Some(kept) = kept
                && text.is_char_boundary(found.end)
            {
                out.push_str(kept);
                out.push_str(found.with);
                done = found.end;
            }
        }
        (done > 0).then(|| {
            out.push_str(text.get(done..).unwrap_or_default());
            out
        })
    }

    /// The first match in `text` at or after `from`.
    pub(super) fn next(&self, text: &[u8], from: usize) -> Option<Redaction> {
        let mut from = from;
        loop {
            // No match is recognized at the last byte.
            let mut pairs = text.get(from..)?.windows(2);
            let may_match = |pair: &[u8]| {
                let pair = pair.first_chunk().copied().map(pair_number);
                pair.and_then(|pair| self.pairs.get(pair)) == Some(&true)
            };
            let at = from + pairs.position(may_match)?;
            let found = self.at(text, at).filter(|f| f.end > f.start);
            if found.is_some() {
                return found;
            }
            from = at + 1;
        }
    }

    fn at(&self, text: &[u8], at: usize) -> Option<Redaction> {
        let byte = *text.get(at)?;
        form_at(byte)
            .and_then(|form| form(text, at))
            .or_else(|| self.known_at(text, at, byte))
            .or_else(|| word_forms(text, at))
    }

    fn known_at(&self, text: &[u8], at: usize, byte: u8) -> Option<Redaction> {
        let rest = text.get(at..)?;
        let known = self.by_byte.get(usize::from(byte))?;
        known.iter().find_map(|known| {
            let end = at + known.text.len();
            let with = match known.kind {
                RedactionKind::User => USER,
                _ => REMOVED,
            };
            (rest.starts_with(known.text.as_bytes()) && stands_alone(text, at, end, known))
                .then(|| Redaction::new(at, end, known.kind, with))
        })
    }
}

/// Finds a match by its form around a byte.
type Form = fn(&[u8], usize) -> Option<Redaction>;

/// The form that can match at a byte other than a letter.
fn form_at(byte: u8) -> Option<Form> {
    Some(match byte {
        b'/' => |text, at| unix_home(text, at).or_else(|| url_password(text, at)),
        b'\\' => windows_home,
        b'=' | b':' => assignment,
        b'@' => mail,
        b'-' => |text, at| {
            flag(text, at)
                .or_else(|| login(text, at))
                .or_else(|| private_key(text, at))
        },
        _ => return None,
    })
}

/// Whether a known text at `at..end` is a separate word.
fn stands_alone(text: &[u8], at: usize, end: usize, known: &Known) -> bool {
    if known.kind == RedactionKind::Secret {
        return true;
    }
    let before = at.checked_sub(1).and_then(|i| text.get(i)).copied();
    let after = text.get(end).copied();
    let bounded = !before.is_some_and(is_word) && !after.is_some_and(is_word);
    let in_path = before.is_some_and(|b| b"/\\".contains(&b)) || after == Some(b'@');
    bounded && (known.anywhere || in_path || before == Some(b'@'))
}

/// Whether a name also has another meaning in a profile: an operator, a common account.
fn is_ordinary(name: &str) -> bool {
    const ORDINARY: &[&str] = &[
        "admin",
        "ubuntu",
        "debian",
        "centos",
        "jovyan",
        "runner",
        "docker",
        "nobody",
        "default",
        "guest",
        "test",
        "tests",
        "train",
        "user",
        "users",
        "python",
        "torch",
        "model",
        "layer",
        "cuda",
        "nvidia",
        "node",
        "local",
        "host",
        "unknown",
        "workspace",
        "home",
        "main",
        "data",
        "linux",
        "windows",
        "server",
        "worker",
        "master",
        "step",
        "forward",
        "backward",
        "loss",
    ];
    let lower = name.to_ascii_lowercase();
    let op = |module: &str| {
        ops::knows(&OpName {
            module: module.to_owned(),
            name: lower.clone(),
        })
    };
    name.len() < 5
        || ORDINARY.contains(&lower.as_str())
        || ["aten", "torch", "torch.nn.functional", "Tensor"]
            .iter()
            .any(|m| op(m))
}

/// The keywords of JSON, and those that profilers write instead.
pub(super) const JSON_WORDS: &[&str] = &["true", "false", "null", "NaN", "nan", "Infinity", "inf"];

/// Whether a text consists of JSON tokens outside strings, such as `null[{`, so that it is not a name.
fn is_json(text: &str) -> bool {
    text.split(|c: char| c.is_ascii_whitespace() || "{}[],:\"+-".contains(c))
        .all(|part| JSON_WORDS.contains(&part) || part.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a text can follow a string in JSON, up to the next string. Then the quote before it, as in
/// `"HF_TOKEN=",`, ends a string.
fn follows_string(text: &[u8]) -> bool {
    let mark = text.trim_ascii_start().first().copied();
    // In damaged JSON a word may follow.
    let behind = mark.is_some_and(|b| b",:]}".contains(&b) || b.is_ascii_alphabetic());
    behind && std::str::from_utf8(text).is_ok_and(is_json)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a byte may be part of the name of a home folder.
fn is_name(byte: u8) -> bool {
    is_word(byte) || b".-@+$".contains(&byte)
}

fn name_end(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    from + rest.iter().take_while(|&&b| is_name(b)).count()
}

/// The start of the word that ends at `end`.
fn word_start(text: &[u8], end: usize) -> usize {
    let before = text.get(..end).unwrap_or_default();
    let is = |b: &&u8| is_word(**b) || **b == b'-';
    // Names of variables are short. The bound keeps the search linear on a line of a million letters.
    end - before.iter().rev().take(80).take_while(is).count()
}

/// The end of a value that begins at `from`.
fn value_end(text: &[u8], from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let inside = |b: &&u8| {
        !b.is_ascii_whitespace() && !b.is_ascii_control() && !b"'\",;&)}]<>|`".contains(b)
    };
    from + rest.iter().take_while(inside).count()
}

fn starts(text: &[u8], at: usize, word: &str) -> bool {
    text.get(at..)
        .is_some_and(|rest| rest.starts_with(word.as_bytes()))
}

/// Matches `/home/NAME`, which becomes `~` at the start of a path and `/home/someone` inside one.
fn unix_home(text: &[u8], at: usize) -> Option<Redaction> {
    let before = at.checked_sub(1).and_then(|i| text.get(i)).copied();
    let inside = before.is_some_and(|b| is_name(b) || b"/\\~".contains(&b));
    let found =
        |start, end, with| Some(Redaction::new(start, end, RedactionKind::HomeFolder, with));
    if starts(text, at, "/root/") && !inside {
        return found(at, at + "/root".len(), "~");
    }
    for prefix in ["/home/", "/Users/", "/users/"] {
        if starts(text, at, prefix) {
            let from = at + prefix.len();
            let end = name_end(text, from);
            let name = text.get(from..end)?;
            return match (name.is_empty(), inside) {
                (true, _) => None,
                (_, false) => found(at, end, "~"),
                (_, true) if is_gone(name) => None,
                (_, true) => found(from, end, USER),
            };
        }
    }
    // Caches that PyTorch and pytest name after the user.
    for prefix in ["/torchinductor_", "/pytest-of-", "/triton_"] {
        if starts(text, at, prefix) {
            let from = at + prefix.len();
            let end = name_end(text, from);
            let name = text.get(from..end)?;
            // `/triton_kernels.py` is a file.
            let folder = text.get(end) == Some(&b'/');
            return (folder && !name.is_empty() && !is_gone(name))
                .then(|| found(from, end, USER))
                .flatten();
        }
    }
    None
}

/// Matches `C:\Users\NAME`, also with doubled backslashes as in source code.
fn windows_home(text: &[u8], at: usize) -> Option<Redaction> {
    let prefix = ["\\\\Users\\\\", "\\Users\\"]
        .into_iter()
        .find(|prefix| starts(text, at, prefix))?;
    let from = at + prefix.len();
    let end = name_end(text, from);
    let name = text.get(from..end)?;
    let home = Redaction::new(from, end, RedactionKind::HomeFolder, USER);
    (!name.is_empty() && !is_gone(name)).then_some(home)
}

fn credential(start: usize, end: usize) -> Redaction {
    Redaction::new(start, end, RedactionKind::Credential, REMOVED)
}

/// Whether a value is a replacement already. In the bytes of a database, the next cell follows without
/// a gap, and UTF-16 decoded at the wrong byte lacks its last letter.
fn is_gone(value: &[u8]) -> bool {
    [REMOVED, USER].iter().any(|word| {
        let word = word.as_bytes();
        value.starts_with(word) || word.get(..word.len() - 1) == Some(value)
    })
}

/// Whether a replacement begins at a byte. To be asked before the end of a value is looked for, which may be the end
/// of a long text: the same text may have a thousand such values.
fn is_gone_at(text: &[u8], at: usize) -> bool {
    [REMOVED, USER].iter().any(|word| starts(text, at, word))
}

/// The value, if it must be hidden.
fn hidden(text: &[u8], start: usize, end: usize) -> Option<Redaction> {
    let value = text.get(start..end)?;
    let starts_any = value.len() >= 6
        && !is_gone(value)
        && value.iter().any(|b| !b.is_ascii_digit() && *b != b'.');
    starts_any.then(|| credential(start, end))
}

/// Matches the value in `NAME=value`, `'NAME': 'value'`, `?name=value` and `Name: value` if the name is that
/// of a secret. Quotes may be escaped.
fn assignment(text: &[u8], at: usize) -> Option<Redaction> {
    let before = text.get(..at)?;
    // `a::b` is a name of C++.
    if text.get(at) == Some(&b':')
        && (before.last() == Some(&b':') || text.get(at + 1) == Some(&b':'))
    {
        return None;
    }
    let quoted = before
        .iter()
        .rev()
        .take(8)
        .take_while(|b| b"'\"\\".contains(b))
        .count();
    let blanks = before
        .iter()
        .rev()
        .take(2)
        .take_while(|b| **b == b' ')
        .count();
    let end = at - quoted.max(blanks);
    let from = word_start(text, end);
    let name = std::str::from_utf8(text.get(from..end)?).ok()?;
    let name = name.trim_start_matches('-');
    // `USER=` and `HOSTNAME=` of an environment in a text.
    let capitals = text.get(at) == Some(&b'=') && !name.bytes().any(|b| b.is_ascii_lowercase());
    let identity = match (capitals && blanks == 0).then(|| credentials::meaning(name)) {
        Some(NameMeaning::User) => Some(RedactionKind::User),
        Some(NameMeaning::Host) => Some(RedactionKind::Host),
        _ => None,
    };
    let before_name = from.checked_sub(1).and_then(|i| text.get(i)).copied();
    let in_query = text.get(at) == Some(&b'=') && before_name.is_some_and(|b| b"?&".contains(&b));
    let holds = match credentials::in_text(name) {
        Holds::Nothing if in_query && name.eq_ignore_ascii_case("key") => Holds::Perhaps,
        holds => holds,
    };
    if identity.is_none() && holds == Holds::Nothing {
        return None;
    }
    let rest = text.get(at + 1..)?;
    // `:=` and `=>` assign too.
    let arrow = usize::from(rest.first().is_some_and(|b| b"=>".contains(b)));
    let space = rest
        .iter()
        .skip(arrow)
        .take(8)
        .take_while(|b| **b == b' ')
        .count();
    let escapes = rest
        .iter()
        .skip(arrow + space)
        .take(8)
        .take_while(|b| **b == b'\\')
        .count();
    let quote = rest
        .get(arrow + space + escapes)
        .copied()
        .filter(|b| b"'\"".contains(b));
    let start = at + 1 + arrow + space + quote.map_or(0, |_| escapes + 1);
    if is_gone_at(text, start) {
        return None;
    }
    let only_if_random =
        holds == Holds::Perhaps && identity.is_none() && !in_query && before_name != Some(b';');
    let end = match quote {
        Some(quote) => {
            let rest = text.get(start..)?;
            let end = start + rest.iter().position(|b| *b == quote).unwrap_or(rest.len());
            // The quote at the end is escaped as the one at the beginning.
            let value = text.get(start..end)?;
            let trailing = value.iter().rev().take_while(|b| **b == b'\\').count();
            end - trailing.min(escapes)
        }
        None if holds == Holds::Cookies => {
            let rest = text.get(start..)?;
            let inside = |b: &&u8| !b"\r\n\"'\\\0".contains(b);
            start + rest.iter().take_while(inside).count()
        }
        None if only_if_random => {
            let window = text.get(..start + MAX_VALUE).unwrap_or(text);
            let end = value_end(window, start);
            let is_cut = end == window.len();
            if is_cut && !is_random(text.get(start..end)?) {
                return None;
            }
            value_end(text, start)
        }
        None => value_end(text, start),
    };
    let value = text.get(start..end)?;
    // In `Authorization: Bearer ...`, the scheme is kept and the token removed.
    let (word, _) = value.split_at(value.iter().position(|b| *b == b' ').unwrap_or(value.len()));
    if holds != Holds::Nothing
        && let Some(scheme) = AUTHORIZATIONS
            .iter()
            .find(|s| word.eq_ignore_ascii_case(s.as_bytes()))
        && text.get(start + scheme.len()) == Some(&b' ')
    {
        let start = start + scheme.len() + 1;
        return hidden(text, start, value_end(text, start));
    }
    if quote == Some(b'"') && follows_string(value) {
        return None;
    }
    if let Some(kind) = identity {
        return hidden_name(text, start, end, kind);
    }
    let in_list = before_name == Some(b';') || text.get(end) == Some(&b';');
    let shown = match holds {
        Holds::Perhaps if in_query || in_list => false,
        Holds::Perhaps if quote.is_some() => !is_one_word(value),
        Holds::Perhaps => !is_random(value),
        _ => false,
    };
    if shown {
        None
    } else {
        hidden(text, start, end)
    }
}

/// Whether a value in quotes is one word, as a secret is; special words of models are in brackets.
fn is_one_word(value: &[u8]) -> bool {
    value
        .iter()
        .all(|b| b.is_ascii_graphic() && !b"<>[]|(){},".contains(b))
}

/// Whether a value looks random: letters and digits, or very long.
fn is_random(value: &[u8]) -> bool {
    let word = value
        .iter()
        .all(|b| b.is_ascii_alphanumeric() || b"+/=_.~%-".contains(b));
    let digit = value.iter().any(u8::is_ascii_digit);
    let letter = value.iter().any(u8::is_ascii_alphabetic);
    word && letter && ((digit && value.len() >= 8) || value.len() >= 24)
}

/// The name of a person or a machine after a `=`.
fn hidden_name(text: &[u8], start: usize, end: usize, kind: RedactionKind) -> Option<Redaction> {
    let value = text.get(start..end)?;
    let starts_any = value.len() >= LEAST && value.iter().any(u8::is_ascii_alphabetic);
    (starts_any && !is_gone(value)).then(|| Redaction::new(start, end, kind, REMOVED))
}

/// Matches the value in `--hf-token VALUE` on a command line.
fn flag(text: &[u8], at: usize) -> Option<Redaction> {
    if !starts(text, at, "--")
        || at
            .checked_sub(1)
            .and_then(|i| text.get(i))
            .copied()
            .is_some_and(is_name)
    {
        return None;
    }
    let rest = text.get(at + 2..)?;
    let is = |b: &&u8| is_word(**b) || **b == b'-';
    let length = rest.iter().take(60).take_while(is).count();
    let name = std::str::from_utf8(rest.get(..length)?).ok()?;
    let gap = *rest.get(length)?;
    if !b" =".contains(&gap) || !credentials::is_secret_option(name) {
        return None;
    }
    let start = at + 2 + length + 1;
    let quoted = text.get(start).is_some_and(|b| b"'\"".contains(b));
    let start = start + usize::from(quoted);
    if starts(text, start, "-") || is_gone_at(text, start) {
        return None;
    }
    hidden(text, start, value_end(text, start))
}

/// Matches user and password in `curl -u user:password`.
fn login(text: &[u8], at: usize) -> Option<Redaction> {
    /// The number of bytes before the option in which the command is looked for.
    const BEFORE: usize = 200;
    let option = ["-u ", "-u=", "-u", "--user ", "--user=", "--proxy-user "]
        .into_iter()
        .find(|option| starts(text, at, option))?;
    let before = text.get(at.saturating_sub(BEFORE)..at)?;
    let blank = before.last().is_some_and(u8::is_ascii_whitespace);
    if !blank || memchr::memmem::find(before, b"curl").is_none() {
        return None;
    }
    let start = at + option.len();
    let quote = text.get(start).copied().filter(|b| b"'\"".contains(b));
    let start = start + usize::from(quote.is_some());
    let end = value_end(text, start);
    let value = text.get(start..end)?;
    let both = value
        .iter()
        .position(|b| *b == b':')
        .is_some_and(|colon| colon > 0 && colon + 1 < value.len());
    (both && !is_gone(value)).then(|| credential(start, end))
}

/// Matches user and password in `scheme://user:password@host`.
fn url_password(text: &[u8], at: usize) -> Option<Redaction> {
    if !starts(text, at, "//") || at == 0 || text.get(at - 1) != Some(&b':') {
        return None;
    }
    let start = at + 2;
    let rest = text.get(start..)?;
    let inside = |b: &&u8| b.is_ascii_graphic() && !b"/'\"<>\\@".contains(b);
    let length = rest.iter().take(200).take_while(inside).count();
    let is_login = rest.get(length) == Some(&b'@') && rest.get(..length)?.contains(&b':');
    (is_login && rest.get(..length)? != REMOVED.as_bytes())
        .then(|| credential(start, start + length))
}

/// Matches `-----BEGIN ... PRIVATE KEY-----` up to the end of the text.
fn private_key(text: &[u8], at: usize) -> Option<Redaction> {
    if !starts(text, at, "-----BEGIN ") {
        return None;
    }
    let rest = text.get(at..)?;
    let head = rest.get(..60).unwrap_or(rest);
    let words = head.windows(11).position(|w| w == b"PRIVATE KEY")?;
    // Two strings of JSON are no header, and a text may have a thousand such.
    if head.get(..words)?.contains(&b'"') {
        return None;
    }
    let printed = |b: &&u8| b.is_ascii_graphic() || b.is_ascii_whitespace();
    Some(credential(at, at + rest.iter().take_while(printed).count()))
}

/// Matches `name@example.org`.
fn mail(text: &[u8], at: usize) -> Option<Redaction> {
    let before = text.get(..at)?;
    let name = |b: &&u8| b.is_ascii_alphanumeric() || b"._+-".contains(*b);
    let start = at - before.iter().rev().take(64).take_while(name).count();
    let rest = text.get(at + 1..)?;
    let domain = |b: &&u8| b.is_ascii_alphanumeric() || b".-".contains(*b);
    let length = rest.iter().take(255).take_while(domain).count();
    let host = std::str::from_utf8(rest.get(..length)?)
        .ok()?
        .trim_end_matches(['.', '-']);
    let after = text.get(at + 1 + host.len()).copied();
    let (head, top) = host.rsplit_once('.')?;
    let is_domain = !head.is_empty()
        && top.len() >= 2
        && top.bytes().all(|b| b.is_ascii_alphabetic())
        // Versioned symbols: `memcpy@GLIBC.PRIVATE`; a call such as `a@b.sum(`.
        && !host.bytes().any(|b| b.is_ascii_uppercase())
        && after != Some(b'(');
    let end = at + 1 + host.len();
    (start < at && is_domain).then(|| Redaction::new(start, end, RedactionKind::Mail, REMOVED))
}

/// Matches tokens of a known form, and tokens after `Bearer`.
fn word_forms(text: &[u8], at: usize) -> Option<Redaction> {
    let before = at.checked_sub(1).and_then(|i| text.get(i)).copied();
    if !before.is_some_and(is_word)
        && let Some(scheme) = SCHEMES.iter().find(|scheme| starts(text, at, scheme))
    {
        let start = at + scheme.len();
        let end = value_end(text, start);
        return (end - start >= 16)
            .then(|| hidden(text, start, end))
            .flatten();
    }
    let (start, end) = forms::known().at(text, at)?;
    Some(credential(start, end))
        .filter(|_| text.get(start..end).is_some_and(|value| !is_gone(value)))
}

#[cfg(test)]
mod tests;
