//! From Nomad's JSON to the blocks that a job file in HCL has, as the tables say: all that follows is the same for
//! both.

use drover_api::GoDuration;

use super::report::Report;
use super::table::{Absence, Row, Shape, Table};
use crate::document::{Attribute, Block};
use crate::tree::{Member, Node, Tree};
use crate::value::Number;

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
    // A name may say something in a file, and in JSON what became of it.
    if table.read_only.contains(&name.as_str()) {
        return;
    }
    let found = table.rows.iter().find(|row| row.wire_name().is_some_and(|known| known == *name));
    match found {
        Some(row) if is_absent(tree, row) => {}
        Some(row) => carry(tree, row, block, report),
        None if tree.is_nothing() => {}
        None => unknown(name, tree, table, report),
    }
}

/// Whether a value says no more than that there is none.
fn is_absent(tree: &Tree, row: &Row) -> bool {
    let is_list_or_text = matches!(tree.node, Node::Null | Node::Text(_) | Node::List(_) | Node::Map(_));
    match (row.absence, &row.shape) {
        _ if matches!(tree.node, Node::Null) => true,
        // A block in it is one that its author wrote, though nothing stands there: `connect { sidecar_service {} }`.
        (_, Shape::Refused(_)) => match &tree.node {
            Node::Map(members) => members.iter().all(|member| member.tree.is_zero()),
            _ => tree.is_nothing(),
        },
        (Absence::Zero | Absence::Null | Absence::Omitted, Shape::Block(_)) => tree.is_nothing(),
        (Absence::NullOnly, Shape::Block(_)) => false,
        (Absence::Zero | Absence::Null | Absence::Omitted, _) => tree.is_zero(),
        (Absence::NullOnly, _) => is_list_or_text && tree.is_zero(),
        (Absence::Text(usual), _) => tree.is_zero() || tree.text() == Some(usual),
        (Absence::Number(usual), _) => tree.number() == Some(Number::Whole(usual.into())),
        (Absence::NumberOrZero(usual), _) => tree.is_zero() || tree.number() == Some(Number::Whole(usual.into())),
        (Absence::Bool(usual), _) => matches!(tree.node, Node::Bool(value) if value == usual),
    }
}

fn carry(tree: &Tree, row: &Row, block: &mut Block, report: &mut Report<'_>) {
    let n_before = report.len();
    let wanted = match row.shape {
        Shape::Text => (!is_text(tree)).then_some("a string"),
        Shape::Whole => (!is_whole(tree)).then_some("a whole number"),
        Shape::Bool => (!matches!(tree.node, Node::Bool(_))).then_some("true or false"),
        Shape::Duration => (!is_whole(tree) && !is_duration(tree)).then_some("a number of nanoseconds"),
        Shape::Texts => {
            list_of_texts(tree, report);
            None
        }
        Shape::TextMap => {
            each(tree, "an object of strings", report, |value, report| {
                if !is_text(value) {
                    wrong(value, "a string", report);
                }
            });
            None
        }
        Shape::TextsMap => {
            each(tree, "an object of lists of strings", report, list_of_texts);
            None
        }
        Shape::Free => (!matches!(tree.node, Node::Map(_))).then_some("an object"),
        Shape::Other => None,
        Shape::Block(table) => {
            let inner = self::block(row.hcl, tree, table, report);
            // Nomad always has it: with nothing but what is usual it is as if it were not there.
            let is_needless =
                matches!(row.absence, Absence::Zero) && inner.attributes.is_empty() && inner.blocks.is_empty();
            block.blocks.extend((!is_needless).then_some(inner));
            return;
        }
        Shape::Blocks(table) => {
            let Node::List(list) = &tree.node else { return wrong(tree, "a list of objects", report) };
            block.blocks.extend(list.iter().map(|inner| self::block(row.hcl, inner, table, report)));
            return;
        }
        Shape::Refused(remedy) => return report.add(tree.offset, format!("is not carried over: {remedy}")),
    };
    if let Some(wanted) = wanted {
        wrong(tree, wanted, report);
    }
    if report.len() == n_before {
        let (name, value) = (row.hcl.to_owned(), tree.value());
        block.attributes.push(Attribute { name, value, offset: tree.offset });
    }
}

fn list_of_texts(tree: &Tree, report: &mut Report<'_>) {
    let Node::List(values) = &tree.node else { return wrong(tree, "a list of strings", report) };
    for value in values.iter().filter(|value| !is_text(value)) {
        wrong(value, "a string", report);
    }
}

fn each(tree: &Tree, wanted: &str, report: &mut Report<'_>, check: impl Fn(&Tree, &mut Report<'_>)) {
    let Node::Map(members) = &tree.node else { return wrong(tree, wanted, report) };
    for member in members {
        check(&member.tree, report);
    }
}

fn is_text(tree: &Tree) -> bool {
    tree.text().is_some()
}

fn is_whole(tree: &Tree) -> bool {
    tree.number().and_then(Number::whole).is_some_and(|number| i64::try_from(number).is_ok())
}

fn is_duration(tree: &Tree) -> bool {
    tree.text().is_some_and(|text| text.parse::<GoDuration>().is_ok())
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
            format!("is nothing that drover has here: remove it, or take one of {}", known.join(", ")),
        ),
    }
}
