//! What one replica has written, the others are asked to know before its caller is answered: the caller may reach any
//! of them next.
//!
//! Input: a request of another replica, proved by its certificate. Output: an answer as soon as this one knows it too.
//! Must never know what was written: one header carries it from the writer to what knows.

use std::fmt::Debug;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Method, Response};
use hyper::body::Incoming;

use crate::answers::{Answer, Refusal, whole};

/// Where it is asked for, by POST.
pub(super) const ARRIVALS_PATH: &str = "/arrivals/v1";
/// The header with what was written.
pub(super) const ARRIVALS_HEADER: &str = "drover-written";

/// What a replica knows of the cluster.
pub(crate) trait Arrivals: Debug + Send + Sync {
    /// Waits until what was written is known, for a short while.
    ///
    /// # Errors
    /// 400 for what cannot be read, 504 where it does not come.
    fn arrive<'a>(&'a self, written: &'a str) -> BoxFuture<'a, Result<(), Refusal>>;
}

/// Answers another replica.
///
/// # Errors
/// 400 or 405 for what is no such request, 404 where nothing is known here, 504 where it does not come.
pub(super) async fn answer(
    request: &http::Request<Incoming>,
    arrivals: Option<&Arc<dyn Arrivals>>,
) -> Result<Response<Answer>, Refusal> {
    if request.method() != Method::POST {
        return Err(Refusal::new(405, "arrivals are asked for by POST"));
    }
    let written = request.headers().get(ARRIVALS_HEADER).and_then(|value| value.to_str().ok());
    let written = written.ok_or_else(|| Refusal::new(400, format!("the header {ARRIVALS_HEADER} is missing")))?;
    let arrivals = arrivals.ok_or_else(|| Refusal::new(404, "this replica does not answer clients of Nomad"))?;
    arrivals.arrive(written).await?;
    Ok(Response::new(whole("")))
}
