//! What a subscriber asks for.

use std::collections::{BTreeMap, BTreeSet};

use super::event::Event;
use super::topic::Topic;
use crate::fault::Fault;
use crate::query::{Asked, Query};
use crate::resource::{Reach, Resource, Right, Verb};

/// Any topic, and any key.
const ANY: &str = "*";
/// The most parameters `topic` of a subscription.
const MOST_TOPICS: usize = 256;

/// What a subscriber asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The keys of each topic that is named.
    keys: BTreeMap<Topic, BTreeSet<String>>,
    /// Keys of any topic.
    of_any: BTreeSet<String>,
    index: u64,
    namespaces: Asked,
}

impl Wanted {
    /// Reads the text behind `?`, which `query` has been read from too.
    ///
    /// # Errors
    /// 400 for a topic that is none, or that has more than one colon, and for too many of them.
    pub fn parse(text: &str, query: &Query) -> Result<Self, Fault> {
        let index = query.blocking().map_or(0, |asked| asked.index);
        let mut wanted = Self { keys: BTreeMap::new(), of_any: BTreeSet::new(), index, namespaces: query.namespaces() };
        let topics = form_urlencoded::parse(text.as_bytes()).filter(|(name, _)| name == "topic");
        let topics: Vec<_> = topics.map(|(_, topic)| topic).collect();
        if topics.len() > MOST_TOPICS {
            return Err(Fault::bad(format!("topic is given more than {MOST_TOPICS} times: follow {ANY} instead")));
        }
        if topics.is_empty() {
            wanted.of_any.insert(ANY.to_owned());
        }
        for topic in topics {
            wanted.add(&topic)?;
        }
        Ok(wanted)
    }

    fn add(&mut self, asked: &str) -> Result<(), Fault> {
        let (topic, key) = asked.split_once(':').unwrap_or((asked, ANY));
        if key.contains(':') {
            return Err(Fault::bad(format!(
                "topic is {asked:?}: give Topic, Topic:key or Topic:{ANY}, with one colon"
            )));
        }
        if topic == ANY {
            self.of_any.insert(key.to_owned());
        } else if let Some(topic) = Topic::named(topic) {
            self.keys.entry(topic).or_default().insert(key.to_owned());
        } else if !Topic::is_silent(topic) {
            return Err(Fault::bad(format!("topic {topic:?} is not known: give {ANY}, {}", Topic::names())));
        }
        Ok(())
    }

    /// From which index on; 0: from the oldest that is kept.
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// The rights that it needs: all of what may come must be allowed to be listed.
    pub fn needed(&self) -> Vec<Right> {
        let topics = Topic::ALL.into_iter().filter(|topic| !self.of_any.is_empty() || self.keys.contains_key(topic));
        let resources: BTreeSet<Resource> = topics.map(Topic::resource).collect();
        let reach = |resource: Resource| match (resource, &self.namespaces) {
            (Resource::Nodes, _) => Reach::Cluster,
            (_, Asked::All) => Reach::Everywhere,
            (_, Asked::One(name)) => Reach::Namespace(name.clone()),
        };
        let right = |resource| Right { resource, verb: Verb::List, reach: reach(resource), is_optional: false };
        resources.into_iter().map(right).collect()
    }

    /// Whether an event is one of those that are asked for. Where every namespace is, it may still be one that the
    /// subscriber may not see.
    pub fn has(&self, event: &Event) -> bool {
        let is_there = match (&self.namespaces, event.namespace()) {
            (_, "") | (Asked::All, _) => true,
            (Asked::One(name), namespace) => name == namespace,
        };
        let keys = self.keys.get(&event.topic()).into_iter().chain([&self.of_any]).flatten();
        is_there && keys.into_iter().any(|key| key == ANY || event.has_key(key))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cause::Cause;
    use super::super::event::Keys;
    use super::*;

    fn wanted(text: &str) -> Result<Wanted, Fault> {
        Wanted::parse(text, &Query::parse(text)?)
    }

    fn event(topic: Topic, namespace: &str, own: &str, more: &[&str]) -> Event {
        let keys = Keys { own: own.to_owned(), more: more.iter().map(|it| (*it).to_owned()).collect() };
        Event::new((topic, Cause::PlanResult), namespace, keys, &json!({}))
    }

    /// Of a job `web` with all that belongs to it, of another job, of the same in another namespace, and of a node.
    fn events() -> Vec<(&'static str, Event)> {
        vec![
            ("job", event(Topic::Job, "default", "web", &[])),
            ("evaluation", event(Topic::Evaluation, "default", "e-1", &["web", ""])),
            ("allocation", event(Topic::Allocation, "default", "a-1", &["web", "d-1"])),
            ("deployment", event(Topic::Deployment, "default", "d-1", &["web"])),
            ("other", event(Topic::Deployment, "default", "d-2", &["db"])),
            ("shop", event(Topic::Job, "shop", "web", &[])),
            ("node", event(Topic::Node, "", "n-1", &[])),
        ]
    }

    fn found(text: &str) -> String {
        let wanted = wanted(text).expect(text);
        let found: Vec<_> = events().into_iter().filter(|(_, it)| wanted.has(it)).map(|(name, _)| name).collect();
        found.join(" ")
    }

    #[test]
    fn p_063_p_064_p_066_events_are_found_by_topic_and_key_in_their_namespace() {
        for (text, expected) in [
            ("", "job evaluation allocation deployment other node"),
            ("topic=*", "job evaluation allocation deployment other node"),
            ("topic=*:*", "job evaluation allocation deployment other node"),
            ("topic=Deployment:web", "deployment"),
            ("topic=Deployment:d-1&topic=Deployment:d-2", "deployment other"),
            ("topic=*:web", "job evaluation allocation deployment"),
            ("topic=*:web&topic=Node", "job evaluation allocation deployment node"),
            ("topic=Job&topic=Node:n-1", "job node"),
            ("topic=Evaluation:", ""),
            ("topic=Service&topic=NodePool:x", ""),
            ("namespace=shop", "shop node"),
            ("namespace=shop&topic=*:web", "shop"),
            ("namespace=*&topic=Job", "job shop"),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn p_065_what_is_no_topic_and_no_index_is_refused() {
        for text in ["topic=Job:a:b", "topic=Jobs", "topic=", "index=x", "index=-1"] {
            assert_eq!(wanted(text).map_err(|fault| fault.code), Err(400), "{text}");
        }
        assert!(wanted(&"topic=Job&".repeat(MOST_TOPICS)).is_ok());
        assert!(wanted(&"topic=Job&".repeat(MOST_TOPICS + 1)).is_err());
        assert_eq!(wanted("index=7").map(|it| it.index()), Ok(7));
        assert_eq!((wanted("").map(|it| it.index()), wanted("index=0").map(|it| it.index())), (Ok(0), Ok(0)));
    }

    #[test]
    fn each_topic_needs_the_right_to_list_what_it_tells_of() {
        let needed = |text: &str| -> Vec<String> {
            let of = |right: Right| format!("{} {} {:?}", right.verb.name(), right.resource.plural(), right.reach);
            wanted(text).expect(text).needed().into_iter().map(of).collect()
        };
        assert_eq!(needed("topic=Node&namespace=shop"), ["list clientnodes Cluster"]);
        assert_eq!(needed("topic=Job:a&topic=Evaluation"), ["list jobs Namespace(\"default\")"]);
        assert_eq!(needed("topic=CSIVolume&namespace=*"), ["list csivolumes Everywhere"]);
        assert_eq!(needed("topic=*:web").len(), 5);
        assert_eq!(needed("topic=Service"), [""; 0]);
    }
}
