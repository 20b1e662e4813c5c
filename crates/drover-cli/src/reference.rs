//! `docs/cli-reference.md`, made from the parser. A test of the program compares the document with it, and writes it
//! with `UPDATE_EXPECT=1`.

use std::fmt::Write as _;

use clap::{Arg, Command};

const HEAD: &str = "<!-- Written by `cargo xtask docs` from the commands themselves. Do not edit. -->

# CLI reference

`drover` is also installed as `kubectl-drover`: with a link of that name on the `PATH`, kubectl knows it as `kubectl drover`, and with a link
`kubectl_complete-drover` kubectl completes it. Results go to standard output, everything else to standard error. Names of allocations,
deployments and nodes may be shortened where that leaves one.

`-o json` and `-o yaml` print objects for programs, `-o name` their names, `-o wide` more columns, and `-o jsonpath=TEMPLATE` what a template
makes of them, as with kubectl:
`drover deployment list -o jsonpath='{range .items[*]}{.metadata.name} {.status.phase}{\"\\n\"}{end}'`.

`source <(drover completion bash)` completes commands, flags and names of objects. Names are asked of the cluster and left out when it does
not answer within 300 ms; `DROVER_COMPLETION_TIMEOUT` sets another time.

## Exit codes

| code | meaning |
|---|---|
| 0 | done |
| 1 | error, or refused; `drover job plan` and `drover plan`: the plan changes something |
| 2 | what was followed ended badly: a deployment or placement failed |
| 3 | the time was over (`--timeout`) |
| 130 | Ctrl-C ended the watching; the job goes on |
| 255 | an error of `drover job plan`, `drover plan` or `drover simulate` |

Commands with codes of their own name them below.
";

/// Flags of every command that talks to a cluster: shown once.
const CONNECT: [&str; 5] = ["kubeconfig", "context", "namespace", "act_as", "request_timeout"];

/// Exit codes that the help of a command does not name.
const CODES: [(&str, &str); 8] = [
    ("drover job validate", "Exit codes: 0 all are valid, 1 one is not, or an error."),
    (
        "drover node drain",
        "Exit codes with -w: 0 all have left, 1 error, 2 the drain was taken back, 3 the time was over, 130 detached by Ctrl-C.",
    ),
    ("drover volume detach", "Exit codes: 0 forced, 1 refused or an error, 2 its release still waits for something."),
    (
        "drover volume delete",
        "Exit codes: 0 it is deleted, 1 refused or an error, 3 the time was over, 130 detached by Ctrl-C.",
    ),
    ("drover volume snapshot create", SNAPSHOT),
    ("drover volume snapshot delete", SNAPSHOT),
    ("drover volume snapshot list", SNAPSHOT),
    ("drover simulate", "Exit codes: 0 all runs pass, 1 an assertion or invariant failed, 255 error."),
];
/// Those of all commands about snapshots.
const SNAPSHOT: &str =
    "Exit codes: 0 done, 1 refused or an error, 2 the volume was deleted, 3 the time was over, 130 detached by Ctrl-C.";

/// The reference of a whole command, in Markdown.
pub fn markdown(mut root: Command) -> String {
    root.build();
    let mut text = HEAD.to_owned();
    if let Some(status) = find(&root, &["job", "status"]) {
        text.push_str("\n## Flags of every command that talks to a cluster\n\n");
        flags(status, |arg| CONNECT.contains(&arg.get_id().as_str()), &mut text);
    }
    for command in visible(&root) {
        section(command, &mut text);
    }
    text
}

fn find<'a>(root: &'a Command, path: &[&str]) -> Option<&'a Command> {
    path.iter().try_fold(root, |command, name| command.find_subcommand(name))
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

fn section(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_default();
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let mark = "#".repeat(name.split(' ').count());
    write!(text, "\n{mark} {name}\n\n{}.\n", about.trim_end_matches('.')).ok();
    if command.has_subcommands() {
        for below in visible(command) {
            section(below, text);
        }
        return;
    }
    let mut usage = command.clone();
    write!(text, "\n```\n{}\n```\n", usage.render_usage().to_string().trim_start_matches("Usage: ")).ok();
    let is_own =
        |arg: &Arg| !CONNECT.contains(&arg.get_id().as_str()) && !matches!(arg.get_id().as_str(), "help" | "version");
    if command.get_arguments().any(|arg| is_own(arg) && !arg.is_hide_set()) {
        text.push('\n');
        flags(command, is_own, text);
    }
    let known = CODES.iter().find(|(of, _)| *of == name).map(|(_, codes)| (*codes).to_owned());
    if let Some(codes) = command.get_after_help().map(ToString::to_string).or(known) {
        write!(text, "\n{codes}\n").ok();
    }
    if command.get_arguments().any(|arg| arg.get_id() == "kubeconfig") {
        text.push_str("\nTakes the [flags of every command that talks to a cluster](#flags-of-every-command-that-talks-to-a-cluster).\n");
    }
}

fn flags(command: &Command, is_wanted: impl Fn(&Arg) -> bool, text: &mut String) {
    text.push_str("| argument | meaning |\n|---|---|\n");
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set() && is_wanted(arg)) {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut about = help.split_whitespace().collect::<Vec<_>>().join(" ");
        if !about.ends_with('.') {
            about.push('.');
        }
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if arg.get_action().takes_values() && !values.is_empty() {
            write!(about, " One of {}.", values.join(", ")).ok();
        }
        if let [default] = arg.get_default_values()
            && arg.get_action().takes_values()
            && !default.is_empty()
        {
            write!(about, " Default `{}`.", default.to_string_lossy()).ok();
        }
        if let Some(variable) = arg.get_env() {
            write!(about, " Also `{}`.", variable.to_string_lossy()).ok();
        }
        let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
        let [shown, about] = [arg.to_string(), about].map(|cell| cell.replace('|', "\\|"));
        writeln!(text, "| `{short}{shown}` | {about} |").ok();
    }
}

/// The entries of this file's table of exit codes that no command needs: it does not exist, or its own help names them.
pub fn superfluous_codes(mut root: Command) -> Vec<&'static str> {
    root.build();
    let is_needed = |name: &str| {
        let path: Vec<&str> = name.split(' ').skip(1).collect();
        find(&root, &path).is_some_and(|command| !command.has_subcommands() && command.get_after_help().is_none())
    };
    CODES.iter().map(|(name, _)| *name).filter(|name| !is_needed(name)).collect()
}
