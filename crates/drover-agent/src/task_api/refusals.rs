//! Answers that the agent gives itself, as Kubernetes' `Status`.

use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Bytes;
use serde_json::json;

/// Why a request is not passed on, or has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiRefusal {
    code: StatusCode,
    message: String,
}

impl ApiRefusal {
    /// A refusal with its reason.
    pub(super) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The code.
    #[cfg(test)]
    pub(super) fn code(&self) -> u16 {
        self.code.as_u16()
    }

    /// As an answer, whose body is made so.
    pub(super) fn answer<B>(&self, body: impl FnOnce(Bytes) -> B) -> Response<B> {
        let reason: String = self.code.canonical_reason().unwrap_or_default().split(' ').collect();
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "code": self.code.as_u16(),
        });
        let mut answer = Response::new(body(status.to_string().into()));
        *answer.status_mut() = self.code;
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }
}
