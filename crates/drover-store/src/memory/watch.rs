//! Watches: which changes reach whom, what was before, and from where a watch can go on.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use super::change::StoredChange;
use super::kind::Kind;
use super::object::Stored;

/// Changes of a kind from which a watch can go on; older ones are forgotten, as the API server's cache does.
const KEPT_CHANGES: usize = 1024;

/// What a watch says.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// An object, new or changed.
    Put(Arc<Stored>),
    /// An object is gone or not selected any more; this is its last state.
    Gone(Arc<Stored>),
}

impl WatchEvent {
    /// The object.
    pub fn object(&self) -> &Arc<Stored> {
        match self {
            Self::Put(object) | Self::Gone(object) => object,
        }
    }
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelection {
    namespace: Option<String>,
    fields: Vec<(Field, String)>,
    labels: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Field {
    Name,
    Namespace,
    Other(usize),
}

impl FieldSelection {
    /// Reads a field selector of a kind, as `spec.nodeName=n-1,status.phase=ready`.
    ///
    /// # Errors
    /// When the kind cannot be selected by a field.
    pub fn parse(kind: &Kind, namespace: Option<&str>, fields: Option<&str>) -> Result<Self, String> {
        let one = |text: &str| {
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| format!("field selector {text:?} is not of the form field=value"))?;
            let field = match name {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                _ => {
                    let found = kind.selectable.iter().position(|path| path.join(".") == name);
                    Field::Other(found.ok_or_else(|| format!("field label not supported: {name}"))?)
                }
            };
            Ok((field, value.trim_start_matches('=').to_owned()))
        };
        let parts = fields.unwrap_or_default().split(',').filter(|part| !part.is_empty());
        let fields = parts.map(one).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { namespace: namespace.map(str::to_owned), fields, labels: Vec::new() })
    }

    /// The same, narrowed by a label selector, as `app.kubernetes.io/managed-by=drover`.
    ///
    /// # Errors
    /// When it asks for more than that labels have certain values.
    pub fn labelled(mut self, selector: &str) -> Result<Self, String> {
        for text in selector.split(',').filter(|part| !part.is_empty()) {
            let pair = text.split_once('=').filter(|(key, _)| !key.ends_with('!'));
            let (key, value) = pair.ok_or_else(|| format!("label selector {text:?} is not of the form label=value"))?;
            self.labels.push((key.to_owned(), value.trim_start_matches('=').to_owned()));
        }
        Ok(self)
    }

    pub(crate) fn has(&self, object: &Stored) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| object.key.namespace.as_ref() == Some(namespace))
            && self.fields.iter().all(|(field, value)| field.of(object) == value)
            && self.labels.iter().all(|(key, value)| object.value["metadata"]["labels"][key] == value.as_str())
    }

    /// Whether it selects by fields or labels.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty() || !self.labels.is_empty()
    }

    /// The name of the only object that this can select.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.fields.iter().find(|(field, _)| *field == Field::Name).map(|(_, name)| name.as_str())
    }

    /// A field by which an index answers: its number and the value.
    pub(crate) fn indexed(&self) -> Option<(usize, &str)> {
        self.fields.iter().find_map(|(field, value)| match field {
            Field::Other(number) => Some((*number, value.as_str())),
            Field::Name | Field::Namespace => None,
        })
    }
}

impl Field {
    fn of(self, object: &Stored) -> &str {
        match self {
            Self::Name => &object.key.name,
            Self::Namespace => object.key.namespace.as_deref().unwrap_or_default(),
            Self::Other(number) => object.text(&object.kind.selectable[number]),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<WatchEvent>,
    waker: Option<Waker>,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The changes of selected objects from some version on. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    queue: Arc<Mutex<Queue>>,
}

impl Watch {
    /// The next event; the task is woken when there is one.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<WatchEvent> {
        let mut queue = lock(&self.queue);
        if let Some(event) = queue.events.pop_front() {
            return Poll::Ready(event);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        lock(&self.queue).events.pop_front()
    }
}

/// A watch: its number, what it sees, and where its events go.
type Subscriber = (u64, FieldSelection, Weak<Mutex<Queue>>);

/// Where watches stand, so that a change finds those that it concerns without asking all.
#[derive(Debug, Default)]
struct Routes {
    all: Vec<Subscriber>,
    by_name: HashMap<String, Vec<Subscriber>>,
    by_field: Vec<HashMap<String, Vec<Subscriber>>>,
}

impl Routes {
    fn add(&mut self, subscriber: Subscriber) {
        let selection = &subscriber.1;
        let route = match (selection.only_name(), selection.indexed()) {
            (Some(name), _) => self.by_name.entry(name.to_owned()).or_default(),
            (None, Some((number, value))) => {
                if self.by_field.len() <= number {
                    self.by_field.resize_with(number + 1, HashMap::new);
                }
                self.by_field[number].entry(value.to_owned()).or_default()
            }
            (None, None) => &mut self.all,
        };
        route.retain(|(_, _, queue)| queue.strong_count() > 0);
        route.push(subscriber);
    }

    /// The watches that may see a change, each once.
    fn concerned<'a>(&'a self, change: &'a StoredChange) -> impl Iterator<Item = &'a Subscriber> {
        let object = change.object();
        let by_field = self.by_field.iter().zip(&object.kind.selectable).flat_map(move |(values, path)| {
            let new = change.after.as_ref().map(|after| after.text(path));
            let old = change.before.as_ref().map(|before| before.text(path)).filter(|old| Some(*old) != new);
            old.into_iter().chain(new).filter_map(|value| values.get(value)).flatten()
        });
        self.all.iter().chain(self.by_name.get(&object.key.name).into_iter().flatten()).chain(by_field)
    }
}

/// The watches and the past of one kind.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    routes: Routes,
    count: u64,
    past: VecDeque<StoredChange>,
    /// The version of the newest change that is forgotten.
    forgotten: u64,
}

impl Watches {
    /// Begins a watch after a version, unless that is too long ago.
    pub(crate) fn open(&mut self, selection: &FieldSelection, after: u64) -> Option<Watch> {
        if after < self.forgotten {
            return None;
        }
        let missed = self.past.iter().skip_while(|change| change.version <= after);
        let events = missed.filter_map(|change| change.event(selection)).collect();
        let queue = Arc::new(Mutex::new(Queue { events, waker: None }));
        self.count += 1;
        self.routes.add((self.count, selection.clone(), Arc::downgrade(&queue)));
        Some(Watch { queue })
    }

    /// Objects as they were at a version: `now` with the newer changes taken back.
    pub(crate) fn rewind(
        &self,
        now: Vec<Arc<Stored>>,
        selection: &FieldSelection,
        at: u64,
    ) -> Option<Vec<Arc<Stored>>> {
        if at < self.forgotten {
            return None;
        }
        let mut objects: BTreeMap<_, _> = now.into_iter().map(|object| (object.key.clone(), object)).collect();
        for change in self.past.iter().rev().take_while(|change| change.version > at) {
            let before = change.stood.as_ref().or(change.before.as_ref());
            match before.filter(|before| selection.has(before)) {
                Some(before) => drop(objects.insert(before.key.clone(), Arc::clone(before))),
                None => drop(objects.remove(&change.object().key)),
            }
        }
        Some(objects.into_values().collect())
    }

    /// Forgets every change up to a version.
    pub(crate) fn forget(&mut self, version: u64) {
        self.past.clear();
        self.forgotten = version;
    }

    /// Tells a change to whom it concerns.
    pub(crate) fn tell(&mut self, change: &StoredChange) {
        self.past.push_back(change.clone());
        if self.past.len() > KEPT_CHANGES
            && let Some(oldest) = self.past.pop_front()
        {
            self.forgotten = oldest.version;
        }
        let mut wakers = Vec::new();
        for (number, selection, queue) in self.routes.concerned(change) {
            if let Some(queue) = queue.upgrade()
                && let Some(event) = change.event(selection)
            {
                let mut queue = lock(&queue);
                queue.events.push_back(event);
                wakers.extend(queue.waker.take().map(|waker| (*number, waker)));
            }
        }
        // In the order in which the watches were opened, whatever the routes.
        wakers.sort_by_key(|(number, _)| *number);
        for (_, waker) in wakers {
            waker.wake();
        }
    }
}

impl StoredChange {
    /// What a watch of this selection sees of it.
    fn event(&self, selection: &FieldSelection) -> Option<WatchEvent> {
        let before = self.before.as_ref().is_some_and(|before| selection.has(before));
        match &self.after {
            Some(after) if selection.has(after) => Some(WatchEvent::Put(Arc::clone(after))),
            // It shows the last state that was selected, with the version of the change.
            Some(after) if before => self.before.as_ref().map(|last| WatchEvent::Gone(last.at_version(after.version))),
            Some(_) => None,
            None => self.before.as_ref().filter(|_| before).map(|before| WatchEvent::Gone(Arc::clone(before))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::memory::fields::Owners;
    use crate::memory::kind;

    #[test]
    fn labels_select_by_their_values_alone() {
        let kind = kind::kind("Service").unwrap();
        let has = |selector: &str, labels: serde_json::Value| {
            let selection = FieldSelection::default().labelled(selector).unwrap();
            let value = json!({ "metadata": { "name": "a", "labels": labels } });
            let key = crate::store::Key::namespaced("shop", "a");
            selection.has(&Stored::new(kind, key, value, 1, Owners::default()))
        };
        assert!(has("by=drover", json!({ "by": "drover", "more": "x" })) && has("", json!({})));
        assert!(has("by==drover,more=x", json!({ "by": "drover", "more": "x" })));
        assert!(!has("by=drover", json!({ "by": "other" })) && !has("by=drover", json!({})));
        for other in ["by", "by!=drover", "by in (a)"] {
            assert!(FieldSelection::default().labelled(other).is_err(), "{other}");
        }
    }
}
