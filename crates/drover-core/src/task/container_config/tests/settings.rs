//! Word for word what is wrong with a container's settings, and what the right ones ask of the host.

use super::*;

fn with(key: &str, value: &Value) -> String {
    fault_of("containerd", &json!({ "image": "web:1", key: value }))
}

#[test]
fn each_fault_names_its_setting_and_what_to_write() {
    for (key, value, fault) in [
        ("image", json!("  "), "config.image is empty: name an image"),
        (
            "auth",
            json!({}),
            "config.auth is not acted on by this version: name a Secret of type kubernetes.io/dockerconfigjson in \
             imagePullSecrets of the task",
        ),
        (
            "init",
            json!(true),
            "config.init is not acted on by this version: take an image whose first program reaps its children",
        ),
        (
            "interactive",
            json!(true),
            "config.interactive is not acted on by this version: nothing is attached to its input; run commands by \
             drover alloc exec",
        ),
        ("devices", json!({}), "config.devices is not acted on by this version: ask for them by resources.devices"),
        (
            "networkMode",
            json!(""),
            "config.networkMode \"\" is not acted on: write host, or leave it out and set the group's networks[].mode",
        ),
        (
            "securityOpt",
            json!(["no-new-privileges", "label=disable"]),
            "config.securityOpt \"label=disable\" is not acted on: leave it out; the filter of system calls and \
             no-new-privileges hold for each container",
        ),
        (
            "sysctl",
            json!({ "net.ipv4.ip_forward": "1", "vm.swappiness": "1" }),
            "config.sysctl.vm.swappiness is the whole node's: take one of a container's own, which begin with \
             fs.mqueue., kernel.msg, kernel.sem, kernel.shm, net.",
        ),
        (
            "mounts",
            json!([{ "type": "bind", "source": "/a", "target": "/b" }, { "type": "tmpfs", "source": "", "target": "/x" }]),
            "config.mounts[1].source is not for type tmpfs, which is memory: leave it out",
        ),
        (
            "mounts",
            json!([{ "type": "tmpfs", "target": "/x/../y" }]),
            "config.mounts[0]: target \"/x/../y\" is no place in the container: write an absolute path without .., \
             below /",
        ),
        (
            "mounts",
            json!([{ "type": "bind", "target": "/x" }]),
            "config.mounts[0]: source \"\" is no absolute path of the host; what is the task's own is at /local, \
             /alloc and /secrets already",
        ),
        (
            "volumes",
            json!(["/a:/b", "/a/..:/c"]),
            "config.volumes[1]: source \"/a/..\" leads upwards: write the path without ..",
        ),
        (
            "volumes",
            json!(["/a:/b:rx"]),
            "config.volumes[0] \"/a:/b:rx\" is no volume: write SOURCE:TARGET or SOURCE:TARGET:ro",
        ),
        (
            "extraHosts",
            json!(["a:1.2.3.4", "b:1.2.3"]),
            "config.extraHosts[1] \"b:1.2.3\" is no entry: write NAME:ADDRESS",
        ),
        ("imagePullTimeout", json!("-1s"), "config.imagePullTimeout must be longer than 0s"),
        ("workDir", json!("a"), "config.workDir \"a\" is relative: give an absolute path"),
        (
            "pidsLimit",
            json!(0),
            "config.pidsLimit is 0, with which nothing runs: write at least 1, or leave it out for the node's own limit",
        ),
    ] {
        assert_eq!(with(key, &value), fault);
    }
}

#[test]
fn what_is_at_the_edge_of_a_rule_is_taken() {
    for (key, value) in [
        ("init", json!(false)),
        ("interactive", json!(false)),
        ("auth", json!(null)),
        ("networkMode", json!("host")),
        ("securityOpt", json!(["no-new-privileges:true", "no-new-privileges=true"])),
        ("sysctl", json!({ "kernel.shmmax": "1", "kernel.msgmax": "1", "kernel.sem": "1", "fs.mqueue.msg_max": "1" })),
        ("pidsLimit", json!(1)),
        ("imagePullTimeout", json!("1ns")),
        ("volumes", json!(["/:/host", "/a..b:/c..d", "/a:/b:rw"])),
        ("extraHosts", json!(["a-b.c_d:::1", "a:[::1]", "a:0.0.0.0"])),
        ("workDir", json!("/")),
        ("mounts", json!([{ "type": "tmpfs", "target": "/x", "sizeMB": 0, "readonly": true }])),
    ] {
        assert_eq!(with(key, &value), "", "{key} {value}");
    }
}

#[test]
fn a_containers_own_parameters_of_the_network_are_the_nodes_in_its_network() {
    let of = |sysctl: Value| fault_of("containerd", &json!({ "image": "a", "networkMode": "host", "sysctl": sysctl }));
    assert_eq!(of(json!({ "kernel.sem": "1" })), "");
    let fault = "config.sysctl.net.core.somaxconn is the node's with networkMode host: leave one of both out";
    assert_eq!(of(json!({ "kernel.sem": "1", "net.core.somaxconn": "16" })), fault);
}

#[test]
fn mounts_of_the_host_are_told_by_their_places_among_all_mounts() {
    let settings = config(&json!({
        "image": "a", "volumes": ["/a:/b:rw", "/c:/d"],
        "mounts": [
            { "type": "tmpfs", "target": "/t" },
            { "type": "bind", "source": "/e", "target": "/f", "readonly": true },
            { "type": "bind", "source": "/g", "target": "/h" },
        ],
    }));
    let shown: Vec<String> = settings
        .host_mounts()
        .expect("mounts")
        .iter()
        .map(|it| format!("{} {} {} {}", it.field, it.source, it.target, it.read_only))
        .collect();
    let expected = [
        "config.volumes[0] /a /b false",
        "config.volumes[1] /c /d false",
        "config.mounts[1] /e /f true",
        "config.mounts[2] /g /h false",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_place_in_the_container_is_absolute_below_the_root_and_leads_nowhere_else() {
    for (target, is_one) in [
        ("/a", true),
        ("/a/", true),
        ("//a", true),
        ("/a/..b", true),
        ("/.", true),
        ("/", false),
        ("//", false),
        ("", false),
        ("a", false),
        ("/..", false),
        ("/a/..", false),
        ("/a/../b", false),
    ] {
        assert_eq!(is_target(target), is_one, "{target}");
    }
}

#[test]
fn names_of_hosts_are_read_up_to_the_first_colon() {
    for (text, read) in [
        ("db:10.0.0.7", Some("10.0.0.7 db")),
        ("db:fd00::1", Some("fd00::1 db")),
        ("db:[fd00::1]", Some("fd00::1 db")),
        ("a_b-c.d:::", Some(":: a_b-c.d")),
        ("db", None),
        (":10.0.0.7", None),
        ("db:", None),
        ("db:10.0.0.7:80", None),
        ("db :10.0.0.7", None),
        ("dé:10.0.0.7", None),
        ("fd00::1", None),
    ] {
        let mut settings = config(&json!({ "image": "a" }));
        settings.extra_hosts = vec![text.to_owned()];
        let found = settings.hosts().ok().map(|all| format!("{} {}", all[0].0, all[0].1));
        assert_eq!(found.as_deref(), read, "{text}");
    }
}

#[test]
fn docker_counts_shared_memory_in_bytes_and_we_in_mebibytes_that_hold_them() {
    for (bytes, mebibytes) in [
        (json!(0), 0),
        (json!(1), 1),
        (json!(1_048_576), 1),
        (json!("1048577"), 2),
        (json!(u64::MAX), 17_592_186_044_416),
    ] {
        let settings = json!({ "image": "a", "shm_size": bytes });
        let read = ContainerConfig::read("docker", settings.as_object().unwrap()).map(|read| read.shm_size_mb);
        assert_eq!(read, Ok(Some(mebibytes)), "{settings}");
    }
    for (wrong, shown) in [(json!(-1), "-1"), (json!(1.5), "1.5"), (json!("64m"), "\"64m\""), (json!(null), "null")] {
        let expected = format!("config.shm_size {shown} is no number of bytes; config.shmSizeMB counts mebibytes");
        assert_eq!(fault_of("docker", &json!({ "image": "a", "shm_size": wrong })), expected);
    }
}

#[test]
fn a_setting_under_two_names_is_named_and_containerd_has_one_name_each() {
    for (one, other, value) in [
        ("shm_size", "shmSizeMB", json!(64)),
        ("memory_hard_limit", "memoryHardLimitMB", json!(64)),
        ("mount", "mounts", json!([])),
        ("work_dir", "workDir", json!("/a")),
        ("pid_mode", "pidMode", json!("host")),
    ] {
        let fault = fault_of("docker", &json!({ "image": "a", one: value, other: value }));
        let named = format!("config.{one} stands there twice, under Docker's name and under ours: take one");
        let named_too = format!("config.{other} stands there twice, under Docker's name and under ours: take one");
        assert!(fault == named || fault == named_too, "{fault}");
        let fault = fault_of("containerd", &json!({ "image": "a", one: value }));
        assert!(fault.starts_with(&format!("config.{one} is no setting of driver containerd; take one of image, ")));
    }
}

#[test]
fn a_pull_may_take_five_minutes_unless_the_task_says_otherwise() {
    for (timeout, seconds) in [(json!(null), 300), (json!("1s"), 1), (json!("1h30m"), 5400)] {
        let settings = config(&json!({ "image": "a", "imagePullTimeout": timeout }));
        assert_eq!(settings.pull_timeout(), Duration::from_secs(seconds), "{timeout}");
    }
}
