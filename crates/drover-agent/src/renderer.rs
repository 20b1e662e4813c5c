//! Rendering templates in processes of their own: `droverd render-template`, which reaches no file and no network.

use std::fmt::Debug;
use std::time::Duration;

use drover_template::{RenderAnswer, RenderOrder};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use crate::helper;

/// Most renderings of a node at a time; others wait.
const AT_A_TIME: usize = 4;
/// What a rendering may take beyond its own limit, to start and to answer.
const EXTRA: Duration = Duration::from_secs(20);
/// Largest answer: the largest text, in JSON.
const MAX_ANSWER_BYTES: u64 = 128 * 1024 * 1024;

/// Renders templates.
pub(crate) trait Renderer: Debug + Send + Sync {
    /// Renders one, or says why it could not be tried: another try may help. Dropping it ends the rendering.
    fn render<'a>(&'a self, order: &'a RenderOrder) -> BoxFuture<'a, Result<RenderAnswer, String>>;
}

/// Renders each in a process of its own.
#[derive(Debug)]
pub(crate) struct HelperRenderer {
    turns: Semaphore,
}

impl Default for HelperRenderer {
    fn default() -> Self {
        Self { turns: Semaphore::new(AT_A_TIME) }
    }
}

impl Renderer for HelperRenderer {
    fn render<'a>(&'a self, order: &'a RenderOrder) -> BoxFuture<'a, Result<RenderAnswer, String>> {
        async move {
            let _turn = self.turns.acquire().await.map_err(|_| "the agent ends".to_owned())?;
            let mut child = helper::command("render-template")
                .current_dir("/")
                .spawn()
                .map_err(|error| format!("the rendering cannot begin: {error}"))?;
            let whole = Duration::from_secs(order.limits.seconds).saturating_add(EXTRA);
            let answer = tokio::time::timeout(whole, helper::ask(&mut child, order, MAX_ANSWER_BYTES)).await;
            drop(child.kill().await);
            let answer = answer.map_err(|_| format!("the rendering took longer than {} s", whole.as_secs()))?;
            // The error of an answer that is cut short would show a part of it.
            answer.map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                    "the rendering broke off, as it does when it needs too much memory".to_owned()
                }
                _ => format!("the rendering broke off: {}", error.kind()),
            })
        }
        .boxed()
    }
}

/// Renders in the agent itself: for machines without processes.
#[cfg(any(test, feature = "simulated"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptRenderer;

#[cfg(any(test, feature = "simulated"))]
impl Renderer for PromptRenderer {
    fn render<'a>(&'a self, order: &'a RenderOrder) -> BoxFuture<'a, Result<RenderAnswer, String>> {
        std::future::ready(Ok(drover_template::render(order))).boxed()
    }
}
