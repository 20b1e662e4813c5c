//! Searches by the beginning of ids and by a part of names.

use super::*;
use crate::{Manner, SearchRequest};

#[test]
fn a_search_has_every_asked_context_and_at_most_twenty_ids_of_each() {
    let search = |body: &str| SearchRequest::read(Manner::Prefix, body.as_bytes());
    let of = |body: &str| reply(None, &Endpoint::Search(search(body).expect("a search")), "").expect("an answer");
    let found = of(r#"{"Prefix": "a", "Context": "jobs"}"#);
    assert_eq!(found, json!({ "Matches": { "jobs": ["a/b"] }, "Truncations": { "jobs": false } }));
    let found = of(r#"{"Prefix": "default"}"#);
    assert_eq!(keys(&found["Matches"]).len(), 12);
    assert_eq!(found["Matches"]["allocs"], json!(["default-alloc"]));
    assert_eq!((&found["Matches"]["vars"], &found["Truncations"]["vars"]), (&Value::Null, &json!(false)));
    assert_eq!(found["Matches"]["node_pools"], json!(["default"]));
    for body in [r#"{"Context": "nothing"}"#, "[]", "", r#"{"Prefix": 7}"#] {
        assert_eq!(search(body).map_err(|fault| fault.code), Err(400), "{body}");
    }
}

/// What a search by a part of names finds for a caller who may see these namespaces.
fn fuzzy_in(world: &World, spaces: Option<&[&str]>, body: &Value, text: &str) -> Result<Value, Fault> {
    let request = SearchRequest::read(Manner::Fuzzy, body.to_string().as_bytes())?;
    reply_of(world, spaces, &Endpoint::Search(request), text)
}

/// One job that has about everything that is found.
fn shop() -> World {
    let mut world = world();
    let service = |name: &str| json!([{ "name": name, "port": "1" }]);
    let task = json!({ "name": "Front-api", "driver": "exec", "services": service("api-admin"),
        "config": { "image": "registry/api:3", "command": "/bin/api", "class": "org.Api", "args": ["api"] } });
    let group = json!({ "name": "api-group", "tasks": [task], "services": service("api-public") });
    let spec = json!({ "id": "front", "name": "The API", "groups": [group], "meta": { "api": "api" } });
    world.jobs.put(object("Job", &meta("shop", "front", "job-front", 10), &spec, &json!({})));
    world
}

#[test]
fn a_fuzzy_search_finds_parts_of_jobs_by_a_part_of_their_names_with_what_they_are_part_of() {
    let found = fuzzy_in(&shop(), None, &json!({ "Text": "aPi", "Context": "jobs" }), "namespace=shop").expect("found");
    let in_task = ["shop", "front", "api-group", "Front-api"];
    let one = |id: &str, scope: &[&str]| json!([{ "ID": id, "Scope": scope }]);
    let wanted = json!({
        "jobs": one("The API", &in_task[..2]),
        "groups": [
            { "ID": "api", "Scope": ["shop", "a/b"] },
            { "ID": "api-group", "Scope": ["shop", "front"] },
        ],
        "tasks": one("Front-api", &in_task[..3]),
        "services": [{ "ID": "api-admin", "Scope": in_task }, { "ID": "api-public", "Scope": in_task[..3] }],
        "images": one("registry/api:3", &in_task),
        "commands": one("/bin/api", &in_task),
        "classes": one("org.Api", &in_task),
    });
    assert_eq!(found["Matches"], wanted);
    let truncations = found["Truncations"].as_object().expect("an object");
    assert!(truncations.len() == 7 && truncations.values().all(|is_cut| *is_cut == false), "{found}");
    let by_id = fuzzy_in(&shop(), None, &json!({ "Text": "front", "Context": "jobs" }), "namespace=shop");
    assert_eq!(by_id.expect("found")["Matches"]["jobs"], one("The API", &in_task[..2]));
}

#[test]
fn a_fuzzy_search_of_all_finds_names_by_a_part_and_ids_by_their_beginning() {
    let of = |text: &str| {
        let found = fuzzy_in(&shop(), None, &json!({ "Text": text }), "namespace=default").expect("found");
        let all = found["Matches"].as_object().expect("an object").clone();
        all.into_iter().filter(|(_, found)| *found != json!([])).collect::<BTreeMap<String, Value>>()
    };
    let alloc = json!([{ "ID": "a/b.api[0]", "Scope": ["default", "default-alloc"] }]);
    assert_eq!(of("B.aP"), [("allocs".to_owned(), alloc.clone())].into());
    let found = of("DEFAULT");
    assert_eq!(found["allocs"], alloc);
    assert_eq!(found["deployment"], json!([{ "ID": "default-deployment" }]));
    assert_eq!(
        (&found["node_pools"], &found["namespaces"]),
        (&json!([{ "ID": "default" }]), &json!([{ "ID": "default" }]))
    );
    assert!(!of("efaul").contains_key("deployment"), "an id is found by its beginning alone");
    let node = json!([{ "ID": "n-1", "Scope": [NODE] }]);
    assert_eq!((&of("-1")["nodes"], &of(&NODE[..4])["nodes"]), (&node, &node));
    assert_eq!(of("bs")["plugins"], json!([{ "ID": "ebs" }]));
    let all = fuzzy_in(&shop(), None, &json!({ "Text": "zzz", "Context": "all" }), "").expect("found");
    assert_eq!(keys(&all["Matches"]).len(), 18, "each context, and those of what is in jobs");
}

#[test]
fn a_fuzzy_search_holds_twenty_of_a_context_those_first_that_begin_so() {
    let mut world = World::default();
    for n in 0..25 {
        let name = format!("{}web-{n:02}", if n < 23 { "a" } else { "" });
        world.jobs.put(job("default", &name, &name));
    }
    let found = fuzzy_in(&world, None, &json!({ "Text": "web", "Context": "jobs" }), "").expect("found");
    let shown = ids(&found["Matches"]["jobs"], "ID");
    assert_eq!((shown.len(), &shown[..3]), (20, &["web-23", "web-24", "aweb-00"][..]));
    assert_eq!((&found["Truncations"]["jobs"], &found["Truncations"]["groups"]), (&json!(true), &json!(false)));
}

#[test]
fn must_survive_a_fuzzy_search_for_what_the_caller_may_not_list() {
    let body = json!({ "Text": "api", "Context": "jobs" });
    let seen = fuzzy_in(&shop(), Some(&["default"]), &body, "namespace=*").expect("found");
    assert!(!seen.to_string().contains("front") && !seen.to_string().contains("shop"), "{seen}");
    // Without any right to a kind nothing of it is found.
    let request = SearchRequest::read(Manner::Fuzzy, body.to_string().as_bytes()).expect("a search");
    let nothing = crate::search::answer(&request, &shop(), &Scopes::default());
    assert!(nothing["Matches"].as_object().expect("an object").values().all(|found| *found == json!([])), "{nothing}");
    let all = SearchRequest::read(Manner::Fuzzy, br#"{"Text": "default"}"#).expect("a search");
    let nothing = crate::search::answer(&all, &shop(), &Scopes::default());
    assert!(nothing["Matches"].as_object().expect("an object").values().all(|found| *found == json!([])), "{nothing}");
}

#[test]
fn a_fuzzy_search_for_less_than_two_characters_or_in_no_context_is_refused() {
    for (body, word) in [
        (json!({ "Text": "a" }), "at least 2 characters"),
        (json!({ "Text": "\u{e4}" }), "at least 2 characters"),
        (json!({}), "at least 2 characters"),
        (json!({ "Text": "web", "Context": "groups" }), "Context is \"groups\""),
        (json!({ "Text": 7 }), "{\"Text\":\"web\",\"Context\":\"jobs\"}"),
        (json!([]), "no search"),
    ] {
        let fault = fuzzy_in(&shop(), None, &body, "").expect_err(word);
        assert!(fault.code == 400 && fault.message.contains(word), "{fault}");
    }
}
