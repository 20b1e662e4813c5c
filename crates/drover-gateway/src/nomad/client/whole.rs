//! Answers of an agent that are sent as a whole: lists, samples, and that something was done.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_nomad::{ClientOrder, FileFacts, Reply as Answered, TaskUsage, Usage, check_results, file, files, usage};
use drover_socket::client::{Replies, Reply};
use drover_socket::protocol::{AllocStats, Answer as Said, FileInfo, TaskStats};
use serde_json::{Value, json};

use super::begin::NodeSession;
use crate::answers::Refusal;

/// How long an agent may take.
pub(super) const WHOLE_TIMEOUT: Duration = Duration::from_secs(55);

/// The most files of a folder: an agent that names more without end must not fill this replica's memory.
const MOST_FILES: usize = 200_000;

/// Everything that an agent has answered.
#[derive(Debug, Default)]
struct Whole {
    files: Vec<FileInfo>,
    file: Option<FileInfo>,
    /// The last one, and how many came.
    sample: Option<AllocStats>,
    n_samples: usize,
    checks: BTreeMap<String, Value>,
}

/// The answer, once the agent has come to an end.
///
/// # Errors
/// What the agent refuses, 504 when it does not come to an end.
pub(super) async fn answer(session: NodeSession) -> Result<Answered, Refusal> {
    let NodeSession { query, order, placed, mut exchange, open, recheck: _ } = session;
    let n_samples = if matches!(order, ClientOrder::Stats { .. }) { 2 } else { 0 };
    let said = tokio::time::timeout(WHOLE_TIMEOUT, whole(&mut exchange.replies, n_samples)).await;
    let Whole { files: listed, file: found, sample, checks, .. } =
        said.map_err(|_| Refusal::new(504, "the agent does not come to an end"))??;
    drop(open);
    let incomplete = || Refusal::new(504, "the agent's answer is incomplete");
    let value = match order {
        ClientOrder::List { .. } => files(&listed.into_iter().map(facts).collect::<Vec<_>>()),
        ClientOrder::Stat { .. } => file(&facts(found.ok_or_else(incomplete)?)),
        ClientOrder::Stats { task } => usage(&used(&sample.ok_or_else(incomplete)?), task.as_deref(), &placed),
        ClientOrder::Checks => {
            let checks: Result<BTreeMap<_, _>, _> =
                checks.into_iter().map(|(id, check)| Ok((id, serde_json::from_value(check)?))).collect();
            let wrong = |error: serde_json::Error| Refusal::new(504, format!("the agent's checks are none: {error}"));
            check_results(&checks.map_err(wrong)?, &placed.shown_name)
        }
        // Clients look for nothing in it.
        ClientOrder::Gc => return Ok(Answered::nothing()),
        ClientOrder::Restart { .. }
        | ClientOrder::Signal { .. }
        | ClientOrder::Read { .. }
        | ClientOrder::Stream { .. }
        | ClientOrder::Logs(_)
        | ClientOrder::Exec { .. } => json!({}),
    };
    Ok(Answered::of(&value, &query)?)
}

/// Reads everything; of samples so many.
async fn whole(replies: &mut Replies, n_samples: usize) -> Result<Whole, Refusal> {
    let mut whole = Whole::default();
    loop {
        let reply = replies.next().await;
        let reply = reply.map_err(|error| Refusal::new(504, format!("the agent's answer broke off: {error}")))?;
        match reply.ok_or_else(|| Refusal::new(504, "the agent has gone in the middle of its answer"))? {
            Reply::Answer(said) => match said {
                Said::Error { code, message } => return Err(Refusal::new(code, message)),
                Said::Files(part) if whole.files.len() + part.len() > MOST_FILES => {
                    let message = format!("the folder has more than {MOST_FILES} files: list one of its folders");
                    return Err(Refusal::new(400, message));
                }
                Said::Files(part) => whole.files.extend(part),
                Said::File(file) => whole.file = Some(file),
                Said::Checks(checks) => whole.checks = checks,
                Said::Stats(sample) => {
                    (whole.sample, whole.n_samples) = (Some(sample), whole.n_samples + 1);
                    if whole.n_samples == n_samples {
                        return Ok(whole);
                    }
                }
                Said::Done | Said::Exited { .. } => return Ok(whole),
                Said::Allocations(_) | Said::HostStats(_) | Said::Meta(_) | Said::At { .. } => {}
            },
            Reply::Data(_) | Reply::ErrorData(_) => {}
        }
    }
}

fn facts(file: FileInfo) -> FileFacts {
    let FileInfo { name, is_dir, size, mode, modified_at, content_type } = file;
    FileFacts { name, is_dir, size, mode, modified_at, content_type }
}

fn used(stats: &AllocStats) -> Usage {
    let of = |used: &TaskStats| TaskUsage {
        cores: used.cpu_fraction,
        memory_bytes: used.memory_bytes,
        memory_peak_bytes: used.memory_peak_bytes,
    };
    let tasks = stats.tasks.iter().map(|(name, used)| (name.clone(), of(used))).collect();
    Usage { time: stats.time, total: of(&stats.total), tasks }
}

#[cfg(test)]
mod tests {
    use drover_socket::client::Exchange;
    use drover_socket::protocol;
    use jiff::Timestamp;

    use super::*;

    async fn of(said: &[Said], n_samples: usize) -> Result<Whole, Refusal> {
        let frame = |said: &Said| protocol::message(said).and_then(|frame| protocol::encode(&frame)).expect("a frame");
        let bytes = said.iter().flat_map(frame).collect::<Vec<_>>();
        let mut replies = Exchange::over(std::io::Cursor::new(bytes), tokio::io::sink()).replies;
        whole(&mut replies, n_samples).await
    }

    fn sample(n: i64) -> Said {
        let time = Timestamp::from_second(n).expect("a time");
        Said::Stats(AllocStats { time, total: TaskStats::default(), tasks: BTreeMap::new() })
    }

    fn files(n: usize) -> Said {
        let file = FileInfo {
            name: "f".to_owned(),
            is_dir: false,
            size: 0,
            mode: String::new(),
            modified_at: None,
            content_type: String::new(),
        };
        Said::Files(vec![file; n])
    }

    #[tokio::test]
    async fn an_answer_is_whole_with_its_last_word_or_its_last_sample_and_never_without() {
        let listed = of(&[files(2), files(1), Said::Done], 0).await.expect("a list");
        assert_eq!(listed.files.len(), 3);
        let sampled = of(&[sample(1), sample(2), sample(3)], 2).await.expect("samples");
        assert_eq!(sampled.sample.map(|sample| sample.time.as_second()), Some(2));
        assert_eq!(of(&[sample(1)], 2).await.map(drop).map_err(|it| it.code), Err(504));
        assert_eq!(of(&[files(1)], 0).await.map(drop).map_err(|it| it.code), Err(504));
        let refused = Said::Error { code: 403, message: "no".to_owned() };
        assert_eq!(of(&[files(1), refused], 0).await.map(drop), Err(Refusal::new(403, "no")));
    }

    #[tokio::test]
    async fn must_survive_an_agent_that_names_files_without_end() {
        let many = vec![files(1000); MOST_FILES / 1000];
        assert_eq!(of(&[&many[..], &[Said::Done]].concat(), 0).await.expect("a list").files.len(), MOST_FILES);
        assert_eq!(of(&[&many[..], &[files(1)]].concat(), 0).await.map(drop).map_err(|it| it.code), Err(400));
    }
}
