//! Functions on sets. They take lists for sets, too.

use std::collections::BTreeSet;

use super::arguments::Arguments;
use super::context::Outcome;
use crate::evaluate::equal;
use crate::value::{Value, unified};

/// Combinations that `setproduct` makes at most.
const PRODUCT_LIMIT: usize = 10_000;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>) -> Option<Outcome> {
    Some(match name {
        "setunion" => lists(arguments).map(|lists| Value::set(lists.concat())),
        "setintersection" => fold(arguments, true),
        "setsubtract" => arguments.count(2).and_then(|()| fold(arguments, false)),
        "sethaselement" => arguments.count(2).and_then(|()| {
            let wanted = arguments.value(1)?;
            Ok(Value::Bool(arguments.list(0)?.iter().any(|value| equal(value, wanted))))
        }),
        "setproduct" => product(arguments),
        _ => return None,
    })
}

/// All arguments, whose elements have one type.
fn lists(arguments: &Arguments<'_>) -> Result<Vec<Vec<Value>>, String> {
    arguments.between(1, usize::MAX)?;
    let lists = (0..arguments.all().len()).map(|at| arguments.list(at)).collect::<Result<Vec<_>, _>>()?;
    let mut all = unified(lists.concat()).into_iter();
    Ok(lists.iter().map(|list| all.by_ref().take(list.len()).collect()).collect())
}

/// What of the first is, or is not, in each of the others.
fn fold(arguments: &Arguments<'_>, is_in: bool) -> Outcome {
    let mut lists = lists(arguments)?.into_iter();
    let mut kept = lists.next().unwrap_or_default();
    for other in lists {
        let other: BTreeSet<String> = other.iter().map(Value::key).collect();
        kept.retain(|value| other.contains(&value.key()) == is_in);
    }
    Ok(Value::set(kept))
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
