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
        let Self::Gateway { namespace, uid } = self else { return Ok(()) };
        let allocation = request.allocation().ok_or(CallerError::OnlyLocal)?;
        let (known, listed) = directory.find(uid).ok_or(CallerError::NotHere)?;
        if allocation == uid && known == *uid && listed.key.namespace.as_ref() == Some(namespace) {
            return Ok(());
        }
        Err(CallerError::NotHere)
    }
}
