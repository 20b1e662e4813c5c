//! Carries one connection.

use std::net::SocketAddrV4;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How long a connection into the allocation's network may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of each direction that are on their way.
const BUFFER_BYTES: usize = 8 * 1024;
/// After this much silence a side that has vanished without a word is looked for.
const KEEPALIVE: Duration = Duration::from_mins(1);

/// Carries both directions of a connection to their ends, or until it is broken off. Where the allocation does not
/// answer, or one side breaks the connection, the other sees it broken too.
pub(crate) async fn carry(mut client: TcpStream, to: SocketAddrV4, broken_off: CancellationToken) {
    let carried = async {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await;
        let mut inside = connected.map_err(std::io::Error::from).flatten()?;
        for side in [&client, &inside] {
            side.set_nodelay(true)?;
            sockopt::set_socket_keepalive(side, true)?;
            sockopt::set_tcp_keepidle(side, KEEPALIVE)?;
        }
        let copied =
            tokio::io::copy_bidirectional_with_sizes(&mut client, &mut inside, BUFFER_BYTES, BUFFER_BYTES).await;
        if copied.is_err() {
            break_off(&inside);
        }
        copied
    };
    let broken = tokio::select! {
        biased;
        () = broken_off.cancelled() => true,
        carried = carried => match carried {
            Ok(_) => false,
            Err(error) => {
                tracing::debug!(%to, %error, "a connection was not carried to its end");
                true
            }
        },
    };
    if broken {
        break_off(&client);
    }
}

/// The other side sees a reset, not an orderly end of what may be half of a message.
fn break_off(side: &TcpStream) {
    if let Err(error) = side.set_zero_linger() {
        tracing::debug!(%error, "a broken connection ends as if it were whole");
    }
}
