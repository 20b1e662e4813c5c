//! What a task's fields are expanded with: its directories, its environment, and what the node tells of itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use drover_core::task::environment::{self, EnvironmentInput, NodeFacts, TaskPaths};

use super::hooks::SecretWords;
use super::plan::TaskPlan;
use super::runner_env::RunnerEnv;
use crate::drivers::FsIsolation;

/// What a task's fields are expanded with.
#[derive(Clone, Debug)]
pub(crate) struct TaskWords {
    env: Arc<RunnerEnv>,
    plan: TaskPlan,
    isolation: FsIsolation,
}

impl TaskWords {
    /// Those of this task, which its driver separates so far from the node.
    pub(crate) fn new(env: &Arc<RunnerEnv>, plan: &TaskPlan, isolation: FsIsolation) -> Self {
        // Whoever waits for tasks that were found again waits for no words.
        let plan = TaskPlan { recovering: None, restored: None, ..plan.clone() };
        Self { env: Arc::clone(env), plan, isolation }
    }

    /// What the runners of the node share.
    pub(crate) fn runner_env(&self) -> &RunnerEnv {
        &self.env
    }

    /// The task.
    pub(crate) fn plan(&self) -> &TaskPlan {
        &self.plan
    }

    /// The node's facts now.
    pub(crate) fn node(&self) -> Arc<NodeFacts> {
        self.env.node_facts()
    }

    /// Where the task finds its directories.
    pub(crate) fn paths(&self) -> TaskPaths {
        let dir = &self.plan.dir;
        let task_dir = dir.task(&self.plan.task.name);
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        match self.isolation {
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

    /// Its environment, but for what devices and templates add.
    ///
    /// # Errors
    /// When a variable would be too long: its field and the remedy.
    pub(crate) fn variables(&self, secrets: &SecretWords) -> Result<BTreeMap<String, String>, String> {
        let plan = &self.plan;
        let network = self.env.machine.networks.of(&plan.uid).map(|network| network.status());
        let empty = BTreeMap::new();
        let host = match self.isolation {
            FsIsolation::None | FsIsolation::Chroot => &self.env.machine.host_env,
            FsIsolation::Image => &empty,
        };
        let input = EnvironmentInput {
            allocation: &plan.allocation,
            job: &plan.job,
            group: &plan.group,
            task: &plan.task,
            node: &self.node(),
            paths: &self.paths(),
            secrets,
            host,
            network: network.as_ref(),
        };
        environment::environment(&input).map_err(|error| error.to_string())
    }
}

/// What references are looked up in: the variables, and what secrets stand for. Most tasks have none of these.
pub(crate) fn with_secrets<'a>(
    env: &'a BTreeMap<String, String>,
    secrets: &SecretWords,
) -> Cow<'a, BTreeMap<String, String>> {
    if secrets.is_empty() {
        return Cow::Borrowed(env);
    }
    let of_secrets = secrets.iter().map(|(name, value)| (name.clone(), value.clone()));
    Cow::Owned(env.iter().map(|(name, value)| (name.clone(), value.clone())).chain(of_secrets).collect())
}
