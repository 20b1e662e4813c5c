//! Writes out `dynamic` blocks and evaluates attributes.

use hcl_edit::structure::{Block as Written, BlockLabel, Structure};

use super::block::{Attribute, Block};
use super::written::start;
use crate::evaluate::Scope;
use crate::source::Fault;
use crate::value::Value;

/// Fills a block with what is written in it.
pub(super) fn expand<'a>(
    scope: &Scope<'_>,
    structures: impl Iterator<Item = &'a Structure>,
    block: &mut Block,
    faults: &mut Vec<Fault>,
) {
    for structure in structures {
        let result = match structure {
            Structure::Attribute(attribute) => scope.value(&attribute.value).map(|value| {
                let (name, offset) = (attribute.key.to_string(), start(&attribute.key));
                block.attributes.push(Attribute { name, value, offset });
            }),
            Structure::Block(inner) if inner.ident.as_str() == "dynamic" => dynamic(scope, inner, block, faults),
            Structure::Block(inner) => {
                let labels = inner.labels.iter().map(|label| label.as_str().to_owned()).collect();
                made(scope, inner, inner.ident.to_string(), labels, faults).map(|made| block.blocks.push(made))
            }
        };
        faults.extend(result.err());
    }
}

fn made(
    scope: &Scope<'_>,
    written: &Written,
    kind: String,
    labels: Vec<String>,
    faults: &mut Vec<Fault>,
) -> Result<Block, Fault> {
    let offset = start(&written.ident);
    scope.budget.block().map_err(|message| scope.source.fault(offset, message))?;
    let mut block = Block { kind, labels, offset, ..Block::default() };
    expand(scope, written.body.iter(), &mut block, faults);
    Ok(block)
}

/// `dynamic "kind" { for_each = …, iterator = …, labels = […], content {} }`.
fn dynamic(scope: &Scope<'_>, written: &Written, parent: &mut Block, faults: &mut Vec<Fault>) -> Result<(), Fault> {
    let at = start(&written.ident);
    let fault = |message: &str| scope.source.fault(at, message);
    let [kind] = &written.labels[..] else {
        return Err(fault("a dynamic block needs one label, the block that it makes, as `dynamic \"port\" {}`"));
    };
    let kind = BlockLabel::as_str(kind);
    let body = &written.body;
    let for_each = body.get_attribute("for_each").ok_or_else(|| fault("a dynamic block needs `for_each`"))?;
    let content = body.get_blocks("content").next().ok_or_else(|| fault("a dynamic block needs a block `content`"))?;
    let iterator = match body.get_attribute("iterator").map(|attribute| &attribute.value) {
        None => kind.to_owned(),
        Some(hcl_edit::expr::Expression::Variable(name)) => name.to_string(),
        Some(other) => scope.value(other)?.to_text().ok_or_else(|| fault("`iterator` needs a name"))?,
    };
    for (key, value) in scope.items(&for_each.value)? {
        let pair = Value::Map([("key".to_owned(), key), ("value".to_owned(), value)].into());
        scope.with_names(vec![(iterator.clone(), pair)], || {
            let labels = match body.get_attribute("labels") {
                Some(labels) => {
                    texts(&scope.value(&labels.value)?).ok_or_else(|| fault("`labels` needs a list of strings"))?
                }
                None => Vec::new(),
            };
            parent.blocks.push(made(scope, content, kind.to_owned(), labels, faults)?);
            Ok(())
        })?;
    }
    Ok(())
}

fn texts(value: &Value) -> Option<Vec<String>> {
    value.elements()?.iter().map(Value::to_text).collect()
}
