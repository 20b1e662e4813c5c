//! What this version takes away from objects that were written for the one before (`docs/security.md`).
//!
//! Input: jobs and volumes as they are stored. Output: for each field that acts otherwise now, what happens and what to
//! do. Nodes' configuration can give back what is refused by default, and is not known here: where it may, the remedy
//! names the setting. Must never know how objects are read.

use std::collections::BTreeMap;

use drover_api::job::{JobSpec, JobType};
use drover_api::network::NetworkMode;
use drover_api::task::Task;
use drover_api::{CSIVolume, Job};
use kube::ResourceExt as _;
use serde_json::Value;

/// One field that acts otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// Kind and name, as kubectl takes them.
    pub(super) object: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// The field, as `spec.groups[0].tasks[1].user`.
    pub(super) field: String,
    /// What happens after the upgrade.
    pub(super) change: &'static str,
    /// What to do before it.
    pub(super) remedy: &'static str,
}

/// What the upgrade takes away from these.
pub(super) fn findings(jobs: &[Job], volumes: &[CSIVolume]) -> Vec<Finding> {
    let mut all: Vec<Finding> = jobs.iter().flat_map(of_job).chain(of_volumes(volumes)).collect();
    all.sort();
    all
}

type Told = (String, &'static str, &'static str);

fn of_job(job: &Job) -> Vec<Finding> {
    let told = of_spec(&job.spec);
    let finding = |(field, change, remedy)| Finding {
        object: format!("djob/{}", job.name_any()),
        namespace: job.namespace().unwrap_or_default(),
        field,
        change,
        remedy,
    };
    told.into_iter().map(finding).collect()
}

fn of_spec(spec: &JobSpec) -> Vec<Told> {
    let mut told = Vec::new();
    if spec.r#type == JobType::System || spec.priority > 50 {
        let field = if spec.priority > 50 { "spec.priority" } else { "spec.type" };
        told.push((
            field.to_owned(),
            "runs on as it is; making it again or raising it needs the right to update jobs/priority",
            "bind the role drover-priority to the user that applies it",
        ));
    }
    for (g, group) in spec.groups.iter().enumerate() {
        let has_own_network = group.networks.iter().any(|network| network.mode == NetworkMode::None);
        for (t, task) in group.tasks.iter().enumerate() {
            let at = format!("spec.groups[{g}].tasks[{t}]");
            told.extend(
                of_task(task, has_own_network)
                    .into_iter()
                    .map(|(field, change, remedy)| (format!("{at}.{field}"), change, remedy)),
            );
        }
        let is_exec = group.tasks.iter().any(|task| task.driver == "exec" && task.user.is_empty());
        if is_exec && !group.volumes.is_empty() {
            told.push((
                format!("spec.groups[{g}].volumes"),
                "its tasks run as a user that no other allocation has, so that files of `nobody` on its volumes are not theirs",
                "set user in its exec tasks to the owner of the files, as `nobody`",
            ));
        }
    }
    told
}

fn of_task(task: &Task, has_own_network: bool) -> Vec<(&'static str, &'static str, &'static str)> {
    let mut told = Vec::new();
    if task.csi_plugin.is_some() {
        told.push((
            "csiPlugin",
            "runs on as it is; who makes or changes the job needs the right to update jobs/csiplugin",
            "bind the role drover-volume-admin to the user that applies it",
        ));
    }
    if task.driver != "exec" {
        return told;
    }
    let is_host = |key: &str| task.config.get(key).and_then(Value::as_str) == Some("host");
    for (is_used, field, remedy) in [
        (is_host("pidMode"), "config.pidMode", "leave it out, or set agent.exec.allowHostPID"),
        (is_host("ipcMode"), "config.ipcMode", "leave it out, or set agent.exec.allowHostIPC"),
        (
            task.config.get("capAdd").and_then(Value::as_array).is_some_and(|names| !names.is_empty()),
            "config.capAdd",
            "leave it out, or list the capabilities in agent.exec.allowCaps",
        ),
    ] {
        if is_used {
            told.push((field, "a new start of the task is refused", remedy));
        }
    }
    if task.user.split(':').any(|part| part == "root" || part.parse() == Ok(0_u32)) {
        told.push(("user", "a new start of the task is refused", "name a user other than root"));
    }
    if !has_own_network {
        told.push((
            "driver",
            "a new start of the task is refused on nodes without agent.exec.allowHostNetwork (the chart sets it)",
            "keep agent.exec.allowHostNetwork, or give the group networks: [{mode: none}]",
        ));
    }
    told
}

fn of_volumes(volumes: &[CSIVolume]) -> Vec<Finding> {
    let mut by_handle: BTreeMap<(&str, &str), Vec<&CSIVolume>> = BTreeMap::new();
    for volume in volumes {
        let made = volume.status.as_ref().map(|status| status.external_id.as_str());
        let handle = Some(volume.spec.external_id.as_str()).filter(|handle| !handle.is_empty()).or(made);
        if let Some(handle) = handle.filter(|handle| !handle.is_empty()) {
            by_handle.entry((&volume.spec.plugin_id, handle)).or_default().push(volume);
        }
    }
    let mut all = Vec::new();
    for mut same in by_handle.into_values() {
        same.sort_by_key(|volume| (volume.creation_timestamp(), volume.uid()));
        let later = same.iter().skip(1);
        all.extend(later.map(|volume| Finding {
            object: format!("csivol/{}", volume.name_any()),
            namespace: volume.namespace().unwrap_or_default(),
            field: "spec.externalID".to_owned(),
            change: "an older volume has the same handle: this one is stalled with HandleInUse and never claimed again",
            remedy: "let its jobs name the older volume, then delete this one",
        }));
    }
    let reserved = |map: &BTreeMap<String, String>| map.keys().any(|key| key.starts_with("csi.storage.k8s.io/"));
    for volume in volumes {
        for (field, is_used) in
            [("spec.parameters", reserved(&volume.spec.parameters)), ("spec.context", reserved(&volume.spec.context))]
        {
            if is_used {
                all.push(Finding {
                    object: format!("csivol/{}", volume.name_any()),
                    namespace: volume.namespace().unwrap_or_default(),
                    field: field.to_owned(),
                    change: "keys that begin with csi.storage.k8s.io/ are refused at the next change",
                    remedy: "remove these keys",
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, spec: &Value) -> Job {
        let object = json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": name, "namespace": "shop" }, "spec": spec,
        });
        serde_json::from_value(object).expect("a job")
    }

    fn volume(name: &str, made_at: &str, spec: &Value) -> CSIVolume {
        let metadata = json!({ "name": name, "namespace": "shop", "creationTimestamp": made_at, "uid": name });
        let object =
            json!({ "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume", "metadata": metadata, "spec": spec });
        serde_json::from_value(object).expect("a volume")
    }

    fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|finding| format!("{} {}", finding.object, finding.field)).collect()
    }

    #[test]
    fn an_ordinary_job_and_volume_lose_nothing() {
        let task = json!({ "name": "t", "driver": "raw_exec", "user": "root", "config": { "command": "x" } });
        let plain = job("plain", &json!({ "groups": [{ "name": "g", "tasks": [task] }] }));
        let capabilities = json!([{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }]);
        let data = volume(
            "data",
            "2026-01-01T00:00:00Z",
            &json!({ "pluginID": "p", "externalID": "e", "capabilities": capabilities }),
        );
        assert_eq!(findings(&[plain], &[data]), []);
    }

    #[test]
    fn each_field_that_acts_otherwise_is_named_with_its_place() {
        let exec = |more: Value| {
            let mut task = json!({ "name": "t", "driver": "exec", "config": { "command": "x" }, "user": "nobody" });
            for (key, value) in more.as_object().expect("fields") {
                task[key] = value.clone();
            }
            task
        };
        let alone = json!([{ "mode": "none" }]);
        for (tasks, networks, wanted) in [
            (exec(json!({})), json!([]), vec!["driver"]),
            (exec(json!({})), alone.clone(), vec![]),
            (exec(json!({ "config": { "command": "x", "pidMode": "host" } })), alone.clone(), vec!["config.pidMode"]),
            (exec(json!({ "config": { "command": "x", "ipcMode": "host" } })), alone.clone(), vec!["config.ipcMode"]),
            (exec(json!({ "config": { "command": "x", "capAdd": ["mknod"] } })), alone.clone(), vec!["config.capAdd"]),
            (exec(json!({ "config": { "command": "x", "capAdd": [] } })), alone.clone(), vec![]),
            (exec(json!({ "user": "nobody:0" })), alone.clone(), vec!["user"]),
            (exec(json!({ "user": "root" })), alone.clone(), vec!["user"]),
        ] {
            let one = job("one", &json!({ "groups": [{ "name": "g", "networks": networks, "tasks": [tasks] }] }));
            let wanted: Vec<String> =
                wanted.into_iter().map(|field| format!("djob/one spec.groups[0].tasks[0].{field}")).collect();
            assert_eq!(shown(&findings(&[one], &[])), wanted);
        }
        let group = |more: Value| json!([{ "name": "g", "tasks": [more] }]);
        let plugin = json!({ "name": "t", "driver": "raw_exec", "csiPlugin": { "id": "p", "type": "node" } });
        let wanted = ["djob/p spec.groups[0].tasks[0].csiPlugin", "djob/p spec.priority"];
        assert_eq!(shown(&findings(&[job("p", &json!({ "priority": 51, "groups": group(plugin) }))], &[])), wanted);
        let every =
            job("every", &json!({ "type": "system", "groups": group(json!({ "name": "t", "driver": "mock" })) }));
        assert_eq!(shown(&findings(&[every], &[])), ["djob/every spec.type"]);
        let group = json!([{
            "name": "g", "networks": alone, "tasks": [exec(json!({ "user": "" }))],
            "volumes": [{ "name": "data", "type": "host", "source": "data" }],
        }]);
        assert_eq!(shown(&findings(&[job("v", &json!({ "groups": group }))], &[])), ["djob/v spec.groups[0].volumes"]);
    }

    #[test]
    fn of_volumes_with_one_handle_the_older_stays() {
        let spec = |handle: &str, more: Value| {
            let mut spec = json!({
                "pluginID": "p", "externalID": handle,
                "capabilities": [{ "accessMode": "single-node-writer", "attachmentMode": "file-system" }],
            });
            for (key, value) in more.as_object().expect("fields") {
                spec[key] = value.clone();
            }
            spec
        };
        let volumes = [
            volume("second", "2026-02-01T00:00:00Z", &spec("e", json!({}))),
            volume("first", "2026-01-01T00:00:00Z", &spec("e", json!({}))),
            volume(
                "other",
                "2026-03-01T00:00:00Z",
                &spec("f", json!({ "context": { "csi.storage.k8s.io/pod.name": "x" } })),
            ),
        ];
        assert_eq!(shown(&findings(&[], &volumes)), ["csivol/other spec.context", "csivol/second spec.externalID"]);
    }
}
