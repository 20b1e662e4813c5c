//! Whose turn it is to call a plugin's controller: calls that change something are made one at a time for each plugin
//! (`spec/volumes.md` 5), whichever volumes they are for.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::ObjectKey;

/// The release of one claim: the volume, and the allocation's id.
pub type Caller = (ObjectKey, String);

/// The calls under way and those that wait, by plugin. It holds only plugins that are being called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    by_plugin: BTreeMap<String, Turn>,
}

/// Who waits is bounded by the claims that are being released: each waits once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Turn {
    holder: Caller,
    waiting: VecDeque<Caller>,
}

impl Turns {
    /// Asks for a plugin's turn, and says whether the caller has it now. One that has not waits until [`Turns::finish`]
    /// names it.
    pub fn ask(&mut self, plugin: &str, caller: &Caller) -> bool {
        let Some(turn) = self.by_plugin.get_mut(plugin) else {
            let turn = Turn { holder: caller.clone(), waiting: VecDeque::new() };
            self.by_plugin.insert(plugin.to_owned(), turn);
            return true;
        };
        let has_it = turn.holder == *caller;
        if !has_it && !turn.waiting.contains(caller) {
            turn.waiting.push_back(caller.clone());
        }
        has_it
    }

    /// Ends a caller's turn, or its waiting, and names the one that has the turn from now on because of it.
    pub fn finish(&mut self, plugin: &str, caller: &Caller) -> Option<Caller> {
        let turn = self.by_plugin.get_mut(plugin)?;
        if turn.holder != *caller {
            turn.waiting.retain(|waiting| waiting != caller);
            return None;
        }
        let next = turn.waiting.pop_front();
        match &next {
            Some(next) => turn.holder.clone_from(next),
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
        let mut turns = Turns::default();
        let [v1, v2, v3] = ["v1", "v2", "v3"].map(caller);
        assert_eq!([&v1, &v2, &v3, &v2].map(|one| turns.ask("p", one)), [true, false, false, false]);
        assert!(turns.ask("p", &v1), "who has the turn keeps it");
        assert!(turns.ask("other", &v2), "another plugin has a turn of its own");
        assert_eq!(turns.finish("p", &v1), Some(v2.clone()));
        assert!(turns.ask("p", &v2));
        assert_eq!(turns.finish("p", &v3), None, "one that waited gave up");
        assert_eq!(turns.finish("p", &v2), None);
        assert_eq!(turns.finish("other", &v2), None);
        assert_eq!(turns, Turns::default(), "nothing is kept of plugins that nobody calls");
    }
}
