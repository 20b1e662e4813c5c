//! Whether drover is installed as a whole: a controller leads, and the admission policy that limits agents is there.

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::Health;

/// The policy that keeps an agent's token to its own node, and the name of its binding.
const NODE_RESTRICTION: &str = "drover-node-restriction";
/// The parts of a controller's health.
pub(super) const LEADER: &str = "leader";
const POLICY: &str = "policy";
const BINDING: &str = "policy-binding";

/// What a controller's health depends on.
pub fn parts(requires_node_restriction: bool) -> &'static [&'static str] {
    if requires_node_restriction { &[LEADER, POLICY, BINDING] } else { &[LEADER] }
}

/// What a whole installation has.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// drover's own namespace.
    pub namespace: &'a str,
    /// The name of the leader's Lease there.
    pub lease: &'a str,
    /// Whether the admission policy that limits agents must be there.
    pub requires_node_restriction: bool,
}

/// Follows what a controller's health depends on, until `stop`.
pub async fn watch_cluster(client: Client, installation: Installation<'_>, health: Health, stop: CancellationToken) {
    let Installation { namespace, lease, requires_node_restriction } = installation;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let leader = follow(leases, lease, judge_lease, LEADER, &health);
    let policies = async {
        if !requires_node_restriction {
            return;
        }
        let (policies, bindings) = (Api::all(client.clone()), Api::all(client.clone()));
        tokio::join!(
            follow(
                policies,
                NODE_RESTRICTION,
                |found: Option<ValidatingAdmissionPolicy>| there(found.is_some()),
                POLICY,
                &health
            ),
            follow(
                bindings,
                NODE_RESTRICTION,
                |found: Option<ValidatingAdmissionPolicyBinding>| there(found.is_some()),
                BINDING,
                &health
            ),
        );
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        _ = async { tokio::join!(leader, policies) } => {}
    }
}

fn judge_lease(lease: Option<Lease>) -> Result<(), String> {
    let holder = lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty());
    holder.map(drop).ok_or_else(|| "no controller leads yet".to_owned())
}

fn there(is_there: bool) -> Result<(), String> {
    if is_there {
        return Ok(());
    }
    Err(format!(
        "{NODE_RESTRICTION} is missing: any agent could write any allocation; restore it with `helm upgrade`, or set nodeRestriction.enabled=false"
    ))
}

async fn follow<K>(
    api: Api<K>,
    name: &str,
    judge: impl Fn(Option<K>) -> Result<(), String>,
    part: &'static str,
    health: &Health,
) where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut states = std::pin::pin!(watch_object(api, name).default_backoff());
    while let Some(state) = states.next().await {
        match state.map(&judge) {
            Ok(Ok(())) => health.well(part),
            Ok(Err(reason)) => health.ill(part, reason),
            // What was known stays: a watch that begins again says nothing of its object.
            Err(error) => tracing::debug!(%error, part, "the watch restarts"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_without_a_holder_is_nobodys() {
        assert!(judge_lease(None).is_err());
        let held = |holder: Option<&str>| {
            let mut lease = Lease::default();
            lease.spec.get_or_insert_default().holder_identity = holder.map(str::to_owned);
            judge_lease(Some(lease))
        };
        assert!(held(None).is_err() && held(Some("")).is_err());
        assert_eq!(held(Some("drover-controller-1")), Ok(()));
    }
}
