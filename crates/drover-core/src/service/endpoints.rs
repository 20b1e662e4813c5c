//! What is to be found of an allocation: its endpoints below the Services of its names.
//!
//! Address and port are what the controller has assigned, names and tags what the job says. Of what the agent reports
//! only whether a registration is there and ready counts, and that only for names of the job; and the address in the
//! allocation's own network, where the job asks for it and an operator has allowed its range.

use std::collections::BTreeMap;

use drover_api::allocation::{ClientStatus, ServiceRegistration};
use drover_api::{label, names};

use super::address::{self, Cidr};
use super::plan::PlannedService;

/// What endpoints are decided from.
#[derive(Clone, Copy, Debug)]
pub struct EndpointsInput<'a> {
    /// metadata.uid of the allocation.
    pub uid: &'a str,
    /// Its services, from the version of the job that it runs.
    pub planned: &'a [PlannedService],
    /// What its agent reports of them.
    pub reported: &'a [ServiceRegistration],
    /// How it fares.
    pub client: ClientStatus,
    /// Whether it is to run and is not being deleted.
    pub is_wanted: bool,
    /// The addresses of its Kubernetes node.
    pub node_addresses: &'a [String],
    /// Addresses that an operator allows beside these.
    pub allowed: &'a [Cidr],
}

/// One slice: an allocation's endpoints below one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The name of the slice: `<service>-<8 of the allocation's uid>`.
    pub slice: String,
    /// The name of the Service.
    pub service: String,
    /// Whether the Service has no address of its own.
    pub is_headless: bool,
    /// The allocation's address.
    pub address: String,
    /// The ports by label.
    pub ports: BTreeMap<String, EndpointsPort>,
    /// Whether requests may come.
    pub is_ready: bool,
    /// The tags of the service.
    pub tags: Vec<String>,
}

/// A port of a slice, and of its Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointsPort {
    /// The allocation's.
    pub number: u16,
    /// The Service's.
    pub of_service: u16,
    /// What is spoken there; empty where nothing says it.
    pub app_protocol: String,
}

/// Why a service of an allocation cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointsFault {
    /// Its address is not one that a Service may lead to.
    #[error(
        "service {service}: {address} is no address of its Kubernetes node; register the node with one that is, or add \
         its range to services.allowedCIDRs of the controller"
    )]
    Address {
        /// The service.
        service: String,
        /// The address.
        address: String,
    },
    /// The address in the allocation's own network is not one that a Service may lead to: agents say it, so an operator
    /// has to.
    #[error(
        "service {service}: {address} is an address of the allocation's own network; add its range to \
         services.allowedCIDRs of the controller where pods can reach it, or take addressMode host"
    )]
    OwnAddress {
        /// The service.
        service: String,
        /// The address.
        address: String,
    },
    /// The allocation's own network has no such address.
    #[error("service {0}: the allocation's own network has no such address; take another addressMode, as host")]
    NoAddress(String),
}

/// The slices of an allocation as they should be, by name, and what stands in the way of others.
pub fn endpoints(input: &EndpointsInput<'_>) -> (Vec<Endpoints>, Vec<EndpointsFault>) {
    let mut slices: BTreeMap<(&str, &str), Endpoints> = BTreeMap::new();
    let mut faults = Vec::new();
    if !input.is_wanted || input.client.is_terminal() {
        return (Vec::new(), faults);
    }
    for service in input.planned {
        let reported = input.reported.iter().find(|known| known.id == service.id && known.service_name == service.name);
        let Some(reported) = reported else { continue };
        let (name, ip) = (service.name.as_str(), service.port.ip.as_str());
        if let Err(fault) = permitted(input, service) {
            faults.push(fault);
            continue;
        }
        // While its node is cut off, what was said of it last says nothing.
        let is_ready = reported.ready && input.client != ClientStatus::Unknown;
        let short = input.uid.get(..8).unwrap_or(input.uid);
        let others = slices.keys().filter(|(known, other)| *known == name && *other != ip).count();
        let slice = if others == 0 { format!("{name}-{short}") } else { format!("{name}-{short}-{others}") };
        let endpoints = slices.entry((name, ip)).or_insert_with(|| Endpoints {
            slice,
            service: name.to_owned(),
            is_headless: service.shape.is_headless,
            address: ip.to_owned(),
            ports: BTreeMap::new(),
            is_ready: true,
            tags: Vec::new(),
        });
        endpoints.is_ready &= is_ready;
        let port = EndpointsPort {
            number: service.port.number,
            of_service: service.shape.port,
            app_protocol: service.shape.app_protocol.clone(),
        };
        endpoints.ports.insert(port_name(&service.port.label), port);
        for tag in &service.tags {
            if !endpoints.tags.contains(tag) {
                endpoints.tags.push(tag.clone());
            }
        }
    }
    (slices.into_values().collect(), faults)
}

/// Whether a Service may lead to where the port is. What an agent says of an allocation's own network is none of its
/// node's addresses.
fn permitted(input: &EndpointsInput<'_>, service: &PlannedService) -> Result<(), EndpointsFault> {
    let (name, port) = (service.name.clone(), &service.port);
    let of_node = if port.is_own { &[] } else { input.node_addresses };
    match (address::is_permitted(&port.ip, of_node, input.allowed), port.is_own) {
        (true, _) => Ok(()),
        (false, true) if port.ip.is_empty() => Err(EndpointsFault::NoAddress(name)),
        (false, true) => Err(EndpointsFault::OwnAddress { service: name, address: port.ip.clone() }),
        (false, false) => Err(EndpointsFault::Address { service: name, address: port.ip.clone() }),
    }
}

/// A label as the name of a port: lower case, a DNS label.
fn port_name(label: &str) -> String {
    names::object_name(&label.to_ascii_lowercase())
}

/// The labels of tags of the form `key=value`, as far as they can be labels.
pub fn tag_labels(tags: &[String]) -> BTreeMap<String, String> {
    let pairs = tags.iter().filter_map(|tag| tag.split_once('='));
    let labels = pairs.filter(|(key, value)| !key.is_empty() && is_label_text(key) && is_label_text(value));
    labels.map(|(key, value)| (format!("{}{key}", label::TAG_PREFIX), value.to_owned())).collect()
}

/// Whether it can be the value of a label, or the name in its key.
fn is_label_text(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_edge = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::plan::{ServicePort, ServiceShape};

    fn service(name: &str, label: &str, value: u16) -> PlannedService {
        PlannedService {
            id: format!("id-{name}-{label}"),
            name: name.to_owned(),
            task: None,
            is_of_task: false,
            tasks: vec!["web".to_owned()],
            port: ServicePort { label: label.to_owned(), number: value, ip: "10.0.0.7".to_owned(), is_own: false },
            shape: ServiceShape { port: 80, is_headless: false, app_protocol: String::new() },
            tags: vec!["v2".to_owned()],
            checks: Vec::new(),
        }
    }

    fn reported(id: &str, name: &str, ready: bool) -> ServiceRegistration {
        ServiceRegistration {
            id: id.to_owned(),
            service_name: name.to_owned(),
            ready,
            ..ServiceRegistration::default()
        }
    }

    fn found(input: &EndpointsInput<'_>) -> Vec<(String, Vec<u16>, bool)> {
        let (slices, faults) = endpoints(input);
        assert_eq!(faults, []);
        let numbers = |slice: &Endpoints| slice.ports.values().map(|port| port.number).collect();
        slices.iter().map(|slice| (slice.slice.clone(), numbers(slice), slice.is_ready)).collect()
    }

    #[test]
    fn b_031_an_allocation_is_found_under_each_of_its_names() {
        let planned = [service("api", "http", 21000), service("api", "admin", 21001), service("other", "http", 21000)];
        let reported = [
            reported("id-api-http", "api", true),
            reported("id-api-admin", "api", true),
            reported("id-other-http", "other", false),
        ];
        let node = ["10.0.0.7".to_owned()];
        let input = EndpointsInput {
            uid: "0123456789abcdef",
            planned: &planned,
            reported: &reported,
            client: ClientStatus::Running,
            is_wanted: true,
            node_addresses: &node,
            allowed: &[],
        };
        let api = |is_ready| ("api-01234567".to_owned(), vec![21001, 21000], is_ready);
        let other = ("other-01234567".to_owned(), vec![21000], false);
        assert_eq!(found(&input), [api(true), other.clone()]);
        let cut_off = EndpointsInput { client: ClientStatus::Unknown, ..input };
        assert_eq!(found(&cut_off), [api(false), other], "what is cut off is not ready");
        for (client, is_wanted) in
            [(ClientStatus::Lost, true), (ClientStatus::Complete, true), (ClientStatus::Running, false)]
        {
            assert_eq!(found(&EndpointsInput { client, is_wanted, ..input }), [], "{client}");
        }
    }

    #[test]
    fn b_039_what_an_agent_says_of_names_that_are_not_the_jobs_counts_for_nothing() {
        let planned = [service("api", "http", 21000)];
        let node = ["10.0.0.7".to_owned()];
        for (id, name) in [("id-db-http", "db"), ("id-api-http", "db"), ("id-x", "api")] {
            let reported =
                [ServiceRegistration { address: "10.9.9.9".to_owned(), port: 22, ..reported(id, name, true) }];
            let input = EndpointsInput {
                uid: "0123456789abcdef",
                planned: &planned,
                reported: &reported,
                client: ClientStatus::Running,
                is_wanted: true,
                node_addresses: &node,
                allowed: &[],
            };
            assert_eq!(found(&input), [], "{id} {name}");
            let own = [self::reported("id-api-http", "api", true)];
            let elsewhere = EndpointsInput { node_addresses: &[], reported: &own, ..input };
            let (slices, faults) = endpoints(&elsewhere);
            assert_eq!(slices, []);
            assert!(faults[0].to_string().contains("10.0.0.7 is no address of its Kubernetes node"), "{faults:?}");
        }
    }

    #[test]
    fn an_address_of_the_allocations_own_network_is_an_operators_to_allow() {
        let allowed: [Cidr; 1] = ["172.26.64.0/20".parse().unwrap()];
        let (node, reported) = (["10.0.0.7".to_owned()], [reported("id-api-http", "api", true)]);
        let at = |ip: &str| {
            let mut service = service("api", "http", 8080);
            (service.port.ip, service.port.is_own) = (ip.to_owned(), true);
            let input = EndpointsInput {
                uid: "0123456789abcdef",
                planned: &[service],
                reported: &reported,
                client: ClientStatus::Running,
                is_wanted: true,
                node_addresses: &node,
                allowed: &allowed,
            };
            let (slices, faults) = endpoints(&input);
            (slices.len(), faults.iter().map(ToString::to_string).collect::<String>())
        };
        assert_eq!(at("172.26.64.9"), (1, String::new()));
        // Its agent could say that to lead requests to a port of the node which the allocation does not hold.
        for ip in ["10.0.0.7", "172.27.0.1"] {
            let (n_slices, fault) = at(ip);
            assert!(n_slices == 0 && fault.contains("services.allowedCIDRs"), "{ip}: {fault}");
        }
        let (n_slices, fault) = at("");
        assert!(n_slices == 0 && fault.contains("no such address"), "{fault}");
    }

    #[test]
    fn tags_with_a_key_become_labels_where_they_can() {
        let tags = ["v2", "zone=a", "=x", "a/b=c", "k=a b", "empty="].map(str::to_owned);
        let labels = tag_labels(&tags);
        let expected = [("tag.drover.dev/empty", ""), ("tag.drover.dev/zone", "a")];
        assert_eq!(labels.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>(), expected);
    }
}
