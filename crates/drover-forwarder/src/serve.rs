//! The forwarder's process.

use std::path::Path;

use anyhow::Context as _;
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};

use crate::orders::{read_line, write_line};
use crate::ports::Ports;
use crate::rights;

/// Serves this socket, which only its own user can use, until there is nothing more to carry. Each connection that it
/// carries has two open files.
///
/// # Errors
/// When the socket cannot be made, or rights cannot be given up.
pub fn run(socket: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        // Only its own user and root are to connect.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let listener = UnixListener::bind(socket).with_context(|| format!("listening on {}", socket.display()))?;
        rights::give_up()?;
        serve(&listener).await
    })
}

async fn serve(listener: &UnixListener) -> anyhow::Result<()> {
    let mut ports = Ports::new();
    let mut is_told = false;
    loop {
        let stream = tokio::select! {
            biased;
            stream = listener.accept() => stream.context("accepting a connection")?.0,
            () = ports.all_done(), if is_told => return Ok(()),
        };
        if let Err(error) = obey(stream, &mut ports, &mut is_told).await {
            tracing::warn!(%error, "the agent's connection ended");
        }
    }
}

/// Carries orders out until the agent goes, or there is nothing more to carry.
async fn obey(stream: UnixStream, ports: &mut Ports, is_told: &mut bool) -> std::io::Result<()> {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    loop {
        let order = tokio::select! {
            biased;
            order = read_line(&mut from) => order?,
            () = ports.all_done(), if *is_told => return Ok(()),
        };
        let Some(order) = order else { return Ok(()) };
        let answer = ports.carry_out(order);
        *is_told = true;
        write_line(&mut to, &answer).await?;
    }
}
