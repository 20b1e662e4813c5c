//! What an agent replies: one after the other, or read as a whole before any of it is sent (lists, samples, and that
//! something was done).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use drover_socket::client::{Replies, Reply};
use drover_socket::protocol::{AllocStats, Answer as Said, FileInfo};
use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use serde_json::Value;

use crate::answers::Refusal;

/// How long an agent may take: the API server ends its requests after 60 s.
pub(crate) const WHOLE_TIMEOUT: Duration = Duration::from_secs(55);

/// What the files of a folder may take here, in bytes: an agent that names more without end must not fill this
/// replica's memory. Room for about 200,000.
const MOST_BYTES_OF_FILES: usize = 32 * 1024 * 1024;

/// One after the other; one that was read in part is not lost when something else comes first.
pub(crate) fn in_turn(replies: Replies) -> BoxStream<'static, io::Result<Reply>> {
    unfold(replies, async |mut replies| replies.next().await.transpose().map(|reply| (reply, replies))).boxed()
}

/// Everything that an agent has answered.
#[derive(Debug, Default)]
pub(crate) struct WholeAnswer {
    pub(crate) files: Vec<FileInfo>,
    pub(crate) file: Option<FileInfo>,
    /// The last one.
    pub(crate) sample: Option<AllocStats>,
    pub(crate) checks: Option<BTreeMap<String, Value>>,
}

/// Reads until the agent's last word; of samples as many as are wanted, where that is known.
///
/// # Errors
/// What the agent refuses, 504 when it does not come to an end, 400 for a folder of too many files.
pub(crate) async fn whole_answer(
    replies: impl Stream<Item = io::Result<Reply>>,
    n_samples: Option<usize>,
) -> Result<WholeAnswer, Refusal> {
    let read = tokio::time::timeout(WHOLE_TIMEOUT, read(replies, n_samples)).await;
    read.map_err(|_| Refusal::new(504, "the agent does not come to an end"))?
}

async fn read(
    replies: impl Stream<Item = io::Result<Reply>>,
    n_samples: Option<usize>,
) -> Result<WholeAnswer, Refusal> {
    let mut replies = std::pin::pin!(replies);
    let (mut whole, mut n_seen, mut n_bytes) = (WholeAnswer::default(), 0, 0);
    loop {
        let reply = replies.next().await;
        let reply = reply.ok_or_else(|| Refusal::new(504, "the agent has gone in the middle of its answer"))?;
        match reply.map_err(|error| Refusal::new(504, format!("the agent's answer broke off: {error}")))? {
            Reply::Answer(said) => match said {
                Said::Error { code, message } => return Err(Refusal::new(code, message)),
                Said::Files(part) => {
                    n_bytes += part.iter().map(bytes_of).sum::<usize>();
                    if n_bytes > MOST_BYTES_OF_FILES {
                        return Err(Refusal::new(400, "the folder has too many files: list one of its folders"));
                    }
                    whole.files.extend(part);
                }
                Said::File(file) => whole.file = Some(file),
                Said::Checks(checks) => whole.checks = Some(checks),
                Said::Stats(sample) => {
                    n_seen += 1;
                    whole.sample = Some(sample);
                    if n_samples == Some(n_seen) {
                        return Ok(whole);
                    }
                }
                Said::Done | Said::Exited { .. } => return Ok(whole),
                Said::Allocations(_) | Said::HostStats(_) | Said::Meta(_) | Said::At { .. } | Said::Entry(_) => {}
            },
            Reply::Data(_) | Reply::ErrorData(_) => {}
        }
    }
}

fn bytes_of(file: &FileInfo) -> usize {
    size_of::<FileInfo>() + file.name.len() + file.mode.len() + file.content_type.len()
}

#[cfg(test)]
mod tests {
    use drover_socket::protocol::TaskStats;
    use futures::stream;
    use jiff::Timestamp;

    use super::*;

    async fn of(said: Vec<Said>, n_samples: Option<usize>) -> Result<WholeAnswer, Refusal> {
        whole_answer(stream::iter(said.into_iter().map(|said| Ok(Reply::Answer(said)))), n_samples).await
    }

    fn sample(n: i64) -> Said {
        let time = Timestamp::from_second(n).expect("a time");
        Said::Stats(AllocStats { time, total: TaskStats::default(), tasks: BTreeMap::new() })
    }

    fn file(name: &str) -> FileInfo {
        let (mode, content_type) = (String::new(), String::new());
        FileInfo { name: name.to_owned(), is_dir: false, size: 0, mode, modified_at: None, content_type }
    }

    fn files(n: usize) -> Said {
        Said::Files(vec![file("f"); n])
    }

    #[tokio::test]
    async fn an_answer_is_whole_with_its_last_word_or_its_last_sample_and_never_without() {
        let listed = of(vec![files(2), files(1), Said::Done], None).await.expect("a list");
        assert_eq!(listed.files.len(), 3);
        let sampled = of(vec![sample(1), sample(2), sample(3)], Some(2)).await.expect("samples");
        assert_eq!(sampled.sample.map(|sample| sample.time.as_second()), Some(2));
        assert_eq!(of(vec![sample(1)], Some(2)).await.map(drop).map_err(|it| it.code), Err(504));
        assert_eq!(of(vec![files(1)], None).await.map(drop).map_err(|it| it.code), Err(504));
        let refused = Said::Error { code: 403, message: "no".to_owned() };
        assert_eq!(of(vec![files(1), refused], None).await.map(drop), Err(Refusal::new(403, "no")));
    }

    #[tokio::test]
    async fn must_survive_an_agent_that_names_files_without_end_or_with_names_without_end() {
        let parts = vec![files(1000); 200];
        let listed = of([parts, vec![Said::Done]].concat(), None).await.expect("a list");
        assert_eq!(listed.files.len(), 200_000);
        for endless in [files(1000), Said::Files(vec![file(&"f".repeat(1024 * 1024))])] {
            let endless = stream::repeat_with(|| Ok(Reply::Answer(endless.clone())));
            assert_eq!(whole_answer(endless, None).await.map(drop).map_err(|it| it.code), Err(400));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_does_not_come_to_an_end_is_given_up_before_the_api_server_does() {
        let (silent, begun) = (stream::pending(), tokio::time::Instant::now());
        assert_eq!(whole_answer(silent, None).await.map(drop).map_err(|it| it.code), Err(504));
        assert_eq!(begun.elapsed(), WHOLE_TIMEOUT);
    }
}
