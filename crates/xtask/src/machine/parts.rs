//! What the machine is made of: a kernel and its modules, the first file system, and what runs in it.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use drover_testkit::workspace;

/// What installs the programs and the kernel.
const INSTALL: &str =
    "`apt-get install --no-install-recommends qemu-system-x86 linux-image-cloud-amd64 busybox-static kmod`";
/// Where Debian's packages put the program that shares the host's files, newest release first.
const FILE_SHARERS: [&str; 2] = ["/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"];
/// The modules that are needed before the host's files are there.
const MODULES: [&str; 3] = ["virtio_pci", "virtiofs", "overlay"];
/// The folders of its first file system.
const FIRST_FOLDERS: [&str; 8] = ["bin", "modules", "proc", "sys", "dev", "host", "written", "new"];
/// The first process.
const FIRST: &str = include_str!("first.sh");

/// The programs and files of the host that make a machine.
#[derive(Debug)]
pub(super) struct MachineParts {
    /// The emulator.
    pub(super) emulator: PathBuf,
    /// The program that shares the host's files.
    pub(super) file_sharer: PathBuf,
    /// The kernel.
    pub(super) kernel: PathBuf,
    /// Its release, such as `6.1.0-56-cloud-amd64`.
    release: String,
    busybox: PathBuf,
}

impl MachineParts {
    /// Finds them.
    ///
    /// # Errors
    /// When one is missing, with the command that installs it.
    pub(super) fn find() -> Result<Self> {
        ensure!(
            std::env::consts::ARCH == "x86_64",
            "the machine is made for x86_64, and this host is {}",
            std::env::consts::ARCH
        );
        let program = |name: &str| {
            workspace::find_on_path(name)
                .with_context(|| format!("the machine needs {name}, which is missing: {INSTALL}"))
        };
        let file_sharer = FILE_SHARERS.iter().map(PathBuf::from).find(|path| path.is_file());
        let (release, kernel) = newest_kernel()?;
        Ok(Self {
            emulator: program("qemu-system-x86_64")?,
            file_sharer: file_sharer
                .with_context(|| format!("the machine needs virtiofsd, which is missing: {INSTALL}"))?,
            kernel,
            release,
            busybox: program("busybox")?,
        })
    }

    /// Writes the archive with the machine's first file system.
    ///
    /// # Errors
    /// When a module is missing, or something cannot be read or written.
    pub(super) fn write_first_files(&self, archive: &Path) -> Result<()> {
        let folder = tempfile::tempdir().context("making a folder for the machine's first files")?;
        let mut names: Vec<String> = FIRST_FOLDERS.map(str::to_owned).into();
        for name in FIRST_FOLDERS {
            fs::create_dir(folder.path().join(name)).with_context(|| format!("making {name} for the machine"))?;
        }
        let mut put = |name: String, content: &[u8]| {
            let written = workspace::write_with_mode(&folder.path().join(&name), content, 0o755);
            names.push(name);
            written
        };
        let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
        put("bin/busybox".to_owned(), &read(&self.busybox)?)?;
        put("init".to_owned(), FIRST.as_bytes())?;
        let mut order = String::new();
        for module in self.modules()? {
            let name = format!("modules/{}", module.file_name().unwrap_or_default().to_string_lossy());
            order.push_str(&name);
            order.push('\n');
            put(name, &read(&module)?)?;
        }
        put("order".to_owned(), order.as_bytes())?;
        self.pack(folder.path(), &names, archive)
    }

    /// The files of the modules, each after those that it needs.
    fn modules(&self) -> Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in MODULES {
            let output = Command::new("modprobe")
                .args(["--set-version", &self.release, "--show-depends", module])
                .stdin(Stdio::null())
                .output()
                .with_context(|| format!("the machine needs modprobe, which is missing: {INSTALL}"))?;
            ensure!(output.status.success(), "the kernel {} has no module {module}: {INSTALL}", self.release);
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let file = line.strip_prefix("insmod ").map(|file| PathBuf::from(file.trim()));
                files.extend(file.filter(|file| !files.contains(file)));
            }
        }
        Ok(files)
    }

    fn pack(&self, folder: &Path, names: &[String], archive: &Path) -> Result<()> {
        let file = File::create(archive).with_context(|| format!("creating {}", archive.display()))?;
        let mut child = Command::new(&self.busybox)
            .args(["cpio", "-o", "-H", "newc"])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(Stdio::null())
            .spawn()
            .context("starting busybox")?;
        let mut input = child.stdin.take().context("busybox takes names")?;
        input.write_all(names.join("\n").as_bytes()).context("naming the machine's first files")?;
        drop(input);
        let status = child.wait().context("waiting for busybox")?;
        ensure!(status.success(), "packing the machine's first files: {status}");
        Ok(())
    }
}

/// The newest kernel of a package that can share files: its release and its file.
fn newest_kernel() -> Result<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/lib/modules").into_iter().flatten() {
        let entry = entry.context("reading /lib/modules")?;
        let release = entry.file_name().to_string_lossy().into_owned();
        let kernel = PathBuf::from(format!("/boot/vmlinuz-{release}"));
        if kernel.is_file() && entry.path().join("kernel/fs/fuse/virtiofs.ko").is_file() {
            let time = kernel.metadata().and_then(|metadata| metadata.modified()).context("dating a kernel")?;
            found.push((time, release, kernel));
        }
    }
    found.sort();
    let Some((_, release, kernel)) = found.pop() else {
        bail!("the machine needs a kernel with virtiofs in /boot and /lib/modules, and there is none: {INSTALL}")
    };
    Ok((release, kernel))
}

/// What runs in the machine once the host's files are there: the command in this folder, as root.
///
/// The last line of the console is [`ENDED`] and the command's exit code.
pub(super) fn script(command: &[String], environment: &[(String, String)], folder: &Path) -> Result<String> {
    let quoted =
        |text: &str| shlex::try_quote(text).map(std::borrow::Cow::into_owned).context("quoting for the machine");
    let mut lines: Vec<String> = [
        "mount -t tmpfs run /run",
        "mkdir -p /dev/shm /dev/pts",
        "mount -t tmpfs shm /dev/shm",
        "mount -t devpts devpts /dev/pts",
        "mount -t cgroup2 none /sys/fs/cgroup",
        "ip link set lo up",
        "hostname machine",
        // The kernel's own notes would stand between the lines of tests.
        "dmesg --console-off",
    ]
    .map(str::to_owned)
    .into();
    for (name, value) in environment {
        lines.push(format!("export {name}={}", quoted(value)?));
    }
    lines.push(format!("cd {}", quoted(&folder.display().to_string())?));
    let words = command.iter().map(|word| quoted(word)).collect::<Result<Vec<String>>>()?;
    lines.push(words.join(" "));
    lines.push(format!("echo \"{ENDED}$?\""));
    lines.push("echo o > /proc/sysrq-trigger; sleep 60".to_owned());
    Ok(lines.join("\n") + "\n")
}

/// Begins the console's last line.
pub(super) const ENDED: &str = "machine: ended with ";

/// What the console says of the end: the exit code, where this line is that of the end.
pub(super) fn ended(line: &str) -> Option<u8> {
    line.strip_prefix(ENDED)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ended, script};

    #[test]
    fn what_runs_in_the_machine_is_quoted_and_its_end_is_read() {
        let command = ["a b".to_owned(), "$x".to_owned()];
        let text = script(&command, &[("NAME".to_owned(), "it's".to_owned())], "/some where".as_ref()).unwrap();
        assert!(text.contains("\nexport NAME=\"it's\"\ncd '/some where'\n'a b' '$x'\n"), "{text}");
        assert_eq!(ended("machine: ended with 101"), Some(101));
        assert_eq!((ended("test x ... ok"), ended("machine: ended with ")), (None, None));
    }
}
