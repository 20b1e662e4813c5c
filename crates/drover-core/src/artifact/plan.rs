//! What an artifact's source and its options ask for: the forms of Nomad's job files, as far as they are built.

use std::collections::BTreeMap;

use drover_api::task::{Artifact, ArtifactMode};
use serde::{Deserialize, Serialize};

use super::git::{GitTree, SSH_INSTEAD, is_forge};
use super::source_error::SourceError;
use super::way::{FetchWay, S3Object, manifest_of, of_google};
use super::web_address::{WebAddress, decoded, encoded, take_query};

/// How bytes are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    Gz,
    /// bzip2.
    Bz2,
    /// xz.
    Xz,
    /// Zstandard.
    Zst,
}

/// What is unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ArchiveForm {
    /// A tar archive.
    Tar(Compression),
    /// A zip archive.
    Zip,
    /// One file.
    File(Compression),
}

/// Ways to sum bytes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumKind {
    /// MD5; says that nothing was lost, and nothing of who made it.
    Md5,
    /// SHA-1; the same.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// What the bytes of a download sum up to, before anything is unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// How.
    pub kind: ChecksumKind,
    /// In lower case.
    pub hex: String,
}

/// What is fetched, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchPlan {
    /// An address of http or https, as [`WebAddress`] reads it.
    pub url: String,
    /// How it is asked.
    #[serde(default)]
    pub way: FetchWay,
    /// Headers of the request; they go to the first server alone.
    pub headers: BTreeMap<String, String>,
    /// What it must sum up to.
    pub checksum: Option<Checksum>,
    /// What it is.
    pub form: ArchiveForm,
    /// The name of the file, where it becomes one.
    pub file_name: String,
    /// Whether the destination is the file itself, not the directory that it goes to.
    pub is_whole: bool,
}

/// What an artifact asks for; its values are expanded.
///
/// # Errors
/// The field that is wrong, with the remedy.
pub fn fetch_plan(artifact: &Artifact) -> Result<FetchPlan, SourceError> {
    let mut options = artifact.getter_options.clone();
    let (url, way) = match source(artifact.getter_source.trim())? {
        Source::Oci(url) => return several(artifact, &options, (url, FetchWay::Oci)),
        Source::Git(source) => {
            let (url, tree) = GitTree::read(&source, &mut options, is_file(artifact))?;
            return several(artifact, &options, (url, FetchWay::Git(tree)));
        }
        Source::Web(url) => (take_own_options(&url, &mut options), FetchWay::Web),
        Source::S3(url) => {
            let url = take_own_options(&url, &mut options);
            let object = S3Object::read(&url, &mut options)?;
            (object.url(), FetchWay::S3(Box::new(object)))
        }
    };
    let parsed = WebAddress::parse(&url)?;
    if parsed.path.split('?').next().unwrap_or_default().contains("//") {
        return Err(SourceError::Folder);
    }
    let checksum = options.remove("checksum").map(|text| checksum(&text)).transpose()?;
    let archive = options.remove("archive");
    let named = options.remove("filename");
    check(&way, &options, &artifact.getter_headers)?;
    let base = decoded(parsed.path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default());
    let mode = artifact.getter_mode.unwrap_or_default();
    let form = form(mode, archive.as_deref(), &base)?;
    let file_name = match form {
        ArchiveForm::Tar(_) | ArchiveForm::Zip => String::new(),
        ArchiveForm::File(packed) => {
            let name = named.unwrap_or_else(|| unpacked_name(&base, packed).to_owned());
            if mode != ArtifactMode::File && !is_name(&name) {
                return Err(SourceError::NoName);
            }
            name
        }
    };
    Ok(FetchPlan {
        url: with_query(url, &options),
        way,
        headers: artifact.getter_headers.clone(),
        checksum,
        form,
        file_name,
        is_whole: is_file(artifact),
    })
}

fn is_file(artifact: &Artifact) -> bool {
    artifact.getter_mode == Some(ArtifactMode::File)
}

/// Refuses options that are not the way's, and headers that are none. A web server is sent what is left.
fn check(
    way: &FetchWay,
    options: &BTreeMap<String, String>,
    headers: &BTreeMap<String, String>,
) -> Result<(), SourceError> {
    if let Some((name, instead)) = options.keys().find_map(|name| Some((name, of_other_ways(name)?))) {
        return Err(SourceError::Option(name.clone(), instead));
    }
    let known = match way {
        FetchWay::Web => None,
        FetchWay::S3(_) => Some((
            "a bucket of S3",
            "region, aws_access_key_id, aws_access_key_secret, aws_access_token, checksum, archive, filename",
        )),
        FetchWay::Oci => Some(("oci://, whose layers say what they are", "none: name the digest in getterSource")),
        FetchWay::Git(_) => Some(("git::", "ref, depth: name the commit in ref")),
    };
    if let (Some((name, _)), Some((source, takes))) = (options.first_key_value(), known) {
        return Err(SourceError::OtherOption(name.chars().take(64).collect(), source, takes));
    }
    match headers.iter().find(|(name, value)| !is_header(name, value)) {
        Some((name, _)) => Err(SourceError::Header(name.chars().take(64).collect())),
        None => Ok(()),
    }
}

/// What is fetched where there may be several files, which say for themselves what they are; `getterMode: file` wants
/// one of them.
fn several(
    artifact: &Artifact,
    options: &BTreeMap<String, String>,
    (url, way): (String, FetchWay),
) -> Result<FetchPlan, SourceError> {
    check(&way, options, &artifact.getter_headers)?;
    Ok(FetchPlan {
        url,
        way,
        headers: artifact.getter_headers.clone(),
        checksum: None,
        form: ArchiveForm::File(Compression::None),
        file_name: String::new(),
        is_whole: is_file(artifact),
    })
}

/// Where a source leads.
enum Source {
    /// To an address.
    Web(String),
    /// To a bucket of S3.
    S3(String),
    /// To a manifest of a registry.
    Oci(String),
    /// To a repository of git.
    Git(String),
}

/// Where a source leads; what forces another way than its scheme says is read as Nomad reads it.
fn source(source: &str) -> Result<Source, SourceError> {
    let shown = || source.chars().take(128).collect::<String>();
    let (forced, rest) = match source.split_once("::") {
        Some((forced, rest)) if forced.chars().all(|char| char.is_ascii_alphanumeric()) => (forced, rest),
        _ => ("", source),
    };
    let scheme = rest.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    let way = if forced.is_empty() { scheme.as_deref().unwrap_or_default() } else { forced };
    match way.to_ascii_lowercase().as_str() {
        "http" | "https" => Ok(Source::Web(rest.to_owned())),
        "git" | "ssh" => Ok(Source::Git(rest.to_owned())),
        "hg" => Err(SourceError::NotYet("Mercurial", "fetch an archive of the change set by https")),
        "s3" => Ok(Source::S3(rest.to_owned())),
        "gcs" | "gs" => of_google(rest).map(Source::Web),
        "oci" => manifest_of(rest).map(Source::Oci),
        "file" => Err(SourceError::Local(shown())),
        "" if rest.starts_with("git@") || is_forge(rest) => Ok(Source::Git(rest.to_owned())),
        "" if rest.starts_with(['/', '.']) => Err(SourceError::Local(shown())),
        _ => Err(SourceError::NoScheme(shown())),
    }
}

/// Takes the options out of an address's query that are for the one who fetches, not for the server.
fn take_own_options(url: &str, options: &mut BTreeMap<String, String>) -> String {
    let url = url.split('#').next().unwrap_or_default();
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let kept = take_query(query, options, |name| ["checksum", "archive", "filename"].contains(&name));
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

/// Options are part of what the server is asked, as Nomad sends them.
fn with_query(mut url: String, options: &BTreeMap<String, String>) -> String {
    for (name, value) in options {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(&encoded(name));
        url.push('=');
        url.push_str(&encoded(value));
    }
    url
}

/// What helps who gives an option of another way; none: it is for the server.
fn of_other_ways(option: &str) -> Option<&'static str> {
    match option {
        "ref" | "depth" => Some("it is for sources that begin with git::, remove it"),
        "sshkey" => Some(SSH_INSTEAD),
        "rev" => Some("Mercurial is not built, remove it"),
        "aws_access_key_id" | "aws_access_key_secret" | "aws_access_token" | "region" => {
            Some("it is for sources that begin with s3::, remove it")
        }
        "aws_profile" => {
            Some("a node's own credentials are no task's, give aws_access_key_id and aws_access_key_secret")
        }
        _ => None,
    }
}

fn checksum(text: &str) -> Result<Checksum, SourceError> {
    let wrong = || SourceError::Checksum(text.chars().take(140).collect());
    let (kind, hex) = match text.split_once(':') {
        Some((kind, hex)) => (Some(kind), hex),
        None => (None, text),
    };
    let kind = match (kind, hex.len()) {
        (Some("md5") | None, 32) => ChecksumKind::Md5,
        (Some("sha1") | None, 40) => ChecksumKind::Sha1,
        (Some("sha256") | None, 64) => ChecksumKind::Sha256,
        (Some("sha512") | None, 128) => ChecksumKind::Sha512,
        _ => return Err(wrong()),
    };
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    Ok(Checksum { kind, hex: hex.to_ascii_lowercase() })
}

/// The ends of names by which archives are known, the longest first.
const FORMS: &[(&str, ArchiveForm)] = &[
    ("tar.gz", ArchiveForm::Tar(Compression::Gz)),
    ("tgz", ArchiveForm::Tar(Compression::Gz)),
    ("tar.bz2", ArchiveForm::Tar(Compression::Bz2)),
    ("tbz2", ArchiveForm::Tar(Compression::Bz2)),
    ("tar.xz", ArchiveForm::Tar(Compression::Xz)),
    ("txz", ArchiveForm::Tar(Compression::Xz)),
    ("tar.zst", ArchiveForm::Tar(Compression::Zst)),
    ("tzst", ArchiveForm::Tar(Compression::Zst)),
    ("tar", ArchiveForm::Tar(Compression::None)),
    ("zip", ArchiveForm::Zip),
    ("gz", ArchiveForm::File(Compression::Gz)),
    ("bz2", ArchiveForm::File(Compression::Bz2)),
    ("xz", ArchiveForm::File(Compression::Xz)),
    ("zst", ArchiveForm::File(Compression::Zst)),
];

fn form(mode: ArtifactMode, option: Option<&str>, base: &str) -> Result<ArchiveForm, SourceError> {
    let plain = ArchiveForm::File(Compression::None);
    let is_off = option.is_some_and(|option| ["false", "0", "f", "F", "False", "FALSE"].contains(&option));
    let asked = match option.filter(|option| !is_off && !option.is_empty()) {
        Some(option) => {
            let known = FORMS.iter().find(|(name, _)| *name == option);
            Some(known.ok_or_else(|| SourceError::Archive(option.chars().take(64).collect()))?.1)
        }
        None => None,
    };
    match mode {
        ArtifactMode::File if asked.is_some() => Err(SourceError::FileAndArchive),
        ArtifactMode::File => Ok(plain),
        ArtifactMode::Any | ArtifactMode::Dir => {
            let lower = base.to_ascii_lowercase();
            let ends = |end: &str| lower.strip_suffix(end).is_some_and(|name| name.ends_with('.'));
            let guessed = FORMS.iter().find(|(end, _)| !is_off && ends(end)).map(|(_, form)| *form);
            let found = asked.or(guessed).unwrap_or(plain);
            let is_tree = matches!(found, ArchiveForm::Tar(_) | ArchiveForm::Zip);
            if mode == ArtifactMode::Dir && !is_tree { Err(SourceError::NoDirectory) } else { Ok(found) }
        }
    }
}

fn unpacked_name(base: &str, packed: Compression) -> &str {
    let end = match packed {
        Compression::None => return base,
        Compression::Gz => ".gz",
        Compression::Bz2 => ".bz2",
        Compression::Xz => ".xz",
        Compression::Zst => ".zst",
    };
    // An end is known in either case.
    let name = base.get(..base.len().saturating_sub(end.len())).unwrap_or(base);
    if base[name.len()..].eq_ignore_ascii_case(end) { name } else { base }
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= 255 && !name.contains(['/', '\0'])
}

fn is_header(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name.bytes().all(is_token)
        && value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

#[cfg(test)]
mod tests {
    mod forms;

    use super::*;
    use serde_json::{Value, json};

    fn plan(artifact: Value) -> Result<FetchPlan, String> {
        let artifact: Artifact = serde_json::from_value(artifact).expect("an artifact");
        fetch_plan(&artifact).map_err(|error| error.to_string())
    }

    fn of(source: &str) -> Result<FetchPlan, String> {
        plan(json!({ "getterSource": source }))
    }

    #[test]
    fn archives_are_known_by_their_names_and_options() {
        use Compression as C;
        for (source, mode, archive, form, name) in [
            ("https://a/app.tar.gz", "any", "", ArchiveForm::Tar(C::Gz), ""),
            ("https://a/app.TGZ?x=1", "any", "", ArchiveForm::Tar(C::Gz), ""),
            ("https://a/app.tar.gz", "any", "false", ArchiveForm::File(C::None), "app.tar.gz"),
            ("https://a/app", "dir", "zip", ArchiveForm::Zip, ""),
            ("https://a/app.gz", "any", "", ArchiveForm::File(C::Gz), "app"),
            ("https://a/app%20x.txt", "any", "", ArchiveForm::File(C::None), "app x.txt"),
            ("https://a/app.tar.gz", "file", "", ArchiveForm::File(C::None), "app.tar.gz"),
            ("https://a/tar", "any", "", ArchiveForm::File(C::None), "tar"),
        ] {
            let mut artifact = json!({ "getterSource": source, "getterMode": mode });
            if !archive.is_empty() {
                artifact["getterOptions"] = json!({ "archive": archive });
            }
            let found = plan(artifact).expect(source);
            assert_eq!((found.form, found.file_name.as_str()), (form, name), "{source} {mode} {archive}");
        }
    }

    #[test]
    fn options_are_taken_out_of_the_address_and_the_rest_is_sent() {
        let found = plan(json!({
            "getterSource": "http::https://a/x?archive=false&v=2&checksum=md5:D41D8CD98F00B204E9800998ECF8427E",
            "getterOptions": { "to ken": "a&b" },
        }));
        let found = found.expect("a plan");
        assert_eq!(found.url, "https://a/x?v=2&to%20ken=a%26b");
        let hex = "d41d8cd98f00b204e9800998ecf8427e".to_owned();
        assert_eq!(found.checksum, Some(Checksum { kind: ChecksumKind::Md5, hex }));
        let bare = of(&format!("https://a/x?checksum={}", "ab".repeat(64))).expect("a plan");
        assert_eq!(bare.checksum.map(|sum| sum.kind), Some(ChecksumKind::Sha512));
    }

    #[test]
    fn buckets_and_registries_are_asked_in_their_own_ways() {
        let found = plan(json!({
            "getterSource": "s3::https://s3-eu-west-1.amazonaws.com/b/dir/app.tar.gz?checksum=md5:d41d8cd98f00b204e9800998ecf8427e",
            "getterOptions": { "aws_access_key_id": "AK", "aws_access_key_secret": "hush" },
        }));
        let found = found.expect("a plan");
        let FetchWay::S3(object) = &found.way else { panic!("{found:?}") };
        assert_eq!((object.key.as_str(), object.region.as_str()), ("dir/app.tar.gz", "eu-west-1"));
        assert_eq!((found.form, found.checksum.is_some()), (ArchiveForm::Tar(Compression::Gz), true));
        assert!(!found.url.contains("hush"));
        assert_eq!(of("gs://b/x.zip").expect("a plan").url, "https://storage.googleapis.com/b/x.zip");
        let found = plan(json!({ "getterSource": "oci://ghcr.io/a/b:1", "getterMode": "file" })).expect("a plan");
        assert_eq!(
            (found.url.as_str(), found.way, found.is_whole),
            ("https://ghcr.io/v2/a/b/manifests/1", FetchWay::Oci, true)
        );
        let archive = json!({ "getterSource": "oci://ghcr.io/a/b:1", "getterOptions": { "archive": "zip" } });
        assert!(plan(archive).expect_err("refused").contains("not for oci://"));
        let found = plan(json!({
            "getterSource": "git::https://a/b.git//dir/app?ref=v1",
            "getterOptions": { "depth": "1" }, "getterMode": "file",
        }));
        let found = found.expect("a plan");
        let tree = GitTree { reference: Some("v1".to_owned()), folder: "dir/app".to_owned() };
        assert_eq!((found.url.as_str(), found.way, found.is_whole), ("https://a/b.git", FetchWay::Git(tree), true));
    }

    #[test]
    fn what_is_not_built_is_refused_by_name_with_the_remedy() {
        for (source, says) in [
            ("git@a:b.git", "git::https://"),
            ("s3://b/k?version=3", "getterOptions.version is not for a bucket of S3, which takes region"),
            ("git::https://a/b.git?checksum=md5:x", "is not for git::"),
            ("hg::https://a/b", "Mercurial"),
            ("s3::https://s3.amazonaws.com/b", "BUCKET/KEY"),
            ("s3://b/k?aws_access_key_id=x", "give both"),
            ("s3://b/k?aws_profile=x", "aws_profile"),
            ("gcs::https://www.googleapis.com/b/k", "gs://BUCKET/KEY"),
            ("oci://a/B:1", "oci://ghcr.io"),
            ("file:///etc/passwd", "host volume"),
            ("/etc/passwd", "host volume"),
            ("example.com/a.tgz", "https://example.com"),
            ("ftp://a/b", "names no way"),
            ("https://u:p@a/b", "Authorization"),
            ("https://a/b.tgz//bin", "whole archive"),
            ("https://a/", "filename"),
            ("https://a/..", "filename"),
            ("https://a/%2e%2e%2fx", "filename"),
            ("https://a/x?checksum=file:https://a/sums", "sha256:<64"),
            ("https://a/x?archive=rar", "tar.zst"),
        ] {
            let error = of(source).expect_err(source);
            assert!(error.contains(says), "{source}: {error}");
        }
        for (more, says) in [
            (json!({ "getterMode": "dir" }), "getterMode dir"),
            (json!({ "getterMode": "file", "getterOptions": { "archive": "zip" } }), "remove one"),
            (json!({ "getterOptions": { "ref": "main" } }), "getterOptions.ref"),
            (json!({ "getterHeaders": { "a b": "x" } }), "getterHeaders"),
            (json!({ "getterHeaders": { "a": "x\r\nb: y" } }), "getterHeaders"),
        ] {
            let mut artifact = json!({ "getterSource": "https://a/x" });
            artifact.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            let error = plan(artifact).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
