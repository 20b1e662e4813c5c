//! One fetch, from the order to the answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use drover_confine::{Confinement, confine};
use drover_core::artifact::FetchWay;

use crate::connect::Trust;
use crate::exchange::Web;
use crate::git;
use crate::order::{Answer, Order, RESULT};
use crate::part::Part;
use crate::parts::download;
use crate::unpack::unpack;
use crate::waiting::Waiting;

/// Largest order.
const MAX_ORDER_BYTES: u64 = 1024 * 1024;
/// What look-ups of names read, and libraries that they load.
const READABLE: &[&str] = &[
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/lib",
    "/lib64",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/usr/lib",
    "/usr/lib64",
];
/// The working directory, for a library that makes paths whole: who may not pass through those above it cannot use
/// their names.
const HERE: &str = "/proc/self/cwd";
/// What may be added to the memory that the process has mapped at its start.
const MEMORY_BYTES: u64 = 640 * 1024 * 1024;
/// Files that it holds open at a time.
const OPEN_FILES: u64 = 64;
/// Carries out the order on standard input, and answers on standard output. When the input ends, the caller has gone,
/// and the process goes too.
///
/// # Errors
/// When there is no order, or no caller takes the answer.
pub fn run() -> anyhow::Result<()> {
    let mut line = Vec::new();
    let mut input = BufReader::new(io::stdin());
    input.by_ref().take(MAX_ORDER_BYTES).read_until(b'\n', &mut line).context("reading the order")?;
    let order: Order = serde_json::from_slice(&line).context("reading the order")?;
    let trust = Trust::of_node();
    let confined = confine(&Confinement {
        user: order.user,
        readable: READABLE,
        writes_here: true,
        has_network: true,
        file_bytes: order.limits.bytes,
        open_files: OPEN_FILES,
        cpu_seconds: order.limits.seconds,
        more_memory_bytes: MEMORY_BYTES,
    });
    let answer = match confined {
        Ok(()) => {
            std::thread::spawn(move || {
                drop(io::copy(&mut input, &mut io::sink()));
                std::process::exit(1);
            });
            fetch(&order, &trust).map_or_else(Answer::Failed, |()| Answer::Fetched)
        }
        Err(reason) => Answer::Failed(reason),
    };
    let mut text = serde_json::to_vec(&answer).context("writing the answer")?;
    text.push(b'\n');
    io::stdout().write_all(&text).context("writing the answer")
}

fn fetch(order: &Order, trust: &Trust) -> Result<(), String> {
    let web = Web { trust, allowed: &order.allowed };
    let waiting = Waiting::new(Duration::from_secs(order.limits.seconds))?;
    let parts = match &order.plan.way {
        FetchWay::Git(tree) => git::download((order, tree), web, Path::new(HERE), &waiting),
        FetchWay::Web | FetchWay::S3(_) | FetchWay::Oci => waiting.on(download(order, web, Path::new(""))),
    };
    waiting.end();
    let parts = parts?;
    unpack(&parts, Path::new(RESULT), order.limits)?;
    let removed = parts.iter().try_for_each(Part::remove);
    removed.map_err(|error| format!("the download cannot be removed: {error}"))
}
