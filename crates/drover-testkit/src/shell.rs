//! A shell that a test types commands into, one after the other, as a user would in one terminal.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Stands before and after the exit code of a command; no program writes it.
const MARK: char = '\u{1e}';

/// A shell. It ends with this value.
#[derive(Debug)]
pub struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// What it wrote on both streams, in order.
    pub text: String,
}

impl Shell {
    /// Starts a shell in a folder, with these variables in its environment and no input for what runs in it.
    ///
    /// # Errors
    /// When there is no bash.
    pub fn start<'a>(folder: &Path, environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Result<Self> {
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-s"]).current_dir(folder).envs(environment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // So that a command that does not end goes with its shell.
        command.process_group(0);
        let mut child = command.spawn().context("starting bash")?;
        let input = child.stdin.take().context("a shell without input")?;
        let mut pipe = child.stdout.take().context("a shell without output")?;
        let (sender, output) = channel();
        // Ends with the shell and everything that it started.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, output })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it has not ended after `limit`, or ends the shell; with what it wrote until then.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Answer> {
        // Not in a subshell: what it exports and where it goes stays.
        writeln!(self.input, "{{ {command}\n}} 2>&1 </dev/null; printf '\\036%s\\036' \"$?\"")
            .with_context(|| format!("typing `{command}`"))?;
        let deadline = Instant::now() + limit;
        let mut bytes = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&bytes);
            if let Some(answer) = answer(&text) {
                return Ok(answer);
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(more) => bytes.extend(more),
                Err(RecvTimeoutError::Timeout) => bail!("`{command}` did not end within {limit:?}; it wrote:\n{text}"),
                Err(RecvTimeoutError::Disconnected) => bail!("`{command}` ended the shell; it wrote:\n{text}"),
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            // It may have ended already.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
        self.child.wait().ok();
    }
}

/// The answer, once it is whole.
fn answer(text: &str) -> Option<Answer> {
    let (output, rest) = text.split_once(MARK)?;
    let (code, _) = rest.split_once(MARK)?;
    Some(Answer { code: code.parse().ok()?, text: output.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell() -> Shell {
        Shell::start(Path::new("/"), [("GREETING", OsStr::new("hello"))]).unwrap()
    }

    #[test]
    fn both_streams_come_in_order_with_the_exit_code() {
        let answer = shell().run("echo a; echo b >&2; echo \"$GREETING\"; false", LIMIT).unwrap();
        assert_eq!(answer, Answer { code: 1, text: "a\nb\nhello\n".to_owned() });
    }

    #[test]
    fn what_a_command_sets_stays_for_the_next() {
        let mut shell = shell();
        shell.run("export A=1; cd /proc", LIMIT).unwrap();
        assert_eq!(shell.run("echo $A in $PWD # a comment", LIMIT).unwrap().text, "1 in /proc\n");
    }

    #[test]
    fn a_command_has_no_input() {
        assert_eq!(shell().run("cat", LIMIT).unwrap(), Answer { code: 0, text: String::new() });
    }

    #[test]
    fn a_command_that_does_not_end_is_named_with_what_it_wrote() {
        let error = shell().run("echo begun; sleep 1000", Duration::from_millis(300)).unwrap_err().to_string();
        assert!(error.contains("`echo begun; sleep 1000` did not end") && error.ends_with("begun\n"), "{error}");
        let error = shell().run("exit 3", LIMIT).unwrap_err().to_string();
        assert!(error.contains("`exit 3` ended the shell"), "{error}");
    }
}
