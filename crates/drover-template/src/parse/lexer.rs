//! From text to tokens: text, and inside of actions their words.

use crate::runes::{self, is_digit, is_letter};

/// A word of a template and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) at: usize,
    pub(super) text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// What is wrong with the text from here on.
    Wrong(&'static str),
    End,
    Text,
    Left,
    Right,
    Space,
    Assign,
    Declare,
    Pipe,
    LeftParenthesis,
    RightParenthesis,
    Char,
    Character,
    Complex,
    Number,
    Quoted,
    Raw,
    Bool,
    Identifier,
    Field,
    Variable,
    Dot,
    Keyword(Keyword),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

const SPACES: &[u8] = b" \t\r\n";

/// Reads one token after the other.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    left: &'a [u8],
    right: &'a [u8],
    at: usize,
    is_inside: bool,
    parentheses: usize,
    is_over: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a [u8], left: &'a [u8], right: &'a [u8]) -> Self {
        Self { text, left, right, at: 0, is_inside: false, parentheses: 0, is_over: false }
    }

    /// The next token; after the end, and after what is wrong, always the same.
    pub(super) fn next(&mut self) -> Token<'a> {
        if self.is_over {
            return Token { kind: TokenKind::End, at: self.text.len(), text: b"" };
        }
        if self.is_inside { self.inside() } else { self.outside() }
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn token(&self, kind: TokenKind, from: usize) -> Token<'a> {
        Token { kind, at: from, text: &self.text[from..self.at] }
    }

    fn wrong(&mut self, what: &'static str) -> Token<'a> {
        self.is_over = true;
        Token { kind: TokenKind::Wrong(what), at: self.at.min(self.text.len()), text: b"" }
    }

    /// Text up to the next action; comments are skipped.
    fn outside(&mut self) -> Token<'a> {
        loop {
            let from = self.at;
            let Some(found) = find(self.rest(), self.left) else {
                self.at = self.text.len();
                let kind = if from == self.at { TokenKind::End } else { TokenKind::Text };
                return self.token(kind, from);
            };
            let action = from + found;
            let behind = &self.text[action + self.left.len()..];
            let has_marker = behind.first() == Some(&b'-') && behind.get(1).is_some_and(|byte| SPACES.contains(byte));
            let text = &self.text[from..action];
            let text = if has_marker { text.trim_suffix_of(SPACES) } else { text };
            if !text.is_empty() {
                self.at = action;
                return Token { kind: TokenKind::Text, at: from, text };
            }
            self.at = action + self.left.len() + if has_marker { 2 } else { 0 };
            if !self.rest().starts_with(b"/*") {
                self.is_inside = true;
                self.parentheses = 0;
                return Token { kind: TokenKind::Left, at: action, text: self.left };
            }
            if let Some(wrong) = self.comment() {
                return wrong;
            }
        }
    }

    fn comment(&mut self) -> Option<Token<'a>> {
        self.at += 2;
        let Some(end) = find(self.rest(), b"*/") else { return Some(self.wrong("unclosed comment")) };
        self.at += end + 2;
        let Some(trims) = self.at_right() else { return Some(self.wrong("comment ends before closing delimiter")) };
        self.skip_right(trims);
        None
    }

    /// Whether the action ends here, and whether it takes the space behind it away.
    fn at_right(&self) -> Option<bool> {
        let rest = self.rest();
        let has_marker = rest.first().is_some_and(|byte| SPACES.contains(byte)) && rest.get(1) == Some(&b'-');
        if has_marker && rest[2..].starts_with(self.right) {
            return Some(true);
        }
        rest.starts_with(self.right).then_some(false)
    }

    fn skip_right(&mut self, trims: bool) {
        self.at += self.right.len() + if trims { 2 } else { 0 };
        if trims {
            self.at += self.rest().iter().take_while(|byte| SPACES.contains(byte)).count();
        }
    }

    fn right(&mut self, trims: bool) -> Token<'a> {
        let from = self.at + if trims { 2 } else { 0 };
        self.skip_right(trims);
        self.is_inside = false;
        Token { kind: TokenKind::Right, at: from, text: self.right }
    }

    fn inside(&mut self) -> Token<'a> {
        if let Some(trims) = self.at_right() {
            return if self.parentheses == 0 { self.right(trims) } else { self.wrong("unclosed left paren") };
        }
        let from = self.at;
        let Some((char, width)) = self.peek() else { return self.wrong("unclosed action") };
        self.at += width;
        match char {
            ' ' | '\t' | '\r' | '\n' => self.space(from),
            '=' => self.token(TokenKind::Assign, from),
            ':' if self.peek().is_some_and(|(char, _)| char == '=') => {
                self.at += 1;
                self.token(TokenKind::Declare, from)
            }
            ':' => self.wrong("expected :="),
            '|' => self.token(TokenKind::Pipe, from),
            '"' => self.until(from, b'"', TokenKind::Quoted, "unterminated quoted string"),
            '\'' => self.until(from, b'\'', TokenKind::Character, "unterminated character constant"),
            '`' => match find(self.rest(), b"`") {
                Some(end) => {
                    self.at += end + 1;
                    self.token(TokenKind::Raw, from)
                }
                None => self.wrong("unterminated raw quoted string"),
            },
            '$' => self.name(from, TokenKind::Variable),
            '.' if !self.peek().is_some_and(|(char, _)| char.is_ascii_digit()) => self.name(from, TokenKind::Field),
            '.' | '+' | '-' | '0'..='9' => {
                self.at = from;
                self.number()
            }
            '(' => {
                self.parentheses += 1;
                self.token(TokenKind::LeftParenthesis, from)
            }
            ')' if self.parentheses == 0 => self.wrong("unexpected right paren"),
            ')' => {
                self.parentheses -= 1;
                self.token(TokenKind::RightParenthesis, from)
            }
            _ if is_alphanumeric(char) => self.identifier(from),
            ' '..='~' => self.token(TokenKind::Char, from),
            _ => self.wrong("unrecognized character in action"),
        }
    }

    fn peek(&self) -> Option<(char, usize)> {
        let rest = self.rest();
        (!rest.is_empty()).then(|| runes::first(rest))
    }

    /// Spaces, but not the one that belongs to a marker at the action's end.
    fn space(&mut self, from: usize) -> Token<'a> {
        self.at += self.rest().iter().take_while(|byte| SPACES.contains(byte)).count();
        self.at -= 1;
        if self.at_right() == Some(true) {
            if self.at == from {
                return self.right(true);
            }
        } else {
            self.at += 1;
        }
        self.token(TokenKind::Space, from)
    }

    /// A literal with escapes, which ends in the same line.
    fn until(&mut self, from: usize, quote: u8, kind: TokenKind, unterminated: &'static str) -> Token<'a> {
        while let Some(&byte) = self.rest().first() {
            self.at += 1;
            match byte {
                b'\\' if !matches!(self.rest().first(), None | Some(b'\n')) => self.at += 1,
                b'\\' | b'\n' => break,
                _ if byte == quote => return self.token(kind, from),
                _ => {}
            }
        }
        self.wrong(unterminated)
    }

    fn skip_alphanumeric(&mut self) {
        while let Some((char, width)) = self.peek()
            && is_alphanumeric(char)
        {
            self.at += width;
        }
    }

    fn is_terminated(&self) -> bool {
        match self.rest().first() {
            None => true,
            Some(byte) => SPACES.contains(byte) || b".,|:)(".contains(byte) || self.rest().starts_with(self.right),
        }
    }

    /// A field or a variable, whose first character has been read.
    fn name(&mut self, from: usize, kind: TokenKind) -> Token<'a> {
        if self.is_terminated() {
            let kind = if kind == TokenKind::Field { TokenKind::Dot } else { kind };
            return self.token(kind, from);
        }
        self.skip_alphanumeric();
        if self.is_terminated() { self.token(kind, from) } else { self.wrong("bad character") }
    }

    fn identifier(&mut self, from: usize) -> Token<'a> {
        self.skip_alphanumeric();
        if !self.is_terminated() {
            return self.wrong("bad character");
        }
        let kind = match &self.text[from..self.at] {
            b"block" => TokenKind::Keyword(Keyword::Block),
            b"break" => TokenKind::Keyword(Keyword::Break),
            b"continue" => TokenKind::Keyword(Keyword::Continue),
            b"define" => TokenKind::Keyword(Keyword::Define),
            b"else" => TokenKind::Keyword(Keyword::Else),
            b"end" => TokenKind::Keyword(Keyword::End),
            b"if" => TokenKind::Keyword(Keyword::If),
            b"nil" => TokenKind::Keyword(Keyword::Nil),
            b"range" => TokenKind::Keyword(Keyword::Range),
            b"template" => TokenKind::Keyword(Keyword::Template),
            b"with" => TokenKind::Keyword(Keyword::With),
            b"true" | b"false" => TokenKind::Bool,
            _ => TokenKind::Identifier,
        };
        self.token(kind, from)
    }

    fn number(&mut self) -> Token<'a> {
        let from = self.at;
        if !self.scan_number() {
            return self.wrong("bad number syntax");
        }
        if !matches!(self.rest().first(), Some(b'+' | b'-')) {
            return self.token(TokenKind::Number, from);
        }
        if !self.scan_number() || self.text[self.at - 1] != b'i' {
            return self.wrong("bad number syntax");
        }
        self.token(TokenKind::Complex, from)
    }

    fn accept(&mut self, any: &[u8]) -> bool {
        let is_there = self.rest().first().is_some_and(|byte| any.contains(byte));
        self.at += usize::from(is_there);
        is_there
    }

    fn accept_all(&mut self, any: &[u8]) {
        while self.accept(any) {}
    }

    fn scan_number(&mut self) -> bool {
        self.accept(b"+-");
        let (mut digits, mut exponent): (&[u8], &[u8]) = (b"0123456789_", b"eE");
        if self.accept(b"0") {
            if self.accept(b"xX") {
                (digits, exponent) = (b"0123456789abcdefABCDEF_", b"pP");
            } else if self.accept(b"oO") {
                (digits, exponent) = (b"01234567_", b"");
            } else if self.accept(b"bB") {
                (digits, exponent) = (b"01_", b"");
            }
        }
        self.accept_all(digits);
        if self.accept(b".") {
            self.accept_all(digits);
        }
        if self.accept(exponent) {
            self.accept(b"+-");
            self.accept_all(b"0123456789_");
        }
        self.accept(b"i");
        !self.peek().is_some_and(|(char, _)| is_alphanumeric(char))
    }
}

fn is_alphanumeric(char: char) -> bool {
    char == '_' || is_letter(char) || is_digit(char)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

trait TrimSuffix {
    fn trim_suffix_of(&self, any: &[u8]) -> &Self;
}

impl TrimSuffix for [u8] {
    fn trim_suffix_of(&self, any: &[u8]) -> &Self {
        let kept = self.iter().rposition(|byte| !any.contains(byte)).map_or(0, |at| at + 1);
        &self[..kept]
    }
}
