//! The job's own fields, its counts and its schedule.

use std::collections::{BTreeMap, BTreeSet};

use drover_api::JobSpec;
use drover_api::job::{JobType, Parameterized, Periodic};

use super::found::{Violation, Violations, is_label, shown};
use crate::definition::Definition;
use crate::task::identity::{self, JOB_MAX_ACCOUNTS};
use crate::task::secret::{self, JOB_MAX_SECRETS};
use crate::{dispatch, periodic};

/// Most allocations of a job, over all groups.
pub const JOB_MAX_COUNT: i64 = 50_000;
/// Largest spec, as JSON.
pub const SPEC_LIMIT_BYTES: usize = 256 * 1024;
/// Most groups of a job.
const GROUPS_LIMIT: usize = 64;
/// Highest priority.
const PRIORITY_LIMIT: i64 = 100;

/// All that is wrong with a complete definition. O(size of the spec).
pub fn violations(definition: &Definition) -> Vec<Violation> {
    let mut found = Violations::default();
    let spec = &definition.spec;
    found.job(spec);
    found.job_update(spec);
    for (n, group) in spec.groups.iter().enumerate() {
        found.group(spec, format_args!("spec.groups[{n}]"), group);
    }
    found.finish()
}

impl Violations {
    fn job(&mut self, spec: &JobSpec) {
        self.size(spec);
        self.identity(spec);
        self.counts(spec);
        self.group_names(spec);
        self.secrets_total(spec);
        self.scale(spec);
        self.pattern_looks(spec);
        for (n, constraint) in spec.constraints.iter().enumerate() {
            self.constraint(format_args!("spec.constraints[{n}]"), constraint);
        }
        self.preferences(format_args!("spec"), spec.r#type, &spec.affinities, &spec.spreads);
        let takes_templates = matches!(spec.r#type, JobType::Batch | JobType::Sysbatch);
        if let Some(periodic) = &spec.periodic {
            let is_wrong = periodic.enabled != Some(false) && !takes_templates;
            let message = "is for batch and sysbatch jobs; remove it, or change type";
            self.when(is_wrong, "PeriodicType", format_args!("spec.periodic"), message);
            self.periodic(periodic);
        }
        if let Some(parameterized) = &spec.parameterized {
            let message = "is for batch and sysbatch jobs; remove it, or change type";
            self.when(!takes_templates, "ParameterizedType", format_args!("spec.parameterized"), message);
            self.parameterized(parameterized);
        }
        let is_wrong = spec.dispatch.is_some() && !takes_templates;
        let message = "must be that of the parameterized job, batch or sysbatch, for a dispatched one";
        self.when(is_wrong, "DispatchType", format_args!("spec.type"), message);
        let message = "is known and not acted on by this version of drover; remove it";
        self.when(spec.multiregion.is_some(), "NotSupportedYet", format_args!("spec.multiregion"), message);
    }

    fn size(&mut self, spec: &JobSpec) {
        let size = serde_json::to_vec(spec).map_or(0, |bytes| bytes.len());
        self.when(
            size > SPEC_LIMIT_BYTES,
            "SpecTooLarge",
            format_args!("spec"),
            format_args!("has {size} bytes as JSON, above {SPEC_LIMIT_BYTES}; move files into artifacts"),
        );
    }

    fn identity(&mut self, spec: &JobSpec) {
        let id = format_args!("spec.id");
        self.when(spec.id.is_empty(), "JobIdMissing", id, "is empty; name the job in metadata.name or here");
        self.when(spec.id.contains(' '), "JobIdSpace", id, "contains a space; remove it");
        self.when(spec.id.contains('\0'), "JobIdNul", id, "contains a NUL character; remove it");
        let name = format_args!("spec.name");
        self.when(spec.name.is_empty(), "JobNameMissing", name, "is empty; give a name, or an id that stands for it");
        self.when(spec.name.contains('\0'), "JobNameNul", name, "contains a NUL character; remove it");
        let message = "names no datacenter; take [\"*\"] for all of them";
        self.when(spec.datacenters.is_empty(), "DatacentersMissing", format_args!("spec.datacenters"), message);
        for (n, datacenter) in spec.datacenters.iter().enumerate() {
            let field = format_args!("spec.datacenters[{n}]");
            self.when(datacenter.is_empty(), "DatacenterEmpty", field, "is empty; name a datacenter, or remove it");
        }
        self.when(
            !(1..=PRIORITY_LIMIT).contains(&spec.priority),
            "PriorityRange",
            format_args!("spec.priority"),
            format_args!("{} is outside 1 to {PRIORITY_LIMIT}; take a value between", spec.priority),
        );
    }

    fn counts(&mut self, spec: &JobSpec) {
        let (field, groups) = (format_args!("spec.groups"), spec.groups.len());
        let is_open = dispatch::is_open(spec);
        self.when(groups == 0 && !is_open, "GroupsMissing", field, "is empty; add a group with a task");
        self.when(
            groups > GROUPS_LIMIT,
            "GroupsTooMany",
            field,
            format_args!("has {groups} groups, above {GROUPS_LIMIT}; split the job"),
        );
        let total = spec.groups.iter().fold(0_i64, |sum, group| sum.saturating_add(group.count.max(0)));
        self.when(
            total > JOB_MAX_COUNT,
            "CountTotal",
            field,
            format_args!("asks for {total} allocations, above {JOB_MAX_COUNT}; lower the counts, or split the job"),
        );
    }

    fn secrets_total(&mut self, spec: &JobSpec) {
        let listed = secret::count(spec);
        let message = format_args!(
            "list {listed} secrets, above {JOB_MAX_SECRETS}; keep several values in one Secret, or split the job"
        );
        self.when(listed > JOB_MAX_SECRETS, "SecretsTotal", format_args!("spec.groups[].tasks[].secrets"), message);
        let accounts = identity::count_accounts(spec);
        let field = format_args!("spec.groups[].tasks[].identities[].kubernetes");
        let message = format_args!("are {accounts}, above {JOB_MAX_ACCOUNTS}; share one, or split the job");
        self.when(accounts > JOB_MAX_ACCOUNTS, "AccountsTotal", field, message);
    }

    fn scale(&mut self, spec: &JobSpec) {
        let Some(scale) = &spec.scale else { return };
        let field = format_args!("spec.scale.group");
        let is_open = scale.group.is_empty() && scale.count.is_some() && spec.groups.len() != 1;
        self.when(is_open, "ScaleGroup", field, "must name the group to scale, because the job has several; set it");
        let is_known = scale.group.is_empty() || spec.groups.iter().any(|group| group.name == scale.group);
        let message = format_args!("{} is none of the job's groups; correct the name", shown(&scale.group));
        self.when(!is_known, "ScaleGroup", field, message);
    }

    fn group_names(&mut self, spec: &JobSpec) {
        let mut seen = BTreeMap::new();
        for (n, group) in spec.groups.iter().enumerate() {
            let field = format_args!("spec.groups[{n}].name");
            self.when(group.name.is_empty(), "GroupNameMissing", field, "is empty; name the group");
            self.when(group.name.contains('\0'), "GroupNameNul", field, "contains a NUL character; remove it");
            let is_wrong = !group.name.is_empty() && !group.name.contains('\0') && !is_label(&group.name);
            let message = format_args!("{} is no DNS label; take a name such as web or api-2", shown(&group.name));
            self.when(is_wrong, "GroupNameFormat", field, message);
            if let Some(first) = seen.insert(&group.name, n).filter(|_| !group.name.is_empty()) {
                let name = shown(&group.name);
                let message = format_args!("{name} is also the name of spec.groups[{first}]; rename one of them");
                self.when(true, "GroupDuplicate", field, message);
            }
        }
    }

    fn periodic(&mut self, periodic: &Periodic) {
        if periodic.enabled == Some(false) {
            return;
        }
        let both = !periodic.crons.is_empty() && !periodic.cron.is_empty();
        let field = format_args!("spec.periodic.crons");
        self.when(both, "PeriodicSpec", field, "and cron are both given; keep crons");
        let neither = periodic.crons.is_empty() && periodic.cron.is_empty();
        self.when(neither, "PeriodicSpec", field, "is empty; give at least one, as in 0 3 * * *");
        if !periodic.cron.is_empty() {
            self.cron(format_args!("spec.periodic.cron"), &periodic.cron);
        }
        for (n, cron) in periodic.crons.iter().enumerate() {
            self.cron(format_args!("spec.periodic.crons[{n}]"), cron);
        }
        if let Err(error) = periodic::zone(&periodic.time_zone) {
            self.when(true, "PeriodicSpec", format_args!("spec.periodic.timeZone"), error);
        }
    }

    fn cron(&mut self, field: super::found::At<'_>, text: &str) {
        if let Err(error) = periodic::cron(text) {
            self.when(true, "PeriodicSpec", field, error);
        }
    }

    fn parameterized(&mut self, parameterized: &Parameterized) {
        let required: BTreeSet<&String> = parameterized.meta_required.iter().collect();
        for (n, key) in parameterized.meta_optional.iter().enumerate() {
            let message = format_args!("{} is also in metaRequired; remove it from one of them", shown(key));
            let field = format_args!("spec.parameterized.metaOptional[{n}]");
            self.when(required.contains(key), "ParamMeta", field, message);
        }
    }
}
