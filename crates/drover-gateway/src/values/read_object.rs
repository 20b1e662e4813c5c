//! What is known of an object that is wanted.

use std::sync::Arc;

use drover_socket::values::ValueAnswer;
use tokio::sync::watch;

/// An object as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadObject {
    pub(super) answer: ValueAnswer,
    /// Of values: the object's `metadata.resourceVersion`. All replicas of the gateway know it by that, and it tells
    /// nothing of a value.
    pub(super) version: String,
}

/// What is known of an object; none: it was not read yet.
pub(super) type ObjectState = Option<Arc<ReadObject>>;

/// Makes something known, unless it is.
pub(super) fn know(tell: &watch::Sender<ObjectState>, next: ReadObject) {
    tell.send_if_modified(|known| {
        let is_news = known.as_deref() != Some(&next);
        if is_news {
            *known = Some(Arc::new(next));
        }
        is_news
    });
}
