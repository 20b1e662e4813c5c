//! Carries the runners' reports to the API server: the newest of each allocation, soon when it matters, together when not.
//!
//! Runners leave reports in a map and never wait. A report leaves at once when it is urgent and the last one of its allocation is
//! 200 ms old, else within a second; whatever else is pending goes along. (Nomad spaces the sends of the whole agent, because one
//! request carries them all. Here each allocation is a request of its own, so spacing them all would only make starts slow.)
//! Nothing is sent before the first list of allocations was applied, nor while the controller holds the node for
//! silent: then the Lease is renewed first (`spec/agent.md` sections 3.4 and 3.5).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::{Allocation, field_manager};
use futures::StreamExt;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::node::NodeView;
use super::random::Random;
use super::report::{self, Priority, Report};
use super::starts::Starts;
use super::state::{AllocRecord, StateStore};
use super::watch;
use crate::clock::SharedClock;
use crate::store::{ErrorClass, Key, Object, Ownership, Part, Precondition, Store, StoreError};

/// The shortest time between two sends of one allocation.
const SEND_INTERVAL: Duration = Duration::from_millis(200);
/// How long a report without urgency may be gathered.
const GATHER: Duration = Duration::from_secs(1);
/// The pause after a failed send, doubled at random.
const RETRY: Duration = Duration::from_secs(5);
/// Requests at the same time.
const PARALLEL: u32 = 8;
/// Requests at the same time while tasks are being started: on a small machine each takes the time of a start, and a start goes first.
const PARALLEL_BESIDE_STARTS: u32 = 4;
/// Reports that are taken at once; more urgent ones that come meanwhile do not wait for the rest.
const BATCH: usize = 32;
/// How long a write is tried again while the API server cannot be reached: while it is replaced, for a moment nobody listens.
const HOLD: Duration = Duration::from_secs(5);
/// The longest pause between two such tries.
const HOLD_PAUSE: Duration = Duration::from_micros(5_000_000 / 16);
/// How often one report is decided anew after a conflict before the others have their turn.
const CONFLICT_TRIES: usize = 4;

/// What leaves together with a report that has to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Along {
    /// All that is pending.
    All,
    /// Only what has to leave as well.
    Due,
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
            due: None,
        }
    }

    /// What is pending, or what it is compared with, has changed.
    fn reckon(&mut self) {
        self.due = self.pending.as_ref().map(|report| match report::priority(report, self.acknowledged.as_ref()) {
            Priority::Urgent => {
                self.last_send.map_or(self.pending_since, |last| self.pending_since.max(last + SEND_INTERVAL))
            }
            Priority::Typical | Priority::None => self.pending_since + GATHER,
        });
    }
}

/// Where runners leave their reports; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reports {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    wake: Arc<Notify>,
}

impl Reports {
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
        if report::priority(&report, entry.acknowledged.as_ref()) == Priority::None {
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
    fn due(&self) -> Option<Instant> {
        self.lock().values().filter_map(|entry| entry.due).min()
    }

    /// Takes what has to leave, the most urgent first, and what else is pending unless tasks are being started: what a task that
    /// is on its way has to tell will soon be told by something newer.
    fn take(&self, along: Along) -> Vec<(String, Report)> {
        let now = Instant::now();
        let mut entries = self.lock();
        for entry in entries.values_mut().filter(|entry| along == Along::All && entry.pending.is_some()) {
            entry.due = entry.due.map(|due| due.min(now));
        }
        let is_due = |entry: &Entry| entry.due.filter(|due| *due <= now);
        let mut due: Vec<(Instant, String)> =
            entries.iter().filter_map(|(uid, entry)| Some((is_due(entry)?, uid.clone()))).collect();
        due.sort_unstable();
        let take = |(_, uid): (Instant, String)| {
            let entry = entries.get_mut(&uid)?;
            let report = entry.pending.take()?;
            entry.sending = Some(report.clone());
            (entry.last_send, entry.due) = (Some(now), None);
            Some((uid, report))
        };
        due.into_iter().take(BATCH).filter_map(take).collect()
    }

    /// Puts a report back that was not accepted, unless a newer one has come.
    fn put_back(&self, uid: &str, report: Report) {
        if let Some(entry) = self.lock().get_mut(uid)
            && entry.pending.is_none()
        {
            entry.pending = Some(report);
            entry.reckon();
        }
    }

    fn seen(&self, uid: &str) -> Option<Arc<Allocation>> {
        self.lock().get(uid).map(|entry| Arc::clone(&entry.seen))
    }

    fn acknowledge(&self, uid: &str, seen: Allocation, report: Report) {
        if let Some(entry) = self.lock().get_mut(uid) {
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
    /// The API server did not answer for another one.
    Postponed,
    Failed(StoreError),
}

impl<S: Store> Sync<S> {
    /// Sends for ever.
    pub(crate) async fn run(mut self) {
        if self.contacted.wait_for(|open| *open).await.is_err() {
            return;
        }
        let mut not_before: Option<Instant> = None;
        loop {
            let Some(due) = self.reports.due() else {
                self.reports.wake.notified().await;
                continue;
            };
            let due = not_before.map_or(due, |earliest| due.max(earliest));
            let reachable = Arc::clone(&self.reachable);
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(due) => {}
                () = reachable.notified(), if not_before.is_some() => {
                    not_before = None;
                    continue;
                }
                // A more urgent report may have come.
                () = self.reports.wake.notified() => continue,
            }
            if !self.node.borrow().may_report() {
                self.wait_until_ready().await;
            }
            let all_accepted = self.send_all().await;
            not_before = (!all_accepted).then(|| Instant::now() + self.random.jitter(RETRY));
        }
    }

    /// The Lease comes first: the controller takes no status from a node that it holds for silent.
    async fn wait_until_ready(&mut self) {
        tracing::info!("the controller holds this node for silent: a heartbeat goes first");
        self.heartbeat.notify_one();
        if self.node.wait_for(NodeView::may_report).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn send_all(&self) -> bool {
        let along = if self.starts.are_under_way() { Along::Due } else { Along::All };
        let batch = self.reports.take(along);
        // When the API server does not answer once it is not asked again for the rest: each try may cost the whole time limit.
        let is_silent = std::sync::atomic::AtomicBool::new(false);
        let turns = Semaphore::new(PARALLEL as usize);
        let outcomes = futures::stream::iter(batch)
            .map(async |(uid, report)| {
                let share = if self.starts.are_under_way() { PARALLEL / PARALLEL_BESIDE_STARTS } else { 1 };
                // The semaphore is never closed.
                let _turn = turns.acquire_many(share).await;
                if is_silent.load(Ordering::Relaxed) {
                    return (uid, report, Outcome::Postponed);
                }
                let outcome = self.send(&uid, &report).await;
                let is_failed = matches!(&outcome, Outcome::Failed(error) if error.class() == ErrorClass::Transient);
                is_silent.fetch_or(is_failed, Ordering::Relaxed);
                (uid, report, outcome)
            })
            .buffer_unordered(PARALLEL as usize)
            .collect::<Vec<_>>()
            .await;
        let mut all_accepted = true;
        for (uid, report, outcome) in outcomes {
            match outcome {
                Outcome::Accepted | Outcome::Obsolete => {}
                Outcome::NotReady | Outcome::Postponed => self.reports.put_back(&uid, report),
                Outcome::Failed(error) => {
                    tracing::warn!(allocation = uid, error = %error, "status was not accepted and is kept");
                    self.reports.put_back(&uid, report);
                    all_accepted = false;
                }
            }
        }
        all_accepted
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

    fn acknowledge(reports: &Reports, uid: &str, accepted: Report) {
        reports.acknowledge(uid, Allocation::new(uid, drover_api::AllocationSpec::default()), accepted);
    }

    #[tokio::test(start_paused = true)]
    async fn a_032_what_is_not_urgent_leaves_within_a_second() {
        let reports = reports(&["a"]);
        let start = Instant::now();
        reports.put("a", report(ClientStatus::Pending, ""));
        tokio::time::advance(Duration::from_millis(300)).await;
        reports.put("a", report(ClientStatus::Pending, "again"));
        assert_eq!(reports.due(), Some(start + GATHER), "a later report does not put it off");
    }

    #[tokio::test(start_paused = true)]
    async fn a_033_an_urgent_report_takes_the_others_along_at_once() {
        let reports = reports(&["a", "b", "c"]);
        for uid in ["a", "b"] {
            reports.put(uid, report(ClientStatus::Pending, ""));
        }
        reports.put("c", report(ClientStatus::Failed, ""));
        assert_eq!(reports.due(), Some(Instant::now()));
        assert_eq!(reports.take(Along::All).len(), 3);
        assert_eq!(reports.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn while_tasks_are_started_only_what_is_due_leaves_and_the_most_urgent_first() {
        let uids: Vec<String> = (0..BATCH + 2).map(|n| format!("{n:03}")).collect();
        let reports = reports(&uids.iter().map(String::as_str).collect::<Vec<_>>());
        reports.put("000", report(ClientStatus::Pending, ""));
        for uid in &uids[1..] {
            reports.put(uid, report(ClientStatus::Running, ""));
        }
        let first = reports.take(Along::Due);
        assert_eq!((first.len(), first[0].0.as_str()), (BATCH, "001"), "what is only pending waits");
        assert_eq!(reports.take(Along::Due).len(), 1);
        assert_eq!(reports.take(Along::Due).len(), 0);
        assert_eq!(reports.take(Along::All)[0].0, "000");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_its_way_is_still_the_latest() {
        let reports = reports(&["a"]);
        reports.put("a", report(ClientStatus::Running, "told"));
        let taken = reports.take(Along::All);
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
        assert_eq!(reports.due(), Some(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_allocation_that_was_just_reported_waits_a_moment_and_others_do_not() {
        let reports = reports(&["a", "b"]);
        let start = Instant::now();
        reports.put("a", report(ClientStatus::Running, ""));
        assert_eq!(reports.take(Along::All).len(), 1);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        reports.put("a", report(ClientStatus::Complete, ""));
        assert_eq!(reports.due(), Some(start + SEND_INTERVAL));
        reports.put("b", report(ClientStatus::Failed, ""));
        assert_eq!(reports.due(), Some(start));
    }

    #[tokio::test(start_paused = true)]
    async fn a_030_equal_reports_are_dropped_and_newer_ones_stay() {
        let reports = reports(&["a"]);
        acknowledge(&reports, "a", report(ClientStatus::Running, ""));
        reports.put("a", report(ClientStatus::Running, ""));
        assert_eq!(reports.due(), None);
        reports.put("a", report(ClientStatus::Running, "old"));
        let sent = reports.take(Along::All);
        reports.put("a", report(ClientStatus::Running, "new"));
        for (uid, report) in sent {
            reports.put_back(&uid, report);
        }
        assert_eq!(reports.take(Along::All)[0].1.description, "new");
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
        assert!(reports.due().is_some());
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
        assert_eq!(it.server.written(), [("x".into(), "new".into()), ("y".into(), "kept".into())]);
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
