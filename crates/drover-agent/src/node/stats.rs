//! What a task uses, followed over all its runs and whatever its driver answers.
//!
//! Input: a way to open the driver's stream. Output: samples, and now and then that there are none. A stream that ends
//! is opened again after one interval, an error to open it is tried again with growing pauses, and what is not
//! supported is left alone. Must never know: control groups, sockets, who asks.

use drover_clock::Backoff;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::drivers::{StatsError, UsageStream};
use drover_supervisor::Usage;

/// The pause after the first failure to open a stream; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows a task: a sample, or none when the task uses nothing now. Ends when its driver has no samples at all.
pub(crate) fn follow<O>(open: O, every: Duration) -> BoxStream<'static, Option<Usage>>
where
    O: AsyncOpen + 'static,
{
    let follow = Follow { open, every, stream: None, pause: None, backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE) };
    samples(follow).boxed()
}

/// Opens the stream of the run that a task has now.
pub(crate) trait AsyncOpen: Send {
    /// Opens it.
    fn open(&mut self) -> impl Future<Output = Result<UsageStream, StatsError>> + Send;
}

struct Follow<O> {
    open: O,
    every: Duration,
    stream: Option<UsageStream>,
    /// Waited for before the next look.
    pause: Option<Duration>,
    backoff: Backoff,
}

fn samples<O: AsyncOpen>(follow: Follow<O>) -> impl Stream<Item = Option<Usage>> + Send {
    futures::stream::unfold(follow, async |mut follow| follow.next().await.map(|sample| (sample, follow)))
}

impl<O: AsyncOpen> Follow<O> {
    async fn next(&mut self) -> Option<Option<Usage>> {
        loop {
            if let Some(pause) = self.pause.take() {
                tokio::time::sleep(pause).await;
            }
            let Some(stream) = &mut self.stream else {
                match self.open.open().await {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        self.backoff.worked();
                    }
                    Err(StatsError::Unsupported(reason)) => {
                        tracing::debug!(reason, "a task has no statistics");
                        return None;
                    }
                    Err(StatsError::Recoverable(reason)) => {
                        let pause = self.backoff.failed();
                        tracing::debug!(reason, retry_in = ?pause, "statistics are not read");
                        self.pause = Some(pause);
                        return Some(None);
                    }
                }
                continue;
            };
            match stream.next().await {
                Some(Ok(usage)) => return Some(Some(usage)),
                Some(Err(StatsError::Unsupported(reason))) => {
                    tracing::debug!(reason, "a task has no statistics any more");
                    return None;
                }
                Some(Err(StatsError::Recoverable(reason))) => {
                    tracing::debug!(reason, "statistics broke off");
                    self.reopen_later();
                }
                None => self.reopen_later(),
            }
            return Some(None);
        }
    }

    /// Not at once: a driver whose streams end at once would keep a core busy.
    fn reopen_later(&mut self) {
        self.stream = None;
        self.pause = Some(self.every);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::*;

    const EVERY: Duration = Duration::from_secs(1);

    /// What a driver answers, one after the other, and when it was asked; the last answer stays.
    #[derive(Clone)]
    struct Scripted {
        answers: Arc<Mutex<Vec<Answer>>>,
        asked: Arc<Mutex<Vec<Instant>>>,
    }

    #[derive(Clone)]
    enum Answer {
        Fails(StatsError),
        EndsAtOnce,
        BreaksOff,
        Samples,
    }

    impl AsyncOpen for Scripted {
        async fn open(&mut self) -> Result<UsageStream, StatsError> {
            self.asked.lock().expect("no panic").push(Instant::now());
            let answer = {
                let mut answers = self.answers.lock().expect("no panic");
                if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
            };
            let broken = || Err(StatsError::Recoverable("busy".to_owned()));
            match answer {
                Answer::Fails(error) => Err(error),
                Answer::EndsAtOnce => Ok(futures::stream::empty().boxed()),
                Answer::BreaksOff => Ok(futures::stream::iter([broken()]).boxed()),
                Answer::Samples => Ok(futures::stream::repeat_with(|| Ok(Usage::default())).take(1).boxed()),
            }
        }
    }

    /// Follows for so long; returns when the driver was asked, in seconds, and when samples came.
    async fn follow_for(seconds: u64, answers: &[Answer]) -> (Vec<u64>, Vec<u64>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let opener = Scripted { answers: Arc::new(Mutex::new(answers.to_vec())), asked: Arc::clone(&asked) };
        let (begin, mut samples) = (Instant::now(), Vec::new());
        let mut followed = follow(opener, EVERY);
        let read = async {
            while let Some(sample) = followed.next().await {
                samples.extend(sample.map(|_| begin.elapsed().as_secs()));
            }
            std::future::pending::<()>().await;
        };
        drop(tokio::time::timeout(Duration::from_secs(seconds) + EVERY / 2, read).await);
        let asked = asked.lock().expect("no panic").iter().map(|at| at.duration_since(begin).as_secs()).collect();
        (asked, samples)
    }

    #[tokio::test(start_paused = true)]
    async fn a_136_errors_to_open_are_tried_again_with_growing_pauses_or_never() {
        let plain = Answer::Fails(StatsError::Recoverable("not now".to_owned()));
        let (asked, _) = follow_for(17, &[plain]).await;
        let pauses: Vec<u64> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        let unsupported = Answer::Fails(StatsError::Unsupported("not implemented".to_owned()));
        assert_eq!(follow_for(60, &[unsupported]).await.0, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_172_streams_that_end_are_opened_once_each_interval_and_errors_do_not_end_them() {
        let (asked, samples) = follow_for(5, &[Answer::EndsAtOnce]).await;
        assert_eq!((asked, samples), (vec![0, 1, 2, 3, 4, 5], vec![]), "six opens in 5 s");
        let (_, samples) = follow_for(3, &[Answer::BreaksOff, Answer::Samples]).await;
        assert_eq!(samples, [1, 2, 3], "after one interval it goes on");
    }
}
