//! One rendering, from the order to the answer.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::budget::{Budget, STACK_BYTES};
use crate::execute::execute;
use crate::fault::Fault;
use crate::functions::{self, Host};
use crate::order::{RenderAnswer, RenderError, RenderErrorKind, RenderOrder};
use crate::parse::parse;
use crate::values::ValueBytes;

/// Renders on a thread of its own, whose stack is large enough for what the limits allow.
pub fn render(order: &RenderOrder) -> RenderAnswer {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || rendered(order));
        let broken = |text: &str| failure(order, (b"", 0), RenderErrorKind::Limit, Fault::Failed(text.to_owned()));
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| broken("the rendering broke off")),
            Err(_) => broken("there is no memory to render it in"),
        }
    })
}

fn rendered(order: &RenderOrder) -> RenderAnswer {
    let budget = Budget::new(order.limits, STACK_BYTES);
    let delimiter =
        |text: &'static str, given: &'_ str| if given.is_empty() { text.to_owned() } else { given.to_owned() };
    let (left, right) = (delimiter("{{", &order.left_delimiter), delimiter("}}", &order.right_delimiter));
    let text = &order.template.0;
    let forest = match parse(text, (left.as_bytes(), right.as_bytes()), functions::is_known, &budget) {
        Ok(forest) => forest,
        Err(error) => return failure(order, (b"", error.at), RenderErrorKind::Syntax, error.fault),
    };
    let host = Host {
        values: &order.values,
        budget: &budget,
        now: order.now,
        needed: RefCell::default(),
        absent: RefCell::default(),
        scratch: RefCell::new(BTreeMap::new()),
    };
    let executed = execute(&forest, &host, order.err_missing_key);
    let (needed, absent) = (host.needed.take(), host.absent.take());
    if !needed.is_empty() || !absent.is_empty() {
        return RenderAnswer::Missing { needed, absent };
    }
    match executed {
        Ok(text) => RenderAnswer::Rendered(ValueBytes(text)),
        Err((template, at, fault)) => failure(order, (&template, at), RenderErrorKind::Evaluation, fault),
    }
}

fn failure(order: &RenderOrder, (template, at): (&[u8], usize), kind: RenderErrorKind, fault: Fault) -> RenderAnswer {
    let text = &order.template.0;
    let before = &text[..at.min(text.len())];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let template =
        if template.is_empty() { order.name.clone() } else { String::from_utf8_lossy(template).into_owned() };
    let (limit, kind, message) = match fault {
        Fault::Failed(message) => (None, kind, message),
        Fault::MissingKey(message) => (None, RenderErrorKind::MissingKey, message),
        Fault::Limit(limit, message) => (Some(limit), RenderErrorKind::Limit, message),
    };
    RenderAnswer::Failed(RenderError {
        template,
        line: 1 + memchr::memchr_iter(b'\n', before).count(),
        column: 1 + before.len() - line_start,
        message,
        limit,
        kind,
    })
}
