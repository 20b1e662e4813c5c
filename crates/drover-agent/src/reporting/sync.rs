//! Carries the runners' reports (`reports`) to the API server: the newest of each allocation, soon when it matters,
//! together when not.
//!
//! Runners never wait for it. A report leaves at once when it is urgent and the last one of its allocation is
//! 200 ms old, else within a second; whatever else is pending goes along. (Nomad spaces the sends of the whole agent,
//! because one request carries them all. Here each allocation is a request of its own, so spacing them all would only
//! make starts slow.) A few requests are under way at the same time, fewer for what can wait, and whenever one is
//! answered the report leaves that matters most. While tasks are being started, that others run is told later: on a
//! small machine the API server takes more for a write than a start costs. Nothing is sent before the first list of
//! allocations was applied, nor while the controller holds the node for silent: then the Lease is renewed first
//! (`spec/agent.md` sections 3.4 and 3.5).

use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, field_manager};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::node::view::NodeView;
use crate::random::Random;
use crate::reporting::report::{self, Report};
use crate::reporting::reports::{GiveWay, Reports, Taken};
use crate::state::StateStore;
use crate::tasks::starts::Starts;
use crate::watch;
use drover_clock::{SharedClock, sleep_until};
use drover_store::{ErrorClass, Key, Object, Part, Precondition, Store, StoreError};

/// The pause after a failed send, doubled at random.
const RETRY: Duration = Duration::from_secs(5);
/// Requests at the same time.
const PARALLEL: usize = 8;
/// Requests for what can wait at the same time: a verdict that comes meanwhile shall find the API server with time for
/// it.
const PARALLEL_CALM: usize = 3;
/// Requests at the same time, from which on nothing that can wait is sent while tasks are being started.
const PARALLEL_BESIDE_STARTS: usize = 1;
/// How long a write is tried again while the API server cannot be reached: while it is replaced, for a moment no
/// server listens.
const HOLD: Duration = Duration::from_secs(5);
/// The longest pause between two such tries.
const HOLD_PAUSE: Duration = Duration::from_micros(5_000_000 / 16);
/// How often one report is decided again after a conflict before the others have their turn.
const CONFLICT_TRIES: usize = 4;

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
    /// Sends until it is dropped.
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
                    if this.settle(&taken.uid, taken.report, outcome) == NextReport::Pause {
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
                () = this.reports.changed() => {}
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

    /// Notes what became of a report. When the API server does not answer once, it is not asked again for the others at
    /// once: each try may cost the whole time limit.
    fn settle(&self, uid: &str, report: Report, outcome: Outcome) -> NextReport {
        let now = Instant::now();
        match outcome {
            Outcome::Accepted => NextReport::GoOn,
            Outcome::Obsolete => {
                self.reports.drop_sent(uid);
                NextReport::GoOn
            }
            Outcome::NotReady => {
                self.reports.put_back(uid, report, now);
                NextReport::GoOn
            }
            Outcome::Failed(error) => {
                tracing::warn!(allocation = uid, error = %error, "status was not accepted and is kept");
                let is_silent = error.class() == ErrorClass::Transient;
                let pause = if is_silent { Duration::ZERO } else { self.random.jitter(RETRY) };
                self.reports.put_back(uid, report, now + pause);
                if is_silent { NextReport::Pause } else { NextReport::GoOn }
            }
        }
    }

    async fn deliver(&self, taken: Taken) -> (Taken, Outcome) {
        let outcome = self.send(&taken.uid, &taken.report).await;
        (taken, outcome)
    }

    async fn send(&self, uid: &str, report: &Report) -> Outcome {
        // What others act upon must not be unknown to the next life of the agent because this one died on the way.
        if self.reports.binds(uid, report) {
            self.keep(uid).await;
        }
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
            let written = self.store.apply_status(key, field_manager::AGENT, unchanged, body.clone()).await;
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
enum NextReport {
    GoOn,
    /// For a while nothing is sent.
    Pause,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use drover_api::allocation::{ClientStatus, ServiceRegistration};
    use drover_api::client_node::NodePhase;

    use super::*;
    use crate::reporting::reports::tests::{acknowledge, report, reports};
    use crate::state::{AllocRecord, MemoryState};
    use drover_store::{Change, Selection};

    /// An API server that accepts status writes, or not.
    #[derive(Clone, Debug, Default)]
    struct Server {
        /// What the next writes meet; empty: they are accepted.
        script: Arc<Mutex<Vec<Answer>>>,
        writes: Arc<Mutex<Vec<(String, serde_json::Value, Instant)>>>,
        /// When a write was asked for, whatever became of it.
        calls: Arc<Mutex<Vec<Instant>>>,
        /// Whether it has the allocations, too, whose uids are their names.
        has_objects: bool,
    }

    #[derive(Clone, Debug)]
    enum Answer {
        /// Nobody listens.
        Unreachable,
        Fails,
        /// There is no such object, and there will not be one.
        Missing,
        Hangs(Duration),
        /// Another write was first, which is told after this time.
        Stale(Duration),
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

    /// An allocation as this kind, which it is.
    fn allocation<K: Object>(name: &str) -> K {
        let mut allocation = Allocation::new(name, drover_api::AllocationSpec::default());
        allocation.metadata.uid = Some(name.to_owned());
        let object = serde_json::to_value(allocation).expect("an object");
        serde_json::from_value(object).expect("an allocation")
    }

    fn away<T>() -> Result<T, StoreError> {
        Err(StoreError::Unavailable("not asked for".to_owned()))
    }

    impl Store for Server {
        async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
            Ok(self.has_objects.then(|| allocation(&key.name)))
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
        async fn apply_status<K: Object>(
            &self,
            key: &Key,
            _: &'static str,
            _: &Precondition,
            body: serde_json::Value,
        ) -> Result<K, StoreError> {
            let answer = self.script.lock().expect("no panic while it was held").pop();
            self.calls.lock().expect("no panic while it was held").push(Instant::now());
            match answer {
                Some(Answer::Missing) => return Err(StoreError::NotFound(key.to_string())),
                Some(Answer::Unreachable) => return away(),
                Some(Answer::Fails) => return Err(StoreError::Timeout(Duration::ZERO)),
                Some(Answer::Hangs(span)) => {
                    tokio::time::sleep(span).await;
                    return Err(StoreError::Timeout(span));
                }
                Some(Answer::Stale(span)) => {
                    tokio::time::sleep(span).await;
                    return Err(StoreError::Conflict(key.to_string()));
                }
                None => {}
            }
            let write = (key.name.clone(), body, Instant::now());
            self.writes.lock().expect("no panic while it was held").push(write);
            Ok(allocation(&key.name))
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

    impl drover_clock::Clock for FixedClock {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }
    }

    /// A sender under way; it ends with the test.
    struct Sending {
        server: Server,
        reports: Reports,
        memory: MemoryState,
        contacted: watch::Sender<bool>,
        node: watch::Sender<NodeView>,
        heartbeat: Arc<Notify>,
        _tasks: tokio::task::JoinSet<()>,
    }

    fn sending(uids: &[&str], script: Vec<Answer>) -> Sending {
        sending_to(Server { script: Arc::new(Mutex::new(script)), ..Server::default() }, uids)
    }

    fn sending_to(server: Server, uids: &[&str]) -> Sending {
        let mut tasks = tokio::task::JoinSet::new();
        let (memory, heartbeat) = (MemoryState::default(), Arc::<Notify>::default());
        let (contacted, node) = (watch::Sender::new(true), watch::Sender::new(NodeView::default()));
        let reports = reports(uids);
        let sync = Sync {
            store: server.clone(),
            state: memory.store(),
            clock: Arc::new(FixedClock),
            random: Random::seeded(7),
            reports: reports.clone(),
            contacted: contacted.subscribe(),
            node: node.subscribe(),
            heartbeat: Arc::clone(&heartbeat),
            reachable: Arc::default(),
            starts: Starts::default(),
        };
        tasks.spawn(sync.run());
        Sending { server, reports, memory, contacted, node, heartbeat, _tasks: tasks }
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
    async fn a_036_a_038_and_p_074_nothing_is_sent_before_the_first_list_and_then_also_by_a_node_that_initializes() {
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
    async fn a_037_what_a_silent_nodes_mark_refuses_waits_for_a_heartbeat_and_is_accepted_once() {
        let script = Arc::new(Mutex::new(vec![Answer::Stale(Duration::from_millis(10))]));
        let it = sending_to(Server { script, has_objects: true, ..Server::default() }, &["a"]);
        it.reports.put("a", report(ClientStatus::Running, "told"));
        pass(1).await;
        // The controller marks the allocation, and the agent learns that its node counts as disconnected.
        it.node.send_replace(NodeView { phase: NodePhase::Disconnected, ..NodeView::default() });
        let n_calls = || it.server.calls.lock().expect("no panic while it was held").len();
        tokio::time::timeout(Duration::from_secs(1), it.heartbeat.notified()).await.expect("a heartbeat is asked for");
        pass(60_000).await;
        assert_eq!((n_calls(), it.server.written().len()), (1, 0), "nothing else is tried");
        it.node.send_replace(NodeView { phase: NodePhase::Ready, ..NodeView::default() });
        pass(60_000).await;
        assert_eq!((n_calls(), it.server.written()), (2, vec![("a".to_owned(), "told".to_owned())]));
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

    fn with_service(ready: bool) -> Report {
        let service = ServiceRegistration {
            id: "api".to_owned(),
            service_name: "api".to_owned(),
            ready,
            ..ServiceRegistration::default()
        };
        Report { services: vec![service], ..report(ClientStatus::Running, "") }
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_agent_has_to_stand_by_is_kept_before_it_is_told() {
        let it = sending(&["a"], vec![Answer::Hangs(Duration::from_secs(1)), Answer::Hangs(Duration::from_secs(1))]);
        let kept =
            || it.memory.saved().allocs.get("a").map(|record| (record.acknowledged.clone(), record.tried.clone()));
        acknowledge(&it.reports, "a", report(ClientStatus::Running, ""));
        it.reports.put("a", with_service(true));
        pass(500).await;
        // It may have been read already, though no answer has come.
        assert_eq!(kept(), Some((Some(report(ClientStatus::Running, "")), Some(with_service(true)))));
        // Nor does a try that failed say that it was not.
        pass(1_500).await;
        it.memory.store().put_alloc("a", &it.reports.record("a").expect("known")).await.expect("kept");
        assert_eq!(kept().and_then(|(_, tried)| tried), Some(with_service(true)));
        pass(23_000).await;
        assert_eq!(kept(), Some((Some(with_service(true)), None)));
        // The next life begins with it, and tells it again.
        let next = sending(&[], Vec::new());
        let acknowledged = Some(report(ClientStatus::Running, ""));
        let record = AllocRecord { allocation: allocation("a"), acknowledged, tried: Some(with_service(true)) };
        next.reports.restore("a", &record);
        assert_eq!(next.reports.latest("a"), Some(with_service(true)));
        // Nothing has changed beside what was accepted first.
        next.reports.put("a", report(ClientStatus::Running, ""));
        pass(1_500).await;
        assert_eq!(next.server.written().len(), 1, "the API server may have what was sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_145_what_is_not_registered_any_more_is_written_until_its_object_is_gone() {
        let it = sending(&["a"], vec![Answer::Missing, Answer::Unreachable, Answer::Unreachable]);
        acknowledge(&it.reports, "a", with_service(true));
        it.reports.put("a", report(ClientStatus::Running, ""));
        let start = Instant::now();
        pass(60_000).await;
        let calls = it.server.calls.lock().expect("no panic while it was held").clone();
        assert_eq!((calls.len(), it.server.written().len()), (3, 0), "the third is the last");
        assert!(calls[2].duration_since(start) < Duration::from_secs(1), "{calls:?} after {start:?}");
        assert_eq!(it.reports.due(GiveWay::No), None, "nothing is left to be told");
    }

    #[tokio::test(start_paused = true)]
    async fn b_044_a_check_that_flaps_ten_times_a_second_is_one_write_a_second() {
        let it = sending(&["a"], Vec::new());
        acknowledge(&it.reports, "a", with_service(true));
        pass(5_000).await;
        for n in 0..100 {
            it.reports.put("a", with_service(n % 2 == 1));
            pass(100).await;
        }
        let flapping = it.server.writes.lock().expect("no panic while it was held").clone();
        assert_eq!(flapping.len(), 10, "in ten seconds");
        let gaps = flapping.windows(2).map(|pair| pair[1].2.duration_since(pair[0].2));
        assert!(gaps.clone().all(|gap| gap >= Duration::from_secs(1)), "{:?}", gaps.collect::<Vec<_>>());
        pass(2_000).await;
        let writes = it.server.writes.lock().expect("no panic while it was held").clone();
        let ready = writes.last().map(|(_, last, _)| last["status"]["services"][0]["ready"].clone());
        assert_eq!(
            (ready, it.reports.due(GiveWay::No)),
            (Some(serde_json::json!(true)), None),
            "the last word is told"
        );
    }
}
