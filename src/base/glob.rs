//! Name patterns with `*`.

use std::fmt;

/// A pattern for names: `host/*`, `launch/many-*`. `*` matches any text, including `/`; every other
/// character matches itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob(String);

impl Glob {
    /// A pattern from its text.
    pub fn new(pattern: &str) -> Glob {
        Glob(pattern.to_owned())
    }

    /// The text of the pattern.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// How every name begins that matches.
    pub fn start(&self) -> &str {
        self.0.split('*').next().unwrap_or_default()
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, parts)) = self.0.split_once('*') else {
            return self.0 == name;
        };
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let (middle, last) = parts.rsplit_once('*').unwrap_or(("", parts));
        for part in middle.split('*') {
            match rest.split_once(part) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_ids() {
        for (glob, id, matches) in [
            ("host/*", "host/sync", true),
            ("host/*", "ghost/sync", false),
            ("*", "a/b", true),
            ("a/b", "a/b", true),
            ("a/b", "a/bc", false),
            ("a/*-slow", "a/very-slow", true),
            ("a/*-slow", "a/slow", false),
            ("*s*s", "xsxs", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(Glob::new(glob).matches(id), matches, "{glob} on {id}");
        }
    }
}
