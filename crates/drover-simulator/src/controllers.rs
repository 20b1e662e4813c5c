//! The lives of the controller: the real one, over the simulator's store.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::clock::VirtualClock;
use super::link::Client;
use super::seam::Seam;
use super::seeds::stream_seed;
use super::world::World;
use drover_controller::Process;
use drover_controller::config::ControllerConfig;

/// The controllers of a run.
#[derive(Debug)]
pub(super) struct Controllers {
    world: Arc<World>,
    seed: u64,
    config: ControllerConfig,
    lives: JoinSet<()>,
    n_lives: u32,
    first: Option<Running>,
    second: Option<Running>,
}

#[derive(Debug)]
struct Running {
    client: Client,
    task: AbortHandle,
    clock: Arc<VirtualClock>,
}

impl Controllers {
    /// No controller yet.
    pub(super) fn new(world: &Arc<World>, seed: u64, config: ControllerConfig) -> Self {
        let world = Arc::clone(world);
        Self { world, seed, config, lives: JoinSet::new(), n_lives: 0, first: None, second: None }
    }

    /// Starts the controller, unless it runs.
    pub(super) fn start(&mut self) {
        if self.first.is_none() {
            self.first = Some(self.spawn(false));
            self.world.note_controller(self.n_lives);
        }
    }

    /// Starts another one that leads too.
    pub(super) fn start_second(&mut self) {
        if self.second.is_none() {
            self.second = Some(self.spawn(true));
        }
    }

    /// Ends the second one.
    pub(super) fn end_second(&mut self) {
        if let Some(second) = self.second.take() {
            second.task.abort();
        }
    }

    fn spawn(&mut self, is_second: bool) -> Running {
        self.n_lives += 1;
        let (client, number) = (Client::Controller(self.n_lives), u64::from(self.n_lives));
        let seam = Seam::new(Arc::clone(&self.world), client, stream_seed(self.seed, "controller's link", number));
        let seam = if is_second { seam.with_shadow() } else { seam };
        let rng = fastrand::Rng::with_seed(stream_seed(self.seed, "controller", number));
        let (config, identity) = (self.config.clone(), format!("controller-{number}"));
        let clock = Arc::new(self.world.clock.other());
        let process = Process { config, identity, clock: Arc::clone(&clock) as _, rng };
        let work = drover_controller::run_on(seam, process, CancellationToken::new());
        Running { client, task: self.lives.spawn(work), clock }
    }

    /// Ends the controller as a crash does.
    pub(super) fn crash(&mut self) {
        if let Some(first) = self.first.take() {
            first.task.abort();
            let at = self.world.clock.elapsed();
            self.world.log().note_crash(at, first.client);
        }
    }

    /// Ends the controller that a fault has struck; false when it is gone already, or is the second one, which stays
    /// away.
    pub(super) fn crash_client(&mut self, client: Client) -> bool {
        if self.first.as_ref().is_some_and(|running| running.client == client) {
            self.crash();
            return true;
        }
        if self.second.as_ref().is_some_and(|running| running.client == client) {
            self.end_second();
        }
        false
    }

    /// Silences the controller's watch of Leases, or ends that.
    pub(super) fn set_lease_watch(&self, is_broken: bool) {
        if let Some(first) = &self.first {
            self.world.links.set_lease_watch(first.client, is_broken);
        }
    }

    /// Sets the controller's clock ahead.
    pub(super) fn step_clock(&self, by: Duration) {
        if let Some(first) = &self.first {
            first.clock.step(by);
        }
    }
}
