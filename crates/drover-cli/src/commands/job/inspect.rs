//! `drover job inspect`: a job whole, in a form that another cluster, a job file or a tool of Nomad's takes.

use anyhow::ensure;
use drover_api::Job;
use serde_json::json;

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::completion::names;
use crate::ui::output::{self, Output};
use crate::ui::stdio::answer;

/// How a whole job is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum JobOutput {
    /// The object as it is stored.
    #[default]
    Yaml,
    /// The same as one JSON document.
    Json,
    /// A job file in HCL, without what is decided at run time: stop and scale.
    Hcl,
    /// What `nomad job inspect` prints, with all defaults.
    NomadJson,
}

/// Arguments of `drover job inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    /// The job.
    #[arg(add = names::<Job>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: JobOutput,
}

/// Writes a job.
pub(crate) fn inspect(args: &InspectArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let job = connection.objects::<Job>().get(&args.name).await?;
        match args.output {
            JobOutput::Yaml => output::object(&job, &Output::Yaml)?,
            JobOutput::Json => output::object(&job, &Output::Json)?,
            JobOutput::Hcl => {
                has_groups(&job, &args.name)?;
                answer(drover_jobspec::hcl(&job).as_bytes())?;
            }
            JobOutput::NomadJson => {
                has_groups(&job, &args.name)?;
                answer(format!("{:#}\n", json!({ "Job": drover_jobspec::wire_job(&job) })).as_bytes())?;
            }
        }
        Ok(0)
    })
}

/// A dispatch has its parent's groups, and without them it is no job for others.
fn has_groups(job: &Job, name: &str) -> anyhow::Result<()> {
    let parent = job.spec.dispatch.as_ref().map_or("", |dispatch| &dispatch.parent);
    ensure!(
        !job.spec.groups.is_empty() || parent.is_empty(),
        "djob/{name} is a dispatch of djob/{parent}, whose groups it runs; inspect that one, or take -o yaml"
    );
    Ok(())
}
