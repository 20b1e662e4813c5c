//! Names of images, against a slow reading of what container runtimes take.

use fastrand::Rng;

use super::*;

fn digest(letter: char) -> String {
    format!("sha256:{}", letter.to_string().repeat(64))
}

#[test]
fn a_first_part_is_a_registry_by_its_dot_colon_or_name() {
    for (text, wanted) in [
        ("a/b", "docker.io/a/b:latest"),
        ("a.b/c", "a.b/c:latest"),
        ("a:1/c", "a:1/c:latest"),
        ("localhost/c", "localhost/c:latest"),
        ("localhosts/c", "docker.io/localhosts/c:latest"),
        ("localhost", "docker.io/library/localhost:latest"),
        ("localhost:5000", "docker.io/library/localhost:5000"),
        ("a.b", "docker.io/library/a.b:latest"),
        ("docker.io/web", "docker.io/web:latest"),
        ("index.docker.io/library/web:1", "docker.io/library/web:1"),
        ("[fd00::1]:5000/a", "[fd00::1]:5000/a:latest"),
        (" web:1\n", "docker.io/library/web:1"),
        ("a.b/c/d/e:f", "a.b/c/d/e:f"),
        ("web:V1.0_a-b", "docker.io/library/web:V1.0_a-b"),
        ("A.B/c", "A.B/c:latest"),
    ] {
        assert_eq!(image_name(text).as_deref(), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_no_name_is_refused_with_what_is_wrong_in_it() {
    let long = |bytes: usize| format!("a.b/{}", "x".repeat(bytes - 4));
    let half = "sha256:".to_owned() + &"a".repeat(63);
    let other = "sha512:".to_owned() + &"a".repeat(64);
    for (text, reason) in [
        (String::new(), "is no name of an image"),
        ("  ".to_owned(), "is no name of an image"),
        ("wéb".to_owned(), "is no name of an image"),
        ("web\0".to_owned(), "is no name of an image"),
        ("https://a.b/c?d".to_owned(), "is no name of an image"),
        (long(513), "is no name of an image"),
        (format!("web@{half}"), "has no digest after @"),
        (format!("web@{half}g"), "has no digest after @"),
        (format!("web@{other}"), "has no digest after @"),
        ("web@".to_owned(), "has no digest after @"),
        (format!("web@{}@{}", digest('a'), digest('b')), "has no digest after @"),
        ("Web".to_owned(), "has capital letters in its name, which no registry takes"),
        ("a.b/C:1".to_owned(), "has capital letters in its name, which no registry takes"),
        ("a.b/".to_owned(), "has an empty part"),
        ("/a".to_owned(), "has an empty part"),
        ("web:".to_owned(), "has an empty part"),
        (":1".to_owned(), "has an empty part"),
        ("web:.1".to_owned(), "has an empty part"),
        ("web:-1".to_owned(), "has an empty part"),
        ("a.b/-c".to_owned(), "has an empty part"),
        ("a.b/c/../d".to_owned(), "has an empty part"),
        (format!("@{}", digest('a')), "has an empty part"),
    ] {
        let expected =
            format!("config.image {:?} {reason}: write REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST", text.trim());
        let found = image_name(&text).expect_err(&text);
        // The text is shown as it was written.
        assert_eq!(found.replace(&format!("{text:?}"), &format!("{:?}", text.trim())), expected);
    }
    assert_eq!(image_name(&long(512)).map(|name| name.len()), Ok(512 + ":latest".len()));
}

#[test]
fn a_full_name_names_the_same_image_and_stays_as_it_is() {
    let mut rng = Rng::with_seed(21);
    for _ in 0..5000 {
        let mut one = |of: &[&str]| of[rng.usize(..of.len())].to_owned();
        let host = one(&["", "docker.io/", "index.docker.io/", "r.example:5000/", "localhost/"]);
        let path = one(&["web", "a/web", "a/b_c/web-1", "w.x"]);
        let (tag, has_digest) = (one(&["", ":1", ":V1.2-x"]), one(&["", "yes"]) == "yes");
        let text = format!("{host}{path}{tag}{}", if has_digest { format!("@{}", digest('0')) } else { String::new() });
        // Docker's own names are those without a registry; only such a short one has Docker's own repository.
        let registry = if host.is_empty() || host.starts_with("index.") { "docker.io/" } else { &host };
        let library = if host.is_empty() && !path.contains('/') { "library/" } else { "" };
        let end = match (tag.as_str(), has_digest) {
            ("", false) => ":latest".to_owned(),
            (tag, false) => tag.to_owned(),
            (tag, true) => format!("{tag}@{}", digest('0')),
        };
        let wanted = format!("{registry}{library}{path}{end}");
        assert_eq!(image_name(&text).as_ref(), Ok(&wanted), "{text}");
        assert_eq!(image_name(&wanted).as_ref(), Ok(&wanted), "a full name is its own");
    }
}

#[test]
fn a_digest_has_64_digits_of_either_case() {
    assert!(is_digest(&digest('f')) && is_digest(&digest('F')) && is_digest(&digest('9')));
    for wrong in [digest('g'), digest('a') + "a", format!(" {}", digest('a')), "sha256".to_owned(), "a".repeat(64)] {
        assert!(!is_digest(&wrong), "{wrong}");
    }
}
