//! Tokens of identities: signed here, or by the API server for a `ServiceAccount`.

use std::time::Duration;

use drover_api::task::Identity;
use drover_core::task::identity::{self, IdentityHolder};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

use super::permits::{Denied, Granted, NodeRequest};
use crate::identities::IdentitySigner;

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes them; clones are the same.
#[derive(Clone)]
pub(super) struct IdentityTokens {
    client: Client,
    signer: IdentitySigner,
}

/// A token.
pub(super) struct MadeToken {
    pub(super) token: String,
    /// After which time another one is to be made; none: never.
    pub(super) renewal: Option<Duration>,
}

impl IdentityTokens {
    /// Signs so, and asks the API server by this client.
    pub(super) fn new(client: Client, signer: IdentitySigner) -> Self {
        Self { client, signer }
    }

    /// Makes one for what was granted.
    ///
    /// # Errors
    /// Why there is none, or none yet.
    pub(super) async fn make(&self, granted: &Granted, request: &NodeRequest) -> Result<MadeToken, Denied> {
        let Granted { allocation, version } = granted;
        let group = version.spec.job.group(&allocation.spec.group);
        let Some((task, identity)) = group.and_then(|group| identity::find(group, &request.object)) else {
            return Err(Denied::No(format!("the job has no {}", request.object)));
        };
        if let Some(account) = &identity.kubernetes {
            return self.of_account(&account.service_account, identity, request).await;
        }
        let holder = IdentityHolder { allocation, job: &version.spec.job, task, identity };
        let (token, claims) = self.signer.sign(holder).map_err(Denied::Later)?;
        Ok(MadeToken { token, renewal: claims.exp.map(|exp| renewal(claims.iat, exp)) })
    }

    /// One of a `ServiceAccount`, which counts as long as the node is there.
    async fn of_account(&self, name: &str, identity: &Identity, request: &NodeRequest) -> Result<MadeToken, Denied> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &request.namespace);
        let wanted = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(identity.aud.clone()),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Node".to_owned()),
                    name: Some(request.node.clone()),
                    uid: None,
                }),
                expiration_seconds: Some(identity::account_seconds(identity)),
            }),
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let asked = tokio::time::timeout(TIMEOUT, accounts.create_token_request(name, &params, &wanted)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) => return Err(denied(name, &status)),
            Ok(Err(error)) => return Err(Denied::Later(format!("the API server cannot be asked: {error}"))),
            Err(_) => return Err(Denied::Later("the API server does not answer".to_owned())),
        };
        let made = answer.status.and_then(|made| made.token.zip(made.expiration_timestamp));
        let (token, ends) = made.ok_or_else(|| Denied::Later("the API server made no token".to_owned()))?;
        Ok(MadeToken { token, renewal: Some(renewal(self.signer.now().as_second(), ends.0.as_second())) })
    }
}

/// What a refusal of the API server means for the task.
fn denied(account: &str, status: &kube::core::Status) -> Denied {
    match status.code {
        403 => Denied::No(format!(
            "the gateway may not make tokens of ServiceAccount {account}; name it in the chart's gateway.secretNamespaces[].serviceAccounts"
        )),
        // It may come yet.
        404 => Denied::Later(format!("{}; create it", status.message)),
        400..=499 if status.code != 429 => Denied::No(status.message.clone()),
        _ => Denied::Later(format!("the API server cannot be asked: {}", status.message)),
    }
}

/// From now on, when another token is made. Tokens that were made together are not renewed together.
fn renewal(made: i64, ends: i64) -> Duration {
    let seconds = identity::renewal(made, ends).saturating_sub(made);
    let renewal = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    renewal + renewal.mul_f64(fastrand::f64() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_063_a_token_is_renewed_at_half_of_its_life_or_a_little_later() {
        for (life, least, most) in [(3600, 1800, 1980), (600, 300, 330), (1, 10, 11), (-5, 10, 11)] {
            for _ in 0..100 {
                let at = renewal(1_000, 1_000 + life).as_secs_f64();
                assert!(at >= f64::from(least) && at <= f64::from(most), "{life}: {at}");
            }
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_named_and_what_may_come_is_waited_for() {
        let answered = |code: u16| {
            let status = kube::core::Status {
                code,
                message: "serviceaccounts \"web\" not found".to_owned(),
                ..Default::default()
            };
            denied("web", &status)
        };
        assert!(
            matches!(answered(403), Denied::No(reason) if reason.contains("ServiceAccount web") && reason.contains("serviceAccounts"))
        );
        assert_eq!(answered(404), Denied::Later("serviceaccounts \"web\" not found; create it".to_owned()));
        assert!(matches!(answered(422), Denied::No(_)));
        assert!(matches!((answered(429), answered(503)), (Denied::Later(_), Denied::Later(_))));
    }
}
