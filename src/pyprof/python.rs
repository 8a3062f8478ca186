//! Values as Python's `repr()` prints them.

/// Appends a string literal: single quotes unless only those occur in the text.
pub(super) fn push_str(out: &mut String, text: &str) {
    let quote = quote(text);
    out.push(quote);
    push_inside(out, text, quote);
    out.push(quote);
}

/// The quotes around a text.
fn quote(text: &str) -> char {
    if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    }
}

/// Appends the text between the quotes.
fn push_inside(out: &mut String, text: &str, quote: char) {
    let mut plain_from = 0;
    for (at, c) in text.char_indices() {
        if c != quote && c != '\\' && is_printable(c) {
            continue;
        }
        out.push_str(text.get(plain_from..at).unwrap_or_default());
        push_escape(out, c);
        plain_from = at + c.len_utf8();
    }
    out.push_str(text.get(plain_from..).unwrap_or_default());
}

fn push_escape(out: &mut String, c: char) {
    let code = u32::from(c);
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\\' | '\'' | '"' => out.extend(['\\', c]),
        _ if code <= 0xFF => out.push_str(&format!("\\x{code:02x}")),
        _ if code <= 0xFFFF => out.push_str(&format!("\\u{code:04x}")),
        _ => out.push_str(&format!("\\U{code:08x}")),
    }
}

/// Approximates Python's `str.isprintable`: Rust escapes the same classes of characters.
fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return (' '..='~').contains(&c);
    }
    if c.is_whitespace() {
        return false;
    }
    // After another character, combining marks are not escaped, neither in Python nor here.
    let mut pair = String::from("a");
    pair.push(c);
    pair.escape_debug().nth(1) == Some(c)
}

/// Appends a list; `item` writes its items.
pub(super) fn push_list<T>(out: &mut String, items: &[T], item: impl Fn(&mut String, &T)) {
    out.push('[');
    for (i, value) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        item(out, value);
    }
    out.push(']');
}

/// `(1, 2, 3)`, `(5,)`, `()`.
pub(super) fn tuple<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    match items.as_slice() {
        [only] => format!("({only},)"),
        items => format!("({})", items.join(", ")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::correlate::literal;

    fn repr(text: &str) -> String {
        let mut out = String::new();
        push_str(&mut out, text);
        out
    }

    #[test]
    fn strings_match_python_repr() {
        for (text, want) in [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            ("\"", "'\"'"),
            ("a\\b\n\t\x1b\x7f", "'a\\\\b\\n\\t\\x1b\\x7f'"),
            ("é中\u{a0}\u{200b}\u{e000}", "'é中\\xa0\\u200b\\ue000'"),
            ("e\u{301}\u{10ffff}", "'e\u{301}\\U0010ffff'"),
        ] {
            assert_eq!(repr(text), want);
        }
    }

    #[test]
    fn strings_round_trip() {
        for text in [
            "",
            "'",
            "\"'\\",
            "\u{feff}\0x",
            "{'mod': \"a\\'b\"}",
            "🦀\r\n",
        ] {
            let read = repr(text);
            assert_eq!(literal::parse(&read).unwrap().as_str(), Some(text));
        }
    }

    #[test]
    fn tuples_of_one_item_have_a_comma() {
        assert_eq!(tuple(&[1, 2]), "(1, 2)");
        assert_eq!(tuple(&[1]), "(1,)");
        assert_eq!(tuple::<u8>(&[]), "()");
    }
}
