//! `drover alloc exec`: a command in a task, with its input, output, terminal, signals and exit code.

use std::io::{self, IsTerminal, Read, Write};

use anyhow::{Context, bail};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::agent::Agent;
use super::target::AllocTarget;
use crate::ui::stdio::answer;
use drover_socket::client::{Inputs, Replies, Reply};
use drover_socket::protocol::{Answer, Input, MAX_DATA_BYTES, Request, TtySize};

/// Parts of standard input that wait for the agent; reading waits when it is full.
const INPUT_QUEUE: usize = 4;

#[derive(Debug, clap::Args)]
#[command(after_help = "The exit code is the command's; 1 when it could not be run.")]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
    /// The task; not needed where there is one only.
    #[arg(long)]
    task: Option<String>,
    /// Hand standard input over to the command.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal.
    #[arg(short, long)]
    tty: bool,
    /// The command and its arguments.
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// Runs the command and returns its exit code.
pub(crate) async fn run(agent: &Agent, args: &ExecArgs) -> anyhow::Result<u8> {
    let allocation = args.target.id();
    let task = agent.task(&allocation, args.task.as_ref()).await?;
    if args.tty && !io::stdin().is_terminal() {
        bail!("standard input is no terminal: leave --tty out");
    }
    let request = Request::Exec {
        allocation,
        task,
        command: args.command.clone(),
        tty: args.tty,
        size: args.tty.then(size).flatten(),
    };
    let exchange = agent.begin(&request).await?;
    // What arrives while the terminal is raw goes to the command.
    let _raw = if args.tty { Some(Raw::enter()?) } else { None };
    let told = tell(exchange.inputs, args.stdin || args.tty, args.tty);
    let heard = hear(exchange.replies);
    tokio::pin!(told, heard);
    let error = tokio::select! {
        biased;
        code = &mut heard => return code,
        result = &mut told => match result {
            Err(error) => error,
            Ok(never) => match never {},
        },
    };
    // An agent that refuses hears no more, and has said why.
    let has_closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.chain().any(|cause| cause.downcast_ref().is_some_and(has_closed)) {
        return heard.await;
    }
    Err(error).context("telling the agent")
}

/// Shows what the command says, until it has ended.
async fn hear(mut replies: Replies) -> anyhow::Result<u8> {
    while let Some(reply) = replies.next().await.context("reading the agent's answer")? {
        match reply {
            Reply::Data(bytes) => answer(&bytes)?,
            Reply::ErrorData(bytes) => {
                let mut err = io::stderr().lock();
                err.write_all(&bytes).and_then(|()| err.flush()).context("writing to standard error")?;
            }
            Reply::Answer(Answer::Exited { exit_code }) => return Ok(u8::try_from(exit_code).unwrap_or(1)),
            Reply::Answer(Answer::Error { message, .. }) => bail!(message),
            Reply::Answer(_) => {}
        }
    }
    bail!("the agent has gone while the command ran")
}

/// Tells the command what comes in; ends only when the agent cannot be told any more.
async fn tell(mut inputs: Inputs, has_stdin: bool, tty: bool) -> anyhow::Result<std::convert::Infallible> {
    let (mut interrupt, mut terminate, mut resized) =
        (caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?, caught(SignalKind::window_change())?);
    let mut input = if has_stdin { Some(read_stdin()) } else { None };
    if input.is_none() {
        inputs.tell(Input::Close).await?;
    }
    loop {
        let part = async {
            match &mut input {
                Some(input) => input.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(()) = interrupt.recv() => inputs.tell(Input::Signal { number: libc::SIGINT }).await?,
            Some(()) = terminate.recv() => inputs.tell(Input::Signal { number: libc::SIGTERM }).await?,
            Some(()) = resized.recv(), if tty => {
                if let Some(size) = size() {
                    inputs.tell(Input::Resize(size)).await?;
                }
            }
            part = part => if let Some(bytes) = part { inputs.data(&bytes).await? } else {
                input = None;
                inputs.tell(Input::Close).await?;
            },
        }
    }
}

fn caught(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}

/// Standard input may be a file, a pipe or a terminal: only a thread can wait for all of them.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (parts, input) = mpsc::channel(INPUT_QUEUE);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; MAX_DATA_BYTES];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) => return,
                Ok(n) if parts.blocking_send(buffer[..n].to_vec()).is_err() => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    crate::ui::stdio::complain(&format!("standard input cannot be read: {error}"));
                    return;
                }
            }
        }
    });
    input
}

fn size() -> Option<TtySize> {
    let found = tcgetwinsize(rustix::stdio::stdin()).ok()?;
    Some(TtySize { height: found.ws_row, width: found.ws_col })
}

/// The terminal hands every key over as it is, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> anyhow::Result<Self> {
        let before = tcgetattr(rustix::stdio::stdin()).context("reading the terminal's settings")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).context("setting the terminal")?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.0) {
            crate::ui::stdio::complain(&format!("the terminal keeps its settings: {error}; `reset` mends it"));
        }
    }
}
