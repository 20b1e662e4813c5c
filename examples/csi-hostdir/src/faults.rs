//! The driver's journal of calls, and calls that are made to fail.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tonic::{Code, Status};

/// What is to go wrong, and what was asked.
#[derive(Debug)]
pub(crate) struct Faults {
    calls: Option<PathBuf>,
    file: Option<PathBuf>,
    /// How often each line of the file has been used.
    used: Mutex<BTreeMap<String, u32>>,
}

impl Faults {
    /// Writes calls to one file and reads faults from the other.
    pub(crate) fn new(calls: Option<PathBuf>, file: Option<PathBuf>) -> Self {
        Self { calls, file, used: Mutex::default() }
    }

    /// Notes a call, and says whether it is to fail instead.
    pub(crate) async fn enter(&self, call: &str, about: &str) -> Result<(), Status> {
        let fault = self.fault(call);
        let outcome = fault.as_deref().unwrap_or("ok");
        self.note(&format!("{call} {about} {outcome}"));
        match fault.as_deref() {
            None => Ok(()),
            Some("hang") => std::future::pending().await,
            Some(code) => Err(Status::new(code_of(code), format!("{call} is made to fail"))),
        }
    }

    fn note(&self, line: &str) {
        let Some(path) = &self.calls else { return };
        let written =
            OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| writeln!(file, "{line}"));
        if let Err(error) = written {
            drop(writeln!(std::io::stderr(), "{} cannot be written: {error}", path.display()));
        }
    }

    /// The code of the first line about the call that is not used up.
    fn fault(&self, call: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.file.as_ref()?).ok()?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(of), Some(code)) = (words.next(), words.next()) else { continue };
            let limit: u32 = words.next().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX);
            let n = used.entry(line.to_owned()).or_default();
            if of == call && *n < limit {
                *n += 1;
                return Some(code.to_owned());
            }
        }
        None
    }
}

fn code_of(name: &str) -> Code {
    let all = [
        Code::Aborted,
        Code::AlreadyExists,
        Code::DeadlineExceeded,
        Code::FailedPrecondition,
        Code::InvalidArgument,
        Code::NotFound,
        Code::OutOfRange,
        Code::ResourceExhausted,
        Code::Unavailable,
    ];
    all.into_iter().find(|code| format!("{code:?}") == name).unwrap_or(Code::Internal)
}
