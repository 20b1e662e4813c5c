//! A text that is drawn over itself must fit the terminal: a line that wraps takes two, and what has scrolled away
//! cannot be drawn over.

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Characters of a line.
    pub(crate) columns: usize,
    /// Lines.
    pub(crate) rows: usize,
}

/// The lines cut to the width, and the last ones left out where there are more than fit above the cursor's line; one
/// line says how many.
pub(crate) fn fit(text: &str, size: Size) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| cut(line, size.columns)).collect();
    let room = size.rows.saturating_sub(1).max(1);
    if lines.len() > room {
        let left_out = lines.len() - room + 1;
        lines.truncate(room - 1);
        lines.push(cut(&format!("… and {left_out} more lines"), size.columns));
    }
    lines
}

fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept = columns.saturating_sub(1);
    line.chars().take(kept).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_fits_the_terminal() {
        let fitted = |columns, rows| fit("a long line\nb\n│  ✓ c\nd", Size { columns, rows });
        assert_eq!(fitted(80, 24), ["a long line", "b", "│  ✓ c", "d"]);
        assert_eq!(fitted(6, 24), ["a lon…", "b", "│  ✓ c", "d"]);
        assert_eq!(fitted(80, 4), ["a long line", "b", "… and 2 more lines"]);
        assert_eq!(fitted(5, 1), ["… an…"]);
    }
}
