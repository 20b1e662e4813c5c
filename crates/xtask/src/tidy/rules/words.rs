//! Plain words in what strangers read: documents, documentation of code, messages.
//!
//! The list is `tools/words.txt`. Documents under `docs/spec` come from elsewhere, and a quotation in `docs/decisions`
//! is what was written then: neither is looked at. Tests may use any word.

use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use crate::tidy::fault::Fault;
use crate::tidy::tree::{CodeFile, TextFile, Tree};

/// A word and what to write instead.
#[derive(Debug, Clone, Copy)]
struct Word<'a> {
    word: &'a str,
    instead: &'a str,
}

/// Names the places that use a word of the list.
pub(in crate::tidy) fn check(tree: &Tree) -> Vec<Fault> {
    let words = list(include_str!("../../../../../tools/words.txt"));
    let mut faults = Vec::new();
    for document in tree.documents.iter().filter(|document| !document.path.starts_with("docs/spec")) {
        faults.extend(in_document(document, &words));
    }
    for code in tree.code.iter().filter(|code| !code.is_for_tests()) {
        faults.extend(in_code(code, &words));
    }
    faults
}

fn list(text: &str) -> Vec<Word<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('|'))
        .map(|(word, instead)| Word { word: word.trim(), instead: instead.trim() })
        .collect()
}

fn in_document(document: &TextFile, words: &[Word<'_>]) -> Vec<Fault> {
    let holds_quotations = document.path.starts_with(Path::new("docs/decisions"));
    let mut is_code = false;
    let mut faults = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if !(is_code || holds_quotations && line.starts_with('>')) {
            faults.extend(in_line(line, words).map(|word| fault(document, index + 1, word)));
        }
    }
    faults
}

/// Looks at documentation and strings: both are literals to the compiler.
fn in_code(code: &CodeFile, words: &[Word<'_>]) -> Vec<Fault> {
    let mut literals = Vec::new();
    collect_literals(code.tokens.clone(), &mut literals);
    // One word alone is a name, as that of a user of the system.
    literals.retain(|(text, line)| text.contains(char::is_whitespace) && !code.is_test_line(*line));
    let mut faults = Vec::new();
    for (text, first_line) in literals {
        for (index, line) in text.lines().enumerate() {
            faults.extend(in_line(line, words).map(|word| fault(&code.file, first_line + index, word)));
        }
    }
    faults
}

fn fault(file: &TextFile, line: usize, word: Word<'_>) -> Fault {
    file.fault(line, format!("says \"{}\"", word.word), word.instead)
}

/// The strings of some tokens, with the line of each.
fn collect_literals(tokens: TokenStream, literals: &mut Vec<(String, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_literals(group.stream(), literals),
            TokenTree::Literal(literal) => literals.push((literal.to_string(), literal.span().start().line)),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn in_line<'a>(line: &str, words: &[Word<'a>]) -> impl Iterator<Item = Word<'a>> {
    let text: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`").to_lowercase();
    words.iter().copied().filter(move |word| holds(&text, word.word))
}

/// Whether a text holds a word, and not only as a part of another.
fn holds(text: &str, word: &str) -> bool {
    let is_letter = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    text.match_indices(word).any(|(start, found)| {
        !is_letter(text[..start].chars().next_back()) && !is_letter(text[start + found.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::tests::reasons;

    const WORDS: &[Word<'static>] =
        &[Word { word: "wish", instead: "request" }, Word { word: "for ever", instead: "without limit" }];

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn the_list_is_read_line_by_line() {
        let words = list("# comment\nwish | request\n\nfor ever | without limit\n");
        assert_eq!(
            words.iter().map(|word| (word.word, word.instead)).collect::<Vec<_>>(),
            [("wish", "request"), ("for ever", "without limit")]
        );
    }

    #[test]
    fn documentation_and_strings_are_looked_at_and_names_comments_and_tests_are_not() {
        let text = "//! A Wish.\n// wish\nfn wish() {}\n/// Lasts for ever, `wish`.\nfn f() { g(\"no wish\n for ever\", wish, \"wishbone\") }\n\
                    #[cfg(test)]\nmod tests { fn f() { g(\"wish\") } }\n/// wish\nfn h() {}\n";
        assert_eq!(
            reasons(&in_code(&CodeFile::parse(file("a.rs", text)).unwrap(), WORDS)),
            [
                "a.rs:1: says \"wish\"",
                "a.rs:4: says \"for ever\"",
                "a.rs:5: says \"wish\"",
                "a.rs:6: says \"for ever\"",
                "a.rs:9: says \"wish\"",
            ]
        );
    }

    #[test]
    fn code_in_documents_and_quotations_in_decisions_are_left() {
        let text = "a wish\n> a wish\n`wish`\n```\nwish\n```\n";
        assert_eq!(
            reasons(&in_document(&file("docs/a.md", text), WORDS)),
            ["docs/a.md:1: says \"wish\"", "docs/a.md:2: says \"wish\""]
        );
        assert_eq!(
            reasons(&in_document(&file("docs/decisions/001.md", text), WORDS)),
            ["docs/decisions/001.md:1: says \"wish\""]
        );
    }
}
