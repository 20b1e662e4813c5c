//! Answers in HTTP: Kubernetes' `Status` for everything that is no data.

use std::io;

use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use serde::Serialize;
use serde_json::{Value, json};

/// What an answer carries.
pub(crate) type Answer = UnsyncBoxBody<Bytes, io::Error>;

/// Why something is not done: an HTTP code, and a text for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    /// As in HTTP.
    pub(crate) code: u16,
    /// Why, and what would help.
    pub(crate) message: String,
}

impl Refusal {
    /// A refusal with its reason.
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// As an answer.
    pub(crate) fn answer(&self) -> Response<Answer> {
        let code = StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        json_answer(code, &self.status())
    }

    /// As Kubernetes' `Status`.
    pub(crate) fn status(&self) -> Value {
        let reason = match self.code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            413 => "RequestEntityTooLarge",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "code": self.code,
        })
    }
}

/// `Status` of something that was done.
pub(crate) fn success() -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200 })
}

/// A whole body.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Answer {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer of a media type in pieces, each of which is given back when it is sent.
pub(crate) fn in_pieces(kind: &'static str, pieces: Vec<Bytes>) -> Response<Answer> {
    let n_bytes: usize = pieces.iter().map(Bytes::len).sum();
    let body = StreamBody::new(stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece)))));
    let mut answer = with_type(StatusCode::OK, kind, body.boxed_unsync());
    answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(n_bytes));
    answer
}

/// An answer in JSON.
pub(crate) fn json_answer(code: StatusCode, value: &impl Serialize) -> Response<Answer> {
    match serde_json::to_vec(value) {
        Ok(bytes) => with_type(code, "application/json", whole(bytes)),
        Err(error) => with_type(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", whole(error.to_string())),
    }
}

/// An answer of a media type.
pub(crate) fn with_type(code: StatusCode, kind: &'static str, body: Answer) -> Response<Answer> {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // What a browser may be shown is text and nothing else.
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
