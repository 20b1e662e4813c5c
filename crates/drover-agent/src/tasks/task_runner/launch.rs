//! Starting a run: prestart hooks, the driver's settings, the process, its handle.

use std::collections::BTreeMap;

use drover_api::allocation::{TaskEvent, TaskEventType as Type};
use drover_api::network::NetworkMode;
use futures::StreamExt;
use tokio::time::Instant;

use super::{Interrupt, NextRun, TaskRunner};
use crate::csi;
use crate::drivers::{Driver, ImageSlot, LogLimits, NetworkPlace, PullSecrets, Running, StartError, StartRequest};
use crate::networks::TaskNetwork;
use crate::reporting::events::Reason;
use crate::reporting::metrics::StartPhase;
use crate::tasks::hooks::{
    self, Arrival, ArtifactWords, ArtifactsLeft, Awaited, Preparation, SecretWords, TaskHookError, TaskIdentities,
    TaskValues, Templates,
};
use crate::tasks::task_words::{TaskWords, with_secrets};
use crate::tasks::{policy, task_event};
use drover_core::task::environment;

/// Why a run did not start.
struct LaunchFailure {
    event: TaskEvent,
    is_recoverable: bool,
}

impl TaskRunner {
    /// Starts a run. A failure becomes the restart tracker's input.
    pub(super) async fn launch(&mut self) -> NextRun {
        match self.try_launch().await {
            Ok(next) => next,
            Err(failure) => {
                let text = format!("task {}: {}", self.plan.task.name, failure.event.message);
                self.env.events.emit(&self.plan.allocation, Reason::DriverError, text);
                self.push(failure.event);
                self.tracker.observe_start_error(failure.is_recoverable);
                NextRun::Stop
            }
        }
    }

    async fn try_launch(&mut self) -> Result<NextRun, LaunchFailure> {
        let now = self.env.clock.now();
        let is_first = self.record.state.started_at.is_none();
        if self.record.state.events.is_empty() {
            self.push(task_event::received(now));
        }
        let Some(driver) = self.driver.clone() else {
            let message = format!("driver {} is not known on this node", self.plan.task.driver);
            return Err(self.failure(Type::DriverFailure, message, false));
        };
        if is_first && self.record.state.restarts == 0 {
            self.push(task_event::task_setup(now));
        }
        let _under_way = self.env.starts.begin();
        let began = Instant::now();
        hooks::before_artifacts(&self.env, &self.plan).await.map_err(|error| self.hook_failure(&error))?;
        let isolation = driver.fs_isolation();
        let (secrets, values) = match self.values() {
            None => (SecretWords::new(), None),
            Some(values) => match self.gather(Awaited::new(values)).await? {
                Ok(values) => {
                    let words = values.words(&self.plan).map_err(|error| self.hook_failure(&error))?;
                    (words, Some(values))
                }
                Err(next) => return Ok(next),
            },
        };
        let words = TaskWords::new(&self.env, &self.plan, isolation);
        if let Some(next) = self.identify(&words).await? {
            return Ok(next);
        }
        self.serve_api(&words).await;
        if let Some(left) = self.artifacts(&words, &secrets)?
            && let Some(next) = self.fetch(left).await?
        {
            return Ok(next);
        }
        hooks::after_artifacts(&self.env, &self.plan).map_err(|error| self.hook_failure(&error))?;
        let pull_secrets = values.as_ref().map(|values| values.pull_secrets(&self.plan)).unwrap_or_default();
        if let Some(next) = self.render(&words, values, &secrets).await? {
            return Ok(next);
        }
        let request = self
            .request(&words, &secrets, pull_secrets)
            .map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        let request = self.bridged(&*driver, request, &words).await?;
        driver.check(&request.config).map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        if let Some(next) = self.prepare(&*driver, &request).await? {
            return Ok(next);
        }
        let prepared = Instant::now();
        self.env.metrics.started(&self.plan.task.driver, StartPhase::Prepare, prepared - began);
        let started = tokio::select! {
            biased;
            // What has begun all the same is found again by its id.
            () = self.handles.shutdown.cancelled() => return Ok(NextRun::Detach),
            started = driver.start(request) => started,
        };
        self.record.starting = None;
        match started {
            Ok(running) => {
                self.env.metrics.started(&self.plan.task.driver, StartPhase::Start, prepared.elapsed());
                self.note_start(running, is_first).await;
                Ok(NextRun::RunAgain)
            }
            Err(error) => Err(self.start_failure(error)),
        }
    }

    /// Has the driver prepare a run while the state file comes to know of it: a task of which that knows nothing must
    /// not run, as no later agent would find it. What follows when it was cut short.
    async fn prepare(&mut self, driver: &dyn Driver, request: &StartRequest) -> Result<Option<NextRun>, LaunchFailure> {
        self.record.starting = Some(request.id.clone());
        let pending = self.env.state.put_task_soon(&self.plan.uid, &self.plan.task.name, &self.record).await;
        let left = match self.idle(driver.prepare(request)).await {
            Ok(Ok(())) => match async { pending?.wait().await }.await {
                Ok(()) => return Ok(None),
                Err(error) => Err(self.failure(Type::SetupFailure, error.to_string(), true)),
            },
            Ok(Err(error)) => Err(self.start_failure(error)),
            Err(interrupt) => Ok(Some(self.broken_off(interrupt).await)),
        };
        self.record.starting = None;
        left
    }

    /// What the driver refused or could not do.
    fn start_failure(&mut self, error: StartError) -> LaunchFailure {
        let (reason, is_recoverable) = match error {
            StartError::Invalid(reason) => (reason, false),
            StartError::Recoverable(reason) => (reason, true),
        };
        self.failure(Type::DriverFailure, reason, is_recoverable)
    }

    /// What becomes of a run that was interrupted before its task began.
    async fn broken_off(&mut self, interrupt: Interrupt) -> NextRun {
        match interrupt {
            Interrupt::Shutdown => NextRun::Detach,
            Interrupt::Kill => {
                self.note_kill_of_unstarted().await;
                self.tracker.observe_kill();
                NextRun::Stop
            }
        }
    }

    /// The handle is on disk before anybody hears of the run.
    async fn note_start(&mut self, running: Running, is_first: bool) {
        let now = self.env.clock.now();
        self.record.handle = Some(running.handle.clone());
        self.enter_running(now);
        self.push(task_event::started(now));
        self.hold(running);
        if let Some(versions) = self.templates.as_mut().and_then(Templates::begins_with) {
            self.note_values(versions);
        }
        self.keep().await;
        self.tell().await;
        if is_first {
            let text = format!("task {} is up", self.plan.task.name);
            self.env.events.emit(&self.plan.allocation, Reason::TaskStarted, text);
        }
    }

    fn request(
        &self,
        words: &TaskWords,
        secrets: &SecretWords,
        pull_secrets: PullSecrets,
    ) -> Result<StartRequest, String> {
        let plan = &self.plan;
        let task_dir = plan.dir.task(&plan.task.name);
        let node = words.node();
        let resources = plan.allocation.spec.resources.tasks.get(&plan.task.name).cloned().unwrap_or_default();
        let reserved = self.env.machine.devices.reserve(&resources.devices)?;
        let mut env = words.variables(secrets)?;
        env.extend(reserved.env);
        env.extend(self.identities.iter().flat_map(TaskIdentities::variables));
        env.extend(self.api.iter().map(|api| ("NOMAD_UNIX_ADDR".to_owned(), api.address().to_owned())));
        env.extend(self.templates.iter().flat_map(Templates::variables));
        if plan.task.csi_plugin.is_some() {
            let socket = csi::endpoint(self.env.csi.root(), &plan.uid, &plan.task.name);
            env.insert("CSI_ENDPOINT".to_owned(), format!("unix://{}", socket.display()));
        }
        let config = environment::interpolate_config(&plan.task.config, &with_secrets(&env, secrets), &node)
            .map_err(|error| error.to_string())?;
        let logs = &plan.task.logs;
        let limits = LogLimits {
            max_files: u32::try_from(logs.max_files).unwrap_or(u32::MAX),
            max_file_bytes: u64::try_from(logs.max_file_size_mb).unwrap_or(1).saturating_mul(1024 * 1024),
        };
        let mode = plan.group.networks.first().map(|network| network.mode);
        let network = self.joined(words, &env)?;
        let mounts = plan.volumes.mounts(&plan.task, |text| environment::interpolate(text, &env, &node))?;
        let network = match network {
            Some(network) => NetworkPlace::At(network),
            None if mode == Some(NetworkMode::None) => NetworkPlace::Own,
            None => NetworkPlace::Host,
        };
        Ok(StartRequest {
            id: format!("{}/{}/{}", plan.uid, plan.task.name, self.env.random.tag()),
            task: plan.task.name.clone(),
            job_version: plan.allocation.spec.job_version,
            config,
            env,
            alloc_dir: plan.dir.root().to_owned(),
            task_dir,
            fifo_dir: self.env.fifo_dir.join(&plan.uid),
            user: plan.task.user.clone(),
            own_user: plan.owner.map(|owner| owner.uid),
            logs: (!logs.disabled).then_some(limits),
            kill_timeout: self.kill_timeout(),
            resources,
            devices: reserved.nodes,
            mounts,
            network,
            pull_secrets,
            image: ImageSlot::default(),
        })
    }

    /// The request with a network of the task's own, where its group is in the node's and its driver has it so.
    async fn bridged(
        &mut self,
        driver: &dyn Driver,
        mut request: StartRequest,
        words: &TaskWords,
    ) -> Result<StartRequest, LaunchFailure> {
        let labels = driver.bridged_ports(&request.config).filter(|_| request.network == NetworkPlace::Host);
        let Some(labels) = labels else { return Ok(request) };
        let (plan, networks) = (&self.plan, &self.env.machine.networks);
        let mut ports = Vec::new();
        for label in labels {
            let port = plan.allocation.spec.resources.ports.iter().find(|port| port.label == label);
            let unknown =
                || format!("config.ports: the group's networks have no port {label}; add it there, or correct it");
            ports.push(port.ok_or_else(|| self.failure(Type::FailedValidation, unknown(), false))?.clone());
        }
        let made = networks.make_for_task(&plan.uid, &plan.task.name, &ports).await;
        made.map_err(|reason| self.failure(Type::SetupFailure, reason, true))?;
        let network = self.joined(words, &request.env);
        let network = network.map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        request.network = network.map_or(NetworkPlace::Host, NetworkPlace::At);
        Ok(request)
    }

    /// The network that was made for the allocation, or for the task.
    fn joined(&self, words: &TaskWords, env: &BTreeMap<String, String>) -> Result<Option<TaskNetwork>, String> {
        let (plan, node) = (&self.plan, words.node());
        let namespace = plan.allocation.metadata.namespace.as_deref().unwrap_or_default();
        let interpolated = |text: &str| environment::interpolate(text, env, &node);
        let of = (plan.uid.as_str(), plan.task.name.as_str());
        self.env.machine.networks.for_task(of, plan.group.networks.first(), namespace, interpolated)
    }

    /// What the task lists, followed from now on or since an earlier run; none: it lists nothing.
    fn values(&mut self) -> Option<TaskValues> {
        let values = &*self.env.machine.values;
        match self.templates.as_mut().and_then(Templates::take_values) {
            Some(mut known) => {
                known.demand(values, &self.plan);
                Some(known)
            }
            None => hooks::follow(values, &self.plan, &BTreeMap::new()),
        }
    }

    /// Waits for the values of secrets or identities, and says what is missing when that lasts; what follows when it
    /// was cut short.
    async fn gather(&mut self, mut values: Awaited) -> Result<Result<TaskValues, NextRun>, LaunchFailure> {
        loop {
            match self.idle(values.arrive()).await {
                Ok(Ok(Arrival::Complete)) => return Ok(Ok(values.into_values())),
                Ok(Ok(Arrival::Missing(text))) => self.say_of_template(text).await,
                Ok(Err(error)) => return Err(self.hook_failure(&error)),
                Err(interrupt) => return Ok(Err(self.broken_off(interrupt).await)),
            }
        }
    }

    /// Gets the task's identities, and says what is missing when that lasts; what follows when it was cut short.
    async fn identify(&mut self, words: &TaskWords) -> Result<Option<NextRun>, LaunchFailure> {
        let Some(mut identities) = self.identities.take().or_else(|| TaskIdentities::new(words)) else {
            return Ok(None);
        };
        let values = match identities.take_values() {
            None => None,
            Some(values) => match self.gather(Awaited::new(values)).await? {
                Ok(values) => Some(values),
                Err(next) => return Ok(Some(next)),
            },
        };
        identities.begin_run(words, values).map_err(|error| self.hook_failure(&error))?;
        self.identities = Some(identities);
        Ok(None)
    }

    /// Serves the task's API; the task is told once in a run of one that cannot be served, and runs.
    pub(super) async fn serve_api(&mut self, words: &TaskWords) {
        // The older socket goes before its name is used again.
        self.api = None;
        match hooks::serve_api(words) {
            Ok(served) => self.api = served,
            Err(error) => {
                let said = task_event::plain(Type::TaskHookMessage, self.env.clock.now(), error.to_string());
                if !task_event::is_reported(&self.record.state.events, &said) {
                    self.push(said);
                    self.keep().await;
                    self.tell().await;
                }
            }
        }
    }

    /// Renders templates, and says what is missing when that lasts; what follows when it was cut short.
    async fn render(
        &mut self,
        words: &TaskWords,
        values: Option<TaskValues>,
        secrets: &SecretWords,
    ) -> Result<Option<NextRun>, LaunchFailure> {
        if self.plan.task.templates.is_empty() {
            return Ok(None);
        }
        let renders_again = policy::renders_again(&self.plan);
        let mut templates = self.templates.take().unwrap_or_else(|| Templates::new(words.clone(), None));
        let begun = templates.begin_run(words.clone(), values, (secrets, renders_again));
        begun.map_err(|error| self.hook_failure(&error))?;
        let done = loop {
            match self.idle(templates.prepare()).await {
                Ok(Ok(Preparation::Ready(said))) => {
                    for text in said {
                        self.say_of_template(text).await;
                    }
                    break Ok(None);
                }
                Ok(Ok(Preparation::Missing(text))) => self.say_of_template(text).await,
                Ok(Err(error)) => break Err(self.hook_failure(&error)),
                Err(interrupt) => break Ok(Some(self.broken_off(interrupt).await)),
            }
        };
        self.templates = Some(templates);
        done
    }

    /// The artifacts that are still to be fetched.
    fn artifacts(&self, words: &TaskWords, secrets: &SecretWords) -> Result<Option<ArtifactsLeft>, LaunchFailure> {
        if self.plan.task.artifacts.len() == self.record.artifacts.len() {
            return Ok(None);
        }
        let (paths, node) = (words.paths(), words.node());
        let env = words.variables(secrets).map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        let env = with_secrets(&env, secrets);
        let words = ArtifactWords { env: &env, node: &node, paths: &paths };
        let left = hooks::artifacts_left(&self.env.machine.fetcher, &self.plan, words, &self.record.artifacts);
        left.map_err(|error| self.failure(Type::FailedArtifactDownload, error.reason, error.is_recoverable))
    }

    /// Fetches artifacts, and keeps which are done: those are not fetched again. Returns what follows when it was cut
    /// short. One that fails does not stop the others.
    async fn fetch(&mut self, mut left: ArtifactsLeft) -> Result<Option<NextRun>, LaunchFailure> {
        self.push(task_event::plain(Type::DownloadingArtifacts, self.env.clock.now(), "fetching artifacts"));
        self.tell().await;
        let mut failed: BTreeMap<usize, String> = BTreeMap::new();
        loop {
            match self.idle(left.next()).await {
                Ok(None) => break,
                Ok(Some((number, Ok(())))) => {
                    self.record.artifacts.insert(number);
                    self.keep().await;
                    tracing::debug!(
                        allocation = self.plan.uid,
                        task = self.plan.task.name,
                        number,
                        "an artifact is there"
                    );
                }
                Ok(Some((number, Err(reason)))) => drop(failed.insert(number, reason)),
                Err(interrupt) => return Ok(Some(self.broken_off(interrupt).await)),
            }
        }
        match failed.first_key_value() {
            None => Ok(None),
            Some((number, reason)) => {
                Err(self.failure(Type::FailedArtifactDownload, format!("artifacts[{number}]: {reason}"), true))
            }
        }
    }

    fn hook_failure(&self, error: &TaskHookError) -> LaunchFailure {
        self.failure(Type::SetupFailure, error.to_string(), error.is_recoverable)
    }

    fn failure(&self, r#type: Type, message: String, is_recoverable: bool) -> LaunchFailure {
        LaunchFailure { event: task_event::plain(r#type, self.env.clock.now(), message), is_recoverable }
    }
}
