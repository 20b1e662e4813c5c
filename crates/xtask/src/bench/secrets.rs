//! `bench secrets`: how long a Secret takes to a task's file, and what 1,000 agents that follow 10,000 Secrets cost a
//! gateway.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use drover_api::value_object::{ValueKind, ValueObject};
use drover_socket::values::{VALUES_PATH, VALUES_PROTOCOL, ValueAnswer, ValueAsk, ValueNews};
use drover_testkit::agent_door::{AgentConnection, AgentDoor};
use drover_testkit::manifests;
use drover_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{Cluster, NAMESPACE, with_cluster};
use super::cluster_stage::{CLIENTS, Stage, since};
use super::door::{Door, trusted};
use super::gateway::{SETTLED, WATCHED, fraction, raise_files};
use super::idle_tunnels::token_of_node;
use super::report::percentile;
use super::status;
use super::waiting::until;
use crate::interruption::unless_interrupted;

/// How often a Secret is changed whose value is waited for.
const CHANGES: usize = 50;
/// Agents, unless `--count` says otherwise.
const AGENTS: usize = 1000;
/// Secrets that each of them follows, for one allocation.
const SECRETS: usize = 10;
/// Connections of agents that are opened in a second: each is a review of a token, of which a gateway may ask 100.
const OPENED_PER_SECOND: u32 = 80;
/// What a Secret holds, in bytes.
const VALUE_BYTES: usize = 64;
/// No answer is waited for longer than that.
const PATIENCE: Duration = Duration::from_mins(5);

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    raise_files()?;
    let mut row = with_cluster(args, false, progress, async |cluster| to_file(cluster, progress).await).await?;
    let mut stage = Stage::open(args, progress).await?;
    row.extend(unless_interrupted(followed(&mut stage, args.count.unwrap_or(AGENTS), progress)).await?);
    Ok(row)
}

fn secret(name: &str, value: &str) -> Result<Secret> {
    let secret = json!({ "metadata": { "name": name }, "stringData": { "value": value } });
    serde_json::from_value(secret).context("building a Secret")
}

/// A Secret that a template shows: from the change to the file.
async fn to_file(cluster: &Cluster<'_>, progress: &Progress) -> Result<Map<String, Value>> {
    let (users, _) = cluster.session.gateway().context("the session has no gateway")?;
    let user = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "drover-gateway" }]);
    for object in [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "bench-secrets", "namespace": NAMESPACE },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"] }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "bench-secrets", "namespace": NAMESPACE },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bench-secrets" },
            "subjects": user,
        }),
    ] {
        let object: DynamicObject = serde_json::from_value(object).context("an object of the bench")?;
        manifests::apply(cluster.client(), &object, NAMESPACE).await?;
    }
    let secrets: Api<Secret> = Api::namespaced(cluster.client().clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &secret("changed", "first")?).await.context("creating a Secret")?;
    let job = json!({
        "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": "secret" },
        "spec": { "groups": [{ "name": "g", "count": 1, "tasks": [{
            "name": "t", "driver": "raw_exec", "config": { "command": "/bin/sleep", "args": ["100000"] },
            "resources": { "cpu": 10, "memoryMB": 10 }, "secrets": [{ "name": "s", "path": "changed" }],
            "templates": [{ "destPath": "local/value", "changeMode": "noop", "wait": { "min": "250ms", "max": "1s" },
                            "embeddedTmpl": "{{ with secret \"changed\" }}{{ .Data.value }}{{ end }}" }],
        }] }] },
    });
    let step = progress.step(format!("changing a Secret {CHANGES} times"));
    let job = serde_json::from_value(job).context("building a job")?;
    cluster.api("Job").create(&PostParams::default(), &job).await.context("creating a job")?;
    let door = Door::open(cluster.client(), trusted(cluster.client(), 1).await?, Instant::now()).await?;
    let client = door.client(users, &door.users[0]).await?;
    let alloc = cluster.running("secret").await?;
    let file = format!("{alloc}/fs?op=read&path=t/local/value");
    let holds = async |value: &str| {
        let request = http::Request::get(&file).body(Vec::new()).context("building a request")?;
        Ok(client.request_text(request).await.is_ok_and(|text| text == value))
    };
    until("the file is there", async || holds("first").await).await?;
    let mut took = Vec::new();
    for n in 0..CHANGES {
        let value = format!("value-{n}");
        let changed = Patch::Merge(json!({ "stringData": { "value": value } }));
        let sent = Instant::now();
        secrets.patch("changed", &PatchParams::default(), &changed).await.context("changing a Secret")?;
        until("the file has the value", async || holds(&value).await).await?;
        took.push(sent.elapsed().as_secs_f64());
        step.moved("", n as u64 + 1, CHANGES as u64);
    }
    step.done("");
    took.sort_by(f64::total_cmp);
    let row = json!({
        "changes": CHANGES, "secretToFileP50Seconds": percentile(&took, 50), "secretToFileP99Seconds": percentile(&took, 99),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// Agents that each follow Secrets for one allocation, and an identity of its task.
async fn followed(stage: &mut Stage, n_agents: usize, progress: &Progress) -> Result<Map<String, Value>> {
    let account = serde_json::from_value(json!({ "metadata": { "name": "drover-agent" } }))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client.clone(), drover_api::SYSTEM_NAMESPACE);
    accounts.create(&PostParams::default(), &account).await.context("creating a ServiceAccount")?;
    let step = progress.step(format!("making {n_agents} allocations and {} Secrets", n_agents * SECRETS));
    let made = stream::iter(0..n_agents).map(async |n| make(stage, n).await);
    let agents: Vec<Agent> = made.buffer_unordered(CLIENTS).try_collect().await?;
    step.done("");
    let gateway = stage.start_gateway("a").await?;
    let door = Door::open(&stage.client, Vec::new(), Instant::now()).await?;
    let door = AgentDoor::new(&door.authority, gateway.agents)?;
    tokio::time::sleep(SETTLED).await;
    let (alone, before) = (gateway.process.rss_bytes(), stage.all_writes().await?);

    let step = progress.step(format!("following with {n_agents} agents"));
    let began = Instant::now();
    let agents = super::cluster_stage::paced(agents.into_iter(), OPENED_PER_SECOND);
    let mut opened = std::pin::pin!(agents.map(async |agent| agent.follow(&door).await).buffer_unordered(CLIENTS));
    let mut connections = Vec::new();
    while let Some(connection) = opened.try_next().await? {
        connections.push(connection);
        step.moved("", connections.len() as u64, n_agents as u64);
    }
    let all_told = began.elapsed();
    step.done("");
    let step = progress.step("watching the gateway");
    tokio::time::sleep(SETTLED).await;
    let cpu = fraction(gateway.process, WATCHED).await;
    let rss = gateway.process.rss_bytes();
    let written = since(&before, stage.all_writes().await?);
    ensure!(connections.len() == n_agents, "{} agents are there", connections.len());
    step.done("");
    let row = json!({
        "agents": n_agents,
        "values": n_agents * SECRETS,
        "tokens": n_agents,
        "allToldSeconds": all_told.as_secs_f64(),
        "gatewayRssBytesAlone": alone,
        "gatewayRssBytes": rss,
        "bytesPerValue": rss.saturating_sub(alone) / (n_agents * SECRETS) as u64,
        "idleGatewayCpuFraction": cpu,
        "writes": written.values().sum::<u64>(),
    });
    Ok(row.as_object().cloned().unwrap_or_default())
}

/// One that follows what its allocation uses.
struct Agent {
    token: String,
    number: usize,
    /// The allocation's.
    uid: String,
}

fn name_of(n: usize) -> String {
    format!("secrets-{n}")
}

/// Makes a node, an allocation on it, the version that it runs, and the Secrets that this lists.
async fn make(stage: &Stage, n: usize) -> Result<Agent> {
    let (name, node) = (name_of(n), format!("follows-{n}"));
    let token = token_of_node(&stage.client, &node).await?;
    let secrets: Api<Secret> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let paths: Vec<String> = (0..SECRETS).map(|nth| format!("{name}-{nth}")).collect();
    for path in &paths {
        let secret = secret(path, &"x".repeat(VALUE_BYTES))?;
        secrets.create(&PostParams::default(), &secret).await.with_context(|| format!("creating {path}"))?;
    }
    let listed: Vec<Value> = paths.iter().map(|path| json!({ "name": path, "path": path })).collect();
    let task =
        json!({ "name": "t", "driver": "mock", "secrets": listed, "identities": [{ "name": "web", "aud": ["x"] }] });
    let version = json!({
        "apiVersion": drover_api::API_VERSION, "kind": "JobVersion", "metadata": { "name": format!("{name}-v3") },
        "spec": { "jobName": name, "jobUID": name, "version": 3, "groupNames": "g",
                  "job": { "groups": [{ "name": "g", "tasks": [task] }] }, "submittedAt": "2026-11-20T08:00:00Z" },
    });
    let version = serde_json::from_value(version).context("building a version")?;
    let made = stage.api("JobVersion", NAMESPACE).create(&PostParams::default(), &version).await;
    made.with_context(|| format!("creating the version of {name}"))?;
    let mut alloc = status::allocation(&name, (&name, &name), n);
    alloc["spec"]["nodeName"] = json!(node);
    let alloc = serde_json::from_value(alloc).context("building an allocation")?;
    let made = stage.api("Allocation", NAMESPACE).create(&PostParams::default(), &alloc).await;
    let uid = made.with_context(|| format!("creating {name}"))?.metadata.uid.context("an object without a uid")?;
    Ok(Agent { token, number: n, uid })
}

impl Agent {
    /// Asks for all, and waits until each is there.
    async fn follow(self, door: &AgentDoor) -> Result<AgentConnection> {
        let name = name_of(self.number);
        let secrets = (0..SECRETS).map(|nth| ValueObject { kind: ValueKind::Secret, name: format!("{name}-{nth}") });
        let identity = ValueObject { kind: ValueKind::Identity, name: "t/web".to_owned() };
        let mut connection = door.enter(&self.token, (VALUES_PATH, VALUES_PROTOCOL)).await?;
        let mut asked = 0;
        for (id, object) in (0..).zip(secrets.chain([identity])) {
            let ask = ValueAsk::Follow {
                id,
                namespace: NAMESPACE.to_owned(),
                allocation: name.clone(),
                uid: self.uid.clone(),
                object,
                holds: None,
                in_turn: true,
            };
            let line = serde_json::to_string(&ask)? + "\n";
            connection.write_all(line.as_bytes()).await.context("asking for values")?;
            asked += 1;
        }
        let told = async {
            for _ in 0..asked {
                let mut line = String::new();
                connection.read_line(&mut line).await.context("reading values")?;
                let news: ValueNews = serde_json::from_str(&line).with_context(|| format!("{line:?}"))?;
                if !matches!(news.value, ValueAnswer::Values(_)) {
                    bail!("values of {name} are not given: {:?}", news.value);
                }
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, told).await.context("values do not come")??;
        Ok(connection)
    }
}
