//! Times of a run, as scenarios write them.

use std::time::Duration;

/// A time since the start, as scenarios write it.
pub(super) fn at_text(at: Duration) -> String {
    let text = format!("{:.3}", at.as_secs_f64());
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}
