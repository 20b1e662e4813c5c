//! JSON, YAML, base64 and digests.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::arguments::argument;
use super::data::Host;
use crate::fault::{Outcome, failed};
use crate::format;
use crate::runes;
use crate::value::{GoType, MapKey, VARIABLE_ITEM, Value, YAML_MAP};

pub(super) fn parse_json(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = argument(given, 0);
    if text.is_empty() {
        return Ok(Value::any_map::<&str>([]));
    }
    host.budget.make(text.len().saturating_mul(8))?;
    let text = String::from_utf8_lossy(&text);
    match serde_json::from_str::<Json>(&text) {
        Ok(json) => Ok(from_json(json)),
        Err(error) => failed(error.to_string()),
    }
}

fn from_json(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(is) => Value::Bool(is),
        Json::Number(number) => Value::Float(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::text(text),
        Json::Array(items) => Value::any_list(items.into_iter().map(from_json).collect()),
        Json::Object(entries) => Value::any_map(entries.into_iter().map(|(key, item)| (key, from_json(item)))),
    }
}

pub(super) fn parse_yaml(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let text = argument(given, 0);
    if text.is_empty() {
        return Ok(Value::any_map::<&str>([]));
    }
    host.budget.make(text.len().saturating_mul(16))?;
    let Ok(text) = std::str::from_utf8(&text) else { return failed("yaml: invalid UTF-8") };
    match serde_saphyr::from_str::<Json>(text) {
        Ok(json) => Ok(from_yaml(json)),
        Err(error) => failed(format!("yaml: {error}")),
    }
}

fn from_yaml(json: Json) -> Value {
    match json {
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Value::int(int),
            (None, Some(uint)) => Value::Uint(crate::value::UintKind::Uint64, uint),
            _ => Value::Float(number.as_f64().unwrap_or_default()),
        },
        Json::Array(items) => Value::any_list(items.into_iter().map(from_yaml).collect()),
        Json::Object(entries) => {
            let entries = entries.into_iter().map(|(key, item)| (yaml_key(&key), from_yaml(item)));
            Value::map(YAML_MAP, entries.collect())
        }
        other => from_json(other),
    }
}

/// A key that looks like a number is one.
fn yaml_key(key: &str) -> MapKey {
    match key.parse::<i64>() {
        Ok(number) if number.to_string() == key => MapKey::Int(crate::value::IntKind::Int, number),
        _ => MapKey::Text(std::rc::Rc::from(key.as_bytes())),
    }
}

/// With line breaks or without, and with escapes of what HTML takes for its own or without.
pub(super) fn to_json(host: &Host<'_>, value: &Value, (is_pretty, is_escaped): (bool, bool)) -> Outcome<Value> {
    let mut writer = JsonWriter { host, out: Vec::new(), is_pretty, is_escaped };
    writer.value(value, 0)?;
    host.text(&writer.out)
}

struct JsonWriter<'a> {
    host: &'a Host<'a>,
    out: Vec<u8>,
    is_pretty: bool,
    is_escaped: bool,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Outcome<()> {
        self.host.budget.deeper()?;
        self.host.budget.may_make(self.out.len())?;
        match value {
            Value::Missing | Value::Nil | Value::NilOf(_) => self.out.extend_from_slice(b"null"),
            Value::Bool(is) => self.out.extend_from_slice(is.to_string().as_bytes()),
            Value::Int(_, number) | Value::Nanos(number) => self.out.extend_from_slice(number.to_string().as_bytes()),
            Value::Uint(_, number) => self.out.extend_from_slice(number.to_string().as_bytes()),
            Value::Float(number) => {
                if !number.is_finite() {
                    return failed("json: unsupported value");
                }
                self.out.extend_from_slice(json_float(*number).as_bytes());
            }
            Value::Text(text) => self.text(text),
            Value::List(list) => {
                self.many((b'[', b']'), list.items.iter().map(|item| (None, item.clone())).collect(), depth)?;
            }
            Value::Pointer(to) => return self.value(to, depth),
            Value::Record(record) if std::ptr::eq(record.of, &raw const VARIABLE_ITEM) => {
                let text = record.fields.get(1).and_then(Value::as_text).cloned().unwrap_or_default();
                let quoted = format::quote(&text);
                if serde_json::from_slice::<Json>(&quoted).is_err() {
                    return failed("json: error calling MarshalJSON for type dependency.NomadVarItem");
                }
                self.out.extend_from_slice(&quoted);
            }
            Value::Record(record) => {
                let names = record.of.fields.iter().map(|(name, _)| Some(name.as_bytes().to_vec()));
                self.many((b'{', b'}'), names.zip(record.fields.iter().cloned()).collect(), depth)?;
            }
            Value::Map(map) => {
                let mut entries = Vec::new();
                for (key, item) in value.entries().unwrap_or_default() {
                    let Some(key) = key.as_text().filter(|_| map.of != YAML_MAP) else {
                        return failed(format!("json: unsupported type: {}", map.of));
                    };
                    entries.push((Some(key.to_vec()), item));
                }
                if map.of == YAML_MAP {
                    return failed(format!("json: unsupported type: {}", map.of));
                }
                self.many((b'{', b'}'), entries, depth)?;
            }
            Value::Complex(..) | Value::Channel(_) | Value::Scratch => {
                return failed(format!("json: unsupported type: {}", value.type_name()));
            }
        }
        Ok(())
    }

    fn many(&mut self, (open, close): (u8, u8), items: Vec<(Option<Vec<u8>>, Value)>, depth: usize) -> Outcome<()> {
        self.out.push(open);
        let is_empty = items.is_empty();
        for (index, (key, item)) in items.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            self.line(depth + 1);
            if let Some(key) = key {
                self.text(&key);
                self.out.extend_from_slice(if self.is_pretty { b": " } else { b":" });
            }
            self.value(&item, depth + 1)?;
        }
        if !is_empty {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if self.is_pretty {
            self.out.push(b'\n');
            self.out.extend(std::iter::repeat_n(b' ', 2 * depth));
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for (_, char, width) in runes::runes(text) {
            match char {
                '"' => self.out.extend_from_slice(b"\\\""),
                '\\' => self.out.extend_from_slice(b"\\\\"),
                '\n' => self.out.extend_from_slice(b"\\n"),
                '\r' => self.out.extend_from_slice(b"\\r"),
                '\t' => self.out.extend_from_slice(b"\\t"),
                '\u{8}' => self.out.extend_from_slice(b"\\b"),
                '\u{c}' => self.out.extend_from_slice(b"\\f"),
                runes::REPLACEMENT if width == 1 => self.out.extend_from_slice(b"\\ufffd"),
                '<' | '>' | '&' if !self.is_escaped => self.out.push(text_byte(char)),
                '<' | '>' | '&' | '\0'..'\u{20}' | '\u{2028}' | '\u{2029}' => {
                    self.out.extend_from_slice(format!("\\u{:04x}", u32::from(char)).as_bytes());
                }
                other => runes::push(&mut self.out, other),
            }
        }
        self.out.push(b'"');
    }
}

fn text_byte(char: char) -> u8 {
    u8::try_from(u32::from(char)).unwrap_or(b'?')
}

fn json_float(number: f64) -> String {
    let size = number.abs();
    if size < 1e-6 && size > 0.0 || size >= 1e21 {
        let text = format::shortest(number, b'e');
        return text.replace("e-0", "e-");
    }
    format::shortest(number, b'f')
}

pub(super) fn to_yaml(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let mut out = String::new();
    yaml(host, &given[0], 0, &mut out)?;
    host.text(out.trim().as_bytes())
}

fn yaml(host: &Host<'_>, value: &Value, depth: usize, out: &mut String) -> Outcome<()> {
    host.budget.deeper()?;
    host.budget.may_make(out.len())?;
    let pad = " ".repeat(depth);
    if let Value::Pointer(to) = value {
        return yaml(host, to, depth, out);
    }
    let entries = match value {
        Value::Record(record) => Some(
            record
                .of
                .fields
                .iter()
                .map(|(name, _)| MapKey::Text(std::rc::Rc::from(name.to_lowercase().as_bytes())))
                .zip(record.fields.iter().cloned())
                .collect(),
        ),
        other => other.entries(),
    };
    if let Some(entries) = entries {
        if entries.is_empty() {
            out.push_str("{}\n");
        }
        for (key, item) in entries {
            out.push_str(&pad);
            scalar(&key.value(), out)?;
            out.push(':');
            let is_list = item.items().is_some_and(|items| !items.is_empty());
            let is_map = item.entries().is_some_and(|entries| !entries.is_empty())
                || matches!(item.indirect().0, Value::Record(_));
            if is_list || is_map {
                out.push('\n');
                yaml(host, &item, if is_map { depth + 2 } else { depth }, out)?;
            } else {
                out.push(' ');
                yaml(host, &item, depth, out)?;
            }
        }
        return Ok(());
    }
    if let Some(items) = value.items() {
        if items.is_empty() {
            out.push_str("[]\n");
        }
        for item in items {
            out.push_str(&pad);
            out.push_str("- ");
            let from = out.len();
            yaml(host, item, depth + 2, out)?;
            // The first line of what is inside stands behind the dash.
            if out[from..].starts_with(' ') {
                let inner = out[from..].trim_start_matches(' ').to_owned();
                out.truncate(from);
                out.push_str(&inner);
            }
        }
        return Ok(());
    }
    scalar(value, out)?;
    out.push('\n');
    Ok(())
}

fn scalar(value: &Value, out: &mut String) -> Outcome<()> {
    match value {
        Value::Missing | Value::Nil | Value::NilOf(GoType::Pointer(_) | GoType::Any) => out.push_str("null"),
        Value::Bool(is) => out.push_str(if *is { "true" } else { "false" }),
        Value::Int(_, number) | Value::Nanos(number) => out.push_str(&number.to_string()),
        Value::Uint(_, number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&format::shortest(*number, b'g')),
        Value::Text(text) => out.push_str(&yaml_text(&String::from_utf8_lossy(text))),
        other => return failed(format!("cannot marshal type: {}", other.type_name())),
    }
    Ok(())
}

/// Plain where it is read as the same text again, else in quotes.
fn yaml_text(text: &str) -> String {
    let is_other = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "<<", "="]
        .contains(&text.to_lowercase().as_str())
        || parse_number(text);
    if is_other {
        return format!("{text:?}");
    }
    let starts_wrong = text
        .starts_with(['!', '&', '*', '{', '}', '[', ']', ',', '#', '|', '>', '@', '`', '"', '\'', '%'])
        || ["- ", "? ", ": "].iter().any(|start| text.starts_with(start))
        || ["-", "?", ":", "---", "..."].contains(&text);
    let is_wrong = text.starts_with(' ') || text.ends_with([' ', ':']) || text.contains(": ") || text.contains(" #");
    if text.contains(|char: char| char.is_control()) {
        return format!("{text:?}");
    }
    if starts_wrong || is_wrong { format!("'{}'", text.replace('\'', "''")) } else { text.to_owned() }
}

fn parse_number(text: &str) -> bool {
    crate::parse::parse_int(text, 0).is_some() || crate::parse::parse_float(text).is_some()
}

pub(super) fn base64_encode(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(STANDARD.encode(argument(given, 0)).as_bytes())
}

pub(super) fn base64_url_encode(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(URL_SAFE.encode(argument(given, 0)).as_bytes())
}

/// Line breaks in it are skipped.
fn without_lines(given: &[Value]) -> Vec<u8> {
    argument(given, 0).iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect()
}

pub(super) fn base64_decode(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match STANDARD.decode(without_lines(given)) {
        Ok(text) => host.text(&text),
        Err(error) => failed(format!("base64Decode: {error}")),
    }
}

pub(super) fn base64_url_decode(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match URL_SAFE.decode(without_lines(given)) {
        Ok(text) => host.text(&text),
        Err(error) => failed(format!("base64URLDecode: {error}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

pub(super) fn md5sum(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(hex(&md5::Md5::digest(argument(given, 0))).as_bytes())
}

pub(super) fn sha256_hex(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(hex(&Sha256::digest(argument(given, 0))).as_bytes())
}

/// The message comes first.
pub(super) fn hmac_sha256_hex(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&argument(given, 1)) else { return failed("no key of HMAC") };
    mac.update(&argument(given, 0));
    host.text(hex(&mac.finalize().into_bytes()).as_bytes())
}
