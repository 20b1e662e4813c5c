//! Job files that ask for too much, and what is said of wrong ones.

use std::fmt::Write as _;

use crate::{Inputs, manifests};

fn faults(text: &str) -> Vec<String> {
    let result = manifests("j.hcl", text, &Inputs::default());
    result.map(|found| panic!("{found:?}")).unwrap_err().iter().map(ToString::to_string).collect()
}

fn config(expression: &str) -> String {
    format!(
        "job \"j\" {{\n  task \"t\" {{\n    driver = \"exec\"\n    config {{\n      x = {expression}\n    }}\n  }}\n}}\n"
    )
}

/// G-049: division by zero, depth, loops without end and a byte order mark.
#[test]
fn a_job_file_cannot_take_the_machine() {
    let loops = config("[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]");
    let doubled = format!(
        "locals {{\n  a0 = \"0123456789\"\n{}}}\n{}",
        (1..40).fold(String::new(), |mut text, at| {
            writeln!(text, "  a{at} = \"${{local.a{}}}${{local.a{}}}\"", at - 1, at - 1).unwrap();
            text
        }),
        config("local.a39")
    );
    let deep = config(&format!("{}1{}", "[".repeat(65), "]".repeat(65)));
    let blocks = "job \"j\" {\n  dynamic \"group\" {\n    for_each = range(1000)\n    labels = [\"g\"]\n    content {\n      dynamic \"task\" {\n        for_each = range(1000)\n        labels = [\"t\"]\n        content {}\n      }\n    }\n  }\n}\n";
    let circle = format!("locals {{\n  a = local.b\n  b = local.a\n}}\n{}", config("1"));
    let cases = [
        (config("1 / 0"), "divides by zero"),
        (
            config(
                "replace(join(\"\", [for i in range(1000) : \"x\"]), \"x\", join(\"\", [for i in range(1000) : \"0123456789\"]))",
            ),
            "bytes",
        ),
        (config("indent(1000000000, \"a\")"), "at most 1000"),
        (config("format(\"%99999999999d\", 1)"), ""),
        (config("pow(10, 400)"), "no result"),
        (config("range(1, 100000)"), "more than 1024"),
        (config("regex(\"(a{1000}){1000}\", \"a\")"), "pattern is wrong"),
        (config("substr(\"a\", 170141183460469231731687303715884105727, 170141183460469231731687303715884105727)"), ""),
        (
            config("cidrsubnet(\"fd00::/8\", 120, 1) == \"\" ? file(\"/etc/passwd\") : file(\"/etc/passwd\")"),
            "reads no files",
        ),
        (config("bcrypt(\"a\")"), "is not offered"),
        (loops, "steps"),
        (doubled, "bytes"),
        (deep, "nest"),
        (blocks.to_owned(), "blocks"),
        (circle, "made of itself"),
    ];
    for (text, expected) in cases {
        if expected.is_empty() {
            drop(manifests("j.hcl", &text, &Inputs::default()));
            continue;
        }
        let found = faults(&text);
        assert!(found.iter().any(|fault| fault.contains(expected)), "{expected}: {found:?}");
    }
    let with_mark = format!("\u{feff}{}", config("1"));
    manifests("j.hcl", &with_mark, &Inputs::default()).unwrap();
}

#[test]
fn what_has_no_counterpart_is_named_with_what_to_do_instead() {
    let text = r#"job "j" {
  vault {
    policies = ["a"]
  }
  group "g" {
    consul {}
    service {
      name     = "s"
      provider = "consul"
      connect {
        sidecar_service {}
      }
    }
    task "t" {
      driver = "exec"
      nothing = 1
      resources {
        network {}
        cpu = "much"
      }
      kill_timeout = "soon"
    }
  }
  job = 1
}
plugin "x" {}
"#;
    let expected = expect_test::expect![[r#"
        j.hcl:2:3: `vault` is not carried over: drover has no Vault; take Secrets by `secrets`, or an identity that Vault trusts
        j.hcl:6:5: `consul` is not carried over: drover has no Consul; a `service` block becomes a Kubernetes Service
        j.hcl:9:7: `provider` is not carried over: drover has no Consul; write provider = "nomad", and the service becomes a Kubernetes Service
        j.hcl:10:7: `connect` is not carried over: drover has no service mesh of its own; use the cluster's
        j.hcl:16:7: `task` has no `nothing`; it has driver, config, env, user, leader, kill_timeout, kill_signal, shutdown_delay, meta, lifecycle, resources, logs, volume_mount, template, artifact, service, constraint, affinity, restart, dispatch_payload, csi_plugin, identity, action, image_pull_secrets, secret
        j.hcl:18:9: `network` is not carried over: ports belong to the group; move the block `network` there
        j.hcl:19:9: `cpu` must be a whole number, and is "much"
        j.hcl:21:7: `kill_timeout` must be a duration, as "10m", and is "soon"
        j.hcl:24:3: `job` has no `job`; it has name, type, priority, region, namespace, datacenters, node_pool, all_at_once, meta, constraint, affinity, spread, update, periodic, parameterized, multiregion, group, task, migrate, reschedule
        j.hcl:26:1: a job file has no `plugin`; it has job, variable and locals"#]];
    expected.assert_eq(&faults(text).join("\n"));
}

#[test]
fn a_file_that_is_none_is_refused_at_its_place() {
    for (text, expected) in [
        ("job \"j\" {\n  a = \n}\n", "j.hcl:2:"),
        ("", "j.hcl:1:1: holds no job"),
        ("job \"a\" {}\njob \"b\" {}\n", "j.hcl:2:1: a job file holds one job"),
        ("job {}\n", "j.hcl:1:1: `job` needs one label"),
        ("x = 1\njob \"a\" {}\n", "j.hcl:1:1: `x` stands outside of the job"),
        ("locals {\n  a = 1\n}\nlocals {\n  a = 2\n}\njob \"j\" {}\n", "j.hcl:5:3: local `a` is defined twice"),
    ] {
        let found = faults(text);
        assert!(found.iter().any(|fault| fault.starts_with(expected)), "{text}: {found:?}");
    }
}
