//! The admission policies that an installation rests on: which there are, and whether each is there, bound, and denies.
//!
//! What a policy says is only half of it: a condition that never matches, or a binding that only warns, lets everything
//! through and looks like a policy. So a write that it must refuse is tried as well, as a dry run that stores nothing.
//!
//! Must never know: who may do what.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Health, watched};

/// A policy that the chart installs; its binding has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequiredPolicy {
    /// The name of both.
    pub name: &'static str,
    /// The value of the chart that turns both off.
    setting: &'static str,
    /// What goes without it.
    danger: &'static str,
    /// What it always refuses under its own name with `-probe`; none: it cannot be tried without an object that exists.
    probe: Option<Probe>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Lease,
    Job,
    /// A job with a plugin.
    Plugin,
}

/// All that can be required.
pub const POLICIES: [RequiredPolicy; 5] = [
    RequiredPolicy {
        name: "drover-node-restriction",
        setting: "nodeRestriction.enabled",
        danger: "any agent could write any allocation",
        probe: Some(Probe::Lease),
    },
    RequiredPolicy {
        name: "drover-intents",
        setting: "intents.enabled",
        danger: "everyone who may change a deployment could promote and fail it",
        probe: None,
    },
    RequiredPolicy {
        name: "drover-plugins",
        setting: "pluginRestriction.enabled",
        danger: "everyone who may create jobs could pose as a CSI plugin",
        probe: Some(Probe::Plugin),
    },
    RequiredPolicy {
        name: "drover-priorities",
        setting: "priorityRestriction.enabled",
        danger: "everyone who may create jobs could evict others",
        probe: Some(Probe::Job),
    },
    RequiredPolicy {
        name: "drover-secrets",
        setting: "secretRestriction.enabled",
        danger: "everyone who may create jobs could read payloads in Secrets",
        probe: Some(Probe::Job),
    },
];

/// When a policy is tried after it or its binding changed: the API server takes a change into account a moment after
/// it stored it, and does not tell when.
const AFTER_CHANGE: [Duration; 4] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(5)];
/// How often it is tried although nothing changed: what else an API server does to a policy is seen by nothing else,
/// and readiness must say so within this time.
const AT_REST: Duration = Duration::from_secs(10);

/// Follows a policy until the end.
pub(super) async fn follow(client: Client, namespace: &str, policy: RequiredPolicy, health: &Health) {
    let (verdicts, _) = watch::channel(Verdicts::default());
    let (policies, bindings) = (Api::all(client.clone()), Api::all(client.clone()));
    let judge_policy = |found: Option<&ValidatingAdmissionPolicy>| judge_policy(found, policy);
    let judge_binding = |found: Option<&ValidatingAdmissionPolicyBinding>| judge_binding(found, policy.name);
    tokio::join!(
        watched::follow(policies, policy.name, judge_policy, |verdict| {
            verdicts.send_modify(|verdicts| verdicts.take(Some(verdict), None));
        }),
        watched::follow(bindings, policy.name, judge_binding, |verdict| {
            verdicts.send_modify(|verdicts| verdicts.take(None, Some(verdict)));
        }),
        probe(&client, namespace, policy, &verdicts),
        tell(policy, &verdicts, health),
    );
}

/// What is known of a policy: nothing yet, that it is as it must be, or what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdicts {
    policy: Option<Result<(), String>>,
    binding: Option<Result<(), String>>,
    denies: Option<Result<(), String>>,
    /// How often the policy or its binding changed, also where both look as right as before.
    n_changes: u64,
}

impl Verdicts {
    /// Takes in what the policy, or its binding, is judged to be after a change.
    fn take(&mut self, policy: Option<Result<(), String>>, binding: Option<Result<(), String>>) {
        self.policy = policy.or_else(|| self.policy.take());
        self.binding = binding.or_else(|| self.binding.take());
        self.n_changes += 1;
    }

    /// What is wrong; none while something is not known yet.
    fn problem(&self, policy: RequiredPolicy) -> Option<Result<(), String>> {
        let known = [&self.policy, &self.binding, &self.denies];
        if let Some(reason) = known.iter().find_map(|verdict| verdict.as_ref()?.as_ref().err()) {
            return Some(Err(format!(
                "{} {reason}: {}; restore it with `helm upgrade`, or set {}=false",
                policy.name, policy.danger, policy.setting
            )));
        }
        let is_probed = policy.probe.is_none() || self.denies.is_some();
        (self.policy.is_some() && self.binding.is_some() && is_probed).then_some(Ok(()))
    }
}

async fn tell(policy: RequiredPolicy, verdicts: &watch::Sender<Verdicts>, health: &Health) {
    let mut seen = verdicts.subscribe();
    loop {
        let problem = seen.borrow_and_update().problem(policy);
        match problem {
            Some(Ok(())) => health.well(policy.name),
            Some(Err(reason)) => health.ill(policy.name, reason),
            None => {}
        }
        // The sender lives as long as this loop.
        if seen.changed().await.is_err() {
            return;
        }
    }
}

fn judge_policy(found: Option<&ValidatingAdmissionPolicy>, policy: RequiredPolicy) -> Result<(), String> {
    let spec = found.ok_or("is missing")?.spec.as_ref().ok_or("says nothing")?;
    match spec.failure_policy.as_deref() {
        Some("Fail") | None => {}
        Some(other) => return Err(format!("has failurePolicy {other}, so that its errors let everything through")),
    }
    let has_conditions = spec.match_conditions.as_ref().is_some_and(|conditions| !conditions.is_empty());
    if policy.probe.is_none() && has_conditions {
        return Err("has matchConditions, which may never match, and what it must refuse cannot be tried".to_owned());
    }
    let has_validations = spec.validations.as_ref().is_some_and(|validations| !validations.is_empty());
    if has_validations { Ok(()) } else { Err("validates nothing".to_owned()) }
}

fn judge_binding(binding: Option<&ValidatingAdmissionPolicyBinding>, name: &str) -> Result<(), String> {
    let spec = &binding.ok_or("has no binding")?.spec;
    if spec.policy_name != name {
        return Err("has a binding to another policy".to_owned());
    }
    let actions = &spec.validation_actions;
    if !actions.iter().any(|action| action == "Deny") {
        return Err(format!("is bound with {} and not with Deny", actions.join(", ")));
    }
    match &spec.match_resources {
        Some(resources) if *resources != MatchResources::default() => {
            Err("has a binding with matchResources, so that it does not count everywhere".to_owned())
        }
        Some(_) | None => Ok(()),
    }
}

/// Tries what the policy must refuse, after each change and now and then.
async fn probe(client: &Client, namespace: &str, policy: RequiredPolicy, verdicts: &watch::Sender<Verdicts>) {
    let Some(kind) = policy.probe else { return };
    let mut seen = verdicts.subscribe();
    let mut n_tries = 0;
    loop {
        let before = seen.borrow_and_update().n_changes;
        if let Some(verdict) = try_write(client, namespace, kind, policy.name).await {
            verdicts.send_if_modified(|verdicts| {
                let is_news = verdicts.denies.as_ref() != Some(&verdict);
                verdicts.denies = Some(verdict);
                is_news
            });
        }
        n_tries += 1;
        let pause = AFTER_CHANGE.get(n_tries).copied().unwrap_or(AT_REST);
        let changed = seen.wait_for(|now| now.n_changes != before);
        if tokio::time::timeout(pause, changed).await.is_ok() {
            n_tries = 0;
        }
    }
}

/// Whether the write is denied, and by this policy; none where that is not known.
async fn try_write(client: &Client, namespace: &str, kind: Probe, policy: &str) -> Option<Result<(), String>> {
    let (kind, object) = probe_object(kind, &format!("{policy}-probe"), namespace);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let object = serde_json::from_value(object).ok()?;
    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
        Ok(accepted) => {
            let what = format!("{} {}", kind.kind, accepted.name_any());
            Some(Err(format!("denies nothing: {what}, which it must refuse, was accepted (dry run)")))
        }
        Err(kube::Error::Api(status)) if is_denied_by(&status.message, policy) => Some(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Some(Err(format!("cannot be tried, because the controller may not: {}", status.message)))
        }
        Err(error) => {
            tracing::debug!(%error, policy, "a policy was not tried");
            None
        }
    }
}

/// The API server names the policy in what it says.
fn is_denied_by(message: &str, policy: &str) -> bool {
    message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"))
}

fn probe_object(kind: Probe, name: &str, namespace: &str) -> (ApiResource, Value) {
    let metadata = json!({ "name": name, "namespace": namespace });
    let mut task = json!({ "name": "t", "driver": "raw_exec", "config": { "command": "/" } });
    match kind {
        Probe::Lease => {
            return (
                ApiResource::from_gvk(&GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease")),
                json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata }),
            );
        }
        Probe::Job => {}
        Probe::Plugin => task["csiPlugin"] = json!({ "id": name, "type": "node" }),
    }
    (
        ApiResource::from_gvk(&GroupVersionKind::gvk("drover.dev", "v1alpha1", "Job")),
        json!({
            "apiVersion": "drover.dev/v1alpha1",
            "kind": "Job",
            "metadata": metadata,
            "spec": { "groups": [{ "name": "g", "tasks": [task] }] },
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn policy(spec: &Value) -> ValidatingAdmissionPolicy {
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).expect("a policy")
    }

    fn binding(spec: &Value) -> ValidatingAdmissionPolicyBinding {
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).expect("a binding")
    }

    #[test]
    fn a_policy_that_lets_errors_pass_or_says_nothing_is_none() {
        let [tried, untried, ..] = POLICIES;
        let validations = json!([{ "expression": "false" }]);
        let never = json!([{ "name": "never", "expression": "false" }]);
        let with_conditions = policy(&json!({ "validations": validations, "matchConditions": never }));
        assert_eq!(judge_policy(Some(&policy(&json!({ "validations": validations }))), untried), Ok(()));
        assert_eq!(judge_policy(Some(&with_conditions), tried), Ok(()), "its probe says more");
        let error = judge_policy(Some(&with_conditions), untried).expect_err("it may deny nothing");
        assert!(error.contains("matchConditions"), "{error}");
        assert_eq!(judge_policy(None, tried), Err("is missing".to_owned()));
        for (spec, wanted) in [
            (json!({ "validations": validations, "failurePolicy": "Ignore" }), "failurePolicy Ignore"),
            (json!({ "validations": [] }), "validates nothing"),
        ] {
            let error = judge_policy(Some(&policy(&spec)), tried).expect_err("no policy");
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_binding_that_does_not_deny_everywhere_is_none() {
        let judge = |spec: Value| judge_binding(Some(&binding(&spec)), "p");
        assert_eq!(judge(json!({ "policyName": "p", "validationActions": ["Deny", "Audit"] })), Ok(()));
        assert_eq!(judge_binding(None, "p"), Err("has no binding".to_owned()));
        for (spec, wanted) in [
            (json!({ "policyName": "q", "validationActions": ["Deny"] }), "another policy"),
            (json!({ "policyName": "p", "validationActions": ["Audit", "Warn"] }), "Audit, Warn and not with Deny"),
            (
                json!({
                    "policyName": "p", "validationActions": ["Deny"],
                    "matchResources": { "namespaceSelector": { "matchLabels": { "a": "b" } } },
                }),
                "matchResources",
            ),
        ] {
            let error = judge(spec).expect_err("no binding");
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_policy_is_well_when_all_that_is_asked_of_it_is_known_and_right() {
        let [restriction, intents, ..] = POLICIES;
        let mut verdicts = Verdicts { policy: Some(Ok(())), binding: Some(Ok(())), ..Verdicts::default() };
        assert_eq!(verdicts.problem(intents), Some(Ok(())));
        assert_eq!(verdicts.problem(restriction), None, "it was not tried yet");
        verdicts.denies = Some(Err("denies nothing".to_owned()));
        let problem = verdicts.problem(restriction).expect("known").expect_err("a problem");
        for part in ["drover-node-restriction denies nothing", "any agent could", "nodeRestriction.enabled=false"] {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_is_tried_at_once_after_a_change_that_leaves_it_looking_right() {
        let n_tries = Arc::new(AtomicUsize::new(0));
        let tries = Arc::clone(&n_tries);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            tries.fetch_add(1, Ordering::Relaxed);
            let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "x" } });
            async move { Ok::<_, Infallible>(http::Response::new(Body::from(lease.to_string().into_bytes()))) }
        });
        let client = Client::new(service, "default");
        let (verdicts, _) = watch::channel(Verdicts::default());
        let mut probing = std::pin::pin!(probe(&client, "drover-system", POLICIES[0], &verdicts));
        for of_binding in [false, true, false] {
            tokio::time::timeout(AT_REST * 6, &mut probing).await.expect_err("it never ends");
            let before = n_tries.load(Ordering::Relaxed);
            let (policy, binding) = if of_binding { (None, Some(Ok(()))) } else { (Some(Ok(())), None) };
            verdicts.send_modify(|verdicts| verdicts.take(policy, binding));
            tokio::time::timeout(Duration::from_millis(1), &mut probing).await.expect_err("it never ends");
            assert_eq!(n_tries.load(Ordering::Relaxed), before + 1);
        }
        assert!(verdicts.borrow().denies.as_ref().is_some_and(Result::is_err), "what is accepted is not denied");
    }

    #[test]
    fn a_refusal_counts_only_when_the_policy_itself_refused() {
        let said = "leases \"x\" is forbidden: ValidatingAdmissionPolicy 'drover-a' with binding 'drover-a' denied request: no";
        assert!(is_denied_by(said, "drover-a"));
        assert!(!is_denied_by(said, "drover"));
        assert!(!is_denied_by("leases is forbidden: User \"x\" cannot create resource", "drover-a"));
    }
}
