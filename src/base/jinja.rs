//! Reads the tags of a template before the template engine does, and refuses what the engine does not bound:
//! its fuel counts instructions, not bytes, and some calls panic.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

/// Maximum length of a tag in bytes; bounds the depth of its expressions, which the engine walks by recursion.
pub(crate) const LONGEST_TAG: usize = 1_000;
/// Maximum number of filters in a tag.
pub(crate) const MOST_FILTERS: usize = 16;

/// Takes a number of bytes and no more.
pub(crate) struct Bounded {
    pub(crate) bytes: Vec<u8>,
    /// Whether more was written than fits.
    pub(crate) full: bool,
    max: usize,
}

impl Bounded {
    pub(crate) fn new(max: usize) -> Bounded {
        Bounded {
            bytes: Vec::new(),
            full: false,
            max,
        }
    }
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.max {
            self.full = true;
            return Err(io::Error::other("the output is too long"));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A `{{ ... }}` or a `{% ... %}`.
#[derive(Debug)]
pub(crate) struct Tag<'t> {
    /// Its place in the template.
    pub(crate) at: Range<usize>,
    /// Whether it is a statement.
    pub(crate) is_statement: bool,
    pub(crate) tokens: Vec<Token<'t>>,
}

/// A part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    Word(&'t str),
    Number(&'t str),
    /// A text with its quotes.
    Text(&'t str),
    Sign(char),
}

impl<'t> Token<'t> {
    fn word(self) -> Option<&'t str> {
        match self {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }
}

impl<'t> Tag<'t> {
    /// The first word of a statement.
    pub(crate) fn statement(&self) -> Option<&'t str> {
        let first = self.tokens.first().filter(|_| self.is_statement);
        first.and_then(|token| token.word())
    }

    /// The filters of the tag.
    pub(crate) fn filters(&self) -> impl Iterator<Item = &'t str> {
        self.tokens.windows(2).filter_map(|pair| match pair {
            [Token::Sign('|'), Token::Word(word)] => Some(*word),
            _ => None,
        })
    }

    /// Why the tag is too long to be parsed, if it is.
    pub(crate) fn too_long(&self) -> Option<String> {
        if self.at.len() > LONGEST_TAG {
            return Some(format!("a tag of more than {LONGEST_TAG} bytes"));
        }
        (self.filters().count() > MOST_FILTERS)
            .then(|| format!("more than {MOST_FILTERS} filters in one tag"))
    }

    /// The functions and methods that are called. Filters and tests are none.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &'t str> {
        const OPERATORS: [&str; 9] = ["if", "elif", "else", "in", "and", "or", "not", "is", "for"];
        (1..self.tokens.len()).filter_map(|at| {
            if self.tokens.get(at) != Some(&Token::Sign('(')) {
                return None;
            }
            let before = at.checked_sub(2).and_then(|at| self.tokens.get(at));
            match self.tokens.get(at - 1)? {
                Token::Word(word) if OPERATORS.contains(word) => None,
                Token::Word(_) if before == Some(&Token::Sign('|')) => None,
                Token::Word(_) if matches!(before, Some(Token::Word("is" | "not"))) => None,
                Token::Word(word) => Some(*word),
                // The result of a call or a subscript that is called.
                Token::Sign(')' | ']') => Some("(...)"),
                _ => None,
            }
        })
    }
}

/// The tags of a template, as far as they are closed.
pub(crate) fn tags(source: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut from = 0;
    while let Some(open) = source.get(from..).and_then(|rest| rest.find('{')) {
        let start = from + open;
        let rest = source.get(start + 1..).unwrap_or_default();
        let is_statement = match rest.as_bytes().first() {
            Some(b'{') => false,
            Some(b'%') => true,
            Some(b'#') => {
                // The sign that opens the comment is no part of the one that closes it: `{#}` stays open.
                let inside = source.get(start + 2..).unwrap_or_default();
                from = start + 2 + inside.find("#}").map_or(inside.len(), |end| end + 2);
                continue;
            }
            _ => {
                from = start + 1;
                continue;
            }
        };
        let (tokens, end) = tokens(source, start + 2, if is_statement { "%}" } else { "}}" });
        tags.push(Tag {
            at: start..end,
            is_statement,
            tokens,
        });
        from = end;
    }
    tags
}

/// The names that a template takes from outside, at most two words long: `run.steps` of `run.steps.first`.
pub(crate) fn names(tags: &[Tag<'_>]) -> BTreeSet<String> {
    const KEYWORDS: [&str; 15] = [
        "if", "elif", "else", "endif", "for", "in", "endfor", "and", "or", "not", "is", "true",
        "false", "none", "loop",
    ];
    let mut names = BTreeSet::new();
    // The variables of the loops that are open.
    let mut loops: Vec<Vec<&str>> = Vec::new();
    for tag in tags {
        let tokens = tag.tokens.as_slice();
        match tag.statement() {
            Some("for") => {
                let variables = tokens.iter().take_while(|t| **t != Token::Word("in"));
                loops.push(variables.filter_map(|t| t.word()).collect());
            }
            Some("endfor") => drop(loops.pop()),
            _ => {}
        }
        for (at, token) in tokens.iter().enumerate() {
            let before = |n: usize| at.checked_sub(n).and_then(|at| tokens.get(at));
            let after = |n: usize| tokens.get(at + n);
            let Some(word) = token.word().filter(|word| {
                !KEYWORDS
                    .iter()
                    .any(|keyword| keyword.eq_ignore_ascii_case(word))
                    && !loops.iter().flatten().any(|variable| variable == word)
            }) else {
                continue;
            };
            let is_test = before(1) == Some(&Token::Word("is"))
                || (before(1) == Some(&Token::Word("not"))
                    && before(2) == Some(&Token::Word("is")));
            let is_argument = matches!(before(1), Some(Token::Sign('(' | ',')))
                && after(1) == Some(&Token::Sign('='))
                && after(2) != Some(&Token::Sign('='));
            let follows = matches!(before(1), Some(Token::Sign('.' | '|')));
            if is_test || is_argument || follows {
                continue;
            }
            let field = (after(1) == Some(&Token::Sign('.'))).then(|| after(2)?.word());
            names.insert(match field.flatten() {
                Some(field) => format!("{word}.{field}"),
                None => word.to_owned(),
            });
        }
    }
    names
}

/// What [`names`] should be, by the template engine.
#[cfg(test)]
pub(crate) fn names_by_the_engine(template: &minijinja::Template<'_, '_>) -> BTreeSet<String> {
    let names = template.undeclared_variables(true).into_iter();
    let first_two = |name: String| name.split('.').take(2).collect::<Vec<_>>().join(".");
    names.map(first_two).collect()
}

/// The tokens from `at` up to the closing sign, and the position after that.
fn tokens<'t>(source: &'t str, at: usize, close: &str) -> (Vec<Token<'t>>, usize) {
    let mut tokens = Vec::new();
    let mut at = at;
    // Brackets that are open: the engine ends no tag inside of them, as in `{{ {'a': {'b': 1}}.a }}`.
    let mut open = 0_usize;
    if source
        .get(at..)
        .is_some_and(|rest| rest.starts_with(['-', '+']))
    {
        at += 1;
    }
    while let Some(rest) = source.get(at..)
        && let Some(first) = rest.chars().next()
    {
        let closes = rest.starts_with(close)
            || (rest.starts_with('-') && rest.get(1..).is_some_and(|r| r.starts_with(close)));
        if closes && open == 0 {
            return (tokens, at + rest.find(close).unwrap_or(0) + close.len());
        }
        let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let length = match first {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '"' | '\'' => {
                let mut escaped = false;
                let end = rest.char_indices().skip(1).find(|(_, c)| {
                    let ends = *c == first && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |(end, _)| end + 1)
            }
            c if c.is_ascii_digit() => run(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_'),
            c if c.is_alphanumeric() || c == '_' => run(|c| c.is_alphanumeric() || c == '_'),
            c => c.len_utf8(),
        };
        let part = rest.get(..length).unwrap_or_default();
        tokens.push(match first {
            '"' | '\'' => Token::Text(part),
            c if c.is_ascii_digit() => Token::Number(part),
            c if c.is_alphanumeric() || c == '_' => Token::Word(part),
            c => Token::Sign(c),
        });
        match first {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        at += length;
    }
    (tokens, source.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_end_outside_of_texts_and_comments() {
        let source = "a {{ '}}' ~ b }} {# {{ no }} #} {%- if \"%}\\\"\" == c.d() -%} x {{ open";
        let tags = tags(source);
        assert_eq!(tags.len(), 3);
        assert_eq!(&source[tags[0].at.clone()], "{{ '}}' ~ b }}");
        assert_eq!(tags[1].statement(), Some("if"));
        assert_eq!(tags[1].calls().collect::<Vec<_>>(), ["d"]);
        assert_eq!(tags[2].at.end, source.len());
    }

    #[test]
    fn tags_end_where_the_engine_ends_them() {
        let braces = "{{ {'a': {'b': 1}}|c }}";
        let found = tags(braces);
        assert_eq!(found.len(), 1);
        assert_eq!(&braces[found[0].at.clone()], braces);
        assert_eq!(found[0].filters().collect::<Vec<_>>(), ["c"]);
        // `{#}` opens a comment that the next `#}` closes.
        let comment = "{#} {{ '#} {{ a.b() }} ' }}";
        let found = tags(comment);
        assert_eq!(&comment[found[0].at.clone()], "{{ a.b() }}");
    }

    #[test]
    fn names_are_those_that_the_engine_asks_for() {
        let environment = minijinja::Environment::empty();
        for source in [
            "{{ a }} {{ b.c | ns }} {{ b.c.d }} {{ 'e.f' }} {{ 2 * g }} {# {{ h }} #}",
            "{% if a.b is defined and not (c is not defined) and d.e == true %}x{% elif f %}{% endif %}",
            "{% for x in a.b %}{{ x.y }} {{ loop.index }} {{ z }}{% endfor %}{{ x }}",
            "{{ a | join(', ') | default(b.c) }} {{ a | round(precision=2) }} {{ c if d == e else f[0] }}",
            "{{ a in b.c or -d }} {{ a . b }} {{ [x, y.z] }} {{ {'k': v} }}",
        ] {
            let template = environment.template_from_str(source).unwrap();
            let asked = names_by_the_engine(&template);
            assert_eq!(names(&tags(source)), asked, "{source}");
        }
    }

    #[test]
    fn filters_and_tests_are_no_calls() {
        for (source, calls) in [
            ("{{ a | round(2) | join(', ') }}", 0),
            (
                "{% if a is divisibleby(3) and (b or c) and a is not eq(4) %}",
                0,
            ),
            ("{{ range(3) }}", 1),
            ("{{ a.b(c) }} ", 1),
            ("{{ a['b'](c)(d) }}", 2),
        ] {
            assert_eq!(tags(source)[0].calls().count(), calls, "{source}");
        }
        let source = "{{ a|b |c( d|e ) }}";
        assert_eq!(
            tags(source)[0].filters().collect::<Vec<_>>(),
            ["b", "c", "e"]
        );
    }
}
