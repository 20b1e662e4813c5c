//! Who may talk to the API server: tokens, the key of service accounts, and a kubeconfig for each user.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::front_proxy::FrontProxy;
use crate::workspace::{hex, write_private};

/// A user of the API server with a token of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// A person who may do everything (`system:masters`).
    Admin,
    /// kube-controller-manager.
    ControllerManager,
    /// `droverd controller`, with the rights of its service account in a cluster.
    Controller,
    /// `droverd agent`, with the rights of its service account in a cluster.
    Agent,
    /// `droverd gateway`, with the rights of its service account in a cluster.
    Gateway,
    /// A person who may edit jobs and read the rest.
    Developer,
}

impl User {
    /// Every user.
    pub const ALL: [Self; 6] =
        [Self::Admin, Self::ControllerManager, Self::Controller, Self::Agent, Self::Gateway, Self::Developer];

    /// The name that the API server sees.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::ControllerManager => "kube-controller-manager",
            Self::Controller => "drover-controller",
            Self::Agent => "drover-agent",
            Self::Gateway => "drover-gateway",
            Self::Developer => "developer",
        }
    }

    fn group(self) -> &'static str {
        match self {
            // Without a service account for each of its controllers, the manager acts under its own name and needs all
            // rights.
            Self::Admin | Self::ControllerManager => "system:masters",
            Self::Controller | Self::Agent | Self::Gateway | Self::Developer => "drover-users",
        }
    }
}

/// A user beside those of [`User`]: a part of a whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The name that the API server sees, `system:node:n1`.
    pub name: String,
    /// Its group; none needed where the name has rights of its own.
    pub group: String,
}

/// The files that the API server reads its users and keys from.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) token_file: PathBuf,
    pub(super) account_key: PathBuf,
    pub(super) account_public_key: PathBuf,
    pub(super) front_proxy: FrontProxy,
    tokens: BTreeMap<String, String>,
}

impl Credentials {
    /// Reads the credentials of a data folder; makes them where they are missing.
    pub(super) fn open(folder: &Path, accounts: &[Account]) -> Result<Self> {
        let token_file = folder.join("tokens.csv");
        let (account_key, account_public_key) =
            (folder.join("service-account.key"), folder.join("service-account.pub"));
        if !token_file.is_file() {
            write_private(&token_file, &new_token_file(accounts)?)?;
        }
        if !account_key.is_file() || !account_public_key.is_file() {
            write_new_key(&account_key, &account_public_key)?;
        }
        let mut tokens = read_tokens(&token_file)?;
        if User::ALL.iter().any(|user| !tokens.contains_key(user.name())) {
            // Of a time when there were fewer users; those of then keep theirs.
            let known = fs::read_to_string(&token_file).with_context(|| format!("reading {}", token_file.display()))?;
            write_private(&token_file, &(known + &more_tokens(&tokens)?))?;
            tokens = read_tokens(&token_file)?;
        }
        let front_proxy = FrontProxy::open(folder)?;
        Ok(Self { token_file, account_key, account_public_key, front_proxy, tokens })
    }

    /// Renders the kubeconfig of a user.
    pub(super) fn kubeconfig(&self, user: &str, server: &str, authority: &[u8]) -> Result<String> {
        let token =
            self.tokens.get(user).with_context(|| format!("no token of {user} in {}", self.token_file.display()))?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "drover", "cluster": {"server": server, "certificate-authority-data": BASE64.encode(authority)}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "drover", "context": {"cluster": "drover", "user": user, "namespace": "default"}}],
            "current-context": "drover",
        });
        serde_saphyr::to_string(&config).context("rendering a kubeconfig")
    }
}

fn new_token_file(accounts: &[Account]) -> Result<String> {
    let users = User::ALL.into_iter().map(|user| (user.name(), user.group()));
    token_lines(users.chain(accounts.iter().map(|account| (&*account.name, &*account.group))))
}

/// Tokens of those who have none yet.
fn more_tokens(known: &BTreeMap<String, String>) -> Result<String> {
    let new = User::ALL.into_iter().filter(|user| !known.contains_key(user.name()));
    token_lines(new.map(|user| (user.name(), user.group())))
}

fn token_lines<'a>(all: impl Iterator<Item = (&'a str, &'a str)>) -> Result<String> {
    let mut lines = String::new();
    for (name, group) in all {
        lines.push_str(&[&new_token()?, ",", name, ",", name, ",\"", group, "\"\n"].concat());
    }
    Ok(lines)
}

fn new_token() -> Result<String> {
    let mut bytes = [0; 16];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        bail!("the system gives no random bytes for a token");
    }
    Ok(hex(&bytes))
}

fn read_tokens(file: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let row = |line: &str| {
        let (token, rest) = line.split_once(',')?;
        Some((rest.split(',').next()?.to_owned(), token.to_owned()))
    };
    Ok(text.lines().filter_map(row).collect())
}

/// P-256: made in a millisecond, and the API server takes it as it takes RSA.
fn write_new_key(private: &Path, public: &Path) -> Result<()> {
    let Ok(pair) = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING) else {
        bail!("no key for service accounts could be made")
    };
    let Ok(private_der) = pair.to_pkcs8v1() else { bail!("the key for service accounts could not be written") };
    let Ok(public_der) = pair.public_key().as_der() else {
        bail!("the public key of service accounts could not be written")
    };
    write_private(public, &pem("PUBLIC KEY", public_der.as_ref()))?;
    write_private(private, &pem("PRIVATE KEY", private_der.as_ref()))
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64.encode(der);
    let mut lines = format!("-----BEGIN {label}-----\n");
    for start in (0..text.len()).step_by(64) {
        lines += &text[start..text.len().min(start + 64)];
        lines.push('\n');
    }
    lines + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_made_once_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let first = Credentials::open(folder.path(), &[]).unwrap();
        let again = Credentials::open(folder.path(), &[]).unwrap();
        assert_eq!(first.tokens, again.tokens);
        assert_eq!(first.tokens.len(), User::ALL.len());
        let without = fs::read_to_string(&first.token_file).unwrap();
        let fewer: String =
            without.lines().filter(|line| !line.contains("gateway")).fold(String::new(), |all, line| all + line + "\n");
        write_private(&first.token_file, &fewer).unwrap();
        let grown = Credentials::open(folder.path(), &[]).unwrap();
        assert_eq!((grown.tokens.len(), &grown.tokens["admin"]), (User::ALL.len(), &first.tokens["admin"]));
        let key = fs::read_to_string(&first.account_key).unwrap();
        assert!(
            key.starts_with("-----BEGIN PRIVATE KEY-----\n") && key.ends_with("-----END PRIVATE KEY-----\n"),
            "{key}"
        );
    }

    #[test]
    fn a_kubeconfig_names_its_user_and_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::open(folder.path(), &[]).unwrap();
        let text = credentials.kubeconfig(User::Agent.name(), "https://127.0.0.1:6443", b"cert").unwrap();
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.auth_infos[0].name, "drover-agent");
        assert_eq!(
            config.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.as_deref(),
            Some("Y2VydA==")
        );
    }
}
