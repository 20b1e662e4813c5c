//! Streams that outlive what stands between them and their client: the limit that the API server sets to requests, and
//! replicas of the gateway that are replaced one after the other.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use drover_testkit::control_plane::User;

use crate::balancer::{self, Balancer};
use crate::cluster::{Cluster, Settings};
use crate::gateway::{API, Finds, Ran, Stage, aggregate, counted};

/// How long a request may take that the API server does not know to be a long one.
const REQUEST_TIMEOUT: &str = "--request-timeout=10s";
/// How long a followed log goes on.
const FOLLOWED_FOR: Duration = Duration::from_mins(2);
const BIG_BYTES: usize = 200 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_008_a_followed_log_and_a_large_file_outlive_the_api_servers_request_timeout() {
    let settings = Settings { api_server: Some(REQUEST_TIMEOUT), ..Settings::default() };
    let stage = Stage::start_in(Cluster::start("gateway-timeout", settings).await, "", Finds::ByName).await;
    let script = format!(
        "seq 1 40000000 | head -c {BIG_BYTES} > ../alloc/data/big; touch ../alloc/data/ready; \
         n=0; while true; do echo line $n; n=$((n+1)); sleep 0.1; done"
    );
    let alloc = stage.run("web", &script).await;
    let name = alloc.metadata.name.clone().expect("a name");
    let (cluster, uid) = (&stage.cluster, alloc.metadata.uid.as_deref().expect("a uid"));
    let data = cluster.path(&format!("n-1/allocs/{uid}/alloc/data"));
    cluster.eventually("the file is written", async || data.join("ready").exists()).await;

    // One request, which nothing begins again where it breaks off.
    let path = format!("{API}/namespaces/shop/allocations/{name}/log?task=t&type=stdout&follow=true");
    let follower = cluster.kubectl_command(&["get", "--raw", &path]).stdout(Stdio::piped()).spawn();
    let mut follower = follower.expect("kubectl");
    let (begun, n_lines) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let (output, seen) = (BufReader::new(follower.stdout.take().expect("a pipe")), Arc::clone(&n_lines));
    let reads = std::thread::spawn(move || {
        for (n, line) in output.lines().map_while(Result::ok).enumerate() {
            assert_eq!(line, format!("line {n}"));
            seen.store(n + 1, Ordering::Relaxed);
        }
    });

    let empty = stage.raw("admin", &format!("{name}/fs?op=ls&path=alloc/tmp"));
    assert_eq!(empty.expect("a list of nothing"), r#"{"files":[]}"#);
    // A large file, in as many requests as it takes.
    let copy = cluster.path("copy");
    let mut get = stage.command(User::Admin, &["alloc", "fs", &name, "alloc/data/big"]);
    let got = get.stdout(File::create(&copy).expect("a file")).status().expect("drover");
    assert!(got.success(), "{got}");
    let (original, copied) = (std::fs::read(data.join("big")).expect("it"), std::fs::read(&copy).expect("its copy"));
    assert_eq!((original.len(), copied.len()), (BIG_BYTES, BIG_BYTES));
    assert!(original == copied, "another file");

    cluster
        .eventually("it is followed for long", async || {
            assert!(!reads.is_finished(), "it ends after {:?}", begun.elapsed());
            begun.elapsed() > FOLLOWED_FOR
        })
        .await;
    let before = n_lines.load(Ordering::Relaxed);
    cluster.eventually("more lines come", async || n_lines.load(Ordering::Relaxed) > before).await;
    follower.kill().expect("ended");
    follower.wait().expect("its end");
    reads.join().expect("each line once, in order");
}

/// How long a replica that is to end goes on with its streams; what the chart says.
const STREAMS_FOR: Duration = Duration::from_mins(1);
const N_FOLLOWERS: usize = 100;
const N_COMMANDS: usize = 10;

/// Those who follow, and where their output is.
struct Followers(Vec<(Child, PathBuf)>);

impl Followers {
    fn start(stage: &Stage, name: &str) -> Self {
        let start = |n: usize| {
            let path = stage.cluster.path(&format!("follower-{n}"));
            let mut follow = stage.command(User::Admin, &["alloc", "logs", "-f", name]);
            follow.stdout(File::create(&path).expect("a file")).stderr(Stdio::null());
            let child = follow.spawn().expect("drover");
            (child, path)
        };
        Self((0..N_FOLLOWERS).map(start).collect())
    }

    fn texts(&self) -> Vec<String> {
        self.0.iter().map(|(_, path)| std::fs::read_to_string(path).expect("output")).collect()
    }

    /// Waits until all have so many lines.
    async fn reach(&self, stage: &Stage, n: usize) {
        let last = format!("line {n}\n");
        let behind = || self.texts().into_iter().enumerate().filter(|(_, text)| !text.contains(&last));
        let left = async || behind().map(|(n, text)| format!("{n} has {:?}", text.lines().last())).collect();
        stage.cluster.eventually_none(&format!("all have line {n}"), left).await;
    }
}

/// Established connections to this port.
fn established(port: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("sockets");
    let is_it = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next(), fields.nth(1));
        local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some("01")
    };
    sockets.lines().filter(|line| is_it(line)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_013_a_rolling_update_loses_no_line_of_a_hundred_followers_and_lets_commands_end() {
    let mut stage = Stage::start_with("gateway-update", "", Finds::BySlices).await;
    let script = "n=0; while true; do echo line $n; n=$((n+1)); sleep 0.2; done";
    let alloc = stage.run("web", script).await;
    let name = alloc.metadata.name.clone().expect("a name");
    let uid = alloc.metadata.uid.clone().expect("a uid");
    let balancer = Balancer::start(stage.users).await;
    aggregate(&stage.cluster, balancer.at);
    let own = stage.gateway.take().expect("a gateway");
    let shutdown = format!("shutdown: {{unreadyFor: 300ms, streamsFor: {}s}}\n", STREAMS_FOR.as_secs());
    let replica = async |name: &str| balancer::replica(&stage, (name, name), &shutdown).await;
    let (first, at_first) = replica("a").await;
    let (second, at_second) = replica("b").await;
    own.kill();
    balancer.lead_to(&[at_first, at_second]);

    let n_written = || {
        let path = stage.cluster.path(&format!("n-1/allocs/{uid}/alloc/logs/t.stdout.0"));
        std::fs::read_to_string(path).expect("output").lines().count()
    };
    let followers = Followers::start(&stage, &name);
    followers.reach(&stage, n_written()).await;
    let n_connections = established(balancer.at.port());
    assert!(n_connections < N_FOLLOWERS / 2, "the API server leads them here over {n_connections} connections");
    let begin = |command: &str| {
        let mut child = stage.spawn_exec(User::Admin, &name, &[], &["/bin/sh", "-c", command]);
        let mut begun = [0; 6];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut begun).expect("a beginning");
        child
    };
    let commands: Vec<Child> = (0..N_COMMANDS).map(|_| begin("echo begun; sleep 30; exit 7")).collect();
    let endless = begin("echo begun; exec sleep 600");

    // As a Deployment does: one more comes, one goes, and the same for the next.
    let (third, at_third) = replica("c").await;
    balancer.lead_to(&[at_second, at_third]);
    first.terminate();
    let (fourth, at_fourth) = replica("d").await;
    balancer.lead_to(&[at_third, at_fourth]);
    let asked = Instant::now();
    second.terminate();

    for command in commands {
        let ran = Ran::at_end(command).await;
        assert_eq!((ran.code, ran.out.as_slice()), (7, &b""[..]), "{}", ran.err);
    }
    let ran = Ran::at_end(endless).await;
    assert!(ran.code == 1 && !ran.err.is_empty(), "{ran:?}");
    for replica in [first, second] {
        let ended = replica.ended().await;
        assert!(ended.success(), "{ended}");
    }
    let took = asked.elapsed();
    assert!(took < STREAMS_FOR + Duration::from_secs(30), "the last of them ends after {took:?}");
    followers.reach(&stage, n_written()).await;
    for (mut child, path) in followers.0 {
        child.kill().expect("ended");
        child.wait().expect("its end");
        let text = std::fs::read_to_string(path).expect("output");
        let whole = text.lines().count() - 1;
        assert!(text.starts_with(&counted(whole)), "not each line once: {text}");
    }
    drop((third, fourth));
}
