//! Waits until rights that were granted are in force: the API server learns of new roles and bindings a moment after it
//! stored them, and a daemon that is refused at its start waits long before it asks again.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// One thing that a user may do: verb, group, resource; `true` for drover's own namespace.
type Right = (&'static str, &'static str, &'static str, bool);

/// One right of each role that the controller has.
pub(super) const CONTROLLER: [Right; 2] =
    [("list", drover_api::GROUP, "jobs", false), ("create", "coordination.k8s.io", "leases", true)];
/// One right of each role that the agent has.
pub(super) const AGENT: [Right; 2] =
    [("create", drover_api::GROUP, "clientnodes", false), ("create", "coordination.k8s.io", "leases", true)];

/// Waits until the user of `client` has the rights.
pub(super) async fn wait(client: &kube::Client, rights: &[Right]) -> Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let deadline = Instant::now() + TIMEOUT;
    for right in rights {
        while !has(&reviews, *right).await? {
            if Instant::now() > deadline {
                let (verb, group, resource, _) = right;
                bail!("the right to {verb} {resource}.{group} is not in force after {} s", TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

async fn has(reviews: &Api<SelfSubjectAccessReview>, (verb, group, resource, is_own): Right) -> Result<bool> {
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: is_own.then(|| drover_api::SYSTEM_NAMESPACE.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec =
        SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = reviews.create(&PostParams::default(), &review).await.context("asking for our rights")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
