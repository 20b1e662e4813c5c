//! Messages of a command's WebSocket: one JSON object each, with bytes in base64.
//!
//! Input: texts of a client, or what a command does. Output: what a client tells, or texts for it. Must never know the
//! connection.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;

use crate::fault::Fault;

/// The longest reason of a close frame, in bytes.
pub const MOST_REASON_BYTES: usize = 123;

/// What a client tells a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// Bytes for its standard input.
    Data(Vec<u8>),
    /// There is no more input.
    Close,
    /// Its terminal has this size.
    Size {
        /// Rows.
        height: u16,
        /// Columns.
        width: u16,
    },
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecOutput<'a> {
    /// It writes to its standard output.
    Stdout(&'a [u8]),
    /// It writes to its standard error.
    Stderr(&'a [u8]),
    /// Nothing more is written.
    Closed,
    /// It has ended with this code.
    Exited(i32),
}

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// The code of the close frame.
    pub code: u16,
    /// The reason, as long as it may be.
    pub reason: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InFrame {
    stdin: Option<Stdin>,
    tty_size: Option<Size>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Stdin {
    data: Option<String>,
    close: bool,
}

#[derive(Deserialize)]
struct Size {
    height: u16,
    width: u16,
}

/// What a message tells; an empty one is a heartbeat and tells nothing.
///
/// # Errors
/// 400 for what is no such message.
pub fn exec_inputs(text: &str) -> Result<Vec<ExecInput>, Fault> {
    let wrong = |why: &dyn std::fmt::Display| Fault::bad(format!("a message cannot be read: {why}"));
    let InFrame { stdin, tty_size } = serde_json::from_str(text).map_err(|error| wrong(&error))?;
    let mut found: Vec<ExecInput> =
        tty_size.map(|Size { height, width }| ExecInput::Size { height, width }).into_iter().collect();
    if let Some(Stdin { data, close }) = stdin {
        let data = data.map(|data| STANDARD.decode(data)).transpose().map_err(|error| wrong(&error))?;
        found.extend(data.filter(|data| !data.is_empty()).map(ExecInput::Data));
        found.extend(close.then_some(ExecInput::Close));
    }
    Ok(found)
}

impl ExecOutput<'_> {
    /// The message of it.
    pub fn message(&self) -> String {
        let frame = match self {
            Self::Stdout(bytes) => json!({ "stdout": { "data": STANDARD.encode(bytes) } }),
            Self::Stderr(bytes) => json!({ "stderr": { "data": STANDARD.encode(bytes) } }),
            Self::Closed => json!({ "stdout": { "close": true } }),
            Self::Exited(code) => json!({ "exited": true, "result": { "exit_code": code } }),
        };
        frame.to_string()
    }
}

#[derive(Deserialize)]
struct Shown {
    version: u64,
    #[serde(default)]
    auth_token: String,
}

/// The token that a browser shows in its first message: it cannot in a header.
///
/// # Errors
/// 400 for what is no such message.
pub fn shown_token(text: &str) -> Result<String, Fault> {
    let form = "the first message must be {\"version\":1,\"auth_token\":TOKEN}";
    let shown: Shown = serde_json::from_str(text).map_err(|_| Fault::bad(form))?;
    if shown.version != 1 {
        return Err(Fault::bad(format!("{form}; version {} is not known", shown.version)));
    }
    Ok(shown.auth_token)
}

impl Closing {
    /// The close of a command that has ended.
    pub const fn well() -> Self {
        Self { code: 1000, reason: String::new() }
    }

    /// The close of what is refused.
    pub fn refused(code: u16, message: &str) -> Self {
        let mut end = message.len().min(MOST_REASON_BYTES);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        Self { code: if code >= 500 { 1011 } else { 1008 }, reason: message[..end].to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_what_is_in_it_and_an_empty_one_nothing() {
        let of = |text: &str| exec_inputs(text).map_err(|fault| fault.code);
        assert_eq!(of("{}"), Ok(Vec::new()));
        assert_eq!(of(r#"{"stdin":{"data":"aGk="}}"#), Ok(vec![ExecInput::Data(b"hi".to_vec())]));
        assert_eq!(of(r#"{"stdin":{"close":true}}"#), Ok(vec![ExecInput::Close]));
        let both = [ExecInput::Data(b"hi".to_vec()), ExecInput::Close];
        assert_eq!(of(r#"{"stdin":{"data":"aGk=","close":true}}"#), Ok(both.to_vec()));
        let size = ExecInput::Size { height: 40, width: 120 };
        assert_eq!(of(r#"{"tty_size":{"height":40,"width":120},"stdin":null}"#), Ok(vec![size]));
        for text in ["", "[]1", r#"{"stdin":{"data":"%"}}"#, r#"{"tty_size":{"height":-1,"width":1}}"#] {
            assert_eq!(of(text), Err(400), "{text}");
        }
    }

    #[test]
    fn p_029_what_a_command_does_is_one_object_each_and_code_0_is_written() {
        assert_eq!(ExecOutput::Stdout(b"hi").message(), r#"{"stdout":{"data":"aGk="}}"#);
        assert_eq!(ExecOutput::Stderr(b"").message(), r#"{"stderr":{"data":""}}"#);
        assert_eq!(ExecOutput::Closed.message(), r#"{"stdout":{"close":true}}"#);
        assert_eq!(ExecOutput::Exited(0).message(), r#"{"exited":true,"result":{"exit_code":0}}"#);
    }

    #[test]
    fn a_reason_is_cut_where_a_letter_ends() {
        assert_eq!(Closing::refused(500, "x"), Closing { code: 1011, reason: "x".to_owned() });
        assert_eq!(Closing::refused(404, "ä".repeat(100).as_str()).reason, "ä".repeat(61));
        assert_eq!((Closing::refused(400, "").code, Closing::well().code), (1008, 1000));
    }

    #[test]
    fn a_browser_shows_its_token_in_the_first_message() {
        assert_eq!(shown_token(r#"{"version":1,"auth_token":"x"}"#), Ok("x".to_owned()));
        assert_eq!(shown_token(r#"{"version":1}"#), Ok(String::new()));
        for text in ["{}", r#"{"version":2,"auth_token":"x"}"#, "x"] {
            assert_eq!(shown_token(text).map_err(|fault| fault.code), Err(400), "{text}");
        }
    }
}
