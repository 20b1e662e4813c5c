//! `drover job scale` and `drover job stop`.

use anyhow::{bail, ensure};
use drover_api::Job;
use serde_json::json;

use super::super::completion::names;
use super::super::connect::{ConnectArgs, block_on};
use super::super::output::{self, Output};
use super::{deployments_of, refuse_during_rollout};
use crate::stdio::complain;

/// Arguments of `drover job scale`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    /// The group, which may be left out where the job has one, and how many allocations it is to have.
    #[arg(required = true, num_args = 1..=2, value_name = "[GROUP] COUNT")]
    target: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How the changed job is printed.
    #[arg(short, long)]
    output: Option<Output>,
}

/// Sets the count of a group; refused while the job is rolled out.
pub(crate) fn scale(args: &ScaleArgs) -> anyhow::Result<u8> {
    let name = &args.name;
    let (group, count) = match args.target.as_slice() {
        [count] => (None, count),
        [group, count] => (Some(group.clone()), count),
        _ => bail!("name a group and a count"),
    };
    let Ok(count) = count.parse::<i64>() else {
        bail!("`{count}` is no count; write `drover job scale {name} GROUP COUNT`")
    };
    ensure!(count >= 0, "count {count}: must not be below 0");
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let job = jobs.get(name).await?;
        let names: Vec<String> = job.spec.groups.iter().map(|group| group.name.clone()).collect();
        let group = match group {
            Some(group) if names.contains(&group) => group,
            Some(group) => bail!("djob/{name} has no group {group}; it has {}", names.join(", ")),
            None if names.len() == 1 => names[0].clone(),
            None => bail!("djob/{name} has several groups; name one of {}", names.join(", ")),
        };
        let limits = job.spec.groups.iter().find(|known| known.name == group).and_then(|known| known.scaling.as_ref());
        if let Some(limits) = limits {
            let (least, most) = (limits.min.unwrap_or(0), limits.max.unwrap_or(i64::MAX));
            ensure!(
                (least..=most).contains(&count),
                "group {group} of djob/{name} is scaled between {least} and {most}; {count} is outside"
            );
        }
        refuse_during_rollout(name, &deployments_of(&connection, &job).await?)?;
        let scaled = jobs.change("scale", &job, &json!({ "scale": { "group": group, "count": count } })).await?;
        output::changed(&scaled, args.output.as_ref())?;
        complain(&format!(
            "group {group} of djob/{name} is scaled to {count}; watch it with `drover job status {name} -n {} -w`",
            connection.namespace
        ));
        Ok(0)
    })
}

/// Arguments of `drover job stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Delete the job with its history when its tasks have ended.
    #[arg(long)]
    purge: bool,
    /// How the stopped job is printed.
    #[arg(short, long, conflicts_with = "purge")]
    output: Option<Output>,
}

/// Stops a job; it stays, and `spec.stop: false` starts it again.
pub(crate) fn stop(args: &StopArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let (name, job) = (&args.name, jobs.get(&args.name).await?);
        if args.purge {
            jobs.delete(&job).await?;
            complain(&format!("djob/{name} is being deleted; its tasks are stopped first"));
            return Ok(0);
        }
        if job.spec.stop {
            output::changed(&job, args.output.as_ref())?;
            complain(&format!("djob/{name} is stopped already"));
            return Ok(0);
        }
        output::changed(&jobs.change("stop", &job, &json!({ "stop": true })).await?, args.output.as_ref())?;
        complain(&format!(
            "djob/{name} is being stopped; start it again with `kubectl patch djob/{name} -n {} --type=merge -p '{{\"spec\":{{\"stop\":false}}}}'`",
            connection.namespace
        ));
        Ok(0)
    })
}
