//! Lives of tokens, and which identity a name leads to.

use fastrand::Rng;

use super::*;

#[test]
fn a_limit_is_in_whole_seconds_and_the_default_identity_has_none() {
    for (name, ttl, ends) in [
        ("own", json!("1h"), Some(4600)),
        ("own", json!("1s"), Some(1001)),
        ("own", json!("1ms"), Some(1001)),
        ("own", json!("1999ms"), Some(1001)),
        ("own", json!("0s"), None),
        ("own", json!(null), None),
        ("default", json!("1h"), None),
    ] {
        let token = made(&json!({}), &json!({ "name": name, "ttl": ttl }));
        assert_eq!((token.iat, token.nbf, token.exp), (1000, 1000, ends), "{name} {ttl}");
    }
}

#[test]
fn an_audience_is_that_of_the_job_and_the_default_one_names_ours() {
    for (name, aud, expected) in [
        ("default", json!([]), vec!["drover.dev"]),
        ("default", json!(["a"]), vec!["a"]),
        ("own", json!([]), vec![]),
        ("own", json!(["b", "a"]), vec!["b", "a"]),
    ] {
        assert_eq!(made(&json!({}), &json!({ "name": name, "aud": aud })).aud, expected, "{name} {aud}");
    }
}

#[test]
fn a_dispatched_jobs_token_is_its_parents() {
    let job = json!({ "id": "Web/dispatch-1700000000-0a1b2c3d", "dispatch": { "parent": "web", "payload": "" } });
    let token = made(&job, &json!({ "name": "default" }));
    assert_eq!((token.nomad_job_id.as_str(), token.sub.as_str()), ("Web", "global:shop:Web:g:t:default"));
}

#[test]
fn a_token_says_who_made_it_only_where_that_is_configured() {
    let (allocation, identity) = (allocation("running", "run"), of_name("own"));
    let task: Task = serde_json::from_value(json!({ "name": "t", "driver": "exec" })).expect("a task");
    let job = JobSpec::default();
    let holder = IdentityHolder { allocation: &allocation, job: &job, task: &task, identity: &identity };
    for issuer in [None, Some("https://drover.example")] {
        let made = claims(holder, IdentityMaking { issuer, number: "n", now: at(5) });
        let written = serde_json::to_value(&made).expect("claims");
        assert_eq!(written.get("iss").and_then(|iss| iss.as_str()), issuer);
        assert_eq!((made.jti.as_str(), made.iat), ("n", 5));
        assert!(written.get("aud").is_none() && written.get("exp").is_none(), "what it does not say is left out");
    }
}

#[test]
fn a_token_that_is_wrong_in_several_ways_is_refused_by_its_time_first() {
    let mut token = made(&json!({}), &json!({ "name": "own", "aud": ["db"], "ttl": "1m" }));
    let ended = allocation("failed", "run");
    assert_eq!(check(&token, Some(&ended), at(1060)), Err(IdentityError::Time));
    assert_eq!(check(&token, Some(&ended), at(1059)), Err(IdentityError::Audience(vec!["db".to_owned()])));
    token.aud = vec!["Drover.dev".to_owned()];
    assert!(matches!(check(&token, None, at(1000)), Err(IdentityError::Audience(_))), "names are compared as they are");
    token.aud = vec!["drover.dev".to_owned()];
    assert_eq!(check(&token, None, at(1000)), Err(IdentityError::NoAllocation));
    assert_eq!(check(&token, Some(&ended), at(1000)), Err(IdentityError::Ended));
    let mut nameless = allocation("running", "run");
    nameless.metadata.uid = None;
    assert_eq!(check(&token, Some(&nameless), at(1000)), Err(IdentityError::NoAllocation));
}

#[test]
fn a_token_is_renewed_before_it_ends_where_it_lives_long_enough() {
    let mut rng = Rng::with_seed(63);
    for _ in 0..5000 {
        let (made, life) = (rng.i64(0..4_000_000_000), rng.i64(0..200_000));
        let at = renewal(made, made + life);
        assert!(at - made >= 10, "{life} s are renewed after {} s", at - made);
        if life >= 20 {
            assert_eq!(at - made, life / 2, "at half of {life} s");
        } else {
            assert_eq!(at - made, 10, "not at once, of {life} s");
        }
    }
    assert_eq!(renewal(i64::MAX - 1, i64::MAX), i64::MAX);
    assert_eq!(renewal(i64::MIN, i64::MAX), i64::MIN + i64::MAX / 2);
    assert_eq!([18, 19, 20, 21, 22].map(|life| renewal(0, life)), [10, 10, 10, 10, 11]);
}

#[test]
fn an_identity_is_found_by_its_task_and_name_alone() {
    let group: Group = serde_json::from_value(json!({ "name": "g", "tasks": [
        { "name": "a", "driver": "exec", "identities": [{ "name": "default" }, { "name": "db" }] },
        { "name": "b", "driver": "exec", "identities": [{ "name": "db", "aud": ["b"] }] },
    ] }))
    .expect("a group");
    let found = |kind, name: &str| {
        let object = ValueObject { kind, name: name.to_owned() };
        find(&group, &object).map(|(task, identity)| format!("{}/{} {:?}", task.name, identity.name, identity.aud))
    };
    for (name, expected) in [
        ("a/default", Some("a/default []")),
        ("a/db", Some("a/db []")),
        ("b/db", Some("b/db [\"b\"]")),
        ("b/default", None),
        ("c/db", None),
        ("a/", None),
        ("/db", None),
        ("db", None),
        ("a/db/x", None),
    ] {
        assert_eq!(found(ValueKind::Identity, name).as_deref(), expected, "{name}");
    }
    assert_eq!(found(ValueKind::Secret, "a/db"), None, "a Secret of that name is another object");
    for task in &group.tasks {
        for identity in &task.identities {
            let object = object_of(&task.name, identity);
            assert_eq!(find(&group, &object), Some((task, identity)), "{}", object.name);
        }
    }
}

#[test]
fn a_name_of_an_identity_is_one_of_a_file_and_of_a_variable() {
    for (name, is_one) in [
        ("a", true),
        (&"x".repeat(63), true),
        (&"x".repeat(64), false),
        ("-_0", true),
        ("é", false),
        ("a b", false),
        ("..", false),
        ("a\n", false),
    ] {
        assert_eq!(is_name(name), is_one, "{name:?}");
    }
}

#[test]
fn the_oldest_allocation_that_lives_decides_how_long_keys_are_kept() {
    let made_at = |status: &str, second: Option<i64>| {
        let mut all = allocation(status, "run");
        all.metadata.creation_timestamp =
            second.map(|second| serde_json::from_value(json!(at(second).to_string())).expect("a time"));
        all
    };
    for (allocations, oldest) in [
        (vec![], None),
        (vec![("running", Some(9)), ("running", Some(5)), ("pending", Some(7))], Some(5)),
        (vec![("complete", Some(1)), ("failed", Some(2)), ("lost", Some(3)), ("unknown", Some(8))], Some(8)),
        (vec![("running", None), ("running", Some(6))], Some(6)),
        (vec![("complete", Some(1))], None),
    ] {
        let all: Vec<Allocation> = allocations.iter().map(|(status, second)| made_at(status, *second)).collect();
        assert_eq!(oldest_living(&all), oldest.map(at), "{allocations:?}");
    }
}

#[test]
fn scripts_are_templates_own_and_a_renewal_without_a_mode_changes_nothing() {
    let script = identity(&json!({ "name": "a", "changeMode": "script" }));
    let usr1 = identity(&json!({ "name": "b", "changeMode": "signal", "changeSignal": "SIGUSR1" }));
    let hup = identity(&json!({ "name": "c", "changeMode": "signal", "changeSignal": "SIGHUP" }));
    assert!(reaction([&script]).is_nothing() && reaction([]).is_nothing());
    let signals = reaction([&usr1, &script, &hup, &usr1]).signals;
    assert_eq!(signals.into_iter().collect::<Vec<_>>(), ["SIGHUP", "SIGUSR1"]);
}
