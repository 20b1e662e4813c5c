//! Services that a group or task offers, and their checks.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::GoDuration;
use crate::string_enum::string_enum;

string_enum! {
    /// Which address a service is registered with.
    pub enum AddressMode default Auto {
        /// The node's: no driver advertises another one.
        Auto = "auto",
        /// The node's.
        Host = "host",
        /// As alloc: tasks have no network but their allocation's.
        Driver = "driver",
        /// The allocation's own, in its network of mode bridge or cni, with the port inside.
        Alloc = "alloc",
        /// The same, its IPv6 one.
        AllocIpv6 = "alloc_ipv6",
    }
}

string_enum! {
    /// What a check does.
    pub enum CheckType {
        /// A request that must be answered with a status below 400.
        Http = "http",
        /// A connection that must be accepted.
        Tcp = "tcp",
        /// A command in a task: 0 passes, 1 is a warning, anything else a failure.
        Script = "script",
        /// A question by gRPC's health protocol that must be answered with serving.
        Grpc = "grpc",
    }
}

string_enum! {
    /// What a failing check means for a deployment.
    pub enum OnUpdate default RequireHealthy {
        /// The allocation is not healthy.
        RequireHealthy = "require_healthy",
        /// The allocation is not healthy, but is with a warning.
        IgnoreWarnings = "ignore_warnings",
        /// Readiness only: health does not depend on it.
        Ignore = "ignore",
    }
}

string_enum! {
    /// How an HTTP check speaks.
    pub enum CheckProtocol default Http {
        /// Without TLS.
        Http = "http",
        /// With TLS.
        Https = "https",
    }
}

string_enum! {
    /// Who keeps the register of services.
    pub enum ServiceProvider default Kubernetes {
        /// Kubernetes Services and EndpointSlices; `nomad` in imported job files means this one.
        Kubernetes = "kubernetes",
    }
}

/// A service: a name under which others find the allocation's port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// Its name, a DNS label; may contain `${…}`.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// The label of the group's port, or its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub port_label: String,
    /// Who keeps the register; default kubernetes, the only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ServiceProvider>,
    /// Which address to register: auto (default) or host, which are the node's; alloc, `alloc_ipv6` or driver, which
    /// are of the allocation's own network (mode bridge or cni), with the port inside: the label of a port or any
    /// number. To that address a Service leads only where the controller's `services.allowedCIDRs` have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_mode: Option<AddressMode>,
    /// A custom address. Not acted on by this version: refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub address: String,
    /// Tags for service lookups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)), extend("x-kubernetes-list-type" = "atomic"))]
    pub tags: Vec<String>,
    /// The words while the allocation is a canary; default the ordinary ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 128)), extend("x-kubernetes-list-type" = "atomic"))]
    pub canary_tags: Vec<String>,
    /// Key and value pairs kept with the registration. Not acted on by this version: refused.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub meta: BTreeMap<String, String>,
    /// What its Kubernetes Service is like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesService>,
    /// For a group's service: the task it belongs to.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub task: String,
    /// How its health is probed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub checks: Vec<Check>,
}

/// What the Kubernetes Service of a service is like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesService {
    /// The port of the Service; default the port's `to`, else its `static`, else 80.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// Whether the Service has no address of its own, so that its name has those of all ready allocations; default
    /// false. Taken when the Service is made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub headless: bool,
    /// What is spoken on the port, as `http` or `kubernetes.io/h2c`: for proxies and gateways.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub app_protocol: String,
}

/// A probe of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Its name, unique in the service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// What it does: http, tcp, script or grpc.
    pub r#type: CheckType,
    /// Pause between two probes, at least 1s.
    pub interval: GoDuration,
    /// Longest wait for an answer, at least 1s.
    pub timeout: GoDuration,
    /// The path of an http check.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub path: String,
    /// The method of an http check; default GET.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 16))]
    pub method: String,
    /// Headers of an http check.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub header: BTreeMap<String, HeaderValues>,
    /// Body of an http check.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 3072))]
    pub body: String,
    /// http (default) or https.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<CheckProtocol>,
    /// Whether the certificate of an https check, or of a grpc check with TLS, is not verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls_skip_verify: bool,
    /// The program of a script check, as the task finds it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub command: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Vec<String>,
    /// The task in which a script check runs; default the service's task. A group's service that names none needs it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub task: String,
    /// The name that a grpc check asks for; default the empty one, which stands for the whole server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub grpc_service: String,
    /// Whether a grpc check speaks TLS; default false.
    #[serde(default, rename = "grpcUseTLS", skip_serializing_if = "std::ops::Not::not")]
    pub grpc_use_tls: bool,
    /// Another port than the service's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub port_label: String,
    /// Another address than the service's: auto or host, the node's; alloc or `alloc_ipv6`, in the allocation's own
    /// network. Not driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_mode: Option<AddressMode>,
    /// What a failure or a warning means for a deployment; default require_healthy. ignore_warnings is for script
    /// checks, which alone warn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_update: Option<OnUpdate>,
    /// Restarts the task when the check stays unhealthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check_restart: Option<CheckRestart>,
}

/// The values of one header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct HeaderValues(
    /// The values, in order.
    #[schemars(length(max = 8), inner(length(max = 1024)), extend("x-kubernetes-list-type" = "atomic"))]
    pub Vec<String>,
);

/// When a failing check restarts its task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckRestart {
    /// After so many unhealthy intervals; 0 turns it off.
    #[schemars(range(min = 0, max = 1000))]
    pub limit: i64,
    /// How long after a start failures do not count; default 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<GoDuration>,
    /// Whether warnings count as healthy; only script checks warn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_warnings: bool,
}
