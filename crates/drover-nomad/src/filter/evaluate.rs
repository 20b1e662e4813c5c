//! Whether an object is meant by a filter.
//!
//! The first part of a path must be a field of the object: fields that have no value are there, as null. What a later
//! part does not find has no value: it equals nothing, holds nothing, and is empty.

use serde_json::Value;

use super::parser::{Expression, Match, Test, parse};
use crate::fault::Fault;

/// A filter that was read.
#[derive(Clone, Debug)]
pub struct Filter(Expression);

impl Filter {
    /// Reads an expression.
    ///
    /// # Errors
    /// 400, with the place of the mistake and what was expected there.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        parse(text).map(Self)
    }

    /// Whether an object, with its fields' names on the wire, is meant.
    ///
    /// # Errors
    /// 400 for a field that such objects do not have, and a comparison that its type does not know.
    pub fn matches(&self, object: &Value) -> Result<bool, Fault> {
        holds(&self.0, object)
    }
}

fn holds(expression: &Expression, object: &Value) -> Result<bool, Fault> {
    match expression {
        Expression::Or(all) => {
            for one in all {
                if holds(one, object)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Expression::And(all) => {
            for one in all {
                if !holds(one, object)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expression::Not(inner) => holds(inner, object).map(|it| !it),
        Expression::Match(one) => Ok(compare(one, find(&one.path, object)?)? != one.is_negated),
    }
}

/// The value at a path; null where there is none.
fn find<'a>(path: &[String], object: &'a Value) -> Result<&'a Value, Fault> {
    let mut value = object;
    for (depth, part) in path.iter().enumerate() {
        value = match value.get(part) {
            Some(found) => found,
            None if depth == 0 => {
                return Err(Fault::bad(format!(
                    "filter: {part:?} is no field of these objects; their names are those of the JSON"
                )));
            }
            None => return Ok(&Value::Null),
        };
    }
    Ok(value)
}

fn compare(one: &Match, value: &Value) -> Result<bool, Fault> {
    match &one.test {
        Test::IsNil => Ok(value.is_null()),
        Test::IsEmpty => match value {
            Value::Null => Ok(true),
            Value::String(text) => Ok(text.is_empty()),
            Value::Array(list) => Ok(list.is_empty()),
            Value::Object(map) => Ok(map.is_empty()),
            Value::Bool(_) | Value::Number(_) => Err(unfit(one, value, "is empty")),
        },
        Test::Equals(wanted) => equals(one, value, wanted),
        Test::Holds(wanted) => match value {
            Value::Null => Ok(false),
            Value::String(text) => Ok(text.contains(wanted.as_str())),
            Value::Array(list) => {
                for item in list {
                    if equals(one, item, wanted)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Value::Object(map) => Ok(map.contains_key(wanted)),
            Value::Bool(_) | Value::Number(_) => Err(unfit(one, value, "contains")),
        },
        Test::Matches(regex) => match value {
            Value::Null => Ok(false),
            Value::String(text) => Ok(regex.is_match(text)),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Err(unfit(one, value, "matches")),
        },
    }
}

fn equals(one: &Match, value: &Value, wanted: &str) -> Result<bool, Fault> {
    let no_such = |kind: &str| {
        let path = one.path.join(".");
        Fault::bad(format!("filter: {path} is {kind}, and {wanted:?} is none"))
    };
    match value {
        Value::Null => Ok(false),
        Value::String(text) => Ok(text == wanted),
        Value::Bool(is) => match wanted {
            "true" => Ok(*is),
            "false" => Ok(!is),
            _ => Err(no_such("true or false")),
        },
        Value::Number(number) => {
            if let (Some(is), Ok(wanted)) = (number.as_i64(), wanted.parse::<i64>()) {
                return Ok(is == wanted);
            }
            let wanted: f64 = wanted.parse().map_err(|_| no_such("a number"))?;
            Ok(number.as_f64().is_some_and(|is| is.total_cmp(&wanted).is_eq()))
        }
        Value::Array(_) | Value::Object(_) => Err(unfit(one, value, "==")),
    }
}

fn unfit(one: &Match, value: &Value, operator: &str) -> Fault {
    let kind = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Fault::bad(format!("filter: {} is {kind}, which `{operator}` cannot be asked of", one.path.join(".")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({
            "ID": "a1", "ParentID": "", "JobID": "web/1", "ClientStatus": "running", "Priority": 50, "Stop": false,
            "Datacenters": ["dc1", "dc2"], "Meta": { "team": "shop", "with.dot": "x" }, "Periodic": null,
            "ParameterizedJob": { "Payload": "optional" }, "Ratio": 0.5,
            "TaskStates": { "t": { "State": "running", "Failed": false } },
        })
    }

    fn says(text: &str) -> Result<bool, String> {
        let filter = Filter::parse(text).map_err(|fault| fault.message)?;
        filter.matches(&object()).map_err(|fault| fault.message)
    }

    #[test]
    fn every_operator_and_its_opposite() {
        for (text, wanted) in [
            ("ClientStatus == running", true),
            ("ClientStatus == \"running\" and JobID matches \"^web\"", true),
            ("ClientStatus != \"running\"", false),
            ("Priority == 50", true),
            ("Priority == \"50\"", true),
            ("Priority != 51", true),
            ("Ratio == 0.5", true),
            ("Stop == false", true),
            ("Stop == true or Priority == 50", true),
            ("\"dc1\" in Datacenters", true),
            ("dc3 in Datacenters", false),
            ("dc3 not in Datacenters", true),
            ("\"dc3\" not in Datacenters", true),
            ("Datacenters contains \"dc2\"", true),
            ("Datacenters not contains \"dc2\"", false),
            ("Meta contains \"team\"", true),
            ("\"eb\" in JobID", true),
            ("ParentID is empty", true),
            ("Datacenters is not empty", true),
            ("Periodic is empty", true),
            ("Meta.team == \"shop\"", true),
            ("Meta[\"with.dot\"] == \"x\"", true),
            ("Meta.none == \"x\"", false),
            ("Meta.none != \"x\"", true),
            ("Meta.none is empty", true),
            ("TaskStates[\"t\"].State == \"running\"", true),
            ("TaskStates.t.Failed == true", false),
            ("JobID matches `^web/\\d$`", true),
            ("JobID matches \"^web/\\d$\"", true),
            ("JobID not matches \"^api\"", true),
            ("not ClientStatus == \"running\"", false),
            ("not (Stop == true or Priority == 7) and ID == a1", true),
            ("Stop == true and Stop == true or Priority == 50", true),
            ("Priority == 50 or Stop == true and Stop == true", true),
        ] {
            assert_eq!(says(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn nil_is_what_has_no_value() {
        for (text, wanted) in [
            ("ParentID == \"\" and ParameterizedJob is not nil", true),
            ("Periodic is not nil", false),
            ("Periodic is nil", true),
            ("ParameterizedJob is nil", false),
            ("Meta.none is nil", true),
            ("Periodic.Spec is nil", true),
        ] {
            assert_eq!(says(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, named) in [
            ("", "at character 1: expected the name of a field"),
            ("ClientStatus", "expected `==`"),
            ("ClientStatus = \"x\"", "'=' has no meaning"),
            ("ClientStatus == ", "at character 17: expected a value"),
            ("ClientStatus == \"x", "has no end"),
            ("(Stop == true", "expected `)`"),
            ("Stop == true Stop == true", "expected `and`, `or` or the end"),
            ("Stop is nothing", "expected `empty`"),
            ("JobID matches \"(\"", "no regular expression"),
            ("JobID matches \"((a{100}){100}){100}\"", "no regular expression"),
            ("None == \"x\"", "\"None\" is no field"),
            ("Priority == \"x\"", "Priority is a number"),
            ("Stop == \"x\"", "Stop is true or false"),
            ("Datacenters == \"x\"", "Datacenters is a list"),
            ("Meta matches \"x\"", "Meta is an object"),
            ("Priority is empty", "Priority is a number"),
            ("Priority contains 5", "Priority is a number"),
            ("Meta[team] == \"x\"", "a key in quotes"),
            ("\"x\" == ID", "expected `in`"),
            ("ID.", "expected the name of a field"),
        ] {
            let error = says(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
        let deep = |n: usize| format!("{}Stop == false{}", "(".repeat(n), ")".repeat(n));
        assert_eq!(says(&deep(31)), Ok(true));
        assert!(says(&deep(32)).expect_err("too deep").contains("32 levels"));
        assert!(says(&format!("{}Stop == false", "not ".repeat(2000))).expect_err("too deep").contains("32 levels"));
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "\\PC{0,200}") {
            drop(says(&text));
        }

        #[test]
        fn no_order_of_words_is_too_strange(words in proptest::collection::vec(prop_oneof![
            Just("("), Just(")"), Just("not"), Just("and"), Just("or"), Just("is"), Just("nil"), Just("in"), Just("=="),
            Just("ID"), Just("Meta"), Just("."), Just("["), Just("]"), Just("\"t\""), Just("matches"), Just("7"),
        ], 0..30)) {
            drop(says(&words.join(" ")));
        }

        #[test]
        fn what_a_text_equals_is_what_it_is(value in "[a-zA-Z0-9 /_.-]{0,20}", other in "[a-z]{0,8}") {
            let object = json!({ "ID": value });
            let filter = |text: String| Filter::parse(&text).expect("a filter").matches(&object);
            prop_assert_eq!(filter(format!("ID == \"{other}\"")), Ok(value == other));
            prop_assert_eq!(filter(format!("ID != \"{other}\"")), Ok(value != other));
            prop_assert_eq!(filter(format!("not ID contains \"{other}\"")), Ok(!value.contains(&other)));
        }
    }
}
