//! Type constraints, as a variable and `convert` name them.

use std::collections::BTreeMap;

use hcl_edit::expr::{Expression, FuncCall, ObjectKey};

use crate::value::Value;

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Type {
    Any,
    Text,
    Number,
    Bool,
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<Type>),
    /// Each with whether it may be left out.
    Object(BTreeMap<String, (Type, bool)>),
    Tuple(Vec<Type>),
}

impl Type {
    /// The type that an expression names, as `list(string)`.
    pub(crate) fn parse(expression: &Expression) -> Result<Self, String> {
        match expression {
            Expression::Variable(name) => match name.as_str() {
                "any" => Ok(Self::Any),
                "string" => Ok(Self::Text),
                "number" => Ok(Self::Number),
                "bool" => Ok(Self::Bool),
                "list" => Ok(Self::List(Box::new(Self::Any))),
                "set" => Ok(Self::Set(Box::new(Self::Any))),
                "map" => Ok(Self::Map(Box::new(Self::Any))),
                other => Err(format!(
                    "there is no type `{other}`; take string, number, bool, any, list(…), set(…), map(…), object(…) or tuple(…)"
                )),
            },
            Expression::FuncCall(call) => Self::of_call(call),
            Expression::Parenthesis(inner) => Self::parse(inner.inner()),
            _ => {
                Err("is no type; take string, number, bool, any, list(…), set(…), map(…), object(…) or tuple(…)"
                    .to_owned())
            }
        }
    }

    fn of_call(call: &FuncCall) -> Result<Self, String> {
        let name = call.name.name.as_str();
        let (1, Some(argument)) = (call.args.len(), call.args.get(0)) else {
            return Err(format!("`{name}` takes one type"));
        };
        match (name, argument) {
            ("list", inner) => Ok(Self::List(Box::new(Self::parse(inner)?))),
            ("set", inner) => Ok(Self::Set(Box::new(Self::parse(inner)?))),
            ("map", inner) => Ok(Self::Map(Box::new(Self::parse(inner)?))),
            ("tuple", Expression::Array(types)) => {
                types.iter().map(Self::parse).collect::<Result<_, _>>().map(Self::Tuple)
            }
            ("object", Expression::Object(object)) => {
                let mut fields = BTreeMap::new();
                for (key, value) in object {
                    let name = match key {
                        ObjectKey::Ident(name) | ObjectKey::Expression(Expression::Variable(name)) => name.to_string(),
                        ObjectKey::Expression(other) => {
                            other.as_str().ok_or("a field of an object needs a name")?.to_owned()
                        }
                    };
                    fields.insert(name, Self::field(value.expr())?);
                }
                Ok(Self::Object(fields))
            }
            _ => Err(format!("there is no type `{name}(…)`")),
        }
    }

    fn field(expression: &Expression) -> Result<(Self, bool), String> {
        if let Expression::FuncCall(call) = expression
            && call.name.name.as_str() == "optional"
        {
            let inner = call.args.get(0).ok_or("`optional` takes a type")?;
            return Ok((Self::parse(inner)?, true));
        }
        Ok((Self::parse(expression)?, false))
    }

    /// A value as this type, or why it is none.
    pub(crate) fn convert(&self, value: &Value) -> Result<Value, String> {
        if matches!(value, Value::Null) {
            return Ok(Value::Null);
        }
        let wrong = |wanted: &str| format!("needs {wanted}, and this is {}", value.kind());
        let each = |inner: &Self, values: &[Value]| {
            values.iter().map(|value| inner.convert(value)).collect::<Result<Vec<_>, _>>()
        };
        match (self, value) {
            (Self::Any, value) => Ok(value.clone()),
            (Self::Text, value) => value.to_text().map(Value::Text).ok_or_else(|| wrong("a string")),
            (Self::Number, value) => value.to_number().map(Value::Number).ok_or_else(|| wrong("a number")),
            (Self::Bool, value) => value.to_bool().map(Value::Bool).ok_or_else(|| wrong("a bool")),
            (Self::List(inner), Value::List(values) | Value::Set(values)) => each(inner, values).map(Value::List),
            (Self::Set(inner), Value::List(values) | Value::Set(values)) => each(inner, values).map(Value::set),
            (Self::Tuple(types), Value::List(values)) if types.len() == values.len() => {
                let pairs = types.iter().zip(values);
                pairs.map(|(inner, value)| inner.convert(value)).collect::<Result<_, _>>().map(Value::List)
            }
            (Self::Map(inner), Value::Map(values)) => {
                let pairs = values.iter().map(|(key, value)| Ok((key.clone(), inner.convert(value)?)));
                pairs.collect::<Result<_, String>>().map(Value::Map)
            }
            (Self::Object(fields), Value::Map(values)) => object(fields, values),
            (Self::List(_) | Self::Set(_), _) => Err(wrong("a list")),
            (Self::Tuple(types), _) => Err(wrong(&format!("a list of {} elements", types.len()))),
            (Self::Map(_) | Self::Object(_), _) => Err(wrong("a map")),
        }
    }
}

/// Fields that the type does not name are dropped, as HCL does.
fn object(fields: &BTreeMap<String, (Type, bool)>, values: &BTreeMap<String, Value>) -> Result<Value, String> {
    let mut converted = BTreeMap::new();
    for (name, (inner, is_optional)) in fields {
        let value = match values.get(name) {
            Some(value) => inner.convert(value).map_err(|message| format!("field `{name}` {message}"))?,
            None if *is_optional => Value::Null,
            None => return Err(format!("lacks the field `{name}`")),
        };
        converted.insert(name.clone(), value);
    }
    Ok(Value::Map(converted))
}
