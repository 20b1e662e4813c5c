//! What is asked of an agent, by method and path.
//!
//! Input: a method, and a path below `/v1/`. Output: the allocation and the call. Must never know parameters.

use http::Method;

use crate::fault::Fault;
use crate::paths::some_id;

/// What is asked about an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientEndpoint {
    /// Its id.
    pub allocation: String,
    /// What for.
    pub call: ClientCall,
}

/// What an agent is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCall {
    /// The files of a folder.
    List,
    /// A file's size and kind.
    Stat,
    /// A part of a file.
    ReadAt,
    /// A whole file.
    Cat,
    /// A file in frames, and what is added to it.
    Stream,
    /// A task's output.
    Logs,
    /// Tasks are started again.
    Restart,
    /// Tasks get a signal.
    Signal,
    /// The files of one that has ended go.
    Gc,
    /// A command runs in a task.
    Exec,
    /// What its tasks use.
    Stats,
    /// What its checks found.
    Checks,
}

const OF_FILES: &[(&str, ClientCall)] = &[
    ("ls", ClientCall::List),
    ("stat", ClientCall::Stat),
    ("readat", ClientCall::ReadAt),
    ("cat", ClientCall::Cat),
    ("stream", ClientCall::Stream),
    ("logs", ClientCall::Logs),
];

const OF_ALLOCATION: &[(&str, ClientCall)] = &[
    ("restart", ClientCall::Restart),
    ("signal", ClientCall::Signal),
    ("gc", ClientCall::Gc),
    ("exec", ClientCall::Exec),
    ("stats", ClientCall::Stats),
    ("checks", ClientCall::Checks),
];

impl ClientCall {
    /// The subresource of the Allocation on which `create` is the right to do this.
    pub const fn subresource(self) -> &'static str {
        match self {
            Self::List | Self::Stat | Self::ReadAt | Self::Cat | Self::Stream => "fs",
            Self::Logs => "log",
            Self::Restart => "restart",
            Self::Signal => "signal",
            Self::Gc => "gc",
            Self::Exec => "exec",
            Self::Stats => "stats",
            Self::Checks => "checks",
        }
    }

    /// Whether something is done, and not only looked at.
    pub const fn does_something(self) -> bool {
        match self {
            Self::Restart | Self::Signal | Self::Gc | Self::Exec => true,
            Self::List
            | Self::Stat
            | Self::ReadAt
            | Self::Cat
            | Self::Stream
            | Self::Logs
            | Self::Stats
            | Self::Checks => false,
        }
    }

    const fn methods(self) -> (&'static [Method], &'static str) {
        const READ: &[Method] = &[Method::GET];
        const WRITE: &[Method] = &[Method::PUT, Method::POST];
        const BOTH: &[Method] = &[Method::GET, Method::PUT, Method::POST];
        match self {
            Self::Restart | Self::Signal => (WRITE, "PUT or POST"),
            Self::Gc => (BOTH, "GET, PUT or POST"),
            Self::List
            | Self::Stat
            | Self::ReadAt
            | Self::Cat
            | Self::Stream
            | Self::Logs
            | Self::Exec
            | Self::Stats
            | Self::Checks => (READ, "GET"),
        }
    }
}

/// What is asked at a path; none: it is none of these.
pub(crate) fn of(path: &str) -> Option<ClientEndpoint> {
    let (table, call, id) = if let Some(rest) = path.strip_prefix("client/fs/") {
        let (call, id) = rest.split_once('/')?;
        (OF_FILES, call, id)
    } else {
        let (id, call) = path.strip_prefix("client/allocation/")?.split_once('/')?;
        (OF_ALLOCATION, call, id)
    };
    let (_, call) = table.iter().find(|(name, _)| *name == call)?;
    let allocation = some_id(id).filter(|id| !id.contains('/'))?;
    Some(ClientEndpoint { allocation, call: *call })
}

impl ClientEndpoint {
    /// Refuses a method by which it is not asked for.
    pub(crate) fn by(self, method: &Method, path: &str) -> Result<Self, Fault> {
        let (methods, names) = self.call.methods();
        if methods.contains(method) {
            return Ok(self);
        }
        Err(Fault::new(405, format!("/v1/{path} is asked for by {names}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_has_a_path_with_the_allocation_in_it() {
        for (name, call) in OF_FILES {
            let found = of(&format!("client/fs/{name}/u"));
            assert_eq!(found, Some(ClientEndpoint { allocation: "u".to_owned(), call: *call }));
        }
        for (name, call) in OF_ALLOCATION {
            let found = of(&format!("client/allocation/u/{name}"));
            assert_eq!(found, Some(ClientEndpoint { allocation: "u".to_owned(), call: *call }));
        }
        for path in ["client/fs/ls", "client/fs/ls/", "client/fs/rm/u", "client/fs/ls/u/v", "client/allocation/u/ls"] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn what_does_something_is_asked_for_by_put_or_post_and_all_else_by_get() {
        let code = |path: &str, method: &Method| {
            of(path).expect(path).by(method, path).map_or_else(|fault| fault.code, |_| 200)
        };
        for name in ["restart", "signal"] {
            let path = format!("client/allocation/u/{name}");
            let codes = [Method::GET, Method::PUT, Method::POST, Method::DELETE].map(|method| code(&path, &method));
            assert_eq!(codes, [405, 200, 200, 405], "{name}");
        }
        for path in ["client/fs/logs/u", "client/allocation/u/exec", "client/allocation/u/stats"] {
            assert_eq!((code(path, &Method::GET), code(path, &Method::PUT)), (200, 405), "{path}");
        }
        let path = "client/allocation/u/gc";
        assert_eq!((code(path, &Method::GET), code(path, &Method::PUT), code(path, &Method::DELETE)), (200, 200, 405));
    }
}
