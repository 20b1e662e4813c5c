//! A JSON text as a tree whose values know where they stand.
//!
//! Input: text of others. Output: the tree, or the first thing that is wrong. Bounded by the size of the text, its
//! depth and what its numbers may hold; a name that stands twice in one object is an error. It must never know what
//! the JSON means.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::value::{Number, Value};

/// Bytes of a text.
const SIZE: usize = 1 << 20;
/// Objects and lists in each other.
const DEPTH: usize = 64;

/// A value and where it begins, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) offset: usize,
    pub(crate) node: Node,
}

/// A value.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    /// In the order of the text.
    Map(Vec<Member>),
}

/// One name of an object with its value.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) tree: Tree,
}

/// What is wrong with a text.
#[derive(Debug)]
pub(crate) struct TreeFault {
    /// Where, in bytes.
    pub(crate) offset: usize,
    pub(crate) message: String,
}

impl Tree {
    /// Reads a text, in O(bytes x depth).
    pub(crate) fn parse(text: &str) -> Result<Self, TreeFault> {
        if text.len() > SIZE {
            let message = format!("has more than {SIZE} bytes; a job of that size fits into no object, split it");
            return Err(TreeFault { offset: 0, message });
        }
        let whole: &RawValue = serde_json::from_str(text).map_err(|error| TreeFault {
            offset: offset_of(text, error.line(), error.column()),
            message: format!("is no JSON: {}", without_place(&error)),
        })?;
        let mut way = Vec::new();
        tree(text, whole, &mut way).map_err(|fault| {
            let path = way.concat();
            let path = path.strip_prefix('.').unwrap_or(&path);
            let message = if path.is_empty() { fault.message } else { format!("{path}: {}", fault.message) };
            TreeFault { message, ..fault }
        })
    }

    /// What it is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.node {
            Node::Null => "null",
            Node::Bool(_) => "a bool",
            Node::Number(_) => "a number",
            Node::Text(_) => "a string",
            Node::List(_) => "a list",
            Node::Map(_) => "an object",
        }
    }

    /// Whether it is null, empty, 0 or false.
    pub(crate) fn is_zero(&self) -> bool {
        match &self.node {
            Node::Null => true,
            Node::Bool(value) => !value,
            Node::Number(number) => number.as_f64() == 0.0,
            Node::Text(text) => text.is_empty(),
            Node::List(values) => values.is_empty(),
            Node::Map(members) => members.is_empty(),
        }
    }

    /// Whether nothing in it says anything: it is zero, or an object of nothing else.
    pub(crate) fn is_nothing(&self) -> bool {
        match &self.node {
            Node::Map(members) => members.iter().all(|member| member.tree.is_nothing()),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_) => self.is_zero(),
        }
    }

    /// The string that it is, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Node::Text(text) = &self.node { Some(text) } else { None }
    }

    /// The number that it is, if it is one.
    pub(crate) fn number(&self) -> Option<Number> {
        if let Node::Number(number) = self.node { Some(number) } else { None }
    }

    /// A member of an object.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        let Node::Map(members) = &self.node else { return None };
        members.iter().find(|member| member.name == name).map(|member| &member.tree)
    }

    /// As a value of a job file.
    pub(crate) fn value(&self) -> Value {
        match &self.node {
            Node::Null => Value::Null,
            Node::Bool(value) => Value::Bool(*value),
            Node::Number(number) => Value::Number(*number),
            Node::Text(text) => Value::Text(text.clone()),
            Node::List(values) => Value::List(values.iter().map(Self::value).collect()),
            Node::Map(members) => {
                Value::Map(members.iter().map(|member| (member.name.clone(), member.tree.value())).collect())
            }
        }
    }

    /// The way to the value that begins at a byte, as `Job.TaskGroups[0].Count`; empty for the whole.
    pub(crate) fn path(&self, offset: usize) -> String {
        let (mut path, mut here) = (String::new(), self);
        while here.offset != offset {
            // Values stand in the order of the text: the last one that does not begin behind the place holds it.
            let next = match &here.node {
                Node::List(values) => {
                    let at = values.partition_point(|value| value.offset <= offset).checked_sub(1);
                    at.and_then(|at| Some((at, values.get(at)?))).map(|(at, value)| {
                        let place = format!("[{at}]");
                        path.push_str(&place);
                        value
                    })
                }
                Node::Map(members) => {
                    let at = members.partition_point(|member| member.tree.offset <= offset).checked_sub(1);
                    at.and_then(|at| members.get(at)).map(|member| {
                        if !path.is_empty() {
                            path.push('.');
                        }
                        path.push_str(&member.name);
                        &member.tree
                    })
                }
                Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => None,
            };
            match next {
                Some(next) => here = next,
                None => break,
            }
        }
        path
    }
}

/// The names of the object that a text is; none of any other text.
pub(crate) fn names(text: &str) -> Vec<String> {
    let members: Members<'_> = serde_json::from_str(text).unwrap_or(Members(Vec::new()));
    members.0.into_iter().map(|(name, _)| name).collect()
}

/// A value. After a fault `way` leads to it.
fn tree(text: &str, raw: &RawValue, way: &mut Vec<String>) -> Result<Tree, TreeFault> {
    let json = raw.get();
    let offset = (json.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let fault = |message: String| TreeFault { offset, message };
    let wrong = |error: serde_json::Error| fault(format!("is no JSON: {}", without_place(&error)));
    if way.len() > DEPTH {
        return Err(fault(format!("objects and lists nest deeper than {DEPTH}; flatten them")));
    }
    let node = match json.as_bytes().first() {
        Some(b'{') => {
            let written: Members<'_> = serde_json::from_str(json).map_err(wrong)?;
            let (mut known, mut members) = (BTreeSet::new(), Vec::with_capacity(written.0.len()));
            for (name, raw) in written.0 {
                way.push(format!(".{}", shortened(&name)));
                let tree = tree(text, raw, way)?;
                if !known.insert(name.clone()) {
                    let message = "stands twice in one object; remove one".to_owned();
                    return Err(TreeFault { offset: tree.offset, message });
                }
                way.pop();
                members.push(Member { name, tree });
            }
            Node::Map(members)
        }
        Some(b'[') => {
            let written: Vec<&RawValue> = serde_json::from_str(json).map_err(wrong)?;
            let mut values = Vec::with_capacity(written.len());
            for (at, raw) in written.into_iter().enumerate() {
                way.push(format!("[{at}]"));
                values.push(tree(text, raw, way)?);
                way.pop();
            }
            Node::List(values)
        }
        Some(b'"') => Node::Text(serde_json::from_str(json).map_err(wrong)?),
        Some(b't' | b'f') => Node::Bool(serde_json::from_str(json).map_err(wrong)?),
        Some(b'n') => Node::Null,
        _ => Node::Number(number(json).ok_or_else(|| {
            fault(format!("{} is beyond what a number may be; write a smaller one, or a string", shortened(json)))
        })?),
    };
    Ok(Tree { offset, node })
}

/// A number, unless it is one that an object cannot hold as it is.
fn number(json: &str) -> Option<Number> {
    match Number::parse(json)? {
        Number::Whole(whole) => {
            (i64::try_from(whole).is_ok() || u64::try_from(whole).is_ok()).then_some(Number::Whole(whole))
        }
        fraction @ Number::Fraction(_) => Some(fraction),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

/// What is wrong, without the place, which is told in another way.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(message, _)| message.to_owned())
}

/// The byte of a line and a column, both counted from 1.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut offset = start.saturating_add(column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset = offset.saturating_sub(1);
    }
    offset
}

/// The members of an object in their order, each one that is written twice twice.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Members<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = access.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (usize, String) {
        Tree::parse(text).map(|tree| panic!("{tree:?}")).map_err(|fault| (fault.offset, fault.message)).unwrap_err()
    }

    #[test]
    fn a_value_is_found_by_where_it_begins() {
        let text = r#" {"Job": {"A": [1, {"B": "x"}], "C": {}}, "D": null}"#;
        let tree = Tree::parse(text).unwrap();
        for (value, path) in [("1,", "Job.A[0]"), ("\"x\"", "Job.A[1].B"), ("{}", "Job.C"), ("null", "D"), ("{\"J", "")]
        {
            assert_eq!(tree.path(text.find(value).unwrap()), path, "{value}");
        }
        assert_eq!(tree.path(text.len()), "D");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, offset, message) in [
            ("", 0, "is no JSON: EOF"),
            ("{\"a\": }", 6, "is no JSON: expected value"),
            ("{\"a\": 1, \"a\": 2}", 14, "a: stands twice in one object"),
            ("[1, 1e999]", 4, "1e999 is beyond"),
            ("[99999999999999999999999999999]", 1, "beyond what a number may be"),
            ("[\"\\ud800\"]", 1, "is no JSON: "),
            ("{} {}", 3, "is no JSON: trailing"),
        ] {
            let found = fault(text);
            assert!(found.1.starts_with(message) || found.1.contains(message), "{text}: {found:?}");
            assert_eq!(found.0, offset, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_text_cannot_take_the_machine() {
        let deep = format!("{}1{}", "[".repeat(500_000), "]".repeat(500_000));
        assert!(fault(&deep).1.contains("nest deeper than 64"));
        assert!(fault(&"[".repeat(SIZE)).1.starts_with("is no JSON"));
        assert!(fault(&format!("\"{}\"", "a".repeat(SIZE))).1.starts_with("has more than 1048576 bytes"));
        let wide = format!("[{}1]", "[],".repeat(300_000));
        assert!(Tree::parse(&wide).is_ok());
    }
}
