//! What a spec may not ask for because this version does not act on it, or because it can never be met.
//!
//! Asked of specs that are submitted, not of stored ones: a job that an earlier version accepted runs on, and its next
//! change leaves out what is named here. So it looks at the spec as it was written, without defaults. The rules of the
//! API server say the same (`drover_api::schema::rules`).

use std::collections::BTreeMap;

use drover_api::JobSpec;
use drover_api::group::Group;
use drover_api::network::NetworkMode;
use drover_api::placement::Spread;
use drover_api::policy::Update;
use drover_api::task::{Artifact, ArtifactMode, NumaAffinity, Task};

use super::found::{At, Violations, shown};
use crate::artifact::{destination, fetch_plan};
use crate::defaults;
use crate::task::driver_config;

/// The code of a field that no code acts on yet.
const NOT_YET: &str = "NotSupportedYet";

impl Violations {
    pub(super) fn submission(&mut self, spec: &JobSpec) {
        let is_elsewhere = !matches!(spec.region.as_str(), "" | "global");
        let instead =
            "there is one region, global; remove it, and choose nodes by datacenters, nodePool or constraints";
        self.not_yet(is_elsewhere, format_args!("spec.region"), instead);
        self.stagger(format_args!("spec.update"), spec.update.as_ref());
        self.spreads(format_args!("spec"), &spec.spreads);
        for (n, group) in spec.groups.iter().enumerate() {
            let at = format_args!("spec.groups[{n}]");
            self.submitted_group(at, group);
            self.canaries(at, spec, group);
            for (m, task) in group.tasks.iter().enumerate() {
                self.submitted_task(format_args!("{at}.tasks[{m}]"), task);
            }
        }
    }

    pub(super) fn not_yet(&mut self, is_given: bool, field: At<'_>, instead: &str) {
        self.when(is_given, NOT_YET, field, format_args!("is not acted on by this version: {instead}"));
    }

    fn stagger(&mut self, at: At<'_>, update: Option<&Update>) {
        let is_given = update.is_some_and(|update| update.stagger.is_some());
        let instead = "remove it, maxParallel and minHealthyTime set the pace of a roll-out";
        self.not_yet(is_given, format_args!("{at}.stagger"), instead);
    }

    fn submitted_group(&mut self, at: At<'_>, group: &Group) {
        self.stagger(format_args!("{at}.update"), group.update.as_ref());
        self.spreads(at, &group.spreads);
        self.submitted_services(at, group);
        self.submitted_networks(at, group);
    }

    fn submitted_networks(&mut self, at: At<'_>, group: &Group) {
        let first = group.networks.first().map(|network| network.mode);
        for (n, network) in group.networks.iter().enumerate() {
            let at = format_args!("{at}.networks[{n}]");
            let has_own = network.mode.is_own();
            for (field, is_given) in [("dns", network.dns.is_some()), ("hostname", !network.hostname.is_empty())] {
                let message = format_args!(
                    "is for modes bridge and cni, not for {}, whose tasks have that of their node; remove it, or change mode",
                    network.mode
                );
                self.when(is_given && !has_own, "NetworkOwn", format_args!("{at}.{field}"), message);
            }
            let message = format_args!(
                "is for the group's first network, whose namespace its tasks share; put it there, and the ports too"
            );
            let is_given = network.dns.is_some() || !network.hostname.is_empty() || network.cni.is_some();
            self.when(n > 0 && has_own && is_given, "NetworkOwn", format_args!("{at}"), message);
            let mode = format_args!("{at}.mode");
            let message = format_args!(
                "{} is another one than the group's first network has, and its tasks share one; put the ports into one network",
                network.mode
            );
            self.when(first != Some(network.mode), "NetworkModes", mode, message);
            let raw = group.tasks.iter().find(|task| task.driver == "raw_exec");
            if let Some(task) = raw.filter(|_| network.mode != NetworkMode::Host) {
                let message = format_args!(
                    "{} does not hold for task {} with driver raw_exec, which is in the network of its node; take driver exec, or mode host",
                    network.mode,
                    shown(&task.name)
                );
                self.when(true, "NetworkRawExec", mode, message);
            }
        }
    }

    /// The update block as it will act. More canaries than the count are met: they are as many as it (S-218).
    fn canaries(&mut self, at: At<'_>, spec: &JobSpec, group: &Group) {
        let update = defaults::update(spec.r#type, spec.update.as_ref(), group.update.as_ref()).unwrap_or_default();
        let is_wrong = update.canary.unwrap_or(0) > 0 && update.max_parallel == Some(0);
        let message =
            "needs a deployment, and with maxParallel 0 there is none; set maxParallel to at least 1, or canary to 0";
        self.when(is_wrong, "CanaryNoDeployment", format_args!("{at}.update.canary"), message);
    }

    /// The spreads of one level. Of those that a group and its job have both, the group's counts.
    fn spreads(&mut self, at: At<'_>, spreads: &[Spread]) {
        let mut seen = BTreeMap::new();
        for (n, spread) in spreads.iter().enumerate() {
            let field = format_args!("{at}.spreads[{n}]");
            if let Some(first) = seen.insert(spread.attribute.as_str(), n) {
                let attribute = shown(&spread.attribute);
                let message = format_args!(
                    "{attribute} is also the attribute of {at}.spreads[{first}]; keep one of them, with all its targets"
                );
                self.when(true, "SpreadDuplicate", format_args!("{field}.attribute"), message);
            }
            let is_empty = !spread.targets.is_empty() && spread.targets.iter().all(|target| target.percent == 0);
            let message = "are all 0 percent, which asks for nothing; give one of them a share, or leave targets out to spread evenly";
            self.when(is_empty, "SpreadTarget", format_args!("{field}.targets"), message);
        }
    }

    /// What an artifact asks for, as far as it does not depend on its node.
    fn artifact(&mut self, at: At<'_>, artifact: &Artifact) {
        let is_open = |text: &str| text.contains("${");
        if !is_open(&artifact.relative_dest)
            && let Err(error) = destination(&artifact.relative_dest, None)
        {
            self.when(true, "ArtifactDest", at, error);
        }
        let of_maps = artifact.getter_options.values().chain(artifact.getter_headers.values());
        if is_open(&artifact.getter_source) || of_maps.into_iter().any(|text| is_open(text)) {
            return;
        }
        if let Err(error) = fetch_plan(artifact) {
            self.when(true, "ArtifactSource", at, error);
        }
        let names_no_file = artifact.getter_mode == Some(ArtifactMode::File) && artifact.relative_dest.is_empty();
        let message = "is file, which needs the file's name in relativeDest, as local/app.conf";
        self.when(names_no_file, "ArtifactDest", format_args!("{at}.getterMode"), message);
    }

    fn submitted_task(&mut self, at: At<'_>, task: &Task) {
        let instead = "remove them, and run commands by drover alloc exec";
        self.not_yet(!task.actions.is_empty(), format_args!("{at}.actions"), instead);
        for (n, artifact) in task.artifacts.iter().enumerate() {
            self.artifact(format_args!("{at}.artifacts[{n}]"), artifact);
        }
        let numa = task.resources.numa.as_ref().map(|numa| numa.affinity).unwrap_or_default();
        let instead = "remove it, cores come from any memory bank";
        self.not_yet(numa != NumaAffinity::None, format_args!("{at}.resources.numa"), instead);
        if let Some(plugin) = &task.csi_plugin {
            let at = format_args!("{at}.csiPlugin");
            let instead = "remove it, the plugin finds its socket's path in CSI_ENDPOINT";
            self.not_yet(!plugin.mount_dir.is_empty(), format_args!("{at}.mountDir"), instead);
            let instead = "remove it, the paths in each request to the plugin are the node's own";
            let is_given = !plugin.stage_publish_base_dir.is_empty();
            self.not_yet(is_given, format_args!("{at}.stagePublishBaseDir"), instead);
        }
        self.driver(at, task);
        self.names_of_env(at, task);
    }

    fn driver(&mut self, at: At<'_>, task: &Task) {
        let name = task.driver.as_str();
        let is_known = name.is_empty() || driver_config::DRIVERS.contains(&name);
        let message = format_args!(
            "{} is no driver of this version; take containerd (or docker, which is the same) for an image, else exec",
            shown(name)
        );
        self.when(!is_known, "DriverUnknown", format_args!("{at}.driver"), message);
        if let Some(fault) = driver_config::fault(name, &task.config) {
            self.when(
                true,
                "DriverConfig",
                format_args!("{at}.config"),
                format_args!("is refused by its driver: {fault}"),
            );
        }
    }

    /// A process cannot have them: its environment is a list of NAME=VALUE, each ended by NUL.
    fn names_of_env(&mut self, at: At<'_>, task: &Task) {
        for name in task.env.keys() {
            let field = format_args!("{at}.env");
            self.when(name.is_empty(), "EnvName", field, "has an empty name; give it one, or remove it");
            let message = format_args!("has the name {:?}, which contains = or NUL; correct it", shown(name));
            self.when(name.contains(['=', '\0']), "EnvName", field, message);
        }
    }
}
