//! From tokens to trees. One text gives several templates: its own, and each that it defines.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::lexer::{Keyword, Lexer, Token, TokenKind};
use super::literal::{character, unquote};
use super::number;
use super::tree::{Branch, Command, Expression, Node, Pipeline, Spot, Term};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::Bytes;

/// As many parentheses in each other as Go allows.
const MOST_PARENTHESES: usize = 10_000;

/// Templates by name; that of the text itself is the empty name.
pub(crate) type Forest = BTreeMap<Bytes, Rc<Vec<Node>>>;

/// Why a text is no template.
#[derive(Debug)]
pub(crate) struct ParseError {
    pub(crate) at: Spot,
    pub(crate) fault: Fault,
}

/// Reads a text.
///
/// # Errors
/// Where it breaks the grammar, names an unknown function or a variable that is not there.
pub(crate) fn parse(
    text: &[u8],
    delimiters: (&[u8], &[u8]),
    is_function: fn(&str) -> bool,
    budget: &Budget,
) -> Result<Forest, ParseError> {
    let lexer = Lexer::new(text, delimiters.0, delimiters.1);
    let mut parser = Parser {
        lexer,
        ahead: Vec::new(),
        last: 0,
        scopes: vec![Scope::new()],
        forest: Forest::new(),
        n_parentheses: 0,
        is_function,
        budget,
    };
    parser.whole().map_err(|fault| ParseError { at: parser.last, fault })?;
    Ok(parser.forest)
}

type Parsed<T> = Result<T, Fault>;

/// What ends a list.
enum Ending {
    End,
    /// `else`, and the keyword behind it.
    Else(Option<Keyword>),
}

/// What is known inside of one template.
struct Scope {
    variables: Vec<String>,
    n_ranges: usize,
}

impl Scope {
    fn new() -> Self {
        Self { variables: vec!["$".to_owned()], n_ranges: 0 }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Tokens that were put back; the last comes first.
    ahead: Vec<Token<'a>>,
    last: Spot,
    scopes: Vec<Scope>,
    forest: Forest,
    n_parentheses: usize,
    is_function: fn(&str) -> bool,
    budget: &'a Budget,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Token<'a> {
        let token = self.ahead.pop().unwrap_or_else(|| self.lexer.next());
        self.last = token.at;
        token
    }

    fn back(&mut self, token: Token<'a>) {
        self.ahead.push(token);
    }

    fn peek(&mut self) -> Token<'a> {
        let token = self.next();
        self.back(token);
        token
    }

    fn next_word(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    fn peek_word(&mut self) -> Token<'a> {
        let token = self.next_word();
        self.back(token);
        token
    }

    fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::new());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn whole(&mut self) -> Parsed<()> {
        let mut list = Vec::new();
        loop {
            let token = self.peek();
            match token.kind {
                TokenKind::End => break,
                TokenKind::Left => {
                    let left = self.next();
                    let word = self.next_word();
                    if word.kind == TokenKind::Keyword(Keyword::Define) {
                        self.definition()?;
                        continue;
                    }
                    self.back(word);
                    self.back(left);
                }
                _ => {}
            }
            match self.text_or_action()? {
                Ok(node) => list.push(node),
                Err(Ending::End) => return wrong("unexpected {{end}}"),
                Err(Ending::Else(_)) => return wrong("unexpected {{else}}"),
            }
        }
        self.add(Rc::from(&b""[..]), list)
    }

    /// Keeps a template. One that is empty gives way to another of its name.
    fn add(&mut self, name: Bytes, list: Vec<Node>) -> Parsed<()> {
        if self.forest.get(&name).is_none_or(|there| is_empty(there)) {
            self.forest.insert(name, Rc::new(list));
        } else if !is_empty(&list) {
            return wrong(format!("multiple definition of template {:?}", String::from_utf8_lossy(&name)));
        }
        Ok(())
    }

    fn definition(&mut self) -> Parsed<()> {
        let token = self.next_word();
        let name = template_name(token, "define clause")?;
        self.expect_right("define clause")?;
        self.body_of(name, "define clause")
    }

    /// The list of a template with variables of its own.
    fn body_of(&mut self, name: Bytes, context: &str) -> Parsed<()> {
        self.scopes.push(Scope::new());
        let (list, ending) = self.item_list()?;
        self.scopes.pop();
        match ending {
            Ending::End => self.add(name, list),
            Ending::Else(_) => wrong(format!("unexpected {{{{else}}}} in {context}")),
        }
    }

    fn item_list(&mut self) -> Parsed<(Vec<Node>, Ending)> {
        self.budget.deeper()?;
        let mut list = Vec::new();
        while self.peek_word().kind != TokenKind::End {
            match self.text_or_action()? {
                Ok(node) => list.push(node),
                Err(ending) => return Ok((list, ending)),
            }
        }
        wrong("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Parsed<Result<Node, Ending>> {
        self.budget.step()?;
        let token = self.next_word();
        match token.kind {
            TokenKind::Text => {
                self.budget.make(token.text.len())?;
                Ok(Ok(Node::Text(Rc::from(token.text))))
            }
            TokenKind::Left => self.action(),
            _ => unexpected(token, "input"),
        }
    }

    fn action(&mut self) -> Parsed<Result<Node, Ending>> {
        let token = self.next_word();
        let TokenKind::Keyword(keyword) = token.kind else {
            self.back(token);
            return Ok(Ok(Node::Action(self.pipeline("command", TokenKind::Right)?)));
        };
        let node = match keyword {
            Keyword::Block => self.block()?,
            Keyword::Break => {
                self.loop_control("{{break}}")?;
                Node::Break
            }
            Keyword::Continue => {
                self.loop_control("{{continue}}")?;
                Node::Continue
            }
            Keyword::Else => return self.else_control().map(Err),
            Keyword::End => {
                self.expect_right("end")?;
                return Ok(Err(Ending::End));
            }
            Keyword::If | Keyword::With | Keyword::Range => self.control(keyword, token.at)?,
            Keyword::Template => self.template()?,
            Keyword::Nil => {
                self.back(token);
                Node::Action(self.pipeline("command", TokenKind::Right)?)
            }
            Keyword::Define => return unexpected(token, "command"),
        };
        Ok(Ok(node))
    }

    fn loop_control(&mut self, shown: &str) -> Parsed<()> {
        self.expect_right(shown)?;
        if self.scope().n_ranges == 0 {
            return wrong(format!("{shown} outside {{{{range}}}}"));
        }
        Ok(())
    }

    fn else_control(&mut self) -> Parsed<Ending> {
        let token = self.peek_word();
        if let TokenKind::Keyword(keyword @ (Keyword::If | Keyword::With)) = token.kind {
            return Ok(Ending::Else(Some(keyword)));
        }
        self.expect_right("else")?;
        Ok(Ending::Else(None))
    }

    fn control(&mut self, keyword: Keyword, at: Spot) -> Parsed<Node> {
        self.budget.deeper()?;
        let n_variables = self.scope().variables.len();
        let context = match keyword {
            Keyword::If => "if",
            Keyword::With => "with",
            _ => "range",
        };
        let pipeline = self.pipeline(context, TokenKind::Right)?;
        let is_range = keyword == Keyword::Range;
        self.scope().n_ranges += usize::from(is_range);
        let (list, ending) = self.item_list()?;
        self.scope().n_ranges -= usize::from(is_range);
        let otherwise = match ending {
            Ending::End => None,
            Ending::Else(Some(same)) if same == keyword => {
                let token = self.next_word();
                Some(vec![self.control(same, token.at)?])
            }
            Ending::Else(_) => {
                let (list, ending) = self.item_list()?;
                let Ending::End = ending else { return wrong("expected end; found {{else}}") };
                Some(list)
            }
        };
        self.scope().variables.truncate(n_variables);
        let branch = Branch { at, pipeline, list, otherwise };
        Ok(match keyword {
            Keyword::If => Node::If(branch),
            Keyword::With => Node::With(branch),
            _ => Node::Range(branch),
        })
    }

    fn block(&mut self) -> Parsed<Node> {
        self.budget.deeper()?;
        let token = self.next_word();
        let name = template_name(token, "block clause")?;
        let pipeline = self.pipeline("block clause", TokenKind::Right)?;
        self.body_of(Rc::clone(&name), "block clause")?;
        Ok(Node::Template(token.at, name, Some(pipeline)))
    }

    fn template(&mut self) -> Parsed<Node> {
        let token = self.next_word();
        let name = template_name(token, "template clause")?;
        let next = self.next_word();
        if next.kind == TokenKind::Right {
            return Ok(Node::Template(token.at, name, None));
        }
        self.back(next);
        let pipeline = self.pipeline("template clause", TokenKind::Right)?;
        Ok(Node::Template(token.at, name, Some(pipeline)))
    }

    fn expect_right(&mut self, context: &str) -> Parsed<()> {
        let token = self.next_word();
        if token.kind == TokenKind::Right { Ok(()) } else { unexpected(token, context) }
    }

    fn pipeline(&mut self, context: &str, end: TokenKind) -> Parsed<Pipeline> {
        self.budget.deeper()?;
        let at = self.peek_word().at;
        let (variables, is_assignment) = self.declarations(context)?;
        let mut commands = Vec::new();
        loop {
            let token = self.next_word();
            match token.kind {
                kind if kind == end => break,
                TokenKind::Bool
                | TokenKind::Character
                | TokenKind::Complex
                | TokenKind::Dot
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::Keyword(Keyword::Nil)
                | TokenKind::Raw
                | TokenKind::Quoted
                | TokenKind::Variable
                | TokenKind::LeftParenthesis => {
                    self.back(token);
                    commands.push(self.command()?);
                }
                _ => return unexpected(token, context),
            }
        }
        check(&commands, context)?;
        Ok(Pipeline { at, variables, is_assignment, commands })
    }

    fn declarations(&mut self, context: &str) -> Parsed<(Vec<String>, bool)> {
        let mut variables = Vec::new();
        loop {
            let variable = self.peek_word();
            if variable.kind != TokenKind::Variable {
                return Ok((variables, false));
            }
            let variable = self.next_word();
            let behind = self.next();
            let next = if behind.kind == TokenKind::Space { self.next_word() } else { behind };
            let name = String::from_utf8_lossy(variable.text).into_owned();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    self.scope().variables.push(name.clone());
                    variables.push(name);
                    return Ok((variables, next.kind == TokenKind::Assign));
                }
                TokenKind::Char if next.text == b"," => {
                    self.scope().variables.push(name.clone());
                    variables.push(name);
                    if context != "range" || variables.len() >= 2 {
                        return wrong(format!("too many declarations in {context}"));
                    }
                    let follows = self.peek_word();
                    if !matches!(follows.kind, TokenKind::Variable | TokenKind::Right | TokenKind::RightParenthesis) {
                        return wrong("range can only initialize variables");
                    }
                }
                _ => {
                    self.back(next);
                    if behind.kind == TokenKind::Space {
                        self.back(behind);
                    }
                    self.back(variable);
                    return Ok((variables, false));
                }
            }
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        let mut terms = Vec::new();
        loop {
            // Skips spaces.
            self.peek_word();
            if let Some(term) = self.operand()? {
                terms.push(term);
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => {}
                TokenKind::Right | TokenKind::RightParenthesis => {
                    self.back(token);
                    break;
                }
                TokenKind::Pipe => break,
                _ => return unexpected(token, "operand"),
            }
        }
        if terms.is_empty() {
            return wrong("empty command");
        }
        Ok(Command { terms })
    }

    fn operand(&mut self) -> Parsed<Option<Term>> {
        let Some(term) = self.term()? else { return Ok(None) };
        if self.peek().kind != TokenKind::Field {
            return Ok(Some(term));
        }
        let mut names = Vec::new();
        while self.peek().kind == TokenKind::Field {
            names.push(field_name(self.next()));
        }
        let Term { at, expression } = term;
        let expression = match expression {
            Expression::Field(mut fields) => {
                fields.append(&mut names);
                Expression::Field(fields)
            }
            Expression::Variable(name, mut fields) => {
                fields.append(&mut names);
                Expression::Variable(name, fields)
            }
            Expression::Bool(_) | Expression::Text(_) | Expression::Number(_) | Expression::Nil | Expression::Dot => {
                let shown = Term { at, expression }.shown();
                return wrong(format!("unexpected . after term {shown:?}"));
            }
            other => Expression::Chain(Box::new(Term { at, expression: other }), names),
        };
        Ok(Some(Term { at, expression }))
    }

    fn term(&mut self) -> Parsed<Option<Term>> {
        let token = self.next_word();
        let text = || String::from_utf8_lossy(token.text);
        let expression = match token.kind {
            TokenKind::Identifier => {
                let name = text().into_owned();
                if !(self.is_function)(&name) {
                    return wrong(format!("function {name:?} not defined"));
                }
                Expression::Function(name)
            }
            TokenKind::Dot => Expression::Dot,
            TokenKind::Keyword(Keyword::Nil) => Expression::Nil,
            TokenKind::Variable => {
                let name = text().into_owned();
                if !self.scope().variables.contains(&name) {
                    return wrong(format!("undefined variable {name:?}"));
                }
                Expression::Variable(name, Vec::new())
            }
            TokenKind::Field => Expression::Field(vec![field_name(token)]),
            TokenKind::Bool => Expression::Bool(token.text == b"true"),
            TokenKind::Character => {
                let Some(char) = character(token.text) else { return wrong("invalid syntax") };
                Expression::Number(number::of_character(&text(), char))
            }
            TokenKind::Complex => Expression::Number(number::complex(&text()).map_err(Fault::Failed)?),
            TokenKind::Number => Expression::Number(number::number(&text()).map_err(Fault::Failed)?),
            TokenKind::LeftParenthesis => {
                if self.n_parentheses >= MOST_PARENTHESES {
                    return wrong("max expression depth exceeded");
                }
                self.n_parentheses += 1;
                let inner = self.pipeline("parenthesized pipeline", TokenKind::RightParenthesis)?;
                self.n_parentheses -= 1;
                Expression::Parenthesis(Box::new(inner))
            }
            TokenKind::Quoted | TokenKind::Raw => Expression::Text(text_of(token)?),
            _ => {
                self.back(token);
                return Ok(None);
            }
        };
        Ok(Some(Term { at: token.at, expression }))
    }
}

fn template_name(token: Token<'_>, context: &str) -> Parsed<Bytes> {
    match token.kind {
        TokenKind::Quoted | TokenKind::Raw => text_of(token),
        _ => unexpected(token, context),
    }
}

fn field_name(token: Token<'_>) -> String {
    String::from_utf8_lossy(token.text.get(1..).unwrap_or_default()).into_owned()
}

fn text_of(token: Token<'_>) -> Parsed<Bytes> {
    match unquote(token.text) {
        Some(text) => Ok(Rc::from(text)),
        None => wrong("invalid syntax"),
    }
}

/// Only the first command of a pipeline may be a plain value.
fn check(commands: &[Command], context: &str) -> Parsed<()> {
    if commands.is_empty() {
        return wrong(format!("missing value for {context}"));
    }
    for (index, command) in commands.iter().enumerate().skip(1) {
        if let Some(Term {
            expression:
                Expression::Bool(_) | Expression::Dot | Expression::Nil | Expression::Number(_) | Expression::Text(_),
            ..
        }) = command.terms.first()
        {
            return wrong(format!("non executable command in pipeline stage {}", index + 1));
        }
    }
    Ok(())
}

fn is_empty(list: &[Node]) -> bool {
    list.iter().all(|node| match node {
        Node::Text(text) => {
            let mut chars = crate::runes::runes(text);
            chars.all(|(_, char, _)| crate::runes::is_space(char))
        }
        _ => false,
    })
}

fn unexpected<T>(token: Token<'_>, context: &str) -> Parsed<T> {
    let shown = match token.kind {
        TokenKind::Wrong(what) => return wrong(what),
        TokenKind::End => "EOF".to_owned(),
        TokenKind::Keyword(_) => format!("<{}>", String::from_utf8_lossy(token.text)),
        _ => format!("{:?}", String::from_utf8_lossy(token.text)),
    };
    wrong(format!("unexpected {shown} in {context}"))
}

fn wrong<T>(text: impl Into<String>) -> Parsed<T> {
    Err(Fault::Failed(text.into()))
}
