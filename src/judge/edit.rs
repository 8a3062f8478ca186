//! Changes of one source line that a rule suggests: `[[edit]]` tables.

use regex::{Regex, RegexBuilder};

use super::expr::Expr;
use crate::base::toml::Table;

/// Maximum size of a compiled pattern, in bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Edits of a rule.
pub(super) const MAX_EDITS: usize = 16;

/// A change of one source line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edit {
    /// Pattern of the part to replace; it must match the line exactly once.
    pub find: String,
    /// Pattern of lines that are left alone.
    pub unless: Option<String>,
    /// What takes its place: `$1` or `${name}` is a group of the pattern.
    pub replace: String,
}

/// An edit with the condition under which it is suggested.
#[derive(Debug, Clone)]
pub struct RuleEdit {
    /// `None`: always.
    pub when: Option<Expr>,
    /// The change.
    pub edit: Edit,
}

impl Edit {
    /// The lines that take the place of a source line. `None` if the edit does not fit it: comments, lines
    /// that the pattern matches more than once, and lines that need no change.
    pub fn apply(&self, line: &str) -> Option<Vec<String>> {
        self.compile()?.apply(line)
    }

    /// The edit with its patterns compiled, for many lines. `None` if one is no regular expression.
    pub(crate) fn compile(&self) -> Option<CompiledEdit<'_>> {
        Some(CompiledEdit {
            find: compiled(&self.find).ok()?,
            unless: match &self.unless {
                Some(pattern) => Some(compiled(pattern).ok()?),
                None => None,
            },
            replace: &self.replace,
        })
    }
}

/// An edit with its patterns compiled.
pub(crate) struct CompiledEdit<'e> {
    find: Regex,
    unless: Option<Regex>,
    replace: &'e str,
}

impl CompiledEdit<'_> {
    /// See [`Edit::apply`].
    pub(crate) fn apply(&self, line: &str) -> Option<Vec<String>> {
        let is_comment = line.trim_start().starts_with('#');
        let left_alone = (self.unless.as_ref()).is_some_and(|unless| unless.is_match(line));
        if is_comment || left_alone || self.find.find_iter(line).count() != 1 {
            return None;
        }
        let changed = self.find.replace(line, self.replace);
        (changed != line).then(|| changed.lines().map(str::to_owned).collect())
    }
}

fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build()
}

/// Reads an edit without its condition. If `tried`, its patterns are compiled and it is tried on its own
/// example; `None` after complaints.
pub(super) fn read(table: &Table<'_>, tried: bool) -> Option<Edit> {
    let edit = Edit {
        find: table.get_text("find")?,
        unless: table.get_text("unless"),
        replace: table.get_text("replace")?,
    };
    (!tried || fits(table, &edit)).then_some(edit)
}

/// Whether the patterns of an edit are regular expressions and it makes what its example says.
fn fits(table: &Table<'_>, edit: &Edit) -> bool {
    let refused = ["find", "unless"].map(|key| {
        let text = table.get_str(key)?;
        let error = compiled(text.value).err()?.to_string();
        let reason = error.lines().last().unwrap_or_default();
        let title = format!("`{key}` is not a regular expression");
        table.complain(text.span, title, reason);
        Some(())
    });
    let patterns = edit.compile().filter(|_| refused == [None, None]);
    let (Some(patterns), Some(before), Some(after)) =
        (patterns, table.get_str("before"), table.get_str("after"))
    else {
        return false;
    };
    let (at, title, label) = match patterns.apply(before.value) {
        None => (before, "the edit does not change this line", String::new()),
        Some(made) if made.join("\n") != after.value => {
            (after, "the edit makes another line", made.join("\n"))
        }
        Some(made) if made.iter().any(|line| patterns.apply(line).is_some()) => {
            let title = "the edit would change its own result again";
            (after, title, "add `unless`".to_owned())
        }
        Some(_) => return true,
    };
    table.complain(at.span, title, label);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_changes_the_one_line_it_is_made_for() {
        let edit = Edit {
            find: r"SGD\(((?:[^()]|\([^()]*\))+)\)$".to_owned(),
            unless: Some("fused".to_owned()),
            replace: "SGD($1, fused=True)".to_owned(),
        };
        let made = edit.apply("opt = SGD(net.parameters(), lr=0.1)");
        let expected = "opt = SGD(net.parameters(), lr=0.1, fused=True)";
        assert_eq!(made, Some(vec![expected.to_owned()]));
        for line in [
            "opt = SGD(net.parameters(), fused=False)",
            "opt = SGD(",
            "opt = SGD(net.parameters(), lr=0.1).to(f(g(x)))",
            "# opt = SGD(net.parameters(), lr=0.1)",
            "opt = Adam(net.parameters())",
            "",
        ] {
            assert_eq!(edit.apply(line), None, "{line}");
        }
        let twice = Edit {
            find: "a".to_owned(),
            replace: "b".to_owned(),
            ..Edit::default()
        };
        assert_eq!(twice.apply("a = a"), None);
    }
}
