//! The one way in which shells reach the API server, and what they read there.
//!
//! [`Store`] is the trait: typed calls with preconditions, and watches. [`KubeStore`] is its side over HTTP; [`memory`]
//! holds the objects of an in-memory store with the API server's semantics, for simulations and tests. [`convert`]
//! turns objects into the scheduler's model, and [`planned`] a whole cluster of them into what one evaluation sees.
//! Must never know what a controller or an agent decides.

pub mod convert;
pub mod events;
mod kube_store;
mod lean;
pub mod memory;
pub mod planned;
mod store;

pub use kube_store::KubeStore;
pub use store::{
    Change, ErrorClass, Key, Object, Ownership, Part, Precondition, Selection, Store, StoreError, found, status_body,
};
