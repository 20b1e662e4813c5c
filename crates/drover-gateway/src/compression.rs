//! Large answers go out compressed, where that is asked for and the other side is on another machine.
//!
//! Streams go out as they come: a compressor would hold back what a reader waits for.

use http::{Response, header};
use hyper::body::Body;
use tower_http::CompressionLevel;
use tower_http::compression::{Compression, Predicate};

/// Bytes of an answer from which compressing pays.
const LEAST: u64 = 1024;

/// Answers with what the service does, compressed where that helps. `is_near`: the client is on this machine, where
/// nothing is faster than the bytes as they are.
pub(crate) fn compressing<S>(service: S, is_near: bool) -> Compression<S, Large> {
    Compression::new(service).quality(CompressionLevel::Fastest).compress_when(Large { is_near })
}

/// Whether an answer is whole, large, and goes far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    is_near: bool,
}

impl Predicate for Large {
    fn should_compress<B: Body>(&self, response: &Response<B>) -> bool {
        let length = || response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
        let whole: Option<u64> = response.body().size_hint().exact().or_else(length);
        !self.is_near && whole.is_some_and(|bytes| bytes >= LEAST)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use futures::stream;
    use http::{Request, StatusCode};
    use http_body_util::{BodyExt as _, Empty, StreamBody};
    use hyper::body::{Bytes, Frame};
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::answers::{Answer, in_pieces, whole, with_type};

    async fn encoding(asked: Option<&str>, is_near: bool, answer: fn() -> Response<Answer>) -> (Option<String>, usize) {
        let service = compressing(service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(answer())), is_near);
        let mut request = Request::get("/v1/jobs");
        if let Some(asked) = asked {
            request = request.header(header::ACCEPT_ENCODING, asked);
        }
        let response = service.oneshot(request.body(Empty::new()).expect("a request")).await.expect("an answer");
        let encoding = response.headers().get(header::CONTENT_ENCODING).map(|it| it.to_str().expect("text").to_owned());
        let length = response.headers().get(header::CONTENT_LENGTH).cloned();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(encoding.is_none() || length.is_none(), "the length is that of the text");
        (encoding, bytes.len())
    }

    fn large() -> Response<Answer> {
        in_pieces("application/json", vec![Bytes::from(vec![b' '; 50_000]), Bytes::from(vec![b'1'; 50_000])])
    }

    fn one_piece() -> Response<Answer> {
        with_type(StatusCode::OK, "application/json", whole(vec![b' '; 100_000]))
    }

    fn small() -> Response<Answer> {
        with_type(StatusCode::OK, "application/json", whole("[]"))
    }

    fn streamed() -> Response<Answer> {
        let pieces = stream::iter([Ok::<_, io::Error>(Frame::data(Bytes::from(vec![b' '; 100_000])))]);
        with_type(StatusCode::OK, "application/json", StreamBody::new(pieces).boxed_unsync())
    }

    #[tokio::test]
    async fn large_answers_are_compressed_where_that_is_asked_for_and_not_on_the_same_machine() {
        for answer in [large, one_piece] {
            let (encoding_of_it, n_bytes) = encoding(Some("gzip"), false, answer).await;
            assert_eq!(encoding_of_it.as_deref(), Some("gzip"));
            assert!(n_bytes < 2000, "{n_bytes}");
            assert_eq!(encoding(Some("gzip"), true, answer).await, (None, 100_000));
            assert_eq!(encoding(None, false, answer).await, (None, 100_000));
            assert_eq!(encoding(Some("gzip;q=0, identity"), false, answer).await, (None, 100_000));
        }
        assert_eq!(encoding(Some("gzip"), false, small).await, (None, 2));
        assert_eq!(encoding(Some("gzip"), false, streamed).await, (None, 100_000), "a stream goes out as it comes");
    }
}
