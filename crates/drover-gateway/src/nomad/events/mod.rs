//! The event stream: `feed` puts what the watches bring into the one buffer, `stream` takes from it for a subscriber,
//! and `sight` asks what that one may see, again and again. Must never know what an event says.

mod feed;
mod sight;
mod stream;

pub(crate) use feed::Feed;
pub(super) use feed::Intake;
