//! How the services of one allocation fare on its node: which are registered, what their checks found, which of them
//! asks for a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::allocation::{CheckResult, CheckStatus, ServiceRegistration};
use jiff::{SignedDuration, Timestamp};

use super::answer::{CheckAnswer, cut};
use super::plan::{PlannedCheck, PlannedService, Probe, ServicePort};
use super::restart_watch::RestartWatch;
use crate::health::{CheckFacts, CheckState};

/// The most bytes of an answer that the allocation's status keeps (`spec/containers.md` 5).
const MAX_SHOWN_BYTES: usize = 256;

/// The pause after a restart that could not be ordered.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// What is known of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSeen {
    /// Its process lives.
    pub is_running: bool,
    /// The start of its last run.
    pub started_at: Option<Timestamp>,
}

/// A probe that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStart {
    /// The check.
    pub id: String,
    /// The registration that it is of: answers of an earlier one are void.
    pub turn: u64,
    /// What is sent, or why nothing may be: then that is the answer.
    pub probe: Result<Probe, String>,
    /// The pause before it.
    pub after: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
}

/// A restart that a check asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRestart {
    /// Whose.
    pub tasks: Vec<String>,
    /// Why, for people.
    pub reason: String,
}

/// The services of one allocation.
#[derive(Debug, Default)]
pub struct ServiceStates {
    members: Vec<Member>,
    /// The allocation is to end: nothing is registered any more.
    is_withdrawn: bool,
    turns: u64,
}

#[derive(Debug)]
struct Member {
    plan: PlannedService,
    /// Whether others may find it.
    is_registered: bool,
    /// Whether all its tasks run.
    is_up: bool,
    /// The youngest start of its tasks when it was registered: a later one is another run.
    began: Option<Timestamp>,
    turn: u64,
    has_begun_probes: bool,
    checks: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    plan: PlannedCheck,
    status: CheckStatus,
    watch: Option<RestartWatch>,
}

impl Known {
    fn new(service: &PlannedService, plan: &PlannedCheck) -> Self {
        let mode = if plan.is_readiness { "readiness" } else { "healthiness" };
        let status = CheckStatus {
            check: plan.name.clone(),
            service: service.name.clone(),
            task: service.task.clone().unwrap_or_default(),
            mode: mode.to_owned(),
            ..CheckStatus::default()
        };
        Self { plan: plan.clone(), status, watch: None }
    }

    fn forget(&mut self) {
        let status = &mut self.status;
        (status.status, status.output, status.status_code, status.timestamp) =
            (CheckResult::Pending, String::new(), None, None);
    }

    /// What an earlier registration or life of the agent found of the same check.
    fn take_over(&mut self, known: &CheckStatus) {
        let status = &mut self.status;
        (status.status, status.output, status.status_code, status.timestamp) =
            (known.status, known.output.clone(), known.status_code, known.timestamp);
    }

    fn state(&self) -> CheckState {
        match self.status.status {
            CheckResult::Pending => CheckState::Pending,
            CheckResult::Success => CheckState::Success,
            CheckResult::Warning => CheckState::Warning,
            CheckResult::Failure => CheckState::Failure,
        }
    }

    /// Whether requests may come: as with Consul, a warning does not keep them away.
    fn lets_requests_in(&self) -> bool {
        match self.state() {
            CheckState::Success | CheckState::Warning => true,
            CheckState::Pending | CheckState::Failure => false,
        }
    }

    /// What it is for the judgement of health.
    fn facts(&self) -> CheckFacts {
        let state = match self.state() {
            CheckState::Warning if self.plan.ignores_warnings => CheckState::Success,
            state => state,
        };
        CheckFacts { state, is_readiness: self.plan.is_readiness }
    }

    fn arm(&mut self, now: Timestamp) {
        self.watch = self.plan.restart.map(|rule| RestartWatch::new(rule, now));
    }

    fn start(&self, turn: u64, after: Duration) -> ProbeStart {
        let PlannedCheck { id, probe, timeout, .. } = &self.plan;
        ProbeStart { id: id.clone(), turn, probe: probe.clone(), after, timeout: *timeout }
    }
}

impl Member {
    fn new(plan: PlannedService) -> Self {
        let checks = plan.checks.iter().map(|check| Known::new(&plan, check)).collect();
        Self { plan, is_registered: false, is_up: false, began: None, turn: 0, has_begun_probes: false, checks }
    }

    fn is_ready(&self) -> bool {
        self.is_registered && self.is_up && self.checks.iter().all(Known::lets_requests_in)
    }

    /// Its tasks run, and it is registered, or registered again after a restart.
    fn register(&mut self, began: Option<Timestamp>, turn: u64, now: Timestamp) {
        (self.began, self.is_registered, self.turn, self.has_begun_probes) = (began, true, turn, false);
        for check in &mut self.checks {
            check.arm(now);
        }
    }
}

impl ServiceStates {
    /// None of them registered yet.
    pub fn new(planned: Vec<PlannedService>) -> Self {
        Self { members: planned.into_iter().map(Member::new).collect(), ..Self::default() }
    }

    /// The same after the agent was away: what was registered stays so while its tasks run on, and what a check found
    /// holds until it finds something else.
    pub fn resume(
        &mut self,
        registered: &[ServiceRegistration],
        results: &BTreeMap<String, CheckStatus>,
        tasks: &BTreeMap<String, TaskSeen>,
        now: Timestamp,
    ) {
        for member in &mut self.members {
            if !registered.iter().any(|known| known.id == member.plan.id) {
                continue;
            }
            let began = youngest(&member.plan, tasks);
            self.turns += 1;
            member.register(began, self.turns, now);
            for check in &mut member.checks {
                if let Some(known) = results.get(&check.plan.id) {
                    check.take_over(known);
                    let state = check.state();
                    if let Some(watch) = check.watch.as_mut().filter(|_| state != CheckState::Pending) {
                        watch.observe(state, now);
                    }
                }
            }
        }
    }

    /// Takes over the services of another version of the job; what is the same goes on as it is.
    pub fn adopt(&mut self, planned: Vec<PlannedService>, now: Timestamp) {
        let mut before = std::mem::take(&mut self.members);
        for plan in planned {
            let Some(at) = before.iter().position(|member| member.plan.id == plan.id) else {
                self.members.push(Member::new(plan));
                continue;
            };
            let known = before.swap_remove(at);
            if known.plan == plan {
                self.members.push(known);
                continue;
            }
            let mut member = Member::new(plan);
            (member.is_up, member.began) = (known.is_up, known.began);
            for check in &mut member.checks {
                if let Some(same) = known.checks.iter().find(|same| same.plan.probe == check.plan.probe) {
                    check.take_over(&same.status);
                }
            }
            if known.is_registered {
                self.turns += 1;
                member.register(known.began, self.turns, now);
            }
            self.members.push(member);
        }
    }

    /// Takes in how the tasks fare. O(services × tasks).
    pub fn observe(&mut self, tasks: &BTreeMap<String, TaskSeen>, now: Timestamp) {
        if self.is_withdrawn {
            return;
        }
        for member in &mut self.members {
            let runs = |name: &String| tasks.get(name).is_some_and(|task| task.is_running);
            member.is_up = !member.plan.tasks.is_empty() && member.plan.tasks.iter().all(runs);
            let began = youngest(&member.plan, tasks);
            if member.is_up && (began != member.began || member.turn == 0) {
                self.turns += 1;
                // What was found of an earlier run says nothing of this one.
                member.checks.iter_mut().for_each(Known::forget);
                member.register(began, self.turns, now);
            } else if !member.is_up && member.plan.is_of_task {
                member.is_registered = false;
            }
        }
    }

    /// The allocation is to end: others may not find it any more.
    pub fn withdraw(&mut self) {
        self.is_withdrawn = true;
        for member in &mut self.members {
            member.is_registered = false;
        }
    }

    /// The probes of services that were registered since this was asked last: each is sent first after half its
    /// interval.
    pub fn begin_probes(&mut self) -> Vec<ProbeStart> {
        let mut starts = Vec::new();
        for member in self.members.iter_mut().filter(|member| member.is_registered && !member.has_begun_probes) {
            member.has_begun_probes = true;
            starts.extend(member.checks.iter().map(|check| check.start(member.turn, check.plan.interval / 2)));
        }
        starts
    }

    /// Takes in what a probe found; the next one, unless the check has ended.
    pub fn note(&mut self, id: &str, turn: u64, answer: &CheckAnswer, now: Timestamp) -> Option<ProbeStart> {
        let is_asked = |member: &&mut Member| member.turn == turn && member.is_registered && member.is_up;
        let mut asked = self.members.iter_mut().filter(is_asked);
        let check = asked.find_map(|member| member.checks.iter_mut().find(|check| check.plan.id == id))?;
        let result = match answer.state {
            // What is known is better than nothing.
            CheckState::Pending => check.status.status,
            CheckState::Success => CheckResult::Success,
            CheckState::Warning => CheckResult::Warning,
            CheckState::Failure => CheckResult::Failure,
        };
        if check.status.status != result {
            let status = &mut check.status;
            status.status = result;
            cut(&answer.output, MAX_SHOWN_BYTES).clone_into(&mut status.output);
            status.status_code = answer.status_code.map(i64::from);
            status.timestamp = Some(now);
        }
        let state = check.state();
        if let Some(watch) = &mut check.watch {
            watch.observe(state, now);
        }
        Some(check.start(turn, check.plan.interval))
    }

    /// When a check asks for a restart, if nothing changes before.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let watched = self.members.iter().filter(|member| member.is_registered && member.is_up);
        watched.flat_map(|member| &member.checks).filter_map(|check| check.watch?.due_at()).min()
    }

    /// The restarts that are due: one for each task, whatever number of its checks fail. The services of these tasks
    /// are found no more until the tasks run again.
    pub fn due_restarts(&mut self, now: Timestamp) -> Vec<CheckRestart> {
        let mut restarts: Vec<CheckRestart> = Vec::new();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for member in self.members.iter().filter(|member| member.is_registered && member.is_up) {
            let is_due = |check: &&Known| check.watch.and_then(|watch| watch.due_at()).is_some_and(|at| at <= now);
            let Some(check) = member.checks.iter().find(is_due) else { continue };
            let tasks: Vec<String> = member.plan.tasks.iter().filter(|task| !taken.contains(*task)).cloned().collect();
            if tasks.is_empty() {
                continue;
            }
            taken.extend(tasks.iter().cloned());
            restarts.push(CheckRestart { tasks, reason: fault(member, check) });
        }
        for member in &mut self.members {
            if member.plan.tasks.iter().any(|task| taken.contains(task)) {
                member.is_registered = false;
                for watch in member.checks.iter_mut().filter_map(|check| check.watch.as_mut()) {
                    watch.spend();
                }
            }
        }
        restarts
    }

    /// A restart that was due could not be ordered: the services of these tasks are registered again as they were, and
    /// their checks have a second more, so that what is ordered in vain is not ordered without a pause.
    pub fn call_off(&mut self, tasks: &[String], now: Timestamp) {
        if self.is_withdrawn {
            return;
        }
        for member in &mut self.members {
            let is_of_them = member.plan.tasks.iter().any(|task| tasks.contains(task));
            if is_of_them && member.is_up && !member.is_registered {
                self.turns += 1;
                member.register(member.began, self.turns, now.saturating_add(PAUSE).unwrap_or(now));
            }
        }
    }

    /// The registrations, as the allocation's status holds them.
    pub fn registrations(&self) -> Vec<ServiceRegistration> {
        let registered = self.members.iter().filter(|member| member.is_registered);
        let registration = |member: &Member| ServiceRegistration {
            id: member.plan.id.clone(),
            service_name: member.plan.name.clone(),
            ready: member.is_ready(),
            ..place(&member.plan.port)
        };
        registered.map(registration).collect()
    }

    /// What the checks found last, as the allocation's status holds it; nothing once it is to end.
    pub fn results(&self) -> BTreeMap<String, CheckStatus> {
        let shown = self.members.iter().filter(|member| !self.is_withdrawn && member.turn > 0);
        shown.flat_map(|member| &member.checks).map(|check| (check.plan.id.clone(), check.status.clone())).collect()
    }

    /// The checks, as the judgement of health sees them.
    pub fn facts(&self) -> Vec<CheckFacts> {
        self.members.iter().flat_map(|member| &member.checks).map(Known::facts).collect()
    }

    /// What is wrong with the first check that keeps the allocation from being healthy.
    pub fn first_fault(&self) -> Option<String> {
        let mut checks = self.members.iter().flat_map(|member| member.checks.iter().map(move |check| (member, check)));
        let is_bad = |(_, check): &(&Member, &Known)| match check.facts().state {
            CheckState::Success => false,
            CheckState::Warning | CheckState::Failure => !check.plan.is_readiness,
            CheckState::Pending => true,
        };
        checks.find(is_bad).map(|(member, check)| fault(member, check))
    }
}

/// Where it is reached, where the controller has not assigned that.
fn place(port: &ServicePort) -> ServiceRegistration {
    let (address, number) = if port.is_own { (port.ip.clone(), i64::from(port.number)) } else { (String::new(), 0) };
    ServiceRegistration { address, port: number, ..ServiceRegistration::default() }
}

/// What is wrong with a check, for people.
fn fault(member: &Member, check: &Known) -> String {
    let (check_name, service) = (&check.plan.name, &member.plan.name);
    let fares = match check.state() {
        CheckState::Pending => return format!("check {check_name} of service {service} has no result yet"),
        CheckState::Warning => "warns",
        CheckState::Failure | CheckState::Success => "fails",
    };
    let found = format!("check {check_name} of service {service} {fares}");
    match (check.status.output.as_str(), check.status.status_code) {
        ("", None) => found,
        ("", Some(code)) => format!("{found}: status {code}"),
        (output, None) => format!("{found}: {output}"),
        (output, Some(code)) => format!("{found}: status {code}: {output}"),
    }
}

fn youngest(plan: &PlannedService, tasks: &BTreeMap<String, TaskSeen>) -> Option<Timestamp> {
    plan.tasks.iter().filter_map(|name| tasks.get(name)?.started_at).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::plan::ServiceShape;
    use crate::service::restart_watch::RestartRule;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + millis).expect("a time")
    }

    fn check(name: &str, restarts_after: Option<u64>) -> PlannedCheck {
        let rule = |after| RestartRule {
            after: Duration::from_millis(after),
            grace: Duration::ZERO,
            ignores_warnings: name.starts_with("tolerant"),
        };
        PlannedCheck {
            id: format!("g/{name}"),
            name: name.to_owned(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            is_readiness: name.starts_with("readiness"),
            ignores_warnings: name.starts_with("tolerant"),
            probe: Ok(Probe::Tcp { ip: "10.0.0.7".to_owned(), port: 21000 }),
            restart: restarts_after.map(rule),
        }
    }

    fn service(name: &str, tasks: &[&str], checks: Vec<PlannedCheck>) -> PlannedService {
        let port = ServicePort { label: "http".to_owned(), number: 21000, ip: "10.0.0.7".to_owned(), is_own: false };
        PlannedService {
            id: format!("id-{name}"),
            name: name.to_owned(),
            task: None,
            is_of_task: name.starts_with("of-task"),
            tasks: tasks.iter().map(|task| (*task).to_owned()).collect(),
            port,
            shape: ServiceShape { port: 80, is_headless: false, app_protocol: String::new() },
            tags: Vec::new(),
            checks,
        }
    }

    fn tasks(seen: &[(&str, bool, i64)]) -> BTreeMap<String, TaskSeen> {
        let seen = seen.iter().map(|(name, is_running, started)| {
            ((*name).to_owned(), TaskSeen { is_running: *is_running, started_at: Some(at(*started)) })
        });
        seen.collect()
    }

    fn answer(state: CheckState, output: &str) -> CheckAnswer {
        CheckAnswer { state, output: output.to_owned(), status_code: None }
    }

    fn ready(it: &ServiceStates) -> Vec<(String, bool)> {
        it.registrations().into_iter().map(|known| (known.service_name, known.ready)).collect()
    }

    /// One service with these checks, whose task runs since 0, and the probes that were begun.
    fn running(checks: Vec<PlannedCheck>) -> (ServiceStates, Vec<ProbeStart>) {
        let mut it = ServiceStates::new(vec![service("api", &["web"], checks)]);
        assert_eq!((ready(&it), it.begin_probes().len()), (vec![], 0), "before its task runs it is not found");
        it.observe(&tasks(&[("web", true, 0)]), at(0));
        let starts = it.begin_probes();
        (it, starts)
    }

    #[test]
    fn a_139_the_first_probe_comes_after_half_an_interval_and_the_others_an_interval_after_each_end() {
        let (mut it, starts) = running(vec![check("up", None)]);
        assert_eq!(starts.iter().map(|start| start.after).collect::<Vec<_>>(), [Duration::from_secs(5)]);
        assert_eq!(it.begin_probes(), [], "once");
        let next = it.note("g/up", starts[0].turn, &answer(CheckState::Success, "ok"), at(5100)).expect("another");
        assert_eq!((next.after, next.turn), (Duration::from_secs(10), starts[0].turn));
        it.withdraw();
        assert_eq!(it.note("g/up", next.turn, &answer(CheckState::Success, "ok"), at(15200)), None);
    }

    #[test]
    fn b_032_it_is_ready_while_its_tasks_run_and_all_its_checks_pass() {
        let (mut it, starts) = running(vec![check("up", None), check("other", None)]);
        let turn = starts[0].turn;
        let mut seen = vec![ready(&it)];
        for (id, state) in [
            ("g/up", CheckState::Success),
            ("g/other", CheckState::Success),
            ("g/up", CheckState::Failure),
            ("g/up", CheckState::Success),
        ] {
            drop(it.note(id, turn, &answer(state, "x"), at(1)));
            seen.push(ready(&it));
        }
        let flags: Vec<bool> = seen.iter().map(|seen| seen[0].1).collect();
        assert_eq!(flags, [false, false, true, false, true]);
        it.observe(&tasks(&[("web", false, 0)]), at(2));
        assert_eq!(ready(&it), [("api".to_owned(), false)], "between two runs it stays registered");
        it.observe(&tasks(&[("web", true, 3)]), at(3));
        assert_eq!(ready(&it), [("api".to_owned(), false)], "what was found of an earlier run is void");
        assert_eq!(it.note("g/up", turn, &answer(CheckState::Success, "x"), at(4)), None, "and so are its probes");
        assert_eq!(it.begin_probes().len(), 2);
    }

    #[test]
    fn a_service_without_checks_is_ready_when_its_tasks_run() {
        let mut it =
            ServiceStates::new(vec![service("api", &["web", "proxy"], vec![]), service("of-task", &["web"], vec![])]);
        it.observe(&tasks(&[("web", true, 0), ("proxy", false, 0)]), at(1));
        assert_eq!(ready(&it), [("of-task".to_owned(), true)]);
        it.observe(&tasks(&[("web", true, 0), ("proxy", true, 1)]), at(1));
        assert_eq!(ready(&it), [("api".to_owned(), true), ("of-task".to_owned(), true)]);
        it.observe(&tasks(&[("web", false, 0), ("proxy", true, 1)]), at(2));
        assert_eq!(ready(&it), [("api".to_owned(), false)], "a task's own service goes with its run");
        it.withdraw();
        it.observe(&tasks(&[("web", true, 5), ("proxy", true, 5)]), at(5));
        assert_eq!(ready(&it), []);
    }

    #[test]
    fn b_033_a_readiness_check_that_fails_keeps_requests_away_and_health_as_it_is() {
        let (mut it, starts) = running(vec![check("readiness", None)]);
        drop(it.note("g/readiness", starts[0].turn, &answer(CheckState::Failure, "no"), at(1)));
        assert_eq!(ready(&it), [("api".to_owned(), false)]);
        assert_eq!(it.facts(), [CheckFacts { state: CheckState::Failure, is_readiness: true }]);
        assert_eq!(it.first_fault(), None);
        assert_eq!(it.results()["g/readiness"].mode, "readiness");
    }

    #[test]
    fn a_warning_keeps_no_requests_away_and_is_no_health_unless_it_is_ignored() {
        for (name, facts, fault, due) in [
            ("up", CheckState::Warning, Some("check up of service api warns: exit code 1: hot"), Some(at(201))),
            ("tolerant", CheckState::Success, None, None),
        ] {
            let (mut it, starts) = running(vec![check(name, Some(200))]);
            let id = &starts[0].id;
            drop(it.note(id, starts[0].turn, &answer(CheckState::Success, "ok"), at(0)));
            drop(it.note(id, starts[0].turn, &answer(CheckState::Warning, "exit code 1: hot"), at(1)));
            assert_eq!((ready(&it), it.results()[id].status), (vec![("api".to_owned(), true)], CheckResult::Warning));
            assert_eq!(it.facts(), [CheckFacts { state: facts, is_readiness: false }]);
            assert_eq!((it.first_fault().as_deref(), it.wake_at()), (fault, due));
        }
    }

    #[test]
    fn a_result_changes_with_its_status_alone_and_keeps_little_of_the_answer() {
        let (mut it, starts) = running(vec![check("up", None)]);
        let turn = starts[0].turn;
        drop(it.note("g/up", turn, &answer(CheckState::Failure, &"a".repeat(3000)), at(1)));
        let first = it.results();
        let result = &first["g/up"];
        assert_eq!((result.output.len(), result.timestamp, result.status_code), (256, Some(at(1)), None));
        assert_eq!((&*result.task, &*result.mode, result.status), ("", "healthiness", CheckResult::Failure));
        drop(it.note("g/up", turn, &answer(CheckState::Failure, "another text"), at(2)));
        assert_eq!(it.results(), first);
        let fault = it.first_fault().expect("a fault");
        assert!(fault.starts_with("check up of service api fails: aaa"), "{fault}");
        drop(it.note("g/up", turn, &answer(CheckState::Success, "ok"), at(3)));
        assert_eq!((it.results()["g/up"].timestamp, it.first_fault()), (Some(at(3)), None));
    }

    #[test]
    fn a_140_what_was_known_stays_when_the_agent_comes_back() {
        let seen = tasks(&[("web", true, 0)]);
        let (mut before, starts) = running(vec![check("up", Some(5000))]);
        drop(before.note("g/up", starts[0].turn, &answer(CheckState::Success, "ok"), at(1)));
        let mut it = ServiceStates::new(vec![service("api", &["web"], vec![check("up", Some(5000))])]);
        it.resume(&before.registrations(), &before.results(), &seen, at(9));
        assert_eq!(it.results(), before.results());
        it.observe(&seen, at(10));
        assert_eq!((ready(&it), it.wake_at()), (vec![("api".to_owned(), true)], None));
        let turn = it.begin_probes()[0].turn;
        drop(it.note("g/up", turn, &answer(CheckState::Pending, ""), at(11)));
        assert_eq!(it.results(), before.results(), "no result never takes the place of a known one");
        it.observe(&tasks(&[("web", true, 20)]), at(20));
        assert_eq!(it.results()["g/up"].status, CheckResult::Pending, "its task was started again");
    }

    #[test]
    fn b_035_a_check_that_stays_unhealthy_takes_its_service_away_and_asks_for_a_restart() {
        let (mut it, starts) = running(vec![check("up", Some(200))]);
        drop(it.note("g/up", starts[0].turn, &answer(CheckState::Failure, "refused"), at(50)));
        assert_eq!((it.wake_at(), it.due_restarts(at(199))), (Some(at(200)), vec![]));
        let restarts = it.due_restarts(at(200));
        let reason = "check up of service api fails: refused".to_owned();
        assert_eq!(restarts, [CheckRestart { tasks: vec!["web".to_owned()], reason }]);
        assert_eq!((ready(&it), it.wake_at(), it.due_restarts(at(900))), (vec![], None, vec![]));
        it.observe(&tasks(&[("web", true, 300)]), at(300));
        assert_eq!((ready(&it), it.wake_at()), (vec![("api".to_owned(), false)], Some(at(500))), "A-067: armed again");
    }

    #[test]
    fn a_143_two_failing_checks_of_one_task_restart_it_once() {
        let both = vec![check("up", Some(200)), check("other", Some(200))];
        let of_task =
            service("of-task", &["web"], vec![PlannedCheck { id: "t/x".to_owned(), ..check("x", Some(100)) }]);
        let mut it = ServiceStates::new(vec![service("api", &["web", "proxy"], both), of_task]);
        it.observe(&tasks(&[("web", true, 0), ("proxy", true, 0)]), at(0));
        let tasks: Vec<_> = it.due_restarts(at(500)).into_iter().map(|restart| restart.tasks).collect();
        assert_eq!(tasks, [vec!["web".to_owned(), "proxy".to_owned()]]);
        assert_eq!(it.due_restarts(at(900)), []);
    }

    #[test]
    fn a_144_a_service_that_is_taken_away_before_its_grace_is_over_restarts_nothing() {
        let mut late = check("up", Some(0));
        late.restart =
            Some(RestartRule { after: Duration::ZERO, grace: Duration::from_secs(1), ignores_warnings: false });
        let (mut it, _) = running(vec![late]);
        assert_eq!(it.wake_at(), Some(at(1000)));
        it.withdraw();
        assert_eq!((it.wake_at(), it.due_restarts(at(5000))), (None, vec![]));
    }

    #[test]
    fn a_restart_that_cannot_be_ordered_leaves_the_service_where_it_was() {
        let (mut it, _) = running(vec![check("up", Some(200))]);
        let restarts = it.due_restarts(at(200));
        it.call_off(&restarts[0].tasks, at(201));
        assert_eq!((ready(&it), it.wake_at()), (vec![("api".to_owned(), false)], Some(at(1401))));
    }

    #[test]
    fn another_version_changes_what_it_changes() {
        let (mut it, starts) = running(vec![check("up", None), check("other", None)]);
        for id in ["g/up", "g/other"] {
            drop(it.note(id, starts[0].turn, &answer(CheckState::Success, "ok"), at(1)));
        }
        it.adopt(vec![service("api", &["web"], vec![check("up", None), check("other", None)])], at(2));
        assert_eq!((it.begin_probes().len(), ready(&it)), (0, vec![("api".to_owned(), true)]), "nothing changed");
        let moved = PlannedCheck { probe: Err("port".to_owned()), ..check("other", None) };
        let more = service("more", &["web"], vec![]);
        it.adopt(vec![service("api", &["web"], vec![check("up", None), moved]), more], at(3));
        assert_eq!(it.results()["g/up"].status, CheckResult::Success);
        it.observe(&tasks(&[("web", true, 0)]), at(4));
        assert_eq!(ready(&it), [("api".to_owned(), false), ("more".to_owned(), true)]);
        let probes: Vec<_> = it.begin_probes().into_iter().map(|start| start.probe.is_ok()).collect();
        assert_eq!(probes, [true, false]);
    }
}
