//! Manifests in a file: JSON objects one after the other (one per line or not), a YAML stream, and `List` objects taken
//! apart.
//!
//! JSON is split without being parsed, so that its parts can be parsed side by side. Knows no kind.

use std::borrow::Cow;

use anyhow::{Context, bail};
use memchr::{memchr_iter, memchr2};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One object of a file.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    body: Body<'a>,
    /// Where it is, for people.
    place: Place,
}

#[derive(Debug)]
enum Body<'a> {
    Json(&'a [u8]),
    Value(Value),
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Line(usize),
    Number(usize),
}

/// What an object says of itself.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
}

/// Takes a file apart. Empty documents are left out.
pub(crate) fn read(bytes: &[u8]) -> anyhow::Result<Vec<Document<'_>>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Ok(Vec::new()),
        Some(b'{') => json(bytes),
        Some(_) => yaml(bytes),
    }
}

impl Document<'_> {
    /// Its kind.
    pub(crate) fn head(&self) -> anyhow::Result<Head<'_>> {
        let (api_version, kind) = match &self.body {
            Body::Json(text) => (text_member(text, "apiVersion"), text_member(text, "kind")),
            Body::Value(value) => {
                let text = |name: &str| value[name].as_str().map(Cow::Borrowed);
                (text("apiVersion"), text("kind"))
            }
        };
        match (api_version, kind) {
            (Some(api_version), Some(kind)) => Ok(Head { api_version, kind }),
            (None, _) => bail!("{self}: apiVersion: is missing; is this a Kubernetes object?"),
            (_, None) => bail!("{self}: kind: is missing; is this a Kubernetes object?"),
        }
    }

    /// As plain data.
    pub(crate) fn value(&self) -> anyhow::Result<Value> {
        match &self.body {
            Body::Json(text) => serde_json::from_slice(text).with_context(|| format!("{self} is no JSON")),
            Body::Value(value) => Ok(value.clone()),
        }
    }

    /// As an object of a kind.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.body {
            Body::Json(text) => serde_json::from_slice(text),
            Body::Value(value) => T::deserialize(value),
        }
    }
}

impl std::fmt::Display for Document<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Number(number) => write!(f, "document {number}"),
        }
    }
}

fn json(bytes: &[u8]) -> anyhow::Result<Vec<Document<'_>>> {
    let mut documents = Vec::new();
    let (mut cursor, mut line, mut counted) = (Cursor { bytes, at: 0 }, 1, 0);
    while cursor.skip_space() {
        let from = cursor.at;
        line += newlines(&bytes[counted..from]);
        counted = from;
        if bytes[from] != b'{' {
            bail!("line {line}: an object must begin here; is this a state as `drover dump` writes it?");
        }
        cursor.skip_value();
        let text = &bytes[from..cursor.at];
        match items(text) {
            None => documents.push(Document { body: Body::Json(text), place: Place::Line(line) }),
            Some(items) => {
                let mut line = line;
                let mut counted = text;
                for item in items {
                    let before = counted.len() - remaining(counted, item);
                    line += newlines(&counted[..before]);
                    counted = &counted[before..];
                    documents.push(Document { body: Body::Json(item), place: Place::Line(line) });
                }
            }
        }
    }
    Ok(documents)
}

/// How much of `text` is left where `part`, a slice of it, begins.
fn remaining(text: &[u8], part: &[u8]) -> usize {
    (text.as_ptr() as usize + text.len()).saturating_sub(part.as_ptr() as usize).min(text.len())
}

fn newlines(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

/// The objects in a `List` or `<Kind>List`.
fn items(text: &[u8]) -> Option<Vec<&[u8]>> {
    let kind = text_member(text, "kind")?;
    if !kind.ends_with("List") {
        return None;
    }
    let list = member(text, "items")?;
    let mut cursor = Cursor { bytes: list, at: 0 };
    let mut items = Vec::new();
    cursor.take(b'[')?;
    while cursor.skip_space() && cursor.bytes[cursor.at] != b']' {
        let from = cursor.at;
        cursor.skip_value();
        items.push(&list[from..cursor.at]);
        cursor.take(b',');
    }
    Some(items)
}

/// The text of a member of a JSON object.
fn text_member<'a>(object: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let raw = member(object, name)?;
    let inner = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice::<String>(raw).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// A member of a JSON object, unparsed.
fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut cursor = Cursor { bytes: object, at: 0 };
    cursor.take(b'{')?;
    while cursor.skip_space() && object[cursor.at] == b'"' {
        let from = cursor.at;
        cursor.skip_value();
        let key = &object[from..cursor.at];
        cursor.take(b':')?;
        cursor.skip_space();
        let from = cursor.at;
        cursor.skip_value();
        if key.len() == name.len() + 2 && key[1..key.len() - 1] == *name.as_bytes() {
            return Some(&object[from..cursor.at]);
        }
        cursor.take(b',');
    }
    None
}

/// A place in JSON text. It finds where values end and leaves it to the parser whether they are right.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Goes to the next byte that is no space; false at the end.
    fn skip_space(&mut self) -> bool {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.at < self.bytes.len()
    }

    /// Goes past this byte, if it is the next one.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.skip_space() && self.bytes[self.at] == byte).then(|| self.at += 1)
    }

    /// Goes past one value, or to the end where the text ends within it. Always moves on.
    fn skip_value(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'"' => self.skip_text(),
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => self.skip_scalar(),
                _ => continue,
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// Goes past the closing quote.
    fn skip_text(&mut self) {
        while let Some(offset) = memchr2(b'"', b'\\', &self.bytes[self.at..]) {
            self.at += offset;
            if self.bytes[self.at] == b'"' {
                self.at += 1;
                return;
            }
            self.at = (self.at + 2).min(self.bytes.len());
        }
        self.at = self.bytes.len();
    }

    fn skip_scalar(&mut self) {
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:{}[]\"".contains(byte);
        self.at += self.bytes[self.at..].iter().position(ends).unwrap_or(self.bytes.len() - self.at);
    }
}

fn yaml(bytes: &[u8]) -> anyhow::Result<Vec<Document<'_>>> {
    // A state is large; what stays bounded is what costs more than its text: nesting and aliases.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_documents: usize::MAX,
        },
    };
    let text = std::str::from_utf8(bytes).context("the file is neither JSON nor YAML")?;
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).context("the file is no YAML")?;
    let mut documents = Vec::new();
    for (n, mut value) in values.into_iter().enumerate() {
        let place = Place::Number(n + 1);
        if value.is_null() {
            continue;
        }
        if !value.is_object() {
            bail!("document {}: must be an object with apiVersion and kind", n + 1);
        }
        let is_list = value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match value.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) if is_list => {
                documents.extend(items.into_iter().map(|item| Document { body: Body::Value(item), place }));
            }
            items => {
                if let Some(items) = items {
                    value["items"] = items;
                }
                documents.push(Document { body: Body::Value(value), place });
            }
        }
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let documents = read(text.as_bytes()).unwrap();
        documents.iter().map(|document| format!("{}@{document}", document.head().unwrap().kind)).collect()
    }

    #[test]
    fn objects_are_found_in_every_form() {
        let a = r#"{"apiVersion":"v1","kind":"A","metadata":{"name":"}{\"\\"}}"#;
        let b = r#"{"metadata":{"kind":"X"},"kind":"B","apiVersion":"v1"}"#;
        assert_eq!(kinds(&format!("{a}\n{b}\n")), ["A@line 1", "B@line 2"]);
        assert_eq!(kinds(&format!("{a}{b}")), ["A@line 1", "B@line 1"]);
        assert_eq!(kinds(&format!("\n\n{{\n\"kind\":\"C\",\n\"apiVersion\":\"v1\"}}\n{a}")), ["C@line 3", "A@line 6"]);
        let list = format!("{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{a},\n\n{b}]}}");
        assert_eq!(kinds(&list), ["A@line 2", "B@line 4"]);
        assert_eq!(kinds(r#"{"apiVersion":"v1","kind":"JobList","items":[]}"#), Vec::<String>::new());
        assert_eq!(
            kinds(
                "---\nkind: A\napiVersion: v1\n---\n---\nkind: List\napiVersion: v1\nitems:\n- {kind: B, apiVersion: v1}\n"
            ),
            ["A@document 1", "B@document 2"]
        );
        assert_eq!(kinds("  \n"), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_object_is_named_with_its_place() {
        for (text, wanted) in [
            ("{\"kind\":\"A\"}", "line 1: apiVersion: is missing"),
            ("{\"apiVersion\":\"v1\"}\n", "line 1: kind: is missing"),
            ("{\"kind\":\"A\",\"apiVersion\":\"v1\"}\n7\n", "line 2: an object must begin here"),
            ("- 1\n", "document 1: must be an object"),
            ("\u{0}\u{1}", "no YAML"),
        ] {
            let error = match read(text.as_bytes()) {
                Err(error) => format!("{error:#}"),
                Ok(documents) => {
                    let errors: Vec<_> = documents.iter().filter_map(|document| document.head().err()).collect();
                    format!("{:#}", errors[0])
                }
            };
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn broken_text_ends_in_an_error_of_the_parser() {
        for text in [
            "{",
            "{\"a",
            "{\"kind\":\"A\",",
            "{\"kind\":\"List\",\"items\":[",
            "{\"kind\":\"List\",\"items\":[{]",
            "{]",
            "{\"a\":\\",
        ] {
            for document in read(text.as_bytes()).unwrap() {
                assert!(document.value().is_err(), "{text}");
            }
        }
        let deep = "[".repeat(1_000_000);
        assert!(read(deep.as_bytes()).is_err());
        let deep = format!("{{\"a\":{deep}");
        assert!(read(deep.as_bytes()).unwrap()[0].value().is_err());
    }
}
