//! One line for each call: who did what to which allocation, how it ended, how many bytes and how long it took. Never a
//! token, never what was carried; of a command its first word only.

use drover_daemon::monitor::GatewayMetrics;
use tokio::time::Instant;

use super::route::Route;
use crate::reviews::Identity;

/// A call; its line is written when it ends, however it ends.
#[derive(Debug)]
pub(super) struct Call {
    id: String,
    user: String,
    groups: String,
    route: Route,
    node: String,
    program: String,
    code: u16,
    bytes: u64,
    since: Instant,
    metrics: GatewayMetrics,
}

impl Call {
    /// A call that begins. `id` is what the API server's own audit log calls it.
    pub(super) fn begin(id: &str, identity: &Identity, route: &Route, metrics: GatewayMetrics) -> Self {
        Self {
            id: id.to_owned(),
            user: identity.user.clone(),
            groups: identity.groups.join(","),
            route: route.clone(),
            node: String::new(),
            program: String::new(),
            code: 0,
            bytes: 0,
            since: Instant::now(),
            metrics,
        }
    }

    /// Where it leads.
    pub(super) fn leads_to(&mut self, node: &str) {
        node.clone_into(&mut self.node);
    }

    /// Which program is run.
    pub(super) fn runs(&mut self, program: &str) {
        program.clone_into(&mut self.program);
    }

    /// How it is answered.
    pub(super) fn answered(&mut self, code: u16) {
        self.code = code;
    }

    /// So much was carried.
    pub(super) fn carried(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Route { namespace, allocation, subresource } = &self.route;
        self.metrics.called(subresource.name(), self.code, self.bytes);
        tracing::info!(
            target: "drover_audit",
            id = self.id,
            user = self.user,
            groups = self.groups,
            verb = subresource.name(),
            namespace,
            allocation,
            node = self.node,
            program = self.program,
            code = self.code,
            bytes = self.bytes,
            seconds = self.since.elapsed().as_secs_f64(),
            "call"
        );
    }
}
