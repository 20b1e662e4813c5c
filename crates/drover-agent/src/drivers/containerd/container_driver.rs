//! A task as a container: made by containerd, adopted by the supervisor, then let go.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::DriverInfo;
use drover_clock::SharedClock;
use drover_containerd::api::containers::{Container, container};
use drover_containerd::api::runc;
use drover_containerd::api::snapshots::PrepareSnapshotRequest;
use drover_containerd::api::task::{Process, Status};
use drover_containerd::api::types::Mount;
use drover_containerd::{NewTask, runc_options, spec_of};
use drover_core::task::container_config::{ContainerConfig, image_name};
use drover_core::task::pull_credentials::pull_credentials;
use drover_supervisor::client::{Client, Recovery};
use drover_supervisor::protocol::{BindMount, Exit, Handle, LogSpec};
use drover_supervisor::{ContainerGroup, ContainerProcess, container_group, hold_fifos, remove_fifos};
use futures::future::BoxFuture;
use futures::{FutureExt as _, TryFutureExt as _};
use serde_json::{Map, Value};

use super::image_facts::ImageFacts;
use super::image_user::ImageAccounts;
use super::node_containers::{ContainerLabels, NodeContainers, OF_TASK, ROOT};
use super::node_images::{ImageOfTask, OF_ALLOCATION, of_containerd, open_archive};
use super::runtime_spec::{ContainerPlace, ContainerTask, DeviceNode, own_directories, runtime_spec};
use crate::drivers::driver::{
    Driver, DriverError, ExitResult, FsIsolation, HealthReport, NetworkPlace, Running, StartError, StartRequest,
    StatsError, TaskHandle, UsageStream,
};
use crate::drivers::found_image::FoundImage;
use crate::drivers::process;

/// How long the end of a container may take that has not begun.
const UNDO_TIMEOUT: Duration = Duration::from_secs(15);

/// The driver, under one of its names.
#[derive(Debug)]
pub(crate) struct ContainerDriver {
    name: &'static str,
    node: Arc<NodeContainers>,
    supervisor: Client,
    clock: SharedClock,
}

impl ContainerDriver {
    /// The driver of this name over this supervisor.
    pub(crate) fn new(name: &'static str, node: Arc<NodeContainers>, supervisor: Client, clock: SharedClock) -> Self {
        Self { name, node, supervisor, clock }
    }

    fn config(&self, config: &Map<String, Value>) -> Result<ContainerConfig, StartError> {
        ContainerConfig::read(self.name, config).map_err(StartError::Invalid)
    }

    /// Has the image on the node, and says what the task is to begin with.
    async fn fetch(&self, request: &StartRequest) -> Result<FoundImage, StartError> {
        if let Some(reason) = self.node.unusable() {
            return Err(StartError::Invalid(reason));
        }
        let config = self.config(&request.config)?;
        self.node.settings.check(&config, &request.network)?;
        self.node.maker.announce();
        let (name, images) = (image_name(&config.image).map_err(StartError::Invalid)?, &self.node.images);
        let image = ImageOfTask { allocation: allocation_of(&request.id), task: &request.task, name: &name };
        let needed = images.needed.need(&name);
        if !config.force_pull {
            let (kept, present) = tokio::try_join!(images.kept(image), images.free_target(&name))?;
            let is_kept = kept.is_some();
            if let Some(target) = kept.or(present.filter(|_| config.load.is_none())) {
                return Ok(FoundImage { target, is_kept, _needed: needed });
            }
        }
        self.take_in(request, &config, &name, config.pull_timeout()).await?;
        match images.target(&name).await? {
            Some(target) => Ok(FoundImage { target, is_kept: false, _needed: needed }),
            None if config.load.is_some() => Err(StartError::Invalid(format!(
                "config.load: the archive has no image {name}: name in config.image one that it has"
            ))),
            None => Err(given_up(&name)),
        }
    }

    /// Has the image come onto the node, from its registry or from an archive.
    async fn take_in(
        &self,
        request: &StartRequest,
        config: &ContainerConfig,
        name: &str,
        limit: Duration,
    ) -> Result<(), StartError> {
        if let Some(load) = &config.load {
            let archive = open_archive(load, &request.alloc_dir, &request.task_dir)?;
            return self.node.images.load(name, archive, limit).await;
        }
        let credentials = pull_credentials(name, &request.pull_secrets.0);
        let credentials = credentials.map_err(|error| StartError::Recoverable(error.to_string()))?;
        self.node.images.pull(name, credentials, limit).await
    }

    async fn start_task(&self, request: StartRequest) -> Result<Running, StartError> {
        let config = self.config(&request.config)?;
        let id = container_id(&request.id);
        self.node.hold(&id);
        let started = self.make(&id, &request, &config).await;
        if started.is_err() {
            if let Err(error) = self.node.remove(&id).await {
                tracing::warn!(error = %error, container = id, "what a failed start has left is taken away later");
            }
            self.node.discard(&id);
        }
        started
    }

    async fn make(&self, id: &str, request: &StartRequest, config: &ContainerConfig) -> Result<Running, StartError> {
        let node = &self.node;
        let name = image_name(&config.image).map_err(StartError::Invalid)?;
        let image = ImageOfTask { allocation: allocation_of(&request.id), task: &request.task, name: &name };
        let Some(FoundImage { target, is_kept, .. }) = request.image.get() else { return Err(given_up(&name)) };
        let facts = node.images.facts(&name, target).await?;
        // With which one it begins is noted while its root is made: both wait for containerd's disk.
        let noted = async { if *is_kept { Ok(()) } else { node.images.keep(image, target.clone()).await } };
        let ((), root) = tokio::try_join!(noted, self.root(id, request, (&name, &facts)))?;
        let logs = process::log_spec(request)?;
        let group = container_group(
            &node.settings.cgroup_base,
            &request.id.replace('/', "."),
            !request.resources.cores.is_empty(),
        )
        .map_err(|error| StartError::Recoverable(format!("its control group: {error}")))?;
        let container = self.container(
            request,
            config,
            &UnbegunContainer { id, name, facts, root: &root, group: &group, logs: logs.as_ref() },
        )?;
        let _others = node.turns.share(allocation_of(&request.id)).await;
        node.api.create_container(container).await.map_err(|error| of_containerd(&error))?;
        self.run(id, request, Begun { root, group, logs, tty: config.tty }).await
    }

    /// Makes the container's root of its image, and says how it is mounted.
    async fn root(
        &self,
        id: &str,
        request: &StartRequest,
        (name, facts): (&str, &ImageFacts),
    ) -> Result<Vec<Mount>, StartError> {
        let node = &self.node;
        let snapshot = PrepareSnapshotRequest {
            snapshotter: node.settings.snapshotter.clone(),
            key: id.to_owned(),
            parent: facts.snapshot().to_owned(),
            labels: [(ROOT, "drover"), (OF_TASK, &request.id)]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        if let Ok(root) = node.api.prepare_snapshot(snapshot.clone()).await {
            return Ok(root);
        }
        // Mostly its layers are not unpacked; what else there is, is told now.
        node.images.unpack(name, facts, self.clock.now()).await?;
        node.api.prepare_snapshot(snapshot).await.map_err(|error| of_containerd(&error))
    }

    /// The container as containerd writes it down.
    fn container(
        &self,
        request: &StartRequest,
        config: &ContainerConfig,
        made: &UnbegunContainer<'_>,
    ) -> Result<Container, StartError> {
        let settings = &self.node.settings;
        let invalid = StartError::Invalid;
        let accounts = ImageAccounts::read(made.root)
            .map_err(|error| StartError::Recoverable(format!("the users of image {}: {error}", made.name)))?;
        let wanted = if request.user.is_empty() { &made.facts.user } else { &request.user };
        let mut user = accounts.find(wanted, &config.group_add).map_err(invalid)?;
        // By that group it gets into its allocation's directories.
        user.groups.extend(request.own_user);
        let hostname = hostname(config, &request.network);
        let hosts = hosts_file(request, config, &hostname)
            .map_err(|error| StartError::Recoverable(format!("its /etc/hosts cannot be made: {error}")))?;
        let mut own_files = own_directories(&request.alloc_dir, &request.task_dir);
        check_directories(&own_files).map_err(invalid)?;
        own_files.push(BindMount { source: hosts, target: "/etc/hosts".to_owned(), read_only: true });
        let resolver = resolv_conf(request)
            .map_err(|error| StartError::Recoverable(format!("its /etc/resolv.conf cannot be made: {error}")))?;
        own_files.extend(resolver);
        let (devices, files) = device_nodes(&request.devices);
        own_files.extend(files);
        let task = ContainerTask {
            allocation: allocation_of(&request.id),
            config,
            env: &request.env,
            resources: &request.resources,
            network: &request.network,
            own_files,
            volumes: &request.mounts,
            devices: &devices,
        };
        let place = ContainerPlace { image: &made.facts, user: &user, group: made.group, hostname: &hostname };
        let spec = runtime_spec(&task, &place, settings).map_err(invalid)?;
        let spec = serde_json::to_vec(&spec).map_err(|error| StartError::Invalid(error.to_string()))?;
        let labels = ContainerLabels {
            id: request.id.clone(),
            logs: made.logs.cloned(),
            kill_timeout_ms: u64::try_from(request.kill_timeout.as_millis()).unwrap_or(u64::MAX),
        };
        let mut all = config.labels.clone();
        all.extend(labels.write().map_err(|error| StartError::Invalid(error.to_string()))?);
        all.insert(OF_ALLOCATION.to_owned(), allocation_of(&request.id).to_owned());
        all.insert("drover.dev/task".to_owned(), request.task.clone());
        let runtime = config.runtime.as_ref().or(settings.runtimes.first()).cloned().unwrap_or_default();
        let binary_name = settings.runc.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
        let options = runc::Options {
            shim_cgroup: made.group.shims.clone(),
            binary_name,
            // Programs may open their output again, as /dev/stdout.
            io_uid: user.uid,
            io_gid: user.gid,
            ..runc::Options::default()
        };
        // Another runtime than runc's may know no such options.
        let options = runtime.starts_with("io.containerd.runc.").then(|| runc_options(&options));
        Ok(Container {
            id: made.id.to_owned(),
            labels: all.into_iter().collect(),
            image: made.name.clone(),
            runtime: Some(container::Runtime { name: runtime, options }),
            spec: Some(spec_of(spec)),
            snapshotter: settings.snapshotter.clone(),
            snapshot_key: made.id.to_owned(),
            ..Container::default()
        })
    }

    /// Makes the first process, has it adopted, and lets it go.
    async fn run(&self, id: &str, request: &StartRequest, begun: Begun) -> Result<Running, StartError> {
        let Begun { root, group, logs, tty } = begun;
        let fifos = logs
            .as_ref()
            .map(hold_fifos)
            .transpose()
            .map_err(|error| StartError::Recoverable(format!("its output cannot be collected: {error}")))?;
        let (stdout, stderr) =
            fifos.as_ref().map(|fifos| (fifos.stdout.clone(), fifos.stderr.clone())).unwrap_or_default();
        let task = NewTask {
            id: id.to_owned(),
            rootfs: root,
            stdout,
            // A terminal has one stream.
            stderr: if tty { String::new() } else { stderr },
            terminal: tty,
        };
        let adopted = match self.node.maker.make(task, logs.clone()).await {
            Ok(pid) => self.adopt(&request.id, pid, (logs.clone(), request.kill_timeout, &group)).await,
            Err(error) => Err(refused(request, &error)),
        };
        let running = match adopted {
            Ok(running) => running,
            Err(error) => {
                if let Some(Err(error)) = logs.as_ref().map(remove_fifos) {
                    tracing::warn!(error = %error, task = request.id, "fifos of a container that did not start are left");
                }
                return Err(error);
            }
        };
        drop(fifos);
        let begun = self.node.api.start_task(id).await;
        self.node.maker.begin_next();
        match begun {
            Ok(()) => Ok(running),
            Err(error) => {
                self.undo(&request.id, running).await;
                Err(refused(request, &error.to_string()))
            }
        }
    }

    /// Has the supervisor look after the first process of a container.
    async fn adopt(
        &self,
        id: &str,
        pid: u32,
        (logs, kill_timeout, group): (Option<LogSpec>, Duration, &ContainerGroup),
    ) -> Result<Running, StartError> {
        let gone = |error: String| StartError::Recoverable(format!("its first process: {error}"));
        let process = ContainerProcess {
            id: id.to_owned(),
            pid: i32::try_from(pid).map_err(|error| gone(error.to_string()))?,
            logs,
            kill_timeout_ms: u64::try_from(kill_timeout.as_millis()).unwrap_or(u64::MAX),
            cgroup: group.handle.clone(),
        };
        let handle: Handle = process.handle().map_err(|error| gone(error.to_string()))?;
        match self.supervisor.recover(handle.clone()).await {
            Ok(Recovery::Running(ended)) => {
                let running = process::running(handle, ended)?;
                Ok(self.with_code(running))
            }
            Ok(Recovery::Gone) => Err(gone("the supervisor does not find it".to_owned())),
            Err(error) => Err(gone(error.to_string())),
        }
    }

    /// Ends a container that was adopted and has not begun.
    async fn undo(&self, id: &str, running: Running) {
        if let Err(error) = self.supervisor.stop(id, libc::SIGKILL, Duration::ZERO).await {
            tracing::warn!(error = %error, task = id, "a container that did not begin could not be ended");
        }
        if tokio::time::timeout(UNDO_TIMEOUT, running.ended).await.is_err() {
            tracing::warn!(task = id, "the end of a container that did not begin was not seen");
        }
        if let Err(error) = self.supervisor.acknowledge(id).await {
            tracing::warn!(error = %error, task = id, "the supervisor keeps a container that did not begin");
        }
    }

    /// How the task ended is the kernel's to say; where that was lost, containerd may know.
    fn with_code(&self, running: Running) -> Running {
        let Running { handle, ended, health } = running;
        let (node, id) = (Arc::clone(&self.node), container_id(&handle.id));
        let ended = async move {
            let mut result = ended.await;
            if result.exit.error.is_some()
                && let Ok(Some(process)) = node.api.task(&id).await
                && let Some(exit) = exit_of(&process)
            {
                result.exit = Exit { oom: result.exit.oom.take(), ..exit };
            }
            result
        };
        Running { handle, ended: ended.boxed(), health }
    }

    async fn recover_task(&self, handle: TaskHandle) -> Option<Running> {
        let id = container_id(&handle.id);
        self.node.hold(&id);
        if let Some(running) = process::recover(&self.supervisor, handle.clone()).await {
            return Some(self.with_code(running));
        }
        // It ended while neither agent nor supervisor lived.
        let ended = self.node.api.task(&id).await.ok().flatten().and_then(|process| exit_of(&process));
        let Some(exit) = ended else {
            self.node.discard(&id);
            return None;
        };
        let ended = std::future::ready(ExitResult { exit, oom_killed: false }).boxed();
        Some(Running { handle, ended, health: HealthReport::AtOnce })
    }

    /// Finds the container of a start of which the agent has no handle: it died on the way.
    async fn find_task(&self, id: &str) -> Option<Running> {
        let containers = match self.node.api.containers().await {
            Ok(containers) => containers,
            Err(error) => {
                tracing::warn!(error = %error, task = id, "a container was not looked for");
                return None;
            }
        };
        let is_it = |found: &str| if id.ends_with('/') { found.starts_with(id) } else { found == id };
        let ours = containers.iter().filter_map(|it| Some((it.id.clone(), ContainerLabels::read(&it.labels)?)));
        for (container, labels) in ours.filter(|(_, labels)| is_it(&labels.id)) {
            self.node.hold(&container);
            self.node.maker.settled(&container).await;
            if let Some(running) = self.take_up(&container, labels).await {
                return Some(running);
            }
            // Before the next start: both would have the same process that looks after them.
            if let Err(error) = self.node.remove(&container).await {
                tracing::warn!(error = %error, container, "what a broken-off start has left is taken away later");
            }
            self.node.discard(&container);
        }
        None
    }

    /// Goes on with a start where the agent died: a container that has a first process is adopted and let go.
    async fn take_up(&self, container: &str, labels: ContainerLabels) -> Option<Running> {
        let process = self.node.api.task(container).await.ok().flatten()?;
        let adopted = if let Some(running) = process::find(&self.supervisor, &labels.id).await {
            self.with_code(running)
        } else {
            let group = container_group_of(&self.node.settings.cgroup_base, process.pid)?;
            let kill_timeout = Duration::from_millis(labels.kill_timeout_ms);
            self.adopt(&labels.id, process.pid, (labels.logs, kill_timeout, &group)).await.ok()?
        };
        if process.status == i32::from(Status::Created)
            && let Err(error) = self.node.api.start_task(container).await
            // The earlier agent may have said so, and containerd carried it out meanwhile.
            && !self.has_begun(container).await
        {
            tracing::warn!(error = %error, container, "a container that was made does not begin");
            self.undo(&labels.id, adopted).await;
            return None;
        }
        Some(adopted)
    }

    async fn has_begun(&self, container: &str) -> bool {
        let process = self.node.api.task(container).await.ok().flatten();
        process.is_some_and(|process| process.status != i32::from(Status::Created))
    }
}

fn given_up(name: &str) -> StartError {
    StartError::Recoverable(format!("image {name} was given up while the task began"))
}

/// What is known of a container before it is written down.
struct UnbegunContainer<'a> {
    id: &'a str,
    name: String,
    facts: Arc<ImageFacts>,
    root: &'a [Mount],
    group: &'a ContainerGroup,
    logs: Option<&'a LogSpec>,
}

/// A container that is written down.
struct Begun {
    root: Vec<Mount>,
    group: ContainerGroup,
    logs: Option<LogSpec>,
    tty: bool,
}

impl Driver for ContainerDriver {
    fn fs_isolation(&self) -> FsIsolation {
        FsIsolation::Image
    }

    fn mounts_volumes(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> DriverInfo {
        self.node.fingerprint(self.name)
    }

    fn check(&self, config: &Map<String, Value>) -> Result<(), String> {
        ContainerConfig::read(self.name, config).map(drop)
    }

    /// As with docker: what is not in the node's network by its own word is on a bridge.
    fn bridged_ports(&self, config: &Map<String, Value>) -> Option<Vec<String>> {
        let config = self.config(config).ok().filter(|config| !config.is_in_host_network())?;
        Some(config.ports)
    }

    fn prepare<'a>(&'a self, request: &'a StartRequest) -> BoxFuture<'a, Result<(), StartError>> {
        let found = self.fetch(request);
        found.map_ok(|found| request.image.fill(found)).boxed()
    }

    fn start(&self, request: StartRequest) -> BoxFuture<'_, Result<Running, StartError>> {
        self.start_task(request).boxed()
    }

    fn recover(&self, handle: TaskHandle) -> BoxFuture<'_, Option<Running>> {
        self.recover_task(handle).boxed()
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Option<Running>> {
        self.find_task(id).boxed()
    }

    fn stop<'a>(&'a self, id: &'a str, signal: i32, grace: Duration) -> BoxFuture<'a, Result<(), DriverError>> {
        self.supervisor.stop(id, signal, grace).map(process::carried).boxed()
    }

    fn signal<'a>(&'a self, id: &'a str, signal: i32) -> BoxFuture<'a, Result<(), DriverError>> {
        self.supervisor.signal(id, signal).map(process::carried).boxed()
    }

    fn stats(&self, handle: &TaskHandle, every: Duration) -> Result<UsageStream, StatsError> {
        process::usage(handle, every)
    }

    fn forget<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), DriverError>> {
        async move {
            let forgotten = process::carried(self.supervisor.acknowledge(id).await);
            self.node.discard(&container_id(id));
            forgotten
        }
        .boxed()
    }
}

/// What the runtime or containerd refuses, as the task's fault or as what another try may mend.
fn refused(request: &StartRequest, text: &str) -> StartError {
    let has = |words| has_one_of(text, words);
    if is_of_program(text) {
        return StartError::Invalid(format!(
            "task {}: its program cannot be run in the image: {text}: correct config.command, config.args or \
             config.entrypoint, or take an image that has the program",
            request.task
        ));
    }
    let is_killed = has(&["signal: killed", "ttrpc"]);
    if !is_killed && has(&["runtime", "shim"]) && has(&["not found", "no such file or directory", "does not exist"]) {
        return StartError::Recoverable(format!(
            "the runtime of containers is missing on the node: {text}: install runc and containerd-shim-runc-v2, or \
             name another one in drivers.containerd.runtime of the agent's configuration"
        ));
    }
    StartError::Recoverable(format!("containerd did not start it: {text}"))
}

fn has_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// Whether a runtime could not run the container's own program. Files that are missing because the runtime, or what
/// looks after it, was killed meanwhile are not the task's fault.
fn is_of_program(text: &str) -> bool {
    let has = |words| has_one_of(text, words);
    let is_broken_off = has(&["log.json", "signal: killed", "fork/exec", "connect:", "ttrpc"]);
    let is_missing = has(&["no such file or directory", "permission denied", "exec format error", "not a directory"]);
    let is_by_runtime = has(&["unable to start container process", "error during container init", "OCI runtime"]);
    !is_broken_off && (has(&["executable file not found"]) || (is_by_runtime && is_missing))
}

/// The end that containerd has seen; none: it runs, as far as containerd knows.
fn exit_of(process: &Process) -> Option<Exit> {
    let is_ended = process.status == i32::from(Status::Stopped);
    is_ended.then(|| Exit::code(i32::try_from(process.exit_status).unwrap_or(-1)))
}

/// The allocation of a task's id.
fn allocation_of(id: &str) -> &str {
    id.split('/').next().unwrap_or_default()
}

/// The container of a task's id.
fn container_id(id: &str) -> String {
    let last = id.rsplit('/').next().unwrap_or_default();
    format!("{}-{last}", allocation_of(id))
}

fn hostname(config: &ContainerConfig, network: &NetworkPlace) -> String {
    let of_network = match network {
        NetworkPlace::At(network) => Some(network.hostname.clone()),
        NetworkPlace::Host | NetworkPlace::Own => None,
    };
    let of_node = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    [config.hostname.clone(), of_network].into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_else(of_node)
}

/// Writes the task's `/etc/hosts` where only the agent can write, and returns its path.
fn hosts_file(request: &StartRequest, config: &ContainerConfig, hostname: &str) -> io::Result<String> {
    let text = match &request.network {
        NetworkPlace::Host => std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
        NetworkPlace::At(network) => network.hosts.clone(),
        NetworkPlace::Own => {
            format!("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {hostname}\n")
        }
    };
    let entries = config.hosts().map_err(io::Error::other)?;
    let text = entries.iter().fold(text, |text, (address, name)| text + &format!("{address} {name}\n"));
    own_file(request, "hosts", &text)
}

/// Writes a file of the task's own where only the agent can write, and returns its path.
fn own_file(request: &StartRequest, name: &str, text: &str) -> io::Result<String> {
    crate::folder::make(&request.fifo_dir, 0o700)?;
    let path = request.fifo_dir.join(format!("{}.{name}", request.task));
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

/// How the task finds names: as its allocation's network says, else as the node does.
fn resolv_conf(request: &StartRequest) -> io::Result<Option<BindMount>> {
    let source = match &request.network {
        NetworkPlace::At(network) => Some(own_file(request, "resolv.conf", &network.resolv_conf)?),
        NetworkPlace::Host | NetworkPlace::Own => {
            std::fs::canonicalize("/etc/resolv.conf").ok().map(|path| path.to_string_lossy().into_owned())
        }
    };
    Ok(source.map(|source| BindMount { source, target: "/etc/resolv.conf".to_owned(), read_only: true }))
}

/// No directory that is mounted into a container may be a link, which another task could have made.
fn check_directories(mounts: &[BindMount]) -> Result<(), String> {
    let is_directory = |path: &str| Path::new(path).symlink_metadata().is_ok_and(|it| it.is_dir());
    match mounts.iter().find(|mount| !is_directory(&mount.source)) {
        Some(mount) => Err(format!("{} is no directory: another task of the allocation has replaced it", mount.source)),
        None => Ok(()),
    }
}

/// Devices, and those of them that are plain files, which are mounted.
fn device_nodes(paths: &[PathBuf]) -> (Vec<DeviceNode>, Vec<BindMount>) {
    let (mut nodes, mut files) = (Vec::new(), Vec::new());
    for path in paths {
        let kind = std::fs::metadata(path).ok().and_then(|metadata| match metadata.file_type() {
            kind if kind.is_char_device() => Some(('c', metadata.rdev())),
            kind if kind.is_block_device() => Some(('b', metadata.rdev())),
            _ => None,
        });
        match kind {
            Some((kind, number)) => nodes.push(DeviceNode {
                path: path.clone(),
                kind,
                major: rustix::fs::major(number),
                minor: rustix::fs::minor(number),
            }),
            None => files.push(process::device_mount(path)),
        }
    }
    (nodes, files)
}

/// The control group of a container that runs, by what the kernel says of its process.
fn container_group_of(base: &str, pid: u32) -> Option<ContainerGroup> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let place = text.lines().find_map(|line| line.split(':').nth(2)?.strip_prefix('/')?.strip_prefix(base))?;
    let name = place.rsplit('/').next()?;
    let has_cores = !place.contains("/share.slice/");
    container_group(base, name.strip_suffix(".scope").unwrap_or(name), has_cores).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_containerd() {
        let id = "0f4be1a2-3c7c-4b55-a3f8-8f0d8a3f1c11/web/1a2b3c4d";
        assert_eq!(container_id(id), "0f4be1a2-3c7c-4b55-a3f8-8f0d8a3f1c11-1a2b3c4d");
        assert_eq!(allocation_of(id), "0f4be1a2-3c7c-4b55-a3f8-8f0d8a3f1c11");
    }

    #[test]
    fn only_what_the_runtime_says_of_the_program_is_the_tasks_fault() {
        let create = "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: ";
        for (of_program, text) in [
            (true, format!("{create}error during container init: exec: \"nope\": executable file not found in $PATH: unknown")),
            (true, format!("{create}error during container init: exec: \"/no\": stat /no: no such file or directory: unknown")),
            (true, format!("{create}error during container init: exec: \"/etc/passwd\": permission denied: unknown")),
            (true, format!("{create}error during container init: exec /bin/web: exec format error: unknown")),
            (true, format!("{create}error during container init: chdir to cwd (\"/no\") set in config.json failed: no such file or directory: unknown")),
            (false, "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/task/x/log.json: no such file or directory): runc did not terminate successfully: signal: killed: unknown".to_owned()),
            (false, "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/task/x/log.json: no such file or directory): fork/exec /opt/runc: no such file or directory: unknown".to_owned()),
            (false, "failed to start shim: chdir /run/containerd/io.containerd.runtime.v2.task/drover.dev/x: no such file or directory: unknown".to_owned()),
            (false, "failed to create shim task: ttrpc: closed: unknown".to_owned()),
            (false, "dial unix /run/containerd/s/1: connect: no such file or directory: unknown".to_owned()),
            (false, "failed to mount rootfs: no such file or directory: unknown".to_owned()),
        ] {
            assert_eq!(is_of_program(&text), of_program, "{text}");
        }
    }

    #[test]
    fn an_end_that_containerd_has_seen_has_its_code() {
        let process =
            |status: Status, exit_status| Process { status: status.into(), exit_status, ..Process::default() };
        assert_eq!(exit_of(&process(Status::Stopped, 3)), Some(Exit::code(3)));
        assert_eq!(exit_of(&process(Status::Running, 0)), None);
    }
}
