//! Publish contexts of CSI drivers may hold credentials, and everyone who may list volumes can read a claim. So they
//! are sealed to the node that mounts: with HPKE (RFC 9180, base mode) to a key that the node's agent makes, keeps in
//! its state folder and publishes in its fingerprint. The controller and readers see and pass on what is sealed.
//!
//! What is sealed is bound to one claim: elsewhere it does not open.

mod seal;

pub use seal::{ClaimId, NodeKey, SEALED, SealError, seal};
