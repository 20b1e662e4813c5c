//! One line for each call: who asked for what, how it was answered, how many bytes and how long it took. Never a token,
//! and no parameters, which may hold one; of a command its first word only.

use drover_daemon::monitor::GatewayMetrics;
use http::Method;
use tokio::time::Instant;

use crate::reviews::Identity;

/// What these calls are called in metrics.
const VERB: &str = "nomad";

/// A call; its line is written when it ends, however it ends.
#[derive(Debug)]
pub(super) struct NomadCall {
    id: String,
    user: String,
    groups: String,
    method: Method,
    path: String,
    namespace: String,
    node: String,
    program: String,
    code: u16,
    bytes: u64,
    since: Instant,
    metrics: GatewayMetrics,
}

impl NomadCall {
    /// A call that begins. `id` is what the API server's own audit log calls it.
    pub(super) fn begin(
        id: &str,
        identity: &Identity,
        (method, path): (&Method, &str),
        metrics: GatewayMetrics,
    ) -> Self {
        Self {
            id: id.to_owned(),
            user: identity.user.clone(),
            groups: identity.groups.join(","),
            method: method.clone(),
            path: path.to_owned(),
            namespace: String::new(),
            node: String::new(),
            program: String::new(),
            code: 0,
            bytes: 0,
            since: Instant::now(),
            metrics,
        }
    }

    /// By whom, where that is found out later.
    pub(super) fn by(&mut self, identity: &Identity) {
        identity.user.clone_into(&mut self.user);
        self.groups = identity.groups.join(",");
    }

    /// In which namespace something is asked for.
    pub(super) fn is_about(&mut self, namespace: &str) {
        namespace.clone_into(&mut self.namespace);
    }

    /// Where it leads.
    pub(super) fn leads_to(&mut self, node: &str) {
        node.clone_into(&mut self.node);
    }

    /// Which program is run: of a command its first word.
    pub(super) fn runs(&mut self, program: &str) {
        program.clone_into(&mut self.program);
    }

    /// How it is answered.
    pub(super) fn answered(&mut self, code: u16, bytes: usize) {
        self.code = code;
        self.bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// More of an answer was sent.
    pub(super) fn carried(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// How an answer ended that had begun.
    pub(super) const fn answered_at_last(&mut self, code: u16) {
        self.code = code;
    }
}

impl Drop for NomadCall {
    fn drop(&mut self) {
        self.metrics.called(VERB, self.code, self.bytes);
        tracing::info!(
            target: "drover_audit",
            id = self.id,
            user = self.user,
            groups = self.groups,
            verb = VERB,
            method = %self.method,
            path = self.path,
            namespace = self.namespace,
            node = self.node,
            program = self.program,
            code = self.code,
            bytes = self.bytes,
            seconds = self.since.elapsed().as_secs_f64(),
            "call"
        );
    }
}
