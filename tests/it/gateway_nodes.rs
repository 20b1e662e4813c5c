//! Nodes that are cut off and nodes that lie, beside one that serves. What such a node does to its own streams stays
//! there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drover_socket::executor::Executor;
use drover_socket::protocol::{self, Answer, Frame, FrameKind};
use drover_socket::tunnel::{EXCHANGE_PATH, PROTOCOL, TUNNEL_PATH};
use drover_testkit::control_plane::User;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame as BodyFrame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::task::JoinSet;

use crate::balancer::Balancer;
use crate::cluster::Process;
use crate::gateway::{API, NODE, Stage, agent_config, token};
use crate::gateway_limits::{Door, Proof, token_of};
use crate::gateway_values::turned;

/// Runs a job on a node; its allocation's path.
async fn runs_on(stage: &Stage, name: &str, node: &str) -> String {
    let alloc = stage.run_on(node, name, "echo started; exec sleep 1000").await;
    format!("{API}/namespaces/shop/allocations/{}", alloc.metadata.name.as_deref().expect("a name"))
}

/// An agent of another node, which reaches the gateway's agents and users there, or no gateway.
pub(crate) async fn another_node(stage: &Stage, node: &str, gateway: Option<(SocketAddr, SocketAddr)>) -> Process {
    let cluster = &stage.cluster;
    let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
    cluster.kubectl_with(&["create", "-f", "-"], Some(&object.to_string())).expect("a node");
    let config = match gateway {
        Some(_) => agent_config(cluster, node, gateway).await,
        None => String::new(),
    };
    let process = cluster.agent_more(node, &cluster.plane.kubeconfig(User::Admin), &config);
    cluster.ready(node).await;
    process
}

/// More bytes than any answer has here.
const MOST_ANSWERED: usize = 64 * 1024 * 1024;

/// What a path is answered: its code, its bytes, and whether these are all. One that breaks off before its first byte
/// has no code: 502.
async fn get(client: &Client, path: &str) -> (StatusCode, Vec<u8>, bool) {
    let request = http::Request::get(path).body(Body::empty()).expect("a request");
    let Ok(answer) = client.send(request).await else { return (StatusCode::BAD_GATEWAY, Vec::new(), false) };
    let (code, mut body, mut bytes) = (answer.status(), answer.into_body(), Vec::new());
    while let Some(part) = body.frame().await {
        let Ok(part) = part else { return (code, bytes, false) };
        assert!(bytes.len() < MOST_ANSWERED, "{path} is answered {code} without end");
        bytes.extend(part.into_data().unwrap_or_default());
    }
    (code, bytes, true)
}

/// How long calls take that are answered 200, one after the other: the 99th of 100.
async fn p99(client: &Client, path: &str) -> Duration {
    let mut times = Vec::new();
    for _ in 0..300 {
        let begun = Instant::now();
        let (code, text, is_whole) = get(client, path).await;
        assert!(code == 200 && is_whole, "{code} {}", String::from_utf8_lossy(&text));
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_016_a_node_that_is_cut_off_is_told_at_once_and_holds_up_no_other() {
    let stage = Stage::start("gateway-cut", "").await;
    let cluster = &stage.cluster;
    let balancer = Balancer::start(stage.agents).await;
    let _other = another_node(&stage, "n-2", Some((balancer.at, stage.users))).await;
    let (here, there) = (runs_on(&stage, "here", NODE).await, runs_on(&stage, "there", "n-2").await);
    let client = Door::of(&stage).await.client(&Proof::Token(token_of(&stage, User::Admin))).await;
    let (log, stats) = (format!("{here}/log?task=t&type=stdout"), format!("{there}/stats"));
    cluster.eventually("the other has a tunnel", async || get(&client, &stats).await.0 == 200).await;
    let usual = p99(&client, &log).await;

    balancer.hold(true);
    let mut asks = JoinSet::new();
    for _ in 0..8 {
        let (client, stats) = (client.clone(), stats.clone());
        // Of these, the first wait for an agent that may only be slow, the others are told that it is gone.
        asks.spawn(async move { while get(&client, &stats).await.0 == 504 {} });
    }
    let beside = p99(&client, &log).await;
    while let Some(asked) = asks.join_next().await {
        asked.expect("answers");
    }
    for _ in 0..20 {
        let asked = Instant::now();
        let (code, text, _) = get(&client, &stats).await;
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(code == 404 && text.contains("node n-2 has no tunnel to the gateway since 20"), "{code} {text}");
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    }
    let after = p99(&client, &log).await;
    // One that waits for the other node takes 5 s.
    let most = usual * 10 + Duration::from_secs(1);
    assert!(beside < most && after < most, "{usual:?} usually, {beside:?} beside, {after:?} after");

    balancer.hold(false);
    cluster.eventually("it is back", async || get(&client, &stats).await.0 == 200).await;
}

type Parts = BoxStream<'static, Result<BodyFrame<Bytes>, std::io::Error>>;

/// What a hostile agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// A frame of 4 GiB.
    Oversize,
    /// Bytes that are no frames.
    Noise,
    /// Messages that are none.
    NoMessage,
    /// Answers to other requests, without end.
    Others,
    /// Files of a folder, without end.
    Files,
    /// Frames without a byte, as fast as may be.
    Empty,
    /// Frames with one byte, as fast as may be.
    Tiny,
    /// An answer in HTTP that the protocol does not know.
    Refused,
    /// A header of a megabyte.
    Header,
}

fn encoded(frame: &Frame, n: usize) -> Bytes {
    protocol::encode(frame).expect("a frame").repeat(n).into()
}

fn message(answer: &Answer, n: usize) -> Bytes {
    encoded(&protocol::message(answer).expect("a message"), n)
}

impl Lie {
    /// What it repeats.
    fn part(self) -> Bytes {
        let data = |bytes: &[u8]| Frame { kind: FrameKind::Data, payload: bytes.to_vec() };
        match self {
            Self::Oversize => vec![0xff; 16 * 1024].into(),
            Self::Noise => (0..16 * 1024).map(|n: u32| n.to_le_bytes()[0] ^ 0x5a).collect(),
            Self::NoMessage => encoded(&Frame { kind: FrameKind::Message, payload: b"{\"wrong\":".to_vec() }, 100),
            Self::Others => message(&Answer::At { file: "f".to_owned(), offset: 0 }, 500),
            Self::Files => {
                let file =
                    json!({ "name": "f".repeat(100), "isDir": false, "size": 0, "mode": "", "modifiedAt": null });
                let file = serde_json::from_value(file).expect("a file");
                message(&Answer::Files(vec![file; 100]), 1)
            }
            Self::Empty => encoded(&data(b""), 3000),
            Self::Tiny => encoded(&data(b"x"), 3000),
            Self::Refused | Self::Header => Bytes::new(),
        }
    }

    fn answer(self) -> Response<StreamBody<Parts>> {
        let part = self.part();
        let n_parts = if part.is_empty() { 0 } else { usize::MAX };
        let parts = stream::repeat_with(move || Ok(BodyFrame::data(part.clone()))).take(n_parts);
        let mut answer = Response::new(StreamBody::new(parts.boxed()));
        match self {
            Self::Refused => *answer.status_mut() = StatusCode::IM_A_TEAPOT,
            Self::Header => {
                let long = http::HeaderValue::from_bytes(&vec![b'x'; 1024 * 1024]).expect("a value");
                answer.headers_mut().insert("drover-more", long);
            }
            _ => {}
        }
        answer
    }
}

/// Has a tunnel of `n-2`, and tells lies through it.
async fn liar(stage: &Stage, lie: Arc<Mutex<Lie>>) -> JoinSet<()> {
    let token = token(&stage.cluster, "drover-agent", Some("gateway.drover.dev"), Some("n-2")).await;
    let tunnel = turned(stage, &token, (TUNNEL_PATH, PROTOCOL)).await.expect("a tunnel");
    let service = service_fn(move |request: Request<Incoming>| {
        let lie = *lie.lock().expect("a lie");
        async move {
            let is_exchange = request.uri().path() == EXCHANGE_PATH;
            Ok::<_, std::convert::Infallible>(if is_exchange { lie.answer() } else { Lie::Refused.answer() })
        }
    });
    let mut serving = JoinSet::new();
    // It may well be ended for what it sends.
    serving.spawn(async move {
        http2::Builder::new(Executor::default()).serve_connection(TokioIo::new(tunnel), service).await.ok();
    });
    serving
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_020_an_agent_that_lies_has_its_streams_cut_and_takes_no_memory_and_no_time_of_others() {
    let stage = Stage::start("gateway-lies", "").await;
    let cluster = &stage.cluster;
    let _other = another_node(&stage, "n-2", None).await;
    let (here, there) = (runs_on(&stage, "here", NODE).await, runs_on(&stage, "there", "n-2").await);
    let (door, proof) = (Door::of(&stage).await, Proof::Token(token_of(&stage, User::Admin)));
    let mut client = door.client(&proof).await;
    let told = Arc::new(Mutex::new(Lie::Refused));
    let mut lies = liar(&stage, Arc::clone(&told)).await;
    let is_known = async || get(&client, &format!("{there}/stats")).await.0 == 504;
    cluster.eventually("its tunnel is open", is_known).await;
    let gateway = stage.gateway.as_ref().expect("a gateway").id();
    let before = gateway.rss_bytes();
    let (log, list, stats) = ("log?task=t&type=stdout&follow=true", "fs?op=ls&path=/", "stats");
    for (lie, asked, expected) in [
        (Lie::Oversize, log, None),
        (Lie::Oversize, stats, Some((504, "broke off"))),
        (Lie::Noise, log, None),
        (Lie::Noise, list, Some((504, "broke off"))),
        (Lie::NoMessage, log, None),
        (Lie::NoMessage, stats, Some((504, "broke off"))),
        (Lie::Others, stats, Some((504, "what it was not asked"))),
        (Lie::Others, list, Some((504, "what it was not asked"))),
        (Lie::Files, stats, Some((504, "what it was not asked"))),
        (Lie::Files, list, Some((400, "too many files"))),
        (Lie::Empty, log, None),
        (Lie::Empty, stats, Some((504, "what it was not asked"))),
        (Lie::Tiny, list, Some((504, "what it was not asked"))),
        (Lie::Refused, stats, Some((504, "418"))),
        (Lie::Header, stats, Some((504, "broke"))),
    ] {
        *told.lock().expect("a lie") = lie;
        if lies.try_join_next().is_some() {
            lies = liar(&stage, Arc::clone(&told)).await;
            cluster
                .eventually("its tunnel is open", async || get(&client, &format!("{there}/stats")).await.0 != 404)
                .await;
        }
        let (code, text, is_whole) = get(&client, &format!("{there}/{asked}")).await;
        let text = String::from_utf8_lossy(&text).into_owned();
        match expected {
            Some((wanted, reason)) => {
                assert!(code == wanted && text.contains(reason), "{lie:?}, {asked}: {code} {text}");
            }
            // What has begun with 200 breaks off, so that it is not taken for whole; what has not is refused.
            None => assert!(code == 504 || !is_whole, "{lie:?}, {asked}: {code} {text}"),
        }
        // Of HTTP/1 the connection ends with an answer that breaks off.
        client = door.client(&proof).await;
        let (code, text, _) = get(&client, &format!("{here}/log?task=t&type=stdout")).await;
        assert!(code == 200 && text == b"started\n", "{lie:?}: another node's is answered {code}");
    }

    // Bytes of a log may come one by one, and no more of them than a client is worth.
    *told.lock().expect("a lie") = Lie::Refused;
    lies = liar(&stage, Arc::clone(&told)).await;
    let refused = async || String::from_utf8_lossy(&get(&client, &format!("{there}/stats")).await.1).contains("418");
    cluster.eventually("its tunnel is open", refused).await;
    *told.lock().expect("a lie") = Lie::Tiny;
    let request = http::Request::get(format!("{there}/{log}")).body(Body::empty()).expect("a request");
    let (mut body, begun, mut n_bytes) =
        (client.send(request).await.expect("an answer").into_body(), Instant::now(), 0);
    while n_bytes < 60_000 {
        let part = body.frame().await.expect("it goes on").expect("it goes on");
        n_bytes += part.into_data().expect("data").len();
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "60,000 frames in {:?}", begun.elapsed());
    let grown = gateway.rss_bytes().saturating_sub(before);
    assert!(grown < 96 * 1024 * 1024, "{grown} bytes more");
    drop((body, lies));
}
