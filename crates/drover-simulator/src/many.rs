//! Many runs at once: each core takes the next one, and answers come in the order of the runs, as soon as all before
//! them are there.
//!
//! Input: numbered work. Output: what its answers are shown as; on a terminal a line says how far it is. Must never
//! know what a run is.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often the line that says how far it is may change.
const REDRAW: Duration = Duration::from_millis(200);

/// Work of which each piece has a number, from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    /// What is worked on, and in what pieces: `chaos`, `seeds`.
    pub(super) name: &'a str,
    pub(super) unit: &'a str,
    /// How many pieces there are.
    pub(super) n: usize,
    /// How many are done at once.
    pub(super) n_threads: usize,
}

/// What an answer means for the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Right,
    Wrong,
    /// It is wrong, and that is enough.
    Enough,
}

/// What came of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Pieces whose answers were shown.
    pub(super) n_done: usize,
    /// Those of them that were wrong.
    pub(super) n_wrong: usize,
}

/// As many as there are cores.
pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Does all pieces and shows their answers in order. Where one is enough, nothing begins after it, and what was shown
/// ends with it.
///
/// # Errors
/// The first error of a piece, or of showing one.
pub(super) fn each<T: Send>(
    work: Work<'_>,
    run: impl Fn(usize) -> anyhow::Result<T> + Sync,
    show: impl FnMut(usize, T) -> anyhow::Result<Verdict> + Send,
) -> anyhow::Result<Tally> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let line = Line { is_wanted: io::stderr().is_terminal(), drawn_at: Instant::now(), is_drawn: false };
    let (waiting, tally) = (BTreeMap::new(), Tally::default());
    let order = Mutex::new(Order { work, waiting, tally, n_ended: 0, is_enough: false, show, line });
    let one = |n: usize| -> anyhow::Result<bool> {
        let answer = run(n)?;
        order.lock().map_err(|_| anyhow::anyhow!("another thread broke off"))?.take(n, answer)
    };
    let thread = || -> anyhow::Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= work.n {
                break;
            }
            let goes_on = one(n);
            is_over.fetch_or(!matches!(goes_on, Ok(true)), Ordering::Relaxed);
            goes_on?;
        }
        Ok(())
    };
    let result = std::thread::scope(|scope| {
        let others: Vec<_> = (1..work.n_threads.min(work.n)).map(|_| scope.spawn(thread)).collect();
        let mut result = thread();
        for other in others {
            let ended = other.join().map_err(|_| anyhow::anyhow!("a run panicked; its message is above"));
            result = result.and(ended.and_then(|ended| ended));
        }
        result
    });
    let mut order = order.into_inner().map_err(|_| anyhow::anyhow!("another thread broke off"))?;
    order.line.clear();
    result.map(|()| order.tally)
}

/// Brings answers into their order.
struct Order<'a, T, F> {
    work: Work<'a>,
    /// Answers that wait for those before them.
    waiting: BTreeMap<usize, T>,
    tally: Tally,
    n_ended: usize,
    is_enough: bool,
    show: F,
    line: Line,
}

impl<T, F: FnMut(usize, T) -> anyhow::Result<Verdict>> Order<'_, T, F> {
    /// Shows all that can be shown; false when it is enough.
    fn take(&mut self, n: usize, answer: T) -> anyhow::Result<bool> {
        if self.is_enough {
            return Ok(false);
        }
        self.n_ended += 1;
        self.waiting.insert(n, answer);
        while let Some(answer) = self.waiting.remove(&self.tally.n_done) {
            self.line.clear();
            let verdict = (self.show)(self.tally.n_done, answer)?;
            self.tally.n_done += 1;
            self.tally.n_wrong += usize::from(verdict != Verdict::Right);
            if verdict == Verdict::Enough {
                self.is_enough = true;
                return Ok(false);
            }
        }
        let Work { name, unit, n, .. } = self.work;
        self.line.draw(|| format!("{name}: {} of {n} {unit}, {} wrong", self.n_ended, self.tally.n_wrong));
        Ok(true)
    }
}

/// The line on a terminal that says how far it is.
#[derive(Debug)]
struct Line {
    is_wanted: bool,
    drawn_at: Instant,
    is_drawn: bool,
}

impl Line {
    fn draw(&mut self, text: impl FnOnce() -> String) {
        if self.is_wanted && self.drawn_at.elapsed() >= REDRAW {
            // It is for the eye alone; what cannot be shown is not missed.
            write!(io::stderr(), "\r\x1b[K{}", text()).ok();
            (self.drawn_at, self.is_drawn) = (Instant::now(), true);
        }
    }

    fn clear(&mut self) {
        if self.is_drawn {
            write!(io::stderr(), "\r\x1b[K").ok();
            self.is_drawn = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order_and_end_with_the_one_that_is_enough() {
        for n_threads in [1, 4] {
            let mut shown = Vec::new();
            let work = Work { name: "t", unit: "runs", n: 100, n_threads };
            let tally = each(work, Ok, |n, answer| {
                shown.push(answer);
                Ok(match n {
                    40 => Verdict::Wrong,
                    60 => Verdict::Enough,
                    _ => Verdict::Right,
                })
            })
            .expect("no errors");
            assert_eq!(shown, (0..=60).collect::<Vec<_>>());
            assert_eq!(tally.n_wrong, 2);
        }
    }

    #[test]
    fn an_error_ends_all() {
        let work = Work { name: "t", unit: "runs", n: 100, n_threads: 4 };
        let run = |n| if n == 5 { Err(anyhow::anyhow!("the fifth")) } else { Ok(n) };
        let error = each(work, run, |_, _| Ok(Verdict::Right)).expect_err("the fifth");
        assert_eq!(error.to_string(), "the fifth");
    }
}
