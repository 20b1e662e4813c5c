//! A text on a terminal that is drawn over the one before it.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

use super::fit::{Size, fit};

/// What was drawn last.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    n_lines: usize,
}

impl Canvas {
    /// Draws over what was drawn before, as much of it as fits the terminal.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub(crate) fn draw(&mut self, text: &str, out: &mut (impl Write + AsFd)) -> io::Result<()> {
        // Where the size is not known, the terminal is told not to wrap.
        let size = tcgetwinsize(out.as_fd()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        let lines = match size {
            Some(size) => fit(text, Size { columns: size.ws_col.into(), rows: size.ws_row.into() }),
            None => text.lines().map(str::to_owned).collect(),
        };
        let text = lines.join("\n");
        if self.n_lines > 0 {
            write!(out, "\x1b[{}A\x1b[J", self.n_lines)?;
        }
        writeln!(out, "\x1b[?7l{text}\x1b[?7h")?;
        self.n_lines = lines.len();
        out.flush()
    }
}
