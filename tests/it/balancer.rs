//! What stands before the replicas of a gateway, as a Service does, and replicas that come and go behind it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::Process;
use crate::gateway::{Stage, aggregate, gateway, slice};

/// Leads each connection to one of the replicas.
pub(crate) struct Balancer {
    pub(crate) at: SocketAddr,
    known: Arc<Mutex<Known>>,
    is_held: watch::Sender<bool>,
    _work: JoinSet<()>,
}

#[derive(Default)]
struct Known {
    replicas: VecDeque<SocketAddr>,
    /// Whether the next connection begins with the next replica.
    alternates: bool,
    n_led: usize,
}

impl Balancer {
    /// Leads to the first replica that takes a connection.
    pub(crate) async fn start(first: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let known = Arc::new(Mutex::new(Known { replicas: [first].into(), ..Known::default() }));
        let is_held = watch::Sender::new(false);
        let (shared, held, mut work) = (Arc::clone(&known), is_held.subscribe(), JoinSet::new());
        work.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (from, _) = listener.accept().await.expect("a connection");
                let (shared, held) = (Arc::clone(&shared), held.clone());
                connections.spawn(async move {
                    let all = shared.lock().expect("replicas").in_turn();
                    for replica in all {
                        if let Ok(to) = TcpStream::connect(replica).await {
                            shared.lock().expect("replicas").n_led += 1;
                            return carry(from, to, held).await;
                        }
                    }
                });
            }
        });
        Self { at, known, is_held, _work: work }
    }

    /// Leads new connections to these from now on.
    pub(crate) fn lead_to(&self, replicas: &[SocketAddr]) {
        self.known.lock().expect("replicas").replicas = replicas.iter().copied().collect();
    }

    /// The same, to one after the other.
    fn alternate(&self) {
        self.known.lock().expect("replicas").alternates = true;
    }

    /// How many connections it has led to a replica.
    fn n_led(&self) -> usize {
        self.known.lock().expect("replicas").n_led
    }

    /// What replicas say waits from now on, or goes on.
    pub(crate) fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }
}

impl Known {
    fn in_turn(&mut self) -> Vec<SocketAddr> {
        let all = self.replicas.iter().copied().collect();
        if self.alternates && !self.replicas.is_empty() {
            self.replicas.rotate_left(1);
        }
        all
    }
}

/// Carries bytes both ways until either side ends; either may go at any time.
async fn carry(from: TcpStream, to: TcpStream, mut held: watch::Receiver<bool>) {
    let ((mut asks, mut hears), (mut says, mut takes)) = (from.into_split(), to.into_split());
    let there = async {
        tokio::io::copy(&mut asks, &mut takes).await.ok();
        takes.shutdown().await.ok();
    };
    let back = async {
        let mut part = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = says.read(&mut part).await {
            let goes_on = held.wait_for(|is_held| !is_held).await.is_ok();
            if !goes_on || hears.write_all(&part[..n]).await.is_err() {
                break;
            }
        }
        hears.shutdown().await.ok();
    };
    tokio::join!(there, back);
}

/// Starts a replica that agents find in this slice, and waits until the node has a tunnel to it; where it answers
/// users.
pub(crate) async fn replica(stage: &Stage, (name, at): (&str, &str), config: &str) -> (Process, SocketAddr) {
    let cluster = &stage.cluster;
    let (process, users, agents) = gateway(cluster, name, config).await;
    slice(cluster, at, agents);
    let has_tunnel = || cluster.log(name).contains("a tunnel is open");
    cluster.eventually(&format!("{name} has a tunnel"), async || has_tunnel()).await;
    (process, users)
}

/// Two replicas behind a balancer, each of which is replaced in its turn. The stage's own is the first.
pub(crate) struct Replicas<'a> {
    stage: &'a Stage,
    balancer: Balancer,
    /// The oldest stands first.
    running: RefCell<VecDeque<(Process, SocketAddr)>>,
    /// Asked to end.
    ending: RefCell<Option<Process>>,
    n_begun: Cell<usize>,
}

/// Short: a replica that is to end leads others away, and what it still does may go on.
pub(crate) const SHUTDOWN: &str = "shutdown: {unreadyFor: 300ms, streamsFor: 4s}\n";

impl<'a> Replicas<'a> {
    /// Stands before the stage's gateway from now on, and before others.
    pub(crate) async fn start(stage: &'a Stage, own: Process, balancer: Balancer) -> Self {
        let running = RefCell::new(VecDeque::from([(own, stage.users)]));
        let replicas = Self { stage, balancer, running, ending: RefCell::new(None), n_begun: Cell::new(0) };
        replicas.begin().await;
        replicas.balancer.alternate();
        aggregate(&stage.cluster, replicas.balancer.at);
        replicas
    }

    /// Where they answer.
    pub(crate) const fn at(&self) -> SocketAddr {
        self.balancer.at
    }

    fn lead(&self) {
        let all: Vec<SocketAddr> = self.running.borrow().iter().map(|(_, at)| *at).collect();
        self.balancer.lead_to(&all);
    }

    /// Starts another one; all lead to it.
    async fn begin(&self) {
        let n = self.n_begun.get() + 1;
        self.n_begun.set(n);
        let name = format!("gateway-{n}");
        let (process, users) = replica(self.stage, (&name, &format!("r{}", n % 3)), SHUTDOWN).await;
        self.running.borrow_mut().push_back((process, users));
        self.lead();
    }

    /// The oldest dies, and another one has come in its place.
    pub(crate) async fn kill_one(&self) {
        self.begin().await;
        let (process, _) = self.running.borrow_mut().pop_front().expect("a replica");
        process.kill();
        self.lead();
    }

    /// Does something that begins with the oldest; when it has, that one is asked to end, while another one has come
    /// in its place.
    pub(crate) async fn replace_one<T>(&self, begin: impl FnOnce() -> T, is_over: impl Fn(&mut T) -> bool) -> T {
        self.begin().await;
        let (process, oldest) = self.running.borrow_mut().pop_front().expect("a replica");
        self.balancer.lead_to(&[oldest]);
        let n_led = self.balancer.n_led();
        let work = RefCell::new(begin());
        let has_come = || self.balancer.n_led() > n_led || is_over(&mut work.borrow_mut());
        self.stage.cluster.eventually("it reaches the oldest replica, or is over", async || has_come()).await;
        process.terminate();
        self.lead();
        let last = self.ending.borrow_mut().replace(process);
        if let Some(last) = last {
            let ended = last.ended().await;
            assert!(ended.success(), "a replica of the gateway: {ended}");
        }
        work.into_inner()
    }
}
