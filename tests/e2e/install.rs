//! Installing, and what an installation says of itself.

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::ground::{Ground, SYSTEM, chart, is_ready, text};

pub(crate) fn three_commands_to_a_healthy_job(ground: &Ground) -> Result<String> {
    let started = Instant::now();
    ground.installed()?;
    let installed = started.elapsed();
    ground.web()?;
    let all = started.elapsed();
    let tasks = ground.tasks()?;
    ensure!(tasks.len() == 3, "{} tasks run instead of 3", tasks.len());
    ensure!(all.as_secs() < 60, "it took {:.1} s", all.as_secs_f64());
    Ok(format!("helm install --wait {:.1} s, healthy after {:.1} s", installed.as_secs_f64(), all.as_secs_f64()))
}

pub(crate) fn readiness_without_the_policy(ground: &Ground) -> Result<String> {
    ground.installed()?;
    let name = "drover-node-restriction";
    ground.kubectl(&["delete", "validatingadmissionpolicy", name])?;
    let started = Instant::now();
    let count = |wanted: bool| -> Result<Option<()>> {
        let pods = ground.pods("controller")?;
        Ok((pods.len() == 2 && pods.iter().all(|pod| is_ready(pod) == wanted)).then_some(()))
    };
    let unready = ground.eventually("both controllers are unready without the policy", || count(false));
    let took = started.elapsed();
    // As its remedy says; the policy is the release's again, and the next installation has it.
    ground.upgrade(&[])?;
    unready?;
    ground.eventually("both controllers are ready again", || count(true))?;
    Ok(format!(
        "both controllers unready {:.1} s after the policy was deleted, ready again with it",
        took.as_secs_f64()
    ))
}

/// A job whose task has namespaces and a root of its own.
const SANDBOXED: &str = "
apiVersion: drover.dev/v1alpha1
kind: Job
metadata: {name: sandboxed}
spec:
  groups:
  - name: g
    tasks:
    - {name: t, driver: exec, config: {command: /bin/sleep, args: [infinity]}, killTimeout: 1s}
";

/// Runs that job until it is healthy, and ends it.
fn run_sandboxed(ground: &Ground) -> Result<()> {
    ground.apply(SANDBOXED)?;
    ground.kubectl(&["wait", "--for=condition=Ready", "djob/sandboxed", "--timeout", "120s"])?;
    ground.kubectl(&["delete", "djob", "sandboxed", "--timeout", "60s"]).map(drop)
}

pub(crate) fn an_agent_without_privileges(ground: &Ground) -> Result<String> {
    ground.web()?;
    let before = ground.tasks()?;
    ground.upgrade(&["agent.privileged=false"])?;
    let agents = ground.pods("agent")?;
    let privileged = agents.iter().map(|pod| &pod["spec"]["containers"][0]["securityContext"]["privileged"]);
    ensure!(privileged.eq([false]), "the agent's pods: {agents:?}");
    run_sandboxed(ground)?;
    ensure!(ground.tasks()? == before, "a task was touched");
    ground.upgrade(&["agent.privileged=true"])?;
    Ok("a sandbox is started and ended by an agent with the capabilities of the chart's list alone".to_owned())
}

/// Values that change what is rendered; each alone.
const VALUES: &[&str] = &[
    "crds.keep=false",
    "rbac.aggregate=false",
    "nodeRestriction.enabled=false",
    "controller.replicas=3",
    "controller.topologySpread=false",
    "controller.podDisruptionBudget=false",
    "controller.extraArgs[0]=--log=debug",
    "agent.resources.requests.cpu=250m",
    "agent.resources.limits.memory=2Gi",
    "agent.updateStrategy.maxUnavailable=1",
    "agent.drivers.mock=true",
    "agent.meta.rack=r1",
    "agent.privileged=false",
    "agent.nodeSelector.disk=ssd",
    "metrics.enabled=false",
    "networkPolicy.enabled=false",
    "imagePullSecrets[0].name=pull",
    "commonLabels.team=core",
    "nameOverride=orch",
    "agent.drainOnUninstall=true",
    "metrics.perJob=true",
    "grafanaDashboard.enabled=true",
];

pub(crate) fn every_render_is_valid(ground: &Ground) -> Result<String> {
    ground.installed()?;
    let file = tempfile::NamedTempFile::new()?;
    let path = file.path().display().to_string();
    for value in VALUES {
        let render = || ground.helm(&["template", "drover", &chart(), "-n", SYSTEM, "--set", value]);
        let (rendered, again) = (render()?, render()?);
        ensure!(rendered == again, "{value}: two renders differ");
        std::fs::write(file.path(), rendered)?;
        // The API server's own schemas, with unknown and repeated fields as errors.
        let dry =
            ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-n", SYSTEM];
        ground.kubectl(&[&dry[..], &["-f", &path]].concat())?;
    }
    Ok(format!("{} renders, each twice the same and valid", VALUES.len()))
}

pub(crate) fn metrics(ground: &Ground) -> Result<String> {
    ground.web()?;
    // An agent that was started anew has started no task yet.
    run_sandboxed(ground)?;
    let mut all = String::new();
    for (role, port) in [("controller", 8080), ("agent", 9465)] {
        for pod in ground.pods(role)? {
            let path =
                format!("/api/v1/namespaces/{SYSTEM}/pods/{}:{port}/proxy/metrics", text(&pod, "/metadata/name"));
            all += &ground.kubectl(&["get", "--raw", &path])?;
        }
    }
    let is_there = |line: &str| ensure_line(&all, line);
    is_there("drover_leader{role=\"leader\"} 1")?;
    is_there("drover_leader{role=\"follower\"} 1")?;
    is_there("drover_nodes{pool=\"default\",phase=\"ready\"} 1")?;
    is_there("drover_allocations{client_status=\"running\"} 3")?;
    for name in [
        "drover_kube_requests_total",
        "drover_watch_restarts_total",
        "drover_reconcile_total",
        "drover_reconcile_duration_seconds_count",
        "drover_eval_process_seconds_count",
        "drover_placements_total",
        "drover_plan_conflicts_total",
        "drover_deployments",
        "drover_evals",
        "drover_eval_wait_seconds_count",
        "drover_nodes_considered_total",
        "drover_deployment_steps_total",
        "drover_agent_tasks",
        "drover_agent_task_start_seconds_count",
        "drover_agent_restore_seconds_count",
        "drover_agent_status_writes_total",
        "drover_agent_status_coalesced_total",
    ] {
        ensure!(
            all.contains(&format!("\n{name}")) || all.contains(&format!("TYPE {} ", name.trim_end_matches("_total"))),
            "{name} is missing"
        );
    }
    let allocations = ground.read(&["alloc"])?;
    for item in allocations["items"].as_array().into_iter().flatten() {
        for secret in [text(item, "/metadata/name"), text(item, "/metadata/uid")] {
            ensure!(!all.contains(secret), "{secret} is in a label");
        }
    }
    let n_series = all.lines().filter(|line| !line.starts_with('#')).count();
    Ok(format!("{n_series} series of 3 pods"))
}

fn ensure_line(all: &str, line: &str) -> Result<()> {
    ensure!(all.lines().any(|found| found == line), "{line} is missing in\n{all}");
    Ok(())
}
