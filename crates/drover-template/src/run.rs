//! The helper process: one order, one answer.

use std::io::{self, BufRead, BufReader, Read, Write};

use anyhow::{Context, bail};
use drover_confine::{Confinement, confine};

use crate::budget::STACK_BYTES;
use crate::order::{RenderAnswer, RenderOrder};
use crate::render::render;

/// Largest order.
const MAX_ORDER_BYTES: u64 = 64 * 1024 * 1024;
/// What the process may take beside the values of the template: their overhead, the text, and what JSON needs of both.
const MEMORY_BYTES: u64 = 1024 * 1024 * 1024;

/// The number of the user `nobody`, and of its group.
const NOBODY: u32 = 65_534;

/// Carries out the order on standard input, and answers on standard output.
///
/// # Errors
/// When there is no order, the process cannot be confined, or no caller takes the answer.
pub fn run() -> anyhow::Result<()> {
    let mut line = Vec::new();
    BufReader::new(io::stdin()).take(MAX_ORDER_BYTES).read_until(b'\n', &mut line).context("reading the order")?;
    let order: RenderOrder = serde_json::from_slice(&line).context("reading the order")?;
    let confined = confine(&Confinement {
        user: rustix::process::geteuid().is_root().then_some(NOBODY),
        readable: &[],
        writes_here: false,
        has_network: false,
        file_bytes: 0,
        open_files: 8,
        cpu_seconds: order.limits.seconds.saturating_add(5),
        more_memory_bytes: MEMORY_BYTES
            .saturating_add(STACK_BYTES as u64)
            .saturating_add(order.limits.memory_bytes.saturating_mul(2)),
    });
    if let Err(reason) = confined {
        bail!(reason);
    }
    let answer: RenderAnswer = render(&order);
    let mut text = serde_json::to_vec(&answer).context("writing the answer")?;
    text.push(b'\n');
    io::stdout().write_all(&text).context("writing the answer")
}
