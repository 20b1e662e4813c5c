//! No path leaves its task's directories: random ones, against a walk of one name after the other.

use fastrand::Rng;

use super::*;

fn paths() -> TaskPaths {
    TaskPaths { alloc: "/alloc".into(), local: "/local".into(), secrets: "/secrets".into() }
}

/// Where a path leads, by names alone.
fn slow(text: &str, knows: bool, other: OtherRoot) -> Option<(SandboxBase, Vec<String>)> {
    let mut names: Vec<&str> = text.split('/').collect();
    let mut base = (SandboxBase::Task, vec![]);
    if names.len() > 1 && names[0].is_empty() {
        let own = if knows { names[1] } else { "" };
        base = match own {
            "alloc" => (SandboxBase::Shared, vec![]),
            "local" | "secrets" => (SandboxBase::Task, vec![own.to_owned()]),
            _ if other == OtherRoot::Outside => return None,
            _ => base,
        };
        if ["alloc", "local", "secrets"].contains(&own) {
            names.drain(..2);
        }
    }
    for name in names {
        match name {
            "" | "." => {}
            ".." => return None,
            name => base.1.push(name.to_owned()),
        }
    }
    Some(base)
}

#[test]
fn each_path_leads_where_its_names_lead() {
    let mut rng = Rng::with_seed(6);
    let names = ["", ".", "..", "alloc", "local", "secrets", "allocs", "a", "é", "..."];
    for _ in 0..20_000 {
        let chosen: Vec<&str> = (0..rng.usize(1..5)).map(|_| names[rng.usize(..names.len())]).collect();
        let text = format!("{}{}", if rng.bool() { "/" } else { "" }, chosen.join("/"));
        let other = if rng.bool() { OtherRoot::Outside } else { OtherRoot::TaskDir };
        let knows = rng.bool();
        let found = sandbox_path(&text, knows.then(paths).as_ref(), other).map(|found| (found.base, found.parts));
        assert_eq!(found, slow(&text, knows, other), "{text} {other:?} {knows}");
    }
}

#[test]
fn a_name_has_at_most_255_bytes() {
    let at = |name: &str| sandbox_path(&format!("a/{name}"), None, OtherRoot::Outside).map(|found| found.parts);
    let longest = "x".repeat(255);
    assert_eq!(at(&longest), Some(vec!["a".to_owned(), longest.clone()]));
    assert_eq!(at(&"x".repeat(256)), None);
    assert_eq!(at(&"é".repeat(128)), None, "it is bytes that count");
    assert_eq!(at(&"é".repeat(127)).map(|parts| parts[1].len()), Some(254));
}

#[test]
fn a_task_that_has_no_directory_of_a_kind_is_not_led_there() {
    // Where a directory has no name, every absolute path would begin with it.
    let nameless = TaskPaths { alloc: String::new(), ..paths() };
    assert_eq!(sandbox_path("/etc", Some(&nameless), OtherRoot::Outside), None);
    let found = sandbox_path("/secrets/x", Some(&nameless), OtherRoot::Outside);
    assert_eq!(found.map(|found| found.to_string()), Some("secrets/x".to_owned()));
}
