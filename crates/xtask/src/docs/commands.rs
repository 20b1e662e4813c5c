//! Whether every command is documented, and every command that a document names exists.

use std::collections::BTreeSet;

use super::documents::{DocumentLine, Documents, code_spans, lines};

/// The document that names all commands of the project.
const PROJECT_COMMANDS: &str = "CONTRIBUTING.md";
/// The document that tells of the past.
const HISTORY: &str = "CHANGELOG.md";

/// Commands of the project that [`PROJECT_COMMANDS`] does not name. (Those of `drover` are in its reference, which is
/// made from its parser.)
pub(super) fn undocumented(documents: &Documents, xtask: &clap::Command) -> Vec<String> {
    let text = documents.text(PROJECT_COMMANDS).unwrap_or_default();
    let named = mentions(text, &["cargo", "xtask"]);
    let is_named = |path: &String| named.iter().any(|one| one == path || one.starts_with(&format!("{path} ")));
    let wanted = paths(xtask).into_iter().filter(|path| !is_named(path));
    wanted.map(|path| format!("{PROJECT_COMMANDS} does not name `cargo xtask {path}`")).collect()
}

/// Commands that a document names and that do not exist. `reference` holds a heading for each command of `drover`.
pub(super) fn unknown(documents: &Documents, reference: &str, xtask: &clap::Command) -> Vec<String> {
    let of_drover: BTreeSet<String> = reference
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(" drover "))
        .map(str::to_owned)
        .collect();
    let of_project = all_paths(xtask);
    let mut findings = Vec::new();
    for (path, text) in documents.iter().filter(|(path, _)| *path != HISTORY) {
        for (program, known) in [(&["drover"][..], &of_drover), (&["cargo", "xtask"][..], &of_project)] {
            for named in mentions(text, program) {
                let exists = known.contains(&named) || known.iter().any(|one| one.starts_with(&format!("{named} ")));
                // What follows a whole command is an argument.
                let is_argument = || named.rsplit_once(' ').is_some_and(|(head, _)| takes_arguments(known, head));
                if !exists && !is_argument() {
                    findings.push(format!("{path}: there is no command `{} {named}`", program.join(" ")));
                }
            }
        }
    }
    findings
}

/// Whether a command is whole without a further word.
fn takes_arguments(known: &BTreeSet<String>, command: &str) -> bool {
    known.contains(command) && !known.iter().any(|one| one.starts_with(&format!("{command} ")))
}

/// The commands that are whole, as `cluster up`.
fn paths(command: &clap::Command) -> BTreeSet<String> {
    let all = all_paths(command);
    all.iter().filter(|path| !all.iter().any(|other| other.starts_with(&format!("{path} ")))).cloned().collect()
}

fn all_paths(command: &clap::Command) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        found.insert(below.get_name().to_owned());
        found.extend(all_paths(below).iter().map(|path| format!("{} {path}", below.get_name())));
    }
    found
}

/// What documents name of a program's commands: one or two words after it, in code and in blocks of commands.
fn mentions(text: &str, program: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in lines(text) {
        match line {
            DocumentLine::Text(line) => code_spans(line).for_each(|span| take(span, program, &mut found)),
            DocumentLine::Code("console", line) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    take(command, program, &mut found);
                }
            }
            DocumentLine::Code(..) | DocumentLine::Opens(_) | DocumentLine::Closes => {}
        }
    }
    found
}

fn take(code: &str, program: &[&str], found: &mut BTreeSet<String>) {
    for part in code.split(['|', '&', ';']) {
        let mut words = part.split_whitespace();
        if !program.iter().all(|wanted| words.next() == Some(*wanted)) {
            continue;
        }
        let is_word = |word: &&str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
        };
        let named: Vec<&str> = words.map(|word| word.trim_end_matches(',')).take_while(is_word).take(2).collect();
        if !named.is_empty() {
            found.insert(named.join(" "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFERENCE: &str = "# Commands\n## drover dump\n## drover job run\n## drover job status\n";

    fn project() -> clap::Command {
        clap::Command::new("cargo xtask")
            .subcommand(clap::Command::new("up"))
            .subcommand(clap::Command::new("bench"))
            .subcommand(clap::Command::new("inner").hide(true))
            .subcommand(clap::Command::new("cluster").subcommand(clap::Command::new("test")))
    }

    fn unknown_in(text: &str) -> Vec<String> {
        unknown(&[("docs/a.md", text)].into_iter().collect(), REFERENCE, &project())
    }

    #[test]
    fn a_command_of_the_project_that_no_document_names_is_found() {
        let documents = [("CONTRIBUTING.md", "`cargo xtask up` and `cargo xtask bench start`")].into_iter().collect();
        assert_eq!(undocumented(&documents, &project()), ["CONTRIBUTING.md does not name `cargo xtask cluster test`"]);
    }

    #[test]
    fn a_command_that_does_not_exist_is_found() {
        assert_eq!(unknown_in("`drover job walk`"), ["docs/a.md: there is no command `drover job walk`"]);
        assert_eq!(unknown_in("`cargo xtask fly`"), ["docs/a.md: there is no command `cargo xtask fly`"]);
        assert_eq!(
            unknown_in("```console\n$ kubectl get x | drover eat\n```"),
            ["docs/a.md: there is no command `drover eat`"]
        );
    }

    #[test]
    fn commands_their_groups_and_their_arguments_are_right() {
        let text = "`drover job run FILE`, `drover job`, `drover dump -A`, `drover dump all`, `cargo xtask bench start`, `cargo xtask cluster test`, `drover.dev`, `drover-core`";
        assert_eq!(unknown_in(text), [""; 0]);
    }
}
