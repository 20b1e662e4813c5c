//! A Service under a client that asks it by its name, over a new connection each time, while everything behind it comes
//! and goes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_clock::{Clock as _, SystemClock};
use drover_testkit::cluster::REQUESTS_IMAGE;
use drover_testkit::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::ground::{Ground, SYSTEM, holds, is_ready, text};

/// How many copies of the server there are, on three nodes.
const COPIES: usize = 6;
/// The program of a copy that is well.
const SERVER: &str = "/usr/local/sbin/drover-example-web";
/// Roll-outs with canaries.
const ROLL_OUTS: u32 = 10;
/// Connections that the client opens in a second.
const PER_SECOND: u32 = 200;
/// How long the client waits for an answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// How long a node's proxy may take until it knows that an endpoint is gone, in milliseconds.
const PROXY_DELAY: i64 = 2000;

/// A line of the client's output.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    /// What came in a second.
    Second { answers: u64, from: BTreeMap<String, u64> },
    /// A request that failed: when it began in milliseconds since 1970, how many it took, and why.
    Failure { failed: i64, took: u64, error: String },
}

/// What the client has seen.
#[derive(Debug, Default)]
struct Seen {
    answers: u64,
    from: BTreeMap<String, u64>,
    /// When each began, in milliseconds since 1970, and why.
    failures: Vec<(i64, String)>,
}

/// Row 2 of the table for Services: no request fails but for those on a node that is lost, while it is not known so.
pub(crate) fn answer_through_everything(ground: &Ground) -> Result<String> {
    ground.installed()?;
    apply(ground, "1", &json!([SERVER]))?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/shop", "--timeout", "120s"])?;
    slices_match(ground)?;
    start_client(ground)?;
    ground.eventually("all copies answer", || {
        let seen = seen(ground)?;
        Ok((seen.from.len() == COPIES).then_some(()))
    })?;

    for release in 2..=ROLL_OUTS + 1 {
        roll_out(ground, &release.to_string()).with_context(|| format!("roll-out {release}"))?;
    }
    let reverted = failing_version(ground)?;
    let (to_lose, address, other) = without_leader(ground)?;
    // That one has to have something to lose.
    drain(ground, other)?;
    kill_agent(ground)?;
    let before = seen(ground)?;
    ensure!(before.failures.is_empty(), "requests failed while nothing was lost: {:?}", before.failures.first());
    let (lost, known) = lose_node(ground, to_lose, address)?;

    let all = seen(ground)?;
    let may_fail = lost..=known + PROXY_DELAY;
    let wrong: Vec<_> = all.failures.iter().filter(|(began, _)| !may_fail.contains(began)).collect();
    ensure!(wrong.is_empty(), "requests failed outside of {may_fail:?}: {:?}", wrong.first());
    ground.kubectl(&["delete", "pod/client", "--wait=true", "--grace-period=1"])?;
    ground.kubectl(&["delete", "djob/shop", "--wait=true", "--timeout", "60s"])?;
    ground.eventually("no Service is left", || {
        let left =
            ground.kubectl(&["get", "svc,endpointslice", "-l", "app.kubernetes.io/managed-by=drover", "-o", "name"])?;
        Ok(left.is_empty().then_some(()))
    })?;
    Ok(format!(
        "{} answers, {PER_SECOND} new connections a second: none failed in {ROLL_OUTS} roll-outs with canaries, a failing \
         version ({reverted}), a drain and a killed agent; {} failed in the {:.1} s until the lost node's slices were \
         gone, none after",
        all.answers,
        all.failures.len(),
        Duration::from_millis((known - lost).unsigned_abs()).as_secs_f64()
    ))
}

/// The job as it is with this release and this command.
fn apply(ground: &Ground, release: &str, command: &Value) -> Result<()> {
    let job = json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": { "name": "shop" },
        "spec": { "groups": [{
            "name": "web", "count": COPIES,
            "networks": [{ "mode": "host", "ports": [{ "label": "http" }] }],
            "spreads": [{ "attribute": "${node.unique.name}", "weight": 100 }],
            "update": { "canary": 2, "maxParallel": 2, "minHealthyTime": "1s", "healthyDeadline": "15s",
                        "progressDeadline": "40s", "autoRevert": true },
            "shutdownDelay": "3s",
            "services": [{
                "name": "shop", "portLabel": "http", "kubernetes": { "port": 80 },
                "checks": [{ "name": "up", "type": "http", "path": "/", "interval": "1s", "timeout": "1s" }],
            }],
            "tasks": [{
                "name": "server", "driver": "raw_exec", "killSignal": "SIGTERM", "env": { "RELEASE": release },
                "config": { "command": command[0], "args": command.as_array().map(|all| &all[1..]) },
                "resources": { "cpu": 20, "memoryMB": 32 },
            }],
        }] },
    });
    ground.apply(&job.to_string())
}

/// Each allocation has one slice, which it owns, and the Service is the job's.
fn slices_match(ground: &Ground) -> Result<()> {
    let slices = ground.read(&["endpointslice", "-l", "kubernetes.io/service-name=shop"])?;
    let of = |list: &Value, path: &str| -> Vec<String> {
        let mut found: Vec<String> =
            list["items"].as_array().into_iter().flatten().map(|item| text(item, path).to_owned()).collect();
        found.sort();
        found
    };
    let allocations = ground.read(&["alloc", "-l", "drover.dev/job=shop"])?;
    let (owners, uids) = (of(&slices, "/metadata/ownerReferences/0/uid"), of(&allocations, "/metadata/uid"));
    ensure!(owners == uids && uids.len() == COPIES, "slices of {owners:?}, allocations {uids:?}");
    let service = ground.read(&["svc/shop"])?;
    let owner =
        (text(&service, "/metadata/ownerReferences/0/kind"), text(&service, "/metadata/ownerReferences/0/name"));
    ensure!(owner == ("Job", "shop"), "the Service is owned by {owner:?}");
    Ok(())
}

/// On the first node, which is never lost.
fn start_client(ground: &Ground) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "client" },
        "spec": {
            "nodeName": "n1", "restartPolicy": "Never",
            "containers": [{
                "name": "client", "image": REQUESTS_IMAGE, "imagePullPolicy": "Never",
                "args": ["http://shop/", PER_SECOND.to_string()],
            }],
        },
    });
    ground.apply(&pod.to_string())?;
    ground.kubectl(&["wait", "--for=condition=Ready", "pod/client", "--timeout", "60s"]).map(drop)
}

/// What the client has told so far.
fn seen(ground: &Ground) -> Result<Seen> {
    let log = ground.kubectl(&["logs", "pod/client"])?;
    let mut seen = Seen::default();
    for line in log.lines() {
        match serde_json::from_str(line).with_context(|| format!("a line of the client: {line}"))? {
            Line::Second { answers, from } => {
                seen.answers += answers;
                for (whom, n) in from {
                    *seen.from.entry(whom).or_default() += n;
                }
            }
            Line::Failure { failed, took, error } => {
                let text = format!("{error}, after {took} ms");
                seen.failures.push((failed, text));
            }
        }
    }
    Ok(seen)
}

/// A new version with canaries, promoted by hand.
fn roll_out(ground: &Ground, release: &str) -> Result<()> {
    apply(ground, release, &json!([SERVER]))?;
    let version = release.parse::<i64>().context("a release")? - 1;
    ground.eventually("the canaries are healthy", || {
        let healthy = deployment_of(ground, version)?["status"]["groups"]["web"]["healthyAllocs"].as_i64();
        Ok((healthy >= Some(2)).then_some(()))
    })?;
    ground.drover(&["deployment", "promote", "shop"])?;
    settled(ground, version)
}

/// Waits until a version is all there is.
fn settled(ground: &Ground, version: i64) -> Result<()> {
    ground.eventually(&format!("version {version} is whole"), || {
        let job = ground.read(&["djob/shop"])?;
        let mut running = running(ground)?;
        running.retain(|it| text(it, "/spec/desiredStatus") == "run");
        let are_new = running.iter().all(|it| it["spec"]["jobVersion"] == version);
        Ok((is_ready(&job) && running.len() == COPIES && are_new).then_some(()))
    })
}

/// A version on whose port nothing answers is taken back by its check.
fn failing_version(ground: &Ground) -> Result<String> {
    apply(ground, "bad", &json!(["/bin/sh", "-c", "exec sleep 1000"]))?;
    let bad = i64::from(ROLL_OUTS) + 1;
    let description = ground.eventually("the failing version is taken back", || {
        let deployment = deployment_of(ground, bad)?;
        let is_failed = text(&deployment, "/status/phase") == "failed";
        Ok(is_failed.then(|| text(&deployment, "/status/description").to_owned()))
    })?;
    ground.eventually("the version before is whole again", || {
        let job = ground.read(&["djob/shop"])?;
        Ok((holds(&job, "Reverted") && ready_slices(ground)?.len() == COPIES).then_some(()))
    })?;
    Ok(description)
}

fn drain(ground: &Ground, node: &str) -> Result<()> {
    ground.drover(&["node", "drain", node, "--deadline", "2m"])?;
    ground.eventually("the drained node is empty", || {
        let is_over = ground.read(&["cnode", node])?["spec"].get("drain").is_none_or(Value::is_null);
        Ok((is_over && on(ground, node)? == 0 && ready_slices(ground)?.len() == COPIES).then_some(()))
    })?;
    ground.drover(&["node", "eligibility", node, "--enable"]).map(drop)
}

/// How many copies run on a node.
fn on(ground: &Ground, node: &str) -> Result<usize> {
    Ok(running(ground)?.iter().filter(|it| text(it, "/spec/nodeName") == node).count())
}

/// The job's allocations that run.
fn running(ground: &Ground) -> Result<Vec<Value>> {
    let allocations = ground.read(&["alloc", "-l", "drover.dev/job=shop"])?;
    let all = allocations["items"].as_array().into_iter().flatten();
    Ok(all.filter(|it| text(it, "/status/clientStatus") == "running").cloned().collect())
}

/// The deployment of a version; null as long as there is none.
fn deployment_of(ground: &Ground, version: i64) -> Result<Value> {
    let all = ground.read(&["deployments.drover.dev", "-l", "drover.dev/job=shop"])?;
    let of_version = |it: &&Value| it["spec"]["jobVersion"] == version;
    Ok(all["items"].as_array().into_iter().flatten().find(of_version).cloned().unwrap_or_default())
}

/// The addresses that are ready below the Service.
fn ready_slices(ground: &Ground) -> Result<Vec<String>> {
    let slices = ground.read(&["endpointslice", "-l", "kubernetes.io/service-name=shop"])?;
    let endpoints = slices["items"].as_array().into_iter().flatten().filter_map(|slice| slice.pointer("/endpoints/0"));
    let ready = endpoints.filter(|endpoint| endpoint.pointer("/conditions/ready") == Some(&Value::Bool(true)));
    Ok(ready.map(|endpoint| text(endpoint, "/addresses/0").to_owned()).collect())
}

/// Kills the agent of the first node, and waits for the next.
fn kill_agent(ground: &Ground) -> Result<()> {
    let agent = ground.processes("agent")?.pop().context("the agent of n1")?;
    agent.signal(Signal::KILL).context("killing an agent")?;
    ground.eventually("another agent runs and is ready", || {
        let next = ground.processes("agent")?;
        let pods = ground.pods("agent")?;
        Ok((next.iter().any(|id| *id != agent) && pods.len() == 3 && pods.iter().all(is_ready)).then_some(()))
    })
}

/// A node that neither asks nor leads, its address, and the other one that does not ask.
fn without_leader(ground: &Ground) -> Result<(&'static str, &'static str, &'static str)> {
    let lease = ground.read(&["lease", "drover-controller", "-n", SYSTEM])?;
    let leader = text(&lease, "/spec/holderIdentity").to_owned();
    let pods = ground.pods("controller")?;
    let leads_on = pods.iter().find(|pod| text(pod, "/metadata/name") == leader).map(|pod| text(pod, "/spec/nodeName"));
    Ok(if leads_on == Some("n3") { ("n2", "10.200.2.2", "n3") } else { ("n3", "10.200.3.2", "n2") })
}

/// Takes a node away from all others. Returns when it was lost, and when nothing led there any more, both in
/// milliseconds since 1970.
fn lose_node(ground: &Ground, node: &str, address: &str) -> Result<(i64, i64)> {
    let now = || SystemClock.now().as_millisecond();
    ensure!(without_leader(ground)?.0 == node, "another replica leads now, on {node}, which is to be lost");
    ensure!(on(ground, node)? > 0, "nothing runs on {node}, which is to be lost");
    let lost = now();
    ground.cluster.connect(node, false)?;
    ground.eventually("nothing leads to the lost node", || {
        Ok((!ready_slices(ground)?.iter().any(|known| known == address)).then_some(()))
    })?;
    let known = now();
    ground
        .eventually("all copies are ready elsewhere", || Ok((ready_slices(ground)?.len() == COPIES).then_some(())))?;
    // Requests that began before may still fail.
    ground.through(2 * CLIENT_PATIENCE, || Ok(()))?;
    ground.cluster.connect(node, true)?;
    Ok((lost, known))
}
