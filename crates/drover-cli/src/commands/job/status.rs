//! `drover job status`: all jobs, or one with its deployment and allocations.

use std::collections::HashMap;

use anyhow::Context;
use drover_api::{Allocation, GoDuration, Job};
use kube::Resource;
use kube::api::{ListParams, Request};
use serde::Deserialize;
use serde_json::Value;

use super::parts::deployments_of;
use crate::cluster::connect::{ConnectArgs, Connection, block_on};
use crate::completion::names;
use crate::ui::follow::{Follow, Goal, follow, show};
use crate::ui::natural;
use crate::ui::output::{self, Output};
use crate::ui::stdio::answer;
use crate::ui::table::Table;
use crate::ui::tree::{AllocRow, Scene, phase};
use drover_clock::{Clock, SystemClock};

/// Arguments of `drover job status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes with -w: 0 it runs or is done, 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C."
)]
pub(crate) struct JobStatusArgs {
    /// The job; without one all jobs are listed.
    #[arg(add = names::<Job>())]
    name: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// List the jobs of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    all_namespaces: bool,
    /// List the jobs with these labels.
    #[arg(short = 'l', long, conflicts_with = "name")]
    selector: Option<String>,
    /// Follow the job until it runs, is done or fails.
    #[arg(short, long, requires = "name")]
    watch: bool,
    /// How long to watch, as 10m.
    #[arg(long, requires = "watch")]
    timeout: Option<GoDuration>,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Shows jobs.
pub(crate) fn status(args: &JobStatusArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let Some(name) = &args.name else { return list(&connection, args).await };
        let job = jobs.get(name).await?;
        if args.watch {
            let again = format!("drover job status {name} -n {} -w", connection.namespace);
            let (timeout, generation) = (args.timeout.map(GoDuration::to_std), job.metadata.generation.unwrap_or(0));
            let (namespace, goal) = (&*connection.namespace, Goal::AsWanted);
            let wanted = Follow { namespace, job: name, generation, again, timeout, goal };
            return follow(connection.client.clone(), &wanted).await;
        }
        if !args.output.is_for_people() {
            output::object(&job, &args.output)?;
            return Ok(0);
        }
        let (deployments, allocs) =
            tokio::try_join!(deployments_of(&connection, &job), allocations(&connection, name))?;
        if args.output == Output::Wide {
            return wide(&allocs);
        }
        show(Scene { job: &job, deployment: deployments.first(), allocs: &allocs, now: SystemClock.now() })?;
        Ok(0)
    })
}

async fn list(connection: &Connection, args: &JobStatusArgs) -> anyhow::Result<u8> {
    let mut params = ListParams::default();
    params.label_selector.clone_from(&args.selector);
    let jobs = connection.objects_of::<Job>(args.all_namespaces);
    let mut found = jobs.list(&params).await?;
    if found.is_empty() {
        jobs.check_namespace().await?;
    }
    found.sort_by(|a, b| (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name)));
    let now = SystemClock.now();
    output::list(&found, &args.output, || {
        let mut table =
            Table::new(&["NAMESPACE", "NAME", "TYPE", "PHASE", "RUNNING", "VERSION", "DEPLOYMENT", "REASON", "AGE"]);
        for job in &found {
            let status = job.status.clone().unwrap_or_default();
            let columns = status.columns.clone();
            table.row(vec![
                job.metadata.namespace.clone().unwrap_or_default(),
                job.metadata.name.clone().unwrap_or_default(),
                job.spec.r#type.to_string(),
                phase(&status),
                columns.running,
                columns.version,
                columns.deployment,
                columns.reason,
                output::age(job, now),
            ]);
        }
        table
    })?;
    Ok(0)
}

fn wide(allocs: &[AllocRow]) -> anyhow::Result<u8> {
    let head =
        ["ALLOCATION", "GROUP", "NODE", "DESIRED", "STATUS", "HEALTHY", "VERSION", "DEPLOYMENT", "REASON", "AGE"];
    let mut table = Table::new(&head);
    for row in allocs {
        let row = row.clone();
        table.row(vec![
            row.name,
            row.group,
            row.node,
            row.desired,
            row.status,
            row.healthy,
            row.version,
            row.deployment,
            row.reason,
            row.age,
        ]);
    }
    let mut text = String::new();
    table.write(&mut text);
    answer(text.as_bytes())?;
    Ok(0)
}

/// A list as the API server prints it: its columns instead of whole objects, a thirtieth of the bytes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
}

/// The allocations of a job, in one list call.
async fn allocations(connection: &Connection, job: &str) -> anyhow::Result<Vec<AllocRow>> {
    let path = Allocation::url_path(&(), Some(&connection.namespace));
    let params = ListParams::default().fields(&format!("spec.jobName={job}"));
    let mut request = Request::new(path).list(&params).context("making a request")?;
    let uri = format!("{}&includeObject=None", request.uri());
    *request.uri_mut() = uri.parse().context("making a request")?;
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json".parse().context("making a request")?;
    request.headers_mut().insert(http::header::ACCEPT, accept);
    let printed = connection.client.request::<Printed>(request).await;
    let printed = printed.map_err(|error| connection.objects::<Allocation>().explain("list", "", error))?;
    let at: HashMap<String, usize> =
        printed.column_definitions.iter().enumerate().map(|(n, column)| (column.name.to_lowercase(), n)).collect();
    let cell = |row: &Row, column: &str| match at.get(column).and_then(|n| row.cells.get(*n)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    let rows = printed.rows.iter().map(|row| AllocRow {
        name: cell(row, "name"),
        group: cell(row, "group"),
        node: cell(row, "node"),
        desired: cell(row, "desired"),
        status: cell(row, "status"),
        healthy: cell(row, "healthy"),
        version: cell(row, "version"),
        deployment: cell(row, "deployment"),
        reason: cell(row, "reason"),
        age: cell(row, "age"),
    });
    let mut rows: Vec<AllocRow> = rows.collect();
    rows.sort_by(|a, b| natural::order(&a.name, &b.name));
    Ok(rows)
}
