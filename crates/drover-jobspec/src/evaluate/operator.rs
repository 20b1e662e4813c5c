//! Unary and binary operators.

use hcl_edit::expr::{BinaryOperator, UnaryOperator};

use crate::value::{Number, Value};

/// The value of `operator operand`.
pub(super) fn unary(operator: UnaryOperator, operand: &Value) -> Result<Value, String> {
    match operator {
        UnaryOperator::Not => {
            let value = operand.to_bool().ok_or_else(|| format!("`!` needs a bool, and this is {}", operand.kind()))?;
            Ok(Value::Bool(!value))
        }
        UnaryOperator::Neg => match number(operand)? {
            Number::Whole(whole) => whole.checked_neg().map(Number::Whole),
            Number::Fraction(fraction) => Some(Number::Fraction(-fraction)),
        }
        .map(Value::Number)
        .ok_or_else(|| "is too large a number".to_owned()),
    }
}

/// The value of `left operator right`. `&&` and `||` look at both sides, as HCL does.
pub(super) fn binary(operator: BinaryOperator, left: &Value, right: &Value) -> Result<Value, String> {
    use BinaryOperator as Operator;
    let is = |value: bool| Ok(Value::Bool(value));
    match operator {
        Operator::Eq => is(equal(left, right)),
        Operator::NotEq => is(!equal(left, right)),
        Operator::And => is(truth(left)? && truth(right)?),
        Operator::Or => is(truth(left)? || truth(right)?),
        Operator::Less => is(number(left)?.compare(number(right)?).is_lt()),
        Operator::LessEq => is(number(left)?.compare(number(right)?).is_le()),
        Operator::Greater => is(number(left)?.compare(number(right)?).is_gt()),
        Operator::GreaterEq => is(number(left)?.compare(number(right)?).is_ge()),
        Operator::Plus | Operator::Minus | Operator::Mul | Operator::Div | Operator::Mod => {
            arithmetic(operator, number(left)?, number(right)?).map(Value::Number)
        }
    }
}

/// A number and its text are not equal, as in HCL.
pub(crate) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.compare(*right).is_eq(),
        (Value::List(left), Value::List(right)) | (Value::Set(left), Value::Set(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Map(left), Value::Map(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|((key, left), (other, right))| key == other && equal(left, right))
        }
        (left, right) => left == right,
    }
}

/// HCL counts in decimal: 0.1 + 0.2 is 0.3. Fifteen digits are those that a fraction of the processor keeps.
fn decimal(fraction: f64) -> f64 {
    format!("{fraction:.14e}").parse().unwrap_or(fraction)
}

fn truth(value: &Value) -> Result<bool, String> {
    value.to_bool().ok_or_else(|| format!("needs a bool, and this is {}", value.kind()))
}

fn number(value: &Value) -> Result<Number, String> {
    value.to_number().ok_or_else(|| format!("needs a number, and this is {}", value.kind()))
}

fn arithmetic(operator: BinaryOperator, left: Number, right: Number) -> Result<Number, String> {
    use BinaryOperator as Operator;
    let is_zero = right.as_f64() == 0.0;
    if is_zero && matches!(operator, Operator::Div | Operator::Mod) {
        return Err("divides by zero".to_owned());
    }
    if let (Some(left), Some(right)) = (left.whole(), right.whole()) {
        let exact = match operator {
            Operator::Plus => left.checked_add(right),
            Operator::Minus => left.checked_sub(right),
            Operator::Mul => left.checked_mul(right),
            Operator::Div if left % right == 0 => left.checked_div(right),
            Operator::Mod => left.checked_rem(right),
            _ => None,
        };
        if let Some(exact) = exact {
            return Ok(Number::Whole(exact));
        }
    }
    let (left, right) = (left.as_f64(), right.as_f64());
    let result = match operator {
        Operator::Plus => decimal(left + right),
        Operator::Minus => decimal(left - right),
        Operator::Mul => decimal(left * right),
        Operator::Div => left / right,
        _ => left % right,
    };
    Number::of(result).ok_or_else(|| "is too large a number".to_owned())
}
