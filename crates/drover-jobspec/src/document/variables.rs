//! Declared variables, and the values that they are given.

use std::collections::BTreeMap;

use hcl_edit::expr::Expression;
use hcl_edit::structure::{Block as Written, Body};

use super::written::{parse, start};
use crate::evaluate::{Budget, Scope, offset};
use crate::inputs::Inputs;
use crate::source::{Fault, Source};
use crate::types::Type;
use crate::value::Value;

/// A variable as the job file declares it.
struct Declared<'a> {
    name: String,
    offset: usize,
    /// Nothing where the file names none: the default's, else a string.
    kind: Option<Type>,
    default: Option<Value>,
    validations: Vec<&'a Written>,
}

/// Gives every declared variable its value. `variables` declares several at once, each with its default.
pub(super) fn declare(scope: &mut Scope<'_>, body: &Body, inputs: &Inputs<'_>, faults: &mut Vec<Fault>) {
    let mut declared: Vec<Declared<'_>> =
        body.get_blocks("variable").filter_map(|block| keep(read(scope, block), faults)).collect();
    for attribute in body.get_blocks("variables").flat_map(|block| block.body.attributes()) {
        let (name, offset) = (attribute.key.to_string(), start(&attribute.key));
        let default = keep(scope.value(&attribute.value), faults);
        declared.push(Declared { name, offset, kind: None, default, validations: Vec::new() });
    }
    let names: Vec<&str> = declared.iter().map(|variable| variable.name.as_str()).collect();
    let given = keep(from_files(inputs, &names), faults).unwrap_or_default();
    for name in inputs.values.keys().filter(|name| !names.contains(&name.as_str())) {
        let message = format!("has no variable `{name}`, which -var names; {}", known_names(&names));
        faults.push(scope.source.fault(0, message));
    }
    for variable in &declared {
        let value = value(scope, variable, inputs, &given);
        if let Some(value) = keep(value, faults) {
            scope.variables.insert(variable.name.clone(), value);
        }
    }
    for variable in &declared {
        for validation in &variable.validations {
            keep(validate(scope, variable, validation), faults);
        }
    }
}

fn keep<T>(result: Result<T, Fault>, faults: &mut Vec<Fault>) -> Option<T> {
    result.map_err(|fault| faults.push(fault)).ok()
}

fn known_names(names: &[&str]) -> String {
    if names.is_empty() { "it declares none".to_owned() } else { format!("it declares {}", names.join(", ")) }
}

fn read<'a>(scope: &Scope<'_>, block: &'a Written) -> Result<Declared<'a>, Fault> {
    let at = start(&block.ident);
    let [label] = &block.labels[..] else {
        return Err(scope.source.fault(at, "a variable needs one name, as `variable \"port\" {}`"));
    };
    let mut variable = Declared {
        name: label.as_str().to_owned(),
        offset: at,
        kind: None,
        default: None,
        validations: block.body.get_blocks("validation").collect(),
    };
    for attribute in block.body.attributes() {
        match attribute.key.as_str() {
            "type" => {
                let parsed = Type::parse(&attribute.value);
                variable.kind = Some(parsed.map_err(|message| scope.source.fault(offset(&attribute.value), message))?);
            }
            "default" => variable.default = Some(scope.value(&attribute.value)?),
            "description" | "sensitive" => {}
            other => {
                let message =
                    format!("a variable has no `{other}`; it has type, default, description, sensitive and validation");
                return Err(scope.source.fault(start(&attribute.key), message));
            }
        }
    }
    Ok(variable)
}

/// Files of values name variables of this job only.
fn from_files(inputs: &Inputs<'_>, names: &[&str]) -> Result<BTreeMap<String, Value>, Fault> {
    let mut given = BTreeMap::new();
    for (name, text) in &inputs.files {
        let source = Source::new(name, text);
        let body = parse(source)?;
        let scope = bare(source);
        for attribute in body.attributes() {
            let variable = attribute.key.to_string();
            if !names.contains(&variable.as_str()) {
                let message = format!("the job file has no variable `{variable}`; {}", known_names(names));
                return Err(source.fault(start(&attribute.key), message));
            }
            given.insert(variable, scope.value(&attribute.value)?);
        }
    }
    Ok(given)
}

/// A scope in which nothing has a name.
fn bare(source: Source<'_>) -> Scope<'_> {
    Scope {
        source,
        files: None,
        variables: BTreeMap::new(),
        locals: std::cell::RefCell::default(),
        names: std::cell::RefCell::default(),
        budget: Budget::default(),
    }
}

fn value(
    scope: &Scope<'_>,
    variable: &Declared<'_>,
    inputs: &Inputs<'_>,
    given: &BTreeMap<String, Value>,
) -> Result<Value, Fault> {
    let name = &variable.name;
    let fault = |message: String| scope.source.fault(variable.offset, format!("variable `{name}`: {message}"));
    let kind = variable.kind.clone().or_else(|| variable.default.as_ref().map(natural)).unwrap_or(Type::Text);
    let found = if let Some(text) = inputs.values.get(name) {
        from_text(text, &kind).map_err(fault)?
    } else if let Some(value) = given.get(name) {
        value.clone()
    } else if let Some(text) = inputs.environment.get(name) {
        from_text(text, &kind).map_err(fault)?
    } else if let Some(default) = &variable.default {
        default.clone()
    } else {
        return Err(fault(format!(
            "has no value and no default; give one with -var {name}=…, a file of values or NOMAD_VAR_{name}"
        )));
    };
    kind.convert(&found).map_err(fault)
}

/// The type of a default.
fn natural(value: &Value) -> Type {
    match value {
        Value::Bool(_) => Type::Bool,
        Value::Number(_) => Type::Number,
        Value::Text(_) => Type::Text,
        Value::Null | Value::List(_) | Value::Set(_) | Value::Map(_) => Type::Any,
    }
}

/// A value of the command line or the environment: text where a string is wanted, else an expression.
fn from_text(text: &str, kind: &Type) -> Result<Value, String> {
    if matches!(kind, Type::Text) {
        return Ok(Value::from(text));
    }
    let expression: Expression = text
        .trim()
        .parse()
        .map_err(|error: hcl_edit::parser::Error| format!("`{text}` is no value: {}", error.message()))?;
    bare(Source::new("value", text)).value(&expression).map_err(|fault| fault.message)
}

fn validate(scope: &Scope<'_>, variable: &Declared<'_>, block: &Written) -> Result<(), Fault> {
    let at = start(&block.ident);
    let condition = block.body.get_attribute("condition");
    let condition = condition.ok_or_else(|| scope.source.fault(at, "a validation needs a `condition`"))?;
    let message = match block.body.get_attribute("error_message") {
        Some(message) => scope.value(&message.value)?.to_text().unwrap_or_default(),
        None => "does not hold".to_owned(),
    };
    if scope.truth(&condition.value)? {
        return Ok(());
    }
    Err(scope.source.fault(variable.offset, format!("variable `{}`: {message}", variable.name)))
}
