//! Several replicas of the gateway: one carries for the other, one ends while calls run, one dies. The API server
//! reaches them as by a Service: whichever answers.

use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drover_testkit::control_plane::User;
use tokio::task::JoinHandle;

use crate::balancer::{Balancer, Replicas, SHUTDOWN, replica};
use crate::cluster::Cluster;
use crate::gateway::{Finds, NODE, Ran, Stage, agent_config, aggregate, counted, gateway};

/// G-015: a replica without the node's tunnel is carried by the one that has it, and no further.
async fn one_carries_for_another(stage: &Stage, name: &str) {
    let cluster = &stage.cluster;
    // The agent knows nothing of the second one, which alone answers the API server.
    let peers = |at: SocketAddr| format!("peers: [\"{at}\"]\n");
    let (_second, users, agents) = gateway(cluster, "gateway-r", &peers(stage.agents)).await;
    aggregate(cluster, users);
    let logs = || stage.alloc(User::Admin, &["logs", name]);
    let is_carried = || cluster.log("gateway-r").contains("another replica has the node's tunnel");
    cluster.eventually("a call is carried", async || logs().code == 0 && is_carried()).await;
    assert!(logs().text().starts_with("line 0\nline 1\n"));
    let bytes: Vec<u8> = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let ran = stage.exec(User::Admin, name, &["/bin/sh", "-c", "cat; exit 7"], &bytes);
    assert!(ran.code == 7 && ran.out == bytes, "{} bytes, {} {}", ran.out.len(), ran.code, ran.err);
    assert_eq!(cluster.log("gateway-r").matches("a tunnel is open").count(), 0);

    // One hop: the third knows the second only, which has no tunnel of its own.
    let (_third, users, _) = gateway(cluster, "gateway-s", &peers(agents)).await;
    aggregate(cluster, users);
    let refused = || stage.raw("admin", &format!("{name}/stats")).err().unwrap_or_default();
    cluster.eventually("the third does not reach it", async || refused().contains("has no tunnel")).await;

    // Who shows no certificate of the gateway's is carried nowhere.
    let relay = ["-sk", "-X", "POST", "-H", "Upgrade: drover-relay/1", "-H", "Connection: Upgrade", "--max-time", "60"];
    let url = format!("https://{}/relay/v1", stage.agents);
    let answer = Command::new("curl").args(relay).arg(&url).output().expect("curl");
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.contains("only another replica"), "{answer}");
}

/// G-023: both make one at the same time, and all believe the one that is stored.
async fn one_authority_is_made(stage: &Stage, name: &str, users: [SocketAddr; 2]) {
    let cluster = &stage.cluster;
    let emptied = ["patch", "secret", "drover-gateway-tls", "-n", "drover-system", "--type=json"];
    let removed = r#"[{"op": "remove", "path": "/data"}]"#;
    let before = stage.authority();
    cluster.kubectl(&[&emptied[..], &["-p", removed]].concat()).expect("emptied");
    let since = Instant::now();
    let file = cluster.path("authority");
    cluster
        .eventually("all is well under another authority", async || {
            let now = stage.authority();
            std::fs::write(&file, &now).expect("a file");
            let is_believed = |at: &SocketAddr| {
                let mut curl = Command::new("curl");
                curl.args(["-s", "-o", "/dev/null", "--max-time", "60", "--cacert"]).arg(&file);
                curl.arg(format!("https://localhost:{}/apis", at.port())).status().is_ok_and(|status| status.success())
            };
            let is_one = now != before && now.matches("BEGIN CERTIFICATE").count() == 1;
            is_one && users.iter().all(is_believed) && stage.alloc(User::Admin, &["fs", name]).code == 0
        })
        .await;
    assert!(since.elapsed() < Duration::from_mins(1), "{:?}", since.elapsed());
}

/// A follower's lines, as far as they came, and the longest time without one.
#[derive(Debug, Default)]
struct Followed {
    text: String,
    longest_gap: Duration,
}

/// `drover alloc logs -f` of a task that counts its lines.
struct Follower {
    child: Child,
    followed: Arc<Mutex<Followed>>,
    reader: JoinHandle<()>,
    /// What it says beside the lines; it would wait for a reader.
    _said: JoinHandle<()>,
}

/// A task that counts.
const COUNTS: &str = "n=0; while true; do echo line $n; n=$((n+1)); sleep 0.02; done";

impl Follower {
    fn start(stage: &Stage, name: &str) -> Self {
        let mut child = stage.drover(User::Admin, &["alloc", "logs", "-f", name]);
        let (mut output, mut said) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let said = tokio::task::spawn_blocking(move || drop(std::io::copy(&mut said, &mut std::io::stderr())));
        let followed = Arc::new(Mutex::new(Followed::default()));
        let shared = Arc::clone(&followed);
        let reader = tokio::task::spawn_blocking(move || {
            let (mut part, mut last) = ([0; 4096], Instant::now());
            while let Ok(n @ 1..) = output.read(&mut part) {
                let mut followed = shared.lock().expect("lines");
                followed.text += std::str::from_utf8(&part[..n]).expect("text");
                followed.longest_gap = followed.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
        });
        Self { child, followed, reader, _said: said }
    }

    /// Waits for so many bytes more.
    async fn comes(&self, cluster: &Cluster, n_more: usize) {
        let n_bytes = || self.followed.lock().expect("lines").text.len();
        let before = n_bytes();
        cluster.eventually("lines come", async || n_bytes() >= before + n_more).await;
    }

    async fn goes_on(&self, cluster: &Cluster) {
        self.comes(cluster, 1000).await;
    }

    /// The longest time without a line since this was asked last.
    fn longest_gap(&self) -> Duration {
        std::mem::take(&mut self.followed.lock().expect("lines").longest_gap)
    }

    /// Ends it: no line came twice, and none is missing; the last one may be cut.
    async fn end(mut self) {
        self.child.kill().expect("ended");
        self.child.wait().expect("its end");
        self.reader.await.expect("joined");
        let text = std::mem::take(&mut self.followed.lock().expect("lines").text);
        let whole = text.lines().count() - 1;
        assert!(text.starts_with(&counted(whole)), "{whole} lines");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_012_g_015_and_g_023_replicas_stand_in_for_each_other_and_share_one_authority() {
    let mut stage = Stage::start_with("gateway-ends", SHUTDOWN, Finds::BySlices).await;
    let alloc = stage.run("web", COUNTS).await;
    let name = alloc.metadata.name.clone().expect("a name");
    one_carries_for_another(&stage, &name).await;
    let balancer = Balancer::start(stage.users).await;
    aggregate(&stage.cluster, balancer.at);

    // The agent is told of a second replica through its tunnel to the first: it would look by itself after 10 minutes.
    let (second, users_b) = replica(&stage, ("gateway-b", "b"), SHUTDOWN).await;
    balancer.lead_to(&[stage.users, users_b]);

    let follower = Follower::start(&stage, &name);
    follower.goes_on(&stage.cluster).await;
    // How long a line takes on this machine at this time, with nothing amiss.
    let usual = follower.longest_gap();

    // It ends: what runs may go on for a while, and then goes on elsewhere.
    let command = ["/bin/sh", "-c", "echo begun; sleep 2; exit 7"];
    let mut exec = stage.spawn_exec(User::Admin, &name, &[], &command);
    let mut begun = [0; 6];
    exec.stdout.as_mut().expect("a pipe").read_exact(&mut begun).expect("a beginning");
    let audited = |log: &str, verb: &str| stage.cluster.log(log).matches(&format!("verb=\"{verb}\"")).count();
    let first = stage.gateway.take().expect("a gateway");
    first.terminate();
    let ended = first.ended().await;
    assert!(ended.success(), "{ended}");
    let ran = Ran::at_end(exec).await;
    assert_eq!((ran.code, ran.out.as_slice()), (7, &b""[..]), "{}", ran.err);
    follower.goes_on(&stage.cluster).await;
    assert_eq!((audited("gateway", "exec"), audited("gateway", "log")), (1, 1), "{}", stage.cluster.log("gateway"));
    assert!(stage.cluster.log(NODE).contains("the replica of the gateway is dialled no more"));

    // It dies.
    let (third, users_c) = replica(&stage, ("gateway-c", "a"), SHUTDOWN).await;
    one_authority_is_made(&stage, &name, [users_b, users_c]).await;
    balancer.lead_to(&[users_b, users_c]);
    second.kill();
    follower.goes_on(&stage.cluster).await;
    let gap = follower.longest_gap();
    assert!(gap < Duration::from_secs(3) + usual * 10, "{gap:?} without a line, usually {usual:?}");
    follower.end().await;
    drop(third);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_on_over_kills_of_gateways_and_agents_and_the_task_never_notices() {
    let kills: u32 = std::env::var("DROVER_GATEWAY_KILLS").ok().and_then(|it| it.parse().ok()).unwrap_or(8);
    let mut stage = Stage::start_with("gateway-kills", SHUTDOWN, Finds::BySlices).await;
    let name = stage.run("web", COUNTS).await.metadata.name.expect("a name");
    let (own, mut agent) = (stage.gateway.take().expect("a gateway"), stage.agent.take().expect("an agent"));
    let stage = stage;
    let config = agent_config(&stage.cluster, NODE, None).await;
    let balancer = Balancer::start(stage.users).await;
    let replicas = Replicas::start(&stage, own, balancer).await;
    let follower = Follower::start(&stage, &name);
    follower.goes_on(&stage.cluster).await;
    let usual = follower.longest_gap();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for n in 0..kills {
        let of_agent = random.bool();
        let gap = if of_agent {
            let n_tunnels = || stage.cluster.log(NODE).matches("a tunnel to the gateway is open").count();
            let before = n_tunnels();
            // As a crash: its supervisor and its tasks go on.
            agent.abandon();
            agent = stage.cluster.agent_more(NODE, &stage.cluster.plane.kubeconfig(User::Agent), &config);
            stage.cluster.eventually("the agent is back", async || n_tunnels() > before).await;
            let back = Instant::now();
            follower.comes(&stage.cluster, 1).await;
            back.elapsed()
        } else {
            follower.longest_gap();
            replicas.kill_one().await;
            follower.goes_on(&stage.cluster).await;
            follower.longest_gap()
        };
        let most = Duration::from_secs(3) + usual * 10;
        assert!(gap < most, "kill {n} (agent: {of_agent}, seed {seed}): {gap:?}, usually {usual:?}");
    }
    follower.end().await;
    let all = stage.cluster.allocs("shop").await;
    let task = &all[0].status.as_ref().expect("a status").task_states["t"];
    assert_eq!((all.len(), task.restarts), (1, 0), "the task never noticed");
    drop(agent);
}
