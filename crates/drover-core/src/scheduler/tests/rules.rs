//! Which nodes satisfy the rules of a group (`spec/scheduler.md` 4.1, 4.4 and 4.5): datacenters, drivers, networks, and
//! limits on what is shared.

use drover_api::placement::Constraint;
use fastrand::Rng;

use super::*;
use crate::scheduler::feasible::{
    distinct_hosts, distinct_properties, first_broken, host_network, is_covered, is_of_pool,
};

/// Why a job of one finds no place on the only node.
fn left_out(spec: &Value, only: Node) -> Option<String> {
    let mut world = World::without_nodes(spec);
    world.view.put_node(only);
    let failed = world.plan().failed.remove("web")?;
    Some(failed.constraint_filtered.into_keys().collect::<Vec<_>>().join(" and "))
}

/// Whether a glob matches, by trying each length that a `*` could have.
fn matches(glob: &[char], text: &[char]) -> bool {
    match glob {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|n| matches(rest, &text[n..])),
        [first, rest @ ..] => text.first() == Some(first) && matches(rest, &text[1..]),
    }
}

#[test]
fn datacenters_are_found_by_globs_of_any_length() {
    let mut rng = Rng::with_seed(207);
    let mut n_found = 0;
    for _ in 0..10_000 {
        let mut text = |letters: &[char], most: usize| -> String {
            (0..rng.usize(..most)).map(|_| letters[rng.usize(..letters.len())]).collect()
        };
        let globs = [text(&['a', 'b', '*', '*', 'ü'], 7), text(&['a', 'ü', '?', '*'], 4)];
        let datacenter = text(&['a', 'a', 'b', 'ü', '?'], 7);
        let mut one = spec(1);
        one["datacenters"] = json!(globs);
        let definition = Definition::new(&serde_json::from_value(one).unwrap(), "web");
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let wanted = globs.iter().any(|glob| matches(&chars(glob), &chars(&datacenter)));
        let on = Node { datacenter: datacenter.clone(), ..node("n-0") };
        assert_eq!(is_covered(&on, &definition), wanted, "{datacenter:?} in {globs:?}");
        n_found += usize::from(wanted);
    }
    assert!((1_000..9_000).contains(&n_found), "{n_found} were found");
}

#[test]
fn a_pool_is_found_by_its_name_and_each_by_all() {
    for (pool, asked, wanted) in [
        ("gpu", "gpu", true),
        ("gpu", "default", false),
        ("gpu", "all", true),
        ("all", "gpu", false),
        ("gpu", "*", false),
        ("gpu", "", false),
        ("GPU", "gpu", false),
    ] {
        let on = Node { pool: pool.into(), ..node("n-0") };
        assert_eq!(is_of_pool(&on, asked), wanted, "{pool} for {asked}");
        let mut one = spec(1);
        (one["nodePool"], one["datacenters"]) = (json!(asked), json!(["*"]));
        let definition = Definition::new(&serde_json::from_value(one).unwrap(), "web");
        assert_eq!(is_covered(&on, &definition), wanted, "{pool} for a job of {asked}");
    }
}

#[test]
fn a_driver_without_a_state_is_there_when_its_attribute_is_true() {
    for (attribute, is_there) in [
        ("1", true),
        ("t", true),
        ("T", true),
        ("true", true),
        ("True", true),
        ("TRUE", true),
        ("0", false),
        ("false", false),
        ("yes", false),
        ("tRUE", false),
        ("", false),
        (" 1", false),
        ("1.2.3", false),
    ] {
        let mut one = Node { drivers: BTreeMap::new(), ..node("n-0") };
        one.attributes.insert("driver.mock".into(), attribute.into());
        let wanted = (!is_there).then(|| "missingDrivers:mock".to_owned());
        assert_eq!(left_out(&spec(1), one), wanted, "{attribute:?}");
    }
    for (state, is_there) in
        [(DriverState::Healthy, true), (DriverState::Unhealthy, false), (DriverState::Undetected, false)]
    {
        let one = Node { drivers: [("mock".to_owned(), state)].into(), ..node("n-0") };
        assert_eq!(left_out(&spec(1), one).is_none(), is_there, "{state:?}");
    }
}

#[test]
fn the_first_driver_that_is_missing_is_named() {
    let mut two = spec(1);
    let task =
        |name: &str, driver: &str| json!({ "name": name, "driver": driver, "resources": { "cpu": 1, "memoryMB": 10 } });
    two["groups"][0]["tasks"] = json!([task("a", "mock"), task("b", "docker"), task("c", "exec")]);
    assert_eq!(left_out(&two, node("n-0")).as_deref(), Some("missingDrivers:docker"));
    let mut both = node("n-0");
    both.drivers.insert("docker".into(), DriverState::Healthy);
    both.attributes.insert("driver.exec".into(), "true".into());
    assert_eq!(left_out(&two, both), None);
}

#[test]
fn a_network_needs_its_mode_and_each_port_its_host_network() {
    let offers = |modes: &[&str], aliases: &[&str]| {
        let address = |alias: &&str| HostAddress {
            alias: (*alias).into(),
            ip: "10.0.0.1".parse().unwrap(),
            reserved_ports: [].into(),
        };
        let mut one = Node {
            network_modes: modes.iter().map(|mode| (*mode).to_owned()).collect(),
            host_networks: aliases.iter().map(address).collect(),
            ..node("n-0")
        };
        one.meta.insert("lan".into(), "private".into());
        one
    };
    let on = |network: &str| json!([{ "label": "http", "hostNetwork": network }]);
    for (network, modes, aliases, wanted) in [
        (json!({ "mode": "host" }), &[][..], &["default"][..], None),
        (json!({ "mode": "none" }), &[], &["default"], None),
        (json!({}), &[], &[], None),
        (json!({ "mode": "bridge" }), &["bridge"], &["default"], None),
        (json!({ "mode": "bridge" }), &["cni/bridge"], &["default"], Some("missingNetwork:bridge")),
        (json!({ "mode": "cni", "cni": { "name": "mesh" } }), &["cni/mesh", "bridge"], &["default"], None),
        (
            json!({ "mode": "cni", "cni": { "name": "mesh" } }),
            &["bridge", "mesh"],
            &["default"],
            Some("missingNetwork:cni/mesh"),
        ),
        (json!({ "ports": [{ "label": "http" }] }), &[], &["default"], None),
        (json!({ "ports": [{ "label": "http" }] }), &[], &["public"], Some("missingHostNetwork:default:http")),
        (json!({ "ports": on("public") }), &[], &["default", "public"], None),
        (json!({ "ports": on("public") }), &[], &["default"], Some("missingHostNetwork:public:http")),
        (json!({ "ports": on("${meta.lan}") }), &[], &["private"], None),
        (json!({ "ports": on("${meta.lan}") }), &[], &["public"], Some("missingHostNetwork:private:http")),
        (json!({ "ports": on("${meta.wan}") }), &[], &["public"], Some("missingHostNetwork:${meta.wan}:http")),
        // The mode is asked for before the ports are.
        (json!({ "mode": "bridge", "ports": on("public") }), &[], &[], Some("missingNetwork:bridge")),
    ] {
        let asking = with(spec(1), "networks", json!([network]));
        assert_eq!(left_out(&asking, offers(modes, aliases)).as_deref(), wanted, "{network}");
    }
    let one = offers(&[], &[]);
    for (asked, wanted) in [(None, "default"), (Some(""), "default"), (Some("${meta.lan}"), "private")] {
        assert_eq!(host_network(asked, &one), wanted);
    }
}

#[test]
fn the_first_rule_that_is_broken_is_told_and_those_that_count_never_are() {
    let mut on = node("n-0");
    on.meta.extend([("rack".into(), "r1".into()), ("want".into(), "r1".into()), ("list".into(), "r1,r2".into())]);
    let rule = |left: &str, operand: &str, right: &str| -> Constraint {
        serde_json::from_value(json!({ "lTarget": left, "operand": operand, "rTarget": right })).unwrap()
    };
    let holds = rule("${meta.rack}", "=", "r1");
    for (rules, wanted) in [
        (vec![], None),
        (vec![holds.clone()], None),
        (
            vec![holds.clone(), rule("${meta.rack}", "=", "r2"), rule("${meta.rack}", "=", "r3")],
            Some("${meta.rack} = r2"),
        ),
        (vec![rule("${meta.row}", "is_set", "")], Some("${meta.row} is_set")),
        (vec![rule("", "distinct_hosts", "true"), rule("${meta.none}", "distinct_property", "1")], None),
        // A right side that the node says.
        (vec![rule("${meta.rack}", "=", "${meta.want}")], None),
        (vec![rule("${meta.rack}", "set_contains", "${meta.list}")], Some("${meta.rack} set_contains ${meta.list}")),
        (vec![rule("${meta.list}", "set_contains", "${meta.rack}")], None),
        (vec![rule("${meta.rack}", "regexp", "${meta.none}")], Some("${meta.rack} regexp ${meta.none}")),
        (vec![rule("${meta.rack}", "!=", "${meta.none}")], None),
        (vec![rule("${meta.none}", "!=", "${meta.none}")], Some("${meta.none} != ${meta.none}")),
    ] {
        assert_eq!(first_broken(&rules, &on).as_deref(), wanted, "{rules:?}");
    }
}

#[test]
fn right_sides_of_more_nodes_than_are_kept_prepared_are_still_each_nodes_own() {
    let mut one = spec(130);
    one["constraints"] = json!([{ "lTarget": "${meta.name}", "operand": "regexp", "rTarget": "${meta.pattern}" },
        { "operand": "distinct_hosts" }]);
    let mut world = World::without_nodes(&one);
    for n in 0..130 {
        let mut on = node(&format!("m-{n:03}"));
        // Two nodes of three fit their own pattern.
        let pattern = if n % 3 == 0 { "^x$".to_owned() } else { format!("^m{n}$") };
        on.meta.extend([("name".into(), format!("m{n}")), ("pattern".into(), pattern)]);
        world.view.put_node(on);
    }
    let plan = world.plan();
    let mut placed: Vec<&str> = plan.placements.iter().map(|placement| placement.node.as_str()).collect();
    placed.sort_unstable();
    let wanted: Vec<String> = (0..130).filter(|n| n % 3 != 0).map(|n| format!("m-{n:03}")).collect();
    assert_eq!(placed, wanted);
}

#[test]
fn limits_on_what_is_shared_are_of_the_job_and_of_the_group_and_one_where_they_say_none() {
    let property = |right: &str| json!({ "lTarget": "${meta.rack}", "operand": "distinct_property", "rTarget": right });
    let hosts = |right: &str| json!({ "operand": "distinct_hosts", "rTarget": right });
    let of = |of_job: Value, of_group: Value| {
        let mut one = with(spec(1), "constraints", of_group);
        one["constraints"] = of_job;
        Definition::new(&serde_json::from_value(one).unwrap(), "web")
    };
    for (right, limit) in [("", 1), ("1", 1), (" 3 ", 3), ("12", 12), ("many", 1), ("2.5", 1)] {
        let definition = of(json!([property(right)]), json!([property("7")]));
        let limits = distinct_properties(&definition, &definition.spec.groups[0]);
        let limits: Vec<(&str, i64, bool)> = limits.iter().map(|one| (one.target, one.limit, one.of_job)).collect();
        assert_eq!(limits, [("${meta.rack}", limit, true), ("${meta.rack}", 7, false)], "{right:?}");
    }
    for (of_job, of_group, wanted) in [
        (json!([]), json!([]), (false, false)),
        (json!([hosts("")]), json!([]), (true, false)),
        (json!([]), json!([hosts("true")]), (false, true)),
        (json!([hosts("false")]), json!([hosts("no")]), (false, true)),
        (json!([hosts("False")]), json!([hosts("0")]), (false, false)),
        (json!([hosts("false"), hosts("")]), json!([hosts("f")]), (true, false)),
        (json!([property("1")]), json!([property("1")]), (false, false)),
    ] {
        let definition = of(of_job.clone(), of_group.clone());
        let got = distinct_hosts(&definition, &definition.spec.groups[0]);
        assert_eq!(got, wanted, "{of_job} and {of_group}");
    }
}
