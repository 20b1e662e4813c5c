//! Connections of probes: to addresses only.

use std::net::{IpAddr, SocketAddr};

use tokio::net::TcpStream;

/// Opens a connection, or says why there is none.
pub(super) async fn connect(ip: &str, port: u16) -> Result<TcpStream, String> {
    let address: IpAddr = ip.parse().map_err(|_| format!("{ip} is no address"))?;
    let address = SocketAddr::new(address, port);
    TcpStream::connect(address).await.map_err(|error| format!("no connection to {address}: {error}"))
}
