//! `drover job dispatch` and `drover job periodic force`: a job that another one makes, now.
//!
//! Both create one object; what it runs is the controller's to fill in and to check again. What is wrong is told before
//! anything is created, all of it at once.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use drover_api::job::Dispatch;
use drover_api::{Job, JobSpec};
use drover_core::dispatch::{self, Parent};
use drover_core::{periodic, validate};
use kube::api::{ListParams, PostParams};

use super::after::AfterArgs;
use super::parts::versions_of;
use crate::cluster::connect::{ConnectArgs, Connection, block_on};
use crate::completion::names;
use crate::ui::stdio::{complain, read_input};
use drover_clock::{Clock, SystemClock};

const EXIT_CODES: &str =
    "Exit codes: 0 it is done, 1 error or refused, 2 it failed, 3 the time was over, 130 detached by Ctrl-C.";

/// Arguments of `drover job dispatch`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct DispatchArgs {
    /// The parameterized job.
    #[arg(add = names::<Job>())]
    name: String,
    /// A file with the payload; `-` is standard input.
    payload: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// A Secret whose key `payload` is the payload, so that those who may read jobs do not see it.
    #[arg(long, value_name = "SECRET", conflicts_with = "payload")]
    payload_secret: Option<String>,
    /// A meta key and its value, as day=monday; may be given several times.
    #[arg(long, value_parser = key_value)]
    meta: Vec<(String, String)>,
    /// Text in the name of the dispatched job.
    #[arg(long, default_value = "")]
    id_prefix_template: String,
    /// A dispatch with the token of an earlier one creates nothing, and shows that one.
    #[arg(long, default_value = "")]
    idempotency_token: String,
    /// From 1 to 100; default the job's.
    #[arg(long)]
    priority: Option<i64>,
    #[command(flatten)]
    after: AfterArgs,
}

/// What can be done to periodic jobs.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum PeriodicCommand {
    /// Launches a periodic job now, whatever its schedule, and although an earlier launch runs.
    Force(ForceArgs),
}

/// Arguments of `drover job periodic force`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct ForceArgs {
    /// The periodic job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

/// Dispatches a job, and follows what was made.
pub(crate) fn dispatch(args: &DispatchArgs) -> anyhow::Result<u8> {
    let payload = args.payload.as_deref().map(read_input).transpose()?.unwrap_or_default();
    let mut meta = BTreeMap::new();
    for (key, value) in &args.meta {
        ensure!(meta.insert(key.clone(), value.clone()).is_none(), "--meta {key} is given twice; give it once");
    }
    block_on(async {
        let connection = args.connect.connect().await?;
        let (name, parent) = (&args.name, connection.objects::<Job>().get(&args.name).await?);
        let brought = Dispatch {
            parent: name.clone(),
            payload: dispatch::encoded(&payload),
            payload_secret: args.payload_secret.clone().unwrap_or_default(),
            idempotency_token: args.idempotency_token.clone(),
            priority: args.priority,
        };
        let child = dispatch::open(&parent.spec, meta, brought);
        let is_stopped = parent.spec.stop || parent.metadata.deletion_timestamp.is_some();
        let found = Parent { name, spec: Some(&parent.spec), is_stopped };
        refuse(name, "cannot be dispatched", &dispatch::violations(found, &child))?;
        if let Some(earlier) = connection.with_token(&parent, &args.idempotency_token).await? {
            let name = earlier.metadata.name.clone().unwrap_or_default();
            complain(&format!("djob/{name} has this token already; nothing was created"));
            return args.after.go_on(&connection, &earlier).await;
        }
        let (unix, tag) = (SystemClock.now().as_second(), format!("{:08x}", fastrand::u32(..)));
        let (id, object_name) = dispatch::child_names(name, &parent.spec, &args.id_prefix_template, unix, &tag);
        let priority = args.priority.unwrap_or(parent.spec.priority);
        let made = connection.create_child(&parent, &object_name, JobSpec { id, priority, ..child }).await?;
        args.after.go_on(&connection, &made).await
    })
}

/// Acts on periodic jobs.
pub(crate) fn periodic(command: &PeriodicCommand) -> anyhow::Result<u8> {
    let PeriodicCommand::Force(args) = command;
    block_on(async {
        let connection = args.connect.connect().await?;
        let (name, parent) = (&args.name, connection.objects::<Job>().get(&args.name).await?);
        if parent.spec.periodic.is_none() {
            bail!("djob/{name} is not periodic; only a job with spec.periodic can be launched");
        }
        if parent.spec.parameterized.is_some() {
            bail!("djob/{name} is parameterized; launch what was dispatched from it, or `drover job dispatch {name}`");
        }
        ensure!(!parent.spec.stop, "djob/{name} is stopped; start it, then launch it");
        let spec = connection.whole_spec(&parent).await?;
        let child = periodic::child(name, &spec, SystemClock.now());
        let made = connection.create_child(&parent, &child.name, child.spec).await?;
        args.after.go_on(&connection, &made).await
    })
}

impl AfterArgs {
    /// Shows and follows a job that was made.
    async fn go_on(&self, connection: &Connection, made: &Job) -> anyhow::Result<u8> {
        self.print(made)?;
        self.follow(connection, made, "is on its way").await
    }
}

/// Ends with all that is wrong, a line for each.
fn refuse(name: &str, what: &str, violations: &[validate::Violation]) -> anyhow::Result<()> {
    let texts: Vec<String> = violations.iter().map(|violation| format!("\n  {violation}")).collect();
    ensure!(texts.is_empty(), "djob/{name} {what}:{}", texts.concat());
    Ok(())
}

impl Connection {
    /// The dispatch that has a token, if one does.
    async fn with_token(&self, parent: &Job, token: &str) -> anyhow::Result<Option<Job>> {
        if token.is_empty() {
            return Ok(None);
        }
        let listed = self.objects::<Job>().list(&ListParams::default()).await?;
        let name = parent.metadata.name.as_deref().unwrap_or_default();
        let has_token = |job: &Job| {
            let of = job.spec.dispatch.as_ref();
            of.is_some_and(|of| of.parent == name && of.idempotency_token == token)
        };
        let mut found: Vec<Job> = listed.into_iter().filter(has_token).collect();
        found.sort_by_key(|job| (job.metadata.creation_timestamp.clone(), job.metadata.name.clone()));
        Ok(found.into_iter().next())
    }

    /// The spec that a job runs: a dispatch has that of its version.
    async fn whole_spec(&self, job: &Job) -> anyhow::Result<JobSpec> {
        if !dispatch::is_open(&job.spec) {
            return Ok(job.spec.clone());
        }
        let newest = versions_of(self, job).await?.into_iter().next();
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let newest = newest.with_context(|| {
            format!("djob/{name} is not taken on yet; `drover job status {name}` says why, or try again")
        })?;
        Ok(newest.spec.job)
    }

    /// Creates a job that belongs to another one.
    async fn create_child(&self, parent: &Job, name: &str, spec: JobSpec) -> anyhow::Result<Job> {
        let job = drover_api::owner::child(parent, name, spec);
        let params = PostParams { field_manager: Some(drover_api::field_manager::CLI.to_owned()), dry_run: false };
        let jobs = self.objects::<Job>();
        jobs.api.create(&params, &job).await.map_err(|error| jobs.explain("create", name, error))
    }
}
