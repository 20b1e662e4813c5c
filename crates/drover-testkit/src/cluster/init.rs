//! What a node's own processes do: enter its control group, leave the machine's namespaces, and then be its process 1.
//!
//! Process 1 gives the node files of its own where programs write (`/var/lib`, `/var/log`, `/run`), starts containerd,
//! brings the images in, starts the kubelet, starts a containerd that dies again as an init system would, and collects
//! what ends. When it dies the kernel ends everything that the
//! node has started, tasks and their supervisor too. Must never know what is run on the node.

use std::fs::{self, File, OpenOptions};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::process::{WaitOptions, wait};

use super::cgroups;
use super::plan::{NodePlan, ProxyPlan, SOCKETS};
use super::settings;
use crate::containerd::ctr;

/// containerd's namespace of the kubelet's containers.
pub(super) const KUBELETS: &str = "k8s.io";
/// How long containerd may take until it serves.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Becomes `unshare`, which starts the node's process 1.
pub fn leave(plan_file: &Path) -> Result<()> {
    let plan = NodePlan::read(plan_file)?;
    cgroups::enter(&plan.cgroup)?;
    let own = std::env::current_exe().context("finding the own program")?;
    let error = Command::new("nsenter")
        .arg(format!("--net={}", plan.network.display()))
        .args(["unshare", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "shared"])
        .arg(own)
        .args(["cluster-node", "--stage", "first", "--plan"])
        .arg(plan_file)
        .exec();
    Err(error).context("starting nsenter (package util-linux)")
}

/// Is the node's process 1 until the node ends.
pub fn run(plan_file: &Path) -> Result<()> {
    let plan = NodePlan::read(plan_file)?;
    let hostname = plan.name.as_bytes();
    rustix::system::sethostname(hostname).context("naming the node")?;
    mount_own(&plan)?;
    let mut containerd = start_containerd(&plan)?;
    for image in &plan.images {
        import(&plan, KUBELETS, image)?;
    }
    let kubelet = start_kubelet(&plan)?;
    let proxy = plan.proxy.as_ref().map(|proxy| start_proxy(&plan, proxy)).transpose()?;
    fs::write(plan.data.join("started"), "").context("saying that the node has started")?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or_default();
                if pid == containerd {
                    containerd = start_containerd(&plan)?;
                    continue;
                }
                for (name, own) in [("kubelet", Some(kubelet)), ("kube-proxy", proxy)] {
                    if Some(pid) == own {
                        bail!("{name} ended with {status:?}; its log is {}", plan.log(name).display());
                    }
                }
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for the node's processes"),
        }
    }
}

/// Places that are the node's alone. All of them exist on every machine.
fn mount_own(plan: &NodePlan) -> Result<()> {
    cgroups::mount_own()?;
    for (own, point) in [("var-lib", "/var/lib"), ("var-log", "/var/log")] {
        let own = plan.data.join(own);
        fs::create_dir_all(&own).with_context(|| format!("creating {}", own.display()))?;
        mount_bind(&own, point).with_context(|| format!("mounting {point}"))?;
    }
    mount_bind(&plan.bin, "/usr/local/sbin").context("mounting /usr/local/sbin")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("mounting /run")?;
    for folder in [plan.sockets(), SOCKETS.into()] {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    mount_bind(plan.sockets(), SOCKETS).with_context(|| format!("mounting {SOCKETS}"))?;
    Ok(())
}

fn start_containerd(plan: &NodePlan) -> Result<u32> {
    let config = plan.data.join("containerd.toml");
    write(&config, &settings::containerd(plan))?;
    let folder = plan.data.join("cni");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    write(&folder.join("10-drover.conflist"), &settings::network(plan).to_string())?;
    let mut command = Command::new(plan.programs.join("containerd"));
    command.arg("--config").arg(&config);
    let pid = start(plan, "containerd", command)?;
    let deadline = Instant::now() + START_TIMEOUT;
    while UnixStream::connect(plan.socket()).is_err() {
        if Instant::now() > deadline {
            bail!("containerd does not serve; its log is {}", plan.log("containerd").display());
        }
        pause();
    }
    Ok(pid)
}

fn start_kubelet(plan: &NodePlan) -> Result<u32> {
    let config = plan.data.join("kubelet.json");
    write(&config, &settings::kubelet(plan).to_string())?;
    let mut command = Command::new(plan.programs.join("kubelet"));
    command.arg("--config").arg(&config).arg("--kubeconfig").arg(&plan.kubeconfig);
    command.args(["--hostname-override", &plan.name, "--node-ip", &plan.address().to_string()]);
    start(plan, "kubelet", command)
}

fn start_proxy(plan: &NodePlan, proxy: &ProxyPlan) -> Result<u32> {
    let config = plan.data.join("kube-proxy.json");
    write(&config, &settings::proxy(plan, proxy).to_string())?;
    let mut command = Command::new(&proxy.program);
    command.arg("--config").arg(&config);
    start(plan, "kube-proxy", command)
}

/// Brings an image into a namespace of containerd; also called from outside of the node.
pub(super) fn import(plan: &NodePlan, namespace: &str, image: &Path) -> Result<()> {
    images(plan, namespace, &["import", "--local", "--snapshotter", "native", &image.display().to_string()])
}

/// Runs `ctr images` on what kubelet's containers are made of; also called from outside of the node.
pub(super) fn images(plan: &NodePlan, namespace: &str, args: &[&str]) -> Result<()> {
    ctr(&plan.programs, &plan.socket(), namespace, &[&["images"], args].concat()).map(drop)
}

fn start(plan: &NodePlan, name: &str, mut command: Command) -> Result<u32> {
    let log = plan.log(name);
    let open = || -> std::io::Result<(File, File)> {
        let file = OpenOptions::new().create(true).append(true).open(&log)?;
        Ok((file.try_clone()?, file))
    };
    let (out, errors) = open().with_context(|| format!("opening {}", log.display()))?;
    // Its programs find each other by name, and its pods those of the machine.
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", plan.programs.display());
    command.env("PATH", path).current_dir("/").stdin(Stdio::null()).stdout(out).stderr(errors);
    let child = command.spawn().with_context(|| format!("starting {name}"))?;
    Ok(child.id())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "process 1 of a node has one thread and no runtime")]
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}
