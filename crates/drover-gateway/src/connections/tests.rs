//! Conversations in HTTP/2, in memory and on paused time.

use std::io;

use drover_socket::executor::Executor;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2::{Builder, SendRequest};
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

use super::*;
use crate::answers::whole;

/// What each of its answers that is under way holds.
type Held = Arc<()>;

#[derive(Clone, Default)]
struct Answers(Held);

impl Service for Answers {
    async fn answer(&self, request: Request<Incoming>, _: Arc<Vec<CertificateDer<'static>>>) -> Response<Answer> {
        let body = match request.uri().path() {
            "/large" => return Response::new(whole(vec![b'x'; 1 << 20])),
            "/never" => std::future::pending().await,
            "/endless" => endless(Arc::clone(&self.0), Duration::ZERO),
            _ => endless(Arc::clone(&self.0), Duration::from_secs(30)),
        };
        Response::new(body)
    }
}

fn endless(held: Held, pause: Duration) -> Answer {
    let parts = stream::unfold(held, move |held| async move {
        sleep(pause).await;
        Some((Ok::<_, io::Error>(Frame::data(Bytes::from(vec![b'x'; 16 * 1024]))), held))
    });
    StreamBody::new(parts).boxed_unsync()
}

/// A client and the conversation with it.
struct Scene {
    held: Held,
    client: SendRequest<Empty<Bytes>>,
    conversation: TaskTracker,
    stop: CancellationToken,
}

impl Scene {
    async fn new(is_proxy: bool) -> Self {
        let (service, stop) = (Answers::default(), CancellationToken::new());
        let held = Arc::clone(&service.0);
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let speech = Speech { is_http2: true, is_proxy, is_near: true };
        let (conversation, executor) = (TaskTracker::new(), Executor::default());
        drop(conversation.spawn(speech.converse(theirs, service, Arc::default(), stop.clone())));
        conversation.close();
        let (client, connection) = Builder::new(executor.clone())
            .initial_stream_window_size(64 * 1024)
            .handshake(TokioIo::new(ours))
            .await
            .expect("a handshake");
        drop(executor.0.spawn(connection));
        Self { held, client, conversation, stop }
    }

    async fn get(&self, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::get(format!("http://gateway{path}")).body(Empty::new()).expect("a request");
        let mut client = self.client.clone();
        client.ready().await?;
        client.send_request(request).await
    }

    /// Requests and answers that are under way.
    fn n_held(&self) -> usize {
        // The test and the service hold it too, while there is one.
        Arc::strong_count(&self.held) - if self.conversation.is_empty() { 1 } else { 2 }
    }
}

async fn part(body: &mut Incoming) -> Option<Result<usize, hyper::Error>> {
    body.frame().await.map(|frame| frame.map(|frame| frame.into_data().map_or(0, |data| data.len())))
}

#[tokio::test(start_paused = true)]
async fn g_021_a_client_of_http2_that_takes_nothing_of_an_answer_has_that_one_cut_and_no_other() {
    let scene = Scene::new(true).await;
    let begun = Instant::now();
    let mut stopped = scene.get("/endless").await.expect("an answer").into_body();
    let mut slow = scene.get("/slow").await.expect("an answer").into_body();
    sleep(Duration::from_secs(39)).await;
    assert_eq!(scene.n_held(), 2);
    sleep(Duration::from_secs(2)).await;
    assert_eq!((scene.n_held(), begun.elapsed().as_secs()), (1, 41), "what it held is free");
    // The other goes on, and is never cut for having nothing to take.
    let mut taken = 0;
    while taken < 10 * 16 * 1024 {
        taken += part(&mut slow).await.expect("a part").expect("no error");
    }
    assert_eq!(begun.elapsed().as_secs(), 300);
    let mut end = part(&mut stopped).await.expect("what was on its way");
    while end.is_ok() {
        end = part(&mut stopped).await.expect("not taken for whole");
    }
    let error = end.expect_err("it was cut");
    assert!(format!("{error:?}").contains("Reset"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_may_be_taken_slowly() {
    let scene = Scene::new(false).await;
    let begun = Instant::now();
    let mut large = scene.get("/large").await.expect("an answer").into_body();
    let mut n_bytes = 0;
    while let Some(n) = part(&mut large).await {
        n_bytes += n.expect("no error");
        sleep(Duration::from_secs(30)).await;
    }
    assert!(n_bytes == 1 << 20 && begun.elapsed() > UNSENT_TIMEOUT * 10, "{n_bytes} in {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_that_asks_for_nothing_ends() {
    let silent = Scene::new(true).await;
    let begun = Instant::now();
    silent.conversation.wait().await;
    assert_eq!(begun.elapsed(), HANDSHAKE_TIMEOUT);

    let scene = Scene::new(true).await;
    let begun = Instant::now();
    let mut slow = scene.get("/slow").await.expect("an answer").into_body();
    // While something is under way it goes on, whether or not anything comes.
    while begun.elapsed() < Duration::from_mins(10) {
        part(&mut slow).await.expect("a part").expect("no error");
    }
    drop(slow);
    scene.conversation.wait().await;
    assert!(begun.elapsed() > Duration::from_mins(11), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn only_the_api_server_has_many_requests_on_one_connection() {
    for (is_proxy, most) in [(false, 16), (true, 256)] {
        let scene = Scene::new(is_proxy).await;
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..400 {
            let mut client = scene.client.clone();
            let request = Request::get("http://gateway/never").body(Empty::<Bytes>::new()).expect("a request");
            asked.spawn(async move {
                client.ready().await?;
                client.send_request(request).await.map(|answer| answer.status())
            });
        }
        sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.n_held(), most);
        asked.shutdown().await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.n_held(), 0, "they end with those who asked");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_answered_when_a_replica_ends() {
    let scene = Scene::new(true).await;
    let mut slow = scene.get("/slow").await.expect("an answer").into_body();
    scene.stop.cancel();
    part(&mut slow).await.expect("a part").expect("no error");
    let late = scene.get("/large").await;
    assert!(late.is_err() || late.is_ok_and(|it| it.status() != StatusCode::OK), "nothing more begins");
    drop(slow);
    scene.conversation.wait().await;
}
