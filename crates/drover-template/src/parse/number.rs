//! Numbers as Go's `strconv` reads them.

use super::tree::Number;

/// A literal of a template, which is every kind of number that it can be.
pub(super) fn number(text: &str) -> Result<Number, String> {
    let mut number = Number { text: text.to_owned(), ..Number::default() };
    if let Some(imaginary) = text.strip_suffix('i').and_then(parse_float) {
        number.set_complex(0.0, imaginary);
        return Ok(number);
    }
    number.uint = parse_uint(text, 0);
    number.int = parse_int(text, 0);
    if number.int == Some(0) {
        number.uint = Some(0);
    }
    if let Some(int) = number.int {
        number.float = Some(int_to_float(int));
    } else if let Some(uint) = number.uint {
        number.float = Some(uint_to_float(uint));
    } else if let Some(float) = parse_float(text) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {text:?}"));
        }
        number.set_float(float);
    } else {
        return Err(format!("illegal number syntax: {text:?}"));
    }
    Ok(number)
}

/// A literal as `1+2i`.
pub(super) fn complex(text: &str) -> Result<Number, String> {
    let mut number = Number { text: text.to_owned(), ..Number::default() };
    let wrong = || format!("illegal number syntax: {text:?}");
    let inner = text.strip_suffix('i').ok_or_else(wrong)?;
    let split = inner.rfind(['+', '-']).filter(|at| *at > 0).ok_or_else(wrong)?;
    // The sign of an exponent is none between the parts.
    let split = match inner.as_bytes()[split - 1] {
        b'e' | b'E' | b'p' | b'P' if !inner.starts_with("0x") => {
            inner[..split - 1].rfind(['+', '-']).filter(|at| *at > 0).ok_or_else(wrong)?
        }
        _ => split,
    };
    let (real, imaginary) = inner.split_at(split);
    let real = parse_float(real).ok_or_else(wrong)?;
    let imaginary = parse_float(imaginary).ok_or_else(wrong)?;
    number.set_complex(real, imaginary);
    Ok(number)
}

/// A literal of a character.
pub(super) fn of_character(text: &str, char: u32) -> Number {
    Number {
        int: Some(i64::from(char)),
        uint: Some(u64::from(char)),
        float: Some(f64::from(char)),
        complex: None,
        text: text.to_owned(),
    }
}

impl Number {
    fn set_float(&mut self, float: f64) {
        self.float = Some(float);
        self.int = whole(float);
        self.uint = whole_unsigned(float);
    }

    fn set_complex(&mut self, real: f64, imaginary: f64) {
        self.complex = Some((real, imaginary));
        if imaginary.to_bits().wrapping_shl(1) == 0 {
            self.set_float(real);
        }
    }
}

/// The integer that a float is.
fn whole(float: f64) -> Option<i64> {
    let is_whole = float.fract().to_bits().wrapping_shl(1) == 0;
    (is_whole && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float)).then(|| truncated(float))
}

fn whole_unsigned(float: f64) -> Option<u64> {
    let is_whole = float.fract().to_bits().wrapping_shl(1) == 0;
    (is_whole && (0.0..18_446_744_073_709_551_616.0).contains(&float)).then(|| truncated_unsigned(float))
}

#[expect(clippy::cast_possible_truncation, reason = "the caller has looked at the range, or wants Go's conversion")]
pub(crate) fn truncated(float: f64) -> i64 {
    float as i64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the caller has looked at the range")]
fn truncated_unsigned(float: f64) -> u64 {
    float as u64
}

#[expect(clippy::cast_precision_loss, reason = "Go's conversion loses the same")]
pub(crate) fn int_to_float(int: i64) -> f64 {
    int as f64
}

#[expect(clippy::cast_precision_loss, reason = "Go's conversion loses the same")]
pub(crate) fn uint_to_float(uint: u64) -> f64 {
    uint as f64
}

/// Go's `strconv.ParseUint`; base 0 takes prefixes and `_`.
pub(crate) fn parse_uint(text: &str, base: u32) -> Option<u64> {
    let (digits, radix) = if base == 0 {
        if text.contains('_') && !underscores_separate(text) {
            return None;
        }
        let lower = text.to_ascii_lowercase();
        let (digits, radix) = match lower.get(..2) {
            Some("0x") => (&text[2..], 16),
            Some("0o") => (&text[2..], 8),
            Some("0b") => (&text[2..], 2),
            _ if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
            _ => (text, 10),
        };
        (digits.replace('_', ""), radix)
    } else {
        (text.to_owned(), base)
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(&digits, radix).ok()
}

/// Go's `strconv.ParseInt`.
pub(crate) fn parse_int(text: &str, base: u32) -> Option<i64> {
    let (is_negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number = parse_uint(digits, base)?;
    if is_negative { 0_i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
}

/// Go's `strconv.ParseFloat`: also hexadecimal, with `_`, and the names of what is no number. What is too large is an
/// error.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let (is_negative, number) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let sign = |number: f64| if is_negative { -number } else { number };
    match number.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Some(sign(f64::INFINITY)),
        "nan" => return (text.len() == 3).then_some(f64::NAN),
        _ => {}
    }
    if number.contains('_') && !underscores_separate(number) {
        return None;
    }
    let plain = number.replace('_', "");
    if plain.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x")) {
        return hexadecimal(&plain[2..]).map(sign);
    }
    let is_decimal = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !plain.bytes().all(is_decimal) || !plain.bytes().any(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let float: f64 = plain.parse().ok().filter(|_| !plain.starts_with(['+', '-']))?;
    float.is_finite().then(|| sign(float))
}

/// Digits with a point and the exponent of 2 that Go asks for.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let is_number = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !is_number(exponent) {
        return None;
    }
    let mut exponent: i64 = exponent.parse().unwrap_or(if exponent.starts_with('-') { -100_000 } else { 100_000 });
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let mut mantissa: u128 = 0;
    for (index, digit) in whole.chars().chain(part.chars()).enumerate() {
        let digit = digit.to_digit(16)?;
        if mantissa >> 120 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
            exponent -= if index >= whole.len() { 4 } else { 0 };
        } else {
            mantissa |= u128::from(digit != 0);
            exponent += if index < whole.len() { 4 } else { 0 };
        }
    }
    let exponent = i32::try_from(exponent.clamp(-5000, 5000)).ok()?;
    let float = scaled(mantissa, exponent);
    float.is_finite().then_some(float)
}

/// `mantissa * 2^exponent`, rounded once unless it is close to the smallest numbers.
#[expect(clippy::cast_precision_loss, reason = "rounding to a float is what it is for")]
fn scaled(mantissa: u128, exponent: i32) -> f64 {
    let mut float = mantissa as f64;
    let mut left = exponent;
    while left != 0 && float.is_finite() && float > 0.0 {
        let step = left.clamp(-1000, 1000);
        float *= 2_f64.powi(step);
        left -= step;
    }
    float
}

/// Whether each `_` stands between digits, or behind the prefix of a base.
fn underscores_separate(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut last = '^';
    let (rest, is_hexadecimal) = match text.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (&text[2..], true),
        Some("0b" | "0o") => (&text[2..], false),
        _ => (text, false),
    };
    if rest.len() != text.len() {
        last = '0';
    }
    for char in rest.chars() {
        if char.is_ascii_digit() || is_hexadecimal && char.is_ascii_hexdigit() {
            last = '0';
        } else if char == '_' {
            if last != '0' {
                return false;
            }
            last = '_';
        } else {
            if last == '_' {
                return false;
            }
            last = '!';
        }
    }
    last != '_'
}
