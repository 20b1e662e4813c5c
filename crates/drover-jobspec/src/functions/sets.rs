//! Functions on sets. A job file's sets are lists here, each element once, in order.

use super::arguments::Arguments;
use super::collections::distinct;
use super::context::{Context, Outcome};
use crate::evaluate::equal;
use crate::value::Value;

/// Combinations that `setproduct` makes at most.
const PRODUCT_LIMIT: usize = 10_000;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>, context: &Context<'_>) -> Option<Outcome> {
    Some(match name {
        "setunion" => {
            let lists = (0..arguments.all().len()).map(|at| arguments.list(at)).collect::<Result<Vec<_>, _>>();
            lists.and_then(|lists| Ok(sorted(distinct(&lists.concat(), context)?)))
        }
        "setintersection" => fold(arguments, context, |kept, other| {
            kept.retain(|value| other.iter().any(|known| equal(known, value)));
        }),
        "setsubtract" => arguments.count(2).and_then(|()| {
            fold(arguments, context, |kept, other| {
                kept.retain(|value| !other.iter().any(|known| equal(known, value)));
            })
        }),
        "sethaselement" => arguments.count(2).and_then(|()| {
            let wanted = arguments.value(1)?;
            Ok(Value::Bool(arguments.list(0)?.iter().any(|value| equal(value, wanted))))
        }),
        "setproduct" => product(arguments),
        _ => return None,
    })
}

fn fold(arguments: &Arguments<'_>, context: &Context<'_>, shrink: impl Fn(&mut Vec<Value>, &[Value])) -> Outcome {
    arguments.between(1, usize::MAX)?;
    let mut kept = distinct(arguments.list(0)?, context)?;
    for at in 1..arguments.all().len() {
        shrink(&mut kept, arguments.list(at)?);
    }
    Ok(sorted(kept))
}

/// Sets of strings and numbers have an order of their own in HCL.
fn sorted(mut values: Vec<Value>) -> Value {
    values.sort_by(|left, right| match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.compare(*right),
        (left, right) => left.to_text().cmp(&right.to_text()),
    });
    Value::List(values)
}

fn product(arguments: &Arguments<'_>) -> Outcome {
    arguments.between(2, usize::MAX)?;
    let mut rows = vec![Vec::new()];
    for at in 0..arguments.all().len() {
        let values = arguments.list(at)?;
        if rows.len().saturating_mul(values.len()) > PRODUCT_LIMIT {
            return Err(format!("makes more than {PRODUCT_LIMIT} combinations"));
        }
        rows = rows
            .iter()
            .flat_map(|row: &Vec<Value>| {
                values.iter().map(move |value| row.iter().cloned().chain([value.clone()]).collect())
            })
            .collect();
    }
    Ok(Value::List(rows.into_iter().map(Value::List).collect()))
}
