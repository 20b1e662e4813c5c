//! `drover job scale`.

use anyhow::{bail, ensure};
use drover_api::Job;
use drover_api::group::Group;
use serde_json::json;

use super::parts::{deployments_of, refuse_during_rollout};
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;

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
        if let Some(limits) = job.spec.group(&group).filter(|known| known.scaling.is_some()).map(Group::count_limits) {
            let (least, most) = (limits.start(), limits.end());
            ensure!(
                limits.contains(&count),
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
