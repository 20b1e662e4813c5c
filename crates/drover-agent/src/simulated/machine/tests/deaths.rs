//! An agent that dies at each single write of a story, to the API server or to its state: the next one brings the story
//! to the end that it has without.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// What becomes of the writes of one life.
#[derive(Clone)]
pub(super) struct Fates(Arc<Fate>);

struct Fate {
    n_writes: AtomicUsize,
    /// The write at which the agent dies, and how.
    death: Option<(usize, StateWrite)>,
    is_dead: AtomicBool,
}

impl Fates {
    fn new(death: Option<(usize, StateWrite)>) -> Self {
        Self(Arc::new(Fate { n_writes: AtomicUsize::new(0), death, is_dead: AtomicBool::new(false) }))
    }

    /// What becomes of the next write. One that is dead writes no more.
    pub(super) fn next(&self) -> StateWrite {
        if self.is_dead() {
            return StateWrite::DiedBefore;
        }
        let n = self.0.n_writes.fetch_add(1, Ordering::Relaxed);
        let fate = self.0.death.filter(|(at, _)| *at == n).map_or(StateWrite::Kept, |(_, fate)| fate);
        self.0.is_dead.store(fate != StateWrite::Kept, Ordering::Relaxed);
        fate
    }

    fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::Relaxed)
    }

    fn n_writes(&self) -> usize {
        self.0.n_writes.load(Ordering::Relaxed)
    }
}

/// What happens around an agent, and the seconds that pass after it.
type Act = (fn(&Machine, &Api), u64);

/// Happenings around an agent with one allocation of this group.
struct Story {
    group: Value,
    acts: &'static [Act],
}

/// What a story has come to.
#[derive(Debug, PartialEq, Eq)]
struct Ending {
    /// What the API server shows of the allocation in the end.
    shown: Vec<String>,
    /// Runs that were alive at the same time, of one task twice.
    doubled: Vec<String>,
}

/// Plays a story in which the agent dies at one of its writes, or not at all; its end, and how many writes there were.
async fn played(story: &Story, death: Option<(usize, StateWrite)>) -> (Ending, usize) {
    let api = api(story.group.clone());
    let (machine, _) = machine();
    let mut doubled = Vec::new();
    let fates = Fates::new(death);
    let of_state = fates.clone();
    api.0.lock().expect("no panic").fates = Some(fates.clone());
    let mut agent = Some(begin_with(&machine, &api, 1, Some(StateFaults::new(move || of_state.next()))));
    let mut is_first = true;
    for (act, seconds) in story.acts {
        act(&machine, &api);
        let end = Instant::now() + Duration::from_secs(*seconds);
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let alive = machine.mock.alive();
            let tasks: BTreeSet<&str> =
                alive.iter().filter_map(|id| id.rsplit_once('/')).map(|(task, _)| task).collect();
            if tasks.len() < alive.len() {
                doubled = alive;
            }
            if is_first && fates.is_dead() {
                is_first = false;
                drop(agent.take());
                api.0.lock().expect("no panic").fates = None;
                tokio::time::sleep(Duration::from_secs(1)).await;
                agent = Some(begin_with(&machine, &api, 2, None));
            }
        }
    }
    let status = api.status();
    let mut shown = vec![format!(
        "{} healthy {:?} ended {}",
        status.client_status,
        status.health.map(|health| health.healthy),
        status.ended_at.is_some()
    )];
    shown.extend(
        status
            .task_states
            .iter()
            .map(|(name, task)| format!("{name}: {:?} failed {} restarts {}", task.state, task.failed, task.restarts)),
    );
    (Ending { shown, doubled }, fates.n_writes())
}

/// Plays a story once for each write at which the agent can die.
async fn no_death_changes_the_end(story: Story) {
    let (expected, n_writes) = played(&story, None).await;
    assert!(n_writes > 5 && expected.doubled.is_empty(), "{expected:?} after {n_writes} writes");
    let mut differences = Vec::new();
    for at in 0..n_writes {
        for how in [StateWrite::DiedBefore, StateWrite::DiedAfter] {
            let (ending, _) = played(&story, Some((at, how))).await;
            if ending != expected {
                differences.push(format!("{how:?} write {at}: {ending:?}"));
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} endings differ from {expected:?}:\n{}",
        differences.len(),
        2 * n_writes,
        differences.join("\n")
    );
}

fn stop(api: &Api) {
    api.change::<Allocation>(&alloc_key(), |object| {
        object["metadata"]["generation"] = json!(2);
        object["spec"]["desiredStatus"] = json!(DesiredStatus::Stop);
    });
}

fn task(name: &str, config: &Value) -> Value {
    json!({ "name": name, "driver": "mock", "config": config })
}

#[tokio::test(start_paused = true)]
async fn a_service_starts_and_is_stopped() {
    let story = Story { group: group(), acts: &[(|_, _| {}, 30), (|_, api| stop(api), 60)] };
    no_death_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_runs_out_of_memory_is_restarted() {
    let story = Story {
        group: json!({ "restart": { "attempts": 2, "interval": "10m", "delay": "5s", "mode": "fail" },
            "tasks": [task("t", &json!({ "runFor": "1h" }))] }),
        acts: &[
            (|_, _| {}, 20),
            (
                |machine, api| {
                    let uid = api.allocation().metadata.uid.expect("a uid");
                    machine.end_task(&uid, "t", SimulatedEnd::OutOfMemory);
                },
                60,
            ),
        ],
    };
    no_death_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_ends_well_is_complete() {
    let story = Story {
        group: json!({ "restart": { "attempts": 0, "interval": "10m", "delay": "1s", "mode": "fail" },
            "tasks": [task("t", &json!({ "runFor": "3s" }))] }),
        acts: &[(|_, _| {}, 60)],
    };
    no_death_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_without_attempts_left_fails_its_allocation() {
    let story = Story {
        group: json!({ "restart": { "attempts": 1, "interval": "10m", "delay": "2s", "mode": "fail" },
            "tasks": [task("t", &json!({ "runFor": "5s", "exitCode": 3 }))] }),
        acts: &[(|_, _| {}, 90)],
    };
    no_death_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_run_in_the_order_of_their_lifecycle() {
    let hooked = |name: &str, hook: &str, sidecar: bool, run_for: &str| {
        let mut task = task(name, &json!({ "runFor": run_for }));
        task["lifecycle"] = json!({ "hook": hook, "sidecar": sidecar });
        task
    };
    let story = Story {
        group: json!({ "tasks": [
            hooked("before", "prestart", false, "3s"),
            hooked("beside", "prestart", true, "1h"),
            task("main", &json!({ "runFor": "1h" })),
            hooked("after", "poststop", false, "3s"),
        ] }),
        acts: &[(|_, _| {}, 30), (|_, api| stop(api), 60)],
    };
    no_death_changes_the_end(story).await;
}
