//! Forty ways out of the sandbox of driver `exec`, tried with each capability that a task can be given.

use std::path::Path;

use drover_api::allocation::{AllocatedResources, ClientStatus, TaskResources};
use drover_api::job::JobType;
use serde_json::json;

use crate::agent::{Node, messages, shared_plane, status};
use crate::agent_exec::CAPABILITIES;

/// The attempts. Nothing but a task may run them: some would change the host.
const ATTEMPTS: &str = include_str!("escapes.py");
/// So many attempts at least.
const LEAST: usize = 30;
/// What the attempts found with these capabilities: the log of a task that ended well.
async fn attempts(node: &Node<'_>, job: &str, of_host: &Path, given: &[&str]) -> String {
    let socket = node.path("state/agent.sock");
    let pid = std::process::id().to_string();
    let args = ["-c", ATTEMPTS, &pid, &of_host.to_string_lossy(), &socket.to_string_lossy()].map(str::to_owned);
    let task = json!({
        "name": "t", "driver": "exec", "restart": { "attempts": 0, "mode": "fail" },
        "config": { "command": "/usr/bin/python3", "args": args, "capAdd": given },
    });
    node.job(job, JobType::Batch, json!({ "tasks": [task] })).await;
    let resources = TaskResources { cpu: 100, memory_mb: 128, ..TaskResources::default() };
    let resources = AllocatedResources { tasks: [("t".to_owned(), resources)].into(), ..AllocatedResources::default() };
    let ended = node.ended(&node.place(job, 0, resources).await).await;
    let log = node.log_of(&ended, "t.stdout.0");
    let errors = node.log_of(&ended, "t.stderr.0");
    assert_eq!(status(&ended), ClientStatus::Complete, "{job}: {}\n{log}{errors}", messages(&ended, "t"));
    let tried = log.lines().next().and_then(|line| line.strip_prefix("tried ")?.parse::<usize>().ok());
    assert!(tried >= Some(LEAST), "{job}: {log}");
    log
}

fn through(log: &str) -> Vec<&str> {
    log.lines().filter_map(|line| line.strip_prefix("through: ")).collect()
}

#[tokio::test]
async fn must_survive_forty_escapes_with_each_capability_that_a_task_can_be_given() {
    let allowed = CAPABILITIES.join(", ");
    let settings = format!("drivers: {{exec: {{allowHostNetwork: true, allowCaps: [{allowed}]}}}}\n");
    let node = Node::start_with(shared_plane(), "escapes", &settings).await;
    let of_host = node.path("of-the-host");
    std::fs::write(&of_host, "secret\n").expect("a file");
    let mut came_through = Vec::new();
    let each = CAPABILITIES.iter().map(|name| (name.replace('_', "-"), std::slice::from_ref(name)));
    let sets = [("none".to_owned(), &[][..]), ("all".to_owned(), &CAPABILITIES[..])].into_iter().chain(each);
    for (name, given) in sets {
        let log = attempts(&node, &format!("escape-{name}"), &of_host, given).await;
        came_through.extend(through(&log).into_iter().map(|way| format!("{name}: {way}")));
    }
    assert!(came_through.is_empty(), "{}", came_through.join("\n"));

    // An attempt can succeed: a node's administrator shows the file.
    let open = format!(
        "drivers: {{exec: {{allowHostNetwork: true, hostPaths: [/usr, /bin, /lib, /lib64, {}]}}}}\n",
        of_host.display()
    );
    let open = Node::start_with(shared_plane(), "escapes-shown", &open).await;
    assert_eq!(
        through(&attempts(&open, "shown", &of_host, &[]).await),
        ["read a file of the host", "read it below the first process"]
    );
}
