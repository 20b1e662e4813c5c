//! Which references a text holds, and which objects a task uses, against slow readings.

use fastrand::Rng;

use super::*;

fn at(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    in_text(text, &|| "f".to_owned(), &mut found);
    found.iter().map(|it| format!("{}|{}", it.name, it.key)).collect()
}

#[test]
fn a_reference_is_a_name_without_dots_and_a_key_that_may_have_them() {
    for (text, expected) in [
        ("${secret.db.password}", vec!["db|password"]),
        ("a${secret.db.a.b}c${ secret.x.y }", vec!["db|a.b", "x|y"]),
        ("${secret.db.}", vec!["db|"]),
        ("${secret..k}", vec!["|k"]),
        ("${secret.db}", vec![]),
        ("${secret.}", vec![]),
        ("${Secret.db.k}", vec![]),
        ("${secrets.db.k}", vec![]),
        ("secret.db.k", vec![]),
        ("$secret.db.k}", vec![]),
        ("${secret.db.k", vec![]),
        ("${a ${secret.db.k}", vec![]),
        ("${a}${secret.db.k}", vec!["db|k"]),
        ("é${secret.é.ü}", vec!["é|ü"]),
    ] {
        assert_eq!(at(text), expected, "{text}");
    }
}

/// What text refers to: each place, one letter after the other.
fn slow(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let (mut found, mut n) = (vec![], 0);
    while n + 1 < letters.len() {
        if letters[n] == '$' && letters[n + 1] == '{' {
            let Some(end) = (n..letters.len()).find(|at| letters[*at] == '}') else { break };
            let inner: String = letters[n + 2..end].iter().collect();
            let parts: Vec<&str> = inner.trim().split('.').collect();
            if parts.len() > 2 && parts[0] == "secret" {
                found.push(format!("{}|{}", parts[1], parts[2..].join(".")));
            }
            n = end;
        }
        n += 1;
    }
    found
}

#[test]
fn references_are_found_wherever_text_has_them() {
    let mut rng = Rng::with_seed(51);
    let parts = ["${", "}", "secret", ".", "a", " ", "$", "{", "é", "secret.b.c"];
    let mut n_found = 0;
    for _ in 0..50_000 {
        let text: String = (0..rng.usize(..10)).map(|_| parts[rng.usize(..parts.len())]).collect();
        let wanted = slow(&text);
        n_found += wanted.len();
        assert_eq!(at(&text), wanted, "{text}");
    }
    assert!(n_found > 300, "{n_found}");
}

#[test]
fn a_name_that_the_task_does_not_list_is_no_fault_here_and_stands_for_nothing() {
    let mut task = task();
    task.env.insert("ODD".to_owned(), "${secret.other.k}".to_owned());
    let words = words(&task, &BTreeMap::new(), &values()).expect("words");
    assert!(!words.contains_key("secret.other.k"));
    assert_eq!(words.len(), 3);
    assert_eq!(referred(&task, &BTreeMap::new()).len(), 3);
}

#[test]
fn an_empty_value_is_a_word_and_one_of_two_references_to_a_missing_key_is_named() {
    let mut values = values();
    values.get_mut(&object(ValueKind::Secret, "db-creds")).expect("there").insert("password".to_owned(), vec![]);
    let found = words(&task(), &BTreeMap::new(), &values).expect("words");
    assert_eq!(found["secret.db.password"], "");
    let meta = (String::from("m"), String::from("${secret.db.gone} ${secret.db.gone.too}"));
    let error = words(&task(), &BTreeMap::from([(&meta.0, &meta.1)]), &values).expect_err("no key");
    let wanted = SecretWordsError::NoKey {
        field: "meta.m".to_owned(),
        name: "db".to_owned(),
        key: "gone".to_owned(),
        object: object(ValueKind::Secret, "db-creds"),
    };
    assert_eq!(error, wanted);
}

#[test]
fn an_object_of_another_kind_with_the_key_is_not_asked() {
    let values = BTreeMap::from([(
        object(ValueKind::ConfigMap, "db-creds"),
        BTreeMap::from([("password".to_owned(), b"x".to_vec())]),
    )]);
    let error = words(&task(), &BTreeMap::new(), &values).expect_err("no Secret").to_string();
    assert!(error.starts_with("env.DB: ${secret.db.password}: Secret db-creds has no key password"), "{error}");
}

#[test]
fn a_path_of_nomad_is_a_secret_with_dots_and_others_are_names_as_they_are() {
    for (provider, path, kind, name) in [
        (SecretProvider::Kubernetes, "a/b", ValueKind::Secret, "a/b"),
        (SecretProvider::Configmap, "a.b", ValueKind::ConfigMap, "a.b"),
        (SecretProvider::Nomad, "nomad/jobs/web", ValueKind::Secret, "nomad.jobs.web"),
        (SecretProvider::Nomad, "plain", ValueKind::Secret, "plain"),
    ] {
        let secret = TaskSecret { name: "x".to_owned(), provider, path: path.to_owned() };
        assert_eq!(object_of(&secret), object(kind, name), "{path}");
    }
}

#[test]
fn objects_are_counted_as_often_as_tasks_list_them() {
    let with = |names: &[&str], pulls: &[&str]| -> Task {
        let secrets: Vec<Value> = names.iter().map(|name| json!({ "name": name, "path": name })).collect();
        serde_json::from_value(json!({ "name": "t", "driver": "exec", "secrets": secrets, "imagePullSecrets": pulls }))
            .expect("a task")
    };
    let group = |tasks: Vec<Task>| Group { tasks, ..Group::default() };
    let all =
        [group(vec![with(&["a", "b"], &["a"]), with(&[], &["p"])]), group(vec![]), group(vec![with(&["a"], &[])])];
    let names = objects_of_group(&all[0]).into_iter().map(|object| object.name).collect::<Vec<_>>();
    assert_eq!(names, ["a", "b", "p"]);
    assert_eq!(count(&JobSpec { groups: all.into(), ..JobSpec::default() }), 5);
}
