//! What `up` is told.

use std::path::PathBuf;

use clap::Args;
use drover_testkit::cargo::Profile;

use super::layout::Layout;

/// What `up` is told.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct UpArgs {
    /// Go on in the background once everything is healthy
    #[arg(long)]
    pub detach: bool,
    /// The manifest examples/NAME.yaml to apply, repeatable; `none` for no example
    #[arg(long = "example", value_name = "NAME", default_value = "web")]
    pub examples: Vec<String>,
    /// Use this cluster instead of starting a control plane
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The data folder [default: .drover in the checkout]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Leave a controller or agent that dies as it is, instead of starting it again after 1 s
    #[arg(long)]
    pub no_restart: bool,
    /// On Ctrl-C, leave the tasks and their supervisor running
    #[arg(long)]
    pub keep_tasks: bool,
    /// Have the API server log every write (audit/audit.log in the data folder)
    #[arg(long)]
    pub audit: bool,
    /// Enable this driver of the agent too, repeatable; more settings stand in agent.more.yaml in the data folder
    #[arg(long = "driver", value_name = "NAME", value_parser = ["mock"])]
    pub drivers: Vec<String>,
    /// Start a containerd of this session's own, for containers without one on the machine. Needs root
    #[arg(long)]
    pub containers: bool,
    /// How controller and agent are built
    #[arg(long, value_enum, default_value = "dev")]
    pub profile: Profile,
    /// How long a job may take to become healthy
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub timeout: u64,
    /// How long the leader's Lease lasts
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub lease_duration: String,
    /// How long the leader tries to renew before it steps down
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub renew_deadline: String,
    /// How often leader and candidates look at the Lease
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub retry_period: String,
    /// The shortest time that a node's heartbeat lasts
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub heartbeat_ttl: String,
    /// How long a node may be late
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub heartbeat_grace: String,
    /// Set by `--detach` for the process that it starts
    #[arg(long, hide = true)]
    pub in_background: bool,
}

impl UpArgs {
    /// The data folder.
    pub(super) fn layout(&self) -> anyhow::Result<Layout> {
        Layout::at(self.data.as_deref())
    }
}

impl Default for UpArgs {
    /// What the flags default to.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Flags {
            #[command(flatten)]
            args: UpArgs,
        }
        <Flags as clap::Parser>::parse_from(["up"]).args
    }
}
