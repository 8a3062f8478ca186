//! Lexer and parser: from text to an untyped syntax tree.

use std::ops::Range;

use super::{BinaryOperator, MAX_DEPTH, MAX_NODES, Mistake, Value};

/// A node of the syntax tree.
#[derive(Debug, Clone)]
pub struct Ast<'s> {
    /// The kind of the node.
    pub kind: AstKind<'s>,
    /// Byte range in the source, without brackets around it.
    pub at: Range<usize>,
    /// The same, with brackets around it.
    outer: Range<usize>,
    pub(super) depth: usize,
}

/// The kinds of syntax tree nodes.
#[derive(Debug, Clone)]
pub enum AstKind<'s> {
    /// A number, string or bool as written.
    Literal(Value),
    /// A word.
    Name(&'s str),
    /// `operand.field`.
    Field(Box<Ast<'s>>, &'s str),
    /// `function(...)` or `target.function(...)`.
    Call {
        /// The operand before the dot.
        target: Option<Box<Ast<'s>>>,
        /// The function.
        name: &'s str,
        /// The position of its name.
        name_at: Range<usize>,
        /// The expressions between the brackets.
        args: Vec<Ast<'s>>,
    },
    /// `container[key]`, and where the bracket is.
    Index(Range<usize>, Box<[Ast<'s>; 2]>),
    /// `!operand`.
    Not(Box<Ast<'s>>),
    /// `-operand`, and where the sign is.
    Negate(Range<usize>, Box<Ast<'s>>),
    /// An operator, where it is, and its operands.
    Binary(BinaryOperator, Range<usize>, Box<[Ast<'s>; 2]>),
    /// Operands of a chain of `&&`.
    All(Vec<Ast<'s>>),
    /// Operands of a chain of `||`.
    Any(Vec<Ast<'s>>),
    /// `condition ? then : otherwise`, and where the `?` is.
    If(Range<usize>, Box<[Ast<'s>; 3]>),
    /// `[a, b]`.
    List(Vec<Ast<'s>>),
    /// `{key: value}`.
    Map(Vec<(Ast<'s>, Ast<'s>)>),
}

#[derive(Debug, Clone, PartialEq)]
enum Token<'s> {
    Word(&'s str),
    Number(&'s str),
    Str(String),
    Sign(&'static str),
    End,
}

/// The sign at the start of a text.
fn sign_at(text: &[u8]) -> Option<&'static str> {
    Some(match text {
        [b'&', b'&', ..] => "&&",
        [b'|', b'|', ..] => "||",
        [b'=', b'=', ..] => "==",
        [b'!', b'=', ..] => "!=",
        [b'<', b'=', ..] => "<=",
        [b'>', b'=', ..] => ">=",
        [b'+', ..] => "+",
        [b'-', ..] => "-",
        [b'*', ..] => "*",
        [b'/', ..] => "/",
        [b'%', ..] => "%",
        [b'<', ..] => "<",
        [b'>', ..] => ">",
        [b'!', ..] => "!",
        [b'?', ..] => "?",
        [b':', ..] => ":",
        [b'.', ..] => ".",
        [b',', ..] => ",",
        [b'(', ..] => "(",
        [b')', ..] => ")",
        [b'[', ..] => "[",
        [b']', ..] => "]",
        [b'{', ..] => "{",
        [b'}', ..] => "}",
        [b'=', ..] => "=",
        [b'&', ..] => "&",
        [b'|', ..] => "|",
        _ => return None,
    })
}

/// Operators of other languages, with their equivalents.
const SLIPS: [(&str, &str); 7] = [
    ("=", "to compare, write `==`"),
    ("&", "write `&&`"),
    ("|", "write `||`"),
    ("and", "write `&&`"),
    ("or", "write `||`"),
    ("not", "write `!(x in list)`"),
    ("is", "write `==`"),
];

const OPERATORS: [(&str, u8, BinaryOperator); 12] = [
    ("==", 3, BinaryOperator::Equal),
    ("!=", 3, BinaryOperator::NotEqual),
    ("<", 3, BinaryOperator::Less),
    ("<=", 3, BinaryOperator::AtMost),
    (">", 3, BinaryOperator::More),
    (">=", 3, BinaryOperator::AtLeast),
    ("in", 3, BinaryOperator::In),
    ("+", 4, BinaryOperator::Add),
    ("-", 4, BinaryOperator::Subtract),
    ("*", 5, BinaryOperator::Multiply),
    ("/", 5, BinaryOperator::Divide),
    ("%", 5, BinaryOperator::Remainder),
];

impl BinaryOperator {
    /// The sign and its precedence.
    fn entry(self) -> (&'static str, u8) {
        let entry = OPERATORS.iter().find(|(.., op)| *op == self);
        entry.map_or(("", 0), |(sign, power, _)| (*sign, *power))
    }

    /// The operator as it is written.
    pub fn sign(self) -> &'static str {
        self.entry().0
    }
}

/// Parses an expression.
///
/// # Errors
/// The first mistake.
pub(super) fn parse(source: &str) -> Result<Ast<'_>, Mistake> {
    let mut parser = Parser {
        source,
        from: 0,
        token: Token::End,
        at: 0..0,
        before: 0..0,
        nesting: 0,
        nodes: 0,
    };
    parser.advance()?;
    let ast = parser.expression()?;
    match parser.token {
        Token::End => Ok(ast),
        _ => Err(parser.unexpected()),
    }
}

struct Parser<'s> {
    source: &'s str,
    /// The position from which the next token is read.
    from: usize,
    token: Token<'s>,
    at: Range<usize>,
    /// The previous token.
    before: Range<usize>,
    nesting: usize,
    nodes: usize,
}

type Parsed<'s> = Result<Ast<'s>, Mistake>;

fn mistake<T>(at: Range<usize>, title: impl Into<String>, label: &str) -> Result<T, Mistake> {
    Err(Mistake {
        at,
        title: title.into(),
        label: label.to_owned(),
    })
}

impl<'s> Parser<'s> {
    fn text(&self, at: &Range<usize>) -> &'s str {
        self.source.get(at.clone()).unwrap_or_default()
    }

    fn rest(&self) -> &'s str {
        self.source.get(self.from..).unwrap_or_default()
    }

    /// Reads the next token, skipping blanks and `//` comments.
    fn advance(&mut self) -> Result<(), Mistake> {
        self.before = self.at.clone();
        loop {
            self.from = self.source.len() - self.rest().trim_start().len();
            if !self.rest().starts_with("//") {
                break;
            }
            self.from += self.rest().find('\n').unwrap_or(self.rest().len());
        }
        let (start, rest) = (self.from, self.rest());
        let word = |c: &u8| c.is_ascii_alphanumeric() || *c == b'_';
        let length = rest.bytes().take_while(word).count();
        let first = rest.chars().next();
        let quoted = matches!(rest.as_bytes().get(length), Some(b'"' | b'\''));
        self.token = match first {
            None => Token::End,
            Some('"' | '\'') => Token::Str(self.string(false)?),
            Some('r' | 'R') if length == 1 && quoted => {
                self.from += 1;
                Token::Str(self.string(true)?)
            }
            Some('b' | 'B') if length == 1 && quoted => {
                self.from += 1;
                self.string(false)?;
                return mistake(start..self.from, "there are no bytes", "drop the `b`");
            }
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some('.') if rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number()?,
            Some(_) if length > 0 => {
                self.from += length;
                Token::Word(rest.get(..length).unwrap_or_default())
            }
            Some(c) => match sign_at(rest.as_bytes()) {
                Some(sign) => {
                    self.from += sign.len();
                    Token::Sign(sign)
                }
                None => {
                    let at = start..start + c.len_utf8();
                    return mistake(at, format!("`{c}` cannot be used in an expression"), "");
                }
            },
        };
        self.at = start..self.from;
        Ok(())
    }

    fn number(&mut self) -> Result<Token<'s>, Mistake> {
        let (start, rest) = (self.from, self.rest());
        let mut before = ' ';
        let length = rest.find(|c: char| {
            let exponent = matches!(before, 'e' | 'E') && (c == '+' || c == '-');
            before = c;
            !(c.is_ascii_alphanumeric() || c == '_' || c == '.' || exponent)
        });
        let length = length.unwrap_or(rest.len());
        let text = rest.get(..length).unwrap_or_default();
        self.from += length;
        if let Some(number) = text.strip_suffix(['u', 'U'])
            && number.parse::<u64>().is_ok()
        {
            return mistake(
                start..self.from,
                "there are no unsigned ints",
                "drop the `u`",
            );
        }
        Ok(Token::Number(text))
    }

    fn literal(&self, text: &str, at: Range<usize>, negative: bool) -> Result<Value, Mistake> {
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        let sign = if negative { "-" } else { "" };
        let digits = |t: &str| !t.is_empty() && t.bytes().all(|c| c.is_ascii_digit());
        let value = match hex {
            Some(hex) if !hex.is_empty() && hex.bytes().all(|c| c.is_ascii_hexdigit()) => {
                i64::from_str_radix(&format!("{sign}{hex}"), 16)
                    .ok()
                    .map(Value::Int)
            }
            None if digits(text) => format!("{sign}{text}").parse().ok().map(Value::Int),
            None if text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
                && !text.ends_with('.')
                && !text.contains(['_', 'n', 'N']) =>
            {
                match format!("{sign}{text}").parse::<f64>() {
                    Ok(number) => number.is_finite().then_some(Value::Double(number)),
                    Err(_) => return mistake(at, format!("`{text}` is not a number"), ""),
                }
            }
            _ => return mistake(at, format!("`{text}` is not a number"), ""),
        };
        match value {
            Some(value) => Ok(value),
            None => mistake(at, "a number out of range", ""),
        }
    }

    /// A string in one or three quotes of either kind.
    fn string(&mut self, raw: bool) -> Result<String, Mistake> {
        let (start, rest) = (self.from, self.rest());
        let quote = ["\"\"\"", "'''", "\"", "'"]
            .into_iter()
            .find(|q| rest.starts_with(q));
        let quote = quote.unwrap_or("\"");
        self.from += quote.len();
        let mut out = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(quote) {
                self.from += quote.len();
                return Ok(out);
            }
            let Some(c) = rest
                .chars()
                .next()
                .filter(|c| *c != '\n' || quote.len() == 3)
            else {
                return mistake(start..self.from, "this string is never closed", "");
            };
            self.from += c.len_utf8();
            if c == '\\' && !raw {
                out.push(self.escape()?);
            } else {
                out.push(c);
            }
        }
    }

    /// The character of an escape sequence, after its backslash.
    fn escape(&mut self) -> Result<char, Mistake> {
        let start = self.from.saturating_sub(1);
        let rest = self.rest();
        let c = rest.chars().next().unwrap_or(' ');
        self.from += c.len_utf8().min(rest.len());
        let digits = match c {
            'n' => return Ok('\n'),
            't' => return Ok('\t'),
            'r' => return Ok('\r'),
            'a' => return Ok('\u{7}'),
            'b' => return Ok('\u{8}'),
            'f' => return Ok('\u{c}'),
            'v' => return Ok('\u{b}'),
            '\\' | '"' | '\'' | '`' | '?' => return Ok(c),
            'x' | 'X' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let code = self.rest().get(..digits).filter(|_| digits > 0);
        self.from += code.map_or(0, str::len);
        let code = code.filter(|code| code.bytes().all(|c| c.is_ascii_hexdigit()));
        let code = code.and_then(|code| u32::from_str_radix(code, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => Ok(c),
            None => mistake(
                start..self.from,
                "an unknown escape in a string",
                "write `\\\\` for a backslash",
            ),
        }
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.token, Token::Sign(s) if s == sign)
    }

    /// Consumes a sign if it is next, and returns its position.
    fn take(&mut self, sign: &str) -> Result<Option<Range<usize>>, Mistake> {
        if !self.is(sign) {
            return Ok(None);
        }
        let at = self.at.clone();
        self.advance()?;
        Ok(Some(at))
    }

    /// The mistake for a token that is not allowed at its position.
    fn unexpected(&self) -> Mistake {
        let at = self.at.clone();
        let found = match self.token {
            Token::End => {
                let title = match self.text(&self.before) {
                    "" => "a value is missing".to_owned(),
                    before => format!("a value is missing after `{before}`"),
                };
                let label = String::new();
                return Mistake { at, title, label };
            }
            Token::Word("if" | "else") => Some("write `condition ? a : b`"),
            Token::Sign("*") if self.text(&self.before) == "*" => {
                Some("there is no power operator")
            }
            _ => SLIPS
                .iter()
                .find(|(slip, _)| *slip == self.text(&self.at))
                .map(|(_, label)| *label),
        };
        let text = self.text(&at);
        let title = match found {
            Some(_) => format!("`{text}` is not an operator"),
            None => format!("unexpected `{text}`"),
        };
        let operand = matches!(
            self.token,
            Token::Word(_) | Token::Number(_) | Token::Str(_)
        );
        let label = match found {
            Some(label) => label,
            None if operand => "an operator is missing before it",
            None => "",
        };
        Mistake {
            at,
            title,
            label: label.to_owned(),
        }
    }

    fn too_large<T>(&self) -> Result<T, Mistake> {
        let whole = 0..self.source.len();
        mistake(whole, "an expression with too many parts", "")
    }

    fn node(&mut self, kind: AstKind<'s>, at: Range<usize>, below: usize) -> Parsed<'s> {
        let depth = below + 1;
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return self.too_large();
        }
        let outer = at.clone();
        Ok(Ast {
            kind,
            at,
            outer,
            depth,
        })
    }

    /// An expression of any kind.
    fn expression(&mut self) -> Parsed<'s> {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return self.too_large();
        }
        let condition = self.operators(1)?;
        let ast = match self.take("?")? {
            None => condition,
            Some(sign) => {
                let then = self.expression()?;
                if self.take(":")?.is_none() {
                    let at = sign.clone();
                    return mistake(at, "`?` without `:`", "write `condition ? a : b`");
                }
                let otherwise = self.expression()?;
                let at = condition.outer.start..otherwise.outer.end;
                let depth = condition.depth.max(then.depth).max(otherwise.depth);
                let parts = Box::new([condition, then, otherwise]);
                self.node(AstKind::If(sign, parts), at, depth)?
            }
        };
        self.nesting -= 1;
        Ok(ast)
    }

    /// Operands joined by operators with a precedence of at least `least`: 1 is `||`, 2 is `&&`.
    fn operators(&mut self, least: u8) -> Parsed<'s> {
        if least <= 2 {
            let sign = if least == 1 { "||" } else { "&&" };
            let first = self.operators(least + 1)?;
            if !self.is(sign) {
                return Ok(first);
            }
            let mut all = vec![first];
            while self.take(sign)?.is_some() {
                all.push(self.operators(least + 1)?);
            }
            let start = all.first().map_or(0, |a| a.outer.start);
            let end = all.last().map_or(0, |a| a.outer.end);
            let depth = all.iter().map(|a| a.depth).max().unwrap_or(0);
            let kind = if least == 1 {
                AstKind::Any(all)
            } else {
                AstKind::All(all)
            };
            return self.node(kind, start..end, depth);
        }
        let mut left = self.unary()?;
        loop {
            let text = match self.token {
                Token::Sign(sign) => sign,
                Token::Word(word) => word,
                _ => return Ok(left),
            };
            let entry = OPERATORS
                .iter()
                .find(|(sign, power, _)| *sign == text && *power >= least);
            let Some((_, power, operator)) = entry else {
                return Ok(left);
            };
            let sign = self.at.clone();
            self.advance()?;
            let right = self.operators(power + 1)?;
            let at = left.outer.start..right.outer.end;
            let depth = left.depth.max(right.depth);
            let operands = Box::new([left, right]);
            left = self.node(AstKind::Binary(*operator, sign, operands), at, depth)?;
        }
    }

    /// `!x`, `-x`, or neither.
    fn unary(&mut self) -> Parsed<'s> {
        let sign = self.at.clone();
        let not = self.is("!");
        if !not && !self.is("-") {
            let operand = self.primary()?;
            return self.postfix(operand);
        }
        self.advance()?;
        if let (false, Token::Number(text)) = (not, &self.token) {
            let at = sign.start..self.at.end;
            let value = self.literal(text, at.clone(), true)?;
            self.advance()?;
            let number = self.node(AstKind::Literal(value), at, 0)?;
            return self.postfix(number);
        }
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return self.too_large();
        }
        let operand = self.unary()?;
        self.nesting -= 1;
        let at = sign.start..operand.outer.end;
        let depth = operand.depth;
        let operand = Box::new(operand);
        let kind = if not {
            AstKind::Not(operand)
        } else {
            AstKind::Negate(sign, operand)
        };
        self.node(kind, at, depth)
    }

    /// A literal, a name, a call, or an expression in brackets.
    fn primary(&mut self) -> Parsed<'s> {
        let at = self.at.clone();
        match std::mem::replace(&mut self.token, Token::End) {
            Token::Number(text) => {
                let value = self.literal(text, at.clone(), false)?;
                self.advance()?;
                self.node(AstKind::Literal(value), at, 0)
            }
            Token::Str(text) => {
                self.advance()?;
                self.node(AstKind::Literal(Value::Str(text.into())), at, 0)
            }
            Token::Word("not") => mistake(at, "`not` is not an operator", "write `!`"),
            Token::Word(word @ ("True" | "False")) => {
                let label = format!("write `{}`", word.to_lowercase());
                mistake(at, format!("`{word}` is Python's"), &label)
            }
            Token::Word("null" | "None") => mistake(
                at,
                "facts are never null",
                "ask whether one is there with `has(...)`",
            ),
            Token::Word(word) => {
                self.advance()?;
                match word {
                    "true" | "false" => {
                        self.node(AstKind::Literal(Value::Bool(word == "true")), at, 0)
                    }
                    _ if self.is("(") => self.call(None, word, at),
                    _ => self.node(AstKind::Name(word), at, 0),
                }
            }
            Token::Sign("(") => {
                self.advance()?;
                let mut inner = self.expression()?;
                inner.outer = at.start..self.close(")", at)?.end;
                Ok(inner)
            }
            Token::Sign("[") => {
                self.advance()?;
                let (items, end) = self.list("]", at.clone())?;
                let depth = items.iter().map(|i| i.depth).max().unwrap_or(0);
                self.node(AstKind::List(items), at.start..end, depth)
            }
            Token::Sign("{") => {
                self.advance()?;
                let mut entries = Vec::new();
                while !self.is("}") {
                    let key = self.expression()?;
                    if self.take(":")?.is_none() {
                        return Err(self.unexpected());
                    }
                    entries.push((key, self.expression()?));
                    if self.take(",")?.is_none() {
                        break;
                    }
                }
                let end = self.close("}", at.clone())?.end;
                let depth = entries.iter().map(|(k, v)| k.depth.max(v.depth)).max();
                self.node(AstKind::Map(entries), at.start..end, depth.unwrap_or(0))
            }
            token => {
                self.token = token;
                Err(self.unexpected())
            }
        }
    }

    /// Comma-separated expressions up to a closing bracket, and the end of the bracket.
    fn list(&mut self, close: &str, open: Range<usize>) -> Result<(Vec<Ast<'s>>, usize), Mistake> {
        let mut items = Vec::new();
        while !self.is(close) {
            items.push(self.expression()?);
            if self.take(",")?.is_none() {
                break;
            }
        }
        Ok((items, self.close(close, open)?.end))
    }

    fn close(&mut self, close: &str, open: Range<usize>) -> Result<Range<usize>, Mistake> {
        match self.take(close)? {
            Some(at) => Ok(at),
            None if self.token == Token::End => {
                let title = format!("`{}` is never closed", self.text(&open));
                mistake(open, title, "")
            }
            None => Err(self.unexpected()),
        }
    }

    fn call(
        &mut self,
        target: Option<Ast<'s>>,
        name: &'s str,
        name_at: Range<usize>,
    ) -> Parsed<'s> {
        let open = self.at.clone();
        self.advance()?;
        let (args, end) = self.list(")", open)?;
        let start = target.as_ref().map_or(name_at.start, |t| t.outer.start);
        let below = args
            .iter()
            .chain(&target)
            .map(|a| a.depth)
            .max()
            .unwrap_or(0);
        let target = target.map(Box::new);
        let kind = AstKind::Call {
            target,
            name,
            name_at,
            args,
        };
        self.node(kind, start..end, below)
    }

    /// Fields, methods and indices after an operand.
    fn postfix(&mut self, mut ast: Ast<'s>) -> Parsed<'s> {
        loop {
            let start = ast.outer.start;
            if self.take(".")?.is_some() {
                let Token::Word(field) = self.token else {
                    return Err(self.unexpected());
                };
                let at = self.at.clone();
                self.advance()?;
                ast = if self.is("(") {
                    self.call(Some(ast), field, at)?
                } else {
                    let depth = ast.depth;
                    self.node(AstKind::Field(Box::new(ast), field), start..at.end, depth)?
                };
            } else if let Some(open) = self.take("[")? {
                let key = self.expression()?;
                let end = self.close("]", open.clone())?.end;
                let depth = ast.depth.max(key.depth);
                let parts = Box::new([ast, key]);
                ast = self.node(AstKind::Index(open, parts), start..end, depth)?;
            } else {
                return Ok(ast);
            }
        }
    }
}
