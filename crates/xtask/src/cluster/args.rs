//! What can be done with clusters.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use drover_testkit::cargo::Profile;

/// What to do with clusters.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    /// Starts a cluster with drover's image on its nodes, prints how to use it, and ends it on Ctrl-C; with --detach it
    /// goes on
    Up(ClusterUpArgs),
    /// Ends the cluster of a data folder
    Down {
        /// The data folder [default: target/cluster in the checkout]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Builds what the end-to-end tests need and runs them (tests/e2e)
    Test {
        /// Run only tests whose name contains one of these
        filters: Vec<String>,
        /// How droverd is built: `dev` takes the one that was built for the other tests, with this machine's libraries
        #[arg(long, value_enum, default_value = "release")]
        profile: Profile,
    },
}

/// What `cluster up` is told.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct ClusterUpArgs {
    /// Go on in the background once everything is ready
    #[arg(long)]
    pub detach: bool,
    /// How many nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub nodes: u8,
    /// The data folder [default: target/cluster in the checkout]; what is in it is deleted
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Let addresses and names of Services lead somewhere: kube-proxy on each node, and a DNS (needs package nftables)
    #[arg(long)]
    pub services: bool,
    /// Install drover's chart and wait until it is ready
    #[arg(long)]
    pub install: bool,
    /// How droverd is built
    #[arg(long, value_enum, default_value = "release")]
    pub profile: Profile,
    /// Set by `--detach` for the process that it starts
    #[arg(long, hide = true)]
    pub(super) in_background: bool,
}
