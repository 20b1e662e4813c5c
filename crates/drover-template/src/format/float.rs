//! Floats as Go's `strconv.FormatFloat` writes them, with a sign only where it is negative.

/// With as many digits as are needed to read the same number again: `%g`, or `%e` and `%f`.
pub(crate) fn shortest(number: f64, verb: u8) -> String {
    of(number, verb, None)
}

/// With so many digits.
pub(crate) fn fixed(number: f64, verb: u8, precision: usize) -> String {
    of(number, verb, Some(precision))
}

fn of(number: f64, verb: u8, precision: Option<usize>) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-Inf" } else { "+Inf" }.to_owned();
    }
    match verb {
        b'e' | b'E' => exponential(number, verb, precision),
        b'f' => precision.map_or_else(|| format!("{number}"), |digits| format!("{number:.digits$}")),
        b'b' => binary(number),
        b'x' | b'X' => hexadecimal(number, verb, precision),
        _ => general(number, verb, precision),
    }
}

/// `d.ddde±dd`.
fn exponential(number: f64, verb: u8, precision: Option<usize>) -> String {
    let text = precision.map_or_else(|| format!("{number:e}"), |digits| format!("{number:.digits$e}"));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{}{sign}{:02}", char::from(verb), exponent.abs())
}

/// The shorter of the two, as `%g` chooses.
fn general(number: f64, verb: u8, precision: Option<usize>) -> String {
    let e = if verb == b'G' { b'E' } else { b'e' };
    let most = precision.map(|digits| digits.max(1));
    let written = exponential(number, b'e', most.map(|digits| digits - 1));
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i64 = exponent.parse().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    let n_digits = i64::try_from(digits.len().max(1)).unwrap_or(i64::MAX);
    let mut threshold = most.map_or(6, |digits| i64::try_from(digits).unwrap_or(i64::MAX));
    if most.is_some() && threshold > n_digits && n_digits > exponent {
        threshold = n_digits;
    }
    if exponent < -4 || exponent >= threshold {
        let precision = usize::try_from(n_digits - 1).unwrap_or_default();
        return exponential(number, e, Some(precision));
    }
    let after_point = usize::try_from((n_digits - 1 - exponent).max(0)).unwrap_or_default();
    if most.is_none() {
        return format!("{number}");
    }
    format!("{number:.after_point$}")
}

/// `mantissa p exponent`, both decimal.
fn binary(number: f64) -> String {
    let (is_negative, mantissa, exponent) = parts(number);
    let sign = if is_negative { "-" } else { "" };
    let mark = if exponent < 0 { "" } else { "+" };
    format!("{sign}{mantissa}p{mark}{exponent}")
}

/// Sign, 53 bits of mantissa, and exponent.
fn parts(number: f64) -> (bool, u64, i32) {
    let bits = number.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or_default();
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if exponent == 0 { (fraction, 1) } else { (fraction | 1 << 52, exponent) };
    (bits >> 63 == 1, mantissa, exponent - 1075)
}

/// `0x1.hhhp±dd`.
fn hexadecimal(number: f64, verb: u8, precision: Option<usize>) -> String {
    let (is_negative, mut mantissa, mut exponent) = parts(number);
    let sign = if is_negative { "-" } else { "" };
    if mantissa == 0 {
        exponent = 0;
    } else {
        exponent += 52;
        while mantissa >> 52 == 0 {
            mantissa <<= 1;
            exponent -= 1;
        }
    }
    if let Some(digits) = precision.filter(|digits| *digits < 13) {
        let drop = u32::try_from(4 * (13 - digits)).unwrap_or_default();
        let (kept, rest) = (mantissa >> drop, mantissa & ((1_u64 << drop) - 1));
        let half = 1_u64 << (drop - 1);
        let is_up = rest > half || rest == half && kept & 1 == 1;
        mantissa = (kept + u64::from(is_up)) << drop;
        if mantissa >> 53 != 0 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let fraction = format!("{:013x}", mantissa & ((1 << 52) - 1));
    let fraction = match precision {
        None => fraction.trim_end_matches('0').to_owned(),
        Some(digits) if digits <= 13 => fraction[..digits].to_owned(),
        Some(digits) => format!("{fraction:0<digits$}"),
    };
    let point = if fraction.is_empty() { "" } else { "." };
    let mark = if exponent < 0 { '-' } else { '+' };
    let text = format!("{sign}0x{}{point}{fraction}p{mark}{:02}", mantissa >> 52, exponent.abs());
    if verb == b'X' { text.to_uppercase() } else { text }
}
