//! Starting, holding and stopping the programs of a control plane.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::Instant;

use super::audit::{self, AuditLog};
use super::binaries::Binaries;
use super::component::{Component, Launch, Lifetime, Role};
use super::credentials::{Account, Credentials, User};
use super::front_proxy::pki;
use super::port::ReservedPort;
use crate::process::{ProcessId, Signal};
use crate::workspace::{last_lines, write_private};

/// How long a program may take until it serves, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(4);
/// How long a program may take to end by itself after SIGTERM: the API server waits for clients that keep their
/// connections open, up to a minute, and etcd for the API server's watches. What they have answered is on disk by then.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The port of an API server with an address of its own: that of the Service `kubernetes`, so that nothing has to
/// translate.
const NAMESPACE_PORT: u16 = 443;
/// How often a starting program is asked whether it serves.
const POLL: Duration = Duration::from_millis(25);

/// Controllers that objects need to live and die; the rest would only cost memory and watches.
const MANAGER_CONTROLLERS: &[&str] = &[
    "clusterrole-aggregation-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "validatingadmissionpolicy-status-controller",
];

/// Whether etcd waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every write is on disk before it is answered.
    Fsync,
    /// Writes may be lost when the machine dies: for tests only.
    NoFsync,
}

/// Where the API server listens.
#[derive(Debug, Clone)]
pub enum Place {
    /// On loopback, for this machine's own programs.
    Loopback,
    /// In a network namespace, for nodes and pods. All of Kubernetes' controllers run then.
    Namespace {
        /// A path that leads to the namespace.
        path: PathBuf,
        /// The address at which we reach it.
        address: Ipv4Addr,
        /// Who else has a token: nodes, the scheduler.
        accounts: Vec<Account>,
    },
}

/// How a control plane is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder for data, keys and logs; created when missing.
    pub data_dir: PathBuf,
    /// The programs.
    pub binaries: Binaries,
    /// Whether etcd waits for the disk.
    pub durability: Durability,
    /// Whether the API server logs every write ([`ControlPlane::audit_log`]).
    pub audit: bool,
    /// What happens to the programs when this process ends without a word.
    pub lifetime: Lifetime,
    /// Whether kube-controller-manager runs. Without it no owned object is collected and no namespace ever ends.
    pub controller_manager: bool,
    /// Where the API server listens.
    pub place: Place,
    /// What the API server is told beside what all are told, for example `--request-timeout=10s`.
    pub api_server_args: Vec<String>,
}

impl Place {
    fn accounts(&self) -> &[Account] {
        match self {
            Self::Loopback => &[],
            Self::Namespace { accounts, .. } => accounts,
        }
    }

    fn bind_address(&self) -> Ipv4Addr {
        match self {
            Self::Loopback => Ipv4Addr::LOCALHOST,
            Self::Namespace { .. } => Ipv4Addr::UNSPECIFIED,
        }
    }

    fn manager_controllers(&self) -> String {
        match self {
            Self::Loopback => MANAGER_CONTROLLERS.join(","),
            Self::Namespace { .. } => "*".to_owned(),
        }
    }

    /// The command that runs a program there.
    fn command(&self, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
        match self {
            Self::Loopback => (program, args),
            Self::Namespace { path, .. } => {
                let mut all = vec![format!("--net={}", path.display()), program.display().to_string()];
                all.extend(args);
                (PathBuf::from("nsenter"), all)
            }
        }
    }
}

impl Options {
    /// Returns what tests want: no waiting for the disk, an audit log, and nothing that outlives the test run.
    pub fn for_tests(data_dir: impl Into<PathBuf>, binaries: Binaries) -> Self {
        Self {
            data_dir: data_dir.into(),
            binaries,
            durability: Durability::NoFsync,
            audit: true,
            lifetime: Lifetime::BoundToThisProcess,
            controller_manager: true,
            place: Place::Loopback,
            api_server_args: Vec::new(),
        }
    }
}

/// A running control plane. Ends with this value.
#[derive(Debug)]
pub struct ControlPlane {
    options: Options,
    credentials: Credentials,
    address: SocketAddrV4,
    /// Held as long as the API server may come back to it.
    _port: Option<ReservedPort>,
    /// Ended in this order when dropped: no program is left waiting for the one below.
    components: BTreeMap<std::cmp::Reverse<Role>, Mutex<Component>>,
}

impl ControlPlane {
    /// Starts the programs and returns when the API server is ready, usually after a second or two.
    ///
    /// # Errors
    /// When a program does not start or does not get ready; the error shows the end of its log.
    pub async fn start(mut options: Options) -> Result<Self> {
        // The programs run inside the folder and get its path as an argument too.
        options.data_dir = std::path::absolute(&options.data_dir).context("the data folder")?;
        // Tasks of other users reach their folders below it, which is why it may be passed through but not read.
        create_folder(&options.data_dir, 0o711)?;
        for folder in ["logs", "pki", "certs", "audit", "kubeconfigs"] {
            create_folder(&options.data_dir.join(folder), 0o700)?;
        }
        let credentials = Credentials::open(&pki(&options.data_dir), options.place.accounts())?;
        write_private(&options.data_dir.join("audit/policy.yaml"), audit::POLICY)?;
        let (address, port) = match &options.place {
            Place::Loopback => {
                let port = ReservedPort::find()?;
                (SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.number), Some(port))
            }
            Place::Namespace { address, .. } => (SocketAddrV4::new(*address, NAMESPACE_PORT), None),
        };
        let mut plane = Self { options, credentials, address, _port: port, components: BTreeMap::new() };
        plane.launch(plane.etcd_launch()).await?;
        plane.launch(plane.apiserver_launch()).await?;
        if plane.options.controller_manager {
            plane.launch(plane.manager_launch()?).await?;
        }
        Ok(plane)
    }

    /// The programs that it was started from.
    pub fn binaries(&self) -> &Binaries {
        &self.options.binaries
    }

    /// The folder with data, keys and logs.
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// The address of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The key that signs tokens of `ServiceAccounts` (P-256, PKCS #8 in PEM): what a test needs for a token of another
    /// life than the API server makes.
    pub fn account_key(&self) -> &Path {
        &self.credentials.account_key
    }

    /// The kubeconfig file of a user.
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        match user {
            User::Admin => self.options.data_dir.join("kubeconfig"),
            User::ControllerManager | User::Controller | User::Agent | User::Gateway | User::Developer => {
                self.options.data_dir.join(format!("kubeconfigs/{}", user.name()))
            }
        }
    }

    /// Writes a kubeconfig for one of the other accounts, which reaches the API server at `server`.
    ///
    /// # Errors
    /// When there is no such account, or the folder cannot be written.
    pub fn write_kubeconfig(&self, account: &str, server: &str) -> Result<PathBuf> {
        let path = self.options.data_dir.join(format!("kubeconfigs/{}", account.replace(':', "-")));
        let certificate = self.certificate();
        let authority = fs::read(&certificate).with_context(|| format!("reading {}", certificate.display()))?;
        write_private(&path, &self.credentials.kubeconfig(account, server, &authority)?)?;
        Ok(path)
    }

    /// Returns a client that acts as a user. It belongs to the tokio runtime that it is made in.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self, user: User) -> Result<kube::Client> {
        client_of(&self.kubeconfig(user)).await
    }

    /// Returns the audit log from now on.
    ///
    /// # Errors
    /// When it was not asked for in [`Options`], or cannot be read.
    pub fn audit_log(&self) -> Result<AuditLog> {
        if !self.options.audit {
            bail!(
                "the API server was started without an audit log: set `audit` in its options (`cargo xtask up --audit`)"
            );
        }
        AuditLog::at_end(&self.audit_path())
    }

    /// The process of a program, while it runs.
    pub fn process(&self, role: Role) -> Option<ProcessId> {
        self.components.get(&std::cmp::Reverse(role)).and_then(|component| lock(component).id())
    }

    /// How each program was started, and its process while it runs.
    pub fn processes(&self) -> Vec<(Launch, Option<ProcessId>)> {
        let mut all: Vec<_> =
            self.components.values().map(lock).map(|component| (component.launch().clone(), component.id())).collect();
        all.reverse();
        all
    }

    /// Ends a program with SIGTERM, after 10 s with SIGKILL, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn terminate(&self, role: Role) -> Result<()> {
        self.end(role, Signal::TERM).await
    }

    /// Ends a program with SIGKILL.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&self, role: Role) -> Result<()> {
        self.end(role, Signal::KILL).await
    }

    /// Holds a program (SIGSTOP): its connections stay open and are not answered.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn pause(&self, role: Role) -> Result<()> {
        self.component(role)?.signal(Signal::STOP)
    }

    /// Lets a held program go on (SIGCONT), and waits until it serves: what tried to reach it meanwhile fills its
    /// queue.
    ///
    /// # Errors
    /// When there is no such program, or it does not get ready.
    pub async fn resume(&self, role: Role) -> Result<()> {
        self.component(role)?.signal(Signal::CONT)?;
        self.wait_ready(role).await
    }

    /// Starts an ended program again, on the same port and data, and waits until it serves.
    ///
    /// # Errors
    /// When it still runs, or does not get ready.
    pub async fn restart(&self, role: Role) -> Result<()> {
        self.component(role)?.start_again()?;
        self.wait_ready(role).await
    }

    /// Ends all programs in order, each with SIGTERM: the API server still has its etcd while it ends.
    ///
    /// # Errors
    /// When one does not end.
    pub async fn stop(&self) -> Result<()> {
        for role in [Role::KubeControllerManager, Role::KubeApiserver, Role::Etcd] {
            if self.process(role).is_some() {
                self.terminate(role).await?;
            }
        }
        Ok(())
    }

    fn component(&self, role: Role) -> Result<MutexGuard<'_, Component>> {
        self.components
            .get(&std::cmp::Reverse(role))
            .map(lock)
            .with_context(|| format!("{role} is not part of this control plane"))
    }

    async fn launch(&mut self, launch: Launch) -> Result<()> {
        let role = launch.role;
        self.components.insert(std::cmp::Reverse(role), Mutex::new(Component::start(launch)?));
        self.wait_ready(role).await
    }

    async fn end(&self, role: Role, signal: Signal) -> Result<()> {
        let Some(id) = self.component(role)?.id() else { bail!("{role} is not running") };
        // A held program acts on SIGTERM only when it goes on.
        for signal in [signal, Signal::CONT] {
            id.signal(signal).with_context(|| format!("ending {role}"))?;
        }
        let waiting = || format!("waiting for the end of {role}");
        if !id.wait_gone(STOP_TIMEOUT).await.with_context(waiting)? {
            id.signal(Signal::KILL).with_context(|| format!("ending {role}"))?;
        }
        if !id.wait_gone(STOP_TIMEOUT).await.with_context(waiting)? {
            let tail = last_lines(&self.log(role), 15);
            bail!(
                "{role} (process {}) still runs {} s after the signal; the end of its log:\n{tail}",
                id.pid,
                STOP_TIMEOUT.as_secs()
            );
        }
        self.component(role)?.reap().map(|_| ())
    }

    async fn wait_ready(&self, role: Role) -> Result<()> {
        match role {
            Role::Etcd => self.poll_until(role, || self.etcd_serves()).await,
            Role::KubeApiserver => self.wait_apiserver_ready().await,
            Role::KubeControllerManager
            | Role::KubeScheduler
            | Role::ClusterDns
            | Role::Node
            | Role::Controller
            | Role::Agent
            | Role::Gateway
            | Role::Supervisor => self.component(role)?.ensure_running(),
        }
    }

    fn etcd_serves(&self) -> bool {
        // The path of a socket is limited to 107 bytes, so it is reached through an open folder where the data folder's
        // is longer.
        let Ok(folder) = fs::File::open(&self.options.data_dir) else { return false };
        let path = format!("/proc/self/fd/{}/etcd.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
        std::os::unix::net::UnixStream::connect(path).is_ok()
    }

    async fn wait_apiserver_ready(&self) -> Result<()> {
        // The API server makes its own certificate at the first start. Written in place, so a part of it may be seen.
        let certificate = self.certificate();
        let key = self.options.data_dir.join("certs/apiserver.key");
        self.poll_until(Role::KubeApiserver, || fs::metadata(&key).is_ok_and(|meta| meta.len() > 0)).await?;
        self.poll_until(Role::KubeApiserver, || std::net::TcpStream::connect(self.address).is_ok()).await?;
        let authority = fs::read(&certificate).with_context(|| format!("reading {}", certificate.display()))?;
        for user in User::ALL {
            write_private(&self.kubeconfig(user), &self.credentials.kubeconfig(user.name(), &self.url(), &authority)?)?;
        }
        let client = self.client(User::Admin).await?;
        let deadline = Instant::now() + START_TIMEOUT;
        while let Err(reason) = is_ready(&client).await {
            self.component(Role::KubeApiserver)?.ensure_running()?;
            if Instant::now() > deadline {
                bail!("kube-apiserver is not ready after {} s: {reason:#}", START_TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn poll_until(&self, role: Role, is_done: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        while !is_done() {
            self.component(role)?.ensure_running()?;
            if Instant::now() > deadline {
                bail!(
                    "{role} does not serve after {} s; its log is {}",
                    START_TIMEOUT.as_secs(),
                    self.log(role).display()
                );
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn log(&self, role: Role) -> PathBuf {
        self.options.data_dir.join(format!("logs/{role}.log"))
    }

    fn audit_path(&self) -> PathBuf {
        self.options.data_dir.join("audit/audit.log")
    }

    fn certificate(&self) -> PathBuf {
        self.options.data_dir.join("certs/apiserver.crt")
    }

    fn new_launch(&self, role: Role, program: PathBuf, args: Vec<String>) -> Launch {
        let folder = self.options.data_dir.clone();
        let (program, args) = self.options.place.command(program, args);
        Launch { role, program, args, env: Vec::new(), folder, log: self.log(role), lifetime: self.options.lifetime }
    }

    /// etcd listens on a socket in the data folder: only its owner reaches it, and no port can be taken by a
    /// stranger.
    fn etcd_launch(&self) -> Launch {
        let mut args = strings(&[
            "--name=drover",
            "--data-dir=etcd",
            "--listen-client-urls=unix://etcd.sock",
            "--advertise-client-urls=unix://etcd.sock",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--log-level=warn",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=1h",
        ]);
        if self.options.durability == Durability::NoFsync {
            args.push("--unsafe-no-fsync".to_owned());
        }
        self.new_launch(Role::Etcd, self.options.binaries.etcd(), args)
    }

    fn apiserver_launch(&self) -> Launch {
        let Credentials { token_file, account_key, account_public_key, .. } = &self.credentials;
        let mut args = strings(&[
            "--etcd-servers=unix://etcd.sock",
            // The address in the `kubernetes` endpoints would have to be another than loopback; nothing here needs
            // them.
            "--endpoint-reconciler-type=none",
            "--cert-dir=certs",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--enable-admission-plugins=NodeRestriction",
            // Watches do not hold up the end of the server.
            "--shutdown-delay-duration=0s",
            "--shutdown-watch-termination-grace-period=1s",
            "--profiling=false",
        ]);
        args.push(format!("--secure-port={}", self.address.port()));
        args.push(format!("--advertise-address={}", self.address.ip()));
        args.push(format!("--bind-address={}", self.options.place.bind_address()));
        args.push(format!("--service-account-key-file={}", account_public_key.display()));
        args.push(format!("--service-account-signing-key-file={}", account_key.display()));
        args.push(format!("--token-auth-file={}", token_file.display()));
        args.extend(self.credentials.front_proxy.args());
        args.extend(self.options.api_server_args.iter().cloned());
        if let Place::Namespace { .. } = self.options.place {
            // Nothing here translates the names of nodes.
            args.push("--kubelet-preferred-address-types=InternalIP".to_owned());
            // Nor the addresses of Services: an aggregated API is reached at its pods.
            args.push("--enable-aggregator-routing=true".to_owned());
        }
        if self.options.audit {
            args.extend(strings(&["--audit-policy-file=audit/policy.yaml", "--audit-log-path=audit/audit.log"]));
        }
        self.new_launch(Role::KubeApiserver, self.options.binaries.kube_apiserver(), args)
    }

    fn manager_launch(&self) -> Result<Launch> {
        let mut args = strings(&[
            "--leader-elect=false",
            "--secure-port=0",
            "--root-ca-file=certs/apiserver.crt",
            "--profiling=false",
        ]);
        args.push(format!("--kubeconfig={}", self.kubeconfig(User::ControllerManager).display()));
        args.push(format!("--service-account-private-key-file={}", self.credentials.account_key.display()));
        args.push(format!("--controllers={}", self.options.place.manager_controllers()));
        // Its own limit of 20 requests per second would let the objects of a large job linger for a quarter of a
        // minute.
        args.extend(["--kube-api-qps=200".to_owned(), "--kube-api-burst=400".to_owned()]);
        Ok(self.new_launch(Role::KubeControllerManager, self.options.binaries.kube_controller_manager()?, args))
    }
}

/// Returns a client for the current context of a kubeconfig file.
///
/// # Errors
/// When the file cannot be read or names no server.
pub async fn client_of(kubeconfig: &Path) -> Result<kube::Client> {
    let read = || format!("reading the kubeconfig {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(read)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.with_context(read)?;
    // Everything is on this machine. A server that is being held must not hold up a request without limit.
    config.connect_timeout = Some(Duration::from_secs(5));
    drover_connect::client(config).with_context(|| format!("making a client from {}", kubeconfig.display()))
}

async fn is_ready(client: &kube::Client) -> Result<()> {
    let request = http::Request::get("/readyz").body(Vec::new()).context("building the request")?;
    let answer = tokio::time::timeout(Duration::from_secs(5), client.request_text(request))
        .await
        .context("no answer within 5 s")?;
    answer.map(|_| ()).context("/readyz")
}

fn lock(component: &Mutex<Component>) -> MutexGuard<'_, Component> {
    component.lock().unwrap_or_else(PoisonError::into_inner)
}

fn strings(args: &[&str]) -> Vec<String> {
    args.iter().map(|&arg| arg.to_owned()).collect()
}

/// Keys, tokens and logs are for their owner alone.
fn create_folder(folder: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .with_context(|| format!("creating {}", folder.display()))
}

#[cfg(test)]
mod tests;
