//! The verbs of `drover plan`.

use super::text;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use drover_api::Job;
use drover_api::job::EvalTrigger;
use drover_core::advice;
use drover_core::definition::Definition;
use drover_core::difference::JobDiff;
use drover_core::ids::{EvalId, JobKey};
use drover_core::model::DEFAULT_PRIORITY;
use drover_core::scheduler::{self, plan::Evaluation};
use drover_core::snapshot::ClusterView;
use drover_core::validate;
use jiff::Timestamp;

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::commands::dump::{Reader, Scope};
use crate::commands::plan::report::Report;
use crate::state::job_files::{self, VariableArgs};
use crate::state::{self, documents};
use crate::ui::output::{self, ReportOutput};
use crate::ui::stdio::{complain, read_input};
use drover_clock::{Clock, SystemClock};
use drover_store::convert;
use drover_store::planned::PlannedState;

/// The plan changes something.
const CHANGES: u8 = 1;
/// Something found no place.
const NOT_PLACED: u8 = 2;

/// Arguments of `drover plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 nothing to do, 1 the plan changes something, 2 something found no place, 255 error."
)]
pub(crate) struct StateArgs {
    /// The state: a file of manifests as `drover dump -A` writes it; `-` is standard input.
    #[arg(long)]
    state: PathBuf,
    /// The job, and what makes drover look at it: NAMESPACE/JOB[:TRIGGER]; the trigger's default is job-register.
    #[arg(long)]
    eval: Target,
    #[command(flatten)]
    how: How,
}

/// Arguments of `drover job plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 nothing to do, 1 the plan changes something, 255 error.")]
pub(crate) struct JobArgs {
    /// A file with one Job: a manifest, a job file in HCL (`*.hcl`, `*.nomad`), or a job in the JSON of `nomad job
    /// inspect`; `-` is a manifest or JSON on standard input.
    file: PathBuf,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    /// drover's own namespace, which holds the `ConfigMap` drover-config.
    #[arg(long, default_value = drover_api::SYSTEM_NAMESPACE)]
    system_namespace: String,
    #[command(flatten)]
    how: How,
}

#[derive(Debug, clap::Args)]
struct How {
    /// The time at which it is decided, as 2026-01-31T12:00:00Z; default now.
    #[arg(long)]
    now: Option<Timestamp>,
    /// What chance decides with: the same state, time and seed give the same plan.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
}

/// A job and a reason to look at it.
#[derive(Clone, Debug)]
struct Target {
    job: JobKey,
    trigger: EvalTrigger,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, trigger) = text.split_once(':').unwrap_or((text, EvalTrigger::JobRegister.as_str()));
        let names = job.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
        let (namespace, name) = names.ok_or("name the job as NAMESPACE/JOB")?;
        let known = EvalTrigger::ALL.iter().find(|known| known.as_str() == trigger);
        let trigger = known.ok_or_else(|| {
            let all: Vec<&str> = EvalTrigger::ALL.iter().map(|trigger| trigger.as_str()).collect();
            format!("`{trigger}` is no trigger; take one of {}", all.join(", "))
        })?;
        Ok(Self { job: JobKey::new(namespace, name), trigger: *trigger })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.job, self.trigger)
    }
}

/// Plans on a saved state.
pub(crate) fn run_state(args: &StateArgs) -> anyhow::Result<u8> {
    let bytes = read_input(&args.state)?;
    let source = args.state.display().to_string();
    let state = state::load(&bytes, &args.eval.job, None).with_context(|| source.clone())?;
    // The process ends with this command: taking a large state apart again would only cost time.
    let state: &PlannedState = Box::leak(Box::new(state));
    let is_gone = args.eval.trigger == EvalTrigger::JobDeregister;
    ensure!(
        is_gone || state::is_known(&state.view, &args.eval.job),
        "{source}: no Job {} and no Allocation of it; correct --eval, or add the job to the state",
        args.eval.job
    );
    let report = evaluate(state, &args.eval, None, &args.how);
    output::report(&report, args.how.output, || text::render(&report))?;
    Ok(match (report.failed.is_empty(), report.changes()) {
        (false, _) => NOT_PLACED,
        (true, true) => CHANGES,
        (true, false) => 0,
    })
}

/// Plans a manifest on the cluster as it is.
pub(crate) fn run_job(args: &JobArgs) -> anyhow::Result<u8> {
    let bytes = job_files::read(&args.file, &args.variables)?;
    let mut job = manifest(&bytes).with_context(|| args.file.display().to_string())?;
    let mut lines = Vec::new();
    let target = block_on(async {
        let connection = args.connect.connect().await?;
        let namespace = match (&args.connect.namespace, &job.metadata.namespace) {
            (Some(asked), Some(written)) if asked != written => {
                bail!("metadata.namespace is {written}, but --namespace is {asked}; leave one of them out")
            }
            (_, Some(written)) => written.clone(),
            (_, None) => connection.namespace,
        };
        let reader = Reader { client: connection.client, scope: Scope::All };
        reader
            .read_all(&args.system_namespace, |page| {
                lines.extend(page);
                Ok(())
            })
            .await?;
        job.metadata.namespace = Some(namespace);
        Ok(Target { job: convert::object_key(&job.metadata), trigger: EvalTrigger::JobRegister })
    })?;
    let submitted = Definition::new(&job.spec, &target.job.name);
    let state = state::load(&lines, &target.job, Some(job)).context("the cluster's state")?;
    let report = evaluate(&state, &target, Some(&submitted), &args.how);
    for warning in validate::warnings(&submitted) {
        complain(&format!("{}: djob/{}: warning: {warning}", args.file.display(), target.job.name));
    }
    output::report(&report, args.how.output, || text::render(&report))?;
    Ok(if report.changes() || !report.failed.is_empty() { CHANGES } else { 0 })
}

/// The one Job of a file.
fn manifest(bytes: &[u8]) -> anyhow::Result<Job> {
    let documents = documents::read(bytes)?;
    let [document] = documents.as_slice() else {
        bail!("holds {} objects; `drover job plan` takes one Job", documents.len());
    };
    let head = document.head()?;
    ensure!(
        head.kind == "Job" && head.api_version == drover_api::API_VERSION,
        "{document}: is {} of {}; `drover job plan` takes a Job of {}",
        head.kind,
        head.api_version,
        drover_api::API_VERSION
    );
    let violations = validate::shape("Job", &document.value()?);
    if !violations.is_empty() {
        let list: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
        bail!("{document} is invalid:{}", list.concat());
    }
    let job: Job = document.parse().with_context(|| format!("{document} cannot be read"))?;
    ensure!(job.metadata.name.as_ref().is_some_and(|name| !name.is_empty()), "metadata.name: is missing; name the job");
    Ok(job)
}

fn evaluate(state: &PlannedState, target: &Target, submitted: Option<&Definition>, how: &How) -> Report {
    let view = &state.view;
    let now = how.now.unwrap_or_else(|| SystemClock.now());
    let priority = view.job(&target.job).map_or(DEFAULT_PRIORITY, |job| job.definition.spec.priority);
    let evaluation = Evaluation {
        id: EvalId::from(format!("plan-{}", how.seed)),
        job: target.job.clone(),
        trigger: target.trigger,
        priority,
        now,
        wait_until: awaited(view, target, now),
    };
    let plan = scheduler::plan(view, &evaluation, &mut fastrand::Rng::with_seed(how.seed));
    let mut report = Report::new(view, &evaluation, &plan);
    report.diff = submitted.map(|after| JobDiff::between(state.replaced.as_deref(), after).with_updates(&plan.desired));
    if how.output == ReportOutput::Table {
        let help = |group: &String| (group.clone(), advice::advice(view, &evaluation, how.seed, &plan, group));
        report.advice = plan.failed.keys().map(help).collect();
    }
    report
}

/// For a trigger of delayed evaluations: the newest time that is due and that an allocation waits for.
fn awaited(view: &ClusterView, target: &Target, now: Timestamp) -> Option<Timestamp> {
    let awaited = view.allocs_of_job(&target.job).filter_map(|alloc| alloc.follow_up.as_ref());
    awaited.filter(|awaited| awaited.trigger == target.trigger && awaited.at <= now).map(|awaited| awaited.at).max()
}
