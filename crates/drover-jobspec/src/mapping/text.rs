//! Values as HCL writes them, so that reading them gives the same values.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

/// What is written so in an expression, and is no name.
const WORDS: [&str; 12] =
    ["true", "false", "null", "for", "in", "if", "else", "endif", "endfor", "var", "local", "dynamic"];
/// Elements and bytes of a list that stands on one line.
const LINE: (usize, usize) = (8, 80);

/// A value; its lines after the first are indented by so many spaces.
pub(super) fn expression(value: &Json, indent: usize) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quoted(text),
        Json::Array(values) => list(values, indent),
        Json::Object(values) => object(values, indent),
    }
}

/// A text of several lines as a heredoc where that can hold it, else in quotes.
pub(super) fn long(text: &str) -> String {
    const END: &str = "EOH";
    let is_plain = |letter: char| matches!(letter, '\n' | '\t') || !letter.is_control();
    let fits = text.ends_with('\n')
        && text.chars().all(is_plain)
        && !text.lines().any(|line| line.trim() == END)
        && !text.contains("$${")
        && !text.contains("%%{");
    if !fits {
        return quoted(text);
    }
    let mut written = format!("<<{END}\n");
    escape(text, &mut written, |letter, written| written.push(letter));
    written + END
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut written = "\"".to_owned();
    escape(text, &mut written, in_quotes);
    written.push('"');
    written
}

/// A block's label, which is never a template.
pub(super) fn label(text: &str) -> String {
    let mut written = "\"".to_owned();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '$' | '%' if letters.peek() == Some(&'{') => unicode(letter, &mut written),
            letter => in_quotes(letter, &mut written),
        }
    }
    written.push('"');
    written
}

/// Whether an attribute may have the name.
pub(super) fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
        && !WORDS.contains(&text)
}

fn list(values: &[Json], indent: usize) -> String {
    let deeper = indent.saturating_add(2);
    let each: Vec<String> = values.iter().map(|value| expression(value, deeper)).collect();
    let on_one = format!("[{}]", each.join(", "));
    let is_short = each.len() <= LINE.0 && on_one.len() <= LINE.1;
    if is_short && !values.iter().any(Json::is_object) {
        return on_one;
    }
    let lines = each.iter().fold(String::new(), |lines, each| format!("{lines}{}{each},\n", spaces(deeper)));
    format!("[\n{lines}{}]", spaces(indent))
}

fn object(values: &Map<String, Json>, indent: usize) -> String {
    if values.is_empty() {
        return "{}".to_owned();
    }
    let deeper = indent.saturating_add(2);
    let mut written = "{\n".to_owned();
    let each = values.iter().map(|(key, value)| {
        let key = if is_name(key) { key.clone() } else { quoted(key) };
        (key, expression(value, deeper))
    });
    written.push_str(&assignments(&each.collect::<Vec<_>>(), deeper));
    written + &spaces(indent) + "}"
}

/// Names with values, a line for each. The values of neighbours that are one line long stand below each other.
pub(super) fn assignments(each: &[(String, String)], indent: usize) -> String {
    let mut written = String::new();
    for lines in each.chunk_by(|(_, one), (_, next)| !one.contains('\n') && !next.contains('\n')) {
        let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        for (name, value) in lines {
            let line = format!("{}{name:width$} = {value}\n", spaces(indent));
            written.push_str(&line);
        }
    }
    written
}

pub(super) fn spaces(n: usize) -> String {
    " ".repeat(n)
}

/// Writes a text that is a template where it is read: what only the node resolves stays, and all that would be
/// resolved before is escaped.
fn escape(text: &str, written: &mut String, one: impl Fn(char, &mut String)) {
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let after = rest.get(letter.len_utf8()..).unwrap_or_default();
        let opens = matches!(letter, '$' | '%') && after.starts_with('{');
        let doubled = format!("{letter}{{");
        if opens && letter == '$' && is_reference(after) {
            written.push('$');
        } else if opens {
            written.push(letter);
            written.push(letter);
        } else if matches!(letter, '$' | '%') && after.starts_with(&doubled) {
            // It would be read as the escape of what follows.
            unicode(letter, written);
        } else {
            one(letter, written);
        }
        rest = after;
    }
}

fn in_quotes(letter: char, written: &mut String) {
    match letter {
        '"' => written.push_str("\\\""),
        '\\' => written.push_str("\\\\"),
        '\n' => written.push_str("\\n"),
        '\r' => written.push_str("\\r"),
        '\t' => written.push_str("\\t"),
        letter if letter.is_control() => unicode(letter, written),
        letter => written.push(letter),
    }
}

fn unicode(letter: char, written: &mut String) {
    // Writing to a string cannot fail.
    write!(written, "\\u{:04x}", u32::from(letter)).ok();
}

/// Whether `{name.name}` begins here, which reading leaves as it is.
fn is_reference(text: &str) -> bool {
    let Some((inner, _)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) else { return false };
    inner.trim_matches(' ').split('.').all(is_name)
}
