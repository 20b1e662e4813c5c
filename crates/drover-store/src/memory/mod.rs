//! An in-memory store that behaves as the Kubernetes API server does, for simulations and tests.
//!
//! Input: objects as JSON and the time of each call. Output: answers and refusals with the API server's reasons, and
//! watches. resourceVersions come from one counter; updates check preconditions; deletes respect finalizers and owners;
//! status is a part of its own; server-side apply keeps who owns which field; defaults, bounds and unknown fields are
//! those of the generated `CustomResourceDefinitions`.
//!
//! CEL rules of the definitions are not run: what they refuse in a Job is refused by `drover-core`'s validation too,
//! and the integration tests run them in the real API server. Not built either, because nothing of drover uses them:
//! `generateName`, strategic merge and JSON patches, label selectors, foreground and orphan deletion. A script of calls
//! in the integration tests goes to this store and to a real API server, and each answer is compared.
//!
//! Must never know: a runtime, a clock, a fault, what any kind means.

mod change;
mod fields;
mod garbage;
mod kind;
mod object;
mod schema;
mod store;
mod watch;

pub use change::StoredChange;
pub use kind::{Kind, kind};
pub use object::Stored;
pub use schema::{Unknown, closest};
pub use store::{Caller, MemoryStore, Page, Refusal, Target, Write};
pub use watch::{FieldSelection, Watch, WatchEvent};
