//! How much one user, and all together, may have open.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_daemon::monitor::GatewayMetrics;

use crate::answers::Refusal;

/// What is open: streams, or commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opening {
    /// A call that carries data.
    Stream,
    /// A command in a task.
    Exec,
    /// A subscriber of Nomad's event stream.
    Events,
    /// A connection that has become a `WebSocket` before it is known for whom: it counts for all alike.
    Socket,
}

impl Opening {
    /// Of one user.
    const fn most_of_user(self) -> usize {
        match self {
            Self::Stream | Self::Events => 128,
            Self::Exec => 16,
            Self::Socket => self.most(),
        }
    }

    /// Of this replica.
    const fn most(self) -> usize {
        match self {
            Self::Stream => 2048,
            Self::Exec => 256,
            Self::Events | Self::Socket => 512,
        }
    }

    /// Its label in metrics.
    const fn label(self) -> &'static str {
        match self {
            Self::Stream => "call",
            Self::Exec => "exec",
            Self::Events => "events",
            Self::Socket => "socket",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Stream => "calls",
            Self::Exec | Self::Socket => "commands",
            Self::Events => "event streams",
        }
    }
}

/// What is open, by kind and user; and by kind.
type Counts = (BTreeMap<(Opening, String), usize>, BTreeMap<Opening, usize>);

/// What is open; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    counts: Arc<Mutex<Counts>>,
    metrics: GatewayMetrics,
}

/// One that is open; it is closed with this value.
#[derive(Debug)]
pub(crate) struct Open {
    limits: Limits,
    key: (Opening, String),
}

impl Limits {
    /// Nothing is open yet; what is, is counted here.
    pub(crate) fn new(metrics: GatewayMetrics) -> Self {
        Self { counts: Arc::default(), metrics }
    }

    /// Opens one more for a user.
    ///
    /// # Errors
    /// 429, when the user or the replica has as many as may be.
    pub(crate) fn open(&self, kind: Opening, user: &str) -> Result<Open, Refusal> {
        let mut counts = self.lock();
        let (of_users, of_kinds) = &mut *counts;
        let key = (kind, user.to_owned());
        let of_user = of_users.get(&key).copied().unwrap_or(0);
        let of_all = of_kinds.get(&kind).copied().unwrap_or(0);
        if of_user >= kind.most_of_user() || of_all >= kind.most() {
            let message = format!("too many {} are open: end one, or try again later", kind.noun());
            return Err(Refusal::new(429, message));
        }
        of_users.insert(key.clone(), of_user + 1);
        of_kinds.insert(kind, of_all + 1);
        drop(counts);
        self.metrics.open(kind.label(), 1);
        Ok(Open { limits: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut counts = self.limits.lock();
        let (of_users, of_kinds) = &mut *counts;
        match of_users.get_mut(&self.key) {
            Some(n) if *n > 1 => *n -= 1,
            Some(_) | None => drop(of_users.remove(&self.key)),
        }
        if let Some(n) = of_kinds.get_mut(&self.key.0) {
            *n -= 1;
        }
        drop(counts);
        self.limits.metrics.open(self.key.0.label(), -1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_which_it_is_not_known_whose_they_are_count_for_all_alike() {
        let limits = Limits::default();
        let open: Vec<Open> = (0..512).map(|_| limits.open(Opening::Socket, "").expect("room")).collect();
        assert_eq!(limits.open(Opening::Socket, "").map(drop).map_err(|it| it.code), Err(429));
        assert!(limits.open(Opening::Exec, "ann").is_ok(), "they are no commands");
        drop(open);
        assert!(limits.open(Opening::Socket, "").is_ok());
    }

    #[test]
    fn a_user_has_so_many_and_what_is_closed_makes_room() {
        let limits = Limits::default();
        let mut open: Vec<Open> = (0..16).map(|_| limits.open(Opening::Exec, "ann").expect("room")).collect();
        assert_eq!(limits.open(Opening::Exec, "ann").map(drop).map_err(|it| it.code), Err(429));
        assert!(limits.open(Opening::Exec, "bob").is_ok() && limits.open(Opening::Stream, "ann").is_ok());
        open.pop();
        assert!(limits.open(Opening::Exec, "ann").is_ok());
        open.clear();
        assert!(limits.lock().0.is_empty(), "nothing is kept of those who have nothing open");
    }
}
