//! What of a job its nodes get from the gateway, where there is none.

use drover_api::JobSpec;
use drover_api::task::Task;

use super::found::Violation;
use crate::task::secret::{object_of, pull_secrets};
use crate::task::template_objects::looks_up_services;

/// The code of a job that needs a gateway where none is installed.
const NO_GATEWAY: &str = "NoGateway";

/// Whether a gateway is all that a refused job lacks: its spec is right.
pub fn lacks_only_gateway(violations: &[Violation]) -> bool {
    violations.iter().all(|violation| violation.code == NO_GATEWAY)
}

/// The first that a job's tasks need of the gateway, as what is wrong where none is installed; none: it needs nothing.
pub fn needs_gateway(spec: &JobSpec) -> Option<Violation> {
    spec.groups.iter().enumerate().find_map(|(n, group)| {
        let mut tasks = group.tasks.iter().enumerate();
        let (m, (field, what)) = tasks.find_map(|(m, task)| Some((m, need(task)?)))?;
        let message = format!(
            "{what} comes to its node from the gateway, and none is installed; set gateway.enabled in the chart's \
             values, or remove it"
        );
        Some(Violation { code: NO_GATEWAY, field: format!("spec.groups[{n}].tasks[{m}].{field}"), message })
    })
}

/// A field of a task that needs the gateway, and what it names.
fn need(task: &Task) -> Option<(&'static str, String)> {
    let secret = || Some(("secrets[0]", object_of(task.secrets.first()?).to_string()));
    let pull = || Some(("imagePullSecrets[0]", pull_secrets(task).next()?.to_string()));
    let identity = || Some(("identities[0]", format!("identity {}", task.identities.first()?.name)));
    let services = || looks_up_services(task).then(|| ("templates", "what it looks up of services".to_owned()));
    secret().or_else(pull).or_else(identity).or_else(services)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(tasks: &Value) -> Option<String> {
        let spec = json!({ "groups": [{ "name": "a", "tasks": [] }, { "name": "g", "tasks": tasks }] });
        needs_gateway(&serde_json::from_value(spec).expect("a job")).map(|violation| violation.to_string())
    }

    #[test]
    fn what_comes_from_the_gateway_is_named_with_its_field_and_the_remedy() {
        let task = |field: &str, value: Value| json!({ "name": "t", "driver": "exec", (field): value });
        for (field, value, expected) in [
            ("secrets", json!([{ "name": "db", "path": "db-creds" }]), "secrets[0]: Secret db-creds"),
            ("secrets", json!([{ "name": "a", "provider": "configmap", "path": "app" }]), "secrets[0]: ConfigMap app"),
            ("imagePullSecrets", json!(["regcred"]), "imagePullSecrets[0]: Secret regcred"),
            ("identities", json!([{ "name": "vault" }]), "identities[0]: identity vault"),
            (
                "templates",
                json!([{ "destPath": "local/x", "embeddedTmpl": "{{ range service \"db\" }}{{ end }}" }]),
                "templates: what it looks up of services",
            ),
        ] {
            let plain = task("templates", json!([{ "destPath": "local/x", "embeddedTmpl": "{{ env \"X\" }}" }]));
            assert_eq!(found(&json!([plain])), None);
            let text = found(&json!([plain, task(field, value)])).expect(field);
            let expected = format!(
                "spec.groups[1].tasks[1].{expected} comes to its node from the gateway, and none is installed; set gateway.enabled in the chart's values, or remove it (NoGateway)"
            );
            assert_eq!(text, expected);
        }
    }
}
