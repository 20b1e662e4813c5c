//! Comments end at the column where code ends. `rustfmt` leaves them alone, so this rule can also wrap them.

use std::borrow::Cow;

use crate::tidy::fault::Fault;
use crate::tidy::tree::Tree;

/// The same as `max_width` of `rustfmt.toml`.
const WIDTH: usize = 120;

/// Names every wider line of comment.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let lines = tree.code.iter().flat_map(|code| {
        let wide = code.file.text.lines().enumerate().filter(|(_, line)| is_comment(line) && width(line) > WIDTH);
        wide.map(|(index, line)| {
            let reason = format!("a comment of {} columns", width(line));
            code.file.fault(index + 1, reason, format!("end it at {WIDTH}; `cargo xtask tidy --fix` does that"))
        })
    });
    lines.collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn width(line: &str) -> usize {
    line.chars().count()
}

/// Wraps every paragraph of comment that is too wide, from its first wide line on. Other text stays as it is.
pub(in crate::tidy) fn fill(text: &str) -> String {
    let mut filled: Vec<Cow<'_, str>> = Vec::new();
    let mut lines = text.lines().peekable();
    let mut is_code = false;
    while let Some(line) = lines.next() {
        let Some((lead, words)) = parts(line) else {
            is_code = false;
            filled.push(line.into());
            continue;
        };
        is_code ^= words.starts_with("```");
        if is_code || width(line) <= WIDTH || words.starts_with('|') {
            filled.push(line.into());
            continue;
        }
        let mut paragraph = words.to_owned();
        while let Some((_, more)) =
            lines.peek().and_then(|next| parts(next)).filter(|(next, more)| *next == lead && goes_on(more))
        {
            paragraph.push(' ');
            paragraph.push_str(more);
            lines.next();
        }
        filled.extend(wrapped(lead, &paragraph).into_iter().map(Cow::from));
    }
    let mut filled = filled.join("\n");
    if text.ends_with('\n') {
        filled.push('\n');
    }
    filled
}

/// Indentation with slashes, and the words after them. None for a line that holds no comment alone.
fn parts(line: &str) -> Option<(&str, &str)> {
    let start = line.len() - line.trim_start().len();
    let slashes = line[start..].find(|letter| letter != '/' && letter != '!').unwrap_or(line.len() - start);
    let lead = &line[..start + slashes];
    (slashes >= 2).then(|| (lead, line[lead.len()..].trim()))
}

/// Whether a line goes on with the paragraph before it.
fn goes_on(words: &str) -> bool {
    let begins_anew = ["- ", "* ", "#", "|", "```", ">"].iter().any(|mark| words.starts_with(mark));
    let is_numbered = words.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    !(words.is_empty() || begins_anew || is_numbered)
}

fn wrapped(lead: &str, paragraph: &str) -> Vec<String> {
    let indent = if paragraph.starts_with("- ") || paragraph.starts_with("* ") { "   " } else { " " };
    let mut lines = Vec::new();
    let mut line = format!("{lead} ");
    let mut is_empty = true;
    for word in words_of(paragraph) {
        if !is_empty && width(&line) + 1 + width(word) > WIDTH {
            lines.push(std::mem::replace(&mut line, format!("{lead}{indent}")));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Blanks within backticks are no place to break a line: the piece of code would be hard to read.
fn words_of(paragraph: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut is_code) = (0, false);
    for (index, letter) in paragraph.char_indices() {
        match letter {
            '`' => is_code = !is_code,
            ' ' if !is_code => {
                words.push(&paragraph[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    words.push(&paragraph[start..]);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::{reasons, tree_of};

    #[test]
    fn wide_comments_are_named_and_wide_code_is_not() {
        let text = format!(
            "//! {}\n\n    // {}\nconst S: &str = \"{}\";\n",
            "x".repeat(116),
            "é".repeat(114),
            "x".repeat(130)
        );
        assert_eq!(reasons(&check(&tree_of(&[("src/lib.rs", &text)]))), ["src/lib.rs:3: a comment of 121 columns"]);
    }

    #[test]
    fn a_wide_paragraph_is_filled_and_its_neighbours_are_left() {
        let word = "nine chars";
        let wide = [word; 12].join(" ");
        let text = format!(
            "//! Short\n//! head.\n//!\n//! {wide}\n//! and more\n//! - item\n\nfn f() {{\n    // {wide}\n}}\n"
        );
        let filled = fill(&text);
        let first = [word; 10].join(" ");
        assert_eq!(
            filled,
            format!(
                "//! Short\n//! head.\n//!\n//! {first} nine\n//! chars {word} and more\n//! - item\n\nfn f() {{\n    // {first}\n    // {word} {word}\n}}\n"
            )
        );
        assert_eq!(fill(&filled), filled);
    }

    #[test]
    fn code_and_tables_are_left_and_code_in_a_line_is_not_broken() {
        let wide = "x ".repeat(70);
        let text = format!("/// ```\n/// {wide}\n/// ```\n/// | {wide}\n");
        assert_eq!(fill(&text), text);
        let text = format!("/// {} `a b c`\n", "x".repeat(112));
        assert_eq!(fill(&text), format!("/// {}\n/// `a b c`\n", "x".repeat(112)));
    }
}
