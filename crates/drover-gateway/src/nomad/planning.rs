//! Plans for clients of Nomad: the scheduler of the controller, on what this replica knows, and nothing is written.
//!
//! Input: a job that a client submits. Output: what would become of it. A plan looks at the whole cluster, so that few
//! are made at a time and none for long. Must never know how a plan is shown.

use std::sync::Arc;
use std::time::Duration;

use drover_api::job::EvalTrigger;
use drover_core::definition::Definition;
use drover_core::ids::{EvalId, JobKey};
use drover_core::model::DEFAULT_PRIORITY;
use drover_core::scheduler::{self, plan::Evaluation};
use drover_core::settings::Settings;
use drover_nomad::{Kind, PlanOrder, World, WriteView, plan_order};
use drover_store::convert;
use drover_store::planned::{PlanFault, PlanParts, RecordedVersion};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::parts::NomadParts;
use super::submitted::{Submitted, aside};
use crate::answers::Refusal;
use crate::reviews::Identity;

/// Plans at a time, on this replica.
const MOST_AT_ONCE: usize = 2;
/// How long a client waits for its turn, and then for its plan.
const LONGEST: Duration = Duration::from_secs(5);

/// Whose turn it is; clones share it.
#[derive(Clone, Debug)]
pub(super) struct PlanTurns(Arc<Semaphore>);

impl Default for PlanTurns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_AT_ONCE)))
    }
}

impl PlanTurns {
    async fn take(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let turn = tokio::time::timeout(LONGEST, Arc::clone(&self.0).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            Refusal::new(429, format!("{MOST_AT_ONCE} plans are being made here: try again in a few seconds"))
        })
    }
}

/// What a plan is asked with.
#[derive(Clone)]
pub(super) struct Asking {
    /// The id of the job.
    pub(super) id: String,
    /// The job, as it would be registered.
    pub(super) submitted: Submitted,
}

/// Plans a job: the answer, and the index of what it was made from.
///
/// # Errors
/// 400 for what would not be registered either, 403 where the caller might not register it, 429 and 503 where there is
/// no time for it.
pub(super) async fn plan(
    parts: &NomadParts,
    turns: &PlanTurns,
    identity: &Identity,
    asking: Asking,
) -> Result<(Value, u64), Refusal> {
    let (world, now) = (parts.caches.complete().await?, parts.clock.now());
    let order = {
        let (asking, world) = (asking.clone(), Arc::clone(&world));
        aside(move || plan_order(&asking.id, asking.view(&world, now))).await?
    };
    let order = match order {
        Ok(order) => order,
        Err(fault) => return Err(asking.submitted.refused(&parts.reviews, identity, fault.into()).await),
    };
    asking.submitted.permit_all(&parts.reviews, identity, &order.demands).await?;
    let turn = turns.take().await?;
    let (settings, random, index) = (parts.facts.settings.clone(), fastrand::u64(..), world.index(Kind::Job));
    let made = aside(move || {
        // The turn ends with the plan, also where its client has gone.
        let _turn = turn;
        planned(&order, settings, asking.view(&world, now), random)
    });
    let made = tokio::time::timeout(LONGEST, made).await.map_err(|_| {
        Refusal::new(503, format!("the plan was not made within {LONGEST:?}: try again, or plan by `drover job plan`"))
    })?;
    let answer = made?.map_err(|fault| Refusal::new(400, fault.to_string()))?;
    Ok((answer, index))
}

impl Asking {
    fn view<'a>(&'a self, world: &'a World, now: Timestamp) -> WriteView<'a> {
        let Submitted { query, body, .. } = &self.submitted;
        WriteView { world, query, body, now, random: 0, goes_on: false }
    }
}

fn planned(order: &PlanOrder, settings: Settings, view: WriteView<'_>, random: u64) -> Result<Value, PlanFault> {
    let target = convert::object_key(&order.job.metadata);
    let mut parts = known(view.world, &target.name);
    parts.settings(settings);
    parts.submit(order.job.clone())?;
    let state = parts.state(&target)?;
    let priority = state.view.job(&target).map_or(DEFAULT_PRIORITY, |job| job.definition.spec.priority);
    let evaluation = Evaluation {
        id: EvalId::from("plan".to_owned()),
        job: target,
        trigger: EvalTrigger::JobRegister,
        priority,
        now: view.now,
        wait_until: None,
    };
    let plan = scheduler::plan(&state.view, &evaluation, &mut fastrand::Rng::with_seed(random));
    Ok(order.answer(&plan, state.replaced.as_deref(), view))
}

/// The objects of a world, for a look at a job of this name.
fn known(world: &World, job: &str) -> PlanParts {
    let mut parts = PlanParts::default();
    for node in world.nodes.iter() {
        parts.node(convert::node(node));
    }
    for allocation in world.allocations.iter() {
        parts.alloc(convert::alloc(allocation));
    }
    for job in world.jobs.iter() {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        parts.job(Box::new(job.as_ref().clone()), Definition::new(&job.spec, name));
    }
    for version in world.versions.iter() {
        let (meta, spec) = (convert::object_key(&version.metadata), &version.spec);
        parts.version(RecordedVersion {
            name: meta.name.to_string(),
            job: JobKey::new(meta.namespace, spec.job_name.clone()),
            uid: spec.job_uid.clone().into(),
            number: spec.version,
            definition: Definition::new(&spec.job, &spec.job_name),
            spec: (spec.job_name == job).then(|| spec.job.clone()),
        });
    }
    for deployment in world.deployments.iter() {
        parts.deployment(convert::deployment(deployment));
    }
    for volume in world.volumes.iter() {
        if let Err(fault) = parts.volume(Arc::clone(volume)) {
            tracing::debug!(%fault, "a plan does without a volume");
        }
    }
    for volume in world.host_volumes.iter() {
        parts.host_volume(convert::host_volume(volume));
    }
    let going = world.namespaces.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_some());
    for namespace in going {
        parts.namespace_is_going(namespace.metadata.name.clone().unwrap_or_default());
    }
    parts
}
