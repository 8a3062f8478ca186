//! Reads Python literals as data: what `repr()` of dictionaries, lists, strings and numbers prints.
//!
//! PyProf writes its markers and its `.dict` files this way and reads them back with `eval()`.
//! Profiles are untrusted input, so this parser evaluates nothing and bounds the nesting depth and the
//! number of values. Every error has a byte position.

use std::borrow::Cow;

/// Maximum nesting depth of containers. Real markers have a depth of four.
const MAX_DEPTH: usize = 64;
/// Maximum number of values in one text. The longest real marker has a few thousand.
const MAX_VALUES: usize = 1 << 20;

/// A Python literal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// A float, or an integer too large for an `i64`.
    Float(f64),
    Str(Cow<'a, str>),
    List(Vec<Literal<'a>>),
    Tuple(Vec<Literal<'a>>),
    /// Entries in the order of the text; duplicate keys are kept.
    Dict(Vec<(Literal<'a>, Literal<'a>)>),
}

impl<'a> Literal<'a> {
    /// The text of a string literal.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Literal::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The items of a list or tuple.
    pub(crate) fn items(&self) -> Option<&[Literal<'a>]> {
        match self {
            Literal::List(items) | Literal::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// The value of a string key of a dictionary; the last one wins, as in Python.
    pub(crate) fn get(&self, key: &str) -> Option<&Literal<'a>> {
        match self {
            Literal::Dict(entries) => lookup(entries, key),
            _ => None,
        }
    }
}

/// The value of a string key; the last one wins, as in Python.
pub(crate) fn lookup<'d, 'a>(
    entries: &'d [(Literal<'a>, Literal<'a>)],
    key: &str,
) -> Option<&'d Literal<'a>> {
    entries
        .iter()
        .rev()
        .find(|(k, _)| k.as_str() == Some(key))
        .map(|(_, v)| v)
}

/// A syntax error and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at byte {at}")]
pub(crate) struct LiteralError {
    /// Byte offset into the text.
    pub at: usize,
    pub problem: &'static str,
}

impl LiteralError {
    fn new(at: usize, problem: &'static str) -> LiteralError {
        LiteralError { at, problem }
    }
}

/// Parses `text` as one literal, optionally surrounded by white space.
///
/// # Errors
/// If `text` is not a literal, nests deeper than 64 levels, or contains more than 2^20 values.
pub(crate) fn parse(text: &str) -> Result<Literal<'_>, LiteralError> {
    let mut parser = Parser::new(text);
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.fail("text after the end of the literal"));
    }
    Ok(value)
}

/// The leading entries of a dictionary, up to the first value that is not a literal.
///
/// A marker may end in the `repr()` of some object; its `mod` and `op` precede that and remain usable.
pub(crate) fn leading_entries(text: &str) -> Vec<(Literal<'_>, Literal<'_>)> {
    let mut parser = Parser::new(text);
    let mut entries = Vec::new();
    parser.skip_space();
    if parser.eat(b'{') {
        while let Ok(Some(entry)) = parser.entry(0) {
            entries.push(entry);
        }
    }
    entries
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser {
            text,
            at: 0,
            values: 0,
        }
    }

    fn fail(&self, problem: &'static str) -> LiteralError {
        LiteralError::new(self.at, problem)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r' | 0x0c)) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Literal<'a>, LiteralError> {
        self.skip_space();
        self.values += 1;
        if depth > MAX_DEPTH {
            return Err(self.fail("nested too deeply"));
        }
        if self.values > MAX_VALUES {
            return Err(self.fail("too many values"));
        }
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.dict(depth)
            }
            Some(b'[') => {
                self.at += 1;
                Ok(Literal::List(self.sequence(b']', depth)?.0))
            }
            Some(b'(') => {
                self.at += 1;
                let (mut items, comma) = self.sequence(b')', depth)?;
                // `(x)` is `x` in parentheses, `(x,)` is a tuple.
                match (items.pop(), comma) {
                    (Some(only), false) if items.is_empty() => Ok(only),
                    (last, _) => {
                        items.extend(last);
                        Ok(Literal::Tuple(items))
                    }
                }
            }
            Some(b'\'' | b'"') => self.string(false, false),
            Some(b'0'..=b'9' | b'-' | b'+' | b'.') => self.number(),
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => self.word(),
            Some(_) => Err(self.fail("not the start of a literal")),
            None => Err(self.fail("the text ends where a value should be")),
        }
    }

    /// Items up to `close`, and whether the list contained a comma.
    fn sequence(
        &mut self,
        close: u8,
        depth: usize,
    ) -> Result<(Vec<Literal<'a>>, bool), LiteralError> {
        let mut items = Vec::new();
        let mut comma = false;
        loop {
            self.skip_space();
            if self.eat(close) {
                return Ok((items, comma));
            }
            if !items.is_empty() {
                if !self.eat(b',') {
                    return Err(self.fail("expected a comma or the closing bracket"));
                }
                comma = true;
                self.skip_space();
                if self.eat(close) {
                    return Ok((items, comma));
                }
            }
            items.push(self.value(depth + 1)?);
        }
    }

    fn dict(&mut self, depth: usize) -> Result<Literal<'a>, LiteralError> {
        let mut entries = Vec::new();
        while let Some(entry) = self.entry(depth)? {
            entries.push(entry);
        }
        Ok(Literal::Dict(entries))
    }

    /// The next `key: value` and the comma after it; `None` at the closing brace.
    fn entry(&mut self, depth: usize) -> Result<Option<(Literal<'a>, Literal<'a>)>, LiteralError> {
        self.skip_space();
        if self.eat(b'}') {
            return Ok(None);
        }
        let key = self.value(depth + 1)?;
        self.skip_space();
        if !self.eat(b':') {
            return Err(self.fail("expected a colon after a key"));
        }
        let value = self.value(depth + 1)?;
        self.skip_space();
        if !self.eat(b',') && self.peek() != Some(b'}') {
            return Err(self.fail("expected a comma or the closing brace"));
        }
        Ok(Some((key, value)))
    }

    fn number(&mut self) -> Result<Literal<'a>, LiteralError> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if matches!(self.peek(), Some(b'-' | b'+')) {
            self.at += 1;
        }
        if self.peek().is_some_and(|b| b.is_ascii_alphabetic()) {
            return match self.word()? {
                Literal::Float(f) => Ok(Literal::Float(if negative { -f } else { f })),
                _ => Err(LiteralError::new(
                    start,
                    "a sign before something that is not a number",
                )),
            };
        }
        let mut previous = b' ';
        while let Some(b) = self.peek() {
            let exponent_sign = matches!(b, b'-' | b'+') && matches!(previous, b'e' | b'E');
            if !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_') || exponent_sign) {
                break;
            }
            previous = b;
            self.at += 1;
        }
        let raw = self.text.get(start..self.at).unwrap_or_default();
        let digits = raw.replace('_', "");
        number(&digits).ok_or(LiteralError::new(start, "not a number"))
    }

    fn word(&mut self) -> Result<Literal<'a>, LiteralError> {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        {
            self.at += 1;
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        let quoted = matches!(self.peek(), Some(b'\'' | b'"'));
        match word {
            "None" => Ok(Literal::None),
            "True" => Ok(Literal::Bool(true)),
            "False" => Ok(Literal::Bool(false)),
            "inf" | "Infinity" => Ok(Literal::Float(f64::INFINITY)),
            "nan" | "NaN" => Ok(Literal::Float(f64::NAN)),
            prefix if quoted && is_string_prefix(prefix) => {
                let raw = prefix.contains(['r', 'R']);
                self.string(raw, prefix.contains(['b', 'B']))
            }
            _ => Err(LiteralError::new(start, "a name, not a literal")),
        }
    }

    /// A string in single, double or triple quotes; the cursor is on the first quote.
    fn string(&mut self, raw: bool, bytes: bool) -> Result<Literal<'a>, LiteralError> {
        let open = self.at;
        let unclosed = LiteralError::new(open, "a string without end");
        let quote = self.peek().ok_or(unclosed)?;
        let rest = self.text.as_bytes().get(open..).unwrap_or_default();
        let triple = rest.starts_with(&[quote, quote, quote]);
        let width = if triple { 3 } else { 1 };
        self.at += width;
        let mut run = self.at;
        let mut built: Option<String> = None;
        loop {
            match self.peek().ok_or(unclosed)? {
                b if b == quote && (!triple || self.closes(quote)) => {
                    let tail = self.text.get(run..self.at).unwrap_or_default();
                    self.at += width;
                    return Ok(Literal::Str(match built {
                        Some(text) => Cow::Owned(text + tail),
                        None => Cow::Borrowed(tail),
                    }));
                }
                // A raw string keeps its backslashes, but a backslash still escapes a quote.
                b'\\' if raw => self.at = self.after_char(self.at + 1),
                b'\\' => {
                    let text = built.get_or_insert_default();
                    text.push_str(self.text.get(run..self.at).unwrap_or_default());
                    let decoded = self.escape(bytes)?;
                    built.get_or_insert_default().extend(decoded);
                    run = self.at;
                }
                b'\n' if !triple => return Err(unclosed),
                _ => self.at += 1,
            }
        }
    }

    fn closes(&self, quote: u8) -> bool {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        rest.starts_with(&[quote, quote, quote])
    }

    /// The byte offset after the character that starts at `at`.
    fn after_char(&self, at: usize) -> usize {
        let next = self.text.get(at..).and_then(|rest| rest.chars().next());
        at + next.map_or(0, char::len_utf8)
    }

    /// One escape sequence; the cursor is on its backslash. `None` for an escaped line end.
    fn escape(&mut self, bytes: bool) -> Result<Option<char>, LiteralError> {
        let start = self.at;
        let bad = LiteralError::new(start, "a broken escape in a string");
        let after = self.after_char(start + 1);
        let kind = self
            .text
            .get(start + 1..after)
            .and_then(|s| s.chars().next());
        self.at = after;
        let known = match kind.ok_or(bad)? {
            '\n' => return Ok(None),
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            c @ ('\\' | '\'' | '"') => c,
            'x' => self.hex(2).ok_or(bad)?,
            'u' if !bytes => self.hex(4).ok_or(bad)?,
            'U' if !bytes => self.hex(8).ok_or(bad)?,
            'N' if !bytes && self.peek() == Some(b'{') => {
                // Named characters would need the Unicode name table; `repr()` never writes them.
                let rest = self.text.get(self.at..).unwrap_or_default();
                self.at += rest.find('}').ok_or(bad)? + 1;
                char::REPLACEMENT_CHARACTER
            }
            '0'..='7' => self.octal(start + 1),
            // Python keeps the backslash of an unknown escape.
            _ => {
                self.at = start + 1;
                '\\'
            }
        };
        Ok(Some(known))
    }

    fn hex(&mut self, digits: usize) -> Option<char> {
        let raw = self.text.get(self.at..self.at + digits)?;
        if !raw.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        self.at += digits;
        let code = u32::from_str_radix(raw, 16).ok()?;
        // A lone surrogate is valid in a Python string but is not a Unicode scalar value.
        Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// One to three octal digits from `start`.
    fn octal(&mut self, start: usize) -> char {
        let digits = self
            .text
            .bytes()
            .skip(start)
            .take(3)
            .take_while(|b| matches!(b, b'0'..=b'7'));
        let mut code = 0;
        self.at = start;
        for digit in digits {
            code = code * 8 + u32::from(digit - b'0');
            self.at += 1;
        }
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    }
}

fn is_string_prefix(word: &str) -> bool {
    word.len() <= 2
        && matches!(
            word.to_ascii_lowercase().as_str(),
            "r" | "u" | "b" | "br" | "rb"
        )
}

/// A signed number in any of Python's spellings without underscores.
fn number<'a>(text: &str) -> Option<Literal<'a>> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(Literal::Int(whole));
    }
    let (sign, body) = match text.strip_prefix('-') {
        Some(body) => (-1.0, body),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = body.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = lower.strip_prefix(prefix) {
            let value = i64::from_str_radix(digits, radix).ok()?;
            return Some(Literal::Int(if sign < 0.0 { -value } else { value }));
        }
    }
    // Rust also parses words such as `infinity`; here a number must start with a digit.
    if !body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    body.parse::<f64>().ok().map(|f| Literal::Float(sign * f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(s: &str) -> Literal<'_> {
        Literal::Str(Cow::Borrowed(s))
    }

    #[test]
    fn parses_a_pyprof_marker() {
        let marker = "{'mod': 'torch', 'op': 'cat', 'args': [{'name': '', 'type': 'tensor', \
                      'shape': (35, 20, 200), 'dtype': 'float32'}, {'name': 'dim', 'type': 'int', \
                      'value': -1},]}";
        let value = parse(marker).unwrap();
        assert_eq!(value.get("op"), Some(&text("cat")));
        let args = value.get("args").and_then(Literal::items).unwrap();
        assert_eq!(args.len(), 2);
        assert_eq!(
            args[0].get("shape"),
            Some(&Literal::Tuple(vec![
                Literal::Int(35),
                Literal::Int(20),
                Literal::Int(200)
            ]))
        );
        assert_eq!(args[1].get("value"), Some(&Literal::Int(-1)));
    }

    #[test]
    fn parses_every_kind_of_literal() {
        for (source, value) in [
            ("None", Literal::None),
            (" True ", Literal::Bool(true)),
            ("False", Literal::Bool(false)),
            ("-7", Literal::Int(-7)),
            ("+7", Literal::Int(7)),
            ("1_000", Literal::Int(1000)),
            ("0x1F", Literal::Int(31)),
            ("1e-05", Literal::Float(1e-5)),
            (".5", Literal::Float(0.5)),
            ("2.", Literal::Float(2.0)),
            ("inf", Literal::Float(f64::INFINITY)),
            ("-inf", Literal::Float(f64::NEG_INFINITY)),
            (
                "123456789012345678901234567890",
                Literal::Float(123_456_789_012_345_680_000_000_000_000.0),
            ),
            ("()", Literal::Tuple(vec![])),
            ("(1)", Literal::Int(1)),
            ("(1,)", Literal::Tuple(vec![Literal::Int(1)])),
            ("[]", Literal::List(vec![])),
            ("{}", Literal::Dict(vec![])),
            (r#""it's""#, text("it's")),
            (r"'it\'s'", text("it's")),
            (r"'a\\b\n\x41\101\u00e9'", text("a\\b\nAA\u{e9}")),
            (r"'\q'", text("\\q")),
            (r"r'\n'", text("\\n")),
            ("b'abc'", text("abc")),
            ("'''a'b'''", text("a'b")),
            ("''", text("")),
        ] {
            assert_eq!(parse(source), Ok(value), "{source}");
        }
        assert!(matches!(parse("nan"), Ok(Literal::Float(f)) if f.is_nan()));
    }

    #[test]
    fn rejects_other_text_with_its_position() {
        for (source, at) in [
            ("", 0),
            ("[1, os.system('x')]", 4),
            ("{'a': 1, 'b'}", 12),
            ("[1 2]", 3),
            ("'open", 0),
            ("1 + 1", 2),
            ("__import__('os')", 0),
            ("{'a': <object at 0x7f>}", 6),
        ] {
            assert_eq!(parse(source).map_err(|e| e.at), Err(at), "{source}");
        }
    }

    #[test]
    fn nesting_depth_is_limited() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(parse(&deep).unwrap_err().problem, "nested too deeply");
        let fine = format!("{}{}", "[".repeat(60), "]".repeat(60));
        assert!(parse(&fine).is_ok());
    }

    #[test]
    fn leading_entries_survive_a_syntax_error() {
        let entries = leading_entries("{'mod': 'torch', 'op': 'to', 'args': [<device>]}");
        assert_eq!(lookup(&entries, "op"), Some(&text("to")));
        assert_eq!(lookup(&entries, "args"), None);
    }

    /// Prints a literal as `repr()` does.
    fn repr(value: &Literal<'_>) -> String {
        let join = |items: &[Literal<'_>]| items.iter().map(repr).collect::<Vec<_>>().join(", ");
        match value {
            Literal::None => "None".into(),
            Literal::Bool(true) => "True".into(),
            Literal::Bool(false) => "False".into(),
            Literal::Int(i) => i.to_string(),
            Literal::Float(f) => format!("{f:?}"),
            Literal::Str(s) => {
                let escaped: String = s
                    .chars()
                    .map(|c| match c {
                        '\\' => "\\\\".into(),
                        '\'' => "\\'".into(),
                        '\n' => "\\n".into(),
                        c if (c as u32) < 0x20 => format!("\\x{:02x}", c as u32),
                        c => c.to_string(),
                    })
                    .collect();
                format!("'{escaped}'")
            }
            Literal::List(items) => format!("[{}]", join(items)),
            Literal::Tuple(items) if items.len() == 1 => format!("({},)", join(items)),
            Literal::Tuple(items) => format!("({})", join(items)),
            Literal::Dict(entries) => {
                let inner: Vec<String> = entries
                    .iter()
                    .map(|(k, v)| format!("{}: {}", repr(k), repr(v)))
                    .collect();
                format!("{{{}}}", inner.join(", "))
            }
        }
    }

    fn any_literal() -> impl Strategy<Value = Literal<'static>> {
        let leaf = prop_oneof![
            Just(Literal::None),
            any::<bool>().prop_map(Literal::Bool),
            any::<i64>().prop_map(Literal::Int),
            (-1e300..1e300f64).prop_map(Literal::Float),
            any::<String>().prop_map(|s| Literal::Str(Cow::Owned(s))),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Literal::List),
                prop::collection::vec(inner.clone(), 0..6).prop_map(Literal::Tuple),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Literal::Dict),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_repr_prints_is_read_back(value in any_literal()) {
            let printed = repr(&value);
            prop_assert_eq!(parse(&printed).unwrap(), value);
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = parse(&text);
            let _ = leading_entries(&text);
        }

        #[test]
        fn no_near_literal_panics(text in r#"[\[\]{}()'"\\,: 0-9a-zéx.+\-]{0,60}"#) {
            match parse(&text) {
                Err(error) => prop_assert!(error.at <= text.len()),
                Ok(value) => prop_assert!(parse(&repr(&value)).is_ok() || repr(&value).contains("NaN")),
            }
            let _ = leading_entries(&text);
        }
    }
}
