//! Source lines as code review tools want them: a file relative to the repository, and a line.

/// A line of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SourceLine {
    /// Relative, with `/`: `model/net.py`.
    pub path: String,
    /// CallUnit from 1.
    pub line: u32,
}

impl SourceLine {
    /// `model/net.py:42` taken apart. `None` for what cannot be a file of a repository: an absolute
    /// path, a way out of the folder, a name that was shortened.
    pub(super) fn parse(text: &str) -> Option<SourceLine> {
        let (path, line) = text.rsplit_once(':')?;
        let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
        // A file that lies directly in the home folder is called `~/net.py`.
        let path = path.strip_prefix("~/").unwrap_or(path);
        let relative = !path.starts_with(['/', '\\', '~']) && !path.contains([':', '…']);
        let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let shown = path.chars().all(|c| !c.is_control());
        (relative && plain && shown).then(|| SourceLine {
            path: path.to_owned(),
            line,
        })
    }

    /// The path as a relative URI reference (RFC 3986): everything but unreserved characters and `/`
    /// is percent-encoded.
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
    fn only_files_of_a_repository() {
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
