//! `cargo xtask`: builds the project's own commands and becomes them.
//!
//! It depends on nothing, so it is there in seconds, and it asks cargo for everything that a command needs at once. One
//! build of two programs keeps all cores busy where one build after the other leaves them idle at the end of each: on
//! two cores that is half a minute of the first `cargo xtask up`.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match launch(&args) {
        Ok(code) => code,
        Err(text) => {
            note(&text);
            ExitCode::FAILURE
        }
    }
}

/// Returns only where the command could not be started.
fn launch(args: &[OsString]) -> Result<ExitCode, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("error: this checkout has no root")?;
    let folder = if measures(args) { "release" } else { "debug" };
    let program = target_folder(root).join(folder).join("xtask");
    if !program.is_file() {
        note(if measures(args) {
            "building an optimized cargo xtask, once: about 8 min on 2 cores with the crates at hand"
        } else if runs_daemons(args) {
            "building cargo xtask and droverd, once: about 5 min on 2 cores with the crates at hand"
        } else {
            "building cargo xtask, once: about 3 min on 2 cores with the crates at hand"
        });
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(root).args(["build", "--bin", "xtask"]);
    if measures(args) {
        build.arg("--release");
    }
    if runs_daemons(args) {
        // With the features that `cargo xtask up` asks for itself, a moment later.
        build.args(["--bin", "droverd", "--no-default-features"]);
    }
    // A terminal gets cargo's own progress bar for a build of minutes; a file would get a line for each of 400 crates.
    if program.is_file() || !io::stderr().is_terminal() {
        build.arg("--quiet");
    }
    let status = build.status().map_err(|error| format!("error: starting cargo: {error}"))?;
    if !status.success() {
        // Cargo's own messages were shown.
        return Ok(ExitCode::FAILURE);
    }
    let error = Command::new(&program).args(args).exec();
    Err(format!("error: starting {}: {error}", program.display()))
}

/// Whether the command measures: on two cores what asks takes from what answers, and is to take as little as people's
/// own programs do.
fn measures(args: &[OsString]) -> bool {
    let has = |name: &str| args.iter().any(|argument| argument == name);
    let is_small = has("dev") || has("--profile=dev") || has("--help");
    args.first().is_some_and(|command| command == "bench") && !is_small
}

/// Whether the command runs the daemons in the profile that this builds.
fn runs_daemons(args: &[OsString]) -> bool {
    args.first().is_some_and(|command| command == "up")
        && !args.iter().any(|argument| argument == "release" || argument == "--profile=release" || argument == "--help")
}

/// Where cargo puts what it builds, as a setting of the environment may say.
fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// To standard error; that it is closed is no reason to build nothing.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(|word| OsStr::new(word).to_owned()).collect()
    }

    #[test]
    fn what_measures_is_optimized() {
        assert!(measures(&words("bench nomad-api --json")));
        for other in ["bench nomad-api --profile dev", "bench --help", "up", "figures bench", ""] {
            assert!(!measures(&words(other)), "{other}");
        }
    }

    #[test]
    fn only_up_brings_the_daemons_and_only_in_the_profile_that_is_built() {
        let runs = |line: &str| runs_daemons(&words(line));
        assert!(runs("up --detach"));
        for other in ["up --profile release", "up --profile=release", "up --help", "down", "test up", ""] {
            assert!(!runs(other), "{other}");
        }
    }
}
