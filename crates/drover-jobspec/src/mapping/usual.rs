//! Policies that Nomad fills in: one that is what the job would have without it leaves the manifest, as a job file does
//! not have it. The job is the same, and its manifest shows what was decided.

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_core::defaults;
use serde_json::Value as Json;

/// Takes these policies out of a manifest.
pub(super) fn leave_out(manifest: &mut Json) {
    // What is no spec is refused by name where it is checked, and stays as it is.
    let Ok(spec) = serde_json::from_value::<JobSpec>(manifest["spec"].clone()) else { return };
    let Some(groups) = manifest.pointer_mut("/spec/groups").and_then(Json::as_array_mut) else { return };
    for (group, written) in spec.groups.iter().zip(groups) {
        let Some(fields) = written.as_object_mut() else { continue };
        for (name, is_usual) in policies(&spec, group) {
            if is_usual {
                fields.shift_remove(name);
            }
        }
        let tasks = fields.get_mut("tasks").and_then(Json::as_array_mut).into_iter().flatten();
        for (task, written) in group.tasks.iter().zip(tasks) {
            let complete = |own| defaults::restart(spec.r#type, group.restart.as_ref(), own);
            if complete(task.restart.as_ref()) == complete(None)
                && let Some(fields) = written.as_object_mut()
            {
                fields.shift_remove("restart");
            }
        }
    }
}

/// Each policy of a group, and whether the group has it anyway. Where the job's type forbids one it is not usual: it
/// stays, and is named.
fn policies(spec: &JobSpec, group: &Group) -> [(&'static str, bool); 4] {
    let kind = spec.r#type;
    let is_long = matches!(kind, JobType::Service | JobType::System);
    let is_counted = matches!(kind, JobType::Service | JobType::Batch);
    let update = |own| defaults::update(kind, spec.update.as_ref(), own);
    let restart = |own| defaults::restart(kind, own, None);
    let reschedule = |own| defaults::reschedule(kind, own);
    [
        ("update", is_long && update(group.update.as_ref()) == update(None)),
        ("restart", restart(group.restart.as_ref()) == restart(None)),
        ("reschedule", is_counted && reschedule(group.reschedule.as_ref()) == reschedule(None)),
        ("migrate", kind == JobType::Service && defaults::migrate(group.migrate.as_ref()) == defaults::migrate(None)),
    ]
}
