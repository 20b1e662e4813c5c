//! Names of references, and what belongs to a repository's address.

use super::*;

#[test]
fn a_reference_is_a_name_by_the_rules_of_git() {
    // git-check-ref-format(1), rule by rule.
    for (name, is_one) in [
        ("main", true),
        ("refs/heads/feature/x", true),
        ("v1.2-rc.1", true),
        ("é", true),
        ("a@b", true),
        ("a{b", true),
        (".a", false),
        ("a/.b", false),
        ("a.lock", false),
        ("a.lock/b", false),
        ("a.locks", true),
        ("a..b", false),
        ("a b", false),
        ("a\u{7f}", false),
        ("a\tb", false),
        ("a~1", false),
        ("a^", false),
        ("a:b", false),
        ("a?", false),
        ("a*", false),
        ("a[b", false),
        ("/a", false),
        ("a/", false),
        ("a//b", false),
        ("a.", false),
        ("a@{1}", false),
        ("@", false),
        ("a\\b", false),
        ("-a", false),
    ] {
        assert_eq!(is_reference(name), is_one, "{name:?}");
    }
    assert!(is_reference(&"x".repeat(255)) && !is_reference(&"x".repeat(256)));
}

#[test]
fn a_commit_is_forty_hexadecimal_digits() {
    for (reference, is_commit) in [
        ("a".repeat(40), true),
        ("A".repeat(40), true),
        ("a".repeat(39), false),
        ("a".repeat(41), false),
        ("g".repeat(40), false),
    ] {
        let tree = GitTree { reference: Some(reference.clone()), folder: String::new() };
        assert_eq!(tree.commit().is_some(), is_commit, "{reference}");
    }
    assert_eq!(GitTree { reference: None, folder: String::new() }.commit(), None);
}

#[test]
fn a_folder_is_what_stands_behind_two_slashes_and_stays_inside() {
    for (source, found) in [
        ("https://a/b//c/", Some("https://a/b c")),
        ("https://a/b///c", Some("https://a/b c")),
        ("https://a/b//", Some("https://a/b ")),
        ("https://a/b//c//d", Some("https://a/b c//d")),
        ("https://a/b//%2e%2e", None),
        ("https://a/b//c/./d", None),
        ("https://a/b//c%00", None),
        ("https://a//c", None),
        ("HTTPS://a/b#x", Some("https://a/b ")),
        ("github.com/o/a.git", Some("https://github.com/o/a.git ")),
        ("github.com/o//a", None),
        ("github.com/o/a/", Some("https://github.com/o/a.git ")),
    ] {
        let read = read(source).ok().map(|(url, tree)| format!("{url} {}", tree.folder));
        assert_eq!(read.as_deref(), found, "{source}");
    }
}

#[test]
fn the_options_win_over_the_address_and_are_taken() {
    let given = [("ref", "own"), ("other", "kept")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut options = BTreeMap::from(given);
    let (_, tree) = GitTree::read("https://a/b?ref=old&depth=3", &mut options, false).expect("a tree");
    assert_eq!(tree.reference.as_deref(), Some("own"));
    assert_eq!(options.into_keys().collect::<Vec<_>>(), ["other"]);
    for (depth, is_one) in [("1", true), ("4294967295", true), ("4294967296", false), ("0", false), ("-1", false)] {
        let read = GitTree::read(&format!("https://a/b?depth={depth}"), &mut BTreeMap::new(), false);
        assert_eq!(read.is_ok(), is_one, "{depth}");
    }
    let (_, tree) = read("https://a/b?ref=").expect("a tree");
    assert_eq!(tree.reference, None, "an empty name is none");
}
