//! Sizes as Kubernetes writes them: `10Gi`, `1.5G`, `1024`.

/// The bytes of a quantity, rounded up; none for a text that is no quantity, and 0 for an empty one.
pub fn bytes(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let factor: i128 = match suffix {
        "" => 1,
        "k" => 1000,
        "M" => 1000_i128.pow(2),
        "G" => 1000_i128.pow(3),
        "T" => 1000_i128.pow(4),
        "P" => 1000_i128.pow(5),
        "E" => 1000_i128.pow(6),
        "Ki" => 1024,
        "Mi" => 1024_i128.pow(2),
        "Gi" => 1024_i128.pow(3),
        "Ti" => 1024_i128.pow(4),
        "Pi" => 1024_i128.pow(5),
        "Ei" => 1024_i128.pow(6),
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scaled = digits.checked_mul(factor)?;
    i64::try_from((scaled + scale - 1) / scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_bytes() {
        for (text, wanted) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("1024", Some(1024)),
            ("1k", Some(1000)),
            ("10Gi", Some(10 << 30)),
            ("1.5Gi", Some(3 << 29)),
            ("0.0001k", Some(1)),
            ("7E", Some(7_000_000_000_000_000_000)),
            ("8Ei", None),
            ("10GB", None),
            ("1.", None),
            (".5", None),
            ("-1", None),
            ("1.2.3", None),
            ("99999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(bytes(text), wanted, "{text:?}");
        }
    }
}
