//! Probes over the network of the node. Only addresses are connected to, never names, so that no look-up can lead a
//! check elsewhere.

use drover_core::service::{CheckAnswer, Probe};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::connect::connect;
use super::http;
use super::prober::Prober;
use super::tls::Tls;

/// Sends probes to ports of this node.
#[derive(Debug, Default)]
pub(crate) struct HostProber {
    tls: Tls,
}

impl Prober for HostProber {
    fn probe<'a>(&'a self, probe: &'a Probe) -> BoxFuture<'a, CheckAnswer> {
        async move {
            let answer = match probe {
                Probe::Tcp { ip, port } => connect(ip, *port).await.map(|_| CheckAnswer::connected()),
                Probe::Http(probe) => http::ask(&self.tls, probe).await,
            };
            answer.unwrap_or_else(CheckAnswer::failure)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use drover_core::health::CheckState;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_138_a_port_that_is_closed_is_a_failure_and_one_that_accepts_a_success() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let probe = Probe::Tcp { ip: "127.0.0.1".to_owned(), port };
        let prober = HostProber::default();
        assert_eq!(prober.probe(&probe).await.state, CheckState::Success);
        drop(listener);
        let answer = prober.probe(&probe).await;
        assert_eq!(answer.state, CheckState::Failure);
        assert!(answer.output.contains("no connection to 127.0.0.1"), "{}", answer.output);
        let named = prober.probe(&Probe::Tcp { ip: "localhost".to_owned(), port }).await;
        assert!(named.output.contains("is no address"), "{}", named.output);
    }
}
