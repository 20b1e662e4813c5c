//! The node's key for publish contexts, in a file of the state folder that only the agent reads.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use drover_seal::NodeKey;

/// The key of an earlier life, or a new one. A damaged file is replaced: what was sealed to its key is asked for again
/// when an allocation's successor claims the volume, and a node without tasks would be worse.
///
/// # Errors
/// When the file can be neither read nor written.
pub(crate) fn load_or_make(state_dir: &Path) -> anyhow::Result<NodeKey> {
    let path = state_dir.join("sealing-key");
    match std::fs::read_to_string(&path) {
        Ok(text) => match NodeKey::from_text(&text) {
            Ok(key) => return Ok(key),
            Err(error) => tracing::warn!(path = %path.display(), %error, "the sealing key is damaged, and is replaced"),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            tracing::warn!(path = %path.display(), %error, "the sealing key is damaged, and is replaced");
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    }
    let key = NodeKey::generate().context("making the sealing key")?;
    write(&path, &key).with_context(|| format!("writing {}", path.display()))?;
    Ok(key)
}

/// Whole or not at all.
fn write(path: &Path, key: &NodeKey) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(key.to_text().as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&aside, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_stays_over_starts_and_a_damaged_one_keeps_no_agent_from_starting() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sealing-key");
        let first = load_or_make(dir.path()).expect("made").public();
        assert_eq!(path.metadata().expect("metadata").permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_make(dir.path()).expect("kept").public(), first);
        for damaged in [&b""[..], b"half", b"\xff\xfe"] {
            std::fs::write(&path, damaged).expect("written");
            let next = load_or_make(dir.path()).expect("made").public();
            assert_ne!(next, first);
            assert_eq!(load_or_make(dir.path()).expect("kept").public(), next);
        }
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder");
        let error = format!("{:#}", load_or_make(dir.path()).expect_err("a folder is no file"));
        assert!(error.contains("sealing-key"), "{error}");
    }
}
