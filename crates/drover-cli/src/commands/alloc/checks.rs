//! `drover alloc checks`: what the checks of an allocation found last, as its agent reported it, from any machine.

use drover_api::Allocation;
use serde_json::json;

use super::check_rows::rows;
use super::lookup::find;
use crate::cluster::connect::ConnectArgs;
use crate::completion::names;
use crate::ui::output::Output;
use crate::ui::stdio::answer;
use drover_clock::{Clock, SystemClock};

/// Arguments of `drover alloc checks`.
#[derive(Debug, clap::Args)]
pub(crate) struct AllocChecksArgs {
    /// The allocation, or the start of its name.
    #[arg(add = names::<Allocation>())]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

/// Shows them.
pub(crate) async fn run(args: &AllocChecksArgs) -> anyhow::Result<u8> {
    let found = find(&args.connect.connect().await?.objects(), &args.name).await?;
    let checks = found.status.unwrap_or_default().checks;
    let text = match &args.output {
        Output::Json => format!("{:#}\n", json!({ "checks": checks })),
        Output::Yaml => serde_saphyr::to_string(&json!({ "checks": checks }))?,
        Output::JsonPath(template) => template.fill(&json!({ "checks": checks })),
        Output::Name => checks.keys().cloned().map(|id| id + "\n").collect(),
        Output::Table | Output::Wide => {
            let mut text = String::new();
            rows(&checks, SystemClock.now()).write(&mut text);
            text
        }
    };
    answer(text.as_bytes())?;
    Ok(0)
}
