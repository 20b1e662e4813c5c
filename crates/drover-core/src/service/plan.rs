//! The services of an allocation as node and controller both know them: names and ports from what the controller has
//! assigned, checks with the probes that they send.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::allocation::AllocatedPort;
use drover_api::group::Group;
use drover_api::network::Port;
use drover_api::service::{AddressMode, Check, CheckProtocol, CheckType, OnUpdate, Service};
use drover_api::task::{LifecycleHook, Task};
use drover_api::{Allocation, GoDuration, JobSpec, names};

use super::redirect::HttpTarget;
use super::restart_watch::RestartRule;
use crate::task::environment::{self, ExpansionError, TooLong};

/// The grace of a checkRestart that names none.
const GRACE: Duration = Duration::from_secs(1);

/// The port of a Service where nothing says another one.
pub(crate) const HTTP_PORT: u16 = 80;

/// Where a port of the allocation is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its label, as an object names it.
    pub label: String,
    /// Its number there: on the node, or inside the allocation's own network.
    pub number: u16,
    /// The address that it is on; empty while the allocation's own network has none, or none that is known.
    pub ip: String,
    /// Whether that is an address of the allocation's own network, and none of its node.
    pub is_own: bool,
}

/// What the Kubernetes Service of a service is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceShape {
    /// Its port.
    pub port: u16,
    /// Whether it has no address of its own.
    pub is_headless: bool,
    /// What is spoken on the port; empty where nothing says it.
    pub app_protocol: String,
}

/// What a probe does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Opens a connection.
    Tcp {
        /// The address, without brackets.
        ip: String,
        /// The port on it.
        port: u16,
    },
    /// Sends a request.
    Http(Box<HttpProbe>),
    /// Asks by gRPC's health protocol.
    Grpc(GrpcProbe),
    /// Runs a command in a task.
    Script(ScriptProbe),
}

/// A question by gRPC's health protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcProbe {
    /// The address, without brackets.
    pub ip: String,
    /// The port on it.
    pub port: u16,
    /// The service that is asked for; empty for the whole server.
    pub service: String,
    /// Whether it speaks TLS.
    pub is_tls: bool,
    /// Whether any certificate will do.
    pub tls_skip_verify: bool,
}

/// A command that a check runs in a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptProbe {
    /// The task.
    pub task: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// A request that a check sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProbe {
    /// Where to.
    pub target: HttpTarget,
    /// The method.
    pub method: String,
    /// Headers by name, without `Host`.
    pub headers: Vec<(String, String)>,
    /// The value of the `Host` header; empty for the address.
    pub host: String,
    /// The body.
    pub body: String,
    /// Whether any certificate will do.
    pub tls_skip_verify: bool,
    /// All ports of the allocation, to which a redirect may lead.
    pub held: Vec<u16>,
}

/// A check of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCheck {
    /// Its key in the allocation's status: `<task or group-<group>>/<service>/<port>/<check>`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// From the end of a probe to the next one.
    pub interval: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// It only says whether requests should come (`onUpdate: ignore`).
    pub is_readiness: bool,
    /// A warning is as good as a success for a deployment.
    pub ignores_warnings: bool,
    /// What is sent, or why nothing may be.
    pub probe: Result<Probe, String>,
    /// When it restarts its tasks, if ever.
    pub restart: Option<RestartRule>,
}

/// A service of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedService {
    /// Its registration's id.
    pub id: String,
    /// Its name, as the object is called.
    pub name: String,
    /// The task that it is of; none for a group's service that names none.
    pub task: Option<String>,
    /// Whether it is there only while its task runs: it is declared in the task.
    pub is_of_task: bool,
    /// The tasks that have to run for it.
    pub tasks: Vec<String>,
    /// Its port.
    pub port: ServicePort,
    /// What its Kubernetes Service is like.
    pub shape: ServiceShape,
    /// Its words for people and look-ups: those of canaries on one.
    pub tags: Vec<String>,
    /// Its checks.
    pub checks: Vec<PlannedCheck>,
}

/// Why an allocation's services cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    /// A name that is none once it is expanded.
    #[error(
        "service {0} cannot be the name of a Service: begin with a letter, and take letters, digits and -; it may refer to the job, the group and meta"
    )]
    Name(String),
    /// A port that the allocation does not hold.
    #[error("service {0}: port {1:?} is not held by the allocation: name a port of the group's networks")]
    Port(String, String),
    /// Expanding a field made it too long.
    #[error("service {0}: {1}")]
    TooLong(String, String),
}

/// The services of an allocation that runs this group of this job.
///
/// # Errors
/// When one of them cannot be registered; then none is.
pub fn planned(allocation: &Allocation, job: &JobSpec, group: &Group) -> Result<Vec<PlannedService>, ServiceError> {
    let of_group = group.services.iter().map(|service| (service, None));
    let of_tasks = group.tasks.iter().flat_map(|task| task.services.iter().map(move |service| (service, Some(task))));
    of_group
        .chain(of_tasks)
        .map(|(service, of)| Planning::new(allocation, job, group, service, of)?.service())
        .collect()
}

/// One service being planned.
struct Planning<'a> {
    allocation: &'a Allocation,
    group: &'a Group,
    service: &'a Service,
    of_task: Option<&'a Task>,
    words: BTreeMap<String, String>,
}

impl<'a> Planning<'a> {
    fn new(
        allocation: &'a Allocation,
        job: &'a JobSpec,
        group: &'a Group,
        service: &'a Service,
        of_task: Option<&'a Task>,
    ) -> Result<Self, ServiceError> {
        let named = of_task.or_else(|| group.tasks.iter().find(|task| task.name == service.task));
        let words = environment::service_words(allocation, job, group, named)
            .map_err(|error: ExpansionError| ServiceError::TooLong(service.name.clone(), error.to_string()))?;
        Ok(Self { allocation, group, service, of_task, words })
    }

    fn service(&self) -> Result<PlannedService, ServiceError> {
        let service = self.service;
        let expanded = self.expand(&service.name)?;
        let name = object_name(&expanded).ok_or_else(|| ServiceError::Name(expanded.clone()))?;
        let port = self
            .port(&service.port_label, service.address_mode)
            .ok_or_else(|| ServiceError::Port(service.name.clone(), service.port_label.clone()))?;
        let owner = self.of_task.map_or_else(|| format!("group-{}", self.group.name), |task| task.name.clone());
        let uid = self.allocation.metadata.uid.as_deref().unwrap_or_default();
        let task = self.of_task.map(|task| task.name.clone());
        let task = task.or_else(|| (!service.task.is_empty()).then(|| service.task.clone()));
        let tasks = task.as_ref().map_or_else(|| long_running(self.group), |task| vec![task.clone()]);
        let canary = self.allocation.spec.canary && !service.canary_tags.is_empty();
        let tags = if canary { &service.canary_tags } else { &service.tags };
        let shape = self.shape(&port);
        let checks = service.checks.iter().map(|check| self.check(&owner, check, !tasks.is_empty()));
        Ok(PlannedService {
            id: format!("_nomad-task-{uid}-{owner}-{}-{}", service.name, service.port_label),
            name,
            is_of_task: self.of_task.is_some(),
            port,
            shape,
            tags: tags.iter().map(|tag| self.expand(tag)).collect::<Result<_, _>>()?,
            checks: checks.collect::<Result<_, _>>()?,
            task,
            tasks,
        })
    }

    fn shape(&self, port: &ServicePort) -> ServiceShape {
        let kubernetes = self.service.kubernetes.clone().unwrap_or_default();
        let mut declared = self.group.networks.iter().flat_map(|network| &network.ports);
        let declared = declared.find(|declared| declared.label == port.label);
        // One that is no port of the group is named by its number.
        let numbered = port.label.parse().ok();
        let given = kubernetes.port.or_else(|| declared.map_or(numbered, service_port));
        ServiceShape {
            port: given.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0).unwrap_or(HTTP_PORT),
            is_headless: kubernetes.headless,
            app_protocol: kubernetes.app_protocol,
        }
    }

    fn check(&self, owner: &str, check: &Check, has_tasks: bool) -> Result<PlannedCheck, ServiceError> {
        let service = self.service;
        let interval = check.interval.to_std();
        let restart = check.check_restart.as_ref().filter(|restart| restart.limit > 0 && has_tasks);
        let restart = restart.map(|restart| RestartRule {
            after: interval.saturating_mul(u32::try_from(restart.limit - 1).unwrap_or(u32::MAX)),
            grace: restart.grace.map_or(GRACE, GoDuration::to_std),
            ignores_warnings: restart.ignore_warnings,
        });
        Ok(PlannedCheck {
            id: format!("{owner}/{}/{}/{}", service.name, service.port_label, check.name),
            name: check.name.clone(),
            interval,
            timeout: check.timeout.to_std(),
            is_readiness: check.on_update == Some(OnUpdate::Ignore),
            ignores_warnings: check.on_update == Some(OnUpdate::IgnoreWarnings),
            probe: self.probe(check)?,
            restart,
        })
    }

    /// What a check does, or why it may not: then that is what it finds.
    fn probe(&self, check: &Check) -> Result<Result<Probe, String>, ServiceError> {
        match check.r#type {
            CheckType::Script => self.script(check),
            CheckType::Tcp => self.at_port(check, |ip, port| Ok(Probe::Tcp { ip, port })),
            CheckType::Http => self.at_port(check, |ip, port| self.http(check, ip, port)),
            CheckType::Grpc => self.at_port(check, |ip, port| self.grpc(check, ip, port)),
        }
    }

    fn at_port(
        &self,
        check: &Check,
        probe: impl FnOnce(String, u16) -> Result<Probe, ServiceError>,
    ) -> Result<Result<Probe, String>, ServiceError> {
        let label = if check.port_label.is_empty() { &self.service.port_label } else { &check.port_label };
        match self.port(label, check.address_mode.or(self.service.address_mode)) {
            Some(port) if port.ip.is_empty() => {
                Ok(Err("the allocation's own network has no such address: take addressMode host".to_owned()))
            }
            Some(port) => probe(port.ip, port.number).map(Ok),
            None => Ok(Err(format!(
                "port {label:?} is not held by the allocation: name a port of the group's networks in portLabel"
            ))),
        }
    }

    fn grpc(&self, check: &Check, ip: String, port: u16) -> Result<Probe, ServiceError> {
        let service = self.expand(&check.grpc_service)?;
        let (is_tls, tls_skip_verify) = (check.grpc_use_tls, check.tls_skip_verify);
        Ok(Probe::Grpc(GrpcProbe { ip, port, service, is_tls, tls_skip_verify }))
    }

    /// A command runs in the check's task, else in that of the service.
    fn script(&self, check: &Check) -> Result<Result<Probe, String>, ServiceError> {
        let of_service = self.of_task.map_or(&self.service.task, |task| &task.name);
        let task = if check.task.is_empty() { of_service } else { &check.task };
        if !self.group.tasks.iter().any(|known| known.name == *task) {
            return Ok(Err(format!("{task:?} is no task of the group: name one in task")));
        }
        let words = std::iter::once(&check.command).chain(&check.args);
        let command = words.map(|word| self.expand(word)).collect::<Result<_, _>>()?;
        Ok(Ok(Probe::Script(ScriptProbe { task: task.clone(), command })))
    }

    fn http(&self, check: &Check, ip: String, port: u16) -> Result<Probe, ServiceError> {
        let mut headers = Vec::new();
        let mut host = String::new();
        for (name, values) in &check.header {
            for value in &values.0 {
                let value = self.expand(value)?;
                if name.eq_ignore_ascii_case("host") {
                    host = value;
                } else {
                    headers.push((name.clone(), value));
                }
            }
        }
        let mode = check.address_mode.or(self.service.address_mode);
        let path = self.expand(&check.path)?;
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let is_tls = check.protocol == Some(CheckProtocol::Https);
        Ok(Probe::Http(Box::new(HttpProbe {
            target: HttpTarget { ip, port, is_tls, path },
            method: if check.method.is_empty() { "GET".to_owned() } else { check.method.clone() },
            headers,
            host,
            body: self.expand(&check.body)?,
            tls_skip_verify: check.tls_skip_verify,
            held: self.ports().filter_map(|held| self.reached(held, mode)).map(|port| port.number).collect(),
        })))
    }

    fn ports(&self) -> impl Iterator<Item = &'a AllocatedPort> {
        self.allocation.spec.resources.ports.iter()
    }

    /// The port of this label, or of this number. Every number is a port of the allocation's own network
    /// (`spec/agent.md` 8.1).
    fn port(&self, label: &str, mode: Option<AddressMode>) -> Option<ServicePort> {
        let number = label.parse::<i64>().ok();
        let by_label = self.ports().find(|port| port.label == label);
        let held = by_label.or_else(|| self.ports().find(|port| Some(port.value) == number));
        let is_own = is_own(mode);
        let numbered = || Some((label.to_owned(), number.and_then(|number| u16::try_from(number).ok())?));
        match held {
            Some(held) => self.reached(held, mode),
            None if is_own => {
                let (label, number) = numbered().filter(|(_, number)| *number > 0)?;
                Some(ServicePort { label, number, ip: self.own_ip(mode), is_own })
            }
            None => None,
        }
    }

    /// Where a port that the allocation holds is reached; none without a number or an address.
    fn reached(&self, held: &AllocatedPort, mode: Option<AddressMode>) -> Option<ServicePort> {
        let is_own = is_own(mode);
        let number = if is_own { environment::port_inside(held) } else { held.value };
        let number = u16::try_from(number).ok().filter(|number| *number > 0)?;
        let ip = if is_own { self.own_ip(mode) } else { held.host_ip.clone() };
        (is_own || !ip.is_empty()).then(|| ServicePort { label: held.label.clone(), number, ip, is_own })
    }

    /// The address in the allocation's own network, as far as it is known.
    fn own_ip(&self, mode: Option<AddressMode>) -> String {
        let network = self.allocation.status.as_ref().and_then(|status| status.network.as_ref());
        let ip = network.map(|network| match mode {
            Some(AddressMode::AllocIpv6) => &network.address_v6,
            _ if network.address.is_empty() => &network.address_v6,
            _ => &network.address,
        });
        ip.cloned().unwrap_or_default()
    }

    fn expand(&self, text: &str) -> Result<String, ServiceError> {
        environment::interpolate_words(text, &self.words)
            .map_err(|error: TooLong| ServiceError::TooLong(self.service.name.clone(), error.to_string()))
    }
}

/// The port of the Service of a port that is declared so: the one inside, else the static one.
pub(crate) fn service_port(declared: &Port) -> Option<i64> {
    declared.to.filter(|to| *to > 0).or(declared.r#static)
}

/// Whether it is an address of the allocation's own network. No driver here has another network for its tasks.
pub(crate) fn is_own(mode: Option<AddressMode>) -> bool {
    match mode {
        None | Some(AddressMode::Auto | AddressMode::Host) => false,
        Some(AddressMode::Driver | AddressMode::Alloc | AddressMode::AllocIpv6) => true,
    }
}

/// The name of the Service object: as ids are mapped; it has to begin with a letter.
pub(crate) fn object_name(name: &str) -> Option<String> {
    let name = (!name.is_empty() && !name.contains("${")).then(|| names::object_name(name))?;
    name.starts_with(|first: char| first.is_ascii_lowercase()).then_some(name)
}

/// The tasks that run as long as the group does.
fn long_running(group: &Group) -> Vec<String> {
    let runs = |task: &&Task| {
        task.lifecycle.as_ref().is_none_or(|lifecycle| lifecycle.sidecar && lifecycle.hook != LifecycleHook::Poststop)
    };
    group.tasks.iter().filter(runs).map(|task| task.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn allocation(ports: &Value, canary: bool) -> Allocation {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": "web-api-0-1", "namespace": "shop", "uid": "u-1" },
            "spec": { "jobName": "web", "jobUID": "j-1", "jobVersion": 3, "group": "api", "index": 2, "nodeName": "n-1",
                "canary": canary, "resources": { "diskMB": 1, "ports": ports } },
        }))
        .expect("an allocation")
    }

    fn plan(group: Value, ports: &Value, canary: bool) -> Result<Vec<PlannedService>, ServiceError> {
        let allocation = allocation(ports, canary);
        let group: Group = serde_json::from_value(group).expect("a group");
        let job = JobSpec { meta: [("zone".to_owned(), "a".to_owned())].into(), ..JobSpec::default() };
        planned(&allocation, &job, &group)
    }

    fn ports() -> Value {
        json!([{ "label": "http", "value": 21000, "hostIP": "10.0.0.7" }, { "label": "admin", "value": 21001, "to": 80, "hostIP": "10.0.0.7" }])
    }

    #[expect(clippy::needless_pass_by_value, reason = "tables of tests read better so")]
    fn group(services: Value, of_task: Value) -> Value {
        let helper = json!({ "name": "init", "driver": "mock", "lifecycle": { "hook": "prestart" } });
        let side = json!({ "name": "proxy", "driver": "mock", "lifecycle": { "hook": "prestart", "sidecar": true } });
        json!({ "name": "api", "services": services,
            "tasks": [{ "name": "server", "driver": "mock", "services": of_task }, helper, side] })
    }

    #[expect(clippy::needless_pass_by_value, reason = "tables of tests read better so")]
    fn check(more: Value) -> Value {
        let mut check = json!({ "name": "up", "type": "http", "path": "/", "interval": "10s", "timeout": "2s" });
        for (key, value) in more.as_object().into_iter().flatten() {
            check[key] = value.clone();
        }
        check
    }

    #[test]
    fn a_service_is_registered_under_what_the_controller_has_assigned() {
        let services = json!([{ "name": "${NOMAD_JOB_NAME}-api", "portLabel": "http", "tags": ["v2", "zone=${NOMAD_META_zone}", "${node.class}"] }]);
        let found = plan(group(services, json!([{ "name": "Admin", "portLabel": "admin" }])), &ports(), false);
        let found = found.expect("two services");
        let (api, admin) = (&found[0], &found[1]);
        assert_eq!(api.name, "web-api");
        assert_eq!(api.id, "_nomad-task-u-1-group-api-${NOMAD_JOB_NAME}-api-http");
        assert_eq!(api.tags, ["v2", "zone=a", "${node.class}"], "what is the node's stays as it is written");
        assert_eq!((&*api.tasks, api.is_of_task), (&["server".to_owned(), "proxy".to_owned()][..], false));
        assert_eq!((api.port.number, &*api.port.ip, api.port.is_own), (21000, "10.0.0.7", false));
        assert_eq!(admin.port.number, 21001);
        assert!(admin.name.starts_with("admin-") && admin.is_of_task, "{}", admin.name);
        assert_eq!((admin.task.as_deref(), &*admin.tasks), (Some("server"), &["server".to_owned()][..]));
    }

    #[test]
    fn b_043_a_canary_has_words_of_its_own_where_it_is_given_some() {
        for (given, canary, expected) in
            [(json!(["new"]), true, "new"), (json!(["new"]), false, "old"), (json!([]), true, "old")]
        {
            let services = json!([{ "name": "api", "portLabel": "http", "tags": ["old"], "canaryTags": given }]);
            let found = plan(group(services, json!([])), &ports(), canary).expect("a service");
            assert_eq!(found[0].tags, [expected]);
        }
    }

    #[test]
    fn a_name_or_port_that_cannot_be_is_refused() {
        for name in ["9lives", "${attr.kernel.name}-web", "${NOMAD_DC}"] {
            let found = plan(group(json!([{ "name": name, "portLabel": "http" }]), json!([])), &ports(), false);
            assert!(matches!(found, Err(ServiceError::Name(_))), "{name}: {found:?}");
        }
        for label in ["", "other", "10250"] {
            let found = plan(group(json!([{ "name": "api", "portLabel": label }]), json!([])), &ports(), false);
            assert_eq!(found, Err(ServiceError::Port("api".to_owned(), label.to_owned())));
        }
        let named: Vec<u16> = [json!({}), json!({ "port": 8080 })]
            .iter()
            .map(|kubernetes| {
                let services = json!([{ "name": "api", "portLabel": "http", "kubernetes": kubernetes }]);
                let mut group = group(services, json!([]));
                group["networks"] = json!([{ "ports": [{ "label": "http", "static": 9000 }] }]);
                plan(group, &ports(), false).expect("a service")[0].shape.port
            })
            .collect();
        assert_eq!(named, [9000, 8080]);
        let by_number = plan(group(json!([{ "name": "api", "portLabel": "21001" }]), json!([])), &ports(), false);
        assert_eq!(by_number.expect("a service")[0].port.label, "admin");
    }

    #[test]
    fn a_service_of_the_allocations_own_network_has_its_address_and_the_port_inside() {
        let at = |mode: &str, label: &str, network: Value| {
            let checks = json!([check(json!({ "name": "own" })), check(json!({ "addressMode": "host" }))]);
            let services = json!([{ "name": "api", "portLabel": label, "addressMode": mode, "checks": checks }]);
            let mut allocation = allocation(&ports(), false);
            allocation.status = serde_json::from_value(json!({ "network": network })).expect("a status");
            let group: Group = serde_json::from_value(group(services, json!([]))).expect("a group");
            let found = planned(&allocation, &JobSpec::default(), &group).expect("a service").remove(0);
            let asks = |check: &PlannedCheck| match &check.probe {
                Ok(Probe::Http(http)) => format!("{}:{}", http.target.ip, http.target.port),
                other => format!("{other:?}"),
            };
            let asked = found.checks.iter().map(asks).collect::<Vec<_>>();
            (found.port.ip, found.port.number, found.shape.port, asked)
        };
        let both = json!({ "address": "172.26.64.9", "addressV6": "fd00::9" });
        for (mode, label, network, ip, number) in [
            ("alloc", "admin", both.clone(), "172.26.64.9", 80),
            ("driver", "http", both.clone(), "172.26.64.9", 21000),
            ("alloc_ipv6", "admin", both.clone(), "fd00::9", 80),
            ("alloc", "8443", both, "172.26.64.9", 8443),
            ("alloc", "admin", json!({ "addressV6": "fd00::9" }), "fd00::9", 80),
        ] {
            let (found, at_port, of_service, asked) = at(mode, label, network);
            assert_eq!((&*found, at_port), (ip, number), "{mode} {label}");
            assert_eq!(asked[0], format!("{ip}:{number}"), "{mode} {label}");
            assert_eq!(of_service, if label == "8443" { 8443 } else { HTTP_PORT }, "{mode} {label}");
        }
        let (ip, number, _, asked) = at("alloc_ipv6", "admin", json!({ "address": "172.26.64.9" }));
        assert_eq!((&*ip, number), ("", 80));
        assert!(asked[0].contains("no such address"), "{asked:?}");
        assert_eq!(asked[1], "10.0.0.7:21001", "a check of its own mode");
    }

    #[test]
    fn b_042_a_check_of_a_port_that_the_allocation_does_not_hold_is_never_sent() {
        let checks =
            json!([check(json!({ "portLabel": "10250" })), check(json!({ "name": "own", "portLabel": "admin" }))]);
        let services = json!([{ "name": "api", "portLabel": "http", "checks": checks }]);
        let found = plan(group(services, json!([])), &ports(), false).expect("a service");
        let checks = &found[0].checks;
        assert!(checks[0].probe.as_ref().is_err_and(|why| why.contains("10250")), "{:?}", checks[0].probe);
        assert!(matches!(&checks[1].probe, Ok(Probe::Http(http)) if http.target.port == 21001));
    }

    #[test]
    fn a_check_asks_what_the_job_says() {
        let http = check(json!({
            "path": "health?job=${NOMAD_JOB_NAME}", "method": "POST", "body": "on ${NOMAD_PORT_http}", "protocol": "https",
            "tlsSkipVerify": true, "header": { "Host": ["shop.example"], "X-A": ["1", "2"] }, "onUpdate": "ignore",
            "checkRestart": { "limit": 3, "grace": "5s" }
        }));
        let tcp =
            json!({ "name": "port", "type": "tcp", "interval": "1s", "timeout": "1s", "checkRestart": { "limit": 0 } });
        let services = json!([{ "name": "api", "portLabel": "http", "checks": [http, tcp] }]);
        let found = plan(group(services, json!([])), &ports(), false).expect("a service");
        let [http, tcp] = &found[0].checks[..] else { panic!("two checks") };
        assert_eq!(http.id, "group-api/api/http/up");
        assert_eq!(
            (http.interval, http.timeout, http.is_readiness),
            (Duration::from_secs(10), Duration::from_secs(2), true)
        );
        let rule =
            RestartRule { after: Duration::from_secs(20), grace: Duration::from_secs(5), ignores_warnings: false };
        assert_eq!(http.restart, Some(rule));
        let header = |value: &str| ("X-A".to_owned(), value.to_owned());
        let expected = HttpProbe {
            target: HttpTarget {
                ip: "10.0.0.7".to_owned(),
                port: 21000,
                is_tls: true,
                path: "/health?job=web".to_owned(),
            },
            method: "POST".to_owned(),
            headers: vec![header("1"), header("2")],
            host: "shop.example".to_owned(),
            body: "on 21000".to_owned(),
            tls_skip_verify: true,
            held: vec![21000, 21001],
        };
        assert_eq!(http.probe, Ok(Probe::Http(Box::new(expected))));
        assert_eq!(tcp.probe, Ok(Probe::Tcp { ip: "10.0.0.7".to_owned(), port: 21000 }));
        assert_eq!((tcp.restart, tcp.is_readiness), (None, false));
    }

    #[test]
    fn a_script_runs_in_its_task_and_a_grpc_check_asks_for_its_service() {
        let script = |name: &str, more: Value| {
            let mut script = json!({ "name": name, "type": "script", "command": "/bin/check", "interval": "10s",
                "timeout": "2s", "args": ["--job", "${NOMAD_JOB_NAME}", "${NOMAD_PORT_http}", "${node.class}"] });
            for (key, value) in more.as_object().into_iter().flatten() {
                script[key] = value.clone();
            }
            script
        };
        let grpc = json!({ "name": "grpc", "type": "grpc", "interval": "10s", "timeout": "2s", "portLabel": "admin",
            "grpcService": "${NOMAD_JOB_NAME}.Health", "grpcUseTLS": true, "tlsSkipVerify": true });
        let plain = json!({ "name": "plain", "type": "grpc", "interval": "10s", "timeout": "2s" });
        let ignores = json!({ "task": "proxy", "onUpdate": "ignore_warnings",
            "checkRestart": { "limit": 2, "ignoreWarnings": true } });
        let of_group = json!([{ "name": "api", "portLabel": "http", "task": "server", "checks": [
            script("own", json!({})), script("other", ignores), script("none", json!({ "task": "gone" })), grpc, plain] }]);
        let of_task = json!([{ "name": "admin", "portLabel": "admin", "checks": [script("own", json!({}))] }]);
        let found = plan(group(of_group, of_task), &ports(), false).expect("two services");
        let [own, other, none, grpc, plain] = &found[0].checks[..] else { panic!("five checks") };
        let command = ["/bin/check", "--job", "web", "21000", "${node.class}"].map(str::to_owned);
        let script = |task: &str| Probe::Script(ScriptProbe { task: task.to_owned(), command: command.to_vec() });
        assert_eq!((&own.probe, own.ignores_warnings), (&Ok(script("server")), false));
        assert_eq!((&other.probe, other.ignores_warnings), (&Ok(script("proxy")), true));
        assert_eq!(other.restart.map(|rule| rule.ignores_warnings), Some(true));
        assert!(none.probe.as_ref().is_err_and(|why| why.contains("\"gone\" is no task of the group")));
        assert_eq!(found[1].checks[0].probe, Ok(script("server")));
        let asks = |port, service: &str, tls| {
            let service = service.to_owned();
            Ok(Probe::Grpc(GrpcProbe { ip: "10.0.0.7".to_owned(), port, service, is_tls: tls, tls_skip_verify: tls }))
        };
        assert_eq!((&grpc.probe, &plain.probe), (&asks(21001, "web.Health", true), &asks(21000, "", false)));
    }
}
