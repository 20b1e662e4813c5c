//! `drover job logs`: the output of all allocations of a job, line by line, each with where it comes from. Allocations
//! that come later join while it is followed.
//!
//! The output of one task stays in its order; between tasks there is none.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use drover_api::allocation::DesiredStatus;
use drover_api::{Allocation, Job};
use drover_socket::protocol::LogStream;
use drover_store::{Change, KubeStore, Selection, Store as _};
use futures::StreamExt as _;
use tokio::task::{AbortHandle, JoinSet};

use crate::cluster::connect::{ConnectArgs, Connection, block_on};
use crate::commands::alloc::{Shown, TaskOutput, task_output};
use crate::completion::names;
use crate::ui::prefixed::{Prefixed, Style};
use crate::ui::stdio::complain;

/// How often a task that has no output yet is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `drover job logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct JobLogsArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Only the allocations of this group.
    #[arg(long)]
    group: Option<String>,
    /// Only this task.
    #[arg(long)]
    task: Option<String>,
    /// Show standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Go on until the job is deleted or Ctrl-C; allocations that come later join.
    #[arg(short, long)]
    follow: bool,
    /// Only the last bytes of each task.
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
}

impl JobLogsArgs {
    fn wants(&self, alloc: &Allocation) -> bool {
        alloc.spec.desired_status == DesiredStatus::Run
            && self.group.as_ref().is_none_or(|group| alloc.spec.group == *group)
    }

    /// The tasks of an allocation that are shown.
    fn tasks(&self, alloc: &Allocation, job: &Job) -> Vec<String> {
        let group = job.spec.group(&alloc.spec.group);
        let of_group = group.into_iter().flat_map(|group| &group.tasks).map(|task| &task.name);
        let of_status = alloc.status.iter().flat_map(|status| status.task_states.keys());
        let mut all: Vec<String> = of_status.chain(of_group).cloned().collect();
        all.sort();
        all.dedup();
        all.retain(|name| self.task.as_ref().is_none_or(|task| name == task));
        all
    }
}

/// Shows it.
pub(crate) fn logs(args: &JobLogsArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect_for_streams().await?;
        let job = connection.objects::<Job>().get(&args.name).await?;
        check(args, &job)?;
        let store = KubeStore::new(connection.client.clone(), Duration::from_secs(30));
        let fields = Some(format!("spec.jobName={}", args.name));
        let selection = Selection { namespace: Some(connection.namespace.clone()), fields, labels: None };
        let mut changes = store.watch::<Allocation>(selection);
        let mut shown = Following { args, job: &job, connection, held: BTreeMap::new(), outputs: JoinSet::new() };
        loop {
            tokio::select! {
                biased;
                signal = tokio::signal::ctrl_c(), if args.follow => {
                    signal.context("listening for Ctrl-C")?;
                    return Ok(0);
                }
                change = changes.next() => {
                    let change = change.context("the API server ended the watch of allocations")?;
                    let is_all = matches!(change, Change::InSync);
                    shown.take(change);
                    if is_all && !args.follow {
                        break;
                    }
                }
                Some(ended) = shown.outputs.join_next() => note(ended)?,
            }
        }
        let n = shown.outputs.len();
        ensure!(n > 0, "djob/{0} has no allocations that are to run; `drover job status {0}` says why", args.name);
        while let Some(ended) = shown.outputs.join_next().await {
            note(ended)?;
        }
        Ok(0)
    })
}

/// Refuses a group and a task that the job does not have.
fn check(args: &JobLogsArgs, job: &Job) -> anyhow::Result<()> {
    let groups: Vec<&str> = job.spec.groups.iter().map(|group| group.name.as_str()).collect();
    if let Some(group) = &args.group {
        ensure!(
            groups.contains(&group.as_str()),
            "djob/{} has no group {group}; it has {}",
            args.name,
            groups.join(", ")
        );
    }
    let tasks: Vec<&str> = job.spec.groups.iter().flat_map(|group| &group.tasks).map(|it| it.name.as_str()).collect();
    if let Some(task) = &args.task {
        ensure!(tasks.contains(&task.as_str()), "djob/{} has no task {task}; it has {}", args.name, tasks.join(", "));
    }
    Ok(())
}

/// One that cannot be shown keeps no other one back.
fn note(ended: Result<anyhow::Result<()>, tokio::task::JoinError>) -> anyhow::Result<()> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            complain(&format!("{error:#}"));
            Ok(())
        }
        Err(error) if error.is_cancelled() => Ok(()),
        Err(error) => Err(error).context("showing output"),
    }
}

/// The outputs that are shown.
struct Following<'a> {
    args: &'a JobLogsArgs,
    job: &'a Job,
    connection: Connection,
    /// By the allocations' uids.
    held: BTreeMap<String, Vec<AbortHandle>>,
    outputs: JoinSet<anyhow::Result<()>>,
}

impl Following<'_> {
    fn take(&mut self, change: Change<Allocation>) {
        match change {
            Change::Present(alloc) => self.begin(&alloc),
            // What a task wrote last is still shown, where it is there.
            Change::Gone(alloc) => {
                for output in self.held.remove(alloc.metadata.uid.as_deref().unwrap_or_default()).unwrap_or_default() {
                    output.abort();
                }
            }
            Change::InSync | Change::Restarted | Change::Malformed(..) | Change::Interrupted(_) => {}
        }
    }

    fn begin(&mut self, alloc: &Allocation) {
        let uid = alloc.metadata.uid.clone().unwrap_or_default();
        if !self.args.wants(alloc) || self.held.contains_key(&uid) {
            return;
        }
        let style = if io::stdout().is_terminal() { Style::Coloured } else { Style::Plain };
        let mut handles = Vec::new();
        for task in self.args.tasks(alloc, self.job) {
            let name = alloc.metadata.name.clone().unwrap_or_default();
            let output = LineSource {
                connection: self.connection.clone(),
                alloc: alloc.clone(),
                wanted: TaskOutput {
                    task: task.clone(),
                    stream: if self.args.stderr { LogStream::Stderr } else { LogStream::Stdout },
                    tail: self.args.tail,
                    follows: self.args.follow,
                },
                lines: Prefixed::new(&name, &task, style),
            };
            handles.push(self.outputs.spawn(output.show()));
        }
        self.held.insert(uid, handles);
    }
}

/// The output of one task.
struct LineSource {
    connection: Connection,
    alloc: Allocation,
    wanted: TaskOutput,
    lines: Prefixed,
}

impl LineSource {
    async fn show(mut self) -> anyhow::Result<()> {
        loop {
            let lines = &mut self.lines;
            let shown = task_output(&self.connection, &self.alloc, &self.wanted, &mut |bytes| lines.take(bytes)).await;
            self.lines.end()?;
            let name = self.alloc.metadata.name.as_deref().unwrap_or_default();
            match shown.with_context(|| format!("{name} {}", self.wanted.task))? {
                // It may not have begun.
                Shown::Nothing if self.wanted.follows => tokio::time::sleep(LOOK_EVERY).await,
                Shown::Nothing | Shown::Whole => return Ok(()),
            }
        }
    }
}
