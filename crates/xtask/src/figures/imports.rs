//! `cargo xtask figures imports`: what is known about who uses whom, as people or programs read it.

use anyhow::{Context as _, Result};
use drover_testkit::progress::print_line;

use crate::tidy::imports;

/// Prints a table and what is wrong, or JSON.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn print(as_json: bool) -> Result<()> {
    let figure = imports::ImportsFigure::of_workspace()?;
    if as_json {
        print_line(&serde_json::to_string(&figure).context("rendering the figure")?);
        return Ok(());
    }
    print_line(&format!("{:<24} {:>6} {:>7} {:>8}", "CRATE", "FILES", "ARROWS", "CIRCLES"));
    for part in &figure.crates {
        let n_circles = part.circles.len();
        print_line(&format!("{:<24} {:>6} {:>7} {n_circles:>8}", part.name, part.n_files, part.n_arrows));
    }
    for fault in figure.faults() {
        print_line(&fault);
    }
    Ok(())
}
