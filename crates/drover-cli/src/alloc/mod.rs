//! `drover alloc …`: an allocation as the cluster knows it, and the allocations of the node that this machine is, by the socket of
//! its agent: their output, files and usage, commands in their tasks, restarts, signals, an early end.
//!
//! Input: arguments and the agent's answers. Output: results on standard output and an exit code. Must never know what the answers
//! are made from.

mod exec;
mod show;
mod status;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use super::output::Output;
use crate::stdio::{answer, complain};
use drover_socket::client::{self, Exchange, Reply};
use drover_socket::protocol::{AllocationInfo, Answer, FileInfo, LogStream, Origin, Request};

/// The exit code when the time was over.
const TIMED_OUT: u8 = 3;
/// How often an allocation that is to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to do with allocations.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The socket of this machine's agent, in its state folder.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "DROVER_AGENT_SOCKET",
        default_value = "/var/lib/drover/state/agent.sock"
    )]
    socket: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Shows an allocation as the cluster knows it: its tasks, their events, and why it runs where it runs.
    Status(status::StatusArgs),
    /// Lists what runs on this node.
    List {
        /// How it is printed.
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Shows a task's output.
    Logs(LogsArgs),
    /// Runs a command in a task; the exit code is the command's.
    Exec(exec::ExecArgs),
    /// Lists a directory, shows a file, or describes one.
    Fs(FsArgs),
    /// Shows what the running tasks use.
    Stats(StatsArgs),
    /// Restarts the tasks that run, one of them, or all in the order of their lifecycle.
    Restart(RestartArgs),
    /// Sends a signal to the tasks that run, or to one of them.
    Signal(SignalArgs),
    /// Ends the tasks in their order; the controller decides what takes their place.
    Stop(StopArgs),
}

#[derive(Debug, clap::Args)]
struct LogsArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// The task; not needed where there is one only.
    task: Option<String>,
    /// Show standard error instead of standard output.
    #[arg(long)]
    stderr: bool,
    /// Go on until the task is dead.
    #[arg(short, long)]
    follow: bool,
    /// Only the last bytes.
    #[arg(long, value_name = "BYTES")]
    tail: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct FsArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// Beneath its directory.
    #[arg(default_value = "/")]
    path: String,
    /// Describe the file or directory instead of showing what is in it.
    #[arg(long)]
    stat: bool,
    /// Only the last bytes of a file.
    #[arg(long, value_name = "BYTES", conflicts_with = "stat")]
    tail: Option<u64>,
    /// How lists and descriptions are printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct StatsArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// Go on, once per second.
    #[arg(short, long)]
    watch: bool,
    /// How it is printed.
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct RestartArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// Only this task.
    task: Option<String>,
    /// Restart all tasks, ended ones too.
    #[arg(long, conflicts_with = "task")]
    all_tasks: bool,
}

#[derive(Debug, clap::Args)]
struct SignalArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// Only this task.
    task: Option<String>,
    /// The signal.
    #[arg(short, long, default_value = "SIGKILL")]
    signal: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 it has ended, 1 error, 3 the time was over.")]
struct StopArgs {
    /// The allocation: its uid or the beginning of it, or `namespace/name`.
    allocation: String,
    /// Do not wait for the end.
    #[arg(long)]
    detach: bool,
    /// Wait no longer than so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Carries out the command.
pub(super) fn run(args: &Args) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let agent = Agent { socket: args.socket.clone() };
    let code = runtime.block_on(async {
        match &args.verb {
            Verb::Status(args) => status::run(args).await,
            Verb::List { output } => show::allocations(&agent.allocations().await?, output).map(|()| 0),
            Verb::Logs(logs) => agent.logs(logs).await.map(|()| 0),
            Verb::Exec(exec) => exec::run(&agent, exec).await,
            Verb::Fs(fs) => agent.fs(fs).await.map(|()| 0),
            Verb::Stats(stats) => agent.stats(stats).await.map(|()| 0),
            Verb::Restart(restart) => agent.restart(restart).await.map(|()| 0),
            Verb::Signal(signal) => agent.signal(signal).await.map(|()| 0),
            Verb::Stop(stop) => agent.stop(stop).await,
        }
    });
    // A read of standard input that nobody waits for any more must not hold the process.
    runtime.shutdown_background();
    code
}

/// This machine's agent.
struct Agent {
    socket: PathBuf,
}

impl Agent {
    async fn begin(&self, request: &Request) -> anyhow::Result<Exchange> {
        client::ask(&self.socket, request).await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &io::Error) -> anyhow::Error {
        let path = self.socket.display();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => anyhow!(
                "no agent serves {path}: {error}; run this on the node, or give --socket with the path in its state folder"
            ),
            io::ErrorKind::PermissionDenied => {
                anyhow!("the agent's socket {path} may not be opened: {error}; run this as the agent's user")
            }
            _ => anyhow!("the agent at {path} does not answer: {error}"),
        }
    }

    /// The messages of an answer; bytes go to standard output as they come.
    async fn ask(&self, request: &Request) -> anyhow::Result<Vec<Answer>> {
        let mut exchange = self.begin(request).await?;
        let mut answers = Vec::new();
        while let Some(reply) = exchange.replies.next().await.context("reading the agent's answer")? {
            match reply {
                Reply::Data(bytes) | Reply::ErrorData(bytes) => answer(&bytes)?,
                Reply::Answer(Answer::Error { message, .. }) => bail!(message),
                Reply::Answer(Answer::Done) => return Ok(answers),
                Reply::Answer(message @ (Answer::Allocations(_) | Answer::Meta(_))) => return Ok(vec![message]),
                Reply::Answer(message) => answers.push(message),
            }
        }
        bail!("the agent has gone in the middle of its answer")
    }

    async fn allocations(&self) -> anyhow::Result<Vec<AllocationInfo>> {
        match self.ask(&Request::Allocations).await?.pop() {
            Some(Answer::Allocations(all)) => Ok(all),
            _ => bail!("the agent did not say what runs"),
        }
    }

    async fn find(&self, id: &str) -> anyhow::Result<AllocationInfo> {
        let all = self.allocations().await?;
        let is = |it: &&AllocationInfo| {
            it.id == id || (id.len() >= 4 && it.id.starts_with(id)) || format!("{}/{}", it.namespace, it.name) == id
        };
        let mut found = all.iter().filter(is);
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one.clone()),
            (Some(_), Some(_)) => bail!("{id} is the beginning of several allocations: give more of it"),
            (None, _) => bail!("unknown allocation {id:?} on this node; `drover alloc list` shows all"),
        }
    }

    /// The task that is meant: the named one, or the only one.
    async fn task(&self, allocation: &str, task: Option<&String>) -> anyhow::Result<String> {
        if let Some(task) = task {
            return Ok(task.clone());
        }
        let found = self.find(allocation).await?;
        match &found.tasks.keys().collect::<Vec<_>>()[..] {
            [only] => Ok((*only).clone()),
            [] => bail!("{}/{} has no task yet", found.namespace, found.name),
            several => {
                let names: Vec<&str> = several.iter().map(|name| name.as_str()).collect();
                bail!("{}/{} has several tasks: name one of {}", found.namespace, found.name, names.join(", "))
            }
        }
    }

    async fn logs(&self, args: &LogsArgs) -> anyhow::Result<()> {
        let task = self.task(&args.allocation, args.task.as_ref()).await?;
        let (origin, offset) = place(args.tail);
        let request = Request::Logs {
            allocation: args.allocation.clone(),
            task,
            stream: if args.stderr { LogStream::Stderr } else { LogStream::Stdout },
            origin,
            offset,
            follow: args.follow,
        };
        self.ask(&request).await.map(drop)
    }

    async fn fs(&self, args: &FsArgs) -> anyhow::Result<()> {
        let (allocation, path) = (args.allocation.clone(), args.path.clone());
        let stat = self.ask(&Request::Stat { allocation: allocation.clone(), path: path.clone() }).await?;
        let Some(Answer::File(file)) = stat.into_iter().next() else { bail!("the agent did not describe {path}") };
        if args.stat {
            return show::files(&[file], &args.output);
        }
        if !file.is_dir {
            let (origin, offset) = place(args.tail);
            return self.ask(&Request::Read { allocation, path, origin, offset, limit: None }).await.map(drop);
        }
        let listed = self.ask(&Request::List { allocation, path }).await?;
        let parts =
            listed.into_iter().filter_map(|answer| if let Answer::Files(part) = answer { Some(part) } else { None });
        let files: Vec<FileInfo> = parts.flatten().collect();
        show::files(&files, &args.output)
    }

    async fn stats(&self, args: &StatsArgs) -> anyhow::Result<()> {
        // A share of the CPU needs two looks.
        let request = Request::Stats { allocation: args.allocation.clone(), every_ms: Some(1000) };
        let mut exchange = self.begin(&request).await?;
        let mut seen = 0;
        while let Some(reply) = exchange.replies.next().await.context("reading the agent's answer")? {
            match reply {
                Reply::Answer(Answer::Error { message, .. }) => bail!(message),
                Reply::Answer(Answer::Stats(stats)) => {
                    seen += 1;
                    if seen > 1 {
                        show::stats(&stats, &args.output)?;
                    }
                    if seen == 2 && !args.watch {
                        return Ok(());
                    }
                }
                Reply::Answer(_) | Reply::Data(_) | Reply::ErrorData(_) => {}
            }
        }
        bail!("the agent has gone in the middle of its answer")
    }

    async fn restart(&self, args: &RestartArgs) -> anyhow::Result<()> {
        let RestartArgs { allocation, task, all_tasks } = args;
        let request = Request::Restart { allocation: allocation.clone(), task: task.clone(), all_tasks: *all_tasks };
        self.ask(&request).await?;
        let what = match (task, all_tasks) {
            (Some(task), _) => format!("task {task} is"),
            (None, true) => "all tasks are".to_owned(),
            (None, false) => "running tasks are".to_owned(),
        };
        complain(&format!("{allocation}: {what} started again"));
        Ok(())
    }

    async fn signal(&self, args: &SignalArgs) -> anyhow::Result<()> {
        let SignalArgs { allocation, task, signal } = args;
        let request = Request::Signal { allocation: allocation.clone(), task: task.clone(), signal: signal.clone() };
        self.ask(&request).await?;
        complain(&format!("{allocation}: {signal} was sent"));
        Ok(())
    }

    async fn stop(&self, args: &StopArgs) -> anyhow::Result<u8> {
        let id = self.find(&args.allocation).await?.id;
        self.ask(&Request::Stop { allocation: id.clone() }).await?;
        if args.detach {
            complain(&format!("{}: its tasks are being ended", args.allocation));
            return Ok(0);
        }
        let ended = tokio::time::timeout(Duration::from_secs(args.timeout), self.until_ended(&id)).await;
        let Ok(ended) = ended else {
            complain(&format!("{} has not ended within {} s; it goes on ending", args.allocation, args.timeout));
            return Ok(TIMED_OUT);
        };
        complain(&format!("{}: {}", args.allocation, ended?));
        Ok(0)
    }

    /// Waits until all its tasks are dead; returns its status.
    async fn until_ended(&self, id: &str) -> anyhow::Result<String> {
        loop {
            let Some(found) = self.allocations().await?.into_iter().find(|it| it.id == id) else {
                return Ok("gone".to_owned());
            };
            if found.tasks.values().all(|state| state == "dead") {
                return Ok(found.client_status);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn place(tail: Option<u64>) -> (Origin, u64) {
    tail.map_or((Origin::Start, 0), |bytes| (Origin::End, bytes))
}
