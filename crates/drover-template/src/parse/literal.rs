//! Literals of text and of characters.

use crate::runes;

/// What is between the quotes: `"` with escapes, or a backquote without.
pub(crate) fn unquote(literal: &[u8]) -> Option<Vec<u8>> {
    let (&quote, rest) = literal.split_first()?;
    let (&last, mut inner) = rest.split_last()?;
    if last != quote {
        return None;
    }
    if quote == b'`' {
        return Some(inner.iter().copied().filter(|byte| *byte != b'\r').collect());
    }
    let mut out = Vec::with_capacity(inner.len());
    while !inner.is_empty() {
        if inner[0] == quote || inner[0] == b'\n' {
            return None;
        }
        inner = one(inner, quote, &mut out)?.1;
    }
    Some(out)
}

/// The character between apostrophes.
pub(crate) fn character(literal: &[u8]) -> Option<u32> {
    let inner = literal.get(1..)?;
    if matches!(inner.first()?, b'\'' | b'\n') {
        return None;
    }
    let mut out = Vec::new();
    let (char, rest) = one(inner, b'\'', &mut out)?;
    (rest == b"'").then_some(char)
}

/// Reads one character or escape, adds its bytes, and returns its number and what is left.
fn one<'a>(text: &'a [u8], quote: u8, out: &mut Vec<u8>) -> Option<(u32, &'a [u8])> {
    if text[0] != b'\\' {
        let (char, width) = runes::first(text);
        if char == runes::REPLACEMENT && width == 1 {
            // Go keeps the byte in text that has escapes, and so do those that have none.
            out.push(text[0]);
        } else {
            runes::push(out, char);
        }
        return Some((u32::from(char), &text[width..]));
    }
    let (&escape, rest) = text[1..].split_first()?;
    let simple = match escape {
        b'a' => Some(7),
        b'b' => Some(8),
        b'f' => Some(12),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        b'v' => Some(11),
        b'\\' => Some(b'\\'),
        b'\'' | b'"' if escape == quote => Some(escape),
        _ => None,
    };
    if let Some(byte) = simple {
        out.push(byte);
        return Some((u32::from(byte), rest));
    }
    let (digits, radix, rest) = match escape {
        b'x' => (rest.get(..2)?, 16, rest.get(2..)?),
        b'u' => (rest.get(..4)?, 16, rest.get(4..)?),
        b'U' => (rest.get(..8)?, 16, rest.get(8..)?),
        b'0'..=b'7' => (text.get(1..4)?, 8, text.get(4..)?),
        _ => return None,
    };
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    if !digits.iter().all(is_digit) {
        return None;
    }
    let number = u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?;
    if matches!(escape, b'u' | b'U') {
        runes::push(out, char::from_u32(number)?);
    } else {
        out.push(u8::try_from(number).ok()?);
    }
    Some((number, rest))
}
