//! What services lead to, for templates that look them up: from the `EndpointSlices` of the namespace, drover's and
//! those of Kubernetes' own Services.
//!
//! Input: a watch of one service's slices, or of all of the namespace. Output: the values of a [`ValueObject`] of kind
//! `Service`, an instance under each id, or `Services`, the tags under each name. Only what is ready is told.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::value_object::{ValueKind, ValueObject};
use drover_api::{annotation, label, names};
use drover_socket::values::{MAX_VALUE_BYTES, ValueAnswer};
use drover_template::ServiceInstance;
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use super::read_object::{ObjectState, ReadObject, know};

/// Changes of one service are told together that come within this time: a roll-out changes many of its slices.
const GATHER: Duration = Duration::from_millis(100);
/// Most bytes of an answer's values: with what is around them they are a line, which has a limit.
const MOST_BYTES: usize = MAX_VALUE_BYTES * 3 / 4;

/// Makes known what a service leads to, or which there are, now and at each change.
pub(super) async fn follow(
    client: &Client,
    namespace: &str,
    object: &ValueObject,
    tell: &watch::Sender<ObjectState>,
) -> Infallible {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let selector = match object.kind {
        // As the controller calls the object of a service.
        ValueKind::Service => format!("{}={}", label::SERVICE_NAME, names::object_name(&object.name)),
        _ => label::SERVICE_NAME.to_owned(),
    };
    let (reader, writer) = reflector::store();
    let changes = kube::runtime::watcher(slices, watcher::Config::default().labels(&selector)).default_backoff();
    let changes = changes.modify(|slice: &mut EndpointSlice| slice.metadata.managed_fields = None);
    let mut changes = std::pin::pin!(reflector(writer, changes));
    // When what has changed is told; none: nothing has.
    let (mut is_listed, mut tells_at) = (false, None);
    loop {
        let due = tokio::time::sleep_until(tells_at.unwrap_or_else(Instant::now));
        let change = tokio::select! {
            biased;
            () = due, if tells_at.is_some() => {
                tells_at = None;
                know(tell, of(answer(object, &reader.state())));
                continue;
            }
            change = changes.next() => change,
        };
        match change {
            Some(Ok(event)) => {
                let is_first = !is_listed && matches!(event, Event::InitDone);
                is_listed |= is_first;
                let now = Instant::now();
                tells_at = tells_at.or_else(|| is_listed.then_some(if is_first { now } else { now + GATHER }));
            }
            Some(Err(error)) => {
                tracing::debug!(namespace, %object, %error, "a watch of services restarts");
                // What was known stays so while the API server is away.
                if !is_listed {
                    let reason = format!("{object} of {namespace} cannot be looked up: {error}");
                    know(tell, of(ValueAnswer::Unavailable(reason)));
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// An answer of no version: nothing waits for its turn with it.
fn of(answer: ValueAnswer) -> ReadObject {
    ReadObject { answer, version: String::new() }
}

/// What these slices say of an object.
fn answer(object: &ValueObject, slices: &[Arc<EndpointSlice>]) -> ValueAnswer {
    let values = match object.kind {
        ValueKind::Service => values(instances(slices).map(|instance| (instance.id.clone(), instance))),
        _ => values(services(slices).into_iter()),
    };
    let bytes: usize = values.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MOST_BYTES {
        let n = values.len();
        return ValueAnswer::Refused(format!("with {n} entries it is larger than what a template can look up"));
    }
    ValueAnswer::Values(values)
}

fn values<T: serde::Serialize>(all: impl Iterator<Item = (String, T)>) -> BTreeMap<String, String> {
    let written = |(key, value)| Some((key, STANDARD.encode(serde_json::to_vec(&value).ok()?)));
    all.filter_map(written).collect()
}

/// The services that have a ready instance, and the tags of each.
fn services(slices: &[Arc<EndpointSlice>]) -> BTreeMap<String, BTreeSet<&str>> {
    let mut found: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.endpoints.iter().flatten().any(is_ready)) {
        if let Some(name) = slice.metadata.labels.as_ref().and_then(|labels| labels.get(label::SERVICE_NAME)) {
            found.entry(name.clone()).or_default().extend(tags(slice));
        }
    }
    found
}

/// The ready instances, each once: what has addresses of both families is known by the one of version 4.
fn instances(slices: &[Arc<EndpointSlice>]) -> impl Iterator<Item = ServiceInstance> {
    let mut found: BTreeMap<(String, Option<String>), ServiceInstance> = BTreeMap::new();
    let (first, others): (Vec<_>, Vec<_>) = slices.iter().partition(|slice| slice.address_type == "IPv4");
    for slice in first.into_iter().chain(others) {
        for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint)) {
            let Some(address) = endpoint.addresses.first() else { continue };
            let target = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_ref());
            for port in slice.ports.iter().flatten() {
                let key = (target.unwrap_or(address).clone(), port.name.clone());
                if let Some(number) = port.port {
                    found.entry(key).or_insert_with(|| instance(slice, endpoint, (address, number)));
                }
            }
        }
    }
    found.into_values()
}

fn instance(slice: &EndpointSlice, endpoint: &Endpoint, (address, port): (&str, i32)) -> ServiceInstance {
    let meta = &slice.metadata;
    let datacenter = meta.annotations.as_ref().and_then(|all| all.get(annotation::DATACENTER));
    let job = meta.labels.as_ref().and_then(|labels| labels.get(label::JOB));
    let target = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Allocation"));
    ServiceInstance {
        id: if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") },
        node: endpoint.node_name.clone().unwrap_or_default(),
        address: address.to_owned(),
        port: i64::from(port),
        tags: tags(slice).map(str::to_owned).collect(),
        datacenter: datacenter.or(endpoint.zone.as_ref()).cloned().unwrap_or_default(),
        job: job.cloned().unwrap_or_default(),
        allocation: target.and_then(|target| target.uid.clone()).unwrap_or_default(),
    }
}

/// Whether requests may go there. An endpoint without that condition counts as ready, as for kube-proxy.
fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
}

fn tags(slice: &EndpointSlice) -> impl Iterator<Item = &str> {
    let text = slice.metadata.annotations.as_ref().and_then(|all| all.get(annotation::TAGS));
    text.into_iter().flat_map(|text| text.split(',')).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(fields: &Value) -> Arc<EndpointSlice> {
        let mut whole = json!({
            "metadata": { "name": "s", "labels": { "kubernetes.io/service-name": "api" } },
            "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080 }],
        });
        for (name, value) in fields.as_object().expect("fields") {
            whole[name] = value.clone();
        }
        Arc::new(serde_json::from_value(whole).expect("a slice"))
    }

    /// What is told of an object, each value decoded.
    fn told(kind: ValueKind, slices: &[Arc<EndpointSlice>]) -> Value {
        let object = ValueObject { kind, name: "api".to_owned() };
        let ValueAnswer::Values(values) = answer(&object, slices) else { panic!("no values") };
        let decoded = values.into_iter().map(|(key, value)| {
            let bytes = STANDARD.decode(value).expect("base64");
            (key, serde_json::from_slice(&bytes).expect("JSON"))
        });
        Value::Object(decoded.collect())
    }

    fn of_drover(name: &str, address: &str, is_ready: bool) -> Arc<EndpointSlice> {
        slice(&json!({
            "metadata": {
                "name": name, "annotations": { "drover.dev/tags": "v=2,blue", "drover.dev/datacenter": "dc2" },
                "labels": { "kubernetes.io/service-name": "api", "drover.dev/job": "web" },
            },
            "endpoints": [{
                "addresses": [address], "nodeName": "n1", "conditions": { "ready": is_ready },
                "targetRef": { "kind": "Allocation", "name": name, "uid": format!("uid-{name}") },
            }],
        }))
    }

    #[test]
    fn an_instance_has_its_place_tags_job_and_allocation_and_only_what_is_ready_is_told() {
        let slices = [of_drover("a", "10.0.0.1", true), of_drover("b", "10.0.0.2", false)];
        let expected = json!({ "10.0.0.1:8080": {
            "id": "10.0.0.1:8080", "node": "n1", "address": "10.0.0.1", "port": 8080, "tags": ["v=2", "blue"],
            "datacenter": "dc2", "job": "web", "allocation": "uid-a",
        } });
        assert_eq!(told(ValueKind::Service, &slices), expected);
        assert_eq!(told(ValueKind::Service, &[]), json!({}));
    }

    #[test]
    fn a_pod_of_two_families_is_one_instance_and_each_port_one_more() {
        let pod = |kind: &str, address: &str| {
            slice(&json!({
                "addressType": kind, "ports": [{ "name": "http", "port": 80 }, { "name": "admin", "port": 81 }],
                "endpoints": [{ "addresses": [address], "zone": "z1", "targetRef": { "kind": "Pod", "uid": "p" } }],
            }))
        };
        let ids = |slices: &[Arc<EndpointSlice>]| -> Vec<String> {
            told(ValueKind::Service, slices).as_object().expect("a map").keys().cloned().collect()
        };
        let (four, six) = (pod("IPv4", "10.0.0.1"), pod("IPv6", "fd00::1"));
        assert_eq!(ids(&[Arc::clone(&six), Arc::clone(&four)]), ["10.0.0.1:80", "10.0.0.1:81"]);
        assert_eq!(ids(&[Arc::clone(&six)]), ["[fd00::1]:80", "[fd00::1]:81"]);
        let found = told(ValueKind::Service, &[six, four]);
        assert_eq!(
            (&found["10.0.0.1:80"]["datacenter"], &found["10.0.0.1:80"]["allocation"]),
            (&json!("z1"), &json!(""))
        );
    }

    #[test]
    fn the_services_are_those_with_a_ready_instance_and_have_the_tags_of_all() {
        let of = |name: &str, is_ready: bool, tags: &str| {
            slice(&json!({
                "metadata": { "labels": { "kubernetes.io/service-name": name }, "annotations": { "drover.dev/tags": tags } },
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": is_ready } }],
            }))
        };
        let slices = [of("api", true, "b,a"), of("api", true, "a,c"), of("old", false, "x"), of("plain", true, "")];
        assert_eq!(told(ValueKind::Services, &slices), json!({ "api": ["a", "b", "c"], "plain": [] }));
    }

    #[test]
    fn what_is_larger_than_an_answer_is_refused_with_its_number() {
        let endpoint = |n: u32| json!({ "addresses": [format!("10.{}.{}.1", n / 256, n % 256)] });
        let all = slice(&json!({ "endpoints": (0..9000).map(endpoint).collect::<Vec<_>>() }));
        let object = ValueObject { kind: ValueKind::Service, name: "api".to_owned() };
        let ValueAnswer::Refused(reason) = answer(&object, &[all]) else { panic!("not refused") };
        assert!(reason.starts_with("with 9000 entries"), "{reason}");
    }
}
