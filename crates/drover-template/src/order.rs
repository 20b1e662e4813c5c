//! What is asked of a rendering, and what it answers: one line of JSON each.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::RenderLimit;
use crate::values::{Needed, ValueBytes, Values};

/// How much a rendering may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderLimits {
    /// Steps of evaluation.
    pub steps: u64,
    /// Templates in templates.
    pub depth: u64,
    /// Bytes of the text.
    pub output_bytes: u64,
    /// Bytes of all values that are made on the way.
    pub memory_bytes: u64,
    /// Seconds of the whole.
    pub seconds: u64,
}

impl RenderLimits {
    /// What no template that people write comes close to.
    pub const USUAL: Self = Self {
        steps: 50_000_000,
        depth: 1000,
        output_bytes: 16 * 1024 * 1024,
        memory_bytes: 256 * 1024 * 1024,
        seconds: 10,
    };
}

/// What is to be rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderOrder {
    /// The name of the template in errors.
    pub name: String,
    /// Its text.
    pub template: ValueBytes,
    /// What begins an action; empty: `{{`.
    pub left_delimiter: String,
    /// What ends an action; empty: `}}`.
    pub right_delimiter: String,
    /// Whether a key that a map has not is an error.
    pub err_missing_key: bool,
    /// What it may look at.
    pub values: Values,
    /// What `timestamp` gives.
    pub now: Timestamp,
    /// How much it may take.
    pub limits: RenderLimits,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RenderAnswer {
    /// The text.
    Rendered(ValueBytes),
    /// Something that it looks at was missing. There is no text, and an error may come of what is missing.
    Missing {
        /// What the values do not tell of yet.
        needed: BTreeSet<Needed>,
        /// What it cannot be rendered without, and is known not to exist.
        absent: BTreeSet<Needed>,
    },
    /// The template is wrong.
    Failed(RenderError),
}

/// What is wrong with a template, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderError {
    /// The template: the name of the order, or that of a definition in it.
    pub template: String,
    /// The line, from 1.
    pub line: usize,
    /// The byte in the line, from 1.
    pub column: usize,
    /// The reason.
    pub message: String,
    /// The limit that was met, if it is that.
    pub limit: Option<RenderLimit>,
    /// What was being done.
    pub kind: RenderErrorKind,
}

/// What a template was wrong in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RenderErrorKind {
    /// Its text: no value was looked at.
    Syntax,
    /// It looks for a key that a map has not, which may come. The message names the key as the template does.
    MissingKey,
    /// It takes too much of something. The message holds no value.
    Limit,
    /// Its evaluation. The message may hold what the template looked at.
    Evaluation,
}

impl std::fmt::Display for RenderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}: {}", self.template, self.line, self.column, self.message)
    }
}
