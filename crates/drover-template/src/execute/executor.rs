//! Walks the tree and writes the text.
//!
//! Must never know where values come from: functions ask the host for them.

use std::rc::Rc;

use super::fields::field;
use crate::fault::{Fault, Outcome, failed};
use crate::format;
use crate::functions::{self, Function, Host};
use crate::parse::{Branch, Command, Expression, Forest, Node, Number, Pipeline, Spot, Term};
use crate::value::{Bytes, GoType, INT, Value};

/// How far it came: the text, or where and why not.
type Executed = Result<Vec<u8>, (Bytes, Spot, Fault)>;

/// Evaluates the template of the empty name.
pub(crate) fn execute(forest: &Forest, host: &Host<'_>, err_missing_key: bool) -> Executed {
    let name: Bytes = Rc::from(&b""[..]);
    let mut executor = Executor {
        forest,
        host,
        err_missing_key,
        out: Vec::new(),
        variables: vec![("$".to_owned(), Value::Missing)],
        depth: 0,
        template: Rc::clone(&name),
        at: 0,
    };
    let Some(list) = forest.get(&name).cloned() else {
        return Err((name, 0, Fault::Failed("the template is empty".to_owned())));
    };
    match executor.list(&Value::Missing, &list) {
        Ok(_) => Ok(executor.out),
        Err(fault) => Err((executor.template, executor.at, fault)),
    }
}

/// What comes after a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct Executor<'a> {
    forest: &'a Forest,
    host: &'a Host<'a>,
    err_missing_key: bool,
    out: Vec<u8>,
    variables: Vec<(String, Value)>,
    depth: u64,
    template: Bytes,
    at: Spot,
}

impl Executor<'_> {
    fn list(&mut self, dot: &Value, list: &[Node]) -> Outcome<Flow> {
        for node in list {
            let flow = self.node(dot, node)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Value, node: &Node) -> Outcome<Flow> {
        self.host.budget.deeper()?;
        match node {
            Node::Text(text) => self.write(text)?,
            Node::Action(pipeline) => {
                let value = self.pipeline(dot, pipeline)?;
                if pipeline.variables.is_empty() {
                    let text = format::printable(&value, self.host.budget)?;
                    self.write(&text)?;
                }
            }
            Node::If(branch) | Node::With(branch) => {
                let mark = self.variables.len();
                self.at = branch.at;
                let value = self.pipeline(dot, &branch.pipeline)?;
                let inner = if matches!(node, Node::With(_)) { &value } else { dot };
                let flow = if value.is_true() {
                    self.list(inner, &branch.list)?
                } else if let Some(otherwise) = &branch.otherwise {
                    self.list(dot, otherwise)?
                } else {
                    Flow::Next
                };
                self.variables.truncate(mark);
                return Ok(flow);
            }
            Node::Range(branch) => return self.range(dot, branch),
            Node::Template(at, name, pipeline) => self.template(dot, *at, name, pipeline.as_ref())?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn write(&mut self, text: &[u8]) -> Outcome<()> {
        self.host.budget.output(self.out.len() + text.len())?;
        self.host.budget.steps(text.len() as u64 / 256)?;
        self.out.extend_from_slice(text);
        Ok(())
    }

    fn template(&mut self, dot: &Value, at: Spot, name: &Bytes, pipeline: Option<&Pipeline>) -> Outcome<()> {
        self.at = at;
        let Some(list) = self.forest.get(name).cloned() else {
            return failed(format!("template {:?} not defined", String::from_utf8_lossy(name)));
        };
        self.host.budget.templates(self.depth + 1)?;
        let dot = match pipeline {
            Some(pipeline) => self.pipeline(dot, pipeline)?,
            None => Value::Missing,
        };
        let variables = std::mem::replace(&mut self.variables, vec![("$".to_owned(), dot.clone())]);
        let template = std::mem::replace(&mut self.template, Rc::clone(name));
        self.depth += 1;
        self.list(&dot, &list)?;
        self.depth -= 1;
        (self.variables, self.template) = (variables, template);
        Ok(())
    }

    fn range(&mut self, dot: &Value, branch: &Branch) -> Outcome<Flow> {
        self.at = branch.at;
        let mark = self.variables.len();
        let (value, _) = self.pipeline(dot, &branch.pipeline)?.indirect();
        let inner = self.variables.len();
        let ran = self.rounds(&value, branch, inner)?;
        self.variables.truncate(mark);
        match (&branch.otherwise, ran) {
            (Some(otherwise), false) => self.list(dot, otherwise),
            _ => Ok(Flow::Next),
        }
    }

    /// Goes through all elements; whether there was one.
    fn rounds(&mut self, value: &Value, branch: &Branch, mark: usize) -> Outcome<bool> {
        match value {
            Value::Missing => Ok(false),
            Value::NilOf(of) if !matches!(of.underlying(), GoType::Pointer(_)) => Ok(false),
            Value::Int(..) | Value::Uint(..) | Value::Nanos(_) => {
                if branch.pipeline.variables.len() > 1 {
                    return failed("can't use a number to iterate over more than one variable");
                }
                let most = match value {
                    Value::Int(_, number) | Value::Nanos(number) => u64::try_from(*number).unwrap_or(0),
                    Value::Uint(_, number) => *number,
                    _ => 0,
                };
                for number in 0..most {
                    let element = match value {
                        Value::Int(kind, _) => Value::Int(*kind, number.cast_signed()),
                        Value::Uint(kind, _) => Value::Uint(*kind, number),
                        _ => Value::Nanos(number.cast_signed()),
                    };
                    if self.round(Value::Missing, &element, branch, mark)? == Flow::Break {
                        break;
                    }
                }
                Ok(most > 0)
            }
            Value::Channel(left) => {
                let mut index = 0;
                loop {
                    let Some(number) = left.borrow_mut().next() else { return Ok(index > 0) };
                    let flow = self.round(Value::int(index), &Value::int64(number), branch, mark)?;
                    index += 1;
                    if flow == Flow::Break {
                        return Ok(true);
                    }
                }
            }
            Value::List(list) => {
                for (index, item) in list.items.iter().enumerate() {
                    let index = Value::int(i64::try_from(index).unwrap_or(i64::MAX));
                    if self.round(index, item, branch, mark)? == Flow::Break {
                        break;
                    }
                }
                Ok(!list.items.is_empty())
            }
            Value::Map(_) => {
                let entries = value.entries().unwrap_or_default();
                let ran = !entries.is_empty();
                self.host.budget.steps(entries.len() as u64)?;
                for (key, item) in entries {
                    if self.round(key.value(), &item, branch, mark)? == Flow::Break {
                        break;
                    }
                }
                Ok(ran)
            }
            _ => failed(format!("range can't iterate over a value of type {}", value.type_name())),
        }
    }

    fn round(&mut self, index: Value, element: &Value, branch: &Branch, mark: usize) -> Outcome<Flow> {
        self.host.budget.step()?;
        let pipeline = &branch.pipeline;
        match (&pipeline.variables[..], pipeline.is_assignment) {
            ([], _) => {}
            ([one], true) => self.assign(one, element.clone()),
            ([one, two, ..], true) => {
                self.assign(one, index);
                self.assign(two, element.clone());
            }
            (names, false) => {
                let last = mark - 1;
                self.variables[last].1 = element.clone();
                if names.len() > 1 {
                    self.variables[last - 1].1 = index;
                }
            }
        }
        let flow = self.list(element, &branch.list)?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn assign(&mut self, name: &str, value: Value) {
        if let Some(variable) = self.variables.iter_mut().rev().find(|variable| variable.0 == name) {
            variable.1 = value;
        }
    }

    fn pipeline(&mut self, dot: &Value, pipeline: &Pipeline) -> Outcome<Value> {
        self.host.budget.deeper()?;
        self.at = pipeline.at;
        let mut last = None;
        for command in &pipeline.commands {
            last = Some(self.command(dot, command, last)?.unboxed());
        }
        let value = last.unwrap_or(Value::Missing);
        for name in &pipeline.variables {
            if pipeline.is_assignment {
                self.assign(name, value.clone());
            } else {
                self.variables.push((name.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    fn command(&mut self, dot: &Value, command: &Command, last: Option<Value>) -> Outcome<Value> {
        let Some((first, arguments)) = command.terms.split_first() else { return failed("empty command") };
        self.at = first.at;
        match &first.expression {
            Expression::Field(names) => return self.chain(dot, dot.clone(), names, (arguments, last)),
            Expression::Chain(inner, names) => {
                let receiver = self.receiver(dot, inner)?;
                self.at = first.at;
                return self.chain(dot, receiver, names, (arguments, last));
            }
            Expression::Variable(name, names) if !names.is_empty() => {
                let receiver = self.variable(name);
                return self.chain(dot, receiver, names, (arguments, last));
            }
            Expression::Function(name) => return self.call(dot, name, (arguments, last)),
            _ => {}
        }
        if !arguments.is_empty() || last.is_some() {
            return failed(format!("can't give argument to non-function {}", first.shown()));
        }
        match &first.expression {
            Expression::Nil => failed("nil is not a command"),
            Expression::Parenthesis(pipeline) => self.pipeline(dot, pipeline),
            Expression::Number(number) => constant(number),
            Expression::Bool(is) => Ok(Value::Bool(*is)),
            Expression::Text(text) => Ok(Value::Text(Rc::clone(text))),
            Expression::Variable(name, _) => Ok(self.variable(name)),
            _ => Ok(dot.clone()),
        }
    }

    fn variable(&self, name: &str) -> Value {
        self.variables.iter().rev().find(|variable| variable.0 == name).map_or(Value::Missing, |found| found.1.clone())
    }

    /// What a chain of fields begins with.
    fn receiver(&mut self, dot: &Value, term: &Term) -> Outcome<Value> {
        self.at = term.at;
        match &term.expression {
            Expression::Parenthesis(pipeline) => self.pipeline(dot, pipeline),
            Expression::Function(name) => self.call(dot, name, (&[], None)),
            Expression::Nil => failed("indirection through explicit nil"),
            _ => self.any(dot, term),
        }
    }

    fn chain(
        &mut self,
        dot: &Value,
        mut receiver: Value,
        names: &[String],
        (arguments, last): (&[Term], Option<Value>),
    ) -> Outcome<Value> {
        let Some((end, before)) = names.split_last() else { return Ok(receiver) };
        for name in before {
            self.host.budget.step()?;
            receiver = field(self.host, &receiver, name, None, self.err_missing_key)?;
        }
        let at = self.at;
        let values = if arguments.is_empty() && last.is_none() {
            None
        } else {
            let mut values = Vec::new();
            for term in arguments {
                values.push(self.any(dot, term)?.boxed());
            }
            values.extend(last.map(Value::boxed));
            Some(values)
        };
        self.at = at;
        field(self.host, &receiver, end, values, self.err_missing_key)
    }

    fn call(&mut self, dot: &Value, name: &str, (arguments, last): (&[Term], Option<Value>)) -> Outcome<Value> {
        let at = self.at;
        let Some(function) = functions::find(name) else {
            return failed(format!("{name:?} is not a defined function"));
        };
        let n_given = arguments.len() + usize::from(last.is_some());
        let n_fixed = function.parameters.len();
        if n_given < n_fixed || n_given > n_fixed && function.rest.is_none() {
            return failed(format!("wrong number of args for {name}: want {n_fixed} got {n_given}"));
        }
        if name == "and" || name == "or" {
            return self.and_or(dot, name == "or", arguments, last);
        }
        let mut values = Vec::with_capacity(n_given);
        for (index, term) in arguments.iter().enumerate() {
            values.push(self.argument(dot, parameter(function, index), term)?);
        }
        if let Some(last) = last {
            values.push(fitted(last, parameter(function, arguments.len()))?);
        }
        self.at = at;
        self.host.budget.step()?;
        let called = (function.call)(self.host, &values);
        called.map_err(|fault| match fault {
            Fault::Failed(text) => Fault::Failed(format!("error calling {name}: {text}")),
            Fault::MissingKey(text) => Fault::MissingKey(format!("error calling {name}: {text}")),
            Fault::Limit(limit, text) => Fault::Limit(limit, text),
        })
    }

    fn and_or(&mut self, dot: &Value, stops_at: bool, arguments: &[Term], last: Option<Value>) -> Outcome<Value> {
        let mut value = Value::Missing;
        for term in arguments {
            value = self.argument(dot, GoType::Reflect, term)?;
            if value.is_true() == stops_at {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    fn argument(&mut self, dot: &Value, of: GoType, term: &Term) -> Outcome<Value> {
        self.host.budget.deeper()?;
        self.at = term.at;
        let wrong = |expected: &str| failed(format!("expected {expected}; found {}", term.shown()));
        match (&term.expression, of) {
            (Expression::Nil, _) if of.can_be_nil() => Ok(Value::zero(of)),
            (Expression::Nil, _) => failed(format!("cannot assign nil to {of}")),
            (Expression::Bool(_) | Expression::Text(_) | Expression::Number(_), GoType::Any | GoType::Reflect) => {
                self.any(dot, term)
            }
            (Expression::Bool(is), GoType::Bool) => Ok(Value::Bool(*is)),
            (Expression::Text(text), GoType::Text) => Ok(Value::Text(Rc::clone(text))),
            (Expression::Number(number), GoType::Int(kind)) => {
                number.int.map_or_else(|| wrong("integer"), |number| Ok(Value::Int(kind, number)))
            }
            (Expression::Number(number), GoType::Float64) => {
                number.float.map_or_else(|| wrong("float"), |number| Ok(Value::Float(number)))
            }
            (Expression::Bool(_) | Expression::Text(_) | Expression::Number(_), _) => wrong(&of.to_string()),
            _ => {
                let value = self.any(dot, term)?;
                self.at = term.at;
                fitted(value, of)
            }
        }
    }

    /// A term as it is.
    fn any(&mut self, dot: &Value, term: &Term) -> Outcome<Value> {
        self.host.budget.deeper()?;
        self.at = term.at;
        match &term.expression {
            Expression::Bool(is) => Ok(Value::Bool(*is)),
            Expression::Dot => Ok(dot.clone()),
            Expression::Nil => failed("nil is not a value here"),
            Expression::Number(number) => constant(number),
            Expression::Text(text) => Ok(Value::Text(Rc::clone(text))),
            Expression::Field(names) => self.chain(dot, dot.clone(), names, (&[], None)),
            Expression::Variable(name, names) => {
                let receiver = self.variable(name);
                self.chain(dot, receiver, names, (&[], None))
            }
            Expression::Function(name) => self.call(dot, name, (&[], None)),
            Expression::Parenthesis(pipeline) => self.pipeline(dot, pipeline),
            Expression::Chain(inner, names) => {
                let receiver = self.receiver(dot, inner)?;
                self.at = term.at;
                self.chain(dot, receiver, names, (&[], None))
            }
        }
    }
}

/// The type of an argument.
fn parameter(function: &Function, index: usize) -> GoType {
    function.parameters.get(index).copied().or(function.rest).unwrap_or(GoType::Any)
}

/// A number without a type gets one.
fn constant(number: &Number) -> Outcome<Value> {
    if let Some((real, imaginary)) = number.complex {
        return Ok(Value::Complex(real, imaginary));
    }
    let text = &number.text;
    let is_hexadecimal =
        text.len() > 2 && (text.starts_with("0x") || text.starts_with("0X")) && !text.contains(['p', 'P']);
    if let Some(float) = number.float
        && !is_hexadecimal
        && !text.starts_with('\'')
        && text.contains(['.', 'e', 'E', 'p', 'P'])
    {
        return Ok(Value::Float(float));
    }
    match number.int {
        Some(int) => {
            debug_assert_eq!(Value::int(int).go_type(), Some(INT));
            Ok(Value::int(int))
        }
        None => failed(format!("{text} overflows int")),
    }
}

/// A value as a parameter of a type takes it.
fn fitted(value: Value, of: GoType) -> Outcome<Value> {
    let Some(is) = value.go_type() else {
        return if of.can_be_nil() { Ok(Value::zero(of)) } else { failed(format!("invalid value; expected {of}")) };
    };
    if of == GoType::Reflect || is.is_assignable_to(of) && (is != GoType::Any || of == GoType::Any) {
        return Ok(value);
    }
    if let Value::Pointer(to) = &value
        && to.go_type().is_some_and(|is| is.is_assignable_to(of))
    {
        return Ok(Value::clone(to));
    }
    failed(format!("wrong type for value; expected {of}; got {is}"))
}
