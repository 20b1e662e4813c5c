//! What is different in a job, as clients of Nomad read it: their names of fields and objects, and a map's values as
//! fields of what holds the map.

use drover_core::difference::{FieldDiff, GroupDiff, JobDiff, Members, ObjectDiff};
use serde_json::{Value, json};

/// Nomad's names of objects, where they are not drover's with a capital letter: each item of a list has a name of its
/// own there.
const OBJECTS: &[(&str, &str)] = &[
    ("affinities", "Affinity"),
    ("artifacts", "Artifact"),
    ("checks", "Check"),
    ("constraints", "Constraint"),
    ("csiPlugin", "CSIPluginConfig"),
    ("devices", "Device"),
    ("identities", "Identity"),
    ("logs", "LogConfig"),
    ("networks", "Network"),
    ("parameterized", "ParameterizedJob"),
    ("ports", "Port"),
    ("reschedule", "ReschedulePolicy"),
    ("restart", "RestartPolicy"),
    ("services", "Service"),
    ("spreads", "Spread"),
    ("targets", "SpreadTarget"),
    ("templates", "Template"),
    ("volumeMounts", "VolumeMount"),
    ("volumes", "Volume"),
];
/// Nomad's names of fields, in the same way.
const FIELDS: &[(&str, &str)] = &[("cpu", "CPU"), ("id", "ID")];
/// What holds values by keys of its own, which are shown as fields of what holds it.
const MAPS: [&str; 2] = ["env", "meta"];
/// What holds a driver's fields by their own names.
const VERBATIM: &str = "config";

/// A job's differences.
pub(crate) fn of_job(diff: &JobDiff) -> Value {
    let (fields, objects) = members(&diff.members);
    let groups: Vec<Value> = diff.task_groups.iter().map(group).collect();
    json!({ "Type": diff.r#type, "ID": diff.id, "Fields": fields, "Objects": objects, "TaskGroups": groups })
}

fn group(diff: &GroupDiff) -> Value {
    let (fields, objects) = members(&diff.members);
    let tasks: Vec<Value> = diff.tasks.iter().map(task).collect();
    json!({
        "Type": diff.r#type, "Name": diff.name, "Fields": fields, "Objects": objects, "Tasks": tasks,
        "Updates": diff.updates,
    })
}

fn task(diff: &ObjectDiff) -> Value {
    let (fields, objects) = members(&diff.members);
    json!({
        "Type": diff.r#type, "Name": diff.name, "Fields": fields, "Objects": objects,
        "Annotations": diff.annotations,
    })
}

/// The fields and the objects of something.
fn members(members: &Members) -> (Vec<Value>, Vec<Value>) {
    let (maps, objects): (Vec<&ObjectDiff>, Vec<&ObjectDiff>) =
        members.objects.iter().partition(|object| MAPS.contains(&object.name.as_str()));
    let own = members.fields.iter().map(|it| field(it, &named(FIELDS, &it.name)));
    let of_maps = maps.iter().flat_map(|map| {
        let holder = named(OBJECTS, &map.name);
        map.members.fields.iter().map(move |it| field(it, &format!("{holder}[{}]", it.name)))
    });
    let mut fields: Vec<Value> = own.chain(of_maps).collect();
    fields.sort_by(|one, other| one["Name"].as_str().cmp(&other["Name"].as_str()));
    let object = |it: &ObjectDiff| {
        let of_it = if it.name == VERBATIM { verbatim(&it.members) } else { self::members(&it.members) };
        object(it, &named(OBJECTS, &it.name), of_it)
    };
    (fields, objects.into_iter().map(object).collect())
}

/// The fields and the objects of a driver's part, by their own names.
fn verbatim(members: &Members) -> (Vec<Value>, Vec<Value>) {
    let fields = members.fields.iter().map(|it| field(it, &it.name));
    let objects = members.objects.iter().map(|it| object(it, &it.name, verbatim(&it.members)));
    (fields.collect(), objects.collect())
}

fn object(diff: &ObjectDiff, name: &str, (fields, objects): (Vec<Value>, Vec<Value>)) -> Value {
    json!({ "Type": diff.r#type, "Name": name, "Fields": fields, "Objects": objects })
}

fn field(diff: &FieldDiff, name: &str) -> Value {
    json!({
        "Type": diff.r#type, "Name": name, "Old": diff.old, "New": diff.new,
        "Annotations": diff.annotations,
    })
}

/// A name in Nomad's words.
fn named(table: &[(&str, &str)], name: &str) -> String {
    let known = table.iter().find(|(own, _)| *own == name).map(|(_, wire)| (*wire).to_owned());
    known.unwrap_or_else(|| {
        let mut letters = name.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_core::definition::Definition;

    use super::*;

    fn definition(spec: Value) -> Arc<Definition> {
        Definition::new(&serde_json::from_value(spec).expect("a spec"), "web")
    }

    fn web(count: i64, task: &Value) -> Arc<Definition> {
        let mut server = json!({ "name": "server", "driver": "exec", "config": { "command": "/bin/a" } });
        server.as_object_mut().expect("fields").extend(task.as_object().expect("fields").clone());
        definition(json!({ "meta": { "team": "a" }, "groups": [{ "name": "g", "count": count, "tasks": [server] }] }))
    }

    fn between(old: &Definition, new: &Definition) -> Value {
        of_job(&JobDiff::between(Some(old), new))
    }

    #[test]
    fn a_count_forces_creation_or_destruction_a_command_a_new_task_and_a_kill_timeout_an_update_in_place() {
        let base = || web(2, &json!({}));
        for (count, new, forces) in [(4, "4", "forces create"), (1, "1", "forces destroy")] {
            let diff = between(&base(), &web(count, &json!({})));
            let wanted =
                json!([{ "Type": "Edited", "Name": "Count", "Old": "2", "New": new, "Annotations": [forces] }]);
            assert_eq!(diff["TaskGroups"][0]["Fields"], wanted);
            assert_eq!((&diff["Type"], &diff["TaskGroups"][0]["Tasks"]), (&json!("Edited"), &json!([])));
        }
        let of_task = |change: Value| between(&base(), &web(2, &change))["TaskGroups"][0]["Tasks"][0].clone();
        let task = of_task(json!({ "config": { "command": "/bin/b" } }));
        assert_eq!(task["Annotations"], json!(["forces create/destroy update"]));
        assert_eq!(
            (&task["Objects"][0]["Name"], &task["Objects"][0]["Fields"][0]["Name"]),
            (&json!("Config"), &json!("command"))
        );
        let task = of_task(json!({ "killTimeout": "9s" }));
        assert_eq!(task["Annotations"], json!(["forces in-place update"]));
        assert_eq!(task["Fields"][0]["Name"], "KillTimeout");
    }

    #[test]
    fn names_are_nomads_and_the_values_of_maps_are_fields_of_what_holds_them() {
        let change = json!({ "env": { "A": "b" }, "resources": { "cpu": 200, "memoryMB": 20 },
                             "constraints": [{ "lTarget": "${attr.a}", "rTarget": "b", "operand": "=" }] });
        let diff = between(&web(1, &json!({})), &web(1, &change));
        let task = &diff["TaskGroups"][0]["Tasks"][0];
        let names = |of: &Value| -> Vec<String> {
            of.as_array().expect("a list").iter().map(|it| it["Name"].as_str().expect("a name").to_owned()).collect()
        };
        assert_eq!(names(&task["Fields"]), ["Env[A]"]);
        assert_eq!(names(&task["Objects"]), ["Constraint", "Resources"]);
        assert_eq!(names(&task["Objects"][0]["Fields"]), ["LTarget", "Operand", "RTarget"]);
        assert_eq!(names(&task["Objects"][1]["Fields"]), ["CPU", "MemoryMB"]);
    }

    #[test]
    fn a_new_job_is_added_with_all_of_it_and_the_same_one_has_no_difference() {
        let job = web(1, &json!({}));
        let added = of_job(&JobDiff::between(None, &job));
        assert_eq!((&added["Type"], &added["ID"]), (&json!("Added"), &json!("web")));
        let group = &added["TaskGroups"][0];
        assert_eq!((&group["Type"], &group["Tasks"][0]["Annotations"]), (&json!("Added"), &json!(["forces create"])));
        assert!(added["Fields"].as_array().expect("a list").iter().any(|it| it["Name"] == "Meta[team]"));
        let same = between(&job, &job);
        assert_eq!((&same["Type"], &same["Fields"], &same["Objects"]), (&json!("None"), &json!([]), &json!([])));
    }
}
