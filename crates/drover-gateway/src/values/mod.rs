//! Values of Secrets and `ConfigMaps`, and what is known of services, for the nodes whose allocations use them.
//!
//! `session` talks to one agent: what it wants. `permits` asks for each request, and again at each
//! change, whether an allocation that lives on the agent's node lists the object. `objects` watches each object that is
//! wanted once, however many want it, by the rights that the chart's `gateway.secretNamespaces` gives. `follower`
//! answers one request; where a template is `rolling`, `rollouts` says whose turn it is, by what the agents report of
//! their allocations: nothing is kept here that another replica, or the next life of this one, would not know.
//! `identity_tokens` makes the tokens of tasks' identities, `services` tells what services lead to. Must never write a
//! value anywhere: not to an object, a log or a metric.

mod follower;
mod identity_tokens;
mod objects;
mod one_object;
mod permits;
mod read_object;
mod rollouts;
mod services;
mod session;

pub(crate) use session::Values;
