//! A job file as blocks whose attributes have values: variables, locals and `dynamic` blocks are gone.

mod blocks;
mod variables;

use std::cell::RefCell;
use std::collections::BTreeMap;

use hcl_edit::structure::{Body, Structure};
use hcl_edit::{Decorated, Ident, Span as _};

use crate::evaluate::{Budget, Local, Scope};
use crate::inputs::Inputs;
use crate::source::{Fault, Source};
use crate::value::Value;

/// A block, or the file itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// What it is, as `group`; nothing for the file.
    pub(crate) kind: String,
    pub(crate) labels: Vec<String>,
    /// Where it begins, in bytes.
    pub(crate) offset: usize,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) blocks: Vec<Block>,
}

/// An attribute with its value.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) value: Value,
    /// Where it begins, in bytes.
    pub(crate) offset: usize,
}

/// Reads a job file. All that is wrong is returned together, as far as it can be seen.
pub(crate) fn read(source: Source<'_>, inputs: &Inputs<'_>) -> Result<Block, Vec<Fault>> {
    let body = parse(source).map_err(|fault| vec![fault])?;
    let mut faults = Vec::new();
    let mut scope = Scope {
        source,
        files: inputs.readable,
        variables: BTreeMap::new(),
        locals: RefCell::new(BTreeMap::new()),
        names: RefCell::new(Vec::new()),
        budget: Budget::default(),
    };
    variables::declare(&mut scope, &body, inputs, &mut faults);
    declare_locals(&scope, &body, &mut faults);
    let mut file = Block::default();
    let rest = body.iter().filter(|structure| match structure {
        Structure::Block(block) => !matches!(block.ident.as_str(), "variable" | "variables" | "locals"),
        Structure::Attribute(_) => true,
    });
    blocks::expand(&scope, rest, &mut file, &mut faults);
    if faults.is_empty() { Ok(file) } else { Err(faults) }
}

fn parse(source: Source<'_>) -> Result<Body, Fault> {
    hcl_edit::parser::parse_body(source.text).map_err(|error| {
        let location = error.location();
        let mut fault = source.fault(0, format!("is no HCL: {}", error.message()));
        (fault.line, fault.column) = (location.line(), location.column());
        fault
    })
}

/// Locals may refer to each other in any order; each is looked at, the unused ones too.
fn declare_locals(scope: &Scope<'_>, body: &Body, faults: &mut Vec<Fault>) {
    let mut names = Vec::new();
    for block in body.get_blocks("locals") {
        for attribute in block.body.attributes() {
            let (name, offset) = (attribute.key.to_string(), start(&attribute.key));
            let open = Local::Open(attribute.value.clone());
            if scope.locals.borrow_mut().insert(name.clone(), open).is_some() {
                faults.push(scope.source.fault(offset, format!("local `{name}` is defined twice; remove one")));
            }
            names.push((name, offset));
        }
    }
    for (name, offset) in names {
        faults.extend(scope.local(&name, offset).err());
    }
}

/// Where a name begins.
fn start(name: &Decorated<Ident>) -> usize {
    name.span().map_or(0, |span| span.start)
}
