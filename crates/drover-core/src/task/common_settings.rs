//! What the settings of several drivers have in common: how they are read, namespaces, limits of processes.
//!
//! Must never know a driver.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _, Visitor, value};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::lenient::Lenient;

/// The limits of processes that `ulimit` may name.
pub const LIMITS: [&str; 12] =
    ["core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc", "rtprio", "sigpending", "stack"];

/// Whether something is the task's own or the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceMode {
    /// Its own.
    #[default]
    Private,
    /// The host's.
    Host,
}

/// One limit of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// One of [`LIMITS`].
    pub name: String,
    /// What counts until the process raises it; [`u64::MAX`] for none.
    pub soft: u64,
    /// As far as it may raise it.
    pub hard: u64,
}

/// Limits by name, each `SOFT:HARD` or one number for both; -1 for none.
pub(super) fn limits_of(ulimit: &BTreeMap<String, String>) -> Result<Vec<Limit>, String> {
    let number = |text: &str| if text == "-1" { Some(u64::MAX) } else { text.parse().ok() };
    let read = |(name, value): (&String, &String)| {
        let (soft, hard) = value.split_once(':').unwrap_or((value, value));
        match (LIMITS.contains(&name.as_str()), number(soft), number(hard)) {
            (true, Some(soft), Some(hard)) if soft <= hard => Ok(Limit { name: name.clone(), soft, hard }),
            (false, _, _) => {
                Err(format!("config.ulimit.{name}: there is no such limit; take one of {}", LIMITS.join(", ")))
            }
            (true, _, _) => Err(format!("config.ulimit.{name}: {value:?} is no limit: give a number, or SOFT:HARD")),
        }
    };
    ulimit.iter().map(read).collect()
}

/// Settings without a key that they do not have.
pub(super) fn parse<T: DeserializeOwned>(driver: &str, config: &Map<String, Value>) -> Result<T, String> {
    if let Some(fault) = unknown_key::<T>(driver, config) {
        return Err(fault);
    }
    T::deserialize(Lenient(&Value::Object(config.clone()))).map_err(|error| format!("config: {error}"))
}

/// Settings under the names that `own` gives them, whose other names are `whose`.
pub(super) fn renamed(
    config: &Map<String, Value>,
    whose: &str,
    own: impl Fn(&str, &Value) -> Result<(String, Value), String>,
) -> Result<Map<String, Value>, String> {
    let mut ours = Map::new();
    for (key, value) in config {
        let (name, value) = own(key, value)?;
        if ours.insert(name, value).is_some() {
            return Err(format!("config.{key} stands there twice, under {whose} name and under ours: take one"));
        }
    }
    Ok(ours)
}

/// The same words without underscores.
pub(super) fn camel_case(key: &str) -> String {
    let mut parts = key.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (head, tail) = part.split_at_checked(1).unwrap_or((part, ""));
        text + &head.to_uppercase() + tail
    })
}

pub(super) fn check_work_dir(dir: Option<&str>) -> Result<(), String> {
    match dir.filter(|dir| !Path::new(dir).is_absolute()) {
        Some(dir) => Err(format!("config.workDir {dir:?} is relative: give an absolute path")),
        None => Ok(()),
    }
}

/// Whether a task may have a process at all.
pub(super) fn check_pids_limit(limit: Option<u64>) -> Result<(), String> {
    match limit {
        Some(0) => Err("config.pidsLimit is 0, with which nothing runs: write at least 1, or leave it out for the \
                        node's own limit"
            .to_owned()),
        _ => Ok(()),
    }
}

/// The first key that the settings do not have.
pub(super) fn unknown_key<T: DeserializeOwned>(driver: &str, config: &Map<String, Value>) -> Option<String> {
    let known = fields::<T>();
    let key = config.keys().find(|key| !known.contains(&key.as_str()))?;
    Some(format!("config.{key} is no setting of driver {driver}; take one of {}", known.join(", ")))
}

/// The names of a struct's fields, as it is read.
pub(super) fn fields<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names = FieldNames(&[]);
    // It always ends in an error: nothing is read.
    let _ = T::deserialize(&mut names).is_ok();
    names.0
}

/// Takes down the fields that a struct asks for.
struct FieldNames(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut FieldNames {
    type Error = value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        self.0 = fields;
        Err(value::Error::custom("only the names are asked for"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(value::Error::custom("only a struct has fields"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
