//! The tables of system and sysbatch jobs (`spec/scheduler.md` 7), read row by row.

use std::collections::BTreeSet;

use drover_api::job::JobType;

use super::super::*;
use super::counted::{
    Kind, On, client_terminal, kind, name, on, reconnecting, server_terminal, terminal, why_it_moves, window,
};
use super::decided::{Decided, Hits, Made};
use super::states::{CURRENT, State};

/// What the table of live allocations says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ignore,
    Stop(&'static str),
    Lost,
    Reconnect,
    Disconnect,
    InPlace,
    Update,
}

/// A slot of a node that is to be filled.
struct Slot {
    node: String,
    index: i64,
    replaces: Option<Alloc>,
    /// The newest that held it.
    previous: Option<Alloc>,
    canary: bool,
}

/// Whether the job's rules let it run on a node.
fn suits(world: &World, node: &str) -> bool {
    let is_limited = !world.job.definition.spec.constraints.is_empty();
    let node = world.view.node(&NodeName::from(node));
    !is_limited || node.is_some_and(|node| node.meta.get("tier").is_none_or(|tier| tier != "old"))
}

fn is_candidate(world: &World, node: &str) -> bool {
    let node = world.view.node(&NodeName::from(node));
    node.is_some_and(|node| node.phase == NodePhase::Ready && node.is_eligible && !node.is_draining)
}

fn fate(world: &World, alloc: &Alloc, hits: &mut Hits) -> Fate {
    let job = &world.job;
    let count = job.definition.spec.groups[0].count;
    let (phase, draining) = on(world, alloc);
    let (lost_after, _) = window(world);
    let unknown = alloc.client == ClientStatus::Unknown;
    let since = alloc.states.iter().rev().take_while(|(status, _)| *status == ClientStatus::Unknown).last();
    let expired = unknown && since.is_some_and(|(_, at)| *at + SignedDuration::from_secs(lost_after) <= now());
    let is_eligible = world.view.node(&alloc.node).is_some_and(|node| node.is_eligible);
    let done = job.definition.job_type() == JobType::Sysbatch && alloc.ran_successfully;
    let gone = matches!(phase, On::Gone | On::Down);
    let changed = kind(alloc) != Kind::Same;
    let rows: [(&'static str, bool, Fate); 15] = [
        ("7 name not required", alloc.index >= count, Fate::Stop("NotNeeded")),
        (
            "7 migrate",
            alloc.transition.migrate,
            Fate::Stop(if why_it_moves(world, alloc) == "alloc-stop" { "alloc-stop" } else { "NodeTainted" }),
        ),
        ("7 unknown and expired", expired, Fate::Lost),
        ("7 done on a lost node", gone && done, Fate::Ignore),
        ("7 unknown within its window", unknown && (lost_after > 0 || !gone), Fate::Ignore),
        ("7 lost", gone, Fate::Lost),
        (
            "7 disconnected without a window",
            phase == On::Disconnected && alloc.client == ClientStatus::Running && lost_after == 0,
            Fate::Lost,
        ),
        ("7 disconnected", phase == On::Disconnected && alloc.client == ClientStatus::Running, Fate::Disconnect),
        ("7 tainted otherwise", phase == On::Disconnected || draining, Fate::Ignore),
        ("7 reconnects", reconnecting(alloc) && !changed, Fate::Reconnect),
        ("7 initializing", phase == On::Initializing, Fate::Ignore),
        ("7 ineligible and changed", !is_eligible && changed, Fate::Stop("NotNeeded")),
        ("7 ineligible", !is_eligible, Fate::Ignore),
        ("7 changed", kind(alloc) == Kind::Destructive, Fate::Update),
        ("7 else", true, Fate::Ignore),
    ];
    let (rule, _, fate) = rows.into_iter().find(|(_, holds, _)| *holds).unwrap();
    if rule == "7 else" && kind(alloc) == Kind::InPlace {
        // It may go on where it is, if that still suits.
        let suits = suits(world, alloc.node.as_str());
        hits.met(if suits { "7 in place" } else { "7 in place, excluded" });
        return if suits { Fate::InPlace } else { Fate::Update };
    }
    hits.met(rule);
    fate
}

/// What the tables say of a system or sysbatch job with one group.
#[expect(clippy::too_many_lines, reason = "the rows in the order of the specification")]
pub(super) fn per_node(state: &State, hits: &mut Hits) -> Decided {
    let world = &state.world;
    let job = &world.job;
    let group = &job.definition.spec.groups[0];
    let count = group.count;
    let is_sysbatch = job.definition.job_type() == JobType::Sysbatch;
    let mut out = Decided::default();
    let mut allocs: Vec<Alloc> = world.view.allocs_of_job(&key()).map(|alloc| (**alloc).clone()).collect();
    allocs.sort_by(|a, b| (&a.node, &a.key).cmp(&(&b.node, &b.key)));
    let latest = world.view.latest_deployment(&key()).map(|latest| (**latest).clone());
    let is_active = |one: &Deployment| matches!(one.phase, DeploymentPhase::Running | DeploymentPhase::Paused);
    let mut current = None;
    if let Some(latest) = latest {
        if job.stopped || latest.job_version != CURRENT {
            let why = if job.stopped { "StoppedJob" } else { "NewerJob" };
            if is_active(&latest) {
                out.deployments_ended.push(format!("cancelled {why}"));
            }
        } else if latest.phase != DeploymentPhase::Successful {
            current = Some(latest);
        }
    }
    let stuck = |out: &mut Decided, hits: &mut Hits| {
        for alloc in &allocs {
            let is_stuck = server_terminal(alloc)
                && !client_terminal(alloc)
                && matches!(on(world, alloc).0, On::Gone | On::Down)
                && !out.ended.iter().any(|(ended, ..)| *ended == name(alloc));
            if hits.met_if(is_stuck, "3.2 stuck on a lost node") {
                out.ended.push((name(alloc), "Lost".to_owned(), true));
            }
        }
    };
    if job.stopped {
        hits.met("3.1 B job stopped");
        for alloc in allocs.iter().filter(|alloc| !terminal(alloc)) {
            let (phase, _) = on(world, alloc);
            let away = phase == On::Disconnected
                && alloc.client != ClientStatus::Unknown
                && (alloc.client == ClientStatus::Pending || window(world).0 == 0);
            let expired = alloc.client == ClientStatus::Unknown
                && alloc
                    .states
                    .iter()
                    .rev()
                    .take_while(|(status, _)| *status == ClientStatus::Unknown)
                    .last()
                    .is_some_and(|(_, at)| *at + SignedDuration::from_secs(window(world).0) <= now());
            let is_lost = matches!(phase, On::Gone | On::Down) || (away && !expired);
            let why = if is_lost { "Lost" } else { "NotNeeded" };
            out.ended.push((name(alloc), why.to_owned(), is_lost));
            out.desired.stop += 1;
        }
        stuck(&mut out, hits);
        return out.sorted();
    }
    // Live allocations.
    let (mut updates, mut lost, mut held, mut n_in_place) = (Vec::new(), BTreeSet::new(), 0, 0);
    let mut n_ignored = 0;
    for alloc in allocs.iter().filter(|alloc| !terminal(alloc)) {
        let there = i64::from(is_candidate(world, alloc.node.as_str()));
        match fate(world, alloc, hits) {
            Fate::Ignore => (n_ignored, held) = (n_ignored + 1, held + there),
            Fate::Stop(why) => {
                out.desired.stop += 1;
                out.ended.push((name(alloc), why.to_owned(), false));
            }
            Fate::Lost => {
                out.desired.stop += 1;
                lost.insert(name(alloc));
                out.ended.push((name(alloc), "Lost".to_owned(), true));
            }
            Fate::Reconnect => {
                out.desired.reconnect += 1;
                out.reconnected.push(name(alloc));
                (n_ignored, held) = (n_ignored + 1, held + there);
            }
            Fate::Disconnect => {
                out.desired.disconnect += 1;
                out.disconnected.push((name(alloc), None));
            }
            Fate::InPlace => {
                out.desired.in_place_update += 1;
                out.in_place.push(name(alloc));
                (n_in_place, held) = (n_in_place + 1, held + 1);
            }
            Fate::Update => updates.push(alloc.clone()),
        }
    }
    stuck(&mut out, hits);
    // Missing names, node by node.
    let mut slots: Vec<Slot> = Vec::new();
    let mut nodes: Vec<String> = world.view.nodes().map(|node| node.name.to_string()).collect();
    nodes.sort();
    for node in nodes.iter().filter(|node| is_candidate(world, node)) {
        for index in 0..count {
            let of_slot: Vec<&Alloc> =
                allocs.iter().filter(|alloc| alloc.node.as_str() == node && alloc.index == index).collect();
            if of_slot.iter().any(|alloc| !terminal(alloc) && !lost.contains(&name(alloc))) {
                continue;
            }
            let runs = of_slot.iter().any(|alloc| !client_terminal(alloc) && !lost.contains(&name(alloc)));
            if hits.met_if(is_sysbatch && runs, "S-209 waits for the end of the old one") {
                continue;
            }
            let replaced =
                |alloc: &Alloc| of_slot.iter().any(|other| other.previous.as_deref() == Some(&*alloc.key.name));
            let newest = of_slot
                .iter()
                .filter(|alloc| !replaced(alloc))
                .max_by_key(|alloc| (alloc.created_at, &alloc.key))
                .map(|alloc| (*alloc).clone());
            if let Some(newest) = newest.as_ref().filter(|_| is_sysbatch) {
                let by_person = newest.desired == DesiredStatus::Stop && newest.transition.migrate;
                let is_done = client_terminal(newest)
                    && newest.client != ClientStatus::Lost
                    && (newest.desired == DesiredStatus::Run || by_person);
                if is_done && kind(newest) != Kind::Destructive {
                    hits.met("7 sysbatch done");
                    n_ignored += 1;
                    continue;
                }
                if hits.met_if(is_done, "7 sysbatch done, older spec") {
                    out.desired.destructive_update += 1;
                }
            }
            slots.push(Slot { node: node.clone(), index, replaces: None, previous: newest, canary: false });
        }
    }
    out.desired.ignore = n_ignored;
    out.desired.place = i64::try_from(slots.len()).unwrap() - out.desired.destructive_update;
    // The deployment's state of the group.
    let known = current.as_ref().map(|current| current.groups["web"].clone());
    let is_of_this = |alloc: &Alloc| alloc.job_uid == job.uid && !server_terminal(alloc) && kind(alloc) == Kind::Same;
    let update = group.update.clone();
    let most = update.as_ref().and_then(|update| update.max_parallel).unwrap_or(0);
    let begins = (!updates.is_empty() || n_in_place > 0 || !slots.is_empty()) && !allocs.iter().any(is_of_this);
    let mut state = known.clone().or_else(|| (most > 0 && begins).then(GroupState::default));
    // Who is replaced now.
    let (feasible, excluded): (Vec<Alloc>, Vec<Alloc>) =
        updates.into_iter().partition(|alloc| suits(world, alloc.node.as_str()));
    let current_name = current.as_ref().map(|one| one.key.name.clone());
    let is_of_current =
        |alloc: &Alloc| current_name.is_some() && alloc.deployment.as_deref() == current_name.as_deref();
    let is_failed = current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Failed);
    let is_paused = current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Paused);
    let live =
        i64::try_from(allocs.iter().filter(|alloc| alloc.canary && !terminal(alloc) && is_of_current(alloc)).count())
            .unwrap();
    let is_again = |slot: &Slot| slot.previous.as_ref().is_some_and(|alloc| alloc.canary && is_of_current(alloc));
    let again = i64::try_from(slots.iter().filter(|slot| is_again(slot)).count()).unwrap();
    let percent = update.as_ref().and_then(|update| update.canary).unwrap_or(0);
    let mut canarying = false;
    if let Some(state) = &mut state {
        if percent > 0 && !state.promoted && !is_failed {
            let all = i64::try_from(feasible.len()).unwrap() + live + again;
            let wanted = (percent * all + 99) / 100;
            state.desired_canaries = if most == 0 { wanted } else { wanted.min(most) };
            hits.met_if(state.desired_canaries > 0, "7 canaries");
        }
        canarying = state.desired_canaries > 0 && !state.promoted;
    }
    if canarying {
        for slot in &mut slots {
            slot.canary = is_again(slot);
        }
    }
    let unjudged = allocs
        .iter()
        .filter(|alloc| !terminal(alloc) && is_of_current(alloc))
        .filter(|alloc| alloc.health.as_ref().is_none_or(|health| health.deployment != alloc.deployment))
        .count();
    let n_now = if is_failed || is_paused {
        0
    } else if canarying {
        state.as_ref().map_or(0, |state| state.desired_canaries - live - again).max(0)
    } else if most == 0 {
        i64::MAX
    } else {
        (most - i64::try_from(unjudged).unwrap()).max(0)
    };
    let mut now_updated: Vec<Alloc> = Vec::new();
    let mut n_waiting = 0;
    for alloc in feasible {
        if i64::try_from(now_updated.len()).unwrap() < n_now {
            now_updated.push(alloc);
        } else {
            hits.met("7 limit");
            n_waiting += 1;
        }
    }
    let mut n_held_back = n_waiting;
    if canarying || is_failed || is_paused {
        n_held_back += i64::try_from(excluded.len()).unwrap();
    } else {
        now_updated.extend(excluded);
    }
    out.desired.ignore += n_held_back;
    for alloc in now_updated {
        *(if canarying { &mut out.desired.canary } else { &mut out.desired.destructive_update }) += 1;
        slots.push(Slot {
            node: alloc.node.to_string(),
            index: alloc.index,
            previous: Some(alloc.clone()),
            replaces: Some(alloc),
            canary: canarying,
        });
    }
    // Placements.
    let mut n_failed = 0;
    let n_slots = i64::try_from(slots.len()).unwrap();
    for slot in slots {
        let can = suits(world, &slot.node);
        if let Some(alloc) = &slot.replaces {
            hits.met_if(!can, "7 excluded one ends");
            out.ended.push((name(alloc), "Updating".to_owned(), false));
        }
        if !can {
            n_failed += 1;
            continue;
        }
        out.made.push(Made {
            index: slot.index,
            canary: slot.canary,
            version: CURRENT,
            replaces: slot.replaces.as_ref().map(name),
            node: Some(slot.node),
        });
    }
    let is_new = known.is_none();
    if let Some(state) = state.as_mut().filter(|_| is_new || !is_failed) {
        state.desired_total = held + n_waiting + n_slots - n_failed;
    }
    let state = state.filter(|state| !is_new || state.desired_total > 0);
    if let Some(state) = &state
        && known.as_ref() != Some(state)
    {
        hits.met(if is_new { "7 deployment begins" } else { "7 desiredTotal follows" });
        out.begun = Some((state.desired_total, state.desired_canaries));
    }
    let healthy = allocs
        .iter()
        .filter(|alloc| !terminal(alloc) && is_of_current(alloc) && is_candidate(world, alloc.node.as_str()))
        .filter(|alloc| {
            alloc.health.as_ref().is_some_and(|health| health.is_healthy && health.deployment == alloc.deployment)
        })
        .count();
    let is_running = current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Running);
    let is_complete = state.as_ref().is_some_and(|state| {
        !is_new
            && state.desired_total > 0
            && !canarying
            && i64::try_from(healthy).unwrap() >= state.desired_total
            && n_held_back == 0
    });
    if hits.met_if(is_running && is_complete, "7 complete") {
        out.deployments_ended.push("successful Successful".to_owned());
    }
    out.sorted()
}
