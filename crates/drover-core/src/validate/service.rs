//! Services of a group and of its tasks, and their checks.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::GoDuration;
use drover_api::group::Group;
use drover_api::network::Port;
use drover_api::service::{AddressMode, Check, CheckType, OnUpdate, Service, ServiceProvider};
use drover_api::task::Task;

use super::found::{At, Violations, shown};
use crate::service::{HTTP_PORT, is_own, object_name, service_port};

/// Shortest pause between two probes, and shortest wait for an answer.
const SHORTEST: GoDuration = GoDuration::from_secs(1);

impl Violations {
    pub(super) fn services(&mut self, at: At<'_>, group: &Group) {
        let mut seen = BTreeSet::new();
        for (n, service) in group.services.iter().enumerate() {
            let at = format_args!("{at}.services[{n}]");
            self.service(at, service);
            self.service_once(at, &mut seen, service, &service.task);
        }
        for (m, task) in group.tasks.iter().enumerate() {
            for (n, service) in task.services.iter().enumerate() {
                let at = format_args!("{at}.tasks[{m}].services[{n}]");
                self.service(at, service);
                self.service_once(at, &mut seen, service, &task.name);
            }
        }
    }

    fn service_once<'a>(
        &mut self,
        at: At<'_>,
        seen: &mut BTreeSet<(&'a str, &'a str, &'a str)>,
        service: &'a Service,
        task: &'a str,
    ) {
        let is_new = seen.insert((task, &service.name, &service.port_label));
        let message = format_args!("{} is given twice with the same task and port; remove one", shown(&service.name));
        self.when(!is_new, "ServiceDuplicate", at, message);
    }

    /// What this version does not act on, and what can never be found.
    pub(super) fn submitted_services(&mut self, at: At<'_>, group: &Group) {
        let mut of_service = BTreeMap::new();
        for (n, service) in group.services.iter().enumerate() {
            let at = format_args!("{at}.services[{n}]");
            self.submitted_service(at, group, service);
            self.task_of_checks(at, group, service, None);
            self.port_of_service(at, group, service, &mut of_service);
            let is_task = |task: &Task| task.name == service.task;
            let is_wrong = !service.task.is_empty() && !group.tasks.iter().any(is_task);
            let message = format_args!("{} is no task of the group; name one, or remove it", shown(&service.task));
            self.when(is_wrong, "ServiceTask", format_args!("{at}.task"), message);
        }
        for (m, task) in group.tasks.iter().enumerate() {
            for (n, service) in task.services.iter().enumerate() {
                let at = format_args!("{at}.tasks[{m}].services[{n}]");
                self.submitted_service(at, group, service);
                self.task_of_checks(at, group, service, Some(task));
                self.port_of_service(at, group, service, &mut of_service);
            }
        }
    }

    fn submitted_service(&mut self, at: At<'_>, group: &Group, service: &Service) {
        match service.provider {
            // The only one: another would have to be acted on.
            None | Some(ServiceProvider::Kubernetes) => {}
        }
        let instead =
            "remove it, a service leads to the address of its node, or to its allocation's with addressMode alloc";
        self.not_yet(!service.address.is_empty(), format_args!("{at}.address"), instead);
        self.own_network(format_args!("{at}.addressMode"), group, service.address_mode);
        let instead = "remove it, and say more of the service by tags";
        self.not_yet(!service.meta.is_empty(), format_args!("{at}.meta"), instead);
        self.name_of_service(at, &service.name);
        self.port_label(format_args!("{at}.portLabel"), group, &service.port_label, service.address_mode);
        for (n, check) in service.checks.iter().enumerate() {
            let at = format_args!("{at}.checks[{n}]");
            let mode = check.address_mode.or(service.address_mode);
            self.own_network(format_args!("{at}.addressMode"), group, check.address_mode);
            let is_wrong = check.address_mode == Some(AddressMode::Driver);
            let message = "driver is for services; take alloc, which is the same network";
            self.when(is_wrong, "CheckAddressMode", format_args!("{at}.addressMode"), message);
            let is_wrong = check.r#type == CheckType::Script && check.command.is_empty();
            let message = "is missing on a script check; give it, as in /bin/check";
            self.when(is_wrong, "CheckCommand", format_args!("{at}.command"), message);
            for (field, types) in misplaced(check) {
                let message =
                    format_args!("does nothing on a check of type {}, but of {types}; remove it", check.r#type);
                self.when(true, "CheckField", format_args!("{at}.{field}"), message);
            }
            if !check.port_label.is_empty() {
                self.port_label(format_args!("{at}.portLabel"), group, &check.port_label, mode);
            }
        }
    }

    fn name_of_service(&mut self, at: At<'_>, name: &str) {
        let field = format_args!("{at}.name");
        let is_of_node = ["${attr.", "${node.", "${meta.", "${env[", "${NOMAD_DC}"].iter().any(|of| name.contains(of));
        let message = format_args!(
            "{} refers to the node, which the Service's name cannot; refer to the job, its group or meta",
            shown(name)
        );
        self.when(is_of_node, "ServiceName", field, message);
        let is_wrong = !name.contains("${") && object_name(name).is_none();
        let message =
            format_args!("{} cannot be the name of a Service; begin it with a letter, as in api", shown(name));
        self.when(is_wrong, "ServiceName", field, message);
    }

    /// An allocation without a network of its own has no address there (`spec/agent.md` 8.1).
    fn own_network(&mut self, field: At<'_>, group: &Group, mode: Option<AddressMode>) {
        let Some(mode) = mode.filter(|mode| is_own(Some(*mode))) else { return };
        let message = format_args!(
            "{mode} is an address of the allocation's own network, and the group has none; give its network mode bridge or cni, or take host"
        );
        self.when(
            !group.networks.first().is_some_and(|network| network.mode.is_own()),
            "ServiceAddressMode",
            field,
            message,
        );
    }

    fn port_label(&mut self, field: At<'_>, group: &Group, label: &str, mode: Option<AddressMode>) {
        // All ports of its own network are the allocation's.
        if is_own(mode) && label.parse::<u16>().is_ok_and(|number| number > 0) {
            return;
        }
        let message = format_args!(
            "{} is no port of the group; give the label of one of its networks' ports",
            if label.is_empty() { "it".to_owned() } else { shown(label) }
        );
        self.when(port_of(group, label).is_none(), "ServicePort", field, message);
    }

    /// Two ports of one Service have two numbers.
    fn port_of_service<'a>(
        &mut self,
        at: At<'_>,
        group: &'a Group,
        service: &'a Service,
        known: &mut BTreeMap<(&'a str, i64), &'a str>,
    ) {
        let Some(declared) = port_of(group, &service.port_label) else { return };
        let given = service.kubernetes.as_ref().and_then(|kubernetes| kubernetes.port);
        let number = given.or_else(|| service_port(declared)).unwrap_or(i64::from(HTTP_PORT));
        let first = *known.entry((&service.name, number)).or_insert(&declared.label);
        let message = format_args!(
            "{number} is also the port of {} for its label {first}; set another one",
            shown(&service.name)
        );
        self.when(first != declared.label, "ServicePortTwice", format_args!("{at}.kubernetes.port"), message);
    }

    fn service(&mut self, at: At<'_>, service: &Service) {
        let is_auto = matches!(service.address_mode, None | Some(AddressMode::Auto));
        let message = "needs addressMode auto; remove one of them";
        let is_wrong = !service.address.is_empty() && !is_auto;
        self.when(is_wrong, "ServiceAddress", format_args!("{at}.address"), message);
        for (n, check) in service.checks.iter().enumerate() {
            let at = format_args!("{at}.checks[{n}]");
            for (field, value) in [("interval", check.interval), ("timeout", check.timeout)] {
                let message = format_args!("{value} is below {SHORTEST}; raise it");
                self.when(value < SHORTEST, "CheckTimes", format_args!("{at}.{field}"), message);
            }
            let is_wrong = check.r#type == CheckType::Http && check.path.is_empty();
            let message = "is missing on an http check; give it, as in /health";
            self.when(is_wrong, "CheckPath", format_args!("{at}.path"), message);
        }
    }

    /// A script check runs in a task that is known: the service's, or its own.
    fn task_of_checks(&mut self, at: At<'_>, group: &Group, service: &Service, of_task: Option<&Task>) {
        let of_service = of_task.map_or(&service.task, |task| &task.name);
        for (n, check) in service.checks.iter().enumerate() {
            let field = format_args!("{at}.checks[{n}].task");
            let is_without = check.r#type == CheckType::Script && check.task.is_empty() && of_service.is_empty();
            let message = "is missing on a script check of a service without task; name the task that it runs in";
            self.when(is_without, "CheckTask", field, message);
            let is_task = |task: &Task| task.name == check.task;
            let is_unknown = !check.task.is_empty() && !group.tasks.iter().any(is_task);
            let message = format_args!("{} is no task of the group; name one, or remove it", shown(&check.task));
            self.when(is_unknown, "CheckTask", field, message);
        }
    }
}

/// The fields that a check gives and that are none of its type's, each with the types that they are of.
fn misplaced(check: &Check) -> impl Iterator<Item = (&'static str, &'static str)> {
    let (script, grpc) = (check.r#type == CheckType::Script, check.r#type == CheckType::Grpc);
    // On a tcp check the fields of http were always accepted: a job that has them keeps being so.
    let no_http = script || grpc;
    let ignores_warnings = check.check_restart.as_ref().is_some_and(|restart| restart.ignore_warnings);
    let fields = [
        (!script && !check.command.is_empty(), "command", "script"),
        (!script && !check.args.is_empty(), "args", "script"),
        (!script && !check.task.is_empty(), "task", "script"),
        (!script && check.on_update == Some(OnUpdate::IgnoreWarnings), "onUpdate", "script"),
        (!script && ignores_warnings, "checkRestart.ignoreWarnings", "script"),
        (!grpc && !check.grpc_service.is_empty(), "grpcService", "grpc"),
        (!grpc && check.grpc_use_tls, "grpcUseTLS", "grpc"),
        (no_http && !check.path.is_empty(), "path", "http"),
        (no_http && !check.method.is_empty(), "method", "http"),
        (no_http && !check.header.is_empty(), "header", "http"),
        (no_http && !check.body.is_empty(), "body", "http"),
        (no_http && check.protocol.is_some(), "protocol", "http"),
        (script && check.tls_skip_verify, "tlsSkipVerify", "http or grpc"),
        (script && !check.port_label.is_empty(), "portLabel", "http, tcp or grpc"),
        (script && check.address_mode.is_some(), "addressMode", "http, tcp or grpc"),
    ];
    fields.into_iter().filter(|(is_given, ..)| *is_given).map(|(_, field, types)| (field, types))
}

/// The port of a group by its label, or by its static number.
fn port_of<'a>(group: &'a Group, label: &str) -> Option<&'a Port> {
    let number = label.parse::<i64>().ok();
    let mut ports = group.networks.iter().flat_map(|network| &network.ports);
    ports.find(|port| port.label == label || (number.is_some() && port.r#static == number))
}
