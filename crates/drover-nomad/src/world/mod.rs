//! What is known of a cluster: every object of the kinds that the API shows, found by name, by uid and by what it
//! belongs to. A clone costs nothing, so that a reader keeps the state that it began with.

mod known;
mod table;

pub use known::{Kind, World};
pub(crate) use known::{job_id, namespace, uid, volume_id};
pub(crate) use table::version;
pub use table::{Listed, Name, Table, Turn};
