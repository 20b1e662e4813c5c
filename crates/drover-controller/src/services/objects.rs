//! Services and slices as objects of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::{Allocation, annotation, label};
use drover_core::service::{Endpoints, tag_labels};
use drover_store::Key;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

/// Who keeps drover's slices.
const SLICE_KEEPER: &str = "drover.dev";

/// The addresses of a Kubernetes node.
pub(super) fn addresses(node: &Node) -> Vec<String> {
    let status = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    status.map(|address| address.address.clone()).collect()
}

/// The Service of these endpoints, owned by the allocation's job: several jobs may own one.
pub(super) fn service(of: &Allocation, endpoints: &Endpoints) -> Service {
    let ports = endpoints.ports.iter().map(|(name, port)| ServicePort {
        name: Some(name.clone()),
        port: i32::from(port.of_service),
        target_port: Some(IntOrString::Int(i32::from(port.of_service))),
        protocol: Some("TCP".to_owned()),
        app_protocol: some(&port.app_protocol),
        ..ServicePort::default()
    });
    Service {
        metadata: ObjectMeta {
            name: Some(endpoints.service.clone()),
            namespace: of.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([(label::MANAGED_BY.to_owned(), label::DROVER.to_owned())])),
            owner_references: Some(vec![OwnerReference {
                api_version: drover_api::API_VERSION.to_owned(),
                kind: "Job".to_owned(),
                name: of.spec.job_name.clone(),
                uid: of.spec.job_uid.clone(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: endpoints.is_headless.then(|| "None".to_owned()),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// What a Service of drover's lacks of what is wanted, as a change of it; none where it lacks nothing.
pub(super) fn missing(stored: &Service, wanted: &Service) -> Option<Value> {
    let known = |service: &Service| service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default();
    let same = |one: &ServicePort, other: &ServicePort| {
        one.name == other.name && one.port == other.port && one.app_protocol == other.app_protocol
    };
    let (mut ports, wanted_ports) = (known(stored), known(wanted));
    let mut is_changed = false;
    for port in wanted_ports {
        if ports.iter().any(|known| same(known, &port)) {
            continue;
        }
        is_changed = true;
        // A name and a number stand once each: the newest word holds.
        ports.retain(|known| known.name != port.name && known.port != port.port);
        ports.push(port);
    }
    let mut owners = stored.metadata.owner_references.clone().unwrap_or_default();
    for owner in wanted.metadata.owner_references.iter().flatten() {
        if !owners.iter().any(|known| known.uid == owner.uid) {
            is_changed = true;
            owners.push(owner.clone());
        }
    }
    is_changed.then(|| json!({ "metadata": { "ownerReferences": owners }, "spec": { "ports": ports } }))
}

/// Whether drover has made a Service.
pub(super) fn is_ours(service: &Service) -> bool {
    let labels = service.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(label::MANAGED_BY)).is_some_and(|value| value == label::DROVER)
}

/// Whether a Service that drover has not made asks for slices of drover's.
pub(super) fn takes_slices(service: &Service) -> bool {
    let asks = service.metadata.annotations.as_ref().and_then(|all| all.get(annotation::ENDPOINTS));
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    asks.is_some_and(|value| value == "true") && selector.is_none_or(BTreeMap::is_empty)
}

/// The slice of these endpoints, owned by the allocation; `datacenter` is that of its node, where that is known.
pub(super) fn slice(of: &Allocation, endpoints: &Endpoints, datacenter: Option<&str>) -> EndpointSlice {
    let name = of.metadata.name.clone().unwrap_or_default();
    let uid = of.metadata.uid.clone().unwrap_or_default();
    let mut labels = tag_labels(&endpoints.tags);
    labels.extend(
        [
            (label::SERVICE_NAME, endpoints.service.as_str()),
            (label::SLICE_MANAGED_BY, SLICE_KEEPER),
            (label::MANAGED_BY, label::DROVER),
            (label::JOB, of.spec.job_name.as_str()),
            (label::GROUP, of.spec.group.as_str()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let tags = (!endpoints.tags.is_empty()).then(|| (annotation::TAGS.to_owned(), endpoints.tags.join(",")));
    let place = datacenter.map(|datacenter| (annotation::DATACENTER.to_owned(), datacenter.to_owned()));
    let annotations: BTreeMap<String, String> = tags.into_iter().chain(place).collect();
    let ports = endpoints.ports.iter().map(|(name, port)| EndpointPort {
        name: Some(name.clone()),
        port: Some(i32::from(port.number)),
        protocol: Some("TCP".to_owned()),
        app_protocol: some(&port.app_protocol),
    });
    EndpointSlice {
        address_type: if endpoints.address.contains(':') { "IPv6".to_owned() } else { "IPv4".to_owned() },
        metadata: ObjectMeta {
            name: Some(endpoints.slice.clone()),
            namespace: of.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: Some(vec![OwnerReference {
                api_version: drover_api::API_VERSION.to_owned(),
                kind: "Allocation".to_owned(),
                name: name.clone(),
                uid: uid.clone(),
                controller: Some(true),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        endpoints: Some(vec![Endpoint {
            addresses: vec![endpoints.address.clone()],
            conditions: Some(EndpointConditions {
                ready: Some(endpoints.is_ready),
                serving: Some(endpoints.is_ready),
                terminating: Some(false),
            }),
            node_name: some(&of.spec.node_name),
            target_ref: Some(ObjectReference {
                api_version: Some(drover_api::API_VERSION.to_owned()),
                kind: Some("Allocation".to_owned()),
                name: Some(name),
                namespace: of.metadata.namespace.clone(),
                uid: Some(uid),
                ..ObjectReference::default()
            }),
            ..Endpoint::default()
        }]),
        ports: Some(ports.collect()),
    }
}

/// What has to change of a stored slice; none where it is as it should be.
pub(super) fn difference(stored: &EndpointSlice, wanted: &EndpointSlice) -> Option<Value> {
    let facts = |slice: &EndpointSlice| {
        let endpoint = slice.endpoints.iter().flatten().next().cloned().unwrap_or_default();
        let port = |port: &EndpointPort| (port.name.clone(), port.port, port.app_protocol.clone());
        let ports: BTreeSet<_> = slice.ports.iter().flatten().map(port).collect();
        let ready = endpoint.conditions.unwrap_or_default().ready;
        let annotations = slice.metadata.annotations.as_ref();
        let tags = annotations.and_then(|all| all.get(annotation::TAGS)).cloned();
        (endpoint.addresses, ready, ports, tags)
    };
    if facts(stored) == facts(wanted) {
        return None;
    }
    let mut labels = json!(wanted.metadata.labels);
    for old in stored.metadata.labels.iter().flatten().map(|(key, _)| key) {
        if old.starts_with(label::TAG_PREFIX) && labels.get(old).is_none() {
            labels[old] = Value::Null;
        }
    }
    let tags = wanted.metadata.annotations.as_ref().and_then(|all| all.get(annotation::TAGS));
    Some(json!({
        "metadata": { "labels": labels, "annotations": { (annotation::TAGS): tags } },
        "endpoints": wanted.endpoints,
        "ports": wanted.ports,
    }))
}

/// The name of the allocation that a slice belongs to.
pub(super) fn owner(slice: &EndpointSlice) -> Option<&OwnerReference> {
    slice.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Allocation")
}

/// The Service that a slice is below.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(label::SERVICE_NAME)?;
    Some(Key { namespace: slice.metadata.namespace.clone(), name: name.clone() })
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
