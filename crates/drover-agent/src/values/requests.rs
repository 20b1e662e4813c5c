//! What runners follow, and what is known of each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::value_object::ValueObject;
use drover_socket::values::{Kept, ValueAnswer, ValueAsk, ValueNews};
use tokio::sync::{Notify, watch};

/// An object's values, by key.
pub(crate) type ObjectValues = BTreeMap<String, Vec<u8>>;

/// What the gateway has given of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GivenValues {
    pub(crate) keys: ObjectValues,
    /// The object's `metadata.resourceVersion`; empty: the gateway does not say.
    pub(crate) version: String,
    /// There are newer ones, and this is why they are not here.
    pub(crate) kept: Option<Kept>,
}

/// An object that an allocation uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueRequest {
    pub(crate) namespace: String,
    pub(crate) allocation: String,
    pub(crate) uid: String,
    pub(crate) object: ValueObject,
    /// The version that is in use already; none: the allocation cannot do without values.
    pub(crate) holds: Option<String>,
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ValueState {
    /// Nothing yet: why.
    Waiting(String),
    /// Its values.
    There(Arc<GivenValues>),
    /// There is no such object.
    Absent,
    /// The gateway does not give it out: why, and what to do.
    Refused(String),
}

impl fmt::Debug for ValueState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(reason) => write!(f, "waiting: {reason}"),
            Self::There(values) => write!(f, "{} values", values.keys.len()),
            Self::Absent => f.write_str("absent"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

/// Gives out values; without the type of what gets them, so that runners need not know it.
pub(crate) trait Values: fmt::Debug + Send + Sync {
    /// Follows an object from now on.
    fn follow(&self, request: ValueRequest) -> Followed;
}

/// An object that is followed until this is dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    /// What is known of it.
    pub(crate) state: watch::Receiver<ValueState>,
    _until: Until,
}

impl Followed {
    /// One whose end is of no interest.
    pub(crate) fn of(state: watch::Receiver<ValueState>) -> Self {
        Self { state, _until: Until(None) }
    }
}

/// Ends a request.
#[derive(Debug)]
struct Until(Option<(ValueRequests, u64)>);

impl Drop for Until {
    fn drop(&mut self) {
        if let Some((requests, id)) = self.0.take() {
            requests.all().open.remove(&id);
            requests.0.changed.notify_one();
        }
    }
}

/// All that is followed; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct ValueRequests(Arc<RequestTable>);

#[derive(Default)]
struct RequestTable {
    all: Mutex<All>,
    changed: Notify,
}

#[derive(Default)]
struct All {
    last: u64,
    open: BTreeMap<u64, (ValueRequest, watch::Sender<ValueState>)>,
}

impl fmt::Debug for ValueRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.all().open.len())
    }
}

impl Values for ValueRequests {
    fn follow(&self, request: ValueRequest) -> Followed {
        let (tell, state) = watch::channel(ValueState::Waiting("the gateway was not asked yet".to_owned()));
        let id = {
            let mut all = self.all();
            all.last += 1;
            let id = all.last;
            all.open.insert(id, (request, tell));
            id
        };
        self.0.changed.notify_one();
        Followed { state, _until: Until(Some((self.clone(), id))) }
    }
}

impl ValueRequests {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a request that comes or goes.
    pub(super) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Whether nothing is followed.
    pub(super) fn is_empty(&self) -> bool {
        self.all().open.is_empty()
    }

    /// What a gateway that knows of the requests `asked` has to learn; it knows them then.
    pub(super) fn news_for(&self, asked: &mut std::collections::BTreeSet<u64>) -> Vec<ValueAsk> {
        let all = self.all();
        let gone: Vec<u64> = asked.iter().filter(|id| !all.open.contains_key(id)).copied().collect();
        let mut asks: Vec<ValueAsk> = gone.iter().map(|&id| ValueAsk::Drop { id }).collect();
        for id in gone {
            asked.remove(&id);
        }
        for (&id, (request, tell)) in &all.open {
            if asked.insert(id) {
                let ValueRequest { namespace, allocation, uid, object, holds } = request.clone();
                let given = match &*tell.borrow() {
                    ValueState::There(given) => Some(given.version.clone()).filter(|version| !version.is_empty()),
                    ValueState::Waiting(_) | ValueState::Absent | ValueState::Refused(_) => None,
                };
                let holds = given.or(holds);
                asks.push(ValueAsk::Follow { id, namespace, allocation, uid, object, holds, in_turn: true });
            }
        }
        asks
    }

    /// Takes in an answer. What was known stays so where the gateway has lost sight of it.
    pub(super) fn hear(&self, news: ValueNews) {
        let next = match news.value {
            ValueAnswer::Kept(kept) => return self.keep(news.id, &kept),
            ValueAnswer::Values(values) => match decoded(&values) {
                Ok(keys) => ValueState::There(Arc::new(GivenValues { keys, version: news.version, kept: None })),
                Err(reason) => ValueState::Waiting(reason),
            },
            ValueAnswer::Absent => ValueState::Absent,
            ValueAnswer::Refused(reason) => ValueState::Refused(reason),
            ValueAnswer::Unavailable(reason) => ValueState::Waiting(reason),
        };
        if let Some((_, tell)) = self.all().open.get(&news.id) {
            tell.send_if_modified(|state| {
                let is_lost = matches!(next, ValueState::Waiting(_)) && !matches!(state, ValueState::Waiting(_));
                let is_news = !is_lost && *state != next;
                if is_news {
                    *state = next;
                }
                is_news
            });
        }
    }

    /// Newer values are not given yet.
    fn keep(&self, id: u64, kept: &Kept) {
        if let Some((_, tell)) = self.all().open.get(&id) {
            tell.send_if_modified(|state| {
                let next = match state {
                    ValueState::There(given) => {
                        ValueState::There(Arc::new(GivenValues { kept: Some(kept.clone()), ..(**given).clone() }))
                    }
                    ValueState::Waiting(_) => ValueState::Waiting(kept.reason.clone()),
                    ValueState::Absent | ValueState::Refused(_) => return false,
                };
                let is_news = *state != next;
                *state = next;
                is_news
            });
        }
    }

    /// Why there is no connection, for those who have nothing yet.
    pub(super) fn wait_because(&self, reason: &str) {
        for (_, tell) in self.all().open.values() {
            tell.send_if_modified(|state| match state {
                ValueState::Waiting(earlier) if earlier != reason => {
                    reason.clone_into(earlier);
                    true
                }
                _ => false,
            });
        }
    }
}

fn decoded(values: &BTreeMap<String, String>) -> Result<ObjectValues, String> {
    let decode = |(key, text): (&String, &String)| {
        let bytes =
            STANDARD.decode(text).map_err(|error| format!("the gateway's value of {key} is no base64: {error}"))?;
        Ok((key.clone(), bytes))
    };
    values.iter().map(decode).collect()
}

/// There is no gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoValues;

impl Values for NoValues {
    fn follow(&self, request: ValueRequest) -> Followed {
        let reason = format!(
            "{} comes from the gateway, and this agent has none; install it with gateway.enabled, or set \
             gateway.tokenFile in the agent's configuration",
            request.object
        );
        Followed::of(watch::channel(ValueState::Refused(reason)).1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use drover_api::value_object::ValueKind;

    fn request(name: &str) -> ValueRequest {
        let object = ValueObject { kind: ValueKind::Secret, name: name.to_owned() };
        ValueRequest {
            namespace: "shop".to_owned(),
            allocation: "a".to_owned(),
            uid: "u".to_owned(),
            object,
            holds: None,
        }
    }

    /// An answer to the first request, whose version is the value too.
    fn news(value: &str) -> ValueNews {
        let values = ValueAnswer::Values(BTreeMap::from([("k".to_owned(), STANDARD.encode(value))]));
        ValueNews { id: 1, value: values, version: format!("v-{value}") }
    }

    #[test]
    fn a_gateway_learns_what_came_and_went_since_and_a_new_one_all_there_is() {
        let requests = ValueRequests::default();
        let (first, second) = (requests.follow(request("a")), requests.follow(request("b")));
        let mut asked = BTreeSet::new();
        assert_eq!(requests.news_for(&mut asked).len(), 2);
        assert_eq!(requests.news_for(&mut asked), []);
        drop(first);
        assert_eq!(requests.news_for(&mut asked), [ValueAsk::Drop { id: 1 }]);
        let all = requests.news_for(&mut BTreeSet::new());
        assert!(matches!(&all[..], [ValueAsk::Follow { id: 2, .. }]), "{all:?}");
        drop(second);
        assert!(requests.is_empty());
    }

    #[test]
    fn b_058_what_was_known_stays_known_while_the_gateway_is_away_and_the_same_again_is_no_change() {
        let requests = ValueRequests::default();
        let mut followed = requests.follow(request("a"));
        requests.wait_because("the gateway is not reached");
        assert_eq!(*followed.state.borrow_and_update(), ValueState::Waiting("the gateway is not reached".to_owned()));
        requests.hear(news("one"));
        let ValueState::There(there) = followed.state.borrow_and_update().clone() else { panic!("no values") };
        assert_eq!(there.keys["k"], b"one");
        requests.wait_because("the gateway is not reached");
        requests.hear(ValueNews { value: ValueAnswer::Unavailable("away".to_owned()), ..news("") });
        requests.hear(news("one"));
        assert!(!followed.state.has_changed().expect("open"));
        requests.hear(news("two"));
        assert!(followed.state.has_changed().expect("open"));
        // An answer to a request that has gone meets none.
        requests.hear(ValueNews { id: 7, ..news("three") });
    }

    #[test]
    fn b_056_a_gateway_hears_which_version_is_held_and_says_why_a_newer_one_is_not_given() {
        let requests = ValueRequests::default();
        let held = || match &requests.news_for(&mut BTreeSet::new())[..] {
            [ValueAsk::Follow { holds, in_turn: true, .. }] => holds.clone(),
            other => panic!("{other:?}"),
        };
        let of_before = ValueRequest { holds: Some("v-zero".to_owned()), ..request("a") };
        let mut followed = requests.follow(of_before);
        assert_eq!(held().as_deref(), Some("v-zero"), "of a run that has begun before");
        let kept = |reason: &str| {
            let kept = Kept { reason: reason.to_owned(), is_stopped: false };
            ValueNews { value: ValueAnswer::Kept(kept), ..news("") }
        };
        requests.hear(kept("waits"));
        assert_eq!(*followed.state.borrow_and_update(), ValueState::Waiting("waits".to_owned()));
        requests.hear(news("one"));
        assert_eq!(held().as_deref(), Some("v-one"));
        requests.hear(kept("waits on"));
        let ValueState::There(given) = followed.state.borrow_and_update().clone() else { panic!("no values") };
        assert_eq!((given.keys["k"].as_slice(), given.version.as_str()), (b"one".as_slice(), "v-one"));
        assert_eq!(given.kept.as_ref().map(|kept| kept.reason.as_str()), Some("waits on"));
        requests.hear(kept("waits on"));
        assert!(!followed.state.has_changed().expect("open"), "the same is told once");
        requests.hear(news("two"));
        let ValueState::There(given) = followed.state.borrow_and_update().clone() else { panic!("no values") };
        assert_eq!((given.version.as_str(), &given.kept), ("v-two", &None));
    }

    #[test]
    fn neither_a_state_nor_an_answer_shows_a_value() {
        let requests = ValueRequests::default();
        let followed = requests.follow(request("a"));
        let news = news("hunter2");
        let shown = format!("{news:?}");
        requests.hear(news);
        let shown = shown + &format!("{:?} {requests:?} {followed:?}", followed.state.borrow());
        assert!(!shown.contains("hunter2") && !shown.contains(&STANDARD.encode("hunter2")), "{shown}");
    }
}
