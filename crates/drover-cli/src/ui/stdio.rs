//! Standard input, output and error of a command: results on standard output, everything else on standard error.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;

/// Writes a line to standard error; when that is closed too, there is nowhere left to report to.
pub fn complain(text: &str) {
    writeln!(io::stderr(), "{text}").ok();
}

/// Writes a result to standard output. A reader that has seen enough (`| head`) is no error.
pub fn answer(text: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("writing to standard output"),
        _ => Ok(()),
    }
}

/// Reads a file, or standard input for `-`.
pub fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::stdin().lock(), &mut bytes).context("reading standard input")?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}
