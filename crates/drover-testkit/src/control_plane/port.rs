//! A free loopback port that stays ours.
//!
//! A server that is taken away for a while must find its port free when it comes back. The kernel hands ports from its
//! ephemeral range to anyone who connects, even to a client that connects to that very port, so ports are taken from
//! below that range (and below drover's own 20000-29999), and claimed among ourselves by a name that vanishes with the
//! process.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context as _, Result};

const FIRST: u16 = 14_000;
const COUNT: u16 = 2_000;

/// A port on 127.0.0.1 that no other caller gets here, as long as this value lives.
#[derive(Debug)]
pub struct ReservedPort {
    pub(crate) number: u16,
    /// Held, never accepted from: an abstract name that two processes cannot have.
    _claim: UnixListener,
}

impl ReservedPort {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Finds one.
    ///
    /// # Errors
    /// When all are taken.
    pub fn find() -> Result<Self> {
        let start = u16::try_from(std::process::id() % u32::from(COUNT)).unwrap_or(0);
        let candidates = (0..COUNT).map(|offset| FIRST + (start + offset) % COUNT);
        candidates
            .filter_map(Self::claim)
            .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)).is_ok())
            .with_context(|| format!("no port of {FIRST}-{} on 127.0.0.1 is free", FIRST + COUNT - 1))
    }

    fn claim(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("drover-port-{number}")).ok()?;
        let claim = UnixListener::bind_addr(&name).ok()?;
        Some(Self { number, _claim: claim })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_get_the_same_port() {
        let (first, second) = (ReservedPort::find().unwrap(), ReservedPort::find().unwrap());
        assert_ne!(first.number, second.number);
        let number = first.number;
        assert!(ReservedPort::claim(number).is_none());
        drop(first);
        assert!(ReservedPort::claim(number).is_some());
    }
}
