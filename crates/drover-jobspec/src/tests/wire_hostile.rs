//! Nomad's JSON that asks for too much, and what is said of wrong jobs in it.

use crate::wire_manifest;

fn faults(text: &str) -> Vec<String> {
    let result = wire_manifest("j.json", text);
    result.map(|found| panic!("{found:?}")).unwrap_err().iter().map(ToString::to_string).collect()
}

fn task(fields: &str) -> String {
    format!(r#"{{"Job": {{"ID": "j", "TaskGroups": [{{"Name": "g", "Tasks": [{{"Name": "t", {fields}}}]}}]}}}}"#)
}

#[test]
fn what_nomads_json_has_and_drover_does_not_is_named_with_its_path_and_what_to_do() {
    let text = r#"{
  "Job": {
    "ID": "j",
    "Dispatched": true,
    "Priority": "high",
    "Multiregion": [],
    "Tenant": "blue",
    "Empty": {"A": [], "B": {"C": 0}},
    "TaskGroups": [
      {
        "Name": "g",
        "Count": 1.5,
        "Consul": {"Namespace": "a"},
        "Networks": [{"ReservedPorts": [{"Label": "p"}], "DynamicPorts": 7}],
        "Services": [{"Name": "s", "Provider": "consul", "Connect": {"Native": true}}],
        "Volumes": [],
        "Tasks": [
          {
            "Driver": 1,
            "Vault": {"Policies": ["a"]},
            "KillTimeout": "soon",
            "killsignal": "SIGHUP",
            "Env": {"A": 1},
            "Resources": {"Networks": [{"MBits": 10}], "CPU": 1e3}
          },
          null
        ]
      }
    ],
    "Periodic": {"Spec": "@daily", "SpecType": "test"}
  },
  "Jobs": [1]
}
"#;
    let expected = expect_test::expect![[r#"
        j.json:4:19: Job.Dispatched: is not carried over: it is one dispatch of a parameterized job; carry its parent over, and dispatch that
        j.json:5:17: Job.Priority: must be a whole number, and is "high"
        j.json:7:15: Job.Tenant: is nothing that drover has here: remove it, or take one of ID, Name, Type, Priority, Region, Namespace, Datacenters, NodePool, AllAtOnce, Meta, Constraints, Affinities, Spreads, Update, Periodic, ParameterizedJob, Multiregion, TaskGroups, Migrate, Reschedule, Stop
        j.json:12:18: Job.TaskGroups[0].Count: must be a whole number, and is 1.5
        j.json:13:19: Job.TaskGroups[0].Consul: is not carried over: drover has no Consul; a `service` block becomes a Kubernetes Service
        j.json:14:41: Job.TaskGroups[0].Networks[0].ReservedPorts[0]: needs `Value`, the number of the port; or move it to `DynamicPorts`
        j.json:14:74: Job.TaskGroups[0].Networks[0].DynamicPorts: must be a list of ports, and is a number
        j.json:15:48: Job.TaskGroups[0].Services[0].Provider: `provider` is not carried over: drover has no Consul; write provider = "nomad", and the service becomes a Kubernetes Service
        j.json:15:69: Job.TaskGroups[0].Services[0].Connect: is not carried over: drover has no service mesh of its own; use the cluster's
        j.json:16:20: Job.TaskGroups[0].Volumes: must be an object of volumes by name, and is a list
        j.json:18:11: Job.TaskGroups[0].Tasks[0]: lacks `Name`; add it
        j.json:19:23: Job.TaskGroups[0].Tasks[0].Driver: must be a string, and is 1
        j.json:20:22: Job.TaskGroups[0].Tasks[0].Vault: is not carried over: drover has no Vault; take Secrets by `secrets`, or an identity that Vault trusts
        j.json:21:28: Job.TaskGroups[0].Tasks[0].KillTimeout: must be a number of nanoseconds, and is "soon"
        j.json:22:27: Job.TaskGroups[0].Tasks[0].killsignal: is written `KillSignal`; correct the name
        j.json:23:26: Job.TaskGroups[0].Tasks[0].Env.A: must be a string, and is 1
        j.json:24:39: Job.TaskGroups[0].Tasks[0].Resources.Networks: is not carried over: ports belong to the group; move the block `network` there
        j.json:26:11: Job.TaskGroups[0].Tasks[1]: must be an object, and is null
        j.json:30:48: Job.Periodic.SpecType: must be "cron", the only kind of schedule
        j.json:32:11: Jobs: stands beside `Job`; move it into the job, or remove it"#]];
    expected.assert_eq(&faults(text).join("\n"));
}

#[test]
fn nomads_json_cannot_take_the_machine() {
    let deep = task(&format!(r#""Config": {{"a": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000)));
    let wide = task(&format!(
        "{}\"Driver\": \"exec\"",
        (0..90_000).fold(String::new(), |text, n| text + &format!("\"X{n}\":1,"))
    ));
    let cases = [
        (deep, "Job.TaskGroups[0].Tasks[0].Config.a[0][0]", "nest deeper than 64"),
        (task(r#""Config": {"a": 1, "b": 2, "a": 3}"#), "Job.TaskGroups[0].Tasks[0].Config.a", "stands twice"),
        (task(r#""Config": {"a": 1e400}"#), "Job.TaskGroups[0].Tasks[0].Config.a", "beyond what a number may be"),
        (task(r#""KillTimeout": 99999999999999999999"#), "Tasks[0].KillTimeout", "beyond what a number may be"),
        (task(r#""KillTimeout": 9223372036854775808"#), "Tasks[0].KillTimeout", "must be a number of nanoseconds"),
        (task(&format!(r#""User": "{}""#, "a".repeat(1 << 20))), "", "more than 1048576 bytes"),
        (wide, "", "and more is wrong"),
        ("[1, 2".to_owned(), "", "is no JSON"),
        ("\"\\ud800\"".to_owned(), "", "is no JSON"),
        ("{}".to_owned(), "", "holds no job"),
        ("null".to_owned(), "", "holds no job"),
        (r#"{"apiVersion": "v1", "kind": "Job"}"#.to_owned(), "", "is a manifest already"),
        (r#"{"Job": null}"#.to_owned(), "", "holds no job"),
        (r#"{"Job": 7}"#.to_owned(), "j.json:1:9: Job: ", "must be an object, and is a number"),
        (r#"{"Job": {"ID": ""}}"#.to_owned(), "Job: ", "lacks `ID`"),
    ];
    for (text, path, expected) in cases {
        let found = faults(&text);
        assert!(found.len() <= 101, "{expected}: {} faults", found.len());
        assert!(found.iter().any(|fault| fault.contains(path) && fault.contains(expected)), "{expected}: {found:#?}");
    }
}

/// Any cut and any changed byte of a job is an answer or an error.
#[test]
fn broken_json_is_an_error_and_no_panic() {
    let text = include_str!("../../testdata/read.nomad.json");
    for at in (0..text.len()).step_by(7) {
        drop(wire_manifest("j.json", &text[..at]));
        for byte in [b'{', b'"', b'9', b'[', b'n', 0xff] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = byte;
            drop(wire_manifest("j.json", &String::from_utf8_lossy(&bytes)));
        }
    }
}
