//! Hook `secrets`: what the Secrets and `ConfigMaps` that a task lists hold, before anything of it is expanded. A task
//! with templates follows them to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::allocation::ValuesInUse;
use drover_api::message::some_of;
use drover_api::value_object::ValueObject;
use drover_core::task::secret;
use futures::FutureExt as _;
use futures::future::select_all;
use tokio::time::Instant;

use super::hook_error::TaskHookError;
use crate::drivers::PullSecrets;
use crate::tasks::plan::TaskPlan;
use crate::values::{Followed, GivenValues, ValueRequest, ValueState, Values};

/// How long a start waits for values: twelve tries with pauses from 250 ms that double, to a minute at most.
const DEADLINE: Duration = Duration::from_millis(243_750);
/// After that long the task tells what is waited for.
pub(super) const QUIET_FOR: Duration = Duration::from_secs(3);
/// As many are named; the others are counted.
const NAMED: usize = 3;

/// What `${secret.<name>.<key>}` stands for, by the reference.
pub(crate) type SecretWords = BTreeMap<String, String>;

/// Versions of values, by what status calls their objects.
pub(crate) type ValueVersions = BTreeMap<String, String>;

/// The values that a task lists, followed until this is dropped. What was there once stays known when it is not given
/// out any more: a task that runs is to go on, and to start again.
#[derive(Debug)]
pub(crate) struct TaskValues {
    objects: BTreeMap<ValueObject, FollowedObject>,
    /// What the task cannot start without.
    needed: BTreeSet<ValueObject>,
    /// How often something has changed.
    n_changes: u64,
    /// They never change any more, because the agent ends.
    is_closed: bool,
}

#[derive(Debug)]
struct FollowedObject {
    followed: Followed,
    known: ValueState,
    /// A run that goes on has these already, and can do without them.
    holds: Option<String>,
}

impl FollowedObject {
    fn begin(values: &dyn Values, plan: &TaskPlan, object: ValueObject, holds: Option<String>) -> Self {
        let metadata = &plan.allocation.metadata;
        let request = ValueRequest {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            allocation: metadata.name.clone().unwrap_or_default(),
            uid: plan.uid.clone(),
            object,
            holds: holds.clone(),
        };
        let mut followed = values.follow(request);
        let known = followed.state.borrow_and_update().clone();
        Self { followed, known, holds }
    }
}

/// Begins to follow what the task lists; none: it lists nothing, and no template of it may look up more. `in_use` is
/// what a run that goes on has of it.
pub(crate) fn follow(
    values: &dyn Values,
    plan: &TaskPlan,
    in_use: &BTreeMap<String, ValuesInUse>,
) -> Option<TaskValues> {
    let lists_none = plan.task.secrets.is_empty() && plan.task.image_pull_secrets.is_empty();
    if lists_none && plan.task.templates.is_empty() {
        return None;
    }
    let listed: BTreeSet<ValueObject> = secret::objects_of_task(&plan.task).collect();
    let begin = |object: ValueObject| {
        let holds = in_use.get(&object.key()).map(|values| values.version.clone());
        (object.clone(), FollowedObject::begin(values, plan, object, holds))
    };
    let mut all = TaskValues::of(listed.into_iter().map(begin).collect());
    // A template may do without an object, by asking whether it exists.
    if !plan.task.templates.is_empty() {
        all.needed =
            secret::referred(&plan.task, &meta(plan)).into_iter().chain(secret::pull_secrets(&plan.task)).collect();
    }
    Some(all)
}

/// Begins to follow these, all of which are needed.
pub(super) fn follow_objects(
    values: &dyn Values,
    plan: &TaskPlan,
    wanted: impl IntoIterator<Item = ValueObject>,
) -> TaskValues {
    let follow = |object: ValueObject| (object.clone(), FollowedObject::begin(values, plan, object, None));
    TaskValues::of(wanted.into_iter().map(follow).collect())
}

fn meta(plan: &TaskPlan) -> BTreeMap<&String, &String> {
    [&plan.job.meta, &plan.group.meta, &plan.task.meta].into_iter().flatten().collect()
}

impl TaskValues {
    fn of(objects: BTreeMap<ValueObject, FollowedObject>) -> Self {
        let needed = objects.keys().cloned().collect();
        Self { objects, needed, n_changes: 0, is_closed: false }
    }

    /// Begins to follow what templates look up and no task lists.
    pub(crate) fn look_up(&mut self, values: &dyn Values, plan: &TaskPlan, objects: BTreeSet<ValueObject>) {
        for object in objects {
            let followed = FollowedObject::begin(values, plan, object.clone(), None);
            self.objects.entry(object).or_insert(followed);
        }
    }

    /// How many objects are followed that no task lists.
    pub(crate) fn n_looked_up(&self) -> usize {
        self.objects.keys().filter(|object| object.kind.is_of_services()).count()
    }

    /// A start needs what an earlier run could do without: values that wait for their turn are asked for at once. What
    /// was refused is looked up again when it is needed again.
    pub(crate) fn demand(&mut self, values: &dyn Values, plan: &TaskPlan) {
        self.take_in();
        let is_refused = |followed: &FollowedObject| matches!(followed.known, ValueState::Refused(_));
        self.objects.retain(|object, followed| !(object.kind.is_of_services() && is_refused(followed)));
        for (object, followed) in &mut self.objects {
            let is_held_back = followed.holds.is_some() && matches!(followed.known, ValueState::Waiting(_));
            let is_gone = matches!(followed.known, ValueState::Absent) && self.needed.contains(object);
            if is_held_back || is_gone {
                *followed = FollowedObject::begin(values, plan, object.clone(), None);
            }
        }
    }

    /// The versions of what is there.
    pub(crate) fn versions(&self) -> ValueVersions {
        let there = self.given().filter(|(_, given)| !given.version.is_empty());
        there.map(|(object, given)| (object.key(), given.version.clone())).collect()
    }

    /// Why newer values are not there, and whether something is to be done about it; none: there are no newer ones.
    pub(crate) fn kept(&self) -> Option<(String, bool)> {
        let all: Vec<_> = self.given().filter_map(|(_, given)| given.kept.as_ref()).collect();
        let texts: Vec<&str> = all.iter().map(|kept| kept.reason.as_str()).collect();
        (!all.is_empty()).then(|| (texts.join("; "), all.iter().any(|kept| kept.is_stopped)))
    }

    fn given(&self) -> impl Iterator<Item = (&ValueObject, &GivenValues)> {
        self.known().filter_map(|(object, known)| match known {
            ValueState::There(given) => Some((object, &**given)),
            ValueState::Waiting(_) | ValueState::Absent | ValueState::Refused(_) => None,
        })
    }

    /// What is known of each object.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&ValueObject, &ValueState)> {
        self.objects.iter().map(|(object, followed)| (object, &followed.known))
    }

    /// What is known of an object; none: the task does not list it.
    pub(crate) fn state_of(&self, object: &ValueObject) -> Option<&ValueState> {
        self.objects.get(object).map(|followed| &followed.known)
    }

    /// Whether it is known of each whether it is there.
    pub(crate) fn are_known(&self) -> bool {
        self.known().all(|(_, known)| matches!(known, ValueState::There(_) | ValueState::Absent))
    }

    /// Takes in what has changed; how often that was anything, up to now.
    pub(crate) fn take_in(&mut self) -> u64 {
        let mut has_changed = false;
        for followed in self.objects.values_mut() {
            let next = followed.followed.state.borrow_and_update();
            let is_lost = matches!(*next, ValueState::Waiting(_) | ValueState::Refused(_));
            if followed.known != *next && !(is_lost && matches!(followed.known, ValueState::There(_))) {
                // Why there are no newer ones changes none.
                has_changed |= match (&followed.known, &*next) {
                    (ValueState::There(known), ValueState::There(next)) => {
                        (&known.keys, &known.version) != (&next.keys, &next.version)
                    }
                    _ => true,
                };
                followed.known = next.clone();
            }
        }
        self.n_changes += u64::from(has_changed);
        self.n_changes
    }

    /// Waits until there is something to take in. False: there never will be, because the agent ends.
    pub(crate) async fn changed(&mut self) -> bool {
        let changes: Vec<_> = self.objects.values_mut().map(|object| object.followed.state.changed().boxed()).collect();
        if changes.is_empty() {
            return std::future::pending().await;
        }
        select_all(changes).await.0.is_ok()
    }

    /// Waits for a change; at the agent's end there is none.
    async fn next_change(&mut self) {
        if self.is_closed || !self.changed().await {
            self.is_closed = true;
            std::future::pending::<()>().await;
        }
    }

    /// What the task's references stand for.
    ///
    /// # Errors
    /// When a key is missing, or a value is no text: field, object and remedy.
    pub(crate) fn words(&self, plan: &TaskPlan) -> Result<SecretWords, TaskHookError> {
        let there = self.given().map(|(object, given)| (object.clone(), given.keys.clone()));
        secret::words(&plan.task, &meta(plan), &there.collect()).map_err(|error| failed(error.to_string()))
    }

    /// By what the task's image is pulled.
    pub(crate) fn pull_secrets(&self, plan: &TaskPlan) -> PullSecrets {
        let there = |object: ValueObject| match self.state_of(&object)? {
            ValueState::There(given) => Some((object.name, given.keys.clone())),
            _ => None,
        };
        PullSecrets(secret::pull_secrets(&plan.task).filter_map(there).collect())
    }

    /// The objects that are waited for, each with the reason.
    fn missing(&self) -> Result<Vec<(ValueObject, String)>, TaskHookError> {
        let mut missing = Vec::new();
        for (object, known) in self.known() {
            match known {
                ValueState::Waiting(reason) => missing.push((object.clone(), reason.clone())),
                ValueState::Absent if self.needed.contains(object) => {
                    missing.push((object.clone(), NOT_THERE.to_owned()));
                }
                ValueState::There(_) | ValueState::Absent => {}
                ValueState::Refused(reason) => return Err(failed(format!("{object} is refused: {reason}"))),
            }
        }
        Ok(missing)
    }
}

/// Waits for a change of values, if there are any, or until then.
pub(super) async fn change_until(values: &mut Option<TaskValues>, until: Option<Instant>) {
    let changed = async {
        match values {
            Some(values) => values.next_change().await,
            None => std::future::pending().await,
        }
    };
    match until {
        Some(until) => drop(tokio::time::timeout_at(until, changed).await),
        None => changed.await,
    }
}

/// What is to be done for an object that is not there.
pub(super) const NOT_THERE: &str = "it does not exist; create it";

/// Values that a start waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    values: TaskValues,
    since: Instant,
    /// What was reported last as missing.
    shown: Option<Vec<ValueObject>>,
}

/// What comes of waiting.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// All are there.
    Complete,
    /// Some are not, and it is time to say so: which, and why.
    Missing(String),
}

impl Awaited {
    /// Begins to wait.
    pub(crate) fn new(values: TaskValues) -> Self {
        Self { values, since: Instant::now(), shown: None }
    }

    /// The values, which are followed on.
    pub(crate) fn into_values(self) -> TaskValues {
        self.values
    }

    /// Waits until all values are there, or it is time to say what is missing. May be dropped and called again.
    ///
    /// # Errors
    /// When a value is refused or has not come for long: another try may help each time.
    pub(crate) async fn arrive(&mut self) -> Result<Arrival, TaskHookError> {
        loop {
            self.values.take_in();
            let missing = self.values.missing()?;
            if missing.is_empty() {
                return Ok(Arrival::Complete);
            }
            let now = Instant::now();
            let text = named(missing.iter().map(|(object, reason)| format!("{object} ({reason})")));
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
            tokio::select! {
                biased;
                is_open = self.values.changed() => if !is_open {
                    return Err(failed("the agent ends".to_owned()));
                },
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }
}

/// What is waited for, in words: the first of it by name.
pub(super) fn named(missing: impl Iterator<Item = String>) -> String {
    format!("waits for {}", some_of(missing, NAMED))
}

fn failed(reason: String) -> TaskHookError {
    TaskHookError { hook: "secrets", reason, is_recoverable: true }
}
