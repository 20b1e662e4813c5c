//! The queue and the jobs that wait for room, step by step, beside lists that are searched from the front
//! (`spec/scheduler.md` 2.3 and 2.5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::allocation::FollowUp;
use drover_api::job::EvalTrigger;
use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use super::blocked::{BlockedJobs, BlockedVerdict, Freed};
use super::queue::{Broker, NextEvaluation};
use crate::ids::JobKey;
use crate::scheduler::plan::WaitsFor;

const JOBS: [&str; 4] = ["a", "b", "c", "d"];
const TRIGGERS: [EvalTrigger; 3] = [EvalTrigger::JobRegister, EvalTrigger::NodeUpdate, EvalTrigger::AllocFailure];

fn job(name: &str) -> JobKey {
    JobKey::new("shop", name)
}

/// Two jobs of each priority.
fn priority(name: &str) -> i64 {
    if name < "c" { 50 } else { 80 }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

/// The queue as lists.
#[derive(Debug, Default)]
struct QueueLists {
    /// Job, trigger, the time for which it was delayed, and its number.
    waiting: Vec<(&'static str, EvalTrigger, Option<i64>, u64)>,
    under_way: BTreeSet<&'static str>,
    delayed: BTreeSet<(i64, &'static str, EvalTrigger)>,
    /// Until which millisecond a job rests.
    rests: BTreeMap<&'static str, u64>,
    n: u64,
}

impl QueueLists {
    fn add(&mut self, name: &'static str, trigger: EvalTrigger, delayed: Option<i64>) {
        if let Some(waiting) = self.waiting.iter_mut().find(|(of, ..)| *of == name) {
            // One for which an allocation waits is not lost to one for which none does.
            if waiting.2.is_none() || delayed.is_some() {
                (waiting.1, waiting.2) = (trigger, delayed);
            }
            return;
        }
        self.n += 1;
        self.waiting.push((name, trigger, delayed, self.n));
    }

    fn pop(&mut self, now: u64) -> Option<NextEvaluation> {
        let is_free =
            |name: &str| !self.under_way.contains(name) && self.rests.get(name).is_none_or(|until| *until <= now);
        let ready = self.waiting.iter().filter(|(name, ..)| is_free(name));
        let next = *ready.min_by_key(|(name, _, _, number)| (-priority(name), *number))?;
        self.waiting.retain(|one| one.0 != next.0);
        self.under_way.insert(next.0);
        let (name, trigger, delayed, number) = next;
        Some(NextEvaluation { job: job(name), trigger, wait_until: delayed.map(at), number })
    }

    fn rested_at(&self) -> Option<Duration> {
        let waits = |name: &str| !self.under_way.contains(name) && self.waiting.iter().any(|one| one.0 == name);
        let until = self.rests.iter().filter(|(name, _)| waits(name)).map(|(_, until)| *until).min();
        until.map(Duration::from_millis)
    }
}

#[test]
fn the_next_evaluation_is_the_first_of_the_highest_priority_whose_job_is_free() {
    let mut rng = Rng::with_seed(141);
    let mut n_popped = 0;
    for _ in 0..500 {
        let (mut broker, mut lists) = (Broker::default(), QueueLists::default());
        let (mut seconds, mut millis) = (0, 0);
        for _ in 0..60 {
            let (name, trigger) = (JOBS[rng.usize(..4)], TRIGGERS[rng.usize(..3)]);
            let due = seconds + rng.i64(0..6);
            match rng.u8(..8) {
                0 | 1 => {
                    broker.enqueue(&job(name), trigger, priority(name));
                    lists.add(name, trigger, None);
                }
                2 => {
                    broker.delay(&job(name), &FollowUp { trigger, at: at(due) });
                    lists.delayed.insert((due, name, trigger));
                }
                3 => {
                    broker.call_off(&job(name), &FollowUp { trigger, at: at(due) });
                    lists.delayed.remove(&(due, name, trigger));
                }
                4 => {
                    seconds += rng.i64(0..4);
                    broker.release_due(at(seconds), |job| priority(&job.name));
                    let due: Vec<_> = lists.delayed.iter().copied().filter(|(at, ..)| *at <= seconds).collect();
                    for (at, name, trigger) in due {
                        lists.delayed.remove(&(at, name, trigger));
                        lists.add(name, trigger, Some(at));
                    }
                }
                5 if lists.under_way.contains(name) => {
                    // What took 2 ms or more is followed by a rest of four times that, a second at most.
                    if rng.bool() {
                        let took = [1, 2, 10, 249, 250, 9_000][rng.usize(..6)];
                        broker.rest(&job(name), Duration::from_millis(took), Duration::from_millis(millis));
                        lists.rests.retain(|_, until| *until > millis);
                        lists.rests.extend((took >= 2).then(|| (name, millis + (4 * took).min(1_000))));
                    }
                    if rng.u8(..4) > 0 {
                        broker.finish(&job(name));
                        lists.under_way.remove(name);
                    }
                }
                _ => {
                    millis += [0, 1, 8, 40, 400][rng.usize(..5)];
                    let wanted = lists.pop(millis);
                    assert_eq!(broker.pop(Duration::from_millis(millis)), wanted, "at {millis} ms: {lists:?}");
                    if let Some(next) = &wanted {
                        lists.rests.retain(|name, _| **name != *next.job.name);
                        n_popped += 1;
                    }
                }
            }
            assert_eq!(broker.rested_at(), lists.rested_at(), "{lists:?}");
            assert_eq!(broker.next_due(), lists.delayed.first().map(|(due, ..)| at(*due)), "{lists:?}");
            assert_eq!((broker.n_ready(), broker.n_delayed()), (lists.waiting.len(), lists.delayed.len()));
            for name in JOBS {
                let (waits, runs) = (lists.waiting.iter().any(|one| one.0 == name), lists.under_way.contains(name));
                let got = (broker.is_waiting(&job(name)), broker.is_under_way(&job(name)), broker.is_busy(&job(name)));
                assert_eq!(got, (waits, runs, waits || runs), "{name}: {lists:?}");
            }
        }
    }
    assert!(n_popped > 2_000, "{n_popped} evaluations");
}

/// What a job waits for, and the picture on which that was found.
type JobWait = (&'static str, WaitsFor, u64);

fn some_wait(rng: &mut Rng) -> WaitsFor {
    let mut some = |all: &[&str]| -> Vec<String> {
        all.iter().filter(|_| rng.u8(..3) == 0).map(|one| (*one).to_owned()).collect()
    };
    let (classes, missing, nodes) = (some(&["c1", "c2", "c3"]), some(&["v1", "v2"]), some(&["n1", "n2"]));
    WaitsFor {
        classes: classes.into_iter().map(|class| (class, rng.bool())).collect(),
        is_escaped: rng.u8(..6) == 0,
        missing: missing.into_iter().collect(),
        nodes: nodes.iter().map(|node| node.as_str().into()).collect(),
    }
}

fn some_freed(rng: &mut Rng) -> Freed {
    match rng.u8(..4) {
        0 => Freed::Volume(["v1", "v2"][rng.usize(..2)].to_owned()),
        1 => Freed::Node(["n1", "n2"][rng.usize(..2)].into()),
        _ => Freed::Class(["c1", "c2", "c3"][rng.usize(..3)].to_owned()),
    }
}

/// The table of what wakes whom.
fn wakes(what: &Freed, waits: &WaitsFor) -> bool {
    match what {
        // A class that was never seen may help; one that was ruled out does not, unless nothing can be ruled out.
        Freed::Class(class) => waits.is_escaped || waits.classes.get(class) != Some(&false),
        Freed::Node(node) => waits.nodes.iter().any(|one| one == node),
        Freed::Volume(volume) => waits.missing.iter().any(|one| one == volume),
    }
}

#[test]
fn what_becomes_free_wakes_each_that_it_may_help_also_if_it_came_while_they_planned() {
    let mut rng = Rng::with_seed(145);
    let mut verdicts = [0; 3];
    for _ in 0..1_000 {
        let mut blocked = BlockedJobs::default();
        let mut waiting: Vec<JobWait> = Vec::new();
        let mut freed: Vec<(Freed, u64, i64)> = Vec::new();
        let (mut index, mut minute) = (0, 0);
        for _ in 0..30 {
            let name = JOBS[rng.usize(..4)];
            match rng.u8(..8) {
                0..=3 => {
                    let (waits, snapshot) = (some_wait(&mut rng), rng.u64(0..=index));
                    let is_older = waiting.iter().any(|(of, _, known)| *of == name && *known > snapshot);
                    // What became free is forgotten a quarter of an hour before the last that did.
                    let oldest = freed.last().map_or(0, |(_, _, at)| at - 15);
                    let missed = freed.iter().filter(|(_, at, minute)| *at > snapshot && *minute >= oldest);
                    let (at, wanted) = if is_older {
                        (0, BlockedVerdict::Duplicate)
                    } else if missed.clone().any(|(what, ..)| wakes(what, &waits)) {
                        (1, BlockedVerdict::Again)
                    } else {
                        (2, BlockedVerdict::Waits)
                    };
                    let got = blocked.block(&job(name), waits.clone(), snapshot);
                    assert_eq!(got, wanted, "{name} with {waits:?} on {snapshot}: {waiting:?} after {freed:?}");
                    verdicts[at] += 1;
                    if !is_older {
                        waiting.retain(|(of, ..)| *of != name);
                        waiting.extend((at == 2).then_some((name, waits, snapshot)));
                    }
                }
                4..=6 => {
                    let what = some_freed(&mut rng);
                    index += rng.u64(1..3);
                    minute += rng.i64(0..8);
                    let (woken, left) = waiting.into_iter().partition(|(_, waits, _)| wakes(&what, waits));
                    waiting = left;
                    let woken: Vec<JobWait> = woken;
                    let mut names: Vec<JobKey> = woken.iter().map(|(name, ..)| job(name)).collect();
                    names.sort();
                    let got =
                        blocked.free(what.clone(), index, Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute));
                    assert_eq!(got, names, "{what:?} at {index}: {waiting:?}");
                    freed.push((what, index, minute));
                }
                _ => {
                    blocked.untrack(&job(name));
                    waiting.retain(|(of, ..)| *of != name);
                }
            }
            assert_eq!(blocked.n_waiting(), waiting.len());
            for name in JOBS {
                assert_eq!(blocked.is_waiting(&job(name)), waiting.iter().any(|(of, ..)| *of == name), "{name}");
            }
        }
    }
    assert!(verdicts.iter().all(|n| *n > 500), "duplicates, planned again, waiting: {verdicts:?}");
}
