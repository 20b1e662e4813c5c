//! What follows on changed templates while a task runs: a restart, signals, scripts in the task, or nothing.

use std::collections::BTreeMap;

use drover_api::allocation::{TaskEventType as Type, ValuesInUse};
use drover_core::health::CheckState;
use drover_core::service::{Probe, ScriptProbe};
use futures::FutureExt as _;

use super::TaskRunner;
use super::following::{Following, Script, ScriptEnd};
use crate::checks::TaskPlace;
use crate::drivers::TaskHandle;
use crate::reporting::events::Reason;
use crate::tasks::commands::CommandError;
use crate::tasks::hooks::{self, ChangeCommand, TaskIdentities, TemplateNews, Templates, ValueVersions};
use crate::tasks::task_event;
use crate::tasks::task_words::TaskWords;

/// How the answer of a script begins that ran and failed.
const EXIT_CODE: &str = "exit code ";

impl TaskRunner {
    /// A task that was found again is looked at as one that was started: its templates follow what they use, and its
    /// identities are renewed.
    pub(super) fn follow_what_it_uses(&mut self) {
        let task = &self.plan.task;
        let Some(driver) = self.driver.as_ref().filter(|_| !(task.templates.is_empty() && task.identities.is_empty()))
        else {
            return;
        };
        let words = TaskWords::new(&self.env, &self.plan, driver.fs_isolation());
        if self.identities.is_none() {
            let started_at = self.record.state.started_at;
            self.identities = TaskIdentities::new(&words).map(|identities| identities.found_again(started_at));
        }
        if self.plan.task.templates.is_empty() || self.templates.is_some() {
            return;
        }
        let values = hooks::follow(&*self.env.machine.values, &self.plan, &self.record.state.values);
        self.templates = Some(Templates::new(words, values));
    }

    /// Acts on news of templates, as far as the run goes on with it.
    pub(super) async fn reconfigure(&mut self, news: TemplateNews, handle: &TaskHandle) -> Following {
        let (reaction, text) = match news {
            TemplateNews::Message(text) => {
                self.say_of_template(text).await;
                return Following::Nothing;
            }
            TemplateNews::InUse(versions) => {
                if self.note_values(versions) {
                    self.keep().await;
                    self.tell().await;
                }
                return Following::Nothing;
            }
            TemplateNews::Kept(text, is_stopped) => {
                if is_stopped {
                    let said = format!("task {}: {text}", self.plan.task.name);
                    self.env.events.emit(&self.plan.allocation, Reason::ValuesHeldBack, said);
                }
                self.say_of_template(text).await;
                return Following::Nothing;
            }
            TemplateNews::Changed(reaction, text) => (reaction, text),
        };
        if reaction.restart {
            return Following::Restart(text);
        }
        for signal in &reaction.signals {
            match self.signal(signal, &handle.id, &text).await {
                Ok(()) => {}
                Err(CommandError::NotRunning) => {
                    self.say_of_template(format!("{text}: the task does not run, {signal} is not sent")).await;
                }
                Err(error) => return Following::Failure(format!("{text}: {signal} cannot be sent: {error}")),
            }
        }
        let Some(templates) = &self.templates else { return Following::Nothing };
        let commands = reaction.scripts.iter().map(|place| templates.command(*place)).collect::<Result<Vec<_>, _>>();
        match commands {
            Ok(commands) if commands.is_empty() => Following::Nothing,
            Ok(commands) => Following::Script(self.scripts(commands, handle)),
            Err(reason) => Following::Failure(reason),
        }
    }

    /// Takes in which values are in use now; whether that is another set.
    pub(super) fn note_values(&mut self, versions: ValueVersions) -> bool {
        let now = self.env.clock.now();
        let in_use = &self.record.state.values;
        let since = |key: &String, version: &String| {
            in_use.get(key).filter(|known| known.version == *version).map_or(now, |known| known.since)
        };
        let next: BTreeMap<String, ValuesInUse> = versions
            .into_iter()
            .map(|(key, version)| {
                let since = since(&key, &version);
                (key, ValuesInUse { version, since })
            })
            .collect();
        let is_news = *in_use != next;
        self.record.state.values = next;
        is_news
    }

    fn scripts(&self, commands: Vec<ChangeCommand>, handle: &TaskHandle) -> Script {
        let (task, prober) = (self.plan.task.name.clone(), self.env.machine.prober.clone());
        let place = TaskPlace { handle: handle.clone(), dir: self.plan.dir.task(&task) };
        async move {
            let mut ends = Vec::new();
            for ChangeCommand { command, timeout, is_fatal } in commands {
                let name = command.first().cloned().unwrap_or_default();
                let probe = Probe::Script(ScriptProbe { task: task.clone(), command });
                let answer = tokio::time::timeout(timeout, prober.probe(&probe, &place)).await.ok();
                ends.push(ScriptEnd { command: name, answer, is_fatal });
            }
            ends
        }
        .boxed()
    }

    /// Says how scripts ended; some: the task ends because of one.
    pub(super) async fn note_script(&mut self, ends: Vec<ScriptEnd>) -> Option<String> {
        for ScriptEnd { command, answer, is_fatal } in ends {
            let is_well = answer.as_ref().is_some_and(|answer| answer.state == CheckState::Success);
            let how = match &answer {
                None => "took longer than its timeout",
                Some(_) if is_well => "has ended well",
                // What it prints may be a secret, and follows on its code: it stays in the task.
                Some(answer) if answer.output.starts_with(EXIT_CODE) => {
                    answer.output.split(':').next().unwrap_or_default()
                }
                Some(answer) => &answer.output,
            };
            let text = format!("script {command}: {how}");
            if is_well {
                self.say_of_template(text).await;
            } else if is_fatal {
                return Some(text);
            } else {
                self.push(task_event::plain(Type::TaskHookFailed, self.env.clock.now(), format!("templates: {text}")));
                self.keep().await;
                self.tell().await;
            }
        }
        None
    }

    /// Tells something of the task's templates, or of what it lists.
    pub(super) async fn say_of_template(&mut self, text: String) {
        self.push(task_event::plain(Type::Template, self.env.clock.now(), text));
        self.keep().await;
        self.tell().await;
    }
}
