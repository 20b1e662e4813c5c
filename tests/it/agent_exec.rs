//! Driver `exec` on this machine: what a task sees, what it may, what stops it.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{AllocatedResources, ClientStatus, TaskEventType as E, TaskResources};
use drover_api::job::JobType;
use serde_json::{Value, json};

use crate::agent::{Node, eventually, lives, messages, shared_plane, status};
use crate::cluster::Running;

fn exec(script: &str) -> Value {
    let config = json!({"command": "/bin/sh", "args": ["-c", script]});
    json!({"name": "t", "driver": "exec", "killSignal": "SIGTERM", "killTimeout": "1s", "config": config, "restart": never()})
}

fn never() -> Value {
    json!({"attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail"})
}

fn with_memory(memory_mb: i64) -> AllocatedResources {
    let resources = TaskResources { cpu: 100, memory_mb, ..TaskResources::default() };
    AllocatedResources { tasks: [("t".to_owned(), resources)].into(), ..AllocatedResources::default() }
}

async fn finish(node: &Node<'_>, job: &str, task: Value, memory_mb: i64) -> Allocation {
    node.job(job, JobType::Batch, json!({"tasks": [task]})).await;
    let name = node.place(job, 0, with_memory(memory_mb)).await;
    node.ended(&name).await
}

fn cgroups_of(allocation: &Allocation) -> Vec<String> {
    fn collect(dir: &Path, uid: &str, found: &mut Vec<String>) {
        let Ok(entries) = std::fs::read_dir(dir) else { return };
        for dir in entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()) {
            if dir.to_string_lossy().contains(uid) {
                found.push(dir.display().to_string());
            }
            collect(&dir, uid, found);
        }
    }
    let uid = allocation.metadata.uid.as_deref().expect("a uid");
    let mut found = Vec::new();
    for hierarchy in std::fs::read_dir("/sys/fs/cgroup").expect("hierarchies") {
        let Ok(bases) = std::fs::read_dir(hierarchy.expect("an entry").path()) else { continue };
        for base in bases.filter_map(Result::ok).filter(|it| it.file_name().to_string_lossy().starts_with("drover.")) {
            collect(&base.path(), uid, &mut found);
        }
    }
    found
}

#[tokio::test]
async fn a_sandboxed_task_sees_its_own_files_and_processes_and_leaves_no_group() {
    let node = Node::start(shared_plane(), "exec-view").await;
    let script = "echo $USER $HOME; echo pid=$$; ls /proc | grep -c '^[0-9]'; pwd; echo $NOMAD_TASK_DIR $NOMAD_ALLOC_DIR; \
                  echo kept > /local/file; echo shared > /alloc/data/file; ls -d /allocs 2>&1; \
                  grep -c . /proc/self/status >/dev/null && echo proc; echo hi > /dev/null && echo dev";
    let ended = finish(&node, "view", exec(script), 64).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    let log = node.log_of(&ended, "t.stdout.0");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[..2], ["task /local", "pid=1"], "{log}");
    assert!(lines[2].parse::<u32>().expect("a number") <= 5, "only its own processes: {log}");
    assert_eq!(lines[3..5], ["/", "/local /alloc"], "{log}");
    assert!(lines[5].contains("No such file") && lines[6..] == ["proc", "dev"], "{log}");
    let dir = node.path("allocs").join(ended.metadata.uid.as_deref().expect("a uid"));
    assert_eq!(std::fs::read_to_string(dir.join("t/local/file")).expect("a file"), "kept\n");
    assert_eq!(std::fs::read_to_string(dir.join("alloc/data/file")).expect("a file"), "shared\n");
    assert_eq!(cgroups_of(&ended), [""; 0], "groups are removed");
}

/// Copies a program of the host and what it is linked with.
fn copy_program(program: &str, rootfs: &Path) {
    let linked = std::process::Command::new("ldd").arg(program).output().expect("ldd");
    let text = String::from_utf8(linked.stdout).expect("text");
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    for path in std::iter::once(program).chain(libraries) {
        let to = rootfs.join(path.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a parent")).expect("a directory");
        std::fs::copy(path, to).expect("a copy");
    }
}

#[tokio::test]
async fn a_given_root_takes_the_place_of_the_hosts_files() {
    let folder = tempfile::tempdir().expect("a directory");
    let rootfs = folder.path().join("small");
    copy_program("/bin/sh", &rootfs);
    std::fs::write(rootfs.join("marker"), "of the root\n").expect("a file");
    std::fs::create_dir(rootfs.join("dev")).expect("a directory");
    let config = format!(
        "drivers: {{rawExec: {{enabled: true}}, exec: {{allowHostNetwork: true, rootfsDirs: [{}]}}}}\n",
        folder.path().display()
    );
    let node = Node::start_with(shared_plane(), "exec-root", &config).await;
    let script = "read line < /marker; echo $line; echo x > /local/own && echo written; \
                  if echo x > /marker; then echo changed; fi 2>/dev/null; test -e /etc || echo small; \
                  echo x > /dev/null && echo dev";
    let mut task = exec(script);
    task["config"]["rootfs"] = json!(rootfs);
    let ended = finish(&node, "rooted", task, 64).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    assert_eq!(node.log_of(&ended, "t.stdout.0"), "of the root\nwritten\nsmall\ndev\n");
    assert_eq!(std::fs::read_to_string(rootfs.join("marker")).expect("a file"), "of the root\n");
    for (n, elsewhere) in ["/", "/usr", "/no/such/root"].into_iter().enumerate() {
        let mut task = exec("exit 0");
        task["config"]["rootfs"] = json!(elsewhere);
        let ended = finish(&node, &format!("elsewhere{n}"), task, 64).await;
        assert_eq!(status(&ended), ClientStatus::Failed, "{elsewhere}");
        assert!(messages(&ended, "t").contains("config.rootfs"), "{}", messages(&ended, "t"));
    }
}

#[tokio::test]
async fn a_131_a_task_beyond_its_memory_is_ended_and_limit_and_peak_are_said() {
    let node = Node::start(shared_plane(), "exec-oom").await;
    let ended = finish(&node, "hog", exec("exec tail /dev/zero"), 24).await;
    assert_eq!(status(&ended), ClientStatus::Failed);
    let state = &ended.status.as_ref().expect("a status").task_states["t"];
    let end = state.events.iter().find(|event| event.r#type == E::Terminated).expect("an end");
    assert!(end.oom_killed, "{end:?}");
    assert!(end.message.contains("memory limit 24 MiB, peak 2"), "{}", end.message);
}

#[tokio::test]
async fn a_169_a_missing_command_is_an_error_and_leaves_no_process() {
    let node = Node::start(shared_plane(), "exec-missing").await;
    let mut task = exec("");
    task["config"] = json!({"command": "no-such-program"});
    let ended = finish(&node, "missing", task, 24).await;
    assert!(messages(&ended, "t").contains("no-such-program"), "{}", messages(&ended, "t"));
    let mut task = exec("");
    task["config"] = json!({"command": "/etc/passwd"});
    let ended = finish(&node, "plain", task, 24).await;
    assert!(messages(&ended, "t").contains("/etc/passwd"), "{}", messages(&ended, "t"));
    let supervisor = node.supervisor_pid();
    eventually("no child is left", || {
        std::fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).is_ok_and(|it| it.is_empty())
    })
    .await;
    assert_eq!(cgroups_of(&ended), [""; 0]);
}

#[tokio::test]
async fn limits_capabilities_and_a_network_of_its_own_are_as_asked() {
    let config = "drivers: {exec: {allowCaps: [net_bind_service]}}\n";
    let node = Node::start_with(shared_plane(), "exec-rights", config).await;
    let script = "ulimit -n; ulimit -c; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; \
                  grep -c : /proc/net/dev; cat /proc/self/cpuset 2>/dev/null | grep -c drover";
    let mut task = exec(script);
    task["config"]["ulimit"] = json!({"nofile": "100:200", "core": "0"});
    task["config"]["capAdd"] = json!(["net_bind_service"]);
    task["config"]["capDrop"] = json!(["all"]);
    node.job("rights", JobType::Batch, json!({"networks": [{"mode": "none"}], "tasks": [task]})).await;
    let mut resources = with_memory(64);
    for task in resources.tasks.values_mut() {
        task.cores = vec![1];
    }
    let ended = node.ended(&node.place("rights", 0, resources).await).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{}", messages(&ended, "t"));
    let log = node.log_of(&ended, "t.stdout.0");
    let wanted = [
        "100",
        "0",
        // CAP_NET_BIND_SERVICE is number 10.
        "CapEff:0000000000000400",
        "CapBnd:0000000000000400",
        "NoNewPrivs:1",
        "Seccomp:2",
        "1",
        "1",
    ];
    assert_eq!(log.lines().collect::<Vec<_>>(), wanted, "{log}");
}

#[tokio::test]
async fn must_survive_a_fork_bomb() {
    let node = Node::start(shared_plane(), "exec-bomb").await;
    let mut bomb = exec("exec python3 -c 'import os\nwhile True:\n  try: os.fork()\n  except OSError: pass'");
    bomb["config"]["pidsLimit"] = json!(50);
    node.job("bomb", JobType::Service, json!({"tasks": [bomb]})).await;
    let name = node.place("bomb", 0, with_memory(64)).await;
    let running = node.running(&name).await;
    let groups = cgroups_of(&running);
    let pids = groups.iter().find(|it| it.contains("/pids/")).or(groups.first()).expect("a group");
    let current = || std::fs::read_to_string(format!("{pids}/pids.current")).unwrap_or_default();
    eventually("a full group", || current().trim().parse::<u32>().is_ok_and(|n| n >= 40)).await;
    assert!(current().trim().parse::<u32>().is_ok_and(|n| n <= 50));
    let neighbour = finish(&node, "neighbour", exec("exit 0"), 24).await;
    assert_eq!(status(&neighbour), ClientStatus::Complete);
    node.stop(&name).await;
    node.ended(&name).await;
    assert_eq!(cgroups_of(&running), [""; 0]);
}

/// What Docker gives its containers, and what Nomad lets a node's administrator allow.
pub(crate) const CAPABILITIES: [&str; 14] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];

/// Each line is tried by itself; what succeeds has escaped.
const ESCAPES: &[(&str, &str)] = &[
    ("see a process of the host", "test -d /proc/$HOST_PID && grep -q tail /proc/$HOST_PID/cmdline"),
    ("signal a process of the host", "kill -0 $HOST_PID"),
    ("see more than its own processes", "test $(ls /proc | grep -c '^[0-9]') -gt 12"),
    ("mount a filesystem", "mount -t tmpfs none /tmp"),
    ("mount proc again", "mount -t proc proc /local"),
    ("unmount a mask", "umount /proc/kcore"),
    ("make its root writable for the host's files", "mount -o remount,rw /usr"),
    ("write to a host path", "touch /usr/escape"),
    ("write to /etc", "touch /etc/escape"),
    ("write to /proc/sys", "echo 1 > /proc/sys/kernel/panic"),
    ("trigger sysrq", "echo h > /proc/sysrq-trigger"),
    ("read kernel memory", "head -c 1 /proc/kcore | grep -q ."),
    ("write to /sys", "echo 1 > /sys/kernel/profiling"),
    ("see control groups", "ls /sys/fs/cgroup | grep -q ."),
    ("leave its memory group", "echo 1 > /sys/fs/cgroup/memory/tasks"),
    ("make a device", "mknod /local/sda b 8 0"),
    ("open a disk", "head -c 1 /dev/vda || head -c 1 /dev/sda"),
    ("make a device node of memory", "mknod /dev/mem c 1 1 && head -c 1 /dev/mem"),
    (
        "trace a neighbour",
        "python3 -c 'import ctypes, os; exit(ctypes.CDLL(None).ptrace(16, int(os.environ[\"HOST_PID\"]), 0, 0) != 0)' \
         || test -r /proc/$HOST_PID/mem",
    ),
    ("open a raw socket", "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)'"),
    ("open a packet socket", "python3 -c 'import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)'"),
    ("become root", "python3 -c 'import os; os.setuid(0)'"),
    ("become root by su", "su -c true </dev/null"),
    ("keep a setuid copy", "cp /bin/id /local/id && chmod 4755 /local/id && chown root /local/id"),
    (
        "load a kernel module",
        "python3 -c 'import ctypes; l=ctypes.CDLL(None,use_errno=True); exit(0 if ctypes.get_errno()==0 and l.syscall(175,0,0,b\"\")==0 else 1)'",
    ),
    ("make a user namespace", "unshare -U true"),
    ("make a mount namespace", "unshare -m true"),
    ("enter the host's namespaces", "nsenter -t 1 -m -p ls /allocs || nsenter -t $HOST_PID -a true"),
    ("read the agent's state", "cat $STATE_DIR/agent.redb"),
    ("reach the supervisor's socket", "test -S $STATE_DIR/supervisor.sock"),
    ("read another task's secrets", "ls $ALLOCS_DIR | grep -q ."),
    ("read the host's passwords", "cat /etc/shadow"),
    ("set the clock", "date -s 2001-01-01"),
    ("change the host's name", "hostname escaped"),
    ("climb out of the root", "test -e /../../../../allocs || ls /proc/1/root/allocs"),
    ("write its logs directly", "echo x >> /alloc/logs/t.stdout.0"),
];

/// What the attempts are made with: one that is missing would let them fail for another reason than a wall.
const TOOLS: &str =
    "cat chmod chown cp date grep head hostname id ls mknod mount nsenter python3 su touch umount unshare";

/// Tries each in a task with these capabilities, which the node allows. Returns those that succeeded.
async fn escapes(name: &str, capabilities: &[&str]) -> Vec<&'static str> {
    let config = format!("drivers: {{exec: {{allowHostNetwork: true, allowCaps: [{}]}}}}\n", capabilities.join(", "));
    let node = Node::start_with(shared_plane(), name, &config).await;
    let victim = std::process::Command::new("tail").args(["-f", "/dev/null"]).spawn().expect("a process");
    let victim = Running(victim);
    let mut script = format!(
        "for tool in {TOOLS}; do command -v $tool >/dev/null || echo MISSING $tool; done; python3 -c 'import ctypes' || echo MISSING ctypes\n"
    );
    for (n, (_, attempt)) in ESCAPES.iter().enumerate() {
        writeln!(script, "if ( {attempt} ) >/dev/null 2>&1; then echo ESCAPED {n}; else echo held {n}; fi")
            .expect("text");
    }
    let mut task = exec(&script);
    task["config"]["capAdd"] = json!(capabilities);
    task["env"] = json!({
        "HOST_PID": victim.0.id().to_string(),
        "STATE_DIR": node.path("state").display().to_string(),
        "ALLOCS_DIR": node.path("allocs").display().to_string(),
    });
    let before = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let ended = finish(&node, "escape", task, 128).await;
    drop(victim);
    let log = node.log_of(&ended, "t.stdout.0");
    assert!(!log.contains("MISSING"), "the attempts need these programs on this host: {log}");
    assert_eq!(log.lines().count(), ESCAPES.len(), "every attempt was made: {log}{}", messages(&ended, "t"));
    assert_eq!(std::fs::read_to_string("/etc/hostname").unwrap_or_default(), before);
    let escaped = log.lines().filter_map(|line| line.strip_prefix("ESCAPED "));
    escaped.map(|n| ESCAPES[n.parse::<usize>().expect("a number")].0).collect()
}

#[tokio::test]
async fn must_survive_thirty_escapes() {
    assert_eq!(escapes("exec-escape", &[]).await, [""; 0]);
}

#[tokio::test]
async fn must_survive_thirty_escapes_with_the_capabilities_of_containers() {
    // What these are for, and no way to the host: raw packets, and another number.
    let meant = ["open a raw socket", "become root", "keep a setuid copy"];
    assert_eq!(escapes("exec-escape-caps", &CAPABILITIES).await, meant);
}

#[tokio::test]
async fn a_sandboxed_task_survives_agent_and_supervisor() {
    let mut node = Node::start(shared_plane(), "exec-lives").await;
    let script = "trap 'exit 0' TERM; while :; do echo tick; sleep 0.05 & wait; done";
    node.job("ticks", JobType::Service, json!({"tasks": [exec(script)]})).await;
    let name = node.place("ticks", 0, with_memory(32)).await;
    let running = node.running(&name).await;
    let lines = || node_log(&node, &running);
    eventually("output", || lines() > 3).await;
    let groups = cgroups_of(&running);
    let pid: i32 = groups
        .iter()
        .find_map(|dir| std::fs::read_to_string(format!("{dir}/cgroup.procs")).ok())
        .and_then(|text| text.lines().next().and_then(|line| line.parse().ok()))
        .expect("a process");
    node.kill_agent();
    assert!(lives(pid));
    node.start_agent();
    crate::agent::signal(node.supervisor_pid(), rustix::process::Signal::KILL);
    let seen = node_log(&node, &running);
    eventually("more output", || node_log(&node, &running) > seen + 20).await;
    assert!(lives(pid));
    node.stop(&name).await;
    let ended = node.ended(&name).await;
    assert!(!lives(pid));
    assert_eq!(status(&ended), ClientStatus::Complete);
    let took = std::time::Instant::now();
    eventually("no group is left", || cgroups_of(&running).is_empty()).await;
    assert!(took.elapsed() < Duration::from_secs(5));
}

fn node_log(node: &Node<'_>, allocation: &Allocation) -> usize {
    node.log_of(allocation, "t.stdout.0").lines().count()
}
