//! Templates on a real node: the process that renders them, and files that sandboxed tasks read.

use drover_api::Allocation;
use drover_api::job::JobType;
use drover_testkit::process::ProcessId;
use serde_json::{Value, json};

use crate::agent::{Node, eventually, messages, shared_plane, shell};

fn with_template(script: &str, template: &str) -> Value {
    let mut task = shell(script);
    task["templates"] = json!([{ "embeddedTmpl": template, "destPath": "local/x" }]);
    task["restart"] = json!({ "attempts": 0, "interval": "1h", "delay": "1s", "mode": "fail" });
    task
}

async fn setup_failure(node: &Node<'_>, name: &str) -> String {
    let ended: Allocation = node.ended(name).await;
    messages(&ended, "t")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b_060_must_survive_templates_without_end_or_measure() {
    let node = Node::start(shared_plane(), "endless").await;
    let agent = ProcessId::of(i32::try_from(node.agent_pid()).expect("a pid")).expect("an agent");
    let before = agent.rss_bytes();
    // Ten to the ninth steps, or as many bytes.
    let ten = "{{$ten := split \",\" \"1,2,3,4,5,6,7,8,9,0\"}}";
    let nest = |levels: usize, inner: &str| {
        format!("{ten}{}{inner}{}", "{{range $ten}}".repeat(levels), "{{end}}".repeat(levels))
    };
    let mut placed = Vec::new();
    for (n, (template, says)) in [
        ("{{define \"a\"}}{{template \"a\"}}{{end}}{{template \"a\"}}".to_owned(), "depth"),
        // On a machine that is busy the clock may be first.
        (nest(9, "{{$x := 1}}"), "steps|seconds"),
        (nest(6, &"x".repeat(1000)), "output"),
        ("{{$x := \"x\"}}{{range loop 0 40}}{{$x = printf \"%s%s\" $x $x}}{{end}}".to_owned(), "memory|seconds"),
    ]
    .into_iter()
    .enumerate()
    {
        let task = with_template("echo never", &template);
        placed.push((node.run(&format!("job{n}"), JobType::Batch, json!([task])).await, says));
    }
    // The process that renders has nothing to lose.
    let is_helper = |pid: i32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().contains("render-template\0")
    };
    let confined = || {
        agent.descendants().into_iter().filter(|process| is_helper(process.pid)).any(|process| {
            let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
            };
            let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let is_nobody = !rustix::process::geteuid().is_root() || field("Uid:").starts_with("65534\t65534");
            let limits = (field("NoNewPrivs:"), field("Seccomp:"), field("CapEff:"));
            limits == ("1".into(), "2".into(), "0".repeat(16)) && is_nobody && environment.is_empty()
        })
    };
    eventually("a helper is seen, and is confined", confined).await;
    for (name, says) in &placed {
        let said = setup_failure(&node, name).await;
        assert!(
            said.contains("templates: local/x:") && says.split('|').any(|limit| said.contains(limit)),
            "{says}: {said}"
        );
    }
    let grown = agent.rss_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "the agent has grown by {grown} bytes");
    eventually("no helper is left", || !agent.descendants().into_iter().any(|it| is_helper(it.pid))).await;
    let fine =
        node.run("fine", JobType::Batch, json!([with_template("cat local/x", "{{env \"NOMAD_TASK_NAME\"}}")])).await;
    let ended = node.ended(&fine).await;
    assert_eq!(node.log_of(&ended, "t.stdout.0"), "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_task_reads_files_that_no_other_user_can_and_has_their_variables() {
    let node = Node::start(shared_plane(), "rendered").await;
    let mut task = with_template("", "hello from {{ env \"NOMAD_JOB_NAME\" }}\n");
    task["driver"] = json!("exec");
    task["templates"][0]["perms"] = json!("0400");
    task["templates"].as_array_mut().expect("a list").push(json!({
        "embeddedTmpl": "WORD='of {{ env \"NOMAD_GROUP_NAME\" }}'\n", "destPath": "${NOMAD_SECRETS_DIR}/env", "envvars": true,
        "perms": "0400",
    }));
    let script = "cat /local/x; cat /secrets/env; echo $WORD; ls -ln /local/x /secrets/env; id -u";
    task["config"] = json!({ "command": "/bin/sh", "args": ["-c", script] });
    let name = node.run("greets", JobType::Batch, json!([task])).await;
    let ended = node.ended(&name).await;
    let out = node.log_of(&ended, "t.stdout.0");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..3], ["hello from greets", "WORD='of g'", "of g"], "{out} {}", node.log_of(&ended, "t.stderr.0"));
    let uid = lines[5];
    for line in &lines[3..5] {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("-r--------", uid), "{out}");
    }
}
