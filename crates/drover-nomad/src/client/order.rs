//! Parameters and body of a call to an agent.
//!
//! Input: the call, its parameters, its body. Output: an order, checked. Must never know the allocation.

use serde::Deserialize;

use super::endpoint::ClientCall;
use crate::fault::Fault;
use crate::query::Query;

/// Where reading begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Whether the offset counts backwards from the end.
    pub is_from_end: bool,
    /// In bytes.
    pub offset: u64,
}

/// Which output is read, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOrder {
    /// Of which task.
    pub task: String,
    /// Standard error instead of standard output.
    pub is_stderr: bool,
    /// From where.
    pub at: Position,
    /// Whether what comes later is waited for.
    pub follow: bool,
    /// Text alone, without frames.
    pub is_plain: bool,
}

/// What an agent is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientOrder {
    /// Lists a folder.
    List {
        /// Which.
        path: String,
    },
    /// Describes a file.
    Stat {
        /// Which.
        path: String,
    },
    /// Reads bytes of a file.
    Read {
        /// Of which.
        path: String,
        /// From where.
        at: Position,
        /// At most so many.
        limit: Option<u64>,
    },
    /// Reads a file in frames.
    Stream {
        /// Which.
        path: String,
        /// From where.
        at: Position,
        /// Whether what is added later is waited for.
        follow: bool,
    },
    /// Reads output.
    Logs(LogOrder),
    /// Starts tasks again.
    Restart {
        /// One that runs; none: all that run.
        task: Option<String>,
        /// All, in their order, also those that have ended.
        all_tasks: bool,
    },
    /// Sends a signal.
    Signal {
        /// To one task; none: to all.
        task: Option<String>,
        /// Its name.
        signal: String,
    },
    /// Deletes the files.
    Gc,
    /// Runs a command.
    Exec {
        /// In which task.
        task: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// Whether it has a terminal.
        tty: bool,
    },
    /// Samples what tasks use.
    Stats {
        /// Of one task; none: of all.
        task: Option<String>,
    },
    /// Asks for the results of checks.
    Checks,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RestartBody {
    task_name: String,
    all_tasks: bool,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct SignalBody {
    task: String,
    signal: String,
}

impl ClientOrder {
    /// Reads what is asked for.
    ///
    /// # Errors
    /// 400 for what is missing or wrong, which is named.
    pub fn read(call: ClientCall, query: &Query, body: &[u8]) -> Result<Self, Fault> {
        Ok(match call {
            ClientCall::List => Self::List { path: query.text("path").unwrap_or("/").to_owned() },
            ClientCall::Stat => Self::Stat { path: needed(query, "path")? },
            ClientCall::Cat => Self::Read { path: needed(query, "path")?, at: Position::default(), limit: None },
            ClientCall::ReadAt => {
                needed(query, "offset")?;
                let at = Position { is_from_end: false, offset: offset(query)? };
                Self::Read { path: needed(query, "path")?, at, limit: limit(query)? }
            }
            ClientCall::Stream => {
                Self::Stream { path: needed(query, "path")?, at: position(query)?, follow: query.is("follow", true) }
            }
            ClientCall::Logs => Self::Logs(LogOrder {
                task: needed(query, "task")?,
                is_stderr: match needed(query, "type")?.as_str() {
                    "stdout" => false,
                    "stderr" => true,
                    other => return Err(Fault::bad(format!("type is {other:?}: give stdout or stderr"))),
                },
                at: position(query)?,
                follow: query.is("follow", false),
                is_plain: query.is("plain", false),
            }),
            ClientCall::Restart => {
                let RestartBody { task_name, all_tasks } = parsed(body)?;
                if all_tasks && !task_name.is_empty() {
                    return Err(Fault::bad("TaskName and AllTasks exclude each other: give one"));
                }
                Self::Restart { task: some(&task_name), all_tasks }
            }
            ClientCall::Signal => {
                let SignalBody { task, signal } = parsed(body)?;
                let signal = some(&signal).ok_or_else(|| Fault::bad("Signal is missing: name one, as SIGHUP"))?;
                Self::Signal { task: some(&task), signal }
            }
            ClientCall::Gc => Self::Gc,
            ClientCall::Exec => Self::Exec {
                task: needed(query, "task")?,
                command: command(&needed(query, "command")?)?,
                tty: query.is("tty", false),
            },
            ClientCall::Stats => Self::Stats { task: query.text("task").map(str::to_owned) },
            ClientCall::Checks => Self::Checks,
        })
    }
}

fn needed(query: &Query, name: &str) -> Result<String, Fault> {
    query.text(name).map(str::to_owned).ok_or_else(|| Fault::bad(format!("{name} is missing")))
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn offset(query: &Query) -> Result<u64, Fault> {
    let Some(text) = query.text("offset") else { return Ok(0) };
    text.parse().map_err(|_| Fault::bad(format!("offset is {text:?}: give a number of bytes, 0 or more")))
}

/// Clients that want everything say 0 or less.
fn limit(query: &Query) -> Result<Option<u64>, Fault> {
    let Some(text) = query.text("limit") else { return Ok(None) };
    let limit: i64 = text.parse().map_err(|_| Fault::bad(format!("limit is {text:?}: give a number of bytes")))?;
    Ok(u64::try_from(limit).ok().filter(|limit| *limit > 0))
}

fn position(query: &Query) -> Result<Position, Fault> {
    let is_from_end = match query.text("origin") {
        None | Some("start") => false,
        Some("end") => true,
        Some(other) => return Err(Fault::bad(format!("origin is {other:?}: give start or end"))),
    };
    Ok(Position { is_from_end, offset: offset(query)? })
}

/// A body may be left out.
fn parsed<'a, T: Deserialize<'a> + Default>(body: &'a [u8]) -> Result<T, Fault> {
    if body.trim_ascii().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| Fault::bad(format!("the body cannot be read: {error}")))
}

fn command(text: &str) -> Result<Vec<String>, Fault> {
    let command: Vec<String> = serde_json::from_str(text)
        .map_err(|error| Fault::bad(format!("command is no list of texts in JSON, as [\"ls\",\"-l\"]: {error}")))?;
    if command.first().is_none_or(String::is_empty) {
        return Err(Fault::bad("command is empty: name a program"));
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(call: ClientCall, text: &str, body: &str) -> Result<ClientOrder, Fault> {
        ClientOrder::read(call, &Query::parse(text)?, body.as_bytes())
    }

    fn refused(call: ClientCall, text: &str, body: &str) -> String {
        let fault = read(call, text, body).expect_err(text);
        assert_eq!(fault.code, 400, "{text} {body}");
        fault.message
    }

    #[test]
    fn files_are_read_from_where_it_is_asked() {
        use ClientCall as C;
        let path = || "a/b".to_owned();
        let from = |offset| Position { is_from_end: false, offset };
        let end = Position { is_from_end: true, offset: 7 };
        for (call, text, wanted) in [
            (C::List, "", ClientOrder::List { path: "/".to_owned() }),
            (C::List, "path=a/b", ClientOrder::List { path: path() }),
            (C::Stat, "path=a%2Fb", ClientOrder::Stat { path: path() }),
            (C::Cat, "path=a/b&offset=9", ClientOrder::Read { path: path(), at: from(0), limit: None }),
            (C::ReadAt, "path=a/b&offset=5&limit=3", ClientOrder::Read { path: path(), at: from(5), limit: Some(3) }),
            (C::ReadAt, "path=a/b&offset=0&limit=-1", ClientOrder::Read { path: path(), at: from(0), limit: None }),
            (C::Stream, "path=a/b", ClientOrder::Stream { path: path(), at: from(0), follow: true }),
            (
                C::Stream,
                "path=a/b&follow=false&origin=end&offset=7",
                ClientOrder::Stream { path: path(), at: end, follow: false },
            ),
        ] {
            assert_eq!(read(call, text, ""), Ok(wanted), "{text}");
        }
        for (call, text, named) in [
            (C::Stat, "", "path"),
            (C::Cat, "path=", "path"),
            (C::ReadAt, "path=a", "offset"),
            (C::ReadAt, "path=a&offset=-1", "offset"),
            (C::ReadAt, "path=a&offset=1&limit=x", "limit"),
            (C::Stream, "path=a&origin=middle", "origin"),
            (C::Stream, "path=a&follow=perhaps", "follow"),
        ] {
            assert!(refused(call, text, "").contains(named), "{text}");
        }
    }

    #[test]
    fn output_is_of_a_task_and_a_type() {
        let log = |is_stderr, follow, is_plain| {
            let at = Position { is_from_end: true, offset: 10 };
            Ok(ClientOrder::Logs(LogOrder { task: "web".to_owned(), is_stderr, at, follow, is_plain }))
        };
        let base = "task=web&origin=end&offset=10";
        assert_eq!(read(ClientCall::Logs, &format!("{base}&type=stdout"), ""), log(false, false, false));
        let text = format!("{base}&type=stderr&follow=true&plain=true");
        assert_eq!(read(ClientCall::Logs, &text, ""), log(true, true, true));
        for (text, named) in [
            ("task=web", "type"),
            ("type=stdout", "task"),
            ("task=web&type=both", "type"),
            ("task=web&type=stdout&plain=perhaps", "plain"),
            ("task=web&type=stdout&offset=x", "offset"),
        ] {
            assert!(refused(ClientCall::Logs, text, "").contains(named), "{text}");
        }
    }

    #[test]
    fn bodies_name_tasks_and_may_be_left_out() {
        let restart =
            |task: Option<&str>, all_tasks| Ok(ClientOrder::Restart { task: task.map(str::to_owned), all_tasks });
        assert_eq!(read(ClientCall::Restart, "", ""), restart(None, false));
        assert_eq!(read(ClientCall::Restart, "", r#"{"TaskName":"web","AllocID":"x"}"#), restart(Some("web"), false));
        assert_eq!(read(ClientCall::Restart, "", r#"{"TaskName":"","AllTasks":true}"#), restart(None, true));
        assert!(refused(ClientCall::Restart, "", r#"{"TaskName":"web","AllTasks":true}"#).contains("AllTasks"));
        assert!(refused(ClientCall::Restart, "", "no").contains("body"));
        let signal = ClientOrder::Signal { task: None, signal: "SIGHUP".to_owned() };
        assert_eq!(read(ClientCall::Signal, "", r#"{"Signal":"SIGHUP","Task":""}"#), Ok(signal));
        assert!(refused(ClientCall::Signal, "", r#"{"Task":"web"}"#).contains("Signal"));
    }

    #[test]
    fn a_command_is_a_list_with_a_program() {
        let exec = read(ClientCall::Exec, "task=web&tty=true&command=%5B%22sh%22%2C%22-c%22%2C%22a+b%22%5D", "");
        let command = ["sh", "-c", "a b"].map(str::to_owned).to_vec();
        assert_eq!(exec, Ok(ClientOrder::Exec { task: "web".to_owned(), command, tty: true }));
        for (text, named) in [
            ("command=%5B%22sh%22%5D", "task"),
            ("task=web", "command"),
            ("task=web&command=%5B%5D", "command"),
            ("task=web&command=%5B%22%22%5D", "command"),
            ("task=web&command=sh", "command"),
            ("task=web&command=%5B%22sh%22%5D&tty=perhaps", "tty"),
        ] {
            assert!(refused(ClientCall::Exec, text, "").contains(named), "{text}");
        }
    }
}
