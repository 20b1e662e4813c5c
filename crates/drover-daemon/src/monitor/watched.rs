//! One object of the API server, judged as it is now each time it changes.

use futures::StreamExt as _;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;

/// Follows an object until the end, and tells what it is judged to be; none: there is no such object.
pub(super) async fn follow<K>(
    api: Api<K>,
    name: &str,
    judge: impl Fn(Option<&K>) -> Result<(), String>,
    tell: impl Fn(Result<(), String>),
) where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut states = std::pin::pin!(watch_object(api, name).default_backoff());
    while let Some(state) = states.next().await {
        match state {
            Ok(found) => tell(judge(found.as_ref())),
            // What was known stays: a watch that begins again says nothing of its object.
            Err(error) => tracing::debug!(%error, name, "the watch restarts"),
        }
    }
}
