//! What a sticky disk keeps, on its way from the node of an allocation that has ended to that of its replacement:
//! frames as those of the agent's socket, over a connection that the replacement's agent opens to the gateway.
//!
//! The agent sends one [`DiskAsk`]. The gateway looks whether that allocation runs there and which one it replaces,
//! asks that one's agent for a snapshot, and hands on what it answers. Nothing of it is kept in between.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// The protocol that the connection becomes.
pub const DISKS_PROTOCOL: &str = "drover-disks/1";
/// Where an agent asks for it, by POST.
pub const DISKS_PATH: &str = "/disks/v1";
/// How long either side waits for the next frame of the other.
pub const DISK_PATIENCE: std::time::Duration = std::time::Duration::from_mins(1);

/// Which allocation wants the files of the one that it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskAsk {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub allocation: String,
    /// Its uid: another one of the same name is not meant.
    pub uid: String,
}

/// A file or a directory of a snapshot; a directory comes before what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskEntry {
    /// Where it is beneath the allocation's directory, with slashes; bytes that are no printable ASCII, and `%`, as
    /// [`shown_path`] writes them: names of files are bytes, not text.
    pub path: String,
    /// What it is.
    pub kind: DiskEntryKind,
    /// Its rights, as `chmod` has them.
    pub mode: u32,
    /// The number of its user.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
    /// When it was changed last, in seconds since 1970.
    pub modified_seconds: i64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskEntryKind {
    /// A directory.
    Directory,
    /// A file: the data frames up to the next entry are what it holds.
    File,
    /// A symbolic link to this, written as paths are.
    Link(String),
}

const HIDDEN: &AsciiSet = &CONTROLS.add(b'%');

/// Bytes of a path as text that can be read back.
pub fn shown_path(path: &[u8]) -> String {
    percent_encode(path, HIDDEN).to_string()
}

/// The bytes of a path.
pub fn path_bytes(shown: &str) -> Cow<'_, [u8]> {
    percent_decode_str(shown).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_comes_back_as_it_was() {
        let every: Vec<u8> = (1..=255).collect();
        for name in [&every[..], b"plain name.txt", b"50%41", "\u{e9}".as_bytes(), b""] {
            assert_eq!(path_bytes(&shown_path(name)), name);
        }
        assert_eq!(shown_path(b"alloc/data/a b"), "alloc/data/a b");
    }
}
