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
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
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
/// How long who was known, and might read something, still is and may while the API server cannot be asked.
const KNOWN_FOR: Duration = Duration::from_mins(5);
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

/// How the group of the tasks of a job begins; its namespace, a colon and its id follow. Only the gateway puts a caller
/// into one.
pub(crate) const TASKS_OF_JOB: &str = "drover:job:";

impl Identity {
    /// The job whose task this is, by its namespace and its id; none: it is no task.
    pub(crate) fn own_job(&self) -> Option<(&str, &str)> {
        self.groups.iter().find_map(|group| group.strip_prefix(TASKS_OF_JOB)?.split_once(':'))
    }
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

/// A right that is asked for: what RBAC's rules are compared with. Without a resource it is that to a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Access {
    /// The API group; empty for the core.
    pub(crate) group: &'static str,
    /// The resource, in the plural.
    pub(crate) resource: &'static str,
    /// The subresource, or nothing.
    pub(crate) subresource: &'static str,
    /// What is done.
    pub(crate) verb: &'static str,
    /// Where; empty for the whole cluster.
    pub(crate) namespace: String,
    /// With which object; empty for all. The path, where it is one.
    pub(crate) name: String,
}

impl Access {
    /// The right to a path that is no resource.
    pub(crate) fn of_path(path: &str, verb: &'static str) -> Self {
        Self { group: "", resource: "", subresource: "", verb, namespace: String::new(), name: path.to_owned() }
    }

    fn path(&self) -> Option<&str> {
        self.resource.is_empty().then_some(&self.name)
    }
}

impl From<&Object> for Access {
    fn from(object: &Object) -> Self {
        Self {
            group: SUBRESOURCES,
            resource: "allocations",
            subresource: object.subresource,
            // Whatever the method: a WebSocket is a GET, and `get` is in the hands of many more.
            verb: "create",
            namespace: object.namespace.clone(),
            name: object.name.clone(),
        }
    }
}

/// The group of operations on allocations.
const SUBRESOURCES: &str = "subresources.drover.dev";

/// Answers that age.
type Answers<K, V> = Arc<Mutex<BTreeMap<K, (Instant, Arc<OnceCell<V>>)>>>;

/// A token by its digest, and the audience.
type TokenKey = ([u8; 32], Option<&'static str>);

/// What the API server has allowed, and when.
type Known<K, V> = Arc<Mutex<BTreeMap<K, (Instant, V)>>>;

/// Asks the API server; clones share its answers.
#[derive(Clone)]
pub(crate) struct Reviews {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    identities: Answers<TokenKey, Option<Arc<Identity>>>,
    verdicts: Answers<(Identity, Access), Option<()>>,
    known_identities: Known<TokenKey, Arc<Identity>>,
    known_verdicts: Known<(Identity, Access), ()>,
    /// The second that runs, and how many tokens were asked for in it.
    pace: Arc<Mutex<(Instant, u32)>>,
    contact: Arc<Mutex<Contact>>,
    metrics: GatewayMetrics,
}

/// When the API server answered last, and whether it has not since.
#[derive(Clone, Copy, Debug)]
struct Contact {
    answered: Instant,
    is_silent: bool,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviews")
    }
}

/// The claim of a pod's token that names its node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The node that an agent's token names.
///
/// # Errors
/// 403 for any other user, and for a token that is bound to no node.
pub(crate) fn node_of(identity: &Identity, agent_user: &str) -> Result<String, Refusal> {
    if identity.user != agent_user {
        return Err(Refusal::new(403, format!("only {agent_user} is answered here")));
    }
    match identity.extra.get(NODE_NAME).map(Vec::as_slice).unwrap_or_default() {
        [node] if !node.is_empty() => Ok(node.clone()),
        _ => Err(Refusal::new(403, "the token names no node: it must be bound to a pod or a node")),
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
            known_identities: Arc::default(),
            known_verdicts: Arc::default(),
            pace: Arc::new(Mutex::new((Instant::now(), 0))),
            contact: Arc::new(Mutex::new(Contact { answered: Instant::now(), is_silent: false })),
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
        let key: TokenKey = (Sha256::digest(token.as_bytes()).into(), audience);
        let cell = kept(&self.identities, key);
        let asked = cell.get_or_try_init(async || self.counted("token", self.review(token, audience).await)).await;
        let found = settled(&self.known_identities, key, asked.cloned(), Meanwhile::GoesOn)?;
        found.map(Arc::unwrap_or_clone).ok_or_else(|| Refusal::new(401, "the token is not valid here"))
    }

    /// How long the API server has not answered; none: it does.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let contact = *lock(&self.contact);
        contact.is_silent.then(|| contact.answered.elapsed())
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
        let mut contact = lock(&self.contact);
        match &answer {
            Ok(_) => *contact = Contact { answered: Instant::now(), is_silent: false },
            Err(refusal) if refusal.code == 503 => contact.is_silent = true,
            Err(_) => {}
        }
        answer
    }

    async fn review(&self, token: &str, audience: Option<&'static str>) -> Result<Option<Arc<Identity>>, Refusal> {
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
        Ok(Some(Arc::new(Identity {
            user: user.username.unwrap_or_default(),
            uid: user.uid.filter(|uid| !uid.is_empty()),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        })))
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
    pub(crate) async fn allow(
        &self,
        identity: &Identity,
        object: &Object,
        meanwhile: Meanwhile,
    ) -> Result<(), Refusal> {
        self.permit(identity, &object.into(), meanwhile).await
    }

    /// Whether a caller has a right.
    ///
    /// # Errors
    /// 403 when not, 503 when the API server does not answer.
    pub(crate) async fn permit(
        &self,
        identity: &Identity,
        access: &Access,
        meanwhile: Meanwhile,
    ) -> Result<(), Refusal> {
        let key = (identity.clone(), access.clone());
        let cell = kept(&self.verdicts, key.clone());
        let asked = async || {
            let answer = self.ask(identity, access).await.map(|is_allowed| is_allowed.then_some(()));
            self.counted("access", answer)
        };
        let answer = cell.get_or_try_init(asked).await.copied();
        if settled(&self.known_verdicts, key, answer, meanwhile)?.is_some() {
            return Ok(());
        }
        Err(Refusal::new(403, denied(identity, access)))
    }

    /// Whether a caller has a right, where both answers are of use.
    ///
    /// # Errors
    /// 503 when the API server does not answer.
    pub(crate) async fn has(
        &self,
        identity: &Identity,
        access: &Access,
        meanwhile: Meanwhile,
    ) -> Result<bool, Refusal> {
        match self.permit(identity, access, meanwhile).await {
            Ok(()) => Ok(true),
            Err(refusal) if refusal.code == 403 => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    async fn ask(&self, identity: &Identity, access: &Access) -> Result<bool, Refusal> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let path =
            access.path().map(|path| NonResourceAttributes { path: some(path), verb: Some(access.verb.to_owned()) });
        let resource = path.is_none().then(|| ResourceAttributes {
            group: Some(access.group.to_owned()),
            version: (access.group == SUBRESOURCES).then(|| "v1alpha1".to_owned()),
            resource: Some(access.resource.to_owned()),
            subresource: some(access.subresource),
            verb: Some(access.verb.to_owned()),
            namespace: some(&access.namespace),
            name: some(&access.name),
            ..ResourceAttributes::default()
        });
        let spec = SubjectAccessReviewSpec {
            user: Some(identity.user.clone()),
            uid: identity.uid.clone(),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            resource_attributes: resource,
            non_resource_attributes: path,
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let status = in_time(self.accesses.create(&PostParams::default(), &review)).await?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

/// Which right is missing, in the API server's own words.
fn denied(identity: &Identity, access: &Access) -> String {
    let Access { group, resource, subresource, verb, namespace, name } = access;
    if let Some(path) = access.path() {
        return format!("forbidden: user {:?} cannot {verb} path {path:?}", identity.user);
    }
    let named = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    let part = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    let place = match namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let kind = if group.is_empty() { (*resource).to_owned() } else { format!("{resource}.{group}") };
    format!(
        "{kind}{named} is forbidden: user {:?} cannot {verb} resource \"{resource}{part}\" in API group \
         {group:?} {place}",
        identity.user
    )
}

/// Whether a caller has proved nothing.
pub(crate) fn is_anonymous(identity: &Identity) -> bool {
    identity.groups.iter().any(|group| group == UNAUTHENTICATED)
}

/// The group of those who have proved nothing.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// What happens while the API server cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// What was allowed a short while ago goes on.
    GoesOn,
    /// Nothing.
    Stops,
}

/// Remembers a yes, forgets after a no, and answers for the API server as long as it was asked not long ago.
fn settled<K: Ord, V: Clone>(
    known: &Known<K, V>,
    key: K,
    answer: Result<Option<V>, Refusal>,
    meanwhile: Meanwhile,
) -> Result<Option<V>, Refusal> {
    let mut known = lock(known);
    match &answer {
        Ok(Some(yes)) => {
            if known.len() >= MOST_KEPT {
                known.clear();
            }
            known.insert(key, (Instant::now(), yes.clone()));
        }
        Ok(None) => drop(known.remove(&key)),
        Err(refusal) if refusal.code == 503 && meanwhile == Meanwhile::GoesOn => {
            if let Some((_, yes)) = known.get(&key).filter(|(at, _)| at.elapsed() < KNOWN_FOR) {
                return Ok(Some(yes.clone()));
            }
        }
        Err(_) => {}
    }
    answer
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

    /// An API server that knows the token `known` and no other; it counts what it is asked.
    fn api_server(asked: Arc<Mutex<Vec<String>>>) -> Client {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let asked = Arc::clone(&asked);
            async move {
                let body = request.into_body().collect_bytes().await.expect("a body");
                let mut review: TokenReview = serde_json::from_slice(&body).expect("a review");
                lock(&asked).push(review.spec.token.clone());
                let is_known = review.spec.token == "known";
                review.status = serde_json::from_value(serde_json::json!({
                    "authenticated": is_known, "user": is_known.then(|| serde_json::json!({ "username": "ann" })),
                }))
                .expect("a status");
                let answer = serde_json::to_vec(&review).expect("JSON");
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(answer)))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn g_031_of_a_thousand_wrong_tokens_in_a_second_a_hundred_are_asked_for_and_others_are_served() {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let reviews = Reviews::new(api_server(Arc::clone(&asked)), GatewayMetrics::default());
        let code = async |token: &str| reviews.identify(token, None).await.map(|it| it.user).map_err(|it| it.code);
        assert_eq!(code("known").await, Ok("ann".to_owned()));
        tokio::time::advance(Duration::from_secs(1)).await;
        lock(&asked).clear();
        let mut answers: BTreeMap<u16, usize> = BTreeMap::new();
        for n in 0..1000 {
            *answers.entry(code(&format!("guess-{n}")).await.expect_err("refused")).or_default() += 1;
            assert_eq!(code("known").await, Ok("ann".to_owned()));
        }
        assert_eq!(answers, BTreeMap::from([(401, 100), (429, 900)]));
        assert_eq!(lock(&asked).len(), 100);
        // What was refused for the pace alone is asked for in its time.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(code("guess-999").await, Err(401));
    }

    #[tokio::test(start_paused = true)]
    async fn who_might_read_still_may_for_five_minutes_without_the_api_server_and_who_acts_may_not() {
        let known: Known<u8, u8> = Arc::default();
        let gone = || Err(Refusal::new(503, "gone"));
        assert!(settled(&known, 1, gone(), Meanwhile::GoesOn).is_err(), "never asked");
        assert_eq!(settled(&known, 1, Ok(Some(7)), Meanwhile::GoesOn), Ok(Some(7)));
        tokio::time::advance(KNOWN_FOR.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(settled(&known, 1, gone(), Meanwhile::GoesOn), Ok(Some(7)));
        assert!(settled(&known, 1, gone(), Meanwhile::Stops).is_err());
        let too_many = Err(Refusal::new(429, "too many"));
        assert!(settled(&known, 1, too_many, Meanwhile::GoesOn).is_err());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(settled(&known, 1, gone(), Meanwhile::GoesOn).is_err(), "too long ago");
        assert_eq!(settled(&known, 1, Ok(Some(7)), Meanwhile::GoesOn), Ok(Some(7)));
        assert_eq!(settled(&known, 1, Ok(None), Meanwhile::GoesOn), Ok(None));
        assert!(settled(&known, 1, gone(), Meanwhile::GoesOn).is_err(), "refused since");
    }

    /// An API server that knows everyone and allows everything, until it is gone.
    fn generous_server(is_gone: Arc<std::sync::atomic::AtomicBool>) -> Client {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_gone = is_gone.load(std::sync::atomic::Ordering::Relaxed);
            async move {
                if is_gone {
                    return Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
                }
                let is_of_token = request.uri().path().contains("tokenreviews");
                let body = request.into_body().collect_bytes().await.expect("a body");
                let mut review: serde_json::Value = serde_json::from_slice(&body).expect("a review");
                review["status"] = if is_of_token {
                    serde_json::json!({ "authenticated": true, "user": { "username": "ann" } })
                } else {
                    serde_json::json!({ "allowed": true })
                };
                Ok(http::Response::new(kube::client::Body::from(review.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_171_who_read_logs_reads_them_on_when_the_api_server_is_gone_longer_than_its_answer_is_kept() {
        let is_gone = Arc::<std::sync::atomic::AtomicBool>::default();
        let reviews = Reviews::new(generous_server(Arc::clone(&is_gone)), GatewayMetrics::default());
        let ask = async |token: &str, subresource: &'static str, meanwhile: Meanwhile| {
            let identity = reviews.identify(token, None).await.map_err(|refusal| refusal.code)?;
            let object = Object { namespace: "shop".to_owned(), name: "web".to_owned(), subresource };
            reviews.allow(&identity, &object, meanwhile).await.map_err(|refusal| refusal.code)
        };
        for (subresource, meanwhile) in [("log", Meanwhile::GoesOn), ("exec", Meanwhile::Stops)] {
            assert_eq!(ask("known", subresource, meanwhile).await, Ok(()), "{subresource}");
        }
        is_gone.store(true, std::sync::atomic::Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(ask("known", "log", Meanwhile::GoesOn).await, Ok(()));
        assert_eq!(ask("known", "exec", Meanwhile::Stops).await, Err(503));
        assert_eq!(ask("known", "fs", Meanwhile::GoesOn).await, Err(503), "what was never allowed");
        assert_eq!(ask("another", "log", Meanwhile::GoesOn).await, Err(503));
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
