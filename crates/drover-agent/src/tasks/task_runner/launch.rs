//! Starting a run: prestart hooks, the driver's settings, the process, its handle.

use std::borrow::Cow;
use std::collections::BTreeMap;

use drover_api::allocation::{TaskEvent, TaskEventType as Type};
use drover_api::network::NetworkMode;
use futures::StreamExt;
use tokio::time::Instant;

use super::{Interrupt, NextRun, TaskRunner};
use crate::csi;
use crate::drivers::{FsIsolation, LogLimits, NetworkPlace, Running, StartError, StartRequest};
use crate::reporting::events::Reason;
use crate::reporting::metrics::StartPhase;
use crate::tasks::hooks::{self, Arrival, ArtifactWords, ArtifactsLeft, Awaited, SecretWords, TaskHookError};
use crate::tasks::task_event;
use drover_core::task::environment::{self, EnvironmentInput, NodeFacts, TaskPaths};

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
        let words = match hooks::awaited(&*self.env.machine.values, &self.plan) {
            None => SecretWords::new(),
            Some(values) => match self.gather(values).await? {
                Ok(words) => words,
                Err(next) => return Ok(next),
            },
        };
        if let Some(left) = self.artifacts(driver.fs_isolation(), &words)?
            && let Some(next) = self.fetch(left).await?
        {
            return Ok(next);
        }
        hooks::after_artifacts(&self.env, &self.plan).map_err(|error| self.hook_failure(&error))?;
        let request = self
            .request(driver.fs_isolation(), &words)
            .map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        driver.check(&request.config).map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        match self.idle(driver.prepare(&request)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(self.start_failure(error)),
            Err(interrupt) => return Ok(self.broken_off(interrupt).await),
        }
        // A task of which the state file knows nothing must not run: after the agent's death nobody would find it.
        self.record.starting = Some(request.id.clone());
        self.try_keep().await.map_err(|error| self.failure(Type::SetupFailure, error.to_string(), true))?;
        let prepared = Instant::now();
        self.env.metrics.started(&self.plan.task.driver, StartPhase::Prepare, prepared - began);
        let started = tokio::select! {
            biased;
            // What has begun all the same is found again by its id.
            () = self.shutdown.cancelled() => return Ok(NextRun::Detach),
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
        self.keep().await;
        self.tell().await;
        if is_first {
            let text = format!("task {} is up", self.plan.task.name);
            self.env.events.emit(&self.plan.allocation, Reason::TaskStarted, text);
        }
    }

    fn request(&self, isolation: FsIsolation, words: &SecretWords) -> Result<StartRequest, String> {
        let plan = &self.plan;
        let task_dir = plan.dir.task(&plan.task.name);
        let node = self.env.node_facts();
        let resources = plan.allocation.spec.resources.tasks.get(&plan.task.name).cloned().unwrap_or_default();
        let reserved = self.env.machine.devices.reserve(&resources.devices)?;
        let mut env = self.variables(isolation, (&self.paths(isolation), &node), words)?;
        env.extend(reserved.env);
        if plan.task.csi_plugin.is_some() {
            let socket = csi::endpoint(self.env.csi.root(), &plan.uid, &plan.task.name);
            env.insert("CSI_ENDPOINT".to_owned(), format!("unix://{}", socket.display()));
        }
        let config = environment::interpolate_config(&plan.task.config, &with_words(&env, words), &node)
            .map_err(|error| error.to_string())?;
        let logs = &plan.task.logs;
        let limits = LogLimits {
            max_files: u32::try_from(logs.max_files).unwrap_or(u32::MAX),
            max_file_bytes: u64::try_from(logs.max_file_size_mb).unwrap_or(1).saturating_mul(1024 * 1024),
        };
        let asked = plan.group.networks.first();
        let mode = asked.map(|network| network.mode);
        let namespace = plan.allocation.metadata.namespace.as_deref().unwrap_or_default();
        let network = self
            .env
            .machine
            .networks
            .for_task(&plan.uid, asked, namespace, |text| environment::interpolate(text, &env, &node))?;
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
        })
    }

    /// Where the task finds its directories.
    fn paths(&self, isolation: FsIsolation) -> TaskPaths {
        let dir = &self.plan.dir;
        let task_dir = dir.task(&self.plan.task.name);
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        match isolation {
            FsIsolation::None => TaskPaths {
                alloc: text(&dir.shared()),
                local: text(&task_dir.join("local")),
                secrets: text(&task_dir.join("secrets")),
            },
            FsIsolation::Chroot | FsIsolation::Image => {
                TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
            }
        }
    }

    fn variables(
        &self,
        isolation: FsIsolation,
        (paths, node): (&TaskPaths, &NodeFacts),
        words: &SecretWords,
    ) -> Result<BTreeMap<String, String>, String> {
        let plan = &self.plan;
        let network = self.env.machine.networks.of(&plan.uid).map(|network| network.status());
        let empty = BTreeMap::new();
        let host = match isolation {
            FsIsolation::None | FsIsolation::Chroot => &self.env.machine.host_env,
            FsIsolation::Image => &empty,
        };
        let input = EnvironmentInput {
            allocation: &plan.allocation,
            job: &plan.job,
            group: &plan.group,
            task: &plan.task,
            node,
            paths,
            secrets: words,
            host,
            network: network.as_ref(),
        };
        environment::environment(&input).map_err(|error| error.to_string())
    }

    /// Waits for the values of secrets, and says what is missing when that lasts; what follows when it was cut short.
    async fn gather(&mut self, mut values: Awaited) -> Result<Result<SecretWords, NextRun>, LaunchFailure> {
        let plan = self.plan.clone();
        loop {
            match self.idle(values.arrive(&plan)).await {
                Ok(Ok(Arrival::Complete(words))) => return Ok(Ok(words)),
                Ok(Ok(Arrival::Missing(text))) => {
                    self.push(task_event::plain(Type::Template, self.env.clock.now(), text));
                    self.keep().await;
                    self.tell().await;
                }
                Ok(Err(error)) => return Err(self.hook_failure(&error)),
                Err(interrupt) => return Ok(Err(self.broken_off(interrupt).await)),
            }
        }
    }

    /// The artifacts that are still to be fetched.
    fn artifacts(&self, isolation: FsIsolation, words: &SecretWords) -> Result<Option<ArtifactsLeft>, LaunchFailure> {
        if self.plan.task.artifacts.len() == self.record.artifacts.len() {
            return Ok(None);
        }
        let (paths, node) = (self.paths(isolation), self.env.node_facts());
        let env = self.variables(isolation, (&paths, &node), words);
        let env = env.map_err(|reason| self.failure(Type::FailedValidation, reason, false))?;
        let env = with_words(&env, words);
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

/// What references are looked up in: the variables, and what secrets stand for. Most tasks have none of these.
fn with_words<'a>(env: &'a BTreeMap<String, String>, words: &SecretWords) -> Cow<'a, BTreeMap<String, String>> {
    if words.is_empty() {
        return Cow::Borrowed(env);
    }
    let of_secrets = words.iter().map(|(name, value)| (name.clone(), value.clone()));
    Cow::Owned(env.iter().map(|(name, value)| (name.clone(), value.clone())).chain(of_secrets).collect())
}
