//! Hook `dispatch_payload`: the payload of a dispatched job, as a file in the task's `local` directory. Written once:
//! what a task made of it stays at a restart.

use drover_core::dispatch::{self, PAYLOAD_LIMIT};

use super::hook_error::TaskHookError;
use crate::node::secrets::SecretError;
use crate::tasks::plan::TaskPlan;
use crate::tasks::runner_env::RunnerEnv;

/// The key of a Secret under which its payload stands.
const KEY: &str = "payload";

pub(crate) async fn prestart(env: &RunnerEnv, plan: &TaskPlan) -> Result<(), TaskHookError> {
    let Some(file) = plan.task.dispatch_payload.as_ref().map(|payload| payload.file.as_str()) else { return Ok(()) };
    let secret = plan.job.dispatch.as_ref().map_or("", |dispatch| dispatch.payload_secret.as_str());
    let payload = if secret.is_empty() {
        let decoded = dispatch::payload(&plan.job);
        decoded
            .map_err(|reason| failed(format!("the payload is no base64: {reason}; dispatch the job again"), false))?
    } else {
        of_secret(env, plan.allocation.metadata.namespace.as_deref().unwrap_or_default(), secret).await?
    };
    if payload.is_empty() {
        return Ok(());
    }
    let written = env.machine.disk.write_once(&plan.dir, &plan.task.name, file, &payload);
    written.map_err(|error| failed(format!("local/{file} cannot be written: {error}"), true))
}

async fn of_secret(env: &RunnerEnv, namespace: &str, name: &str) -> Result<Vec<u8>, TaskHookError> {
    let read = env.secrets.read(namespace.to_owned(), name.to_owned()).await;
    let mut data = read.map_err(|error| {
        let may_help = !matches!(error, SecretError::Forbidden(_));
        failed(format!("spec.dispatch.payloadSecret: {error}"), may_help)
    })?;
    let payload = data.remove(KEY).ok_or_else(|| {
        failed(format!("spec.dispatch.payloadSecret: Secret {namespace}/{name} has no key {KEY}; add it there"), true)
    })?;
    if payload.len() > PAYLOAD_LIMIT {
        let size = payload.len();
        let reason = format!(
            "spec.dispatch.payloadSecret: {KEY} of Secret {namespace}/{name} has {size} bytes, above {PAYLOAD_LIMIT}; pass a reference to it in meta instead"
        );
        return Err(failed(reason, false));
    }
    Ok(payload)
}

fn failed(reason: String, is_recoverable: bool) -> TaskHookError {
    TaskHookError { hook: "dispatch_payload", reason, is_recoverable }
}
