//! Lines of several sources, each with where it comes from; a line is written as a whole.

use crate::ui::stdio::answer;

/// The longest line that is waited for; a longer one is written in parts.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// What terminals show well on light and on dark: cyan, green, magenta, yellow, blue, red.
const COLOURS: [u8; 6] = [36, 32, 35, 33, 34, 31];

/// How the prefix is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As it is.
    Plain,
    /// Each source in a colour.
    Coloured,
}

/// One source.
#[derive(Debug)]
pub(crate) struct Prefixed {
    prefix: String,
    rest: Vec<u8>,
}

impl Prefixed {
    /// The lines of a task of an allocation.
    pub(crate) fn new(allocation: &str, task: &str, style: Style) -> Self {
        let prefix = match style {
            Style::Plain => format!("{allocation} {task} "),
            Style::Coloured => {
                let sum = allocation.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
                format!("\x1b[{}m{allocation} {task}\x1b[0m ", COLOURS[sum % COLOURS.len()])
            }
        };
        Self { prefix, rest: Vec::new() }
    }

    /// Takes in what comes, and writes the lines that are whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let text = self.lines(bytes);
        if text.is_empty() { Ok(()) } else { answer(&text) }
    }

    /// Nothing more comes: what has begun is a line.
    pub(crate) fn end(&mut self) -> anyhow::Result<()> {
        if self.rest.is_empty() { Ok(()) } else { self.take(b"\n") }
    }

    fn lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if part.ends_with(b"\n") || self.rest.len() >= MAX_LINE_BYTES {
                text.extend_from_slice(self.prefix.as_bytes());
                text.append(&mut self.rest);
                if !text.ends_with(b"\n") {
                    text.push(b'\n');
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_say_where_they_come_from() {
        let mut lines = Prefixed::new("web-g-0", "t", Style::Plain);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        assert_eq!(text(lines.lines(b"one\ntw")), "web-g-0 t one\n");
        assert_eq!(text(lines.lines(b"o\n\nthr")), "web-g-0 t two\nweb-g-0 t \n");
        assert_eq!(text(lines.lines(b"\n")), "web-g-0 t thr\n");
        let long = lines.lines(&vec![b'x'; MAX_LINE_BYTES]);
        assert_eq!(long.len(), "web-g-0 t ".len() + MAX_LINE_BYTES + 1);
        assert!(lines.rest.is_empty());
    }

    #[test]
    fn a_source_keeps_its_colour() {
        let prefix = |name: &str| Prefixed::new(name, "t", Style::Coloured).prefix;
        assert_eq!(prefix("web-g-0"), prefix("web-g-0"));
        assert!(prefix("web-g-0").starts_with("\x1b[3") && prefix("web-g-0").ends_with("web-g-0 t\x1b[0m "));
    }
}
