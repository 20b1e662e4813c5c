//! All templates of a task, over all its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_core::rolling;
use drover_core::task::environment;
use drover_core::task::template::{self, ChangeReaction, reaction, script_timeout};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::super::hook_error::TaskHookError;
use super::super::values::{QUIET_FOR, SecretWords, TaskValues, ValueVersions, change_until, named};
use super::rendering::{self, Problem};
use super::template_file::{TemplateFile, TextDigest};
use crate::node::beneath::nobody;
use crate::node::task_file::{NewFile, TaskFile};
use crate::tasks::task_words::TaskWords;

/// How often a start looks again for a file that a template waits for.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The longest text that is looked at again after the agent was away.
const MAX_TEXT_BYTES: u64 = 64 * 1024 * 1024;

/// The templates of a task, from its first start to its end.
#[derive(Debug)]
pub(crate) struct Templates {
    words: TaskWords,
    /// What the task lists; none: nothing.
    values: Option<TaskValues>,
    /// None: the agent was away, and what the task lists is not known yet.
    set: Option<TemplateSet>,
    /// When what has changed is acted on.
    acts_at: Option<Instant>,
    /// When the start began that waits.
    since: Instant,
    /// What was told last.
    shown: Option<String>,
    /// The changes of values that the templates know of.
    n_changes: u64,
    /// What was told last of values that come in turn.
    turns: TurnNews,
}

/// What was told of values that come in turn.
#[derive(Debug, Default)]
struct TurnNews {
    in_use: ValueVersions,
    kept: Option<(String, bool)>,
}

#[derive(Debug)]
struct TemplateSet {
    /// The task's environment, but for what devices and templates add.
    env: BTreeMap<String, String>,
    files: Vec<TemplateFile>,
    /// Templates whose scripts run as soon as the task does.
    first_scripts: Vec<usize>,
}

/// What comes of preparing a start.
#[derive(Debug)]
pub(crate) enum Preparation {
    /// The files are there. What is told of them.
    Ready(Vec<String>),
    /// Something is missing, and it is time to say so.
    Missing(String),
}

/// News of the templates of a task that runs.
#[derive(Debug)]
pub(crate) enum TemplateNews {
    /// Files have changed, and this follows. The text names them.
    Changed(ChangeReaction, String),
    /// Something is to be told.
    Message(String),
    /// These versions have taken effect; nothing more follows on them.
    InUse(ValueVersions),
    /// There are newer values, and they are not given to this task: why, and whether that needs a person.
    Kept(String, bool),
}

/// A command that follows on a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeCommand {
    pub(crate) command: Vec<String>,
    pub(crate) timeout: Duration,
    /// Its failure ends the task.
    pub(crate) is_fatal: bool,
}

/// What a rendering is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Start,
    Change,
}

impl Templates {
    /// Those of a task of which nothing is rendered yet, or nothing is known.
    pub(crate) fn new(words: TaskWords, values: Option<TaskValues>) -> Self {
        let since = Instant::now();
        Self { words, values, set: None, acts_at: None, since, shown: None, n_changes: 0, turns: TurnNews::default() }
    }

    /// The values, for a start that waits for them; [`Self::begin_run`] takes them back.
    pub(crate) fn take_values(&mut self) -> Option<TaskValues> {
        self.values.take()
    }

    /// Begins a start: `secrets` are the words that its references stand for. What was to follow on a change does not,
    /// because the new run reads everything.
    ///
    /// # Errors
    /// When a field of a template is wrong.
    pub(crate) fn begin_run(
        &mut self,
        words: TaskWords,
        values: Option<TaskValues>,
        (secrets, renders_again): (&SecretWords, bool),
    ) -> Result<(), TaskHookError> {
        (self.words, self.values) = (words, values);
        (self.since, self.shown, self.acts_at) = (Instant::now(), None, None);
        let env = self.words.variables(secrets).map_err(|reason| failed(reason, false))?;
        match &mut self.set {
            None => self.set = Some(TemplateSet::new(&self.words, env).map_err(|reason| failed(reason, false))?),
            Some(set) => {
                set.env = env;
                for file in &mut set.files {
                    file.is_changed = false;
                    if renders_again {
                        file.rendered = None;
                    }
                }
            }
        }
        Ok(())
    }

    /// Renders what a start needs, until all is there or it is time to say what is missing. May be dropped and called
    /// again.
    ///
    /// # Errors
    /// When a template cannot be rendered so. Another try may help, for what it looks at may change.
    pub(crate) async fn prepare(&mut self) -> Result<Preparation, TaskHookError> {
        loop {
            self.take_in();
            let Some(set) = &mut self.set else { return Ok(Preparation::Ready(Vec::new())) };
            let earlier: Vec<Option<TextDigest>> = set.files.iter().map(|file| file.rendered).collect();
            let is_wanted = |file: &TemplateFile| file.rendered.is_none() || file.changes.is_some();
            let places: Vec<usize> = (0..set.files.len()).filter(|place| is_wanted(&set.files[*place])).collect();
            let problems = set.render(&self.words, self.values.as_ref(), &places, Purpose::Start).await;
            let (blocking, others): (Vec<_>, Vec<_>) =
                problems.into_iter().partition(|(place, _)| set.files[*place].rendered.is_none());
            if let Some(reason) = blocking.iter().find_map(|(place, problem)| set.failure(*place, problem)) {
                return Err(failed(reason, true));
            }
            let said = blocking.is_empty().then(|| {
                let kept = others.iter().map(|(place, problem)| set.kept(*place, problem));
                set.unsignalled(&earlier).into_iter().chain(kept).collect()
            });
            self.look_up(blocking.iter().chain(&others));
            if let Some(said) = said {
                return Ok(Preparation::Ready(said));
            }
            let text = waited_for(&blocking);
            let (now, is_news) = (Instant::now(), self.shown.as_ref() != Some(&text));
            if is_news && now >= self.since + QUIET_FOR {
                self.shown = Some(text.clone());
                return Ok(Preparation::Missing(text));
            }
            let of_file = blocking.iter().any(|(_, problem)| matches!(problem, Problem::Missing(it) if it.is_of_file));
            let wakes = [is_news.then_some(self.since + QUIET_FOR), of_file.then_some(now + LOOK_EVERY)];
            change_until(&mut self.values, wakes.into_iter().flatten().min()).await;
        }
    }

    /// The variables that rendered files give, the later ones over the earlier.
    pub(crate) fn variables(&self) -> BTreeMap<String, String> {
        let files = self.set.iter().flat_map(|set| &set.files);
        files.flat_map(|file| file.variables.clone()).collect()
    }

    /// Waits for news of files that change while the task runs. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> TemplateNews {
        loop {
            if self.set.is_none() {
                if let Some(text) = self.find_again().await {
                    return TemplateNews::Message(text);
                }
                continue;
            }
            if let Some(at) = self.acts_at {
                tokio::time::sleep_until(at).await;
            }
            self.take_in();
            let Some(set) = &mut self.set else { continue };
            if let Some((reaction, text)) = set.due_reaction(self.acts_at.take().is_some()) {
                return TemplateNews::Changed(reaction, text);
            }
            if let Some(news) = self.news_of_turns() {
                return news;
            }
            let Some(set) = &mut self.set else { continue };
            let now = Instant::now();
            let is_due = |file: &TemplateFile| file.due().is_some_and(|due| due <= now);
            let places: Vec<usize> = (0..set.files.len()).filter(|place| is_due(&set.files[*place])).collect();
            let problems = set.render(&self.words, self.values.as_ref(), &places, Purpose::Change).await;
            if let Some(splay) = set.splay() {
                self.acts_at = Some(Instant::now() + self.words.runner_env().random.below(splay));
            }
            // What is looked up for the first time since the agent came back has had no time to come.
            let is_told = |problem: &Problem| !matches!(problem, Problem::Missing(it) if !it.unfollowed.is_empty());
            let kept = problems.iter().filter(|(_, problem)| is_told(problem));
            let text = kept.map(|(place, problem)| set.kept(*place, problem)).collect::<Vec<_>>().join("; ");
            let due = set.files.iter().filter_map(TemplateFile::due).min();
            self.look_up(problems.iter());
            if !places.is_empty() {
                let is_news = !text.is_empty() && self.shown.as_ref() != Some(&text);
                self.shown = Some(text.clone()).filter(|text| !text.is_empty());
                if is_news {
                    return TemplateNews::Message(text);
                }
            } else if self.acts_at.is_none() {
                change_until(&mut self.values, due).await;
            }
        }
    }

    /// The versions that a run begins with; none: values do not come in turn, or a file is older than they are.
    pub(crate) fn begins_with(&mut self) -> Option<ValueVersions> {
        let is_settled = self.is_rolling() && self.set.as_ref().is_some_and(TemplateSet::is_settled);
        let versions = self.values.as_ref().filter(|_| is_settled)?.versions();
        self.turns.in_use.clone_from(&versions);
        Some(versions)
    }

    fn is_rolling(&self) -> bool {
        rolling::is_rolling(&self.words.plan().task)
    }

    /// What is to be told of values that come in turn.
    fn news_of_turns(&mut self) -> Option<TemplateNews> {
        let values = self.values.as_ref().filter(|_| self.is_rolling())?;
        let kept = values.kept();
        if self.turns.kept != kept {
            self.turns.kept.clone_from(&kept);
            if let Some((text, is_stopped)) = kept {
                return Some(TemplateNews::Kept(text, is_stopped));
            }
        }
        let is_settled = self.acts_at.is_none() && self.set.as_ref().is_some_and(TemplateSet::is_settled);
        let versions = is_settled.then(|| values.versions()).filter(|versions| *versions != self.turns.in_use)?;
        self.turns.in_use.clone_from(&versions);
        Some(TemplateNews::InUse(versions))
    }

    /// The command that follows on a change of the template at this place.
    ///
    /// # Errors
    /// When it refers to something that is not known.
    pub(crate) fn command(&self, place: usize) -> Result<ChangeCommand, String> {
        let none = || "the template has no changeScript".to_owned();
        let set = self.set.as_ref().ok_or_else(none)?;
        let file = set.files.get(place).ok_or_else(none)?;
        let script = file.template.change_script.as_ref().ok_or_else(none)?;
        let facts = self.words.node();
        let words = std::iter::once(&script.command).chain(&script.args);
        let expanded = words.map(|word| environment::interpolate(word, &set.env, &facts));
        Ok(ChangeCommand {
            command: expanded.collect::<Result<_, _>>().map_err(|error| format!("changeScript: {error}"))?,
            timeout: script_timeout(&file.template),
            is_fatal: script.fail_on_error,
        })
    }

    /// Begins to follow what renderings have looked up.
    fn look_up<'a>(&mut self, problems: impl Iterator<Item = &'a (usize, Problem)>) {
        let unfollowed = problems.filter_map(|(_, problem)| match problem {
            Problem::Missing(missing) => Some(missing.unfollowed.iter().cloned()),
            Problem::MissingKey(_) | Problem::Failed(_) => None,
        });
        let objects = unfollowed.flatten().collect();
        if let Some(values) = &mut self.values {
            values.look_up(&*self.words.runner_env().machine.values, self.words.plan(), objects);
        }
    }

    /// Takes in what values have become.
    fn take_in(&mut self) {
        let now = Instant::now();
        let n_changes = self.values.as_mut().map_or(0, TaskValues::take_in);
        if std::mem::replace(&mut self.n_changes, n_changes) != n_changes {
            for file in self.set.iter_mut().flat_map(|set| &mut set.files) {
                file.note_change(now);
            }
        }
    }

    /// After the agent was away from a task that runs: what its files are is what they were. Some: what is in the way.
    async fn find_again(&mut self) -> Option<String> {
        loop {
            self.take_in();
            if self.values.as_ref().is_none_or(TaskValues::are_known) {
                let secrets = self.values.as_ref().map_or(Ok(SecretWords::new()), |it| it.words(self.words.plan()));
                let env = secrets.map_err(|error| error.reason).and_then(|secrets| self.words.variables(&secrets));
                match env.and_then(|env| TemplateSet::new(&self.words, env)) {
                    Ok(set) => {
                        self.set = Some(set.found_again(&self.words));
                        return None;
                    }
                    Err(reason) if self.shown.as_ref() != Some(&reason) => {
                        self.shown = Some(reason.clone());
                        return Some(format!("templates are not rendered again: {reason}"));
                    }
                    Err(_) => {}
                }
            }
            change_until(&mut self.values, None).await;
        }
    }
}

impl TemplateSet {
    fn new(words: &TaskWords, env: BTreeMap<String, String>) -> Result<Self, String> {
        let paths = words.paths();
        let file = |(n, template)| {
            TemplateFile::new(template, words, &env, &paths).map_err(|reason| format!("templates[{n}]: {reason}"))
        };
        let files = words.plan().task.templates.iter().enumerate().map(file).collect::<Result<_, _>>()?;
        Ok(Self { env, files, first_scripts: Vec::new() })
    }

    /// Whether all files are of the newest values, and nothing follows on them any more.
    fn is_settled(&self) -> bool {
        let is_open = |file: &TemplateFile| file.changes.is_some() || file.is_changed || file.is_kept;
        self.first_scripts.is_empty() && !self.files.iter().any(is_open)
    }

    /// With what an earlier life has rendered, to be rendered again soon.
    fn found_again(mut self, words: &TaskWords) -> Self {
        let (plan, now) = (words.plan(), Instant::now());
        for file in &mut self.files {
            let there = TaskFile { dir: &plan.dir, task: &plan.task.name, path: &file.destination };
            if let Ok(text) = words.runner_env().machine.disk.read_file(&there, MAX_TEXT_BYTES) {
                file.rendered = Some(Sha256::digest(&text).into());
                if file.template.envvars {
                    file.variables = template::variables(&text).unwrap_or_default();
                }
            }
            file.note_change(now);
        }
        self
    }

    /// Renders templates and puts their files in place; what is in the way of some.
    async fn render(
        &mut self,
        words: &TaskWords,
        values: Option<&TaskValues>,
        places: &[usize],
        purpose: Purpose,
    ) -> Vec<(usize, Problem)> {
        let mut problems = Vec::new();
        if places.is_empty() {
            return problems;
        }
        let looked_at = rendering::values(words, &self.env, values);
        for &place in places {
            let rendered = rendering::render(&self.files[place], words, &looked_at, values).await;
            let file = &mut self.files[place];
            file.changes = None;
            let is_first = file.rendered.is_none();
            let done = rendered.and_then(|text| put(file, words, &text, purpose).map_err(Problem::Failed));
            file.is_kept = done.is_err();
            if let Err(problem) = done {
                problems.push((place, problem));
                continue;
            }
            let script = file.template.change_script.as_ref();
            if is_first && purpose == Purpose::Start && script.is_some_and(|it| it.run_on_first_render) {
                self.first_scripts.push(place);
            }
        }
        problems
    }

    /// What follows now: on a first rendering, or, once its time has come, on changed files. The text names them.
    fn due_reaction(&mut self, is_time: bool) -> Option<(ChangeReaction, String)> {
        let scripts = std::mem::take(&mut self.first_scripts);
        if !scripts.is_empty() {
            let text = self.names(&scripts);
            return Some((ChangeReaction { scripts, ..ChangeReaction::default() }, format!("{text} rendered")));
        }
        let changed: Vec<usize> = (0..self.files.len()).filter(|place| self.files[*place].is_changed).collect();
        if !is_time || changed.is_empty() {
            return None;
        }
        let reaction = self.reaction();
        let text = format!("{} changed", self.names(&changed));
        for place in changed {
            self.files[place].is_changed = false;
        }
        Some((reaction, text))
    }

    fn reaction(&self) -> ChangeReaction {
        reaction(self.files.iter().enumerate().filter(|(_, file)| file.is_changed).map(|(n, file)| (n, &file.template)))
    }

    /// The longest wait before what follows on changed files; none: nothing follows.
    fn splay(&mut self) -> Option<Duration> {
        let reaction = self.reaction();
        if reaction.is_nothing() {
            self.files.iter_mut().for_each(|file| file.is_changed = false);
            return None;
        }
        Some(reaction.splay)
    }

    fn names(&self, places: &[usize]) -> String {
        let names = places.iter().map(|place| self.files[*place].template.dest_path.clone());
        format!("template {}", names.collect::<Vec<_>>().join(", "))
    }

    /// Why a start fails, if it does and does not only wait.
    fn failure(&self, place: usize, problem: &Problem) -> Option<String> {
        match problem {
            Problem::Missing(_) | Problem::MissingKey(_) => None,
            // The engine names the template itself.
            Problem::Failed(reason) => {
                let name = &self.files[place].template.dest_path;
                Some(if reason.starts_with(&format!("{name}:")) { reason.clone() } else { format!("{name}: {reason}") })
            }
        }
    }

    /// That a file stays as it was, and why.
    fn kept(&self, place: usize, problem: &Problem) -> String {
        let why = match problem {
            Problem::Missing(missing) => named(missing.names.iter().cloned()),
            Problem::MissingKey(reason) | Problem::Failed(reason) => reason.clone(),
        };
        format!("{} stays as it was: {why}", self.files[place].template.dest_path)
    }

    /// Signals that are not sent on changes since `earlier`, because the task does not run.
    fn unsignalled(&self, earlier: &[Option<TextDigest>]) -> Vec<String> {
        let changed = self.files.iter().zip(earlier).filter(|(file, was)| was.is_some() && file.rendered != **was);
        let signals = changed.filter(|(file, _)| !file.template.change_signal.is_empty());
        let text = |file: &TemplateFile| {
            format!(
                "template {} changed: the task does not run, {} is not sent",
                file.template.dest_path, file.template.change_signal
            )
        };
        signals.map(|(file, _)| text(file)).collect()
    }
}

/// Puts a text in its place, if it is another one.
fn put(file: &mut TemplateFile, words: &TaskWords, text: &[u8], purpose: Purpose) -> Result<(), String> {
    let digest: TextDigest = Sha256::digest(text).into();
    if file.rendered == Some(digest) {
        return Ok(());
    }
    let variables = if file.template.envvars {
        template::variables(text).map_err(|error| format!("its variables cannot be read: {error}"))?
    } else {
        BTreeMap::new()
    };
    let plan = words.plan();
    let owner_of_dirs = plan.owner.or_else(nobody);
    let new = NewFile { bytes: text, mode: file.mode, owner: file.owner, owner_of_dirs };
    let place = TaskFile { dir: &plan.dir, task: &plan.task.name, path: &file.destination };
    let replaced = words.runner_env().machine.disk.replace_file(&place, &new);
    replaced.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::StorageFull => "; give the task a larger resources.secretsMB, or render into local/",
            _ => "",
        };
        format!("it cannot be written: {error}{hint}")
    })?;
    (file.rendered, file.variables) = (Some(digest), variables);
    file.is_changed |= purpose == Purpose::Change;
    Ok(())
}

/// What a start waits for, over all templates.
fn waited_for(problems: &[(usize, Problem)]) -> String {
    let (mut missing, mut keys) = (BTreeSet::new(), Vec::new());
    for (_, problem) in problems {
        match problem {
            Problem::Missing(it) => missing.extend(it.names.iter().cloned()),
            Problem::MissingKey(reason) | Problem::Failed(reason) => keys.push(reason.clone()),
        }
    }
    let missing = (!missing.is_empty()).then(|| named(missing.into_iter()));
    missing.into_iter().chain(keys).collect::<Vec<_>>().join("; ")
}

fn failed(reason: String, is_recoverable: bool) -> TaskHookError {
    TaskHookError { hook: "templates", reason, is_recoverable }
}
