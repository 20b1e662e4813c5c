//! Whole agents on virtual time over a small API server in memory.

mod deaths;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use drover_api::allocation::{ClientStatus, DesiredStatus, TaskEventType};
use drover_api::{Allocation, AllocationSpec, ClientNode, JobSpec, JobVersion, JobVersionSpec};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::*;
use crate::allocations::plan::{AllocPlan, Runners};
use crate::reporting::report::Report;
use crate::state::StateWrite;
use drover_clock::Clock;
use drover_store::{Change, Key, Object, Part, Precondition, Selection, Store, StoreError};

#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.0.elapsed()).expect("a span");
        Timestamp::from_second(1_800_000_000).expect("a time") + since
    }
}

type Id = (TypeId, Key);

/// What a watch says of an object.
enum Sent {
    Restarted,
    Present(Value),
    InSync,
    Gone(Value),
}

struct Watcher {
    kind: TypeId,
    fields: Option<String>,
    send: UnboundedSender<Sent>,
}

/// Objects, their watchers, and what was written.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<ApiState>>);

#[derive(Default)]
struct ApiState {
    objects: BTreeMap<Id, Value>,
    watchers: Vec<Watcher>,
    version: u64,
    journal: Vec<String>,
    /// Watches hear nothing.
    is_mute: bool,
    /// What was read, and when.
    reads: Vec<(Key, Instant)>,
    /// What may not be read.
    forbidden: Option<Key>,
    /// Says what becomes of an agent that writes.
    fates: Option<deaths::Fates>,
}

fn selects(fields: Option<&str>, object: &Value) -> bool {
    let Some((path, wanted)) = fields.and_then(|fields| fields.split_once('=')) else { return true };
    path.split('.').try_fold(object, |value, part| value.get(part)).and_then(Value::as_str) == Some(wanted)
}

impl Api {
    fn put<K: Object>(&self, key: &Key, mut object: Value, verb: &str) -> K {
        let mut state = self.0.lock().expect("no panic");
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", key.name));
        }
        state.journal.push(format!("{verb} {key} {object}"));
        let kind = TypeId::of::<K>();
        state.objects.insert((kind, key.clone()), object.clone());
        let hears = |it: &&Watcher| it.kind == kind && selects(it.fields.as_deref(), &object);
        for watcher in state.watchers.iter().filter(hears).filter(|_| !state.is_mute) {
            drop(watcher.send.send(Sent::Present(object.clone())));
        }
        serde_json::from_value(object).expect("an object")
    }

    fn add<K: Object>(&self, object: &K) {
        drop(self.put::<K>(&object.key(), serde_json::to_value(object).expect("JSON"), "add"));
    }

    fn change<K: Object>(&self, key: &Key, change: impl FnOnce(&mut Value)) {
        let mut object = self.object::<K>(key).expect("it is there");
        change(&mut object);
        drop(self.put::<K>(key, object, "change"));
    }

    fn remove<K: Object>(&self, key: &Key) {
        let mut state = self.0.lock().expect("no panic");
        let kind = TypeId::of::<K>();
        let object = state.objects.remove(&(kind, key.clone())).expect("it is there");
        for watcher in state.watchers.iter().filter(|it| it.kind == kind && !state.is_mute) {
            drop(watcher.send.send(Sent::Gone(object.clone())));
        }
    }

    fn mute(&self) {
        self.0.lock().expect("no panic").is_mute = true;
    }

    /// Watches hear everything anew, as after a broken connection.
    fn relist(&self) {
        let mut state = self.0.lock().expect("no panic");
        state.is_mute = false;
        for watcher in &state.watchers {
            drop(watcher.send.send(Sent::Restarted));
            for ((kind, _), object) in &state.objects {
                if *kind == watcher.kind && selects(watcher.fields.as_deref(), object) {
                    drop(watcher.send.send(Sent::Present(object.clone())));
                }
            }
            drop(watcher.send.send(Sent::InSync));
        }
    }

    fn forbid(&self, key: Key) {
        self.0.lock().expect("no panic").forbidden = Some(key);
    }

    fn reads_of(&self, name: &str) -> Vec<Instant> {
        let state = self.0.lock().expect("no panic");
        state.reads.iter().filter(|(key, _)| key.name == name).map(|(_, at)| *at).collect()
    }

    fn object<K: Object>(&self, key: &Key) -> Option<Value> {
        self.0.lock().expect("no panic").objects.get(&(TypeId::of::<K>(), key.clone())).cloned()
    }

    fn allocation(&self) -> Allocation {
        serde_json::from_value(self.object::<Allocation>(&alloc_key()).expect("it is there")).expect("an allocation")
    }

    fn status(&self) -> drover_api::AllocationStatus {
        self.allocation().status.unwrap_or_default()
    }

    fn journal(&self) -> Vec<String> {
        self.0.lock().expect("no panic").journal.clone()
    }

    /// Writes for an agent, unless it dies before; it is never ready for one that dies.
    async fn written<K: Object>(&self, write: impl FnOnce(&Self) -> K) -> Result<K, StoreError> {
        // Heartbeats are many, and each is like the others.
        let is_beat = TypeId::of::<K>() == TypeId::of::<Lease>();
        let fates = self.0.lock().expect("no panic").fates.clone().filter(|_| !is_beat);
        let fate = fates.map_or(StateWrite::Kept, |fates| fates.next());
        let answer = (fate != StateWrite::DiedBefore).then(|| write(self));
        match answer.filter(|_| fate == StateWrite::Kept) {
            Some(answer) => Ok(answer),
            None => std::future::pending().await,
        }
    }

    async fn until(&self, what: &str, changes: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_hours(1);
        while !changes(self) {
            assert!(Instant::now() < deadline, "never {what}: {:#?}", self.journal());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Store for Api {
    async fn get<K: Object>(&self, key: &Key) -> Result<Option<K>, StoreError> {
        let is_forbidden = {
            let mut state = self.0.lock().expect("no panic");
            state.reads.push((key.clone(), Instant::now()));
            state.forbidden.as_ref() == Some(key)
        };
        if is_forbidden {
            return Err(StoreError::Forbidden(key.to_string()));
        }
        Ok(self.object::<K>(key).map(|object| serde_json::from_value(object).expect("an object")))
    }

    async fn list<K: Object>(&self, _: &Selection) -> Result<Vec<K>, StoreError> {
        Err(StoreError::Invalid("agents do not list".into()))
    }

    fn watch<K: Object>(&self, selection: Selection) -> BoxStream<'static, Change<K>> {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let mut state = self.0.lock().expect("no panic");
        let kind = TypeId::of::<K>();
        let read = |object: Value| Change::Present(Box::new(serde_json::from_value(object).expect("an object")));
        let found =
            state.objects.iter().filter(|((of, _), it)| *of == kind && selects(selection.fields.as_deref(), it));
        let mut first = vec![Change::Restarted];
        first.extend(found.map(|(_, object)| read(object.clone())));
        first.push(Change::InSync);
        state.watchers.push(Watcher { kind, fields: selection.fields, send });
        let rest = futures::stream::poll_fn(move |context| receive.poll_recv(context)).map(move |sent| match sent {
            Sent::Restarted => Change::Restarted,
            Sent::InSync => Change::InSync,
            Sent::Present(object) => read(object),
            Sent::Gone(object) => Change::Gone(Box::new(serde_json::from_value(object).expect("an object"))),
        });
        futures::stream::iter(first).chain(rest).boxed()
    }

    async fn create<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let key = object.key();
        if self.object::<K>(&key).is_some() {
            return Err(StoreError::AlreadyExists(key.to_string()));
        }
        self.written(|api| api.put(&key, serde_json::to_value(object).expect("JSON"), "create")).await
    }

    async fn apply_status<K: Object>(
        &self,
        key: &Key,
        _: &'static str,
        precondition: &Precondition,
        body: Value,
    ) -> Result<K, StoreError> {
        let mut object = self.object::<K>(key).ok_or_else(|| StoreError::NotFound(key.to_string()))?;
        let is_stale = precondition
            .resource_version
            .as_ref()
            .is_some_and(|version| object["metadata"]["resourceVersion"] != json!(version));
        if is_stale {
            return Err(StoreError::Conflict(key.to_string()));
        }
        for (name, value) in body["status"].as_object().expect("a status") {
            object["status"][name] = value.clone();
        }
        self.written(|api| api.put(key, object, "apply")).await
    }

    async fn merge<K: Object>(&self, _: &Key, _: Part, _: &Precondition, _: Value) -> Result<K, StoreError> {
        Err(StoreError::Invalid("agents do not merge".into()))
    }

    async fn replace<K: Object>(&self, object: &K) -> Result<K, StoreError> {
        let key = object.key();
        if self.object::<K>(&key).is_none() {
            return Err(StoreError::NotFound(key.to_string()));
        }
        self.written(|api| api.put(&key, serde_json::to_value(object).expect("JSON"), "replace")).await
    }

    async fn delete<K: Object>(&self, _: &Key, _: &Precondition) -> Result<(), StoreError> {
        Err(StoreError::Invalid("agents do not delete".into()))
    }
}

fn alloc_key() -> Key {
    Key::namespaced("default", "web-0")
}

fn config() -> AgentConfig {
    AgentConfig::parse("nodeName: n-1\nstateDir: /none/state\nallocDir: /none/allocs\n", Path::new("agent.yaml"))
        .expect("a configuration")
}

/// An API server with one allocation of a job with this group.
fn api(group: Value) -> Api {
    let api = Api::default();
    let mut group = group;
    group["name"] = json!("g");
    let job: JobSpec = serde_json::from_value(json!({"type": "service", "groups": [group]})).expect("a job");
    let version = JobVersionSpec {
        job_name: "web".into(),
        job_uid: "job-uid".into(),
        version: 1,
        job_generation: 1,
        group_names: "g".into(),
        job,
        submitted_at: Timestamp::UNIX_EPOCH,
        revert_of: None,
        intent: String::new(),
    };
    let mut version = JobVersion::new(&drover_api::names::job_version_name("web", 1), version);
    version.metadata.namespace = Some("default".into());
    api.add(&version);
    api.add(&allocation("web-0", 1));
    api
}

fn allocation(name: &str, generation: i64) -> Allocation {
    let spec = AllocationSpec {
        job_name: "web".into(),
        job_uid: "job-uid".into(),
        job_version: 1,
        group: "g".into(),
        node_name: "n-1".into(),
        ..AllocationSpec::default()
    };
    let mut allocation = Allocation::new(name, spec);
    (allocation.metadata.namespace, allocation.metadata.generation) = (Some("default".into()), Some(generation));
    allocation
}

fn version_key() -> Key {
    Key::namespaced("default", drover_api::names::job_version_name("web", 1))
}

/// An agent's life, as a task of its own.
fn begin(machine: &Machine, api: &Api, seed: u64) -> (JoinSet<()>, CancellationToken) {
    begin_with(machine, api, seed, None)
}

/// The same of an agent whose writes to its state may be its last.
fn begin_with(
    machine: &Machine,
    api: &Api,
    seed: u64,
    faults: Option<StateFaults>,
) -> (JoinSet<()>, CancellationToken) {
    let stop = CancellationToken::new();
    let mut fingerprint = Fingerprint::default();
    fingerprint.resources.memory_mb = 1000;
    let clock = Arc::new(VirtualClock(Instant::now()));
    let life = Life { config: config(), fingerprint, clock, seed, faults, stop: stop.clone() };
    let (machine, api) = (machine.clone(), api.clone());
    let mut agent = JoinSet::new();
    agent.spawn(async move { machine.run_agent(api, life).await });
    (agent, stop)
}

type Seen = Arc<Mutex<Vec<TaskChange>>>;

fn machine() -> (Machine, Seen) {
    let changes = Seen::default();
    let sees = Arc::clone(&changes);
    (Machine::new("n-1", move |_, change| sees.lock().expect("no panic").push(change)), changes)
}

fn group() -> Value {
    json!({"migrate": {"minHealthyTime": "2s"},
           "tasks": [{"name": "t", "driver": "mock", "config": {"runFor": "1h", "healthyAfter": "5s"}}]})
}

async fn whole_life(seed: u64) -> Vec<String> {
    let (api, (machine, changes)) = (api(group()), machine());
    let (mut agent, stop) = begin(&machine, &api, seed);
    api.until("healthy", |api| api.status().health.is_some_and(|health| health.healthy)).await;
    let (started, judged) = {
        let status = api.status();
        (status.task_states["t"].started_at.expect("a start"), status.health.expect("a verdict").timestamp)
    };
    assert_eq!(judged.duration_since(started), SignedDuration::from_secs(7), "5 s without the driver's word, then 2 s");
    assert!(api.object::<Lease>(&Key::namespaced("drover-system", "node-n-1")).is_some());
    assert!(api.object::<ClientNode>(&Key::cluster("n-1")).is_some());
    stop.cancel();
    while agent.join_next().await.is_some() {}
    assert_eq!(*changes.lock().expect("no panic"), [TaskChange::Started], "an agent's end touches no task");
    // A crash of the next one, and the one after that finds the task again.
    let (crashed, _) = begin(&machine, &api, seed);
    api.until("registered again", |api| api.journal().iter().filter(|line| line.starts_with("replace")).count() > 2)
        .await;
    drop(crashed);
    let (mut agent, stop) = begin(&machine, &api, seed);
    assert!(machine.restart("nobody", Restart::All).await.is_err());
    let uid = api.allocation().metadata.uid.expect("a uid");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(machine.end_task(&uid, "t", SimulatedEnd::OutOfMemory));
    api.until("started again", |api| api.status().task_states["t"].restarts == 1).await;
    let events: Vec<TaskEventType> = api.status().task_states["t"].events.iter().map(|event| event.r#type).collect();
    assert!(events.contains(&TaskEventType::Terminated) && events.contains(&TaskEventType::Restarting), "{events:?}");
    api.until("runs again", |api| api.status().client_status == ClientStatus::Running).await;
    api.change::<Allocation>(&alloc_key(), |object| {
        object["metadata"]["generation"] = json!(2);
        object["spec"]["desiredStatus"] = json!(DesiredStatus::Stop);
    });
    api.until("ended", |api| api.status().ended_at.is_some()).await;
    stop.cancel();
    while agent.join_next().await.is_some() {}
    assert_eq!(*changes.lock().expect("no panic"), {
        use TaskChange::{Ended, Started, StopAsked};
        [Started, Ended, Started, StopAsked, Ended]
    });
    api.journal()
}

#[tokio::test(start_paused = true)]
async fn a_whole_life_is_the_same_with_the_same_seed() {
    let first = whole_life(1).await;
    assert_eq!(first, whole_life(1).await);
    assert_ne!(first, whole_life(2).await, "another seed draws other pauses");
}

#[tokio::test(start_paused = true)]
async fn a_024_a_list_removes_updates_ignores_and_adds() {
    let (api, (machine, changes)) = (api(group()), machine());
    let key = |name: &str| Key::namespaced("default", name);
    api.remove::<Allocation>(&alloc_key());
    for (name, generation) in [("a", 1), ("b", 2), ("c", 3)] {
        api.add(&allocation(name, generation));
    }
    let status = |api: &Api, name: &str| -> drover_api::AllocationStatus {
        let object = api.object::<Allocation>(&key(name)).expect("it is there");
        serde_json::from_value::<Allocation>(object).expect("an allocation").status.unwrap_or_default()
    };
    let (_agent, _stop) = begin(&machine, &api, 1);
    let healthy = |api: &Api, name: &str| status(api, name).health.is_some_and(|health| health.healthy);
    api.until("healthy", |api| ["a", "b", "c"].iter().all(|name| healthy(api, name))).await;
    api.mute();
    api.remove::<Allocation>(&key("a"));
    api.change::<Allocation>(&key("b"), |object| {
        object["metadata"]["generation"] = json!(5);
        object["spec"]["desiredStatus"] = json!(DesiredStatus::Stop);
    });
    api.add(&allocation("d", 1));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let of_c = || api.journal().iter().filter(|line| line.contains("default/c")).count();
    let before = of_c();
    assert!(!healthy(&api, "d") && status(&api, "b").ended_at.is_none(), "nothing is heard yet");
    api.relist();
    api.until("added", |api| healthy(api, "d")).await;
    api.until("updated", |api| status(api, "b").client_status == ClientStatus::Complete).await;
    let seen = changes.lock().expect("no panic").clone();
    let count = |wanted: &TaskChange| seen.iter().filter(|change| *change == wanted).count();
    assert_eq!((count(&TaskChange::Started), count(&TaskChange::Ended)), (4, 2), "a and b have ended, c runs on");
    assert_eq!(of_c(), before, "what has not changed is not touched");
}

#[tokio::test(start_paused = true)]
async fn a_025_what_is_not_there_to_read_holds_the_allocation_up_and_no_other_and_is_read_again() {
    let (api, (machine, changes)) = (api(group()), machine());
    let version = api.object::<JobVersion>(&version_key()).expect("it is there");
    api.remove::<JobVersion>(&version_key());
    // Of three allocations two have a version that can be read. Each is an object of its own: they need not wait.
    let mut newer = version.clone();
    newer["metadata"] = json!({ "name": drover_api::names::job_version_name("web", 2), "namespace": "default" });
    newer["spec"]["version"] = json!(2);
    api.add(&serde_json::from_value::<JobVersion>(newer).expect("a version"));
    for name in ["web-1", "web-2"] {
        let mut other = allocation(name, 1);
        other.spec.job_version = 2;
        api.add(&other);
    }
    let (_agent, _stop) = begin(&machine, &api, 1);
    let reads = || api.reads_of(&version_key().name);
    api.until("read twice", |_| reads().len() == 2).await;
    let pause = reads()[1].duration_since(reads()[0]);
    assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&pause), "{pause:?}");
    assert!(api.status().task_states.is_empty(), "nothing of it is applied");
    assert_eq!(*changes.lock().expect("no panic"), [TaskChange::Started, TaskChange::Started], "the others run");
    drop(api.put::<JobVersion>(&version_key(), version, "add"));
    api.until("running", |api| api.status().client_status == ClientStatus::Running).await;
}

#[tokio::test(start_paused = true)]
async fn a_168_a_previous_allocation_that_may_not_be_read_is_asked_for_once() {
    let (api, (machine, _)) = (api(group()), machine());
    api.change::<Allocation>(&alloc_key(), |object| object["spec"]["previousAllocation"] = json!("web-before"));
    api.forbid(Key::namespaced("default", "web-before"));
    let (_agent, _stop) = begin(&machine, &api, 1);
    api.until("running", |api| api.status().client_status == ClientStatus::Running).await;
    assert_eq!(api.reads_of("web-before").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_ran_when_power_was_lost_is_started_again_once_the_controller_wants_it() {
    let (api, (machine, changes)) = (api(group()), machine());
    let (crashed, _) = begin(&machine, &api, 1);
    api.until("running", |api| api.status().client_status == ClientStatus::Running).await;
    drop(crashed);
    machine.lose_power();
    let (_agent, _stop) = begin(&machine, &api, 1);
    api.until("running", |_| changes.lock().expect("no panic").len() == 2).await;
    assert_eq!(*changes.lock().expect("no panic"), [TaskChange::Started, TaskChange::Started]);
    api.until("said", |api| {
        api.status().task_states["t"].events.iter().any(|event| event.r#type == TaskEventType::FailedRestoringTask)
    })
    .await;
}

/// Runners that do no more than say that they run.
#[derive(Clone, Default)]
struct Minimal(Arc<Mutex<Vec<String>>>);

impl Runners for Minimal {
    fn run(&self, plan: AllocPlan) -> BoxFuture<'static, ()> {
        let calls = Arc::clone(&self.0);
        async move {
            calls.lock().expect("no panic").push(format!("run {}", plan.uid));
            plan.reports.put(&plan.uid, Report { client_status: ClientStatus::Running, ..Report::default() });
            let mut wanted = plan.wanted;
            drop(wanted.wait_for(|wanted| wanted.is_destroyed).await);
            calls.lock().expect("no panic").push("destroyed".into());
        }
        .boxed()
    }
}

/// The parts of an agent whose runners do next to nothing.
fn parts(api: &Api, runners: &Minimal) -> (NodeParts<Api, Minimal>, watch::Sender<Fingerprint>) {
    let mut fingerprint = Fingerprint::default();
    fingerprint.resources.memory_mb = 1000;
    let (print, seen) = watch::channel(fingerprint);
    let parts = NodeParts {
        store: api.clone(),
        contacted: watch::Sender::new(false),
        runners: runners.clone(),
        name: "n-1".into(),
        config: Arc::new(config()),
        machine: MachineParts {
            users: crate::node::task_users::TaskUsers::none(),
            host_volumes: crate::watch::Sender::new(std::collections::BTreeMap::new()),
            networks: crate::networks::AllocNetworks::pretended(),
            drivers: Drivers::default(),
            devices: Devices::default(),
            disk: Arc::new(MemoryDisk::default()),
            disks: Arc::new(crate::remote_disks::NoRemoteDisks),
            fingerprint: seen,
            host_env: BTreeMap::new(),
            prober: Arc::new(crate::checks::AlwaysWell),
            fetcher: Arc::new(crate::artifacts::AlwaysFetched),
            renderer: Arc::new(crate::renderer::PromptRenderer),
            values: Arc::new(crate::values::NoValues),
            api: Arc::new(crate::task_api::NoTaskApis),
        },
        news: mpsc::channel(1).1,
        clock: Arc::new(VirtualClock(Instant::now())),
        random: Random::seeded(1),
        state: MemoryState::default().store(),
        earlier: EarlierLife {
            saved: crate::state::Saved::default(),
            is_state_lost: false,
            recovering: mpsc::channel(1).0,
        },
        shown: SocketView { reports: Reports::default(), directory: Directory::default() },
        metrics: crate::reporting::metrics::NodeMetrics::default(),
        plugins: OtherPlugins::default(),
        stop: CancellationToken::new(),
    };
    (parts, print)
}

/// The writes of this machine's node, with the time since the test began.
fn node_writes(api: &Api) -> usize {
    api.journal().iter().filter(|line| line.contains(" n-1 {")).count()
}

#[tokio::test(start_paused = true)]
async fn a_044_a_minimal_runner_of_a_factory_is_run_once_reported_and_destroyed() {
    let (api, minimal) = (api(group()), Minimal::default());
    let (parts, _print) = parts(&api, &minimal);
    let stop = parts.stop.clone();
    let mut agent = JoinSet::new();
    agent.spawn(run_node(parts));
    api.until("running", |api| api.status().client_status == ClientStatus::Running).await;
    api.change::<Allocation>(&alloc_key(), |object| object["spec"]["nodeName"] = json!("n-1"));
    tokio::time::sleep(Duration::from_mins(5)).await;
    let uid = api.allocation().metadata.uid.expect("a uid");
    assert_eq!(
        *minimal.0.lock().expect("no panic"),
        [format!("run {uid}")],
        "the watch brings it again, the runner stays"
    );
    assert_eq!(api.status().client_status, ClientStatus::Running);
    api.remove::<Allocation>(&alloc_key());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(minimal.0.lock().expect("no panic")[1..], ["destroyed"]);
    stop.cancel();
    assert!(agent.join_next().await.expect("the agent").is_ok(), "the agent goes on, and ends well");
}

#[tokio::test(start_paused = true)]
async fn a_007_facts_that_change_together_are_written_once() {
    let api = Api::default();
    let (parts, print) = parts(&api, &Minimal::default());
    let mut agent = JoinSet::new();
    agent.spawn(run_node(parts));
    api.until("registered", |api| node_writes(api) == 2).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let (start, before) = (Instant::now(), node_writes(&api));
    assert_eq!(before, 2, "one create, one fingerprint");
    for n in 0..3 {
        print.send_modify(|print| drop(print.attributes.insert(format!("k{n}"), "v".into())));
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    api.until("written", |api| node_writes(api) > before).await;
    let after = start.elapsed();
    assert!((5..=10).contains(&after.as_secs()), "{after:?}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(node_writes(&api), before + 1);
    let node = api.object::<ClientNode>(&Key::cluster("n-1")).expect("a node");
    assert_eq!(node["status"]["fingerprint"]["attributes"], json!({"k0": "v", "k1": "v", "k2": "v"}));
}

#[tokio::test(start_paused = true)]
async fn a_008_a_node_that_is_gone_is_registered_again_and_beats_within_ten_seconds() {
    let api = Api::default();
    let (parts, _print) = parts(&api, &Minimal::default());
    let mut agent = JoinSet::new();
    agent.spawn(run_node(parts));
    let lease = Key::namespaced("drover-system", "node-n-1");
    api.until("beating", |api| api.object::<Lease>(&lease).is_some()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let version = |api: &Api| api.object::<Lease>(&lease).map(|lease| lease["metadata"]["resourceVersion"].clone());
    // Both answers of "not found": the node's own object, and the Lease.
    let (start, before) = (Instant::now(), version(&api));
    api.remove::<ClientNode>(&Key::cluster("n-1"));
    api.until("registered again", |api| api.object::<ClientNode>(&Key::cluster("n-1")).is_some()).await;
    api.until("beating", |api| version(api) != before).await;
    assert!(start.elapsed() <= Duration::from_secs(10), "{:?}", start.elapsed());
    let start = Instant::now();
    api.remove::<Lease>(&lease);
    api.until("beating", |api| api.object::<Lease>(&lease).is_some()).await;
    assert!(start.elapsed() <= Duration::from_secs(10), "{:?}", start.elapsed());
}
