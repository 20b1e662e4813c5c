//! `drover alloc logs`: a task's output. What is followed through the cluster goes on where it was when the way breaks.

use std::time::Duration;

use anyhow::{Context as _, bail};
use drover_socket::client::Reply;
use drover_socket::protocol::{Answer, LogStream, Request};
use tokio::time::Instant;

use super::agent::{Agent, place};
use super::remote::Refused;
use super::target::AllocTarget;
use crate::ui::stdio::{answer, complain};

/// How long a way that broke is tried again, and the pause between.
const RESUME_FOR: Duration = Duration::from_mins(2);
const RESUME_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    pub(super) target: AllocTarget,
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

/// A position in rotated files, after the last byte that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    file: u64,
    offset: u64,
}

/// How an exchange ended.
enum WayEnd {
    /// Everything was shown.
    Done,
    /// The way to the agent broke.
    Broken(String),
}

/// Does it.
pub(super) async fn run(agent: &Agent, args: &LogsArgs) -> anyhow::Result<()> {
    let allocation = args.target.id();
    let task = agent.task(&allocation, args.task.as_ref()).await?;
    let (origin, offset) = place(args.tail);
    let request = Request::Logs {
        allocation,
        task,
        stream: if args.stderr { LogStream::Stderr } else { LogStream::Stdout },
        origin,
        offset,
        file: None,
        follow: args.follow,
    };
    carry(agent, request, &mut |bytes| answer(bytes)).await
}

/// Where output goes, in the order in which it comes.
pub(super) type Sink<'a> = &'a mut (dyn FnMut(&[u8]) -> anyhow::Result<()> + Send);

/// Carries a task's output, and goes on where it was when the way breaks and it is followed.
pub(super) async fn carry(agent: &Agent, mut request: Request, sink: Sink<'_>) -> anyhow::Result<()> {
    let follows = matches!(request, Request::Logs { follow: true, .. });
    let mut position = None;
    let mut end = show(agent, &request, &mut position, sink).await?;
    let mut since = Instant::now();
    while let WayEnd::Broken(reason) = end {
        if !follows || !agent.may_resume() || since.elapsed() > RESUME_FOR {
            bail!(reason);
        }
        tokio::time::sleep(RESUME_EVERY).await;
        if let (Some(at), Request::Logs { offset, file, .. }) = (position, &mut request) {
            (*offset, *file) = (at.offset, Some(at.file));
        }
        let before = position;
        end = match show(agent, &request, &mut position, sink).await {
            Ok(end) => end,
            // What is refused stays refused; what is not there may come back.
            Err(error) if error.downcast_ref::<Refused>().is_some_and(|refused| refused.code <= 403) => {
                return Err(error);
            }
            Err(error) => WayEnd::Broken(format!("{error:#}")),
        };
        if position != before {
            since = Instant::now();
            if let WayEnd::Broken(reason) = &end {
                complain(&format!("the connection broke, and the log goes on where it was ({reason})"));
            }
        }
    }
    Ok(())
}

/// Hands over what comes, and keeps the position after it.
async fn show(
    agent: &Agent,
    request: &Request,
    position: &mut Option<Position>,
    sink: Sink<'_>,
) -> anyhow::Result<WayEnd> {
    let mut exchange = agent.begin(request).await?;
    loop {
        let reply = match exchange.replies.next().await.context("reading the agent's answer") {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(WayEnd::Broken("the agent has gone in the middle of its answer".to_owned())),
            Err(error) => return Ok(WayEnd::Broken(format!("{error:#}"))),
        };
        match reply {
            Reply::Data(bytes) | Reply::ErrorData(bytes) => {
                sink(&bytes)?;
                if let Some(position) = position {
                    position.offset += u64::try_from(bytes.len()).unwrap_or_default();
                }
            }
            Reply::Answer(Answer::At { file, offset }) => {
                *position = number(&file).map(|file| Position { file, offset });
            }
            // The way to the agent, not the agent.
            Reply::Answer(Answer::Error { code: 504, message }) => return Ok(WayEnd::Broken(message)),
            Reply::Answer(Answer::Error { code, message }) => return Err(Refused::new(code, message).into()),
            Reply::Answer(Answer::Done) => return Ok(WayEnd::Done),
            Reply::Answer(_) => {}
        }
    }
}

/// The number of a rotated file, which its name ends with.
fn number(file: &str) -> Option<u64> {
    file.rsplit_once('.')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_number_is_the_end_of_its_name() {
        assert_eq!(number("alloc/logs/web.stdout.12"), Some(12));
        assert_eq!((number("alloc/logs/web"), number("a.b")), (None, None));
    }
}
