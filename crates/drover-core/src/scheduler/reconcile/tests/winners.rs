//! Which of two stays when one comes back (3.5), over every combination of what the table names.

use std::sync::Arc;

use drover_api::allocation::ClientStatus;
use drover_api::group::Group;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ids::Uid;
use crate::model::Alloc;
use crate::scheduler::reconcile::reconnect::wins;
use crate::scheduler::tests::{World, key, now, spec};

/// What the table looks at of one of the two.
#[derive(Clone, Copy, Debug)]
struct Contender {
    score: Option<i32>,
    client: ClientStatus,
    /// How many seconds ago each task started, where it did.
    main: Option<i64>,
    side: Option<i64>,
}

impl Contender {
    fn every() -> Vec<Self> {
        let mut all = Vec::new();
        for score in [None, Some(5), Some(10)] {
            for client in [ClientStatus::Running, ClientStatus::Pending] {
                for (main, side) in [(None, None), (Some(60), None), (None, Some(60)), (Some(30), Some(90))] {
                    all.push(Self { score, client, main, side });
                }
            }
        }
        all
    }

    fn alloc(self, world: &mut World) -> Alloc {
        world.allocs([0], |alloc| {
            alloc.best_score = self.score.map(f64::from);
            alloc.client = self.client;
            let starts = [("main", self.main), ("side", self.side)];
            alloc.task_starts =
                starts.into_iter().filter_map(|(task, ago)| Some((task.into(), started(ago?)))).collect();
        });
        let newest = world.view.allocs_of_job(&key()).last().map(Arc::as_ref);
        newest.expect("one was added").clone()
    }

    /// How long it has run, by its leader or else by the task that started first; nothing where that did not start.
    fn has_run(self, has_leader: bool) -> Option<i64> {
        if has_leader { self.main } else { self.main.max(self.side) }
    }
}

fn started(ago: i64) -> Timestamp {
    now() - SignedDuration::from_secs(ago)
}

fn group(strategy: Option<&str>, has_leader: bool) -> Value {
    let mut one = spec(1);
    one["groups"][0]["tasks"] =
        json!([{ "name": "main", "driver": "mock", "leader": has_leader }, { "name": "side", "driver": "mock" }]);
    if let Some(strategy) = strategy {
        one["groups"][0]["disconnect"] = json!({ "lostAfter": "5m", "reconcile": strategy });
    }
    one
}

/// The rows of the table, for two of one version.
fn replacement_wins(strategy: Option<&str>, has_leader: bool, original: Contender, replacement: Contender) -> bool {
    let by_score = || {
        let may = replacement.client == ClientStatus::Running || original.client != ClientStatus::Running;
        may && replacement.score.is_some_and(|second| original.score.is_none_or(|first| second > first))
    };
    match strategy {
        None | Some("best_score") => by_score(),
        Some("keep_original") => false,
        Some("keep_replacement") => true,
        Some("longest_running") => match (original.has_run(has_leader), replacement.has_run(has_leader)) {
            (None, None) => by_score(),
            (Some(first), Some(second)) => second >= first,
            (first, _) => first.is_none(),
        },
        Some(other) => panic!("{other}"),
    }
}

#[test]
fn of_two_of_one_version_the_one_stays_that_the_strategy_names() {
    let contenders = Contender::every();
    let mut n_won = 0;
    for strategy in [None, Some("best_score"), Some("keep_original"), Some("keep_replacement"), Some("longest_running")]
    {
        for has_leader in [false, true] {
            let mut world = World::new(&group(strategy, has_leader));
            let group: Group = world.job.definition.spec.groups[0].clone();
            let allocs: Vec<Alloc> = contenders.iter().map(|one| one.alloc(&mut World::new(&spec(1)))).collect();
            world.put_job();
            for (original, first) in contenders.iter().zip(&allocs) {
                for (replacement, second) in contenders.iter().zip(&allocs) {
                    let wanted = replacement_wins(strategy, has_leader, *original, *replacement);
                    let got = wins(&world.job, &group, first, second);
                    assert_eq!(got, wanted, "{strategy:?}, leader: {has_leader}, {original:?} or {replacement:?}");
                    n_won += usize::from(got);
                }
            }
        }
    }
    assert!((1_500..4_500).contains(&n_won), "{n_won} of 5760 replacements won");
}

#[test]
fn a_newer_version_or_incarnation_stays_whatever_the_strategy() {
    let of = |version: i64, uid: &str| {
        let contender = Contender { score: None, client: ClientStatus::Running, main: None, side: None };
        Alloc { job_version: version, job_uid: Uid::from(uid), ..contender.alloc(&mut World::new(&spec(1))) }
    };
    for strategy in ["best_score", "keep_original", "keep_replacement", "longest_running"] {
        let world = World::new(&group(Some(strategy), false));
        let group = &world.job.definition.spec.groups[0];
        let by_name = strategy == "keep_replacement";
        for ((version, uid), (other, other_uid), wanted) in [
            ((1, "job-uid"), (2, "job-uid"), true),
            ((1, "job-uid"), (1, "job-uid"), by_name),
            ((2, "job-uid"), (1, "job-uid"), by_name),
            // An earlier incarnation is older, whatever its version.
            ((7, "before"), (0, "job-uid"), true),
            ((0, "job-uid"), (7, "before"), false),
        ] {
            let got = wins(&world.job, group, &of(version, uid), &of(other, other_uid));
            assert_eq!(got, wanted, "{strategy}: {version} of {uid} or {other} of {other_uid}");
        }
    }
}
