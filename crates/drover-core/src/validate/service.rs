//! Services of a group and of its tasks, and their checks.

use std::collections::BTreeSet;

use drover_api::GoDuration;
use drover_api::group::Group;
use drover_api::service::{AddressMode, CheckType, Service};

use super::found::{At, Violations, shown};

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
}
