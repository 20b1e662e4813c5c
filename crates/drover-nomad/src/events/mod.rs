//! The event stream: what has changed, for those who follow it (`spec/api.md` 6).
//!
//! Input: each object as it was and as it is ([`Happened`]). Output: events ([`events`]), put in the order of their
//! versions, and together where one write of Nomad's would have made them ([`Held`]), kept for a while as commits with
//! strictly increasing indexes ([`Buffer`]), which of them a subscriber wants ([`Wanted`]), and their lines
//! ([`EventPieces`]). Must never know who subscribes, or how a line travels.

mod buffer;
mod cause;
mod event;
mod happened;
mod held;
mod made;
mod piece;
mod together;
mod topic;
mod wanted;

pub use buffer::{Buffer, Commit, Next};
pub use event::Event;
pub use happened::Happened;
pub use held::Held;
pub use made::{Changed, events};
pub use piece::{EventPieces, Picked};
pub use topic::Topic;
pub use wanted::Wanted;
