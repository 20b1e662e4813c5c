//! Calls that agents answer, for clients of Nomad: files, output, samples, restarts, signals, commands.
//!
//! `on_node` answers a request: `begin` leads it over its rights and limits to the agent, `whole` and `carried` answer
//! with what that says, at once or as it comes. `exec` carries a command's messages. `of_node` is about a node itself,
//! and `gc` about all that has ended there. Nomad's words are `drover-nomad`'s. Must never know how an agent does what
//! it is asked.

mod begin;
mod carried;
mod exec;
mod gc;
mod of_node;
mod on_node;
mod whole;
