//! The trial: a bridge is offered only after a packet has gone all the way. Whether the kernel takes every message does
//! not tell that; a firewall of the node may still drop what is forwarded.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::attachment::{Attachment, PortMapping};
use crate::bridge::Bridge;
use crate::network_error::NetworkError;

/// The id of the network that it is made with.
const ID: &str = "trial";
/// A port of the bridge's own address, which no task is given.
const PORT: u16 = 1;
/// How long the packet may take.
const PATIENCE: Duration = Duration::from_secs(2);

impl Bridge {
    /// Prepares the bridge, makes a network, and sends bytes out of it to a port of the node that leads back into it:
    /// over its device, the bridge, the map of ports, the node's forwarding, and back under another source. Afterwards
    /// the network is gone.
    ///
    /// # Errors
    /// Why it does not work here, with the remedy where one is known.
    pub fn trial(&self) -> Result<(), NetworkError> {
        self.prepare()?;
        let port = PortMapping { host_ip: self.subnet().gateway(), host_port: PORT, port: PORT };
        let attachment = Attachment { address: self.subnet().trial(), ports: vec![port] };
        // What an earlier trial has left.
        self.detach(ID, &attachment)?;
        let gateway = self.subnet().gateway();
        let tried =
            self.attach(ID, &attachment).and_then(|_| self.namespaces().within(ID, move || there_and_back(gateway)));
        tried.and(self.detach(ID, &attachment))
    }
}

fn there_and_back(gateway: Ipv4Addr) -> Result<(), NetworkError> {
    let go = || -> std::io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
        let mut out = TcpStream::connect_timeout(&SocketAddr::from((gateway, PORT)), PATIENCE)?;
        let (mut back, _) = listener.accept()?;
        back.set_read_timeout(Some(PATIENCE))?;
        out.write_all(b"there")?;
        let mut bytes = [0; 5];
        back.read_exact(&mut bytes)
    };
    go().map_err(|error| {
        NetworkError(format!(
            "a packet from a trial network to a mapped port of the node did not come back: {error}; a firewall of the \
             node may drop what is forwarded: allow forwarding from and to the bridge"
        ))
    })
}
