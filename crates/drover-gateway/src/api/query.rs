//! Parameters of an operation, and with them the request to the agent.

use std::collections::BTreeMap;

use drover_socket::protocol::{LogStream, Origin, Request, TtySize};

use super::route::Subresource;
use crate::answers::Refusal;

/// The most bytes of a file in one answer.
pub(super) const MAX_READ_BYTES: u64 = 8 * 1024 * 1024;
/// The longest query.
const MAX_QUERY_BYTES: usize = 64 * 1024;
/// The most samples of statistics in one answer: the API server ends longer ones.
const SHORTEST_INTERVAL_MS: u64 = 100;
const LONGEST_INTERVAL_MS: u64 = 10_000;

/// Parameters by name. One that is named twice has all its values.
#[derive(Debug)]
struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    fn parse(text: &str) -> Result<Self, Refusal> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(Refusal::new(400, "the parameters are too long"));
        }
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            all.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        Ok(Self(all))
    }

    fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        match self.all(name) {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            _ => Err(Refusal::new(400, format!("{name} is given more than once"))),
        }
    }

    fn needed(&self, name: &str) -> Result<String, Refusal> {
        self.text(name)?.filter(|text| !text.is_empty()).ok_or_else(|| Refusal::new(400, format!("{name} is missing")))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let wrong = |text: &str| Refusal::new(400, format!("{name}={text:?} is no number of 0 and more"));
        self.text(name)?.map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name)?.as_deref() {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some(other) => Err(Refusal::new(400, format!("{name}={other:?} is neither true nor false"))),
        }
    }

    /// The size of a terminal when a command begins; what a client says of it later may come after the command has
    /// asked.
    fn size(&self) -> Result<Option<TtySize>, Refusal> {
        let side = |name: &str| match self.number(name)?.map(u16::try_from) {
            None => Ok(None),
            Some(Ok(n)) if n > 0 => Ok(Some(n)),
            Some(_) => Err(Refusal::new(400, format!("{name} must be from 1 to {}", u16::MAX))),
        };
        match (side("height")?, side("width")?) {
            (None, None) => Ok(None),
            (Some(height), Some(width)) => Ok(Some(TtySize { height, width })),
            (Some(_), None) => Err(Refusal::new(400, "width is missing: a terminal has both height and width")),
            (None, Some(_)) => Err(Refusal::new(400, "height is missing: a terminal has both height and width")),
        }
    }

    fn origin(&self) -> Result<Origin, Refusal> {
        match self.text("origin")?.as_deref() {
            None | Some("start") => Ok(Origin::Start),
            Some("end") => Ok(Origin::End),
            Some(other) => Err(Refusal::new(400, format!("origin={other:?} is neither start nor end"))),
        }
    }
}

/// The request for an operation on the allocation with this uid.
///
/// # Errors
/// 400 for a missing or wrong parameter, which is named.
pub(super) fn request(subresource: Subresource, query: &str, uid: &str) -> Result<Request, Refusal> {
    let query = Query::parse(query)?;
    let allocation = uid.to_owned();
    Ok(match subresource {
        Subresource::Log => Request::Logs {
            allocation,
            task: query.needed("task")?,
            stream: match query.needed("type")?.as_str() {
                "stdout" => LogStream::Stdout,
                "stderr" => LogStream::Stderr,
                other => {
                    return Err(Refusal::new(400, format!("type={other:?} is neither stdout nor stderr")));
                }
            },
            origin: query.origin()?,
            offset: query.number("offset")?.unwrap_or(0),
            file: query.number("file")?,
            follow: query.flag("follow")?,
        },
        Subresource::Fs => {
            let path = query.text("path")?.unwrap_or_else(|| "/".to_owned());
            match query.needed("op")?.as_str() {
                "ls" => Request::List { allocation, path },
                "stat" => Request::Stat { allocation, path },
                "read" => Request::Read {
                    allocation,
                    path,
                    origin: query.origin()?,
                    offset: query.number("offset")?.unwrap_or(0),
                    limit: Some(query.number("limit")?.unwrap_or(MAX_READ_BYTES).min(MAX_READ_BYTES)),
                },
                other => return Err(Refusal::new(400, format!("op={other:?} is none of ls, stat and read"))),
            }
        }
        Subresource::Stats => {
            let every_ms = query.number("intervalMs")?;
            if every_ms.is_some_and(|every| !(SHORTEST_INTERVAL_MS..=LONGEST_INTERVAL_MS).contains(&every)) {
                let message = format!("intervalMs must be from {SHORTEST_INTERVAL_MS} to {LONGEST_INTERVAL_MS}");
                return Err(Refusal::new(400, message));
            }
            Request::Stats { allocation, every_ms }
        }
        Subresource::Restart => {
            let (task, all_tasks) = (query.text("task")?.filter(|task| !task.is_empty()), query.flag("allTasks")?);
            if task.is_some() && all_tasks {
                return Err(Refusal::new(400, "task and allTasks exclude each other: give one"));
            }
            Request::Restart { allocation, task, all_tasks }
        }
        Subresource::Signal => {
            let task = query.text("task")?.filter(|task| !task.is_empty());
            Request::Signal { allocation, task, signal: query.needed("signal")? }
        }
        Subresource::Checks => Request::Checks { allocation },
        Subresource::Stop => Request::Stop { allocation },
        Subresource::Gc => Request::Gc { allocation },
        Subresource::Exec => {
            let command = query.all("command").to_vec();
            if command.first().is_none_or(String::is_empty) {
                return Err(Refusal::new(400, "command is missing: name a program"));
            }
            let (task, tty, size) = (query.needed("task")?, query.flag("tty")?, query.size()?);
            Request::Exec { allocation, task, command, tty, size }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(subresource: Subresource, query: &str) -> String {
        let refusal = request(subresource, query, "u").expect_err(query);
        assert_eq!(refusal.code, 400, "{query}");
        refusal.message
    }

    #[test]
    fn parameters_become_a_request_about_the_uid() {
        let query = "task=web&type=stderr&origin=end&offset=10&file=3&follow=true";
        let wanted = Request::Logs {
            allocation: "u".to_owned(),
            task: "web".to_owned(),
            stream: LogStream::Stderr,
            origin: Origin::End,
            offset: 10,
            file: Some(3),
            follow: true,
        };
        assert_eq!(request(Subresource::Log, query, "u"), Ok(wanted));
        let exec = "task=web&command=sh&command=-c&command=a+b%26&tty=true&height=40&width=120";
        let exec = request(Subresource::Exec, exec, "u");
        let Ok(Request::Exec { command, tty: true, size, .. }) = exec else { unreachable!("{exec:?}") };
        assert_eq!((command.join(" ").as_str(), size), ("sh -c a b&", Some(TtySize { height: 40, width: 120 })));
        let read = request(Subresource::Fs, "op=read&path=a&limit=99999999999", "u");
        assert!(matches!(read, Ok(Request::Read { limit: Some(MAX_READ_BYTES), .. })), "{read:?}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (subresource, query, named) in [
            (Subresource::Log, "", "task"),
            (Subresource::Log, "task=a&task=b", "task"),
            (Subresource::Log, "task=a", "type is missing"),
            (Subresource::Log, "task=a&type=x", "type"),
            (Subresource::Log, "task=a&type=stdout&offset=-1", "offset"),
            (Subresource::Log, "task=a&type=stdout&follow=perhaps", "follow"),
            (Subresource::Fs, "path=a", "op"),
            (Subresource::Fs, "op=rm", "op"),
            (Subresource::Stats, "intervalMs=1", "intervalMs"),
            (Subresource::Restart, "task=a&allTasks=true", "allTasks"),
            (Subresource::Signal, "", "signal"),
            (Subresource::Exec, "task=a", "command"),
            (Subresource::Exec, "command=sh", "task"),
            (Subresource::Exec, "command=sh&task=a&height=40", "width is missing"),
            (Subresource::Exec, "command=sh&task=a&width=0", "width"),
            (Subresource::Exec, "command=sh&task=a&height=65536&width=1", "height"),
        ] {
            let message = error(subresource, query);
            assert!(message.contains(named), "{query}: {message}");
        }
        assert!(error(Subresource::Log, &"x".repeat(MAX_QUERY_BYTES + 1)).contains("too long"));
    }
}
