//! The programs of the control plane: found where the user says, or built once from the Go modules under `tools/`.
//!
//! A build lies in the user's cache folder under a name that follows from everything it depends on, appears there in one piece, and
//! is never changed afterwards.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use crate::progress::{Progress, Step};
use crate::workspace;

/// The version of Kubernetes that `tools/kubernetes/go.mod` pins; clients compare it with their own.
const KUBERNETES_VERSION: &str = "v1.36.3";

const FAMILIES: &[Family] = &[
    Family { folder: "tools/etcd", packages: &["go.etcd.io/etcd/server/v3"], output: Output::File("etcd"), links_version: false },
    Family {
        folder: "tools/kubernetes",
        packages: &[
            "k8s.io/kubernetes/cmd/kube-apiserver",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            "k8s.io/kubernetes/cmd/kubectl",
        ],
        output: Output::Folder,
        links_version: true,
    },
];

/// Programs that share one go.mod.
struct Family {
    folder: &'static str,
    packages: &'static [&'static str],
    output: Output,
    links_version: bool,
}

enum Output {
    /// Every program under the last part of its package's path.
    Folder,
    /// The one program under this name.
    File(&'static str),
}

/// A folder with etcd, kube-apiserver, kubectl and, usually, kube-controller-manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Takes the programs from `KUBEBUILDER_ASSETS` if that is set, else from the cache, where they are built when missing.
    ///
    /// Building takes about five minutes on two cores. Two builds at a time do not disturb each other: the second waits.
    ///
    /// # Errors
    /// When a program is missing from the named folder, Go is not installed, or a build fails.
    pub fn find_or_build(progress: &Progress) -> Result<Self> {
        if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
            return Self::in_folder(PathBuf::from(folder));
        }
        let cache = workspace::cache_dir()?.join("control-plane");
        let folder = cache.join(build_key(&workspace::root())?);
        if !folder.is_dir() {
            build_once(&cache, &folder, progress)?;
        }
        Self::in_folder(folder)
    }

    /// Takes the programs of a folder.
    ///
    /// # Errors
    /// When one that is always needed is not there.
    pub fn in_folder(folder: PathBuf) -> Result<Self> {
        let binaries = Self { folder: std::path::absolute(&folder).unwrap_or(folder) };
        for name in ["etcd", "kube-apiserver", "kubectl"] {
            binaries.existing(name)?;
        }
        Ok(binaries)
    }

    /// The folder that holds the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
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
    pub fn kubectl(&self) -> PathBuf {
        self.folder.join("kubectl")
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

/// Names a build by all that goes into it.
fn build_key(root: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for family in FAMILIES {
        for file in ["go.mod", "go.sum"] {
            let path = root.join(family.folder).join(file);
            hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
        }
        hash.update(linker_flags(family));
        hash.update(family.packages.join(" "));
    }
    Ok(hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn linker_flags(family: &Family) -> String {
    if !family.links_version {
        return "-s -w".to_owned();
    }
    let (major, minor) = ("1", KUBERNETES_VERSION.split('.').nth(1).unwrap_or("0"));
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    format!("-s -w {} {} {}", set("gitVersion", KUBERNETES_VERSION), set("gitMajor", major), set("gitMinor", minor))
}

/// Builds into a folder beside the final one and renames it, under a lock that other builders wait for.
fn build_once(cache: &Path, folder: &Path, progress: &Progress) -> Result<()> {
    let go = find_go()?;
    fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
    let _lock = lock(&cache.join("lock"), progress)?;
    if folder.is_dir() {
        return Ok(());
    }
    let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(cache).context("creating a folder to build in")?;
    for family in FAMILIES {
        build_family(&go, family, unfinished.path(), progress)?;
    }
    // From here on the folder is not ours to delete.
    let unfinished = unfinished.keep();
    fs::rename(&unfinished, folder).with_context(|| format!("moving the build to {}", folder.display()))?;
    make_readable(folder)
}

/// A temporary folder is for its owner alone; programs may be run by anybody.
fn make_readable(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).with_context(|| format!("opening {}", folder.display()))
}

fn find_go() -> Result<PathBuf> {
    workspace::find_on_path("go").or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|go| go.is_file())).context(
        "go is missing; it builds etcd and kube-apiserver once, which takes about 5 minutes: install Go 1.26 or newer (`apt-get install golang-go` where the \
         distribution has that, else as https://go.dev/doc/install says), or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, kube-controller-manager \
         and kubectl",
    )
}

fn lock(path: &Path, progress: &Progress) -> Result<File> {
    let file = File::create(path).with_context(|| format!("opening {}", path.display()))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let step = progress.step("waiting for another build of the control plane");
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("locking {}", path.display()))?;
        step.done("");
    }
    Ok(file)
}

fn build_family(go: &Path, family: &Family, into: &Path, progress: &Progress) -> Result<()> {
    let names: Vec<&str> = match family.output {
        Output::File(name) => vec![name],
        Output::Folder => family.packages.iter().filter_map(|package| package.rsplit('/').next()).collect(),
    };
    let step = progress.step(format!("building {}", names.join(", ")));
    step.detail("fetching modules");
    let n_packages = count_packages(go, family)?;
    let output = match family.output {
        Output::File(name) => into.join(name),
        Output::Folder => into.join(""),
    };
    let mut command = go_command(go, family);
    command.args(["build", "-v", "-trimpath", "-ldflags", &linker_flags(family), "-o"]).arg(output).args(family.packages);
    run_build(command, &step, n_packages).with_context(|| format!("building {} in {}", names.join(", "), family.folder))?;
    step.done("");
    Ok(())
}

fn go_command(go: &Path, family: &Family) -> Command {
    let mut command = Command::new(go);
    command.current_dir(workspace::root().join(family.folder)).env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "-mod=readonly");
    command
}

/// Counts what a build from nothing compiles; that also fetches the modules.
fn count_packages(go: &Path, family: &Family) -> Result<u64> {
    let output = go_command(go, family).args(["list", "-deps"]).args(family.packages).output().context("running go list")?;
    if !output.status.success() {
        bail!("go list in {}: {}", family.folder, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().count() as u64)
}

/// Runs `go build -v`, which names each package as it is compiled.
fn run_build(mut command: Command, step: &Step, n_packages: u64) -> Result<()> {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("starting go")?;
    let mut lines = Vec::new();
    let mut n_compiled = 0;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
            n_compiled += 1;
            step.moved(line.as_str(), n_compiled, n_packages);
            lines.push(line);
        }
    }
    let status = child.wait().context("waiting for go")?;
    if !status.success() {
        let tail = &lines[lines.len().saturating_sub(20)..];
        bail!("go build ended with {status}:\n{}", tail.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_the_one_that_is_linked_in() {
        let modules = fs::read_to_string(workspace::root().join("tools/kubernetes/go.mod")).unwrap();
        assert!(modules.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")), "change KUBERNETES_VERSION with tools/kubernetes/go.mod");
    }

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

    #[test]
    fn a_build_is_named_by_what_goes_into_it() {
        let copy = tempfile::tempdir().unwrap();
        for family in FAMILIES {
            fs::create_dir_all(copy.path().join(family.folder)).unwrap();
            for file in ["go.mod", "go.sum"] {
                fs::copy(workspace::root().join(family.folder).join(file), copy.path().join(family.folder).join(file)).unwrap();
            }
        }
        let key = build_key(copy.path()).unwrap();
        assert_eq!(key, build_key(&workspace::root()).unwrap());
        fs::write(copy.path().join("tools/etcd/go.sum"), "other").unwrap();
        assert_ne!(key, build_key(copy.path()).unwrap());
    }
}
