//! The CustomResourceDefinitions: what the derives make of the types, and what they cannot say.
//!
//! Added here: bounds on every string, list and map that has none of its own, required keys of list maps, the few
//! defaults that depend on nothing, the default of `status` (so that a waiter that looks before the controller did sees
//! "in progress"), and the CEL rules of [`rules`].

mod definitions;
mod free_form;
pub mod rules;

pub use definitions::crds;
pub(crate) use free_form::free_form_object;
