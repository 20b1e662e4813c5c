//! Encodings, hashes and identifiers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use drover_api::names::hex;

use super::arguments::Arguments;
use super::context::Outcome;
use crate::value::Value;

/// What a query keeps as it is; a space becomes `+`.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>) -> Option<Outcome> {
    Some(match name {
        "base64encode" => one(arguments, |text| Ok(STANDARD.encode(text))),
        "base64decode" => one(arguments, |text| {
            let bytes = STANDARD.decode(text).map_err(|error| format!("is not base64: {error}"))?;
            String::from_utf8(bytes).map_err(|_| "does not hold text in UTF-8".to_owned())
        }),
        "urlencode" => one(arguments, |text| Ok(utf8_percent_encode(text, QUERY).to_string().replace(' ', "+"))),
        "md5" => one(arguments, |text| Ok(hex(&Md5::digest(text)))),
        "sha1" => one(arguments, |text| Ok(hex(&Sha1::digest(text)))),
        "sha256" => one(arguments, |text| Ok(hex(&Sha256::digest(text)))),
        "sha512" => one(arguments, |text| Ok(hex(&Sha512::digest(text)))),
        "uuidv4" => arguments.count(0).map(|()| {
            let mut bytes = [0; 16];
            fastrand::fill(&mut bytes);
            Value::Text(uuid(bytes, 4))
        }),
        "uuidv5" => arguments.count(2).and_then(|()| {
            let mut hasher = Sha1::new();
            hasher.update(namespace(&arguments.text(0)?)?);
            hasher.update(arguments.text(1)?);
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hasher.finalize()[..16]);
            Ok(Value::Text(uuid(bytes, 5)))
        }),
        "jsonencode" => arguments.count(1).and_then(|()| Ok(Value::Text(json(arguments.value(0)?)))),
        "jsondecode" => arguments.count(1).and_then(|()| {
            let json = serde_json::from_str(&arguments.text(0)?).map_err(|error| format!("is not JSON: {error}"))?;
            Ok(Value::from_json(&json))
        }),
        "yamlencode" => arguments.count(1).and_then(|()| {
            serde_saphyr::to_string(&arguments.value(0)?.to_json()).map(Value::Text).map_err(|error| error.to_string())
        }),
        "yamldecode" => arguments.count(1).and_then(|()| {
            let json: serde_json::Value =
                serde_saphyr::from_str(&arguments.text(0)?).map_err(|error| format!("is not YAML: {error}"))?;
            Ok(Value::from_json(&json))
        }),
        "csvdecode" => arguments.count(1).and_then(|()| csv(&arguments.text(0)?)),
        _ => return None,
    })
}

/// As Go writes JSON that may stand in a page.
pub(super) fn json(value: &Value) -> String {
    let escaped = |text: String, letter: char| text.replace(letter, &format!("\\u{:04x}", u32::from(letter)));
    ['<', '>', '&', '\u{2028}', '\u{2029}'].into_iter().fold(value.to_json().to_string(), escaped)
}

fn one(arguments: &Arguments<'_>, change: impl Fn(&str) -> Result<String, String>) -> Outcome {
    arguments.count(1)?;
    change(&arguments.text(0)?).map(Value::Text)
}

/// RFC 9562: the version in four bits, the variant in two.
fn uuid(mut bytes: [u8; 16], version: u8) -> String {
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hex(&bytes);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// A UUID, or one of the four well-known names.
fn namespace(text: &str) -> Result<Vec<u8>, String> {
    let digits = match text {
        "dns" => "6ba7b8109dad11d180b400c04fd430c8".to_owned(),
        "url" => "6ba7b8119dad11d180b400c04fd430c8".to_owned(),
        "oid" => "6ba7b8129dad11d180b400c04fd430c8".to_owned(),
        "x500" => "6ba7b8149dad11d180b400c04fd430c8".to_owned(),
        other => other.replace('-', ""),
    };
    let wrong = || format!("`{text}` is no UUID and none of dns, url, oid, x500");
    if digits.len() != 32 || !digits.is_ascii() {
        return Err(wrong());
    }
    (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong())).collect()
}

/// RFC 4180: the first line names the columns.
fn csv(text: &str) -> Outcome {
    let mut lines = records(text)?.into_iter();
    let names = lines.next().ok_or("lacks the line with the names of the columns")?;
    let rows = lines.map(|line| {
        if line.len() != names.len() {
            return Err(format!("a line has {} fields, and there are {} columns", line.len(), names.len()));
        }
        Ok(Value::Map(names.iter().cloned().zip(line.into_iter().map(Value::Text)).collect()))
    });
    rows.collect::<Result<_, _>>().map(Value::List)
}

fn records(text: &str) -> Result<Vec<Vec<String>>, String> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if field.is_empty() => loop {
                match letters.next() {
                    Some('"') if letters.next_if_eq(&'"').is_some() => field.push('"'),
                    Some('"') => break,
                    Some(other) => field.push(other),
                    None => return Err("a quoted field does not end".to_owned()),
                }
            },
            ',' => record.push(std::mem::take(&mut field)),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\n' => {
                if !(record.is_empty() && field.is_empty()) {
                    record.push(std::mem::take(&mut field));
                    records.push(std::mem::take(&mut record));
                }
            }
            other => field.push(other),
        }
    }
    if !(record.is_empty() && field.is_empty()) {
        record.push(field);
        records.push(record);
    }
    Ok(records)
}
