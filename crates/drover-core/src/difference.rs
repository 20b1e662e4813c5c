//! What a new manifest changes of a job, field by field, with what each change does to the allocations.
//!
//! The effects are not a table of their own: each changed piece is put into the old spec alone, and the same digests
//! are asked that the scheduler asks. Must never know what runs.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::JobSpec;
use drover_api::csi_volume::REDACTED;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::definition::{Definition, GroupPrint};
use crate::scheduler::plan::DesiredUpdates;

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PieceChange {
    /// It is as it was.
    None,
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It is another.
    Edited,
}

/// What a change does to the allocations of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum GroupEffect {
    /// Allocations are added.
    #[serde(rename = "forces create")]
    Create,
    /// Allocations are stopped.
    #[serde(rename = "forces destroy")]
    Destroy,
    /// Allocations go on with the new version where they are.
    #[serde(rename = "forces in-place update")]
    InPlace,
    /// Allocations are replaced.
    #[serde(rename = "forces create/destroy update")]
    Replace,
}

impl GroupEffect {
    /// The words for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "forces create",
            Self::Destroy => "forces destroy",
            Self::InPlace => "forces in-place update",
            Self::Replace => "forces create/destroy update",
        }
    }
}

/// What is different in a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobDiff {
    /// What became of the job.
    pub r#type: PieceChange,
    /// Its id.
    pub id: String,
    /// Its own fields and objects.
    #[serde(flatten)]
    pub members: Members,
    /// Its groups by name, the unchanged ones too.
    pub task_groups: Vec<GroupDiff>,
}

/// What is different in a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupDiff {
    /// What became of it.
    pub r#type: PieceChange,
    /// Its name.
    pub name: String,
    /// Its own fields and objects.
    #[serde(flatten)]
    pub members: Members,
    /// Its changed tasks by name.
    pub tasks: Vec<ObjectDiff>,
    /// How many allocations the plan creates, replaces and so on; only what there is.
    pub updates: BTreeMap<&'static str, i64>,
}

/// What is different in a task or another object.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectDiff {
    /// What became of it.
    pub r#type: PieceChange,
    /// The name of the field that holds it, or of the task.
    pub name: String,
    /// What is different in it.
    #[serde(flatten)]
    pub members: Members,
    /// What the change does to the allocations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<GroupEffect>,
}

/// What is different in a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldDiff {
    /// What became of it.
    pub r#type: PieceChange,
    /// Its name.
    pub name: String,
    /// Its old value: a text as it is, anything else as JSON, none as an empty text.
    pub old: String,
    /// Its new value.
    pub new: String,
    /// What the change does to the allocations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<GroupEffect>,
}

/// The changed fields and objects of something, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Members {
    /// Its values and lists of values.
    pub fields: Vec<FieldDiff>,
    /// What has fields itself.
    pub objects: Vec<ObjectDiff>,
}

impl JobDiff {
    /// Compares two definitions of a job; without the first one, all is new.
    pub fn between(before: Option<&Definition>, after: &Definition) -> Self {
        let written = |definition: &Definition| serde_json::to_value(&definition.spec).unwrap_or_default();
        let specs = Specs { before, old: before.map(written).unwrap_or_default(), new: written(after) };
        // Scale is decided at run time, and a job's `update` is in each of its groups already.
        let members = specs.pieces(None, "", (&specs.old, &specs.new), &["groups", "scale", "update"]);
        let groups = by_name(&specs.old["groups"], &specs.new["groups"]);
        let task_groups: Vec<GroupDiff> =
            groups.into_iter().map(|(name, (old, new))| specs.group(name, old, new)).collect();
        let is_same = members.is_empty() && task_groups.iter().all(|group| group.r#type == PieceChange::None);
        let r#type = if is_same { PieceChange::None } else { change(&specs.old, &specs.new) };
        Self { r#type, id: after.spec.id.clone(), members, task_groups }
    }

    /// Adds what a plan does for each group.
    #[must_use]
    pub fn with_updates(mut self, desired: &BTreeMap<String, DesiredUpdates>) -> Self {
        for group in &mut self.task_groups {
            let Some(updates) = desired.get(&group.name) else { continue };
            let counts = [
                ("ignore", updates.ignore),
                ("create", updates.place),
                ("destroy", updates.stop),
                ("migrate", updates.migrate),
                ("canary", updates.canary),
                ("in-place update", updates.in_place_update),
                ("create/destroy update", updates.destructive_update),
            ];
            group.updates = counts.into_iter().filter(|(_, n)| *n > 0).collect();
        }
        self
    }
}

/// Both specs as the fields that they are written with; `Null` where there was no job.
struct Specs<'a> {
    before: Option<&'a Definition>,
    old: Value,
    new: Value,
}

/// Something of a list in the old spec, and where it stands in the list.
type Old<'a> = Option<(usize, &'a Value)>;

impl Specs<'_> {
    fn group(&self, name: &str, old: Old<'_>, new: Option<&Value>) -> GroupDiff {
        let (Some((at, old)), Some(new)) = (old, new) else {
            let (old, new) = (old.map_or(&Value::Null, |(_, old)| old), new.unwrap_or(&Value::Null));
            let r#type = change(old, new);
            let effect = if r#type == PieceChange::Added { GroupEffect::Create } else { GroupEffect::Destroy };
            let members = members(old, new, &["tasks", "name"]);
            let tasks = named_objects(&old["tasks"], &new["tasks"], |_, old, new| {
                (self::members(old, new, &["name"]), vec![effect])
            });
            return GroupDiff { r#type, name: name.to_owned(), members, tasks, updates: BTreeMap::new() };
        };
        let path = format!("/groups/{at}");
        let mut members = self.pieces(Some(name), &path, (old, new), &["tasks"]);
        for field in members.fields.iter_mut().filter(|field| field.name == "count") {
            let grows = new["count"].as_i64() > old["count"].as_i64();
            field.annotations = vec![if grows { GroupEffect::Create } else { GroupEffect::Destroy }];
        }
        let tasks = named_objects(&old["tasks"], &new["tasks"], |at, old, new| match at {
            Some(at) if !new.is_null() => {
                let members = self.pieces(Some(name), &format!("{path}/tasks/{at}"), (old, new), &[]);
                let effect = members.effects().max();
                (members, effect.into_iter().collect())
            }
            _ => (self::members(old, new, &["name"]), vec![GroupEffect::Replace]),
        });
        let is_same = members.is_empty() && tasks.is_empty();
        let r#type = if is_same { PieceChange::None } else { PieceChange::Edited };
        GroupDiff { r#type, name: name.to_owned(), members, tasks, updates: BTreeMap::new() }
    }

    /// The changed members of a job, group or task, each with its effect on the group's allocations, or on all.
    fn pieces(&self, group: Option<&str>, path: &str, (old, new): (&Value, &Value), without: &[&str]) -> Members {
        let mut all = Members::default();
        for key in keys(old, new).filter(|key| !without.contains(key)) {
            let mut found = Members::default();
            found.compare(key, &old[key], &new[key]);
            if !found.is_empty() {
                found.annotate(self.effect(group, path, key, &new[key]));
                all.fields.extend(found.fields);
                all.objects.extend(found.objects);
            }
        }
        all
    }

    /// What it does to put this one piece into the old spec.
    fn effect(&self, group: Option<&str>, path: &str, key: &str, piece: &Value) -> Option<GroupEffect> {
        let before = self.before?;
        let mut spec = self.old.clone();
        spec.pointer_mut(path)?.as_object_mut()?.insert(key.to_owned(), piece.clone());
        // A piece that only fits together with others, as one of a pair of limits, still can be read alone.
        let spec: JobSpec = serde_json::from_value(spec).ok()?;
        let after = Definition::new(&spec, &before.spec.id);
        let groups = before.spec.groups.iter().map(|group| group.name.as_str());
        let groups = groups.filter(|known| group.is_none_or(|group| group == *known));
        groups.filter_map(|group| effect_of(before.print(group)?, after.print(group)?)).max()
    }
}

fn effect_of(before: GroupPrint, after: GroupPrint) -> Option<GroupEffect> {
    if before.destructive != after.destructive {
        return Some(GroupEffect::Replace);
    }
    (before != after).then_some(GroupEffect::InPlace)
}

impl Members {
    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.objects.is_empty()
    }

    fn annotate(&mut self, effect: Option<GroupEffect>) {
        let fields = self.fields.iter_mut().map(|field| &mut field.annotations);
        let objects = self.objects.iter_mut().map(|object| &mut object.annotations);
        fields.chain(objects).for_each(|annotations| annotations.extend(effect));
    }

    fn effects(&self) -> impl Iterator<Item = GroupEffect> {
        let fields = self.fields.iter().flat_map(|field| &field.annotations);
        fields.chain(self.objects.iter().flat_map(|object| &object.annotations)).copied()
    }

    /// Adds what is different in a member.
    fn compare(&mut self, name: &str, old: &Value, new: &Value) {
        if old == new || (is_nothing(old) && is_nothing(new)) {
            return;
        }
        if is_list_of_objects(old) || is_list_of_objects(new) {
            self.compare_lists(name, old, new);
        } else if old.is_object() || new.is_object() {
            self.add_object(name, old, new);
        } else {
            let field = FieldDiff {
                r#type: change(old, new),
                name: name.to_owned(),
                old: shown(name, old),
                new: shown(name, new),
                annotations: Vec::new(),
            };
            self.fields.push(field);
        }
    }

    fn add_object(&mut self, name: &str, old: &Value, new: &Value) {
        let members = members(old, new, &[]);
        self.objects.push(ObjectDiff {
            r#type: change(old, new),
            name: name.to_owned(),
            members,
            annotations: Vec::new(),
        });
    }

    /// What has a name in both lists is compared with its namesake; of the rest, what stands in one list only is gone
    /// or new.
    fn compare_lists(&mut self, name: &str, old: &Value, new: &Value) {
        if is_named(old) && is_named(new) {
            for (_, (old, new)) in by_name(old, new) {
                let (old, new) = (old.map_or(&Value::Null, |(_, old)| old), new.unwrap_or(&Value::Null));
                if old != new {
                    self.add_object(name, old, new);
                }
            }
            return;
        }
        let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let (mut gone, mut fresh) = (items(old), items(new));
        gone.retain(|item| fresh.iter().position(|other| other == item).map(|at| fresh.remove(at)).is_none());
        for at in 0..gone.len().max(fresh.len()) {
            self.add_object(name, gone.get(at).unwrap_or(&Value::Null), fresh.get(at).unwrap_or(&Value::Null));
        }
    }
}

/// A value for people. Mount flags may hold secrets: that they differ is all that is shown of them.
fn shown(name: &str, value: &Value) -> String {
    if name == "mountFlags" && !is_nothing(value) { REDACTED.to_owned() } else { text(value) }
}

/// What is different in two objects.
fn members(old: &Value, new: &Value, without: &[&str]) -> Members {
    let mut members = Members::default();
    for key in keys(old, new).filter(|key| !without.contains(key)) {
        members.compare(key, &old[key], &new[key]);
    }
    members
}

/// The changed ones of two lists of objects with names.
fn named_objects(
    old: &Value,
    new: &Value,
    judge: impl Fn(Option<usize>, &Value, &Value) -> (Members, Vec<GroupEffect>),
) -> Vec<ObjectDiff> {
    let mut changed = Vec::new();
    for (name, (old, new)) in by_name(old, new) {
        let (at, old) = old.map_or((None, &Value::Null), |(at, old)| (Some(at), old));
        let new = new.unwrap_or(&Value::Null);
        if old != new {
            let (members, annotations) = judge(at, old, new);
            changed.push(ObjectDiff { r#type: change(old, new), name: name.to_owned(), members, annotations });
        }
    }
    changed
}

/// The items of two lists by their names.
fn by_name<'a>(old: &'a Value, new: &'a Value) -> BTreeMap<&'a str, (Old<'a>, Option<&'a Value>)> {
    let mut all: BTreeMap<&str, (Old<'_>, Option<&Value>)> = BTreeMap::new();
    for (at, item) in old.as_array().into_iter().flatten().enumerate() {
        all.entry(item["name"].as_str().unwrap_or_default()).or_default().0 = Some((at, item));
    }
    for item in new.as_array().into_iter().flatten() {
        all.entry(item["name"].as_str().unwrap_or_default()).or_default().1 = Some(item);
    }
    all
}

fn keys<'a>(old: &'a Value, new: &'a Value) -> impl Iterator<Item = &'a str> {
    let of = |value: &'a Value| value.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    of(old).chain(of(new)).collect::<BTreeSet<&str>>().into_iter()
}

fn change(old: &Value, new: &Value) -> PieceChange {
    match (is_nothing(old), is_nothing(new)) {
        (true, true) => PieceChange::None,
        (true, false) => PieceChange::Added,
        (false, true) => PieceChange::Deleted,
        (false, false) => PieceChange::Edited,
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn is_list_of_objects(value: &Value) -> bool {
    value.as_array().is_some_and(|items| items.iter().any(Value::is_object))
}

fn is_named(list: &Value) -> bool {
    list.as_array().is_none_or(|items| items.iter().all(|item| item["name"].is_string()))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn definition(spec: Value) -> Arc<Definition> {
        Definition::new(&serde_json::from_value(spec).expect("a spec"), "web")
    }

    fn web(count: i64, task: &Value) -> Value {
        let mut server =
            json!({ "name": "server", "driver": "exec", "config": { "command": "/bin/a", "args": ["x"] } });
        server.as_object_mut().expect("fields").extend(task.as_object().expect("fields").clone());
        json!({ "type": "service", "groups": [{ "name": "web", "count": count, "tasks": [server] }] })
    }

    fn between(old: Value, new: Value) -> JobDiff {
        JobDiff::between(Some(&definition(old)), &definition(new))
    }

    fn field(old: &str, new: &str, name: &str, effect: Option<GroupEffect>) -> FieldDiff {
        let r#type = if old.is_empty() { PieceChange::Added } else { PieceChange::Edited };
        let annotations = effect.into_iter().collect();
        FieldDiff { r#type, name: name.to_owned(), old: old.to_owned(), new: new.to_owned(), annotations }
    }

    #[test]
    fn each_change_says_what_it_does() {
        let count =
            |old, new| between(web(old, &json!({})), web(new, &json!({}))).task_groups[0].members.fields.clone();
        assert_eq!(count(2, 4), [field("2", "4", "count", Some(GroupEffect::Create))]);
        assert_eq!(count(4, 2), [field("4", "2", "count", Some(GroupEffect::Destroy))]);

        let task =
            |change: Value| between(web(1, &json!({})), web(1, &change)).task_groups[0].tasks[0].annotations.clone();
        assert_eq!(task(json!({ "config": { "command": "/bin/b", "args": ["x"] } })), [GroupEffect::Replace]);
        assert_eq!(task(json!({ "killTimeout": "30s" })), [GroupEffect::InPlace]);
        assert_eq!(task(json!({ "logs": { "maxFiles": 3 } })), [GroupEffect::InPlace]);
        assert_eq!(task(json!({ "logs": { "disabled": true } })), [GroupEffect::Replace]);
        assert_eq!(task(json!({ "killTimeout": "30s", "env": { "A": "1" } })), [GroupEffect::Replace]);
    }

    #[test]
    fn all_of_a_new_job_is_added() {
        let diff = JobDiff::between(None, &definition(web(2, &json!({}))));
        assert_eq!((diff.r#type, diff.task_groups[0].r#type), (PieceChange::Added, PieceChange::Added));
        assert_eq!(diff.task_groups[0].tasks[0].annotations, [GroupEffect::Create]);
    }

    #[test]
    fn the_same_spec_is_no_change_whatever_is_scaled() {
        let mut scaled = web(2, &json!({}));
        scaled["scale"] = json!({ "group": "web", "count": 7 });
        let diff = between(web(2, &json!({})), scaled);
        assert_eq!((diff.r#type, diff.task_groups[0].r#type), (PieceChange::None, PieceChange::None));
        assert!(diff.members.is_empty());
    }

    #[test]
    fn groups_and_tasks_come_and_go() {
        let mut more = web(1, &json!({}));
        more["groups"]
            .as_array_mut()
            .expect("groups")
            .push(json!({ "name": "db", "tasks": [{ "name": "db", "driver": "exec" }] }));
        let added = between(web(1, &json!({})), more.clone());
        assert_eq!((added.task_groups[0].name.as_str(), added.task_groups[0].r#type), ("db", PieceChange::Added));
        let gone = between(more, web(1, &json!({})));
        assert_eq!(gone.task_groups[0].r#type, PieceChange::Deleted);
        assert_eq!(gone.task_groups[0].tasks[0].annotations, [GroupEffect::Destroy]);

        let mut two = web(1, &json!({}));
        two["groups"][0]["tasks"].as_array_mut().expect("tasks").push(json!({ "name": "log", "driver": "exec" }));
        let task = between(web(1, &json!({})), two).task_groups[0].tasks[0].clone();
        assert_eq!(
            (task.name.as_str(), task.r#type, task.annotations),
            ("log", PieceChange::Added, vec![GroupEffect::Replace])
        );
    }

    #[test]
    fn lists_without_names_lose_and_gain_items() {
        let constrained = |values: &[&str]| {
            let mut spec = web(1, &json!({}));
            let all: Vec<Value> = values
                .iter()
                .map(|value| json!({ "attribute": "${attr.kernel.name}", "operator": "=", "value": value }))
                .collect();
            spec["constraints"] = json!(all);
            spec
        };
        let diff = between(constrained(&["linux", "a"]), constrained(&["a", "linux", "b"]));
        let [added] = diff.members.objects.as_slice() else { panic!("{:?}", diff.members) };
        assert_eq!((added.name.as_str(), added.r#type), ("constraints", PieceChange::Added));
        assert_eq!(added.annotations, [GroupEffect::InPlace]);
        let values = between(web(1, &json!({})), {
            let mut spec = web(1, &json!({}));
            spec["datacenters"] = json!(["a", "b"]);
            spec
        });
        assert_eq!(values.members.fields[0].new, r#"["a","b"]"#);
    }

    /// A job with group `web`, changed like this.
    fn changed(change: impl FnOnce(&mut Value)) -> Value {
        let mut spec = web(1, &json!({}));
        change(&mut spec);
        spec
    }

    fn unchanged() -> Value {
        changed(|_| {})
    }

    /// Objects by their change, their name and the changes of their fields, as `Edited services: portLabel 1 -> 2`.
    fn told(objects: &[ObjectDiff]) -> Vec<String> {
        let of = |object: &ObjectDiff| {
            let fields = object.members.fields.iter();
            let fields: Vec<String> = fields.map(|one| format!("{} {} -> {}", one.name, one.old, one.new)).collect();
            format!("{:?} {}: {}", object.r#type, object.name, fields.join(", "))
        };
        objects.iter().map(of).collect()
    }

    #[test]
    fn a_job_is_edited_by_its_own_fields_or_by_a_group_alone() {
        let types = |new: Value| {
            let diff = between(unchanged(), new);
            (diff.r#type, diff.task_groups[0].r#type)
        };
        let (none, edited) = (PieceChange::None, PieceChange::Edited);
        assert_eq!(types(unchanged()), (none, none));
        assert_eq!(types(changed(|spec| spec["priority"] = json!(70))), (edited, none));
        assert_eq!(types(changed(|spec| spec["groups"][0]["count"] = json!(2))), (edited, edited));
        let task = |spec: &mut Value| spec["groups"][0]["tasks"][0]["env"] = json!({ "A": "1" });
        assert_eq!(types(changed(task)), (edited, edited));
    }

    #[test]
    fn what_the_plan_does_is_told_for_each_group_where_there_is_any() {
        let desired = DesiredUpdates {
            ignore: 1,
            place: 2,
            stop: 3,
            migrate: 4,
            canary: 5,
            in_place_update: 6,
            destructive_update: 7,
            ..DesiredUpdates::default()
        };
        let updates = |group: &str, desired: DesiredUpdates| {
            let diff = between(unchanged(), unchanged()).with_updates(&[(group.to_owned(), desired)].into());
            diff.task_groups[0].updates.clone()
        };
        let all = [
            ("ignore", 1),
            ("create", 2),
            ("destroy", 3),
            ("migrate", 4),
            ("canary", 5),
            ("in-place update", 6),
            ("create/destroy update", 7),
        ];
        assert_eq!(updates("web", desired), all.into());
        assert_eq!(updates("web", DesiredUpdates { place: 1, ..DesiredUpdates::default() }), [("create", 1)].into());
        assert_eq!(updates("db", desired), BTreeMap::new(), "that is another group");
    }

    #[test]
    fn a_task_that_goes_takes_its_fields_along_and_replaces_allocations() {
        let more = changed(|spec| {
            let log = json!({ "name": "log", "driver": "mock", "user": "www" });
            spec["groups"][0]["tasks"].as_array_mut().expect("tasks").push(log);
        });
        let diff = between(more, unchanged());
        let [gone] = diff.task_groups[0].tasks.as_slice() else { panic!("{:?}", diff.task_groups) };
        assert_eq!((gone.name.as_str(), gone.r#type), ("log", PieceChange::Deleted));
        assert_eq!(gone.annotations, [GroupEffect::Replace]);
        let field = |name: &str| gone.members.fields.iter().find(|field| field.name == name).cloned();
        let driver = field("driver").expect("the driver");
        assert_eq!((driver.r#type, driver.old.as_str(), driver.new.as_str()), (PieceChange::Deleted, "mock", ""));
        assert_eq!(driver.annotations, [], "the whole task has the effect");
        assert_eq!((field("user").map(|user| user.old), field("name")), (Some("www".to_owned()), None));
    }

    #[test]
    fn the_fields_of_a_new_group_are_its_own_and_not_its_tasks() {
        let more = changed(|spec| {
            let db = json!({ "name": "db", "count": 3, "tasks": [{ "name": "db", "driver": "mock" }] });
            spec["groups"].as_array_mut().expect("groups").push(db);
        });
        let group = between(unchanged(), more).task_groups[0].clone();
        let names: Vec<&str> = group.members.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["count"]);
        assert_eq!(group.members.fields, [field("", "3", "count", None)]);
        let objects: Vec<&str> = group.members.objects.iter().map(|object| object.name.as_str()).collect();
        assert!(objects.contains(&"ephemeralDisk") && !objects.contains(&"tasks"), "{objects:?}");
        let task: Vec<&str> = group.tasks[0].members.fields.iter().map(|field| field.name.as_str()).collect();
        assert!(task.contains(&"driver") && !task.contains(&"name"), "{task:?}");
    }

    #[test]
    fn objects_that_come_or_go_are_objects() {
        let scaled = || {
            changed(|spec| {
                spec["groups"][0]["scaling"] = json!({ "min": 1, "max": 5 });
                spec["groups"][0]["services"] = json!([{ "name": "s", "portLabel": "http" }]);
            })
        };
        let of = |old, new| {
            let diff = between(old, new);
            let members = &diff.task_groups[0].members;
            assert_eq!(members.fields, []);
            members.objects.iter().map(|object| (object.name.clone(), object.r#type)).collect::<Vec<_>>()
        };
        let all = |change| vec![("scaling".to_owned(), change), ("services".to_owned(), change)];
        assert_eq!(of(unchanged(), scaled()), all(PieceChange::Added));
        assert_eq!(of(scaled(), unchanged()), all(PieceChange::Deleted));
    }

    #[test]
    fn items_with_names_are_compared_with_their_namesakes_wherever_they_stand() {
        let services = |all: [(&str, &str); 3]| {
            changed(|spec| {
                let all = all.map(|(name, port)| json!({ "name": name, "portLabel": port }));
                spec["groups"][0]["services"] = json!(all);
            })
        };
        let old = services([("a", "1"), ("b", "2"), ("c", "3")]);
        let diff = between(old, services([("c", "30"), ("b", "2"), ("a", "10")]));
        assert_eq!(
            told(&diff.task_groups[0].members.objects),
            ["Edited services: portLabel 1 -> 10", "Edited services: portLabel 3 -> 30"]
        );
    }

    #[test]
    fn each_item_of_a_first_list_without_names_is_told() {
        let constrained = || {
            let rule = |value: &str| json!({ "lTarget": "${meta.rack}", "operand": "=", "rTarget": value });
            changed(|spec| spec["constraints"] = json!([rule("a"), rule("b")]))
        };
        let added =
            |value: &str| format!("Added constraints: lTarget  -> ${{meta.rack}}, operand  -> =, rTarget  -> {value}");
        assert_eq!(told(&between(unchanged(), constrained()).members.objects), [added("a"), added("b")]);
        let deleted = |value: &str| {
            format!("Deleted constraints: lTarget ${{meta.rack}} -> , operand = -> , rTarget {value} -> ")
        };
        assert_eq!(told(&between(constrained(), unchanged()).members.objects), [deleted("a"), deleted("b")]);
    }

    #[test]
    fn of_mount_flags_only_that_they_differ_is_shown() {
        let mounted = |flags: &[&str]| {
            changed(|spec| {
                let options = json!({ "fsType": "nfs", "mountFlags": flags });
                spec["groups"][0]["volumes"] = json!([{ "name": "data", "type": "csi", "source": "v1",
                    "accessMode": "single-node-writer", "attachmentMode": "file-system", "mountOptions": options }]);
            })
        };
        let flags = |old: &[&str], new: &[&str]| {
            let diff = between(mounted(old), mounted(new));
            let volume = diff.task_groups[0].members.objects[0].clone();
            told(&volume.members.objects)
        };
        let (one, other) = (&["password=a"][..], &["password=b"][..]);
        assert_eq!(flags(one, other), [format!("Edited mountOptions: mountFlags {REDACTED} -> {REDACTED}")]);
        assert_eq!(flags(&[], one), [format!("Edited mountOptions: mountFlags  -> {REDACTED}")]);
        assert_eq!(flags(one, &[]), [format!("Edited mountOptions: mountFlags {REDACTED} -> ")]);
    }
}
