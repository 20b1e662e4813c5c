//! Which keys a driver has, and what of its settings is judged before the node is known.

use super::*;

const EVERY_DRIVER: [&str; 5] = ["containerd", "docker", "exec", "raw_exec", "mock"];

#[test]
fn each_driver_has_its_settings_and_another_has_none() {
    for driver in EVERY_DRIVER {
        assert!(DRIVERS.contains(&driver), "{driver}");
    }
    let of = |driver: &str| keys(driver).join(" ");
    let exec = "command args workDir rootfs pidMode ipcMode capAdd capDrop pidsLimit cpuHardLimit ulimit";
    assert_eq!((DRIVERS.len(), of("exec").as_str()), (5, exec));
    assert_eq!(of("raw_exec"), "command args workDir oomScoreAdj deniedEnvvars");
    let mock = "startError startErrorRecoverable startBlockFor runFor exitCode exitSignal exitErrMsg killAfter \
                signalError failFirst healthyAfter unhealthyOnNodes failOnVersions";
    assert_eq!(of("mock"), mock);
    for other in ["", "java", "Exec", "podman"] {
        assert_eq!(of(other), "", "{other}");
        assert_eq!(fault_of(other, &json!({ "anything": 1 })), "", "{other}");
    }
}

#[test]
fn a_key_that_a_driver_has_not_is_named_whether_values_are_known_or_not() {
    for driver in EVERY_DRIVER {
        for value in [json!("x"), json!("${meta.x}"), json!({ "a": ["${meta.x}"] })] {
            let fault = fault_of(driver, &json!({ "nonsense": value }));
            let named = format!("config.nonsense is no setting of driver {driver}; take one of ");
            assert!(fault.starts_with(&named), "{driver} {value}: {fault}");
            assert!(fault.ends_with(keys(driver).last().expect("a key")), "{fault}");
        }
    }
}

#[test]
fn values_are_judged_as_soon_as_none_refers_to_the_node() {
    for (config, is_wrong) in [
        (json!({ "command": "" }), true),
        (json!({ "command": "", "args": ["${X}"] }), false),
        (json!({ "command": "", "args": [["a", { "b": "${" }]] }), false),
        (json!({ "command": "", "args": ["$X", "{X}", "$ {X}"] }), true),
        (json!({ "command": "", "ulimit": { "${X}": "1" } }), true),
        (json!({ "command": "", "cpuHardLimit": true, "pidsLimit": 9, "rootfs": null }), true),
    ] {
        assert_eq!(!fault_of("exec", &config).is_empty(), is_wrong, "{config}");
    }
}

#[test]
fn each_wrong_value_of_exec_and_raw_exec_is_told_word_for_word() {
    let limits = "core, cpu, data, fsize, memlock, msgqueue, nice, nofile, nproc, rtprio, sigpending, stack";
    for (driver, key, value, fault) in [
        ("exec", "command", json!(""), "config.command is empty: name a program".to_owned()),
        ("raw_exec", "command", json!(""), "config.command is empty: name a program".to_owned()),
        ("exec", "workDir", json!(""), "config.workDir \"\" is relative: give an absolute path".to_owned()),
        ("raw_exec", "work_dir", json!("a"), "config.workDir \"a\" is relative: give an absolute path".to_owned()),
        ("exec", "rootfs", json!("./r"), "config.rootfs ./r is relative: give an absolute path".to_owned()),
        (
            "exec",
            "pids_limit",
            json!("0"),
            "config.pidsLimit is 0, with which nothing runs: write at least 1, or leave it out for the node's own limit"
                .to_owned(),
        ),
        (
            "raw_exec",
            "oom_score_adj",
            json!(-5),
            "config.oomScoreAdj -5 is below 0, which tasks may not ask for".to_owned(),
        ),
        (
            "exec",
            "ulimit",
            json!({ "NOFILE": "1" }),
            format!("config.ulimit.NOFILE: there is no such limit; take one of {limits}"),
        ),
        (
            "exec",
            "ulimit",
            json!({ "nofile": "2:1" }),
            "config.ulimit.nofile: \"2:1\" is no limit: give a number, or SOFT:HARD".to_owned(),
        ),
    ] {
        assert_eq!(fault_of(driver, &json!({ "command": "x", key: value })), fault, "{driver} {key} {value}");
    }
    for (driver, key, value) in [
        ("exec", "rootfs", json!("/r")),
        ("exec", "pids_limit", json!("1")),
        ("raw_exec", "oom_score_adj", json!(0)),
        ("raw_exec", "oomScoreAdj", json!("1000")),
        ("exec", "workDir", json!("/")),
    ] {
        assert_eq!(fault_of(driver, &json!({ "command": "x", key: value })), "", "{driver} {key} {value}");
    }
}

#[test]
fn a_limit_is_a_number_or_two_and_minus_one_is_none() {
    let read = |value: &str| {
        let config = json!({ "command": "x", "ulimit": { "nofile": value } });
        let limits = ExecConfig::read(config.as_object().unwrap()).and_then(|config| config.limits());
        limits.ok().map(|all| all.iter().map(|it| (it.soft, it.hard)).collect::<Vec<_>>())
    };
    let most = u64::MAX;
    for (value, limit) in [
        ("0", Some((0, 0))),
        ("64", Some((64, 64))),
        ("64:64", Some((64, 64))),
        ("64:65", Some((64, 65))),
        ("65:64", None),
        ("-1", Some((most, most))),
        ("64:-1", Some((64, most))),
        ("-1:64", None),
        ("-1:-1", Some((most, most))),
        ("18446744073709551615", Some((most, most))),
        ("18446744073709551616", None),
        ("-2", None),
        ("", None),
        (":", None),
        ("1:", None),
        (":1", None),
        ("1:2:3", None),
        (" 1", None),
        ("unlimited", None),
    ] {
        assert_eq!(read(value), limit.map(|limit| vec![limit]), "{value:?}");
    }
}

#[test]
fn settings_under_our_names_are_the_same_settings() {
    let of = |driver: &str, config: Value| own_names(driver, config.as_object().unwrap()).map(Value::Object);
    let exec = json!({ "pid_mode": "host", "cap_add": [], "nonsense_key": 1, "workDir": "/a" });
    assert_eq!(of("exec", exec), Ok(json!({ "pidMode": "host", "capAdd": [], "nonsense_key": 1, "workDir": "/a" })));
    let docker = json!({ "mount": [], "shm_size": 1, "image": "a", "ipc_mode": "host" });
    assert_eq!(of("docker", docker), Ok(json!({ "mounts": [], "shmSizeMB": 1, "image": "a", "ipcMode": "host" })));
    let containerd = json!({ "cap_add": [] });
    assert_eq!(of("containerd", containerd.clone()), Ok(containerd));
    let twice = of("exec", json!({ "cap_add": [], "capAdd": [] })).expect_err("twice");
    assert!(twice.ends_with(" stands there twice, under Nomad's name and under ours: take one"), "{twice}");
}

#[test]
fn words_with_underscores_are_joined_with_capitals() {
    for (key, joined) in [
        ("a", "a"),
        ("work_dir", "workDir"),
        ("cpu_hard_limit", "cpuHardLimit"),
        ("a__b", "aB"),
        ("_a", "A"),
        ("a_", "a"),
        ("", ""),
    ] {
        assert_eq!(camel_case(key), joined, "{key}");
    }
}
