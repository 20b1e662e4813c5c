//! Sources that are more than an address: an object of a bucket of S3, and an artifact of an OCI registry.
//!
//! Input: what stands behind `s3::`, `gcs::` or `oci://`. Output: what is asked for, or the field that is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::git::GitTree;
use super::source_error::SourceError;
use super::web_address::{WebAddress, decoded, encoded, take_query};

/// The region of a bucket whose source names none.
const USUAL_REGION: &str = "us-east-1";
/// The hosts of Amazon's storage end so.
const AMAZON: &str = ".amazonaws.com";
/// Longest name of an OCI repository, and of a tag, by the distribution specification.
const MOST_REPOSITORY: usize = 255;
const MOST_TAG: usize = 128;

/// How a plan's address is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FetchWay {
    /// By a plain request.
    #[default]
    Web,
    /// By one that is signed for this object, where there are credentials.
    S3(Box<S3Object>),
    /// The manifest is there, and names what is fetched.
    Oci,
    /// A repository is there, of which one commit is fetched.
    Git(GitTree),
}

/// An object of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct S3Object {
    /// Scheme, host and port, without the bucket.
    pub endpoint: String,
    /// The bucket.
    pub bucket: String,
    /// The key, decoded.
    pub key: String,
    /// Whether the bucket stands in the path, not in the host's name.
    pub is_path_style: bool,
    /// The region that signatures are for.
    pub region: String,
    /// By what requests are signed; none: they are not.
    pub keys: Option<S3Keys>,
}

/// Credentials of S3.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct S3Keys {
    /// The id of the access key.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The token of credentials that end.
    pub token: Option<String>,
}

impl fmt::Debug for S3Keys {
    /// Not the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Keys({})", self.id)
    }
}

impl S3Object {
    /// Its address without a signature.
    pub(super) fn url(&self) -> String {
        let (scheme, host) = self.endpoint.split_once("://").unwrap_or(("https", &self.endpoint));
        let key: Vec<String> = self.key.split('/').map(encoded).collect();
        let (bucket, key) = (encoded(&self.bucket), key.join("/"));
        if self.is_path_style {
            format!("{scheme}://{host}/{bucket}/{key}")
        } else {
            format!("{scheme}://{bucket}.{host}/{key}")
        }
    }

    /// Reads an address as Nomad's job files have it behind `s3::`, or `s3://BUCKET/KEY`; takes the options that are
    /// for it.
    ///
    /// # Errors
    /// What is wrong, with the remedy.
    pub(super) fn read(source: &str, options: &mut BTreeMap<String, String>) -> Result<Self, SourceError> {
        let wrong = || SourceError::Bucket(source.split('?').next().unwrap_or_default().chars().take(128).collect());
        let bucket_first = source.strip_prefix("s3://").map(|rest| format!("https://s3{AMAZON}/{rest}"));
        let url = WebAddress::parse(bucket_first.as_deref().unwrap_or(source))?;
        let (path, query) = url.path.split_once('?').unwrap_or((&url.path, ""));
        take_query(query, options, |_| true);
        let path = decoded(path.trim_start_matches('/'));
        let scheme = if url.is_tls { "https" } else { "http" };
        let host = url.host.to_ascii_lowercase();
        let (in_host, named) = of_amazon(&host);
        let (bucket, key) = match &in_host {
            Some(bucket) => (bucket.clone(), path.as_str()),
            None => path.split_once('/').map(|(bucket, key)| (bucket.to_owned(), key)).ok_or_else(wrong)?,
        };
        if bucket.is_empty() || key.is_empty() || key.ends_with('/') {
            return Err(wrong());
        }
        let named = options.remove("region").or(named).unwrap_or_else(|| USUAL_REGION.to_owned());
        let endpoint = match &in_host {
            Some(bucket) => url.authority()[bucket.len() + 1..].to_owned(),
            None => url.authority(),
        };
        Ok(Self {
            endpoint: format!("{scheme}://{endpoint}"),
            bucket,
            key: key.to_owned(),
            is_path_style: in_host.is_none(),
            region: named,
            keys: keys(options)?,
        })
    }
}

/// The bucket that a host of Amazon's names, and its region.
fn of_amazon(host: &str) -> (Option<String>, Option<String>) {
    let Some(parts) = host.strip_suffix(AMAZON) else { return (None, None) };
    // A bucket's name may have dots: what is behind it begins with `s3`.
    let parts: Vec<&str> = parts.split('.').collect();
    let service = parts.iter().rposition(|part| *part == "s3" || part.starts_with("s3-"));
    let Some(at) = service else { return (None, None) };
    let region = parts.get(at + 1).copied().or_else(|| parts[at].strip_prefix("s3-"));
    let bucket = parts[..at].join(".");
    (Some(bucket).filter(|bucket| !bucket.is_empty()), region.map(str::to_owned))
}

fn keys(options: &mut BTreeMap<String, String>) -> Result<Option<S3Keys>, SourceError> {
    let id = options.remove("aws_access_key_id");
    let secret = options.remove("aws_access_key_secret");
    let token = options.remove("aws_access_token");
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(Some(S3Keys { id, secret, token })),
        (None, None) if token.is_none() => Ok(None),
        _ => Err(SourceError::HalfKeys),
    }
}

/// The address of an object of Google's storage as anyone asks for it: Nomad's job files have it behind `gcs::`, or
/// `gs://BUCKET/OBJECT`.
///
/// # Errors
/// When it names no object.
pub(super) fn of_google(source: &str) -> Result<String, SourceError> {
    let wrong = || SourceError::Bucket(source.chars().take(128).collect());
    let object = if let Some(object) = source.strip_prefix("gs://").or_else(|| source.strip_prefix("gcs://")) {
        object
    } else if let Some((_, object)) = source.split_once("/storage/v1/") {
        object
    } else if let Some(object) = source.split_once("://storage.googleapis.com/").map(|(_, object)| object) {
        object
    } else {
        return Err(wrong());
    };
    let (bucket, name) = object.split_once('/').ok_or_else(wrong)?;
    if bucket.is_empty() || name.is_empty() || name.ends_with('/') {
        return Err(wrong());
    }
    Ok(format!("https://storage.googleapis.com/{object}"))
}

/// The address of the manifest of `oci://REGISTRY/REPOSITORY:TAG` or `…@DIGEST`, by the distribution specification. A
/// registry on the loopback device is asked without TLS, as container runtimes do.
///
/// # Errors
/// When it is no such reference.
pub(super) fn manifest_of(source: &str) -> Result<String, SourceError> {
    let wrong = || SourceError::Reference(source.chars().take(128).collect());
    let rest = source.strip_prefix("oci://").ok_or_else(wrong)?;
    let (registry, rest) = rest.split_once('/').ok_or_else(wrong)?;
    let (name, digest) = match rest.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (rest, None),
    };
    let (repository, tag) = match name.split_once(':') {
        Some((repository, tag)) => (repository, tag),
        None => (name, "latest"),
    };
    let is_part = |part: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        part.bytes().all(is_inner) && part.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
    };
    let is_repository = repository.len() <= MOST_REPOSITORY && repository.split('/').all(is_part);
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_tag = !tag.is_empty() && tag.len() <= MOST_TAG && tag.bytes().all(is_inner) && !tag.starts_with(['.', '-']);
    let is_digest = digest.is_none_or(|digest| sha256_of(digest).is_some());
    if !(is_repository && is_tag && is_digest) {
        return Err(wrong());
    }
    let parsed = WebAddress::parse(&format!("https://{registry}/"))?;
    let address = parsed.host.parse::<IpAddr>();
    let is_loopback = parsed.host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let scheme = if is_loopback { "http" } else { "https" };
    Ok(format!("{scheme}://{registry}/v2/{repository}/manifests/{}", digest.unwrap_or(tag)))
}

/// The 64 digits behind `sha256:`; none: it is another digest, which is not compared.
pub fn sha256_of(digest: &str) -> Option<&str> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    mod edges;

    use super::*;

    fn object(source: &str) -> Result<S3Object, String> {
        S3Object::read(source, &mut BTreeMap::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_bucket_stands_in_the_path_or_in_the_host() {
        for (source, expected) in [
            ("https://s3.amazonaws.com/b/k/x.tgz", "https://s3.amazonaws.com b k/x.tgz true us-east-1"),
            ("https://s3-eu-west-1.amazonaws.com/b/k", "https://s3-eu-west-1.amazonaws.com b k true eu-west-1"),
            ("https://s3.eu-west-1.amazonaws.com/b/k", "https://s3.eu-west-1.amazonaws.com b k true eu-west-1"),
            ("https://b.s3.amazonaws.com/k%20x", "https://s3.amazonaws.com b k x false us-east-1"),
            ("https://b.c.s3-eu-west-1.amazonaws.com/k", "https://s3-eu-west-1.amazonaws.com b.c k false eu-west-1"),
            ("https://b.s3.eu-west-1.amazonaws.com/k/l", "https://s3.eu-west-1.amazonaws.com b k/l false eu-west-1"),
            ("s3://b/k", "https://s3.amazonaws.com b k true us-east-1"),
            ("http://127.0.0.1:9000/b/k?region=here", "http://127.0.0.1:9000 b k true here"),
        ] {
            let found = object(source).expect(source);
            let again = S3Object { region: found.region.clone(), ..object(&found.url()).expect(source) };
            assert_eq!(again, found, "{}", found.url());
            let S3Object { endpoint, bucket, key, is_path_style, region, keys } = found;
            assert_eq!(format!("{endpoint} {bucket} {key} {is_path_style} {region}"), expected, "{source}");
            assert_eq!(keys, None);
        }
        for source in ["https://s3.amazonaws.com/b", "s3://b/", "s3://b/folder/", "https://b.s3.amazonaws.com/"] {
            assert!(object(source).expect_err(source).contains("BUCKET/KEY"), "{source}");
        }
    }

    #[test]
    fn keys_are_whole_and_never_shown() {
        let with = |pairs: &[(&str, &str)]| {
            let mut options = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            S3Object::read("s3://b/k", &mut options).map(|object| (object, options))
        };
        let all = [("aws_access_key_id", "AK"), ("aws_access_key_secret", "hush"), ("aws_access_token", "tok")];
        let (object, left) = with(&all).expect("an object");
        assert!(left.is_empty());
        assert!(!format!("{object:?}").contains("hush") && !format!("{object:?}").contains("tok"));
        for half in [&all[..1], &all[1..2], &all[2..], &all[1..]] {
            assert_eq!(with(half).expect_err("half"), SourceError::HalfKeys);
        }
    }

    #[test]
    fn objects_of_googles_storage_are_asked_for_as_anyone_does() {
        for source in [
            "https://www.googleapis.com/storage/v1/b/dir/x.tgz",
            "https://storage.googleapis.com/b/dir/x.tgz",
            "gs://b/dir/x.tgz",
        ] {
            assert_eq!(of_google(source).as_deref(), Ok("https://storage.googleapis.com/b/dir/x.tgz"), "{source}");
        }
        for source in ["https://www.googleapis.com/storage/v1/b", "gs://b/", "https://example.com/b/x"] {
            assert!(of_google(source).is_err(), "{source}");
        }
    }

    #[test]
    fn a_reference_leads_to_its_manifest() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (source, expected) in [
            ("oci://ghcr.io/org/app:1.2", "https://ghcr.io/v2/org/app/manifests/1.2".to_owned()),
            ("oci://ghcr.io/app", "https://ghcr.io/v2/app/manifests/latest".to_owned()),
            ("oci://127.0.0.1:5000/a/b:x", "http://127.0.0.1:5000/v2/a/b/manifests/x".to_owned()),
            (&format!("oci://r.example/a:1@{digest}"), format!("https://r.example/v2/a/manifests/{digest}")),
        ] {
            assert_eq!(manifest_of(source), Ok(expected), "{source}");
        }
        for source in [
            "oci://ghcr.io",
            "oci://ghcr.io/",
            "oci://ghcr.io/Org/app:1",
            "oci://ghcr.io/a/../b:1",
            "oci://ghcr.io/a:1?x=y",
            "oci://ghcr.io/a@sha256:12",
            "oci://ghcr.io/a:",
            "oci://u@ghcr.io/a:1",
        ] {
            assert!(manifest_of(source).is_err(), "{source}");
        }
    }
}
