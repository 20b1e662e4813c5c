//! Documents as tests read them: the blocks of commands with the output that they show, and the manifests.
//!
//! A block is fenced as `console` and stands after a line that says where it runs, as `<!-- runs: cluster -->`. In it,
//! a line that begins with `$ ` is a command; what follows is its whole output, on whichever stream. [`matches()`] says
//! what stands for output that differs from run to run. Must never know what a command does.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::shell::Shell;
use crate::workspace;

/// Stands for what differs from run to run: alone on a line for any lines, or none; inside of a line for any text in
/// it.
const ANY: &str = "...";

/// A line of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentLine<'a> {
    /// Text.
    Text(&'a str),
    /// A fence that opens a block, with the block's language.
    Opens(&'a str),
    /// Inside of a block, with the block's language.
    Code(&'a str, &'a str),
    /// A fence that closes a block.
    Closes,
}

/// A document, by its path from the root of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its path.
    pub path: String,
    /// What stands in it.
    pub text: String,
}

/// A command of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Where its block runs.
    pub place: String,
    /// The number of its line.
    pub line: usize,
    /// What a user types.
    pub text: String,
    /// What comes, as the document shows it.
    pub output: String,
}

/// A manifest that a document shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The number of its first line.
    pub line: usize,
    /// The manifest.
    pub text: String,
}

impl Document {
    /// The documents that show commands to users: README, and what lies in `docs/` itself.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read_all() -> Result<Vec<Self>> {
        let root = workspace::root();
        let mut paths = vec!["README.md".to_owned()];
        for entry in fs::read_dir(root.join("docs")).context("reading docs")? {
            let name = entry.context("reading docs")?.file_name().to_string_lossy().into_owned();
            let is_document = Path::new(&name).extension().is_some_and(|extension| extension == "md");
            paths.extend(is_document.then(|| format!("docs/{name}")));
        }
        paths.sort_unstable();
        let read = |path: String| {
            let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {path}"))?;
            Ok(Self { path, text })
        };
        paths.into_iter().map(read).collect()
    }

    /// Runs its commands of these places, until one fails or does something else than what stands there; says which.
    pub fn difference(&self, shell: &mut Shell, places: &[&str], limit: Duration) -> Option<String> {
        commands(&self.text, places).into_iter().find_map(|Command { line, text, output, .. }| {
            let got = match shell.run(&text, limit) {
                Ok(got) if got.code == 0 && matches(&output, &got.text) => return None,
                Ok(got) => format!("{}(exit code {})", got.text, got.code),
                Err(error) => format!("{error:#}"),
            };
            Some(format!("{}:{line}: $ {text}\nwanted:\n{output}\ngot:\n{got}\n", self.path))
        })
    }
}

/// The lines of a document with their numbers, from 1 on.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, DocumentLine<'_>)> {
    let mut language = None;
    text.lines().enumerate().map(move |(n, line)| {
        let fence = line.trim_start().strip_prefix("```");
        let kind = match (language, fence) {
            (None, None) => DocumentLine::Text(line),
            (None, Some(opened)) => {
                language = Some(opened.trim());
                DocumentLine::Opens(opened.trim())
            }
            (Some(inside), None) => DocumentLine::Code(inside, line),
            (Some(_), Some(_)) => {
                language = None;
                DocumentLine::Closes
            }
        };
        (n + 1, kind)
    })
}

/// Where a block runs, by the line before it.
pub fn place(line: &str) -> Option<&str> {
    Some(line.strip_prefix("<!-- runs:")?.strip_suffix("-->")?.trim())
}

/// The commands of a document that run in one of these places, in order.
pub fn commands(text: &str, places: &[&str]) -> Vec<Command> {
    let mut found: Vec<Command> = Vec::new();
    let (mut before, mut here) = ("", None);
    for (line, kind) in lines(text) {
        match kind {
            DocumentLine::Text(text) => before = text.trim(),
            DocumentLine::Opens("console") => here = place(before).filter(|place| places.contains(place)),
            DocumentLine::Code("console", text) => {
                let Some(place) = here else { continue };
                if let Some(text) = text.strip_prefix("$ ") {
                    let (place, text) = (place.to_owned(), text.to_owned());
                    found.push(Command { place, line, text, output: String::new() });
                } else if let Some(command) = found.last_mut() {
                    command.output.extend([text, "\n"]);
                }
            }
            DocumentLine::Closes => (before, here) = ("", None),
            DocumentLine::Opens(_) | DocumentLine::Code(..) => {}
        }
    }
    found
}

/// The manifests of a document: its blocks of YAML that name an `apiVersion`.
pub fn manifests(text: &str) -> Vec<Manifest> {
    let mut found: Vec<Manifest> = Vec::new();
    for (line, kind) in lines(text) {
        match kind {
            DocumentLine::Opens("yaml") => found.push(Manifest { line: line + 1, text: String::new() }),
            DocumentLine::Code("yaml", text) => found.iter_mut().last().into_iter().for_each(|last| {
                last.text += text;
                last.text.push('\n');
            }),
            DocumentLine::Text(_) | DocumentLine::Opens(_) | DocumentLine::Code(..) | DocumentLine::Closes => {}
        }
    }
    found.retain(|manifest| manifest.text.lines().any(|line| line.starts_with("apiVersion:")));
    found
}

/// Whether an output is what a document shows. A line `...` stands for any lines, `...` inside of a line for any text.
/// A run of spaces counts as one, because columns are as wide as what they hold; and what [`scrubbed()`] leaves out may
/// differ.
pub fn matches(shown: &str, output: &str) -> bool {
    let [shown, output] =
        [shown, output].map(|text| scrubbed(text).trim_end().lines().map(squeezed).collect::<Vec<_>>());
    lines_match(&shown, &output)
}

/// Times (`4s`, `1m30s`) and the ends of generated names become the same for all runs.
pub fn scrubbed(text: &str) -> String {
    let mut words = Vec::new();
    for line in text.lines() {
        let line: Vec<String> =
            line.split(' ').map(|word| if is_span(word) { "0s".to_owned() } else { without_hash(word) }).collect();
        words.push(line.join(" "));
    }
    words.join("\n")
}

fn is_span(word: &str) -> bool {
    let units = |c: char| c.is_ascii_digit() || c == 'm' || c == 's';
    word.len() > 1
        && word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm'])
        && word.chars().all(units)
}

fn without_hash(word: &str) -> String {
    let parts = word.split('-').map(|part| {
        let hash: String = part.chars().take(8).collect();
        if hash.len() == 8 && hash.chars().all(|c| c.is_ascii_hexdigit()) {
            part.replacen(&hash, "#", 1)
        } else {
            part.to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("-")
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn lines_match(shown: &[String], output: &[String]) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((line, rest)) if line == ANY => (0..=output.len()).any(|n| lines_match(rest, &output[n..])),
        Some((line, rest)) => {
            output.split_first().is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others))
        }
    }
}

fn line_matches(shown: &str, output: &str) -> bool {
    let Some((head, tail)) = shown.split_once(ANY) else { return shown == output };
    let Some(rest) = output.strip_prefix(head) else { return false };
    let starts = rest.char_indices().map(|(n, _)| n).chain([rest.len()]);
    starts.into_iter().any(|n| line_matches(tail, &rest[n..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
text
<!-- runs: cluster -->
```console
$ one
first
second
$ two
```
<!-- runs: up -->
```console
$ three
```
<!-- runs: shell -->
```yaml
apiVersion: v1
kind: A
```
```console
$ unmarked
```
```yaml
kind: B
```
";

    fn texts(places: &[&str]) -> Vec<(usize, String, String)> {
        commands(DOCUMENT, places).into_iter().map(|found| (found.line, found.text, found.output)).collect()
    }

    #[test]
    fn commands_are_found_by_where_they_run() {
        let [one, two] = [(4, "one", "first\nsecond\n"), (7, "two", "")]
            .map(|(line, text, output)| (line, text.to_owned(), output.to_owned()));
        assert_eq!(texts(&["cluster"]), [one.clone(), two.clone()]);
        assert_eq!(texts(&["cluster", "up"]), [one, two, (11, "three".to_owned(), String::new())]);
        assert_eq!(texts(&["shell", "e2e"]), []);
    }

    #[test]
    fn manifests_are_yaml_with_a_version() {
        assert_eq!(manifests(DOCUMENT), [Manifest { line: 15, text: "apiVersion: v1\nkind: A\n".to_owned() }]);
    }

    #[test]
    fn a_block_is_told_from_text() {
        let found: Vec<_> = lines("a\n```yaml\nb\n```\nc").collect();
        let wanted = [
            (1, DocumentLine::Text("a")),
            (2, DocumentLine::Opens("yaml")),
            (3, DocumentLine::Code("yaml", "b")),
            (4, DocumentLine::Closes),
            (5, DocumentLine::Text("c")),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn output_is_compared_line_by_line() {
        assert!(matches("a\nb", "a\nb\n"));
        assert!(!matches("a\nb", "a"));
        assert!(!matches("a", "a\nb"));
        assert!(!matches("a\nb", "b\na"));
        assert!(matches("", "\n"));
        assert!(!matches("", "a"));
    }

    #[test]
    fn columns_may_be_wider_or_narrower() {
        assert!(matches("NAME  AGE\nweb   1s", "NAME        AGE\nweb 1s  "));
        assert!(!matches("NAMEAGE", "NAME AGE"));
    }

    #[test]
    fn times_and_ends_of_names_may_differ() {
        assert!(matches("web-0-dea4d9a3  v1  4s", "web-0-0123abcd  v1  1m30s"));
        assert!(!matches("web-0-dea4d9a3  v1", "web-1-dea4d9a3  v1"));
        assert!(!matches("web-0-dea4d9a3  v1", "web-0-dea4d9a3  v2"));
    }

    #[test]
    fn a_command_that_does_something_else_is_named_with_its_line() {
        let difference = |text: &str| {
            let mut shell = Shell::start(Path::new("/"), []).unwrap();
            let text = format!("<!-- runs: shell -->\n```console\n{text}\n```\n");
            Document { path: "a.md".to_owned(), text }.difference(&mut shell, &["shell"], Duration::from_mins(1))
        };
        assert_eq!(difference("$ A=1\n$ echo $A 1s\n1 2s"), None);
        assert_eq!(
            difference("$ echo right\nright\n$ echo wrong\nright\n$ false").unwrap(),
            "a.md:5: $ echo wrong\nwanted:\nright\n\ngot:\nwrong\n(exit code 0)\n"
        );
        assert!(difference("$ false").unwrap().ends_with("(exit code 1)\n"));
    }

    #[test]
    fn dots_on_a_line_stand_for_any_lines() {
        assert!(matches("...", ""));
        assert!(matches("...", "a\nb"));
        assert!(matches("a\n...\nd", "a\nb\nc\nd"));
        assert!(matches("a\n...\nd", "a\nd"));
        assert!(matches("...\nb", "b\na\nb"));
        assert!(!matches("a\n...\nd", "a\nb"));
        assert!(!matches("...\nb", "b\na"));
    }

    #[test]
    fn dots_in_a_line_stand_for_any_text_of_it() {
        assert!(matches("pod/a-... is ready after ... s", "pod/a-x1 is ready after 12 s"));
        assert!(matches("waiting...", "waiting..."));
        assert!(matches("a...a", "aba"));
        assert!(!matches("a...a", "a"));
        assert!(!matches("pod/... is ready", "pod/a is not\nready"));
    }
}
