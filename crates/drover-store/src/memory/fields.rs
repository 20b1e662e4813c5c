//! Who owns which field: the sets behind server-side apply.
//!
//! Input: values and the schema of their kind. Output: sets of fields, what an apply takes away, what it conflicts
//! with.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::schema::{Schema, Shape};
use crate::store::Ownership;

/// A set of fields, as a tree. A leaf is a field that is owned as a whole, with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Whether the place itself is owned: a leaf, or an item of a keyed list.
    is_owned: bool,
    below: BTreeMap<Place, Fields>,
}

/// A step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Into a field of an object.
    Field(String),
    /// Into the item of a list that has these keys, or is this scalar.
    Item(String),
}

/// The sets of all writers of an object. Mostly a write changes none, and its object shares them with the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owners(Arc<BTreeMap<Owner, Arc<Fields>>>);

/// A writer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner {
    pub(crate) manager: String,
    pub(crate) is_apply: bool,
    pub(crate) is_status: bool,
}

/// Fields of `metadata` that the store keeps: they have no owner, and no write changes them.
pub(crate) const IDENTITY: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
];

impl Fields {
    /// The fields that an object sets, without what identifies it.
    pub(crate) fn of(object: &Value, schema: &Schema) -> Self {
        let mut fields = Self::default();
        for (name, value) in object.as_object().into_iter().flatten() {
            match name.as_str() {
                "apiVersion" | "kind" => {}
                "metadata" => {
                    let mut own = Self::default();
                    let inner = schema.field("metadata");
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if !IDENTITY.contains(&name.as_str()) {
                            own.below.insert(Place::Field(name.clone()), Self::at(value, inner.field(name)));
                        }
                    }
                    if !own.below.is_empty() {
                        fields.below.insert(Place::Field(name.clone()), own);
                    }
                }
                _ => drop(fields.below.insert(Place::Field(name.clone()), Self::at(value, schema.field(name)))),
            }
        }
        fields
    }

    fn at(value: &Value, schema: &Schema) -> Self {
        let leaf = Self { is_owned: true, below: BTreeMap::new() };
        match (&schema.shape, value) {
            (Shape::Object { .. } | Shape::Map(_) | Shape::Free, Value::Object(object)) if !object.is_empty() => {
                let below = object
                    .iter()
                    .map(|(name, value)| (Place::Field(name.clone()), Self::at(value, schema.field(name))));
                Self { is_owned: false, below: below.collect() }
            }
            (Shape::Set(_), Value::Array(items)) if !items.is_empty() => Self {
                is_owned: false,
                below: items.iter().map(|item| (Place::of(item, schema), leaf.clone())).collect(),
            },
            (Shape::Keyed(inner, _), Value::Array(items)) if !items.is_empty() => {
                let below = items
                    .iter()
                    .map(|item| (Place::of(item, schema), Self { is_owned: true, ..Self::at(item, inner) }));
                Self { is_owned: false, below: below.collect() }
            }
            _ => leaf,
        }
    }

    /// The fields whose values differ between two states, as far as the newer one has them.
    pub(crate) fn changed(before: &Value, after: &Value, schema: &Schema) -> Self {
        let mut fields = Self::default();
        for (name, value) in after.as_object().into_iter().flatten() {
            let old = &before[name.as_str()];
            if matches!(name.as_str(), "apiVersion" | "kind") || old == value {
                continue;
            }
            let inner = schema.field(name);
            if name != "metadata" {
                fields.below.insert(Place::Field(name.clone()), Self::changed_at(old, value, inner));
                continue;
            }
            for (name, value) in value.as_object().into_iter().flatten() {
                if !IDENTITY.contains(&name.as_str()) && old[name.as_str()] != *value {
                    let own = fields.below.entry(Place::Field("metadata".to_owned())).or_default();
                    let changed = Self::changed_at(&old[name.as_str()], value, inner.field(name));
                    own.below.insert(Place::Field(name.clone()), changed);
                }
            }
        }
        fields
    }

    fn changed_at(before: &Value, after: &Value, schema: &Schema) -> Self {
        match (&schema.shape, before, after) {
            (Shape::Object { .. } | Shape::Map(_) | Shape::Free, Value::Object(old), Value::Object(new))
                if !new.is_empty() =>
            {
                let differing = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
                let below = differing.map(|(name, value)| {
                    let before = old.get(name).unwrap_or(&Value::Null);
                    (Place::Field(name.clone()), Self::changed_at(before, value, schema.field(name)))
                });
                Self { is_owned: false, below: below.collect() }
            }
            (Shape::Keyed(inner, _), Value::Array(old), Value::Array(new)) if !new.is_empty() => {
                let below = new.iter().filter_map(|item| {
                    let place = Place::of(item, schema);
                    match old.iter().find(|old| Place::of(old, schema) == place) {
                        Some(old) if old == item => None,
                        Some(old) => Some((place, Self::changed_at(old, item, inner))),
                        None => Some((place, Self { is_owned: true, ..Self::at(item, inner) })),
                    }
                });
                Self { is_owned: false, below: below.collect() }
            }
            (Shape::Set(_), Value::Array(old), Value::Array(new)) if !new.is_empty() => {
                let added = new.iter().filter(|item| !old.contains(item));
                let leaf = Self { is_owned: true, below: BTreeMap::new() };
                Self { is_owned: false, below: added.map(|item| (Place::of(item, schema), leaf.clone())).collect() }
            }
            _ => Self::at(after, schema),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_owned && self.below.values().all(Self::is_empty)
    }

    fn child(&self, place: &Place) -> Option<&Self> {
        self.below.get(place)
    }

    /// All of both.
    pub(crate) fn join(&mut self, other: &Self) {
        self.is_owned |= other.is_owned;
        for (place, below) in &other.below {
            self.below.entry(place.clone()).or_default().join(below);
        }
    }

    /// Takes the fields of `other` out.
    pub(crate) fn without(&mut self, other: &Self) {
        if other.is_owned {
            self.is_owned = false;
        }
        for (place, taken) in &other.below {
            if let Some(below) = self.below.get_mut(place) {
                below.without(taken);
                if below.is_empty() {
                    self.below.remove(place);
                }
            }
        }
    }

    /// Keeps the fields that the object still has.
    fn keep_present(&mut self, value: &Value, schema: &Schema) {
        self.below.retain(|place, below| match place.find(value, schema) {
            Some((inner, at)) => {
                below.keep_present(inner, at);
                !below.is_empty()
            }
            None => false,
        });
    }

    /// Whether it becomes less where `changed` is taken out and what the object does not have.
    fn loses(&self, changed: Option<&Self>, value: &Value, schema: &Schema) -> bool {
        (self.is_owned && changed.is_some_and(|changed| changed.is_owned))
            || self.below.iter().any(|(place, below)| match place.find(value, schema) {
                Some((inner, at)) => {
                    below.is_empty() || below.loses(changed.and_then(|changed| changed.child(place)), inner, at)
                }
                None => true,
            })
    }

    /// The fields that both have and on whose value the object and `body` do not agree.
    fn disputed(&self, own: &Self, live: &Value, body: &Value, schema: &Schema) -> Self {
        let mut found = Self::default();
        // An item of a keyed list may be owned by many.
        if self.is_owned && own.is_owned && self.below.is_empty() && own.below.is_empty() && live != body {
            found.is_owned = true;
        }
        for (place, theirs) in &self.below {
            let Some(ours) = own.child(place) else { continue };
            let (Some((live, inner)), Some((body, _))) = (place.find(live, schema), place.find(body, schema)) else {
                continue;
            };
            let below = theirs.disputed(ours, live, body, inner);
            if !below.is_empty() {
                found.below.insert(place.clone(), below);
            }
        }
        found
    }

    /// Removes from the object what this set has and no other one keeps. An item that another manager keeps has its
    /// keys, from any manager.
    fn remove_from(&self, value: &mut Value, schema: &Schema, keys: &[String], kept: &[&Self]) {
        let is_key = |place: &Place| matches!(place, Place::Field(name) if keys.contains(name));
        for (place, lost) in self.below.iter().filter(|(place, _)| !is_key(place)) {
            let keepers: Vec<&Self> = kept.iter().filter_map(|kept| kept.child(place)).collect();
            // An item stays where another writer has made it or applies it, not where it has only changed something in
            // it.
            let is_kept = keepers.iter().any(|keeper| match place {
                Place::Item(_) => keeper.is_owned,
                Place::Field(_) => !keeper.is_empty(),
            });
            if lost.is_owned && !is_kept {
                place.remove(value, schema);
                continue;
            }
            let Some((inner, at)) = place.find_mut(value, schema) else { continue };
            let keys = match &schema.shape {
                Shape::Keyed(_, keys) => keys.as_slice(),
                _ => &[],
            };
            lost.remove_from(inner, at, keys, &keepers);
            let is_empty = match inner {
                Value::Object(fields) => fields.is_empty(),
                Value::Array(items) => items.is_empty(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            };
            if !is_kept && is_empty {
                place.remove(value, schema);
            }
        }
    }

    /// Names of the leaves, for messages.
    fn names(&self, prefix: &str, names: &mut Vec<String>) {
        if self.is_owned && self.below.is_empty() {
            names.push(prefix.to_owned());
        }
        for (place, below) in &self.below {
            let name = match place {
                Place::Field(name) => format!("{prefix}.{name}"),
                Place::Item(key) => format!("{prefix}[{key}]"),
            };
            below.names(&name, names);
        }
    }
}

impl Place {
    /// The place of a list's item.
    fn of(item: &Value, list: &Schema) -> Self {
        Self::Item(key_of(item, list).into_owned())
    }

    /// Whether it is the place of this item.
    fn is_of(&self, item: &Value, list: &Schema) -> bool {
        matches!(self, Self::Item(key) if *key == *key_of(item, list))
    }

    fn find<'v, 's>(&self, value: &'v Value, schema: &'s Schema) -> Option<(&'v Value, &'s Schema)> {
        match self {
            Self::Field(name) => Some((value.as_object()?.get(name)?, schema.field(name))),
            Self::Item(_) => {
                let found = value.as_array()?.iter().find(|item| self.is_of(item, schema))?;
                Some((found, item_schema(schema)))
            }
        }
    }

    fn find_mut<'v, 's>(&self, value: &'v mut Value, schema: &'s Schema) -> Option<(&'v mut Value, &'s Schema)> {
        match self {
            Self::Field(name) => Some((value.as_object_mut()?.get_mut(name)?, schema.field(name))),
            Self::Item(_) => {
                let found = value.as_array_mut()?.iter_mut().find(|item| self.is_of(item, schema))?;
                Some((found, item_schema(schema)))
            }
        }
    }

    fn remove(&self, value: &mut Value, schema: &Schema) {
        match (self, value) {
            (Self::Field(name), Value::Object(object)) => drop(object.shift_remove(name)),
            (Self::Item(_), Value::Array(items)) => items.retain(|item| !self.is_of(item, schema)),
            _ => {}
        }
    }
}

/// What tells an item of a list from the others.
fn key_of<'v>(item: &'v Value, list: &Schema) -> Cow<'v, str> {
    match &list.shape {
        Shape::Keyed(_, keys) => match keys.as_slice() {
            [key] => text_of(&item[key.as_str()]),
            keys => keys.iter().map(|key| text_of(&item[key.as_str()])).collect::<Vec<_>>().join(",").into(),
        },
        _ => text_of(item),
    }
}

fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

fn item_schema(list: &Schema) -> &Schema {
    match &list.shape {
        Shape::Keyed(inner, _) | Shape::Set(inner) | Shape::Atomic(inner) => inner,
        Shape::Free | Shape::Object { .. } | Shape::Map(_) | Shape::Scalar => list.field(""),
    }
}

/// What is applied to an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied<'a> {
    /// All that the caller wants to own.
    pub(crate) body: &'a Value,
    pub(crate) schema: &'a Schema,
    pub(crate) ownership: Ownership,
}

impl Owners {
    /// Those of one writer.
    pub(crate) fn one(owner: Owner, fields: Fields) -> Self {
        Self(Arc::new(BTreeMap::from([(owner, Arc::new(fields))])))
    }

    /// Notes that a writer set these fields without applying: they are its own from now on.
    pub(crate) fn note_update(&mut self, owner: &Owner, changed: &Fields, value: &Value, schema: &Schema) {
        let loses = |fields: &Fields| fields.loses(Some(changed), value, schema);
        if self.0.values().any(|fields| loses(fields)) {
            let all = Arc::make_mut(&mut self.0);
            for fields in all.values_mut().filter(|fields| loses(fields)) {
                let left = Arc::make_mut(fields);
                left.without(changed);
                left.keep_present(value, schema);
            }
        }
        if !changed.is_empty() {
            Arc::make_mut(Arc::make_mut(&mut self.0).entry(owner.clone()).or_default()).join(changed);
        }
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        if self.0.values().any(|fields| fields.is_empty()) {
            Arc::make_mut(&mut self.0).retain(|_, fields| !fields.is_empty());
        }
    }

    /// Applies `body`, which is all that `owner` wants to own, to the object. The error names what others own.
    pub(crate) fn apply(&mut self, owner: &Owner, live: &mut Value, applied: Applied<'_>) -> Result<(), String> {
        let Applied { body, schema, ownership } = applied;
        let wanted = Fields::of(body, schema);
        let last = self.0.get(owner).cloned().unwrap_or_default();
        let mut disputes = Vec::new();
        for (other, fields) in self.0.iter().filter(|(other, _)| *other != owner) {
            let contested = fields.disputed(&wanted, live, body, schema);
            if !contested.is_empty() {
                disputes.push((other.clone(), contested));
            }
        }
        if ownership == Ownership::Yield && !disputes.is_empty() {
            return Err(conflict_text(&disputes));
        }
        for (other, contested) in disputes {
            if let Some(fields) = Arc::make_mut(&mut self.0).get_mut(&other) {
                Arc::make_mut(fields).without(&contested);
            }
        }
        merge(live, body, schema);
        if *last != wanted {
            let mut given_up = (*last).clone();
            given_up.without(&wanted);
            let mut kept: Vec<&Fields> = vec![&wanted];
            kept.extend(self.0.iter().filter(|(other, _)| *other != owner).map(|(_, fields)| &**fields));
            given_up.remove_from(live, schema, &[], &kept);
            Arc::make_mut(&mut self.0).insert(owner.clone(), Arc::new(wanted));
        }
        self.drop_empty();
        Ok(())
    }
}

fn conflict_text(disputes: &[(Owner, Fields)]) -> String {
    let mut all = Vec::new();
    for (owner, fields) in disputes {
        let mut names = Vec::new();
        fields.names("", &mut names);
        all.push(format!("conflict with {:?}: {}", owner.manager, names.join(", ")));
    }
    let n: usize = all.len();
    format!("Apply failed with {n} conflict{}: {}", if n == 1 { "" } else { "s" }, all.join("; "))
}

/// Merges what is applied into the object, by the structure of the schema.
fn merge(live: &mut Value, body: &Value, schema: &Schema) {
    match (&schema.shape, &mut *live, body) {
        (Shape::Object { .. } | Shape::Map(_) | Shape::Free, Value::Object(live), Value::Object(body)) => {
            merge_fields(live, body, schema);
        }
        (Shape::Keyed(inner, _), Value::Array(live), Value::Array(body)) => {
            merge_items(live, body, schema, inner);
        }
        (Shape::Set(_), Value::Array(live), Value::Array(body)) => {
            for item in body {
                if !live.contains(item) {
                    live.push(item.clone());
                }
            }
        }
        _ => {
            if live != body {
                live.clone_from(body);
            }
        }
    }
}

/// Merges a list with keys: what is applied stands in its own order, and what only the object has stands before the
/// applied item that it stood before.
fn merge_items(live: &mut Vec<Value>, body: &[Value], list: &Schema, inner: &Schema) {
    let mut known: Vec<(Place, Option<Value>)> =
        std::mem::take(live).into_iter().map(|item| (Place::of(&item, list), Some(item))).collect();
    let applied: Vec<Place> = body.iter().map(|item| Place::of(item, list)).collect();
    let mut next = 0;
    for (place, item) in body.iter().enumerate().map(|(n, item)| (&applied[n], item)) {
        while let Some((other, only_live)) = known.get_mut(next).filter(|(other, _)| other != place) {
            if !applied.contains(other) {
                live.extend(only_live.take());
            } else if only_live.is_some() {
                break;
            }
            next += 1;
        }
        let mut merged = match known.iter_mut().find(|(other, _)| other == place) {
            Some((_, found)) => found.take().unwrap_or(Value::Null),
            None => Value::Null,
        };
        merge(&mut merged, item, inner);
        live.push(merged);
    }
    live.extend(known.into_iter().filter_map(|(_, rest)| rest));
}

fn merge_fields(live: &mut Map<String, Value>, body: &Map<String, Value>, schema: &Schema) {
    for (name, value) in body {
        match live.get_mut(name) {
            Some(known) => merge(known, value, schema.field(name)),
            None => drop(live.insert(name.clone(), value.clone())),
        }
    }
}

/// Merges a JSON merge patch into the object.
pub(crate) fn merge_patch(live: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        live.clone_from(patch);
        return;
    };
    if !live.is_object() {
        *live = Value::Object(Map::new());
    }
    let Value::Object(object) = live else { return };
    for (name, value) in patch {
        if value.is_null() {
            object.shift_remove(name);
        } else {
            merge_patch(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied<'a>(body: &'a Value, schema: &'a Schema, ownership: Ownership) -> Applied<'a> {
        Applied { body, schema, ownership }
    }

    fn schema() -> Schema {
        Schema::read(&json!({ "type": "object", "properties": { "status": { "type": "object", "properties": {
            "phase": { "type": "string" },
            "columns": { "type": "object", "properties": { "a": { "type": "string" } } },
            "conditions": { "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": { "type": "object", "properties": {
                    "type": { "type": "string" }, "status": { "type": "string" }, "reason": { "type": "string" } } } },
        } } } }))
    }

    fn owner(manager: &str) -> Owner {
        Owner { manager: manager.to_owned(), is_apply: true, is_status: true }
    }

    #[test]
    fn what_a_manager_leaves_out_goes_and_what_another_owns_stays() {
        let (schema, mut owners, mut live) = (schema(), Owners::default(), json!({}));
        let mut apply = |manager: &str, status: Value, live: &mut Value| {
            owners
                .apply(&owner(manager), live, applied(&json!({ "status": status }), &schema, Ownership::Force))
                .unwrap();
        };
        apply(
            "a",
            json!({ "phase": "x", "columns": { "a": "1" }, "conditions": [{ "type": "T", "status": "True" }] }),
            &mut live,
        );
        apply("b", json!({ "conditions": [{ "type": "T", "reason": "R" }, { "type": "U" }] }), &mut live);
        apply("a", json!({ "conditions": [] }), &mut live);
        assert_eq!(live, json!({ "status": { "conditions": [{ "type": "T", "reason": "R" }, { "type": "U" }] } }));
        apply("a", json!({ "conditions": [{ "type": "V", "status": "True" }] }), &mut live);
        apply("a", json!({ "conditions": [] }), &mut live);
        assert_eq!(live["status"]["conditions"], json!([{ "type": "T", "reason": "R" }, { "type": "U" }]));
        apply("b", json!({ "phase": "y" }), &mut live);
        assert_eq!(live["status"]["phase"], "y");
    }

    #[test]
    fn an_item_that_another_writer_only_changed_goes_whole() {
        let (schema, mut owners, mut live) = (schema(), Owners::default(), json!({}));
        let body = |items: Value| json!({ "status": { "conditions": items } });
        owners
            .apply(
                &owner("a"),
                &mut live,
                applied(&body(json!([{ "type": "T", "status": "True" }])), &schema, Ownership::Force),
            )
            .unwrap();
        let before = live.clone();
        live["status"]["conditions"][0]["status"] = json!("False");
        let patcher = Owner { is_apply: false, ..owner("b") };
        owners.note_update(&patcher, &Fields::changed(&before, &live, &schema), &live, &schema);
        owners.apply(&owner("a"), &mut live, applied(&body(json!([])), &schema, Ownership::Force)).unwrap();
        assert_eq!(live, body(json!([])));
    }

    #[test]
    fn a_field_of_another_manager_is_a_conflict_unless_forced_or_equal() {
        let (schema, mut owners, mut live) = (schema(), Owners::default(), json!({}));
        let body = |phase: &str| json!({ "status": { "phase": phase } });
        owners.apply(&owner("a"), &mut live, applied(&body("x"), &schema, Ownership::Yield)).unwrap();
        owners.apply(&owner("b"), &mut live, applied(&body("x"), &schema, Ownership::Yield)).unwrap();
        let error = owners.apply(&owner("b"), &mut live, applied(&body("y"), &schema, Ownership::Yield)).unwrap_err();
        assert_eq!(error, "Apply failed with 1 conflict: conflict with \"a\": .status.phase");
        owners.apply(&owner("b"), &mut live, applied(&body("y"), &schema, Ownership::Force)).unwrap();
        owners.apply(&owner("a"), &mut live, applied(&json!({}), &schema, Ownership::Yield)).unwrap();
        assert_eq!(live["status"]["phase"], "y");
    }
}
