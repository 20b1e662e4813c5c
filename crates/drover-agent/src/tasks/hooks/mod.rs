//! What is done before a task's runs: one file per hook, in one ordered table.

mod api;
mod artifacts;
mod csi_plugin;
mod devices;
mod dispatch_payload;
mod hook_error;
mod identities;
mod prestart;
mod task_dir;
mod templates;
mod validate;
mod values;

pub(super) use api::serve_api;
pub(super) use artifacts::{ArtifactWords, ArtifactsLeft, artifacts_left};
pub(super) use hook_error::TaskHookError;
pub(super) use identities::TaskIdentities;
pub(super) use prestart::{after_artifacts, before_artifacts};
pub(super) use templates::{ChangeCommand, Preparation, TemplateNews, Templates};
pub(super) use values::{Arrival, Awaited, SecretWords, TaskValues, ValueVersions, follow};
