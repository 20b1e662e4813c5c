//! Whether drover is installed as a whole: a controller leads, and the admission policies are there and deny.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::policies::{self, RequiredPolicy};
use super::{Health, watched};

/// The part of a controller's health that is not a policy.
pub(super) const LEADER: &str = "leader";

/// What a controller's health depends on.
pub fn parts(policies: &[RequiredPolicy]) -> Vec<&'static str> {
    std::iter::once(LEADER).chain(policies.iter().map(|policy| policy.name)).collect()
}

/// What a whole installation has.
#[derive(Clone, Copy, Debug)]
pub struct Installation<'a> {
    /// drover's own namespace.
    pub namespace: &'a str,
    /// The name of the leader's Lease there.
    pub lease: &'a str,
    /// The admission policies that must be there and deny.
    pub policies: &'a [RequiredPolicy],
}

/// Follows what a controller's health depends on, until `stop`.
pub async fn watch_cluster(client: Client, installation: Installation<'_>, health: Health, stop: CancellationToken) {
    let Installation { namespace, lease, policies } = installation;
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let leader = watched::follow(leases, lease, judge_lease, |verdict| match verdict {
        Ok(()) => health.well(LEADER),
        Err(reason) => health.ill(LEADER, reason),
    });
    let policies = policies.iter().map(|policy| policies::follow(client.clone(), namespace, *policy, &health));
    let policies = futures::future::join_all(policies);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        _ = async { tokio::join!(leader, policies) } => {}
    }
}

fn judge_lease(lease: Option<&Lease>) -> Result<(), String> {
    let holder = lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_deref()).filter(|it| !it.is_empty());
    holder.map(drop).ok_or_else(|| "no controller leads yet".to_owned())
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
            judge_lease(Some(&lease))
        };
        assert!(held(None).is_err() && held(Some("")).is_err());
        assert_eq!(held(Some("drover-controller-1")), Ok(()));
    }
}
