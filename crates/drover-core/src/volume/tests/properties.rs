//! What holds whatever happens to a volume: random allocations, nodes, calls that fail, and people.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Something that happens; numbers name an allocation or a node.
#[derive(Clone, Debug)]
enum Happening {
    Start { alloc: usize, node: usize },
    Claim { alloc: usize, mode: ClaimMode },
    End { alloc: usize },
    Forget { alloc: usize },
    Silent { node: usize },
    Back { node: usize },
    Report { node: usize },
    Delete { node: usize },
    Step { alloc: usize, answer: u8 },
    Unmounted { alloc: usize },
    Touch,
}

fn happenings(n_allocs: usize) -> impl Strategy<Value = Vec<Happening>> {
    let (alloc, node) = (0..n_allocs, 0..2_usize);
    let mode = prop_oneof![Just(ClaimMode::Read), Just(ClaimMode::Write)];
    let one = prop_oneof![
        4 => (alloc.clone(), node.clone()).prop_map(|(alloc, node)| Happening::Start { alloc, node }),
        6 => (alloc.clone(), mode).prop_map(|(alloc, mode)| Happening::Claim { alloc, mode }),
        1 => alloc.clone().prop_map(|alloc| Happening::End { alloc }),
        3 => alloc.clone().prop_map(|alloc| Happening::Forget { alloc }),
        3 => node.clone().prop_map(|node| Happening::Silent { node }),
        2 => node.clone().prop_map(|node| Happening::Back { node }),
        2 => node.clone().prop_map(|node| Happening::Report { node }),
        1 => node.prop_map(|node| Happening::Delete { node }),
        12 => (alloc.clone(), 0..4_u8).prop_map(|(alloc, answer)| Happening::Step { alloc, answer }),
        1 => alloc.prop_map(|alloc| Happening::Unmounted { alloc }),
        1 => Just(Happening::Touch),
    ];
    proptest::collection::vec(one, 0..60)
}

/// A volume with what is really so on the nodes, whatever drover knows of it.
struct Reality {
    stage: Stage,
    /// Allocations whose tasks may write to the volume.
    writers: BTreeSet<String>,
    /// Names are not used twice.
    has_started: BTreeSet<String>,
}

impl Reality {
    fn new(mode: AccessMode, has_controller: bool) -> Self {
        let mut stage = Stage::new(mode);
        for name in ["n-1", "n-2"] {
            stage.put_node(Self::node(name, has_controller));
        }
        stage.change_status(|status| status.controller_required = has_controller);
        if !has_controller {
            stage.plugins = Plugins::default();
            for name in ["n-1", "n-2"] {
                stage.put_node(Self::node(name, has_controller));
            }
        }
        Self { stage, writers: BTreeSet::new(), has_started: BTreeSet::new() }
    }

    fn node(name: &str, has_controller: bool) -> Node {
        plugin_node(name, |info| (info.controller, info.requires_controller_plugin) = (has_controller, has_controller))
    }

    fn alloc(&self, name: &str) -> Option<Arc<Alloc>> {
        self.stage.world.view.alloc(&AllocKey::new("shop", name)).cloned()
    }

    fn phase_of(&self, name: &str) -> Option<NodePhase> {
        let node = self.alloc(name).map(|alloc| alloc.node.clone())?;
        self.stage.world.view.node(&node).map(|node| node.phase)
    }

    fn take_in(&mut self, happening: &Happening) {
        match happening {
            Happening::Start { alloc, node } => {
                let (name, on) = (format!("a{alloc}"), format!("n-{}", node + 1));
                let is_ready = |node: &Arc<Node>| node.phase == NodePhase::Ready;
                if self.stage.world.view.node(&on.as_str().into()).is_some_and(is_ready)
                    && self.has_started.insert(name.clone())
                {
                    self.stage.alloc(&name, &on);
                }
            }
            Happening::Claim { alloc, mode } => {
                let name = format!("a{alloc}");
                let is_live = self.alloc(&name).is_some_and(|alloc| !alloc.is_client_terminal());
                let is_taken = is_live && self.stage.claim(&name, *mode) == Ok(true);
                if is_taken && *mode == ClaimMode::Write {
                    self.writers.insert(name);
                } else if is_taken {
                    self.writers.remove(&name);
                }
            }
            Happening::End { alloc } => {
                let name = format!("a{alloc}");
                if self.phase_of(&name) == Some(NodePhase::Ready) {
                    self.stage.end(&name);
                    self.writers.remove(&name);
                }
            }
            Happening::Forget { alloc } => {
                let name = format!("a{alloc}");
                // What was lost on a node that is back is kept until its agent has said that it ended.
                let is_held = |alloc: &Alloc| {
                    alloc.client == ClientStatus::Lost
                        && !alloc.has_ended
                        && self.phase_of(&name) == Some(NodePhase::Ready)
                };
                if self.alloc(&name).is_some_and(|alloc| alloc.is_client_terminal() && !is_held(&alloc)) {
                    self.stage.world.view.remove_alloc(&AllocKey::new("shop", name));
                }
            }
            Happening::Silent { node } => self.silent(&format!("n-{}", node + 1)),
            Happening::Back { node } => self.back(&format!("n-{}", node + 1)),
            Happening::Report { node } => self.report(&format!("n-{}", node + 1)),
            Happening::Delete { node } => {
                // Who deletes a node says that nothing of it runs any more.
                let name = format!("n-{}", node + 1);
                self.silent(&name);
                for claim in self.stage.status().claims.iter().filter(|claim| claim.node_name == name) {
                    self.writers.remove(&claim.alloc_id);
                }
                self.stage.remove_node(&name);
            }
            Happening::Step { alloc, answer } => self.step(&format!("a{alloc}"), *answer, Unmount::Unknown),
            Happening::Unmounted { alloc } => {
                let name = format!("a{alloc}");
                let is_over = self.alloc(&name).is_some_and(|alloc| alloc.is_client_terminal());
                if is_over && self.phase_of(&name) == Some(NodePhase::Ready) {
                    self.writers.remove(&name);
                    self.step(&name, 0, Unmount::Reported);
                }
            }
            Happening::Touch => {
                let touched = updated(&self.stage.status(), &[Update::Touch], now());
                self.stage.store(touched);
            }
        }
    }

    fn silent(&mut self, name: &str) {
        if self.stage.world.view.node(&name.into()).is_some() {
            self.stage.lose(name);
        }
    }

    /// The node is heard of again. What nobody knows any more its agent has ended by then.
    fn back(&mut self, name: &str) {
        if self.stage.world.view.node(&name.into()).is_none() {
            return;
        }
        self.stage.set_phase(name, NodePhase::Ready);
        for claim in self.stage.status().claims.iter().filter(|claim| claim.node_name == name) {
            if self.alloc(&claim.alloc_id).is_none() {
                self.writers.remove(&claim.alloc_id);
            }
        }
    }

    /// The agent of a node that is heard of has ended what was lost, and says so.
    fn report(&mut self, name: &str) {
        let on_node = NodeName::from(name);
        if self.stage.world.view.node(&on_node).is_none_or(|node| node.phase != NodePhase::Ready) {
            return;
        }
        let there = self.stage.world.view.allocs_on_node(&on_node);
        let lost = there.filter(|alloc| alloc.client == ClientStatus::Lost);
        let names: Vec<String> = lost.map(|alloc| alloc.key.name.to_string()).collect();
        for alloc in names {
            self.writers.remove(&alloc);
            self.stage.change_alloc(&alloc, |alloc| alloc.has_ended = true);
        }
    }

    fn step(&mut self, name: &str, answer: u8, unmount: Unmount) {
        let mut script = Script { unmount, ..Script::default() };
        match answer {
            0 => {}
            1 => script.node = [NodeAnswer::Failed("busy".to_owned())].into(),
            2 => script.controller = [ControllerAnswer::Failed("busy".to_owned())].into(),
            _ => script.controller = [ControllerAnswer::Retryable("starting".to_owned())].into(),
        }
        let is_done = self.stage.step(name, &mut script, &mut Vec::new());
        let (n_node, n_controller) = script.calls();
        let is_well = is_done == Ok(true) && !script.log.last().is_some_and(|line| line.starts_with("controller"));
        if is_well && n_node + n_controller > 0 {
            self.writers.remove(name);
        }
    }
}

fn modes() -> impl Strategy<Value = AccessMode> {
    proptest::sample::select(AccessMode::ALL)
}

fn check(mode: AccessMode, has_controller: bool, happenings: &[Happening]) -> Result<(), TestCaseError> {
    let mut reality = Reality::new(mode, has_controller);
    for happening in happenings {
        let before = reality.stage.status();
        reality.take_in(happening);
        let after = reality.stage.status();
        prop_assert!(after.claims.iter().all(|claim| !claim.alloc_id.is_empty()));
        let ids: BTreeSet<&str> = after.claims.iter().map(|claim| claim.alloc_id.as_str()).collect();
        prop_assert_eq!(ids.len(), after.claims.len(), "one claim for each allocation");
        let writers = after.claims.iter().filter(|claim| claim.mode == ClaimMode::Write).count();
        match mode {
            AccessMode::SingleNodeReaderOnly | AccessMode::MultiNodeReaderOnly => prop_assert_eq!(writers, 0),
            AccessMode::SingleNodeWriter => {
                prop_assert!(writers <= 1);
                prop_assert!(reality.writers.len() <= 1, "{:?} write after {happening:?}", reality.writers);
            }
            AccessMode::MultiNodeSingleWriter => prop_assert!(writers <= 1),
            AccessMode::MultiNodeMultiWriter => {}
        }
        prop_assert_eq!(after.access_mode.is_some(), !after.claims.is_empty());
        let is_own_claim = |id: &str| matches!(happening, Happening::Claim { alloc, .. } if format!("a{alloc}") == id);
        for old in before.claims.iter().filter(|claim| !is_own_claim(&claim.alloc_id)) {
            match after.claims.iter().find(|claim| claim.alloc_id == old.alloc_id) {
                Some(new) => {
                    prop_assert!(new.state >= old.state, "{} went back", old.alloc_id);
                    let kept = Claim { state: old.state, error: old.error.clone(), ..new.clone() };
                    prop_assert_eq!(&kept, old, "only the state changes");
                }
                None => {
                    prop_assert!(
                        old.state >= ClaimState::NodeDetached,
                        "{} vanished while {}",
                        old.alloc_id,
                        old.state
                    );
                }
            }
        }
    }
    Ok(())
}

/// Whatever happened: once all allocations have ended and all answer, every claim is freed.
fn check_end(mode: AccessMode, has_controller: bool, happenings: &[Happening]) -> Result<(), TestCaseError> {
    let mut reality = Reality::new(mode, has_controller);
    for happening in happenings {
        reality.take_in(happening);
    }
    for name in ["n-1", "n-2"] {
        if reality.stage.world.view.node(&name.into()).is_none() {
            reality.stage.put_node(Reality::node(name, has_controller));
        }
        reality.back(name);
        reality.report(name);
    }
    let claims: Vec<String> = reality.stage.status().claims.iter().map(|claim| claim.alloc_id.clone()).collect();
    for alloc in &claims {
        if reality.alloc(alloc).is_some_and(|alloc| !alloc.is_client_terminal()) {
            reality.stage.end(alloc);
        }
    }
    for alloc in &claims {
        prop_assert_eq!(reality.stage.drive(alloc, &mut Script::default()), Ok(()));
    }
    let status = reality.stage.status();
    prop_assert_eq!((status.claims, status.access_mode, status.attachment_mode), (Vec::new(), None, None));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn claims_go_forward(mode in modes(), has_controller in any::<bool>(), happenings in happenings(4)) {
        check(mode, has_controller, &happenings)?;
    }

    #[test]
    fn every_claim_is_freed_in_the_end(mode in modes(), has_controller in any::<bool>(), happenings in happenings(4)) {
        check_end(mode, has_controller, &happenings)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8_000, failure_persistence: None, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// With two allocations most of what happens concerns both.
    #[test]
    fn one_writes_at_a_time(has_controller in proptest::bool::weighted(0.3), happenings in happenings(2)) {
        check(AccessMode::SingleNodeWriter, has_controller, &happenings)?;
    }
}
