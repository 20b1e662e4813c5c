//! What may follow on changed templates and renewed identities of a running task, and waiting for it.

use drover_core::service::CheckAnswer;
use futures::future::BoxFuture;

use crate::tasks::hooks::{TaskIdentities, TemplateNews, Templates};

/// What follows on news of templates.
pub(super) enum Following {
    /// The run goes on.
    Nothing,
    /// It goes on, and this runs in it.
    Script(Script),
    /// Another one follows, because of this.
    Restart(String),
    /// It ends, and none follows, because of this.
    Failure(String),
}

/// Scripts that run in a task, one after the other; they end when this is dropped.
pub(super) type Script = BoxFuture<'static, Vec<ScriptEnd>>;

/// How a script ended.
pub(super) struct ScriptEnd {
    pub(super) command: String,
    /// None: it has taken too long.
    pub(super) answer: Option<CheckAnswer>,
    pub(super) is_fatal: bool,
}

/// Ready when there is news of the task's templates or identities.
pub(super) async fn news_of(
    templates: &mut Option<Templates>,
    identities: &mut Option<TaskIdentities>,
) -> TemplateNews {
    let of_templates = async {
        match templates {
            Some(templates) => templates.next().await,
            None => std::future::pending().await,
        }
    };
    let of_identities = async {
        match identities {
            Some(identities) => identities.next().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        news = of_templates => news,
        news = of_identities => news,
    }
}

/// Ready when the scripts that run have ended.
pub(super) async fn end_of(script: &mut Option<Script>) -> Vec<ScriptEnd> {
    match script {
        Some(script) => script.await,
        None => std::future::pending().await,
    }
}
