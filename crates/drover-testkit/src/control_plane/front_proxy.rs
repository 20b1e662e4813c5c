//! By what the API server proves itself to aggregated APIs, for which it passes on who asks.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

use crate::workspace::write_private;

/// The name in the certificate, and the only one that aggregated APIs take.
const NAME: &str = "front-proxy-client";

/// Its files.
#[derive(Debug)]
pub(super) struct FrontProxy {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl FrontProxy {
    /// Reads them from a folder; makes them where they are missing.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = |name: &str| folder.join(name);
        let files = Self {
            authority: path("front-proxy-ca.crt"),
            certificate: path("front-proxy-client.crt"),
            key: path("front-proxy-client.key"),
        };
        if ![&files.authority, &files.certificate, &files.key].iter().all(|file| file.is_file()) {
            files.make().context("making the certificate of the API server's proxy")?;
        }
        Ok(files)
    }

    fn make(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "front-proxy-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &issuer)?;
        write_private(&self.authority, &authority.pem())?;
        write_private(&self.certificate, &certificate.pem())?;
        write_private(&self.key, &key.serialize_pem())
    }

    /// What the API server is told of them.
    pub(super) fn args(&self) -> Vec<String> {
        vec![
            format!("--requestheader-client-ca-file={}", self.authority.display()),
            format!("--requestheader-allowed-names={NAME}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            format!("--proxy-client-cert-file={}", self.certificate.display()),
            format!("--proxy-client-key-file={}", self.key.display()),
        ]
    }
}
