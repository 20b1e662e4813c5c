//! The programs of a node, built once: kubelet, scheduler, containerd, runc, network plugins, and the image that holds
//! a pod open.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;

const PROGRAMS: Programs = Programs {
    name: "node",
    modules: &[
        GoModule {
            folder: "tools/kubelet",
            packages: &["k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-scheduler"],
            links_version: true,
            ..GoModule::PLAIN
        },
        GoModule {
            folder: "tools/containerd",
            packages: &[
                "github.com/containerd/containerd/v2/cmd/containerd",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/ctr",
            ],
            tags: &["no_btrfs", "no_zfs", "no_devmapper", "no_aufs"],
            ..GoModule::PLAIN
        },
        // Its part in C joins namespaces, and makes the filters of system calls that restricted pods ask for.
        GoModule {
            folder: "tools/runc",
            packages: &["github.com/opencontainers/runc"],
            tags: &["seccomp"],
            cgo: true,
            ..GoModule::PLAIN
        },
        GoModule {
            folder: "tools/cni",
            packages: &[
                "github.com/containernetworking/plugins/plugins/main/ptp",
                "github.com/containernetworking/plugins/plugins/main/loopback",
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
            ],
            ..GoModule::PLAIN
        },
        GoModule { folder: "tools/pause", packages: &["."], output: Output::File("pause"), ..GoModule::PLAIN },
    ],
    instead: "run cluster tests where Go is installed (a build takes about 4 minutes)",
};

/// Looks for what a build of the programs needs of the machine, so that its lack is named before minutes of builds.
///
/// # Errors
/// When the programs are not built yet, and the headers of libseccomp are missing.
pub fn require_headers() -> Result<()> {
    if PROGRAMS.folder()?.is_dir() {
        return Ok(());
    }
    let asked = Command::new("pkg-config").args(["--exists", "libseccomp"]).stdin(Stdio::null()).status();
    if asked.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    bail!(
        "a node's runc is built with libseccomp, whose headers are missing: `apt-get install libseccomp-dev pkg-config`"
    )
}

/// The folder of the programs, which are built when they are missing.
///
/// # Errors
/// When Go is not installed, or a build fails.
pub fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    require_headers()?;
    PROGRAMS.find_or_build(progress).context("a node's programs")
}
