//! Groups in a recorded tree of the second version, and in the hierarchies of this machine.

use std::fs;
use std::path::Path;

use super::host::{Cgroups, container_group_in};
use super::{cores, v1};
use crate::protocol::{CgroupSpec, OomKill, Slice};

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
        "drover.t/tasks.slice/share.slice/shims",
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
    // A recorded tree takes no programs; `devices` tries them in the real one.
    let cgroup = cgroups.create(&CgroupSpec { restrict_devices: false, ..spec() }).expect("made");
    let of = |file: &str| fs::read_to_string(dir.path().join(TASK).join(file)).expect(file);
    assert_eq!(of("cpu.weight"), "19");
    assert_eq!(of("cpu.max"), "50000 100000");
    assert_eq!((of("memory.max"), of("memory.low")), ((64 << 20).to_string(), (32 << 20).to_string()));
    assert_eq!((of("cpuset.cpus").as_str(), of("pids.max").as_str()), ("0-1", "100"));
    let control = fs::read_to_string(dir.path().join("drover.t/cgroup.subtree_control")).expect("a file");
    assert_eq!(control, "+cpuset +cpu +io +memory +pids");
    let share = || fs::read_to_string(dir.path().join("drover.t/tasks.slice/share.slice/cpuset.cpus")).expect("a file");
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

#[test]
fn the_group_of_a_container_lies_beside_those_of_tasks() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().display();
    let v2 = format!("cgroup2 {root} cgroup2 rw 0 0\n");
    let found = container_group_in(&v2, "drover.t", ("a.web.1", false)).expect("a place");
    assert_eq!(found.path, "/drover.t/tasks.slice/share.slice/a.web.1.scope");
    assert_eq!(found.shims, "/drover.t/tasks.slice/share.slice/shims");
    assert_eq!(found.handle.dirs, [format!("{root}{}", found.path)]);
    assert!(!found.limits_swap);
    let reserved = container_group_in(&v2, "drover.t", ("a.web.1", true)).expect("a place");
    assert_eq!(reserved.path, "/drover.t/tasks.slice/reserve.slice/a.web.1.scope");

    let v1 = format!(
        "cgroup {root}/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup {root}/memory cgroup rw,memory 0 0\n\
         cgroup {root}/pids cgroup rw,pids 0 0\n"
    );
    let found = container_group_in(&v1, "drover.t", ("a.web.1", false)).expect("a place");
    assert_eq!(found.path, "/drover.t/tasks.slice/share.slice/a.web.1");
    let dirs = ["pids", "memory", "cpu"].map(|hierarchy| format!("{root}/{hierarchy}{}", found.path));
    assert_eq!(found.handle.dirs, dirs);
    let reserved = container_group_in(&v1, "drover.t", ("a.web.1", true)).expect("a place");
    assert_eq!(reserved.path, "/drover.t/tasks.slice/a.web.1");
}
