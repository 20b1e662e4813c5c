//! The tables of service and batch jobs (`spec/scheduler.md` 3), read row by row.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use drover_api::allocation::LastReschedule;
use drover_api::job::JobType;
use drover_api::policy::Update;
use jiff::Timestamp;

use super::super::*;
use super::decided::{Decided, Hits, Made};
use super::states::{CURRENT, DESTRUCTIVE, IN_PLACE, State};

/// What a version is to the job's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Same,
    InPlace,
    Destructive,
}

pub(super) fn kind(alloc: &Alloc) -> Kind {
    match alloc.job_version {
        IN_PLACE => Kind::InPlace,
        DESTRUCTIVE => Kind::Destructive,
        _ => Kind::Same,
    }
}

pub(super) fn name(alloc: &Alloc) -> String {
    alloc.key.name.to_string()
}

pub(super) fn server_terminal(alloc: &Alloc) -> bool {
    alloc.desired != DesiredStatus::Run
}

pub(super) fn client_terminal(alloc: &Alloc) -> bool {
    matches!(alloc.client, ClientStatus::Complete | ClientStatus::Failed | ClientStatus::Lost)
}

pub(super) fn terminal(alloc: &Alloc) -> bool {
    server_terminal(alloc) || client_terminal(alloc)
}

/// Where a node stands, as the table of 3.2 asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Gone,
    Down,
    Disconnected,
    Ready,
    Initializing,
}

pub(super) fn on(world: &World, alloc: &Alloc) -> (On, bool) {
    let Some(node) = world.view.node(&alloc.node) else { return (On::Gone, false) };
    let phase = match node.phase {
        NodePhase::Down => On::Down,
        NodePhase::Disconnected => On::Disconnected,
        NodePhase::Ready => On::Ready,
        NodePhase::Initializing => On::Initializing,
    };
    (phase, node.is_draining)
}

/// The disconnect block: how long in seconds, and whether one is replaced meanwhile.
pub(super) fn window(world: &World) -> (i64, bool) {
    let block = world.job.definition.spec.groups[0].disconnect.as_ref();
    let lost_after = block.and_then(|block| block.lost_after).map_or(0, |after| after.as_nanos() / 1_000_000_000);
    (lost_after, block.and_then(|block| block.replace).unwrap_or(true))
}

pub(super) fn reconnecting(alloc: &Alloc) -> bool {
    matches!(alloc.client, ClientStatus::Unknown | ClientStatus::Running | ClientStatus::Failed)
        && alloc.states.last().is_some_and(|(status, _)| *status == ClientStatus::Unknown)
}

/// S-223: a user's stop is recorded as one.
pub(super) fn why_it_moves(world: &World, alloc: &Alloc) -> &'static str {
    let (phase, draining) = on(world, alloc);
    if alloc.transition.reschedule && phase != On::Gone && !draining { "alloc-stop" } else { "Migrating" }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Ignored,
    Untainted,
    Migrating,
    Lost,
    Disconnecting,
    Reconnecting,
    Expiring,
}

struct Reading<'a> {
    world: &'a World,
    eval: &'a Evaluation,
    hits: &'a mut Hits,
    is_batch: bool,
    count: i64,
    update: Option<Update>,
    /// The deployment of the version, unless it was successful; and one that is over.
    current: Option<Deployment>,
    old: Option<Deployment>,
    desired_canaries: i64,
    promoted: bool,
    /// Live canaries of the current deployment.
    canaries: BTreeSet<String>,
    out: Decided,
}

/// What the tables say of a service or batch job with one group.
pub(super) fn counted(state: &State, hits: &mut Hits) -> Decided {
    let (world, eval) = (&state.world, &state.eval);
    let job = &world.job;
    let group = &job.definition.spec.groups[0];
    let mut out = Decided::default();
    let latest = world.view.latest_deployment(&key()).map(|latest| (**latest).clone());
    let mut allocs: Vec<Alloc> = world.view.allocs_of_job(&key()).map(|alloc| (**alloc).clone()).collect();
    allocs.sort_by(|a, b| a.key.cmp(&b.key));
    // 3.12: the deployment that counts, and the end of another.
    let (mut current, mut old) = (None, None);
    if let Some(latest) = latest {
        let is_active = matches!(latest.phase, DeploymentPhase::Running | DeploymentPhase::Paused);
        if job.stopped {
            if hits.met_if(is_active, "3.12 stopped job cancels") {
                out.deployments_ended.push("cancelled StoppedJob".to_owned());
            }
            old = Some(latest);
        } else if latest.job_version != CURRENT {
            if hits.met_if(is_active, "3.12 newer version cancels") {
                out.deployments_ended.push("cancelled NewerJob".to_owned());
            }
            old = Some(latest);
        } else if latest.phase == DeploymentPhase::Successful {
            old = Some(latest);
        } else {
            current = Some(latest);
        }
    }
    let state = current.as_ref().map(|current| current.groups["web"].clone());
    let mut reading = Reading {
        world,
        eval,
        hits,
        is_batch: job.definition.job_type() == JobType::Batch,
        count: group.count,
        update: group.update.clone().filter(|update| update.max_parallel.unwrap_or(0) > 0),
        desired_canaries: state.as_ref().map_or(0, |state| state.desired_canaries),
        promoted: state.as_ref().is_some_and(|state| state.promoted),
        current,
        old,
        canaries: BTreeSet::new(),
        out,
    };
    if job.stopped || group.count == 0 {
        reading.hits.met(if job.stopped { "3.1 B job stopped" } else { "3.1 2 count 0" });
        reading.stop_all(&allocs);
        // Count 0 is complete.
        let is_done = !job.stopped && reading.current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Running);
        if reading.hits.met_if(is_done, "3.12 count 0 is complete") {
            reading.out.deployments_ended.push("successful Successful".to_owned());
        }
    } else {
        reading.group(&allocs);
    }
    reading.mark_stuck(&allocs);
    reading.out.sorted()
}

impl Reading<'_> {
    fn is_paused(&self) -> bool {
        self.current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Paused)
    }

    fn is_failed(&self) -> bool {
        self.current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Failed)
    }

    fn is_canarying(&self) -> bool {
        self.desired_canaries > 0 && !self.promoted
    }

    fn end(&mut self, alloc: &Alloc, why: &str, is_lost: bool) {
        self.out.ended.push((name(alloc), why.to_owned(), is_lost));
    }

    /// 3.2, last paragraph.
    fn stop_all(&mut self, allocs: &[Alloc]) {
        for alloc in allocs.iter().filter(|alloc| !terminal(alloc)) {
            let gone = matches!(on(self.world, alloc).0, On::Gone | On::Down);
            let is_lost = gone || self.class(alloc) == Class::Lost;
            self.end(alloc, if is_lost { "Lost" } else { "NotNeeded" }, is_lost);
            self.out.desired.stop += 1;
        }
    }

    /// "Any server-terminal alloc still pending/running on a down or gone node is marked lost."
    fn mark_stuck(&mut self, allocs: &[Alloc]) {
        for alloc in allocs {
            let is_stuck = server_terminal(alloc)
                && !client_terminal(alloc)
                && matches!(on(self.world, alloc).0, On::Gone | On::Down)
                && !self.out.ended.iter().any(|(ended, ..)| *ended == name(alloc));
            if self.hits.met_if(is_stuck, "3.2 stuck on a lost node") {
                self.end(alloc, "Lost", true);
            }
        }
    }

    fn expires(&self, alloc: &Alloc) -> Option<Timestamp> {
        let since = alloc.states.iter().rev().take_while(|(status, _)| *status == ClientStatus::Unknown).last()?.1;
        Some(since + SignedDuration::from_secs(window(self.world).0))
    }

    /// 3.2.
    fn class(&mut self, alloc: &Alloc) -> Class {
        let (phase, draining) = on(self.world, alloc);
        let (lost_after, replace) = window(self.world);
        let rec = reconnecting(alloc);
        let (stopping, is_over) = (server_terminal(alloc), terminal(alloc));
        let untainted = matches!(phase, On::Ready | On::Initializing) && !draining;
        let unknown = alloc.client == ClientStatus::Unknown;
        let rows: [(&'static str, bool, Class); 19] = [
            ("3.2 row 1", rec && !stopping && alloc.client == ClientStatus::Failed, Class::Reconnecting),
            (
                "3.2 row 2",
                stopping && is_over && !rec && (alloc.transition.migrate_disable_placement || self.awaits(alloc)),
                Class::Untainted,
            ),
            ("3.2 row 3", is_over && !rec && stopping, Class::Ignored),
            ("3.2 row 4", is_over && !rec && alloc.canary && alloc.transition.migrate, Class::Migrating),
            ("3.2 row 5", is_over && !rec, Class::Untainted),
            ("3.2 row 6", unknown && self.expires(alloc).is_some_and(|at| at <= self.eval.now), Class::Expiring),
            ("3.2 row 7", rec && alloc.client == ClientStatus::Failed && stopping, Class::Ignored),
            ("3.2 row 8", phase == On::Disconnected && unknown, Class::Untainted),
            ("3.2 row 9", phase == On::Disconnected && alloc.client == ClientStatus::Pending, Class::Lost),
            ("3.2 row 10", phase == On::Disconnected && lost_after == 0, Class::Lost),
            ("3.2 row 11", phase == On::Disconnected, Class::Disconnecting),
            ("3.2 row 12", alloc.transition.migrate, Class::Migrating),
            // One whose agent has not reported yet is decided on what it will say.
            ("3.2 row 13", (untainted || phase == On::Ready) && rec && !unknown, Class::Reconnecting),
            ("3.2 row 14", untainted || phase == On::Ready, Class::Untainted),
            ("3.2 row 15", phase == On::Gone, Class::Lost),
            ("3.2 row 16", phase == On::Down && !replace && unknown, Class::Untainted),
            (
                "3.2 row 17",
                phase == On::Down && !replace && alloc.client == ClientStatus::Running,
                Class::Disconnecting,
            ),
            ("3.2 row 18", phase == On::Down, Class::Lost),
            ("3.2 row 19", true, Class::Untainted),
        ];
        let (rule, _, class) = rows.into_iter().find(|(_, holds, _)| *holds).unwrap();
        self.hits.met(rule);
        class
    }

    fn next(&self, alloc: &Alloc) -> Option<Alloc> {
        self.world
            .view
            .allocs_of_job(&key())
            .find(|one| one.previous.as_deref() == Some(&*alloc.key.name))
            .map(|one| (**one).clone())
    }

    /// S-216: stopped to be replaced later.
    fn awaits(&self, alloc: &Alloc) -> bool {
        self.is_batch && alloc.transition.reschedule && alloc.follow_up.is_some() && self.next(alloc).is_none()
    }

    fn no_placement(alloc: &Alloc) -> bool {
        alloc.tracker.as_ref().is_some_and(|tracker| tracker.last_reschedule == Some(LastReschedule::NoPlacement))
    }

    /// 3.3: `gone`, `stays`, `now` or `later` with its time.
    #[expect(clippy::too_many_lines, reason = "the rows in the order of the specification")]
    fn due(&mut self, alloc: &Alloc, is_disconnecting: bool) -> (&'static str, Option<Timestamp>) {
        let unknown = alloc.client == ClientStatus::Unknown;
        let replaced = self.next(alloc).is_some();
        if is_disconnecting && unknown {
            return ("gone", None);
        }
        if self.hits.met_if(terminal(alloc) && replaced, "3.3 replaced already") {
            return ("gone", None);
        }
        if unknown && replaced {
            return ("stays", None);
        }
        let (_, replace) = window(self.world);
        let left_alone = unknown
            && !server_terminal(alloc)
            && !replaced
            && replace
            && on(self.world, alloc).0 == On::Disconnected
            && !alloc
                .follow_up
                .as_ref()
                .is_some_and(|later| later.trigger != EvalTrigger::MaxDisconnectTimeout && later.at > self.eval.now);
        let stays = if is_disconnecting { "candidate" } else { "stays" };
        let stopping = server_terminal(alloc);
        let (rule, first) = if left_alone {
            ("3.3 disconnected without a replacement", "candidate")
        } else if self.is_batch {
            if alloc.transition.migrate_disable_placement {
                ("3.3 batch drained", stays)
            } else if alloc.transition.reschedule {
                ("3.3 batch reschedule", "candidate")
            } else if alloc.desired == DesiredStatus::Evict {
                ("3.3 batch evicted", "gone")
            } else if stopping && alloc.ran_successfully {
                ("3.3 batch stopped, ran well", stays)
            } else if stopping && Self::no_placement(alloc) {
                ("3.3 batch stopped, not placed", "candidate")
            } else if stopping {
                ("3.3 batch stopped", "gone")
            } else if alloc.client == ClientStatus::Failed {
                ("3.3 batch failed", "candidate")
            } else {
                ("3.3 batch other", stays)
            }
        } else if stopping {
            if Self::no_placement(alloc) {
                ("3.3 service stopped, not placed", "candidate")
            } else {
                ("3.3 service stopped", "gone")
            }
        } else if matches!(alloc.client, ClientStatus::Complete | ClientStatus::Lost) {
            ("3.3 service complete or lost", "gone")
        } else {
            ("3.3 service other", "candidate")
        };
        self.hits.met(rule);
        if first != "candidate" {
            return (first, None);
        }
        // The second table.
        let is_of_active = self.current.as_ref().is_some_and(|current| {
            matches!(current.phase, DeploymentPhase::Running | DeploymentPhase::Paused)
                && alloc.deployment.as_deref() == Some(&*current.key.name)
        });
        if self.hits.met_if(
            is_of_active && !alloc.transition.reschedule && !alloc.transition.force_reschedule,
            "3.3 waits for its deployment",
        ) {
            return ("stays", None);
        }
        if self.hits.met_if(alloc.transition.force_reschedule, "3.3 forced") {
            return ("now", None);
        }
        if self.hits.met_if(is_disconnecting && !replace, "3.3 not replaced while away") {
            return ("stays", None);
        }
        let is_awaited = alloc
            .follow_up
            .as_ref()
            .is_some_and(|later| self.eval.trigger == later.trigger && self.eval.wait_until == Some(later.at));
        let base = if is_disconnecting {
            self.eval.now
        } else if unknown {
            let since = alloc.states.iter().rev().take_while(|(status, _)| *status == ClientStatus::Unknown).last();
            match since.filter(|_| is_awaited || left_alone) {
                Some((_, since)) => *since,
                None => return ("stays", None),
            }
        } else {
            let is_requested = self.is_batch && alloc.transition.reschedule;
            let has_failed = matches!(alloc.client, ClientStatus::Failed | ClientStatus::Lost);
            let may = (has_failed || is_requested) && (!stopping || Self::no_placement(alloc) || is_requested);
            if !may {
                return ("stays", None);
            }
            alloc.last_event_at
        };
        let policy = self.world.job.definition.spec.groups[0].reschedule.clone().unwrap();
        let events = alloc.tracker.as_ref().map_or(0, |tracker| tracker.events.len());
        let attempts = policy.attempts.unwrap_or(0);
        // A delay of 30 s, always; the one event is within any interval.
        let eligible = policy.unlimited == Some(true) || (attempts > 0 && (events == 0 || 1 < attempts));
        if !self.hits.met_if(eligible, "3.3 eligible") {
            return ("stays", None);
        }
        let at = base + SignedDuration::from_secs(30);
        if is_awaited || at <= self.eval.now + SignedDuration::from_secs(1) {
            self.hits.met("3.3 now");
            return ("now", None);
        }
        let may_wait =
            if unknown { self.expires(alloc).is_none_or(|expiry| at < expiry) } else { alloc.follow_up.is_none() };
        if self.hits.met_if(may_wait, "3.3 later") { ("later", Some(at)) } else { ("stays", None) }
    }

    fn group(&mut self, allocs: &[Alloc]) {
        let is_new_state = self.current.is_none();
        // 1 and 4: what no longer counts.
        let mut live: Vec<Alloc> = Vec::new();
        for alloc in allocs {
            let is_of_this_job = alloc.job_uid == self.world.job.uid && kind(alloc) == Kind::Same;
            if self.hits.met_if(self.is_batch && terminal(alloc) && !is_of_this_job, "3.1 4 batch of an older job") {
                self.out.desired.ignore += 1;
                continue;
            }
            let is_given_up = alloc.transition.reschedule && !self.awaits(alloc);
            let dropped = server_terminal(alloc) && (!self.is_batch || is_given_up);
            if self.hits.met_if(dropped, "3.1 1 server-terminal") {
                continue;
            }
            live.push(alloc.clone());
        }
        // 5: canaries of what is over end.
        let over: Vec<Deployment> =
            self.old.iter().chain(self.current.iter().filter(|_| self.is_failed())).cloned().collect();
        live.retain(|alloc| {
            let unwanted = over.iter().any(|one| {
                alloc.canary && alloc.deployment.as_deref() == Some(&*one.key.name) && !one.groups["web"].promoted
            }) && !server_terminal(alloc);
            if unwanted {
                self.hits.met("3.9 canary of what is over");
                self.out.ended.push((name(alloc), "NotNeeded".to_owned(), false));
                self.out.desired.stop += 1;
            }
            !unwanted
        });
        let current_name = self.current.as_ref().map(|current| current.key.name.clone());
        let is_canary = |alloc: &Alloc| {
            alloc.canary && current_name.is_some() && alloc.deployment.as_deref() == current_name.as_deref()
        };
        self.canaries = live.iter().filter(|alloc| is_canary(alloc)).map(name).collect();
        // 6: classes.
        let mut by_class: BTreeMap<u8, Vec<Alloc>> = BTreeMap::new();
        for alloc in live {
            let class = self.class(&alloc);
            by_class.entry(class as u8).or_default().push(alloc);
        }
        let mut take = |class: Class| by_class.remove(&(class as u8)).unwrap_or_default();
        let (ignored, untainted, mut migrating) =
            (take(Class::Ignored), take(Class::Untainted), take(Class::Migrating));
        let (mut lost, disconnecting) = (take(Class::Lost), take(Class::Disconnecting));
        let (reconnecting, expiring) = (take(Class::Reconnecting), take(Class::Expiring));
        self.out.desired.ignore += i64::try_from(ignored.len()).unwrap();
        for alloc in &ignored {
            self.canaries.remove(&name(alloc));
        }
        // 9: what has expired is lost. 3.9: canaries that move or are lost end, and others are made.
        lost.extend(expiring);
        for (list, is_lost) in [(&mut migrating, false), (&mut lost, true)] {
            list.retain(|alloc| {
                let ends = !self.promoted && self.canaries.remove(&name(alloc));
                if ends {
                    self.hits.met("3.9 canary moves or is lost");
                    let why = if is_lost { "Lost" } else { why_it_moves(self.world, alloc) };
                    self.out.ended.push((name(alloc), why.to_owned(), is_lost));
                }
                !ends
            });
        }
        // 7: who is replaced.
        let mut slots = Slots { migrating, lost, is_new_state, ..Slots::default() };
        for alloc in untainted {
            self.sort_due(alloc, &mut slots, false);
        }
        for alloc in slots.migrating.clone() {
            match self.due(&alloc, false) {
                ("now", _) => slots.now_due.push(alloc),
                ("later", Some(at)) => slots.later.push((at, alloc)),
                _ => {}
            }
        }
        // 8 and 3.5.
        for alloc in reconnecting {
            self.reconnect(&alloc, &mut slots);
        }
        // 10 and 3.4.
        let mut cut = Vec::new();
        // One that has just been ended for the one that is back does not disconnect any more.
        let ended: BTreeSet<String> = self.out.ended.iter().map(|(ended, ..)| ended.clone()).collect();
        let disconnecting: Vec<Alloc> =
            disconnecting.into_iter().filter(|alloc| !ended.contains(&name(alloc))).collect();
        let is_cutting = !disconnecting.is_empty();
        for alloc in disconnecting {
            slots.away.insert(name(&alloc));
            if self.sort_due(alloc.clone(), &mut slots, true) {
                cut.push(alloc);
            }
        }
        if is_cutting {
            self.out.desired.reschedule_now = i64::try_from(slots.now_due.len()).unwrap();
        }
        self.follow_ups(&cut, &slots);
        self.slots(slots, allocs);
    }

    /// Puts an allocation where 3.3 says. Whether it still counts.
    fn sort_due(&mut self, alloc: Alloc, slots: &mut Slots, is_disconnecting: bool) -> bool {
        match self.due(&alloc, is_disconnecting) {
            ("gone", _) => return false,
            ("now", _) => slots.now_due.push(alloc),
            ("later", Some(at)) => {
                slots.later.push((at, alloc.clone()));
                slots.stays.push(alloc);
            }
            _ => slots.stays.push(alloc),
        }
        true
    }

    fn reconnect(&mut self, alloc: &Alloc, slots: &mut Slots) {
        if alloc.client == ClientStatus::Failed {
            self.hits.met("3.5 failed while away");
            self.end(alloc, "Rescheduled", false);
            self.out.desired.stop += 1;
            return;
        }
        let transition = alloc.transition;
        let is_older = alloc.job_uid != self.world.job.uid || alloc.job_version < CURRENT;
        let outdated = is_older && kind(alloc) != Kind::Same;
        let is_marked = transition.migrate || transition.reschedule || transition.force_reschedule;
        if server_terminal(alloc) || is_marked || outdated {
            self.hits.met("3.5 not wanted any more");
            self.end(alloc, "NotNeeded", false);
            self.out.desired.stop += 1;
            return;
        }
        let mut replacements = Vec::new();
        let mut at = self.next(alloc);
        while let Some(next) = at {
            at = self.next(&next);
            if !server_terminal(&next) {
                replacements.push(next);
            }
        }
        let wins = |replacement: &Alloc| {
            if replacement.job_version > alloc.job_version || replacement.job_uid != alloc.job_uid {
                return replacement.job_uid == self.world.job.uid;
            }
            // Best score, and none has one: the original stays.
            false
        };
        if replacements.iter().any(wins) {
            self.hits.met("3.5 replacement is newer");
            self.end(alloc, "NotNeeded", false);
            self.out.desired.stop += 1;
            return;
        }
        for replacement in &replacements {
            self.hits.met("3.5 replacement ends");
            if !self.out.ended.iter().any(|(ended, ..)| *ended == name(replacement)) {
                self.end(replacement, "Reconnected", false);
                self.out.desired.stop += 1;
            }
            for list in [&mut slots.stays, &mut slots.now_due, &mut slots.migrating, &mut slots.lost] {
                list.retain(|one| one.key != replacement.key);
            }
            slots.later.retain(|(_, one)| one.key != replacement.key);
        }
        self.hits.met("3.5 goes on");
        self.out.desired.reconnect += 1;
        self.out.reconnected.push(name(alloc));
        slots.stays.push(alloc.clone());
    }

    /// 3.3 and 3.4: who waits for which evaluation.
    fn follow_ups(&mut self, cut: &[Alloc], slots: &Slots) {
        let Slots { stays, now_due, later, migrating, .. } = slots;
        let from_now = |at: Timestamp| at.duration_since(self.eval.now).as_secs();
        let mut waits: BTreeSet<i64> = BTreeSet::new();
        let later_of = |alloc: &Alloc| later.iter().find(|(_, one)| one.key == alloc.key).map(|(at, _)| *at);
        // Windows are all the same, so that those that begin now end together.
        let (lost_after, _) = window(self.world);
        let mut out = std::mem::take(&mut self.out);
        for alloc in cut {
            let expiry = (lost_after > 0).then_some(lost_after);
            waits.extend(expiry);
            let wait = match (later_of(alloc).map(from_now), expiry) {
                (Some(at), Some(expiry)) if at < expiry => Some(at),
                (_, expiry) => expiry,
            };
            out.disconnected.push((name(alloc), wait));
        }
        out.desired.disconnect = i64::try_from(cut.len()).unwrap();
        // Batches of less than five seconds.
        let mut sorted: Vec<(i64, &Alloc)> = later.iter().map(|(at, alloc)| (from_now(*at), alloc)).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
        out.desired.reschedule_later = i64::try_from(sorted.len()).unwrap();
        let mut batch = None;
        for (at, alloc) in sorted {
            let first = match batch {
                Some(first) if at - first < 5 => first,
                _ => at,
            };
            batch = Some(first);
            waits.insert(first);
            // What moves carries it in its stop.
            let is_moving = migrating.iter().any(|one| one.key == alloc.key);
            if !is_moving && !cut.iter().any(|one| one.key == alloc.key) {
                out.noted.push((name(alloc), Some(first)));
            }
        }
        // An unknown one whose evaluation has passed waits for its expiry next.
        let mut expiries: Vec<(i64, &Alloc)> = Vec::new();
        for alloc in stays.iter().filter(|alloc| later_of(alloc).is_none()).chain(now_due) {
            let is_waiting = alloc.follow_up.as_ref().is_some_and(|awaited| awaited.at > self.eval.now);
            let Some(expiry) = self.expires(alloc) else { continue };
            if alloc.client != ClientStatus::Unknown || is_waiting || expiry <= self.eval.now || lost_after == 0 {
                continue;
            }
            expiries.push((from_now(expiry), alloc));
        }
        for (at, alloc) in expiries {
            waits.insert(at);
            out.noted.push((name(alloc), Some(at)));
        }
        out.follow_ups = waits.into_iter().collect();
        self.out = out;
    }
}

/// Allocations that fill slots.
#[derive(Default)]
struct Slots {
    stays: Vec<Alloc>,
    migrating: Vec<Alloc>,
    lost: Vec<Alloc>,
    now_due: Vec<Alloc>,
    later: Vec<(Timestamp, Alloc)>,
    away: BTreeSet<String>,

    is_new_state: bool,
}

impl Reading<'_> {
    /// One that is disconnected and was replaced meanwhile.
    fn doubled(&self, alloc: &Alloc) -> bool {
        alloc.client == ClientStatus::Unknown && self.next(alloc).is_some()
    }

    /// 13 to 23.
    #[expect(clippy::too_many_lines, reason = "the rows in the order of the specification")]
    fn slots(&mut self, mut slots: Slots, all: &[Alloc]) {
        let is_moving = |slots: &Slots, alloc: &Alloc| slots.migrating.iter().any(|moving| moving.key == alloc.key);
        // 13: slots that are taken, each as often as it is held.
        let mut taken: Vec<i64> = Vec::new();
        taken.extend(slots.stays.iter().filter(|alloc| !self.doubled(alloc)).map(|alloc| alloc.index));
        taken.extend(slots.migrating.iter().map(|alloc| alloc.index));
        taken.extend(slots.now_due.iter().filter(|alloc| !is_moving(&slots, alloc)).map(|alloc| alloc.index));
        taken.extend(slots.lost.iter().map(|alloc| alloc.index));
        // 14 and 3.7.
        for alloc in slots.lost.clone() {
            self.hits.met("3.7 lost ends");
            self.end(&alloc, "Lost", true);
            self.out.desired.stop += 1;
        }
        self.stop_surplus(&mut slots, &mut taken);
        // 15 and 3.8.
        let (mut kept, mut destructive) = (Vec::new(), Vec::new());
        for alloc in std::mem::take(&mut slots.stays) {
            match kind(&alloc) {
                Kind::Same => {
                    self.out.desired.ignore += 1;
                    kept.push(alloc);
                }
                _ if self.doubled(&alloc) => {
                    self.out.desired.ignore += 1;
                    kept.push(alloc);
                }
                Kind::Destructive => destructive.push(alloc),
                Kind::InPlace if terminal(&alloc) => {
                    self.out.desired.ignore += 1;
                    kept.push(alloc);
                }
                Kind::InPlace if self.hits.met_if(on(self.world, &alloc).0 == On::Gone, "3.8 node missing") => {
                    destructive.push(alloc);
                }
                Kind::InPlace => {
                    self.hits.met("3.8 in place");
                    self.out.desired.in_place_update += 1;
                    self.out.in_place.push(name(&alloc));
                    kept.push(alloc);
                }
            }
        }
        // A canary that is tried is no part of the group's ordinary ones.
        let canaries = self.canaries.clone();
        let is_canary = |alloc: &Alloc| canaries.contains(&name(alloc));
        let mut total = i64::try_from(destructive.len() + self.out.in_place.len()).unwrap();
        let ordinary: Vec<Alloc> =
            kept.iter().filter(|alloc| !(self.is_canarying() && is_canary(alloc))).cloned().collect();
        let canary_slots = self.canaries(&destructive, &taken, &kept);
        let needs_canaries = canary_slots.is_some();
        // 17 and 3.10. Canaries may have been asked for just now.
        let limit = self.limit(&destructive, &slots.migrating, &ordinary);
        // 18 and 3.11.
        let missing = self.missing(&slots, &ordinary, &destructive, &mut taken);
        let moved = slots.migrating.iter().filter(|alloc| kind(alloc) != Kind::Same).count();
        total += i64::try_from(missing.len() + moved).unwrap();
        let mut made: Vec<Made> = Vec::new();
        made.extend(canary_slots.unwrap_or_default().into_iter().map(|index| Made {
            index,
            canary: true,
            version: CURRENT,
            replaces: None,
            node: None,
        }));
        let is_ready = !self.is_paused() && !self.is_failed() && !self.is_canarying();
        let mut limit = if is_ready { limit } else { 0 };
        let mut brought: Vec<Alloc> = Vec::new();
        for slot in missing {
            let of_failed = |alloc: &Alloc| {
                self.is_failed() && alloc.deployment.as_deref() == self.current.as_ref().map(|one| &*one.key.name)
            };
            let may = is_ready
                || match (&slot.lost, &slot.due) {
                    (Some(_), _) => true,
                    (None, Some(due)) => !of_failed(due),
                    (None, None) => false,
                };
            if !self.hits.met_if(may, "3.11 placed") {
                continue;
            }
            let previous = slot.lost.as_ref().or(slot.due.as_ref());
            let version = if slot.canary { CURRENT } else { self.version_for(previous) };
            if version == CURRENT && !slot.canary {
                brought.extend(previous.cloned());
            }
            self.out.desired.place += 1;
            limit = (limit - 1).max(0);
            let replaces = slot.due.as_ref().filter(|alloc| {
                let is_away = slots.away.contains(&name(alloc)) || alloc.client == ClientStatus::Unknown;
                !is_moving(&slots, alloc) && !is_away && !server_terminal(alloc)
            });
            if let Some(alloc) = replaces {
                self.out.desired.stop += 1;
                self.end(alloc, "Rescheduled", false);
            }
            made.push(Made {
                index: slot.index,
                canary: slot.canary,
                version,
                replaces: replaces.map(name),
                node: None,
            });
        }
        // 19: those without health first, then the lowest index.
        let mut outdated: Vec<&Alloc> = destructive.iter().collect();
        let serves = |alloc: &Alloc| {
            alloc.deployment.is_none()
                || alloc
                    .health
                    .as_ref()
                    .is_some_and(|health| health.is_healthy && health.deployment == alloc.deployment)
        };
        outdated.sort_by_key(|alloc| (serves(alloc), alloc.index));
        for (n, alloc) in outdated.into_iter().enumerate() {
            if i64::try_from(n).unwrap() >= limit {
                self.hits.met("3.10 held back");
                self.out.desired.ignore += 1;
                continue;
            }
            self.hits.met("3.11 destructive");
            self.out.desired.destructive_update += 1;
            let index = inherit(&mut taken, alloc.index, self.count);
            self.end(alloc, "Updating", false);
            made.push(Made { index, canary: false, version: CURRENT, replaces: Some(name(alloc)), node: None });
        }
        // 20: migrations.
        for alloc in slots.migrating.clone() {
            self.out.desired.migrate += 1;
            self.end(&alloc, why_it_moves(self.world, &alloc), false);
            let only_ends =
                self.is_batch && (alloc.transition.reschedule || alloc.transition.migrate_disable_placement);
            if self.hits.met_if(only_ends, "3.11 migration only ends") {
                continue;
            }
            self.hits.met("3.11 migration");
            let version = self.version_for(Some(&alloc));
            if version == CURRENT {
                brought.push(alloc.clone());
            }
            let index = inherit(&mut taken, alloc.index, self.count);
            made.push(Made { index, canary: false, version, replaces: None, node: None });
        }
        // 22: never more than the count. Canaries and destructive updates do not count.
        let is_update =
            |made: &Made| made.replaces.as_ref().is_some_and(|old| destructive.iter().any(|alloc| name(alloc) == *old));
        let n_ordinary = made.iter().filter(|one| !one.canary && !is_update(one)).count();
        if self.hits.met_if(n_ordinary > usize::try_from(self.count).unwrap(), "3.11 truncated") {
            self.out.desired.place = self.count;
            let mut left = self.count;
            made.retain(|one| {
                if one.canary || is_update(one) {
                    return true;
                }
                left -= 1;
                left >= 0
            });
            // What would have been replaced stays.
            let replaced: Vec<String> = made.iter().filter_map(|one| one.replaces.clone()).collect();
            self.out.ended.retain(|(ended, why, _)| {
                why != "Rescheduled" || replaced.contains(ended) || !slots.now_due.iter().any(|due| name(due) == *ended)
            });
        }
        // 21 and 3.12.
        let is_of_this = |alloc: &Alloc| alloc.job_uid == self.world.job.uid && kind(alloc) == Kind::Same;
        let changes = !destructive.is_empty()
            || !self.out.in_place.is_empty()
            || brought.iter().any(|alloc| kind(alloc) != Kind::Same);
        let begun = all.iter().any(|alloc| !server_terminal(alloc) && is_of_this(alloc)) || self.waits_for_place(all);
        if slots.is_new_state
            && !self.is_batch
            && self.update.is_some()
            && total > 0
            && self.hits.met_if(changes || !begun, "3.12 deployment begins")
        {
            self.out.begun = Some((total, self.desired_canaries));
        }
        // 23.
        let is_idle = made.is_empty()
            && self.out.in_place.is_empty()
            && destructive.is_empty()
            && slots.migrating.is_empty()
            && slots.now_due.is_empty()
            && self.out.desired.reschedule_later == 0
            && !needs_canaries;
        let is_running = self.current.as_ref().is_some_and(|one| one.phase == DeploymentPhase::Running);
        if is_idle && is_running && self.out.begun.is_none() && self.is_healthy(all) {
            self.hits.met("3.12 successful");
            self.out.deployments_ended.push("successful Successful".to_owned());
        }
        self.out.made = made;
    }

    /// Whether the newest of a slot was lost, or stopped for another one, and nothing took its place yet.
    fn waits_for_place(&self, all: &[Alloc]) -> bool {
        let is_past = |alloc: &&Alloc| terminal(alloc) && !alloc.canary && alloc.job_uid == self.world.job.uid;
        (0..10).any(|slot| {
            let held: Vec<&Alloc> = all.iter().filter(is_past).filter(|alloc| alloc.index == slot).collect();
            let is_replaced =
                |alloc: &&&Alloc| held.iter().any(|other| other.previous.as_deref() == Some(&*alloc.key.name));
            let newest =
                held.iter().filter(|alloc| !is_replaced(alloc)).max_by_key(|alloc| (alloc.created_at, &alloc.key));
            newest.is_some_and(|alloc| {
                (alloc.is_superseded || alloc.client == ClientStatus::Lost) && kind(alloc) == Kind::Same
            })
        })
    }

    fn is_healthy(&self, all: &[Alloc]) -> bool {
        let Some(current) = &self.current else { return true };
        let healthy = all.iter().filter(|alloc| {
            !terminal(alloc)
                && alloc.deployment.as_deref() == Some(&*current.key.name)
                && alloc
                    .health
                    .as_ref()
                    .is_some_and(|health| health.is_healthy && health.deployment == alloc.deployment)
        });
        let wanted = current.groups["web"].desired_total.min(self.count).max(self.desired_canaries);
        i64::try_from(healthy.count()).unwrap() >= wanted && (self.desired_canaries == 0 || self.promoted)
    }

    /// 3.7.
    fn stop_surplus(&mut self, slots: &mut Slots, taken: &mut Vec<i64>) {
        let canarying = self.is_canarying();
        let canaries = self.canaries.clone();
        let is_canary = |alloc: &Alloc| canaries.contains(&name(alloc));
        let hidden = |alloc: &Alloc| canarying && is_canary(alloc);
        let moving: BTreeSet<String> = slots.migrating.iter().map(name).collect();
        let known = slots.stays.iter().filter(|alloc| alloc.client != ClientStatus::Unknown && !hidden(alloc)).count();
        let due = slots.now_due.iter().filter(|alloc| !moving.contains(&name(alloc)) && !hidden(alloc)).count();
        let mut remove = i64::try_from(known + slots.migrating.len() + due).unwrap() - self.count;
        let mut surplus: Vec<Alloc> = Vec::new();
        let mut promoted: BTreeSet<i64> = BTreeSet::new();
        if !canarying {
            promoted = slots.stays.iter().filter(|alloc| is_canary(alloc)).map(|alloc| alloc.index).collect();
            let shares =
                |alloc: &Alloc| !is_canary(alloc) && promoted.contains(&alloc.index) && !server_terminal(alloc);
            // An earlier version goes whatever the count is.
            let older: Vec<Alloc> =
                slots.stays.iter().filter(|alloc| shares(alloc) && kind(alloc) != Kind::Same).cloned().collect();
            remove -= i64::try_from(older.len()).unwrap();
            slots.stays.retain(|alloc| !older.contains(alloc));
            for _ in &older {
                self.hits.met("3.7 shares a promoted canary's slot");
            }
            surplus.extend(older);
            while remove > 0 {
                let Some(at) = slots.stays.iter().position(&shares) else { break };
                surplus.push(slots.stays.remove(at));
                remove -= 1;
            }
        }
        // What has failed goes before what runs, then what moves, then the highest slots.
        let highest = |list: &[Alloc], may: &dyn Fn(&Alloc) -> bool| {
            let rank = |alloc: &Alloc| (alloc.index, terminal(alloc), alloc.created_at, alloc.key.clone());
            list.iter().filter(|alloc| may(alloc)).max_by_key(|alloc| rank(alloc)).cloned()
        };
        while remove > 0 {
            let failed = |alloc: &Alloc| {
                client_terminal(alloc) && !server_terminal(alloc) && !moving.contains(&name(alloc)) && !hidden(alloc)
            };
            let Some(one) = highest(&slots.now_due, &failed) else { break };
            self.hits.met("3.7 failed goes first");
            slots.now_due.retain(|alloc| alloc.key != one.key);
            surplus.push(one);
            remove -= 1;
        }
        while remove > 0 {
            let Some(one) = highest(&slots.migrating, &|_| true) else { break };
            self.hits.met("3.7 moving one ends");
            slots.migrating.retain(|alloc| alloc.key != one.key);
            slots.now_due.retain(|alloc| alloc.key != one.key);
            surplus.push(one);
            remove -= 1;
        }
        while remove > 0 {
            let rest: Vec<Alloc> = slots.stays.iter().chain(&slots.now_due).cloned().collect();
            let Some(one) = highest(&rest, &|alloc| !server_terminal(alloc) && !hidden(alloc)) else { break };
            self.hits.met("3.7 highest goes");
            slots.stays.retain(|alloc| alloc.key != one.key);
            slots.now_due.retain(|alloc| alloc.key != one.key);
            surplus.push(one);
            remove -= 1;
        }
        self.out.noted.retain(|(noted, _)| !surplus.iter().any(|alloc| name(alloc) == *noted));
        // Of two that share a slot the older one keeps it.
        let order =
            |alloc: &Alloc| (alloc.index, !terminal(alloc), Reverse(alloc.created_at), Reverse(alloc.key.clone()));
        slots.stays.sort_by_key(|alloc| alloc.index);
        slots.migrating.sort_by_key(order);
        slots.now_due.sort_by_key(order);
        for alloc in surplus {
            self.out.desired.stop += 1;
            if !promoted.contains(&alloc.index) {
                release(taken, alloc.index);
            }
            self.end(&alloc, "NotNeeded", false);
        }
    }

    /// 3.9: slots of canaries to make; none where no canary is needed.
    fn canaries(&mut self, destructive: &[Alloc], taken: &[i64], kept: &[Alloc]) -> Option<Vec<i64>> {
        let wanted = self.update.as_ref().and_then(|update| update.canary).unwrap_or(0).min(self.count);
        let live = i64::try_from(self.canaries.len()).unwrap();
        if destructive.is_empty() || wanted <= live || self.promoted {
            return None;
        }
        self.desired_canaries = wanted;
        if self.is_paused() || self.is_failed() {
            self.hits.met("3.9 canaries wait");
            return Some(Vec::new());
        }
        self.hits.met("3.9 canaries");
        let held: BTreeSet<i64> = kept
            .iter()
            .filter(|alloc| self.canaries.contains(&name(alloc)))
            .map(|alloc| alloc.index)
            .chain(
                self.canaries
                    .iter()
                    .filter_map(|canary| self.world.view.alloc(&JobKey::new("shop", canary.as_str())))
                    .map(|alloc| alloc.index),
            )
            .collect();
        let mut slots: Vec<i64> = Vec::new();
        let updated: BTreeSet<i64> = destructive.iter().map(|alloc| alloc.index).collect();
        slots.extend(updated.iter().filter(|slot| !held.contains(slot)));
        slots.extend(
            (0..self.count).filter(|slot| !held.contains(slot) && !updated.contains(slot) && !taken.contains(slot)),
        );
        slots.extend((self.count..self.count + 20).filter(|slot| !held.contains(slot)));
        slots.truncate(usize::try_from(wanted - live).unwrap());
        self.out.desired.canary += i64::try_from(slots.len()).unwrap();
        Some(slots)
    }

    /// 3.10.
    fn limit(&mut self, destructive: &[Alloc], migrating: &[Alloc], stays: &[Alloc]) -> i64 {
        let Some(update) = &self.update else { return self.count };
        let most = update.max_parallel.unwrap_or(0);
        if destructive.is_empty() && migrating.is_empty() {
            return self.count;
        }
        if self.is_canarying() || self.is_paused() || self.is_failed() {
            return 0;
        }
        let Some(current) = &self.current else { return most };
        let verdicts: Vec<Option<bool>> = stays
            .iter()
            .filter(|alloc| alloc.deployment.as_deref() == Some(&*current.key.name))
            .map(|alloc| {
                alloc.health.as_ref().filter(|health| health.deployment == alloc.deployment).map(|one| one.is_healthy)
            })
            .collect();
        if self.hits.met_if(verdicts.contains(&Some(false)), "3.10 an unhealthy one") {
            return 0;
        }
        self.hits.met("3.10 limit of a deployment");
        (most - i64::try_from(verdicts.iter().filter(|verdict| verdict.is_none()).count()).unwrap()).max(0)
    }

    /// 3.11: what is missing up to the count.
    fn missing(
        &mut self,
        slots: &Slots,
        ordinary: &[Alloc],
        destructive: &[Alloc],
        taken: &mut Vec<i64>,
    ) -> Vec<Missing> {
        let mut missing = Vec::new();
        let is_trial = |alloc: &Alloc| self.is_canarying() && self.canaries.contains(&name(alloc));
        for alloc in &slots.now_due {
            let canary = is_trial(alloc);
            let index = if canary { alloc.index } else { inherit(taken, alloc.index, self.count) };
            missing.push(Missing { index, canary, lost: None, due: Some(alloc.clone()) });
        }
        let is_counted_twice = |alloc: &&Alloc| slots.now_due.iter().any(|due| due.key == alloc.key);
        let mut existing = ordinary.iter().filter(|alloc| !self.doubled(alloc)).count()
            + destructive.len()
            + slots.migrating.iter().filter(|alloc| !is_counted_twice(alloc)).count()
            + slots.now_due.iter().filter(|alloc| !is_trial(alloc)).count();
        let count = usize::try_from(self.count).unwrap();
        for alloc in &slots.lost {
            if existing >= count {
                break;
            }
            existing += 1;
            let index = inherit(taken, alloc.index, self.count);
            missing.push(Missing { index, canary: false, lost: Some(alloc.clone()), due: None });
        }
        while existing < count {
            existing += 1;
            let index = next_free(taken, self.count);
            missing.push(Missing { index, canary: false, lost: None, due: None });
        }
        missing
    }

    /// 3.9: the version of what replaces a non-canary.
    fn version_for(&self, previous: Option<&Alloc>) -> i64 {
        if !self.is_canarying() {
            return CURRENT;
        }
        let floor = previous.map_or(0, |alloc| alloc.job_version);
        let proven = self
            .world
            .view
            .deployments_of_job(&key())
            .filter(|one| one.job_version >= floor)
            .filter(|one| one.groups["web"].promoted || one.groups["web"].desired_canaries == 0)
            .map(|one| one.job_version)
            .max();
        proven.or_else(|| previous.filter(|_| self.update.is_none()).map(|alloc| alloc.job_version)).unwrap_or(CURRENT)
    }
}

struct Missing {
    index: i64,
    canary: bool,
    lost: Option<Alloc>,
    due: Option<Alloc>,
}

/// 3.6: slots as a plain list.
fn release(taken: &mut Vec<i64>, index: i64) {
    if let Some(at) = taken.iter().position(|slot| *slot == index) {
        taken.remove(at);
    }
}

/// The lowest free slot below the count; with none free the least used ones from 0 on.
fn next_free(taken: &mut Vec<i64>, count: i64) -> i64 {
    let free = (0..count).find(|slot| !taken.contains(slot)).unwrap_or(0);
    taken.push(free);
    free
}

/// The slot of a successor: the same, unless another holds it too and one is free.
fn inherit(taken: &mut Vec<i64>, index: i64, count: i64) -> i64 {
    let is_shared = taken.iter().filter(|slot| **slot == index).count() > 1;
    let has_free = (0..count).any(|slot| !taken.contains(&slot));
    if !(is_shared && has_free) {
        return index;
    }
    release(taken, index);
    next_free(taken, count)
}
