//! Values of a driver's settings as job files write them.
//!
//! What Nomad gives its drivers is converted to the type that each setting has: a number among a program's arguments is
//! text, `"80"` a number where one is asked for. A block, which may stand more than once, is a list of objects; where
//! one object is asked for, all of them are it. Must never know which settings there are.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde_json::{Error, Map, Value};

/// Reads a value as what is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lenient<'a>(pub(super) &'a Value);

impl<'a> IntoDeserializer<'a, Error> for Lenient<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'a> Lenient<'a> {
    fn list<V: Visitor<'a>>(items: &'a [Value], visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(items.iter().map(Self)))
    }

    fn object<V: Visitor<'a>>(
        fields: impl Iterator<Item = (&'a String, &'a Value)>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(fields.map(|(name, value)| (name.as_str(), Self(value)))))
    }

    /// The objects that a list consists of, if it does.
    fn blocks(self) -> Option<Vec<&'a Map<String, Value>>> {
        self.0.as_array().filter(|blocks| !blocks.is_empty())?.iter().map(Value::as_object).collect()
    }
}

/// Reads a number that may be written as text.
macro_rules! numbers {
    ($($method:ident: $number:ty as $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.as_str().map(str::parse::<$number>) {
                Some(Ok(number)) => visitor.$visit(number),
                Some(Err(_)) | None => self.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Lenient<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => Self::list(items, visitor),
            Value::Object(fields) => Self::object(fields.iter(), visitor),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => self.0.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Bool(value) => visitor.visit_string(value.to_string()),
            Value::Number(value) => visitor.visit_string(value.to_string()),
            Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0.as_str() {
            Some("true" | "1") => visitor.visit_bool(true),
            Some("false" | "0") => visitor.visit_bool(false),
            Some(_) | None => self.deserialize_any(visitor),
        }
    }

    numbers! {
        deserialize_i32: i32 as visit_i32,
        deserialize_i64: i64 as visit_i64,
        deserialize_u32: u32 as visit_u32,
        deserialize_u64: u64 as visit_u64,
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => Self::list(std::slice::from_ref(self.0), visitor),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match (self.blocks(), self.0) {
            (Some(blocks), _) => Self::object(blocks.into_iter().flatten(), visitor),
            // A struct would take its fields from a list by their order.
            (None, Value::Array(_)) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            (None, _) => self.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    mod written;

    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        size: u64,
        is_on: bool,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        args: Vec<String>,
        name: Option<String>,
        size: i32,
        limits: BTreeMap<String, String>,
        one: Inner,
        some: Vec<Inner>,
    }

    fn read(value: &Value) -> Result<Settings, String> {
        Settings::deserialize(Lenient(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_setting_gets_the_type_that_it_has() {
        let own = json!({
            "args": ["80", "0.5", "true", "x"], "name": "7", "size": -3, "limits": { "core": "0", "nofile": "64:128" },
            "one": { "size": 1, "is_on": true }, "some": [{ "size": 2 }, { "is_on": true }],
        });
        let of_job_files = json!({
            "args": [80, 0.5, true, "x"], "name": 7, "size": "-3", "limits": [{ "core": 0 }, { "nofile": "64:128" }],
            "one": [{ "size": "1", "is_on": "true" }], "some": [{ "size": "2" }, { "is_on": "1" }],
        });
        assert_eq!(read(&of_job_files), read(&own));
        assert_eq!(read(&own).unwrap().args, ["80", "0.5", "true", "x"]);
        let once = read(&json!({ "some": { "size": 5 }, "name": null })).unwrap();
        assert_eq!(once, Settings { some: vec![Inner { size: 5, is_on: false }], ..Settings::default() });
    }

    #[test]
    fn what_cannot_be_converted_is_refused() {
        for (value, wanted) in [
            (json!({ "args": [[]] }), "invalid type: sequence, expected a string"),
            (json!({ "args": [{ "a": 1 }] }), "invalid type: map, expected a string"),
            (json!({ "size": "many" }), "invalid type: string \"many\", expected i32"),
            (json!({ "size": 5_000_000_000_u64 }), "invalid value"),
            (json!({ "one": [{ "size": 1 }, 2] }), "invalid type: sequence"),
            (json!({ "one": [] }), "invalid type: sequence"),
            (json!({ "one": { "size": -1 } }), "invalid value: integer `-1`, expected u64"),
            (json!({ "one": [{ "size": 1 }, { "size": 2 }] }), "duplicate field `size`"),
            (json!({ "one": [{ "colour": 1 }] }), "unknown field `colour`"),
            (json!({ "one": { "is_on": "often" } }), "expected a boolean"),
        ] {
            let fault = read(&value).unwrap_err();
            assert!(fault.contains(wanted), "{value}: {fault}");
        }
    }
}
