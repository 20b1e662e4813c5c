//! Which credentials an image is pulled with: entries of Secrets of type `kubernetes.io/dockerconfigjson`, found by the
//! image's name as kubelets find them.
//!
//! Must never know: where Secrets come from, connections.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// The key of a Secret that holds its entries.
pub const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";
/// Docker's own registry, by the name in images, and by those that its tools write into files.
const DOCKER_HUB: (&str, [&str; 3]) = ("docker.io", ["index.docker.io", "registry-1.docker.io", "docker.io"]);

/// What a registry is shown.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullCredentials {
    /// The registry, as the image names it; nothing is shown to another one.
    pub registry: String,
    /// Who pulls.
    pub proof: PullProof,
}

/// By what a user is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PullProof {
    /// A name and a password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// A token that is exchanged for one of the registry's.
    IdentityToken(String),
}

impl fmt::Debug for PullCredentials {
    /// Not what they are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials for {}", self.registry)
    }
}

impl fmt::Debug for PullProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a proof")
    }
}

/// Why a Secret gives no credentials. It never shows what the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// It has another type.
    #[error(
        "imagePullSecrets: Secret {0} has no key {DOCKER_CONFIG_KEY}; make it by `kubectl create secret docker-registry`"
    )]
    NoKey(String),
    /// The value is not understood.
    #[error(
        "imagePullSecrets: {DOCKER_CONFIG_KEY} of Secret {0} is no configuration of Docker; make it by `kubectl create \
         secret docker-registry`"
    )]
    NotUnderstood(String),
    /// An entry is not understood.
    #[error(
        "imagePullSecrets: entry {1:?} of Secret {0} has neither username and password nor a base64 of both in auth"
    )]
    Entry(String, String),
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DockerEntry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// The credentials that fit an image's full name, of the Secrets in this order; none: none fit. The entry with the
/// longest path wins, and of equal ones that of the first Secret.
///
/// # Errors
/// When a Secret is not understood: which, and what to do.
pub fn pull_credentials(
    image: &str,
    secrets: &[(String, BTreeMap<String, Vec<u8>>)],
) -> Result<Option<PullCredentials>, PullSecretError> {
    let registry = image.split('/').next().unwrap_or_default();
    let mut best: Option<(usize, PullCredentials)> = None;
    for (name, keys) in secrets {
        let text = keys.get(DOCKER_CONFIG_KEY).ok_or_else(|| PullSecretError::NoKey(name.clone()))?;
        let config: DockerConfig =
            serde_json::from_slice(text).map_err(|_| PullSecretError::NotUnderstood(name.clone()))?;
        for (place, entry) in &config.auths {
            let Some(length) = fits(place, image) else { continue };
            if best.as_ref().is_some_and(|(longest, _)| length <= *longest) {
                continue;
            }
            let proof = proof(entry).ok_or_else(|| PullSecretError::Entry(name.clone(), place.clone()))?;
            best = Some((length, PullCredentials { registry: registry.to_owned(), proof }));
        }
    }
    Ok(best.map(|(_, credentials)| credentials))
}

fn proof(entry: &DockerEntry) -> Option<PullProof> {
    if !entry.identitytoken.is_empty() {
        return Some(PullProof::IdentityToken(entry.identitytoken.clone()));
    }
    let (username, password) = if entry.auth.is_empty() {
        (entry.username.clone(), entry.password.clone())
    } else {
        let both = String::from_utf8(STANDARD.decode(&entry.auth).ok()?).ok()?;
        let (username, password) = both.split_once(':')?;
        (username.to_owned(), password.trim_end_matches('\0').to_owned())
    };
    (!username.is_empty()).then_some(PullProof::Password { username, password })
}

/// Whether an entry's place is the image's, and how exactly: the number of its parts. A part of the host may have `*`
/// for any letters.
fn fits(place: &str, image: &str) -> Option<usize> {
    let place = ["https://", "http://"].iter().find_map(|scheme| place.strip_prefix(scheme)).unwrap_or(place);
    let place = place.trim_end_matches('/');
    // What Docker's tools write ends with the version of the protocol.
    let place = place.strip_suffix("/v1").or_else(|| place.strip_suffix("/v2")).unwrap_or(place);
    let (host, path) = place.split_once('/').map_or((place, ""), |(host, path)| (host, path));
    let (image_host, image_path) = image.split_once('/')?;
    let host = if DOCKER_HUB.1.contains(&host) { DOCKER_HUB.0 } else { host };
    if !hosts_match(host, image_host) {
        return None;
    }
    let rest = image_path.strip_prefix(path)?;
    let is_whole = path.is_empty() || rest.is_empty() || rest.starts_with(['/', ':', '@']);
    is_whole.then(|| host.split('.').count() + path.split('/').filter(|part| !part.is_empty()).count() * 64)
}

fn hosts_match(pattern: &str, host: &str) -> bool {
    let port = |text: &str| text.rsplit_once(':').map(|(name, port)| (name.to_owned(), port.to_owned()));
    let split = |text: &str| port(text).unwrap_or((text.to_owned(), String::new()));
    let ((pattern, pattern_port), (host, host_port)) = (split(pattern), split(host));
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == host_port
        && patterns.len() == parts.len()
        && patterns.iter().zip(&parts).all(|(pattern, part)| part_matches(pattern, part))
}

/// `*` is any text of one part.
fn part_matches(pattern: &str, part: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == part };
    let Some(part) = part.strip_prefix(first) else { return false };
    (0..=part.len()).any(|at| part.is_char_boundary(at) && part_matches(rest, &part[at..]))
}

#[cfg(test)]
mod tests {
    mod places;

    use super::*;
    use serde_json::{Value, json};

    fn secret(name: &str, auths: &Value) -> (String, BTreeMap<String, Vec<u8>>) {
        let text = json!({ "auths": auths }).to_string().into_bytes();
        (name.to_owned(), BTreeMap::from([(DOCKER_CONFIG_KEY.to_owned(), text)]))
    }

    fn user(name: &str) -> Value {
        json!({ "username": name, "password": "hunter2" })
    }

    /// Who pulls an image; empty: no entry fits.
    fn puller(image: &str, secrets: &[(String, BTreeMap<String, Vec<u8>>)]) -> String {
        match pull_credentials(image, secrets).expect("understood") {
            None => String::new(),
            Some(PullCredentials { registry, proof: PullProof::Password { username, .. } }) => {
                format!("{username}@{registry}")
            }
            Some(PullCredentials { registry, proof: PullProof::IdentityToken(token) }) => format!("{token}@{registry}"),
        }
    }

    #[test]
    fn an_entry_fits_by_host_and_path_and_the_longest_path_wins() {
        let auths = json!({
            "r.example.com": user("all"),
            "r.example.com/team": user("team"),
            "https://r.example.com/team/app/": user("app"),
            "*.other.com": user("any"),
            "r.example.com:5000": user("port"),
            "https://index.docker.io/v1/": user("hub"),
        });
        let secrets = [secret("a", &auths)];
        for (image, expected) in [
            ("r.example.com/x:1", "all@r.example.com"),
            ("r.example.com/teams:1", "all@r.example.com"),
            ("r.example.com/team/x@sha256:1", "team@r.example.com"),
            ("r.example.com/team:1", "team@r.example.com"),
            ("r.example.com/team/app:1", "app@r.example.com"),
            ("r.example.com:5000/x", "port@r.example.com:5000"),
            ("eu.other.com/x", "any@eu.other.com"),
            ("a.eu.other.com/x", ""),
            ("other.com/x", ""),
            ("docker.io/library/busybox:latest", "hub@docker.io"),
            ("evil.com/r.example.com/team", ""),
            ("r.example.com.evil.com/x", ""),
        ] {
            assert_eq!(puller(image, &secrets), expected, "{image}");
        }
    }

    #[test]
    fn the_first_secret_wins_and_a_proof_has_several_forms() {
        let both = STANDARD.encode("bob:pa:ss");
        let secrets = [
            secret("none", &json!({ "z.com": user("z") })),
            secret("first", &json!({ "r.com": { "auth": both } })),
            secret("second", &json!({ "r.com": user("carol"), "t.com": { "identitytoken": "tok" } })),
        ];
        assert_eq!(
            (puller("r.com/x", &secrets), puller("t.com/x", &secrets)),
            ("bob@r.com".into(), "tok@t.com".into())
        );
        let found = pull_credentials("r.com/x", &secrets).expect("understood").expect("some");
        assert_eq!(found.proof, PullProof::Password { username: "bob".to_owned(), password: "pa:ss".to_owned() });
        assert!(!format!("{found:?} {:?}", found.proof).contains("pa:ss"));
    }

    #[test]
    fn a_secret_that_is_not_understood_is_named_and_not_shown() {
        let of =
            |text: &str| [("s".to_owned(), BTreeMap::from([(DOCKER_CONFIG_KEY.to_owned(), text.as_bytes().to_vec())]))];
        let wrong = |secrets: &[(String, BTreeMap<String, Vec<u8>>)]| {
            pull_credentials("r.com/x", secrets).expect_err("refused").to_string()
        };
        let empty = [("s".to_owned(), BTreeMap::new())];
        let all = [wrong(&empty), wrong(&of("hunter2")), wrong(&of(r#"{"auths":{"r.com":{"auth":"hunter2"}}}"#))];
        assert!(
            all[0].contains("has no key")
                && all[1].contains("is no configuration")
                && all[2].contains("entry \"r.com\"")
        );
        assert!(all.iter().all(|text| text.contains("Secret s") && !text.contains("hunter2")), "{all:?}");
        // Of an entry for another registry nothing is asked.
        assert_eq!(pull_credentials("r.com/x", &of(r#"{"auths":{"q.com":{"auth":"hunter2"}}}"#)), Ok(None));
    }
}
