//! The whole set of a task's variables: which there are, what stands in them, and which of two of a name wins.

use serde_json::json;

use super::*;
use fastrand::Rng;

fn texts<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

fn port(label: &str, value: i64, to: i64, host_ip: &str) -> AllocatedPort {
    AllocatedPort { label: label.into(), value, to, host_ip: host_ip.into() }
}

/// All that environments are made from, for a test to change.
struct EnvironmentScene {
    allocation: Allocation,
    job: JobSpec,
    group: Group,
    task: Task,
    node: NodeFacts,
    secrets: BTreeMap<String, String>,
    host: BTreeMap<String, String>,
    network: Option<NetworkStatus>,
}

impl EnvironmentScene {
    fn plain() -> Self {
        let mut allocation = Allocation::new("web-api-0-1f", drover_api::AllocationSpec::default());
        allocation.spec.job_name = "web".into();
        allocation.spec.group = "api".into();
        Self {
            allocation,
            job: JobSpec::default(),
            group: Group { name: "api".into(), ..Group::default() },
            task: task(&json!({})),
            node: NodeFacts::default(),
            secrets: BTreeMap::new(),
            host: BTreeMap::new(),
            network: None,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let paths = TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() };
        let input = EnvironmentInput {
            allocation: &self.allocation,
            job: &self.job,
            group: &self.group,
            task: &self.task,
            node: &self.node,
            paths: &paths,
            secrets: &self.secrets,
            host: &self.host,
            network: self.network.as_ref(),
        };
        environment(&input).expect("it is within bounds")
    }

    fn shown(&self) -> Vec<String> {
        self.environment().iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

#[test]
fn a_task_of_which_little_is_known_has_these_variables_and_no_other() {
    let shown = EnvironmentScene::plain().shown();
    let expected = [
        "NOMAD_ALLOC_DIR=/alloc",
        "NOMAD_ALLOC_ID=",
        "NOMAD_ALLOC_INDEX=0",
        "NOMAD_ALLOC_NAME=web.api[0]",
        "NOMAD_DC=",
        "NOMAD_GROUP_NAME=api",
        "NOMAD_JOB_ID=web",
        "NOMAD_JOB_NAME=web",
        "NOMAD_NAMESPACE=default",
        "NOMAD_REGION=global",
        "NOMAD_SECRETS_DIR=/secrets",
        "NOMAD_SHORT_ALLOC_ID=",
        "NOMAD_TASK_DIR=/local",
        "NOMAD_TASK_NAME=server",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_task_has_each_variable_of_the_specification_once() {
    let mut scene = EnvironmentScene::plain();
    scene.allocation.metadata.uid = Some("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9".into());
    scene.allocation.metadata.namespace = Some("shop".into());
    scene.allocation.spec.index = 7;
    let server = TaskResources { cpu: 500, memory_mb: 256, memory_max_mb: 512, ..TaskResources::default() };
    scene.allocation.spec.resources.tasks = [("server".to_owned(), server)].into();
    scene.allocation.spec.resources.ports = vec![port("my-port", 20_000, 8080, "fd00::7")];
    scene.job.region = "north".into();
    scene.job.id = "Web/dispatch-1700000000-0a1b2c3d".into();
    scene.job.name = "Web Shop".into();
    scene.job.dispatch =
        serde_json::from_value(json!({ "parent": "web", "payload": "" })).map(Some).expect("a dispatch");
    scene.node = node();
    scene.network = Some(NetworkStatus {
        interface_name: "eth0".into(),
        address: "172.26.64.2".into(),
        ..NetworkStatus::default()
    });
    let expected = [
        "NOMAD_ADDR_my_port=[fd00::7]:20000",
        "NOMAD_ALLOC_ADDR_my_port=172.26.64.2:8080",
        "NOMAD_ALLOC_DIR=/alloc",
        "NOMAD_ALLOC_ID=0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9",
        "NOMAD_ALLOC_INDEX=7",
        "NOMAD_ALLOC_INTERFACE_my_port=eth0",
        "NOMAD_ALLOC_IP_my_port=172.26.64.2",
        "NOMAD_ALLOC_NAME=Web/dispatch-1700000000-0a1b2c3d.api[7]",
        "NOMAD_ALLOC_PORT_my_port=8080",
        "NOMAD_CPU_CORES=",
        "NOMAD_CPU_LIMIT=500",
        "NOMAD_DC=dc1",
        "NOMAD_GROUP_NAME=api",
        "NOMAD_HOST_ADDR_my_port=[fd00::7]:20000",
        "NOMAD_HOST_IP_my_port=fd00::7",
        "NOMAD_HOST_PORT_my_port=20000",
        "NOMAD_IP_my_port=fd00::7",
        "NOMAD_JOB_ID=Web/dispatch-1700000000-0a1b2c3d",
        "NOMAD_JOB_NAME=Web Shop",
        "NOMAD_JOB_PARENT_ID=Web",
        "NOMAD_MEMORY_LIMIT=256",
        "NOMAD_MEMORY_MAX_LIMIT=512",
        "NOMAD_NAMESPACE=shop",
        "NOMAD_PARENT_CGROUP=drover.12345678",
        "NOMAD_PORT_my_port=8080",
        "NOMAD_REGION=north",
        "NOMAD_SECRETS_DIR=/secrets",
        "NOMAD_SHORT_ALLOC_ID=0a1b2c3d",
        "NOMAD_TASK_DIR=/local",
        "NOMAD_TASK_NAME=server",
    ];
    assert_eq!(scene.shown(), expected);
}

#[test]
fn a_short_id_is_the_first_eight_letters_or_all_that_there_are() {
    for (uid, short) in [("12345678", "12345678"), ("123456789", "12345678"), ("1234567", "1234567")] {
        let mut scene = EnvironmentScene::plain();
        scene.allocation.metadata.uid = Some(uid.into());
        let env = scene.environment();
        assert_eq!((env["NOMAD_ALLOC_ID"].as_str(), env["NOMAD_SHORT_ALLOC_ID"].as_str()), (uid, short));
    }
}

#[test]
fn a_most_memory_is_told_only_where_there_is_one() {
    for (most, told) in [(-1, None), (0, None), (1, Some("1")), (4096, Some("4096"))] {
        let mut scene = EnvironmentScene::plain();
        let limits = TaskResources { memory_mb: 64, memory_max_mb: most, ..TaskResources::default() };
        scene.allocation.spec.resources.tasks = [("server".to_owned(), limits)].into();
        assert_eq!(scene.environment().get("NOMAD_MEMORY_MAX_LIMIT").map(String::as_str), told, "{most}");
    }
}

#[test]
fn the_limits_of_another_task_are_not_told() {
    let mut scene = EnvironmentScene::plain();
    let other = TaskResources { cpu: 9, memory_mb: 9, memory_max_mb: 9, ..TaskResources::default() };
    scene.allocation.spec.resources.tasks = [("sidecar".to_owned(), other)].into();
    let limits: Vec<String> =
        scene.shown().into_iter().filter(|it| it.contains("LIMIT") || it.contains("CPU")).collect();
    assert_eq!(limits, Vec::<String>::new());
}

#[test]
fn a_port_without_an_inner_number_has_the_nodes_inside_too() {
    for (to, inside) in [(0, "20000"), (-1, "20000"), (1, "1"), (8080, "8080")] {
        let mut scene = EnvironmentScene::plain();
        scene.allocation.spec.resources.ports = vec![port("http", 20_000, to, "10.0.0.1")];
        let env = scene.environment();
        let told = ["PORT", "ALLOC_PORT", "HOST_PORT"].map(|it| env[&format!("NOMAD_{it}_http")].as_str());
        assert_eq!(told, [inside, inside, "20000"], "to {to}");
        assert_eq!(env["NOMAD_ADDR_http"], "10.0.0.1:20000", "an address is the node's");
    }
}

#[test]
fn an_own_network_with_a_sixth_address_alone_has_it_in_brackets() {
    for (four, six, ip, address) in [
        ("172.26.64.2", "fd00::2", "172.26.64.2", "172.26.64.2:80"),
        ("", "fd00::2", "fd00::2", "[fd00::2]:80"),
        ("172.26.64.2", "", "172.26.64.2", "172.26.64.2:80"),
    ] {
        let mut scene = EnvironmentScene::plain();
        scene.allocation.spec.resources.ports = vec![port("a.b", 80, 0, "10.0.0.1"), port("é", 81, 0, "10.0.0.1")];
        let network = NetworkStatus { address: four.into(), address_v6: six.into(), ..NetworkStatus::default() };
        scene.network = Some(network);
        let env = scene.environment();
        assert_eq!((env["NOMAD_ALLOC_IP_a_b"].as_str(), env["NOMAD_ALLOC_ADDR_a_b"].as_str()), (ip, address));
        assert!(env["NOMAD_ALLOC_ADDR__"].ends_with(":81"), "a letter is one _, whatever its bytes");
    }
}

#[test]
fn no_variable_of_the_host_with_credentials_reaches_a_task() {
    // The list of the specification, word for word, and what D-5 adds.
    let denied = "NOMAD_TOKEN NOMAD_LICENSE NOMAD_LICENSE_PATH CONSUL_TOKEN CONSUL_HTTP_TOKEN CONSUL_HTTP_TOKEN_FILE \
                  CONSUL_LICENSE CONSUL_LICENSE_PATH VAULT_TOKEN VAULT_LICENSE VAULT_LICENSE_PATH AWS_ACCESS_KEY_ID \
                  AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_METADATA_URL GOOGLE_APPLICATION_CREDENTIALS \
                  GOOGLE_OAUTH_ACCESS_TOKEN KUBERNETES_SERVICE_HOST KUBERNETES_PORT kubernetes_port \
                  SERVICE_ACCOUNT_TOKEN MY_SERVICEACCOUNT_FILE my_service_account";
    let permitted = "PATH HOME NOMAD_ADDR CONSUL_HTTP_ADDR VAULT_ADDR AWS_REGION KUBERNETES XKUBERNETES_PORT \
                     NOMAD_TOKENS SERVICE_ACC ACCOUNT_SERVICE";
    let mut scene = EnvironmentScene::plain();
    let names = denied.split_whitespace().chain(permitted.split_whitespace());
    scene.host = names.map(|name| (name.to_owned(), "host".to_owned())).collect();
    let reached: Vec<String> =
        scene.environment().into_iter().filter(|(_, value)| value == "host").map(|(name, _)| name).collect();
    let mut expected: Vec<&str> = permitted.split_whitespace().collect();
    expected.sort_unstable();
    assert_eq!(reached, expected);
}

#[test]
fn of_a_secret_a_task_sees_what_it_names_and_no_variable() {
    let mut scene = EnvironmentScene::plain();
    scene.secrets = texts([("secret.db.password", "hunter2 ${NOMAD_DC}"), ("secret.db.user", "u")]);
    scene.node.datacenter = "dc1".into();
    scene.group.meta = texts([("dsn", "pg://${secret.db.user}")]);
    scene.task.env = texts([("PASSWORD", "${ secret.db.password }"), ("OTHER", "${secret.db.gone}")]);
    let env = scene.environment();
    assert_eq!(env["PASSWORD"], "hunter2 ${NOMAD_DC}", "what a secret holds is not expanded");
    assert_eq!((env["NOMAD_META_dsn"].as_str(), env["OTHER"].as_str()), ("pg://u", "${secret.db.gone}"));
    assert_eq!(env.keys().find(|name| name.starts_with("secret.")), None);
}

#[test]
fn text_of_the_host_is_not_expanded() {
    let mut scene = EnvironmentScene::plain();
    scene.host = texts([("PS1", "${NOMAD_JOB_ID}> ")]);
    assert_eq!(scene.environment()["PS1"], "${NOMAD_JOB_ID}> ");
}

#[test]
fn a_job_without_an_id_and_name_has_that_of_its_object() {
    for (id, name, expected) in [
        ("", "", ["web", "web", "web.api[0]"]),
        ("Web", "", ["Web", "Web", "Web.api[0]"]),
        ("", "Shop", ["web", "Shop", "web.api[0]"]),
        ("Web", "Shop", ["Web", "Shop", "Web.api[0]"]),
    ] {
        let mut scene = EnvironmentScene::plain();
        (scene.job.id, scene.job.name) = (id.into(), name.into());
        let env = scene.environment();
        let told = ["JOB_ID", "JOB_NAME", "ALLOC_NAME"].map(|it| env[&format!("NOMAD_{it}")].as_str());
        assert_eq!(told, expected, "id {id:?}, name {name:?}");
    }
}

/// The rule of names as the specification has it: what is no letter, digit or `_` of ASCII becomes `_`.
fn slow_clean(name: &str) -> String {
    let kept = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    name.chars().map(|letter| if kept.contains(letter) { letter } else { '_' }).collect()
}

/// Who wins, written as layers from the first to the last. Keys are in lower case alone, so that no two of them meet in
/// capitals.
fn slow_layers(scene: &EnvironmentScene, built_in: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut layers = built_in.clone();
    let keys: BTreeSet<&String> =
        [&scene.job.meta, &scene.group.meta, &scene.task.meta].iter().flat_map(|meta| meta.keys()).collect();
    for key in keys {
        let mut value = &String::new();
        for level in [&scene.job.meta, &scene.group.meta, &scene.task.meta] {
            value = level.get(key).unwrap_or(value);
        }
        for name in [key.clone(), slow_clean(key), slow_clean(&key.to_uppercase())] {
            layers.insert(format!("NOMAD_META_{name}"), value.clone());
        }
    }
    for (name, value) in &scene.host {
        layers.entry(name.clone()).or_insert_with(|| value.clone());
    }
    for (name, value) in &scene.task.env {
        layers.insert(slow_clean(name), value.clone());
    }
    layers
}

#[test]
fn of_two_variables_of_a_name_the_nearer_to_the_task_wins() {
    let mut rng = Rng::with_seed(117);
    let built_in = EnvironmentScene::plain().environment();
    let keys = ["owner", "a.b", "a-c", "x y", "é"];
    let names = ["NOMAD_DC", "NOMAD_META_owner", "NOMAD_META_OWNER", "NOMAD_META_a.b", "PATH", "A-B", "NOMAD_JOB_ID"];
    for round in 0..2000 {
        let mut scene = EnvironmentScene::plain();
        let mut some = |from: &[&str], whose: &str| -> BTreeMap<String, String> {
            let chosen: Vec<&str> = from.iter().copied().filter(|_| rng.bool()).collect();
            chosen.into_iter().map(|name| (name.to_owned(), format!("{name} of {whose}"))).collect()
        };
        scene.job.meta = some(&keys, "the job");
        scene.group.meta = some(&keys, "the group");
        scene.task.meta = some(&keys, "the task");
        scene.host = some(&names, "the host");
        scene.task.env = some(&names, "the environment");
        assert_eq!(scene.environment(), slow_layers(&scene, &built_in), "round {round}");
    }
}

#[test]
fn core_lists_are_the_shortest_that_name_each_core_once() {
    let read = |text: &str| -> Vec<(i64, i64)> {
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            (first.parse().expect("a core"), last.parse().expect("a core"))
        };
        text.split(',').filter(|text| !text.is_empty()).map(part).collect()
    };
    let mut rng = Rng::with_seed(118);
    for _ in 0..2000 {
        let cores: Vec<i64> = (0..rng.usize(..20)).map(|_| rng.i64(0..16)).collect();
        let text = core_list(&cores);
        let ranges = read(&text);
        let named: Vec<i64> = ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
        let wanted: Vec<i64> = (0..16).filter(|core| cores.contains(core)).collect();
        assert_eq!(named, wanted, "{cores:?} as {text}");
        assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{text} has ranges that touch");
    }
    for (cores, text) in [(vec![], ""), (vec![3], "3"), (vec![1, 0], "0-1"), (vec![2, 2, 0], "0,2")] {
        assert_eq!(core_list(&cores), text);
    }
}
