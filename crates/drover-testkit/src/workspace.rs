//! Where things of this checkout lie, and small questions about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Returns the root folder of the checkout that this binary was built from.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_path_buf()
}

/// Returns the folder in which `up` keeps its data when none is named: `.drover` in the checkout.
pub fn default_data_dir() -> PathBuf {
    root().join(".drover")
}

/// Returns the user's cache folder: `$XDG_CACHE_HOME`, else `~/.cache`.
///
/// # Errors
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_dir() -> Result<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("XDG_CACHE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("drover"))
        .context("no cache folder: set HOME or XDG_CACHE_HOME")
}

/// Finds an executable on `PATH`, as a shell would.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns the commit of the checkout, with `-dirty` when files differ from it, or `unknown` outside of Git.
pub fn commit() -> String {
    let git = |args: &[&str]| -> Option<String> {
        let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let is_clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    if is_clean { commit } else { format!("{commit}-dirty") }
}

/// Writes bytes as lower case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]).collect()
}

/// Returns the last `count` lines of a log, indented for an error message.
pub fn last_lines(log: &Path, count: usize) -> String {
    let Ok(text) = std::fs::read(log) else { return format!("  (no log at {})", log.display()) };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(count)..];
    tail.iter().map(|line| format!("  | {line}")).collect::<Vec<_>>().join("\n")
}

/// Writes a file that only its owner may read, atomically.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_private(path: &Path, content: &str) -> Result<()> {
    write_with_mode(path, content.as_bytes(), 0o600)
}

/// Writes a file with the given permissions, atomically: a reader sees the old or the new content, never a part.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_with_mode(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    let Some(folder) = path.parent() else { bail!("{} has no folder", path.display()) };
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("writing {}", path.display()))
}
