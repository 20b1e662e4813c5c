//! The programs of the control plane: found where the user says, or built once.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::programs::{GoModule, KUBERNETES_VERSION, Output, Programs};
use crate::progress::Progress;
use crate::workspace;

const SERVERS: Programs = Programs {
    name: "control-plane",
    modules: &[
        GoModule {
            folder: "tools/etcd",
            packages: &["go.etcd.io/etcd/server/v3"],
            output: Output::File("etcd"),
            ..GoModule::PLAIN
        },
        GoModule {
            folder: "tools/kubernetes",
            packages: &["k8s.io/kubernetes/cmd/kube-apiserver", "k8s.io/kubernetes/cmd/kube-controller-manager"],
            links_version: true,
            ..GoModule::PLAIN
        },
    ],
    instead: INSTEAD,
};

/// Apart from the servers, because no part of drover runs it: who has one needs no other.
const KUBECTL: Programs = Programs {
    name: "kubectl",
    modules: &[GoModule {
        folder: "tools/kubernetes",
        packages: &["k8s.io/kubernetes/cmd/kubectl"],
        links_version: true,
        ..GoModule::PLAIN
    }],
    instead: INSTEAD,
};

const INSTEAD: &str = "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager and kubectl (a build takes about 5 minutes)";

/// A folder with etcd, kube-apiserver and, usually, kube-controller-manager; and kubectl, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    kubectl: PathBuf,
}

impl Binaries {
    /// Takes the programs from `KUBEBUILDER_ASSETS` if that is set, else from the cache, where they are built when
    /// missing.
    ///
    /// Building takes about five minutes on two cores. Two builds at a time do not disturb each other: the second
    /// waits.
    ///
    /// # Errors
    /// When a program is missing from the named folder, Go is not installed, or a build fails.
    pub fn find_or_build(progress: &Progress) -> Result<Self> {
        if let Some(folder) = given_folder() {
            return Self::in_folder(folder);
        }
        let servers = SERVERS.find_or_build(progress)?;
        Self::new(servers, KUBECTL.find_or_build(progress)?.join("kubectl"))
    }

    /// As [`Self::find_or_build`], with the kubectl of the user's `PATH` where there is one.
    ///
    /// # Errors
    /// As there.
    pub fn find_or_build_for_user(progress: &Progress) -> Result<Self> {
        match workspace::find_on_path("kubectl").filter(|_| given_folder().is_none()) {
            Some(kubectl) => Self::new(SERVERS.find_or_build(progress)?, kubectl),
            None => Self::find_or_build(progress),
        }
    }

    /// Says whether the programs are there without a build, as far as that can be told at once.
    pub fn is_built() -> bool {
        given_folder().is_some() || SERVERS.folder().is_ok_and(|folder| folder.is_dir())
    }

    /// Takes the programs of a folder.
    ///
    /// # Errors
    /// When one that is always needed is not there.
    pub fn in_folder(folder: PathBuf) -> Result<Self> {
        let kubectl = folder.join("kubectl");
        let binaries = Self::new(folder, kubectl)?;
        binaries.existing("kubectl")?;
        Ok(binaries)
    }

    fn new(folder: PathBuf, kubectl: PathBuf) -> Result<Self> {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let binaries = Self { folder: absolute(folder), kubectl: absolute(kubectl) };
        for name in ["etcd", "kube-apiserver"] {
            binaries.existing(name)?;
        }
        Ok(binaries)
    }

    /// The path of etcd.
    pub fn etcd(&self) -> PathBuf {
        self.folder.join("etcd")
    }

    /// The path of kube-apiserver.
    pub fn kube_apiserver(&self) -> PathBuf {
        self.folder.join("kube-apiserver")
    }

    /// The path of kubectl.
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// The folders that hold the programs, for a `PATH`.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let of_kubectl = self.kubectl.parent().filter(|folder| **folder != self.folder).map(Path::to_owned);
        std::iter::once(self.folder.clone()).chain(of_kubectl)
    }

    /// The path of kube-controller-manager.
    ///
    /// # Errors
    /// When the folder of `KUBEBUILDER_ASSETS` lacks it, as those of kubebuilder do.
    pub fn kube_controller_manager(&self) -> Result<PathBuf> {
        self.existing("kube-controller-manager")
    }

    fn existing(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if !path.is_file() {
            bail!(
                "{name} is not in {}: put one of Kubernetes {KUBERNETES_VERSION} there, or unset KUBEBUILDER_ASSETS to have all programs built",
                self.folder.display()
            );
        }
        Ok(path)
    }
}

fn given_folder() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_without_a_program_is_refused_with_its_name_and_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let error = Binaries::in_folder(folder.path().to_path_buf()).unwrap_err().to_string();
        assert!(error.starts_with("kube-apiserver is not in "), "{error}");
        assert!(error.contains("unset KUBEBUILDER_ASSETS"), "{error}");
        for name in ["kube-apiserver", "kubectl"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let binaries = Binaries::in_folder(folder.path().to_path_buf()).unwrap();
        let error = binaries.kube_controller_manager().unwrap_err().to_string();
        assert!(error.starts_with("kube-controller-manager is not in "), "{error}");
    }
}
