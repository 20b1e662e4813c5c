//! The API server's audit log: who wrote what. Reads are not in it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One line per finished write, without bodies.
pub(super) const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
omitManagedFields: true
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
";

/// A write that the API server answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// Who asked: a user's name.
    pub user: String,
    /// `create`, `update`, `patch`, `delete`, ...
    pub verb: String,
    /// The resource with its group and subresource: `allocations.drover.dev/status`, `leases.coordination.k8s.io`.
    pub resource: String,
    /// The object's namespace, empty for those without.
    pub namespace: String,
    /// The object's name, empty where the server chose it.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

/// The log file, read from where the last reading ended.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
}

impl AuditLog {
    /// Opens the log at its present end.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn at_end(path: &Path) -> Result<Self> {
        let offset = match std::fs::metadata(path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| format!("reading the audit log {}", path.display())),
        };
        Ok(Self { path: path.to_path_buf(), offset })
    }

    /// Returns what was written since the last reading.
    ///
    /// # Errors
    /// When the log cannot be read or a line is not an audit event.
    pub fn read_new(&mut self) -> Result<Vec<AuditEvent>> {
        let read = || -> std::io::Result<String> {
            let mut text = String::new();
            let mut file = match File::open(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(text),
                opened => opened?,
            };
            file.seek(SeekFrom::Start(self.offset))?;
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().with_context(|| format!("reading the audit log {}", self.path.display()))?;
        // A line that is still being written belongs to the next reading.
        let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.offset += complete.len() as u64;
        complete.lines().map(parse).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLine {
    verb: String,
    user: UserField,
    #[serde(default)]
    object_ref: ObjectField,
    #[serde(default)]
    response_status: StatusField,
}

#[derive(Deserialize)]
struct UserField {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectField {
    resource: String,
    api_group: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct StatusField {
    #[serde(default)]
    code: u16,
}

fn parse(line: &str) -> Result<AuditEvent> {
    let AuditLine { verb, user, object_ref, response_status } =
        serde_json::from_str(line).with_context(|| format!("audit line {line}"))?;
    let ObjectField { mut resource, api_group, subresource, namespace, name } = object_ref;
    for (separator, part) in [(".", api_group), ("/", subresource)] {
        if !part.is_empty() {
            resource = format!("{resource}{separator}{part}");
        }
    }
    Ok(AuditEvent { user: user.username, verb, resource, namespace, name, code: response_status.code })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"kind":"Event","level":"Metadata","verb":"patch","user":{"username":"drover-agent"},"objectRef":{"resource":"allocations","namespace":"shop","name":"web-api-0","apiGroup":"drover.dev","apiVersion":"v1alpha1","subresource":"status"},"responseStatus":{"metadata":{},"code":200}}"#;

    #[test]
    fn new_lines_are_read_once_and_half_lines_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = AuditLog::at_end(&path).unwrap();
        std::fs::write(&path, format!("{LINE}\n{}", &LINE[..40])).unwrap();
        let events = log.read_new().unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(
            (events[0].user.as_str(), events[0].resource.as_str()),
            ("drover-agent", "allocations.drover.dev/status")
        );
        std::fs::write(&path, format!("{LINE}\n{LINE}\n")).unwrap();
        assert_eq!(log.read_new().unwrap().len(), 1);
        assert_eq!(log.read_new().unwrap(), []);
    }
}
