//! Jobs whose regular expressions cost as much as any that validation takes.

use std::time::Duration;

use serde_json::{Value, json};

use super::{World, node};
use crate::definition::Definition;
use crate::model::Node;
use crate::validate;

/// Nodes, each with names of its own.
const NODES: usize = 5_000;
/// How long a plan may take.
const MOST: Duration = Duration::from_secs(1);

/// Costly each in its own way: many states at once, much to compile, a long way to no match.
const PATTERNS: [&str; 8] = [
    r"(.*a){30}",
    r"[ab]*a[ab]{200}",
    r"(([ab]{1,30}){1,10}c)+d",
    r"(?:[ab]?[ab]?){250}z",
    r"(?:a?){200}a{5}",
    r"\w+-\d+",
    r"(\pL|\pN)*x",
    r"(a|b|ab)*c",
];

fn many() -> World {
    let mut world = World::new(&super::spec(1));
    for n in 0..NODES {
        let mut node = Node { attributes: [].into(), ..node(&format!("n-{n}")) };
        node.attributes.insert("unique.hostname".into(), format!("{}-{n}", "ab".repeat(24)));
        node.attributes.insert("pattern".into(), format!("(ab|{})+-\\d+", n % 20));
        world.view.put_node(node);
    }
    world
}

/// A job at the limit of what validation takes.
fn costly(n: usize) -> Value {
    let mut pattern = PATTERNS[n % PATTERNS.len()].to_owned();
    pattern.push_str(&"|b".repeat(n / PATTERNS.len()));
    let literal =
        json!({ "lTarget": "${attr.unique.hostname}", "operand": "regexp", "rTarget": format!("{pattern}|a") });
    let said = json!({ "lTarget": "${attr.unique.hostname}", "operand": "regexp", "rTarget": "${attr.pattern}" });
    let task = json!([{ "name": "t", "driver": "mock", "resources": { "cpu": 100, "memoryMB": 100 } }]);
    let group = |name: &str, more: &Value| {
        let mut group = json!({ "name": name, "count": 1, "tasks": task });
        group.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        group
    };
    match n % 3 {
        // Of the job, for each of its groups.
        0 => {
            json!({ "constraints": vec![literal; 64], "groups": [group("web", &json!({})), group("side", &json!({}))] })
        }
        // Of one group, constraints and affinities.
        1 => {
            let mut affinity = literal.clone();
            affinity["weight"] = json!(10);
            json!({ "groups": [group("web", &json!({ "constraints": vec![literal; 64], "affinities": vec![affinity; 64] }))] })
        }
        // Compiled for each class of nodes.
        _ => json!({ "groups": [group("web", &json!({ "constraints": vec![said; 8] }))] }),
    }
}

/// Time on a processor of this thread: others run beside it.
fn used() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel counts");
    Duration::from_nanos(text.split(' ').next().and_then(|text| text.parse().ok()).expect("nanoseconds"))
}

#[test]
fn must_survive_x_036_a_hundred_jobs_with_the_worst_expressions() {
    let mut world = many();
    let mut slowest = (Duration::ZERO, 0);
    for n in 0..100 {
        let definition = Definition::new(&serde_json::from_value(costly(n)).unwrap(), "web");
        let before = used();
        assert_eq!(validate::violations(&definition), [], "job {n} is at the limit, not above");
        world.job.counts = definition.spec.groups.iter().map(|group| (group.name.clone(), 1)).collect();
        world.job.definition = definition;
        world.put_job();
        let placed = world.plan().placements.len();
        slowest = slowest.max((used().saturating_sub(before), n));
        assert_eq!(placed, world.job.counts.len(), "job {n} finds its place after all");
    }
    assert!(slowest.0 < MOST, "job {} took {:?}", slowest.1, slowest.0);

    // Above the limit nothing is compiled and nothing is planned.
    let mut above = costly(1);
    above["constraints"] = above["groups"][0]["constraints"].clone();
    let definition = Definition::new(&serde_json::from_value(above).unwrap(), "web");
    let found = validate::violations(&definition);
    assert!(
        matches!(&found[..], [one] if one.code == "PatternsTooMany" && one.message.contains("192 times")),
        "{found:?}"
    );
}

#[test]
fn an_expression_that_each_node_says_for_itself_is_refused() {
    for (right, is_refused) in
        [("${attr.unique.hostname}", true), ("${node.unique.name}", true), ("${meta.rack}", false)]
    {
        let constraint = json!([{ "lTarget": "${attr.os.name}", "operand": "regexp", "rTarget": right }]);
        let mut spec = super::spec(1);
        spec["constraints"] = constraint;
        let definition = Definition::new(&serde_json::from_value(spec).unwrap(), "web");
        let found = validate::violations(&definition);
        assert_eq!(found.iter().any(|found| found.code == "ConstraintRegexp"), is_refused, "{right}: {found:?}");
    }
}
