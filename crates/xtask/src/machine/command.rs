//! The command: builds what is to run, starts the machine, and shows what comes on its console.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use drover_testkit::cargo;
use drover_testkit::control_plane::Binaries;
use drover_testkit::progress::{Progress, print_line};
use drover_testkit::spawner::spawn_bound_to_this_process;
use drover_testkit::workspace;

use super::parts::{MachineParts, ended, script};

/// What `machine` is told.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Run only integration tests whose name contains one of these
    #[arg(required = true)]
    filters: Vec<String>,
    /// The machine's memory, in MB; what is written there lies in it too
    #[arg(long, default_value_t = 6144)]
    memory_mb: u32,
}

/// `cargo xtask machine`: exits as the tests do.
///
/// # Errors
/// When a program or a kernel is missing, the tests cannot be built, or the machine ends before the tests do.
pub fn run(args: &MachineArgs, progress: &Progress) -> Result<ExitCode> {
    let parts = MachineParts::find()?;
    let binaries = Binaries::find_or_build(progress)?;
    let step = progress.step("building the tests");
    let built = cargo::build(&["test", "--no-run", "--workspace"], &step)?;
    step.done("");
    let tests =
        built.into_iter().find(|built| built.target == "it").context("no program of integration tests was built")?;
    let folder = workspace::root().join("target/machine");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    parts.write_first_files(&folder.join("first-files"))?;

    let mut command = vec![tests.executable.display().to_string(), "--test-threads=1".to_owned()];
    command.extend(args.filters.iter().cloned());
    let path = std::env::join_paths(
        binaries.folders().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut environment = vec![("CARGO_MANIFEST_DIR".to_owned(), workspace::root().display().to_string())];
    for name in ["HOME", "CARGO", "RUSTUP_TOOLCHAIN"] {
        environment.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    environment.push(("PATH".to_owned(), path.context("a PATH")?.to_string_lossy().into_owned()));
    let of_guest = folder.join("inside.sh");
    workspace::write_with_mode(&of_guest, script(&command, &environment, &workspace::root())?.as_bytes(), 0o644)?;
    let code = emulate(&parts, args.memory_mb, &folder, &of_guest)?;
    Ok(ExitCode::from(code))
}

/// Runs the machine to its end and shows its console; the exit code is that of what ran in it.
fn emulate(parts: &MachineParts, memory_mb: u32, folder: &Path, script: &Path) -> Result<u8> {
    let socket = folder.join("files.sock");
    let mut sharer = share_files(parts, folder, &socket)?;
    let mut emulator = Command::new(&parts.emulator);
    emulator.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-nographic", "-no-reboot"]);
    emulator.args(["-m", &memory_mb.to_string(), "-numa", "node,memdev=memory"]);
    emulator.args(["-object", &format!("memory-backend-memfd,id=memory,size={memory_mb}M,share=on")]);
    emulator.args(["-chardev", &format!("socket,id=files,path={}", socket.display())]);
    emulator.args(["-device", "vhost-user-fs-pci,chardev=files,tag=root"]);
    emulator.arg("-kernel").arg(&parts.kernel).arg("-initrd").arg(folder.join("first-files"));
    let line = format!("console=ttyS0 quiet panic=-1 edd=off cgroup_no_v1=all machine.script={}", script.display());
    emulator.args(["-append", &line]);
    emulator.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut machine = spawn_bound_to_this_process(emulator).context("starting the machine")?;
    let console = machine.stdout.take().context("the machine has a console")?;
    let mut code = None;
    for line in BufReader::new(console).lines() {
        let line = line.context("reading the machine's console")?;
        let line = line.trim_end_matches('\r');
        code = code.or(ended(line));
        if code.is_none() && line.starts_with(|first: char| !first.is_control()) {
            print_line(line);
        }
    }
    machine.wait().context("waiting for the machine's end")?;
    // It ends with its only client; what is left of it is not wanted any more.
    sharer.kill().context("ending what shares files")?;
    sharer.wait().context("waiting for the end of what shares files")?;
    match code {
        Some(code) => Ok(code),
        None => bail!("the machine ended before what ran in it; see its console above"),
    }
}

fn share_files(parts: &MachineParts, folder: &Path, socket: &Path) -> Result<Child> {
    if socket.exists() {
        fs::remove_file(socket).with_context(|| format!("removing {}", socket.display()))?;
    }
    let log = fs::File::create(folder.join("files.log")).context("creating the log of what shares files")?;
    // It takes over a socket that is listened at already, so that the machine can come at once.
    let listener = UnixListener::bind(socket).with_context(|| format!("listening at {}", socket.display()))?;
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).context("passing a socket on")?;
    let mut command = Command::new(&parts.file_sharer);
    command.arg(format!("--fd={}", listener.as_raw_fd()));
    command.args(["-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot"]);
    command.stdin(Stdio::null()).stdout(log.try_clone().context("one file for both")?).stderr(log);
    spawn_bound_to_this_process(command).context("starting what shares files")
}
