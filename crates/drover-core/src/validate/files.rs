//! Paths of a task: templates, artifacts, tokens, payloads and mounts stay below the directories that they belong to.

use drover_api::GoDuration;
use drover_api::group::Group;
use drover_api::task::{ChangeMode, Identity, Task, Template};

use super::found::{At, Violations, shown};
use crate::task::identity;
use crate::task::template::{self, ChangeWait};

impl Violations {
    pub(super) fn files(&mut self, at: At<'_>, task: &Task) {
        for (n, template) in task.templates.iter().enumerate() {
            self.template(format_args!("{at}.templates[{n}]"), template);
        }
        self.script_in_container(at, task);
        for (n, artifact) in task.artifacts.iter().enumerate() {
            let field = format_args!("{at}.artifacts[{n}].relativeDest");
            self.relative(field, "ArtifactDest", &artifact.relative_dest, "local/bin");
        }
        if let Some(payload) = &task.dispatch_payload {
            self.relative(format_args!("{at}.dispatchPayload.file"), "PayloadFile", &payload.file, "input.txt");
        }
        for (n, identity) in task.identities.iter().enumerate() {
            self.task_identity(format_args!("{at}.identities[{n}]"), identity);
        }
        for (n, mount) in task.volume_mounts.iter().enumerate() {
            let path = mount.destination.as_str();
            let is_wrong = !is_mount_destination(path);
            let message = format_args!("{} must be an absolute path without ..; write it as in /data", shown(path));
            self.when(is_wrong, "MountDestination", format_args!("{at}.volumeMounts[{n}].destination"), message);
        }
    }

    fn template(&mut self, at: At<'_>, template: &Template) {
        let is_wrong = template.embedded_tmpl.is_empty() == template.source_path.is_empty();
        let message = "and sourcePath are both or neither given; give the text here, or a file there";
        self.when(is_wrong, "TemplateSource", format_args!("{at}.embeddedTmpl"), message);
        let path = template.dest_path.as_str();
        let message = format_args!(
            "{} must be a path below the task's directory without ..; write it as in local/app.conf",
            shown(path)
        );
        self.when(goes_up(path), "TemplateDest", format_args!("{at}.destPath"), message);
        let is_signal = template.change_mode == Some(ChangeMode::Signal);
        let is_wrong = template.change_mode.is_some() && is_signal == template.change_signal.is_empty();
        let message = "belongs to changeMode signal; set both, or neither";
        self.when(is_wrong, "TemplateSignal", format_args!("{at}.changeSignal"), message);
        let is_script = template.change_mode == Some(ChangeMode::Script);
        let message = "belongs to changeMode script; set both, or neither";
        let is_wrong = is_script != template.change_script.is_some();
        self.when(is_wrong, "TemplateScript", format_args!("{at}.changeScript"), message);
        let message = format_args!("{} is no octal mode up to 0777; write it as in 0644", shown(&template.perms));
        let is_wrong = template::permissions(template).is_none();
        self.when(is_wrong, "TemplatePerms", format_args!("{at}.perms"), message);
        let wait = ChangeWait::of(template);
        let message = "has a max below its min; raise max, or lower min";
        self.when(wait.max < wait.min, "TemplateWait", format_args!("{at}.wait"), message);
    }

    /// Values in turn need values that change, and a pace.
    pub(super) fn rolling(&mut self, at: At<'_>, group: &Group, task: &Task) {
        for (n, _) in task.templates.iter().enumerate().filter(|(_, template)| template.rolling) {
            let field = format_args!("{at}.templates[{n}].rolling");
            let message = "has no effect with once, which renders no new values; remove one of the two";
            self.when(task.templates[n].once, "TemplateRolling", field, message);
            let message = "needs a Secret or ConfigMap in the task's secrets, whose new values it takes in turn; list it there, or remove rolling";
            self.when(task.secrets.is_empty(), "TemplateRolling", field, message);
            let is_paced = group.update.as_ref().is_some_and(|update| update.max_parallel.unwrap_or(1) > 0);
            let message =
                "needs update.maxParallel of at least 1, which batch jobs have not; set it, or remove rolling";
            self.when(!is_paced, "TemplateRolling", field, message);
        }
    }

    fn account_identity(&mut self, at: At<'_>, identity: &Identity) {
        let Some(account) = &identity.kubernetes else { return };
        let field = format_args!("{at}.kubernetes");
        let message = "is not for the default identity, which drover's own API takes; name another identity";
        self.when(identity.name == identity::DEFAULT, "IdentityAccount", field, message);
        let name = format_args!("{at}.kubernetes.serviceAccount");
        let message = "is empty; name a ServiceAccount of the namespace";
        self.when(account.service_account.is_empty(), "IdentityAccount", name, message);
        let message = "are not for a ServiceAccount's token; remove them";
        let has_claims = !identity.extra_claims.is_empty();
        self.when(has_claims, "IdentityAccount", format_args!("{at}.extraClaims"), message);
        let is_short =
            identity.ttl.is_some_and(|ttl| !ttl.to_std().is_zero() && ttl.to_std() < identity::SHORTEST_ACCOUNT_LIFE);
        let message = "is below 10m, for which the API server makes no token; give 10m or more";
        self.when(is_short, "IdentityTtl", format_args!("{at}.ttl"), message);
    }

    fn task_identity(&mut self, at: At<'_>, identity: &Identity) {
        let Identity { name, filepath, .. } = identity;
        let message = format_args!("{} must be 1 to 63 letters, digits, - and _; rename it", shown(name));
        self.when(!identity::is_name(name), "IdentityName", format_args!("{at}.name"), message);
        let field = format_args!("{at}.filepath");
        self.relative(field, "IdentityFile", filepath, "secrets/token");
        let is_wrong = !filepath.is_empty() && !identity.file;
        self.when(is_wrong, "IdentityFile", field, "needs file true; set it, or remove filepath");
        let is_signal = identity.change_mode == Some(ChangeMode::Signal);
        let message = "belongs to changeMode signal; set both, or neither";
        let is_wrong = is_signal == identity.change_signal.is_empty();
        self.when(is_wrong, "IdentitySignal", format_args!("{at}.changeSignal"), message);
        let is_script = identity.change_mode == Some(ChangeMode::Script);
        let message = "is script, which identities have not; take noop, restart or signal";
        self.when(is_script, "IdentityMode", format_args!("{at}.changeMode"), message);
        let field = format_args!("{at}.ttl");
        let is_limited = identity.ttl.is_some_and(|ttl| !ttl.to_std().is_zero());
        let message =
            "is not for the default identity, which ends with its allocation; remove it, or name another identity";
        self.when(is_limited && name == identity::DEFAULT, "IdentityTtl", field, message);
        self.account_identity(at, identity);
        let is_negative = identity.ttl.is_some_and(GoDuration::is_negative);
        self.when(is_negative, "IdentityTtl", field, "is negative; give how long a token counts, as in 1h");
    }

    /// A script runs in the task, and the tasks of a container runtime are not entered.
    fn script_in_container(&mut self, at: At<'_>, task: &Task) {
        let is_container = ["containerd", "docker"].contains(&task.driver.as_str());
        let message = "is not for driver containerd, whose tasks no script enters; take changeMode signal or restart";
        for (n, template) in task.templates.iter().enumerate() {
            let is_wrong = is_container && template.change_mode == Some(ChangeMode::Script);
            self.when(is_wrong, "TemplateScript", format_args!("{at}.templates[{n}].changeMode"), message);
        }
    }

    fn relative(&mut self, field: At<'_>, code: &'static str, path: &str, example: &str) {
        let is_wrong = path.starts_with('/') || goes_up(path);
        let message = format_args!("{} must be a relative path without ..; write it as in {example}", shown(path));
        self.when(is_wrong, code, field, message);
    }
}

/// Whether a volume can be mounted there in a task: absolute, and without `..`. A job is asked before its placement,
/// and its task again when what it interpolates is known.
pub fn is_mount_destination(path: &str) -> bool {
    path.starts_with('/') && !goes_up(path)
}

fn goes_up(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}
