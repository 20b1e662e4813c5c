//! The Task API: a socket in the directory for secrets of each task, through which it reaches the gateway's API.
//!
//! The agent passes requests on and adds no right to them: what a caller may follows from the token that it shows,
//! which the gateway judges. Nothing of the node is reached by this way, and nothing of the agent.
//!
//! `place` makes the socket where a task may change everything, `callers` looks whether a token is shown, `pace` says
//! how much a task may ask, `line` is the connection to a replica of the gateway, `relay` answers one connection of a
//! task, `apis` keeps all this as long as a task has it.

mod apis;
mod callers;
mod line;
mod pace;
mod place;
mod refusals;
mod relay;

pub(crate) use apis::{ApiPlace, GatewayApis, NoTaskApis, ServedApi, TaskApis};
