//! Nomad's HTTP API without its transport.
//!
//! Input: a method and a path ([`route`]), parameters ([`Query`]), what is known of the cluster ([`World`]), and where
//! a caller has which right ([`Scopes`]). Output: the rights that an answer needs ([`needed`]), its index ([`index`]),
//! and the answer itself ([`answer`]); of a change, its events ([`events()`]). Calls that agents answer become orders
//! ([`ClientOrder`]), and what agents say Nomad's frames. The same input gives the same bytes.
//!
//! Must never know HTTP's connections, the API server, a clock, or who asks.

mod acl;
mod answers;
mod blocking;
mod client;
mod endpoint;
mod events;
mod fault;
mod filter;
mod full_job;
mod listing;
mod paths;
mod query;
mod resource;
mod rights;
pub mod route;
mod search;
#[cfg(test)]
mod tests;
mod unbuilt;
mod wire;
mod world;
mod writes;

pub use acl::{AclEndpoint, TokenFacts, auth_methods, login_token, token};
pub use answers::{AgentFacts, Counted, Form, Reply, ServerFacts, View, answer, index, is_unseen};
pub use blocking::told;
pub use client::{
    ClientCall, ClientEndpoint, ClientOrder, Closing, ExecInput, ExecOutput, FileFacts, FileFrames, HEARTBEAT,
    HostUsage, LogOrder, MOST_REASON_BYTES, MetaChanges, NodeCall, Placed, Position, TaskUsage, Usage, check_results,
    core_mhz, ended_on, exec_inputs, file, files, host_stats, is_down, meta_changes, node_meta, placed, shown_token,
    usage,
};
pub use endpoint::Endpoint;
pub use events::{Buffer, Changed, Commit, Event, EventPieces, Happened, Held, Next, Picked, Topic, Wanted, events};
pub use fault::Fault;
pub use filter::Filter;
pub use query::{Asked, Blocking, LONGEST_WAIT, MOST_FILTER_BYTES, Query};
pub use resource::{Reach, Resource, Right, Scope, Scopes, Verb};
pub use rights::{is_of_job, kind, needed};
pub use route::Route;
pub use search::{Context, Manner, SearchRequest};
pub use world::{Kind, Listed, Name, Table, Turn, World};
pub use writes::{
    Change, Demand, Outcome, PlanOrder, Target, VersionTag, Way, WholeObject, WriteEndpoint, WriteOrder, WriteView,
    Written, hearing, order, plan_order, rights_of_job,
};
