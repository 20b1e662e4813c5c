//! Probes by gRPC's health protocol: one question over a connection of its own.

use std::io;

use drover_core::service::{CheckAnswer, GrpcHealth, GrpcProbe, grpc_answer};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::connect::connect;
use super::tls::{Spoken, Tls};

/// What a check calls itself.
const USER_AGENT: &str = "drover-check";
/// The longest answer that is read, in bytes: a status takes two.
const MAX_ANSWER_BYTES: usize = 1024;

/// Asks whether a service serves.
///
/// # Errors
/// Why there was no answer.
pub(super) async fn ask(tls: &Tls, probe: &GrpcProbe) -> Result<CheckAnswer, String> {
    let stream = connect(&probe.ip, probe.port).await?;
    if probe.is_tls {
        let stream = tls.handshake(stream, &probe.ip, probe.tls_skip_verify, Spoken::Http2).await?;
        exchange(probe, stream).await
    } else {
        exchange(probe, stream).await
    }
}

async fn exchange<S>(probe: &GrpcProbe, stream: S) -> Result<CheckAnswer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let ip = if probe.ip.contains(':') { format!("[{}]", probe.ip) } else { probe.ip.clone() };
    let server: Uri = format!("{}://{ip}:{}", if probe.is_tls { "https" } else { "http" }, probe.port)
        .parse()
        .map_err(|error| format!("{ip}: {error}"))?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let once = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        std::future::ready(once)
    });
    let no_grpc = |error: &dyn std::error::Error| format!("no answer in gRPC: {error}");
    let endpoint = Endpoint::from(server).user_agent(USER_AGENT).map_err(|error| no_grpc(&error))?;
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| no_grpc(&error))?;
    let mut client = HealthClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
    let service = probe.service.clone();
    match client.check(HealthCheckRequest { service }).await {
        Ok(answer) => Ok(grpc_answer(&probe.service, health(answer.get_ref().status()))),
        Err(status) if status.code() == Code::NotFound => Ok(grpc_answer(&probe.service, GrpcHealth::Unknown)),
        Err(status) if status.code() == Code::Unimplemented => {
            Err("the server does not speak gRPC's health protocol, grpc.health.v1".to_owned())
        }
        Err(status) => Err(format!("no answer in gRPC: {}: {}", status.code(), status.message())),
    }
}

fn health(status: ServingStatus) -> GrpcHealth {
    match status {
        ServingStatus::Serving => GrpcHealth::Serving,
        ServingStatus::NotServing | ServingStatus::Unknown => GrpcHealth::NotServing,
        ServingStatus::ServiceUnknown => GrpcHealth::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_core::health::CheckState;
    use rustls::ServerConfig;
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;
    use tokio_rustls::TlsAcceptor;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;
    use tonic_health::ServingStatus as Reported;

    use super::*;

    fn probe(port: u16, service: &str) -> GrpcProbe {
        GrpcProbe {
            ip: "127.0.0.1".to_owned(),
            port,
            service: service.to_owned(),
            is_tls: false,
            tls_skip_verify: false,
        }
    }

    /// A server that serves `up`, and not `down`; its end is that of the set.
    async fn server(tasks: &mut JoinSet<()>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (reporter, service) = tonic_health::server::health_reporter();
        reporter.set_service_status("up", Reported::Serving).await;
        reporter.set_service_status("down", Reported::NotServing).await;
        let serving = Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener));
        tasks.spawn(async move { serving.await.expect("it serves") });
        port
    }

    /// Takes TLS from what comes, and hands the rest to this port.
    async fn tls_before(port: u16, protocols: Vec<Vec<u8>>, tasks: &mut JoinSet<()>) -> u16 {
        let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a certificate");
        config.alpn_protocols = protocols;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut behind = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
                drop(tokio::io::copy_bidirectional(&mut stream, &mut behind).await);
            }
        });
        own
    }

    #[tokio::test]
    async fn a_server_is_asked_for_itself_and_for_its_services() {
        let mut tasks = JoinSet::new();
        let port = server(&mut tasks).await;
        for (service, state, says) in [
            ("", CheckState::Success, "grpc ok"),
            ("up", CheckState::Success, "grpc ok"),
            ("down", CheckState::Failure, "service down says that it is not serving"),
            ("other", CheckState::Failure, "the server does not know service other"),
        ] {
            let answer = ask(&Tls::default(), &probe(port, service)).await.expect("an answer");
            assert_eq!(answer.state, state, "{service}");
            assert!(answer.output.contains(says), "{}", answer.output);
        }
    }

    #[tokio::test]
    async fn a_server_behind_tls_is_trusted_where_the_check_says_so() {
        let mut tasks = JoinSet::new();
        let port = server(&mut tasks).await;
        // It insists on what gRPC needs.
        let secure = tls_before(port, vec![b"h2".to_vec()], &mut tasks).await;
        let skips = GrpcProbe { is_tls: true, tls_skip_verify: true, ..probe(secure, "up") };
        assert_eq!(ask(&Tls::default(), &skips).await.map(|answer| answer.output), Ok("grpc ok".to_owned()));
        let plain = GrpcProbe { is_tls: true, tls_skip_verify: true, ..probe(port, "up") };
        let refused = ask(&Tls::default(), &plain).await.expect_err("it speaks no TLS");
        assert!(refused.contains("no TLS with 127.0.0.1"), "{refused}");
        let other = tls_before(port, vec![b"http/1.1".to_vec()], &mut tasks).await;
        let refused = ask(&Tls::default(), &GrpcProbe { port: other, ..skips }).await.expect_err("no HTTP/2");
        assert!(refused.contains("no TLS with 127.0.0.1"), "{refused}");
    }

    #[tokio::test]
    async fn what_is_no_grpc_is_a_failure_with_its_reason() {
        let mut tasks = JoinSet::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"SSH-2.0-x\r\n").await.expect("it reads");
        });
        let refused = ask(&Tls::default(), &probe(port, "")).await.expect_err("no gRPC");
        assert!(refused.contains("no answer in gRPC"), "{refused}");

        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let serving = Server::builder()
            .add_routes(tonic::service::Routes::default())
            .serve_with_incoming(TcpIncoming::from(listener));
        tasks.spawn(async move { serving.await.expect("it serves") });
        let refused = ask(&Tls::default(), &probe(port, "")).await.expect_err("no health");
        assert!(refused.contains("grpc.health.v1"), "{refused}");
    }
}
