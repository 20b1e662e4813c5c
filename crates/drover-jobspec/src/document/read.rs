//! Reads a job file: variables first, then locals, then all the rest.

use std::cell::RefCell;
use std::collections::BTreeMap;

use hcl_edit::structure::{Body, Structure};

use super::block::Block;
use super::written::{parse, start};
use super::{expand, variables};
use crate::evaluate::{Budget, Local, Scope};
use crate::inputs::Inputs;
use crate::source::{Fault, Source};

/// Reads a job file. All that is wrong is returned together, as far as it can be seen, in the order of the file.
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
    expand::expand(&scope, rest, &mut file, &mut faults);
    // Locals are looked at in the order in which they refer to each other.
    faults.sort();
    if faults.is_empty() { Ok(file) } else { Err(faults) }
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
