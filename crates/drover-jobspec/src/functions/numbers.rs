//! Functions on numbers.

use super::arguments::Arguments;
use super::context::Outcome;
use super::strings;
use crate::value::{Number, Value};

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>) -> Option<Outcome> {
    Some(match name {
        "abs" => one(arguments, |number| match number {
            Number::Whole(whole) => whole.checked_abs().map(Number::Whole),
            Number::Fraction(fraction) => Some(Number::Fraction(fraction.abs())),
        }),
        "ceil" => one(arguments, |number| rounded(number, f64::ceil)),
        "floor" => one(arguments, |number| rounded(number, f64::floor)),
        "signum" => one(arguments, |number| Some(Number::Whole(number.compare(Number::Whole(0)) as i128))),
        "int" => one(arguments, |number| rounded(number, f64::trunc)),
        "log" => arguments.count(2).and_then(|()| {
            let (number, base) = (arguments.number(0)?.as_f64(), arguments.number(1)?.as_f64());
            of(number.ln() / base.ln())
        }),
        "pow" => arguments.count(2).and_then(|()| power(arguments.number(0)?, arguments.number(1)?)),
        "max" => extreme(arguments, std::cmp::Ordering::is_gt),
        "min" => extreme(arguments, std::cmp::Ordering::is_lt),
        "parseint" => arguments.count(2).and_then(|()| strings::parse_int(&arguments.text(0)?, arguments.whole(1)?)),
        _ => return None,
    })
}

fn one(arguments: &Arguments<'_>, compute: impl Fn(Number) -> Option<Number>) -> Outcome {
    arguments.count(1)?;
    compute(arguments.number(0)?).map(Value::Number).ok_or_else(too_large)
}

fn rounded(number: Number, round: impl Fn(f64) -> f64) -> Option<Number> {
    match number {
        Number::Whole(_) => Some(number),
        Number::Fraction(fraction) => Number::of(round(fraction)),
    }
}

fn of(fraction: f64) -> Outcome {
    Number::of(fraction).map(Value::Number).ok_or_else(too_large)
}

fn too_large() -> String {
    "has no result that is a number".to_owned()
}

fn power(base: Number, exponent: Number) -> Outcome {
    let exact = base.whole().zip(exponent.whole().and_then(|whole| u32::try_from(whole).ok()));
    match exact.and_then(|(base, exponent)| base.checked_pow(exponent)) {
        Some(whole) => Ok(Value::Number(Number::Whole(whole))),
        None => of(base.as_f64().powf(exponent.as_f64())),
    }
}

fn extreme(arguments: &Arguments<'_>, is_better: fn(std::cmp::Ordering) -> bool) -> Outcome {
    arguments.between(1, usize::MAX)?;
    let mut best = arguments.number(0)?;
    for at in 1..arguments.all().len() {
        let number = arguments.number(at)?;
        if is_better(number.compare(best)) {
            best = number;
        }
    }
    Ok(Value::Number(best))
}
