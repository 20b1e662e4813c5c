//! Services and checks in whole lives of allocations.

use super::*;
use drover_api::allocation::{AllocatedPort, CheckResult};

const PORT: u16 = 21_000;

fn with_port(mut allocation: Allocation) -> Allocation {
    let port = AllocatedPort {
        label: "http".to_owned(),
        value: i64::from(PORT),
        host_ip: "10.0.0.7".to_owned(),
        ..AllocatedPort::default()
    };
    allocation.spec.resources.ports = vec![port];
    allocation
}

fn check(more: &Value) -> Value {
    let mut check = json!({"name": "up", "type": "http", "path": "/", "interval": "10s", "timeout": "1s"});
    for (field, value) in more.as_object().expect("an object") {
        check[field] = value.clone();
    }
    check
}

fn service(checks: &Value) -> Value {
    json!({"name": "api", "portLabel": "http", "checks": checks})
}

fn start(node: &Node, group: Value) -> Life {
    node.start(&job(JobType::Service, group), &with_port(allocation()), BTreeMap::new())
}

/// Whether the service is registered, and whether it is ready.
fn found(life: &Life) -> Option<bool> {
    life.report().services.first().map(|service| service.ready)
}

#[tokio::test(start_paused = true)]
async fn a_service_is_registered_with_its_task_and_ready_with_its_check() {
    let node = Node::new();
    let life = start(&node, json!({"services": [service(&json!([check(&json!({}))]))], "tasks": [runs("t", "1h")]}));
    life.running().await;
    assert_eq!(found(&life), Some(false));
    life.until("ready", |it| found(it) == Some(true)).await;
    assert!((5_000..5_100).contains(&life.millis()), "the first probe comes after half an interval: {}", life.millis());
    let report = life.report();
    let result = &report.checks["group-g/api/http/up"];
    assert_eq!((result.status, &*result.service, &*result.mode), (CheckResult::Success, "api", "healthiness"));
    assert_eq!(report.services[0].service_name, "api");
    node.prober.fail(PORT);
    life.until("not ready", |it| found(it) == Some(false)).await;
    assert!((15_000..15_100).contains(&life.millis()), "an interval later: {}", life.millis());
    assert_eq!(life.report().client_status, ClientStatus::Running, "a check alone changes no status");
    node.prober.mend(PORT);
    life.until("ready again", |it| found(it) == Some(true)).await;
}

#[tokio::test(start_paused = true)]
async fn a_051_a_service_is_taken_away_before_the_groups_shutdown_delay() {
    let node = Node::new();
    let group = json!({"shutdownDelay": "1s", "services": [service(&json!([]))], "tasks": [runs("t", "1h")]});
    let life = start(&node, group);
    life.until("ready", |it| found(it) == Some(true)).await;
    life.stop();
    let stopped = life.millis();
    life.until("taken away", |it| found(it).is_none()).await;
    assert!(life.millis() - stopped < 100);
    assert_eq!(life.task("t").state, TaskRunState::Running);
    life.ended().await;
    assert!(life.millis() - stopped >= 1000);
    assert_eq!((life.report().services.len(), life.report().checks.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_094_a_tasks_service_is_taken_away_before_its_shutdown_delay() {
    let node = Node::new();
    let more = json!({"shutdownDelay": "1s", "services": [service(&json!([]))]});
    let life = start(&node, json!({"tasks": [task("t", &json!({"runFor": "1h"}), &more)]}));
    life.until("ready", |it| found(it) == Some(true)).await;
    life.stop();
    let stopped = life.millis();
    life.until("taken away", |it| found(it).is_none()).await;
    assert!(life.millis() - stopped < 100);
    assert_eq!(life.task("t").state, TaskRunState::Running);
    life.ended().await;
    assert!(life.millis() - stopped >= 1000);
}

#[tokio::test(start_paused = true)]
async fn a_067_and_a_173_a_check_restarts_its_task_again_and_again_each_time_without_its_service() {
    let node = Node::new();
    node.prober.fail(PORT);
    let failing = check(&json!({"checkRestart": {"limit": 2, "grace": "0s"}}));
    let group = json!({
        "shutdownDelay": "3s",
        "restart": {"attempts": 5, "interval": "1h", "delay": "1s", "mode": "fail"},
        "services": [service(&json!([failing]))],
        "tasks": [runs("t", "1h")],
    });
    let life = start(&node, group);
    for n in 1..=3_i64 {
        life.until("registered", |it| found(it).is_some() && it.task("t").state == TaskRunState::Running).await;
        life.until("taken away", |it| found(it).is_none()).await;
        assert_eq!((life.restarts()["t"], life.task("t").state), (n - 1, TaskRunState::Running), "the task runs still");
        let taken_at = life.millis();
        life.until("restarted", |it| it.restarts()["t"] == n).await;
        let waited = life.millis() - taken_at;
        assert!((3_000..3_100).contains(&waited), "the shutdown delay comes before the end: {waited}");
        assert_eq!(found(&life), None, "it is not found before its task runs again");
    }
    let events = life.task("t").events;
    let asked = events.iter().find(|event| event.r#type == E::RestartSignaled).expect("a restart that was asked for");
    assert_eq!(asked.message, "check up of service api fails: refused");
    assert_eq!(node.starts().len(), 3);
    life.until("registered again", |it| found(it) == Some(false)).await;
    assert_eq!(node.starts().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_restarts_more_often_than_the_policy_allows_fails_its_task() {
    let node = Node::new();
    node.prober.fail(PORT);
    let failing = check(&json!({"checkRestart": {"limit": 1, "grace": "1s"}}));
    let group = json!({
        "restart": {"attempts": 1, "interval": "1h", "delay": "1s", "mode": "fail"},
        "services": [service(&json!([failing]))],
        "tasks": [runs("t", "1h")],
    });
    let life = start(&node, group);
    let report = life.ended().await;
    assert_eq!((report.client_status, report.task_states["t"].restarts), (ClientStatus::Failed, 1));
}

#[tokio::test(start_paused = true)]
async fn health_in_a_deployment_waits_for_checks_and_names_the_one_that_fails() {
    for (fails, says) in [(false, None), (true, Some("check up of service api fails: refused"))] {
        let node = Node::new();
        if fails {
            node.prober.fail(PORT);
        }
        let group = json!({
            "update": {"minHealthyTime": "1s", "healthyDeadline": "30s"},
            "services": [service(&json!([check(&json!({}))]))],
            "tasks": [runs("t", "1h")],
        });
        let allocation = with_port(in_deployment("d-1"));
        let life = node.start(&job(JobType::Service, group), &allocation, BTreeMap::new());
        life.until("judged", |it| it.report().health.is_some()).await;
        let health = life.report().health.expect("a verdict");
        assert_eq!(health.healthy, !fails, "checks are the default");
        let expected = if fails { 30_000..30_100 } else { 6_000..6_100 };
        assert!(expected.contains(&life.millis()), "{}", life.millis());
        let unhealthy = life.task("t").events.into_iter().find(|event| event.r#type == E::AllocUnhealthy);
        assert_eq!(unhealthy.is_some(), fails);
        if let (Some(event), Some(says)) = (unhealthy, says) {
            assert!(event.message.contains(says), "{}", event.message);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn health_of_an_allocation_that_was_moved_waits_for_its_checks() {
    let node = Node::new();
    node.prober.fail(PORT);
    let group = json!({
        "migrate": {"maxParallel": 1, "minHealthyTime": "1s", "healthyDeadline": "2m"},
        "services": [service(&json!([check(&json!({}))]))],
        "tasks": [runs("t", "1h")],
    });
    let life = start(&node, group);
    life.running().await;
    life.pass(Duration::from_mins(1)).await;
    assert_eq!(life.report().health, None);
    node.prober.mend(PORT);
    life.until("healthy", |it| it.report().health.is_some_and(|health| health.healthy)).await;
}

#[tokio::test(start_paused = true)]
async fn b_042_a_check_of_somebody_elses_port_fails_without_a_request() {
    let node = Node::new();
    let foreign = check(&json!({"portLabel": "10250"}));
    let life = start(&node, json!({"services": [service(&json!([foreign]))], "tasks": [runs("t", "1h")]}));
    life.until("judged", |it| it.report().checks.values().any(|check| check.status == CheckResult::Failure)).await;
    let report = life.report();
    let result = &report.checks["group-g/api/http/up"];
    assert!(result.output.contains("port \"10250\" is not held by the allocation"), "{}", result.output);
    assert_eq!(found(&life), Some(false));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_cannot_be_registered_fails_its_allocation() {
    let node = Node::new();
    let group = json!({"services": [{"name": "api", "portLabel": "other"}], "tasks": [runs("t", "1h")]});
    let life = start(&node, group);
    let report = life.ended().await;
    assert_eq!(report.client_status, ClientStatus::Failed);
    let event = &report.task_states["t"].events[0];
    assert!(event.message.contains("port \"other\" is not held by the allocation"), "{}", event.message);
}

#[tokio::test(start_paused = true)]
async fn a_140_an_agent_that_comes_back_takes_services_for_what_they_were() {
    let node = Node::new();
    let group = json!({"services": [service(&json!([check(&json!({}))]))], "tasks": [runs("t", "1h")]});
    let life = start(&node, group.clone());
    life.until("ready", |it| found(it) == Some(true)).await;
    let report = life.report();
    life.shut_down().await;
    let allocation = with_port(allocation());
    for record in records(&allocation, &report) {
        node.reports.restore(UID, &record);
        let life = node.start(&job(JobType::Service, group.clone()), &allocation, node.records());
        for _ in 0..20 {
            assert_eq!((found(&life), &life.report().checks), (Some(true), &report.checks));
            life.pass(Duration::from_secs(1)).await;
        }
        life.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_runs_in_its_task_and_a_warning_is_shown_and_found() {
    let node = Node::new();
    let script = |name: &str, code: &str| json!({"name": name, "type": "script", "command": code, "interval": "10s", "timeout": "1s", "task": "t"});
    let checks = json!([script("well", "0"), script("hot", "1")]);
    let life = start(&node, json!({"services": [service(&checks)], "tasks": [runs("t", "1h")]}));
    life.until("ready", |it| found(it) == Some(true)).await;
    let report = life.report();
    let (well, hot) = (&report.checks["group-g/api/http/well"], &report.checks["group-g/api/http/hot"]);
    assert_eq!((well.status, hot.status), (CheckResult::Success, CheckResult::Warning));
    let place = format!("{UID}/t");
    assert!(well.output.starts_with(&place) && well.output.ends_with(&place), "{}", well.output);
    assert!(hot.output.starts_with("exit code 1: "), "{}", hot.output);
}

#[tokio::test(start_paused = true)]
async fn a_script_of_a_task_that_has_ended_is_a_failure() {
    let node = Node::new();
    let script =
        json!({"name": "up", "type": "script", "command": "0", "interval": "10s", "timeout": "1s", "task": "init"});
    let init = task("init", &json!({"runFor": "1s"}), &json!({"lifecycle": {"hook": "prestart"}}));
    let life = start(&node, json!({"services": [service(&json!([script]))], "tasks": [runs("t", "1h"), init]}));
    life.until("judged", |it| it.report().checks.values().any(|check| check.status == CheckResult::Failure)).await;
    assert_eq!(life.report().checks["group-g/api/http/up"].output, "Task not running");
}
