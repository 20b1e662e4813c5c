//! HTTP probes: one request over a connection of its own, redirects as far as they stay on the allocation's ports, and
//! of a body as much as a check keeps.

use drover_core::service::{CheckAnswer, HttpProbe, HttpTarget, MAX_BODY_BYTES, http_answer, redirect};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connect::connect;
use super::tls::{Spoken, Tls};

/// Redirects that are followed at most.
const MAX_REDIRECTS: usize = 10;
/// What a check calls itself.
const USER_AGENT: &str = "drover-check";

/// What came back.
enum Answer {
    Final(CheckAnswer),
    /// It is elsewhere; whether that is asked by GET whatever the method was.
    Elsewhere(String, bool),
}

/// Asks, and follows redirects.
///
/// # Errors
/// Why there was no answer.
pub(super) async fn ask(tls: &Tls, probe: &HttpProbe) -> Result<CheckAnswer, String> {
    let (mut target, mut method, mut body) = (probe.target.clone(), probe.method.as_str(), probe.body.as_str());
    for _ in 0..=MAX_REDIRECTS {
        let request = request(probe, &target, method, body)?;
        match exchange(tls, probe, &target, request).await? {
            Answer::Final(answer) => return Ok(answer),
            Answer::Elsewhere(location, by_get) => {
                target = redirect(&target, &location, &probe.host, &probe.held).map_err(|error| error.to_string())?;
                if by_get && method != "HEAD" {
                    (method, body) = ("GET", "");
                }
            }
        }
    }
    Err(format!("redirected more than {MAX_REDIRECTS} times"))
}

fn request(probe: &HttpProbe, target: &HttpTarget, method: &str, body: &str) -> Result<Request<Full<Bytes>>, String> {
    let uri: Uri = target.path.parse().map_err(|error| format!("path {:?}: {error}", target.path))?;
    let host = if probe.host.is_empty() {
        let ip = if target.ip.contains(':') { format!("[{}]", target.ip) } else { target.ip.clone() };
        format!("{ip}:{}", target.port)
    } else {
        probe.host.clone()
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|error| format!("method {method:?}: {error}"))?;
    let mut request = Request::builder().method(method).uri(uri).header(header::HOST, host);
    for (name, value) in &probe.headers {
        request = request.header(name, value);
    }
    let named = request.headers_ref().is_some_and(|headers| headers.contains_key(header::USER_AGENT));
    if !named {
        request = request.header(header::USER_AGENT, USER_AGENT);
    }
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    let mut request = request.body(body).map_err(|error| format!("its header is none: {error}"))?;
    request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

async fn exchange(
    tls: &Tls,
    probe: &HttpProbe,
    target: &HttpTarget,
    request: Request<Full<Bytes>>,
) -> Result<Answer, String> {
    let stream = connect(&target.ip, target.port).await?;
    if target.is_tls {
        let stream = tls.handshake(stream, &target.ip, probe.tls_skip_verify, Spoken::Http1).await?;
        send(stream, request).await
    } else {
        send(stream, request).await
    }
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_http = |error: hyper::Error| format!("no answer in HTTP: {:#}", anyhow::Error::from(error));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    let work = async {
        let response = sender.send_request(request).await.map_err(no_http)?;
        let status = response.status();
        let location =
            response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if let Some(location) = location.filter(|_| is_redirect(status)) {
            return Ok(Answer::Elsewhere(location, by_get(status)));
        }
        let body = begin_of(response.into_body()).await.map_err(no_http)?;
        Ok(Answer::Final(http_answer(status.as_u16(), &body)))
    };
    tokio::pin!(work, connection);
    tokio::select! {
        biased;
        answer = &mut work => answer,
        // What was received before the end is still read; an error of the connection is the request's too.
        _ = &mut connection => work.await,
    }
}

/// As much of a body as a check keeps.
async fn begin_of(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut begin = Vec::new();
    while begin.len() < MAX_BODY_BYTES
        && let Some(frame) = body.frame().await
    {
        if let Ok(data) = frame?.into_data() {
            let room = MAX_BODY_BYTES - begin.len();
            begin.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    Ok(begin)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn by_get(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301..=303)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_core::health::CheckState;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    /// Answers so many connections, each with the next of these, and returns what was asked.
    async fn server(answers: Vec<String>) -> (u16, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        #[expect(clippy::disallowed_methods, reason = "the test joins it")]
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a byte"));
                }
                let answer = answer.replace("PORT", &port.to_string());
                stream.write_all(answer.as_bytes()).await.expect("it reads");
                asked.push(String::from_utf8(head).expect("text"));
            }
            asked
        });
        (port, asked)
    }

    fn answer(status: &str, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
    }

    fn probe(port: u16, path: &str) -> HttpProbe {
        HttpProbe {
            target: HttpTarget { ip: "127.0.0.1".to_owned(), port, is_tls: false, path: path.to_owned() },
            method: "GET".to_owned(),
            headers: Vec::new(),
            host: String::new(),
            body: String::new(),
            tls_skip_verify: false,
            held: vec![port],
        }
    }

    #[tokio::test]
    async fn a_137_answers_are_read_and_cut() {
        for (status, body, state, output) in [
            ("200 OK", "whatever", CheckState::Success, "http ok".to_owned()),
            ("201 Created", "made", CheckState::Success, "made".to_owned()),
            ("500 Oh", &"x".repeat(10 * 1024), CheckState::Failure, "x".repeat(3072)),
        ] {
            let (port, asked) = server(vec![answer(status, "", body)]).await;
            let found = ask(&Tls::default(), &probe(port, "/health")).await.expect("an answer");
            assert_eq!((found.state, found.output), (state, output), "{status}");
            // The server may still be writing what is not read.
            asked.abort();
        }
    }

    #[tokio::test]
    async fn a_check_sends_what_it_is_told_to() {
        let (port, asked) = server(vec![answer("204 No", "", "")]).await;
        let probe = HttpProbe {
            method: "POST".to_owned(),
            headers: vec![("X-A".to_owned(), "1".to_owned()), ("X-A".to_owned(), "2".to_owned())],
            host: "shop.example".to_owned(),
            body: "hello".to_owned(),
            ..probe(port, "/health?x=1")
        };
        let found = ask(&Tls::default(), &probe).await.expect("an answer");
        assert_eq!((found.state, found.status_code), (CheckState::Success, Some(204)));
        let asked = asked.await.expect("no panic").remove(0);
        assert!(asked.starts_with("POST /health?x=1 HTTP/1.1\r\n"), "{asked}");
        for line in ["host: shop.example", "x-a: 1", "x-a: 2", "user-agent: drover-check", "content-length: 5"] {
            assert!(asked.contains(&format!("{line}\r\n")), "{line}: {asked}");
        }
    }

    #[tokio::test]
    async fn b_042_a_redirect_is_followed_on_the_allocations_ports_and_nowhere_else() {
        let elsewhere = |to: &str| answer("302 Found", &format!("Location: {to}\r\n"), "");
        let (port, asked) =
            server(vec![elsewhere("http://127.0.0.1:PORT/a"), elsewhere("b"), answer("200 OK", "", "")]).await;
        let found = ask(&Tls::default(), &HttpProbe { method: "POST".to_owned(), ..probe(port, "/") }).await;
        assert_eq!(found.map(|found| found.state), Ok(CheckState::Success));
        let lines: Vec<String> = asked
            .await
            .expect("no panic")
            .iter()
            .map(|asked| asked.lines().next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(lines, ["POST / HTTP/1.1", "GET /a HTTP/1.1", "GET /b HTTP/1.1"]);
        for (to, says) in [("http://169.254.169.254/", "169.254.169.254"), ("https://127.0.0.1:10250/", "10250")] {
            let (port, asked) = server(vec![elsewhere(to)]).await;
            let refused = ask(&Tls::default(), &probe(port, "/")).await.expect_err("it leads elsewhere");
            assert!(refused.contains(says), "{refused}");
            assert_eq!(asked.await.expect("no panic").len(), 1);
        }
        let (port, asked) = server(vec![elsewhere("/"); 11]).await;
        let refused = ask(&Tls::default(), &probe(port, "/")).await.expect_err("it never ends");
        assert!(refused.contains("more than 10"), "{refused}");
        assert_eq!(asked.await.expect("no panic").len(), 11);
    }

    #[tokio::test]
    async fn what_is_no_http_and_what_cannot_be_sent_is_a_failure_with_its_reason() {
        let (port, _asked) = server(vec!["SSH-2.0-x\r\n".to_owned()]).await;
        let refused = ask(&Tls::default(), &probe(port, "/")).await.expect_err("no HTTP");
        assert!(refused.contains("no answer in HTTP"), "{refused}");
        let odd = [
            HttpProbe { method: "G T".to_owned(), ..probe(port, "/") },
            HttpProbe { headers: vec![("a b".to_owned(), String::new())], ..probe(port, "/") },
            probe(port, "/a b"),
        ];
        for (odd, says) in odd.iter().zip(["method", "header", "path"]) {
            let refused = ask(&Tls::default(), odd).await.expect_err(says);
            assert!(refused.starts_with(says) || refused.contains(says), "{refused}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_never_comes_holds_nothing_but_its_own_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (tls, probe) = (Tls::default(), probe(port, "/"));
        assert!(tokio::time::timeout(Duration::from_millis(50), ask(&tls, &probe)).await.is_err());
    }
}
