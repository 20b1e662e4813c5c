//! The driver's journal of calls, and calls that are made to fail.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use drover_csi::volume_capability::AccessType;
use tonic::{Code, Status};

/// What is to go wrong, and what was asked.
#[derive(Debug)]
pub(crate) struct Faults {
    calls: Option<PathBuf>,
    file: Option<PathBuf>,
    /// What calls with secrets must bring.
    password: Option<PathBuf>,
    /// How often each line of the file has been used.
    used: Mutex<BTreeMap<String, u32>>,
}

impl Faults {
    /// Writes calls to one file and reads faults and the password from the others.
    pub(crate) fn new(calls: Option<PathBuf>, file: Option<PathBuf>, password: Option<PathBuf>) -> Self {
        Self { calls, file, password, used: Mutex::default() }
    }

    /// Notes a call without secrets, and says whether it is to fail instead.
    pub(crate) async fn enter(&self, call: &str, about: &str) -> Result<(), Status> {
        let fault = self.fault(call);
        self.end(call, about, fault).await
    }

    /// The same for a call with secrets, which must hold the password.
    pub(crate) async fn enter_with(
        &self,
        call: &str,
        about: &str,
        secrets: &HashMap<String, String>,
    ) -> Result<(), Status> {
        let fault = self.fault(call);
        if fault.as_deref() == Some("tell") {
            self.note(&format!("{call} {about} tell"));
            return Err(Status::internal(format!("{call} is made to fail with {secrets:?}")));
        }
        if fault.is_none() && !self.admits(secrets) {
            self.note(&format!("{call} {about} Unauthenticated"));
            return Err(Status::unauthenticated("the password is missing or wrong; correct the volume's Secret"));
        }
        self.end(call, about, fault).await
    }

    /// What a node needs besides the password, as of drivers that open sessions: a publish context with a credential.
    pub(crate) fn session(&self, secrets: &HashMap<String, String>) -> Option<(String, String)> {
        self.password.as_ref()?;
        secrets.get("password").map(|password| ("session".to_owned(), format!("of {password}")))
    }

    /// Refuses a node's call that does not bring the session, or a mount flag with another password than the Secret's.
    pub(crate) fn check_credentials(&self, asked: &drover_csi::NodePublishVolumeRequest) -> Result<(), Status> {
        if self.password.is_none() {
            return Ok(());
        }
        let has_session = asked.publish_context.get("session").is_some_and(|session| session.starts_with("of "));
        let access = asked.volume_capability.as_ref().and_then(|capability| capability.access_type.as_ref());
        let Some(AccessType::Mount(mount)) = access else { return Ok(()) };
        let password = asked.secrets.get("password");
        let mut given = mount.mount_flags.iter().filter_map(|flag| flag.strip_prefix("password="));
        if has_session && given.all(|value| password.is_some_and(|known| known == value)) {
            return Ok(());
        }
        Err(Status::unauthenticated(
            "the session of the publish context is missing, or a mount flag has a wrong password",
        ))
    }

    fn admits(&self, secrets: &HashMap<String, String>) -> bool {
        let Some(path) = &self.password else { return true };
        let wanted = std::fs::read_to_string(path).unwrap_or_default();
        secrets.get("password").is_some_and(|given| *given == wanted.trim_end())
    }

    async fn end(&self, call: &str, about: &str, fault: Option<String>) -> Result<(), Status> {
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
