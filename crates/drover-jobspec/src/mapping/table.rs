//! What a block of a job may hold: one table for each block, with its names in HCL, in Nomad's JSON and in the object.
//!
//! `convert` goes by them from HCL to the object, `wire` from Nomad's JSON and back to it, `text` back to HCL. A table
//! knows none of these directions.

use std::borrow::Cow;

use serde_json::{Map, Value as Json};

use super::report::Report;
use crate::document::Block;
use crate::tree::Member;

/// What an attribute or a block becomes.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Text,
    Whole,
    Bool,
    /// Text as `10m`, or nanoseconds.
    Duration,
    /// A list of strings; one string is a list of one.
    Texts,
    /// Strings by name, as an attribute or a block.
    TextMap,
    /// Lists of strings by name, as an attribute or a block.
    TextsMap,
    /// Whatever it is, as an attribute or a block.
    Free,
    /// At most one block.
    Block(&'static Table),
    /// Any number of blocks.
    Blocks(&'static Table),
    /// Read by code of its own.
    Other,
    /// It has no counterpart; the text says what to do instead.
    Refused(&'static str),
}

/// What Nomad's JSON holds where an object does not have the field. The same, read, is as if it were not there.
#[derive(Clone, Copy)]
pub(super) enum Absence {
    /// The zero value: an empty text, 0, false; a block with all that is absent in it; null for lists and maps.
    Zero,
    /// Null, and a zero value is the same.
    Null,
    /// Null alone: a zero value says something.
    NullOnly,
    /// This text, or an empty one.
    Text(&'static str),
    /// This number; of a duration in nanoseconds.
    Number(i64),
    /// This number, and 0 is the same.
    NumberOrZero(i64),
    /// This value; the other one says something.
    Bool(bool),
    /// Nomad has no such field: it is there only where the object has it.
    Omitted,
}

/// One name of a job file.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// In HCL. What only Nomad's JSON has is in parentheses, which no name in a file can be.
    pub(super) hcl: &'static str,
    /// In the object. What is given to others by code of its own is in parentheses.
    pub(super) field: &'static str,
    pub(super) shape: Shape,
    /// In Nomad's JSON; empty where it follows from the others.
    wire: &'static str,
    pub(super) absence: Absence,
}

/// Changes an object after its rows are carried over.
pub(super) type Adjust = fn(&mut Map<String, Json>, &Block, &mut Report<'_>);

/// Where the shape of Nomad's JSON is another than that of HCL.
#[derive(Clone, Copy)]
pub(super) struct WireForm {
    /// From Nomad's members to those that the table names.
    pub(super) read: fn(&mut Vec<Member>, &mut Report<'_>),
    /// And back.
    pub(super) write: fn(&mut Map<String, Json>),
}

/// What a block may hold.
#[derive(Clone, Copy)]
pub(super) struct Table {
    /// The field that the block's label fills; a block without one has no label.
    pub(super) label: Option<&'static str>,
    pub(super) rows: &'static [Row],
    pub(super) adjust: Option<Adjust>,
    /// Undoes what `adjust` does, in an object that is written as HCL or as Nomad's JSON.
    pub(super) restore: Option<fn(&mut Map<String, Json>)>,
    pub(super) wire: Option<WireForm>,
    /// What Nomad's JSON says of a job's state: it is no part of the job.
    pub(super) read_only: &'static [&'static str],
}

/// A row.
pub(super) const fn row(hcl: &'static str, field: &'static str, shape: Shape) -> Row {
    Row { hcl, field, shape, wire: "", absence: Absence::Zero }
}

impl Row {
    /// With this name in Nomad's JSON.
    pub(super) const fn named(mut self, wire: &'static str) -> Self {
        self.wire = wire;
        self
    }

    pub(super) const fn absent(mut self, absence: Absence) -> Self {
        self.absence = absence;
        self
    }

    /// Whether a file in HCL may hold it.
    pub(super) fn is_in_hcl(&self) -> bool {
        !self.hcl.starts_with('(')
    }

    /// Its name in Nomad's JSON, if that has it: the field's with a capital, unless the row says otherwise.
    pub(super) fn wire_name(&self) -> Option<Cow<'static, str>> {
        if !self.wire.is_empty() {
            return Some(Cow::Borrowed(self.wire));
        }
        match self.shape {
            Shape::Refused(_) => Some(Cow::Owned(self.hcl.split('_').map(capital).collect())),
            Shape::Text
            | Shape::Whole
            | Shape::Bool
            | Shape::Duration
            | Shape::Texts
            | Shape::TextMap
            | Shape::TextsMap
            | Shape::Free
            | Shape::Block(_)
            | Shape::Blocks(_) => (!self.field.starts_with('(')).then(|| Cow::Owned(capital(self.field))),
            Shape::Other => None,
        }
    }
}

impl Table {
    /// The name of the label in Nomad's JSON.
    pub(super) fn wire_label(&self) -> Option<Cow<'static, str>> {
        self.label.map(|field| if field == "id" { Cow::Borrowed("ID") } else { Cow::Owned(capital(field)) })
    }
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}
