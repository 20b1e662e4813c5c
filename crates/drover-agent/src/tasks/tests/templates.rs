//! Templates of a task: what a start waits for, what follows on a change, and what an agent finds again.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_api::allocation::{TaskEventType as E, TaskRunState};
use drover_core::service::{CheckAnswer, Probe, script_answer};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::scripted_values::{ScriptedValues, with_keys};
use super::world::{Node, count, read};
use crate::checks::{Prober, TaskPlaces};
use crate::tasks::commands::Force;
use crate::tasks::plan::TaskEnd;
use crate::values::ValueState;

/// Longer than changes are collected, and than the longest random wait.
const LATER: Duration = Duration::from_secs(11);

/// A task with these templates, which lists Secret `a` and `ConfigMap` `app`.
fn task(templates: &[Value]) -> Value {
    let templates: Vec<Value> = templates
        .iter()
        .map(|fields| {
            let mut template = json!({ "embeddedTmpl": SECRET, "destPath": "local/x" });
            for (name, value) in fields.as_object().expect("an object") {
                template[name] = value.clone();
            }
            if fields.get("sourcePath").is_some() {
                template["embeddedTmpl"] = json!("");
            }
            template
        })
        .collect();
    json!({
        "secrets": [{ "name": "a", "path": "a" }, { "name": "app", "provider": "configmap", "path": "app" }],
        "templates": templates,
        "config": { "runFor": "100h" },
        "restart": { "attempts": 0, "interval": "10m", "delay": "10s", "mode": "fail" },
    })
}

/// What Secret `a` has of key `k`.
const SECRET: &str = "{{with secret \"a\"}}{{.Data.k}}{{end}}";

fn node() -> (Node, Arc<ScriptedValues>) {
    let (node, values) = ScriptedValues::on_a_node();
    values.there("a", "k", "one");
    values.there("app", "c", "map");
    (node, values)
}

#[tokio::test(start_paused = true)]
async fn a_151_missing_keys_are_told_once_after_three_seconds_and_the_start_goes_on_when_they_are_there() {
    let (node, values) = node();
    let text = "{{key \"app/k1\"}}{{key \"app/k2\"}}{{key \"app/k3\"}}{{key \"app/k4\"}}{{key \"app/k5\"}}";
    let mut life = node.run(&task(&[json!({ "embeddedTmpl": text })]));
    life.pass(Duration::from_millis(2900)).await;
    assert_eq!(count(&life, E::Template), 0, "nothing is reported yet");
    life.pass(Duration::from_mins(30)).await;
    let key = |n: u32| format!("key k{n} of ConfigMap app (add it there)");
    let expected = format!("waits for {}, {}, {} and 2 more", key(1), key(2), key(3));
    assert_eq!((count(&life, E::Template), life.last_message()), (1, expected.as_str()));
    let keys = (1..=5).map(|n| (format!("k{n}"), n.to_string().into_bytes())).collect();
    values.set("app", with_keys(keys));
    life.running().await;
    assert_eq!(read(&node, "local/x"), "12345");
    assert_eq!(life.state.restarts, 0);
}

#[tokio::test(start_paused = true)]
async fn a_155_b_061_a_key_that_is_missing_blocks_or_is_a_placeholder() {
    let (node, values) = node();
    let text = "{{with secret \"a\"}}{{.Data.none}}{{end}}";
    let template = |must: bool| task(&[json!({ "embeddedTmpl": text, "errMissingKey": must })]);
    let mut life = node.run(&template(true));
    life.pass(Duration::from_hours(1)).await;
    assert_eq!(life.state.state, TaskRunState::Pending);
    assert!(
        life.last_message().contains("local/x:1:") && life.last_message().contains("no entry for key"),
        "{}",
        life.last_message()
    );
    values.there("a", "none", "some");
    life.running().await;
    assert_eq!(read(&node, "local/x"), "some");
    drop(life);

    let (node, _values) = self::node();
    node.run(&template(false)).running().await;
    assert_eq!(read(&node, "local/x"), "<no value>");
}

#[tokio::test(start_paused = true)]
async fn a_152_two_templates_change_and_one_restart_follows_without_a_signal() {
    let (node, values) = node();
    let mut life = node.run(&task(&[
        json!({ "destPath": "local/r" }),
        json!({ "destPath": "local/s", "changeMode": "signal", "changeSignal": "SIGHUP" }),
    ]));
    life.running().await;
    values.there("a", "k", "two");
    life.until("restarted", |state| state.restarts == 1 && state.state == TaskRunState::Running).await;
    life.pass(Duration::from_hours(1)).await;
    assert_eq!((node.n_started(), count(&life, E::Signaling), count(&life, E::RestartSignaled)), (2, 0, 1));
    let said = life.state.events.iter().find(|event| event.r#type == E::RestartSignaled).expect("told");
    assert_eq!(said.message, "template local/r, local/s changed");
    assert_eq!((read(&node, "local/r"), read(&node, "local/s")), ("two".to_owned(), "two".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_collected_until_it_is_quiet_and_waits_for_its_splay() {
    let (node, values) = node();
    let mut life = node.run(&task(&[json!({ "splay": "0s", "wait": { "min": "10s", "max": "25s" } })]));
    life.running().await;
    for n in 0..3 {
        values.there("a", "k", &format!("v{n}"));
        life.pass(Duration::from_secs(9)).await;
        assert_eq!(
            (read(&node, "local/x").as_str(), node.n_started()),
            (if n < 2 { "one" } else { "v2" }, if n < 2 { 1 } else { 2 })
        );
    }
    life.pass(Duration::from_hours(1)).await;
    assert_eq!((node.n_started(), life.state.restarts), (2, 1), "the last of the changes was in it");
}

#[tokio::test(start_paused = true)]
async fn a_signal_is_sent_and_a_driver_that_cannot_fails_the_task() {
    let (node, values) = node();
    let signals = json!({ "changeMode": "signal", "changeSignal": "SIGHUP" });
    let mut life = node.run(&task(std::slice::from_ref(&signals)));
    life.running().await;
    values.there("a", "k", "two");
    life.pass(LATER).await;
    assert_eq!(life.last_message(), "template local/x changed: sending SIGHUP");
    assert_eq!(
        (node.n_started(), life.state.state, read(&node, "local/x").as_str()),
        (1, TaskRunState::Running, "two")
    );
    drop(life);

    let (node, values) = self::node();
    let mut deaf = task(&[signals]);
    deaf["config"]["signalError"] = json!("it is deaf");
    let mut life = node.run(&deaf);
    life.running().await;
    values.there("a", "k", "two");
    let state = life.dead().await;
    assert!(state.failed && node.n_started() == 1);
    let failure = state.events.iter().find(|event| event.r#type == E::TaskHookFailed).expect("told");
    assert_eq!(failure.message, "templates: template local/x changed: SIGHUP cannot be sent: it is deaf");
}

#[tokio::test(start_paused = true)]
async fn a_153_a_change_while_the_task_does_not_run_is_rendered_and_told_and_no_signal_is_sent() {
    let (node, values) = node();
    let mut ending = task(&[json!({ "changeMode": "signal", "changeSignal": "SIGHUP" })]);
    ending["config"]["runFor"] = json!("20s");
    ending["restart"] = json!({ "attempts": 3, "interval": "1h", "delay": "30s", "mode": "fail" });
    let mut life = node.run(&ending);
    life.running().await;
    life.until("pending again", |state| state.state == TaskRunState::Pending).await;
    values.there("a", "k", "two");
    life.running().await;
    let expected = "template local/x changed: the task does not run, SIGHUP is not sent";
    assert!(
        life.state.events.iter().any(|event| event.r#type == E::Template && event.message == expected),
        "{:#?}",
        life.state
    );
    assert_eq!((read(&node, "local/x").as_str(), life.state.failed, count(&life, E::Signaling)), ("two", false, 0));
}

/// Scripts that end with this code, and which were run.
#[derive(Debug)]
struct Scripts {
    code: i32,
    takes: Duration,
    ran: Mutex<Vec<Vec<String>>>,
}

impl Prober for Scripts {
    fn probe<'a>(&'a self, probe: &'a Probe, _: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer> {
        async move {
            let Probe::Script(script) = probe else { panic!("{probe:?}") };
            self.ran.lock().expect("no panic").push(script.command.clone());
            tokio::time::sleep(self.takes).await;
            script_answer(self.code, b"hunter2")
        }
        .boxed()
    }
}

fn with_scripts(code: i32, takes: u64) -> (Node, Arc<ScriptedValues>, Arc<Scripts>) {
    let (mut node, values) = node();
    let scripts = Arc::new(Scripts { code, takes: Duration::from_secs(takes), ran: Mutex::default() });
    node.prober = Arc::<Scripts>::clone(&scripts);
    (node, values, scripts)
}

fn script(fields: &Value) -> Value {
    let mut script = json!({ "command": "/bin/reload" });
    for (name, value) in fields.as_object().expect("an object") {
        script[name] = value.clone();
    }
    json!({ "changeMode": "script", "changeScript": script })
}

#[tokio::test(start_paused = true)]
async fn a_154_a_script_that_fails_is_told_and_ends_the_task_where_the_job_says_so() {
    for (code, takes, fatal, how) in [
        (1, 0, true, "exit code 1"),
        (2, 0, false, "exit code 2"),
        (0, 9, true, "took longer than its timeout"),
        (0, 2, true, "has ended well"),
    ] {
        let (node, values, scripts) = with_scripts(code, takes);
        let mut life = node.run(&task(&[script(
            &json!({ "command": "${NOMAD_TASK_DIR}/reload", "args": ["-v"], "failOnError": fatal }),
        )]));
        life.running().await;
        values.there("a", "k", "two");
        let is_over =
            |state: &drover_api::allocation::TaskState| state.events.iter().any(|event| event.message.ends_with(how));
        life.until(how, is_over).await;
        let ran = scripts.ran.lock().expect("no panic").clone();
        assert_eq!((ran.len(), ran[0][1].as_str(), ran[0][0].ends_with("t/local/reload")), (1, "-v", true), "{ran:?}");
        let is_well = how == "has ended well";
        if fatal && !is_well {
            let state = life.dead().await;
            assert!(state.failed, "{how}");
        } else {
            life.pass(Duration::from_hours(1)).await;
            assert_eq!(life.state.state, TaskRunState::Running, "{how}");
        }
        assert_eq!(count(&life, E::TaskHookFailed), usize::from(!is_well), "{how}");
        let all = format!("{:?}", life.state.events);
        assert!(!all.contains("hunter2"), "what a script prints may be a secret: {all}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_runs_after_the_first_rendering_where_the_job_says_so() {
    for (on_first, expected) in [(true, 1), (false, 0)] {
        let (node, _values, scripts) = with_scripts(0, 0);
        let mut life = node.run(&task(&[script(&json!({ "runOnFirstRender": on_first }))]));
        life.running().await;
        life.pass(LATER).await;
        assert_eq!(scripts.ran.lock().expect("no panic").len(), expected);
        life.restart(Force::No).await.expect("restarted");
        life.pass(LATER).await;
        assert_eq!(scripts.ran.lock().expect("no panic").len(), expected, "a second start renders nothing first");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_on_a_change_of_noop_and_of_once_not_even_a_rendering() {
    let (node, values) = node();
    let mut life = node.run(&task(&[
        json!({ "destPath": "local/n", "changeMode": "noop" }),
        json!({ "destPath": "local/o", "once": true }),
    ]));
    life.running().await;
    values.there("a", "k", "two");
    life.pass(Duration::from_hours(1)).await;
    assert_eq!((read(&node, "local/n"), read(&node, "local/o")), ("two".to_owned(), "one".to_owned()));
    assert_eq!((node.n_started(), life.state.restarts), (1, 0));
    // A start for other reasons keeps it too.
    life.restart(Force::No).await.expect("restarted");
    life.pass(LATER).await;
    assert_eq!((read(&node, "local/o").as_str(), node.n_started()), ("one", 2));
}

#[tokio::test(start_paused = true)]
async fn variables_of_a_file_are_the_tasks_and_are_read_again_before_a_restart() {
    let (node, values) = node();
    values.there("a", "k", "5s");
    let text = format!("# how long\nRUN_FOR=\"{SECRET}\"\n");
    let mut lasting =
        task(&[json!({ "embeddedTmpl": text, "destPath": "secrets/env", "envvars": true, "perms": "0400" })]);
    lasting["config"]["runFor"] = json!("${RUN_FOR}");
    lasting["restart"] = json!({ "attempts": 9, "interval": "1h", "delay": "1s", "mode": "fail" });
    let mut life = node.run(&lasting);
    life.running().await;
    values.there("a", "k", "50h");
    life.until("the second run", |state| state.restarts == 1 && state.state == TaskRunState::Running).await;
    life.pass(Duration::from_hours(1)).await;
    assert_eq!((node.n_started(), life.state.state), (2, TaskRunState::Running), "it has the new value");
    drop(life);

    let (node, values) = self::node();
    values.there("a", "k", "hunter2\"");
    let mut life = node.run(&lasting);
    let state = life.dead().await;
    let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
    assert_eq!(
        failure.message,
        "templates: secrets/env: its variables cannot be read: line 2 has a quote without its end; correct the template"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_away_acts_on_what_changed_meanwhile_and_on_nothing_else() {
    for (change, n_started) in [(false, 1), (true, 2)] {
        let (node, values) = node();
        let templates =
            task(&[json!({ "destPath": "local/a" }), json!({ "destPath": "local/b", "embeddedTmpl": "b" })]);
        let mut life = node.run(&templates);
        life.running().await;
        assert_eq!(life.shut_down().await, TaskEnd::Detached);
        values.set("a", ValueState::Waiting("the gateway does not answer".to_owned()));
        let mut life = node.run_again(&templates, node.record());
        life.pass(Duration::from_hours(1)).await;
        assert_eq!((node.n_started(), life.state.state), (1, TaskRunState::Running), "without values nothing follows");
        values.there("a", "k", if change { "two" } else { "one" });
        life.pass(Duration::from_hours(1)).await;
        assert_eq!((node.n_started(), life.state.state), (n_started, TaskRunState::Running));
        if change {
            let said = life.state.events.iter().find(|event| event.r#type == E::RestartSignaled).expect("told");
            assert_eq!((said.message.as_str(), read(&node, "local/a").as_str()), ("template local/a changed", "two"));
        }
        life.kill(|_| {});
        life.dead().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_task_goes_on_whatever_its_values_become_and_starts_again_with_what_it_had() {
    let broken = || {
        let keys = [("k".to_owned(), b"one".to_vec())].into();
        with_keys(keys)
    };
    for (state, told) in [
        (ValueState::Absent, "local/x stays as it was: waits for Secret a (it does not exist; create it)"),
        (ValueState::Refused("no right".to_owned()), ""),
        (ValueState::Waiting("the gateway does not answer".to_owned()), ""),
        (broken(), ""),
    ] {
        let (node, values) = node();
        let mut life = node.run(&task(&[json!({})]));
        life.running().await;
        values.set("a", state);
        life.pass(Duration::from_hours(1)).await;
        let said = if count(&life, E::Template) == 0 { "" } else { life.last_message() };
        assert_eq!((said, node.n_started(), life.state.state), (told, 1, TaskRunState::Running));
        life.restart(Force::No).await.expect("restarted");
        life.pass(LATER).await;
        assert_eq!(
            (node.n_started(), life.state.state, read(&node, "local/x").as_str()),
            (2, TaskRunState::Running, "one")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_renders_again_what_the_task_has_changed_only_where_the_job_says_so() {
    for (again, expected) in [(true, "one"), (false, "mine")] {
        let (node, _values) = node();
        let mut own = task(&[json!({})]);
        own["restart"]["renderTemplates"] = json!(again);
        let mut life = node.run(&own);
        life.running().await;
        fs::write(node.dir().task("t").join("local/x"), "mine").expect("a file");
        life.restart(Force::No).await.expect("restarted");
        life.pass(LATER).await;
        assert_eq!((read(&node, "local/x").as_str(), node.n_started(), life.state.restarts), (expected, 2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_120_files_stay_below_the_tasks_directories() {
    for (fields, wrong) in [
        (
            json!({ "destPath": "../escapes" }),
            "templates[0]: destPath \"../escapes\" leads out of the task's directory, or names no file; take a path below it, as local/app.conf",
        ),
        (
            json!({ "destPath": "private/x" }),
            "templates[0]: destPath \"private/x\" leads out of the task's directory, or names no file; take a path below it, as local/app.conf",
        ),
        (
            json!({ "sourcePath": "/etc/p" }),
            "templates[0]: sourcePath \"/etc/p\" leads out of the task's directory; take a path below it, as local/app.tmpl",
        ),
        (
            json!({ "destPath": "${no.such}/x" }),
            "templates[0]: destPath \"${no.such}/x\" refers to something that is not known here; correct the name in ${...}",
        ),
        (json!({ "perms": "4755" }), "templates[0]: perms \"4755\" is no octal mode up to 0777; correct it, as 0644"),
    ] {
        let (node, _values) = node();
        let state = node.run(&task(&[fields])).dead().await;
        let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
        assert_eq!(failure.message, format!("templates: {wrong}"));
    }
    let (node, _values) = node();
    let at = |to: &str| json!({ "destPath": to });
    let mut life = node.run(&task(&[at("/etc/abs"), at("${NOMAD_SECRETS_DIR}/s"), at("${NOMAD_ALLOC_DIR}/data/d")]));
    life.running().await;
    let shared = fs::read_to_string(node.dir().shared().join("data/d")).expect("a file");
    assert_eq!((read(&node, "etc/abs"), read(&node, "secrets/s"), shared), ("one".into(), "one".into(), "one".into()));
}

#[tokio::test(start_paused = true)]
async fn a_file_has_the_owner_and_mode_that_its_template_names() {
    let (node, _values) = node();
    let mut life = node.run(&task(&[
        json!({ "perms": "0640", "uid": 2_000_001, "gid": 2_000_002 }),
        json!({ "destPath": "local/y" }),
    ]));
    life.running().await;
    let found = |file: &str| {
        let found = fs::metadata(node.dir().task("t").join(file)).expect("metadata");
        (found.mode() & 0o7777, found.uid(), found.gid())
    };
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!((found("local/x"), found("local/y")), ((0o640, 2_000_001, 2_000_002), (0o644, own.0, own.1)));
}

#[tokio::test(start_paused = true)]
async fn a_template_in_a_file_and_files_that_it_looks_at_are_those_of_the_sandbox() {
    let (node, _values) = node();
    let paths = [
        ("local/tmpl", "{{file \"local/in\"}}-{{env \"NOMAD_TASK_NAME\"}}-{{env \"node.region\"}}"),
        ("local/in", "in"),
    ];
    let dir = node.dir();
    fs::create_dir_all(dir.task("t").join("local")).expect("directories");
    for (path, text) in paths {
        fs::write(dir.task("t").join(path), text).expect("a file");
    }
    let mut life = node.run(&task(&[json!({ "sourcePath": "local/tmpl" })]));
    life.running().await;
    assert_eq!(read(&node, "local/x"), "in-t-global");
    life.kill(|_| {});
    life.dead().await;

    let (node, _values) = self::node();
    let mut life = node.run(&task(&[json!({ "embeddedTmpl": "{{file \"local/late\"}}" })]));
    life.pass(Duration::from_mins(1)).await;
    assert_eq!(life.last_message(), "waits for file local/late (it is not there)");
    fs::write(node.dir().task("t").join("local/late"), "late").expect("a file");
    life.running().await;
    assert_eq!(read(&node, "local/x"), "late");
    drop(life);

    for outside in ["/etc/passwd", "private/key", "../other/local/x"] {
        let (node, _values) = self::node();
        let state = node.run(&task(&[json!({ "embeddedTmpl": format!("{{{{file {outside:?}}}}}") })])).dead().await;
        let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
        let wanted = format!("templates: local/x: file {outside:?}: it leads out of the task's directory");
        assert_eq!(failure.message, wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_rendered_fails_the_start_with_the_reason() {
    for (text, why) in [
        (
            "{{with secret \"other\"}}{{end}}",
            "local/x: it looks at Secret other, which the task does not list; add it to tasks[].secrets",
        ),
        (
            "{{key \"other/k\"}}",
            "local/x: it looks at ConfigMap other, which the task does not list; add it to tasks[].secrets",
        ),
        ("{{if}}", "local/x:1:"),
        // What is wrong with a value is a part of it.
        (
            "{{with secret \"a\"}}{{.Data.k | parseInt}}{{end}}",
            "local/x:1:32: error calling parseInt; the rest of the message may hold a secret and is not shown",
        ),
    ] {
        let (node, _values) = node();
        let state = node.run(&task(&[json!({ "embeddedTmpl": text })])).dead().await;
        let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
        let wanted = format!("templates: {why}");
        assert!(failure.message.starts_with(&wanted), "{}", failure.message);
    }
}

/// What the gateway says of a service with instances at these ports.
fn instances(ports: &[u16]) -> ValueState {
    let one =
        |port: &u16| (format!("10.0.0.1:{port}"), json!({ "address": "10.0.0.1", "port": port, "tags": ["blue"] }));
    with_keys(ports.iter().map(one).map(|(id, value)| (id, value.to_string().into_bytes())).collect())
}

/// A task that lists nothing, with this template.
fn looking_up(text: &str) -> Value {
    let mut task = task(&[json!({ "embeddedTmpl": text, "changeMode": "noop" })]);
    task["secrets"] = json!([]);
    task
}

#[tokio::test(start_paused = true)]
async fn a_service_is_looked_up_where_a_template_needs_it_and_its_changes_are_rendered() {
    let (node, values) = node();
    let text =
        "{{range nomadService \"api\"}}{{.Address}}:{{.Port}} {{end}}{{range service \"blue.db\"}}{{.Port}}{{end}}";
    let mut life = node.run(&looking_up(text));
    life.pass(Duration::from_mins(1)).await;
    let waits = "waits for service api (the gateway does not answer), service db (the gateway does not answer)";
    assert_eq!((life.state.state, life.last_message()), (TaskRunState::Pending, waits));
    values.set("api", instances(&[80, 81]));
    // One without instances is known all the same.
    values.set("db", instances(&[]));
    life.running().await;
    assert_eq!(read(&node, "local/x"), "10.0.0.1:80 10.0.0.1:81 ");
    values.set("api", instances(&[81]));
    values.set("db", instances(&[5432]));
    life.pass(LATER).await;
    assert_eq!(read(&node, "local/x"), "10.0.0.1:81 5432");
    // The file stays as it is while nothing is known, and an agent that comes back says nothing of it.
    values.set("api", ValueState::Waiting("away".to_owned()));
    life.pass(LATER).await;
    let n_told = count(&life, E::Template);
    assert_eq!(life.shut_down().await, TaskEnd::Detached);
    let mut life = node.run_again(&looking_up(text), node.record());
    life.pass(LATER).await;
    assert_eq!((read(&node, "local/x").as_str(), count(&life, E::Template)), ("10.0.0.1:81 5432", n_told));
    values.set("api", instances(&[82]));
    life.pass(LATER).await;
    assert_eq!((read(&node, "local/x").as_str(), node.n_started()), ("10.0.0.1:82 5432", 1));
}

#[tokio::test(start_paused = true)]
async fn the_names_of_services_are_looked_up_with_their_tags() {
    let (node, values) = node();
    let all = [("api", json!(["a", "b"])), ("db", json!([]))];
    values.set("", with_keys(all.map(|(name, tags)| (name.to_owned(), tags.to_string().into_bytes())).into()));
    let text = "{{range nomadServices}}{{.Name}}{{.Tags}} {{end}}{{range services}}{{.Name}} {{end}}";
    node.run(&looking_up(text)).running().await;
    assert_eq!(read(&node, "local/x"), "api[a b] db[] api db ");
}

#[tokio::test(start_paused = true)]
async fn services_that_are_refused_or_too_many_fail_the_start_and_are_asked_for_again() {
    let (node, values) = node();
    let text = "{{range service \"api\"}}{{.Port}}{{end}}";
    values.set("api", ValueState::Refused("no gateway".to_owned()));
    let mut refused = looking_up(text);
    refused["restart"] = json!({ "attempts": 1, "interval": "1h", "delay": "30s", "mode": "fail" });
    let mut life = node.run(&refused);
    life.pass(Duration::from_secs(20)).await;
    let failure = life.state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
    assert!(
        failure.message.starts_with("templates: local/x: service api is refused: no gateway"),
        "{}",
        failure.message
    );
    values.set("api", instances(&[80]));
    life.running().await;
    assert_eq!(read(&node, "local/x"), "80");
    drop(life);

    let (node, values) = self::node();
    for n in 0..70 {
        values.set(&format!("s{n}"), instances(&[]));
    }
    let names: Vec<String> = (0..70).map(|n| format!("s{n}")).collect();
    let text =
        format!("{{{{range split \" \" \"{}\"}}}}{{{{range service .}}}}{{{{end}}}}{{{{end}}}}", names.join(" "));
    let state = node.run(&looking_up(&text)).dead().await;
    let failure = state.events.iter().find(|event| event.r#type == E::SetupFailure).expect("a failure");
    assert!(failure.message.contains("look up more than 64 services"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_only_a_template_looks_at_need_not_be_there() {
    let (node, values) = node();
    values.set("a", ValueState::Absent);
    let text = "{{if nomadVarExists \"a\"}}there{{else}}not there{{end}} [[1]]";
    let mut life = node.run(&task(&[
        json!({ "embeddedTmpl": text }),
        json!({ "embeddedTmpl": "{{ [[ 1 ]] }}", "leftDelimiter": "[[", "rightDelimiter": "]]", "destPath": "local/y" }),
    ]));
    life.running().await;
    assert_eq!((read(&node, "local/x").as_str(), read(&node, "local/y").as_str()), ("not there [[1]]", "{{ 1 }}"));
}

#[tokio::test(start_paused = true)]
async fn a_kill_and_the_end_of_the_agent_end_the_wait_for_a_template() {
    for is_kill in [true, false] {
        let (node, values) = node();
        values.set("a", ValueState::Absent);
        let mut life = node.run(&task(&[json!({})]));
        life.pass(Duration::from_secs(5)).await;
        assert_eq!(life.last_message(), "waits for Secret a (it does not exist; create it)");
        life.breaks_off(is_kill).await;
        assert_eq!(node.n_started(), 0);
    }
}
