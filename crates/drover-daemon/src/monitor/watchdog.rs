//! Whether the process still does anything: a task of its runtime counts, and a thread of its own looks at the count.
//!
//! Kubernetes could ask over a socket instead. But the node's ports belong to tasks too, and any host that reaches a
//! port can fill it: both would have a healthy daemon ended. Must never know what the process does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

/// How often the task counts.
const BEAT: Duration = Duration::from_secs(1);
/// How often the thread looks, and after how many looks without a beat the process is stuck: after a minute.
const LOOK: Duration = Duration::from_secs(5);
const MOST_MISSED: u32 = 12;

/// Counts until `stop`. A runtime that does not let it count for a minute ends the process, and the kubelet, or
/// what else started it, starts it again; what else the process has started goes on.
///
/// # Errors
/// When there can be no thread.
pub async fn watch_progress(stop: CancellationToken) -> anyhow::Result<()> {
    watch(stop, Pace { beat: BEAT, look: LOOK, most_missed: MOST_MISSED }, || {
        tracing::error!("nothing has moved in this process for a minute: it ends and is to be started again");
        std::process::abort();
    })
    .await
}

/// The same beside other work: that there can be no thread is told, and ends nothing.
pub async fn watch_progress_beside(stop: CancellationToken) {
    if let Err(error) = watch_progress(stop).await {
        tracing::error!("{error:#}");
    }
}

#[derive(Clone, Copy, Debug)]
struct Pace {
    beat: Duration,
    look: Duration,
    most_missed: u32,
}

async fn watch(stop: CancellationToken, pace: Pace, on_stuck: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let beats = Arc::new(AtomicU64::new(0));
    // Nothing is sent: the thread ends when this end is dropped.
    let (alive, ended) = mpsc::channel::<()>();
    let seen = Arc::clone(&beats);
    let look = move || {
        let (mut last, mut missed) = (0, 0);
        while ended.recv_timeout(pace.look) == Err(mpsc::RecvTimeoutError::Timeout) {
            let now = seen.load(Ordering::Relaxed);
            missed = if now == last { missed + 1 } else { 0 };
            last = now;
            if missed >= pace.most_missed {
                return on_stuck();
            }
        }
    };
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(look).context("starting the watchdog")?;
    let mut ticks = tokio::time::interval(pace.beat);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = ticks.tick() => drop(beats.fetch_add(1, Ordering::Relaxed)),
        }
    }
    drop(alive);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Pace = Pace { beat: Duration::from_millis(1), look: Duration::from_millis(200), most_missed: 5 };

    #[test]
    fn a_runtime_that_is_held_up_is_found_out() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (found, out) = mpsc::channel();
        runtime.block_on(async {
            let watched = watch(CancellationToken::new(), QUICK, move || found.send(()).expect("heard"));
            let hold = async {
                // Returns only when the watchdog has spoken: until then no other task of the runtime gets its turn.
                out.recv().expect("it is found out");
            };
            tokio::select! {
                biased;
                watched = watched => watched.expect("a thread"),
                () = hold => {}
            }
        });
    }

    #[tokio::test]
    async fn a_runtime_that_moves_is_left_alone() {
        let stop = CancellationToken::new();
        let (found, out) = mpsc::channel();
        let watched = watch(stop.clone(), QUICK, move || found.send(()).expect("heard"));
        let wait = async {
            tokio::time::sleep(QUICK.look * (QUICK.most_missed + 2)).await;
            stop.cancel();
        };
        let (watched, ()) = tokio::join!(watched, wait);
        watched.expect("a thread");
        // The thread has ended without a word, and its end of the channel with it.
        assert_eq!(out.recv(), Err(mpsc::RecvError));
    }
}
