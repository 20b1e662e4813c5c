//! What servers of the tests on the loopback device have in common: clients side by side, and the heads of requests.

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Answers each client of a port of its own, which is returned, as long as the set lives.
pub(crate) async fn serve<A>(answer: impl Fn(TcpStream) -> A + Send + 'static) -> (u16, JoinSet<()>)
where
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let mut clients = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            clients.spawn(answer(stream));
        }
    });
    (port, answering)
}

/// The head of a request; none: the client has gone.
pub(crate) async fn head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).expect("text"))
}
