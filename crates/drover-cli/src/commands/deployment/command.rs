//! The verbs of `drover deployment`.

use drover_core::deployment::request::DeploymentRequest;

use super::{act, list, status};
use crate::cluster::connect::block_on;

/// What to do with deployments.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum DeploymentCommand {
    /// Lists deployments.
    List(list::ListArgs),
    /// Shows a deployment with its groups.
    Status(status::DeploymentStatusArgs),
    /// Lets healthy canaries take over.
    Promote(act::PromoteArgs),
    /// Stops updating until it is resumed.
    Pause(act::DeploymentTarget),
    /// Goes on with a paused deployment.
    Resume(act::DeploymentTarget),
    /// Fails a deployment; its groups with autoRevert go back to the newest stable version.
    Fail(act::DeploymentTarget),
}

/// Does it.
pub(crate) fn run(command: &DeploymentCommand) -> anyhow::Result<u8> {
    block_on(async {
        match command {
            DeploymentCommand::List(args) => list::list(args).await,
            DeploymentCommand::Status(args) => status::status(args).await,
            DeploymentCommand::Promote(args) => act::promote_groups(args).await,
            DeploymentCommand::Pause(args) => act::act(args, DeploymentRequest::Pause).await,
            DeploymentCommand::Resume(args) => act::act(args, DeploymentRequest::Resume).await,
            DeploymentCommand::Fail(args) => act::act(args, DeploymentRequest::Fail).await,
        }
    })
}
