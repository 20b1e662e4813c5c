//! What a gateway counts.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The labels of a metric that has none, and that is not shown before it is counted.
type Unlabelled = [(&'static str, &'static str); 0];

/// Everything that a gateway counts; clones share it. What was never counted is not shown, so that other daemons say
/// nothing of it. Users, allocations and nodes are never labels: the audit lines name them.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    tunnels: Family<Unlabelled, Gauge>,
    open: Family<OpenLabels, Gauge>,
    calls: Family<CallLabels, Counter>,
    bytes: Family<VerbLabels, Counter>,
    reviews: Family<ReviewLabels, Counter>,
    relays: Family<RelayLabels, Counter>,
    expiry: Family<CertificateLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpenLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    verb: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    kind: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelayLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    certificate: &'static str,
}

impl GatewayMetrics {
    pub(super) fn register(&self, all: &mut Registry) {
        let counted = &self.0;
        all.register("gateway_tunnels", "Nodes with a tunnel to this replica", counted.tunnels.clone());
        all.register("gateway_open", "Calls, and commands among them, that are open", counted.open.clone());
        all.register("gateway_calls", "Calls that have ended, by how they were answered", counted.calls.clone());
        let help = "Bytes that calls have carried to users";
        all.register_with_unit("gateway_carried", help, Unit::Bytes, counted.bytes.clone());
        let help = "Questions to the API server of who a token's user is, and of what a user may; and tokens that were \
                    not asked for, being too many";
        all.register("gateway_reviews", help, counted.reviews.clone());
        let help = "Calls for nodes without a tunnel to this replica: handed to another one, or to none";
        all.register("gateway_relays", help, counted.relays.clone());
        let help = "When a certificate of the gateway expires, since 1970";
        all.register_with_unit("gateway_certificate_expiry", help, Unit::Seconds, counted.expiry.clone());
    }

    /// A gateway counts from now on: what may never happen is there, as 0.
    pub fn begin(&self) {
        self.0.tunnels.get_or_create(&[]).set(0);
        for result in ["carried", "unknown"] {
            self.0.relays.get_or_create(&RelayLabels { result }).inc_by(0);
        }
        for kind in ["token", "access"] {
            for result in ["yes", "no", "error", "held_back"] {
                self.0.reviews.get_or_create(&ReviewLabels { kind, result }).inc_by(0);
            }
        }
    }

    /// So many nodes have a tunnel now.
    pub fn tunnels(&self, n: usize) {
        self.0.tunnels.get_or_create(&[]).set(i64::try_from(n).unwrap_or(i64::MAX));
    }

    /// So many more calls of a kind are open.
    pub fn open(&self, kind: &'static str, more: i64) {
        self.0.open.get_or_create(&OpenLabels { kind }).inc_by(more);
    }

    /// A call has ended.
    pub fn called(&self, verb: &'static str, code: u16, bytes: u64) {
        self.0.calls.get_or_create(&CallLabels { verb, code }).inc();
        self.0.bytes.get_or_create(&VerbLabels { verb }).inc_by(bytes);
    }

    /// The API server was asked, or a question was held back.
    pub fn reviewed(&self, kind: &'static str, result: &'static str) {
        self.0.reviews.get_or_create(&ReviewLabels { kind, result }).inc();
    }

    /// A node without a tunnel was looked for at the other replicas.
    pub fn relayed(&self, result: &'static str) {
        self.0.relays.get_or_create(&RelayLabels { result }).inc();
    }

    /// A certificate expires then, in seconds since 1970; none: it has no end that is known.
    pub fn certificate(&self, certificate: &'static str, expires: Option<i64>) {
        if let Some(at) = expires {
            self.0.expiry.get_or_create(&CertificateLabels { certificate }).set(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;

    #[test]
    fn a_gateway_counts_what_it_carries_and_others_say_nothing_of_it() {
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("drover_gateway_open{"), "{}", metrics.text());
        metrics.gateway.begin();
        metrics.gateway.tunnels(3);
        metrics.gateway.open("exec", 1);
        metrics.gateway.called("log", 200, 70);
        metrics.gateway.reviewed("token", "no");
        metrics.gateway.relayed("carried");
        metrics.gateway.certificate("leaf", Some(1_800_000_000));
        let text = metrics.text();
        for line in [
            "drover_gateway_tunnels{} 3\n",
            "drover_gateway_open{kind=\"exec\"} 1\n",
            "drover_gateway_calls_total{verb=\"log\",code=\"200\"} 1\n",
            "drover_gateway_carried_bytes_total{verb=\"log\"} 70\n",
            "drover_gateway_reviews_total{kind=\"token\",result=\"no\"} 1\n",
            "drover_gateway_reviews_total{kind=\"access\",result=\"error\"} 0\n",
            "drover_gateway_relays_total{result=\"carried\"} 1\n",
            "drover_gateway_certificate_expiry_seconds{certificate=\"leaf\"} 1800000000\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
