//! The agent's socket as a client sees it: a real socket, real files, and runners that answer as a test wants.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use drover_api::allocation::{ClientStatus, TaskRunState, TaskState};
use drover_api::{Allocation, AllocationSpec};
use drover_clock::SystemClock;
use drover_socket::client::{self, Exchange, Reply};
use drover_socket::protocol::{self, Answer, Frame, FrameKind, LogStream, Origin, Request, VolumeChange};
use drover_store::Key;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::folder_news::FolderNews;
use super::{Caller, Server};
use crate::allocations::commands::{AllocCommand, RestartScope};
use crate::allocations::directory::{Directory, Listed};
use crate::node::alloc_dir::AllocDir;
use crate::node::facts::MetaHandle;
use crate::node::host_volumes::{VolumeFolders, Volumes};
use crate::reporting::report::Report;
use crate::reporting::reports::Reports;
use crate::state::{MemoryState, StateStore};
use crate::tasks::commands::CommandError;

const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";

/// An agent's socket and one allocation with the tasks `web` and `side`.
struct Agent {
    dir: tempfile::TempDir,
    alloc: AllocDir,
    directory: Directory,
    reports: Reports,
    /// What the allocation's runner was asked, in words.
    asked: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    server: Server,
    _serving: JoinSet<()>,
}

impl Agent {
    /// Whose runner answers so.
    async fn new(answer: impl Fn() -> Result<(), CommandError> + Send + 'static) -> Self {
        Self::with_state(answer, MemoryState::default().store()).await
    }

    async fn with_state(answer: impl Fn() -> Result<(), CommandError> + Send + 'static, state: StateStore) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let alloc = AllocDir::new(&dir.path().join("allocs"), UID);
        fs::create_dir_all(alloc.root().join("alloc/logs")).expect("a directory");
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("agent.sock")).expect("an earlier agent's socket"));
        let (commands, queue) = mpsc::channel(1);
        let directory = Directory::default();
        let key = Key { namespace: Some("shop".to_owned()), name: "web-g-0".to_owned() };
        let tasks = vec!["web".to_owned(), "side".to_owned()];
        directory.enter(UID, Listed { key, commands, dir: alloc.clone(), tasks });
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        serving.spawn(run(queue, Arc::clone(&asked), answer));
        let (facts, mut told) = mpsc::channel(8);
        serving.spawn(async move { while told.recv().await.is_some() {} });
        let (reports, stop) = (Reports::default(), CancellationToken::new());
        reports.observe(UID, Arc::new(Allocation::new("web-g-0", AllocationSpec::default())));
        let (news, signs) = FolderNews::open().expect("a descriptor");
        serving.spawn(signs);
        let server = Server {
            news: Some(news),
            directory: directory.clone(),
            reports: reports.clone(),
            clock: Arc::new(SystemClock),
            meta: MetaHandle::new(
                BTreeMap::from([("rack".to_owned(), "r1".to_owned())]),
                BTreeMap::new(),
                state.clone(),
                facts.clone(),
            ),
            volumes: Volumes::new(
                VolumeFolders { made: dir.path().join("volumes"), ..VolumeFolders::default() },
                state,
                facts,
            ),
            alloc_dir: dir.path().to_owned(),
            stop: stop.clone(),
        };
        serving.spawn(server.clone().run(dir.path().to_owned()));
        let agent = Self { dir, alloc, directory, reports, asked, stop, server, _serving: serving };
        while UnixStream::connect(agent.socket()).await.is_err() {
            tokio::task::yield_now().await;
        }
        agent
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    /// Everything that is answered to a request.
    async fn replies(&self, request: &Request) -> Vec<Reply> {
        let mut exchange = client::ask(&self.socket(), request).await.expect("a connection");
        let mut replies = Vec::new();
        while let Some(reply) = exchange.replies.next().await.expect("a reply") {
            replies.push(reply);
        }
        replies
    }

    async fn last(&self, request: &Request) -> Answer {
        match self.replies(request).await.pop() {
            Some(Reply::Answer(answer)) => answer,
            other => panic!("no answer but {other:?}"),
        }
    }

    async fn refused(&self, request: &Request) -> (u16, String) {
        match self.last(request).await {
            Answer::Error { code, message } => (code, message),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// What a gateway is answered that has found this uid under a name in `shop`.
    async fn told_to_gateway(&self, uid: &str, request: &Request) -> Answer {
        let caller = Caller::Gateway { namespace: "shop".to_owned(), uid: uid.to_owned() };
        let asks = protocol::message(request).and_then(|frame| protocol::encode(&frame)).expect("a frame");
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        self.server.clone().converse(caller, Box::new(std::io::Cursor::new(asks)), Box::new(theirs)).await;
        match Exchange::over(ours, tokio::io::sink()).replies.next().await.expect("a reply") {
            Some(Reply::Answer(answer)) => answer,
            other => panic!("no answer but {other:?}"),
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic while it was held").drain(..).collect()
    }

    fn write_log(&self, name: &str, text: &str) {
        fs::write(self.alloc.root().join("alloc/logs").join(name), text).expect("a file");
    }

    fn report(&self, task: &str, state: TaskRunState) {
        let states = [(task.to_owned(), TaskState { state, ..TaskState::default() })];
        let report = Report { client_status: ClientStatus::Running, task_states: states.into(), ..Report::default() };
        self.reports.put(UID, report);
    }
}

/// The allocation's runner.
async fn run(
    mut queue: mpsc::Receiver<AllocCommand>,
    asked: Arc<Mutex<Vec<String>>>,
    answer: impl Fn() -> Result<(), CommandError>,
) {
    while let Some(command) = queue.recv().await {
        let (text, to) = match command {
            AllocCommand::Restart { scope: RestartScope::Task(task), answer } => (format!("restart {task}"), answer),
            AllocCommand::Restart { scope: RestartScope::Running, answer } => ("restart running".to_owned(), answer),
            AllocCommand::Restart { scope: RestartScope::All, answer } => ("restart all".to_owned(), answer),
            AllocCommand::Signal { task, signal, answer } => (format!("{signal} to {task:?}"), answer),
            AllocCommand::Stop { answer } => ("stop".to_owned(), answer),
            AllocCommand::Locate { answer, .. } => {
                drop(answer.send(Err(CommandError::NotRunning)));
                continue;
            }
        };
        asked.lock().expect("no panic while it was held").push(text);
        drop(to.send(answer()));
    }
}

fn text(replies: &[Reply]) -> String {
    let data = replies.iter().filter_map(|reply| if let Reply::Data(bytes) = reply { Some(&bytes[..]) } else { None });
    String::from_utf8(data.flatten().copied().collect()).expect("text")
}

fn logs(allocation: &str, origin: Origin, offset: u64, follow: bool) -> Request {
    let (allocation, task) = (allocation.to_owned(), "web".to_owned());
    Request::Logs { allocation, task, stream: LogStream::Stdout, origin, offset, file: None, follow }
}

/// Each agent here takes the place of one that was killed and has left its socket.
#[tokio::test]
async fn the_socket_is_its_owners_alone() {
    let agent = Agent::new(|| Ok(())).await;
    let mode = fs::metadata(agent.socket()).expect("a socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn connections_end_with_the_agent() {
    let agent = Agent::new(|| Ok(())).await;
    agent.report("web", TaskRunState::Running);
    agent.write_log("web.stdout.0", "one\n");
    let mut exchange = client::ask(&agent.socket(), &logs(UID, Origin::Start, 0, true)).await.expect("a connection");
    agent.stop.cancel();
    while let Ok(Some(reply)) = exchange.replies.next().await {
        assert_ne!(reply, Reply::Answer(Answer::Done), "the task is not dead");
    }
}

#[tokio::test]
async fn g_028_one_that_was_made_anew_under_its_name_is_not_the_one_that_a_gateway_has_found() {
    let agent = Agent::new(|| Ok(())).await;
    let stop = |id: &str| Request::Stop { allocation: id.to_owned() };
    // The one before it, its start, its name, and what the two have in common.
    let before = "0a1b2c3d-9999-2222-3333-444455556666";
    for (found, asked) in [
        (before, before),
        (before, UID),
        (UID, before),
        ("0a1b2c3d", "0a1b2c3d"),
        ("web-g-0", "web-g-0"),
        (UID, "web-g-0"),
    ] {
        let Answer::Error { code, message } = agent.told_to_gateway(found, &stop(asked)).await else {
            panic!("{found}: {asked} is stopped");
        };
        assert_eq!((code, message.as_str()), (404, "the allocation is not on this node"), "{found}: {asked}");
    }
    assert!(agent.asked().is_empty());
    assert_eq!((agent.told_to_gateway(UID, &stop(UID)).await, agent.asked()), (Answer::Done, vec!["stop".to_owned()]));
}

#[tokio::test]
async fn an_allocation_is_found_by_its_uid_the_start_of_it_or_its_name() {
    let agent = Agent::new(|| Ok(())).await;
    for id in [UID, "0a1b2c3d", "shop/web-g-0", "web-g-0"] {
        let stop = Request::Stop { allocation: id.to_owned() };
        assert_eq!((agent.last(&stop).await, agent.asked()), (Answer::Done, vec!["stop".to_owned()]), "{id}");
    }
    for id in ["other", "shop/other", ""] {
        let (code, message) = agent.refused(&Request::Stop { allocation: id.to_owned() }).await;
        assert_eq!(code, 404, "{id}");
        assert_eq!(message, format!("unknown allocation {id:?} on this node: `drover alloc list` shows all"));
    }
    assert!(agent.asked().is_empty());
}

#[tokio::test]
async fn what_runs_is_listed_with_its_states() {
    let agent = Agent::new(|| Ok(())).await;
    agent.report("web", TaskRunState::Running);
    let Answer::Allocations(all) = agent.last(&Request::Allocations).await else { panic!("no list") };
    assert_eq!(all.len(), 1);
    let one = &all[0];
    assert_eq!((&*one.id, &*one.namespace, &*one.name, &*one.client_status), (UID, "shop", "web-g-0", "running"));
    assert_eq!(one.tasks, BTreeMap::from([("web".to_owned(), "running".to_owned())]));
}

#[tokio::test]
async fn requests_reach_the_runner_as_they_were_meant() {
    let agent = Agent::new(|| Ok(())).await;
    let restart = |task: Option<&str>, all_tasks| Request::Restart {
        allocation: UID.to_owned(),
        task: task.map(str::to_owned),
        all_tasks,
    };
    for (request, wanted) in [
        (restart(Some("web"), false), "restart web"),
        (restart(None, false), "restart running"),
        (restart(None, true), "restart all"),
        (
            Request::Signal { allocation: UID.into(), task: Some("web".into()), signal: "SIGHUP".into() },
            "SIGHUP to Some(\"web\")",
        ),
        (Request::Signal { allocation: UID.into(), task: None, signal: "HUP".into() }, "HUP to None"),
    ] {
        assert_eq!((agent.last(&request).await, agent.asked()), (Answer::Done, vec![wanted.to_owned()]));
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_before_the_runner_hears_of_them() {
    let agent = Agent::new(|| Ok(())).await;
    let exec = |task: &str, command: &[&str]| Request::Exec {
        allocation: UID.into(),
        task: task.into(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        tty: false,
        size: None,
    };
    let unknown_task = "unknown task \"db\": the allocation has web, side";
    for (request, message) in [
        (
            Request::Restart { allocation: UID.into(), task: Some("web".into()), all_tasks: true },
            "task and allTasks exclude each other: give one",
        ),
        (
            Request::Signal { allocation: UID.into(), task: None, signal: "SIGNOTHING".into() },
            "SIGNOTHING is no signal: give a name as SIGHUP",
        ),
        (exec("web", &[]), "command is empty: name a program"),
        (exec("db", &["ls"]), unknown_task),
        (
            Request::Logs {
                allocation: UID.into(),
                task: "db".into(),
                stream: LogStream::Stdout,
                origin: Origin::Start,
                offset: 0,
                file: None,
                follow: false,
            },
            unknown_task,
        ),
    ] {
        assert_eq!(agent.refused(&request).await, (400, message.to_owned()));
    }
    assert!(agent.asked().is_empty());
    assert_eq!(agent.refused(&exec("web", &["ls"])).await, (404, "Task not running".to_owned()));
}

#[tokio::test]
async fn a_runners_refusal_comes_back_with_a_code_that_says_whose_fault_it_is() {
    let refusals: [(fn() -> CommandError, u16); 6] = [
        (|| CommandError::NotRunning, 404),
        (|| CommandError::UnknownTask("x".into()), 400),
        (|| CommandError::NotWanted, 400),
        (|| CommandError::Busy, 500),
        (|| CommandError::Driver("no".into()), 500),
        (|| CommandError::Several("no".into()), 500),
    ];
    for (refusal, code) in refusals {
        let agent = Agent::new(move || Err(refusal())).await;
        let stop = Request::Stop { allocation: UID.into() };
        assert_eq!(agent.refused(&stop).await, (code, refusal().to_string()));
    }
}

#[tokio::test]
async fn a_runner_that_has_just_ended_is_said_to_be_gone() {
    let agent = Agent::new(|| Ok(())).await;
    let (_, listed) = agent.directory.find(UID).expect("listed");
    agent.directory.enter(UID, Listed { commands: mpsc::channel(1).0, ..listed });
    let gone = (404, "the allocation has just been given up".to_owned());
    assert_eq!(agent.refused(&Request::Stop { allocation: UID.into() }).await, gone);
}

#[tokio::test]
async fn output_is_read_over_rotated_files_as_one_stream() {
    let agent = Agent::new(|| Ok(())).await;
    let missing = (404, "task web has no such output yet".to_owned());
    assert_eq!(agent.refused(&logs(UID, Origin::Start, 0, false)).await, missing);
    agent.write_log("web.stdout.3", "three\n");
    agent.write_log("web.stdout.10", "ten\n");
    agent.write_log("web.stderr.3", "an error\n");
    agent.write_log("webhook.stdout.3", "of another task\n");
    for (origin, offset, wanted) in [
        (Origin::Start, 0, "three\nten\n"),
        (Origin::Start, 2, "ree\nten\n"),
        (Origin::Start, 6, "ten\n"),
        (Origin::End, 4, "ten\n"),
        (Origin::End, 6, "e\nten\n"),
        (Origin::End, 1000, "three\nten\n"),
        (Origin::Start, 1000, ""),
    ] {
        let replies = agent.replies(&logs(UID, origin, offset, false)).await;
        assert_eq!(text(&replies), wanted, "{origin:?} {offset}");
        assert_eq!(replies.last(), Some(&Reply::Answer(Answer::Done)));
    }
    let replies = agent.replies(&logs("shop/web-g-0", Origin::Start, 2, false)).await;
    let places: Vec<_> = replies
        .iter()
        .filter_map(|reply| match reply {
            Reply::Answer(Answer::At { file, offset }) => Some((&**file, *offset)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [("alloc/logs/web.stdout.3", 2), ("alloc/logs/web.stdout.10", 0)]);
}

#[tokio::test]
async fn followed_output_goes_on_until_the_task_is_dead() {
    let agent = Agent::new(|| Ok(())).await;
    agent.report("web", TaskRunState::Running);
    agent.write_log("web.stdout.0", "one\n");
    let mut exchange = client::ask(&agent.socket(), &logs(UID, Origin::Start, 0, true)).await.expect("a connection");
    let mut seen = String::new();
    let mut next = async |until: &str| {
        while !seen.ends_with(until) {
            match exchange.replies.next().await.expect("a reply").expect("more") {
                Reply::Data(bytes) => seen.push_str(&String::from_utf8(bytes).expect("text")),
                Reply::Answer(Answer::Done) => seen.push_str("[done]"),
                Reply::Answer(_) | Reply::ErrorData(_) => {}
            }
        }
        seen.clone()
    };
    assert_eq!(next("one\n").await, "one\n");
    agent.write_log("web.stdout.1", "two\n");
    assert_eq!(next("two\n").await, "one\ntwo\n");
    // What is written before the end is still sent.
    agent.write_log("web.stdout.2", "three\n");
    agent.report("web", TaskRunState::Dead);
    assert_eq!(next("[done]").await, "one\ntwo\nthree\n[done]");
}

#[tokio::test]
async fn files_are_listed_described_and_read_beneath_the_allocations_directory() {
    let agent = Agent::new(|| Ok(())).await;
    let local = agent.alloc.root().join("web/local");
    fs::create_dir_all(local.join("sub")).expect("a directory");
    fs::write(local.join("data.json"), "0123456789").expect("a file");
    let (allocation, path) = (UID.to_owned(), "web/local".to_owned());
    let replies = agent.replies(&Request::List { allocation: allocation.clone(), path }).await;
    let [Reply::Answer(Answer::Files(files)), Reply::Answer(Answer::Done)] = &replies[..] else {
        panic!("{replies:?}")
    };
    let names: Vec<_> = files.iter().map(|file| (&*file.name, file.is_dir, file.size)).collect();
    assert_eq!((names[0], names[1].0, names[1].1), (("data.json", false, 10), "sub", true));

    let path = "web/local/data.json".to_owned();
    let replies = agent.replies(&Request::Stat { allocation: allocation.clone(), path: path.clone() }).await;
    let Some(Reply::Answer(Answer::File(file))) = replies.first() else { panic!("{replies:?}") };
    assert_eq!((&*file.name, file.size, &*file.content_type), ("data.json", 10, "application/json"));

    for (origin, offset, limit, wanted) in [
        (Origin::Start, 0, None, "0123456789"),
        (Origin::Start, 3, Some(4), "3456"),
        (Origin::End, 3, None, "789"),
        (Origin::Start, 20, None, ""),
        (Origin::Start, 0, Some(0), ""),
    ] {
        let read = Request::Read { allocation: allocation.clone(), path: path.clone(), origin, offset, limit };
        assert_eq!(text(&agent.replies(&read).await), wanted, "{origin:?} {offset} {limit:?}");
    }
    for (path, code) in [("../../etc", 400), ("web/none", 404), ("web/secrets/token", 403)] {
        let read = Request::Read {
            allocation: allocation.clone(),
            path: path.to_owned(),
            origin: Origin::Start,
            offset: 0,
            limit: None,
        };
        assert_eq!(agent.refused(&read).await.0, code, "{path}");
    }
}

#[tokio::test]
async fn a_followed_file_is_read_as_it_grows_again_from_its_beginning_when_it_is_cut_and_until_it_is_gone() {
    let agent = Agent::new(|| Ok(())).await;
    let local = agent.alloc.root().join("web/local");
    fs::create_dir_all(&local).expect("a directory");
    let file = local.join("data");
    fs::write(&file, "0123456789").expect("a file");
    let (allocation, path) = (UID.to_owned(), "web/local/data".to_owned());
    let follow = Request::Follow { allocation: allocation.clone(), path, origin: Origin::End, offset: 3 };
    let mut exchange = client::ask(&agent.socket(), &follow).await.expect("a connection");
    let mut next = async || match exchange.replies.next().await.expect("a reply").expect("more") {
        Reply::Answer(Answer::At { offset, .. }) => format!("at {offset}"),
        Reply::Data(bytes) => String::from_utf8(bytes).expect("text"),
        other => format!("{other:?}"),
    };
    assert_eq!((next().await, next().await), ("at 7".to_owned(), "789".to_owned()));
    let mut added = fs::OpenOptions::new().append(true).open(&file).expect("opened");
    std::io::Write::write_all(&mut added, b"ab").expect("written");
    assert_eq!(next().await, "ab", "it goes on where it was");
    fs::write(&file, "new").expect("cut short");
    let cut = (next().await, next().await);
    assert!(cut == ("at 0".to_owned(), "new".to_owned()), "{cut:?}");
    fs::rename(&file, local.join("other")).expect("renamed");
    assert_eq!(next().await, "Answer(Done)");

    for (path, code) in [("web/local/data", 404), ("web/secrets/token", 403), ("../x", 400)] {
        let (allocation, path) = (allocation.clone(), path.to_owned());
        let follow = Request::Follow { allocation, path, origin: Origin::Start, offset: 0 };
        assert_eq!(agent.refused(&follow).await.0, code);
    }
}

#[tokio::test]
async fn a_large_directory_comes_in_parts() {
    let agent = Agent::new(|| Ok(())).await;
    let many = agent.alloc.root().join("web/local");
    fs::create_dir_all(&many).expect("a directory");
    for n in 0..2500 {
        fs::write(many.join(format!("f{n:04}")), "").expect("a file");
    }
    let replies = agent.replies(&Request::List { allocation: UID.into(), path: "web/local".into() }).await;
    let parts: Vec<usize> = replies
        .iter()
        .filter_map(|reply| if let Reply::Answer(Answer::Files(part)) = reply { Some(part.len()) } else { None })
        .collect();
    assert_eq!(parts, [1000, 1000, 500]);
}

#[tokio::test]
async fn metadata_is_shown_with_where_it_comes_from_and_changed_or_refused_whole() {
    let agent = Agent::new(|| Ok(())).await;
    let change = |changes: &[(&str, Option<&str>)]| Request::SetMeta {
        changes: changes.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect(),
    };
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let Answer::Meta(meta) = agent.last(&change(&[("zone", Some("a")), ("rack", None)])).await else {
        panic!("not changed")
    };
    assert_eq!(meta.meta, BTreeMap::from([pair("zone", "a")]), "a configured key can be hidden");
    assert_eq!(meta.fixed, BTreeMap::from([pair("rack", "r1")]));
    assert_eq!(agent.last(&Request::Meta).await, Answer::Meta(meta));

    let agent = Agent::with_state(|| Ok(()), StateStore::refusing()).await;
    let (code, _) = agent.refused(&change(&[("zone", Some("a"))])).await;
    assert_eq!(code, 500, "what cannot be kept is not changed");
    let Answer::Meta(meta) = agent.last(&Request::Meta).await else { panic!("not shown") };
    assert_eq!(meta.meta, BTreeMap::from([pair("rack", "r1")]));
}

#[tokio::test]
async fn host_volumes_are_made_and_taken_away_with_errors_that_say_what_to_do() {
    let agent = Agent::new(|| Ok(())).await;
    let create = |name: &str, id: &str, plugin: &str| {
        let (name, id, plugin) = (name.to_owned(), id.to_owned(), plugin.to_owned());
        Request::Volume(VolumeChange::Create { name, id, plugin, parameters: BTreeMap::new() })
    };
    let delete = |name: &str| Request::Volume(VolumeChange::Delete { name: name.to_owned() });
    assert_eq!(agent.last(&create("data", "v1", "mkdir")).await, Answer::Done);
    assert!(agent.dir.path().join("volumes/v1").is_dir());
    assert_eq!(agent.last(&create("data", "v1", "mkdir")).await, Answer::Done, "once more changes nothing");
    for (request, code, message) in [
        (
            create("data", "v2", "mkdir"),
            400,
            "host volume data: name exists with id v1: delete that one first, or give another name",
        ),
        (create("more", "v3", "zfs"), 400, "there is no volume plugin \"zfs\" on this node: use mkdir"),
        (delete("none"), 404, "there is no host volume none that was made or registered at run time"),
    ] {
        assert_eq!(agent.refused(&request).await, (code, message.to_owned()));
    }
    assert_eq!(agent.last(&delete("data")).await, Answer::Done);
    assert!(!agent.dir.path().join("volumes/v1").exists());
}

/// Whoever opens the socket may send anything; nobody else is kept waiting by it.
#[tokio::test]
async fn what_is_no_request_is_refused_and_disturbs_nobody() {
    let agent = Agent::new(|| Ok(())).await;
    let frame = |kind, payload: &[u8]| Frame { kind, payload: payload.to_vec() };
    for (sent, message) in [
        (frame(FrameKind::Data, b"x"), "the first frame must be a request"),
        (frame(FrameKind::Message, b"{"), "this is no request that the agent knows"),
        (frame(FrameKind::Message, b"{\"reboot\":{}}"), "this is no request that the agent knows"),
        (frame(FrameKind::Message, b"{\"stop\":{\"allocation\":\"x\",\"force\":true}}"), "unknown field `force`"),
    ] {
        let mut stream = UnixStream::connect(agent.socket()).await.expect("a connection");
        protocol::write_frame(&mut stream, &sent).await.expect("sent");
        let answer = protocol::read_frame(&mut stream).await.expect("an answer").expect("an answer");
        let answer: Answer = serde_json::from_slice(&answer.payload).expect("an answer");
        let Answer::Error { code: 400, message: said } = answer else { panic!("{answer:?}") };
        assert!(said.contains(message), "{said}");
    }
    // A length beyond every frame, and a client that says nothing.
    let mut liar = UnixStream::connect(agent.socket()).await.expect("a connection");
    liar.write_all(&u32::MAX.to_be_bytes()).await.expect("sent");
    let _silent = UnixStream::connect(agent.socket()).await.expect("a connection");
    assert_eq!(agent.last(&Request::Stop { allocation: UID.into() }).await, Answer::Done);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_refused_and_free_ones_are_used_again() {
    let agent = Agent::new(|| Ok(())).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(UnixStream::connect(agent.socket()).await.expect("a connection"));
    }
    let stop = Request::Stop { allocation: UID.into() };
    let refused = client::ask(&agent.socket(), &stop).await;
    let is_closed = match refused {
        Ok(mut exchange) => !matches!(exchange.replies.next().await, Ok(Some(_))),
        Err(_) => true,
    };
    assert!(is_closed && agent.asked().is_empty());
    held.clear();
    loop {
        // The agent sees the ends of the others when it comes to them.
        let Ok(mut exchange) = client::ask(&agent.socket(), &stop).await else { continue };
        if let Ok(Some(reply)) = exchange.replies.next().await {
            assert_eq!(reply, Reply::Answer(Answer::Done));
            break;
        }
    }
}
