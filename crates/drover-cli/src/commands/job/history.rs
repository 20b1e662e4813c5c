//! `drover job history` and `drover job revert`: the versions of a job, and the way back to one.

use anyhow::{bail, ensure};
use drover_api::{Job, JobVersion};
use drover_core::definition::is_same_version;
use serde_json::{Value, json};

use super::after::AfterArgs;
use super::parts::versions_of;
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::complain;
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// Arguments of `drover job history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Lists the versions of a job, newest first.
pub(crate) fn history(args: &HistoryArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let job = jobs.get(&args.name).await?;
        let versions = versions_of(&connection, &job).await?;
        let (now, current) = (SystemClock.now(), job.status.as_ref().and_then(|status| status.version));
        output::list(&versions, &args.output, || {
            let mut table = Table::new(&["VERSION", "CURRENT", "STABLE", "TAG", "GROUPS", "RESTORES", "AGE"]);
            for version in &versions {
                let status = version.status.clone().unwrap_or_default();
                let restores = version.spec.revert_of.map_or_else(|| "-".to_owned(), |of| of.to_string());
                table.row(vec![
                    version.spec.version.to_string(),
                    (current == Some(version.spec.version)).to_string(),
                    status.stable.to_string(),
                    status.tag.unwrap_or_else(|| "-".to_owned()),
                    version.spec.group_names.clone(),
                    restores,
                    output::age(version, now),
                ]);
            }
            table
        })?;
        Ok(0)
    })
}

/// Arguments of `drover job revert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it runs, 1 error, 2 it failed, 3 the time was over, 130 detached by Ctrl-C.")]
pub(crate) struct RevertArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    /// The version whose spec the job gets again; default the newest stable one before the present one.
    #[arg(value_name = "VERSION")]
    to: Option<i64>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    after: AfterArgs,
}

/// Writes the spec of an older version into the job.
pub(crate) fn revert(args: &RevertArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let jobs = connection.objects::<Job>();
        let (name, job) = (&args.name, jobs.get(&args.name).await?);
        let versions = versions_of(&connection, &job).await?;
        let target = choose(name, &versions, args.to)?;
        let number = target.spec.version;
        ensure!(
            !is_same_version(&target.spec.job, &job.spec),
            "djob/{name} has the spec of version {number} already; `drover job history {name}` lists the versions"
        );
        let changed = jobs.change("revert", &job, &difference(&json!(job.spec), &json!(target.spec.job))).await?;
        args.after.print(&changed)?;
        complain(&format!(
            "djob/{name} has the spec of version {number} again; if Git keeps it, revert it there too, or the next sync undoes this"
        ));
        args.after.follow(&connection, &changed, "is written").await
    })
}

fn choose<'a>(job: &str, versions: &'a [JobVersion], wanted: Option<i64>) -> anyhow::Result<&'a JobVersion> {
    let Some(wanted) = wanted else {
        let Some(found) = versions.iter().skip(1).find(|version| version.is_stable()) else {
            bail!(
                "djob/{job} has no older stable version; `drover job history {job}` lists the versions, name one of them"
            );
        };
        return Ok(found);
    };
    let known: Vec<String> = versions.iter().map(|version| version.spec.version.to_string()).collect();
    let found = versions.iter().find(|version| version.spec.version == wanted);
    found.ok_or_else(|| anyhow::anyhow!("djob/{job} has no version {wanted}; it has {}", known.join(", ")))
}

/// The merge patch that makes `to` of `from`, but for what is no part of a version: scale and stop.
fn difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = serde_json::Map::new();
    for (field, value) in to {
        if from.get(field) != Some(value) {
            let nested = from.get(field).map_or_else(|| value.clone(), |before| difference(before, value));
            patch.insert(field.clone(), nested);
        }
    }
    for field in from.keys().filter(|field| !to.contains_key(*field) && !["scale", "stop"].contains(&field.as_str())) {
        patch.insert(field.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_version_lacks_is_removed_and_scale_stays() {
        let from = json!({ "priority": 70, "meta": { "a": "1", "b": "2" }, "scale": { "count": 3 }, "groups": [1] });
        let to = json!({ "meta": { "a": "1" }, "groups": [2] });
        assert_eq!(difference(&from, &to), json!({ "meta": { "b": null }, "groups": [2], "priority": null }));
    }
}
