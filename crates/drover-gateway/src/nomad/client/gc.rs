//! All that has ended on a node is given up: each of its allocations as by a call of its own.

use drover_nomad::{Placed, World, ended_on};
use drover_socket::protocol::{Answer as Said, Request};
use futures::{StreamExt as _, stream};

use crate::answers::Refusal;
use crate::nomad::service::Nomad;
use crate::tunnels::Place;

/// Allocations that are given up at a time.
const AT_A_TIME: usize = 8;

impl Nomad {
    /// Has the files of each allocation deleted that has ended on a node. Each is asked for, also where one fails.
    ///
    /// # Errors
    /// 404 where there is no way to the node, what its agent says of the first one whose files stay, 504 when it does
    /// not answer.
    pub(super) async fn collect(&self, world: &World, node: &str) -> Result<(), Refusal> {
        let given_up = |Placed { namespace, uid, node, .. }| async move {
            let place = Place { node, namespace, uid: uid.clone() };
            match self.told(world, &place, &Request::Gc { allocation: uid }).await? {
                // It has been collected before, or goes on there, whatever the cluster takes for its end.
                Said::Error { code: 400..500, .. } => Ok(()),
                Said::Error { code, message } => {
                    Err(Refusal::new(code, format!("allocation {}: {message}", place.uid)))
                }
                _ => Ok(()),
            }
        };
        let answers: Vec<Result<(), Refusal>> =
            stream::iter(ended_on(world, node)).map(given_up).buffered(AT_A_TIME).collect().await;
        answers.into_iter().collect()
    }
}
