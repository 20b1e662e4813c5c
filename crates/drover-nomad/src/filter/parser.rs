//! The grammar of filters. `or` binds weakest, then `and`, then `not`.

use regex::{Regex, RegexBuilder};

use super::lexer::{Token, fault, words};
use crate::fault::Fault;

/// How deep brackets and `not` may be nested.
const MOST_LEVELS: usize = 32;
/// The most memory that a regular expression may take, in bytes.
const MOST_REGEX_BYTES: usize = 1 << 20;

/// What an expression says.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    Or(Vec<Expression>),
    And(Vec<Expression>),
    Not(Box<Expression>),
    Match(Match),
}

/// One comparison.
#[derive(Clone, Debug)]
pub(super) struct Match {
    /// The parts of the path.
    pub(super) path: Vec<String>,
    pub(super) test: Test,
    /// Whether the opposite is meant.
    pub(super) is_negated: bool,
}

/// What is asked of a value.
#[derive(Clone, Debug)]
pub(super) enum Test {
    Equals(String),
    Holds(String),
    IsEmpty,
    IsNil,
    Matches(Regex),
}

/// Reads an expression.
///
/// # Errors
/// 400, with the place and what was expected there.
pub(super) fn parse(text: &str) -> Result<Expression, Fault> {
    let words = words(text)?;
    let mut parser = Parser { words: &words, next: 0, end: text.chars().count(), level: 0 };
    let expression = parser.alternatives()?;
    match parser.peek() {
        None => Ok(expression),
        Some(_) => Err(parser.fault("`and`, `or` or the end")),
    }
}

struct Parser<'a> {
    words: &'a [(usize, Token)],
    next: usize,
    end: usize,
    level: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.words.get(self.next).map(|(_, token)| token)
    }

    fn fault(&self, expected: &str) -> Fault {
        let at = self.words.get(self.next).map_or(self.end, |(at, _)| *at);
        fault(at, &format!("expected {expected}"))
    }

    /// Takes a word of the language where it is next.
    fn takes(&mut self, wanted: &str) -> bool {
        let is_there = matches!(self.peek(), Some(Token::Word(word)) if word == wanted);
        self.next += usize::from(is_there);
        is_there
    }

    fn takes_token(&mut self, wanted: &Token) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.next += usize::from(is_there);
        is_there
    }

    fn alternatives(&mut self) -> Result<Expression, Fault> {
        let mut all = vec![self.conjunction()?];
        while self.takes("or") {
            all.push(self.conjunction()?);
        }
        Ok(one_or(all, Expression::Or))
    }

    fn conjunction(&mut self) -> Result<Expression, Fault> {
        let mut all = vec![self.term()?];
        while self.takes("and") {
            all.push(self.term()?);
        }
        Ok(one_or(all, Expression::And))
    }

    fn term(&mut self) -> Result<Expression, Fault> {
        if self.level >= MOST_LEVELS {
            return Err(self.fault(&format!("at most {MOST_LEVELS} levels of brackets and `not`")));
        }
        self.level += 1;
        let term = if self.takes("not") {
            self.term().map(|term| Expression::Not(Box::new(term)))
        } else if self.takes_token(&Token::Open) {
            let inner = self.alternatives()?;
            if !self.takes_token(&Token::Close) {
                return Err(self.fault("`)`"));
            }
            Ok(inner)
        } else {
            self.comparison().map(Expression::Match)
        };
        self.level -= 1;
        term
    }

    fn comparison(&mut self) -> Result<Match, Fault> {
        // A text comes first only in `"x" in Path`.
        if let Some(Token::Text(text)) = self.peek() {
            let text = text.clone();
            self.next += 1;
            return self.membership(text);
        }
        let begin = self.next;
        let path = self.path()?;
        if matches!(self.peek(), Some(Token::Word(word)) if word == "in")
            || (matches!(self.peek(), Some(Token::Word(word)) if word == "not") && self.is_after("in"))
        {
            // `web in Tags`: what stood there was a value.
            self.next = begin;
            let value = self.value()?;
            return self.membership(value);
        }
        let (test, is_negated) = self.test()?;
        Ok(Match { path, test, is_negated })
    }

    fn is_after(&self, wanted: &str) -> bool {
        let after = self.words.get(self.next.saturating_add(1));
        matches!(after, Some((_, Token::Word(word))) if word == wanted)
    }

    fn membership(&mut self, value: String) -> Result<Match, Fault> {
        let is_negated = self.takes("not");
        if !self.takes("in") {
            return Err(self.fault("`in` or `not in`"));
        }
        Ok(Match { path: self.path()?, test: Test::Holds(value), is_negated })
    }

    fn test(&mut self) -> Result<(Test, bool), Fault> {
        if self.takes_token(&Token::Equal) {
            return Ok((Test::Equals(self.value()?), false));
        }
        if self.takes_token(&Token::NotEqual) {
            return Ok((Test::Equals(self.value()?), true));
        }
        if self.takes("is") {
            let is_negated = self.takes("not");
            if self.takes("empty") {
                return Ok((Test::IsEmpty, is_negated));
            }
            if self.takes("nil") {
                return Ok((Test::IsNil, is_negated));
            }
            return Err(self.fault("`empty`, `nil`, `not empty` or `not nil`"));
        }
        let is_negated = self.takes("not");
        if self.takes("contains") {
            return Ok((Test::Holds(self.value()?), is_negated));
        }
        if self.takes("matches") {
            let place = self.next;
            let text = self.value()?;
            let regex = RegexBuilder::new(&text).size_limit(MOST_REGEX_BYTES).build();
            return regex.map(|regex| (Test::Matches(regex), is_negated)).map_err(|error| {
                let at = self.words.get(place).map_or(self.end, |(at, _)| *at);
                fault(at, &format!("{text:?} is no regular expression: {error}"))
            });
        }
        Err(self.fault("`==`, `!=`, `is empty`, `is nil`, `contains`, `matches`, or one of them with `not`"))
    }

    fn path(&mut self) -> Result<Vec<String>, Fault> {
        let mut path = vec![self.part()?];
        loop {
            if self.takes_token(&Token::Dot) {
                path.push(self.part()?);
            } else if self.takes_token(&Token::OpenIndex) {
                let Some(Token::Text(key)) = self.peek().cloned() else { return Err(self.fault("a key in quotes")) };
                self.next += 1;
                path.push(key);
                if !self.takes_token(&Token::CloseIndex) {
                    return Err(self.fault("`]`"));
                }
            } else {
                return Ok(path);
            }
        }
    }

    fn part(&mut self) -> Result<String, Fault> {
        let Some(Token::Word(word)) = self.peek().cloned() else { return Err(self.fault("the name of a field")) };
        self.next += 1;
        Ok(word)
    }

    /// A value: a text in quotes, a number, or a word; `1.5` comes in three words.
    fn value(&mut self) -> Result<String, Fault> {
        match self.peek().cloned() {
            Some(Token::Text(text)) => {
                self.next += 1;
                Ok(text)
            }
            Some(Token::Word(mut word)) => {
                self.next += 1;
                while self.takes_token(&Token::Dot) {
                    word.push('.');
                    word.push_str(&self.part()?);
                }
                Ok(word)
            }
            Some(_) | None => Err(self.fault("a value, as \"running\" or 7")),
        }
    }
}

fn one_or(mut all: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        Some(last) => {
            all.push(last);
            many(all)
        }
        None => many(all),
    }
}
