//! What ends a long command early, so that it still ends what it started.

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Carries `work` out unless Ctrl-C, SIGTERM or the end of the terminal comes first. The work is dropped then, and the
/// caller ends what it started; a second signal changes nothing, as this process goes on listening.
///
/// # Errors
/// Those of the work; when a signal came, which one; when signals cannot be listened for.
pub(crate) fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    // Benches are long, and so are their futures: this one stays small.
    let work = Box::pin(work);
    async move {
        let listen = |kind, name| signal(kind).with_context(|| format!("listening for {name}"));
        let mut interrupt = listen(SignalKind::interrupt(), "Ctrl-C")?;
        let mut terminate = listen(SignalKind::terminate(), "SIGTERM")?;
        let mut hang_up = listen(SignalKind::hangup(), "SIGHUP")?;
        tokio::select! {
            biased;
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
            _ = hang_up.recv() => bail!("the terminal is gone"),
            done = work => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::unless_interrupted;

    #[tokio::test]
    async fn a_signal_ends_the_work_and_the_work_otherwise_ends_by_itself() {
        assert_eq!(unless_interrupted(async { Ok(7) }).await.expect("the work's result"), 7);
        for (sent, words) in
            [(Signal::TERM, "terminated"), (Signal::INT, "interrupted"), (Signal::HUP, "the terminal is gone")]
        {
            let endless = async {
                // Signals are listened for by now: this is polled after them.
                kill_process(getpid(), sent).expect("a signal to this process");
                std::future::pending::<anyhow::Result<()>>().await
            };
            assert_eq!(unless_interrupted(endless).await.expect_err("it ends").to_string(), words);
        }
    }
}
