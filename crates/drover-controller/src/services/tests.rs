//! What is found of allocations, written by a leader over the in-memory API server.

use std::time::Duration;

use drover_api::allocation::ClientStatus;
use drover_api::job::JobConditionType;
use drover_api::{Allocation, ClientNode, Job};
use drover_store::{Key, Object as _, Part, StoreError};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::tests::{Scene, Story, World, in_default, job, no_accident_changes_the_end, node, unavailable};

/// A ready node with an address that Kubernetes knows too.
fn join(world: &mut World, name: &str, ip: &str) {
    let core: Node = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
        "status": { "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": ip }] } }))
    .unwrap();
    world.create(&core);
    let mut object: ClientNode = node(name);
    let network = json!([{ "name": "default", "cidr": format!("{ip}/32") }]);
    let mut status = json!(object.status);
    status["fingerprint"]["hostNetworks"] = network;
    object.status = serde_json::from_value(status).unwrap();
    world.register(&object);
}

fn web(name: &str, count: i64, service: &Value) -> Job {
    let mut group = crate::tests::group("g", count);
    group["networks"] = json!([{ "mode": "host", "ports": [{ "label": "http" }] }]);
    group["services"] = json!([service]);
    job(name, &json!({ "groups": [group] }))
}

fn api() -> Value {
    json!({ "name": "api", "portLabel": "http", "tags": ["v2", "zone=a"] })
}

/// The agents of all allocations of a job report its service `api`, ready or not.
fn report(world: &World, ready: bool) {
    for alloc in world.allocs() {
        let uid = alloc.metadata.uid.clone().unwrap();
        let registration =
            json!({ "id": format!("_nomad-task-{uid}-group-g-api-http"), "serviceName": "api", "ready": ready });
        world.report(&alloc, &json!({ "clientStatus": "running", "services": [registration] }));
    }
}

/// The slices, as `api-01234567 10.0.0.7 ready`, without the end of their names.
fn slices(world: &World) -> Vec<String> {
    let shown = |slice: &EndpointSlice| {
        let endpoint = slice.endpoints.clone().unwrap_or_default().remove(0);
        let ready = endpoint.conditions.unwrap_or_default().ready == Some(true);
        format!("{} {}", endpoint.addresses.join(","), if ready { "ready" } else { "not ready" })
    };
    world.all::<EndpointSlice>().iter().map(shown).collect()
}

fn services_of(world: &World, job: &str) -> Option<String> {
    let conditions = world.the::<Job>(job).status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|one| one.r#type == JobConditionType::Services)?;
    Some(format!("{} {}: {}", found.status, found.reason, found.message))
}

/// A world in which so many allocations of job `web` are found, and nothing is left to be written.
fn found(count: i64) -> World {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", count, &api()));
    world.settle();
    report(&world, true);
    world.settle();
    world.writes();
    world
}

/// After this time a new job has its first status.
const A_MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn b_031_three_allocations_are_found_under_one_name() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    let mut service = api();
    service["kubernetes"] = json!({ "port": 8080, "appProtocol": "http", "headless": true });
    world.create(&web("web", 3, &service));
    world.settle();
    report(&world, true);
    world.writes();
    world.settle();
    let writes: Vec<String> = world.writes();
    let of_services = |kind: &str| writes.iter().filter(|write| write.contains(kind)).count();
    assert_eq!(of_services("EndpointSlice"), 3, "{writes:?}");
    assert_eq!(slices(&world), ["10.0.0.7 ready"; 3]);
    let made = world.the::<Service>("api");
    let spec = made.spec.clone().unwrap_or_default();
    let port = spec.ports.unwrap_or_default().remove(0);
    assert_eq!((port.name.as_deref(), port.port, port.app_protocol.as_deref()), (Some("http"), 8080, Some("http")));
    assert_eq!((spec.cluster_ip.as_deref(), spec.selector), (Some("None"), None));
    let owners = made.metadata.owner_references.unwrap_or_default();
    assert_eq!(owners.iter().map(|owner| (&*owner.kind, &*owner.name)).collect::<Vec<_>>(), [("Job", "web")]);
    for slice in world.all::<EndpointSlice>() {
        let owner = slice.metadata.owner_references.unwrap_or_default().remove(0);
        let alloc = world.the::<Allocation>(&owner.name);
        assert_eq!(Some(&owner.uid), alloc.metadata.uid.as_ref());
        let port = slice.ports.unwrap_or_default().remove(0);
        assert_eq!(i64::from(port.port.unwrap_or(0)), alloc.spec.resources.ports[0].value);
        let labels = slice.metadata.labels.unwrap_or_default();
        for (key, value) in
            [("kubernetes.io/service-name", "api"), ("tag.drover.dev/zone", "a"), ("drover.dev/job", "web")]
        {
            assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
        }
        assert_eq!(slice.metadata.annotations.unwrap_or_default()["drover.dev/tags"], "v2,zone=a");
    }
}

#[tokio::test(start_paused = true)]
async fn b_032_each_change_of_readiness_is_one_write() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.settle();
    report(&world, true);
    world.settle();
    for (ready, shown) in [(false, "10.0.0.7 not ready"), (true, "10.0.0.7 ready")] {
        world.writes();
        report(&world, ready);
        world.settle();
        let writes = world.writes();
        let of_slices: Vec<_> =
            writes.iter().filter(|write| write.contains("Slice") || write.contains("Service")).collect();
        assert_eq!((of_slices.len(), slices(&world)), (1, vec![shown.to_owned()]), "{of_slices:?}");
    }
    world.writes();
    world.advance(Duration::from_mins(2)).await;
    let writes = world.writes();
    assert!(!writes.iter().any(|write| write.contains("Slice") || write.contains("Service")), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn b_036_a_slice_is_gone_before_its_allocation_is_stopped() {
    let mut world = found(1);
    world.change_job("web", &json!({ "stop": true }));
    world.settle();
    let writes = world.writes();
    let place =
        |of: &str| writes.iter().position(|write| write.contains(of)).unwrap_or_else(|| panic!("{of}: {writes:?}"));
    assert!(place("delete EndpointSlice") < place("Allocation default/web-g-0"), "{writes:?}");
    assert_eq!(slices(&world), [""; 0]);
    world.advance(Duration::from_secs(30)).await;
    assert_eq!(slices(&world), [""; 0], "it does not come back while the allocation ends");
    assert!(world.find::<Service>("api").is_some(), "the name stays");
}

#[tokio::test(start_paused = true)]
async fn b_037_a_service_of_others_is_used_only_where_it_asks_for_that() {
    for (annotated, has_selector) in [(false, false), (true, true), (true, false)] {
        let mut world = World::new();
        join(&mut world, "n1", "10.0.0.7");
        let selector = if has_selector { json!({ "app": "x" }) } else { json!({}) };
        let annotations = if annotated { json!({ "drover.dev/endpoints": "true" }) } else { json!({}) };
        let foreign: Service = serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "api", "namespace": "default", "annotations": annotations },
            "spec": { "selector": selector, "ports": [{ "port": 80 }] } }))
        .unwrap();
        world.create(&foreign);
        world.create(&web("web", 1, &api()));
        world.advance(A_MOMENT).await;
        report(&world, true);
        world.settle();
        let said = services_of(&world, "web");
        if annotated && !has_selector {
            assert_eq!((slices(&world).len(), said), (1, None));
            continue;
        }
        let said = said.expect("a condition");
        assert!(said.starts_with("False NameTaken: there is a Service api that drover has not made"), "{said}");
        assert_eq!(slices(&world), [""; 0]);
        world.delete::<Service>(&in_default("api"));
        world.live(Duration::from_mins(1)).await;
        assert_eq!((slices(&world).len(), services_of(&world, "web")), (1, None), "once the name is free it is taken");
    }
}

#[tokio::test(start_paused = true)]
async fn b_038_a_name_of_two_jobs_stays_with_one_of_them_and_goes_with_both() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    for name in ["web", "shop"] {
        world.create(&web(name, 1, &api()));
    }
    world.settle();
    report(&world, true);
    world.settle();
    let owners = world.the::<Service>("api").metadata.owner_references.unwrap_or_default();
    let mut names: Vec<_> = owners.iter().map(|owner| owner.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!((names, slices(&world).len()), (vec!["shop", "web"], 2));
    let owner_of_slices = |world: &World| -> Vec<String> {
        let slices = world.all::<EndpointSlice>();
        slices.iter().map(|slice| slice.metadata.labels.as_ref().unwrap()["drover.dev/job"].clone()).collect()
    };
    for (deleted, left) in [("web", vec!["shop"]), ("shop", vec![])] {
        world.delete::<Job>(&in_default(deleted));
        world.live(Duration::from_secs(30)).await;
        world.collect_garbage();
        world.settle();
        assert!(world.find::<Job>(deleted).is_none(), "{deleted} is gone");
        assert_eq!(owner_of_slices(&world), left, "after the end of {deleted}");
        assert_eq!(world.find::<Service>("api").is_some(), !left.is_empty(), "after the end of {deleted}");
    }
}

#[tokio::test(start_paused = true)]
async fn b_040_what_is_cut_off_is_not_ready_what_is_back_is_and_what_is_down_is_gone() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    let mut group = crate::tests::group("g", 1);
    group["networks"] = json!([{ "mode": "host", "ports": [{ "label": "http" }] }]);
    group["services"] = json!([api()]);
    group["disconnect"] = json!({ "lostAfter": "10m", "replace": false });
    world.create(&job("web", &json!({ "groups": [group] })));
    world.settle();
    report(&world, true);
    world.advance(Duration::from_mins(6)).await;
    assert_eq!(slices(&world), ["10.0.0.7 ready"]);
    let status = |world: &World| world.allocs()[0].status.as_ref().map(|status| status.client_status);

    world.silence("n1");
    world.advance(Duration::from_mins(1)).await;
    assert_eq!((status(&world), slices(&world)), (Some(ClientStatus::Unknown), vec!["10.0.0.7 not ready".to_owned()]));

    world.wake("n1");
    world.settle();
    assert_eq!(slices(&world), ["10.0.0.7 not ready"], "its agent has told nothing yet");
    report(&world, true);
    world.advance(Duration::from_secs(10)).await;
    assert_eq!((status(&world), slices(&world)), (Some(ClientStatus::Running), vec!["10.0.0.7 ready".to_owned()]));

    world.silence("n1");
    world.advance(Duration::from_mins(12)).await;
    assert_eq!((status(&world), slices(&world)), (Some(ClientStatus::Lost), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_145_a_removal_that_fails_is_tried_again_within_a_second_until_nothing_is_there() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.advance(A_MOMENT).await;
    report(&world, true);
    world.settle();
    let slice = world.all::<EndpointSlice>().remove(0);
    for error in [unavailable(), unavailable(), StoreError::NotFound("it is gone".to_owned())] {
        world.store.refuse("delete EndpointSlice", error);
    }
    world.writes();
    // Its tasks run on, and its agent registers no service any more.
    let alloc = world.allocs().remove(0);
    world.report(&alloc, &json!({ "clientStatus": "running", "services": [] }));
    world.settle();
    let began = Instant::now();
    let calls = |world: &World| world.writes().iter().filter(|write| write.starts_with("delete Endpoint")).count();
    assert_eq!(calls(&world), 1);
    let failed = services_of(&world, "web").expect("a condition");
    assert!(failed.starts_with("False EndpointsFailed:"), "{failed}");
    let mut n_calls = 1;
    while n_calls < 3 {
        world.advance(Duration::from_millis(10)).await;
        n_calls += calls(&world);
        assert!(began.elapsed() < Duration::from_secs(1), "{n_calls} calls within a second");
    }
    // It is gone, as the API server says.
    world.delete::<EndpointSlice>(&slice.key());
    world.advance(Duration::from_mins(1)).await;
    assert_eq!((calls(&world), slices(&world), services_of(&world, "web")), (0, vec![], None));
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_fails_again_and_again_is_tried_once_per_second() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.settle();
    report(&world, true);
    world.settle();
    for _ in 0..100 {
        world.store.refuse("delete EndpointSlice", unavailable());
    }
    world.writes();
    let alloc = world.allocs().remove(0);
    world.report(&alloc, &json!({ "clientStatus": "running", "services": [] }));
    world.settle();
    // After 100, 200, 400 and 800 ms, and then each second.
    world.advance(Duration::from_millis(11_600)).await;
    let writes = world.writes();
    assert_eq!(writes.iter().filter(|write| write.starts_with("delete Endpoint")).count(), 15, "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_somebody_deletes_is_made_again() {
    let mut world = found(2);
    world.delete::<Service>(&in_default("api"));
    world.settle();
    let writes = world.writes();
    assert!(world.find::<Service>("api").is_some(), "{writes:?}");
    assert_eq!(slices(&world).len(), 2);
    world.advance(Duration::from_mins(1)).await;
    assert!(!world.writes().iter().any(|write| write.contains("Service")));
}

#[tokio::test(start_paused = true)]
async fn b_039_an_agent_that_lies_draws_no_requests() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.advance(A_MOMENT).await;
    let alloc = world.allocs().remove(0);
    let uid = alloc.metadata.uid.clone().unwrap();
    for (id, name) in [("group-g-db-http", "db"), ("group-g-api-http", "db"), ("x", "api")] {
        let lie = json!({ "id": format!("_nomad-task-{uid}-{id}"), "serviceName": name, "ready": true, "address": "10.9.9.9", "port": 22 });
        world.report(&alloc, &json!({ "clientStatus": "running", "services": [lie] }));
        world.settle();
        assert_eq!(slices(&world), [""; 0], "{id} {name}");
    }
    // The node's own address is not what the agent says it is.
    world.merge::<Node>(
        &Key::cluster("n1"),
        Part::Spec,
        json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.8" }] } }),
    );
    report(&world, true);
    world.settle();
    assert_eq!(slices(&world), [""; 0]);
    let said = services_of(&world, "web").expect("a condition");
    assert!(
        said.starts_with("False AddressRefused: service api: 10.0.0.7 is no address of its Kubernetes node"),
        "{said}"
    );
    world.merge::<Node>(
        &Key::cluster("n1"),
        Part::Spec,
        json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.7" }] } }),
    );
    world.settle();
    assert_eq!((slices(&world), services_of(&world, "web")), (vec!["10.0.0.7 ready".to_owned()], None));
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_is_not_found_any_more() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.settle();
    report(&world, true);
    world.settle();
    world.advance(Duration::from_mins(6)).await;
    assert_eq!(slices(&world), ["10.0.0.7 ready"]);
    world.silence("n1");
    world.advance(Duration::from_mins(1)).await;
    assert_eq!(world.allocs()[0].status.as_ref().map(|status| status.client_status), Some(ClientStatus::Lost));
    assert_eq!(slices(&world), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn b_041_a_leader_that_dies_between_status_and_slice_leaves_it_to_the_next_one() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.settle();
    report(&world, true);
    let undone = world.decide();
    assert!(!undone.is_empty());
    world.elect_another();
    world.writes();
    world.settle();
    let writes = world.writes();
    let made: Vec<_> = writes.iter().filter(|write| write.contains("EndpointSlice")).collect();
    assert_eq!((made.len(), slices(&world)), (1, vec!["10.0.0.7 ready".to_owned()]), "{writes:?}");
    world.elect_another();
    world.settle();
    let writes = world.writes();
    assert!(!writes.iter().any(|write| write.contains("Slice")), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_made_later_and_told_meanwhile() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    world.create(&web("web", 1, &api()));
    world.advance(A_MOMENT).await;
    world.store.refuse("create EndpointSlice", unavailable());
    report(&world, true);
    world.settle();
    let said = services_of(&world, "web").expect("a condition");
    assert!(said.starts_with("False EndpointsFailed:"), "{said}");
    world.advance(Duration::from_secs(5)).await;
    assert_eq!((slices(&world).len(), services_of(&world, "web")), (1, None));
}

#[tokio::test(start_paused = true)]
async fn b_043_a_promoted_canary_has_the_tags_of_the_others() {
    let mut world = World::new();
    join(&mut world, "n1", "10.0.0.7");
    let mut service = api();
    service["canaryTags"] = json!(["canary"]);
    world.create(&web("web", 1, &service));
    world.settle();
    let alloc = world.allocs().remove(0);
    let key = in_default(alloc.metadata.name.as_deref().unwrap());
    world.merge::<Allocation>(&key, Part::Spec, json!({ "spec": { "canary": true } }));
    report(&world, true);
    world.settle();
    let tags = |world: &World| {
        let slice = world.all::<EndpointSlice>().remove(0);
        let labels = slice.metadata.labels.unwrap_or_default();
        (
            slice.metadata.annotations.unwrap_or_default()["drover.dev/tags"].clone(),
            labels.contains_key("tag.drover.dev/zone"),
        )
    };
    assert_eq!(tags(&world), ("canary".to_owned(), false));
    world.merge::<Allocation>(&key, Part::Spec, json!({ "spec": { "canary": false } }));
    world.settle();
    assert_eq!(tags(&world), ("v2,zone=a".to_owned(), true));
}

/// A cluster whose agents find every service ready as soon as it runs.
struct Found(World);

impl Scene for Found {
    fn world(&mut self) -> &mut World {
        &mut self.0
    }

    async fn live(&mut self, seconds: u64) {
        for _ in 0..seconds {
            for alloc in self.0.allocs() {
                let status = alloc.status.clone().unwrap_or_default();
                if !status.client_status.is_terminal() && status.services.is_empty() {
                    let id = format!("_nomad-task-{}-group-g-api-http", alloc.metadata.uid.clone().unwrap());
                    let registration = json!({ "id": id, "serviceName": "api", "ready": true });
                    self.0.report(&alloc, &json!({ "clientStatus": "running", "services": [registration] }));
                }
            }
            self.0.live(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_accident_of_a_write_changes_what_is_found_of_a_job() {
    let story = Story {
        begin: || {
            let mut world = World::new();
            join(&mut world, "n1", "10.0.0.7");
            join(&mut world, "n2", "10.0.0.8");
            Found(world)
        },
        acts: &[
            (|cluster| drop(cluster.0.create(&web("web", 2, &api()))), 20),
            (|cluster| cluster.0.silence("n1"), 450),
            (|cluster| cluster.0.change_job("web", &json!({ "stop": true })), 30),
        ],
    };
    no_accident_changes_the_end(story).await;
}
