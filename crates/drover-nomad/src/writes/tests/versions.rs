//! Versions that a user calls stable or gives a name.

use drover_api::JobVersion;

use super::*;

/// The versions of the job: number, whether stable, tag, and the Secret that its task reads; the last one is current.
fn history(versions: &[(i64, bool, &str, &str)]) -> World {
    let mut world = world("successful");
    for (number, stable, tag, secret) in versions {
        let mut group = group();
        if !secret.is_empty() {
            group["tasks"][0]["secrets"] = json!([{ "name": "s", "path": secret }]);
        }
        let spec = json!({ "jobName": "web", "jobUID": UID, "version": number, "groupNames": "g",
            "job": { "groups": [group] }, "submittedAt": "2026-01-01T00:00:00Z" });
        let tag = Some(tag).filter(|tag| !tag.is_empty());
        let status = json!({ "stable": stable, "tag": tag, "tagDescription": tag.unwrap_or(&""), "taggedAt": tag.map(|_| now()) });
        let (name, uid) = (format!("web-v{number}"), format!("v{number}"));
        world.versions.put(object("JobVersion", (&name, &uid), &spec, &status));
    }
    world
}

fn of(world: &World, method: &Method, path: &str, body: &Value) -> Result<(String, Value, Vec<String>), Fault> {
    let order = ordered_in(world, method, path, body)?;
    let Some(Change::Patch(target, body)) = order.changes.last() else { panic!("no patch") };
    // Another writer of the same version comes first.
    assert_eq!((target.kind, target.resource_version.as_deref()), (Kind::Version, Some("10")));
    Ok((target.name.name.clone(), body["status"].clone(), demands(&order)))
}

fn stable(world: &World, number: i64, stable: bool) -> Result<(String, Value, Vec<String>), Fault> {
    let body = json!({ "JobID": "web", "JobVersion": number, "Stable": stable });
    of(world, &Method::PUT, "job/web/stable", &body)
}

#[test]
fn a_version_is_called_stable_or_not_by_those_who_may_change_the_job() {
    let world = history(&[(0, true, "", ""), (1, false, "", "")]);
    for (number, is_stable) in [(1, true), (0, false), (0, true)] {
        let (name, status, demands) = stable(&world, number, is_stable).expect("an order");
        let columns = json!({ "stable": is_stable.to_string() });
        let wanted = json!({ "observedGeneration": 3, "stable": is_stable, "columns": columns });
        assert_eq!((name, status), (format!("web-v{number}"), wanted));
        assert_eq!(demands, ["update jobs web"]);
    }
    let order = ordered_in(&world, &Method::POST, "job/web/stable", &json!({ "JobID": "web", "Stable": true }));
    assert_eq!(order.expect("an order").answer(&[]), json!({ "JobModifyIndex": 3 }));
    for (body, code, word) in [
        (json!({ "JobVersion": 0, "Stable": true }), 400, "JobID is missing"),
        (json!({ "JobID": "x", "JobVersion": 0 }), 400, "JobID is \"x\""),
        (json!({ "JobID": "web", "JobVersion": "0" }), 400, "cannot be read"),
        (json!({ "JobID": "web", "JobVersion": 9 }), 404, "\"9 of job web\""),
    ] {
        let fault = ordered_in(&world, &Method::PUT, "job/web/stable", &body).expect_err(word);
        assert!(fault.code == code && fault.message.contains(word), "{fault}");
    }
    let gone = ordered_in(&world, &Method::PUT, "job/other/stable", &json!({ "JobID": "other" })).expect_err("no job");
    assert_eq!(gone.code, 404);
    assert_eq!(read(&Method::GET, "job/web/stable").map_err(|fault| fault.code), Err(405));
}

/// The leader restores it without asking its author again.
#[test]
fn must_survive_a_choice_of_what_a_revert_brings_back_by_one_who_may_not_register_it() {
    let reads = ["update jobs web", "get secrets top or update jobs/secrets"];
    let demands = |world: &World, number: i64, is_stable: bool| stable(world, number, is_stable).expect("an order").2;
    // Version 0 is what the next automatic revert brings back.
    let none = history(&[(0, false, "", "top"), (1, false, "", "")]);
    assert_eq!(demands(&none, 0, true), reads);
    let newest = history(&[(0, true, "", "top"), (1, true, "", ""), (2, false, "", "")]);
    assert_eq!(demands(&newest, 1, false), reads);
    // These choose nothing else than what it would bring back anyway, or what the caller may register.
    assert_eq!(demands(&newest, 0, true), ["update jobs web"]);
    assert_eq!(demands(&newest, 0, false), ["update jobs web"]);
    assert_eq!(demands(&newest, 2, true), ["update jobs web"]);
}

#[test]
fn a_version_gets_a_name_which_no_other_one_of_the_job_has() {
    let world = history(&[(0, true, "old", ""), (1, false, "", "")]);
    let apply = |name: &str, body: &Value| of(&world, &Method::PUT, &format!("job/web/versions/{name}/tag"), body);
    let (name, status, demands) = apply("golden", &json!({ "Version": 0, "Description": "why" })).expect("an order");
    let wanted = json!({ "tag": "golden", "tagDescription": "why", "taggedAt": now(), "columns": { "tag": "golden" } });
    assert_eq!((name.as_str(), status, demands), ("web-v0", wanted, vec!["update jobs web".to_owned()]));
    let plain = apply("a/b", &json!({})).expect("an order").1;
    assert_eq!((&plain["tag"], &plain["tagDescription"]), (&json!("a/b"), &Value::Null));
    // Clients that cannot leave the number out say that they mean the newest one.
    let target = |body: Value| apply("golden", &body).map(|it| it.0).map_err(|fault| fault.code);
    assert_eq!(target(json!({ "Version": 0, "Latest": false })), Ok("web-v0".to_owned()));
    assert_eq!(target(json!({ "Version": 1, "Latest": false })), Ok("web-v1".to_owned()));
    for newest in [json!({}), Value::Null, json!({ "Version": 0, "Latest": true }), json!({ "Version": null })] {
        assert_eq!(target(newest.clone()), Ok("web-v1".to_owned()), "{newest}");
    }
    assert_eq!((target(json!({ "Version": 9 })), target(json!({ "Version": "0" }))), (Err(404), Err(400)));
    // The same name again changes what is written beside it.
    assert_eq!(apply("old", &json!({ "Version": 0 })).expect("an order").0, "web-v0");
    let taken = apply("old", &json!({ "Version": 1 })).expect_err("taken");
    assert!(taken.code == 400 && taken.message.contains("\"old\" is that of version 0 of job \"web\""), "{taken}");
    let order = ordered_in(&world, &Method::PUT, "job/web/versions/golden/tag", &json!({ "Description": "why" }));
    let wanted = json!({ "Name": "golden", "Description": "why", "TaggedTime": 1_769_904_000_000_000_000_i64 });
    assert_eq!(order.expect("an order").answer(&[]), wanted);
}

#[test]
fn a_name_is_taken_away_and_one_that_is_not_there_is_404() {
    let world = history(&[(0, true, "golden", ""), (1, false, "", "")]);
    let unset = |path: &str| of(&world, &Method::DELETE, path, &Value::Null);
    let (name, status, demands) = unset("job/web/versions/golden/tag").expect("an order");
    let wanted = json!({ "tag": null, "tagDescription": null, "taggedAt": null, "columns": { "tag": "-" } });
    assert_eq!((name.as_str(), status, demands), ("web-v0", wanted, vec!["update jobs web".to_owned()]));
    let missing = unset("job/web/versions/silver/tag").expect_err("no such tag");
    assert_eq!((missing.code, missing.message.as_str()), (404, "tag \"silver of job web\" not found"));
    assert_eq!(unset("job/other/versions/golden/tag").expect_err("no such job").code, 404);
    assert_eq!(read(&Method::GET, "job/web/versions/golden/tag").map_err(|fault| fault.code), Err(405));
}

#[test]
fn the_name_of_a_version_is_shown_with_it_and_with_the_job() {
    let world = history(&[(0, true, "old", ""), (1, false, "golden", "")]);
    let job = world.jobs.named("default", "web").expect("the job");
    let tag = |name: &str| json!({ "Name": name, "Description": name, "TaggedTime": 1_769_904_000_000_000_000_i64 });
    let of =
        |it: &std::sync::Arc<JobVersion>| crate::wire::job::of_version(it, Some(job), &world)["VersionTag"].clone();
    let shown: Vec<Value> = world.own_versions(job).map(of).collect();
    assert_eq!(shown, [tag("old"), tag("golden")]);
    assert_eq!(crate::wire::job::full(job, &world)["VersionTag"], tag("golden"));
}
