//! Opens connections below TLS.

use hyper_util::client::legacy::connect::HttpConnector;

/// What fails where a configuration cannot be used.
pub(crate) const PREPARING: &str = "preparing the connection to the API server";

/// Opens them so that what is written leaves at once.
pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_written_leaves_at_once() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let connection =
            tcp().oneshot(format!("https://{address}").parse().expect("a URI")).await.expect("a connection");
        assert!(connection.inner().nodelay().expect("an option"));
    }
}
