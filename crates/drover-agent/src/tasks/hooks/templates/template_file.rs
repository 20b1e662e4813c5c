//! One template of a task: where its text comes from, where its file goes, and what is known of that.

use std::collections::BTreeMap;

use drover_api::task::Template;
use drover_core::task::environment::{self, TaskPaths};
use drover_core::task::sandbox_path::{OtherRoot, SandboxBase, SandboxPath, sandbox_path};
use drover_core::task::template::{self, ChangeWait};
use tokio::time::Instant;

use crate::node::beneath::Owner;
use crate::tasks::plan::TaskPlan;
use crate::tasks::task_words::TaskWords;

/// SHA-256 of a text.
pub(super) type TextDigest = [u8; 32];

/// A template, and what is known of its file.
#[derive(Debug)]
pub(super) struct TemplateFile {
    pub(super) template: Template,
    /// The file with its text; none: the template holds it.
    pub(super) source: Option<SandboxPath>,
    pub(super) destination: SandboxPath,
    pub(super) mode: u32,
    pub(super) owner: Option<Owner>,
    pub(super) wait: ChangeWait,
    /// Of the text that was rendered last; none: none was yet.
    pub(super) rendered: Option<TextDigest>,
    /// The variables in that text, of a template that gives some.
    pub(super) variables: BTreeMap<String, String>,
    /// When values changed first and last since then.
    pub(super) changes: Option<(Instant, Instant)>,
    /// Its file has changed, and nothing has followed on that.
    pub(super) is_changed: bool,
    /// It could not be rendered again, and stays as it was.
    pub(super) is_kept: bool,
}

impl TemplateFile {
    /// As the task says, with its fields expanded.
    ///
    /// # Errors
    /// When a field is wrong: which, why, and what to do.
    pub(super) fn new(
        template: &Template,
        words: &TaskWords,
        env: &BTreeMap<String, String>,
        paths: &TaskPaths,
    ) -> Result<Self, String> {
        let node = words.node();
        let expand = |field: &str, text: &str| {
            let expanded = environment::interpolate(text, env, &node).map_err(|error| format!("{field}: {error}"))?;
            if expanded.contains("${") {
                return Err(format!(
                    "{field} {text:?} refers to something that is not known here; correct the name in ${{...}}"
                ));
            }
            Ok(expanded)
        };
        let to = expand("destPath", &template.dest_path)?;
        let source = match template.source_path.as_str() {
            "" => None,
            given => {
                let from = sandbox_path(&expand("sourcePath", given)?, Some(paths), OtherRoot::Outside);
                Some(from.filter(|path| !is_private(path)).ok_or_else(|| {
                    format!("sourcePath {given:?} leads out of the task's directory; take a path below it, as local/app.tmpl")
                })?)
            }
        };
        let destination = sandbox_path(&to, Some(paths), OtherRoot::TaskDir);
        let destination = destination.filter(|path| !is_the_agents(path) && !path.parts.is_empty()).ok_or_else(|| {
            let given = &template.dest_path;
            format!("destPath {given:?} leads out of the task's directory, or names no file; take a path below it, as local/app.conf")
        })?;
        let mode = template::permissions(template)
            .ok_or_else(|| format!("perms {:?} is no octal mode up to 0777; correct it, as 0644", template.perms))?;
        Ok(Self {
            owner: owner(template, words.plan())?,
            template: template.clone(),
            source,
            destination,
            mode,
            wait: ChangeWait::of(template),
            rendered: None,
            variables: BTreeMap::new(),
            changes: None,
            is_changed: false,
            is_kept: false,
        })
    }

    /// Values have changed.
    pub(super) fn note_change(&mut self, now: Instant) {
        if !self.template.once {
            let (first, _) = self.changes.unwrap_or((now, now));
            self.changes = Some((first, now));
        }
    }

    /// When it is to be rendered again; none: nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.changes.map(|(first, newest)| self.wait.due(first, newest))
    }
}

/// Where the task's user cannot enter.
pub(super) fn is_private(path: &SandboxPath) -> bool {
    path.base == SandboxBase::Task && path.parts.first().is_some_and(|first| first == "private")
}

/// Where the agent alone writes.
pub(in super::super) fn is_the_agents(path: &SandboxPath) -> bool {
    let is_output = path.base == SandboxBase::Shared && path.parts.first().is_some_and(|first| first == "logs");
    is_private(path) || is_output
}

/// Whose its file becomes.
fn owner(template: &Template, plan: &TaskPlan) -> Result<Option<Owner>, String> {
    let usual = plan.owner_of_files()?;
    let number = |field: &str, given: Option<i64>| {
        given
            .map(|id| u32::try_from(id).map_err(|_| format!("{field} {id} is no number of a user or group")))
            .transpose()
    };
    let (uid, gid) = (number("uid", template.uid)?, number("gid", template.gid)?);
    if uid.is_none() && gid.is_none() {
        return Ok(usual);
    }
    let usual =
        usual.unwrap_or(Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() });
    Ok(Some(Owner { uid: uid.unwrap_or(usual.uid), gid: gid.unwrap_or(usual.gid) }))
}
