//! Text in quotes, as Go's `strconv.Quote` writes it.

use crate::runes;

/// With escapes for what is not seen.
pub(crate) fn quote(text: &[u8]) -> Vec<u8> {
    quoted(text, b'"', false)
}

/// With escapes for all that is not ASCII.
pub(crate) fn quote_to_ascii(text: &[u8]) -> Vec<u8> {
    quoted(text, b'"', true)
}

/// Between quotes of the caller's.
pub(crate) fn quoted(text: &[u8], quote: u8, is_ascii: bool) -> Vec<u8> {
    let mut out = vec![quote];
    for (at, char, width) in runes::runes(text) {
        if char == runes::REPLACEMENT && width == 1 {
            out.extend_from_slice(format!("\\x{:02x}", text[at]).as_bytes());
            continue;
        }
        let number = u32::from(char);
        let escape = match char {
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            '\\' => "\\\\",
            _ if number == u32::from(quote) => {
                out.extend_from_slice(&[b'\\', quote]);
                continue;
            }
            _ => "",
        };
        if !escape.is_empty() {
            out.extend_from_slice(escape.as_bytes());
        } else if runes::is_print(char) && (char.is_ascii() || !is_ascii) {
            runes::push(&mut out, char);
        } else if number < 0x20 || number == 0x7f {
            out.extend_from_slice(format!("\\x{number:02x}").as_bytes());
        } else if number < 0x1_0000 {
            out.extend_from_slice(format!("\\u{number:04x}").as_bytes());
        } else {
            out.extend_from_slice(format!("\\U{number:08x}").as_bytes());
        }
    }
    out.push(quote);
    out
}

/// Whether it can stand between backquotes.
pub(crate) fn can_backquote(text: &[u8]) -> bool {
    runes::runes(text).all(|(_, char, width)| {
        let is_wrong = char == runes::REPLACEMENT && width == 1;
        !is_wrong && char != '\u{feff}' && char != '`' && char != '\u{7f}' && (char >= ' ' || char == '\t')
    })
}
