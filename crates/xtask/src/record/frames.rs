//! From what a terminal received to what stood in each of its rows, and when.

use std::num::NonZeroU16;

use vt100::{Color, Parser, Screen};

/// The rows of the terminal.
pub(super) const ROWS: u16 = 28;
/// The columns that are shown.
pub(super) const COLUMNS: u16 = 110;
/// The columns of the terminal. What is beyond those that are shown is left out, as on a terminal that does not wrap.
const WIDTH: u16 = 250;
/// What changes within that is shown at once, in milliseconds.
const STEP: u64 = 100;
/// How long the end stands, in milliseconds.
const REST: u64 = 5000;

/// What a terminal received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Milliseconds after the start.
    pub(super) at: u64,
    /// What came.
    pub(super) bytes: Vec<u8>,
}

/// What stood in the rows of a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Film {
    /// Each content of each row.
    pub(super) spans: Vec<Span>,
    /// How long all of it takes, in milliseconds.
    pub(super) length: u64,
}

/// What stood in a row for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) row: u16,
    pub(super) runs: Vec<FrameRun>,
    /// Milliseconds after the start.
    pub(super) from: u64,
    /// The same; none for what stands at the end.
    pub(super) until: Option<u64>,
}

/// Characters of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameRun {
    pub(super) column: u16,
    pub(super) text: String,
    pub(super) look: Look,
}

/// How characters look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// One of the eight colours of a terminal.
    pub(super) colour: Option<u8>,
    pub(super) is_bold: bool,
}

/// What stood on the screen, and when.
pub(super) fn film(chunks: &[Chunk]) -> Film {
    let size = |n| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN);
    let mut terminal = Parser::new(size(ROWS), size(WIDTH), 0);
    let mut film = Film::default();
    let mut standing: Vec<(Vec<FrameRun>, u64)> = (0..ROWS).map(|_| (Vec::new(), 0)).collect();
    for group in chunks.chunk_by(|one, next| one.at / STEP == next.at / STEP) {
        for chunk in group {
            terminal.process(&chunk.bytes);
        }
        let now = group.first().map_or(0, |chunk| chunk.at / STEP * STEP);
        for (row, (runs, from)) in (0..ROWS).zip(&mut standing) {
            let seen = runs_of(terminal.screen(), row);
            if seen != *runs {
                let runs = std::mem::replace(runs, seen);
                film.keep(Span { row, runs, from: *from, until: Some(now) });
                *from = now;
            }
        }
        film.length = now + REST;
    }
    for (row, (runs, from)) in (0..ROWS).zip(standing) {
        film.keep(Span { row, runs, from, until: None });
    }
    film
}

impl Film {
    fn keep(&mut self, span: Span) {
        if !span.runs.is_empty() {
            self.spans.push(span);
        }
    }
}

fn runs_of(screen: &Screen, row: u16) -> Vec<FrameRun> {
    let mut runs: Vec<FrameRun> = Vec::new();
    for column in 0..COLUMNS {
        let Some(cell) = screen.cell(row, column) else { break };
        let colour = match cell.fgcolor() {
            Color::Idx(n) => Some(n % 8),
            Color::Default | Color::Rgb(..) => None,
        };
        let look = Look { colour, is_bold: cell.bold() };
        let text = if cell.has_contents() { cell.contents() } else { " " };
        match runs.last_mut().filter(|run| run.look == look) {
            Some(run) => run.text += text,
            None => runs.push(FrameRun { column, text: text.to_owned(), look }),
        }
    }
    if let Some(last) = runs.last_mut() {
        last.text.truncate(last.text.trim_end().len());
    }
    runs.retain(|run| !run.text.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(chunks: &[(u64, &str)]) -> Vec<(u16, String, u64, Option<u64>)> {
        let chunks: Vec<Chunk> =
            chunks.iter().map(|(at, text)| Chunk { at: *at, bytes: text.as_bytes().to_vec() }).collect();
        let text = |runs: Vec<FrameRun>| runs.into_iter().map(|run| run.text).collect();
        film(&chunks).spans.into_iter().map(|span| (span.row, text(span.runs), span.from, span.until)).collect()
    }

    #[test]
    fn a_row_stands_until_it_changes() {
        let found = seen(&[(0, "one\r\ntwo"), (250, "\r\x1b[2Kthree"), (900, "\r\n")]);
        let wanted =
            [(1, "two".to_owned(), 0, Some(200)), (0, "one".to_owned(), 0, None), (1, "three".to_owned(), 200, None)];
        assert_eq!(found, wanted);
    }

    #[test]
    fn what_changes_at_once_is_one_step() {
        assert_eq!(seen(&[(0, "a"), (40, "b"), (99, "c")]), [(0, "abc".to_owned(), 0, None)]);
    }

    #[test]
    fn colours_make_runs() {
        let film = film(&[Chunk { at: 0, bytes: b"\x1b[1;32m$\x1b[0m ls".to_vec() }]);
        let looks: Vec<_> = film.spans[0].runs.iter().map(|run| (run.column, run.text.as_str(), run.look)).collect();
        let plain = Look { colour: None, is_bold: false };
        assert_eq!(looks, [(0, "$", Look { colour: Some(2), is_bold: true }), (1, " ls", plain)]);
    }
}
