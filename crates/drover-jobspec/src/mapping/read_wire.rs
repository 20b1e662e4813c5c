//! From Nomad's JSON to the blocks that a job file in HCL has, as the tables say: all that follows is the same for both.

use super::report::Report;
use super::table::{Absence, Row, Shape, Table};
use crate::document::{Attribute, Block};
use crate::tree::{Member, Node, Tree};
use crate::value::{Number, Value};

/// The block that an object stands for. What is wrong with it is reported; the block then lacks it.
pub(super) fn block(kind: &str, tree: &Tree, table: &Table, report: &mut Report<'_>) -> Block {
    let mut block = Block { kind: kind.to_owned(), offset: tree.offset, ..Block::default() };
    let Node::Map(written) = &tree.node else {
        report.add(tree.offset, format!("must be an object, and is {}", tree.kind()));
        // It is not said again that the object lacks a name.
        block.labels.extend(table.label.map(str::to_owned));
        return block;
    };
    let reshaped = table.wire.map(|form| {
        let mut members = written.clone();
        (form.read)(&mut members, report);
        members
    });
    for member in reshaped.as_ref().unwrap_or(written) {
        read(member, table, &mut block, report);
    }
    if let (Some(label), true) = (table.wire_label(), block.labels.is_empty()) {
        report.add(tree.offset, format!("lacks `{label}`; add it"));
        block.labels.push(String::new());
    }
    block
}

fn read(member: &Member, table: &Table, block: &mut Block, report: &mut Report<'_>) {
    let Member { name, tree } = member;
    if table.wire_label().is_some_and(|label| label == *name) {
        match tree.text() {
            Some(text) => block.labels.extend((!text.is_empty()).then(|| text.to_owned())),
            None if matches!(tree.node, Node::Null) => {}
            None => wrong(tree, "a string", report),
        }
        return;
    }
    let found = table.rows.iter().find(|row| row.wire_name().is_some_and(|known| known == *name));
    match found {
        Some(row) if is_absent(tree, row) => {}
        Some(row) => carry(tree, row, block, report),
        None if table.read_only.contains(&name.as_str()) || tree.is_nothing() => {}
        None => unknown(name, tree, table, report),
    }
}

/// Whether a value says no more than that there is none.
fn is_absent(tree: &Tree, row: &Row) -> bool {
    let is_list_or_text = matches!(tree.node, Node::Null | Node::Text(_) | Node::List(_) | Node::Map(_));
    match (row.absence, &row.shape) {
        _ if matches!(tree.node, Node::Null) => true,
        (_, Shape::Refused(_)) => tree.is_nothing(),
        (Absence::Zero | Absence::Null | Absence::Omitted, Shape::Block(_)) => tree.is_nothing(),
        (Absence::NullOnly, Shape::Block(_)) => false,
        (Absence::Zero | Absence::Null | Absence::Omitted, _) => tree.is_zero(),
        (Absence::NullOnly, _) => is_list_or_text && tree.is_zero(),
        (Absence::Text(usual), _) => tree.is_zero() || tree.text() == Some(usual),
        (Absence::Number(usual), _) => tree.number() == Some(Number::Whole(usual.into())),
        (Absence::Bool(usual), _) => matches!(tree.node, Node::Bool(value) if value == usual),
    }
}

fn carry(tree: &Tree, row: &Row, block: &mut Block, report: &mut Report<'_>) {
    let value = match row.shape {
        Shape::Text => tree.text().map(Value::from).ok_or("a string"),
        Shape::Whole => whole(tree).ok_or("a whole number"),
        Shape::Bool => matches!(tree.node, Node::Bool(_)).then(|| tree.value()).ok_or("true or false"),
        Shape::Duration => whole(tree).or_else(|| tree.text().map(Value::from)).ok_or("a number of nanoseconds"),
        Shape::Texts => is_texts(tree).then(|| tree.value()).ok_or("a list of strings"),
        Shape::TextMap => {
            each(tree, |value| value.text().is_some()).then(|| tree.value()).ok_or("an object of strings")
        }
        Shape::TextsMap => each(tree, is_texts).then(|| tree.value()).ok_or("an object of lists of strings"),
        Shape::Free => matches!(tree.node, Node::Map(_)).then(|| tree.value()).ok_or("an object"),
        Shape::Other => Ok(tree.value()),
        Shape::Block(table) => {
            block.blocks.push(self::block(row.hcl, tree, table, report));
            return;
        }
        Shape::Blocks(table) => {
            let Node::List(list) = &tree.node else { return wrong(tree, "a list of objects", report) };
            block.blocks.extend(list.iter().map(|inner| self::block(row.hcl, inner, table, report)));
            return;
        }
        Shape::Refused(remedy) => return report.add(tree.offset, format!("is not carried over: {remedy}")),
    };
    match value {
        Ok(value) => block.attributes.push(Attribute { name: row.hcl.to_owned(), value, offset: tree.offset }),
        Err(wanted) => wrong(tree, wanted, report),
    }
}

fn whole(tree: &Tree) -> Option<Value> {
    let number = tree.number()?.whole()?;
    i64::try_from(number).ok().map(|number| Value::Number(Number::Whole(number.into())))
}

fn is_texts(tree: &Tree) -> bool {
    matches!(&tree.node, Node::List(values) if values.iter().all(|value| value.text().is_some()))
}

fn each(tree: &Tree, is_right: impl Fn(&Tree) -> bool) -> bool {
    matches!(&tree.node, Node::Map(members) if members.iter().all(|member| is_right(&member.tree)))
}

fn wrong(tree: &Tree, wanted: &str, report: &mut Report<'_>) {
    let shown = match &tree.node {
        Node::Text(text) => format!("\"{}\"", text.chars().take(60).collect::<String>()),
        Node::Number(number) => number.to_string(),
        Node::Bool(value) => value.to_string(),
        Node::Null | Node::List(_) | Node::Map(_) => tree.kind().to_owned(),
    };
    report.add(tree.offset, format!("must be {wanted}, and is {shown}"));
}

fn unknown(name: &str, tree: &Tree, table: &Table, report: &mut Report<'_>) {
    let rows = table.rows.iter().filter(|row| !matches!(row.shape, Shape::Refused(_)));
    let known: Vec<String> = table
        .wire_label()
        .into_iter()
        .chain(rows.filter_map(Row::wire_name))
        .map(std::borrow::Cow::into_owned)
        .collect();
    match known.iter().find(|known| known.eq_ignore_ascii_case(name)) {
        Some(known) => report.add(tree.offset, format!("is written `{known}`; correct the name")),
        None => report.add(
            tree.offset,
            format!("is nothing that a job of drover has: remove it, or take one of {}", known.join(", ")),
        ),
    }
}
