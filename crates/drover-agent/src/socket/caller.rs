//! Who asks, and with that what may be asked.
//!
//! Input: a request and who runs here. Output: whether it may be looked at. Must never know how a caller was proved.

use crate::allocations::directory::Directory;
use drover_socket::protocol::Request;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// One that may open the socket: everything.
    Node,
    /// A gateway, which has asked whether a user may do this to one allocation: that one and nothing else. Both parts
    /// must be right, so that another allocation under the same name is never taken for it.
    Gateway {
        /// The allocation's namespace.
        namespace: String,
        /// Its uid, whole.
        uid: String,
    },
    /// A gateway, which has asked whether a user may see or change the node: what it uses, and its metadata.
    GatewayOfNode,
}

/// Why a caller's request is not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallerError {
    /// It is about the node, not about an allocation.
    #[error("this is answered by the agent's socket on its node only")]
    OnlyLocal,
    /// No such allocation, or one of another namespace: from outside these are the same.
    #[error("the allocation is not on this node")]
    NotHere,
}

impl Caller {
    /// Refuses what this caller may not ask.
    ///
    /// # Errors
    /// With the reason.
    pub(crate) fn check(&self, request: &Request, directory: &Directory) -> Result<(), CallerError> {
        let (namespace, uid) = match self {
            Self::Node => return Ok(()),
            Self::Gateway { namespace, uid } => (namespace, uid),
            Self::GatewayOfNode => {
                let is_open = matches!(request, Request::HostStats | Request::Meta | Request::SetMeta { .. });
                return if is_open { Ok(()) } else { Err(CallerError::OnlyLocal) };
            }
        };
        let allocation = request.allocation().ok_or(CallerError::OnlyLocal)?;
        let (known, listed) = directory.find(uid).ok_or(CallerError::NotHere)?;
        if allocation == uid && known == *uid && listed.key.namespace.as_ref() == Some(namespace) {
            return Ok(());
        }
        Err(CallerError::NotHere)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use drover_socket::protocol::VolumeChange;

    use super::*;

    /// A gateway that asks about the node gets what the node uses and its metadata, and nothing of any allocation.
    #[test]
    fn must_survive_a_gateway_that_says_node_and_means_an_allocation() {
        let directory = Directory::default();
        let check = |request: &Request| Caller::GatewayOfNode.check(request, &directory);
        for open in [Request::HostStats, Request::Meta, Request::SetMeta { changes: BTreeMap::new() }] {
            assert_eq!(check(&open), Ok(()), "{open:?}");
        }
        let allocation = String::new;
        for closed in [
            Request::Allocations,
            Request::Gc { allocation: allocation() },
            Request::Stop { allocation: allocation() },
            Request::List { allocation: allocation(), path: "/".to_owned() },
            Request::Exec {
                allocation: allocation(),
                task: String::new(),
                command: Vec::new(),
                tty: false,
                size: None,
            },
            Request::Volume(VolumeChange::Delete { name: "data".to_owned() }),
        ] {
            assert_eq!(check(&closed), Err(CallerError::OnlyLocal), "{closed:?}");
        }
        let of_one = Caller::Gateway { namespace: "shop".to_owned(), uid: "u".to_owned() };
        for node in [Request::HostStats, Request::Meta, Request::SetMeta { changes: BTreeMap::new() }] {
            assert_eq!(of_one.check(&node, &directory), Err(CallerError::OnlyLocal), "{node:?}");
        }
    }
}
