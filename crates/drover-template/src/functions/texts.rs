//! Text, and lists of it.

use std::rc::Rc;

use regex::bytes::RegexBuilder;

use super::arguments::argument;
use super::data::Host;
use crate::fault::{Outcome, failed};
use crate::runes;
use crate::value::{MapKey, TEXT_MAP, TEXT_SLICE, Value};

/// Bytes that a compiled regular expression may take.
const REGEX_BYTES: usize = 4 * 1024 * 1024;

/// Whether a list or a text has a value in it.
pub(super) fn is_in(whole: &Value, part: &Value) -> Outcome<bool> {
    let is_text = |item: &Value| matches!(item, Value::Text(_));
    if matches!(part, Value::Missing | Value::Nil)
        && (is_text(whole) || whole.items().is_some_and(|items| items.iter().any(is_text)))
    {
        return failed("nothing is in no text");
    }
    if let (Value::Text(whole), Value::Text(part)) = (whole, part) {
        return Ok(memchr::memmem::find(whole, part).is_some());
    }
    Ok(whole.items().unwrap_or_default().iter().any(|item| match (item, part) {
        (Value::Int(_, one), Value::Int(_, other)) => one == other,
        (Value::Float(one), Value::Float(other)) => one.partial_cmp(other) == Some(std::cmp::Ordering::Equal),
        (Value::Text(one), Value::Text(other)) => one == other,
        _ => false,
    }))
}

pub(super) fn contains_some(given: &[Value], at_end: bool, inverted: bool) -> Outcome<Value> {
    let wanted = given[0].items().unwrap_or_default();
    for item in wanted {
        if is_in(&given[1], item)? != inverted {
            return Ok(Value::Bool(!at_end));
        }
    }
    Ok(Value::Bool(at_end))
}

pub(super) fn indent(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let Value::Int(_, spaces) = given[0] else { return failed("indent needs a number") };
    let Ok(spaces) = usize::try_from(spaces) else { return failed("indent value must be a positive integer") };
    let text = argument(given, 1);
    host.budget.may_make(text.split(|byte| *byte == b'\n').count().saturating_mul(spaces))?;
    let mut out = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            out.push(b'\n');
        }
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(b' ', spaces));
            out.extend_from_slice(line);
        }
    }
    host.text(&out)
}

pub(super) fn join(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let separator = argument(given, 0);
    let mut out = Vec::new();
    for (index, item) in given[1].items().unwrap_or_default().iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(&separator);
        }
        out.extend_from_slice(item.as_text().map_or(&b""[..], |text| text));
        host.budget.may_make(out.len())?;
    }
    host.text(&out)
}

/// Go's `strings.Split`.
fn parts(text: &[u8], separator: &[u8]) -> Vec<Vec<u8>> {
    if separator.is_empty() {
        return runes::runes(text).map(|(at, _, width)| text[at..at + width].to_vec()).collect();
    }
    let mut parts = Vec::new();
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, separator) {
        parts.push(text[from..at].to_vec());
        from = at + separator.len();
    }
    parts.push(text[from..].to_vec());
    parts
}

pub(super) fn split(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = argument(given, 1);
    let text = trimmed(&text, runes::is_space);
    if text.is_empty() {
        return Ok(Value::list(TEXT_SLICE, Vec::new()));
    }
    host.budget.make(text.len().saturating_mul(size_of::<Value>()))?;
    Ok(Value::text_list(parts(text, &argument(given, 0))))
}

pub(super) fn split_to_map(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (text, between) = (argument(given, 2), argument(given, 1));
    let text = trimmed(&text, runes::is_space);
    host.budget.make(text.len().saturating_mul(size_of::<Value>()))?;
    let mut map = std::collections::BTreeMap::new();
    if !text.is_empty() {
        for part in parts(text, &argument(given, 0)) {
            if let Some(at) = memchr::memmem::find(&part, &between) {
                map.insert(MapKey::Text(Rc::from(&part[..at])), Value::text(&part[at + between.len()..]));
            }
        }
    }
    Ok(Value::map(TEXT_MAP, map))
}

fn trimmed(text: &[u8], is_cut: impl Fn(char) -> bool) -> &[u8] {
    let kept = runes::runes(text).filter(|(_, char, _)| !is_cut(*char));
    let mut ends = None;
    for (at, _, width) in kept {
        ends = Some((ends.map_or(at, |(from, _)| from), at + width));
    }
    ends.map_or(&[], |(from, to)| &text[from..to])
}

pub(super) fn trim(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let cut = argument(given, 0);
    let cut: std::collections::BTreeSet<char> = runes::runes(&cut).map(|(_, char, _)| char).collect();
    host.text(trimmed(&argument(given, 1), |char| cut.contains(&char)))
}

pub(super) fn trim_space(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(trimmed(&argument(given, 0), runes::is_space))
}

pub(super) fn trim_prefix(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (prefix, text) = (argument(given, 0), argument(given, 1));
    host.text(text.strip_prefix(&*prefix).unwrap_or(&text))
}

pub(super) fn trim_suffix(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (suffix, text) = (argument(given, 0), argument(given, 1));
    host.text(text.strip_suffix(&*suffix).unwrap_or(&text))
}

pub(super) fn to_lower(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(&runes::mapped(&argument(given, 0), runes::lower))
}

pub(super) fn to_upper(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(&runes::mapped(&argument(given, 0), runes::upper))
}

/// The first letter of each word becomes a capital one.
pub(super) fn to_title(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = argument(given, 0);
    let mut out = Vec::new();
    let mut is_inside = false;
    let mut last = ' ';
    for (at, char, width) in runes::runes(&text) {
        let is_word = runes::is_letter(char) || runes::is_digit(char) || char == '_';
        let next = runes::first(&text[at + width..]).0;
        // Between letters these belong to the word.
        let is_alphanumeric = |char| runes::is_letter(char) || runes::is_digit(char);
        let joins = matches!(char, '\'' | '.' | ':' | '\u{2019}') && is_alphanumeric(last) && is_alphanumeric(next);
        if runes::is_letter(char) && !is_inside {
            runes::push(&mut out, runes::upper(char));
            is_inside = true;
        } else {
            out.extend_from_slice(&text[at..at + width]);
            is_inside = is_inside && (is_word || joins);
        }
        last = char;
    }
    host.text(&out)
}

pub(super) fn replace_all(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (from, to, text) = (argument(given, 0), argument(given, 1), argument(given, 2));
    let mut out = Vec::new();
    if from.is_empty() {
        for (at, _, width) in runes::runes(&text) {
            out.extend_from_slice(&to);
            out.extend_from_slice(&text[at..at + width]);
            host.budget.may_make(out.len())?;
        }
        out.extend_from_slice(&to);
        return host.text(&out);
    }
    let mut last = 0;
    for at in memchr::memmem::find_iter(&text, &*from) {
        out.extend_from_slice(&text[last..at]);
        out.extend_from_slice(&to);
        host.budget.may_make(out.len())?;
        last = at + from.len();
    }
    out.extend_from_slice(&text[last..]);
    host.text(&out)
}

fn regex(given: &[Value]) -> Outcome<regex::bytes::Regex> {
    let text = argument(given, 0);
    let Ok(text) = std::str::from_utf8(&text) else { return failed("error parsing regexp: invalid UTF-8") };
    let built = RegexBuilder::new(text).size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES).build();
    built.or_else(|error| failed(format!("error parsing regexp: {error}")))
}

pub(super) fn regex_match(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = argument(given, 1);
    host.budget.steps(text.len() as u64)?;
    Ok(Value::Bool(regex(given)?.is_match(&text)))
}

pub(super) fn regex_replace_all(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let (to, text) = (argument(given, 1), argument(given, 2));
    host.budget.steps(text.len() as u64)?;
    let regex = regex(given)?;
    let mut out = Vec::new();
    let mut last = 0;
    for found in regex.captures_iter(&text) {
        let Some(whole) = found.get(0) else { break };
        out.extend_from_slice(&text[last..whole.start()]);
        found.expand(&to, &mut out);
        host.budget.may_make(out.len())?;
        last = whole.end();
    }
    out.extend_from_slice(&text[last..]);
    host.text(&out)
}
