//! Jobs that are planned and not written: which job, whose right it takes, and what is answered of the plan.

use std::sync::Arc;

use drover_api::Job;
use drover_core::definition::Definition;
use drover_core::scheduler::plan::Plan;
use serde::Deserialize;
use serde_json::Value;

use super::body;
use super::order::{Demand, WriteView};
use super::register::{WantedJob, kept_in_step};
use crate::fault::Fault;
use crate::wire::planned::{self, Planned};

/// A job that is to be planned.
#[derive(Debug)]
pub struct PlanOrder {
    /// What its caller must be allowed to do: what registering the job takes.
    pub demands: Vec<Demand>,
    /// The job, in its namespace.
    pub job: Job,
    before: Option<Arc<Job>>,
    has_diff: bool,
    warnings: Vec<String>,
}

/// Reads a request for a plan.
///
/// # Errors
/// 400 for what would not be registered either.
pub fn plan_order(id: &str, view: WriteView<'_>) -> Result<PlanOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        diff: bool,
    }
    let Body { diff: has_diff } = body::read(view.body)?;
    let wanted = WantedJob::read(Some(id), view)?;
    let (warnings, demands) = (wanted.check()?, wanted.demands());
    let WantedJob { job, before } = wanted;
    let kept = before.map(|before| kept_in_step(before)).unwrap_or_default();
    Ok(PlanOrder { demands, job, before: before.cloned(), has_diff, warnings: [warnings, kept].concat() })
}

impl PlanOrder {
    /// What is answered: `plan` is what the scheduler would do, in the world that it was made from; `replaced` what the
    /// job asks for now.
    pub fn answer(&self, plan: &Plan, replaced: Option<&Definition>, view: WriteView<'_>) -> Value {
        let WriteView { world, now, .. } = view;
        planned::answer(&Planned {
            job: &self.job,
            before: self.before.as_deref(),
            plan,
            replaced,
            has_diff: self.has_diff,
            warnings: &self.warnings,
            now,
            world,
        })
    }
}
