//! A task and what it needs.

use std::collections::BTreeSet;

use drover_api::GoDuration;
use drover_api::group::Group;
use drover_api::job::JobType;
use drover_api::placement::Operand;
use drover_api::task::{LifecycleHook, PropagationMode, Resources, Task};
use drover_api::value_object::{ValueKind, ValueObject};

use super::found::{At, Violations, is_label, shown};
use crate::task::secret::{object_of, objects_of_task, references};
use crate::task::template_objects::{NamedObject, named_in};

/// Least memory of a task, in MiB.
const MEMORY_MINIMUM_MB: i64 = 10;

impl Violations {
    pub(super) fn task(&mut self, r#type: JobType, at: At<'_>, group: &Group, task: &Task) {
        self.task_name(at, &task.name);
        self.when(task.driver.is_empty(), "DriverMissing", format_args!("{at}.driver"), "is empty; name a driver");
        self.task_times(r#type, at, group, task);
        self.logs(at, group, task);
        self.resources(at, &task.resources);
        self.task_placement(r#type, at, task);
        self.mounts(at, group, task);
        self.files(at, task);
        self.rolling(at, group, task);
        self.secrets(at, group, task);
        self.looked_up(at, task);
        let is_wrong = task
            .lifecycle
            .as_ref()
            .is_some_and(|lifecycle| lifecycle.hook == LifecycleHook::Poststop && lifecycle.sidecar);
        let message = "is set on a poststop task, beside which nothing runs; set it to false";
        self.when(is_wrong, "PoststopSidecar", format_args!("{at}.lifecycle.sidecar"), message);
        if let Some(restart) = task.restart.as_ref().filter(|restart| Some(*restart) != group.restart.as_ref()) {
            self.restart(format_args!("{at}.restart"), restart);
        }
    }

    /// What the task lists, and references to what it does not.
    fn secrets(&mut self, at: At<'_>, group: &Group, task: &Task) {
        let mut names = BTreeSet::new();
        for (n, secret) in task.secrets.iter().enumerate() {
            let field = format_args!("{at}.secrets[{n}].name");
            let is_wrong = !is_secret_name(&secret.name);
            let message = format_args!("{} has other characters than letters, digits, _ and -", shown(&secret.name));
            self.when(is_wrong, "SecretName", field, message);
            let message = format_args!("{} is also the name of another secret; rename one", shown(&secret.name));
            self.when(!names.insert(secret.name.as_str()), "SecretDuplicate", field, message);
            let object = object_of(secret);
            let message = format_args!("{} cannot be the name of a {:?}; correct it", shown(&secret.path), object.kind);
            let field = format_args!("{at}.secrets[{n}].path");
            self.when(!is_object_name(&object.name), "SecretPath", field, message);
        }
        for (n, name) in task.image_pull_secrets.iter().enumerate() {
            let message = format_args!("{} cannot be the name of a Secret; correct it", shown(name));
            self.when(!is_object_name(name), "SecretPath", format_args!("{at}.imagePullSecrets[{n}]"), message);
        }
        let pulls = ["", "containerd", "docker"].contains(&task.driver.as_str());
        let message = "are for driver containerd, which pulls images; remove them";
        let is_wrong = !pulls && !task.image_pull_secrets.is_empty();
        self.when(is_wrong, "ImagePullSecrets", format_args!("{at}.imagePullSecrets"), message);
        let meta = group.meta.iter().chain(&task.meta).collect();
        for reference in references(task, &meta) {
            let name = &reference.name;
            let message = format_args!(
                "${{secret.{}.{}}}: the task lists no secret {0}; add it to secrets, or correct the reference",
                shown(name),
                shown(&reference.key)
            );
            let is_wrong = !names.contains(name.as_str());
            self.when(is_wrong, "SecretReference", format_args!("{at}.{}", reference.field), message);
        }
    }

    /// What templates look up by name, and the task does not list: its node would not get it.
    fn looked_up(&mut self, at: At<'_>, task: &Task) {
        let listed: BTreeSet<ValueObject> = objects_of_task(task).collect();
        for (n, template) in task.templates.iter().enumerate() {
            for NamedObject { object, .. } in named_in(template) {
                let provider = match object.kind {
                    ValueKind::ConfigMap => ", provider: configmap",
                    _ => "",
                };
                let name = shown(&object.name);
                let message = format_args!(
                    "looks up {:?} {name}, which the task does not list; add {{name: {}, path: {name}{provider}}} to its \
                     secrets",
                    object.kind,
                    name.replace('.', "-"),
                );
                let is_wrong = !listed.contains(&object);
                self.when(is_wrong, "TemplateObject", format_args!("{at}.templates[{n}].embeddedTmpl"), message);
            }
        }
    }

    fn task_name(&mut self, at: At<'_>, name: &str) {
        let field = format_args!("{at}.name");
        self.when(name.is_empty(), "TaskNameMissing", field, "is empty; name the task");
        let message = "alloc is the name of the allocation's shared directory; take another name";
        self.when(name == "alloc", "TaskNameReserved", field, message);
        let message = format_args!("{} contains a slash; the name becomes a directory: remove it", shown(name));
        self.when(name.contains(['/', '\\']), "TaskNameSlash", field, message);
        self.when(name.contains('\0'), "TaskNameNul", field, "contains a NUL character; remove it");
        let is_wrong = !name.is_empty() && !name.contains(['/', '\\', '\0']) && !is_label(name);
        let message = format_args!("{} is no DNS label; take a name such as server or log-shipper", shown(name));
        self.when(is_wrong, "TaskNameFormat", field, message);
    }

    fn task_times(&mut self, r#type: JobType, at: At<'_>, group: &Group, task: &Task) {
        let (field, kill) = (format_args!("{at}.killTimeout"), task.kill_timeout);
        let message = format_args!("{kill} is negative; set it to 0s or more");
        self.when(kill.is_negative(), "KillTimeoutNegative", field, message);
        let deadline = group.update.as_ref().and_then(|update| update.progress_deadline).unwrap_or_default();
        let is_service = r#type == JobType::Service;
        self.when(
            is_service && deadline > GoDuration::ZERO && kill > deadline,
            "KillTimeoutTooLong",
            field,
            format_args!("{kill} is longer than update.progressDeadline {deadline}; shorten it"),
        );
        let delay = task.shutdown_delay.unwrap_or_default();
        let message = format_args!("{delay} is negative; set it to 0s or more");
        self.when(delay.is_negative(), "ShutdownDelayNegative", format_args!("{at}.shutdownDelay"), message);
    }

    fn logs(&mut self, at: At<'_>, group: &Group, task: &Task) {
        let (files, size) = (task.logs.max_files, task.logs.max_file_size_mb);
        self.when(files < 1, "LogLimits", format_args!("{at}.logs.maxFiles"), "is below 1; raise it");
        self.when(size < 1, "LogLimits", format_args!("{at}.logs.maxFileSizeMB"), "is below 1; raise it");
        let (needed, disk) = (files.saturating_mul(size), group.ephemeral_disk.size_mb);
        let message = format_args!(
            "need {needed} MiB (maxFiles times maxFileSizeMB), not less than ephemeralDisk.sizeMB {disk}; keep fewer, or raise that"
        );
        self.when(files > 0 && size > 0 && needed >= disk, "LogDisk", format_args!("{at}.logs"), message);
    }

    fn resources(&mut self, at: At<'_>, resources: &Resources) {
        let at = format_args!("{at}.resources");
        let (cores, cpu) = (resources.cores.unwrap_or(0), resources.cpu);
        let field = format_args!("{at}.cores");
        self.when(cores < 0, "CoresNegative", field, "is negative; set it to 0 or more");
        let message = "and cpu exclude each other; remove one of them";
        self.when(cores > 0 && cpu.is_some_and(|cpu| cpu != 0), "CpuAndCores", field, message);
        let is_wrong = cores <= 0 && cpu.is_some_and(|cpu| cpu < 1) || cpu.is_some_and(|cpu| cpu < 0);
        self.when(is_wrong, "CpuMin", format_args!("{at}.cpu"), "is below 1; raise it, or ask for cores");
        let memory = resources.memory_mb;
        self.when(
            memory < MEMORY_MINIMUM_MB,
            "MemMin",
            format_args!("{at}.memoryMB"),
            format_args!("{memory} is below {MEMORY_MINIMUM_MB}; raise it"),
        );
        let most = resources.memory_max_mb.unwrap_or(0);
        self.when(
            !matches!(most, 0 | -1) && most < memory,
            "MemMaxBelowMem",
            format_args!("{at}.memoryMaxMB"),
            format_args!("{most} is below memoryMB {memory}; raise it, or set 0 for none or -1 for no limit"),
        );
        let secrets = resources.secrets_mb.unwrap_or(0);
        self.when(
            secrets < 0 || secrets > memory,
            "SecretsMem",
            format_args!("{at}.secretsMB"),
            format_args!("{secrets} is not within memoryMB {memory}, of which it is a part; lower it"),
        );
        for (n, device) in resources.devices.iter().enumerate() {
            let at = format_args!("{at}.devices[{n}]");
            for (m, constraint) in device.constraints.iter().enumerate() {
                self.constraint(format_args!("{at}.constraints[{m}]"), constraint);
            }
            for (m, affinity) in device.affinities.iter().enumerate() {
                self.affinity(format_args!("{at}.affinities[{m}]"), affinity);
            }
        }
    }

    fn task_placement(&mut self, r#type: JobType, at: At<'_>, task: &Task) {
        for (n, constraint) in task.constraints.iter().enumerate() {
            let field = format_args!("{at}.constraints[{n}]");
            self.constraint(field, constraint);
            let is_distinct = matches!(constraint.operand, Operand::DistinctHosts | Operand::DistinctProperty);
            let message = format_args!("{} counts allocations; move it to the group or the job", constraint.operand);
            self.when(is_distinct, "DistinctAtTask", format_args!("{field}.operand"), message);
        }
        self.preferences(at, r#type, &task.affinities, &[]);
    }

    fn mounts(&mut self, at: At<'_>, group: &Group, task: &Task) {
        for (n, mount) in task.volume_mounts.iter().enumerate() {
            let is_known = group.volumes.iter().any(|volume| volume.name == mount.volume);
            let message = format_args!(
                "{} is none of the group's volumes; declare it, or correct the name",
                shown(&mount.volume)
            );
            self.when(!is_known, "VolumeMountRef", format_args!("{at}.volumeMounts[{n}].volume"), message);
            let is_private = mount.propagation_mode.unwrap_or_default() == PropagationMode::Private;
            let message = "is known and not acted on by this version of drover; remove it, mounts are private";
            let field = format_args!("{at}.volumeMounts[{n}].propagationMode");
            self.when(!is_private, "NotSupportedYet", field, message);
            let message = "is known and not acted on by this version of drover; remove it";
            let field = format_args!("{at}.volumeMounts[{n}].selinuxLabel");
            self.when(!mount.selinux_label.is_empty(), "NotSupportedYet", field, message);
        }
    }
}

/// What can stand in `${secret.<name>.<key>}`: no dot, which ends the name.
fn is_secret_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A DNS subdomain, as names of Secrets and `ConfigMaps` are.
fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}
