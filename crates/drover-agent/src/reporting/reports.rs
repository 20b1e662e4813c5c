//! What runners have to tell, until the API server has taken it: the newest report of each allocation, and whose turn
//! it is.
//!
//! A report is found by its turn, whatever number of allocations there is: a start must not cost more where many tasks
//! run. `sync` sends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::Allocation;
use drover_api::allocation::{ClientStatus, TaskRunState};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::reporting::metrics::NodeMetrics;
use crate::reporting::report::{self, Priority, Report};
use crate::state::AllocRecord;

/// The shortest time between two sends of one allocation.
const SEND_INTERVAL: Duration = Duration::from_millis(200);
/// How long a report without urgency may be gathered.
const GATHER: Duration = Duration::from_secs(1);
/// So much later is the turn of a report that can wait, where many are due.
const LESS_URGENT: Duration = Duration::from_secs(2);

/// What gives way to tasks that are being started, and to reports that cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveWay {
    /// Nothing.
    No,
    /// What can wait leaves a second later.
    Gather,
    /// What can wait does not leave.
    Hold,
}

#[derive(Debug)]
struct Entry {
    /// The object as last seen, by watch or by our own write.
    seen: Arc<Allocation>,
    acknowledged: Option<Report>,
    pending: Option<Report>,
    /// What was told last where that is not what the API server is known to have: on its way, without an answer, or
    /// under the mark of a controller that holds the node for silent. A later life of the agent has to stand by it.
    tried: Option<Report>,
    /// Whether what was tried is on its way to the API server.
    is_sending: bool,
    pending_since: Instant,
    last_send: Option<Instant>,
    /// When a report that was refused may be sent again.
    not_before: Instant,
    /// When what is pending has to leave: many look at it, few change it.
    due: Option<Instant>,
}

impl Entry {
    fn new(seen: Arc<Allocation>, acknowledged: Option<Report>) -> Self {
        Self {
            seen,
            acknowledged,
            pending: None,
            tried: None,
            is_sending: false,
            pending_since: Instant::now(),
            last_send: None,
            not_before: Instant::now(),
            due: None,
        }
    }

    /// What is pending, or what it is compared with, has changed.
    fn reckon(&mut self) {
        let due = self.pending.as_ref().map(|report| match report::priority(report, self.acknowledged.as_ref()) {
            Priority::Urgent => {
                self.last_send.map_or(self.pending_since, |last| self.pending_since.max(last + SEND_INTERVAL))
            }
            Priority::Paced => self.last_send.map_or(self.pending_since, |last| self.pending_since.max(last + GATHER)),
            Priority::Typical | Priority::None => self.pending_since + GATHER,
        });
        self.due = due.map(|due| due.max(self.not_before));
    }

    /// Whether what is pending only says that tasks are on their way, or run.
    fn can_wait(&self) -> bool {
        let judged = self.acknowledged.as_ref().and_then(|report| report.health.as_ref());
        self.pending.as_ref().is_some_and(|report| {
            matches!(report.client_status, ClientStatus::Pending | ClientStatus::Running)
                && report.ended_at.is_none()
                && (report.health.is_none() || report.health.as_ref() == judged)
                && report.services[..] == *self.acknowledged.as_ref().map_or(&[][..], |known| &known.services)
        })
    }

    /// Where it stands among those that may leave. Of one allocation only one report is under way.
    fn place(&self) -> Option<ReportPlace> {
        let due = self.due.filter(|_| !self.is_sending)?;
        Some(if self.can_wait() {
            ReportPlace::Calm { due, gathered: due.max(self.pending_since + GATHER) }
        } else {
            ReportPlace::Urgent(due)
        })
    }
}

/// When a report may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportPlace {
    /// Then.
    Urgent(Instant),
    /// Then, or later, or not at all, as things are.
    Calm {
        due: Instant,
        /// Beside tasks that are being started.
        gathered: Instant,
    },
}

/// The allocations with a report that may leave, by when.
type ByTime = BTreeSet<(Instant, String)>;

/// The reports of all allocations.
#[derive(Debug, Default)]
struct Entries {
    by_uid: BTreeMap<String, Entry>,
    urgent: ByTime,
    calm: ByTime,
    /// The same as `calm`, by when they leave beside tasks that are being started.
    gathered: ByTime,
}

impl Entries {
    /// Changes an entry, and its place with it.
    fn change<T>(&mut self, uid: &str, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.by_uid.get_mut(uid)?;
        let before = entry.place();
        let result = change(entry);
        let after = entry.place();
        if before != after {
            self.unplace(uid, before);
            self.place(uid, after);
        }
        Some(result)
    }

    fn insert(&mut self, uid: &str, entry: Entry) {
        self.remove(uid);
        self.place(uid, entry.place());
        self.by_uid.insert(uid.to_owned(), entry);
    }

    fn remove(&mut self, uid: &str) {
        let entry = self.by_uid.remove(uid);
        self.unplace(uid, entry.and_then(|entry| entry.place()));
    }

    fn place(&mut self, uid: &str, place: Option<ReportPlace>) {
        match place {
            None => {}
            Some(ReportPlace::Urgent(due)) => drop(self.urgent.insert((due, uid.to_owned()))),
            Some(ReportPlace::Calm { due, gathered }) => {
                self.calm.insert((due, uid.to_owned()));
                self.gathered.insert((gathered, uid.to_owned()));
            }
        }
    }

    fn unplace(&mut self, uid: &str, place: Option<ReportPlace>) {
        match place {
            None => {}
            Some(ReportPlace::Urgent(due)) => drop(self.urgent.remove(&(due, uid.to_owned()))),
            Some(ReportPlace::Calm { due, gathered }) => {
                self.calm.remove(&(due, uid.to_owned()));
                self.gathered.remove(&(gathered, uid.to_owned()));
            }
        }
    }

    /// What was to leave later leaves now, but for what was refused and may not yet.
    fn hurry(&mut self, now: Instant) {
        let later = |by_time: &ByTime| -> Vec<String> {
            by_time.range((now, String::new())..).filter(|(due, _)| *due > now).map(|(_, uid)| uid.clone()).collect()
        };
        for uid in [later(&self.urgent), later(&self.calm)].concat() {
            self.change(&uid, |entry| entry.due = entry.due.map(|due| due.min(now.max(entry.not_before))));
        }
    }

    /// The first that can wait and may leave, as things are.
    fn first_calm(&self, give_way: GiveWay) -> Option<&(Instant, String)> {
        match give_way {
            GiveWay::No => self.calm.first(),
            GiveWay::Gather => self.gathered.first(),
            GiveWay::Hold => None,
        }
    }
}

/// A report whose turn has come.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) uid: String,
    pub(super) report: Report,
    pub(super) can_wait: bool,
}

/// Where runners leave their reports; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    entries: Arc<Mutex<Entries>>,
    wake: Arc<Notify>,
    metrics: NodeMetrics,
}

impl Reports {
    /// Reports that are counted.
    pub(crate) fn counting(metrics: NodeMetrics) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Takes in an allocation as the watch or the state file shows it.
    pub(crate) fn observe(&self, uid: &str, seen: Arc<Allocation>) {
        let mut entries = self.lock();
        if !entries.by_uid.contains_key(uid) {
            return entries.insert(uid, Entry::new(seen, None));
        }
        entries.change(uid, |entry| {
            if is_older(&seen, &entry.seen) {
                return;
            }
            // What was accepted before is not what the object says any more. It was told all the same.
            if seen.status.as_ref().is_some_and(|status| status.client_status == ClientStatus::Unknown) {
                let accepted = entry.acknowledged.take();
                entry.tried = entry.tried.take().or(accepted);
                entry.reckon();
            }
            entry.seen = seen;
        });
    }

    /// Takes in what the API server accepted in an earlier life of the agent.
    pub(crate) fn restore(&self, uid: &str, record: &AllocRecord) {
        let mut entry = Entry::new(Arc::new(record.allocation.clone()), record.acknowledged.clone());
        if record.tried.is_some() {
            // Whether it was accepted is not known: it, or what comes after it, is sent in any case.
            (entry.pending, entry.acknowledged) = (record.tried.clone(), None);
            entry.tried.clone_from(&record.tried);
            entry.reckon();
        }
        self.lock().insert(uid, entry);
    }

    /// What the state file keeps of the allocation.
    pub(crate) fn record(&self, uid: &str) -> Option<AllocRecord> {
        let entries = self.lock();
        let entry = entries.by_uid.get(uid)?;
        Some(AllocRecord {
            allocation: (*entry.seen).clone(),
            acknowledged: entry.acknowledged.clone(),
            tried: entry.tried.clone(),
        })
    }

    /// Whether a report says what an agent has to stand by, and its predecessor did not.
    pub(super) fn binds(&self, uid: &str, report: &Report) -> bool {
        self.lock().by_uid.get(uid).is_some_and(|entry| report::binds(report, entry.acknowledged.as_ref()))
    }

    /// Leaves a report; a newer one takes the place of an older one. Never waits.
    pub(crate) fn put(&self, uid: &str, report: Report) {
        let is_sooner = self.lock().change(uid, |entry| {
            // What is under way will most likely be accepted; if not, it is put back.
            let sending = entry.tried.as_ref().filter(|_| entry.is_sending);
            let known = sending.or(entry.acknowledged.as_ref());
            if entry.pending.is_some() {
                self.metrics.report_coalesced();
            }
            if report::priority(&report, known) == Priority::None {
                (entry.pending, entry.due) = (None, None);
                return false;
            }
            if entry.pending.is_none() {
                entry.pending_since = Instant::now();
            }
            let before = entry.due;
            entry.pending = Some(report);
            entry.reckon();
            before.is_none_or(|before| entry.due.is_some_and(|due| due < before))
        });
        if is_sooner == Some(true) {
            self.wake.notify_one();
        }
    }

    /// Waits until a report was left that may leave before the others.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    /// The allocations whose end the API server has accepted, with nothing left to tell.
    pub(crate) fn ended(&self) -> Vec<(jiff::Timestamp, String)> {
        let entries = self.lock();
        let settled = entries.by_uid.iter().filter(|(_, entry)| entry.pending.is_none());
        settled.filter_map(|(uid, entry)| Some((entry.acknowledged.as_ref()?.ended_at?, uid.clone()))).collect()
    }

    /// Forgets an allocation.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether nothing more can come from a task: it is dead, or its allocation unknown.
    pub(crate) fn is_dead(&self, uid: &str, task: &str) -> bool {
        let entries = self.lock();
        let entry = entries.by_uid.get(uid);
        let newest =
            entry.and_then(|it| [&it.pending, &it.tried, &it.acknowledged].into_iter().find_map(Option::as_ref));
        let is_dead = |report: &Report| report.task_states.get(task).is_some_and(|it| it.state == TaskRunState::Dead);
        newest.is_none_or(is_dead)
    }

    /// The newest report of an allocation, sent or not.
    pub(crate) fn latest(&self, uid: &str) -> Option<Report> {
        let entries = self.lock();
        let entry = entries.by_uid.get(uid)?;
        [&entry.pending, &entry.tried, &entry.acknowledged].into_iter().find_map(Clone::clone)
    }

    /// When the next send is due; none without a pending report.
    pub(super) fn due(&self, give_way: GiveWay) -> Option<Instant> {
        let entries = self.lock();
        let firsts = [entries.urgent.first(), entries.first_calm(give_way)];
        firsts.into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// Takes the report whose turn it is. The others that are pending go along, unless tasks are being started: what a
    /// task that is on its way has to tell will soon be told by something newer.
    pub(super) fn take(&self, give_way: GiveWay) -> Option<Taken> {
        let now = Instant::now();
        let mut entries = self.lock();
        let urgent = entries.urgent.first().cloned();
        let calm = entries.first_calm(give_way).cloned();
        let turns = [(urgent, Duration::ZERO), (calm, LESS_URGENT)];
        let is_due = |(first, later): (Option<(Instant, String)>, Duration)| {
            first.filter(|(due, _)| *due <= now).map(|(due, uid)| (due + later, uid))
        };
        let (_, uid) = turns.into_iter().filter_map(is_due).min()?;
        if give_way == GiveWay::No {
            entries.hurry(now);
        }
        entries.change(&uid, |entry| {
            let can_wait = entry.can_wait();
            let report = entry.pending.take()?;
            (entry.tried, entry.is_sending) = (Some(report.clone()), true);
            (entry.last_send, entry.due) = (Some(now), None);
            Some(Taken { uid: uid.clone(), report, can_wait })
        })?
    }

    /// Puts a report back that was not accepted, unless a newer one has come. It does not leave before that time.
    pub(super) fn put_back(&self, uid: &str, report: Report, not_before: Instant) {
        self.lock().change(uid, |entry| {
            entry.is_sending = false;
            entry.not_before = not_before;
            entry.pending.get_or_insert(report);
            entry.reckon();
        });
    }

    /// The controller does not want to hear of the allocation any more.
    pub(super) fn drop_sent(&self, uid: &str) {
        self.lock().change(uid, |entry| entry.is_sending = false);
    }

    /// The object as last seen, by watch or by our own write.
    pub(super) fn seen(&self, uid: &str) -> Option<Arc<Allocation>> {
        self.lock().by_uid.get(uid).map(|entry| Arc::clone(&entry.seen))
    }

    /// The API server has accepted a report, and the object looks so since.
    pub(super) fn acknowledge(&self, uid: &str, seen: Allocation, report: Report) {
        self.lock().change(uid, |entry| {
            self.metrics.report_accepted(report::priority(&report, entry.acknowledged.as_ref()));
            entry.seen = Arc::new(seen);
            if entry.pending.as_ref().is_some_and(|newer| report::priority(newer, Some(&report)) == Priority::None) {
                entry.pending = None;
            }
            (entry.acknowledged, entry.tried, entry.is_sending) = (Some(report), None, false);
            entry.reckon();
        });
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a watch event is behind what our own write has answered. Versions of one kind can be compared.
fn is_older(seen: &Allocation, known: &Allocation) -> bool {
    let version = |allocation: &Allocation| allocation.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(seen), version(known)), (Some(seen), Some(known)) if seen < known)
}

#[cfg(test)]
pub(super) mod tests {
    use drover_api::allocation::{Health, TaskState};

    use super::*;

    pub(crate) fn reports(uids: &[&str]) -> Reports {
        let reports = Reports::default();
        for uid in uids {
            let allocation = Allocation::new(uid, drover_api::AllocationSpec::default());
            reports.observe(uid, Arc::new(allocation));
        }
        reports
    }

    pub(crate) fn report(status: ClientStatus, description: &str) -> Report {
        Report { client_status: status, description: description.to_owned(), ..Report::default() }
    }

    fn take_all(reports: &Reports, give_way: GiveWay) -> Vec<(String, Report)> {
        std::iter::from_fn(|| reports.take(give_way)).map(|taken| (taken.uid, taken.report)).collect()
    }

    pub(crate) fn acknowledge(reports: &Reports, uid: &str, accepted: Report) {
        reports.acknowledge(uid, Allocation::new(uid, drover_api::AllocationSpec::default()), accepted);
    }

    /// When the next report may leave, by looking at each.
    fn due_by_looking(reports: &Reports, give_way: GiveWay) -> Option<Instant> {
        let leaves = |entry: &Entry| match (entry.place()?, give_way) {
            (ReportPlace::Urgent(due), _) | (ReportPlace::Calm { due, .. }, GiveWay::No) => Some(due),
            (ReportPlace::Calm { gathered, .. }, GiveWay::Gather) => Some(gathered),
            (ReportPlace::Calm { .. }, GiveWay::Hold) => None,
        };
        reports.lock().by_uid.values().filter_map(leaves).min()
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_happens_a_report_is_found_by_its_turn() {
        let uids = ["a", "b", "c", "d", "e"];
        let (reports, mut random) = (reports(&uids), fastrand::Rng::with_seed(7));
        let mut under_way: Vec<Taken> = Vec::new();
        let ways = [GiveWay::No, GiveWay::Gather, GiveWay::Hold];
        for step in 0..5000 {
            let uid = uids[random.usize(..uids.len())];
            let status = random.choice([ClientStatus::Pending, ClientStatus::Running, ClientStatus::Failed]);
            match random.u8(..8) {
                0..=2 => reports.put(uid, report(status.expect("one"), &step.to_string())),
                3 => under_way.extend(reports.take(ways[random.usize(..3)])),
                4 if !under_way.is_empty() => {
                    let taken = under_way.swap_remove(0);
                    acknowledge(&reports, &taken.uid, taken.report);
                }
                5 if !under_way.is_empty() => {
                    let taken = under_way.swap_remove(0);
                    let pause = Duration::from_millis(random.u64(..3000));
                    reports.put_back(&taken.uid, taken.report, Instant::now() + pause);
                }
                6 if step % 50 == 0 => {
                    reports.forget(uid);
                    under_way.retain(|taken| taken.uid != uid);
                    reports.observe(uid, Arc::new(Allocation::new(uid, drover_api::AllocationSpec::default())));
                }
                _ => tokio::time::advance(Duration::from_millis(random.u64(..400))).await,
            }
            for way in ways {
                assert_eq!(reports.due(way), due_by_looking(&reports, way), "{way:?} after step {step}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_accepted_and_what_a_newer_report_replaces_is_counted() {
        let metrics = drover_daemon::monitor::Metrics::default();
        let reports = Reports::counting(NodeMetrics::of(metrics.agent.clone()));
        reports.observe("a", Arc::new(Allocation::new("a", drover_api::AllocationSpec::default())));
        for description in ["", "again", "and again"] {
            reports.put("a", report(ClientStatus::Running, description));
        }
        acknowledge(&reports, "a", report(ClientStatus::Running, "and again"));
        acknowledge(&reports, "a", report(ClientStatus::Running, "calmly"));
        assert_eq!(metrics.agent.n_reports(), [1, 1, 2], "urgent, typical, replaced");
    }

    #[tokio::test(start_paused = true)]
    async fn a_032_what_is_not_urgent_leaves_within_a_second() {
        let reports = reports(&["a"]);
        let start = Instant::now();
        reports.put("a", report(ClientStatus::Pending, ""));
        tokio::time::advance(Duration::from_millis(300)).await;
        reports.put("a", report(ClientStatus::Pending, "again"));
        assert_eq!(reports.due(GiveWay::No), Some(start + GATHER), "a later report does not put it off");
    }

    #[tokio::test(start_paused = true)]
    async fn p_075_events_alone_wait_for_others_and_a_new_status_for_nothing() {
        let reports = reports(&["a"]);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        let with_event = |status: ClientStatus| {
            let event = serde_json::json!({ "type": "Signaling", "time": "2026-01-01T00:00:00Z" });
            let event = serde_json::from_value(event).unwrap();
            let state = TaskState { events: vec![event], ..TaskState::default() };
            Report { task_states: BTreeMap::from([("t".to_owned(), state)]), ..report(status, "") }
        };
        let start = Instant::now();
        reports.put("a", with_event(ClientStatus::Running));
        let due = reports.due(GiveWay::No).map(|due| due - start);
        assert!(
            due.is_some_and(|due| due > Duration::from_millis(200) && due <= Duration::from_millis(1200)),
            "{due:?}"
        );
        reports.put("a", with_event(ClientStatus::Failed));
        let due = reports.due(GiveWay::No).map(|due| due.saturating_duration_since(start));
        assert!(due.is_some_and(|due| due <= Duration::from_millis(400)), "{due:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_033_an_urgent_report_takes_the_others_along_at_once() {
        let reports = reports(&["a", "b", "c"]);
        for uid in ["a", "b"] {
            reports.put(uid, report(ClientStatus::Pending, ""));
        }
        reports.put("c", report(ClientStatus::Failed, ""));
        assert_eq!(reports.due(GiveWay::No), Some(Instant::now()));
        assert_eq!(take_all(&reports, GiveWay::No).len(), 3);
        assert_eq!(reports.due(GiveWay::No), None);
    }

    #[tokio::test(start_paused = true)]
    async fn while_tasks_are_started_that_others_run_is_told_a_second_later_and_one_by_one() {
        let reports = reports(&["a", "b", "c"]);
        for uid in ["a", "b"] {
            reports.put(uid, report(ClientStatus::Running, ""));
        }
        assert_eq!(reports.due(GiveWay::Gather), Some(Instant::now() + GATHER));
        reports.put("c", report(ClientStatus::Failed, ""));
        assert_eq!(reports.take(GiveWay::Hold).map(|taken| taken.uid), Some("c".to_owned()), "a failure never waits");
        tokio::time::advance(GATHER).await;
        assert_eq!(take_all(&reports, GiveWay::Hold), []);
        assert_eq!(reports.take(GiveWay::Gather).map(|taken| taken.uid), Some("a".to_owned()));
        assert_eq!(reports.take(GiveWay::No).map(|taken| taken.uid), Some("b".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_leaves_before_what_can_wait_and_nothing_waits_for_ever() {
        let reports = reports(&["a", "b", "c"]);
        for uid in ["b", "c"] {
            acknowledge(&reports, uid, report(ClientStatus::Running, ""));
        }
        reports.put("a", report(ClientStatus::Running, ""));
        let health = Health { healthy: true, timestamp: jiff::Timestamp::UNIX_EPOCH, deployment_name: String::new() };
        let judged = Report { health: Some(health), ..report(ClientStatus::Running, "") };
        tokio::time::advance(LESS_URGENT / 2).await;
        reports.put("b", judged.clone());
        assert_eq!(reports.take(GiveWay::No).map(|taken| taken.uid), Some("b".to_owned()));
        tokio::time::advance(LESS_URGENT).await;
        reports.put("c", judged);
        assert_eq!(reports.take(GiveWay::No).map(|taken| taken.uid), Some("a".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn of_one_allocation_only_one_report_is_under_way() {
        let reports = reports(&["a"]);
        reports.put("a", report(ClientStatus::Running, ""));
        assert_eq!(take_all(&reports, GiveWay::No).len(), 1);
        reports.put("a", report(ClientStatus::Failed, ""));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((reports.due(GiveWay::No), take_all(&reports, GiveWay::No)), (None, Vec::new()));
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        assert_eq!(take_all(&reports, GiveWay::No).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_still_the_latest() {
        let reports = reports(&["a"]);
        reports.put("a", report(ClientStatus::Running, "told"));
        let taken = take_all(&reports, GiveWay::No);
        assert_eq!(reports.latest("a").map(|report| report.description), Some("told".to_owned()));
        acknowledge(&reports, "a", taken[0].1.clone());
        assert_eq!(reports.latest("a").map(|report| report.client_status), Some(ClientStatus::Running));
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_on_health_leaves_at_once() {
        let reports = reports(&["a"]);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        tokio::time::advance(Duration::from_secs(10)).await;
        let health = Health { healthy: true, timestamp: jiff::Timestamp::UNIX_EPOCH, deployment_name: String::new() };
        reports.put("a", Report { health: Some(health), ..report(ClientStatus::Running, "") });
        assert_eq!(reports.due(GiveWay::No), Some(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_allocation_that_was_just_reported_waits_a_moment_and_others_do_not() {
        let reports = reports(&["a", "b"]);
        let start = Instant::now();
        reports.put("a", report(ClientStatus::Running, ""));
        assert_eq!(take_all(&reports, GiveWay::No).len(), 1);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        reports.put("a", report(ClientStatus::Complete, ""));
        assert_eq!(reports.due(GiveWay::No), Some(start + SEND_INTERVAL));
        reports.put("b", report(ClientStatus::Failed, ""));
        assert_eq!(reports.due(GiveWay::No), Some(start));
    }

    #[tokio::test(start_paused = true)]
    async fn a_030_equal_reports_are_dropped_and_newer_ones_stay() {
        let reports = reports(&["a"]);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        reports.put("a", report(ClientStatus::Running, ""));
        assert_eq!(reports.due(GiveWay::No), None);
        reports.put("a", report(ClientStatus::Running, "old"));
        tokio::time::advance(GATHER).await;
        let sent = take_all(&reports, GiveWay::No);
        reports.put("a", report(ClientStatus::Running, "new"));
        for (uid, report) in sent {
            reports.put_back(&uid, report, Instant::now());
        }
        tokio::time::advance(GATHER).await;
        assert_eq!(take_all(&reports, GiveWay::No)[0].1.description, "new");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_of_the_controller_makes_the_same_report_news() {
        let reports = reports(&["a"]);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        let mut marked = Allocation::new("a", drover_api::AllocationSpec::default());
        marked.status =
            Some(drover_api::AllocationStatus { client_status: ClientStatus::Unknown, ..Default::default() });
        reports.observe("a", Arc::new(marked));
        // What was told is still what the agent, or the next one, has told.
        let told = Some(report(ClientStatus::Running, ""));
        let record = reports.record("a").expect("known");
        assert_eq!((record.acknowledged, record.tried, reports.latest("a")), (None, told.clone(), told));
        reports.put("a", report(ClientStatus::Running, ""));
        assert!(reports.due(GiveWay::No).is_some());
    }
}
