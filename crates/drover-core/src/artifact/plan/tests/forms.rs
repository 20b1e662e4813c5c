//! What an artifact's name, mode and options make of it, and what each wrong one is told.

use super::*;

/// Each end of a name by which an archive is known, by the table of the reference of jobs.
const ENDS: [(&str, ArchiveForm); 14] = {
    use Compression::{Bz2, Gz, None, Xz, Zst};
    [
        ("tar", ArchiveForm::Tar(None)),
        ("tar.gz", ArchiveForm::Tar(Gz)),
        ("tgz", ArchiveForm::Tar(Gz)),
        ("tar.bz2", ArchiveForm::Tar(Bz2)),
        ("tbz2", ArchiveForm::Tar(Bz2)),
        ("tar.xz", ArchiveForm::Tar(Xz)),
        ("txz", ArchiveForm::Tar(Xz)),
        ("tar.zst", ArchiveForm::Tar(Zst)),
        ("tzst", ArchiveForm::Tar(Zst)),
        ("zip", ArchiveForm::Zip),
        ("gz", ArchiveForm::File(Gz)),
        ("bz2", ArchiveForm::File(Bz2)),
        ("xz", ArchiveForm::File(Xz)),
        ("zst", ArchiveForm::File(Zst)),
    ]
};

#[test]
fn each_end_of_a_name_means_its_form_in_either_case_and_as_an_option() {
    for (end, form) in ENDS {
        let is_tree = !matches!(form, ArchiveForm::File(_));
        let name = if is_tree { "" } else { "app" };
        for source in [format!("https://a/app.{end}"), format!("https://a/b.zip/app.{}?v=1", end.to_uppercase())] {
            let found = of(&source).expect("a plan");
            assert_eq!((found.form, found.file_name.as_str(), found.is_whole), (form, name, false), "{source}");
            let whole = plan(json!({ "getterSource": source, "getterMode": "file" })).expect("a plan");
            assert_eq!((whole.form, whole.is_whole), (ArchiveForm::File(Compression::None), true), "{source}");
            let as_directory = plan(json!({ "getterSource": source, "getterMode": "dir" }));
            assert_eq!(as_directory.is_ok(), is_tree, "{source}");
        }
        let option = json!({ "getterSource": "https://a/app", "getterOptions": { "archive": end } });
        assert_eq!(plan(option).expect("a plan").form, form, "{end}");
    }
}

#[test]
fn an_archive_is_left_as_it_is_where_it_is_turned_off() {
    for off in ["false", "0", "f", "F", "False", "FALSE"] {
        let found = of(&format!("https://a/app.tar.gz?archive={off}")).expect("a plan");
        assert_eq!((found.form, found.file_name.as_str()), (ArchiveForm::File(Compression::None), "app.tar.gz"));
        assert_eq!(found.url, "https://a/app.tar.gz", "the option is not sent");
        let file = json!({ "getterSource": "https://a/x", "getterMode": "file", "getterOptions": { "archive": off } });
        assert!(plan(file).is_ok(), "{off}");
    }
    let found = of("https://a/app.tar.gz?archive=").expect("a plan");
    assert_eq!(found.form, ArchiveForm::Tar(Compression::Gz), "an empty option says nothing");
    for unknown in ["true", "no", "TAR", "tar.rar", ".zip"] {
        let error = of(&format!("https://a/x?archive={unknown}")).expect_err("refused");
        assert!(error.starts_with(&format!("getterOptions.archive {unknown:?} is no kind of archive")), "{error}");
    }
}

#[test]
fn what_only_looks_like_an_end_is_a_plain_file() {
    for name in ["app.targz", "zip", "app.zip.txt", "app-tar.g", ".gzx", "app.tarr"] {
        let found = of(&format!("https://a/{name}")).expect("a plan");
        assert_eq!((found.form, found.file_name.as_str()), (ArchiveForm::File(Compression::None), name));
    }
}

#[test]
fn a_file_is_named_by_its_address_or_by_the_option() {
    for (source, named, expected) in [
        ("https://a/dir/app%C3%A9", None, Ok("appé")),
        ("https://a/app?x=/y/z", None, Ok("app")),
        ("https://a/app", Some("other.txt"), Ok("other.txt")),
        ("https://a/app.gz", Some("app.gz"), Ok("app.gz")),
        ("https://a/", Some("x"), Ok("x")),
        ("https://a/.", None, Err("getterSource names no file; give getterOptions.filename")),
        ("https://a/app", Some(""), Err("getterSource names no file; give getterOptions.filename")),
        ("https://a/app", Some("../x"), Err("getterSource names no file; give getterOptions.filename")),
        ("https://a/app", Some(".."), Err("getterSource names no file; give getterOptions.filename")),
        ("https://a/a%00b", None, Err("getterSource names no file; give getterOptions.filename")),
    ] {
        let options = named.map_or(json!({}), |name| json!({ "filename": name }));
        let found = plan(json!({ "getterSource": source, "getterOptions": options })).map(|plan| plan.file_name);
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{source} {named:?}");
    }
    assert!(is_name(&"x".repeat(255)) && !is_name(&"x".repeat(256)) && !is_name(&"é".repeat(128)));
}

#[test]
fn a_checksum_is_known_by_its_name_or_its_length() {
    use ChecksumKind::{Md5, Sha1, Sha256, Sha512};
    for (name, digits, kind) in [("md5", 32, Md5), ("sha1", 40, Sha1), ("sha256", 64, Sha256), ("sha512", 128, Sha512)]
    {
        let hex = "aB".repeat(digits / 2);
        let wanted = Ok(Checksum { kind, hex: hex.to_lowercase() });
        assert_eq!(checksum(&hex), wanted);
        assert_eq!(checksum(&format!("{name}:{hex}")), wanted);
        for wrong in [
            format!("{name}:{}", &hex[1..]),
            format!("{name}:{hex}a"),
            format!("{name}:{}g", &hex[1..]),
            format!("{}:{hex}", name.to_uppercase()),
            format!(":{hex}"),
            format!("{name}:"),
        ] {
            assert_eq!(checksum(&wrong), Err(SourceError::Checksum(wrong.chars().take(140).collect())), "{wrong}");
        }
    }
    assert!(checksum(&format!("sha256:{}", "a".repeat(40))).is_err(), "the length of another");
}

#[test]
fn an_option_of_another_way_is_told_where_it_belongs() {
    for (source, option, says) in [
        ("https://a/x", "depth", "it is for sources that begin with git::, remove it"),
        ("https://a/x", "sshkey", SSH_INSTEAD),
        ("https://a/x", "rev", "Mercurial is not built, remove it"),
        ("https://a/x", "region", "it is for sources that begin with s3::, remove it"),
        ("https://a/x", "aws_access_token", "it is for sources that begin with s3::, remove it"),
        ("oci://a/b", "ref", "it is for sources that begin with git::, remove it"),
        ("git::https://a/b", "aws_access_key_id", "it is for sources that begin with s3::, remove it"),
    ] {
        let error = plan(json!({ "getterSource": source, "getterOptions": { option: "1" } })).expect_err("refused");
        assert_eq!(error, format!("getterOptions.{option} is not acted on by this version: {says}"));
    }
    for (source, option) in [("s3://b/k", "ref2"), ("oci://a/b", "checksum"), ("git::https://a/b", "archive")] {
        let error = plan(json!({ "getterSource": source, "getterOptions": { option: "1" } })).expect_err("refused");
        assert!(error.starts_with(&format!("getterOptions.{option} is not for ")), "{error}");
    }
}

#[test]
fn what_stands_in_the_address_gives_way_to_the_options() {
    let found = plan(json!({
        "getterSource": "https://a/x?archive=zip&b=2&b=3&&c&filename=old",
        "getterOptions": { "archive": "false", "filename": "new", "a": "1", "b": "4" },
    }));
    let found = found.expect("a plan");
    assert_eq!((found.url.as_str(), found.file_name.as_str()), ("https://a/x?b=2&b=3&c&a=1&b=4", "new"));
    assert_eq!(of("https://a/x?filename=y#top").expect("a plan").url, "https://a/x");
}

#[test]
fn a_way_is_forced_by_a_word_before_two_colons() {
    for (source, way) in [
        ("HTTPS::https://a/x", "Web"),
        ("git::https://a/b", "Git"),
        ("GIT::https://a/b", "Git"),
        ("git://a/b", "error"),
        ("gitlab.com/org/app", "Git"),
        ("bitbucket.org/org/app", "Git"),
        ("github.example/org/app", "error"),
        ("s3::https://s3.amazonaws.com/b/k", "S3"),
        ("S3://b/k", "error"),
        ("gcs::gs://b/k", "Web"),
        ("oci::oci://a/b", "Oci"),
        ("a-b::https://a/x", "error"),
        ("::https://a/x", "Web"),
        ("./x", "error"),
        ("", "error"),
    ] {
        let found = of(source).map_or("error", |plan| match plan.way {
            FetchWay::Web => "Web",
            FetchWay::S3(_) => "S3",
            FetchWay::Oci => "Oci",
            FetchWay::Git(_) => "Git",
        });
        assert_eq!(found, way, "{source}");
    }
}

#[test]
fn a_header_has_a_name_of_tokens_and_a_value_without_control_characters() {
    for (name, value, is_one) in [
        ("Authorization", "Bearer x", true),
        ("x-1_a.b~|", "a\tb é", true),
        ("X", "", true),
        ("", "x", false),
        ("a:", "x", false),
        ("a b", "x", false),
        ("é", "x", false),
        ("a", "x\n", false),
        ("a", "x\0", false),
        ("a", "\u{7f}", false),
    ] {
        assert_eq!(is_header(name, value), is_one, "{name:?} {value:?}");
    }
}
