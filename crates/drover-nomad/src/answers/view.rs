//! What an answer is made from.

use crate::answers::agent::AgentFacts;
use crate::query::Query;
use crate::resource::Scopes;
use crate::world::World;

/// What an answer is made from.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// What is known of the cluster.
    pub world: &'a World,
    /// What is asked for.
    pub query: &'a Query,
    /// What the caller may see.
    pub scopes: &'a Scopes,
    /// What answers.
    pub facts: &'a AgentFacts,
}
