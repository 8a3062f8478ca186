//! The evaluator: three-valued logic over checked expressions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::functions::arithmetic;
use super::{BinaryOperator, MAX_ITEMS, MAX_STRING, Macro, Node, Tree, Value};

/// Key and value of a map literal.
type MapEntry<Name> = (Tree<Name>, Tree<Name>);

/// The reason why an expression has no value.
pub trait EvalFailure: Sized {
    /// A mistake in the expression that depends on values, such as a division by zero.
    fn fault(message: String) -> Self;

    /// Combines the failures of two operands. `and`: both operands are needed (`&&`, arithmetic);
    /// otherwise either is enough (`||`).
    #[must_use]
    fn join(self, right: Self, and: bool) -> Self;
}

/// The values of names during the evaluation of an expression.
pub trait Bindings {
    /// A name.
    type Name;
    /// The reason why a name has no value.
    type Failure: EvalFailure;

    /// The value of a name. Doubles must be finite.
    ///
    /// # Errors
    /// The reason why it has none.
    fn get(&self, name: &Self::Name) -> Result<Value, Self::Failure>;
}

/// Evaluates a condition.
///
/// # Errors
/// The reason why it is undecided: see [`EvalFailure`].
pub fn truth<S: Bindings>(expr: &Tree<S::Name>, scope: &S) -> Result<bool, S::Failure> {
    Evaluator { scope, item: None }.truth(expr)
}

/// Evaluates an expression.
///
/// # Errors
/// The reason why it has no value: see [`EvalFailure`].
pub fn value<S: Bindings>(expr: &Tree<S::Name>, scope: &S) -> Result<Value, S::Failure> {
    let value = Evaluator { scope, item: None }.value(expr)?;
    Ok(value.into_owned())
}

struct Evaluator<'a, S> {
    scope: &'a S,
    /// The current item of the enclosing comprehension.
    item: Option<&'a Value>,
}

fn fault<T, F: EvalFailure>(message: impl Into<String>) -> Result<T, F> {
    Err(F::fault(message.into()))
}

impl<S: Bindings> Evaluator<'_, S> {
    fn truth(&self, expr: &Tree<S::Name>) -> Result<bool, S::Failure> {
        match &expr.node {
            Node::All(parts) => self.chain(parts, true),
            Node::Any(parts) => self.chain(parts, false),
            Node::Not(operand) => self.truth(operand).map(|b| !b),
            Node::Has(name) => Ok(self.scope.get(name).is_ok()),
            Node::If(parts) => self.truth(self.branch(parts)?),
            Node::Binary(operator, operands) => self.relation(*operator, operands),
            Node::Text(holds, operands) => {
                let (text, part) = self.pair(operands)?;
                match (&*text, &*part) {
                    (Value::Str(text), Value::Str(part)) => Ok(holds(text, part)),
                    (other, _) => odd(other),
                }
            }
            Node::Comprehension(Macro::All, parts) => self.fold(parts, true),
            Node::Comprehension(Macro::Exists, parts) => self.fold(parts, false),
            Node::Comprehension(Macro::ExistsOne, parts) => {
                let [list, condition] = &**parts;
                let picked = self.each(list, |at| at.truth(condition))?;
                Ok(picked.into_iter().filter(|b| *b).count() == 1)
            }
            _ => match &*self.value(expr)? {
                Value::Bool(b) => Ok(*b),
                other => odd(other),
            },
        }
    }

    /// `&&` (`and`) or `||`: a deciding operand takes precedence over undecided ones.
    fn chain(&self, parts: &[Tree<S::Name>], and: bool) -> Result<bool, S::Failure> {
        join_all(parts.iter().map(|part| self.truth(part)), and)
    }

    /// `all` (`and`) or `exists`: the same, over the items of a list.
    fn fold(&self, parts: &[Tree<S::Name>; 2], and: bool) -> Result<bool, S::Failure> {
        let [list, condition] = parts;
        let items = self.items(list)?;
        let each = items.iter().map(|item| self.at(item).truth(condition));
        join_all(each, and)
    }

    fn at<'b>(&'b self, item: &'b Value) -> Evaluator<'b, S> {
        Evaluator {
            scope: self.scope,
            item: Some(item),
        }
    }

    fn each<T>(
        &self,
        list: &Tree<S::Name>,
        of: impl Fn(&Evaluator<'_, S>) -> Result<T, S::Failure>,
    ) -> Result<Vec<T>, S::Failure> {
        let items = self.items(list)?;
        items.iter().map(|item| of(&self.at(item))).collect()
    }

    fn branch<'t>(&self, parts: &'t [Tree<S::Name>; 3]) -> Result<&'t Tree<S::Name>, S::Failure> {
        let [condition, then, otherwise] = parts;
        Ok(if self.truth(condition)? {
            then
        } else {
            otherwise
        })
    }

    /// Both operands; if both fail, their combined failure.
    fn pair<'t>(
        &self,
        operands: &'t [Tree<S::Name>; 2],
    ) -> Result<(Cow<'t, Value>, Cow<'t, Value>), S::Failure> {
        let [left, right] = operands;
        both(self.value(left), self.value(right))
    }

    fn relation(
        &self,
        operator: BinaryOperator,
        operands: &[Tree<S::Name>; 2],
    ) -> Result<bool, S::Failure> {
        let [left, right] = operands;
        match operator {
            BinaryOperator::In => self.is_in(left, right),
            BinaryOperator::Equal | BinaryOperator::NotEqual => {
                let equal = match is_list(left) || is_list(right) {
                    true => {
                        let (a, b) = both(self.items(left), self.items(right))?;
                        a == b
                    }
                    false => {
                        let (a, b) = self.pair(operands)?;
                        compare(&a, &b).map_or(*a == *b, std::cmp::Ordering::is_eq)
                    }
                };
                Ok(equal == (operator == BinaryOperator::Equal))
            }
            _ => {
                let (a, b) = self.pair(operands)?;
                let Some(ordering) = compare(&a, &b) else {
                    return odd(&a);
                };
                Ok(match operator {
                    BinaryOperator::Less => ordering.is_lt(),
                    BinaryOperator::AtMost => ordering.is_le(),
                    BinaryOperator::More => ordering.is_gt(),
                    _ => ordering.is_ge(),
                })
            }
        }
    }

    fn is_in(&self, item: &Tree<S::Name>, container: &Tree<S::Name>) -> Result<bool, S::Failure> {
        if let Node::Literals(list) = &container.node {
            return Ok(list.contains(&*self.value(item)?));
        }
        if is_list(container) {
            let (item, list) = both(self.value(item), self.items(container))?;
            return Ok(list.contains(&item));
        }
        let (item, container) = both(self.value(item), self.value(container))?;
        let Value::Str(word) = &*item else {
            return odd(&item);
        };
        match &*container {
            Value::Strings(list) => Ok(list.iter().any(|s| s == word)),
            Value::Ints(map) => Ok(map.contains_key(word)),
            Value::Doubles(map) => Ok(map.contains_key(word)),
            other => odd(other),
        }
    }

    fn value<'t>(&self, expr: &'t Tree<S::Name>) -> Result<Cow<'t, Value>, S::Failure> {
        let value = match &expr.node {
            Node::Literal(value) => return Ok(Cow::Borrowed(value)),
            Node::If(parts) => return self.value(self.branch(parts)?),
            Node::Name(name) => self.scope.get(name)?,
            Node::Item => match self.item {
                Some(item) => item.clone(),
                None => return fault("a variable outside its comprehension"),
            },
            Node::Negate(operand) => match &*self.value(operand)? {
                Value::Double(d) => Value::Double(-d),
                Value::Int(i) => match i.checked_neg() {
                    Some(i) => Value::Int(i),
                    None => return fault("`-`: an int overflow or a division by zero"),
                },
                other => return odd(other),
            },
            Node::Binary(operator, operands) if is_arithmetic(*operator) => {
                if is_list(expr) {
                    return self.strings(expr).map(Cow::Owned);
                }
                let (a, b) = self.pair(operands)?;
                match (&*a, &*b) {
                    (Value::Str(a), Value::Str(b)) if a.len() + b.len() > MAX_STRING => {
                        return fault("`the result` is longer than 1 MiB");
                    }
                    (Value::Str(a), Value::Str(b)) => Value::Str(format!("{a}{b}").into()),
                    (Value::Strings(_), _) => self.strings(expr)?,
                    (a, b) => match arithmetic(*operator, a, b) {
                        Ok(value) => value,
                        Err(why) => return fault(format!("`{}`: {why}", operator.sign())),
                    },
                }
            }
            Node::Call(function, args) => match function.call(&self.all(args)?) {
                Ok(value) => value,
                Err(why) => return fault(format!("`{}`: {why}", function.name)),
            },
            Node::Index(parts) => return self.index(parts).map(Cow::Owned),
            Node::Size(of) => Value::Int(self.size(of)? as i64),
            Node::List(_)
            | Node::Literals(_)
            | Node::Comprehension(Macro::Filter | Macro::Map, _) => self.strings(expr)?,
            Node::Map(entries) => self.map(entries)?,
            Node::All(_)
            | Node::Any(_)
            | Node::Not(_)
            | Node::Has(_)
            | Node::Binary(..)
            | Node::Text(..)
            | Node::Comprehension(..) => Value::Bool(self.truth(expr)?),
        };
        Ok(Cow::Owned(value))
    }

    /// The values of required operands; if several fail, their combined failure.
    fn all(&self, operands: &[Tree<S::Name>]) -> Result<Vec<Value>, S::Failure> {
        let mut values = Ok(Vec::with_capacity(operands.len()));
        for operand in operands {
            let value = self.value(operand).map(Cow::into_owned);
            values = both(values, value).map(|(mut values, value)| {
                values.push(value);
                values
            });
        }
        values
    }

    fn size(&self, of: &Tree<S::Name>) -> Result<usize, S::Failure> {
        if is_list(of) {
            return Ok(self.items(of)?.len());
        }
        match &*self.value(of)? {
            Value::Str(text) => Ok(text.chars().count()),
            Value::Strings(list) => Ok(list.len()),
            Value::Ints(map) => Ok(map.len()),
            Value::Doubles(map) => Ok(map.len()),
            other => odd(other),
        }
    }

    fn index(&self, parts: &[Tree<S::Name>; 2]) -> Result<Value, S::Failure> {
        let [container, key] = parts;
        let found = if is_list(container) {
            let (list, key) = both(self.items(container), self.value(key))?;
            match &*key {
                Value::Int(i) => usize::try_from(*i)
                    .ok()
                    .and_then(|i| list.get(i).cloned())
                    .ok_or(None),
                other => return odd(other),
            }
        } else {
            let (container, key) = both(self.value(container), self.value(key))?;
            match (&*container, &*key) {
                (Value::Strings(list), Value::Int(i)) => {
                    let item = usize::try_from(*i).ok().and_then(|i| list.get(i));
                    item.map(|s| Value::Str(s.clone())).ok_or(None)
                }
                (Value::Ints(map), Value::Str(key)) => map
                    .get(key)
                    .map(|i| Value::Int(*i))
                    .ok_or(Some(key.clone())),
                (Value::Doubles(map), Value::Str(key)) => map
                    .get(key)
                    .map(|d| Value::Double(*d))
                    .ok_or(Some(key.clone())),
                (other, _) => return odd(other),
            }
        };
        found.or_else(|key| match key {
            None => fault("an index past the end of a list"),
            Some(key) => {
                let key: String = key.chars().take(160).collect();
                fault(format!("no such key `{key}` in a map; guard it with `in`"))
            }
        })
    }

    /// The items of a list of strings, as a value.
    fn strings(&self, list: &Tree<S::Name>) -> Result<Value, S::Failure> {
        let words = self.items(list)?.into_iter().map(|item| match item {
            Value::Str(word) => Some(word),
            _ => None,
        });
        match words.collect() {
            Some(words) => Ok(Value::Strings(words)),
            None => fault("a value of a type rules cannot keep"),
        }
    }

    /// The items of a list of any type.
    fn items(&self, list: &Tree<S::Name>) -> Result<Vec<Value>, S::Failure> {
        let items = match &list.node {
            Node::List(items) => self.all(items)?,
            Node::Literals(values) => values.clone(),
            Node::If(parts) => self.items(self.branch(parts)?)?,
            Node::Binary(_, operands) => {
                let [left, right] = &**operands;
                let (mut left, right) = both(self.items(left), self.items(right))?;
                left.extend(right);
                left
            }
            Node::Comprehension(Macro::Map, parts) => {
                let [list, of] = &**parts;
                self.each(list, |at| at.value(of).map(Cow::into_owned))?
            }
            Node::Comprehension(_, parts) => {
                let [list, condition] = &**parts;
                let kept = self.each(list, |at| at.truth(condition))?;
                let items = self.items(list)?.into_iter().zip(kept);
                items
                    .filter(|(_, kept)| *kept)
                    .map(|(item, _)| item)
                    .collect()
            }
            _ => match &*self.value(list)? {
                Value::Strings(list) => list.iter().map(|s| Value::Str(s.clone())).collect(),
                other => return odd(other),
            },
        };
        if items.len() > MAX_ITEMS {
            return fault("`the result` has more than 1,024 items");
        }
        Ok(items)
    }

    /// A map of numbers of one type.
    fn map(&self, entries: &[MapEntry<S::Name>]) -> Result<Value, S::Failure> {
        let (mut ints, mut doubles) = (BTreeMap::new(), BTreeMap::new());
        for (key, number) in entries {
            let (key, number) = both(self.value(key), self.value(number))?;
            match (key.into_owned(), &*number) {
                (Value::Str(key), Value::Int(i)) => drop(ints.insert(key, *i)),
                (Value::Str(key), Value::Double(d)) => drop(doubles.insert(key, *d)),
                (_, other) => return odd(other),
            }
        }
        Ok(match doubles.is_empty() {
            true => Value::Ints(Arc::new(ints)),
            false => Value::Doubles(Arc::new(doubles)),
        })
    }
}

/// Combines the results of conditions: the first deciding one ends the evaluation; otherwise all
/// failures are combined.
pub(crate) fn join_all<F: EvalFailure>(
    outcomes: impl Iterator<Item = Result<bool, F>>,
    and: bool,
) -> Result<bool, F> {
    let mut failed: Option<F> = None;
    for outcome in outcomes {
        match outcome {
            Ok(holds) if holds != and => return Ok(!and),
            Ok(_) => {}
            Err(e) => {
                failed = Some(match failed {
                    Some(first) => first.join(e, and),
                    None => e,
                });
            }
        }
    }
    failed.map_or(Ok(and), Err)
}

/// Combines two required operands. Both are evaluated, so a fault of the right one counts even if the
/// left one fails.
fn both<A, B, F: EvalFailure>(a: Result<A, F>, b: Result<B, F>) -> Result<(A, B), F> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(a), Err(b)) => Err(b.join(a, true)),
        (Err(e), _) | (_, Err(e)) => Err(e),
    }
}

/// The failure for a value whose type differs from its declaration: a fact in a test, or a bug in a
/// reader.
fn odd<T, F: EvalFailure>(value: &Value) -> Result<T, F> {
    fault(format!("a value of the wrong type: {value:?}"))
}

fn is_arithmetic(operator: BinaryOperator) -> bool {
    use BinaryOperator::{Add, Divide, Multiply, Remainder, Subtract};
    matches!(operator, Add | Subtract | Multiply | Divide | Remainder)
}

/// Returns true for nodes that compute a list. A name of a list is a plain value.
fn is_list<N>(expr: &Tree<N>) -> bool {
    match &expr.node {
        Node::List(_) | Node::Literals(_) | Node::Comprehension(Macro::Filter | Macro::Map, _) => {
            true
        }
        Node::Binary(BinaryOperator::Add, operands) => operands.iter().any(is_list),
        Node::If(parts) => parts.iter().skip(1).any(is_list),
        _ => false,
    }
}

/// The order of two numbers or strings. An int and a double compare as doubles.
fn compare(a: &Value, b: &Value) -> Option<std::cmp::Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
