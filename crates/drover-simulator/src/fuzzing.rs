//! Scenarios as functions of bytes, for `drover-fuzz`.

use std::time::Duration;

use super::run::{self, Settings};
use super::scenario::Scenario;

/// The longest scenario that is run and not only read.
const LONGEST: Duration = Duration::from_mins(30);
/// The most nodes and steps of one that is run.
const MOST: usize = 10;
/// The most digits of a number in one that is run: how long larger counts take is a question for benches.
const MOST_DIGITS: usize = 4;

/// Reads a scenario, and runs a small one.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(scenario) = Scenario::parse(text) else { return };
    let is_small = scenario.duration <= LONGEST
        && scenario.last_step() <= LONGEST
        && scenario.nodes.len() <= MOST
        && scenario.steps.len() <= MOST
        && text.split(|sign: char| !sign.is_ascii_digit()).all(|number| number.len() <= MOST_DIGITS)
        && !text.contains("ms")
        && !text.contains("us")
        && !text.contains("ns");
    if is_small {
        drop(run::run(&scenario, Settings::default()));
    }
}
