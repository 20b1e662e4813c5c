//! What driver `exec` gives a task against the machine it runs on: nothing, unless the node's administrator says so.

use drover_api::Allocation;
use drover_api::allocation::{AllocatedResources, ClientStatus, TaskResources};
use drover_api::job::JobType;
use serde_json::{Value, json};

use crate::agent::{Node, messages, shared_plane, status};

/// What an administrator allows who wants tasks to do what containers could do years ago.
const GENEROUS: &str = "drivers: {exec: {allowHostNetwork: true, allowHostPID: true, allowHostIPC: true, allowCaps: [mknod, \
                        dac_override, setuid, setgid, sys_chroot, fowner, setfcap, audit_write, net_raw]}}\n";

fn task(script: &str) -> Value {
    json!({
        "name": "t", "driver": "exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
        "restart": { "attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail" },
    })
}

fn with(script: &str, config: &Value) -> Value {
    let mut task = task(script);
    let own = task["config"].as_object_mut().expect("an object");
    own.extend(config.as_object().expect("an object").clone());
    task
}

async fn finish(node: &Node<'_>, job: &str, task: Value) -> Allocation {
    node.job(job, JobType::Batch, json!({ "tasks": [task] })).await;
    let resources = TaskResources { cpu: 100, memory_mb: 96, ..TaskResources::default() };
    let resources = AllocatedResources { tasks: [("t".to_owned(), resources)].into(), ..AllocatedResources::default() };
    node.ended(&node.place(job, 0, resources).await).await
}

/// What the task wrote, once it has ended well.
async fn said(node: &Node<'_>, job: &str, task: Value) -> String {
    let ended = finish(node, job, task).await;
    assert_eq!(status(&ended), ClientStatus::Complete, "{job}: {}", messages(&ended, "t"));
    node.log_of(&ended, "t.stdout.0")
}

/// The error of a task that never starts.
async fn refused(node: &Node<'_>, job: &str, task: Value) -> String {
    let ended = finish(node, job, task).await;
    assert_eq!(status(&ended), ClientStatus::Failed, "{job}");
    messages(&ended, "t")
}

#[tokio::test]
async fn must_survive_x_001_devices() {
    let node = Node::start(shared_plane(), "sandbox-devices").await;
    let error = refused(&node, "asked", with("exit 0", &json!({ "capAdd": ["mknod"] }))).await;
    assert!(error.contains("config.capAdd") && error.contains("mknod") && error.contains("allowCaps"), "{error}");
    // With the right to make nodes there is still no device behind them.
    let generous = Node::start_with(shared_plane(), "sandbox-devices-allowed", GENEROUS).await;
    let script = "cd /local; grep CapEff /proc/self/status | cut -f2; \
                  for node in 'b 7 0' 'b 8 0' 'b 254 0' 'c 1 1' 'c 1 11' 'c 10 200'; do \
                  mknod node $node 2>/dev/null && head -c 1 node >/dev/null 2>&1 && echo OPENED $node; rm -f node; done; \
                  mknod null c 1 3 && (echo x > null) 2>/dev/null && echo OPENED outside of /dev; \
                  echo x > /dev/null && head -c 1 /dev/zero | wc -c";
    let log = said(&generous, "allowed", with(script, &json!({ "capAdd": ["mknod"] }))).await;
    // CAP_MKNOD is number 27.
    assert_eq!(log, "0000000008000000\n1\n");
}

#[tokio::test]
async fn must_survive_x_002_capabilities_against_files() {
    let node = Node::start(shared_plane(), "sandbox-files").await;
    let beside = node.path("of-root");
    std::fs::write(&beside, "secret of the host\n").expect("a file");
    for name in ["dac_override", "dac_read_search", "fowner", "chown", "sys_admin", "all", "CAP_SETFCAP"] {
        let job = format!("asked-{}", name.to_lowercase().replace('_', "-"));
        let error = refused(&node, &job, with("exit 0", &json!({ "capAdd": [name] }))).await;
        assert!(error.contains("config.capAdd") && error.contains("drivers.exec.allowCaps"), "{name}: {error}");
    }
    let script = format!("cat /etc/shadow {} /proc/1/root{} 2>/dev/null; echo end", beside.display(), beside.display());
    let generous = Node::start_with(shared_plane(), "sandbox-files-allowed", GENEROUS).await;
    let log = said(&generous, "allowed", with(&script, &json!({ "capAdd": ["dac_override"] }))).await;
    assert_eq!(log, "end\n", "it may open every file that it sees, and sees none of the host's");
}

#[tokio::test]
async fn must_survive_x_003_another_user() {
    let node = Node::start(shared_plane(), "sandbox-users").await;
    let error = refused(&node, "asked", with("exit 0", &json!({ "capAdd": ["setuid", "setgid"] }))).await;
    assert!(error.contains("setgid, setuid") && error.contains("allowCaps"), "{error}");
    let become_root = "python3 -c 'import os; os.setgid(0); os.setuid(0); \
                       print(os.getuid(), os.path.exists(\"/etc/shadow\"), os.path.exists(\"/root\"), sorted(os.listdir(\"/\")))'";
    let log = said(&node, "plain", task(&format!("{become_root} 2>/dev/null || echo held"))).await;
    assert_eq!(log, "held\n");
    let generous = Node::start_with(shared_plane(), "sandbox-users-allowed", GENEROUS).await;
    let log = said(&generous, "allowed", with(become_root, &json!({ "capAdd": ["setuid", "setgid"] }))).await;
    assert!(log.starts_with("0 False False ["), "{log}");
    for name in ["root", "home", "var", "boot", "srv", "opt"] {
        assert!(!log.contains(&format!("'{name}'")), "{name} is no part of the view: {log}");
    }
}

#[tokio::test]
async fn must_survive_x_004_tasks_of_root() {
    let node = Node::start(shared_plane(), "sandbox-root").await;
    for (n, user) in ["0", "root", "0:0", "nobody:0", "nobody:root", "00", "+0"].into_iter().enumerate() {
        let mut task = task("exit 0");
        task["user"] = json!(user);
        let error = refused(&node, &format!("root{n}"), task).await;
        assert!(error.contains("user") && error.contains(user), "{user}: {error}");
    }
    let mut numbered = task("id -u; id -g; id -un; echo $USER $HOME");
    numbered["user"] = json!("54321:4321");
    assert_eq!(said(&node, "numbered", numbered).await, "54321\n4321\n54321\n54321 /\n");
}

#[tokio::test]
async fn must_survive_x_007_namespaces_of_the_host() {
    let node = Node::start(shared_plane(), "sandbox-host").await;
    for (mode, setting) in [("pidMode", "allowHostPID"), ("ipcMode", "allowHostIPC")] {
        let error = refused(&node, &mode.to_lowercase(), with("exit 0", &json!({ mode: "host" }))).await;
        assert!(error.contains(&format!("config.{mode}")) && error.contains(setting), "{error}");
    }
    let narrow = Node::start_with(shared_plane(), "sandbox-no-network", "drivers: {exec: {enabled: true}}\n").await;
    let error = refused(&narrow, "network", task("exit 0")).await;
    assert!(error.contains("mode: none") && error.contains("allowHostNetwork"), "{error}");
    let generous = Node::start_with(shared_plane(), "sandbox-host-allowed", GENEROUS).await;
    let pid = std::process::id();
    let script = format!(
        "test -d /proc/{pid} && echo processes; readlink /proc/self/ns/ipc; cat /proc/{pid}/environ 2>/dev/null; true"
    );
    let log = said(&generous, "shared", with(&script, &json!({ "pidMode": "host", "ipcMode": "host" }))).await;
    let own = std::fs::read_link("/proc/self/ns/ipc").expect("a namespace");
    assert_eq!(log, format!("processes\n{}\n", own.display()), "it sees them, and nothing of them");
}

/// Makes a mount below a directory that is undone with it.
struct Submount(std::path::PathBuf);

impl Submount {
    fn at(path: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&path).expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, c"mode=777").expect("a mount");
        Self(path)
    }
}

impl Drop for Submount {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).expect("it was mounted");
    }
}

#[tokio::test]
async fn must_survive_x_014_mounts_below_what_is_read_only() {
    let host = tempfile::tempdir().expect("a directory");
    let (shown, volume) = (host.path().join("shown"), host.path().join("volume"));
    let (below_shown, below_volume) = (Submount::at(shown.join("below")), Submount::at(volume.join("below")));
    let config = format!(
        "drivers: {{exec: {{allowHostNetwork: true, hostPaths: [/bin, /lib, /lib64, /usr, {}]}}}}\nhostVolumes: {{frozen: {{path: {}, \
         readOnly: true}}, open: {{path: {}}}}}\n",
        shown.display(),
        volume.display(),
        volume.display()
    );
    let node = Node::start_with(shared_plane(), "sandbox-below", &config).await;
    let script = format!(
        "for dir in {0} {0}/below /frozen /frozen/below; do (echo x > $dir/file) 2>/dev/null && echo WROTE $dir; done; \
         echo x > /open/below/file && echo open; \
         cat /proc/self/mountinfo | grep -vE 'nosuid,nodev| /dev | /dev/pts | /null /proc/'; echo end",
        shown.display()
    );
    let mut writer = task(&script);
    writer["volumeMounts"] =
        json!([{ "volume": "frozen", "destination": "/frozen" }, { "volume": "open", "destination": "/open" }]);
    let group = json!({
        "tasks": [writer],
        "volumes": [
            { "name": "frozen", "type": "host", "source": "frozen", "readOnly": true },
            { "name": "open", "type": "host", "source": "open" },
        ],
    });
    node.job("below", JobType::Batch, group).await;
    let resources = TaskResources { cpu: 100, memory_mb: 32, ..TaskResources::default() };
    let resources = AllocatedResources { tasks: [("t".to_owned(), resources)].into(), ..AllocatedResources::default() };
    let ended = node.ended(&node.place("below", 0, resources).await).await;
    assert_eq!(node.log_of(&ended, "t.stdout.0"), "open\nend\n", "{}", messages(&ended, "t"));
    drop((below_shown, below_volume));
}

/// System calls that no task gets, each by number with harmless arguments: the kernel must refuse it before it looks at
/// them. What comes back is the error's number: 1 is EPERM, 38 ENOSYS.
const CALLS: &str = r"
import ctypes, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    answer = libc.syscall(*[ctypes.c_long(it) for it in arguments])
    return ctypes.get_errno() if answer < 0 else 'PASSED'
x86 = platform.machine() == 'x86_64'
NEWUSER = 0x10000000
tried = {
    'keyctl': call(250 if x86 else 219, 0, -3, 0),
    'add_key': call(248 if x86 else 217, 0, 0, 0, 0, 0),
    'bpf': call(321 if x86 else 280, 0, 0, 0),
    'perf_event_open': call(298 if x86 else 241, 0, 0, 0, 0, 0),
    'userfaultfd': call(323 if x86 else 282, 0),
    'io_uring_setup': call(425, 1, 0),
    'unshare': call(272 if x86 else 97, NEWUSER),
    'clone': call(56 if x86 else 220, NEWUSER | 17, 0, 0, 0, 0),
    'clone3': call(435, 0, 0),
    'mount': call(165 if x86 else 40, 0, 0, 0, 0, 0),
    'mount_setattr': call(442, -1, 0, 0, 0, 0),
    'pivot_root': call(155 if x86 else 41, 0, 0),
    'kexec_load': call(246 if x86 else 104, 0, 0, 0, 0),
    'open_by_handle_at': call(304 if x86 else 265, -1, 0, 0),
    'chroot': call(161 if x86 else 51, 0),
    'personality': call(135 if x86 else 92, 0x0040000),
    'newer than the table': call(500),
}
if x86:
    tried['x32 getpid'] = call(0x40000000 | 39)
    tried['x32 ptrace'] = call(0x40000000 | 521, 0, 0, 0, 0)
for family in ('AF_VSOCK', 'AF_ALG', 'AF_PACKET'):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
        try:
            socket.socket(getattr(socket, family), kind)
            tried[family] = 'PASSED'
        except OSError as error:
            tried[family] = error.errno
for name, answer in tried.items():
    print(name, answer)
socket.socketpair()
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
print('ordinary', os.getpid() > 0, call(135 if x86 else 92, 0xffffffff) in (0, 'PASSED'))
";

#[tokio::test]
async fn must_survive_x_015_system_calls() {
    let node = Node::start(shared_plane(), "sandbox-calls").await;
    let mut caller = task("");
    caller["config"]["command"] = json!("python3");
    caller["config"]["args"] = json!(["-c", CALLS]);
    let log = said(&node, "calls", caller).await;
    let mut lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.pop(), Some("ordinary True True"), "{log}");
    for line in lines {
        let wanted = if line.starts_with("clone3") || line.starts_with("newer") { " 38" } else { " 1" };
        assert!(line.ends_with(wanted), "{line}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn must_survive_x_040_writes_to_what_runs_tasks() {
    let node = Node::start(shared_plane(), "sandbox-own").await;
    // What keeps others out is the agent's own folder, not one above it.
    let beside = node.path("beside");
    std::fs::write(&beside, "of the host\n").expect("a file");
    let state = node.path("state");
    let program = state.join("bin/droverd-supervisor");
    let before = std::fs::read(&program).expect("the supervisor's copy of the program");
    let attempts = "for path in $STATE $STATE/bin/droverd-supervisor $STATE/supervisor.sock $STATE/agent.sock $STATE/agent.redb \
                    /proc/1/exe /proc/self/exe; do (echo x >> $path) 2>/dev/null && echo WROTE $path; done; \
                    for name in supervisor.sock agent.sock; do python3 -c 'import socket, sys; \
                    socket.socket(socket.AF_UNIX).connect(sys.argv[1])' $STATE/$name 2>/dev/null && echo REACHED $name; done; \
                    ls $STATE 2>/dev/null && echo LISTED; cat $BESIDE 2>/dev/null; echo end";
    let mut sandboxed = task(attempts);
    sandboxed["env"] = json!({ "STATE": state.display().to_string(), "BESIDE": beside.display().to_string() });
    assert_eq!(said(&node, "sandboxed", sandboxed.clone()).await, "end\n");
    // A user of the host without rights, outside of any sandbox.
    let mut plain = sandboxed;
    plain["driver"] = json!("raw_exec");
    plain["user"] = json!("nobody");
    assert_eq!(said(&node, "plain", plain).await, "of the host\nend\n");
    assert!(std::fs::read(&program).expect("the program") == before, "it is as it was");

    let cluster = crate::cluster::shared();
    let rendered =
        crate::helm::run(crate::helm::helm(&cluster, "drover-system", &["template", "drover", &crate::chart::chart()]));
    let rendered = crate::helm::said(&rendered.await, true);
    let objects: Vec<Value> = serde_saphyr::from_multiple(&rendered).expect("objects");
    let mut seen = 0;
    for object in objects
        .iter()
        .filter(|object| ["DaemonSet", "Deployment"].contains(&object["kind"].as_str().unwrap_or_default()))
    {
        let pod = &object["spec"]["template"]["spec"];
        let first = pod["initContainers"].as_array().into_iter().flatten();
        for container in pod["containers"].as_array().expect("containers").iter().chain(first) {
            assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{}", container["name"]);
            assert!(
                container["command"].is_null(),
                "the image's one program runs, and no shell: {}",
                container["name"]
            );
            seen += 1;
        }
    }
    assert_eq!(seen, 3, "the agent, the controller and the gateway");
}
