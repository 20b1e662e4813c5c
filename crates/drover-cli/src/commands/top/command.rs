//! The arguments of `drover top`, and its table: once, or again and again.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use super::look::{Look, Subject};
use super::observer::Observer;
use super::rows::table;
use crate::cluster::connect::ConnectArgs;
use crate::ui::canvas::Canvas;
use crate::ui::keys::Keys;
use crate::ui::stdio::answer;

/// The time between the two looks from which the first use of CPU is known.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// How often the live table is renewed.
const REFRESH_EVERY: Duration = Duration::from_secs(2);
/// The key that ends the live table.
const QUIT: u8 = b'q';

/// Arguments of `drover top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "CPU is used/given MHz, memory used/given MiB. A - is what is not known; REASON says why. Usage comes \
                        through the gateway and needs the right that `drover alloc stats` needs."
)]
pub(crate) struct TopArgs {
    /// What each line is about.
    #[arg(value_enum, default_value_t)]
    what: Subject,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Show the jobs or allocations of all namespaces; nodes always have those of all.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Print one table, also on a terminal.
    #[arg(long)]
    once: bool,
}

/// Shows it.
pub(crate) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let done = runtime.block_on(top(args));
    // A key that is waited for no more must not hold the process.
    runtime.shutdown_background();
    done.map(|()| 0)
}

async fn top(args: &TopArgs) -> anyhow::Result<()> {
    let all_namespaces = args.all_namespaces || args.what == Subject::Nodes;
    let observer = Observer::new(&args.connect, all_namespaces).await?;
    let before = observer.look(args.what).await?;
    sleep(FIRST_INTERVAL).await;
    let now = observer.look(args.what).await?;
    let text = shown(args.what, &before, &now);
    if args.once || !io::stdout().is_terminal() {
        return answer(text.as_bytes());
    }
    live(args.what, &observer, now, text).await
}

/// Renews the table until `q` or Ctrl-C. What cannot be looked at keeps the table, with the reason below.
async fn live(what: Subject, observer: &Observer, mut before: Look, mut text: String) -> anyhow::Result<()> {
    let mut keys = Keys::listen()?;
    let (mut canvas, mut trouble) = (Canvas::default(), String::new());
    let mut ticks = interval_at(tokio::time::Instant::now() + REFRESH_EVERY, REFRESH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        canvas.draw(&format!("{text}{trouble}"), &mut io::stdout().lock()).context("writing to the terminal")?;
        let next = async {
            ticks.tick().await;
            observer.look(what).await
        };
        tokio::select! {
            biased;
            signal = tokio::signal::ctrl_c() => return signal.context("listening for Ctrl-C"),
            () = quit(keys.as_mut()) => return Ok(()),
            look = next => match look {
                Ok(now) => {
                    (text, trouble) = (shown(what, &before, &now), String::new());
                    before = now;
                }
                Err(error) => trouble = format!("  not renewed: {error:#}\n"),
            },
        }
    }
}

/// Waits for the key that ends the table; without a terminal to read from there is none.
async fn quit(keys: Option<&mut Keys>) {
    match keys {
        Some(keys) => while keys.next().await != QUIT {},
        None => std::future::pending().await,
    }
}

fn shown(what: Subject, before: &Look, now: &Look) -> String {
    let mut text = String::new();
    table(what, before, now).write(&mut text);
    text
}
