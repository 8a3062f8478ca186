//! Source lines for code review tools: a path relative to the repository, and a line number.

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceLine {
    /// Relative, with `/`: `model/net.py`.
    pub path: String,
    /// Counted from 1.
    pub line: u32,
}

impl SourceLine {
    /// Parses `model/net.py:42`. `None` for paths that cannot be in a repository: absolute ones,
    /// those with `..`, and shortened ones.
    pub(super) fn parse(text: &str) -> Option<SourceLine> {
        let (path, line) = text.rsplit_once(':')?;
        let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
        // A file directly in the home folder is written as `~/net.py`.
        let path = path.strip_prefix("~/").unwrap_or(path);
        let relative = !path.starts_with(['/', '\\', '~']) && !path.contains([':', '…']);
        let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let shown = path.chars().all(|c| !c.is_control());
        (relative && plain && shown).then(|| SourceLine {
            path: path.to_owned(),
            line,
        })
    }

    /// The path as a relative URI reference (RFC 3986): all bytes except unreserved characters and
    /// `/` are percent-encoded.
    pub(super) fn uri(&self) -> String {
        uri(&self.path)
    }
}

/// A relative path as a URI reference.
pub(super) fn uri(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_paths_are_parsed() {
        let parse = |text| SourceLine::parse(text).map(|s| (s.uri(), s.line));
        assert_eq!(parse("model/net.py:42"), Some(("model/net.py".into(), 42)));
        assert_eq!(parse("~/net.py:1"), Some(("net.py".into(), 1)));
        assert_eq!(parse("a b/#é.py:7"), Some(("a%20b/%23%C3%A9.py".into(), 7)));
        for none in [
            "/etc/passwd:1",
            "../x.py:1",
            "a/../../x.py:1",
            "~x/y.py:1",
            "C:/x.py:1",
            "https://e.vil/x.py:1",
            "long…name.py:1",
            "net.py:0",
            "net.py:x",
            "net.py",
            ":1",
            "",
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
