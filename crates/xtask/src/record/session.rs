//! Starts drover as `up` does, types the commands of a roll-out in a terminal, and writes the picture.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use drover_testkit::cargo;
use drover_testkit::control_plane::Binaries;
use drover_testkit::progress::{Progress, print_note};
use drover_testkit::workspace;

use super::frames::{self, Chunk};
use super::svg;
use crate::interruption::unless_interrupted;
use crate::up::{Session, UpArgs};

/// The picture.
const PICTURE: &str = "docs/images/rollout.svg";
/// More than that is too much for a page.
const MOST_BYTES: usize = 200_000;

/// What is typed. The waits that the picture does not show are for a state, as a user's are.
const SCRIPT: &str = r#"
stty cols 110 rows 28
show() {
    printf '\033[1;32m$\033[0m '
    sleep 0.5
    for ((i = 0; i < ${#1}; i++)); do printf '%s' "${1:i:1}"; sleep 0.03; done
    sleep 0.4
    printf '\n'
    eval "$1" || exit
    sleep 1.5
}
show 'drover job run examples/canary/v1.yaml'
clear
show 'drover job run examples/canary/v2.yaml --detach'
kubectl wait ddep --field-selector spec.jobName=greeter,status.phase=running --for=jsonpath='{.status.columns.healthy}'=1 --timeout=60s >/dev/null
show 'drover job status greeter'
sleep 2
show 'drover deployment promote greeter'
clear
show 'drover job status greeter -w'
"#;

/// `cargo xtask record`.
///
/// # Errors
/// When drover does not start, a command fails, or the picture is too large.
pub async fn run(progress: &Progress) -> Result<()> {
    let step = progress.step("building drover");
    let built = cargo::build(&["build", "--bin", "drover"], &step)?;
    let drover = built.into_iter().find(|built| built.target == "drover").context("cargo built no drover")?.executable;
    step.done("");
    let folder = tempfile::tempdir().context("making a data folder")?;
    let args =
        UpArgs { data: Some(folder.path().join("data")), examples: vec!["none".to_owned()], ..UpArgs::default() };
    let mut session = Session::open(args)?.context("another session has the new data folder")?;
    let recorded = async {
        session.start(progress).await?;
        let step = progress.step("recording a roll-out");
        let command = command(&drover, &session.layout().kubeconfig(), folder.path())?;
        let folder = folder.path().to_owned();
        let recorded = tokio::task::spawn_blocking(move || record(command, &folder)).await.context("recording")??;
        step.done("");
        Ok(recorded)
    };
    let recorded = unless_interrupted(recorded).await;
    session.stop(progress).await?;
    let picture = svg::draw(&frames::film(&recorded?));
    ensure!(picture.len() <= MOST_BYTES, "the picture has {} bytes, at most {MOST_BYTES} are allowed", picture.len());
    workspace::write_with_mode(&workspace::root().join(PICTURE), picture.as_bytes(), 0o644)?;
    print_note(&format!("wrote {PICTURE} ({} bytes)", picture.len()));
    Ok(())
}

/// `script` gives the commands a terminal, and writes what comes with the time at which it came.
fn command(drover: &Path, kubeconfig: &Path, folder: &Path) -> Result<Command> {
    let programs = Binaries::find_or_build(&Progress::silent())?;
    let drover = drover.parent().context("a program without a folder")?.to_owned();
    let ours = std::iter::once(drover).chain(programs.folders());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: OsString = std::env::join_paths(ours.chain(std::env::split_paths(&path)))?;
    let file = folder.join("commands");
    fs::write(&file, SCRIPT).context("writing the commands")?;
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--flush", "--logging-format", "classic", "--log-timing"]);
    command.arg(folder.join("timing")).arg("--log-out").arg(folder.join("output"));
    command.arg("--command").arg(format!("bash {}", file.display()));
    command.current_dir(workspace::root()).env("PATH", path).env("KUBECONFIG", kubeconfig).env("TERM", "xterm");
    command.env_remove("NO_COLOR").stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn record(mut command: Command, folder: &Path) -> Result<Vec<Chunk>> {
    let status = command.status().context("running script (package util-linux)")?;
    let read = |name: &str| fs::read(PathBuf::from(folder).join(name)).with_context(|| format!("reading {name}"));
    let output = read("output")?;
    ensure!(status.success(), "a command ended with {status}:\n{}", String::from_utf8_lossy(&output));
    let timing = String::from_utf8(read("timing")?).context("reading when what came")?;
    chunks(&output, &timing)
}

/// What came, and when. The output begins with a line of the program itself.
fn chunks(output: &[u8], timing: &str) -> Result<Vec<Chunk>> {
    let head = output.iter().position(|byte| *byte == b'\n').context("an output without its first line")? + 1;
    let (mut rest, mut at, mut found) = (&output[head..], 0, Vec::new());
    for line in timing.lines() {
        let (delay, n_bytes) = line.split_once(' ').with_context(|| format!("no delay and length: {line}"))?;
        at += millis(delay).with_context(|| format!("no delay: {delay}"))?;
        let n_bytes: usize = n_bytes.trim().parse().with_context(|| format!("no length: {n_bytes}"))?;
        let (bytes, others) = rest.split_at_checked(n_bytes).context("an output that ends too soon")?;
        found.push(Chunk { at, bytes: bytes.to_vec() });
        rest = others;
    }
    Ok(found)
}

/// Milliseconds of `1.234567`.
fn millis(seconds: &str) -> Option<u64> {
    let (whole, part) = seconds.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1000 + part.get(..3)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_split_by_its_times() {
        let found = chunks(b"Script started\nabcde", "0.500000 2\n1.250000 3\n").unwrap();
        let wanted = [Chunk { at: 500, bytes: b"ab".to_vec() }, Chunk { at: 1750, bytes: b"cde".to_vec() }];
        assert_eq!(found, wanted);
        assert!(chunks(b"Script started\na", "0.500000 2\n").is_err());
    }
}
