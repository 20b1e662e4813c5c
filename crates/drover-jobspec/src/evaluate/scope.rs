//! The names that an expression may use.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hcl_edit::expr::Expression;

use super::Budget;
use crate::inputs::Files;
use crate::source::{Fault, Source};
use crate::value::Value;

/// A local: evaluated when it is first used, so that they may stand in any order.
#[derive(Debug, Clone)]
pub(crate) enum Local {
    /// Not evaluated yet.
    Open(Expression),
    /// Being evaluated: who asks for it now is a part of it.
    Busy,
    Known(Value),
}

/// Everything an expression can see.
pub(crate) struct Scope<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) files: Option<&'a dyn Files>,
    pub(crate) variables: BTreeMap<String, Value>,
    pub(crate) locals: RefCell<BTreeMap<String, Local>>,
    /// Names of `for` expressions and `dynamic` blocks, the innermost last.
    pub(crate) names: RefCell<Vec<(String, Value)>>,
    pub(crate) budget: Budget,
}

impl Scope<'_> {
    /// Runs something with more names.
    pub(crate) fn with_names<T>(&self, names: Vec<(String, Value)>, run: impl FnOnce() -> T) -> T {
        let n_before = self.names.borrow().len();
        self.names.borrow_mut().extend(names);
        let result = run();
        self.names.borrow_mut().truncate(n_before);
        result
    }

    /// The value of a name of a loop.
    pub(crate) fn name(&self, name: &str) -> Option<Value> {
        self.names.borrow().iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    /// The value of a variable.
    pub(crate) fn variable(&self, name: &str, offset: usize) -> Result<Value, Fault> {
        self.variables.get(name).cloned().ok_or_else(|| {
            self.fault(
                offset,
                format!("there is no variable `{name}`; declare it with a block `variable \"{name}\" {{}}`"),
            )
        })
    }

    /// The value of a local, which is evaluated where that was not done yet.
    pub(crate) fn local(&self, name: &str, offset: usize) -> Result<Value, Fault> {
        let found = self.locals.borrow_mut().get_mut(name).map(|local| match local {
            Local::Open(_) => std::mem::replace(local, Local::Busy),
            other => other.clone(),
        });
        match found {
            None => Err(self.fault(offset, format!("there is no local `{name}`; define it in a block `locals {{}}`"))),
            Some(Local::Known(value)) => Ok(value),
            Some(Local::Busy) => Err(self.fault(offset, format!("local `{name}` is made of itself; break the circle"))),
            Some(Local::Open(expression)) => {
                // The names of a loop around the reference are none of the local's.
                let names = std::mem::take(&mut *self.names.borrow_mut());
                let result = self.value(&expression);
                *self.names.borrow_mut() = names;
                let state = result.as_ref().map_or(Local::Open(expression), |value| Local::Known(value.clone()));
                self.locals.borrow_mut().insert(name.to_owned(), state);
                result
            }
        }
    }

    /// A fault at a byte of the file.
    pub(crate) fn fault(&self, offset: usize, message: impl Into<String>) -> Fault {
        self.source.fault(offset, message)
    }
}
