//! Who a caller is and what it may do: the API server says so, and its answers are kept for ten seconds.
//!
//! Input: tokens, identities, objects. Output: an identity, yes, or a refusal. Tokens are kept by their digest. While
//! one asks, others with the same question wait for the same answer. Must never know what is then done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_daemon::monitor::GatewayMetrics;
use http::{HeaderMap, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::answers::Refusal;

/// The audience of the tokens by which agents open tunnels.
pub(crate) const AGENT_AUDIENCE: &str = "gateway.drover.dev";
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);
/// The most answers that are kept; then those of the past go.
const MOST_KEPT: usize = 16_384;
/// How long the API server may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Tokens that are asked for per second; more are refused, so that guessing does not fall on the API server.
const TOKENS_PER_SECOND: u32 = 100;

/// Who a caller is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The name.
    pub(crate) user: String,
    /// The uid, where there is one.
    pub(crate) uid: Option<String>,
    /// The groups.
    pub(crate) groups: Vec<String>,
    /// More that authorizers may look at.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// What a caller wants to do to an allocation: `create` on this subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object {
    /// The allocation's namespace.
    pub(crate) namespace: String,
    /// The allocation.
    pub(crate) name: String,
    /// The subresource.
    pub(crate) subresource: &'static str,
}

/// Answers that age.
type Answers<K, V> = Arc<Mutex<BTreeMap<K, (Instant, Arc<OnceCell<V>>)>>>;

/// A token by its digest, and the audience.
type TokenKey = ([u8; 32], Option<&'static str>);

/// Asks the API server; clones share its answers.
#[derive(Clone)]
pub(crate) struct Reviews {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    identities: Answers<TokenKey, Option<Identity>>,
    verdicts: Answers<(Identity, Object), Option<()>>,
    /// The second that runs, and how many tokens were asked for in it.
    pace: Arc<Mutex<(Instant, u32)>>,
    metrics: GatewayMetrics,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviews")
    }
}

/// The token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Reviews {
    /// Asks by this client.
    pub(crate) fn new(client: Client, metrics: GatewayMetrics) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            accesses: Api::all(client),
            identities: Arc::default(),
            verdicts: Arc::default(),
            pace: Arc::new(Mutex::new((Instant::now(), 0))),
            metrics,
        }
    }

    /// Whose token this is. Without an audience it must be for the API server.
    ///
    /// # Errors
    /// 401 when it is no user's, 429 when too many are asked for, 503 when the API server does not answer.
    pub(crate) async fn identify(&self, token: &str, audience: Option<&'static str>) -> Result<Identity, Refusal> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Refusal::new(400, "the token is too long"));
        }
        let cell = kept(&self.identities, (Sha256::digest(token.as_bytes()).into(), audience));
        let found = cell.get_or_try_init(async || self.counted("token", self.review(token, audience).await)).await?;
        found.clone().ok_or_else(|| Refusal::new(401, "the token is not valid here"))
    }

    /// Counts what the API server was asked, or was not.
    fn counted<T>(&self, kind: &'static str, answer: Result<Option<T>, Refusal>) -> Result<Option<T>, Refusal> {
        let result = match &answer {
            Ok(Some(_)) => "yes",
            Ok(None) => "no",
            Err(refusal) if refusal.code == 429 => "held_back",
            Err(_) => "error",
        };
        self.metrics.reviewed(kind, result);
        answer
    }

    async fn review(&self, token: &str, audience: Option<&'static str>) -> Result<Option<Identity>, Refusal> {
        self.keep_pace()?;
        let audiences = audience.map(|audience| vec![audience.to_owned()]);
        let spec = TokenReviewSpec { token: token.to_owned(), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = in_time(self.tokens.create(&PostParams::default(), &review)).await?.status.unwrap_or_default();
        let is_meant =
            audience.is_none_or(|audience| status.audiences.iter().flatten().any(|for_whom| for_whom == audience));
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true) && is_meant) else {
            return Ok(None);
        };
        Ok(Some(Identity {
            user: user.username.unwrap_or_default(),
            uid: user.uid.filter(|uid| !uid.is_empty()),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    fn keep_pace(&self) -> Result<(), Refusal> {
        let mut pace = lock(&self.pace);
        let now = Instant::now();
        if now.duration_since(pace.0) >= Duration::from_secs(1) {
            *pace = (now, 0);
        }
        pace.1 += 1;
        if pace.1 > TOKENS_PER_SECOND {
            return Err(Refusal::new(429, "too many tokens are tried: try again in a second"));
        }
        Ok(())
    }

    /// Whether a caller may `create` a subresource of an allocation.
    ///
    /// # Errors
    /// 403 when not, 503 when the API server does not answer.
    pub(crate) async fn allow(&self, identity: &Identity, object: &Object) -> Result<(), Refusal> {
        let cell = kept(&self.verdicts, (identity.clone(), object.clone()));
        let asked = async || {
            let answer = self.ask(identity, object).await.map(|is_allowed| is_allowed.then_some(()));
            self.counted("access", answer)
        };
        if cell.get_or_try_init(asked).await?.is_some() {
            return Ok(());
        }
        let Object { namespace, name, subresource } = object;
        Err(Refusal::new(
            403,
            format!(
                "allocations.subresources.drover.dev \"{name}\" is forbidden: user {:?} cannot create resource \
                 \"allocations/{subresource}\" in API group \"subresources.drover.dev\" in the namespace {namespace:?}",
                identity.user
            ),
        ))
    }

    async fn ask(&self, identity: &Identity, object: &Object) -> Result<bool, Refusal> {
        let attributes = ResourceAttributes {
            group: Some("subresources.drover.dev".to_owned()),
            version: Some("v1alpha1".to_owned()),
            resource: Some("allocations".to_owned()),
            subresource: Some(object.subresource.to_owned()),
            // Whatever the method: a WebSocket is a GET, and `get` is in the hands of many more.
            verb: Some("create".to_owned()),
            namespace: Some(object.namespace.clone()),
            name: Some(object.name.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(identity.user.clone()),
            uid: identity.uid.clone(),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = in_time(self.accesses.create(&PostParams::default(), &review)).await?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

/// The answer to a question, or the place for it.
fn kept<K: Ord, V>(all: &Answers<K, V>, key: K) -> Arc<OnceCell<V>> {
    let mut all = lock(all);
    let now = Instant::now();
    if all.len() >= MOST_KEPT {
        all.retain(|_, (since, _)| now.duration_since(*since) < KEPT);
        // All of one burst: what is forgotten is asked for again.
        if all.len() >= MOST_KEPT {
            all.clear();
        }
    }
    let (since, cell) = all.entry(key).or_insert_with(|| (now, Arc::default()));
    if now.duration_since(*since) >= KEPT {
        (*since, *cell) = (now, Arc::default());
    }
    Arc::clone(cell)
}

async fn in_time<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Refusal> {
    match tokio::time::timeout(REVIEW_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(Refusal::new(503, format!("the API server cannot be asked for rights: {error}"))),
        Err(_) => Err(Refusal::new(503, "the API server cannot be asked for rights: it does not answer")),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_whatever_the_case_of_its_scheme() {
        let of = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, http::HeaderValue::from_static(value));
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(of("bearer  abc "), Some("abc".to_owned()));
        assert_eq!((of("Basic abc"), of("Bearer "), of("abc")), (None, None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_for_ten_seconds_and_then_asked_for_again() {
        let all: Answers<u8, u8> = Arc::default();
        kept(&all, 1).set(7).expect("unset");
        assert_eq!(kept(&all, 1).get(), Some(&7));
        tokio::time::advance(KEPT).await;
        assert_eq!(kept(&all, 1).get(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn more_questions_than_are_kept_do_not_grow_the_memory() {
        let all: Answers<usize, u8> = Arc::default();
        for n in 0..=MOST_KEPT * 2 {
            kept(&all, n);
        }
        assert!(lock(&all).len() <= MOST_KEPT);
    }
}
