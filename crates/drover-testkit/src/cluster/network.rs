//! Network namespaces, and the wires between them.
//!
//! A namespace lives as long as the descriptor that holds it and the processes in it, and its wires with it: nothing is
//! left when this process dies, however it dies. Must never know what runs in a namespace.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use nix::sched::{CloneFlags, unshare};

/// How many clusters can run on one machine.
const N_CLUSTERS: u8 = 60;

/// A network namespace of our own.
#[derive(Debug)]
pub(super) struct NetworkNamespace {
    file: File,
}

impl NetworkNamespace {
    /// Makes one, with its loopback device up and as a router.
    pub(super) fn new() -> Result<Self> {
        // A thread of its own leaves this process' namespace; the others stay.
        let made = std::thread::spawn(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace (are you root?)")?;
            File::open("/proc/thread-self/ns/net").context("holding the network namespace")
        });
        let Ok(file) = made.join() else { bail!("the thread that makes a network namespace broke off") };
        let namespace = Self { file: file? };
        namespace.ip("link set lo up")?;
        namespace.run("sh", &["-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
        Ok(namespace)
    }

    /// A path that leads to it for as long as this value lives.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `ip` in it.
    pub(super) fn ip(&self, words: &str) -> Result<()> {
        self.run("ip", &words.split(' ').collect::<Vec<_>>())
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg(program).args(args);
        succeed(command, &format!("{program} {}", args.join(" ")))
    }

    /// Lays a wire from here, where its end is `name`, to another namespace.
    pub(super) fn wire(&self, name: &str, to: &Self, their_name: &str) -> Result<()> {
        // `ip` takes a namespace by a process or by the name of a file; ours are descriptors of this process.
        let path = to.path();
        self.ip(&format!("link add {name} type veth peer name {their_name} netns {}", path.display()))
    }

    /// Connects this machine's own namespace with this one; returns the address that leads here.
    pub(super) fn connect_machine(&self) -> Result<Ipv4Addr> {
        for index in 0..N_CLUSTERS {
            let (name, ours, theirs) = (format!("drover{index}"), address(index, 1), address(index, 2));
            let mut add = Command::new("ip");
            add.args(["link", "add", &name, "type", "veth", "peer", "name", "machine", "netns"]).arg(self.path());
            let added = add.output().context("running ip (package iproute2)")?;
            let reason = String::from_utf8_lossy(&added.stderr).into_owned();
            if !added.status.success() && reason.contains("File exists") {
                continue;
            }
            if !added.status.success() {
                bail!("a wire to the cluster's network: {}", reason.trim());
            }
            self.ip(&format!("addr add {theirs}/30 dev machine"))?;
            self.ip("link set machine up")?;
            for words in [format!("addr add {ours}/30 dev {name}"), format!("link set {name} up")] {
                let mut command = Command::new("ip");
                command.args(words.split(' '));
                succeed(command, &format!("ip {words}"))?;
            }
            return Ok(theirs);
        }
        bail!("{N_CLUSTERS} clusters run already: end some with `cargo xtask cluster down`")
    }
}

/// From the block that is set aside for measurements of networks, which no router forwards.
fn address(index: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, index, host)
}

/// Runs a command that says nothing when all is well.
pub fn succeed(mut command: Command, what: &str) -> Result<()> {
    let output = command.output().with_context(|| format!("running {what}"))?;
    if !output.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
