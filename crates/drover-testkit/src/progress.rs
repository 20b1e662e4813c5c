//! Shows people that something is going on: one line per long step, with the time that it takes.
//!
//! On a terminal each running step has a spinner or a bar. Elsewhere a step is one line when it starts and one when it
//! ends. Steps are also plain data ([`Event`]), so that a background process can send them to the command that waits
//! for it. What is shown goes to stderr: stdout belongs to results.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

/// What happens to a step, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum Event {
    /// A step begins.
    Started {
        /// Number of the step within its process.
        id: u64,
        /// What it does, in words.
        title: String,
    },
    /// A step has got further.
    Moved {
        /// Number of the step.
        id: u64,
        /// What it does right now.
        detail: String,
        /// How far it is, when that can be counted.
        position: u64,
        /// Where it ends; zero when unknown.
        length: u64,
    },
    /// A step has ended.
    Ended {
        /// Number of the step.
        id: u64,
        /// What came of it.
        detail: String,
        /// Whether it did what it should.
        is_success: bool,
    },
    /// A line for people that belongs to no step.
    Note {
        /// The line.
        text: String,
    },
    /// Everything that was asked for is done; the text says how to go on. Goes to stdout.
    Finished {
        /// What to print.
        text: String,
    },
    /// It could not be done.
    Failed {
        /// Why, and what helps.
        text: String,
    },
}

/// Where steps are shown. Cheap to clone.
#[derive(Clone)]
pub struct Progress {
    sink: Arc<Mutex<Sink>>,
    next_id: Arc<AtomicU64>,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Progress")
    }
}

enum Sink {
    Silent,
    Plain(BTreeMap<u64, Shown>),
    Terminal(MultiProgress, BTreeMap<u64, (Shown, ProgressBar)>),
    Json,
}

struct Shown {
    title: String,
    started: Instant,
}

impl Progress {
    /// Shows steps on stderr: live on a terminal, as plain lines elsewhere.
    pub fn for_people() -> Self {
        let is_live = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self::with(if is_live {
            Sink::Terminal(MultiProgress::new(), BTreeMap::new())
        } else {
            Sink::Plain(BTreeMap::new())
        })
    }

    /// Writes every event as one line of JSON to stdout, for the process that started this one.
    pub fn for_parent() -> Self {
        Self::with(Sink::Json)
    }

    /// Shows nothing.
    pub fn silent() -> Self {
        Self::with(Sink::Silent)
    }

    fn with(sink: Sink) -> Self {
        Self { sink: Arc::new(Mutex::new(sink)), next_id: Arc::new(AtomicU64::new(0)) }
    }

    /// Begins a step.
    pub fn step(&self, title: impl Into<String>) -> Step {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.show(Event::Started { id, title: title.into() });
        Step { progress: self.clone(), id, has_ended: false }
    }

    /// Shows a line that belongs to no step.
    pub fn note(&self, text: impl Into<String>) {
        self.show(Event::Note { text: text.into() });
    }

    /// Shows an event, also one of another process.
    pub fn show(&self, event: Event) {
        let mut sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *sink {
            Sink::Silent => {}
            Sink::Json => {
                if let Ok(line) = serde_json::to_string(&event) {
                    print_line(&line);
                }
            }
            Sink::Plain(steps) => show_plain(steps, event),
            Sink::Terminal(bars, steps) => show_live(bars, steps, event),
        }
    }
}

/// A step that is being shown. Dropped before [`Step::done`], it counts as failed.
#[must_use]
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    id: u64,
    has_ended: bool,
}

impl Step {
    /// Says what the step does right now.
    pub fn detail(&self, detail: impl Into<String>) {
        self.moved(detail, 0, 0);
    }

    /// Says how far the step is, for a bar.
    pub fn moved(&self, detail: impl Into<String>, position: u64, length: u64) {
        self.progress.show(Event::Moved { id: self.id, detail: detail.into(), position, length });
    }

    /// Ends the step well.
    pub fn done(mut self, detail: impl Into<String>) {
        self.end(detail.into(), true);
    }

    fn end(&mut self, detail: String, is_success: bool) {
        self.has_ended = true;
        self.progress.show(Event::Ended { id: self.id, detail, is_success });
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(String::new(), false);
        }
    }
}

/// Prints one line to stdout. A reader that has gone away is no error: the work goes on without it.
pub fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).ok();
}

/// Prints one line to stderr; as for [`print_line`], a reader is not needed.
pub fn print_note(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}

fn show_plain(steps: &mut BTreeMap<u64, Shown>, event: Event) {
    match event {
        Event::Started { id, title } => {
            print_note(&format!("... {title}"));
            steps.insert(id, Shown { title, started: Instant::now() });
        }
        Event::Moved { .. } => {}
        Event::Ended { id, detail, is_success } => {
            if let Some(shown) = steps.remove(&id) {
                print_note(&ended_line(&shown, &detail, is_success));
            }
        }
        Event::Note { text } => print_note(&text),
        Event::Finished { text } => print_line(&text),
        Event::Failed { text } => print_note(&format!("error: {text}")),
    }
}

fn show_live(bars: &MultiProgress, steps: &mut BTreeMap<u64, (Shown, ProgressBar)>, event: Event) {
    match event {
        Event::Started { id, title } => {
            let bar = bars.add(ProgressBar::new_spinner().with_style(spinner_style()).with_prefix(title.clone()));
            bar.enable_steady_tick(Duration::from_millis(120));
            steps.insert(id, (Shown { title, started: Instant::now() }, bar));
        }
        Event::Moved { id, detail, position, length } => {
            let Some((_, bar)) = steps.get(&id) else { return };
            if length > 0 {
                bar.set_style(bar_style());
                bar.set_length(length);
                bar.set_position(position.min(length));
            }
            bar.set_message(detail);
        }
        Event::Ended { id, detail, is_success } => {
            if let Some((shown, bar)) = steps.remove(&id) {
                bar.finish_and_clear();
                bars.println(ended_line(&shown, &detail, is_success)).ok();
            }
        }
        Event::Note { text } => bars.println(text).unwrap_or_default(),
        Event::Finished { text } => bars.suspend(|| print_line(&text)),
        Event::Failed { text } => bars.suspend(|| print_note(&format!("error: {text}"))),
    }
}

fn ended_line(shown: &Shown, detail: &str, is_success: bool) -> String {
    let mark = if is_success { "ok " } else { "ERR" };
    let seconds = shown.started.elapsed().as_secs_f64();
    let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
    format!("{mark} {}{detail} ({seconds:.1} s)", shown.title)
}

fn spinner_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} [{bar:24}] {pos}/{len} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_the_way_to_the_waiting_process() {
        let event = Event::Moved { id: 3, detail: "2 of 3 healthy".to_owned(), position: 2, length: 3 };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(line, r#"{"event":"moved","id":3,"detail":"2 of 3 healthy","position":2,"length":3}"#);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn the_end_of_a_step_says_what_came_of_it_and_how_long_it_took() {
        let shown = Shown { title: "starting etcd".to_owned(), started: Instant::now() };
        assert_eq!(ended_line(&shown, "pid 7", true), "ok  starting etcd: pid 7 (0.0 s)");
        assert_eq!(ended_line(&shown, "", false), "ERR starting etcd (0.0 s)");
    }
}
