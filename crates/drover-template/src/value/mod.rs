//! Values of a template, and what Go's rules make of them.

mod records;
mod types;
mod worth;

pub(crate) use records::{
    CATALOG_SNIPPET, HEALTH_SERVICE, KEY_PAIR, NANO_TIME, NOMAD_SERVICE, NOMAD_SNIPPET, PAIRS_BY_KEY,
    POINTERS_TO_PAIRS, SECRET, SERVICE_TAGS, TUPLE, VARIABLE, VARIABLE_ITEM, VARIABLE_ITEMS, VARIABLE_META,
};
pub(crate) use types::{
    ANY_MAP, ANY_SLICE, GoType, INT, IntKind, RecordType, TEXT_MAP, TEXT_SLICE, UINT64, UintKind, YAML_MAP,
};
pub(crate) use worth::{Bytes, Map, MapKey, Record, Value};
