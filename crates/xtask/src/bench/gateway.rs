//! `bench gateway`: what streams and tunnels cost. A log of a gigabyte, 1,000 followers of ten lines a second, as many
//! of a task that says nothing, and 5,000 tunnels through which nothing is asked.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drover_socket::executor::Executor;
use drover_testkit::control_plane::{Role, dial_as_api_server};
use drover_testkit::process::ProcessId;
use drover_testkit::progress::Progress;
use futures::{AsyncBufRead, AsyncBufReadExt as _, Stream, StreamExt as _, TryStreamExt as _};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::api::PostParams;
use serde_json::{Map, Value, json};
use tokio::sync::{Barrier, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::args::BenchArgs;
use super::cluster::{Cluster, now, with_cluster};
use super::door::{Door, trusted};
use super::echoes::cpu_of_echoes;
use super::idle_tunnels::IdleTunnels;
use super::report::{percentile, warm_median};
use super::waiting::until;

/// What the large log holds.
const LOG_BYTES: u32 = 1 << 30;
/// How often it is read; the first time warms up and does not count.
const READS: usize = 4;
const FOLLOWERS: usize = 1000;
/// Of so many one measures; the others only read.
const EACH: usize = 20;
/// A user has at most 128 streams at a replica.
const USERS: usize = 8;
/// How much the API server, a program in Go, lets come before it is taken, in bytes.
const API_SERVERS_WINDOW: u32 = 4 << 20;
/// How long something is looked at, and how long it is left alone before.
pub(super) const WATCHED: Duration = Duration::from_secs(20);
pub(super) const SETTLED: Duration = Duration::from_secs(5);
/// Tunnels, unless `--count` says otherwise.
const TUNNELS: usize = 5000;

/// Measures; when it is interrupted, everything that was started ends.
pub(super) async fn run(args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    raise_files()?;
    with_cluster(args, false, progress, async |cluster| measure(cluster, args, progress).await).await
}

/// Each connection is a file, here and in what is started from here.
pub(super) fn raise_files() -> Result<()> {
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files).context("raising the limit of open files")
}

/// What is looked at.
struct Scene<'a> {
    cluster: &'a Cluster<'a>,
    door: Door,
    users: SocketAddr,
    gateway: ProcessId,
    agent: ProcessId,
}

async fn measure(cluster: &Cluster<'_>, args: &BenchArgs, progress: &Progress) -> Result<Map<String, Value>> {
    let process = |role: Role| cluster.session.process(role).with_context(|| format!("the {role} does not run"));
    let (users, agents) = cluster.session.gateway().context("the session has no gateway")?;
    let accounts = trusted(cluster.client(), USERS).await?;
    let door = Door::open(cluster.client(), accounts, Instant::now()).await?;
    let (gateway, agent) = (process(Role::Gateway)?, process(Role::Agent)?);
    let scene = Scene { cluster, door, users, gateway, agent };

    let mut row = Map::new();
    // First: what others have needed for a while stays the gateway's.
    row.extend(scene.tunnels(agents, args.count.unwrap_or(TUNNELS), progress).await?);
    row.extend(scene.reads(progress).await?);
    row.extend(scene.follows(progress).await?);
    row.extend(scene.waits(progress).await?);
    Ok(row)
}

impl Scene<'_> {
    /// Runs a script as a job, and returns its allocation's path once it runs.
    async fn run(&self, name: &str, script: &str) -> Result<String> {
        let job = json!({
            "apiVersion": drover_api::API_VERSION, "kind": "Job", "metadata": { "name": name },
            "spec": { "groups": [{
                "name": "g", "count": 1, "ephemeralDisk": { "sizeMB": 1500 },
                "tasks": [{
                    "name": "t", "driver": "raw_exec", "config": { "command": "/bin/sh", "args": ["-c", script] },
                    "resources": { "cpu": 10, "memoryMB": 10 }, "logs": { "maxFiles": 12, "maxFileSizeMB": 100 },
                }],
            }] },
        });
        let job = serde_json::from_value(job).context("building a job")?;
        self.cluster
            .api("Job")
            .create(&PostParams::default(), &job)
            .await
            .with_context(|| format!("creating {name}"))?;
        self.cluster.running(name).await
    }

    /// A large log: how fast it comes from the gateway, and by way of the API server.
    async fn reads(&self, progress: &Progress) -> Result<Map<String, Value>> {
        let step = progress.step("reading a log of 1 GiB");
        let script =
            format!("head -c {LOG_BYTES} /dev/zero | tr '\\0' x; touch ../alloc/data/ready; exec sleep 100000");
        let path = self.run("log", &script).await?;
        let direct = self.door.client(self.users, &self.door.users[0]).await?;
        let ready = format!("{path}/fs?op=stat&path=alloc/data/ready");
        until("the log is written", async || Ok(direct.request_text(get(&ready)?).await.is_ok())).await?;
        let log = format!("{path}/log?task=t&type=stdout");
        let (mut rates, mut by_api_server) = (Vec::new(), Vec::new());
        for _ in 0..READS {
            rates.push(rate(&direct, &log).await?);
            by_api_server.push(rate(self.cluster.client(), &log).await?);
        }
        step.done("");
        let (direct, by_api_server) = (warm_median(rates), warm_median(by_api_server));
        let row = json!({ "logBytesPerSecond": direct, "logByApiServerBytesPerSecond": by_api_server });
        Ok(row.as_object().cloned().unwrap_or_default())
    }

    /// Followers of a task that writes ten lines a second.
    async fn follows(&self, progress: &Progress) -> Result<Map<String, Value>> {
        let step = progress.step(format!("following ten lines a second, {FOLLOWERS} times"));
        let path = self.run("lines", "while :; do date +%s%N; sleep 0.1; done").await?;
        let before = self.gateway.rss_bytes();
        let followers = self.followers(&path).await?;
        tokio::time::sleep(SETTLED).await;
        let cpu = fraction(self.gateway, WATCHED).await;
        let rss = self.gateway.rss_bytes();
        let delays = followers.end().await?;
        ensure!(!delays.is_empty(), "no line came");
        step.done("");
        let row = json!({
            "followers": FOLLOWERS,
            "linesMeasured": delays.len(),
            "lineP50Seconds": percentile(&delays, 50),
            "lineP99Seconds": percentile(&delays, 99),
            "followersGatewayCpuFraction": cpu,
            "bytesPerFollower": rss.saturating_sub(before) / FOLLOWERS as u64,
        });
        Ok(row.as_object().cloned().unwrap_or_default())
    }

    /// Followers of a task that says nothing.
    async fn waits(&self, progress: &Progress) -> Result<Map<String, Value>> {
        let step = progress.step(format!("following a silent task, {FOLLOWERS} times"));
        let path = self.run("silent", "exec sleep 100000").await?;
        tokio::time::sleep(SETTLED).await;
        let alone = fraction(self.agent, WATCHED).await;
        let followers = self.followers(&path).await?;
        tokio::time::sleep(SETTLED).await;
        let (gateway, agent) = tokio::join!(fraction(self.gateway, WATCHED), fraction(self.agent, WATCHED));
        followers.end().await?;
        step.done("");
        let row = json!({
            "silentFollowers": FOLLOWERS,
            "agentCpuFractionAlone": alone,
            "silentAgentCpuFraction": agent,
            "silentGatewayCpuFraction": gateway,
        });
        Ok(row.as_object().cloned().unwrap_or_default())
    }

    /// So many who follow the task, and whom the API server leads here: as it does, over few connections.
    async fn followers(&self, path: &str) -> Result<Followers> {
        let log = format!("{path}/log?task=t&type=stdout&origin=end&follow=true");
        let are_there = Arc::new(Barrier::new(FOLLOWERS + 1));
        let mut followers = Followers { all: JoinSet::new(), is_over: watch::Sender::new(false) };
        let mut ways = Vec::new();
        for _ in 0..USERS {
            ways.push(self.way().await?);
        }
        for n in 0..FOLLOWERS {
            let mut way = ways[n % USERS].clone();
            let request = for_user(n % USERS, &log)?;
            let (are_there, over) = (Arc::clone(&are_there), followers.is_over.subscribe());
            followers.all.spawn(async move {
                way.ready().await.context("reaching the gateway")?;
                let answer = way.send_request(request).await.context("following a log")?;
                ensure!(answer.status().is_success(), "following a log: {}", answer.status());
                let stream = answer.into_body().into_data_stream().map_err(io::Error::other).into_async_read();
                are_there.wait().await;
                if n % EACH == 0 { delays(stream.lines(), over).await } else { drained(stream, over).await }
            });
        }
        tokio::select! {
            biased;
            Some(ended) = followers.all.join_next() => drop(ended.context("a follower has panicked")??),
            _ = are_there.wait() => {}
        }
        Ok(followers)
    }

    /// A connection to the gateway, as the API server has them.
    async fn way(&self) -> Result<SendRequest<Empty<Bytes>>> {
        let data = &self.cluster.session.layout().root;
        let tls = dial_as_api_server(data, &self.door.authority, self.users).await?;
        let executor = Executor::default();
        let opened = http2::Builder::new(executor.clone())
            .initial_stream_window_size(API_SERVERS_WINDOW)
            .initial_connection_window_size(API_SERVERS_WINDOW)
            .handshake(TokioIo::new(tls))
            .await;
        let (way, connection) = opened.context("speaking HTTP/2 with the gateway")?;
        drop(executor.0.spawn(connection));
        Ok(way)
    }

    /// Nodes that have a tunnel, and nothing that is asked of them.
    async fn tunnels(&self, agents: SocketAddr, n_tunnels: usize, progress: &Progress) -> Result<Map<String, Value>> {
        let before = self.gateway.rss_bytes();
        let tunnels = IdleTunnels::open(self.cluster.client(), (&self.door, agents), n_tunnels, progress).await?;
        let step = progress.step(format!("watching {n_tunnels} tunnels"));
        tokio::time::sleep(SETTLED).await;
        let cpu = fraction(self.gateway, WATCHED).await;
        let rss = self.gateway.rss_bytes();
        tunnels.end().await?;
        step.done("");
        let step = progress.step(format!("watching {n_tunnels} connections that echo, beside which this is a ratio"));
        let echoes = cpu_of_echoes(n_tunnels, SETTLED, WATCHED).await?;
        step.done("");
        let row = json!({
            "tunnels": n_tunnels,
            "tunnelsGatewayRssBytes": rss,
            "bytesPerTunnel": rss.saturating_sub(before) / n_tunnels as u64,
            "tunnelsGatewayCpuFraction": cpu,
            "echoesCpuFraction": echoes,
            "tunnelsGatewayCpuToEchoes": cpu / echoes,
        });
        Ok(row.as_object().cloned().unwrap_or_default())
    }
}

/// Those who follow.
struct Followers {
    all: JoinSet<Result<Vec<f64>>>,
    is_over: watch::Sender<bool>,
}

impl Followers {
    /// Ends them; how long each line took that was measured, in order.
    async fn end(mut self) -> Result<Vec<f64>> {
        self.is_over.send_replace(true);
        let mut delays = Vec::new();
        while let Some(ended) = self.all.join_next().await {
            delays.extend(ended.context("a follower has panicked")??);
        }
        delays.sort_by(f64::total_cmp);
        Ok(delays)
    }
}

/// How long each line took from the moment that it names.
async fn delays(
    mut lines: impl Stream<Item = io::Result<String>> + Unpin,
    mut over: watch::Receiver<bool>,
) -> Result<Vec<f64>> {
    // What was written while others were still on their way has waited for them.
    let since = now();
    let mut all = Vec::new();
    loop {
        let line = tokio::select! {
            biased;
            _ = over.wait_for(|is_over| *is_over) => return Ok(all),
            line = lines.next() => line.context("a log has ended")?.context("a log broke off")?,
        };
        let written: i128 = line.parse().with_context(|| format!("{line:?} is no time"))?;
        if written < since.as_nanosecond() {
            continue;
        }
        let took = now().as_nanosecond().saturating_sub(written);
        all.push(Duration::from_nanos(u64::try_from(took).unwrap_or_default()).as_secs_f64());
    }
}

async fn drained(mut stream: impl AsyncBufRead + Unpin, mut over: watch::Receiver<bool>) -> Result<Vec<f64>> {
    loop {
        let n = tokio::select! {
            biased;
            _ = over.wait_for(|is_over| *is_over) => return Ok(Vec::new()),
            part = stream.fill_buf() => part.context("a log broke off")?.len(),
        };
        ensure!(n > 0, "a log has ended");
        stream.consume_unpin(n);
    }
}

/// A request that the API server passes on.
fn for_user(user: usize, path: &str) -> Result<http::Request<Empty<Bytes>>> {
    http::Request::get(format!("https://gateway{path}"))
        .header("X-Remote-User", format!("user-{user}"))
        .header("X-Remote-Group", format!("system:serviceaccounts:{}", drover_api::SYSTEM_NAMESPACE))
        .body(Empty::new())
        .context("building a request")
}

fn get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).context("building a request")
}

/// Reads a log to its end; bytes per second.
async fn rate(client: &kube::Client, log: &str) -> Result<f64> {
    let began = Instant::now();
    let mut stream = client.request_stream(get(log)?).await.context("asking for a log")?;
    let mut n_bytes = 0;
    loop {
        let n = stream.fill_buf().await.context("a log broke off")?.len();
        if n == 0 {
            break;
        }
        stream.consume_unpin(n);
        n_bytes += n as u64;
    }
    ensure!(n_bytes == u64::from(LOG_BYTES), "a log of {n_bytes} bytes came");
    Ok(f64::from(LOG_BYTES) / began.elapsed().as_secs_f64())
}

/// Part of a core that a process uses for a while.
pub(super) async fn fraction(process: ProcessId, time: Duration) -> f64 {
    let (began, before) = (Instant::now(), process.cpu_time());
    tokio::time::sleep(time).await;
    process.cpu_time().saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64()
}
