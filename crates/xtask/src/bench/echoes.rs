//! Reference loops: what a thread takes that does one thing and nothing else. Beside idle tunnels it echoes, over as
//! many connections, as many messages as large. It tells what the machine takes for that from what drover does.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_socket::tunnel::PING_EVERY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

/// A ping of HTTP/2 (RFC 9113, section 6.7: 9 bytes and 8) in a record of TLS 1.3 (RFC 8446, section 5.2: 5 bytes, the
/// content's type, and 16 that prove it).
const PING_BYTES: usize = 9 + 8 + 5 + 1 + 16;

/// Part of a core that a thread needs which echoes what comes over so many connections, each of which pings as an
/// agent does. It is left alone for `settled`, and then looked at for `watched`.
///
/// # Errors
/// When a connection breaks.
pub(super) async fn cpu_of_echoes(n_connections: usize, settled: Duration, watched: Duration) -> Result<f64> {
    let (tell, listens) = oneshot::channel();
    let (say, said) = oneshot::channel();
    // Nothing is sent: its end says that no more connect.
    let (all_there, mut are_there) = oneshot::channel::<()>();
    let echoing = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut echoes = JoinSet::new();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            tell.send(listener.local_addr()?).map_err(|_| io::Error::other("no one connects"))?;
            loop {
                tokio::select! {
                    biased;
                    accepted = listener.accept() => { echoes.spawn(echo(accepted?.0)); }
                    _ = &mut are_there => break,
                }
            }
            let cpu = watch_thread(settled, watched).await?;
            say.send(cpu).map_err(|_| io::Error::other("no one waits for what was measured"))?;
            // Until the other sides end.
            echoes.join_all().await;
            Ok::<_, io::Error>(())
        })
    });
    let address: SocketAddr = listens.await.context("the echoing thread has ended")?;
    let mut pinging = JoinSet::new();
    for n in 0..n_connections {
        let stream = TcpStream::connect(address).await.context("connecting to the echoing thread")?;
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        let share = PING_EVERY * u32::try_from(n)? / u32::try_from(n_connections)?;
        pinging.spawn(ping(stream, Instant::now() + share));
    }
    drop(all_there);
    let cpu = tokio::select! {
        biased;
        cpu = said => cpu.context("the echoing thread has ended")?,
        Some(ended) = pinging.join_next() => {
            ended.context("a pinging task has panicked")?.context("a ping")?;
            bail!("a connection has ended")
        }
    };
    pinging.shutdown().await;
    echoing.await.context("the echoing thread has panicked")?.context("an echo")?;
    Ok(cpu)
}

/// Part of a core that a thread needs which does this alone. It is left alone for `settled`, and then looked at for
/// `watched`.
///
/// # Errors
/// When the work ends.
pub(super) async fn cpu_of_thread(
    work: impl Future<Output = Result<()>> + Send + 'static,
    settled: Duration,
    watched: Duration,
) -> Result<f64> {
    let measured = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                ended = work => ended.and_then(|()| bail!("the work has ended")),
                cpu = watch_thread(settled, watched) => Ok(cpu?),
            }
        })
    });
    measured.await.context("the thread has panicked")?
}

/// Part of a core that this thread needs.
async fn watch_thread(settled: Duration, watched: Duration) -> io::Result<f64> {
    tokio::time::sleep(settled).await;
    let (began, before) = (Instant::now(), thread_time()?);
    tokio::time::sleep(watched).await;
    Ok(thread_time()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64())
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut ping = [0; PING_BYTES];
    loop {
        stream.read_exact(&mut ping).await?;
        stream.write_all(&ping).await?;
    }
}

async fn ping(mut stream: TcpStream, first: Instant) -> io::Result<()> {
    let mut ping = [0; PING_BYTES];
    let mut due = interval_at(first, PING_EVERY);
    loop {
        due.tick().await;
        stream.write_all(&ping).await?;
        stream.read_exact(&mut ping).await?;
    }
}

/// How long this thread has computed, as proc(5) says: nanoseconds, and two numbers more.
fn thread_time() -> io::Result<Duration> {
    let read = fs::read_to_string("/proc/thread-self/schedstat")?;
    let computed = read.split_whitespace().next().and_then(|time| time.parse().ok());
    computed.map(Duration::from_nanos).ok_or_else(|| io::Error::other("schedstat says no time"))
}
