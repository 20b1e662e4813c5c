//! Carries the runners' reports to the API server: the newest of each allocation, soon when it matters, together when not.
//!
//! Runners leave reports in a map and never wait. A report leaves at once when it is urgent and the last one of its allocation is
//! 200 ms old, else within a second; whatever else is pending goes along. (Nomad spaces the sends of the whole agent, because one
//! request carries them all. Here each allocation is a request of its own, so spacing them all would only make starts slow.)
//! A few requests are under way at the same time, fewer for what can wait, and whenever one is answered the report leaves that
//! matters most. While tasks are being started, that others run is told later: on a small machine the API server takes more for a
//! write than a start costs.
//! Nothing is sent before the first list of allocations was applied, nor while the controller holds the node for
//! silent: then the Lease is renewed first (`spec/agent.md` sections 3.4 and 3.5).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, field_manager};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::node::NodeView;
use super::numbers::Numbers;
use super::random::Random;
use super::report::{self, Priority, Report};
use super::starts::Starts;
use super::state::{AllocRecord, StateStore};
use super::watch;
use crate::clock::{SharedClock, sleep_until};
use crate::store::{ErrorClass, Key, Object, Ownership, Part, Precondition, Store, StoreError};

/// The shortest time between two sends of one allocation.
const SEND_INTERVAL: Duration = Duration::from_millis(200);
/// How long a report without urgency may be gathered.
const GATHER: Duration = Duration::from_secs(1);
/// The pause after a failed send, doubled at random.
const RETRY: Duration = Duration::from_secs(5);
/// Requests at the same time.
const PARALLEL: usize = 8;
/// Requests for what can wait at the same time: a verdict that comes meanwhile shall find the API server with time for it.
const PARALLEL_CALM: usize = 3;
/// Requests at the same time, from which on nothing that can wait is sent while tasks are being started.
const PARALLEL_BESIDE_STARTS: usize = 1;
/// So much later is the turn of a report that can wait, where many are due.
const LESS_URGENT: Duration = Duration::from_secs(2);
/// How long a write is tried again while the API server cannot be reached: while it is replaced, for a moment nobody listens.
const HOLD: Duration = Duration::from_secs(5);
/// The longest pause between two such tries.
const HOLD_PAUSE: Duration = Duration::from_micros(5_000_000 / 16);
/// How often one report is decided anew after a conflict before the others have their turn.
const CONFLICT_TRIES: usize = 4;

/// What gives way to tasks that are being started, and to reports that cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GiveWay {
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
    /// What is on its way to the API server.
    sending: Option<Report>,
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
            sending: None,
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
        })
    }

    /// When what is pending may leave. Of one allocation only one report is under way.
    fn leaves_at(&self, give_way: GiveWay) -> Option<Instant> {
        let due = self.due.filter(|_| self.sending.is_none())?;
        match give_way {
            GiveWay::Gather if self.can_wait() => Some(due.max(self.pending_since + GATHER)),
            GiveWay::Hold if self.can_wait() => None,
            GiveWay::No | GiveWay::Gather | GiveWay::Hold => Some(due),
        }
    }
}

/// A report whose turn has come.
#[derive(Debug)]
struct Taken {
    uid: String,
    report: Report,
    can_wait: bool,
}

/// Where runners leave their reports; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    wake: Arc<Notify>,
    numbers: Numbers,
}

impl Reports {
    /// Reports that are counted.
    pub(crate) fn counting(numbers: Numbers) -> Self {
        Self { numbers, ..Self::default() }
    }

    /// Takes in an allocation as the watch or the state file shows it.
    pub(crate) fn observe(&self, uid: &str, seen: Arc<Allocation>) {
        let mut entries = self.lock();
        match entries.get_mut(uid) {
            Some(entry) if is_older(&seen, &entry.seen) => {}
            Some(entry) => {
                // What was accepted before is not what the object says any more.
                if seen.status.as_ref().is_some_and(|status| status.client_status == ClientStatus::Unknown) {
                    entry.acknowledged = None;
                    entry.reckon();
                }
                entry.seen = seen;
            }
            None => {
                entries.insert(uid.to_owned(), Entry::new(seen, None));
            }
        }
    }

    /// Takes in what the API server accepted in an earlier life of the agent.
    pub(crate) fn restore(&self, uid: &str, record: &AllocRecord) {
        let entry = Entry::new(Arc::new(record.allocation.clone()), record.acknowledged.clone());
        self.lock().insert(uid.to_owned(), entry);
    }

    /// What the state file keeps of the allocation.
    pub(crate) fn record(&self, uid: &str) -> Option<AllocRecord> {
        let entries = self.lock();
        entries
            .get(uid)
            .map(|entry| AllocRecord { allocation: (*entry.seen).clone(), acknowledged: entry.acknowledged.clone() })
    }

    /// Leaves a report; a newer one takes the place of an older one. Never waits.
    pub(crate) fn put(&self, uid: &str, report: Report) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(uid) else { return };
        // What is under way will most likely be accepted; if not, it is put back.
        let known = entry.sending.as_ref().or(entry.acknowledged.as_ref());
        if entry.pending.is_some() {
            self.numbers.report_coalesced();
        }
        if report::priority(&report, known) == Priority::None {
            (entry.pending, entry.due) = (None, None);
            return;
        }
        if entry.pending.is_none() {
            entry.pending_since = Instant::now();
        }
        let before = entry.due;
        entry.pending = Some(report);
        entry.reckon();
        let is_sooner = before.is_none_or(|before| entry.due.is_some_and(|due| due < before));
        drop(entries);
        if is_sooner {
            self.wake.notify_one();
        }
    }

    /// The allocations whose end the API server has accepted, with nothing left to tell.
    pub(crate) fn ended(&self) -> Vec<(jiff::Timestamp, String)> {
        let entries = self.lock();
        let settled = entries.iter().filter(|(_, entry)| entry.pending.is_none());
        settled.filter_map(|(uid, entry)| Some((entry.acknowledged.as_ref()?.ended_at?, uid.clone()))).collect()
    }

    /// Forgets an allocation.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// The newest report of an allocation, sent or not.
    pub(crate) fn latest(&self, uid: &str) -> Option<Report> {
        let entries = self.lock();
        let entry = entries.get(uid)?;
        [&entry.pending, &entry.sending, &entry.acknowledged].into_iter().find_map(Clone::clone)
    }

    /// When the next send is due; none without a pending report.
    fn due(&self, give_way: GiveWay) -> Option<Instant> {
        self.lock().values().filter_map(|entry| entry.leaves_at(give_way)).min()
    }

    /// Takes the report whose turn it is. The others that are pending go along, unless tasks are being started: what a task that is
    /// on its way has to tell will soon be told by something newer.
    fn take(&self, give_way: GiveWay) -> Option<Taken> {
        let now = Instant::now();
        let mut entries = self.lock();
        let turn = |(uid, entry): (&String, &Entry)| {
            let due = entry.leaves_at(give_way).filter(|due| *due <= now)?;
            Some((if entry.can_wait() { due + LESS_URGENT } else { due }, uid.clone()))
        };
        let (_, uid) = entries.iter().filter_map(turn).min()?;
        if give_way == GiveWay::No {
            for entry in entries.values_mut() {
                entry.due = entry.due.map(|due| due.min(now.max(entry.not_before)));
            }
        }
        let entry = entries.get_mut(&uid)?;
        let can_wait = entry.can_wait();
        let report = entry.pending.take()?;
        entry.sending = Some(report.clone());
        (entry.last_send, entry.due) = (Some(now), None);
        Some(Taken { uid, report, can_wait })
    }

    /// Puts a report back that was not accepted, unless a newer one has come. It does not leave before that time.
    fn put_back(&self, uid: &str, report: Report, not_before: Instant) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.sending = None;
            entry.not_before = not_before;
            entry.pending.get_or_insert(report);
            entry.reckon();
        }
    }

    /// The controller does not want to hear of the allocation any more.
    fn drop_sent(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.sending = None;
        }
    }

    fn seen(&self, uid: &str) -> Option<Arc<Allocation>> {
        self.lock().get(uid).map(|entry| Arc::clone(&entry.seen))
    }

    fn acknowledge(&self, uid: &str, seen: Allocation, report: Report) {
        if let Some(entry) = self.lock().get_mut(uid) {
            self.numbers.report_accepted(report::priority(&report, entry.acknowledged.as_ref()));
            entry.seen = Arc::new(seen);
            if entry.pending.as_ref().is_some_and(|newer| report::priority(newer, Some(&report)) == Priority::None) {
                entry.pending = None;
            }
            (entry.acknowledged, entry.sending) = (Some(report), None);
            entry.reckon();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a watch event is behind what our own write has answered. Versions of one kind can be compared.
fn is_older(seen: &Allocation, known: &Allocation) -> bool {
    let version = |allocation: &Allocation| allocation.metadata.resource_version.as_ref()?.parse::<u64>().ok();
    matches!((version(seen), version(known)), (Some(seen), Some(known)) if seen < known)
}

/// Sends reports.
#[derive(Debug)]
pub(crate) struct Sync<S> {
    pub(crate) store: S,
    pub(crate) state: StateStore,
    pub(crate) clock: SharedClock,
    pub(crate) random: Random,
    pub(crate) reports: Reports,
    /// Opens when the first list of allocations was applied.
    pub(crate) contacted: watch::Receiver<bool>,
    pub(crate) node: watch::Receiver<NodeView>,
    /// Asks for a heartbeat at once.
    pub(crate) heartbeat: Arc<Notify>,
    /// Says that the API server answers again.
    pub(crate) reachable: Arc<Notify>,
    /// The tasks that are being started.
    pub(crate) starts: Starts,
}

/// What became of one report.
#[derive(Debug)]
enum Outcome {
    Accepted,
    /// The controller no longer has the allocation.
    Obsolete,
    /// The controller holds this node for silent.
    NotReady,
    Failed(StoreError),
}

impl<S: Store> Sync<S> {
    /// Sends for ever.
    pub(crate) async fn run(mut self) {
        if self.contacted.wait_for(|open| *open).await.is_err() {
            return;
        }
        let (this, mut node) = (&self, self.node.clone());
        let mut under_way = FuturesUnordered::new();
        let mut n_calm = 0;
        let mut not_before = Instant::now();
        let mut has_asked = false;
        loop {
            let give_way = this.give_way(under_way.len(), n_calm);
            let due = this.reports.due(give_way).map(|due| due.max(not_before));
            let is_ready = node.borrow_and_update().may_report();
            let may_send = is_ready && under_way.len() < PARALLEL;
            has_asked &= !is_ready;
            tokio::select! {
                biased;
                Some(done) = under_way.next() => {
                    let (taken, outcome): (Taken, Outcome) = done;
                    n_calm -= usize::from(taken.can_wait);
                    if this.settle(&taken.uid, taken.report, outcome) == Next::Pause {
                        not_before = Instant::now() + this.random.jitter(RETRY);
                    }
                }
                () = sleep_until(due), if may_send => if let Some(taken) = this.reports.take(give_way) {
                    n_calm += usize::from(taken.can_wait);
                    under_way.push(this.deliver(taken));
                },
                // The Lease comes first: the controller takes no status from a node that it holds for silent.
                () = sleep_until(due), if !is_ready && !has_asked => {
                    tracing::info!("the controller holds this node for silent: a heartbeat goes first");
                    this.heartbeat.notify_one();
                    has_asked = true;
                }
                () = this.reachable.notified(), if not_before > Instant::now() => not_before = Instant::now(),
                // A more urgent report may have come.
                () = this.reports.wake.notified() => {}
                () = this.starts.over() => {}
                Ok(()) = node.changed() => {}
            }
        }
    }

    /// What waits beside so many requests, of which some are for what could wait.
    fn give_way(&self, under_way: usize, n_calm: usize) -> GiveWay {
        match self.starts.are_under_way() {
            false if n_calm < PARALLEL_CALM => GiveWay::No,
            true if under_way < PARALLEL_BESIDE_STARTS => GiveWay::Gather,
            false | true => GiveWay::Hold,
        }
    }

    /// Notes what became of a report. When the API server does not answer once, it is not asked again for the others at once: each
    /// try may cost the whole time limit.
    fn settle(&self, uid: &str, report: Report, outcome: Outcome) -> Next {
        let now = Instant::now();
        match outcome {
            Outcome::Accepted => Next::GoOn,
            Outcome::Obsolete => {
                self.reports.drop_sent(uid);
                Next::GoOn
            }
            Outcome::NotReady => {
                self.reports.put_back(uid, report, now);
                Next::GoOn
            }
            Outcome::Failed(error) => {
                tracing::warn!(allocation = uid, error = %error, "status was not accepted and is kept");
                let is_silent = error.class() == ErrorClass::Transient;
                let pause = if is_silent { Duration::ZERO } else { self.random.jitter(RETRY) };
                self.reports.put_back(uid, report, now + pause);
                if is_silent { Next::Pause } else { Next::GoOn }
            }
        }
    }

    async fn deliver(&self, taken: Taken) -> (Taken, Outcome) {
        let outcome = self.send(&taken.uid, &taken.report).await;
        (taken, outcome)
    }

    async fn send(&self, uid: &str, report: &Report) -> Outcome {
        let mut last = StoreError::Conflict("no try was made".to_owned());
        for _ in 0..CONFLICT_TRIES {
            let Some(seen) = self.reports.seen(uid) else { return Outcome::Obsolete };
            let key = seen.key();
            match self.write(&key, &seen, report).await {
                Ok(mut accepted) => {
                    accepted.metadata.managed_fields = None;
                    self.reports.acknowledge(uid, accepted, report.clone());
                    self.keep(uid).await;
                    return Outcome::Accepted;
                }
                Err(error @ (StoreError::Conflict(_) | StoreError::NotFound(_))) => last = error,
                Err(error) => return Outcome::Failed(error),
            }
            match self.store.get::<Allocation>(&key).await {
                Ok(Some(mut found)) if found.metadata.uid.as_deref() == Some(uid) => {
                    found.metadata.managed_fields = None;
                    self.reports.observe(uid, Arc::new(found));
                }
                Ok(_) => return Outcome::Obsolete,
                Err(error) => return Outcome::Failed(error),
            }
            if !self.node.borrow().may_report() {
                return Outcome::NotReady;
            }
        }
        Outcome::Failed(last)
    }

    /// Writes a report, after it has taken the controller's mark away.
    async fn write(&self, key: &Key, seen: &Allocation, report: &Report) -> Result<Allocation, StoreError> {
        let unchanged = Precondition::unchanged(&seen.metadata);
        let Some(body) = report::without_marks(seen) else {
            return self.apply(key, &unchanged, report::status_body(report, seen, self.clock.now())).await;
        };
        let unmarked: Allocation = self.store.merge(key, Part::Status, &unchanged, body).await?;
        let unchanged = Precondition::unchanged(&unmarked.metadata);
        self.apply(key, &unchanged, report::status_body(report, &unmarked, self.clock.now())).await
    }

    /// Writes a status, which may be repeated: the precondition holds for one write only.
    async fn apply(&self, key: &Key, unchanged: &Precondition, body: Value) -> Result<Allocation, StoreError> {
        let until = Instant::now() + HOLD;
        loop {
            let (part, owner) = (Part::Status, Ownership::Force);
            let written = self.store.apply(key, part, field_manager::AGENT, owner, unchanged, body.clone()).await;
            let reason = match written {
                Err(StoreError::Unavailable(reason)) => reason,
                written => return written,
            };
            let pause = self.random.below(HOLD_PAUSE);
            if Instant::now() + pause > until {
                return Err(StoreError::Unavailable(reason));
            }
            tracing::debug!(reason, allocation = %key, "status is written again");
            tokio::time::sleep(pause).await;
        }
    }

    async fn keep(&self, uid: &str) {
        let Some(record) = self.reports.record(uid) else { return };
        if let Err(error) = self.state.put_alloc(uid, &record).await {
            tracing::error!(error = %error, allocation = uid, "what was reported is not kept");
        }
    }
}

/// How sending goes on after a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    /// For a while nothing is sent.
    Pause,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state::MemoryState;
    use crate::store::{Change, Selection};
    use drover_api::allocation::Health;

    fn reports(uids: &[&str]) -> Reports {
        let reports = Reports::default();
        for uid in uids {
            let allocation = Allocation::new(uid, drover_api::AllocationSpec::default());
            reports.observe(uid, Arc::new(allocation));
        }
        reports
    }

    fn report(status: ClientStatus, description: &str) -> Report {
        Report { client_status: status, description: description.to_owned(), ..Report::default() }
    }

    fn take_all(reports: &Reports, give_way: GiveWay) -> Vec<(String, Report)> {
        std::iter::from_fn(|| reports.take(give_way)).map(|taken| (taken.uid, taken.report)).collect()
    }

    fn acknowledge(reports: &Reports, uid: &str, accepted: Report) {
        reports.acknowledge(uid, Allocation::new(uid, drover_api::AllocationSpec::default()), accepted);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_accepted_and_what_a_newer_report_replaces_is_counted() {
        let metrics = crate::monitor::Metrics::default();
        let reports = Reports::counting(Numbers::of(metrics.agent.clone()));
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
        reports.put("a", report(ClientStatus::Running, ""));
        assert!(reports.due(GiveWay::No).is_some());
    }

    /// An API server that accepts status writes, or not.
    #[derive(Clone, Debug, Default)]
    struct Server {
        /// What the next writes meet; empty: they are accepted.
        script: Arc<Mutex<Vec<Answer>>>,
        writes: Arc<Mutex<Vec<(String, serde_json::Value, Instant)>>>,
    }

    #[derive(Clone, Debug)]
    enum Answer {
        /// Nobody listens.
        Unreachable,
        Fails,
        Hangs(Duration),
    }

    impl Server {
        fn written(&self) -> Vec<(String, String)> {
            let writes = self.writes.lock().expect("no panic while it was held");
            let description = |body: &serde_json::Value| {
                body.pointer("/status/clientDescription").and_then(serde_json::Value::as_str).unwrap_or("").to_owned()
            };
            writes.iter().map(|(name, body, _)| (name.clone(), description(body))).collect()
        }
    }

    fn away<T>() -> Result<T, StoreError> {
        Err(StoreError::Unavailable("not asked for".to_owned()))
    }

    impl Store for Server {
        async fn get<K: Object>(&self, _: &Key) -> Result<Option<K>, StoreError> {
            away()
        }
        async fn list<K: Object>(&self, _: &Selection) -> Result<Vec<K>, StoreError> {
            away()
        }
        fn watch<K: Object>(&self, _: Selection) -> futures::stream::BoxStream<'static, Change<K>> {
            futures::stream::pending().boxed()
        }
        async fn create<K: Object>(&self, _: &K) -> Result<K, StoreError> {
            away()
        }
        async fn apply<K: Object>(
            &self,
            key: &Key,
            _: Part,
            _: &'static str,
            _: Ownership,
            _: &Precondition,
            body: serde_json::Value,
        ) -> Result<K, StoreError> {
            let answer = self.script.lock().expect("no panic while it was held").pop();
            match answer {
                Some(Answer::Unreachable) => return away(),
                Some(Answer::Fails) => return Err(StoreError::Timeout(Duration::ZERO)),
                Some(Answer::Hangs(span)) => {
                    tokio::time::sleep(span).await;
                    return Err(StoreError::Timeout(span));
                }
                None => {}
            }
            let write = (key.name.clone(), body, Instant::now());
            self.writes.lock().expect("no panic while it was held").push(write);
            let spec = drover_api::AllocationSpec::default();
            let object = serde_json::to_value(Allocation::new(&key.name, spec)).expect("an object");
            Ok(serde_json::from_value(object).expect("an allocation"))
        }
        async fn merge<K: Object>(
            &self,
            _: &Key,
            _: Part,
            _: &Precondition,
            _: serde_json::Value,
        ) -> Result<K, StoreError> {
            away()
        }
        async fn replace<K: Object>(&self, _: &K) -> Result<K, StoreError> {
            away()
        }
        async fn delete<K: Object>(&self, _: &Key, _: &Precondition) -> Result<(), StoreError> {
            away()
        }
    }

    #[derive(Debug)]
    struct FixedClock;

    impl crate::clock::Clock for FixedClock {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }
    }

    /// A sender under way; it ends with the test.
    struct Sending {
        server: Server,
        reports: Reports,
        contacted: watch::Sender<bool>,
        _tasks: tokio::task::JoinSet<()>,
        _node: watch::Sender<NodeView>,
    }

    fn sending(uids: &[&str], script: Vec<Answer>) -> Sending {
        let mut tasks = tokio::task::JoinSet::new();
        let state = MemoryState::default().store();
        let server = Server { script: Arc::new(Mutex::new(script)), ..Server::default() };
        let (contacted, node) = (watch::Sender::new(true), watch::Sender::new(NodeView::default()));
        let reports = reports(uids);
        let sync = Sync {
            store: server.clone(),
            state,
            clock: Arc::new(FixedClock),
            random: Random::seeded(7),
            reports: reports.clone(),
            contacted: contacted.subscribe(),
            node: node.subscribe(),
            heartbeat: Arc::default(),
            reachable: Arc::default(),
            starts: Starts::default(),
        };
        tasks.spawn(sync.run());
        Sending { server, reports, contacted, _tasks: tasks, _node: node }
    }

    async fn pass(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_034_after_a_failure_the_newest_of_each_is_sent() {
        let it = sending(&["x", "y"], vec![Answer::Fails]);
        it.reports.put("x", report(ClientStatus::Running, "old"));
        it.reports.put("y", report(ClientStatus::Running, "kept"));
        pass(1).await;
        it.reports.put("x", report(ClientStatus::Running, "new"));
        pass(4_900).await;
        assert_eq!(it.server.written(), [], "the next try comes after 5 to 10 s");
        pass(5_200).await;
        let mut written = it.server.written();
        written.sort();
        assert_eq!(written, [("x".into(), "new".into()), ("y".into(), "kept".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_170_a_moment_without_an_api_server_is_no_error() {
        let it = sending(&["a"], vec![Answer::Unreachable; 12]);
        let start = Instant::now();
        it.reports.put("a", report(ClientStatus::Running, "told"));
        pass(5_000).await;
        assert_eq!(it.server.written(), [("a".into(), "told".into())]);
        let at = it.server.writes.lock().expect("no panic while it was held")[0].2;
        assert!(at.duration_since(start) > Duration::from_secs(1), "{:?}", at.duration_since(start));
        // Nothing was put back: what comes next does not wait for a pause after an error.
        acknowledge(&it.reports, "a", report(ClientStatus::Running, "told"));
        it.reports.put("a", report(ClientStatus::Failed, "next"));
        pass(1).await;
        assert_eq!(it.server.written().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_035_a_write_that_hangs_delays_no_runner() {
        let it = sending(&["a", "b"], vec![Answer::Hangs(Duration::from_secs(30))]);
        it.reports.put("a", report(ClientStatus::Running, "first"));
        pass(1).await;
        let start = Instant::now();
        for n in 0..100 {
            it.reports.put(if n % 2 == 0 { "a" } else { "b" }, report(ClientStatus::Running, &n.to_string()));
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        pass(45_000).await;
        let mut written = it.server.written();
        written.sort();
        assert_eq!(written, [("a".into(), "98".into()), ("b".into(), "99".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_wait_leaves_room_for_what_cannot() {
        let it = sending(&["a", "b", "c", "d", "e"], vec![Answer::Hangs(Duration::from_secs(1)); PARALLEL_CALM]);
        for uid in ["a", "b", "c", "d"] {
            it.reports.put(uid, report(ClientStatus::Running, ""));
        }
        pass(500).await;
        assert_eq!(it.server.written(), [], "the fourth waits for one of the first three");
        it.reports.put("e", report(ClientStatus::Failed, "told"));
        pass(1).await;
        assert_eq!(it.server.written(), [("e".into(), "told".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_036_and_a_038_nothing_is_sent_before_the_first_list_and_then_also_by_a_node_that_initializes() {
        // the node's phase is `initializing` all along.
        let closed = sending(&["a"], Vec::new());
        closed.contacted.send_replace(false);
        closed.reports.put("a", report(ClientStatus::Running, "waits"));
        pass(2_000).await;
        assert_eq!(closed.server.written(), []);
        closed.contacted.send_replace(true);
        pass(1).await;
        assert_eq!(closed.server.written(), [("a".into(), "waits".into())]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_174_many_events_in_a_second_are_at_most_two_writes() {
        let it = sending(&["a"], Vec::new());
        acknowledge(&it.reports, "a", report(ClientStatus::Running, ""));
        for n in 0..25 {
            it.reports.put("a", report(ClientStatus::Running, &n.to_string()));
            pass(40).await;
        }
        let within = it.server.written().len();
        assert!(within <= 2, "{within}");
        pass(2_000).await;
        assert_eq!(it.server.written().last().map(|(_, last)| last.clone()), Some("24".into()));
        assert!(it.server.written().len() <= 2);
    }
}
