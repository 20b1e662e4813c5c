//! The data folder: what lies where.
//!
//! `kubeconfig` (the administrator's), `kubeconfigs/` (controller, agent, developer), `logs/`, `etcd/`, `pki/`,
//! `certs/`, `audit/`, `bin/` (the daemons and example programs of the last `up`), `controller.yaml`, `gateway.yaml`,
//! `agent.yaml`, `agent.more.yaml` (what people add to the agent's settings), `agent/state` and `agent/alloc`,
//! `containerd/` (one of the session's own), `state.json` (what runs), `lock` (held by the session).

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use drover_testkit::control_plane::Role;
use drover_testkit::workspace;
use rustix::fs::{FlockOperation, flock};

/// Says that a folder is ours, to be deleted with `down --purge`.
const MARKER: &str = ".drover-data";

/// The paths in a data folder.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The folder itself, absolute.
    pub root: PathBuf,
}

impl Layout {
    /// Takes the named folder, else the default one.
    ///
    /// # Errors
    /// When the working directory is gone and the path is relative.
    pub fn at(folder: Option<&Path>) -> Result<Self> {
        let folder = folder.map_or_else(workspace::default_data_dir, Path::to_path_buf);
        let root = std::path::absolute(&folder).with_context(|| format!("the data folder {}", folder.display()))?;
        Ok(Self { root })
    }

    /// The log of a process.
    pub fn log(&self, role: Role) -> PathBuf {
        self.logs().join(format!("{role}.log"))
    }

    /// The folder of all logs.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The API server's audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.root.join("audit/audit.log")
    }

    /// The log of the session itself, when it runs in the background.
    pub fn session_log(&self) -> PathBuf {
        self.logs().join("up.log")
    }

    /// The folder of a containerd of the session's own.
    pub(super) fn containerd(&self) -> PathBuf {
        self.root.join("containerd")
    }

    pub(super) fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    pub(super) fn agent_state(&self) -> PathBuf {
        self.root.join("agent/state")
    }

    /// The socket by which `drover alloc` reaches the agent.
    pub(super) fn agent_socket(&self) -> PathBuf {
        self.agent_state().join("agent.sock")
    }

    /// The token by which the agent opens its tunnel to the gateway.
    pub(super) fn gateway_token(&self) -> PathBuf {
        self.root.join("agent/gateway-token")
    }

    /// What people add to the agent's settings. No command writes it.
    pub fn agent_additions(&self) -> PathBuf {
        self.root.join("agent.more.yaml")
    }

    /// The folder of the allocations' directories.
    pub fn agent_alloc(&self) -> PathBuf {
        self.root.join("agent/alloc")
    }

    pub(super) fn state_file(&self) -> PathBuf {
        self.root.join("state.json")
    }

    /// Makes the folder ours.
    pub(super) fn create(&self) -> Result<()> {
        create_folder(&self.root, 0o711)?;
        if !self.root.join(MARKER).exists() {
            self.ensure_empty()?;
            // Git must not see it, wherever it lies.
            workspace::write_with_mode(&self.root.join(".gitignore"), b"*\n", 0o644)?;
            workspace::write_with_mode(
                &self.root.join(MARKER),
                b"written by `cargo xtask up`; `cargo xtask down --purge` deletes this folder\n",
                0o644,
            )?;
        }
        create_folder(&self.logs(), 0o700)?;
        for folder in [self.bin(), self.root.join("agent")] {
            create_folder(&folder, 0o755)?;
        }
        Ok(())
    }

    fn ensure_empty(&self) -> Result<()> {
        let mut entries = fs::read_dir(&self.root).with_context(|| format!("reading {}", self.root.display()))?;
        if entries.next().is_some() {
            bail!("{} is not empty and no data folder of drover: name another one with --data", self.root.display());
        }
        Ok(())
    }

    /// Takes the folder for this process; none when another session has it.
    pub(super) fn lock(&self) -> Result<Option<File>> {
        let path = self.root.join("lock");
        let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        Ok(flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file))
    }

    /// Deletes the folder with everything in it.
    pub(super) fn purge(&self) -> Result<()> {
        if !self.root.exists() {
            return Ok(());
        }
        if !self.root.join(MARKER).exists() {
            bail!("{} is no data folder of drover ({MARKER} is not in it): nothing was deleted", self.root.display());
        }
        fs::remove_dir_all(&self.root).with_context(|| format!("deleting {}", self.root.display()))
    }
}

fn create_folder(folder: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .with_context(|| format!("creating {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_ours_is_taken_or_deleted() {
        let parent = tempfile::tempdir().unwrap();
        let foreign = Layout::at(Some(parent.path())).unwrap();
        fs::write(parent.path().join("letter.txt"), "dear").unwrap();
        assert!(foreign.create().unwrap_err().to_string().contains("is not empty"));
        assert!(foreign.purge().unwrap_err().to_string().contains("nothing was deleted"));
        let ours = Layout::at(Some(&parent.path().join("data"))).unwrap();
        ours.create().unwrap();
        ours.create().unwrap();
        ours.purge().unwrap();
        assert!(!ours.root.exists());
        assert!(parent.path().join("letter.txt").exists());
    }

    #[test]
    fn one_session_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let layout = Layout::at(Some(parent.path())).unwrap();
        let lock = layout.lock().unwrap();
        assert!(lock.is_some());
        assert!(layout.lock().unwrap().is_none());
        drop(lock);
        assert!(layout.lock().unwrap().is_some());
    }
}
