//! What holds for every plan, whatever the cluster looks like.

use drover_api::client_node::{DeviceGroup, DeviceInstance};
use proptest::prelude::*;

use super::*;
use crate::ids::AllocKey;
use crate::scheduler::apply;
use crate::scheduler::reconcile::lost_after;
use crate::settings::{Preemption, Settings};
use crate::usage::Usage;

/// A random cluster, job and history.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent coins")]
struct Picture {
    kind: &'static str,
    count: i64,
    cpu: i64,
    capacity: i64,
    max_parallel: i64,
    canary: i64,
    has_deployment: u8,
    ports: u8,
    cores: i64,
    gpus: i64,
    spread: bool,
    distinct: bool,
    lost_after: bool,
    there: Vec<(i64, u8, u8, u8)>,
    nodes: Vec<u8>,
    others: Vec<(u8, i64, i64)>,
    priority: i64,
    stopped: bool,
    seed: u64,
}

fn pictures() -> impl Strategy<Value = Picture> {
    let job = (
        prop_oneof![Just("service"), Just("batch"), Just("system"), Just("sysbatch")],
        0_i64..8,
        100_i64..900,
        500_i64..3_000,
        0_i64..4,
        0_i64..3,
    );
    let asks = (0_u8..4, 0_u8..5, 0_i64..3, 0_i64..2, any::<bool>(), any::<bool>(), any::<bool>());
    let there = proptest::collection::vec((0_i64..10, 0_u8..10, 0_u8..6, 0_u8..3), 0..12);
    let rest = (
        proptest::collection::vec(0_u8..10, 0..7),
        proptest::collection::vec((0_u8..6, 1_i64..100, 50_i64..700), 0..8),
        1_i64..100,
        proptest::bool::weighted(0.1),
        any::<u64>(),
    );
    (job, asks, there, rest).prop_map(|(job, asks, there, rest)| Picture {
        kind: job.0,
        count: if job.0 == "system" { job.1.min(1) } else { job.1 },
        cpu: job.2,
        capacity: job.3,
        max_parallel: job.4,
        canary: job.5,
        has_deployment: asks.0,
        ports: asks.1,
        cores: asks.2,
        gpus: asks.3,
        spread: asks.4,
        distinct: asks.5,
        lost_after: asks.6,
        there,
        nodes: rest.0,
        others: rest.1,
        priority: rest.2,
        stopped: rest.3,
        seed: rest.4,
    })
}

fn job_spec(picture: &Picture) -> Value {
    let mut resources = json!({ "memoryMB": 50 });
    match picture.cores {
        0 => resources["cpu"] = json!(picture.cpu),
        n => resources["cores"] = json!(n),
    }
    if picture.gpus > 0 {
        resources["devices"] = json!([{ "name": "gpu", "count": picture.gpus }]);
    }
    let mut spec = json!({ "type": picture.kind, "priority": picture.priority, "groups": [{
        "name": "web", "count": picture.count, "tasks": [{ "name": "t", "driver": "mock", "resources": resources }] }] });
    let group = &mut spec["groups"][0];
    if matches!(picture.kind, "service" | "system") {
        group["update"] = json!({ "maxParallel": picture.max_parallel, "canary": picture.canary });
    }
    if picture.lost_after {
        group["disconnect"] = json!({ "lostAfter": "1m" });
    }
    let ports = match picture.ports {
        1 => json!([{ "label": "http" }]),
        2 => json!([{ "label": "http", "static": 8080 }]),
        3 => json!([{ "label": "a", "static": 8080 }, { "label": "b" }]),
        4 => json!([{ "label": "a", "static": 8080, "ignoreCollision": true }]),
        _ => json!([]),
    };
    group["networks"] = json!([{ "ports": ports }]);
    if picture.spread && matches!(picture.kind, "service" | "batch") {
        group["spreads"] = json!([{ "attribute": "${meta.rack}" }]);
    }
    if picture.distinct && matches!(picture.kind, "service" | "batch") {
        group["constraints"] = json!([{ "operand": "distinct_hosts" }]);
    }
    spec
}

fn machine(picture: &Picture, n: u8, kind: u8) -> Node {
    let mut one = node(&format!("n-{n}"));
    one.allocatable = Amounts { cpu: picture.capacity, memory_mb: 2_000, disk_mb: 100_000 };
    one.cores = (0..4).collect();
    one.core_mhz = 200;
    one.meta.insert("rack".into(), format!("r{}", n % 3));
    let instance = |id: u8| DeviceInstance { id: id.to_string(), healthy: true, ..DeviceInstance::default() };
    one.devices = vec![DeviceGroup {
        vendor: "v".into(),
        r#type: "gpu".into(),
        name: "g".into(),
        instances: (0..2).map(instance).collect(),
        ..DeviceGroup::default()
    }];
    match kind {
        0 => one.phase = NodePhase::Down,
        1 => one.phase = NodePhase::Disconnected,
        2 => one.is_draining = true,
        3 => one.is_eligible = false,
        4 => one.phase = NodePhase::Initializing,
        _ => {}
    }
    one
}

/// A world that a scheduler could have come into: what is there was placed by plans, then things happened to it.
fn world(picture: &Picture) -> World {
    let spec = job_spec(picture);
    let mut world = World::without_nodes(&spec);
    for n in 0..u8::try_from(picture.nodes.len()).unwrap() {
        world.view.put_node(machine(picture, n, 9));
    }
    let preemption = Preemption { service: true, batch: true, ..Preemption::default() };
    world.view.set_settings(Settings { preemption, ..Settings::default() });
    for (n, (at, priority, cpu)) in picture.others.iter().enumerate() {
        other_job(&mut world, picture, n, (*at, *priority, *cpu));
    }
    let plan = world.plan();
    apply_plan(&mut world.view, &world.job, &plan);
    age(&mut world, picture);
    for (n, kind) in picture.nodes.iter().enumerate() {
        world.view.put_node(machine(picture, u8::try_from(n).unwrap(), *kind));
    }
    if picture.has_deployment == 2 {
        // A new version came meanwhile.
        let changed = Definition::new(&serde_json::from_value(before_a_destructive_change(spec)).unwrap(), "web");
        world.job.version = 2;
        world.job.definition = Arc::clone(&changed);
        world.view.put_version(key(), world.job.uid.clone(), 2, changed);
    }
    world.job.stopped = picture.stopped;
    world.put_job();
    world
}

fn other_job(world: &mut World, picture: &Picture, n: usize, (at, priority, cpu): (u8, i64, i64)) {
    let job = JobKey::new("shop", format!("other-{n}"));
    let uid = Uid::from(format!("other-{n}"));
    let spec =
        json!({ "priority": priority, "groups": [{ "name": "web", "tasks": [{ "name": "t", "driver": "mock" }] }] });
    world.view.put_version(
        job.clone(),
        uid.clone(),
        1,
        Definition::new(&serde_json::from_value(spec).unwrap(), "other"),
    );
    let name = NodeName::from(format!("n-{at}"));
    let Some(entry) = world.view.node_entry(&name) else { return };
    if entry.usage.amounts.cpu + cpu > picture.capacity {
        return;
    }
    let resources: AllocatedResources =
        serde_json::from_value(json!({ "tasks": { "t": { "cpu": cpu, "memoryMB": 10 } } })).unwrap();
    world.allocs([0], |alloc| {
        alloc.key = JobKey::new("shop", format!("other-{n}-0"));
        (alloc.job, alloc.job_uid, alloc.node) = (job.clone(), uid.clone(), name.clone());
        alloc.resources = Arc::new(resources.clone());
    });
}

/// What happened to the allocations of the job since.
fn age(world: &mut World, picture: &Picture) {
    let allocs: Vec<Arc<Alloc>> = world.view.allocs_of_job(&key()).cloned().collect();
    for (alloc, (_, kind, transition, health)) in allocs.iter().zip(&picture.there) {
        let mut changed = (**alloc).clone();
        let deployment = changed.deployment.clone();
        changed.health = match health {
            0 => None,
            n => Some(Health { is_healthy: *n == 1, deployment, at: Timestamp::UNIX_EPOCH }),
        };
        match kind {
            0 => changed.client = ClientStatus::Failed,
            1 => (changed.client, changed.ran_successfully) = (ClientStatus::Complete, true),
            2 => {
                changed.states = vec![(ClientStatus::Unknown, now() - SignedDuration::from_secs(30))];
                changed.client = ClientStatus::Unknown;
            }
            3 => changed.states = vec![(ClientStatus::Unknown, now() - SignedDuration::from_secs(30))],
            4 => changed.desired = DesiredStatus::Stop,
            5 => changed.is_deleting = true,
            6 => changed.client = ClientStatus::Pending,
            _ => {}
        }
        changed.last_event_at = now() - SignedDuration::from_secs(40);
        match transition {
            // Only a drain marks allocations of system jobs, and then their node takes no other.
            0 if matches!(picture.kind, "service" | "batch") => changed.transition.migrate = true,
            1 => changed.transition.reschedule = true,
            _ => {}
        }
        world.view.put_alloc(changed);
    }
}

/// The view after a plan was carried out by agents and controller.
fn apply_plan(view: &mut ClusterView, job: &Job, plan: &Plan) {
    let get = |view: &ClusterView, key: &AllocKey| (**view.alloc(key).unwrap()).clone();
    for stop in plan.stops.iter().chain(plan.replaced()) {
        let mut alloc = get(view, &stop.alloc.key);
        alloc.desired = stop.desired;
        alloc.follow_up = stop.follow_up.clone().or(alloc.follow_up);
        alloc.client =
            stop.client.unwrap_or(if alloc.is_client_terminal() { alloc.client } else { ClientStatus::Complete });
        alloc.has_ended = true;
        view.put_alloc(alloc);
    }
    for (victim, _) in plan.preempted() {
        let mut alloc = get(view, &victim.key);
        (alloc.desired, alloc.client, alloc.has_ended) = (DesiredStatus::Evict, ClientStatus::Complete, true);
        view.put_alloc(alloc);
    }
    for cut in &plan.disconnects {
        let mut alloc = get(view, &cut.alloc.key);
        (alloc.client, alloc.follow_up) = (ClientStatus::Unknown, cut.follow_up.clone());
        alloc.states.push((ClientStatus::Unknown, now()));
        view.put_alloc(alloc);
    }
    for returned in &plan.reconnects {
        let mut alloc = get(view, &returned.key);
        alloc.states.push((alloc.client, now()));
        view.put_alloc(alloc);
    }
    for update in &plan.attributes {
        let mut alloc = get(view, &update.alloc);
        alloc.follow_up.clone_from(&update.follow_up);
        if let Some(outcome) = update.last_reschedule {
            alloc.tracker.get_or_insert_default().last_reschedule = Some(outcome);
        }
        view.put_alloc(alloc);
    }
    for update in &plan.in_place {
        let mut alloc = get(view, &update.alloc.key);
        (alloc.job_version, alloc.resources) = (update.job_version, Arc::clone(&update.resources));
        alloc.deployment = update.deployment.clone().or(alloc.deployment);
        view.put_alloc(alloc);
    }
    for update in &plan.deployment_updates {
        let known = view.deployments_of_job(&job.key).find(|one| one.key == update.deployment).unwrap();
        let ended = Deployment { phase: update.phase, ..(**known).clone() };
        view.put_deployment(ended);
    }
    if let Some(begun) = &plan.deployment {
        let known = view.deployments_of_job(&job.key).find(|one| one.key.name == begun.name).map(|one| (**one).clone());
        let n = i64::try_from(view.deployments_of_job(&job.key).count()).unwrap();
        let mut deployment = known.unwrap_or_else(|| Deployment {
            key: JobKey::new(Arc::clone(&job.key.namespace), Arc::clone(&begun.name)),
            uid: Uid::from(format!("uid-of-{}", begun.name)),
            job: job.key.clone(),
            job_uid: job.uid.clone(),
            job_version: begun.job_version,
            phase: DeploymentPhase::Running,
            groups: BTreeMap::new(),
            eval_priority: 0,
            judgements: BTreeMap::new(),
            created_at: now() - SignedDuration::from_secs(50 - n),
        });
        deployment.groups.extend(begun.groups.clone());
        view.put_deployment(deployment);
    }
    for placement in &plan.placements {
        let n = view.allocs().count();
        view.put_alloc(Alloc {
            key: JobKey::new("shop", format!("web-{}-{n:03}", placement.index)),
            uid: Uid::from(format!("new-{n}")),
            job: job.key.clone(),
            job_uid: job.uid.clone(),
            job_version: placement.job_version,
            group: placement.group.to_string(),
            index: placement.index,
            node: placement.node.clone(),
            desired: DesiredStatus::Run,
            is_superseded: false,
            client: ClientStatus::Running,
            transition: DesiredTransition::default(),
            previous: placement.previous.as_ref().map(|alloc| Arc::clone(&alloc.key.name)),
            follow_up: None,
            resources: Arc::clone(&placement.resources),
            canary: placement.canary,
            deployment: placement.deployment.clone(),
            health: None,
            health_index: 0,
            states: Vec::new(),
            best_score: Some(placement.score()),
            task_starts: vec![("t".into(), now())],
            ran_successfully: false,
            last_event_at: now(),
            tracker: placement.tracker.clone(),
            is_deleting: false,
            has_ended: false,
            unmounted: std::collections::BTreeSet::new(),
            host_volumes: std::collections::BTreeMap::new(),
            created_at: now(),
        });
    }
}

/// Nothing is given twice, and no node holds more than it has.
fn check_nodes(view: &ClusterView) -> Result<(), TestCaseError> {
    for entry in view.node_entries() {
        let (mut usage, mut alone) = (Usage::default(), Vec::new());
        for alloc in view.allocs_on_node(&entry.node.name).filter(|alloc| alloc.holds_room()) {
            usage.add(&view.held_by(alloc));
            let group = view.definition_of(alloc).and_then(|known| known.group(&alloc.group));
            alone.extend(crate::usage::ports_alone(&alloc.resources, group));
        }
        prop_assert_eq!(usage.amounts, entry.usage.amounts, "the view counts {} wrong", entry.node.name);
        let (total, used) = (entry.node.allocatable, usage.amounts);
        prop_assert!(
            used.cpu <= total.cpu && used.memory_mb <= total.memory_mb && used.disk_mb <= total.disk_mb,
            "{:?} of {:?}",
            used,
            total
        );
        for (what, n_held, n_distinct) in [
            ("ports", alone.len(), distinct(&alone)),
            ("cores", usage.cores.len(), distinct(&usage.cores)),
            ("devices", usage.devices.len(), distinct(&usage.devices)),
        ] {
            prop_assert_eq!(n_held, n_distinct, "{} are given twice on {}", what, entry.node.name);
        }
    }
    Ok(())
}

fn distinct<T: Ord>(items: &[T]) -> usize {
    items.iter().collect::<std::collections::BTreeSet<_>>().len()
}

/// How many allocations there may be of the group: the count, canaries, and those that are away while another stands
/// in.
fn check_counts(picture: &Picture, world: &World, view: &ClusterView) -> Result<(), TestCaseError> {
    let live = |alloc: &&Arc<Alloc>| !alloc.is_terminal() && alloc.client != ClientStatus::Unknown;
    if matches!(picture.kind, "system" | "sysbatch") {
        for node in view.nodes() {
            let there = view.allocs_on_node(&node.name).filter(|alloc| alloc.job == key()).filter(live).count();
            prop_assert!(i64::try_from(there).unwrap() <= picture.count.max(1), "{} on {}", there, node.name);
        }
        return Ok(());
    }
    let n = i64::try_from(view.allocs_of_job(&key()).filter(live).count()).unwrap();
    let before = i64::try_from(world.view.allocs_of_job(&key()).filter(live).count()).unwrap();
    // Canaries come on top; what stood above the count because a deployment protects it goes with that.
    let surge = if picture.kind == "service" { picture.canary } else { 0 };
    prop_assert!(n <= picture.count + surge || n <= before, "{} live of {} (before {})", n, picture.count, before);
    Ok(())
}

fn holds(picture: &Picture) -> Result<(), TestCaseError> {
    let world = world(picture);
    check_nodes(&world.view)?;
    let eval = |seed| {
        let eval = Evaluation {
            id: "e".into(),
            job: key(),
            trigger: EvalTrigger::JobRegister,
            priority: picture.priority,
            now: now(),
            wait_until: None,
        };
        crate::scheduler::plan(&world.view, &eval, &mut fastrand::Rng::with_seed(seed))
    };
    let plan = eval(picture.seed);
    prop_assert_eq!(&plan, &eval(picture.seed), "the same input gives another plan");
    if picture.stopped {
        prop_assert!(plan.placements.is_empty(), "a stopped job places something");
    }
    for (victim, _) in plan.preempted() {
        prop_assert!(world.view.priority_of(victim) + 10 <= picture.priority);
        prop_assert!(victim.job != key());
    }
    for (node, wanted) in apply::by_node(&plan) {
        let taken = apply::check(&world.view, Some(&world.job), node, &wanted);
        prop_assert!(taken.is_ok(), "{} refuses: {:?}", node, taken);
    }
    let mut view = world.view.clone();
    apply_plan(&mut view, &world.job, &plan);
    check_nodes(&view)?;
    check_counts(picture, &world, &view)?;
    let mut again = World { view: view.clone(), job: world.job.clone() }.plan();
    // What a roll-out kept from being replaced while it is cut off is replaced once that is over.
    if !plan.deployment_updates.is_empty() && again.stops.is_empty() {
        apply_plan(&mut view, &world.job, &again);
        check_counts(picture, &world, &view)?;
        again = World { view: view.clone(), job: world.job.clone() }.plan();
    }
    let is_settled = again.is_empty() || is_next_step(&again) || !plan.failed.is_empty() || !again.failed.is_empty();
    prop_assert!(is_settled, "first {}\nagain {}", brief(&plan), brief(&again));
    for alloc in
        view.allocs_of_job(&key()).filter(|alloc| alloc.client == ClientStatus::Unknown && !alloc.is_terminal())
    {
        prop_assert!(lost_after(&view, alloc) > drover_api::GoDuration::ZERO || alloc.needs_reconnect());
    }
    Ok(())
}

/// A plan in a few words.
fn brief(plan: &Plan) -> String {
    let stops: Vec<String> =
        plan.stops.iter().map(|stop| format!("{} {} {:?}", stop.alloc.key.name, stop.reason, stop.client)).collect();
    let placements: Vec<String> = plan
        .placements
        .iter()
        .map(|one| {
            let replaces = one.replaces.as_ref().map(|stop| stop.alloc.key.name.clone());
            format!("{} on {} canary {} for {replaces:?}", one.index, one.node, one.canary)
        })
        .collect();
    let in_place: Vec<&str> = plan.in_place.iter().map(|one| &*one.alloc.key.name).collect();
    format!(
        "stops {stops:?} places {placements:?} in place {in_place:?} cut {} back {} attributes {:?} deployment {:?} ends {:?} follow-ups {:?} failed {:?}",
        plan.disconnects.len(),
        plan.reconnects.len(),
        plan.attributes,
        plan.deployment,
        plan.deployment_updates,
        plan.follow_ups,
        plan.failed.keys()
    )
}

/// A deployment that is done says so only once its allocations are there.
fn is_next_step(plan: &Plan) -> bool {
    plan.stops.is_empty()
        && plan.placements.is_empty()
        && plan.in_place.is_empty()
        && plan.disconnects.is_empty()
        && plan.reconnects.is_empty()
        && plan.attributes.is_empty()
        && plan.deployment.is_none()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// Never overcommitted; never more than the count and the surge; the same input gives the same plan; the plan of
    /// what a plan made is empty; a stopped job places nothing; victims are at least 10 lower in priority; the applier
    /// takes what was planned.
    #[test]
    fn every_plan_is_safe_deterministic_and_settles(picture in pictures()) {
        holds(&picture)?;
    }

    /// The other half of the pictures, beside the first.
    #[test]
    fn every_other_plan_is_safe_deterministic_and_settles(picture in pictures()) {
        holds(&picture)?;
    }
}
