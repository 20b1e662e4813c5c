//! The agent's socket for people and tools on its node: logs, files, statistics, commands in tasks, restarts and
//! signals.
//!
//! `<stateDir>/agent.sock`, for root and the agent's own user. One request per connection; `drover_socket::protocol`
//! has the frames, `drover_socket::client` speaks them. Here the right to open the socket is the right; what comes
//! through a tunnel is answered by the same code, for the one allocation that a gateway has asked rights for
//! (`Caller`).
//!
//! Invariants: nothing outside an allocation's directory is ever opened for a request, nor anything of its `secrets`
//! and `private` folders; a client that goes away takes its command along; a slow client slows no other.
//!
//! Must never know: the API server, restart policies.

mod caller;
mod exec;
mod files;
mod folder_news;
#[cfg(feature = "fuzzing")]
mod fuzz;
mod logs;
mod server;
mod wire;

pub(crate) use caller::Caller;
pub(crate) use folder_news::FolderNews;
#[cfg(feature = "fuzzing")]
pub(crate) use fuzz::fuzz;
pub(crate) use server::Server;

#[cfg(test)]
mod tests;
