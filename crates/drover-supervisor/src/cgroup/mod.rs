//! The control group of each task: limits before it starts, its processes and usage while it runs, the cause when memory ran out,
//! and nothing left of it afterwards.
//!
//! Input: the hierarchies that the host has mounted. The code path is chosen by what is there: [`v1`] where controllers have
//! hierarchies of their own, [`v2`] where one tree has them all. All files are below the given roots, so that a recorded tree
//! can stand in for a machine.
//!
//! Must never know: tasks' definitions, namespaces, the agent.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::processes;
use super::protocol::{CgroupHandle, CgroupSpec, CgroupVersion, OomKill, Slice};

mod cores;
mod v1;
mod v2;

/// How often processes that multiply are killed before the group is given up.
const KILL_ROUNDS: usize = 50;

/// The place of this supervisor's groups.
#[derive(Clone, Debug)]
pub(super) enum Cgroups {
    /// One folder per hierarchy.
    V1(v1::Base),
    /// One folder.
    V2(v2::Base),
}

impl Cgroups {
    /// Finds the hierarchies and makes the folder `name` in each.
    pub(super) fn prepare(name: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        Self::prepare_in(&mounts, name)
    }

    fn prepare_in(mounts: &str, name: &str) -> io::Result<Self> {
        let v1 = v1::hierarchies(mounts);
        if v1.is_empty() {
            let root = v2::root(mounts)
                .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"))?;
            return v2::Base::prepare(&root, name).map(Self::V2);
        }
        v1::Base::prepare(&v1, name).map(Self::V1)
    }

    /// Makes the group of a task and sets its limits. When this fails nothing is left of it.
    pub(super) fn create(&self, spec: &CgroupSpec) -> io::Result<Cgroup> {
        let cgroup = match self {
            Self::V1(base) => {
                let dirs = base.create(spec)?;
                let shared = if spec.cores.is_empty() { base.shared() } else { None };
                Cgroup { version: CgroupVersion::V1, dirs, shared }
            }
            Self::V2(base) => Cgroup { version: CgroupVersion::V2, dirs: vec![base.create(spec)?], shared: None },
        };
        if !spec.cores.is_empty() {
            self.share_cores();
        }
        Ok(cgroup)
    }

    /// Caps what all tasks together may use.
    pub(super) fn cap(&self, slice: &Slice) -> io::Result<()> {
        match self {
            Self::V1(base) => base.cap(slice),
            Self::V2(base) => base.cap(slice),
        }
    }

    /// Gives the cores that no task has for itself to all others. Without that they still run, on the reserved cores too.
    pub(super) fn share_cores(&self) {
        let shared = match self {
            Self::V1(base) => base.share_cores(),
            Self::V2(base) => base.share_cores(),
        };
        if let Err(error) = shared {
            tracing::warn!(error = %error, "reserved cores are not kept free of other tasks");
        }
    }

    /// Moves a process of our own into a group beside those of the tasks, out of the one that started it.
    pub(super) fn take_in(&self, pid: u32) -> io::Result<()> {
        let dirs = match self {
            Self::V1(base) => base.own_dirs()?,
            Self::V2(base) => vec![base.own_dir()?],
        };
        dirs.iter().try_for_each(|dir| write(&dir.join("cgroup.procs"), &pid.to_string()))?;
        self.leave_others(&fs::read_to_string("/proc/self/mounts")?, pid)
    }

    /// Moves a process of our own to the root of each hierarchy in which we have no folder. One that stays in a pod's group anywhere is
    /// killed with the pod, and so are the tasks that it starts.
    fn leave_others(&self, mounts: &str, pid: u32) -> io::Result<()> {
        let bases = self.bases();
        let ours: Vec<&Path> = bases.iter().filter_map(|base| base.parent()).collect();
        let others = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (point, kind) = (Path::new(fields.next()?), fields.next()?);
            (matches!(kind, "cgroup" | "cgroup2") && !ours.contains(&point)).then_some(point)
        });
        others.into_iter().try_for_each(|point| write(&point.join("cgroup.procs"), &pid.to_string()))
    }

    /// Our folder of each hierarchy.
    fn bases(&self) -> Vec<PathBuf> {
        match self {
            Self::V1(base) => base.dirs(),
            Self::V2(base) => vec![base.dir()],
        }
    }

    /// Removes our folders again, once `pid`, the last process in them, has been moved to the roots.
    pub(super) fn leave(&self, pid: u32) -> io::Result<()> {
        for base in self.bases() {
            if let Some(root) = base.parent() {
                write(&root.join("cgroup.procs"), &pid.to_string())?;
            }
            remove_tree(&base)?;
        }
        Ok(())
    }
}

/// The group of one task.
#[derive(Clone, Debug)]
pub(super) struct Cgroup {
    version: CgroupVersion,
    dirs: Vec<PathBuf>,
    /// Not its own: it stays when the task ends.
    shared: Option<PathBuf>,
}

impl Cgroup {
    /// The group that a handle names.
    pub(super) fn of(handle: &CgroupHandle) -> Self {
        let dirs = handle.dirs.iter().map(PathBuf::from).collect();
        Self { version: handle.version, dirs, shared: handle.shared.as_ref().map(PathBuf::from) }
    }

    /// What finds it again.
    pub(super) fn handle(&self) -> CgroupHandle {
        let text = |dir: &PathBuf| dir.to_string_lossy().into_owned();
        CgroupHandle {
            version: self.version,
            dirs: self.dirs.iter().map(text).collect(),
            shared: self.shared.as_ref().map(text),
        }
    }

    /// The files to which a single-threaded process writes `0` to enter. (In the first version the one that moves a single thread:
    /// it needs no lock over all processes of the machine, which would cost milliseconds in each hierarchy.)
    pub(crate) fn entrances(&self) -> Vec<PathBuf> {
        let name = match self.version {
            CgroupVersion::V1 => "tasks",
            CgroupVersion::V2 => "cgroup.procs",
        };
        self.dirs.iter().chain(&self.shared).map(|dir| dir.join(name)).collect()
    }

    /// Its processes.
    pub(super) fn pids(&self) -> io::Result<Vec<i32>> {
        let Some(dir) = self.dirs.first() else { return Ok(Vec::new()) };
        let text = match fs::read_to_string(dir.join("cgroup.procs")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            // Linux answers so when the group is going away.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Kills everything in it and returns what to wait for. Frozen meanwhile, so that nothing multiplies faster than it dies.
    pub(super) fn kill(&self) -> io::Result<Vec<OwnedFd>> {
        let mut dying = Vec::new();
        self.set_frozen(true);
        for pid in self.pids()? {
            let Ok(pid) = processes::pid(pid) else { continue };
            // One that has ended meanwhile needs no kill.
            let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { continue };
            if rustix::process::pidfd_send_signal(&pidfd, rustix::process::Signal::KILL).is_ok() {
                dying.push(pidfd);
            }
        }
        self.set_frozen(false);
        Ok(dying)
    }

    /// How many rounds of killing make sense.
    pub(super) fn kill_rounds() -> usize {
        KILL_ROUNDS
    }

    /// Best effort: without the freezer killing takes more rounds.
    fn set_frozen(&self, frozen: bool) {
        let (file, text) = match (self.version, frozen) {
            (CgroupVersion::V1, true) => ("freezer.state", "FROZEN"),
            (CgroupVersion::V1, false) => ("freezer.state", "THAWED"),
            (CgroupVersion::V2, true) => ("cgroup.freeze", "1"),
            (CgroupVersion::V2, false) => ("cgroup.freeze", "0"),
        };
        if let Some(path) = self.dirs.iter().map(|dir| dir.join(file)).find(|path| path.exists())
            && let Err(error) = write(&path, text)
        {
            tracing::debug!(error = %error, path = %path.display(), "the group is not frozen");
        }
    }

    /// Whether memory ran out in it, with the limit and the most that it had.
    pub(super) fn oom(&self) -> Option<OomKill> {
        match self.version {
            CgroupVersion::V1 => v1::oom(&self.dirs),
            CgroupVersion::V2 => v2::oom(self.dirs.first()?),
        }
    }

    /// Removes it; everything in it has ended.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.dirs.iter().try_for_each(|dir| remove_dir(dir))
    }
}

/// Why tasks cannot be limited on this host; `None` when they can.
pub fn missing() -> Option<String> {
    let mounts = match fs::read_to_string("/proc/self/mounts") {
        Ok(mounts) => mounts,
        Err(error) => return Some(format!("the mounts cannot be read: {error}")),
    };
    if !v1::hierarchies(&mounts).is_empty() {
        return None;
    }
    match v2::root(&mounts) {
        Some(root) => v2::missing(&root).err().map(|error| error.to_string()),
        None => Some("no cgroup hierarchy is mounted".to_owned()),
    }
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
    }
}

/// Removes a group and those below it; nothing runs in them.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_tree(&path)?;
        }
    }
    remove_dir(dir)
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", dir.display()))),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // Not created when it is missing: then the host lacks the controller.
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| io::Error::new(error.kind(), format!("{} = {text}: {error}", path.display())))
}

fn read_number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a name in a file of `name number` lines.
fn read_field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The files by which a process enters a group, as those of its handle.
pub fn entrances(handle: &CgroupHandle) -> Vec<String> {
    Cgroup::of(handle).entrances().into_iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

/// What the tasks of a group use, for statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in nanoseconds.
    pub cpu_nanos: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The most memory that it had.
    pub memory_peak_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
}

/// Reads what a group uses now; none when it is gone.
pub fn usage(handle: &CgroupHandle) -> Option<Usage> {
    let dirs: Vec<PathBuf> = handle.dirs.iter().map(PathBuf::from).collect();
    if !dirs.first()?.exists() {
        return None;
    }
    let number = |file: &str| dirs.iter().find_map(|dir| read_number(&dir.join(file))).unwrap_or(0);
    Some(match handle.version {
        CgroupVersion::V1 => Usage {
            cpu_nanos: number("cpuacct.usage"),
            memory_bytes: number("memory.usage_in_bytes"),
            memory_peak_bytes: number("memory.max_usage_in_bytes"),
            pids: number("pids.current"),
        },
        CgroupVersion::V2 => Usage {
            cpu_nanos: dirs
                .iter()
                .find_map(|dir| read_field(&dir.join("cpu.stat"), "usage_usec"))
                .unwrap_or(0)
                .saturating_mul(1000),
            memory_bytes: number("memory.current"),
            memory_peak_bytes: number("memory.peak"),
            pids: number("pids.current"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> CgroupSpec {
        CgroupSpec {
            name: "alloc.web.1".into(),
            cpu_shares: Some(500),
            cpu_quota_us: Some(50_000),
            memory_hard_bytes: Some(64 << 20),
            memory_soft_bytes: Some(32 << 20),
            cores: "0-1".into(),
            pids_max: Some(100),
            restrict_devices: true,
            devices: vec!["c 10:7 rwm".to_owned()],
        }
    }

    /// The group of a task with cores of its own.
    const TASK: &str = "drover.t/tasks.slice/reserve.slice/alloc.web.1.scope";

    #[test]
    fn a_supervisor_stays_in_no_group_of_its_pod() {
        let (root, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        recorded_v2(root.path());
        let procs = other.path().join("cgroup.procs");
        fs::write(&procs, "").expect("a file");
        let tree = format!("cgroup2 {} cgroup2 rw 0 0\n", root.path().display());
        let cgroups = Cgroups::prepare_in(&tree, "drover.t").expect("our folder");
        let mounts = format!("{tree}cgroup {} cgroup rw,name=systemd 0 0\n", other.path().display());
        cgroups.leave_others(&mounts, 42).expect("left");
        assert_eq!(fs::read_to_string(procs).expect("the root of the other"), "42");
        assert_eq!(fs::read_to_string(root.path().join("cgroup.procs")).expect("our own"), "");
    }

    /// A tree as Linux 6.18 shows it, with the files that a new group has.
    fn recorded_v2(root: &Path) {
        for dir in [
            "",
            "drover.t",
            "drover.t/tasks.slice",
            "drover.t/tasks.slice/share.slice",
            "drover.t/tasks.slice/reserve.slice",
            TASK,
        ] {
            let dir = root.join(dir);
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join("cgroup.controllers"), "cpuset cpu io memory hugetlb pids rdma\n").expect("a file");
            for file in [
                "cgroup.procs",
                "cgroup.subtree_control",
                "cgroup.freeze",
                "cpu.weight",
                "cpu.max",
                "memory.max",
                "memory.low",
                "memory.oom.group",
                "memory.swap.max",
                "cpuset.cpus",
                "pids.max",
            ] {
                fs::write(dir.join(file), "").expect("a file");
            }
            fs::write(dir.join("cpuset.cpus.effective"), "0-3\n").expect("a file");
        }
    }

    #[test]
    fn the_second_version_gets_its_limits_in_its_own_units() {
        let dir = tempfile::tempdir().expect("a directory");
        recorded_v2(dir.path());
        let mounts = format!("cgroup2 {} cgroup2 rw,nosuid 0 0\n", dir.path().display());
        let cgroups = Cgroups::prepare_in(&mounts, "drover.t").expect("prepared");
        let cgroup = cgroups.create(&spec()).expect("made");
        let of = |file: &str| fs::read_to_string(dir.path().join(TASK).join(file)).expect(file);
        assert_eq!(of("cpu.weight"), "19");
        assert_eq!(of("cpu.max"), "50000 100000");
        assert_eq!((of("memory.max"), of("memory.low")), ((64 << 20).to_string(), (32 << 20).to_string()));
        assert_eq!((of("cpuset.cpus").as_str(), of("pids.max").as_str()), ("0-1", "100"));
        let control = fs::read_to_string(dir.path().join("drover.t/cgroup.subtree_control")).expect("a file");
        assert_eq!(control, "+cpuset +cpu +io +memory +pids");
        let share =
            || fs::read_to_string(dir.path().join("drover.t/tasks.slice/share.slice/cpuset.cpus")).expect("a file");
        assert_eq!(share(), "2,3", "the others have what it has not");
        cgroups.cap(&Slice { memory_bytes: Some(1 << 30), cpu_quota_us: None }).expect("capped");
        let cap = |file: &str| fs::read_to_string(dir.path().join("drover.t/tasks.slice").join(file)).expect(file);
        assert_eq!((cap("memory.max"), cap("cpu.max")), ((1 << 30).to_string(), "max 100000".to_owned()));
        assert_eq!(cgroup.entrances().len(), 1);
        fs::write(dir.path().join(TASK).join("memory.events"), "low 0\noom 1\noom_kill 2\n").expect("a file");
        fs::write(dir.path().join(TASK).join("memory.max"), (64 << 20).to_string()).expect("a file");
        fs::write(dir.path().join(TASK).join("memory.peak"), "67000000\n").expect("a file");
        assert_eq!(cgroup.oom(), Some(OomKill { limit_bytes: 64 << 20, peak_bytes: 67_000_000 }));
    }

    #[test]
    fn a_missing_controller_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        recorded_v2(dir.path());
        fs::write(dir.path().join("cgroup.controllers"), "cpu pids\n").expect("a file");
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", dir.path().display());
        let error = Cgroups::prepare_in(&mounts, "drover.t").expect_err("refused").to_string();
        assert!(error.contains("memory") && error.contains("cpuset"), "{error}");
    }

    #[test]
    fn the_first_version_limits_for_real() {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        if v1::hierarchies(&mounts).is_empty() || !rustix::process::geteuid().is_root() {
            return;
        }
        let base = format!("drover.test{}", std::process::id());
        let cgroups = Cgroups::prepare(&base).expect("prepared");
        let cgroup = cgroups.create(&spec()).expect("made");
        let of = |file: &str| {
            let path = cgroup.dirs.iter().map(|dir| dir.join(file)).find(|path| path.exists()).expect(file);
            fs::read_to_string(path).expect(file).trim().to_owned()
        };
        assert_eq!((of("cpu.shares").as_str(), of("cpu.cfs_quota_us").as_str()), ("500", "50000"));
        assert_eq!(of("memory.limit_in_bytes"), (64 << 20).to_string());
        assert_eq!(of("memory.soft_limit_in_bytes"), (32 << 20).to_string());
        assert_eq!((of("cpuset.cpus").as_str(), of("pids.max").as_str()), ("0-1", "100"));
        assert!(of("devices.list").contains("c 1:3 "), "{}", of("devices.list"));
        let slice = Slice { memory_bytes: Some(1 << 30), cpu_quota_us: Some(150_000) };
        cgroups.cap(&slice).expect("capped");
        let Cgroups::V1(base) = &cgroups else { panic!("hierarchies of the first version") };
        let cap = |file: &str| {
            let path = base.dirs().into_iter().map(|dir| dir.join("tasks.slice").join(file)).find(|path| path.exists());
            fs::read_to_string(path.expect(file)).expect(file).trim().to_owned()
        };
        assert_eq!((cap("memory.limit_in_bytes"), cap("cpu.cfs_quota_us")), ((1 << 30).to_string(), "150000".into()));
        cgroups.cap(&Slice::default()).expect("uncapped");
        assert_eq!(cap("cpu.cfs_quota_us"), "-1");
        assert!(cgroup.oom().is_none() && cgroup.pids().expect("pids").is_empty());
        cgroup.remove().expect("removed");
        cgroups.leave(std::process::id()).expect("removed");
    }

    #[test]
    fn cores_of_one_task_are_taken_from_all_others_and_given_back() {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if v1::hierarchies(&mounts).is_empty() || !rustix::process::geteuid().is_root() || cores < 2 {
            return;
        }
        let cgroups = Cgroups::prepare(&format!("drover.cores{}", std::process::id())).expect("prepared");
        let shares = cgroups.create(&CgroupSpec { name: "shares".into(), ..CgroupSpec::default() }).expect("made");
        let common = shares.shared.clone().expect("a shared group").join("cpuset.cpus");
        let seen = || cores::parse(&fs::read_to_string(&common).expect("cores"));
        let all = seen();
        let own = CgroupSpec { name: "own".into(), cores: "0".into(), ..CgroupSpec::default() };
        let own = cgroups.create(&own).expect("made");
        assert_eq!(seen(), all.iter().copied().filter(|core| *core != 0).collect());
        own.remove().expect("removed");
        cgroups.share_cores();
        assert_eq!(seen(), all);
        shares.remove().expect("removed");
        cgroups.leave(std::process::id()).expect("removed");
    }
}
