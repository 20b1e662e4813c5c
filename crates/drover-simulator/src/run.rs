//! One run: a world, its processes, and the scenario's steps on virtual time.
//!
//! Input: a scenario and a seed. Output: an [`Outcome`]. The runtime has one thread and a paused clock, so that virtual
//! time passes when nothing has anything to do, and the order of everything follows from scenario and seed alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use drover_api::GoDuration;
use serde_json::Value;
use tokio::task::JoinSet;

use super::assertions;
use super::controllers::Controllers;
use super::invariants::{Invariants, Trouble};
use super::link::Reach;
use super::log::{Failure, Log};
use super::nodes::{self, Nodes};
use super::operator::Operator;
use super::plugins::{PLUGIN_NAMESPACE, plugin_jobs};
use super::scenario::{
    Action, ApiAction, ApiStep, ControllerAction, ControllerStep, NodeAction, NodeStep, Scenario, Step,
};
use super::state;
use super::world::{CrashPoint, World};
use drover_controller::config::ControllerConfig;

/// How long at most a run goes on after its scenario, so that it is seen to come to rest. Where tasks end without pause
/// or a schedule launches them, it never does.
const LONGEST_REST: Duration = Duration::from_mins(15);
/// How long a crashed controller is away by default, and a crashed agent.
const CRASH: Duration = Duration::from_secs(1);

/// How a run is made.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// Of all chances.
    pub(super) seed: u64,
    /// When the controller crashes.
    pub(super) crash_at: Option<CrashPoint>,
    /// Whether every change is kept.
    pub(super) keeps_timeline: bool,
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) failures: Vec<Failure>,
    pub(super) timeline: Vec<Value>,
    pub(super) dumps: BTreeMap<String, Value>,
    pub(super) writes: Value,
    /// How often drivers were called, and made to fail.
    pub(super) calls: Value,
    pub(super) virtual_time: Duration,
    /// How many durable writes the controller made.
    pub(super) durable_writes: u64,
    /// How many moments of plugin calls there were at which it can crash.
    pub(super) call_moments: u64,
    /// What is there at the end, without names that differ from run to run.
    pub(super) end_state: Value,
}

/// Runs a scenario.
///
/// # Errors
/// When it cannot be run at all; what goes wrong in it is in the outcome.
pub(super) fn run(scenario: &Scenario, settings: Settings) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("starting the runtime")?;
    let outcome = runtime.block_on(Box::pin(drive(scenario, settings)));
    // Whatever still waits for a time of this run will not see it.
    runtime.shutdown_background();
    outcome
}

async fn drive(scenario: &Scenario, settings: Settings) -> anyhow::Result<Outcome> {
    let mut run = Run::new(scenario, settings)?;
    run.steps(scenario).await;
    let log = run.world.log();
    Ok(Outcome {
        failures: log.failures.clone(),
        timeline: log.timeline_json(),
        dumps: std::mem::take(&mut run.dumps),
        writes: log.writes_json(),
        calls: log.calls_json(),
        virtual_time: scenario.duration,
        durable_writes: run.world.durable_writes(),
        call_moments: run.world.call_moments(),
        end_state: state::end_state(&run.world.store),
    })
}

/// Something that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Step(usize),
    StartController,
    /// The agent of the node of this number.
    StartAgent(u32),
    EndSecondLeader,
    MendLeaseWatch,
    EndOutage,
    EndSlowness,
    EndConflicts,
    /// The scenario is over. What has yet to come to rest gets the time for it.
    End,
    /// The last question.
    Rest,
}

struct Run {
    world: Arc<World>,
    controllers: Controllers,
    nodes: Nodes,
    agenda: BTreeMap<(Duration, usize), Due>,
    n_due: usize,
    crashed: tokio::sync::mpsc::UnboundedReceiver<super::link::Client>,
    dumps: BTreeMap<String, Value>,
    /// Garbage collection, and requests that people wait for.
    errands: JoinSet<()>,
}

impl Run {
    fn new(scenario: &Scenario, settings: Settings) -> anyhow::Result<Self> {
        let config = match &scenario.config {
            Some(config) => ControllerConfig::parse(&config.to_string(), Path::new("spec.config"))?,
            None => ControllerConfig::default(),
        };
        let never = assertions::never(scenario);
        let faults_until = if scenario.faults.is_any() { scenario.faults_until() } else { Duration::ZERO };
        let log = Log::new(settings.keeps_timeline, never, Invariants::new(scenario.start_time, faults_until));
        let (world, crashed) = World::new(scenario, settings.crash_at, log);
        let world = Arc::new(world);
        let operator = Operator::new(&world);
        for namespace in ["default", config.namespace.as_str()] {
            operator.make_namespace(namespace)?;
        }
        let mut errands = JoinSet::new();
        let garbage = Arc::clone(&world);
        errands.spawn(async move { garbage.collect_garbage().await });
        let mut controllers = Controllers::new(&world, settings.seed, config);
        controllers.start();
        for manifest in plugin_jobs(&scenario.nodes) {
            operator.make_namespace(PLUGIN_NAMESPACE)?;
            operator.apply(&manifest)?;
        }
        if scenario.has_services() {
            for (number, node) in (0..).zip(&scenario.nodes) {
                operator.make_core_node(&node.name, &nodes::address(number))?;
            }
        }
        let nodes = Nodes::start(&world, settings.seed, &scenario.nodes)?;
        let mut run = Self {
            world,
            controllers,
            nodes,
            agenda: BTreeMap::new(),
            n_due: 0,
            crashed,
            dumps: BTreeMap::new(),
            errands,
        };
        for (n, step) in scenario.steps.iter().enumerate() {
            run.plan(step.at, Due::Step(n));
        }
        run.plan(scenario.duration, Due::End);
        Ok(run)
    }

    fn plan(&mut self, at: Duration, due: Due) {
        self.n_due += 1;
        self.agenda.insert((at, self.n_due), due);
    }

    fn plan_after(&mut self, lasts: Option<GoDuration>, due: Due) {
        if let Some(lasts) = lasts {
            self.plan(self.world.clock.elapsed() + lasts.to_std(), due);
        }
    }

    /// Something between controller and API server goes wrong from now on, or does no more.
    fn trouble(&self, which: Trouble, begins: bool) {
        let at = self.world.clock.elapsed();
        self.world.log().note_trouble(at, which, begins);
    }

    /// Lets time pass until the end.
    async fn steps(&mut self, scenario: &Scenario) {
        while let Some((&(at, number), _)) = self.agenda.first_key_value() {
            tokio::select! {
                biased;
                Some(client) = self.crashed.recv() => {
                    let back_at = self.world.clock.elapsed() + CRASH;
                    if self.controllers.crash_client(client) {
                        self.plan(back_at, Due::StartController);
                    }
                    if let Some(number) = self.nodes.crash_client(client) {
                        self.plan(back_at, Due::StartAgent(number));
                    }
                    continue;
                }
                () = tokio::time::sleep_until(self.world.clock.instant(at)) => {}
            }
            let Some(due) = self.agenda.remove(&(at, number)) else { continue };
            if !matches!(due, Due::End | Due::Rest) {
                self.world.log().invariants.disturb(at);
            }
            match due {
                Due::Step(n) => self.step(scenario, &scenario.steps[n]),
                Due::StartController => self.controllers.start(),
                Due::StartAgent(number) => {
                    if let Err(error) = self.nodes.start_again(number) {
                        self.world.log().fail(at, format!("{error:#}"));
                    }
                }
                Due::EndSecondLeader => {
                    self.controllers.end_second();
                    self.world.log().invariants.expect_two_leaders(false);
                    self.trouble(Trouble::TwoLeaders, false);
                }
                Due::MendLeaseWatch => {
                    self.controllers.set_lease_watch(false);
                    self.trouble(Trouble::LeaseWatch, false);
                }
                Due::EndOutage => {
                    self.world.links.set_server_gone(false);
                    self.trouble(Trouble::Outage, false);
                }
                Due::EndSlowness => {
                    self.world.links.set_latency(Duration::ZERO);
                    self.trouble(Trouble::Slowness, false);
                }
                Due::EndConflicts => {
                    self.world.links.set_conflicts(0);
                    self.trouble(Trouble::Conflicts, false);
                }
                Due::End => {
                    let settled = {
                        let mut log = self.world.log();
                        log.close();
                        log.invariants.settles_at().min(at + LONGEST_REST)
                    };
                    self.plan(settled.max(at), Due::Rest);
                }
                Due::Rest => {
                    let mut log = self.world.log();
                    for what in log.invariants.finish(at, &self.world.store) {
                        log.fail(at, what);
                    }
                    return;
                }
            }
        }
    }

    fn step(&mut self, scenario: &Scenario, step: &Step) {
        let result = self.act(scenario, step);
        let failure = match (&step.refused, result) {
            (None, Ok(())) => return,
            (None, Err(error)) => format!("{error:#}"),
            (Some(text), Ok(())) => format!("it was accepted; it should be refused with {text:?}"),
            (Some(text), Err(error)) if format!("{error:#}").contains(text) => return,
            (Some(text), Err(error)) => format!("it was refused, but not with {text:?}: {error:#}"),
        };
        self.world.log().fail(step.at, format!("spec.steps[{}]: {failure}", step.number));
    }

    fn act(&mut self, scenario: &Scenario, step: &Step) -> anyhow::Result<()> {
        let operator = Operator::new(&self.world);
        match &step.action {
            Action::Apply(manifests) => manifests.iter().try_for_each(|manifest| operator.apply(manifest)),
            Action::Delete(name) => operator.delete(name),
            Action::Node(node) => self.act_on_nodes(&operator, node),
            Action::Alloc(alloc) => operator.act_on_allocs(alloc, &self.nodes, &mut self.errands),
            Action::Checks(checks) => {
                let lasts = operator.act_on_checks(checks, &self.nodes)?;
                self.world.log().invariants.disturb(step.at + lasts);
                Ok(())
            }
            Action::Deployment(deployment) => operator.act_on_deployment(deployment),
            Action::Job(job) => operator.act_on_job(job),
            Action::Volume(volume) => operator.act_on_volume(volume),
            Action::Controller(controller) => self.act_on_controller(controller),
            Action::Api(api) => self.act_on_api(api),
            Action::Expect(expected) => {
                for failure in assertions::check(&self.world, scenario, step.number, expected) {
                    self.world.log().fail(step.at, format!("spec.steps[{}].{failure}", step.number));
                }
                Ok(())
            }
            Action::Dump(label) => {
                self.dumps.insert(label.clone(), state::dump(&self.world.store));
                Ok(())
            }
        }
    }

    fn act_on_nodes(&mut self, operator: &Operator, step: &NodeStep) -> anyhow::Result<()> {
        for name in &step.names {
            match step.action {
                NodeAction::Partition => self.nodes.set_reach(name, Reach::Cut)?,
                NodeAction::Freeze => self.nodes.set_reach(name, Reach::Frozen)?,
                NodeAction::Heal => self.nodes.set_reach(name, Reach::Open)?,
                NodeAction::Poweroff => self.nodes.power_off(name)?,
                NodeAction::Boot => self.nodes.boot(name)?,
                NodeAction::RestartAgent => self.nodes.restart_agent(name)?,
                NodeAction::Ineligible
                | NodeAction::Eligible
                | NodeAction::Drain
                | NodeAction::CancelDrain
                | NodeAction::Delete => operator.act_on_node(name, step)?,
            }
        }
        Ok(())
    }

    fn act_on_controller(&mut self, step: &ControllerStep) -> anyhow::Result<()> {
        match step.action {
            ControllerAction::Crash => {
                self.controllers.crash();
                let away = step.lasts.map_or(CRASH, GoDuration::to_std);
                self.plan(self.world.clock.elapsed() + away, Due::StartController);
            }
            ControllerAction::SecondLeader => {
                self.controllers.start_second();
                self.world.log().invariants.expect_two_leaders(true);
                self.trouble(Trouble::TwoLeaders, true);
                self.plan_after(step.lasts, Due::EndSecondLeader);
            }
            ControllerAction::BreakLeaseWatch => {
                self.controllers.set_lease_watch(true);
                self.trouble(Trouble::LeaseWatch, true);
                self.plan_after(step.lasts, Due::MendLeaseWatch);
            }
            ControllerAction::ClockStep => {
                let by = step.lasts.context("controller: clockStep needs `for`: by how much the clock jumps")?;
                self.controllers.step_clock(by.to_std());
                self.trouble(Trouble::ClockStep, false);
            }
        }
        Ok(())
    }

    fn act_on_api(&mut self, step: &ApiStep) -> anyhow::Result<()> {
        match step.action {
            ApiAction::Outage => {
                self.world.links.set_server_gone(true);
                self.trouble(Trouble::Outage, true);
                self.plan_after(step.lasts, Due::EndOutage);
            }
            ApiAction::Slow => {
                let latency = step.latency.context("api: slow needs `latency`")?;
                self.world.links.set_latency(latency.to_std());
                self.trouble(Trouble::Slowness, true);
                self.plan_after(step.lasts, Due::EndSlowness);
            }
            ApiAction::Conflicts => {
                let rate = step.rate.context("api: conflicts needs `rate`, from 0 to 1")?;
                anyhow::ensure!((0.0..=1.0).contains(&rate), "api: rate is {rate}; it must be between 0 and 1");
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 1")]
                self.world.links.set_conflicts((rate * 100_000.0) as u32);
                self.trouble(Trouble::Conflicts, true);
                self.plan_after(step.lasts, Due::EndConflicts);
            }
        }
        Ok(())
    }
}
