//! The supervisor as an agent sees it: real processes, its death, its power-off.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drover_supervisor::Launcher;
use drover_supervisor::client::{CallError, Client, Recovery};
use drover_supervisor::protocol::{Exit, Handle, LogSpec, RefusalCode, StartSpec};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::LONG;

/// How long a stopped task may take.
const KILL_AFTER: Duration = Duration::from_secs(20);

struct Bench {
    dir: tempfile::TempDir,
}

/// An agent's connection.
struct Link {
    client: Client,
    stop: CancellationToken,
    run: JoinHandle<()>,
}

impl Link {
    /// As when an agent dies: the supervisor only sees the connection end.
    async fn close(self) {
        self.stop.cancel();
        self.run.await.expect("the connection's task");
    }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["state", "alloc/a/alloc/logs", "fifo"] {
            std::fs::create_dir_all(dir.path().join(path)).expect("a directory");
        }
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn connect(&self) -> Link {
        let launcher =
            Launcher::new(self.path("state"), self.path("alloc"), PathBuf::from(env!("CARGO_BIN_EXE_droverd")));
        let stop = CancellationToken::new();
        let (client, run) = Client::new(launcher, stop.clone());
        #[expect(clippy::disallowed_methods, reason = "joined in close")]
        let run = tokio::spawn(run);
        Link { client, stop, run }
    }

    /// An allocation's id that no other test has: leftovers of a task are found by it.
    fn alloc(&self) -> String {
        self.dir.path().file_name().expect("a name").to_string_lossy().trim_start_matches('.').to_owned()
    }

    fn spec(&self, task: &str, script: &str) -> StartSpec {
        let text = |path: &str| self.path(path).to_string_lossy().into_owned();
        StartSpec {
            id: format!("{}/{task}/12345678", self.alloc()),
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("NOMAD_ALLOC_ID".into(), self.alloc()), ("NOMAD_TASK_NAME".into(), task.into())],
            work_dir: "/".into(),
            user: None,
            oom_score_adj: 0,
            logs: Some(LogSpec {
                alloc_dir: text("alloc/a"),
                fifo_dir: text("fifo"),
                task: task.into(),
                max_files: 3,
                max_file_bytes: 1 << 20,
            }),
            kill_timeout_ms: 1000,
            cgroup: None,
            sandbox: None,
        }
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path("alloc/a/alloc/logs").join(name)).unwrap_or_default()
    }

    fn supervisor_pid(&self) -> i32 {
        std::fs::read_to_string(self.path("state/supervisor.pid")).expect("pid file").trim().parse().expect("a pid")
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Ok(pid) = std::fs::read_to_string(self.path("state/supervisor.pid")) else { return };
        let Ok(pid) = pid.trim().parse() else { return };
        // It ends its tasks and removes their control groups.
        signal(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + LONG;
        while lives(pid) && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may have ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether this kernel keeps how a process ended for who holds a descriptor of it (Linux 6.15).
fn keeps_ends_for_pidfds() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|text| text.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

fn lives(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until something is seen.
async fn eventually(what: &str, mut seen: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !seen() {
        assert!(Instant::now() < deadline, "not seen in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn end(ended: tokio::sync::oneshot::Receiver<Exit>) -> Exit {
    tokio::time::timeout(LONG, ended).await.expect("an end in time").expect("an end")
}

async fn recover(link: &Link, handle: &Handle) -> Recovery {
    link.client.recover(handle.clone()).await.expect("an answer")
}

fn running(recovery: Recovery) -> tokio::sync::oneshot::Receiver<Exit> {
    match recovery {
        Recovery::Running(ended) => ended,
        Recovery::Gone => unreachable!("the task is gone"),
    }
}

#[tokio::test]
async fn output_and_exit_code_arrive() {
    let bench = Bench::new();
    let link = bench.connect();
    let (_, ended) = link.client.start(bench.spec("t", "echo out; echo err >&2; exit 3")).await.expect("started");
    assert_eq!(end(ended).await, Exit::code(3));
    assert_eq!((bench.log("t.stdout.0").as_str(), bench.log("t.stderr.0").as_str()), ("out\n", "err\n"));
    assert!(std::fs::read_dir(bench.path("fifo")).expect("a directory").next().is_none(), "fifos are removed");
    link.client.acknowledge(&format!("{}/t/12345678", bench.alloc())).await.expect("acknowledged");
    link.close().await;
}

#[tokio::test]
async fn a_097_a_process_that_ends_by_sigterm_exits_143() {
    let bench = Bench::new();
    let link = bench.connect();
    let (handle, ended) = link.client.start(bench.spec("t", "sleep 100")).await.expect("started");
    link.client.stop(&handle.id, libc::SIGTERM, KILL_AFTER).await.expect("stopped");
    assert_eq!(end(ended).await, Exit::signal(15));
    link.close().await;
}

#[tokio::test]
async fn a_134_nothing_of_the_group_or_session_remains() {
    let bench = Bench::new();
    let link = bench.connect();
    // One child in the group, one in a group of its own, one in a session of its own; all ignore SIGTERM.
    let script = "trap '' TERM; sleep 1000 & echo $!; setsid sleep 1001 & setsid -f sh -c 'echo $$; exec sleep 1002'; echo $$; wait";
    let (handle, ended) = link.client.start(bench.spec("t", script)).await.expect("started");
    eventually("three pids", || bench.log("t.stdout.0").lines().count() == 3).await;
    let pids: Vec<i32> = bench.log("t.stdout.0").lines().map(|line| line.parse().expect("a pid")).collect();
    link.client.stop(&handle.id, libc::SIGTERM, Duration::from_millis(100)).await.expect("stopped");
    assert_eq!(end(ended).await, Exit::signal(9));
    assert!(pids.iter().all(|pid| !lives(*pid)), "a process outlived its task");
    link.close().await;
}

#[tokio::test]
async fn a_task_that_is_stopped_on_its_way_ends_and_another_of_its_id_begins() {
    let bench = Bench::new();
    let link = bench.connect();
    let id = format!("{}/t/12345678", bench.alloc());
    for _ in 0..10 {
        let start = link.client.start(bench.spec("t", "echo $$; exec sleep 1000"));
        let stop = link.client.stop(&id, libc::SIGKILL, Duration::ZERO);
        let (started, stopped) = tokio::join!(start, stop);
        stopped.expect("stopped");
        match started {
            Ok((_, ended)) => assert_eq!(end(ended).await, Exit::signal(9)),
            Err(CallError::Refused(refusal)) => assert!(refusal.message.contains("stopped"), "{refusal}"),
            Err(error) => panic!("{error}"),
        }
        let deadline = Instant::now() + LONG;
        // What never was a task is forgotten when it has ended.
        while link.client.acknowledge(&id).await.is_err() {
            assert!(Instant::now() < deadline, "it does not end");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    for path in ["t.stdout.0", "t.stdout.1"] {
        let pids = bench.log(path);
        assert!(pids.lines().all(|pid| !lives(pid.parse().expect("a pid"))), "a process outlived its task: {pids}");
    }
    link.close().await;
}

#[tokio::test]
async fn tasks_that_start_at_the_same_time_have_each_their_own_end() {
    let bench = Bench::new();
    let link = bench.connect();
    let starts = (0..24).map(|n| {
        let spec = bench.spec(&format!("t{n}"), &format!("echo {n}; exit {n}"));
        let client = &link.client;
        async move { client.start(spec).await.expect("started") }
    });
    let ends = futures::future::join_all(starts).await;
    for (n, (_, ended)) in (0..).zip(ends) {
        assert_eq!(end(ended).await, Exit::code(n));
        assert_eq!(bench.log(&format!("t{n}.stdout.0")), format!("{n}\n"));
    }
    link.close().await;
}

#[tokio::test]
async fn a_missing_command_is_refused_and_leaves_nothing() {
    let bench = Bench::new();
    let link = bench.connect();
    let spec = StartSpec { command: "/does/not/exist".into(), ..bench.spec("t", "") };
    let error = link.client.start(spec).await.expect_err("refused");
    let CallError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.code, RefusalCode::Invalid);
    assert!(refusal.message.contains("/does/not/exist"), "{}", refusal.message);
    assert!(std::fs::read_dir(bench.path("fifo")).expect("a directory").next().is_none(), "fifos are removed");
    link.close().await;
}

#[tokio::test]
async fn an_agents_death_leaves_tasks_and_their_output_alone() {
    let bench = Bench::new();
    let link = bench.connect();
    let script = "n=0; while [ $n -lt 200 ]; do n=$((n+1)); echo $n; sleep 0.01; done; exit 7";
    let (handle, _) = link.client.start(bench.spec("t", script)).await.expect("started");
    link.close().await;
    let link = bench.connect();
    let again = running(recover(&link, &handle).await);
    assert_eq!(end(again).await, Exit::code(7));
    let log = bench.log("t.stdout.0");
    let numbers: Vec<usize> = log.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>(), "no gap and no repeat");
    link.close().await;
}

#[tokio::test]
async fn an_exit_is_kept_until_an_agent_acknowledges_it() {
    let bench = Bench::new();
    let link = bench.connect();
    let (handle, _) = link.client.start(bench.spec("t", "exit 5")).await.expect("started");
    link.close().await;
    eventually("the end of the task", || !lives(handle.pid)).await;
    for _ in 0..2 {
        let link = bench.connect();
        assert_eq!(end(running(recover(&link, &handle).await)).await, Exit::code(5));
        link.close().await;
    }
    let link = bench.connect();
    let ended = running(recover(&link, &handle).await);
    assert_eq!(end(ended).await, Exit::code(5));
    link.client.acknowledge(&handle.id).await.expect("acknowledged");
    assert!(matches!(recover(&link, &handle).await, Recovery::Gone));
    link.close().await;
}

#[tokio::test]
async fn a_supervisors_death_leaves_tasks_alive_and_a_new_one_takes_over() {
    let bench = Bench::new();
    let link = bench.connect();
    let script =
        "trap '' PIPE; n=0; while [ ! -e go ]; do n=$((n+1)); echo $n || exit 9; sleep 0.01; done; echo done; exit 4";
    let spec = StartSpec { work_dir: bench.path("alloc").to_string_lossy().into_owned(), ..bench.spec("t", script) };
    let (handle, ended) = link.client.start(spec).await.expect("started");
    let first = bench.supervisor_pid();
    eventually("some output", || bench.log("t.stdout.0").lines().count() > 3).await;
    signal(first, rustix::process::Signal::KILL);
    eventually("a new supervisor", || bench.supervisor_pid() != first).await;
    assert!(lives(handle.pid));
    let seen = bench.log("t.stdout.0").lines().count();
    eventually("more output", || bench.log("t.stdout.0").lines().count() > seen + 3).await;
    std::fs::write(bench.path("alloc/go"), "").expect("a file");
    let exit = end(ended).await;
    if keeps_ends_for_pidfds() {
        assert_eq!(exit, Exit::code(4), "the exit code of a task that is nobody's child");
    } else {
        assert_eq!((exit.code, exit.signal), (-1, 0), "{exit:?}");
    }
    let log = bench.log("t.stdout.0");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.last(), Some(&"done"));
    for (n, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(line.parse(), Ok(n + 1), "a gap or a repeat");
    }
    link.close().await;
}

#[tokio::test]
async fn end_and_last_words_of_a_task_that_dies_with_its_supervisor_are_the_kernels_to_tell() {
    let bench = Bench::new();
    let link = bench.connect();
    let spec = StartSpec {
        work_dir: bench.path("alloc").to_string_lossy().into_owned(),
        ..bench.spec("t", "while [ ! -e go ]; do sleep 0.01; done; echo last; echo words >&2; exit 5")
    };
    let (handle, ended) = link.client.start(spec).await.expect("started");
    let first = bench.supervisor_pid();
    // Stopped, the supervisor cannot see the end of the task.
    signal(first, rustix::process::Signal::STOP);
    std::fs::write(bench.path("alloc/go"), "").expect("a file");
    eventually("the task's end", || !lives(handle.pid)).await;
    signal(first, rustix::process::Signal::KILL);
    let exit = end(ended).await;
    if keeps_ends_for_pidfds() {
        assert_eq!(exit, Exit::code(5));
    } else {
        assert_eq!((exit.code, exit.signal), (-1, 0), "{exit:?}");
    }
    assert_eq!((bench.log("t.stdout.0").as_str(), bench.log("t.stderr.0").as_str()), ("last\n", "words\n"));
    assert!(std::fs::read_dir(bench.path("fifo")).expect("a directory").next().is_none(), "fifos are removed");
    link.close().await;
}

#[tokio::test]
async fn no_byte_is_lost_or_there_twice_however_often_the_supervisor_is_killed_while_a_task_writes() {
    const KILLS: usize = 25;
    let bench = Bench::new();
    let link = bench.connect();
    // Without a pause: whenever it is killed, the supervisor is just collecting.
    let script = "n=0; while [ ! -e go ]; do n=$((n+1)); echo $n; done";
    let work_dir = bench.path("alloc").to_string_lossy().into_owned();
    let mut spec = StartSpec { work_dir, ..bench.spec("t", script) };
    let logs = spec.logs.as_mut().expect("logs");
    (logs.max_files, logs.max_file_bytes) = (100_000, 100_000);
    let (_, ended) = link.client.start(spec).await.expect("started");
    let n_files = || std::fs::read_dir(bench.path("alloc/a/alloc/logs")).expect("a folder").count();
    for kill in 0..KILLS {
        let (pid, seen) = (bench.supervisor_pid(), n_files());
        eventually(&format!("output after {kill} kills"), || n_files() > seen).await;
        signal(pid, rustix::process::Signal::KILL);
        eventually("a new supervisor", || bench.supervisor_pid() != pid).await;
    }
    std::fs::write(bench.path("alloc/go"), "").expect("a file");
    end(ended).await;
    let logs =
        (0..).map_while(|n| std::fs::read_to_string(bench.path(&format!("alloc/a/alloc/logs/t.stdout.{n}"))).ok());
    // A line may go on in the next file.
    let text: String = logs.collect();
    let mut counted = 0_u64;
    for line in text.lines() {
        counted += 1;
        assert_eq!(line.parse(), Ok(counted), "a gap or a repeat");
    }
    assert!(counted > 0);
    link.close().await;
}

#[tokio::test]
async fn sigterm_ends_every_task_and_leaves_nothing() {
    let bench = Bench::new();
    let link = bench.connect();
    let (gentle, _) =
        link.client.start(bench.spec("gentle", "trap 'exit 0' TERM; sleep 100 & wait")).await.expect("started");
    let (stubborn, _) =
        link.client.start(bench.spec("stubborn", "trap '' TERM; while :; do sleep 1; done")).await.expect("started");
    link.close().await;
    let supervisor = bench.supervisor_pid();
    signal(supervisor, rustix::process::Signal::TERM);
    eventually("the end of the supervisor", || !lives(supervisor)).await;
    assert!(!lives(gentle.pid) && !lives(stubborn.pid));
    assert!(!bench.path("state/supervisor.sock").exists());
    assert!(std::fs::read_dir(bench.path("fifo")).expect("a directory").next().is_none(), "fifos are removed");
}

#[tokio::test]
async fn strangers_are_ended() {
    let bench = Bench::new();
    let link = bench.connect();
    let (known, _) = link.client.start(bench.spec("known", "sleep 100")).await.expect("started");
    let (stranger, _) = link.client.start(bench.spec("stranger", "sleep 100")).await.expect("started");
    link.close().await;
    let link = bench.connect();
    let _known = running(recover(&link, &known).await);
    assert_eq!(link.client.end_strangers().await.expect("an answer"), 1);
    eventually("the stranger's end", || !lives(stranger.pid)).await;
    assert!(lives(known.pid));
    link.close().await;
}

#[tokio::test]
async fn an_upgrade_in_place_touches_no_task_and_loses_no_output() {
    let bench = Bench::new();
    let link = bench.connect();
    let script = "n=0; while [ ! -e go ]; do n=$((n+1)); echo $n; sleep 0.002; done; exit 6";
    let spec = StartSpec { work_dir: bench.path("alloc").to_string_lossy().into_owned(), ..bench.spec("t", script) };
    let (handle, ended) = link.client.start(spec).await.expect("started");
    let (stubborn, killed) =
        link.client.start(bench.spec("stubborn", "trap '' TERM; while :; do sleep 0.1; done")).await.expect("started");
    let (quick, done) = link.client.start(bench.spec("quick", "exit 5")).await.expect("started");
    assert_eq!(end(done).await, Exit::code(5));
    link.client.stop(&stubborn.id, libc::SIGTERM, Duration::from_secs(2)).await.expect("asked");
    let pid = bench.supervisor_pid();
    for round in 0..3 {
        let program = bench.path(&format!("droverd-{round}"));
        std::fs::copy(env!("CARGO_BIN_EXE_droverd"), &program).expect("a copy");
        let seen = bench.log("t.stdout.0").lines().count();
        link.client.upgrade(&program).await.expect("upgraded");
        eventually("the new program", || {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
        })
        .await;
        eventually("more output", || bench.log("t.stdout.0").lines().count() > seen + 20).await;
    }
    let refused = link.client.upgrade(Path::new("/no/such/program")).await.expect_err("refused").to_string();
    assert!(refused.contains("/no/such/program"), "{refused}");
    assert_eq!(bench.supervisor_pid(), pid, "the same process");
    assert!(lives(handle.pid));
    assert_eq!(end(killed).await, Exit::signal(9), "a stop under way is carried out");
    std::fs::write(bench.path("alloc/go"), "").expect("a file");
    assert_eq!(end(ended).await, Exit::code(6), "it is still the parent");
    for (n, line) in bench.log("t.stdout.0").lines().enumerate() {
        assert_eq!(line.parse(), Ok(n + 1), "a gap or a repeat");
    }
    link.close().await;
    let link = bench.connect();
    assert_eq!(end(running(recover(&link, &quick).await)).await, Exit::code(5), "an unacknowledged end is kept");
    link.close().await;
}

#[tokio::test]
async fn only_one_supervisor_serves_a_folder() {
    let bench = Bench::new();
    let link = bench.connect();
    let (_, ended) = link.client.start(bench.spec("t", "exit 0")).await.expect("started");
    assert!(end(ended).await.is_success());
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_droverd"))
        .args(["supervisor", "--state-dir"])
        .arg(Path::new(&bench.path("state")))
        .arg("--alloc-dir")
        .arg(bench.path("alloc"))
        .output()
        .expect("run");
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("another supervisor"), "{second:?}");
    link.close().await;
}

#[tokio::test]
async fn two_hundred_tasks_started_at_once_all_run_and_all_end() {
    let bench = Bench::new();
    let link = bench.connect();
    let (_, ended) = link.client.start(bench.spec("first", "exit 0")).await.expect("started");
    assert!(end(ended).await.is_success());
    let specs: Vec<StartSpec> = (0..200).map(|n| bench.spec(&format!("t{n}"), "exec sleep 1000")).collect();
    let started = futures::future::join_all(specs.into_iter().map(|spec| link.client.start(spec))).await;
    let handles: Vec<Handle> = started.into_iter().map(|result| result.expect("started").0).collect();
    assert_eq!(handles.len(), 200);
    assert!(handles.iter().all(|handle| lives(handle.pid)));
    link.close().await;
    let supervisor = bench.supervisor_pid();
    signal(supervisor, rustix::process::Signal::TERM);
    eventually("the end of the supervisor", || !lives(supervisor)).await;
    assert!(handles.iter().all(|handle| !lives(handle.pid)));
}
