//! Probes over the network of the node, and commands in its tasks. Only addresses are connected to, never names, so
//! that no look-up can lead a check elsewhere.

use std::time::Duration;

use drover_core::service::{CheckAnswer, Probe, ScriptProbe};
use drover_supervisor::protocol::Handle;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::connect::connect;
use super::prober::{Prober, TaskPlaces};
use super::tls::Tls;
use super::{grpc, http, script};

/// Probes are sent at multiples of this after the prober's begin: what is due between two of them goes out together,
/// and an agent with hundreds of checks wakes up a few times a second.
const SLOT: Duration = Duration::from_millis(50);

/// Sends probes to ports of this node.
#[derive(Debug)]
pub(crate) struct HostProber {
    tls: Tls,
    begun: Instant,
}

impl Default for HostProber {
    fn default() -> Self {
        Self { tls: Tls::default(), begun: Instant::now() }
    }
}

impl Prober for HostProber {
    fn probe<'a>(&'a self, probe: &'a Probe, tasks: &'a dyn TaskPlaces) -> BoxFuture<'a, CheckAnswer> {
        async move {
            let answer = match probe {
                Probe::Tcp { ip, port } => connect(ip, *port).await.map(|_| CheckAnswer::connected()),
                Probe::Http(probe) => http::ask(&self.tls, probe).await,
                Probe::Grpc(probe) => grpc::ask(&self.tls, probe).await,
                Probe::Script(probe) => run(probe, tasks).await,
            };
            answer.unwrap_or_else(CheckAnswer::failure)
        }
        .boxed()
    }

    fn slot(&self, due: Instant) -> Instant {
        let since = due.saturating_duration_since(self.begun).as_nanos();
        let n_slots = u32::try_from(since.div_ceil(SLOT.as_nanos())).unwrap_or(u32::MAX);
        self.begun + SLOT.saturating_mul(n_slots)
    }
}

async fn run(probe: &ScriptProbe, tasks: &dyn TaskPlaces) -> Result<CheckAnswer, String> {
    let task = &probe.task;
    let place = tasks.place(task).await.map_err(|error| format!("task {task}: {error}"))?;
    let handle: Handle = serde_json::from_value(place.handle.driver)
        .map_err(|_| format!("task {task} has no process of its own, in which a script could run"))?;
    script::run(&handle, &place.dir, &probe.command).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use drover_core::health::CheckState;
    use tokio::net::TcpListener;

    use super::*;
    use crate::checks::Nowhere;

    #[tokio::test]
    async fn a_script_of_a_task_that_does_not_run_is_a_failure() {
        let script = ScriptProbe { task: "web".to_owned(), command: vec!["/bin/true".to_owned()] };
        let answer = HostProber::default().probe(&Probe::Script(script), &Nowhere).await;
        assert_eq!((answer.state, &*answer.output), (CheckState::Failure, "task web: it does not run"));
    }

    #[tokio::test(start_paused = true)]
    async fn probes_are_sent_together_and_never_early_nor_a_slot_late() {
        let prober = HostProber::default();
        let mut slots = std::collections::BTreeSet::new();
        for ms in 0..1000 {
            let due = Instant::now() + Duration::from_millis(ms);
            let slot = prober.slot(due);
            assert!(due <= slot && slot < due + SLOT, "{ms} ms");
            slots.insert(slot);
        }
        assert_eq!(slots.len(), 21);
    }

    #[tokio::test]
    async fn a_138_a_port_that_is_closed_is_a_failure_and_one_that_accepts_a_success() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let probe = Probe::Tcp { ip: "127.0.0.1".to_owned(), port };
        let prober = HostProber::default();
        assert_eq!(prober.probe(&probe, &Nowhere).await.state, CheckState::Success);
        drop(listener);
        let answer = prober.probe(&probe, &Nowhere).await;
        assert_eq!(answer.state, CheckState::Failure);
        assert!(answer.output.contains("no connection to 127.0.0.1"), "{}", answer.output);
        let named = prober.probe(&Probe::Tcp { ip: "localhost".to_owned(), port }, &Nowhere).await;
        assert!(named.output.contains("is no address"), "{}", named.output);
    }
}
