//! A whole Kubernetes cluster on this machine: a control plane and real nodes, each in namespaces of its own.
//!
//! Everything is a process below this one and ends with it, by the kernel's hand if need be. Networks: one namespace
//! for the control plane, one for each node with a wire between them, and one wire to this machine, by which `kubectl`
//! and Helm reach the API server. The Service address of the API server is an address of the control plane's own, so
//! that no proxy has to translate it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::Instant;

use super::init::KUBELETS;
use super::network::NetworkNamespace;
use super::plan::{NodePlan, ProxyPlan};
use super::{cgroups, init, programs, service_network, settings};
use crate::containerd::ctr;
use crate::control_plane::{
    Account, Binaries, Component, ControlPlane, Durability, Launch, Lifetime, Options, Place, Role, User,
};
use crate::helm;
use crate::image;
use crate::process::ProcessId;
use crate::progress::Progress;
use crate::workspace::last_lines;

/// The address of the Service `kubernetes`.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// How long a node may take to be ready, on a busy machine.
const NODE_TIMEOUT: Duration = Duration::from_mins(3);
/// What the names of our control groups begin with.
const CGROUP_PREFIX: &str = "drover-cluster-";
/// The path of containerd's socket must fit into 107 bytes.
const LONGEST_DATA_DIR: usize = 80;

/// Who the proxies of nodes are to the API server, which gives them their rights.
const PROXY: &str = "system:kube-proxy";
/// Who the DNS is.
const DNS: &str = "cluster-dns";
/// containerd's namespace of drover's containers.
const CONTAINERS: &str = "drover.dev";

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The folder for everything; created when missing.
    pub data_dir: PathBuf,
    /// How many nodes.
    pub nodes: u8,
    /// Archives of images that the nodes have.
    pub images: Vec<PathBuf>,
    /// The program `xtask`, which nodes are started by.
    pub xtask: PathBuf,
    /// A folder of programs that tasks find on their PATH.
    pub bin: PathBuf,
    /// Whether addresses and names of Services lead somewhere: `kube-proxy` on each node, and a DNS.
    pub has_service_network: bool,
}

/// What all nodes are made of.
struct NodeParts {
    /// Where their programs are.
    programs: PathBuf,
    /// `kube-proxy`, where they run one.
    proxy: Option<PathBuf>,
    /// Archives of their images; the first holds pods open.
    images: Vec<PathBuf>,
}

/// A running cluster. Ends with this value.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<(NodePlan, Component)>,
    scheduler: Option<Component>,
    dns: Option<Component>,
    plane: ControlPlane,
    helm: PathBuf,
    control: NetworkNamespace,
    /// Held for the nodes.
    networks: Vec<NetworkNamespace>,
}

impl Cluster {
    /// The image that holds pods open: its program waits to be told to end.
    pub const PAUSE_IMAGE: &'static str = settings::PAUSE_IMAGE;
    /// Where the containerd of each node listens on it, which its kubelet uses too.
    pub const CONTAINERD: &'static str = "/run/node/c.sock";

    /// Builds what is missing, starts everything, and returns when all nodes are ready.
    ///
    /// # Errors
    /// When a part does not start; the error names its log.
    pub async fn start(mut options: ClusterOptions, progress: &Progress) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "a node needs root: run this as root");
        options.data_dir = std::path::absolute(&options.data_dir).context("the data folder")?;
        ensure!(
            options.data_dir.as_os_str().len() <= LONGEST_DATA_DIR,
            "{} is too long for a socket in it: name a shorter folder",
            options.data_dir.display()
        );
        cgroups::remove_left(CGROUP_PREFIX)?;
        let (shown, has_service_network) = (progress.clone(), options.has_service_network);
        let built = tokio::task::spawn_blocking(move || {
            Ok::<_, anyhow::Error>((
                Binaries::find_or_build(&shown)?,
                programs::find_or_build(&shown)?,
                has_service_network.then(|| service_network::find_or_build(&shown)).transpose()?,
                helm::find_or_build(&shown)?,
            ))
        });
        let (binaries, programs, service_programs, helm) = built.await.context("building the cluster's programs")??;
        let step = progress.step("starting the control plane");
        let mut cluster = Self::start_plane(&options, binaries, helm).await?;
        cluster.start_scheduler(&programs)?;
        step.done(cluster.plane.url());
        let pause = options.data_dir.join("pause.tar");
        let mut images = vec![image::archive_of(settings::PAUSE_IMAGE, "pause", &programs.join("pause"), &pause)?];
        if let Some(programs) = &service_programs {
            let step = progress.step("starting the cluster's DNS");
            cluster.start_dns(programs)?;
            images.push(service_network::requests_image(programs, &options.data_dir)?);
            step.done("");
        }
        images.append(&mut options.images);
        let parts = NodeParts { programs, proxy: service_programs.as_deref().map(service_network::proxy), images };
        for number in 1..=options.nodes {
            let step = progress.step(format!("starting node n{number}"));
            cluster.start_node(number, &options, &parts)?;
            cluster.wait_started(number).await?;
            step.done("");
        }
        let step = progress.step("waiting until the nodes are ready");
        cluster.wait_ready().await?;
        if cluster.dns.is_some() {
            service_network::publish_dns(cluster.client().await?).await?;
        }
        step.done("");
        Ok(cluster)
    }

    async fn start_plane(options: &ClusterOptions, binaries: Binaries, helm: PathBuf) -> Result<Self> {
        let control = NetworkNamespace::new()?;
        control.ip(&format!("addr add {SERVICE}/32 dev lo"))?;
        let address = control.connect_machine()?;
        let mut accounts = [("system:kube-scheduler", ""), (PROXY, ""), (DNS, "system:masters")]
            .map(|(name, group)| Account { name: name.to_owned(), group: group.to_owned() })
            .to_vec();
        accounts.extend(
            (1..=options.nodes)
                .map(|number| Account { name: format!("system:node:n{number}"), group: "system:nodes".to_owned() }),
        );
        let plane = ControlPlane::start(Options {
            data_dir: options.data_dir.join("plane"),
            binaries,
            durability: Durability::NoFsync,
            audit: true,
            lifetime: Lifetime::BoundToThisProcess,
            controller_manager: true,
            // A proxy leads to where the Service `kubernetes` says that this server is.
            api_server_args: if options.has_service_network {
                vec!["--endpoint-reconciler-type=lease".to_owned()]
            } else {
                Vec::new()
            },
            place: Place::Namespace { path: control.path(), address, accounts },
        })
        .await?;
        Ok(Self { nodes: Vec::new(), scheduler: None, dns: None, plane, helm, control, networks: Vec::new() })
    }

    fn start_scheduler(&mut self, programs: &Path) -> Result<()> {
        let kubeconfig = self.plane.write_kubeconfig("system:kube-scheduler", &service_url())?;
        let args = [format!("--kubeconfig={}", kubeconfig.display())].into_iter();
        let args = args.chain(["--leader-elect=false", "--secure-port=0"].map(str::to_owned)).collect();
        self.scheduler = Some(self.beside_the_plane(Role::KubeScheduler, &programs.join("kube-scheduler"), args)?);
        Ok(())
    }

    fn start_dns(&mut self, programs: &Path) -> Result<()> {
        self.control.ip(&format!("addr add {}/32 dev lo", service_network::DNS_ADDRESS))?;
        let kubeconfig = self.plane.write_kubeconfig(DNS, &service_url())?;
        let (program, args) = service_network::dns(programs, self.plane.data_dir(), &kubeconfig)?;
        self.dns = Some(self.beside_the_plane(Role::ClusterDns, &program, args)?);
        Ok(())
    }

    /// Starts a program in the control plane's namespace.
    fn beside_the_plane(&self, role: Role, program: &Path, args: Vec<String>) -> Result<Component> {
        let entered = [format!("--net={}", self.control.path().display()), program.display().to_string()];
        self.component(role, PathBuf::from("nsenter"), entered.into_iter().chain(args).collect(), role.name())
    }

    fn start_node(&mut self, number: u8, options: &ClusterOptions, parts: &NodeParts) -> Result<()> {
        let name = format!("n{number}");
        let network = NetworkNamespace::new()?;
        let data = options.data_dir.join(&name);
        fs::create_dir_all(&data).with_context(|| format!("creating {}", data.display()))?;
        let plan = NodePlan {
            number,
            data,
            programs: parts.programs.clone(),
            bin: options.bin.clone(),
            kubeconfig: self.plane.write_kubeconfig(&format!("system:node:{name}"), &service_url())?,
            network: network.path(),
            cgroup: format!("{CGROUP_PREFIX}{}-{name}", std::process::id()),
            images: parts.images.clone(),
            proxy: parts.proxy.as_ref().map(|program| self.proxy_plan(program)).transpose()?,
            name,
        };
        self.control.wire(&plan.name, &network, "eth0")?;
        self.control.ip(&format!("addr add {}/30 dev {}", plan.gateway(), plan.name))?;
        self.control.ip(&format!("link set {} up", plan.name))?;
        network.ip(&format!("addr add {}/30 dev eth0", plan.address()))?;
        network.ip("link set eth0 up")?;
        network.ip(&format!("route add default via {}", plan.gateway()))?;
        self.control.ip(&format!("route add {} via {}", plan.pods(), plan.address()))?;
        let file = plan.write()?;
        let args = ["cluster-node", "--stage", "leave", "--plan"].map(str::to_owned);
        let args = args.into_iter().chain([file.display().to_string()]).collect();
        let component = self.component(Role::Node, options.xtask.clone(), args, &plan.name)?;
        self.nodes.push((plan, component));
        self.networks.push(network);
        Ok(())
    }

    fn proxy_plan(&self, program: &Path) -> Result<ProxyPlan> {
        let kubeconfig = self.plane.write_kubeconfig(PROXY, &service_url())?;
        Ok(ProxyPlan { program: program.to_path_buf(), kubeconfig })
    }

    fn component(&self, role: Role, program: PathBuf, args: Vec<String>, log: &str) -> Result<Component> {
        let folder = self.plane.data_dir().to_path_buf();
        let log = folder.join(format!("logs/{log}.log"));
        Component::start(Launch {
            role,
            program,
            args,
            env: Vec::new(),
            folder,
            log,
            lifetime: Lifetime::BoundToThisProcess,
        })
    }

    async fn wait_started(&mut self, number: u8) -> Result<()> {
        let deadline = Instant::now() + NODE_TIMEOUT;
        let (plan, component) = self.nodes.get_mut(usize::from(number) - 1).context("no such node")?;
        while !plan.data.join("started").exists() {
            component.ensure_running()?;
            if Instant::now() > deadline {
                bail!("node {} has not started its kubelet; its logs are in {}", plan.name, plan.data.display());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let deadline = Instant::now() + NODE_TIMEOUT;
        loop {
            let known = nodes.list(&kube::api::ListParams::default()).await.context("listing nodes")?;
            if known.items.iter().filter(|node| is_ready(node)).count() == self.nodes.len() {
                return Ok(());
            }
            for (plan, component) in &mut self.nodes {
                component.ensure_running()?;
                if Instant::now() > deadline {
                    let log = plan.log("kubelet");
                    bail!("node {} is not ready; the end of {}:\n{}", plan.name, log.display(), last_lines(&log, 15));
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        self.plane.client(User::Admin).await
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The kubeconfig of a person who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig(User::Admin)
    }

    /// `kubectl` as that person.
    pub fn kubectl(&self, args: &[&str]) -> Command {
        self.command(Command::new(self.plane.binaries().kubectl()), args)
    }

    /// Helm as that person.
    pub fn helm(&self, args: &[&str]) -> Command {
        self.command(helm::command(&self.helm, &self.plane.data_dir().join("helm")), args)
    }

    fn command(&self, mut command: Command, args: &[&str]) -> Command {
        command.args(args).env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// Gives an image to every node.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn load(&self, image: &Path) -> Result<()> {
        self.nodes.iter().try_for_each(|(plan, _)| init::import(plan, KUBELETS, image))
    }

    /// Does something with the images of every node: the arguments of `ctr images`.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn images(&self, args: &[&str]) -> Result<()> {
        self.nodes.iter().try_for_each(|(plan, _)| init::images(plan, KUBELETS, args))
    }

    /// Gives drover's own containers on every node the image [`Cluster::PAUSE_IMAGE`].
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn give_pause_image(&self) -> Result<()> {
        self.nodes.iter().try_for_each(|(plan, _)| {
            let archive = plan.images.first().context("a node has the image that holds pods open")?;
            init::import(plan, CONTAINERS, archive)
        })
    }

    /// Gives drover's own containers on every node an image.
    ///
    /// # Errors
    /// When containerd refuses it.
    pub fn give_image(&self, archive: &Path) -> Result<()> {
        self.nodes.iter().try_for_each(|(plan, _)| init::import(plan, CONTAINERS, archive))
    }

    /// Runs `ctr` on what drover has in the containerd of a node, and returns what it says.
    ///
    /// # Errors
    /// When there is no such node; with what `ctr` says when it fails.
    pub fn ctr(&self, name: &str, args: &[&str]) -> Result<String> {
        let (plan, _) = self.node(name)?;
        ctr(&plan.programs, &plan.socket(), CONTAINERS, args)
    }

    /// Runs a command on a node, as a person who is logged in there would.
    ///
    /// # Errors
    /// When the node is gone, or `nsenter` cannot be run.
    pub fn on_node(&self, name: &str, args: &[&str]) -> Result<Output> {
        let first = self.first_process(name)?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &first.pid.to_string(), "--all", "--"]).args(args);
        command.output().context("running nsenter (package util-linux)")
    }

    /// The processes of a node and of its containers, as this machine sees them.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn processes(&self, name: &str) -> Result<Vec<ProcessId>> {
        Ok(self.first_process(name)?.descendants())
    }

    /// Cuts a node off from the others and the control plane, or connects it again.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn connect(&self, name: &str, is_connected: bool) -> Result<()> {
        self.control.ip(&format!("link set {name} {}", if is_connected { "up" } else { "down" }))?;
        if is_connected {
            // The kernel has dropped the routes of a wire that was down.
            let (plan, _) = self.node(name)?;
            self.control.ip(&format!("route replace {} via {}", plan.pods(), plan.address()))?;
        }
        Ok(())
    }

    fn node(&self, name: &str) -> Result<&(NodePlan, Component)> {
        self.nodes.iter().find(|(plan, _)| plan.name == name).with_context(|| format!("there is no node {name}"))
    }

    /// A node's process 1: the child of `unshare`.
    fn first_process(&self, name: &str) -> Result<ProcessId> {
        let (_, component) = self.node(name)?;
        first_child(component).with_context(|| format!("node {name} has ended"))
    }

    /// What runs, with the log of each.
    pub fn parts(&self) -> Vec<(String, PathBuf)> {
        let nodes = self.nodes.iter().map(|(plan, component)| (plan.name.clone(), component.launch().log.clone()));
        let plane = self.plane.processes().into_iter().map(|(launch, _)| (launch.role.to_string(), launch.log));
        plane.chain(nodes).collect()
    }

    /// Waits until a part that should go on running has ended.
    ///
    /// # Errors
    /// Always: it says which part, and why.
    pub async fn watch(&mut self) -> Result<()> {
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (_, component) in &mut self.nodes {
                component.ensure_running()?;
            }
            for component in self.scheduler.iter_mut().chain(&mut self.dns) {
                component.ensure_running()?;
            }
        }
    }

    /// Ends everything.
    ///
    /// # Errors
    /// Names what could not be ended or removed.
    pub async fn stop(mut self) -> Result<()> {
        let cgroups: Vec<String> = self.nodes.iter().map(|(plan, _)| plan.cgroup.clone()).collect();
        // The kernel ends what the nodes have started with their process 1.
        let nodes = std::mem::take(&mut self.nodes);
        let ends: Vec<ProcessId> = nodes.iter().filter_map(|(_, component)| first_child(component)).collect();
        drop(nodes);
        for end in ends {
            end.wait_gone(Duration::from_secs(20)).await.context("waiting for the end of a node")?;
        }
        (self.scheduler, self.dns) = (None, None);
        self.plane.stop().await?;
        let deadline = Instant::now() + Duration::from_secs(20);
        for name in cgroups {
            // A group is empty a moment after its last process was seen to end.
            while let Err(error) = cgroups::remove(&name) {
                if Instant::now() > deadline {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }
}

fn first_child(component: &Component) -> Option<ProcessId> {
    let outer = component.id()?.pid;
    let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
    ProcessId::of(children.split_whitespace().next()?.parse().ok()?)
}

fn service_url() -> String {
    format!("https://{SERVICE}")
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"))
}
