//! Where the replicas of the gateway are: the `EndpointSlices` of its Service, as agents and replicas read them.

use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};

/// A port of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayPort {
    /// Where agents and other replicas are answered.
    Agents,
    /// Where callers of its API are.
    Users,
}

impl GatewayPort {
    /// Its name in the Service.
    const fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Users => "users",
        }
    }
}

/// The label selector of the slices of a Service.
pub fn slices_of(service: &str) -> String {
    format!("kubernetes.io/service-name={service}")
}

/// Where replicas answer at this port, and whether each is ready. One without a word on that is.
pub fn replicas_in(slice: &EndpointSlice, port: GatewayPort) -> Vec<(SocketAddr, bool)> {
    let is_named = |it: &&EndpointPort| it.name.as_deref() == Some(port.name());
    let port = slice.ports.iter().flatten().find(is_named).and_then(|it| it.port);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else { return Vec::new() };
    let each = slice.endpoints.iter().flatten().filter_map(|endpoint| {
        let is_ready = endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false));
        let address = endpoint.addresses.first()?.parse().ok()?;
        Some((SocketAddr::new(address, port), is_ready))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn replicas_are_where_the_slices_say_ready_or_not() {
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "addressType": "IPv4",
            "ports": [{ "name": "users", "port": 8443 }, { "name": "agents", "port": 8444 }],
            "endpoints": [
                { "addresses": ["10.0.0.7"], "conditions": { "ready": true } },
                { "addresses": ["10.0.0.8"], "conditions": { "ready": false } },
                { "addresses": ["fd00::1"] },
                { "addresses": ["a name"] },
            ],
        }))
        .expect("a slice");
        let wanted = [(at("10.0.0.7:8444"), true), (at("10.0.0.8:8444"), false), (at("[fd00::1]:8444"), true)];
        assert_eq!(replicas_in(&slice, GatewayPort::Agents), wanted);
        assert_eq!(replicas_in(&slice, GatewayPort::Users)[0], (at("10.0.0.7:8443"), true));
        assert!(replicas_in(&EndpointSlice { ports: None, ..slice }, GatewayPort::Agents).is_empty());
    }
}
