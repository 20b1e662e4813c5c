//! The hooks before a task's run, against real directories.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use drover_api::{Allocation, AllocationSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::world::{Node, UID, job};
use crate::allocations::volume_sources::VolumeSources;
use crate::node::secrets::{SecretError, SecretReader};
use crate::tasks::hooks;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

fn plan(node: &Node, task: &Value) -> TaskPlan {
    let job = job("batch", task);
    let group = Arc::new(job.groups[0].clone());
    let allocation = AllocationSpec { group: "g".into(), ..AllocationSpec::default() };
    TaskPlan {
        owner: None,
        uid: UID.to_owned(),
        allocation: Arc::new(Allocation::new("a", allocation)),
        task: Arc::new(group.tasks[0].clone()),
        group,
        job: Arc::new(job),
        dir: node.dir(),
        restored: None,
        recovering: None,
        volumes: VolumeSources::default(),
    }
}

async fn prestart(node: &Node, plan: &TaskPlan) -> Result<(), (String, bool)> {
    prestart_with(&node.env(), plan).await
}

async fn prestart_with(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), (String, bool)> {
    fs::create_dir_all(&env.alloc_dir).expect("a directory");
    env.machine.disk.build(&plan.dir, None).expect("the allocation's directory");
    let run = hooks::before_artifacts(env, plan).await.and_then(|()| hooks::after_artifacts(env, plan));
    run.map_err(|error| (error.to_string(), error.is_recoverable))
}

#[tokio::test]
async fn a_task_has_its_directories_before_it_runs_and_keeps_what_is_in_them() {
    let node = Node::new();
    let plan = plan(&node, &json!({}));
    prestart(&node, &plan).await.expect("prepared");
    let dir = plan.dir.task("t");
    fs::write(dir.join("local/data"), "kept").expect("a file");
    prestart(&node, &plan).await.expect("prepared once more");
    assert_eq!(fs::read_to_string(dir.join("local/data")).expect("a file"), "kept");
    assert!(dir.join("secrets").is_dir() && dir.join("tmp").is_dir());
}

#[tokio::test]
async fn what_this_agent_cannot_do_is_refused_with_the_field() {
    let node = Node::new();
    for (task, message) in [
        (
            json!({ "driver": "exec", "user": "root" }),
            "validate: user root may not run tasks of driver exec: name another one",
        ),
        (
            json!({ "driver": "exec", "csiPlugin": { "id": "p", "type": "node" } }),
            "validate: a task with csiPlugin needs driver raw_exec, not exec: its mounts are for others",
        ),
    ] {
        assert_eq!(prestart(&node, &plan(&node, &task)).await, Err((message.to_owned(), false)));
    }
}

#[tokio::test]
async fn the_payload_of_a_dispatch_is_written_once() {
    let node = Node::new();
    let mut plan = plan(&node, &json!({ "dispatchPayload": { "file": "in/order.json" } }));
    prestart(&node, &plan).await.expect("without a payload nothing is written");
    let file = plan.dir.task("t").join("local/in/order.json");
    assert!(!file.exists());

    let mut dispatched = (*plan.job).clone();
    dispatched.dispatch =
        Some(serde_json::from_value(json!({ "parent": "p", "payload": "aGVsbG8=" })).expect("a block"));
    plan.job = Arc::new(dispatched.clone());
    prestart(&node, &plan).await.expect("written");
    assert_eq!(fs::read_to_string(&file).expect("the payload"), "hello");
    fs::write(&file, "the task's own").expect("a file");
    prestart(&node, &plan).await.expect("left alone");
    assert_eq!(fs::read_to_string(&file).expect("the payload"), "the task's own");

    dispatched.dispatch.as_mut().expect("a block").payload = "!".into();
    plan.job = Arc::new(dispatched);
    let (message, is_recoverable) = prestart(&node, &plan).await.expect_err("refused");
    assert!(message.starts_with("dispatch_payload: the payload is no base64") && !is_recoverable, "{message}");
}

#[tokio::test]
async fn a_device_that_is_not_there_may_come() {
    let node = Node::new();
    let mut plan = plan(&node, &json!({}));
    let resources = json!({ "tasks": { "t": { "devices": [
        { "vendor": "nvidia", "type": "gpu", "name": "a100", "ids": ["gpu-0"] }
    ] } } });
    let mut allocation = (*plan.allocation).clone();
    allocation.spec.resources = serde_json::from_value(resources).expect("resources");
    plan.allocation = Arc::new(allocation);
    let (message, is_recoverable) = prestart(&node, &plan).await.expect_err("refused");
    assert!(message.starts_with("devices: ") && message.contains("gpu") && is_recoverable, "{message}");
}

/// One Secret, `order`, of namespace `shop`.
#[derive(Debug)]
struct OneSecret(BTreeMap<String, Vec<u8>>);

impl SecretReader for OneSecret {
    fn read(
        &self,
        namespace: String,
        name: String,
    ) -> BoxFuture<'static, Result<BTreeMap<String, Vec<u8>>, SecretError>> {
        let key = format!("{namespace}/{name}");
        let read = match key.as_str() {
            "shop/order" => Ok(self.0.clone()),
            "shop/closed" => Err(SecretError::Forbidden(key)),
            _ => Err(SecretError::Missing(key)),
        };
        std::future::ready(read).boxed()
    }
}

#[tokio::test]
async fn a_payload_in_a_secret_is_read_when_the_task_starts() {
    let node = Node::new();
    let mut plan = plan(&node, &json!({ "dispatchPayload": { "file": "order.bin" } }));
    let mut allocation = (*plan.allocation).clone();
    allocation.metadata.namespace = Some("shop".to_owned());
    plan.allocation = Arc::new(allocation);
    let file = plan.dir.task("t").join("local/order.bin");
    let mut run = async |name: &str, data: &[(&str, &[u8])]| {
        let mut job = (*plan.job).clone();
        job.dispatch = Some(serde_json::from_value(json!({ "parent": "p", "payloadSecret": name })).expect("a block"));
        plan.job = Arc::new(job);
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect();
        let env = RunnerEnv { secrets: Arc::new(OneSecret(data)), ..node.env() };
        prestart_with(&env, &plan).await
    };
    let large = vec![b'x'; 16 * 1024 + 1];
    for (name, data, says, may_help) in [
        ("none", &[][..], "Secret shop/none does not exist", true),
        ("closed", &[], "agent.volumeSecrets", false),
        ("order", &[("other", &b"x"[..])], "has no key payload", true),
        ("order", &[("payload", &large[..])], "16385 bytes, above 16384", false),
    ] {
        let (message, is_recoverable) = run(name, data).await.expect_err(says);
        assert!(message.starts_with("dispatch_payload: spec.dispatch.payloadSecret: "), "{message}");
        assert!(message.contains(says) && is_recoverable == may_help && !message.contains("xx"), "{message}");
        assert!(!file.exists());
    }
    run("order", &[("payload", b"\xff\x00bytes")]).await.expect("written");
    assert_eq!(fs::read(&file).expect("the payload"), b"\xff\x00bytes");
}
