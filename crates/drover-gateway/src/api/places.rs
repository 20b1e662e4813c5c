//! Where allocations were found: an allocation never moves to another node, so that reads find it while the API server
//! cannot be asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::route::Route;
use crate::answers::Refusal;
use crate::reviews::Meanwhile;
use crate::tunnels::Place;

/// The most that are remembered; then all are forgotten, and found again when they are asked for.
const MOST_PLACES: usize = 16_384;

/// An allocation by namespace and name.
type Name = (String, String);

/// What was found; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<BTreeMap<Name, Place>>>);

impl Places {
    /// Remembers what was found, forgets what is there no more, and answers for an API server that does not.
    pub(super) fn settled(
        &self,
        route: &Route,
        found: Result<Place, Refusal>,
        meanwhile: Meanwhile,
    ) -> Result<Place, Refusal> {
        let key = (route.namespace.clone(), route.allocation.clone());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &found {
            Ok(place) => {
                if known.len() >= MOST_PLACES {
                    known.clear();
                }
                known.insert(key, place.clone());
            }
            Err(refusal) if refusal.code == 503 => {
                if let (Some(place), Meanwhile::GoesOn) = (known.get(&key), meanwhile) {
                    return Ok(place.clone());
                }
            }
            Err(_) => drop(known.remove(&key)),
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::route::Subresource;
    use super::*;

    #[test]
    fn reads_find_an_allocation_without_the_api_server_until_it_is_known_to_be_gone() {
        let places = Places::default();
        let route = Route { namespace: "shop".to_owned(), allocation: "web".to_owned(), subresource: Subresource::Log };
        let place = Place { node: "n-1".to_owned(), namespace: "shop".to_owned(), uid: "u".to_owned() };
        let gone = || Err(Refusal::new(503, "gone"));
        assert!(places.settled(&route, gone(), Meanwhile::GoesOn).is_err());
        assert_eq!(places.settled(&route, Ok(place.clone()), Meanwhile::GoesOn), Ok(place.clone()));
        assert_eq!(places.settled(&route, gone(), Meanwhile::GoesOn), Ok(place));
        assert!(places.settled(&route, gone(), Meanwhile::Stops).is_err());
        assert!(places.settled(&route, Err(Refusal::new(404, "none")), Meanwhile::GoesOn).is_err());
        assert!(places.settled(&route, gone(), Meanwhile::GoesOn).is_err());
    }
}
