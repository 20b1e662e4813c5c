//! The lock of a plugin's controller: calls that change something are made one at a time for each plugin
//! (`spec/volumes.md` 5), whichever volumes they are for.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::ObjectKey;

/// The release of one claim: the volume, and the allocation's id.
pub type Caller = (ObjectKey, String);

/// The calls under way and those that wait, by plugin. It holds only plugins that are being called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginLock {
    by_plugin: BTreeMap<String, Holding>,
}

/// Who waits is bounded by the claims that are being released: each waits once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding {
    holder: Caller,
    waiting: VecDeque<Caller>,
}

impl PluginLock {
    /// Asks for a plugin's lock, and says whether the caller holds it now. One that does not waits until
    /// [`PluginLock::finish`] names it.
    pub fn ask(&mut self, plugin: &str, caller: &Caller) -> bool {
        let Some(holding) = self.by_plugin.get_mut(plugin) else {
            let holding = Holding { holder: caller.clone(), waiting: VecDeque::new() };
            self.by_plugin.insert(plugin.to_owned(), holding);
            return true;
        };
        let has_it = holding.holder == *caller;
        if !has_it && !holding.waiting.contains(caller) {
            holding.waiting.push_back(caller.clone());
        }
        has_it
    }

    /// Ends a caller's hold, or its waiting, and names the one that holds the lock from now on because of it.
    pub fn finish(&mut self, plugin: &str, caller: &Caller) -> Option<Caller> {
        let holding = self.by_plugin.get_mut(plugin)?;
        if holding.holder != *caller {
            holding.waiting.retain(|waiting| waiting != caller);
            return None;
        }
        let next = holding.waiting.pop_front();
        match &next {
            Some(next) => holding.holder.clone_from(next),
            None => drop(self.by_plugin.remove(plugin)),
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(volume: &str) -> Caller {
        (ObjectKey::new("shop", volume), "a1".to_owned())
    }

    #[test]
    fn one_calls_a_plugin_and_others_follow_in_their_order() {
        let mut lock = PluginLock::default();
        let [v1, v2, v3] = ["v1", "v2", "v3"].map(caller);
        assert_eq!([&v1, &v2, &v3, &v2].map(|one| lock.ask("p", one)), [true, false, false, false]);
        assert!(lock.ask("p", &v1), "who holds the lock keeps it");
        assert!(lock.ask("other", &v2), "another plugin has a lock of its own");
        assert_eq!(lock.finish("p", &v1), Some(v2.clone()));
        assert!(lock.ask("p", &v2));
        assert_eq!(lock.finish("p", &v3), None, "one that waited gave up");
        assert_eq!(lock.finish("p", &v2), None);
        assert_eq!(lock.finish("other", &v2), None);
        assert_eq!(lock, PluginLock::default(), "nothing is kept of plugins that nobody calls");
    }
}
