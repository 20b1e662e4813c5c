//! What the agent reports of an allocation: the fields of its status that are the agent's, and how they look as an
//! object.

use std::collections::BTreeMap;

use drover_api::allocation::{
    AllocationColumns, AllocationCondition, AllocationConditionType as Type, AllocationReason as Reason, CheckResult,
    CheckStatus, ClientStatus, DesiredStatus, Health, NetworkStatus, ServiceRegistration, TaskRunState, TaskState,
    VolumeStatus,
};
use drover_api::condition::{self, ConditionStatus, Wanted};
use drover_api::job::JobType;
use drover_api::{Allocation, AllocationStatus, JobSpec};
use drover_core::task::failure;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The agent's part of an allocation's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// The generation of the object that it is about.
    pub(crate) generation: i64,
    /// How the allocation fares.
    pub(crate) client_status: ClientStatus,
    /// Why.
    pub(crate) description: String,
    /// Its tasks.
    pub(crate) task_states: BTreeMap<String, TaskState>,
    /// The verdict on its health.
    pub(crate) health: Option<Health>,
    /// When nothing of it was left on the node.
    pub(crate) ended_at: Option<Timestamp>,
    /// When a person asked for its stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop_requested_at: Option<Timestamp>,
    /// Whether health is judged at all (service and system jobs).
    pub(crate) health_matters: bool,
    /// Whether its tasks are being ended.
    pub(crate) stopping: bool,
    /// How its volumes fare, by their names in the group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) volumes: BTreeMap<String, VolumeStatus>,
    /// The services that others may find.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<ServiceRegistration>,
    /// What their checks found last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) checks: BTreeMap<String, CheckStatus>,
    /// Its own network, once it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<NetworkStatus>,
}

/// The report that the API server has accepted last, as far as the status tells.
pub(crate) fn of_status(generation: i64, status: &AllocationStatus, job: JobType) -> Report {
    Report {
        generation,
        client_status: status.client_status,
        description: status.client_description.clone(),
        task_states: status.task_states.clone(),
        health: status.health.clone(),
        ended_at: status.ended_at,
        stop_requested_at: status.stop_requested_at,
        health_matters: matches!(job, JobType::Service | JobType::System),
        stopping: false,
        volumes: status.volumes.clone(),
        services: status.services.clone(),
        checks: status.checks.clone(),
        network: status.network.clone(),
    }
}

/// The report of an allocation that cannot be run here at all. `job` is its version, if that is known.
pub(crate) fn of_refused(allocation: &Allocation, job: Option<&JobSpec>, reason: &str, now: Timestamp) -> Report {
    let spec = &allocation.spec;
    let group = job.and_then(|job| job.group(&spec.group));
    let names: Vec<String> = match group {
        Some(group) => group.tasks.iter().map(|task| task.name.clone()).collect(),
        None => spec.resources.tasks.keys().cloned().collect(),
    };
    let dead = TaskState { state: TaskRunState::Dead, failed: true, finished_at: Some(now), ..TaskState::default() };
    let health_matters = job.is_none_or(|job| matches!(job.r#type, JobType::Service | JobType::System));
    let deployment_name = spec.deployment_name.clone();
    Report {
        generation: allocation.metadata.generation.unwrap_or_default(),
        client_status: ClientStatus::Failed,
        description: format!("the allocation could not be added: {reason}"),
        task_states: names.into_iter().map(|name| (name, dead.clone())).collect(),
        health: health_matters.then_some(Health { healthy: false, timestamp: now, deployment_name }),
        ended_at: Some(now),
        stop_requested_at: None,
        health_matters,
        stopping: false,
        volumes: BTreeMap::new(),
        services: Vec::new(),
        checks: BTreeMap::new(),
        network: None,
    }
}

/// How soon a report has to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Nothing to tell.
    None,
    /// Within a second.
    Typical,
    /// At once, and at most once per second: what flaps must not write more.
    Paced,
    /// At once.
    Urgent,
}

/// Compares a report with the last one that the API server accepted.
pub(crate) fn priority(report: &Report, acknowledged: Option<&Report>) -> Priority {
    let Some(acknowledged) = acknowledged else {
        // A new object says `pending`, so anything else is news. (Nomad lets all but failures wait for the next
        // second.)
        return if report.client_status == ClientStatus::Pending { Priority::Typical } else { Priority::Urgent };
    };
    // A verdict on health moves a deployment on; it comes once, long after the last send. (Nomad lets it wait for the
    // next second.)
    let is_judged = report.health.is_some() && report.health != acknowledged.health;
    let is_asked = report.stop_requested_at != acknowledged.stop_requested_at;
    let is_over = report.ended_at != acknowledged.ended_at;
    // The shutdown delay has begun: nothing new may come to it.
    let known = |id: &str| report.services.iter().any(|service| service.id == id);
    let is_withdrawn = acknowledged.services.iter().any(|service| !known(&service.id));
    if report.client_status != acknowledged.client_status || is_over || is_judged || is_asked || is_withdrawn {
        Priority::Urgent
    } else if report.services != acknowledged.services {
        Priority::Paced
    } else if differs(report, acknowledged) {
        Priority::Typical
    } else {
        Priority::None
    }
}

/// Whether a report says what the agent's next life has to stand by, beyond what was accepted: a verdict on health,
/// which comes once; services and what checks found, which must not blink; a request to stop it.
pub(super) fn binds(report: &Report, acknowledged: Option<&Report>) -> bool {
    let nothing = Report::default();
    let known = acknowledged.unwrap_or(&nothing);
    report.health != known.health
        || report.services != known.services
        || report.checks != known.checks
        || report.stop_requested_at != known.stop_requested_at
}

fn differs(report: &Report, acknowledged: &Report) -> bool {
    report.description != acknowledged.description
        || report.task_states != acknowledged.task_states
        || report.health != acknowledged.health
        || report.stopping != acknowledged.stopping
        || report.volumes != acknowledged.volumes
        || report.checks != acknowledged.checks
        || report.network != acknowledged.network
}

/// The status as an object for server-side apply. `lost` is the controller's and final: then only the end is told.
pub(crate) fn status_body(report: &Report, seen: &Allocation, now: Timestamp) -> Value {
    let before = seen.status.as_ref();
    let is_lost = |status: &&AllocationStatus| status.client_status == ClientStatus::Lost;
    let mut status = json!({
        "observedGeneration": report.generation,
        "taskStates": report.task_states,
        "modifiedAt": now,
    });
    if let Some(asked_at) = report.stop_requested_at {
        status["stopRequestedAt"] = json!(asked_at);
    }
    if let Some(ended_at) = report.ended_at {
        status["endedAt"] = json!(ended_at);
    }
    if !report.volumes.is_empty() {
        status["volumes"] = json!(report.volumes);
    }
    if !report.services.is_empty() {
        status["services"] = json!(report.services);
    }
    if !report.checks.is_empty() {
        status["checks"] = json!(report.checks);
    }
    if let Some(network) = &report.network {
        status["network"] = json!(network);
    }
    if let Some(health) = &report.health {
        status["health"] = json!(health);
    }
    if let Some(before) = before.filter(is_lost) {
        // What an apply leaves out is removed where nobody else owns it, and the controller's mark changed a part only.
        status["clientStatus"] = json!(before.client_status);
        status["clientDescription"] = json!(before.client_description);
        status["columns"] = json!(before.columns);
        status["conditions"] = json!(before.conditions);
    } else {
        let known = before.map_or(&[][..], |status| &status.conditions);
        let name = seen.metadata.name.as_deref().unwrap_or_default();
        let conditions = condition::merged(known, wanted_conditions(report, name), report.generation, now);
        status["clientStatus"] = json!(report.client_status);
        status["clientDescription"] = json!(report.description);
        status["columns"] = json!(columns(report, &seen.spec.deployment_name, &conditions));
        status["conditions"] = json!(conditions);
    }
    drover_store::status_body(status)
}

fn columns(report: &Report, deployment: &str, conditions: &[AllocationCondition]) -> AllocationColumns {
    let restarts: i64 = report.task_states.values().map(|state| state.restarts).sum();
    let holds = |of: Type| conditions.iter().find(|found| found.r#type == of && found.status == ConditionStatus::True);
    let matters = holds(Type::Stalled)
        .or_else(|| holds(Type::Reconciling))
        .or_else(|| conditions.iter().find(|found| found.r#type == Type::Ready));
    AllocationColumns {
        healthy: report.health.as_ref().map_or_else(|| "-".to_owned(), |health| health.healthy.to_string()),
        restarts: restarts.to_string(),
        deployment: if deployment.is_empty() { "-".to_owned() } else { deployment.to_owned() },
        reason: matters.map_or_else(|| "-".to_owned(), |found| found.reason.to_string()),
    }
}

/// What takes the controller's conditions of a cut-off node away, if the object has any that the agent must end. By
/// server-side apply that cannot be done: what the controller wrote by merge stays its own, and a condition of which
/// the agent only gives its part up lacks the rest, which the API server refuses. A merge takes the item away from
/// both.
pub(crate) fn without_marks(seen: &Allocation) -> Option<Value> {
    let status = seen.status.as_ref().filter(|status| status.client_status != ClientStatus::Lost)?;
    let is_mark = |found: &AllocationCondition| {
        found.r#type == Type::Reconciling && matches!(found.reason, Reason::Lost | Reason::Reconnecting)
    };
    if !status.conditions.iter().any(is_mark) {
        return None;
    }
    let rest: Vec<&AllocationCondition> = status.conditions.iter().filter(|found| !is_mark(found)).collect();
    Some(json!({ "status": { "conditions": rest } }))
}

fn wanted_conditions(report: &Report, name: &str) -> Vec<Wanted<Type, Reason>> {
    let text = report.description.as_str();
    let (is_healthy, mut wanted) = match &report.health {
        Some(health) if health.healthy => {
            (true, vec![Wanted::yes(Type::Healthy, Reason::Healthy, "all its tasks run")])
        }
        Some(_) => (false, vec![Wanted::no(Type::Healthy, Reason::Unhealthy, text)]),
        None if report.health_matters => {
            (false, vec![Wanted::unknown(Type::Healthy, Reason::NotJudged, "its health is not known yet")])
        }
        None => (true, Vec::new()),
    };
    let ready = match report.client_status {
        ClientStatus::Complete => Wanted::yes(Type::Ready, Reason::Complete, text),
        ClientStatus::Failed => Wanted::no(Type::Ready, Reason::Failed, failure(report, name)),
        ClientStatus::Running if report.stopping => {
            Wanted::no(Type::Ready, Reason::Stopping, "its tasks are being ended")
        }
        ClientStatus::Running if is_healthy => Wanted::yes(Type::Ready, Reason::Running, text),
        ClientStatus::Running => {
            let text = check_fault(report).unwrap_or_else(|| "its tasks run and are not healthy yet".to_owned());
            Wanted::no(Type::Ready, Reason::Starting, text)
        }
        ClientStatus::Pending | ClientStatus::Lost | ClientStatus::Unknown => {
            Wanted::unknown(Type::Ready, Reason::Starting, text)
        }
    };
    let reconciling = match report.client_status {
        ClientStatus::Complete | ClientStatus::Failed => None,
        _ if report.stopping => Some(Wanted::yes(Type::Reconciling, Reason::Stopping, "its tasks are being ended")),
        ClientStatus::Running if is_healthy => None,
        ClientStatus::Running | ClientStatus::Pending | ClientStatus::Lost | ClientStatus::Unknown => {
            Some(Wanted::yes(Type::Reconciling, Reason::Starting, "its tasks are being started"))
        }
    };
    let stalled = (report.client_status == ClientStatus::Failed)
        .then(|| Wanted::yes(Type::Stalled, Reason::Failed, failure(report, name)));
    wanted.push(ready);
    wanted.extend(reconciling);
    wanted.extend(stalled);
    wanted
}

/// What the first check that fails was answered, else the first that warns.
fn check_fault(report: &Report) -> Option<String> {
    let first = |status| report.checks.values().find(|check| check.status == status);
    let (check, fares) = first(CheckResult::Failure)
        .map(|check| (check, "fails"))
        .or_else(|| first(CheckResult::Warning).map(|check| (check, "warns")))?;
    Some(format!("check {} of service {} {fares}: {}", check.check, check.service, check.output))
}

/// The sentence about a failure: which task, why, and what would help.
fn failure(report: &Report, name: &str) -> String {
    let failed = report.task_states.iter().filter(|(_, state)| state.failed);
    failure::last(name, failed).map_or_else(|| report.description.clone(), |failure| failure.sentence())
}

/// Whether the controller wants the allocation's tasks to run.
pub(crate) fn is_wanted(allocation: &Allocation) -> bool {
    allocation.spec.desired_status == DesiredStatus::Run && allocation.metadata.deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Report {
        Report { client_status: ClientStatus::Running, description: "tasks running".into(), ..Report::default() }
    }

    #[test]
    fn a_027_to_a_030_priorities() {
        // another status is urgent. A-029: without an acknowledged state only `pending` is not.
        let restarted = TaskState { restarts: 1, ..TaskState::default() };
        let event = Report { task_states: [("t".to_owned(), restarted)].into(), ..running() };
        let failed = Report { client_status: ClientStatus::Failed, ..running() };
        assert_eq!(priority(&event, Some(&running())), Priority::Typical);
        assert_eq!(priority(&failed, Some(&running())), Priority::Urgent);
        assert_eq!(priority(&Report::default(), None), Priority::Typical);
        assert_eq!(priority(&failed, None), Priority::Urgent);
        assert_eq!(priority(&running(), None), Priority::Urgent);
        assert_eq!(priority(&running(), Some(&running())), Priority::None);
    }

    #[test]
    fn a_031_another_address_of_the_network_is_told_within_a_second() {
        let at = |address: &str| {
            let network = NetworkStatus { address: address.to_owned(), ..NetworkStatus::default() };
            Report { network: Some(network), ..running() }
        };
        assert_eq!(priority(&at("192.168.1.2"), Some(&at("192.168.1.1"))), Priority::Typical);
        assert_eq!(priority(&at("192.168.1.1"), Some(&running())), Priority::Typical);
        assert_eq!(priority(&at("192.168.1.1"), Some(&at("192.168.1.1"))), Priority::None);
    }

    #[test]
    fn readiness_is_told_at_once_and_what_is_taken_away_before_all_else() {
        let with = |services: &[(&str, bool)]| Report {
            services: services
                .iter()
                .map(|(id, ready)| ServiceRegistration {
                    id: (*id).to_owned(),
                    ready: *ready,
                    ..ServiceRegistration::default()
                })
                .collect(),
            ..running()
        };
        assert_eq!(priority(&with(&[("a", true)]), Some(&with(&[("a", false)]))), Priority::Paced);
        assert_eq!(priority(&with(&[("a", true), ("b", false)]), Some(&with(&[("a", true)]))), Priority::Paced);
        assert_eq!(priority(&with(&[]), Some(&with(&[("a", true)]))), Priority::Urgent);
        assert_eq!(priority(&with(&[("a", true)]), Some(&with(&[("a", true)]))), Priority::None);
        let failing = CheckStatus {
            check: "up".into(),
            service: "api".into(),
            status: CheckResult::Failure,
            output: "refused".into(),
            ..CheckStatus::default()
        };
        let report = Report { checks: [("c".to_owned(), failing)].into(), health_matters: true, ..running() };
        assert_eq!(priority(&report, Some(&running())), Priority::Typical);
        let seen = Allocation::new("a", drover_api::AllocationSpec::default());
        let body = status_body(&report, &seen, Timestamp::UNIX_EPOCH);
        let conditions = body["status"]["conditions"].as_array().expect("a list");
        let ready = conditions.iter().find(|found| found["type"] == "Ready").expect("a condition");
        assert_eq!(ready["message"], "check up of service api fails: refused");
    }

    #[test]
    fn one_write_says_running_healthy_and_ready() {
        let health = Some(Health { healthy: true, timestamp: Timestamp::UNIX_EPOCH, deployment_name: String::new() });
        let report = Report { health, health_matters: true, generation: 1, ..running() };
        let seen = Allocation::new("a", drover_api::AllocationSpec::default());
        let body = status_body(&report, &seen, Timestamp::UNIX_EPOCH);
        let status = &body["status"];
        assert_eq!(
            status["columns"],
            json!({"healthy": "true", "restarts": "0", "deployment": "-", "reason": "Running"})
        );
        let types: Vec<_> = status["conditions"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|found| (&found["type"], &found["status"]))
            .collect();
        assert_eq!(types, [(&json!("Healthy"), &json!("True")), (&json!("Ready"), &json!("True"))]);
    }

    #[test]
    fn a_mark_is_taken_away_before_the_next_report() {
        let mark = |of, reason| AllocationCondition {
            r#type: of,
            status: ConditionStatus::True,
            observed_generation: 1,
            last_transition_time: Timestamp::UNIX_EPOCH,
            reason,
            message: String::new(),
        };
        let mut seen = Allocation::new("a", drover_api::AllocationSpec::default());
        let conditions = vec![mark(Type::Ready, Reason::Reconnecting), mark(Type::Reconciling, Reason::Reconnecting)];
        let status =
            drover_api::AllocationStatus { client_status: ClientStatus::Unknown, conditions, ..Default::default() };
        seen.status = Some(status.clone());
        let body = without_marks(&seen).expect("there is a mark");
        let kept: Vec<_> = body["status"]["conditions"].as_array().into_iter().flatten().collect();
        assert_eq!((kept.len(), &kept[0]["type"]), (1, &json!("Ready")));
        // The controller's last word stays.
        seen.status = Some(drover_api::AllocationStatus { client_status: ClientStatus::Lost, ..status });
        assert_eq!(without_marks(&seen), None);
        let told = status_body(&running(), &seen, Timestamp::UNIX_EPOCH);
        assert_eq!(told["status"]["conditions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_lost_allocation_only_gets_its_end() {
        let mut seen = Allocation::new("a", drover_api::AllocationSpec::default());
        let marked = condition::merged(&[], wanted_conditions(&running(), "a"), 1, Timestamp::UNIX_EPOCH);
        let lost = AllocationStatus { client_status: ClientStatus::Lost, conditions: marked, ..Default::default() };
        seen.status = Some(lost.clone());
        let report = Report { ended_at: Some(Timestamp::UNIX_EPOCH), ..running() };
        let body = status_body(&report, &seen, Timestamp::UNIX_EPOCH);
        // Nothing of the mark is left out: it would be removed.
        assert_eq!(
            (&body["status"]["clientStatus"], &body["status"]["columns"]),
            (&json!("lost"), &json!(lost.columns))
        );
        assert_eq!(body["status"]["conditions"], json!(lost.conditions));
        assert!(body["status"].get("endedAt").is_some());
    }
}
