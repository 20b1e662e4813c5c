//! Keys as they are pressed, without the end of a line and without showing them.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::Context as _;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use super::stdio::complain;

/// Keys that wait to be looked at; then the terminal keeps them.
const QUEUE: usize = 8;

/// Listens to the terminal until it is dropped, which gives the terminal its settings back. Ctrl-C interrupts as ever.
pub(crate) struct Keys {
    before: Termios,
    pressed: mpsc::Receiver<u8>,
}

impl Keys {
    /// Begins to listen; none where standard input is no terminal. A thread goes on waiting for a key after the drop:
    /// the runtime must not wait for it.
    ///
    /// # Errors
    /// When the terminal cannot be set.
    pub(crate) fn listen() -> anyhow::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(rustix::stdio::stdin()).context("reading the terminal's settings")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &silent).context("setting the terminal")?;
        let (keys, pressed) = mpsc::channel(QUEUE);
        // Only a thread can wait for every kind of terminal.
        tokio::task::spawn_blocking(move || {
            let mut key = [0];
            while matches!(io::stdin().lock().read(&mut key), Ok(1)) && keys.blocking_send(key[0]).is_ok() {}
        });
        Ok(Some(Self { before, pressed }))
    }

    /// The next key, as the first byte of what the terminal sends for it; never comes after the terminal's end.
    pub(crate) async fn next(&mut self) -> u8 {
        match self.pressed.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before) {
            complain(&format!("the terminal keeps its settings: {error}; `reset` mends it"));
        }
    }
}
