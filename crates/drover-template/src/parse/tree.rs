//! The tree of a template.

use crate::value::Bytes;

/// A place in the text: the number of a byte.
pub(crate) type Spot = usize;

/// What a template is made of.
#[derive(Debug)]
pub(crate) enum Node {
    Text(Bytes),
    Action(Pipeline),
    If(Branch),
    With(Branch),
    Range(Branch),
    Template(Spot, Bytes, Option<Pipeline>),
    Break,
    Continue,
}

/// What `if`, `with` and `range` have in common.
#[derive(Debug)]
pub(crate) struct Branch {
    pub(crate) at: Spot,
    pub(crate) pipeline: Pipeline,
    pub(crate) list: Vec<Node>,
    pub(crate) otherwise: Option<Vec<Node>>,
}

/// Commands, each of which takes the value of the one before it.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) at: Spot,
    /// Variables that get the value; of `range`, those for key and element.
    pub(crate) variables: Vec<String>,
    /// Whether they were there before.
    pub(crate) is_assignment: bool,
    pub(crate) commands: Vec<Command>,
}

/// A function or value and its arguments: at least one term.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) terms: Vec<Term>,
}

/// An expression and where it is.
#[derive(Debug)]
pub(crate) struct Term {
    pub(crate) at: Spot,
    pub(crate) expression: Expression,
}

/// A part of a command.
#[derive(Debug)]
pub(crate) enum Expression {
    Bool(bool),
    Dot,
    Nil,
    Number(Number),
    Text(Bytes),
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`: the variable with its `$`, and fields.
    Variable(String, Vec<String>),
    Function(String),
    Parenthesis(Box<Pipeline>),
    /// `(…).a.b`
    Chain(Box<Term>, Vec<String>),
}

/// A number is everything that it can be without loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
    pub(crate) text: String,
}

impl Term {
    /// As an error shows it.
    pub(crate) fn shown(&self) -> String {
        match &self.expression {
            Expression::Bool(is) => is.to_string(),
            Expression::Dot => ".".to_owned(),
            Expression::Nil => "nil".to_owned(),
            Expression::Number(number) => number.text.clone(),
            Expression::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
            Expression::Field(names) => format!(".{}", names.join(".")),
            Expression::Variable(name, fields) if fields.is_empty() => name.clone(),
            Expression::Variable(name, fields) => format!("{name}.{}", fields.join(".")),
            Expression::Function(name) => name.clone(),
            Expression::Parenthesis(_) => "(...)".to_owned(),
            Expression::Chain(term, fields) => format!("{}.{}", term.shown(), fields.join(".")),
        }
    }
}
