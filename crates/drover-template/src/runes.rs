//! Text as Go takes it: bytes that mostly are UTF-8, where a byte that is not counts as one character U+FFFD.

use std::sync::LazyLock;

use regex::Regex;

/// What stands for a byte that is no character.
pub(crate) const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The first character and how many bytes it takes; for none at all, U+FFFD and 0.
pub(crate) fn first(text: &[u8]) -> (char, usize) {
    let Some(&byte) = text.first() else { return (REPLACEMENT, 0) };
    if byte < 0x80 {
        return (char::from(byte), 1);
    }
    let window = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(window) {
        Ok(valid) => valid,
        Err(error) => std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default(),
    };
    valid.chars().next().map_or((REPLACEMENT, 1), |char| (char, char.len_utf8()))
}

/// Characters with the number of their first byte and of their bytes.
pub(crate) fn runes(text: &[u8]) -> impl Iterator<Item = (usize, char, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (char, width) = first(text.get(at..)?);
        if width == 0 {
            return None;
        }
        at += width;
        Some((at - width, char, width))
    })
}

/// How many characters there are.
pub(crate) fn count(text: &[u8]) -> usize {
    runes(text).count()
}

/// Changes each character.
pub(crate) fn mapped(text: &[u8], change: impl Fn(char) -> char) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for (_, char, _) in runes(text) {
        push(&mut out, change(char));
    }
    out
}

/// Adds a character.
pub(crate) fn push(out: &mut Vec<u8>, char: char) {
    out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The character's one capital letter; itself, where it has none or several.
pub(crate) fn upper(char: char) -> char {
    let mut upper = char.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(one), None) => one,
        _ => char,
    }
}

/// The character's small letter.
pub(crate) fn lower(char: char) -> char {
    char.to_lowercase().next().unwrap_or(char)
}

/// A letter.
pub(crate) fn is_letter(char: char) -> bool {
    if char.is_ascii() { char.is_ascii_alphabetic() } else { matches(LETTER.as_ref(), char) }
}

/// A digit of any script.
pub(crate) fn is_digit(char: char) -> bool {
    if char.is_ascii() { char.is_ascii_digit() } else { matches(DIGIT.as_ref(), char) }
}

/// What is seen when it is printed; the only space among it is the usual one.
pub(crate) fn is_print(char: char) -> bool {
    if char.is_ascii() { (' '..='~').contains(&char) } else { matches(PRINTED.as_ref(), char) }
}

/// White space as Go's package `unicode` has it.
pub(crate) fn is_space(char: char) -> bool {
    char.is_whitespace()
}

static LETTER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{L}$").ok());
static DIGIT: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^\p{Nd}$").ok());
static PRINTED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}]$").ok());

fn matches(class: Option<&Regex>, char: char) -> bool {
    class.is_some_and(|class| class.is_match(char.encode_utf8(&mut [0; 4])))
}
