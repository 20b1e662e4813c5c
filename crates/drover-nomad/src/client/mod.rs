//! Calls that the agent of an allocation's node answers: files, output, commands, samples.
//!
//! `endpoint` reads method and path, `order` parameters and body, and `placed` finds the allocation; what an agent says
//! becomes Nomad's words in `frames` (files and output), `exec` (a command's messages) and `facts` (whole answers).
//! `node_call` is what is asked about a node itself.
//! Must never know how an agent is reached, nor its own protocol.

mod endpoint;
mod exec;
mod facts;
mod frames;
mod node_call;
mod order;
mod placed;

pub(crate) use endpoint::of;
pub use endpoint::{ClientCall, ClientEndpoint};
pub use exec::{Closing, ExecInput, ExecOutput, MOST_REASON_BYTES, exec_inputs, shown_token};
pub use facts::{FileFacts, TaskUsage, Usage, check_results, file, files, usage};
pub use frames::{FileFrames, HEARTBEAT};
pub use node_call::{HostUsage, MetaChanges, NodeCall, host_stats, meta_changes, node_meta};
pub use order::{ClientOrder, LogOrder, Position};
pub use placed::{Placed, core_mhz, ended_on, is_down, placed};
