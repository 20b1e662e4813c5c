//! The value of an expression.

use std::collections::BTreeMap;

use hcl_edit::expr::{Conditional, Expression, ForExpr, FuncCall, Object, ObjectKey, Traversal, TraversalOperator};
use hcl_edit::{Decorated, Span as _};

use super::template::Layout;
use super::{Scope, operator};
use crate::functions;
use crate::source::Fault;
use crate::types::Type;
use crate::value::{Number, Value};

/// Keys and values of something that a loop runs over.
type Items = Vec<(Value, Value)>;

impl Scope<'_> {
    /// The value of an expression.
    pub(crate) fn value(&self, expression: &Expression) -> Result<Value, Fault> {
        let offset = offset(expression);
        let located = |message: String| self.fault(offset, message);
        self.budget.step().map_err(located)?;
        let value = match expression {
            Expression::Null(_) => Value::Null,
            Expression::Bool(value) => Value::Bool(*value.value()),
            Expression::Number(number) => {
                let text = number.value().to_string();
                // What was parsed has sixteen digits at most.
                let written = number.span().and_then(|span| Number::parse(self.source.slice(&span)));
                let read = Number::parse(&text).ok_or_else(|| located(format!("`{text}` is no number")))?;
                Value::Number(written.filter(|written| written.compare(read).is_eq()).unwrap_or(read))
            }
            Expression::String(text) => Value::Text(text.value().clone()),
            Expression::Array(values) => {
                Value::List(values.iter().map(|value| self.value(value)).collect::<Result<_, _>>()?)
            }
            Expression::Object(object) => self.object(object)?,
            Expression::StringTemplate(template) => match self.single(template) {
                Some(result) => result?,
                None => Value::Text(self.render(template, Layout::default())?),
            },
            Expression::HeredocTemplate(heredoc) => Value::Text(
                self.render(&heredoc.template, Layout { is_heredoc: true, indent: heredoc.indent().unwrap_or(0) })?,
            ),
            Expression::Parenthesis(inner) => self.value(inner.inner())?,
            Expression::Variable(name) => match self.root(name.as_str(), offset, &[])? {
                Some((value, _)) => value,
                None => self.reference(expression),
            },
            Expression::Conditional(conditional) => self.conditional(conditional)?,
            Expression::FuncCall(call) => self.call(call, offset)?,
            Expression::Traversal(traversal) => self.traversal(traversal, expression)?,
            Expression::UnaryOp(operation) => {
                let operand = self.value(&operation.expr)?;
                operator::unary(*operation.operator.value(), &operand).map_err(located)?
            }
            Expression::BinaryOp(operation) => {
                let (left, right) = (self.value(&operation.lhs_expr)?, self.value(&operation.rhs_expr)?);
                operator::binary(*operation.operator.value(), &left, &right).map_err(located)?
            }
            Expression::ForExpr(each) => self.each(each, offset)?,
        };
        self.budget.value(&value).map_err(located)?;
        Ok(value)
    }

    /// A condition.
    pub(crate) fn truth(&self, expression: &Expression) -> Result<bool, Fault> {
        let value = self.value(expression)?;
        let message = || format!("a condition must be a bool, and this is {}", value.kind());
        value.to_bool().ok_or_else(|| self.fault(offset(expression), message()))
    }

    /// Keys and values of a collection: indexes for a list, the elements themselves for a set.
    pub(crate) fn items(&self, expression: &Expression) -> Result<Items, Fault> {
        match self.value(expression)? {
            Value::List(values) => {
                Ok(values.into_iter().enumerate().map(|(at, value)| (Value::whole(at), value)).collect())
            }
            Value::Set(values) => Ok(values.into_iter().map(|value| (value.clone(), value)).collect()),
            Value::Map(values) => Ok(values.into_iter().map(|(key, value)| (Value::Text(key), value)).collect()),
            other => {
                let message = format!("a loop needs a list, a set or a map, and this is {}", other.kind());
                Err(self.fault(offset(expression), message))
            }
        }
    }

    fn object(&self, object: &Object) -> Result<Value, Fault> {
        let mut map = BTreeMap::new();
        for (key, value) in object {
            let key = match key {
                ObjectKey::Ident(name) => name.to_string(),
                ObjectKey::Expression(expression) => self.key(expression)?,
            };
            map.insert(key, self.value(value.expr())?);
        }
        Ok(Value::Map(map))
    }

    fn key(&self, expression: &Expression) -> Result<String, Fault> {
        let value = self.value(expression)?;
        value.to_text().ok_or_else(|| {
            self.fault(offset(expression), format!("a key must be a string, and this is {}", value.kind()))
        })
    }

    /// Only the branch that is chosen must have a value.
    fn conditional(&self, conditional: &Conditional) -> Result<Value, Fault> {
        let branch = if self.truth(&conditional.cond_expr)? { &conditional.true_expr } else { &conditional.false_expr };
        self.value(branch)
    }

    fn call(&self, call: &FuncCall, offset: usize) -> Result<Value, Fault> {
        let name = call.name.name.as_str();
        if call.name.is_namespaced() {
            return Err(
                self.fault(offset, format!("there is no function `{}::{name}`", call.name.namespace[0].as_str()))
            );
        }
        match name {
            "try" => return self.attempt(call, offset),
            "convert" => {
                let [value, kind] = &call.args.iter().collect::<Vec<_>>()[..] else {
                    return Err(self.fault(offset, "`convert` takes a value and a type"));
                };
                let kind = Type::parse(kind).map_err(|message| self.fault(offset, format!("convert: {message}")))?;
                let value = self.value(value)?;
                return kind.convert(&value).map_err(|message| self.fault(offset, format!("convert: {message}")));
            }
            "can" => {
                let [argument] = &call.args.iter().collect::<Vec<_>>()[..] else {
                    return Err(self.fault(offset, "`can` takes one argument"));
                };
                return Ok(Value::Bool(self.value(argument).is_ok()));
            }
            _ => {}
        }
        let mut arguments = call.args.iter().map(|argument| self.value(argument)).collect::<Result<Vec<_>, _>>()?;
        if call.args.expand_final() {
            match arguments.pop() {
                Some(Value::List(values) | Value::Set(values)) => arguments.extend(values),
                _ => return Err(self.fault(offset, "`...` needs a list before it")),
            }
        }
        let context = functions::Context { files: self.files, budget: &self.budget };
        functions::call(name, &arguments, &context).map_err(|message| self.fault(offset, format!("{name}: {message}")))
    }

    /// `try`: the first argument that has a value.
    fn attempt(&self, call: &FuncCall, offset: usize) -> Result<Value, Fault> {
        let mut last = self.fault(offset, "`try` takes at least one argument");
        for argument in &call.args {
            match self.value(argument) {
                Err(fault) => last = fault,
                found => return found,
            }
        }
        Err(last)
    }

    fn each(&self, each: &ForExpr, offset: usize) -> Result<Value, Fault> {
        let (mut list, mut map) = (Vec::new(), BTreeMap::<String, Value>::new());
        let mut groups = BTreeMap::<String, Vec<Value>>::new();
        for (key, value) in self.items(&each.intro.collection_expr)? {
            let mut names = vec![(each.intro.value_var.to_string(), value)];
            names.extend(each.intro.key_var.as_ref().map(|name| (name.to_string(), key)));
            self.with_names(names, || {
                if let Some(condition) = &each.cond
                    && !self.truth(&condition.expr)?
                {
                    return Ok(());
                }
                let value = self.value(&each.value_expr)?;
                let Some(key) = &each.key_expr else {
                    list.push(value);
                    return Ok(());
                };
                let name = self.key(key)?;
                if each.grouping {
                    groups.entry(name).or_default().push(value);
                } else if map.insert(name.clone(), value).is_some() {
                    let message = format!("makes the key `{name}` twice; write `...` behind the value to group them");
                    return Err(self.fault(offset, message));
                }
                Ok(())
            })?;
        }
        map.extend(groups.into_iter().map(|(name, group)| (name, Value::List(group))));
        Ok(if each.key_expr.is_some() { Value::Map(map) } else { Value::List(list) })
    }

    fn traversal(&self, traversal: &Traversal, whole: &Expression) -> Result<Value, Fault> {
        let (value, n_used) = match &traversal.expr {
            Expression::Variable(name) => match self.root(name.as_str(), offset(whole), &traversal.operators)? {
                Some(found) => found,
                None => return Ok(self.reference(whole)),
            },
            other => (self.value(other)?, 0),
        };
        self.follow(value, &traversal.operators[n_used..])
    }

    /// What only the node knows, as the interpolation that it replaces.
    fn reference(&self, expression: &Expression) -> Value {
        Value::Text(format!("${{{}}}", self.source.slice(&expression.span().unwrap_or_default()).trim()))
    }

    /// Whether an expression is nothing but a reference to what only the node knows.
    pub(super) fn is_reference(&self, expression: &Expression) -> bool {
        let root = match expression {
            Expression::Traversal(traversal) => &traversal.expr,
            other => other,
        };
        match root {
            Expression::Variable(name) => {
                self.name(name.as_str()).is_none() && !matches!(name.as_str(), "var" | "local")
            }
            _ => false,
        }
    }

    /// The value that a reference begins with, and how many of its operators that took; nothing where only the node
    /// knows it.
    fn root(
        &self,
        space: &str,
        offset: usize,
        operators: &[Decorated<TraversalOperator>],
    ) -> Result<Option<(Value, usize)>, Fault> {
        if let Some(value) = self.name(space) {
            return Ok(Some((value, 0)));
        }
        if space != "var" && space != "local" {
            return Ok(None);
        }
        let member = operators.first().and_then(|operator| match operator.value() {
            TraversalOperator::GetAttr(member) => Some(member.to_string()),
            TraversalOperator::Index(Expression::String(member)) => Some(member.value().clone()),
            _ => None,
        });
        let Some(member) = member else {
            return Err(self.fault(offset, format!("`{space}` needs a name behind it, as `{space}.port`")));
        };
        let value = if space == "var" { self.variable(&member, offset)? } else { self.local(&member, offset)? };
        Ok(Some((value, 1)))
    }

    fn follow(&self, mut value: Value, operators: &[Decorated<TraversalOperator>]) -> Result<Value, Fault> {
        for (at, operator) in operators.iter().enumerate() {
            let offset = operator.span().map_or(0, |span| span.start);
            let found = match operator.value() {
                TraversalOperator::GetAttr(name) => member(&value, name.as_str()),
                TraversalOperator::LegacyIndex(index) => element(&value, i128::from(*index.value())),
                TraversalOperator::Index(index) => match self.value(index)? {
                    Value::Text(name) if matches!(value, Value::Map(_)) => member(&value, &name),
                    other => match other.to_number().and_then(Number::whole) {
                        Some(index) => element(&value, index),
                        None => Err(format!("an index must be a whole number or a key, and this is {}", other.kind())),
                    },
                },
                TraversalOperator::AttrSplat(_) | TraversalOperator::FullSplat(_) => {
                    let is_full = matches!(operator.value(), TraversalOperator::FullSplat(_));
                    let rest = &operators[at + 1..];
                    let is_own = |next: &&Decorated<TraversalOperator>| {
                        is_full || matches!(next.value(), TraversalOperator::GetAttr(_))
                    };
                    let n_own = rest.iter().take_while(is_own).count();
                    let values = match value {
                        Value::Null => Vec::new(),
                        Value::List(values) | Value::Set(values) => values,
                        other => vec![other],
                    };
                    let each = values.into_iter().map(|value| self.follow(value, &rest[..n_own]));
                    let list = Value::List(each.collect::<Result<_, _>>()?);
                    return self.follow(list, &rest[n_own..]);
                }
            };
            value = found.map_err(|message| self.fault(offset, message))?;
        }
        Ok(value)
    }
}

fn member(value: &Value, name: &str) -> Result<Value, String> {
    match value {
        Value::Map(members) => members.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = members.keys().map(String::as_str).take(10).collect();
            format!(
                "has no `{name}`; it has {}",
                if known.is_empty() { "nothing".to_owned() } else { known.join(", ") }
            )
        }),
        other => Err(format!("`.{name}` needs a map before it, and this is {}", other.kind())),
    }
}

fn element(value: &Value, index: i128) -> Result<Value, String> {
    match value {
        Value::List(values) => usize::try_from(index)
            .ok()
            .and_then(|index| values.get(index))
            .cloned()
            .ok_or_else(|| format!("has no element {index}; it has {}", values.len())),
        Value::Map(_) => member(value, &index.to_string()),
        Value::Set(_) => Err("a set has no order; `convert(…, list(string))` has one".to_owned()),
        other => Err(format!("`[{index}]` needs a list before it, and this is {}", other.kind())),
    }
}

/// Where an expression begins.
pub(crate) fn offset(expression: &Expression) -> usize {
    expression.span().map_or(0, |span| span.start)
}
