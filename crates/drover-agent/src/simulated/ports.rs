//! What answers at the ports of a machine without hardware. The probes of checks find a success at each, but for those
//! of which a scenario says otherwise for a while. What answers follows from that and virtual time alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_core::service::{CheckAnswer, Probe};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::checks::{Prober, TaskPlaces};

/// What a probe meets at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAnswer {
    /// What answers says that it is not well.
    Failing,
    /// Nothing answers, so that the probe runs into its time-out.
    Silent,
    /// It is well or failing by chance, drawn again each time that this has passed.
    Flapping {
        /// How long what was drawn holds.
        every: Duration,
        /// Of what is drawn.
        seed: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Episode {
    answer: PortAnswer,
    began: Instant,
    ends: Instant,
}

/// The ports of one machine. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Ports(Arc<Mutex<BTreeMap<u16, Episode>>>);

impl Ports {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, Episode>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a port answers so, for so long.
    pub(super) fn set(&self, port: u16, answer: PortAnswer, lasts: Duration) {
        let began = Instant::now();
        self.lock().insert(port, Episode { answer, began, ends: began + lasts });
    }

    /// A port is well again.
    pub(super) fn mend(&self, port: u16) {
        self.lock().remove(&port);
    }

    fn at(&self, port: u16) -> Option<Episode> {
        self.lock().get(&port).copied().filter(|episode| Instant::now() < episode.ends)
    }
}

impl Episode {
    /// Whether what answers is well now; none while nothing answers.
    fn is_well(self) -> Option<bool> {
        match self.answer {
            PortAnswer::Failing => Some(false),
            PortAnswer::Silent => None,
            PortAnswer::Flapping { every, seed } => {
                let turn = self.began.elapsed().as_nanos() / every.as_nanos().max(1);
                let turn = u64::try_from(turn).unwrap_or(u64::MAX);
                Some(fastrand::Rng::with_seed(seed ^ turn.wrapping_mul(0x9E37_79B9_7F4A_7C15)).bool())
            }
        }
    }
}

impl Prober for Ports {
    fn probe<'a>(&'a self, probe: &'a Probe, _: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer> {
        let port = match probe {
            Probe::Tcp { port, .. } => Some(*port),
            Probe::Http(http) => Some(http.target.port),
            Probe::Grpc(grpc) => Some(grpc.port),
            // No task has a process in which one could run.
            Probe::Script(_) => None,
        };
        async move {
            let Some(episode) = port.and_then(|port| self.at(port)) else { return CheckAnswer::connected() };
            match episode.is_well() {
                Some(true) => CheckAnswer::connected(),
                Some(false) => CheckAnswer::failure("it says that it is not well"),
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Nowhere;
    use drover_core::health::CheckState;

    /// What is answered within a second: `+`, `-`, or `.` for nothing.
    async fn ask(ports: &Ports, port: u16) -> char {
        let probe = Probe::Tcp { ip: "10.0.0.7".to_owned(), port };
        match tokio::time::timeout(Duration::from_secs(1), ports.probe(&probe, &Nowhere)).await {
            Ok(answer) if answer.state == CheckState::Success => '+',
            Ok(_) => '-',
            Err(_) => '.',
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_answers_as_it_was_told_as_long_as_it_was_told() {
        let ports = Ports::default();
        ports.set(1, PortAnswer::Failing, Duration::from_secs(10));
        ports.set(2, PortAnswer::Silent, Duration::from_secs(10));
        ports.set(3, PortAnswer::Failing, Duration::from_secs(10));
        ports.mend(3);
        let mut found = String::new();
        for port in [1, 2, 3, 4] {
            found.push(ask(&ports, port).await);
        }
        assert_eq!(found, "-.++");
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!((ask(&ports, 1).await, ask(&ports, 2).await), ('+', '+'));
    }

    #[tokio::test(start_paused = true)]
    async fn what_flaps_does_the_same_again_with_the_same_seed() {
        let run = |seed| async move {
            let ports = Ports::default();
            ports.set(1, PortAnswer::Flapping { every: Duration::from_millis(100), seed }, Duration::from_secs(10));
            let mut found = String::new();
            for _ in 0..40 {
                found.push(ask(&ports, 1).await);
                tokio::time::advance(Duration::from_millis(50)).await;
            }
            found
        };
        let (first, again, other) = (run(7).await, run(7).await, run(8).await);
        assert_eq!(first, again);
        assert!(first != other && first.contains('+') && first.contains('-'), "{first} {other}");
    }
}
