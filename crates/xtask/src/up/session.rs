//! The session: starts everything, keeps it running, ends it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::cluster::{self, require_headers};
use drover_testkit::containerd::OwnContainerd;
use drover_testkit::control_plane::{Binaries, ControlPlane, Durability, Launch, Lifetime, Options, Place, Role, User};
use drover_testkit::manifests;
use drover_testkit::process::ProcessId;
use drover_testkit::progress::{Event, Progress};
use drover_testkit::workspace::{self, last_lines};
use futures::FutureExt as _;
use futures::future::{pending, select_all, try_join};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::UpArgs;
use super::earlier::Earlier;
use super::gateway::{self, GatewayPorts};
use super::layout::Layout;
use super::outlook::{Outlook, Part};
use super::services::{self, Phase, Restart, Services};
use super::settings::{Neighbours, Ports};
use super::shutdown::{self, Tasks};
use super::state::{Started, State, supervisor};
use super::{build, examples, rights, settings};
use crate::detach;

/// How long the controller may take to lead, and then the agent to register.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Everything that one `up` runs.
#[derive(Debug)]
pub struct Session {
    args: UpArgs,
    layout: Layout,
    state: State,
    plane: Option<ControlPlane>,
    services: Services,
    /// The gateway's; none until it starts.
    gateway_ports: Option<GatewayPorts>,
    containerd: Option<OwnContainerd>,
    droverd: PathBuf,
    /// Held as long as this session has the data folder.
    _lock: File,
}

/// `cargo xtask up`.
///
/// # Errors
/// When something does not start or does not become healthy; everything that was started has been ended then.
pub async fn up(args: UpArgs) -> Result<ExitCode> {
    for name in args.examples.iter().filter(|name| *name != "none") {
        examples::manifest(name)?;
    }
    if args.detach && !args.in_background {
        let layout = args.layout()?;
        layout.create()?;
        return detach::run(&layout.session_log()).await;
    }
    if args.in_background {
        detach::leave_terminal()?;
    }
    let progress = if args.in_background { Progress::for_parent() } else { Progress::for_people() };
    let Some(session) = Session::open(args)? else { return Ok(ExitCode::SUCCESS) };
    session.run(&progress).await
}

impl Session {
    /// Takes the data folder; none when another session has it, which is told to the user.
    ///
    /// # Errors
    /// When the folder cannot be used, or the session that has it lacks some of its processes.
    pub fn open(args: UpArgs) -> Result<Option<Self>> {
        if args.containers {
            require_headers()?;
        }
        let layout = args.layout()?;
        layout.create()?;
        let Some(lock) = layout.lock()? else {
            let state = State::read(&layout)?.unwrap_or_default();
            ensure_whole(&state, &layout)?;
            drover_testkit::progress::print_line(&already_runs(&layout, &state));
            return Ok(None);
        };
        if let Some(state) = State::read(&layout)? {
            ensure_nothing_left(&state, &layout)?;
        }
        let kubeconfig = args.kubeconfig.as_ref().map_or_else(|| Ok(layout.kubeconfig()), std::path::absolute)?;
        let restart = if args.no_restart { Restart::Never } else { Restart::After1s };
        Ok(Some(Self {
            args,
            state: State::new(kubeconfig),
            layout,
            plane: None,
            services: Services::new(restart),
            gateway_ports: None,
            containerd: None,
            droverd: PathBuf::new(),
            _lock: lock,
        }))
    }

    /// The data folder.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        drover_testkit::control_plane::client_of(&self.state.kubeconfig).await
    }

    /// The process of a role, while it runs.
    pub fn process(&self, role: Role) -> Option<ProcessId> {
        self.state.running(&self.layout).into_iter().find(|(known, _)| *known == role).map(|(_, id)| id)
    }

    /// The containerd of this session's own.
    pub fn containerd(&self) -> Option<&OwnContainerd> {
        self.containerd.as_ref()
    }

    /// Where the gateway answers users, and where agents; none before it was started.
    pub fn gateway(&self) -> Option<(SocketAddr, SocketAddr)> {
        let Ports { users, agents } = self.gateway_ports.as_ref()?.numbers();
        Some((SocketAddr::from(([127, 0, 0, 1], users)), SocketAddr::from(([127, 0, 0, 1], agents))))
    }

    async fn run(mut self, progress: &Progress) -> Result<ExitCode> {
        let mut signals = Signals::listen()?;
        let started = tokio::select! {
            biased;
            received = signals.next() => Err(received),
            started = self.start(progress) => Ok(started),
        };
        match started {
            Err(received) => return self.end(received, progress).await,
            Ok(Err(error)) => {
                let text = format!("{error:#}");
                let stopped = self.stop(progress).await;
                progress.show(Event::Failed { text });
                return stopped.map(|()| ExitCode::FAILURE);
            }
            Ok(Ok(())) => progress.show(Event::Finished { text: self.how_to_go_on() }),
        }
        // The process that waited in the foreground goes away now; what happens later is in the log.
        let later = if self.args.in_background { Progress::for_people() } else { progress.clone() };
        let ground = self.ground();
        let ended = tokio::select! {
            biased;
            received = signals.next() => Ok(received),
            launch = first_end(&ground) => Err(lost_ground(&launch)),
            kept = self.services.keep(Phase::Healthy, &self.layout, &mut self.state, &later) => {
                later.note(format!("nothing is started again from now on: {:#}", kept.err().context("the watch over the processes ended")?));
                Ok(signals.next().await)
            }
        };
        match ended {
            Ok(received) => self.end(received, &later).await,
            Err(text) => {
                later.note(format!(
                    "{text}\neverything is ended; `cargo xtask up` starts it again, with the same objects"
                ));
                self.stop(&later).await.map(|()| ExitCode::FAILURE)
            }
        }
    }

    /// The processes on which everything stands.
    fn ground(&self) -> Vec<(Launch, ProcessId)> {
        let processes = self.plane.iter().flat_map(ControlPlane::processes);
        processes.filter_map(|(launch, id)| Some((launch, id?))).collect()
    }

    /// Starts everything and waits until it is healthy.
    ///
    /// # Errors
    /// When something does not start or does not become healthy. What was started still runs.
    pub async fn start(&mut self, progress: &Progress) -> Result<()> {
        let profile = self.args.profile;
        let outlook = Outlook::open(&self.layout, self.args.kubeconfig.is_none(), progress);
        let (layout, shown) = (self.layout.clone(), progress.clone());
        let daemons = async {
            let build = tokio::task::spawn_blocking(move || build::daemons(&layout, profile, &shown));
            let droverd = build.await.context("building droverd")??;
            outlook.done(Part::Droverd);
            anyhow::Ok(droverd)
        };
        if self.args.kubeconfig.is_some() {
            self.droverd = daemons.await?;
        } else {
            let ground = start_plane(&self.layout, self.args.audit, &outlook, progress);
            // The control plane has ended when this fails in the build of the daemons: it is dropped then.
            let (plane, droverd) = try_join(ground, daemons).await?;
            for (launch, id) in plane.processes() {
                if let Some(id) = id {
                    self.state.note(Started::new(&launch, id));
                }
            }
            (self.plane, self.droverd) = (Some(plane), droverd);
        }
        self.state.write(&self.layout)?;
        let client = self.client().await?;
        install(&client, self.plane.as_ref(), progress).await?;
        let earlier = Earlier::observe(&client, supervisor(&self.layout).is_some()).await?;
        let step = progress.step("starting controller, gateway and agent");
        let config = settings::write_controller(&self.layout, &self.args)?;
        self.start_daemon(Role::Controller, User::Controller, &config)?;
        self.unless_one_dies(earlier.wait_for_leader(&client, START_TIMEOUT), progress).await?;
        let ports = self.start_gateway(&client).await?;
        self.start_containerd(progress).await?;
        let neighbours = Neighbours { gateway: ports, containerd: self.containerd.as_ref() };
        let config = settings::write_agent(&self.layout, &self.args, neighbours)?;
        self.start_daemon(Role::Agent, User::Agent, &config)?;
        let node = self.unless_one_dies(earlier.wait_for_node(&client, START_TIMEOUT), progress).await?;
        step.done(format!("node {node} is ready"));
        let args = self.args.clone();
        self.unless_one_dies(wait_healthy(&client, &earlier, &args, progress), progress).await
    }

    /// Starts the gateway, on our own control plane; in another cluster it would have to be reached from there.
    async fn start_gateway(&mut self, client: &kube::Client) -> Result<Option<Ports>> {
        if self.plane.is_none() {
            return Ok(None);
        }
        let found = GatewayPorts::find()?;
        let ports = found.numbers();
        self.gateway_ports = Some(found);
        gateway::prepare(client, &self.layout, ports).await?;
        let config = settings::write_gateway(&self.layout, ports)?;
        self.start_daemon(Role::Gateway, User::Gateway, &config)?;
        Ok(Some(ports))
    }

    /// Starts a containerd, where one was asked for.
    async fn start_containerd(&mut self, progress: &Progress) -> Result<()> {
        if !self.args.containers {
            return Ok(());
        }
        let (folder, shown) = (self.layout.containerd(), progress.clone());
        let start = move || {
            cluster::node_programs(&shown)?;
            OwnContainerd::start(&folder)
        };
        let started = tokio::task::spawn_blocking(start).await.context("starting containerd")?;
        self.containerd = Some(started.context("starting containerd (`--containers`)")?);
        Ok(())
    }

    /// Waits for something that controller and agent bring about, and keeps them running meanwhile.
    async fn unless_one_dies<T>(&mut self, wait: impl Future<Output = Result<T>>, progress: &Progress) -> Result<T> {
        let ground = self.ground();
        tokio::select! {
            biased;
            launch = first_end(&ground) => bail!("{}", lost_ground(&launch)),
            done = wait => done.with_context(|| format!("the logs are in {}", self.layout.logs().display())),
            died = self.services.keep(Phase::Starting, &self.layout, &mut self.state, progress) => {
                died.and_then(|()| bail!("the watch over the processes ended"))
            }
        }
    }

    fn start_daemon(&mut self, role: Role, user: User, config: &Path) -> Result<()> {
        let kubeconfig =
            self.plane.as_ref().map_or_else(|| self.state.kubeconfig.clone(), |plane| plane.kubeconfig(user));
        let launch = services::launch(role, &self.droverd, config, &kubeconfig, &self.layout);
        self.services.start(launch, &self.layout, &mut self.state)
    }

    async fn end(self, received: Received, progress: &Progress) -> Result<ExitCode> {
        match received {
            Received::Interrupt if self.args.keep_tasks => {
                shutdown::stop_all(&self.state, &self.layout, Tasks::Keep, progress).await?;
                self.containerd.map_or(Ok(()), OwnContainerd::leave)?;
                progress.note("the tasks and their supervisor go on; `cargo xtask up` takes them up again, `cargo xtask down` ends them");
                Ok(ExitCode::from(130))
            }
            Received::Interrupt => self.stop(progress).await.map(|()| ExitCode::from(130)),
            Received::Terminate => self.stop(progress).await.map(|()| ExitCode::SUCCESS),
        }
    }

    /// Ends everything, tasks too.
    ///
    /// # Errors
    /// Names what could not be ended.
    pub async fn stop(self, progress: &Progress) -> Result<()> {
        let plane = self.plane.iter().flat_map(ControlPlane::processes);
        let mut state = self.state;
        // A start that was interrupted may not have written all of it down.
        for (launch, id) in plane.filter_map(|(launch, id)| Some((launch, id?))) {
            state.note(Started::new(&launch, id));
        }
        shutdown::stop_all(&state, &self.layout, Tasks::End, progress).await
    }

    /// The folders of kubectl and of the user's command.
    fn programs(&self) -> String {
        let plane = self.plane.as_ref();
        let kubectl = plane.and_then(|plane| plane.binaries().kubectl().parent()).map(Path::to_owned);
        let folders = [Some(workspace::root().join("target/debug")), kubectl];
        let folders: Vec<String> = folders.into_iter().flatten().map(|folder| folder.display().to_string()).collect();
        folders.join(":")
    }

    /// How `drover alloc` reaches what runs here: by the gateway, which only our own control plane has.
    fn way_to_allocations(&self) -> String {
        match self.gateway_ports {
            Some(_) => {
                "  drover alloc logs NAME  # and exec, fs, stats: by that API server, through the gateway".to_owned()
            }
            None => format!("  export DROVER_AGENT_SOCKET={}", self.layout.agent_socket().display()),
        }
    }

    fn how_to_go_on(&self) -> String {
        let kubectl =
            self.plane.as_ref().map_or_else(|| "kubectl".to_owned(), |plane| kubectl_command(plane.binaries()));
        let data =
            self.args.data.as_ref().map(|_| format!(" --data {}", self.layout.root.display())).unwrap_or_default();
        let job = self.args.examples.iter().find(|name| *name != "none").map_or("NAME", String::as_str);
        let containers = self.containerd.as_ref().map(|containerd| {
            let (ctr, socket) = (containerd.programs().join("ctr"), containerd.socket());
            format!("  {} -a {} -n drover.dev images ls  # and import, pull", ctr.display(), socket.display())
        });
        let lines = [
            "drover is up. Its API server is used with".to_owned(),
            format!("  export KUBECONFIG={}", self.state.kubeconfig.display()),
            self.way_to_allocations(),
            format!(
                "  export PATH={}:$PATH  # {}",
                self.programs(),
                "kubectl, and drover once `cargo build --bin drover` is done"
            ),
            format!("  {kubectl} get djob,alloc,cnode"),
            format!("  {kubectl} describe djob/{job}"),
            format!("  {kubectl} apply -f examples/wordcount.yaml"),
            format!("  {kubectl} delete djob/{job}"),
        ];
        let last = [
            format!("What runs and where its logs are: cargo xtask status{data}"),
            if self.args.in_background {
                format!("To stop everything: cargo xtask down{data}")
            } else {
                "To stop everything: Ctrl-C".to_owned()
            },
        ];
        lines.into_iter().chain(containers).chain(last).collect::<Vec<_>>().join("\n")
    }
}

/// Waits until one of these processes has ended. Does not return when none is there, or none can be watched.
async fn first_end(processes: &[(Launch, ProcessId)]) -> Launch {
    let ends = processes.iter().map(|(launch, id)| {
        async move {
            if id.ended().await.is_err() {
                pending::<()>().await;
            }
            launch.clone()
        }
        .boxed_local()
    });
    let ends: Vec<_> = ends.collect();
    if ends.is_empty() {
        return pending().await;
    }
    select_all(ends).await.0
}

/// That a process ended without which nothing works, and its last words.
fn lost_ground(Launch { role, log, .. }: &Launch) -> String {
    format!(
        "{role} ended, and nothing works without it; the end of its log {}:\n{}",
        log.display(),
        last_lines(log, 15)
    )
}

async fn start_plane(layout: &Layout, audit: bool, outlook: &Outlook, progress: &Progress) -> Result<ControlPlane> {
    let shown = progress.clone();
    let binaries = tokio::task::spawn_blocking(move || Binaries::find_or_build_for_user(&shown))
        .await
        .context("building the control plane")??;
    outlook.done(Part::ControlPlane);
    let step = progress.step("starting etcd and kube-apiserver");
    let options = Options {
        data_dir: layout.root.clone(),
        binaries,
        durability: Durability::Fsync,
        audit,
        lifetime: Lifetime::Independent,
        controller_manager: true,
        api_server_args: Vec::new(),
        place: Place::Loopback,
    };
    let plane = ControlPlane::start(options).await?;
    step.done(plane.url());
    Ok(plane)
}

/// Puts the kinds, the namespace, the roles and the policies on Jobs into the cluster; on our own control plane also
/// users' bindings.
async fn install(client: &kube::Client, plane: Option<&ControlPlane>, progress: &Progress) -> Result<()> {
    let step = progress.step("applying custom resource definitions and roles");
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {}}}\n", drover_api::SYSTEM_NAMESPACE);
    let mut objects = manifests::parse(&namespace)?;
    for folder in ["charts/drover/files/rbac", "charts/drover/files/policies"] {
        for file in manifests::files_in(&workspace::root().join(folder))? {
            objects.extend(manifests::read(&file)?);
        }
    }
    if plane.is_some() {
        objects.extend(bindings()?);
    }
    let roles = async {
        for object in &objects {
            manifests::apply(client, object, drover_api::SYSTEM_NAMESPACE).await?;
        }
        Ok(())
    };
    let crds = manifests::crds_folder();
    let (n_kinds, ()) = try_join(manifests::apply_crds(client, &crds), roles).await?;
    if let Some(plane) = plane {
        rights::wait(&plane.client(User::Controller).await?, &rights::CONTROLLER).await?;
        rights::wait(&plane.client(User::Agent).await?, &rights::AGENT).await?;
    }
    step.done(format!("{n_kinds} kinds"));
    Ok(())
}

/// Binds the users of our control plane; in a cluster these are service accounts, bound by the chart.
fn bindings() -> Result<Vec<kube::api::DynamicObject>> {
    let bind = |kind: &str, role_kind: &str, role: &str, user: User| {
        format!(
            "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {role}-{user}, namespace: {namespace}}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {role_kind}, name: {role}}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]\n",
            namespace = if kind == "RoleBinding" { drover_api::SYSTEM_NAMESPACE } else { "\"\"" },
            user = user.name(),
        )
    };
    let mut text = String::new();
    let daemons =
        [("drover-controller", User::Controller), ("drover-agent", User::Agent), ("drover-gateway", User::Gateway)];
    for (role, user) in daemons {
        text += &bind("ClusterRoleBinding", "ClusterRole", role, user);
        text += &bind("RoleBinding", "Role", role, user);
    }
    for role in ["view", "drover-edit", "drover-volume-admin"] {
        text += &bind("ClusterRoleBinding", "ClusterRole", role, User::Developer);
    }
    let mut objects = manifests::parse(&text)?;
    for object in objects.iter_mut().filter(|object| object.metadata.namespace.as_deref() == Some("")) {
        object.metadata.namespace = None;
    }
    Ok(objects)
}

async fn wait_healthy(client: &kube::Client, earlier: &Earlier, args: &UpArgs, progress: &Progress) -> Result<()> {
    if earlier.n_allocations() > 0 {
        let step = progress.step(format!("starting {} allocations of the last time again", earlier.n_allocations()));
        earlier.wait_for_reports(client, Duration::from_secs(args.timeout), &step).await?;
        step.done("");
    }
    for name in args.examples.iter().filter(|name| *name != "none") {
        let manifest = examples::manifest(name)?;
        examples::apply_and_wait(client, &manifest, Duration::from_secs(args.timeout), progress).await?;
    }
    Ok(())
}

/// What an earlier session left running would use the same folders.
fn ensure_nothing_left(state: &State, layout: &Layout) -> Result<()> {
    // A supervisor alone is what `--keep-tasks` leaves: the agent takes it up again.
    let left: Vec<String> = state
        .running(layout)
        .iter()
        .filter(|(role, _)| *role != Role::Supervisor)
        .map(|(role, id)| format!("{role} (process {})", id.pid))
        .collect();
    if !left.is_empty() {
        bail!(
            "an earlier session in {} ended and left {} running: end them with `cargo xtask down`",
            layout.root.display(),
            left.join(", ")
        );
    }
    Ok(())
}

/// A session that has lost a process is not what a second `up` was asked for.
fn ensure_whole(state: &State, layout: &Layout) -> Result<()> {
    let dead: Vec<String> =
        state.dead().iter().map(|one| format!("{} (its log is {})", one.role, one.log.display())).collect();
    if !dead.is_empty() {
        bail!(
            "drover runs already in {}, but without {}: look at `cargo xtask status`, or end it with `cargo xtask down` and start again",
            layout.root.display(),
            dead.join(", ")
        );
    }
    Ok(())
}

fn already_runs(layout: &Layout, state: &State) -> String {
    let session = state.session.map_or_else(String::new, |id| format!(" (process {})", id.pid));
    format!(
        "drover runs already in {}{session}\n  export KUBECONFIG={}\n  cargo xtask status\n  cargo xtask down",
        layout.root.display(),
        state.kubeconfig.display()
    )
}

fn kubectl_command(binaries: &Binaries) -> String {
    if workspace::find_on_path("kubectl").is_some() {
        "kubectl".to_owned()
    } else {
        binaries.kubectl().display().to_string()
    }
}

/// Why the session is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Interrupt,
    Terminate,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Received {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Received::Terminate,
            _ = self.interrupt.recv() => Received::Interrupt,
        }
    }
}
