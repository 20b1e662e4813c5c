//! Who asks, for clients of Nomad: the API server says who it is and whether it may do everything.

use drover_nomad::{AclEndpoint, Query, Reply, TokenFacts, auth_methods, login_token, token};
use hyper::body::Incoming;

use super::service::{Identify, Nomad, Outcome, body, known};
use crate::answers::Refusal;
use crate::reviews::{Access, Identity, Meanwhile};

/// What only one who may do everything has.
const EVERYTHING: Access =
    Access { group: "*", resource: "*", subresource: "", verb: "*", namespace: String::new(), name: String::new() };

impl Nomad {
    /// Answers who asks, or whose token it is that comes in the body.
    ///
    /// # Errors
    /// 400 for a body that is no login, 403 for a token that is no user's and without identity.
    pub(super) async fn acl(
        &self,
        endpoint: AclEndpoint,
        (asker, identify): (&Identity, &Identify),
        request: http::Request<Incoming>,
    ) -> Result<Outcome, Refusal> {
        let query = Query::parse(request.uri().query().unwrap_or_default())?;
        let answer = match endpoint {
            AclEndpoint::Methods => auth_methods(),
            AclEndpoint::OwnToken => {
                known(asker)?;
                token(&self.token_facts(asker).await?, "")
            }
            AclEndpoint::Login => {
                let secret = login_token(&body(request).await?)?;
                let found = identify(secret.clone()).await.map_err(|refusal| match refusal.code {
                    401 => Refusal::new(403, refusal.message),
                    _ => refusal,
                })?;
                token(&self.token_facts(&found.identity).await?, &secret)
            }
        };
        Ok(Outcome { reply: Reply::of(&answer, &query)?, index: None })
    }

    async fn token_facts(&self, identity: &Identity) -> Result<TokenFacts, Refusal> {
        let is_management = self.parts.reviews.has(identity, &EVERYTHING, Meanwhile::GoesOn).await?;
        Ok(TokenFacts {
            user: identity.user.clone(),
            uid: identity.uid.clone().unwrap_or_default(),
            groups: identity.groups.clone(),
            is_management,
        })
    }
}
