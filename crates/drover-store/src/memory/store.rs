//! The store: what each call does to the objects, in the API server's order of checks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{Timestamp, ToSpan};
use serde_json::{Map, Value, json};

use super::change::StoredChange;
use super::fields::{Applied, Fields, IDENTITY, Owner, Owners, merge_patch};
use super::kind::{self, Kind};
use super::object::Stored;
use super::schema::{Step, Unknown};
use super::watch::{FieldSelection, Watch, Watches};
use crate::store::{Key, Ownership, Part, Precondition};

/// Why a call did not do what was asked, with the API server's reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// There is one of this name already.
    #[error("{0}")]
    AlreadyExists(String),
    /// The precondition does not hold, or another manager owns a field.
    #[error("{0}")]
    Conflict(String),
    /// A value breaks a rule of the schema.
    #[error("{0}")]
    Invalid(String),
    /// The call itself cannot be understood.
    #[error("{0}")]
    BadRequest(String),
    /// It may not be done now.
    #[error("{0}")]
    Forbidden(String),
    /// The version from which a watch or a list wants to go on is forgotten (410).
    #[error("too old resource version: {0}")]
    Expired(u64),
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Write {
    /// The object as it is now, or was when it went.
    pub object: Arc<Stored>,
    /// What changed; none where the write left everything as it was.
    pub change: Option<StoredChange>,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page {
    /// The objects, by name.
    pub objects: Vec<Arc<Stored>>,
    /// With what the next page is asked for; none where this is the last one.
    pub next: Option<String>,
    /// How many objects follow, where all of the kind were asked for.
    pub remaining: Option<usize>,
}

/// An object's table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) objects: BTreeMap<Key, Arc<Stored>>,
    /// For each selectable field, the objects by value.
    by_field: Vec<HashMap<String, BTreeSet<Key>>>,
    watches: Watches,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    version: u64,
    n_uids: u64,
    pub(crate) tables: Vec<Table>,
    /// Every object by uid.
    pub(crate) uids: HashMap<String, (usize, Key)>,
    /// What each owner owns, by its uid.
    pub(crate) owned: HashMap<String, BTreeSet<(usize, Key)>>,
    /// What may have lost its owners.
    pub(crate) orphans: BTreeSet<(usize, Key)>,
    /// Namespaces that are being deleted.
    pub(crate) going: BTreeSet<String>,
}

/// The store. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        let table = |kind: &Kind| Table {
            by_field: kind.selectable.iter().map(|_| HashMap::new()).collect(),
            ..Table::default()
        };
        let state = State { tables: kind::all().iter().map(table).collect(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }
}

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Its field manager.
    pub manager: &'a str,
    /// The time of the call.
    pub now: Timestamp,
}

/// What a patch is for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The object's kind.
    pub kind: &'static Kind,
    /// Its key.
    pub key: &'a Key,
    /// Which part of it.
    pub part: Part,
    /// What must hold.
    pub precondition: &'a Precondition,
}

/// How a write is made.
#[derive(Clone, Copy, Debug)]
struct By<'a> {
    caller: Caller<'a>,
    is_apply: bool,
    /// What happens to fields that the schema does not know.
    unknown: Unknown,
}

impl<'a> By<'a> {
    /// A write that is no apply.
    const fn update(caller: Caller<'a>) -> Self {
        Self { caller, is_apply: false, unknown: Unknown::Drop }
    }
}

/// The new state of a part of an object.
#[derive(Debug)]
struct Edit {
    after: Value,
    part: Part,
    /// Who owns its fields then; as follows from the change where that is not given.
    owners: Option<Owners>,
}

/// An object as it is to be stored.
#[derive(Debug)]
struct New {
    kind: &'static Kind,
    key: Key,
    object: Value,
    owners: Owners,
}

impl MemoryStore {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// An object.
    pub fn get(&self, kind: &'static Kind, key: &Key) -> Option<Arc<Stored>> {
        self.lock().tables[kind.number].objects.get(key).cloned()
    }

    /// All selected objects of a kind, by name.
    pub fn list(&self, kind: &'static Kind, selection: &FieldSelection) -> Vec<Arc<Stored>> {
        self.lock().tables[kind.number].select(selection)
    }

    /// A page of a list: at most `limit` objects (0: all), from the beginning or where an earlier page ended. All pages
    /// show the moment of the first one.
    ///
    /// # Errors
    /// [`Refusal::Expired`] when that is too long ago, [`Refusal::BadRequest`] for a token that no page has given.
    pub fn page(
        &self,
        kind: &'static Kind,
        selection: &FieldSelection,
        limit: usize,
        from: Option<&str>,
    ) -> Result<Page, Refusal> {
        let state = self.lock();
        let (at, after) = match from {
            Some(token) => continued(token)?,
            None => (state.version, None),
        };
        let table = &state.tables[kind.number];
        let mut objects = table.watches.rewind(table.select(selection), selection, at).ok_or(Refusal::Expired(at))?;
        objects.retain(|object| after.as_ref().is_none_or(|after| object.key > *after));
        let rest = if limit == 0 { 0 } else { objects.len().saturating_sub(limit) };
        objects.truncate(objects.len() - rest);
        let next = objects.last().filter(|_| rest > 0).map(|last| {
            let namespace = last.key.namespace.as_deref().unwrap_or_default();
            format!("{at}/{namespace}/{}", last.key.name)
        });
        let remaining = (rest > 0 && !selection.has_fields()).then_some(rest);
        Ok(Page { objects, next, remaining })
    }

    /// Forgets what was before now: a watch or a page that wants to go on from there is refused.
    pub fn compact(&self) {
        let mut state = self.lock();
        let version = state.version;
        for table in &mut state.tables {
            table.watches.forget(version);
        }
    }

    /// The selected objects as they are now, or were at `past`, and a watch of every change since then.
    ///
    /// # Errors
    /// [`Refusal::Expired`] when `past` is too long ago.
    pub fn list_and_watch(
        &self,
        kind: &'static Kind,
        selection: &FieldSelection,
        past: Option<u64>,
    ) -> Result<(Vec<Arc<Stored>>, Watch), Refusal> {
        let mut state = self.lock();
        let at = past.unwrap_or(state.version);
        let table = &mut state.tables[kind.number];
        let objects = table.watches.rewind(table.select(selection), selection, at).ok_or(Refusal::Expired(at))?;
        Ok((objects, table.watches.open(selection, at).ok_or(Refusal::Expired(at))?))
    }

    /// Every change of selected objects after a version.
    ///
    /// # Errors
    /// [`Refusal::Expired`] when that is too long ago.
    pub fn watch(&self, kind: &'static Kind, selection: &FieldSelection, after: u64) -> Result<Watch, Refusal> {
        self.lock().tables[kind.number].watches.open(selection, after).ok_or(Refusal::Expired(after))
    }

    /// Creates an object; its status is dropped where the kind has one.
    ///
    /// # Errors
    /// As the API server.
    pub fn create(
        &self,
        kind: &'static Kind,
        object: Value,
        unknown: Unknown,
        caller: Caller<'_>,
    ) -> Result<Write, Refusal> {
        self.lock().create(kind, object, Owners::default(), By { caller, is_apply: false, unknown })
    }

    /// Replaces an object's metadata and spec; its resourceVersion is the precondition.
    ///
    /// # Errors
    /// As the API server.
    pub fn replace(&self, kind: &'static Kind, object: Value, caller: Caller<'_>) -> Result<Write, Refusal> {
        let key = key_of(kind, &object);
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        let precondition = Precondition { uid: text("uid"), resource_version: text("resourceVersion") };
        let mut state = self.lock();
        let before = state.find(kind, &key)?;
        if precondition.resource_version.is_none() && kind.has_status {
            let name = &key.name;
            return Err(Refusal::Invalid(format!(
                "{} {name:?} is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
                kind.plural
            )));
        }
        check_precondition(&before, &precondition)?;
        state.change(&before, Edit { after: object, part: Part::Spec, owners: None }, By::update(caller))
    }

    /// Merges a patch into an object; null removes a field.
    ///
    /// # Errors
    /// As the API server.
    pub fn merge(&self, target: Target<'_>, patch: &Value, caller: Caller<'_>) -> Result<Write, Refusal> {
        let Target { kind, key, part, precondition } = target;
        let mut state = self.lock();
        let before = state.find(kind, key)?;
        check_version(&before, precondition)?;
        // A patch that names another uid tries to change it.
        if let Some(uid) = precondition.uid.as_ref().filter(|uid| *uid != before.uid()) {
            return Err(Refusal::Invalid(format!(
                "{} {:?} is invalid: metadata.uid: Invalid value: {uid:?}: field is immutable",
                kind.name, key.name
            )));
        }
        let mut after = part_of(&before.value, part);
        match part {
            Part::Spec => merge_patch(&mut after, patch),
            Part::Status => {
                if let Some(patch) = patch.get("status") {
                    merge_patch(&mut after["status"], patch);
                }
            }
        }
        state.change(&before, Edit { after, part, owners: None }, By::update(caller))
    }

    /// Sets exactly these fields as the manager's (server-side apply).
    ///
    /// # Errors
    /// As the API server.
    pub fn apply(
        &self,
        target: Target<'_>,
        mut body: Value,
        ownership: Ownership,
        caller: Caller<'_>,
    ) -> Result<Write, Refusal> {
        let Target { kind, key, part, precondition } = target;
        let manager = caller.manager;
        let by = By { caller, is_apply: true, unknown: Unknown::Drop };
        let mut state = self.lock();
        let unknown = if manager.starts_with("kubectl") { Unknown::Refuse } else { Unknown::Drop };
        let mut strange = Vec::new();
        kind.schema.prune(&mut body, "", unknown, &mut strange);
        refuse_strange(&strange)?;
        let owner = Owner { manager: manager.to_owned(), is_apply: true, is_status: part == Part::Status };
        let Some(before) = state.tables[kind.number].objects.get(key).cloned() else {
            if part == Part::Status {
                return Err(not_found(kind, key));
            }
            if precondition.uid.is_some() || precondition.resource_version.is_some() {
                return Err(Refusal::Conflict(format!("uid mismatch: the object {key} does not exist")));
            }
            let mut object = body.clone();
            object["metadata"]["name"] = json!(key.name);
            if let Some(namespace) = &key.namespace {
                object["metadata"]["namespace"] = json!(namespace);
            }
            let owners = Owners::one(owner, Fields::of(&body, &kind.schema));
            return state.create(kind, object, owners, by);
        };
        check_precondition(&before, precondition)?;
        let (mut after, mut owners) = (part_of(&before.value, part), before.owners.clone());
        match part {
            Part::Spec => drop(body.as_object_mut().and_then(|body| body.shift_remove("status"))),
            Part::Status => {
                if let Some(body) = body.as_object_mut() {
                    body.retain(|name, _| name == "status");
                }
            }
        }
        owners
            .apply(&owner, &mut after, Applied { body: &body, schema: &kind.schema, ownership })
            .map_err(Refusal::Conflict)?;
        state.change(&before, Edit { after, part, owners: Some(owners) }, by)
    }

    /// Deletes an object, or marks it where finalizers hold it.
    ///
    /// # Errors
    /// As the API server.
    pub fn delete(
        &self,
        kind: &'static Kind,
        key: &Key,
        precondition: &Precondition,
        now: Timestamp,
    ) -> Result<Write, Refusal> {
        self.lock().delete(kind, key, precondition, now)
    }
}

impl State {
    fn find(&self, kind: &'static Kind, key: &Key) -> Result<Arc<Stored>, Refusal> {
        self.tables[kind.number].objects.get(key).cloned().ok_or_else(|| not_found(kind, key))
    }

    fn create(
        &mut self,
        kind: &'static Kind,
        mut object: Value,
        mut owners: Owners,
        by: By<'_>,
    ) -> Result<Write, Refusal> {
        let key = key_of(kind, &object);
        self.check_namespace(kind, &key)?;
        if let Some(known) = self.tables[kind.number].objects.get(&key) {
            let before = if known.is_deleting() { "object is being deleted: " } else { "" };
            return Err(Refusal::AlreadyExists(format!("{before}{} {:?} already exists", kind.plural, key.name)));
        }
        if object["metadata"]["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
            let text = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::BadRequest(text.to_owned()));
        }
        let mut strange = Vec::new();
        kind.schema.prune(&mut object, "", by.unknown, &mut strange);
        refuse_strange(&strange)?;
        drop_empty_lists(&mut object);
        if kind.has_status
            && let Some(fields) = object.as_object_mut()
        {
            fields.shift_remove("status");
        }
        if kind.has_owners && owners == Owners::default() {
            let owner = Owner { manager: by.caller.manager.to_owned(), is_apply: by.is_apply, is_status: false };
            owners = Owners::one(owner, Fields::of(&object, &kind.schema));
        }
        kind.schema.fill(&mut object);
        check_schema(kind, &key, &object)?;
        self.n_uids += 1;
        let meta = &mut object["metadata"];
        meta["uid"] = json!(format!("{:08x}-0000-4000-8000-{:012x}", mix(self.n_uids), self.n_uids));
        meta["creationTimestamp"] = json!(seconds(by.caller.now));
        if kind.has_status {
            meta["generation"] = json!(1);
        }
        for field in ["managedFields", "deletionTimestamp", "selfLink"] {
            if let Some(meta) = meta.as_object_mut() {
                meta.shift_remove(field);
            }
        }
        object["apiVersion"] = json!(kind.api_version);
        object["kind"] = json!(kind.name);
        if kind.name == "Namespace" {
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(key.name);
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"]["phase"] = json!("Active");
        }
        Ok(self.put(New { kind, key, object, owners }, None))
    }

    fn check_namespace(&self, kind: &'static Kind, key: &Key) -> Result<(), Refusal> {
        let Some(name) = &key.namespace else { return Ok(()) };
        let Some(namespaces) = kind::kind("Namespace") else { return Ok(()) };
        let of = Key { namespace: None, name: name.clone() };
        match self.tables[namespaces.number].objects.get(&of) {
            None => Err(Refusal::NotFound(format!("namespaces {name:?} not found"))),
            Some(namespace) if namespace.is_deleting() => Err(Refusal::Forbidden(format!(
                "{} {:?} is forbidden: unable to create new content in namespace {name} because it is being terminated",
                kind.plural, key.name
            ))),
            Some(_) => Ok(()),
        }
    }

    /// Brings a part of an object into a new state, whatever the caller made of it.
    fn change(&mut self, before: &Arc<Stored>, edit: Edit, by: By<'_>) -> Result<Write, Refusal> {
        let Edit { mut after, part, owners } = edit;
        let kind = before.kind;
        if part == Part::Spec {
            keep_what_is_not_written(before, &mut after);
            drop_empty_lists(&mut after);
        }
        let is_unchanged = |after: &Value| match part {
            Part::Spec => is_same(after, &before.value),
            Part::Status => after["status"] == before.value["status"],
        };
        if is_unchanged(&after) && owners.as_ref().is_none_or(|owners| *owners == before.owners) {
            return Ok(Write { object: Arc::clone(before), change: None });
        }
        // What is applied was pruned before it was merged.
        if !by.is_apply {
            let mut strange = Vec::new();
            kind.schema.prune(&mut after, "", by.unknown, &mut strange);
            refuse_strange(&strange)?;
        }
        fill_part(kind, &mut after, part);
        check_finalizers(before, &after)?;
        check_part(kind, &before.key, &after, part)?;
        let is_unchanged = is_unchanged(&after);
        let notes_owners = kind.has_owners && owners.is_none();
        let changed = notes_owners.then(|| Fields::changed(&before.value, &after, &kind.schema));
        if part == Part::Status {
            after = with_status(&before.value, after);
        }
        let mut owners = owners.unwrap_or_else(|| before.owners.clone());
        if let Some(changed) = changed {
            let owner =
                Owner { manager: by.caller.manager.to_owned(), is_apply: false, is_status: part == Part::Status };
            owners.note_update(&owner, &changed, &after, &kind.schema);
        }
        if is_unchanged && owners == before.owners {
            return Ok(Write { object: Arc::clone(before), change: None });
        }
        if kind.has_status && part == Part::Spec && differs_in_spec(&before.value, &after) {
            let generation = before.value["metadata"]["generation"].as_i64().unwrap_or(0);
            after["metadata"]["generation"] = json!(generation + 1);
        }
        let is_over = !after["metadata"]["deletionTimestamp"].is_null()
            && after["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && kind.name != "Namespace";
        if is_over {
            // The answer has no version of its own: the one of the end is the watch's.
            let written = Stored::new(kind, before.key.clone(), after.clone(), before.version, owners);
            return Ok(Write { object: Arc::new(written), ..self.remove(before, Some(after)) });
        }
        Ok(self.put(New { kind, key: before.key.clone(), object: after, owners }, Some(before)))
    }

    pub(crate) fn delete(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        precondition: &Precondition,
        now: Timestamp,
    ) -> Result<Write, Refusal> {
        let before = self.find(kind, key)?;
        check_precondition(&before, precondition)?;
        let is_namespace = kind.name == "Namespace";
        if !before.has_finalizers() && !is_namespace {
            return Ok(self.remove(&before, None));
        }
        if before.is_deleting() {
            return Ok(Write { object: before, change: None });
        }
        let mut after = before.value.clone();
        after["metadata"]["deletionTimestamp"] = json!(seconds(now));
        if is_namespace {
            after["status"]["phase"] = json!("Terminating");
            self.going.insert(key.name.clone());
        } else {
            after["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        }
        if let Some(generation) = after["metadata"]["generation"].as_i64() {
            after["metadata"]["generation"] = json!(generation + 1);
        }
        let owners = before.owners.clone();
        Ok(self.put(New { kind, key: key.clone(), object: after, owners }, Some(&before)))
    }

    fn put(&mut self, new: New, before: Option<&Arc<Stored>>) -> Write {
        let New { kind, key, mut object, owners } = new;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let after = Arc::new(Stored::new(kind, key.clone(), object, self.version, owners));
        self.index_owners(before, Some(&after));
        let table = &mut self.tables[kind.number];
        table.index_fields(before, Some(&after));
        table.objects.insert(key, Arc::clone(&after));
        self.told(StoredChange { before: before.cloned(), stood: None, after: Some(after), version: self.version })
    }

    pub(crate) fn remove(&mut self, before: &Arc<Stored>, last: Option<Value>) -> Write {
        self.version += 1;
        let kind = before.kind;
        // The last state carries the version of the deletion.
        let mut value = last.unwrap_or_else(|| before.value.clone());
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(Stored::new(kind, before.key.clone(), value, self.version, before.owners.clone()));
        self.index_owners(Some(before), None);
        let table = &mut self.tables[kind.number];
        table.index_fields(Some(before), None);
        table.objects.remove(&before.key);
        self.told(StoredChange {
            before: Some(last),
            stood: Some(Arc::clone(before)),
            after: None,
            version: self.version,
        })
    }

    fn told(&mut self, change: StoredChange) -> Write {
        let object = Arc::clone(change.object());
        self.tables[object.kind.number].watches.tell(&change);
        Write { object, change: Some(change) }
    }
}

impl Table {
    pub(crate) fn select(&self, selection: &FieldSelection) -> Vec<Arc<Stored>> {
        let found = |key: &Key| self.objects.get(key).filter(|object| selection.has(object)).cloned();
        match selection.indexed() {
            Some((number, value)) => self.by_field[number].get(value).into_iter().flatten().filter_map(found).collect(),
            None => self.objects.values().filter(|object| selection.has(object)).cloned().collect(),
        }
    }

    fn index_fields(&mut self, before: Option<&Arc<Stored>>, after: Option<&Arc<Stored>>) {
        let Some(kind) = before.or(after).map(|object| object.kind) else { return };
        for (number, path) in kind.selectable.iter().enumerate() {
            let (old, new) = (before.map(|object| object.text(path)), after.map(|object| object.text(path)));
            if old == new {
                continue;
            }
            let index = &mut self.by_field[number];
            if let (Some(value), Some(object)) = (old, before)
                && let Some(keys) = index.get_mut(value)
            {
                keys.remove(&object.key);
                if keys.is_empty() {
                    index.remove(value);
                }
            }
            if let (Some(value), Some(object)) = (new, after) {
                index.entry(value.to_owned()).or_default().insert(object.key.clone());
            }
        }
    }
}

/// Where a page goes on: the version that it shows, and the last object before it.
fn continued(token: &str) -> Result<(u64, Option<Key>), Refusal> {
    let wrong = || Refusal::BadRequest(format!("continue key is not valid: {token:?}"));
    let mut parts = token.splitn(3, '/');
    let mut next = || parts.next().ok_or_else(wrong);
    let (version, namespace, name) = (next()?.parse().map_err(|_| wrong())?, next()?, next()?);
    let namespace = (!namespace.is_empty()).then(|| namespace.to_owned());
    Ok((version, Some(Key { namespace, name: name.to_owned() })))
}

/// The key of an object's manifest.
fn key_of(kind: &Kind, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
    let namespace = kind.is_namespaced.then(|| text("namespace").unwrap_or_else(|| "default".to_owned()));
    Key { namespace, name: text("name").unwrap_or_default() }
}

fn not_found(kind: &Kind, key: &Key) -> Refusal {
    Refusal::NotFound(format!("{} {:?} not found", kind.plural, key.name))
}

fn check_precondition(object: &Stored, precondition: &Precondition) -> Result<(), Refusal> {
    if let Some(uid) = precondition.uid.as_ref().filter(|uid| *uid != object.uid()) {
        let known = object.uid();
        return Err(Refusal::Conflict(format!(
            "Operation cannot be fulfilled on {} {:?}: Precondition failed: UID in precondition: {uid}, UID in object meta: {known}",
            object.kind.plural, object.key.name
        )));
    }
    check_version(object, precondition)
}

fn check_version(object: &Stored, precondition: &Precondition) -> Result<(), Refusal> {
    let Some(version) = &precondition.resource_version else { return Ok(()) };
    if version.parse() == Ok(object.version) {
        return Ok(());
    }
    Err(Refusal::Conflict(format!(
        "Operation cannot be fulfilled on {} {:?}: the object has been modified; please apply your changes to the latest version and try again",
        object.kind.plural, object.key.name
    )))
}

/// Lists and maps of `metadata` that are empty are not stored.
fn drop_empty_lists(object: &mut Value) {
    if let Some(meta) = object["metadata"].as_object_mut() {
        for field in ["finalizers", "ownerReferences", "labels", "annotations"] {
            let is_empty = match meta.get(field) {
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::Object(fields)) => fields.is_empty(),
                _ => false,
            };
            if is_empty {
                meta.shift_remove(field);
            }
        }
    }
}

/// What a write of this part starts from: the whole object, or its status alone.
fn part_of(object: &Value, part: Part) -> Value {
    match (part, object.get("status")) {
        (Part::Spec, _) => object.clone(),
        (Part::Status, Some(status)) => Value::Object(Map::from_iter([("status".to_owned(), status.clone())])),
        (Part::Status, None) => json!({}),
    }
}

/// The object with another status.
fn with_status(before: &Value, mut status: Value) -> Value {
    let rest = before.as_object().into_iter().flatten().filter(|(name, _)| *name != "status");
    let mut object: Map<String, Value> = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(status) = status.as_object_mut().and_then(|fields| fields.shift_remove("status")) {
        object.insert("status".to_owned(), status);
    }
    Value::Object(object)
}

fn fill_part(kind: &Kind, after: &mut Value, part: Part) {
    match part {
        Part::Spec => kind.schema.fill(after),
        Part::Status => {
            if let Some(status) = after.get_mut("status") {
                kind.schema.field("status").fill(status);
            }
        }
    }
}

/// Checks what was written; the rest was checked when it was.
fn check_part(kind: &Kind, key: &Key, after: &Value, part: Part) -> Result<(), Refusal> {
    let mut found = Vec::new();
    match (part, after.get("status")) {
        (Part::Spec, _) => return check_schema(kind, key, after),
        (Part::Status, Some(status)) => {
            kind.schema.field("status").check(status, &mut vec![Step::Field("status")], &mut found);
        }
        (Part::Status, None) => {}
    }
    refuse_wrong(kind, key, &found)
}

/// Whether two objects are equal. Metadata stands first and mostly is; so it is looked at last.
fn is_same(one: &Value, other: &Value) -> bool {
    let (Value::Object(one), Value::Object(other)) = (one, other) else { return one == other };
    one.len() == other.len() && one.iter().rev().all(|(name, value)| other.get(name) == Some(value))
}

/// Puts back what a write of metadata and spec does not touch.
fn keep_what_is_not_written(before: &Stored, after: &mut Value) {
    let restore = |after: &mut Map<String, Value>, before: &Map<String, Value>, field: &str| {
        let known = before.get(field);
        if after.get(field) == known {
            return;
        }
        match known {
            Some(value) => drop(after.insert(field.to_owned(), value.clone())),
            None => drop(after.shift_remove(field)),
        }
    };
    let (Some(after), Some(known)) = (after.as_object_mut(), before.value.as_object()) else { return };
    if let (Some(Value::Object(after)), Some(Value::Object(known))) = (after.get_mut("metadata"), known.get("metadata"))
    {
        for field in IDENTITY {
            restore(after, known, field);
        }
    }
    if before.kind.has_status {
        restore(after, known, "status");
    }
    restore(after, known, "apiVersion");
    restore(after, known, "kind");
}

fn check_finalizers(before: &Stored, after: &Value) -> Result<(), Refusal> {
    if !before.is_deleting() {
        return Ok(());
    }
    let known = &before.value["metadata"]["finalizers"];
    let added = after["metadata"]["finalizers"].as_array().into_iter().flatten();
    let is_known = |name: &&Value| known.as_array().is_some_and(|known| known.contains(name));
    match added.into_iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(Refusal::Invalid(format!(
            "{} {:?} is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {name}",
            before.kind.plural, before.key.name
        ))),
    }
}

fn check_schema(kind: &Kind, key: &Key, object: &Value) -> Result<(), Refusal> {
    let mut found = Vec::new();
    kind.schema.check(object, &mut Vec::new(), &mut found);
    if key.name.is_empty() {
        found.push("metadata.name: Required value: name or generateName is required".to_owned());
    }
    refuse_wrong(kind, key, &found)
}

fn refuse_wrong(kind: &Kind, key: &Key, found: &[String]) -> Result<(), Refusal> {
    if found.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid(format!("{} {:?} is invalid: {}", kind.name, key.name, found.join(", "))))
}

fn refuse_strange(strange: &[String]) -> Result<(), Refusal> {
    if strange.is_empty() {
        return Ok(());
    }
    Err(Refusal::BadRequest(format!("strict decoding error: {}", strange.join(", "))))
}

fn differs_in_spec(before: &Value, after: &Value) -> bool {
    let names = before.as_object().into_iter().chain(after.as_object()).flat_map(serde_json::Map::keys);
    let mut names = names.filter(|name| !matches!(name.as_str(), "metadata" | "status" | "apiVersion" | "kind"));
    names.any(|name| before.get(name) != after.get(name))
}

/// A time as the API server writes it: whole seconds.
fn seconds(now: Timestamp) -> String {
    let whole = now - i64::from(now.subsec_nanosecond()).nanoseconds();
    whole.to_string()
}

/// Spreads a counter over 32 bits, so that uids differ in their beginning.
fn mix(n: u64) -> u32 {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u32::try_from(mixed >> 32).unwrap_or_default()
}
