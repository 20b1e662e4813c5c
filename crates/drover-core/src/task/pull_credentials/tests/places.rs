//! Where an entry of a Secret is for, against a slow reading of the rules that kubelets have.

use fastrand::Rng;

use super::*;

/// Whether letters with `*` for any of them are a word: each way is tried.
fn slow_matches(pattern: &[char], word: &[char]) -> bool {
    match (pattern.first(), word.first()) {
        (None, None) => true,
        (Some('*'), _) => slow_matches(&pattern[1..], word) || !word.is_empty() && slow_matches(pattern, &word[1..]),
        (Some(one), Some(other)) => one == other && slow_matches(&pattern[1..], &word[1..]),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[test]
fn a_star_is_any_letters_of_one_part_of_a_host() {
    let mut rng = Rng::with_seed(65);
    let text = |rng: &mut Rng, letters: &[char]| -> String {
        (0..rng.usize(..6)).map(|_| letters[rng.usize(..letters.len())]).collect()
    };
    let mut n_fit = 0;
    for _ in 0..20_000 {
        let (pattern, part) = (text(&mut rng, &['a', 'b', 'é', '*']), text(&mut rng, &['a', 'b', 'é']));
        let letters = |text: &str| text.chars().collect::<Vec<_>>();
        let wanted = slow_matches(&letters(&pattern), &letters(&part));
        n_fit += i32::from(wanted);
        assert_eq!(part_matches(&pattern, &part), wanted, "{pattern} {part}");
    }
    assert!(n_fit > 1000, "{n_fit}");
}

#[test]
fn hosts_have_as_many_parts_and_the_same_port() {
    for (place, image, expected) in [
        ("*.example.com", "eu.example.com/x", true),
        ("*.example.com", "example.com/x", false),
        ("*.example.com", "a.eu.example.com/x", false),
        ("*.*.example.com", "a.eu.example.com/x", true),
        ("*", "localhost/x", true),
        ("*", "r.com/x", false),
        ("r*.com", "registry.com/x", true),
        ("r*y.com", "registr.com/x", false),
        ("*:5000", "localhost:5000/x", true),
        ("r.com", "r.com:443/x", false),
        ("r.com:443", "r.com/x", false),
        ("r.com:5*", "r.com:5000/x", false),
        ("*.com:5000", "r.com:5000/x", true),
        ("", "r.com/x", false),
        ("r.com", "r.com", false),
    ] {
        let secrets = [secret("s", &json!({ place: user("u") }))];
        assert_eq!(!puller(image, &secrets).is_empty(), expected, "{place} for {image}");
    }
}

#[test]
fn what_docker_writes_around_a_place_is_no_part_of_it() {
    let image = "docker.io/library/busybox:latest";
    for place in [
        "https://index.docker.io/v1/",
        "https://index.docker.io/v2/",
        "index.docker.io/v1",
        "http://index.docker.io",
        "registry-1.docker.io",
        "docker.io",
        "docker.io/library",
        "https://docker.io/library/busybox",
    ] {
        assert_eq!(puller(image, &[secret("s", &json!({ place: user("u") }))]), "u@docker.io", "{place}");
    }
    for place in
        ["hub.docker.io", "docker.com", "docker.io/librar", "docker.io/library/busybox/x", "index.docker.io/v3"]
    {
        assert_eq!(puller(image, &[secret("s", &json!({ place: user("u") }))]), "", "{place}");
    }
}

#[test]
fn a_path_is_one_of_whole_names() {
    for (image, expected) in [
        ("r.com/team/app", true),
        ("r.com/team/app/x", true),
        ("r.com/team/app:1", true),
        ("r.com/team/app@sha256:00", true),
        ("r.com/team/apple", false),
        ("r.com/team/app-2", false),
        ("r.com/team", false),
        ("r.com/x/team/app", false),
    ] {
        let found = puller(image, &[secret("s", &json!({ "r.com/team/app": user("u") }))]);
        assert_eq!(!found.is_empty(), expected, "{image}");
    }
}

#[test]
fn the_longest_path_wins_in_whatever_secret_it_stands_and_then_the_first() {
    let all = |hosts: [&str; 3]| {
        let names = ["one", "two", "three"];
        names.iter().zip(hosts).map(|(name, place)| secret(name, &json!({ place: user(name) }))).collect::<Vec<_>>()
    };
    for (places, expected) in [
        (["r.com", "r.com", "r.com"], "one@r.com"),
        (["r.com", "r.com/a", "r.com"], "two@r.com"),
        (["r.com/a", "r.com/a/b", "r.com/a"], "two@r.com"),
        (["r.com", "r.com/a/b/c", "r.com/a"], "three@r.com"),
        (["*.com", "r.com", "r.com"], "one@r.com"),
        (["r.com/a/b", "r.com/a/b", "https://r.com/a/b/"], "one@r.com"),
        (["q.com", "q.com", "r.com"], "three@r.com"),
    ] {
        assert_eq!(puller("r.com/a/b:1", &all(places)), expected, "{places:?}");
    }
}

#[test]
fn a_proof_is_a_token_before_auth_and_auth_before_name_and_password() {
    let of = |entry: &Value| {
        let secrets = [secret("s", &json!({ "r.com": entry }))];
        pull_credentials("r.com/x", &secrets).map(|found| found.map(|found| found.proof))
    };
    let password = |username: &str, password: &str| {
        Ok(Some(PullProof::Password { username: username.to_owned(), password: password.to_owned() }))
    };
    let auth = |text: &[u8]| STANDARD.encode(text);
    assert_eq!(of(&json!({ "username": "u", "password": "p" })), password("u", "p"));
    assert_eq!(of(&json!({ "username": "u" })), password("u", ""));
    assert_eq!(of(&json!({ "username": "u", "password": "p", "auth": auth(b"v:q") })), password("v", "q"));
    assert_eq!(of(&json!({ "auth": auth(b"v:q\0\0") })), password("v", "q"));
    assert_eq!(of(&json!({ "auth": auth(b"v:") })), password("v", ""));
    let token = Ok(Some(PullProof::IdentityToken("t".to_owned())));
    assert_eq!(of(&json!({ "username": "u", "password": "p", "auth": auth(b"v:q"), "identitytoken": "t" })), token);
    let wrong = Err(PullSecretError::Entry("s".to_owned(), "r.com".to_owned()));
    for entry in [
        json!({}),
        json!({ "password": "p" }),
        json!({ "auth": auth(b"no colon") }),
        json!({ "auth": auth(b":p") }),
        json!({ "auth": auth(b"\xff:p") }),
        json!({ "auth": "not base64", "username": "u" }),
    ] {
        assert_eq!(of(&entry), wrong, "{entry}");
    }
}

#[test]
fn an_entry_that_is_not_understood_hurts_only_where_it_would_be_shown() {
    let wrong = json!({ "auth": "x" });
    let after_a_better = [secret("s", &json!({ "r.com": wrong.clone(), "r.com/a": user("u") }))];
    assert!(pull_credentials("r.com/a", &after_a_better).is_err(), "entries come in order, and this one fits first");
    let behind_a_better = [secret("s", &json!({ "r.com/a": user("u") })), secret("t", &json!({ "r.com": wrong }))];
    assert_eq!(puller("r.com/a", &behind_a_better), "u@r.com");
    // A Secret behind it is read all the same: that it is of another type is told at once.
    let other = ("t".to_owned(), BTreeMap::from([("password".to_owned(), b"x".to_vec())]));
    let both = [secret("s", &json!({ "r.com/a": user("u") })), other];
    assert_eq!(pull_credentials("r.com/a", &both), Err(PullSecretError::NoKey("t".to_owned())));
}

#[test]
fn a_file_without_entries_fits_nothing() {
    for text in ["{}", r#"{"auths":{}}"#, r#"{"credsStore":"desktop","auths":{}}"#] {
        let keys = BTreeMap::from([(DOCKER_CONFIG_KEY.to_owned(), text.as_bytes().to_vec())]);
        assert_eq!(pull_credentials("r.com/x", &[("s".to_owned(), keys)]), Ok(None), "{text}");
    }
    assert_eq!(pull_credentials("r.com/x", &[]), Ok(None));
}
