//! Frames of files and output: JSON objects one behind the other, each with bytes of a file and where they are from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::fault::Fault;

/// The frame that says that more may come.
pub const HEARTBEAT: &[u8] = b"{}";

/// A frame; what is empty is left out.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Frame<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    offset: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    data: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file_event: &'a str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Where a stream is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFrames {
    file: String,
    offset: u64,
}

impl FileFrames {
    /// What follows is of this file, from here. A frame says so where the file was cut short; else there is none.
    ///
    /// # Errors
    /// For a name that cannot be written.
    pub fn at(&mut self, file: &str, offset: u64) -> Result<Vec<u8>, Fault> {
        let is_cut = self.file == file && offset < self.offset;
        (self.file, self.offset) = (file.to_owned(), offset);
        if is_cut { self.event("file truncated") } else { Ok(Vec::new()) }
    }

    /// The frame of these bytes.
    ///
    /// # Errors
    /// For a name that cannot be written.
    pub fn data(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let frame = Frame { offset: self.offset, data: STANDARD.encode(bytes), file: &self.file, file_event: "" };
        let frame = written(&frame)?;
        self.offset = self.offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(frame)
    }

    /// The frame of a file's end under its name.
    ///
    /// # Errors
    /// For a name that cannot be written.
    pub fn deleted(&self) -> Result<Vec<u8>, Fault> {
        self.event("file deleted")
    }

    fn event(&self, event: &str) -> Result<Vec<u8>, Fault> {
        written(&Frame { offset: self.offset, data: String::new(), file: &self.file, file_event: event })
    }
}

fn written(frame: &Frame<'_>) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(frame).map_err(|error| Fault::new(500, format!("a frame cannot be written: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(frame: Result<Vec<u8>, Fault>) -> String {
        String::from_utf8(frame.expect("a frame")).expect("text")
    }

    #[test]
    fn frames_say_where_their_bytes_are_from_and_leave_out_what_is_empty() {
        let mut frames = FileFrames::default();
        assert_eq!(text(frames.at("alloc/logs/t.stdout.0", 0)), "");
        assert_eq!(text(frames.data(b"hello")), r#"{"Data":"aGVsbG8=","File":"alloc/logs/t.stdout.0"}"#);
        assert_eq!(text(frames.data(b"!")), r#"{"Offset":5,"Data":"IQ==","File":"alloc/logs/t.stdout.0"}"#);
        assert_eq!(text(frames.at("alloc/logs/t.stdout.1", 0)), "", "the next file begins at its own first byte");
        assert_eq!(text(frames.data(b"!")), r#"{"Data":"IQ==","File":"alloc/logs/t.stdout.1"}"#);
    }

    #[test]
    fn what_becomes_of_a_file_is_a_frame_of_its_own() {
        let mut frames = FileFrames::default();
        assert_eq!(text(frames.at("a", 7)), "");
        assert_eq!(text(frames.data(b"x")), r#"{"Offset":7,"Data":"eA==","File":"a"}"#);
        assert_eq!(text(frames.at("a", 8)), "", "it goes on where it was");
        assert_eq!(text(frames.at("a", 0)), r#"{"File":"a","FileEvent":"file truncated"}"#);
        assert_eq!(text(frames.deleted()), r#"{"File":"a","FileEvent":"file deleted"}"#);
    }
}
