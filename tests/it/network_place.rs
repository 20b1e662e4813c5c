//! A place for an agent whose networks must not touch the machine's: a network namespace of its own, beside it one as
//! of a pod, and a way to the API server.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use drover_network::{Bridge, BridgeSettings, Differences, Namespaces};
use drover_testkit::control_plane::{ControlPlane, User};
use nix::sched::{CloneFlags, setns, unshare};
use tokio::net::{TcpListener, TcpStream as AsyncStream};
use tokio::task::JoinSet;

/// The node's address there.
pub(crate) const NODE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The pod's.
const POD: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
/// The addresses of its bridge.
pub(crate) const SUBNET: &str = "172.26.64.0/24";

/// A filter of system calls, and the program that its arguments name: `socket` with protocol 12 (`NETLINK_NETFILTER`)
/// fails with `EPROTONOSUPPORT`.
const WITHOUT_NETFILTER: &str = "
import ctypes, os, platform, struct, sys
number = 41 if platform.machine() == 'x86_64' else 198
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 32), (0x15, 0, 1, 12), (0x06, 0, 0, 0x50000 | 93), (0x06, 0, 0, 0x7fff0000)]
code = b''.join(struct.pack('HBBI', *step) for step in steps)
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(steps), ctypes.addressof(held)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
";

/// A network namespace of this process.
#[derive(Debug)]
pub(crate) struct Namespace(File);

impl Namespace {
    fn new() -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace (are you root?)");
            File::open("/proc/thread-self/ns/net").expect("the namespace")
        });
        let namespace = Self(made.join().expect("a namespace"));
        namespace.ip("link set lo up");
        namespace
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }

    fn enter(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--net={}", self.path().display())]
    }

    /// Runs `ip` in it, and says what that says.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.run("ip", &words.split(' ').collect::<Vec<_>>())
    }

    /// Runs a program in it, and says what that says.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        let enter = self.enter();
        let output = Command::new(&enter[0]).args(&enter[1..]).arg(program).args(args).output();
        let output = output.expect("nsenter, of util-linux");
        assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Does something in it.
    pub(crate) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let run = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("in the namespace");
            work()
        };
        std::thread::scope(|scope| scope.spawn(run).join().expect("the work is done"))
    }

    /// What a web server says first, asked from here.
    pub(crate) fn get(&self, at: (Ipv4Addr, u16)) -> Result<String, String> {
        self.within(|| ask(SocketAddr::from(at))).map_err(|error| error.to_string())
    }
}

fn ask(at: SocketAddr) -> std::io::Result<String> {
    let patience = Duration::from_secs(5);
    let mut stream = TcpStream::connect_timeout(&at, patience)?;
    stream.set_read_timeout(Some(patience))?;
    first_line(&mut stream)
}

fn first_line(stream: &mut TcpStream) -> std::io::Result<String> {
    use std::io::{Read as _, Write as _};
    write!(stream, "GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// What a web server says first over this connection, or why it says nothing.
pub(crate) fn web_answer(mut stream: TcpStream) -> String {
    first_line(&mut stream).unwrap_or_else(|error| error.to_string())
}

/// Where an agent lives.
pub(crate) struct Place {
    pub(crate) node: Namespace,
    pub(crate) pod: Namespace,
    /// Carries connections of the node to the API server.
    _relay: JoinSet<()>,
}

impl Place {
    pub(crate) fn new(plane: &ControlPlane) -> Self {
        let (node, pod) = (Namespace::new(), Namespace::new());
        node.ip(&format!("link add pod type veth peer name eth0 netns {}", pod.path().display()));
        node.ip(&format!("addr add {NODE}/24 dev pod"));
        node.ip("link set pod up");
        pod.ip(&format!("addr add {POD}/24 dev eth0"));
        pod.ip("link set eth0 up");
        pod.ip(&format!("route add default via {NODE}"));
        let kubeconfig = std::fs::read_to_string(plane.kubeconfig(User::Admin)).expect("a kubeconfig");
        let port = kubeconfig.split("https://127.0.0.1:").nth(1).expect("a server on the loopback device");
        let port: u16 = port.split(|it: char| !it.is_ascii_digit()).next().unwrap_or_default().parse().expect("a port");
        let listener = node.within(|| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the same port there");
            listener.set_nonblocking(true).expect("a listener for tokio");
            listener
        });
        let listener = TcpListener::from_std(listener).expect("a listener");
        let mut relay = JoinSet::new();
        relay.spawn(carry(listener, port));
        Self { node, pod, _relay: relay }
    }

    /// What starts an agent there.
    pub(crate) fn launcher(&self) -> Vec<String> {
        self.node.enter()
    }

    /// The same, on a kernel without netfilter: it answers a request for such a socket as one that lacks the protocol.
    pub(crate) fn launcher_without_netfilter(&self) -> Vec<String> {
        let more = ["python3", "-c", WITHOUT_NETFILTER].map(str::to_owned);
        self.launcher().into_iter().chain(more).collect()
    }

    /// What the kernel has of networks in this state folder that are not to be; it is gone afterwards.
    pub(crate) fn left(&self, namespaces: PathBuf) -> Differences {
        let subnet = SUBNET.parse().expect("a subnet");
        let bridge = Bridge::new(BridgeSettings { name: "drover-bridge".to_owned(), subnet, namespaces });
        self.node.within(|| bridge.repair(&[].into(), &[].into())).expect("a look at the kernel")
    }
}

/// Unmounts what an agent has left below its folder, so that the folder can go.
pub(crate) struct Pins(pub(crate) PathBuf);

impl Drop for Pins {
    fn drop(&mut self) {
        let namespaces = Namespaces::new(self.0.clone());
        for id in namespaces.list().unwrap_or_default().keys() {
            namespaces.remove(id).expect("removed");
        }
    }
}

async fn carry(listener: TcpListener, port: u16) {
    let mut open = JoinSet::new();
    while let Ok((mut from, _)) = listener.accept().await {
        open.spawn(async move {
            if let Ok(mut to) = AsyncStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                // Either end may go at any time.
                tokio::io::copy_bidirectional(&mut from, &mut to).await.ok();
            }
        });
        while open.try_join_next().is_some() {}
    }
}
