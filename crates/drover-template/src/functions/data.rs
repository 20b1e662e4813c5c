//! Functions that look something up, and what they share. What is missing is noted; the rendering goes on without it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use jiff::Timestamp;

use super::arguments::argument;
use crate::budget::Budget;
use crate::fault::{Outcome, failed};
use crate::value::{
    ANY_MAP, ANY_SLICE, CATALOG_SNIPPET, GoType, HEALTH_SERVICE, INT, KEY_PAIR, Map, MapKey, NOMAD_SERVICE,
    NOMAD_SNIPPET, PAIRS_BY_KEY, POINTERS_TO_PAIRS, Record, SECRET, SERVICE_TAGS, TEXT_MAP, VARIABLE, VARIABLE_ITEM,
    VARIABLE_ITEMS, VARIABLE_META, Value,
};
use crate::values::{Needed, ServiceInstance, ValueBytes, Values};

/// What functions know of the rendering.
pub(crate) struct Host<'a> {
    pub(crate) values: &'a Values,
    pub(crate) budget: &'a Budget,
    pub(crate) now: Timestamp,
    /// What was missing.
    pub(crate) needed: RefCell<BTreeSet<Needed>>,
    /// What is missing and known not to exist.
    pub(crate) absent: RefCell<BTreeSet<Needed>>,
    pub(crate) scratch: RefCell<BTreeMap<Vec<u8>, Value>>,
}

type Keys = BTreeMap<String, ValueBytes>;

impl Host<'_> {
    /// A text that counts.
    pub(crate) fn text(&self, text: &[u8]) -> Outcome<Value> {
        self.budget.make(text.len())?;
        Ok(Value::text(text))
    }

    fn need(&self, what: Needed) {
        self.needed.borrow_mut().insert(what);
    }

    fn lack(&self, what: Needed) {
        self.absent.borrow_mut().insert(what);
    }

    /// A Secret: none if it is missing, which is noted.
    fn secret(&self, name: &str) -> Option<&Keys> {
        match self.values.secrets.get(name) {
            Some(Some(keys)) => return Some(keys),
            Some(None) => self.lack(Needed::Secret(name.to_owned())),
            None => self.need(Needed::Secret(name.to_owned())),
        }
        None
    }
}

/// The name of an object under a path.
fn object_name(path: &str) -> String {
    path.trim().trim_matches('/').replace('/', ".")
}

fn path_of(given: &[Value]) -> String {
    String::from_utf8_lossy(&argument(given, 0)).into_owned()
}

pub(super) fn env(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    host.text(host.values.env.get(&path_of(given)).map_or("", String::as_str).as_bytes())
}

pub(super) fn must_env(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match host.values.env.get(&path_of(given)).filter(|value| !value.is_empty()) {
        Some(value) => host.text(value.as_bytes()),
        None => failed(format!("required environment variable {} is empty", path_of(given))),
    }
}

pub(super) fn env_or_default(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match host.values.env.get(&path_of(given)) {
        Some(value) => host.text(value.as_bytes()),
        None => Ok(given[1].clone()),
    }
}

/// What there is of a key.
enum Found<'a> {
    Here(&'a ValueBytes),
    Absent(Needed),
    Unknown(Needed),
}

fn look_up<'a>(host: &'a Host<'_>, given: &[Value]) -> Outcome<Option<Found<'a>>> {
    let path = path_of(given);
    if path.is_empty() {
        return Ok(None);
    }
    if path.contains(['@', '?']) {
        return failed(format!("{path:?}: drover knows no datacenters: write CONFIGMAP/KEY"));
    }
    let path = path.strip_prefix('/').unwrap_or(&path);
    let Some((map, key)) = path.rsplit_once('/') else {
        return failed(format!("{path:?} names no key: write CONFIGMAP/KEY"));
    };
    let name = object_name(map);
    Ok(Some(match host.values.config_maps.get(&name) {
        Some(Some(keys)) => match keys.get(key) {
            Some(value) => Found::Here(value),
            None => Found::Absent(Needed::ConfigMapKey(name, key.to_owned())),
        },
        Some(None) => Found::Absent(Needed::ConfigMap(name)),
        None => Found::Unknown(Needed::ConfigMap(name)),
    }))
}

pub(super) fn key(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match look_up(host, given)? {
        Some(Found::Here(value)) => return host.text(&value.0),
        Some(Found::Absent(what)) => host.lack(what),
        Some(Found::Unknown(what)) => host.need(what),
        None => {}
    }
    Ok(Value::text(""))
}

pub(super) fn key_exists(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    Ok(Value::Bool(match look_up(host, given)? {
        Some(Found::Here(_)) => true,
        Some(Found::Unknown(what)) => {
            host.need(what);
            false
        }
        _ => false,
    }))
}

pub(super) fn key_or_default(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match look_up(host, given)? {
        Some(Found::Here(value)) if !value.0.is_empty() => return host.text(&value.0),
        Some(Found::Unknown(what)) => host.need(what),
        _ => {}
    }
    Ok(given[1].clone())
}

fn listed(host: &Host<'_>, given: &[Value], is_safe: bool) -> Outcome<Value> {
    let path = path_of(given);
    let name = object_name(&path);
    let none = Ok(Value::list(POINTERS_TO_PAIRS, Vec::new()));
    if path.is_empty() {
        return none;
    }
    let keys = match host.values.config_maps.get(&name) {
        Some(Some(keys)) => keys,
        Some(None) => {
            if is_safe {
                host.lack(Needed::ConfigMap(name));
            }
            return none;
        }
        None => {
            host.need(Needed::ConfigMap(name));
            return none;
        }
    };
    if keys.is_empty() && is_safe {
        host.lack(Needed::ConfigMap(name));
    }
    let path = path.trim_matches('/');
    let pairs = keys.iter().map(|(key, value)| {
        host.budget.make(value.0.len() + key.len() + size_of::<Value>() * 8)?;
        let zero = || Value::zero(crate::value::UINT64);
        let fields = vec![
            Value::text(format!("{path}/{key}")),
            Value::text(key),
            Value::text(&value.0),
            zero(),
            zero(),
            zero(),
            zero(),
            Value::text(""),
        ];
        Ok(Value::record(&KEY_PAIR, fields).pointed())
    });
    Ok(Value::list(POINTERS_TO_PAIRS, pairs.collect::<Outcome<_>>()?))
}

pub(super) fn ls(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    listed(host, given, false)
}

pub(super) fn safe_ls(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    listed(host, given, true)
}

pub(super) fn secret(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    if given.is_empty() {
        return Ok(Value::Nil);
    }
    if given[1..].iter().any(Value::is_true) {
        return failed("a template cannot write a secret");
    }
    let Some(keys) = host.secret(&object_name(&path_of(given))) else { return Ok(Value::Nil) };
    host.budget.make(keys.values().map(|value| value.0.len() * 2 + size_of::<Value>() * 2).sum())?;
    let plain = || keys.iter().map(|(key, value)| (key, Value::text(&value.0)));
    let inner = Value::any_map(plain());
    let data = std::iter::once(("data", inner)).map(|(key, value)| (key.to_owned(), value));
    let data = Value::any_map(data.chain(plain().map(|(key, value)| (key.clone(), value))));
    let Value::Record(empty) = Value::zero(GoType::Record(&SECRET)) else { return Ok(Value::Nil) };
    let mut fields = empty.fields.clone();
    fields[4] = data;
    Ok(Value::record(&SECRET, fields).pointed())
}

fn names<'a>(host: &'a Host<'_>, prefix: &str) -> Vec<&'a String> {
    let Some(names) = &host.values.secret_names else {
        host.need(Needed::SecretNames);
        return Vec::new();
    };
    let prefix = object_name(prefix);
    names.iter().filter(|name| name.starts_with(&prefix)).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "all functions have one type")]
pub(super) fn secrets(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    if path_of(given).is_empty() {
        return Ok(Value::NilOf(crate::value::TEXT_SLICE));
    }
    Ok(Value::text_list(names(host, &path_of(given))))
}

fn metadata(path: &str) -> Vec<Value> {
    let zero = || Value::zero(crate::value::UINT64);
    vec![Value::text("default"), Value::text(path), zero(), zero(), Value::Nanos(0), Value::Nanos(0)]
}

fn variable_path(given: &[Value]) -> Outcome<String> {
    let path = path_of(given);
    if path.contains('@') {
        return failed(format!("{path:?}: a template reads variables of its job's own namespace only"));
    }
    Ok(path.trim().trim_matches('/').to_owned())
}

pub(super) fn variable(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let nothing = Ok(Value::NilOf(GoType::Pointer(&VARIABLE_ITEMS)));
    let path = variable_path(given)?;
    if path.is_empty() {
        return nothing;
    }
    let Some(keys) = host.secret(&object_name(&path)) else { return nothing };
    host.budget.make(keys.values().map(|value| value.0.len() + size_of::<Value>() * 8).sum())?;
    let item = |key: &String, value: &ValueBytes, parent: Option<Value>| {
        let fields = vec![Value::text(key), Value::text(&value.0)];
        Value::Record(Rc::new(Record { of: &VARIABLE_ITEM, fields, parent }))
    };
    let items = |parent: Option<&Value>| {
        let items =
            keys.iter().map(|(key, value)| (MapKey::Text(Rc::from(key.as_bytes())), item(key, value, parent.cloned())));
        Value::map(VARIABLE_ITEMS, items.collect())
    };
    let mut fields = metadata(&path);
    fields.push(items(None));
    let parent = Value::record(&VARIABLE, fields).pointed();
    Ok(items(Some(&parent)).pointed())
}

pub(super) fn variable_exists(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let path = variable_path(given)?;
    let name = object_name(&path);
    if path.is_empty() {
        return Ok(Value::Bool(false));
    }
    if let Some(found) = host.values.secrets.get(&name) {
        return Ok(Value::Bool(found.is_some()));
    }
    host.need(Needed::Secret(name));
    Ok(Value::Bool(false))
}

pub(super) fn variables(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    if given.len() > 1 {
        return failed("nomadVarList takes a prefix or nothing");
    }
    let found = names(host, &variable_path(given)?);
    let of = GoType::Slice(&const { GoType::Pointer(&GoType::Record(&VARIABLE_META)) });
    let metas =
        found.into_iter().map(|name| Value::record(&VARIABLE_META, metadata(&name.replace('.', "/"))).pointed());
    Ok(Value::list(of, metas.collect()))
}

pub(super) fn variables_safe(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let found = variables(host, given)?;
    if !found.is_true() && host.values.secret_names.is_some() {
        host.lack(Needed::SecretNames);
    }
    Ok(found)
}

fn tags(instance: &[String]) -> Value {
    Value::list(SERVICE_TAGS, instance.iter().map(Value::text).collect())
}

/// The instances of `tag.name`, whatever comes behind an `@`.
fn instances<'a>(host: &'a Host<'_>, text: &str) -> Outcome<(String, Vec<&'a ServiceInstance>)> {
    let text = text.split(['@', '~', '|']).next().unwrap_or_default();
    let (tag, name) = text.rsplit_once('.').map_or((None, text), |(tag, name)| (Some(tag), name));
    if name.is_empty() || !name.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_')) {
        return failed(format!("invalid format of a service: {text:?}"));
    }
    let Some(found) = host.values.services.get(name) else {
        host.need(Needed::Service(name.to_owned()));
        return Ok((name.to_owned(), Vec::new()));
    };
    let is_wanted = |instance: &&ServiceInstance| tag.is_none_or(|tag| instance.tags.iter().any(|is| is == tag));
    Ok((name.to_owned(), found.iter().filter(is_wanted).collect()))
}

pub(super) fn nomad_service(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let of = GoType::Slice(&const { GoType::Pointer(&GoType::Record(&NOMAD_SERVICE)) });
    let (name, found) = match given {
        [Value::Text(name)] => instances(host, &String::from_utf8_lossy(name))?,
        [Value::Int(crate::value::IntKind::Int, count), Value::Text(key), Value::Text(name)] => {
            let (name, mut found) = instances(host, &String::from_utf8_lossy(name))?;
            // The same key chooses the same instances, as long as they are there.
            found.sort_by_cached_key(|instance| {
                use sha2::Digest as _;
                let mut hash = sha2::Sha256::new_with_prefix(key);
                hash.update(&instance.id);
                hash.finalize().to_vec()
            });
            found.truncate(usize::try_from(*count).unwrap_or(0));
            (name, found)
        }
        _ => return failed("expected arguments <service> or <count> <key> <service>"),
    };
    let records = found.into_iter().map(|instance| {
        let fields = vec![
            Value::text(&instance.id),
            Value::text(&name),
            Value::text(&instance.node),
            Value::text(&instance.address),
            Value::int(instance.port),
            Value::text(&instance.datacenter),
            tags(&instance.tags),
            Value::text(&instance.job),
            Value::text(&instance.allocation),
        ];
        Value::record(&NOMAD_SERVICE, fields).pointed()
    });
    Ok(Value::list(of, records.collect()))
}

pub(super) fn service(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let of = GoType::Slice(&const { GoType::Pointer(&GoType::Record(&HEALTH_SERVICE)) });
    if given.is_empty() || path_of(given).is_empty() {
        return Ok(Value::list(of, Vec::new()));
    }
    let (name, found) = instances(host, &path_of(given))?;
    let map = || Value::map(TEXT_MAP, BTreeMap::new());
    let records = found.into_iter().map(|instance| {
        let fields = vec![
            Value::text(&instance.node),
            Value::text(""),
            Value::text(&instance.address),
            map(),
            map(),
            map(),
            Value::text(&instance.address),
            Value::text(&instance.id),
            Value::text(&name),
            tags(&instance.tags),
            Value::text("passing"),
            Value::int(instance.port),
        ];
        Value::record(&HEALTH_SERVICE, fields).pointed()
    });
    Ok(Value::list(of, records.collect()))
}

fn snippets(host: &Host<'_>, of: &'static crate::value::RecordType, slice: GoType) -> Value {
    let Some(services) = &host.values.service_tags else {
        host.need(Needed::Services);
        return Value::list(slice, Vec::new());
    };
    let found = services.iter().map(|(name, found)| Value::record(of, vec![Value::text(name), tags(found)]).pointed());
    Value::list(slice, found.collect())
}

#[expect(clippy::unnecessary_wraps, reason = "all functions have one type")]
pub(super) fn nomad_services(host: &Host<'_>, _: &[Value]) -> Outcome<Value> {
    let of = GoType::Slice(&const { GoType::Pointer(&GoType::Record(&NOMAD_SNIPPET)) });
    Ok(snippets(host, &NOMAD_SNIPPET, of))
}

#[expect(clippy::unnecessary_wraps, reason = "all functions have one type")]
pub(super) fn services(host: &Host<'_>, _: &[Value]) -> Outcome<Value> {
    let of = GoType::Slice(&const { GoType::Pointer(&GoType::Record(&CATALOG_SNIPPET)) });
    Ok(snippets(host, &CATALOG_SNIPPET, of))
}

pub(super) fn file(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let path = path_of(given);
    match host.values.files.get(&path) {
        _ if path.is_empty() => {}
        Some(Some(text)) => return host.text(&text.0),
        Some(None) => host.lack(Needed::File(path)),
        None => host.need(Needed::File(path)),
    }
    Ok(Value::text(""))
}

pub(super) fn timestamp(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    match given {
        [] => host.text(host.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().as_bytes()),
        [Value::Text(layout)] if **layout == *b"unix" => host.text(host.now.as_second().to_string().as_bytes()),
        [Value::Text(layout)] => {
            let mut text = String::from_utf8_lossy(layout).into_owned();
            for (go, here) in [("2006", "%Y"), ("01", "%m"), ("02", "%d"), ("15", "%H"), ("04", "%M"), ("05", "%S")] {
                text = text.replace(go, here);
            }
            text = text.replace("Z07:00", "Z").replace("MST", "UTC").replace("-0700", "+0000");
            match jiff::fmt::strtime::format(&text, host.now) {
                Ok(text) => host.text(text.as_bytes()),
                Err(error) => failed(format!("timestamp: {error}")),
            }
        }
        _ => failed("timestamp: wrong number of arguments, expected 0 or 1"),
    }
}

fn fields_of(value: &Value) -> Option<Rc<Record>> {
    match value.indirect().0 {
        Value::Record(record) => Some(record),
        _ => None,
    }
}

fn field<'r>(record: &'r Record, name: &str) -> Option<&'r Value> {
    let index = record.of.fields.iter().position(|(field, _)| *field == name)?;
    record.fields.get(index)
}

#[expect(clippy::unnecessary_wraps, reason = "all functions have one type")]
pub(super) fn by_key(_: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let mut groups: BTreeMap<MapKey, BTreeMap<MapKey, Value>> = BTreeMap::new();
    for pair in given[0].items().unwrap_or_default() {
        let Some(record) = fields_of(pair) else { continue };
        let Some(key) = field(&record, "Key").and_then(Value::as_text) else { continue };
        let Some(at) = key.iter().position(|byte| *byte == b'/') else { continue };
        let (top, rest) = (&key[..at], &key[at + 1..]);
        if !rest.is_empty() {
            let mut fields = record.fields.clone();
            fields[1] = Value::text(rest);
            let pair = Value::record(&KEY_PAIR, fields).pointed();
            groups.entry(MapKey::Text(Rc::from(top))).or_default().insert(MapKey::Text(Rc::from(rest)), pair);
        }
    }
    let groups = groups.into_iter().map(|(key, pairs)| (key, Value::map(PAIRS_BY_KEY, pairs)));
    Ok(Value::map(GoType::Map(&GoType::Text, &PAIRS_BY_KEY), groups.collect()))
}

fn grouped(host: &Host<'_>, given: &[Value], of: GoType, name: &str) -> Outcome<Value> {
    let mut groups: BTreeMap<MapKey, Vec<Value>> = BTreeMap::new();
    let items = match &given[0] {
        Value::Nil => &[],
        other => match other.items() {
            Some(items) => items,
            None => return failed(format!("wrong argument type {}", other.type_name())),
        },
    };
    for item in items {
        let Some(value) = fields_of(item).and_then(|record| field(&record, name).cloned()) else {
            return failed(format!("wrong argument type {}", given[0].type_name()));
        };
        let keys = value.items().map_or_else(|| vec![value.clone()], <[Value]>::to_vec);
        for key in keys.iter().filter_map(Value::as_key) {
            host.budget.make(size_of::<Value>())?;
            groups.entry(key).or_default().push(item.clone());
        }
    }
    Ok(Value::map(of, groups.into_iter().map(|(key, items)| (key, Value::list(ANY_SLICE, items))).collect()))
}

pub(super) fn by_tag(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    grouped(host, given, GoType::Map(&GoType::Text, &ANY_SLICE), "Tags")
}

pub(super) fn by_port(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    grouped(host, given, GoType::Map(&INT, &ANY_SLICE), "Port")
}

/// Puts a value under the parts of its key.
fn nest(host: &Host<'_>, map: &Rc<Map>, key: &[u8], value: Value) -> Outcome<()> {
    host.budget.deeper()?;
    let Some(at) = key.iter().position(|byte| *byte == b'/') else {
        if !key.is_empty() {
            map.items.borrow_mut().insert(MapKey::Text(Rc::from(key)), value);
        }
        return Ok(());
    };
    let top = MapKey::Text(Rc::from(&key[..at]));
    let inner = map.items.borrow_mut().entry(top).or_insert_with(|| Value::any_map::<&str>([])).clone();
    match inner {
        Value::Map(inner) if inner.of == ANY_MAP => nest(host, &inner, &key[at + 1..], value),
        _ => failed(format!("not a map: {:?} already has a value", String::from_utf8_lossy(&key[..at]))),
    }
}

fn exploded(host: &Host<'_>, pairs: Vec<(Vec<u8>, Value)>) -> Outcome<Value> {
    let map = Rc::new(Map { of: ANY_MAP, items: RefCell::default() });
    for (key, value) in pairs {
        host.budget.make(key.len() + size_of::<Value>())?;
        nest(host, &map, &key, value)?;
    }
    Ok(Value::Map(map))
}

pub(super) fn explode(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let pairs = given[0].items().unwrap_or_default().iter().filter_map(fields_of);
    let pairs =
        pairs.filter_map(|record| Some((field(&record, "Key")?.as_text()?.to_vec(), field(&record, "Value")?.clone())));
    exploded(host, pairs.collect())
}

pub(super) fn explode_map(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    let pairs = given[0].entries().unwrap_or_default().into_iter();
    exploded(host, pairs.filter_map(|(key, value)| Some((key.as_text()?.to_vec(), value))).collect())
}

fn merged(host: &Host<'_>, one: &Value, other: &Value, overrides: bool) -> Outcome<Value> {
    host.budget.deeper()?;
    let mut items: BTreeMap<MapKey, Value> = one.entries().unwrap_or_default().into_iter().collect();
    for (key, value) in other.entries().unwrap_or_default() {
        host.budget.make(size_of::<Value>())?;
        let there = items.get(&key).cloned();
        let value = match &there {
            Some(Value::Map(map)) if map.of == ANY_MAP && matches!(value, Value::Map(_)) => {
                merged(host, &Value::Map(Rc::clone(map)), &value, overrides)?
            }
            Some(there) if there.is_true() && !(overrides && value.is_true()) => there.clone(),
            _ => value,
        };
        items.insert(key, value);
    }
    Ok(Value::map(ANY_MAP, items))
}

pub(super) fn merge_map(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    merged(host, &given[0], &given[1], false)
}

pub(super) fn merge_map_with_override(host: &Host<'_>, given: &[Value]) -> Outcome<Value> {
    merged(host, &given[0], &given[1], true)
}

/// A method of what `scratch` gives.
pub(crate) fn scratch(host: &Host<'_>, name: &str, given: &[Value]) -> Outcome<Value> {
    let wanted = match name {
        "Key" | "Get" | "MapValues" => 1,
        "Set" | "SetX" => 2,
        "MapSet" | "MapSetX" => 3,
        _ => return failed(format!("can't evaluate field {name} in type *template.Scratch")),
    };
    if given.len() != wanted {
        return failed(format!("wrong number of args for {name}: want {wanted} got {}", given.len()));
    }
    let Value::Text(key) = &given[0] else { return failed("wrong type for value; expected string") };
    host.budget.make(size_of::<Value>() + key.len())?;
    let mut values = host.scratch.borrow_mut();
    let there = values.get(&**key).cloned();
    match name {
        "Key" => return Ok(Value::Bool(there.is_some())),
        "Get" => return Ok(there.unwrap_or(Value::Nil)),
        "MapValues" => {
            return Ok(match there {
                Some(Value::Map(map)) if map.of == ANY_MAP => {
                    Value::any_list(map.items.borrow().values().cloned().collect())
                }
                _ => Value::NilOf(ANY_SLICE),
            });
        }
        "Set" | "SetX" => {
            if name == "Set" || there.is_none() {
                values.insert(key.to_vec(), given[1].clone());
            }
        }
        _ => {
            let Value::Text(inner) = &given[1] else { return failed("wrong type for value; expected string") };
            let map = match there {
                Some(Value::Map(map)) if map.of == ANY_MAP => map,
                Some(_) => return failed("it is not a map"),
                None => Rc::new(Map { of: ANY_MAP, items: RefCell::default() }),
            };
            // A map that changes where others hold it could hold itself: what is held is not changed.
            let mut items = map.items.borrow().clone();
            host.budget.make(items.len() * size_of::<Value>())?;
            let inner = MapKey::Text(Rc::clone(inner));
            if name == "MapSet" || !items.contains_key(&inner) {
                items.insert(inner, given[2].clone());
            }
            values.insert(key.to_vec(), Value::map(ANY_MAP, items));
        }
    }
    Ok(Value::text(""))
}
