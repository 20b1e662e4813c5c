//! Which benches there are, and what one is told.

use clap::{Args, ValueEnum};
use drover_testkit::cargo::Profile;

/// A bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchName {
    /// From the create request of a one-task job to the watch event that shows it running
    Start,
    /// Rate of starts, memory per task and idle CPU of 200 tasks on one node
    Density,
    /// What controller and agent do while 200 tasks run and nothing changes: CPU and API writes
    Idle,
    /// What the agent adds to a start, its rate of starts, its memory and CPU, for each driver of processes
    Agent,
    /// Starts of containers beside `ctr run -d`, with and without a bridge; memory of 200, and how long a new agent
    /// takes to find them again
    Containers,
    /// API writes and health delay of 1,000 healthy lives that begin over ten seconds
    AgentLives,
    /// What hogs of CPU, memory, processes and disk cost a neighbour that measures its delays
    AgentNeighbours,
    /// One controller in front of 5,000 and 10,000 nodes: placing, a new leader, heartbeats, jobs that wait for room
    Cluster,
    /// 1,000, 10,000 and 30,000 roll-outs under way: CPU per change, memory of each, watches, and the writes of one to
    /// its end
    Deployments,
    /// How long `drover job status` takes on a job of 10,000 allocations, and how often it lists them
    Status,
    /// Clients of Nomad at two replicas of the gateway: `nomad job status` of 10,000 allocations, 1,000 reads that
    /// wait, 1,000 subscribers of events
    NomadApi,
    /// Streams and tunnels of the gateway: a log of 1 GiB, 1,000 followers that get ten lines a second, and that get
    /// none, 5,000 tunnels
    Gateway,
    /// From the change of a Secret to the file of a template; 1,000 agents that follow 10,000 Secrets at one gateway
    Secrets,
    /// 200 tasks with a check a second: writes and CPU of the agent, how long a failed one takes to the slice; 1,000
    /// slices of one controller at 100 changes a second
    Services,
    /// 1,000 and 10,000 volumes of five claims each, a tenth of the nodes lost: time and writes until their claims are
    /// free
    Volumes,
    /// Single evaluations in memory, over nodes, allocations, racks and spread; median of at least five runs
    Scheduler,
    /// Single evaluations in memory of the shapes that cost most; median of at least five runs
    SchedulerHard,
}

/// What `bench` is told.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// Which one
    #[arg(value_enum)]
    pub name: BenchName,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// How often it is repeated, each time on a new system; figures are medians
    #[arg(long, default_value_t = 1)]
    pub runs: usize,
    /// How many jobs (start), tasks (density, idle, services), containers, allocations (nomad-api), tunnels (gateway)
    /// or agents (secrets)
    #[arg(long)]
    pub count: Option<usize>,
    /// How long nothing happens while idleness is measured
    /// [default: 60, for `agent` 20 for each driver]
    #[arg(long, value_name = "SECONDS")]
    pub idle_seconds: Option<u64>,
    /// How controller and agent are built
    #[arg(long, value_enum, default_value = "release")]
    pub profile: Profile,
}

impl BenchArgs {
    /// How long nothing happens while idleness is measured.
    pub(super) fn idle_seconds(&self) -> u64 {
        self.idle_seconds.unwrap_or(if self.name == BenchName::Agent { 20 } else { 60 })
    }
}
