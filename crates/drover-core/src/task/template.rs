//! What templates of a task ask for: their settings with the defaults, when changes are taken in, what follows on them,
//! and the variables in a rendered file (`spec/agent.md` 8.2).
//!
//! Must never know: the language of templates, where values come from, files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_api::task::{ChangeMode, Template};

/// The mode of a file whose template names none.
const DEFAULT_PERMISSIONS: u32 = 0o644;
/// The longest random wait of a template that names none.
const DEFAULT_SPLAY: Duration = Duration::from_secs(5);
/// How long changes are collected where the template does not say: at least, and at most.
const DEFAULT_WAIT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(4));
/// No template is rendered more often than that: each time is a process on the node, and who changes a Secret all the
/// time pays for none of them.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
/// How long a script may run that names no limit.
const DEFAULT_SCRIPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The mode of a template's file; none: what it names is no octal number, or more than a mode without setuid, setgid
/// and sticky bits.
pub fn permissions(template: &Template) -> Option<u32> {
    let text = template.perms.as_str();
    if text.is_empty() {
        return Some(DEFAULT_PERMISSIONS);
    }
    let is_octal = text.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777)
}

/// How long the changes of a template's sources are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeWait {
    /// So long nothing more must have changed.
    pub min: Duration,
    /// So long after the first change it is rendered in any case.
    pub max: Duration,
}

impl ChangeWait {
    /// That of a template.
    pub fn of(template: &Template) -> Self {
        let given = template.wait.clone().unwrap_or_default();
        let or = |given: Option<drover_api::GoDuration>, default| given.map_or(default, drover_api::GoDuration::to_std);
        let min = or(given.min, DEFAULT_WAIT.0);
        // A longest wait that is not given follows the shortest.
        let max = if given.max.is_some() { or(given.max, DEFAULT_WAIT.1) } else { DEFAULT_WAIT.1.max(min) };
        Self { min: min.max(SHORTEST_WAIT), max: max.max(SHORTEST_WAIT) }
    }

    /// When it is rendered, after a first change and a newest one.
    pub fn due<T: Copy + Ord + std::ops::Add<Duration, Output = T>>(self, first: T, newest: T) -> T {
        (newest + self.min).min(first + self.max)
    }
}

/// How long a template's script may run.
pub fn script_timeout(template: &Template) -> Duration {
    let given = template.change_script.as_ref().and_then(|script| script.timeout);
    given.map_or(DEFAULT_SCRIPT_TIMEOUT, drover_api::GoDuration::to_std)
}

/// What follows on changed templates of a running task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeReaction {
    /// The task is restarted.
    pub restart: bool,
    /// Signals by their names.
    pub signals: BTreeSet<String>,
    /// Templates, by their place in the list, whose scripts run.
    pub scripts: Vec<usize>,
    /// The longest random wait before.
    pub splay: Duration,
}

impl ChangeReaction {
    /// Whether nothing follows.
    pub fn is_nothing(&self) -> bool {
        !self.restart && self.signals.is_empty() && self.scripts.is_empty()
    }
}

/// What follows on changes of these templates, each with its place in the task's list. A restart makes signals and
/// scripts needless: the new run reads everything.
pub fn reaction<'a>(changed: impl IntoIterator<Item = (usize, &'a Template)>) -> ChangeReaction {
    let mut all = ChangeReaction::default();
    for (place, template) in changed {
        match template.change_mode.unwrap_or_default() {
            ChangeMode::Noop => continue,
            ChangeMode::Restart => all.restart = true,
            ChangeMode::Signal => drop(all.signals.insert(template.change_signal.clone())),
            ChangeMode::Script => all.scripts.push(place),
        }
        let splay = template.splay.map_or(DEFAULT_SPLAY, drover_api::GoDuration::to_std);
        all.splay = all.splay.max(splay);
    }
    if all.restart {
        all.signals.clear();
        all.scripts.clear();
    }
    all
}

/// Why a rendered file gives no variables. It never shows what the line holds, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariablesError {
    /// It is no text.
    #[error("it is no UTF-8 text, of which variables can be read")]
    NoText,
    /// A line is none of `NAME=VALUE`.
    #[error("line {0} is none of NAME=VALUE; correct the template")]
    NoPair(usize),
    /// A name cannot be one.
    #[error("line {0} has a name of other characters than letters, digits, _ . and -; correct the template")]
    Name(usize),
    /// A quote is not closed.
    #[error("line {0} has a quote without its end; correct the template")]
    Quote(usize),
    /// A value has the character NUL.
    #[error("line {0} has a NUL, which no variable can hold")]
    Nul(usize),
}

/// The variables of a rendered file: lines of `NAME=VALUE`, with or without `export`. A value may be in quotes; between
/// double ones `\n`, `\r`, `\t`, `\"`, `\\` and `\$` mean what they mean in a shell. `#` begins a comment at the begin
/// of a line, and behind a blank. A later line wins.
///
/// # Errors
/// Which line is wrong.
pub fn variables(text: &[u8]) -> Result<BTreeMap<String, String>, VariablesError> {
    let text = std::str::from_utf8(text).map_err(|_| VariablesError::NoText)?;
    let mut found = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t'])).unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or(VariablesError::NoPair(number))?;
        let name = name.trim();
        let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '.' | '-');
        if name.is_empty() || !name.chars().all(fits) {
            return Err(VariablesError::Name(number));
        }
        let value = unquoted(value.trim()).ok_or(VariablesError::Quote(number))?;
        if value.contains('\0') {
            return Err(VariablesError::Nul(number));
        }
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

/// A value without its quotes and comment; none: a quote has no end.
fn unquoted(text: &str) -> Option<String> {
    let (mut out, mut chars, mut before) = (String::new(), text.chars(), ' ');
    // Blanks before a comment are no part of the value; those in quotes are.
    let mut kept = 0;
    while let Some(char) = chars.next() {
        match char {
            '#' if before.is_whitespace() => break,
            '\'' => loop {
                match chars.next()? {
                    '\'' => break,
                    inner => out.push(inner),
                }
            },
            '"' => loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => match chars.next()? {
                        'n' => out.push('\n'),
                        'r' => out.push('\r'),
                        't' => out.push('\t'),
                        inner @ ('"' | '\\' | '$') => out.push(inner),
                        inner => out.extend(['\\', inner]),
                    },
                    inner => out.push(inner),
                }
            },
            other => out.push(other),
        }
        if !char.is_whitespace() {
            kept = out.len();
        }
        before = char;
    }
    out.truncate(kept);
    Some(out)
}

#[cfg(test)]
mod tests {
    mod lines;

    use super::*;
    use serde_json::{Value, json};

    fn template(fields: &Value) -> Template {
        let mut all = json!({ "embeddedTmpl": "x", "destPath": "local/x" });
        for (name, value) in fields.as_object().expect("an object") {
            all[name] = value.clone();
        }
        serde_json::from_value(all).expect("a template")
    }

    #[test]
    fn a_152_a_restart_wins_over_signals_and_scripts_and_signals_are_sent_once() {
        let signal = |name: &str| template(&json!({ "changeMode": "signal", "changeSignal": name, "splay": "0s" }));
        let (hup, usr1) = (signal("SIGHUP"), signal("SIGUSR1"));
        let script = template(&json!({ "changeMode": "script", "changeScript": { "command": "x" }, "splay": "9s" }));
        let (restart, noop) = (template(&json!({})), template(&json!({ "changeMode": "noop", "splay": "1h" })));
        let all = [(0, &hup), (1, &usr1), (2, &script), (3, &hup), (4, &noop)];
        let expected = ChangeReaction {
            restart: false,
            signals: ["SIGHUP".to_owned(), "SIGUSR1".to_owned()].into(),
            scripts: vec![2],
            splay: Duration::from_secs(9),
        };
        assert_eq!(reaction(all), expected);
        let with_restart = reaction(all.into_iter().chain([(5, &restart)]));
        assert_eq!(
            with_restart,
            ChangeReaction { restart: true, splay: Duration::from_secs(9), ..ChangeReaction::default() }
        );
        assert!(reaction([(4, &noop)]).is_nothing());
        assert_eq!(reaction([(5, &restart)]).splay, Duration::from_secs(5));
    }

    #[test]
    fn changes_are_collected_until_it_is_quiet_or_their_longest_wait_is_over() {
        let secs = Duration::from_secs;
        let usual = ChangeWait::of(&template(&json!({})));
        assert_eq!((usual.min, usual.max), (secs(5), secs(240)));
        assert_eq!(usual.due(secs(0), secs(0)), secs(5));
        assert_eq!(usual.due(secs(0), secs(100)), secs(105));
        assert_eq!(usual.due(secs(0), secs(239)), secs(240));
        let own = ChangeWait::of(&template(&json!({ "wait": { "min": "10m" } })));
        assert_eq!((own.min, own.max), (secs(600), secs(600)));
        let short = ChangeWait::of(&template(&json!({ "wait": { "min": "0s", "max": "1s" } })));
        assert_eq!(short.due(secs(3), secs(9)), secs(4));
        let none = ChangeWait::of(&template(&json!({ "wait": { "min": "0s", "max": "0s" } })));
        assert_eq!(none.due(secs(3), secs(3)), secs(3) + Duration::from_millis(250));
    }

    #[test]
    fn permissions_are_octal_and_have_no_bits_that_give_another_users_rights() {
        let of = |perms: &str| permissions(&template(&json!({ "perms": perms })));
        assert_eq!((of(""), of("0600"), of("644"), of("777")), (Some(0o644), Some(0o600), Some(0o644), Some(0o777)));
        for wrong in ["4755", "1777", "8", "u+x", "+644", "-1", "0o644", "77777"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_script_has_five_seconds_unless_it_says_otherwise() {
        let of = |script: Value| script_timeout(&template(&json!({ "changeScript": script })));
        assert_eq!(of(json!({ "command": "x" })), Duration::from_secs(5));
        assert_eq!(of(json!({ "command": "x", "timeout": "2m" })), Duration::from_mins(2));
    }

    #[test]
    fn variables_are_lines_of_names_and_values() {
        let text = "# a comment\n\nexport A=1\n B = two words # and why\nC='#\"$x\\n'\nD=\"a\\n\\\"b\\\" \\x\" \nE=\nF=a#b\n\
                    G=pre'q 'post\nA=2\nexported=3\n";
        let found = variables(text.as_bytes()).expect("variables");
        let expected = [
            ("A", "2"),
            ("B", "two words"),
            ("C", "#\"$x\\n"),
            ("D", "a\n\"b\" \\x"),
            ("E", ""),
            ("F", "a#b"),
            ("G", "preq post"),
            ("exported", "3"),
        ];
        assert_eq!(found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_wrong_line_is_named_and_not_shown() {
        for (text, wrong) in [
            ("A=1\nhunter2", VariablesError::NoPair(2)),
            ("hunter 2=x", VariablesError::Name(1)),
            ("=hunter2", VariablesError::Name(1)),
            ("\nA=\"hunter2", VariablesError::Quote(2)),
            ("A='hunter2", VariablesError::Quote(1)),
            ("A=hun\0ter2", VariablesError::Nul(1)),
        ] {
            let found = variables(text.as_bytes()).expect_err(text);
            assert!(!found.to_string().contains("hunter"), "{found}");
            assert_eq!(found, wrong, "{text:?}");
        }
        assert_eq!(variables(&[0xff]), Err(VariablesError::NoText));
    }
}
