//! Turns the signals that end a daemon into one token.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Waits for SIGTERM or SIGINT and then cancels the token. The caller owns the future.
///
/// # Errors
/// When the signals cannot be listened to.
pub fn on_signal(token: CancellationToken) -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            biased;
            () = token.cancelled() => return,
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        tracing::info!("shutting down");
        token.cancel();
    })
}
