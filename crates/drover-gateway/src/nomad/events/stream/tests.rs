//! Streams on paused time, over an API server that allows what it is told to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use drover_api::{CSIVolume, ClientNode};
use drover_daemon::monitor::GatewayMetrics;
use drover_nomad::{Happened, Turn, World};
use futures::FutureExt as _;
use futures::stream::{BoxStream, StreamExt as _};
use http::Method;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::limits::Limits;
use crate::nomad::Feed;
use crate::nomad::events::Intake;
use crate::reviews::{Identity, Reviews};

/// What an API server allows: `clientnodes`, or `csivolumes shop`.
type Allowed = Arc<Mutex<BTreeSet<String>>>;

fn reviews(allowed: &Allowed) -> Reviews {
    let allowed = Arc::clone(allowed);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let allowed = Arc::clone(&allowed);
        async move {
            let body = request.into_body().collect_bytes().await.expect("a body");
            let mut review: Value = serde_json::from_slice(&body).expect("a review");
            let of = &review["spec"]["resourceAttributes"];
            let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
            let asked = [text("resource"), text("namespace")].join(" ");
            let is_allowed = allowed.lock().expect("no panic").contains(asked.trim());
            review["status"] = json!({ "allowed": is_allowed });
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(review.to_string().into_bytes())))
        }
    });
    Reviews::new(Client::new(service, "default"), GatewayMetrics::default())
}

fn volume(namespace: &str, name: &str, version: u64) -> Happened {
    let volume: CSIVolume = serde_json::from_value(json!({
        "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
        "metadata": { "name": name, "namespace": namespace, "uid": name, "resourceVersion": version.to_string() },
        "spec": { "pluginID": "ebs", "capabilities": [] },
    }))
    .expect("a volume");
    Happened::Volume(Turn { before: None, after: Some(Arc::new(volume)), version })
}

fn node(version: u64) -> Happened {
    let mut node = ClientNode::new("n-1", drover_api::ClientNodeSpec::default());
    (node.metadata.uid, node.metadata.resource_version) = (Some("u".to_owned()), Some(version.to_string()));
    Happened::Node(Turn { before: None, after: Some(Arc::new(node)), version })
}

/// A feed with what fills it, and who asks.
struct Scene {
    feed: Feed,
    intake: Intake,
    allowed: Allowed,
    reviews: Reviews,
    is_known: Arc<Mutex<bool>>,
    limits: Limits,
    ends: CancellationToken,
}

type Lines = BoxStream<'static, io::Result<String>>;

/// The lines of a piece; each is whole.
fn lines(piece: io::Result<Frame<Bytes>>) -> impl futures::Stream<Item = io::Result<String>> {
    let lines = piece.map(|frame| {
        let text = String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text");
        assert!(text.ends_with('\n'), "{text}");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    futures::stream::iter(match lines {
        Ok(lines) => lines.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    })
}

impl Scene {
    fn new(most: usize, allowed: &[&str]) -> Self {
        let allowed: Allowed = Arc::new(Mutex::new(allowed.iter().map(|it| (*it).to_owned()).collect()));
        let (feed, reviews) = (Feed::new(most), reviews(&allowed));
        let (intake, is_known) = (Intake::new(Some(feed.clone())), Arc::new(Mutex::new(true)));
        Self { feed, intake, allowed, reviews, is_known, limits: Limits::default(), ends: CancellationToken::new() }
    }

    /// Puts in changes, which have waited for others.
    async fn happen(&mut self, changes: &[Happened]) {
        self.intake.take(changes, &World::default());
        self.intake.ripens().await;
    }

    async fn subscribe(&self, text: &str) -> Result<Lines, u16> {
        Ok(self.pieces(text).await?.flat_map(lines).boxed())
    }

    async fn pieces(&self, text: &str) -> Result<BoxStream<'static, io::Result<Frame<Bytes>>>, u16> {
        let is_known = Arc::clone(&self.is_known);
        let is_still = move || {
            let known = *is_known.lock().expect("no panic");
            async move { if known { Ok(()) } else { Err(Refusal::new(401, "unknown")) } }.boxed()
        };
        let identity = Identity { user: "ann".to_owned(), ..Identity::default() };
        let recheck_every = Duration::from_mins(1);
        let (is_still, limits) = (Box::new(is_still), self.limits.clone());
        let caller = Caller { identity, is_still, recheck_every, limits };
        let query = Query::parse(text).map_err(|fault| fault.code)?;
        let wanted = Wanted::parse(text, &query).map_err(|fault| fault.code)?;
        let sight = Sight::open(&self.reviews, &caller.identity, wanted.needed()).await.map_err(|it| it.code)?;
        let open = caller.limits.open(Opening::Events, "ann").map_err(|it| it.code)?;
        let call = NomadCall::begin("", &caller.identity, (&Method::GET, "event/stream"), GatewayMetrics::default());
        let (buffer, pieces) = (self.feed.subscribe(), self.feed.pieces());
        let position = buffer.borrow().position(wanted.index());
        let view = View { buffer, pieces, position, wanted, sight };
        Ok(unfold(Subscriber::new((caller, call, open), view, self.ends.clone()), Subscriber::next).boxed())
    }
}

/// The next line: its index and the keys of its events, or what it is else.
async fn next(lines: &mut Lines) -> String {
    let line = match lines.next().await {
        None => return "end".to_owned(),
        Some(Err(error)) => return format!("error: {error}"),
        Some(Ok(line)) => line,
    };
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let Some(index) = line["Index"].as_u64() else { return line.to_string() };
    let keys = line["Events"].as_array().expect("events").iter().map(|it| it["Key"].as_str().expect("a key"));
    format!("{index} {}", keys.collect::<Vec<_>>().join(" "))
}

#[tokio::test(start_paused = true)]
async fn p_061_the_first_line_comes_at_once_and_one_every_thirty_seconds() {
    let mut scene = Scene::new(100, &["clientnodes"]);
    let mut lines = scene.subscribe("topic=Node").await.expect("a stream");
    let begun = Instant::now();
    assert_eq!((next(&mut lines).await.as_str(), begun.elapsed()), ("{}", Duration::ZERO));
    assert_eq!(next(&mut lines).await, "{}");
    assert_eq!(begun.elapsed(), Duration::from_secs(30));
    scene.happen(&[node(7)]).await;
    assert_eq!(next(&mut lines).await, "7 u");
    assert!(begun.elapsed() < Duration::from_secs(31));
    assert_eq!(next(&mut lines).await, "{}");
    assert_eq!(begun.elapsed().as_secs(), 60);
    scene.ends.cancel();
    assert_eq!((next(&mut lines).await, scene.limits.open(Opening::Events, "ann").is_ok()), ("end".to_owned(), true));
}

#[tokio::test(start_paused = true)]
async fn changes_of_two_kinds_come_in_the_order_of_their_versions() {
    let mut scene = Scene::new(100, &["clientnodes", "csivolumes shop"]);
    let mut lines = scene.subscribe("topic=Node&topic=CSIVolume&namespace=shop").await.expect("a stream");
    assert_eq!(next(&mut lines).await, "{}");
    scene.intake.take(&[volume("shop", "b", 8)], &World::default());
    // Less than a change waits for others.
    tokio::time::advance(Duration::from_millis(10)).await;
    scene.happen(&[node(7), volume("farm", "c", 6)]).await;
    assert_eq!((next(&mut lines).await, next(&mut lines).await), ("7 u".to_owned(), "8 b".to_owned()));
    // One that comes later still has an index of its own.
    scene.happen(&[volume("shop", "a", 5)]).await;
    assert_eq!(next(&mut lines).await, "9 a");
}

#[tokio::test(start_paused = true)]
async fn what_there_is_goes_out_in_one_piece_and_much_of_it_in_several() {
    let mut scene = Scene::new(10_000, &["clientnodes"]);
    let mut pieces = scene.pieces("topic=Node").await.expect("a stream");
    let mut lines = async || {
        let piece = pieces.next().await.expect("a piece").expect("no error").into_data().expect("data");
        (String::from_utf8_lossy(&piece).lines().count(), piece.len())
    };
    assert_eq!(lines().await, (1, 3));
    scene.happen(&(1..=5).map(node).collect::<Vec<_>>()).await;
    assert_eq!(lines().await.0, 5);
    let many = 1000;
    scene.happen(&(6..6 + many).map(node).collect::<Vec<_>>()).await;
    let (mut n, mut sizes) = (0, Vec::new());
    while n < many {
        let (n_more, size) = lines().await;
        n += n_more as u64;
        sizes.push(size);
    }
    let (last, full) = sizes.split_last().expect("pieces");
    assert!(n == many && !full.is_empty() && *last > 0, "{n}: {sizes:?}");
    assert!(full.iter().all(|size| (PIECE..2 * PIECE).contains(size)), "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn p_068_a_reader_that_falls_behind_learns_of_it_and_another_gets_all() {
    let mut scene = Scene::new(10, &["clientnodes"]);
    let mut slow = scene.subscribe("topic=Node").await.expect("a stream");
    let mut quick = scene.subscribe("topic=Node").await.expect("a stream");
    assert_eq!((next(&mut slow).await, next(&mut quick).await), ("{}".to_owned(), "{}".to_owned()));
    let before = Instant::now();
    for version in 1..=20 {
        scene.intake.take(&[node(version)], &World::default());
        scene.intake.ends();
        assert_eq!(next(&mut quick).await, format!("{version} u"));
    }
    assert_eq!(before.elapsed(), Duration::ZERO, "nothing has waited");
    let told = next(&mut slow).await;
    assert!(told.starts_with("error: events were dropped"), "{told}");
    assert_eq!(next(&mut slow).await, "end");
    let mut later = scene.subscribe("topic=Node&index=1").await.expect("a stream");
    assert_eq!((next(&mut later).await, next(&mut later).await), ("{}".to_owned(), "11 u".to_owned()));
    scene.intake.begins_again();
    let told = next(&mut quick).await;
    assert!(told.starts_with("error: events were dropped"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn p_070_a_stream_ends_within_a_minute_of_its_token_or_its_right() {
    let scene = Scene::new(10, &["clientnodes", "csivolumes shop"]);
    assert_eq!(scene.subscribe("topic=Job&namespace=shop").await.map(drop), Err(403));
    assert_eq!(scene.subscribe("topic=CSIVolume&namespace=farm").await.map(drop), Err(403));
    let mut by_token = scene.subscribe("topic=Node").await.expect("a stream");
    assert_eq!(next(&mut by_token).await, "{}");
    *scene.is_known.lock().expect("no panic") = false;
    let begun = Instant::now();
    assert_eq!(next(&mut by_token).await, "{}");
    assert_eq!(next(&mut by_token).await, "error: unknown");
    assert_eq!(begun.elapsed(), Duration::from_mins(1));
    assert_eq!(next(&mut by_token).await, "end");

    *scene.is_known.lock().expect("no panic") = true;
    let mut by_right = scene.subscribe("topic=CSIVolume&namespace=shop").await.expect("a stream");
    assert_eq!(next(&mut by_right).await, "{}");
    scene.allowed.lock().expect("no panic").remove("csivolumes shop");
    let begun = Instant::now();
    assert_eq!(next(&mut by_right).await, "{}");
    let told = next(&mut by_right).await;
    assert!(told.starts_with("error: ") && told.contains("csivolumes"), "{told}");
    assert_eq!(begun.elapsed(), Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn of_every_namespace_one_gets_those_that_one_may_see_and_others_within_a_minute() {
    let mut scene = Scene::new(100, &["csivolumes shop"]);
    let mut lines = scene.subscribe("topic=CSIVolume&namespace=*").await.expect("a stream");
    assert_eq!(next(&mut lines).await, "{}");
    scene.happen(&[volume("farm", "a", 1), volume("shop", "b", 2)]).await;
    assert_eq!(next(&mut lines).await, "2 b");
    scene.allowed.lock().expect("no panic").insert("csivolumes farm".to_owned());
    assert_eq!((next(&mut lines).await, next(&mut lines).await), ("{}".to_owned(), "{}".to_owned()));
    scene.happen(&[volume("farm", "c", 3)]).await;
    assert_eq!(next(&mut lines).await, "3 c");
    scene.allowed.lock().expect("no panic").remove("csivolumes shop");
    assert_eq!(next(&mut lines).await, "{}");
    let told = next(&mut lines).await;
    assert!(told.starts_with("error: ") && told.contains("shop"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_user_has_so_many_streams() {
    let scene = Scene::new(10, &["clientnodes"]);
    let mut open = Vec::new();
    for _ in 0..128 {
        open.push(scene.subscribe("topic=Node").await.expect("a stream"));
    }
    assert_eq!(scene.subscribe("topic=Node").await.map(drop), Err(429));
    open.pop();
    assert!(scene.subscribe("topic=Node").await.is_ok());
}
