//! Hook `secrets`: what the Secrets and `ConfigMaps` that a task lists hold, before anything of it is expanded.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::value_object::ValueObject;
use drover_core::task::secret::{self, object_of};
use futures::FutureExt as _;
use futures::future::select_all;
use tokio::time::Instant;

use super::hook_error::TaskHookError;
use crate::tasks::plan::TaskPlan;
use crate::values::{Followed, ValueRequest, ValueState, Values};

/// How long a start waits for values: twelve tries with pauses from 250 ms that double, to a minute at most.
const DEADLINE: Duration = Duration::from_millis(243_750);
/// After that long the task tells what is waited for.
const QUIET_FOR: Duration = Duration::from_secs(3);
/// As many are named; the others are counted.
const NAMED: usize = 3;

/// What `${secret.<name>.<key>}` stands for, by the reference.
pub(crate) type SecretWords = BTreeMap<String, String>;

/// Values that a start waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    followed: BTreeMap<ValueObject, Followed>,
    since: Instant,
    /// What was reported last as missing.
    shown: Option<Vec<ValueObject>>,
}

/// What comes of waiting.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// All are there.
    Complete(SecretWords),
    /// Some are not, and it is time to say so: which, and why.
    Missing(String),
}

/// Begins to follow what the task lists; none: it lists nothing.
pub(crate) fn awaited(values: &dyn Values, plan: &TaskPlan) -> Option<Awaited> {
    if plan.task.secrets.is_empty() {
        return None;
    }
    let metadata = &plan.allocation.metadata;
    let follow = |object: ValueObject| {
        let request = ValueRequest {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            allocation: metadata.name.clone().unwrap_or_default(),
            uid: plan.uid.clone(),
            object: object.clone(),
        };
        (object, values.follow(request))
    };
    let followed = plan.task.secrets.iter().map(object_of).map(follow).collect();
    Some(Awaited { followed, since: Instant::now(), shown: None })
}

impl Awaited {
    /// Waits until all values are there, or it is time to say what is missing. May be dropped and called again.
    ///
    /// # Errors
    /// When a value is refused, cannot be used, or has not come for long: another try may help each time.
    pub(crate) async fn arrive(&mut self, plan: &TaskPlan) -> Result<Arrival, TaskHookError> {
        loop {
            let missing = self.missing()?;
            if missing.is_empty() {
                return self.words(plan).map(Arrival::Complete);
            }
            let now = Instant::now();
            let text = named(&missing);
            if now >= self.since + DEADLINE {
                return Err(failed(format!("gave up after {} s: {text}", DEADLINE.as_secs())));
            }
            // Another reason for the same objects is no news.
            let objects: Vec<ValueObject> = missing.into_iter().map(|(object, _)| object).collect();
            let wake = if self.shown.as_ref() == Some(&objects) {
                self.since + DEADLINE
            } else if now >= self.since + QUIET_FOR {
                self.shown = Some(objects);
                return Ok(Arrival::Missing(text));
            } else {
                self.since + QUIET_FOR
            };
            let changes = self.followed.values_mut().map(|followed| followed.state.changed().boxed());
            tokio::select! {
                biased;
                (news, ..) = select_all(changes) => if news.is_err() {
                    return Err(failed("the agent ends".to_owned()));
                },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// The objects whose values are not there, each with the reason.
    fn missing(&self) -> Result<Vec<(ValueObject, String)>, TaskHookError> {
        let mut missing = Vec::new();
        for (object, followed) in &self.followed {
            match &*followed.state.borrow() {
                ValueState::There(_) => {}
                ValueState::Waiting(reason) => missing.push((object.clone(), reason.clone())),
                ValueState::Absent => missing.push((object.clone(), "it does not exist; create it".to_owned())),
                ValueState::Refused(reason) => return Err(failed(format!("{object} is refused: {reason}"))),
            }
        }
        Ok(missing)
    }

    fn words(&self, plan: &TaskPlan) -> Result<SecretWords, TaskHookError> {
        let there = self.followed.iter().filter_map(|(object, followed)| match &*followed.state.borrow() {
            ValueState::There(values) => Some((object.clone(), (**values).clone())),
            _ => None,
        });
        let levels = [&plan.job.meta, &plan.group.meta, &plan.task.meta];
        let meta = levels.into_iter().flatten().collect();
        secret::words(&plan.task, &meta, &there.collect()).map_err(|error| failed(error.to_string()))
    }
}

fn named(missing: &[(ValueObject, String)]) -> String {
    let first = missing.iter().take(NAMED).map(|(object, reason)| format!("{object} ({reason})"));
    let text = first.collect::<Vec<_>>().join(", ");
    match missing.len().saturating_sub(NAMED) {
        0 => format!("waits for {text}"),
        more => format!("waits for {text} and {more} more"),
    }
}

fn failed(reason: String) -> TaskHookError {
    TaskHookError { hook: "secrets", reason, is_recoverable: true }
}
