//! The OCI runtime specification of a task: what a container's runtime makes of it.
//!
//! Input: the task's settings and holdings, what its image says, what the node permits (checked before). Output: the
//! specification. Defaults are those of Docker and containerd, but for capabilities (see [`DEFAULT_CAPABILITIES`]), no
//! new privileges, and the filter of system calls, which is that of driver `exec`. Must never know containerd.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use drover_api::allocation::TaskResources;
use drover_core::task::common_settings::NamespaceMode;
use drover_core::task::container_config::{ContainerConfig, ContainerMountKind, HostMount};
use drover_supervisor::protocol::BindMount;
use drover_supervisor::{CAPABILITIES, ContainerGroup, FirstArgument, permitted_calls};
use oci_spec::runtime::{Spec, get_default_maskedpaths, get_default_readonly_paths};
use serde_json::{Map, Value, json};

use super::image_facts::ImageFacts;
use super::image_user::ImageUser;
use super::settings::ContainerSettings;
use crate::drivers::driver::NetworkPlace;
use crate::drivers::resources::{capabilities_of, cpu_quota_us, cpu_shares, memory_limits};

/// The annotation by which containers share a process that looks after them.
const SHIM_GROUP: &str = "io.containerd.runc.v2.group";
/// What a container's processes can have, if its image runs as root. Those of Docker without the ones that reach beside
/// it: devices and raw packets, other roots, and the rights of files that other containers may run from a shared
/// volume.
const DEFAULT_CAPABILITIES: [&str; 9] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID"];
/// Where programs are looked for, in an image that does not say.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The size of shared memory.
const SHM_MB: u64 = 64;
const PERIOD_US: u64 = 100_000;
const MEBIBYTE: u64 = 1 << 20;

/// A task's part of its container.
#[derive(Clone, Debug)]
pub(super) struct ContainerTask<'a> {
    /// Its allocation.
    pub(super) allocation: &'a str,
    /// Its settings.
    pub(super) config: &'a ContainerConfig,
    /// Its variables, which come before the image's.
    pub(super) env: &'a BTreeMap<String, String>,
    /// What it holds of the node.
    pub(super) resources: &'a TaskResources,
    /// Its network.
    pub(super) network: &'a NetworkPlace,
    /// Directories of its own, and files that are made for it: `/alloc`, `/etc/hosts`.
    pub(super) own_files: Vec<BindMount>,
    /// Its volumes.
    pub(super) volumes: &'a [BindMount],
    /// Its devices.
    pub(super) devices: &'a [DeviceNode],
}

/// A device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceNode {
    pub(super) path: PathBuf,
    /// `c` or `b`.
    pub(super) kind: char,
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// Who it is, as its image and the node have it.
#[derive(Clone, Debug)]
pub(super) struct ContainerPlace<'a> {
    pub(super) image: &'a ImageFacts,
    pub(super) user: &'a ImageUser,
    pub(super) group: &'a ContainerGroup,
    pub(super) hostname: &'a str,
}

/// The specification.
///
/// # Errors
/// The field of the task that is wrong.
pub(super) fn runtime_spec(
    task: &ContainerTask<'_>,
    place: &ContainerPlace<'_>,
    settings: &ContainerSettings,
) -> Result<Spec, String> {
    let value = spec_value(task, place, settings)?;
    serde_json::from_value(value).map_err(|error| format!("the specification of the container: {error}"))
}

fn spec_value(
    task: &ContainerTask<'_>,
    place: &ContainerPlace<'_>,
    settings: &ContainerSettings,
) -> Result<Value, String> {
    let capabilities = Held::of(task.config, settings)?;
    let mut spec = json!({
        "ociVersion": "1.1.0",
        "process": process(task, place, &capabilities)?,
        "root": { "path": "rootfs", "readonly": task.config.readonly_rootfs },
        "hostname": place.hostname,
        "mounts": mounts(task)?,
        "annotations": { SHIM_GROUP: task.allocation },
        "linux": linux(task, place, settings),
    });
    if !task.config.privileged {
        spec["linux"]["maskedPaths"] = json!(get_default_maskedpaths());
        spec["linux"]["readonlyPaths"] = json!(get_default_readonly_paths());
        spec["linux"]["seccomp"] = seccomp(&capabilities.bounding)?;
    }
    Ok(spec)
}

/// Capabilities, by name without `CAP_`.
struct Held {
    /// Those that it can ever have.
    bounding: Vec<String>,
    /// Those that it asked for, which it has also where it is not root.
    asked: Vec<String>,
}

impl Held {
    fn of(config: &ContainerConfig, settings: &ContainerSettings) -> Result<Self, String> {
        if config.privileged {
            let all: Vec<String> = CAPABILITIES.iter().map(|name| (*name).to_owned()).collect();
            return Ok(Self { bounding: all, asked: Vec::new() });
        }
        let usual = DEFAULT_CAPABILITIES.iter().map(|name| (*name).to_owned());
        let allowed: Vec<String> = settings.rights.caps.iter().cloned().chain(usual).collect();
        let setting = ("drivers.containerd.allowCaps", allowed.as_slice());
        let of = |defaults: &[&str], drop: &[String]| -> Result<Vec<String>, String> {
            let held: BTreeSet<String> = capabilities_of(setting, defaults, (&config.cap_add, drop))?;
            Ok(held.into_iter().collect())
        };
        Ok(Self { bounding: of(&DEFAULT_CAPABILITIES, &config.cap_drop)?, asked: of(&[], &[])? })
    }
}

fn process(task: &ContainerTask<'_>, place: &ContainerPlace<'_>, held: &Held) -> Result<Value, String> {
    let (config, image, user) = (task.config, place.image, place.user);
    let args = config.command_line(&image.entrypoint, &image.cmd);
    if args.is_empty() {
        return Err("the image has neither entrypoint nor command: write config.command or config.args".to_owned());
    }
    let with_prefix = |names: &[String]| names.iter().map(|name| format!("CAP_{name}")).collect::<Vec<_>>();
    let (bounding, ambient) = (with_prefix(&held.bounding), with_prefix(&held.asked));
    let ambient = if user.uid == 0 { Vec::new() } else { ambient };
    // Others than root get back at a start only what is inherited.
    let permitted = if user.uid == 0 { &bounding } else { &ambient };
    let limits: Vec<Value> = config
        .limits()?
        .into_iter()
        .map(|limit| {
            let name = format!("RLIMIT_{}", limit.name.to_uppercase());
            json!({ "type": name, "soft": limit.soft, "hard": limit.hard })
        })
        .collect();
    let work_dir = config.work_dir.as_deref().unwrap_or(&image.work_dir);
    Ok(json!({
        "terminal": config.tty,
        "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups },
        "args": args,
        "env": variables(task, place),
        "cwd": if work_dir.is_empty() { "/" } else { work_dir },
        "capabilities": {
            "bounding": bounding, "effective": permitted, "permitted": permitted,
            "inheritable": ambient, "ambient": ambient,
        },
        "rlimits": limits,
        "noNewPrivileges": !config.privileged,
    }))
}

/// The image's variables, and before them those of the task.
fn variables(task: &ContainerTask<'_>, place: &ContainerPlace<'_>) -> Vec<String> {
    let name_of = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
    let hostname = format!("HOSTNAME={}", place.hostname);
    let defaults = [PATH, hostname.as_str()].into_iter().chain(task.config.tty.then_some("TERM=xterm"));
    let mut all: BTreeMap<String, String> =
        defaults.chain(place.image.env.iter().map(String::as_str)).map(|it| (name_of(it), it.to_owned())).collect();
    all.extend(task.env.iter().map(|(name, value)| (name.clone(), format!("{name}={value}"))));
    all.into_values().collect()
}

fn mounts(task: &ContainerTask<'_>) -> Result<Vec<Value>, String> {
    let config = task.config;
    let mount = |target: &str, kind: &str, source: &str, options: &[&str]| json!({ "destination": target, "type": kind, "source": source, "options": options });
    let access = if config.privileged { "rw" } else { "ro" };
    let shm_size = format!("size={}", config.shm_size_mb.unwrap_or(SHM_MB).saturating_mul(MEBIBYTE));
    let mut found = vec![
        mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ];
    if config.ipc_mode == NamespaceMode::Host {
        let options = ["rbind", "nosuid", "noexec", "nodev"];
        found.push(mount("/dev/shm", "bind", "/dev/shm", &options));
        found.push(mount("/dev/mqueue", "bind", "/dev/mqueue", &options));
    } else {
        found.push(mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", &shm_size]));
        found.push(mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]));
    }
    // No program of a directory that others share gives rights, and no file in one is a device.
    let bind = |target: &str, source: &str, read_only: bool| {
        let access = if read_only { "rro" } else { "rw" };
        mount(target, "bind", source, &["rbind", "rprivate", "nosuid", "nodev", access])
    };
    for BindMount { source, target, read_only } in task.own_files.iter().chain(task.volumes) {
        found.push(bind(target, source, *read_only));
    }
    for HostMount { source, target, read_only, .. } in config.host_mounts()? {
        found.push(bind(&target, &source, read_only));
    }
    for memory in config.mounts.iter().filter(|mount| mount.kind == ContainerMountKind::Tmpfs) {
        let size = memory.size_mb.map(|size| format!("size={}", size.saturating_mul(MEBIBYTE)));
        let access = if memory.read_only { "ro" } else { "rw" };
        let options: Vec<&str> = ["nosuid", "nodev", "mode=1777", access].into_iter().chain(size.as_deref()).collect();
        found.push(mount(&memory.target, "tmpfs", "tmpfs", &options));
    }
    Ok(found)
}

fn linux(task: &ContainerTask<'_>, place: &ContainerPlace<'_>, settings: &ContainerSettings) -> Value {
    let config = task.config;
    let mut namespaces = vec![json!({ "type": "mount" }), json!({ "type": "uts" }), json!({ "type": "cgroup" })];
    match task.network {
        NetworkPlace::Host => {}
        NetworkPlace::Own => namespaces.push(json!({ "type": "network" })),
        NetworkPlace::At(network) => namespaces.push(json!({ "type": "network", "path": network.path })),
    }
    if config.pid_mode == NamespaceMode::Private {
        namespaces.push(json!({ "type": "pid" }));
    }
    if config.ipc_mode == NamespaceMode::Private {
        namespaces.push(json!({ "type": "ipc" }));
    }
    let nodes: Vec<Value> = task
        .devices
        .iter()
        .map(|device| {
            json!({
                "path": device.path, "type": device.kind.to_string(), "major": device.major, "minor": device.minor,
                "fileMode": 0o666,
            })
        })
        .collect();
    json!({
        "namespaces": namespaces,
        "cgroupsPath": place.group.path,
        "sysctl": config.sysctl,
        "devices": nodes,
        "resources": resources(task, place, settings),
    })
}

fn resources(task: &ContainerTask<'_>, place: &ContainerPlace<'_>, settings: &ContainerSettings) -> Value {
    let (config, held) = (task.config, task.resources);
    let mut limits = memory_limits(held);
    if let Some(hard) = config.memory_hard_limit_mb {
        limits.soft = limits.hard.or(limits.soft);
        limits.hard = Some(hard.saturating_mul(MEBIBYTE));
    }
    let mut memory = Map::new();
    if let Some(hard) = limits.hard {
        memory.insert("limit".to_owned(), json!(hard));
        if place.group.limits_swap {
            // As much with swap as without: none.
            memory.insert("swap".to_owned(), json!(hard));
        }
    }
    if let Some(soft) = limits.soft {
        memory.insert("reservation".to_owned(), json!(soft));
    }
    let mhz = u64::try_from(held.cpu).unwrap_or(0);
    let (total, cores) = settings.cpu;
    let mut cpu = Map::from_iter([("shares".to_owned(), json!(cpu_shares(mhz, total)))]);
    if config.cpu_hard_limit {
        cpu.insert("quota".to_owned(), json!(cpu_quota_us(mhz, total, cores)));
        cpu.insert("period".to_owned(), json!(PERIOD_US));
    }
    if !held.cores.is_empty() {
        cpu.insert("cpus".to_owned(), json!(drover_core::task::environment::core_list(&held.cores)));
    }
    let permitted = task.devices.iter().map(|device| {
        json!({
            "allow": true, "type": device.kind.to_string(), "major": device.major, "minor": device.minor,
            "access": "rwm",
        })
    });
    let first = json!({ "allow": config.privileged, "access": "rwm" });
    json!({
        "memory": memory,
        "cpu": cpu,
        "pids": { "limit": config.pids_limit.unwrap_or(settings.pids_limit).min(settings.pids_limit) },
        "devices": std::iter::once(first).chain(permitted).collect::<Vec<Value>>(),
    })
}

/// The system calls that pass; the runtime makes a filter of it.
fn seccomp(bounding: &[String]) -> Result<Value, String> {
    let calls = permitted_calls(bounding).map_err(|error| format!("config.capAdd: {error}"))?;
    let any: Vec<&str> = calls.iter().filter(|(_, it)| *it == FirstArgument::Any).map(|(name, _)| *name).collect();
    let may_make_namespaces = any.contains(&"clone");
    let argument = |op: &str, value: u64, two: Option<u64>| {
        let mut argument = json!({ "index": 0, "value": value, "op": op });
        if let Some(two) = two {
            argument["valueTwo"] = json!(two);
        }
        argument
    };
    let mut rules = vec![json!({ "names": any, "action": "SCMP_ACT_ALLOW" })];
    for (name, first) in &calls {
        let argument = match first {
            FirstArgument::Any => continue,
            FirstArgument::Equal(value) => argument("SCMP_CMP_EQ", *value, None),
            FirstArgument::Below(value) => argument("SCMP_CMP_LT", *value, None),
            FirstArgument::Above(value) => argument("SCMP_CMP_GT", *value, None),
            FirstArgument::Without(bits) => argument("SCMP_CMP_MASKED_EQ", *bits, Some(0)),
        };
        rules.push(json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": [argument] }));
    }
    if !may_make_namespaces {
        // Its arguments are in memory, where a filter cannot look; programs fall back to clone.
        rules.push(json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS }));
    }
    Ok(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::EPERM,
        "architectures": [if cfg!(target_arch = "x86_64") { "SCMP_ARCH_X86_64" } else { "SCMP_ARCH_AARCH64" }],
        "syscalls": rules,
    }))
}

/// What a container sees at these places in any case.
pub(super) fn own_directories(alloc_dir: &Path, task_dir: &Path) -> Vec<BindMount> {
    let bind = |source: PathBuf, target: &str| BindMount {
        source: source.to_string_lossy().into_owned(),
        target: target.to_owned(),
        read_only: false,
    };
    vec![
        bind(alloc_dir.join("alloc"), "/alloc"),
        bind(task_dir.join("local"), "/local"),
        bind(task_dir.join("secrets"), "/secrets"),
    ]
}

#[cfg(test)]
mod tests {
    use drover_supervisor::protocol::{CgroupHandle, CgroupVersion};

    use super::super::settings::tests::settings;
    use super::*;
    use crate::networks::TaskNetwork;

    /// The specification of a task with these settings, in a network of its own.
    fn spec_of(more: &Value) -> Result<Value, String> {
        spec_in(more, &NetworkPlace::Own, |_, _, _| {})
    }

    fn spec_in(
        more: &Value,
        network: &NetworkPlace,
        change: impl FnOnce(&mut ImageUser, &mut TaskResources, &mut ContainerSettings),
    ) -> Result<Value, String> {
        let mut config = json!({ "image": "web" });
        config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let config = ContainerConfig::read("containerd", config.as_object().expect("an object"))?;
        let image = ImageFacts {
            entrypoint: vec!["/run".into()],
            cmd: vec!["-v".into()],
            env: vec!["A=image".into(), "B=image".into()],
            work_dir: "/srv".into(),
            ..ImageFacts::default()
        };
        let handle = CgroupHandle { version: CgroupVersion::V2, dirs: Vec::new(), shared: None };
        let group =
            ContainerGroup { path: "/drover.t/x".into(), shims: "/drover.t/s".into(), handle, limits_swap: true };
        let (mut user, mut settings) = (ImageUser::default(), settings());
        let mut resources = TaskResources { cpu: 500, memory_mb: 64, ..TaskResources::default() };
        change(&mut user, &mut resources, &mut settings);
        let env = BTreeMap::from([("B".to_owned(), "task".to_owned())]);
        let devices = [DeviceNode { path: "/dev/fuse".into(), kind: 'c', major: 10, minor: 229 }];
        let task = ContainerTask {
            allocation: "a-1",
            config: &config,
            env: &env,
            resources: &resources,
            network,
            own_files: own_directories(Path::new("/allocs/a-1"), Path::new("/allocs/a-1/t")),
            volumes: &[BindMount { source: "/vol".into(), target: "/data".into(), read_only: true }],
            devices: &devices,
        };
        let place = ContainerPlace { image: &image, user: &user, group: &group, hostname: "node" };
        let value = spec_value(&task, &place, &settings)?;
        // What the types of the specification do not know would be lost on the way.
        let typed = runtime_spec(&task, &place, &settings)?;
        let again = serde_json::to_value(typed).expect("a value");
        for (part, of) in [("process", &value["process"]), ("linux", &value["linux"])] {
            let keys = |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<BTreeSet<_>>());
            assert_eq!(keys(of), keys(&again[part]), "{part}");
        }
        assert_eq!(again["linux"]["resources"], value["linux"]["resources"]);
        Ok(value)
    }

    #[test]
    fn b_001_what_the_image_says_holds_where_the_task_says_nothing() {
        let spec = spec_of(&json!({})).expect("a specification");
        let process = &spec["process"];
        assert_eq!(process["args"], json!(["/run", "-v"]));
        assert_eq!(process["cwd"], "/srv");
        assert_eq!(process["env"], json!(["A=image", "B=task", "HOSTNAME=node", PATH]));
        assert_eq!((&process["noNewPrivileges"], &process["terminal"]), (&json!(true), &json!(false)));
        assert_eq!(spec["annotations"], json!({ SHIM_GROUP: "a-1" }));
        assert_eq!((&spec["hostname"], &spec["linux"]["cgroupsPath"]), (&json!("node"), &json!("/drover.t/x")));
        let other = spec_of(&json!({ "args": ["serve"], "workDir": "/x", "tty": true })).expect("a specification");
        assert_eq!(other["process"]["args"], json!(["/run", "serve"]));
        assert_eq!((&other["process"]["cwd"], &other["process"]["terminal"]), (&json!("/x"), &json!(true)));
    }

    #[test]
    fn capabilities_are_the_defaults_and_what_the_node_allows() {
        let names = |spec: &Value, set: &str| {
            let names = spec["process"]["capabilities"][set].as_array().cloned().unwrap_or_default();
            names.iter().filter_map(Value::as_str).map(|name| name.replace("CAP_", "")).collect::<Vec<_>>()
        };
        let usual = spec_of(&json!({})).expect("a specification");
        for set in ["bounding", "effective", "permitted"] {
            assert_eq!(names(&usual, set), DEFAULT_CAPABILITIES, "{set}");
        }
        assert_eq!(names(&usual, "ambient"), [""; 0]);
        for name in ["net_raw", "mknod", "sys_admin"] {
            let error = spec_of(&json!({ "capAdd": [name] })).expect_err("refused");
            assert!(error.contains(name) && error.contains("drivers.containerd.allowCaps"), "{error}");
        }
        let asked = json!({ "capAdd": ["net_raw"], "capDrop": ["chown", "setuid"] });
        let allowed = |uid| {
            spec_in(&asked, &NetworkPlace::Own, |user, _, settings| {
                user.uid = uid;
                settings.rights.caps = vec!["net_raw".into()];
            })
            .expect("a specification")
        };
        let wanted = ["DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "NET_RAW", "SETGID", "SETPCAP"];
        assert_eq!(names(&allowed(0), "permitted"), wanted);
        assert_eq!(
            (names(&allowed(7), "permitted"), names(&allowed(7), "ambient")),
            (vec!["NET_RAW".to_owned()], vec!["NET_RAW".to_owned()])
        );
        assert_eq!(names(&allowed(7), "bounding"), wanted);
        let privileged = spec_of(&json!({ "privileged": true })).expect("a specification");
        assert_eq!(names(&privileged, "effective").len(), CAPABILITIES.len());
        assert_eq!(privileged["linux"]["seccomp"], Value::Null);
        assert_eq!(privileged["linux"]["maskedPaths"], Value::Null);
        assert_eq!(privileged["linux"]["resources"]["devices"][0], json!({ "allow": true, "access": "rwm" }));
        assert_eq!(privileged["process"]["noNewPrivileges"], false);
    }

    #[test]
    fn namespaces_are_its_own_but_for_those_that_it_shares() {
        let kinds = |spec: &Value| {
            let all = spec["linux"]["namespaces"].as_array().cloned().unwrap_or_default();
            let mut kinds: Vec<String> = all
                .iter()
                .map(|it| {
                    format!("{}{}", it["type"].as_str().unwrap_or_default(), it["path"].as_str().unwrap_or_default())
                })
                .collect();
            kinds.sort();
            kinds.join(" ")
        };
        let of =
            |config: Value, network: NetworkPlace| kinds(&spec_in(&config, &network, |_, _, _| {}).expect("a spec"));
        assert_eq!(of(json!({}), NetworkPlace::Own), "cgroup ipc mount network pid uts");
        assert_eq!(
            of(json!({}), NetworkPlace::At(TaskNetwork { path: "/run/n".into(), ..TaskNetwork::default() })),
            "cgroup ipc mount network/run/n pid uts"
        );
        let shared = json!({ "networkMode": "host", "pidMode": "host", "ipcMode": "host" });
        assert_eq!(of(shared, NetworkPlace::Host), "cgroup mount uts");
    }

    #[test]
    fn limits_are_what_the_task_holds() {
        let resources = |more: &Value, held: TaskResources| {
            let spec = spec_in(more, &NetworkPlace::Own, |_, resources, _| *resources = held).expect("a specification");
            spec["linux"]["resources"].clone()
        };
        let held = TaskResources { cpu: 1000, memory_mb: 64, ..TaskResources::default() };
        let usual = resources(&json!({}), held.clone());
        assert_eq!(usual["memory"], json!({ "limit": 64 << 20, "swap": 64 << 20 }));
        assert_eq!(usual["cpu"], json!({ "shares": 1000 }));
        assert_eq!(usual["pids"], json!({ "limit": 4096 }));
        let device = json!({ "allow": true, "type": "c", "major": 10, "minor": 229, "access": "rwm" });
        assert_eq!(usual["devices"], json!([{ "allow": false, "access": "rwm" }, device]));
        let reserved = TaskResources { memory_max_mb: 128, cores: vec![0, 1], ..held };
        let more = resources(&json!({ "cpuHardLimit": true, "pidsLimit": 9 }), reserved.clone());
        assert_eq!(more["memory"], json!({ "limit": 128 << 20, "swap": 128 << 20, "reservation": 64 << 20 }));
        assert_eq!(more["cpu"], json!({ "shares": 1000, "quota": 100_000, "period": 100_000, "cpus": "0-1" }));
        assert_eq!(more["pids"], json!({ "limit": 9 }));
        let hard = resources(&json!({ "memoryHardLimitMB": 256 }), TaskResources { memory_max_mb: 0, ..reserved });
        assert_eq!(hard["memory"], json!({ "limit": 256 << 20, "swap": 256 << 20, "reservation": 64 << 20 }));
    }

    #[test]
    fn b_024_files_memory_limits_and_parameters_are_as_asked() {
        let asked = json!({
            "readonlyRootfs": true, "shmSizeMB": 8, "ulimit": { "nofile": "10:20" },
            "sysctl": { "net.core.somaxconn": "16" },
            "mounts": [{ "type": "tmpfs", "target": "/cache", "sizeMB": 4 }], "volumes": ["/srv:/srv:ro"],
        });
        let spec = spec_of(&asked).expect("a specification");
        assert_eq!(spec["root"], json!({ "path": "rootfs", "readonly": true }));
        assert_eq!(spec["linux"]["sysctl"], json!({ "net.core.somaxconn": "16" }));
        assert_eq!(spec["process"]["rlimits"], json!([{ "type": "RLIMIT_NOFILE", "soft": 10, "hard": 20 }]));
        let mounted = |target: &str| {
            let all = spec["mounts"].as_array().cloned().unwrap_or_default();
            let found = all.into_iter().find(|mount| mount["destination"] == target).unwrap_or_default();
            let options = found["options"].as_array().cloned().unwrap_or_default();
            let options: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
            format!(
                "{} {} {}",
                found["type"].as_str().unwrap_or_default(),
                found["source"].as_str().unwrap_or_default(),
                options.join(",")
            )
        };
        for (target, wanted) in [
            ("/dev/shm", "tmpfs shm nosuid,noexec,nodev,mode=1777,size=8388608"),
            ("/cache", "tmpfs tmpfs nosuid,nodev,mode=1777,rw,size=4194304"),
            ("/srv", "bind /srv rbind,rprivate,nosuid,nodev,rro"),
            ("/data", "bind /vol rbind,rprivate,nosuid,nodev,rro"),
            ("/alloc", "bind /allocs/a-1/alloc rbind,rprivate,nosuid,nodev,rw"),
            ("/local", "bind /allocs/a-1/t/local rbind,rprivate,nosuid,nodev,rw"),
            ("/secrets", "bind /allocs/a-1/t/secrets rbind,rprivate,nosuid,nodev,rw"),
            ("/sys", "sysfs sysfs nosuid,noexec,nodev,ro"),
        ] {
            assert_eq!(mounted(target), wanted, "{target}");
        }
    }

    #[test]
    fn the_filter_of_system_calls_lets_through_what_that_of_exec_does() {
        let spec = spec_of(&json!({})).expect("a specification");
        let filter = &spec["linux"]["seccomp"];
        assert_eq!((&filter["defaultAction"], &filter["defaultErrnoRet"]), (&json!("SCMP_ACT_ERRNO"), &json!(1)));
        let rules = filter["syscalls"].as_array().expect("rules");
        let of = |name: &str| {
            rules
                .iter()
                .filter(|rule| rule["names"].as_array().is_some_and(|names| names.iter().any(|it| it == name)))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("read").len(), 1);
        assert_eq!(of("mount").len() + of("bpf").len() + of("keyctl").len(), 0);
        assert_eq!(of("clone")[0]["args"][0]["op"], "SCMP_CMP_MASKED_EQ");
        assert_eq!(of("clone3")[0]["errnoRet"], libc::ENOSYS);
        assert!(of("socket").iter().all(|rule| rule["args"].as_array().is_some_and(|args| args.len() == 1)));
    }

    #[test]
    fn an_image_without_a_program_needs_one_of_the_task() {
        let error = spec_of(&json!({ "entrypoint": [] })).expect_err("nothing runs");
        assert!(error.contains("config.command"), "{error}");
    }
}
