//! The words of a filter.

use crate::fault::Fault;

/// A word of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a number, or a word of the language.
    Word(String),
    /// A text in quotes.
    Text(String),
    /// `==`.
    Equal,
    /// `!=`.
    NotEqual,
    /// `(`.
    Open,
    /// `)`.
    Close,
    /// `[`.
    OpenIndex,
    /// `]`.
    CloseIndex,
    /// `.`, between the parts of a path.
    Dot,
}

/// Splits an expression into words, each with the place where it begins.
///
/// # Errors
/// 400, with the place of what is none.
pub(super) fn words(text: &str) -> Result<Vec<(usize, Token)>, Fault> {
    let mut words = Vec::new();
    let mut rest = text.chars().enumerate().peekable();
    while let Some((at, c)) = rest.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            '[' => Token::OpenIndex,
            ']' => Token::CloseIndex,
            '.' => Token::Dot,
            '=' if rest.next_if(|(_, c)| *c == '=').is_some() => Token::Equal,
            '!' if rest.next_if(|(_, c)| *c == '=').is_some() => Token::NotEqual,
            '"' | '`' => Token::Text(quoted(&mut rest, c).ok_or_else(|| fault(at, "this text has no end"))?),
            c if is_of_word(c) || c == '-' => {
                let mut word = c.to_string();
                while let Some((_, c)) = rest.next_if(|(_, c)| is_of_word(*c) || *c == '-') {
                    word.push(c);
                }
                Token::Word(word)
            }
            _ => return Err(fault(at, &format!("{c:?} has no meaning here"))),
        };
        words.push((at, token));
    }
    Ok(words)
}

/// A refusal that names the place, counted from 1.
pub(super) fn fault(at: usize, why: &str) -> Fault {
    Fault::bad(format!("filter, at character {}: {why}", at.saturating_add(1)))
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What is up to the closing quote. Between backquotes nothing is escaped.
fn quoted(rest: &mut impl Iterator<Item = (usize, char)>, quote: char) -> Option<String> {
    let mut text = String::new();
    loop {
        match rest.next()?.1 {
            c if c == quote => return Some(text),
            '\\' if quote == '"' => match rest.next()?.1 {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                c @ ('"' | '\\') => text.push(c),
                // An expression, as `\d`, is meant for what reads it.
                c => text.extend(['\\', c]),
            },
            c => text.push(c),
        }
    }
}
