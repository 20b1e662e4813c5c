//! The commands `cargo xtask cluster up`, `down` and `test`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use drover_testkit::cargo;
use drover_testkit::cargo::Profile;
use drover_testkit::cluster::network::succeed;
use drover_testkit::cluster::{Cluster, ClusterOptions, require_headers};
use drover_testkit::examples;
use drover_testkit::image::{self, Arch, ImageArgs};
use drover_testkit::process::{ProcessId, Signal};
use drover_testkit::progress::{Event, Progress, print_line};
use drover_testkit::spawner::spawn_bound_to_this_process;
use drover_testkit::workspace;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{ClusterCommand, ClusterUpArgs};
use crate::detach;

/// How long the end of a cluster may take.
const DOWN_TIMEOUT: Duration = Duration::from_mins(1);

/// `cargo xtask cluster`.
///
/// # Errors
/// When a part does not build or start, or tests fail.
pub async fn run(command: ClusterCommand) -> Result<ExitCode> {
    let progress = Progress::for_people();
    match command {
        ClusterCommand::Up(args) => up(&args).await,
        ClusterCommand::Down { data } => down(&data.unwrap_or_else(default_data_dir), &progress).await,
        ClusterCommand::Test { filters, profile } => test(&filters, profile, &progress),
    }
}

async fn up(args: &ClusterUpArgs) -> Result<ExitCode> {
    let data_dir = args.data.clone().unwrap_or_else(default_data_dir);
    if args.detach && !args.in_background {
        let folder = data_dir.parent().with_context(|| format!("{} has no folder", data_dir.display()))?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        return detach::run(&session_log(&data_dir)).await;
    }
    if args.in_background {
        detach::leave_terminal()?;
        return run_here(args, &data_dir, &Progress::for_parent()).await;
    }
    run_here(args, &data_dir, &Progress::for_people()).await
}

/// Starts a cluster and stays until it is told to end.
async fn run_here(args: &ClusterUpArgs, data_dir: &Path, progress: &Progress) -> Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    if let Some(id) = owner(data_dir) {
        bail!(
            "a cluster runs already in {} (process {}): `cargo xtask cluster down` ends it",
            data_dir.display(),
            id.pid
        );
    }
    let mut cluster = None;
    let start = async {
        require_headers()?;
        let image = build(args.profile, progress).await?;
        reset(data_dir)?;
        let started = Cluster::start(options(args, data_dir, image)?, progress).await?;
        let started = cluster.insert(started);
        if args.install {
            install(started, progress).await?;
        }
        progress.show(Event::Finished { text: how_to_go_on(started, args, data_dir) });
        started.watch().await
    };
    let result = tokio::select! {
        biased;
        _ = interrupted.recv() => Ok(ExitCode::from(130)),
        _ = terminated.recv() => Ok(ExitCode::SUCCESS),
        broken = start => broken.map(|()| ExitCode::FAILURE),
    };
    if let Some(cluster) = cluster {
        // The process that waited in the foreground has gone away; what happens later is in the log.
        let later = if args.in_background { Progress::for_people() } else { progress.clone() };
        let step = later.step("ending the cluster");
        cluster.stop().await?;
        step.done("");
    }
    result
}

async fn build(profile: Profile, progress: &Progress) -> Result<PathBuf> {
    let shown = progress.clone();
    tokio::task::spawn_blocking(move || image::run(&image_args(profile), &shown)).await.context("building the image")?
}

/// The image as nodes get it.
fn image_args(profile: Profile) -> ImageArgs {
    ImageArgs {
        output: None,
        repository: image::REPOSITORY.to_owned(),
        tag: env!("CARGO_PKG_VERSION").to_owned(),
        arch: vec![Arch::Amd64],
        profile,
    }
}

/// What a cluster with drover's image and the programs of its examples is started with.
///
/// # Errors
/// When the examples do not build.
fn options(args: &ClusterUpArgs, data_dir: &Path, image: PathBuf) -> Result<ClusterOptions> {
    let bin = data_dir.join("bin");
    example_programs(&bin)?;
    let xtask = std::env::current_exe().context("finding the own program")?;
    Ok(ClusterOptions {
        data_dir: data_dir.to_path_buf(),
        nodes: args.nodes,
        images: vec![image],
        xtask,
        bin,
        has_service_network: args.services,
    })
}

fn example_programs(bin: &Path) -> Result<()> {
    fs::create_dir_all(bin).with_context(|| format!("creating {}", bin.display()))?;
    let program = examples::build_web_server(&Progress::silent())?;
    let content = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    workspace::write_with_mode(&bin.join(examples::WEB_SERVER), &content, 0o755)
}

/// Empties the folder and notes that it is ours.
fn reset(data_dir: &Path) -> Result<()> {
    if data_dir.exists() {
        if !data_dir.join("owner.json").is_file() {
            bail!("{} exists and is no folder of a cluster: name another one", data_dir.display());
        }
        fs::remove_dir_all(data_dir).with_context(|| format!("deleting {}", data_dir.display()))?;
    }
    fs::create_dir_all(data_dir).with_context(|| format!("creating {}", data_dir.display()))?;
    let own = i32::try_from(std::process::id()).ok().and_then(ProcessId::of).context("the own process")?;
    let text = serde_json::to_string(&own).context("noting the own process")?;
    workspace::write_private(&data_dir.join("owner.json"), &text)
}

/// The command that runs the cluster of a folder.
fn owner(data_dir: &Path) -> Option<ProcessId> {
    let text = fs::read_to_string(data_dir.join("owner.json")).ok()?;
    serde_json::from_str::<ProcessId>(&text).ok().filter(|id| id.is_alive())
}

async fn install(cluster: &Cluster, progress: &Progress) -> Result<()> {
    let step = progress.step("installing drover's chart");
    let chart = workspace::root().join("charts/drover").display().to_string();
    let args = [
        "install",
        "drover",
        &chart,
        "--namespace",
        "drover-system",
        "--create-namespace",
        "--wait",
        "--timeout",
        "120s",
    ];
    let command = cluster.helm(&args);
    tokio::task::spawn_blocking(move || succeed(command, "helm install")).await.context("waiting for Helm")??;
    step.done("");
    Ok(())
}

fn how_to_go_on(cluster: &Cluster, args: &ClusterUpArgs, data_dir: &Path) -> String {
    let data = args.data.as_ref().map(|_| format!(" --data {}", data_dir.display())).unwrap_or_default();
    let ctrl_c = if args.in_background { "" } else { "Ctrl-C, or " };
    [
        "the cluster is up:".to_owned(),
        format!("  export KUBECONFIG={}", cluster.kubeconfig().display()),
        format!("  {} get nodes", cluster.plane().binaries().kubectl().display()),
        format!("Logs are below {}. To end everything: {ctrl_c}cargo xtask cluster down{data}", data_dir.display()),
    ]
    .join("\n")
}

async fn down(data_dir: &Path, progress: &Progress) -> Result<ExitCode> {
    let Some(id) = owner(data_dir) else {
        print_line(&format!("no cluster runs in {}", data_dir.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let step = progress.step("ending the cluster");
    id.signal(Signal::TERM).context("ending the cluster")?;
    if !id.wait_gone(DOWN_TIMEOUT).await.context("waiting for the end of the cluster")? {
        bail!("the cluster (process {}) does not end within {} s", id.pid, DOWN_TIMEOUT.as_secs());
    }
    step.done("");
    Ok(ExitCode::SUCCESS)
}

/// Builds the image and the tests, and runs them with what they need to know.
fn test(filters: &[String], profile: Profile, progress: &Progress) -> Result<ExitCode> {
    require_headers()?;
    let bin = workspace::root().join("target/image/bin");
    example_programs(&bin)?;
    let step = progress.step("building the end-to-end tests");
    // As the other tests are built, so that they share what both need.
    let built = cargo::build(&["test", "--no-run", "--workspace", "--test", "e2e"], &step)?;
    step.done("");
    let of_name = |name: &str| built.iter().find(|built| built.target == name).map(|built| &built.executable);
    let tests = of_name("e2e").context("cargo built no end-to-end tests")?;
    let image = match profile {
        Profile::Release => image::run(&image_args(profile), progress)?,
        Profile::Dev => image::of_this_machine(of_name("droverd").context("cargo built no droverd")?, progress)?,
    };
    let mut command = Command::new(tests);
    command.args(["--test-threads", "1", "--nocapture"]).args(filters).current_dir(workspace::root());
    command.env("DROVER_E2E_IMAGE", image).env("DROVER_E2E_BIN", bin);
    command.env("DROVER_E2E_XTASK", std::env::current_exe().context("finding the own program")?);
    command.stdin(Stdio::null());
    let status = spawn_bound_to_this_process(command).context("starting the tests")?.wait().context("the tests")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The log of a cluster in the background. It lies beside the data folder, which is emptied at the start.
fn session_log(data_dir: &Path) -> PathBuf {
    data_dir.with_added_extension("log")
}

fn default_data_dir() -> PathBuf {
    workspace::root().join("target/cluster")
}
