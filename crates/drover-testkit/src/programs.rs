//! Programs of other projects, built once from the Go modules under `tools/`.
//!
//! A build lies in the user's cache folder under a name that follows from everything it depends on, appears there in
//! one piece, and is never changed afterwards. Must never know what a program is for.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest as _, Sha256};

use crate::progress::{Progress, Step};
use crate::spawner::spawn_bound_to_this_process;
use crate::workspace;

/// The version of Kubernetes that `tools/kubernetes/go.mod` pins; clients compare it with their own.
pub(crate) const KUBERNETES_VERSION: &str = "v1.36.3";

/// What the linker would leave out again is not made: a fifteenth of the time.
const COMPILER_FLAGS: &str = "-gcflags=all=-dwarf=false";

/// Programs that are built, and found, together.
pub(crate) struct Programs {
    /// The name of their folder in the cache.
    pub(crate) name: &'static str,
    /// The Go modules that they come from.
    pub(crate) modules: &'static [GoModule],
    /// What to do without Go: how long a build takes, and how to name ready programs instead.
    pub(crate) instead: &'static str,
}

/// Programs that share one go.mod.
pub(crate) struct GoModule {
    /// Its folder, from the workspace's root.
    pub(crate) folder: &'static str,
    /// The packages of the programs.
    pub(crate) packages: &'static [&'static str],
    /// The names of the programs.
    pub(crate) output: Output,
    /// Whether the programs tell Kubernetes' version.
    pub(crate) links_version: bool,
    /// Build tags, which leave out what would need libraries of the machine.
    pub(crate) tags: &'static [&'static str],
    /// Whether a part of it is C.
    pub(crate) cgo: bool,
}

/// What built programs are called.
pub(crate) enum Output {
    /// Every program under the last part of its package's path.
    Folder,
    /// The one program under this name.
    File(&'static str),
}

impl Programs {
    /// The folder that holds the programs, after building them when they are missing.
    ///
    /// Two builds at a time do not disturb each other: the second waits.
    ///
    /// # Errors
    /// When Go is not installed, or a build fails.
    pub(crate) fn find_or_build(&self, progress: &Progress) -> Result<PathBuf> {
        let folder = self.folder()?;
        if !folder.is_dir() {
            self.build_once(&self.cache()?, &folder, progress)?;
        }
        Ok(folder)
    }

    /// Where the programs are once they are built.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        Ok(self.cache()?.join(self.key(&workspace::root())?))
    }

    fn cache(&self) -> Result<PathBuf> {
        Ok(workspace::cache_dir()?.join(self.name))
    }

    /// Names a build by all that goes into it.
    fn key(&self, root: &Path) -> Result<String> {
        let mut hash = Sha256::new();
        for module in self.modules {
            for file in ["go.mod", "go.sum"] {
                let path = root.join(module.folder).join(file);
                hash.update(fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
            }
            for file in module.sources(root)? {
                hash.update(fs::read(&file).with_context(|| format!("reading {}", file.display()))?);
            }
            hash.update(module.linker_flags());
            hash.update(COMPILER_FLAGS);
            hash.update(module.packages.join(" "));
            hash.update(module.tags.join(" "));
        }
        Ok(workspace::hex(&hash.finalize()[..8]))
    }

    /// Builds into a folder beside the final one and renames it, under a lock that other builders wait for.
    fn build_once(&self, cache: &Path, folder: &Path, progress: &Progress) -> Result<()> {
        let go = self.find_go()?;
        fs::create_dir_all(cache).with_context(|| format!("creating {}", cache.display()))?;
        let _lock = self.lock(&cache.join("lock"), progress)?;
        if folder.is_dir() {
            return Ok(());
        }
        let unfinished = tempfile::Builder::new()
            .prefix("unfinished-")
            .tempdir_in(cache)
            .context("creating a folder to build in")?;
        for module in self.modules {
            module.build(&go, unfinished.path(), progress)?;
        }
        // From here on the folder is not ours to delete.
        let unfinished = unfinished.keep();
        fs::rename(&unfinished, folder).with_context(|| format!("moving the build to {}", folder.display()))?;
        make_readable(folder)
    }

    fn find_go(&self) -> Result<PathBuf> {
        workspace::find_on_path("go").or_else(|| Some(PathBuf::from("/usr/local/go/bin/go")).filter(|go| go.is_file())).with_context(|| {
            format!(
                "go is missing; it builds the programs of {} once: install Go 1.26 or newer (`apt-get install golang-go` where the distribution has \
                 that, else as https://go.dev/doc/install says), or {}",
                self.name, self.instead
            )
        })
    }

    fn lock(&self, path: &Path, progress: &Progress) -> Result<File> {
        let file = File::create(path).with_context(|| format!("opening {}", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let step = progress.step(format!("waiting for another build of {}", self.name));
            flock(&file, FlockOperation::LockExclusive).with_context(|| format!("locking {}", path.display()))?;
            step.done("");
        }
        Ok(file)
    }
}

impl GoModule {
    /// A module of nothing: what most have in common.
    pub(crate) const PLAIN: Self =
        Self { folder: "", packages: &[], output: Output::Folder, links_version: false, tags: &[], cgo: false };

    /// The program text of our own; most modules have none.
    fn sources(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let folder = root.join(self.folder);
        let entries = fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "go"))
            .collect();
        files.sort();
        Ok(files)
    }

    fn linker_flags(&self) -> String {
        if !self.links_version {
            return "-s -w".to_owned();
        }
        let (major, minor) = ("1", KUBERNETES_VERSION.split('.').nth(1).unwrap_or("0"));
        let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
        format!("-s -w {} {} {}", set("gitVersion", KUBERNETES_VERSION), set("gitMajor", major), set("gitMinor", minor))
    }

    fn build(&self, go: &Path, into: &Path, progress: &Progress) -> Result<()> {
        let names: Vec<&str> = match self.output {
            Output::File(name) => vec![name],
            Output::Folder => self.packages.iter().filter_map(|package| package.rsplit('/').next()).collect(),
        };
        let step = progress.step(format!("building {}", names.join(", ")));
        step.detail("fetching modules");
        let n_packages = self.count_packages(go)?;
        let output = match self.output {
            Output::File(name) => into.join(name),
            Output::Folder => into.join(""),
        };
        let mut command = self.go_command(go);
        command
            .args(["build", "-v", "-trimpath", "-tags", &self.tags.join(","), "-ldflags", &self.linker_flags()])
            .args([COMPILER_FLAGS, "-o"])
            .arg(output)
            .args(self.packages);
        run_build(command, &step, n_packages)
            .with_context(|| format!("building {} in {}", names.join(", "), self.folder))?;
        step.done("");
        Ok(())
    }

    fn go_command(&self, go: &Path) -> Command {
        let mut command = Command::new(go);
        command
            .current_dir(workspace::root().join(self.folder))
            .env("CGO_ENABLED", if self.cgo { "1" } else { "0" })
            .env("GOWORK", "off")
            .env("GOFLAGS", "-mod=readonly");
        command
    }

    /// Counts what a build from nothing compiles; that also fetches the modules.
    fn count_packages(&self, go: &Path) -> Result<u64> {
        let output = self
            .go_command(go)
            .args(["list", "-deps", "-tags", &self.tags.join(",")])
            .args(self.packages)
            .output()
            .context("running go list")?;
        if !output.status.success() {
            bail!("go list in {}: {}", self.folder, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().count() as u64)
    }
}

/// A temporary folder is for its owner alone; programs may be run by anybody.
fn make_readable(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("opening {}", folder.display()))
}

/// Runs `go build -v`, which names each package as it is compiled.
fn run_build(mut command: Command, step: &Step, n_packages: u64) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = spawn_bound_to_this_process(command).context("starting go")?;
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
        assert!(
            modules.contains(&format!("k8s.io/kubernetes {KUBERNETES_VERSION}")),
            "change KUBERNETES_VERSION with tools/kubernetes/go.mod"
        );
    }

    #[test]
    fn a_build_is_named_by_what_goes_into_it() {
        const MODULES: &[GoModule] =
            &[GoModule { folder: "m", packages: &["example.org/p"], links_version: true, ..GoModule::PLAIN }];
        let programs = Programs { name: "p", modules: MODULES, instead: "" };
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("m")).unwrap();
        for file in ["go.mod", "go.sum"] {
            fs::write(root.path().join("m").join(file), "one").unwrap();
        }
        let key = programs.key(root.path()).unwrap();
        assert_eq!(key, programs.key(root.path()).unwrap());
        fs::write(root.path().join("m/go.sum"), "other").unwrap();
        assert_ne!(key, programs.key(root.path()).unwrap());
    }
}
