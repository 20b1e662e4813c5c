//! The aggregated API `subresources.drover.dev/v1alpha1`: operations on allocations, for people with a kubeconfig.
//!
//! `entrance` takes a request from its proof (`identity`, `front_proxy`) over its path (`route`) and rights to the
//! agent, `streams` and `exec` carry what comes back. Discovery is answered first and by nothing but constants: while
//! an `APIService` is unavailable no namespace of the cluster can be deleted. Must never know how an agent does what it
//! is asked.

mod allocations;
mod asker;
mod audit;
mod discovery;
mod entrance;
mod exec;
mod front_proxy;
mod identity;
mod places;
mod query;
mod route;
mod streams;
mod trust;
mod workload;

pub(crate) use entrance::{Entrance, EntranceParts};
pub(crate) use front_proxy::{FRONT_PROXY, follow};
pub(crate) use trust::Trust;
