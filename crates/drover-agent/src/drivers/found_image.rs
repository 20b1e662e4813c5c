//! The image that a start is to begin with, from its driver's preparation until it has begun, and which images starts
//! need.
//!
//! Must never know containerd's namespaces and names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use drover_containerd::api::types::Descriptor;

/// The image that a start is to begin with: what its name led to when the task was seen to be entitled to it.
#[derive(Debug)]
pub(crate) struct FoundImage {
    /// Its first document.
    pub(crate) target: Descriptor,
    /// Whether the node has noted already that the task begins with it.
    pub(crate) is_kept: bool,
    /// Held until the start is over.
    pub(crate) _needed: NeededImage,
}

/// The place of a start's image: empty until its driver's preparation has found one. Cheap to clone; all clones are one
/// place.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageSlot(Arc<OnceLock<FoundImage>>);

impl ImageSlot {
    /// Notes what was found; the first one stays.
    pub(crate) fn fill(&self, found: FoundImage) {
        drop(self.0.set(found));
    }

    /// What was found.
    pub(crate) fn get(&self) -> Option<&FoundImage> {
        self.0.get()
    }
}

/// Images that starts need, and how many do; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NeededImages(Arc<Mutex<BTreeMap<String, usize>>>);

impl NeededImages {
    /// Keeps the image of this full name from being given up, as long as the answer lives.
    pub(crate) fn need(&self, name: &str) -> NeededImage {
        *self.lock().entry(name.to_owned()).or_default() += 1;
        NeededImage { all: self.clone(), name: name.to_owned() }
    }

    /// Whether a start needs the image of this full name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image that a start needs: it is not given up meanwhile.
#[derive(Debug)]
pub(crate) struct NeededImage {
    all: NeededImages,
    name: String,
}

impl Drop for NeededImage {
    fn drop(&mut self) {
        let mut needed = self.all.lock();
        if let Some(count) = needed.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                needed.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_needed_until_the_last_start_that_needs_it_is_over() {
        let all = NeededImages::default();
        let (first, second, other) = (all.need("a"), all.need("a"), all.need("b"));
        drop(first);
        assert!(all.has("a") && all.has("b") && !all.has("c"));
        drop((second, other));
        assert!(!all.has("a") && !all.has("b"));
    }
}
