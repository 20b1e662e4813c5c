//! What anyone may read, so that others can check tokens: the public keys, and where they are.

use serde_json::{Value, json};

use super::keys::IdentityKey;
use super::signing::IdentitySigner;

/// Where the keys are.
const KEYS: &str = "/.well-known/jwks.json";
/// Where that is written, of `OpenID` Connect Discovery 1.0, section 4.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Answers those who ask for the documents; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct IdentityDocuments {
    signer: IdentitySigner,
}

impl IdentityDocuments {
    /// Those of this signer. Without an issuer there is no document for discovery: it has to name one.
    pub(crate) fn new(signer: IdentitySigner) -> Self {
        Self { signer }
    }

    /// The document at this path; none: there is none.
    pub(crate) fn at(&self, path: &str) -> Option<Value> {
        match path {
            KEYS => Some(self.keys()),
            DISCOVERY => self.signer.issuer().map(discovery),
            _ => None,
        }
    }

    fn keys(&self) -> Value {
        let keys = self.signer.keys();
        let of = |key: &IdentityKey| json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": key.kid, "x": key.x });
        json!({ "keys": keys.0.iter().map(of).collect::<Vec<_>>() })
    }
}

fn discovery(issuer: &str) -> Value {
    json!({
        "issuer": issuer,
        "jwks_uri": format!("{}{KEYS}", issuer.trim_end_matches('/')),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
    })
}
