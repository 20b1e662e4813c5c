//! Sealing and opening with HPKE.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_CHACHA20_POLY1305 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey, HpkePublicKey};

/// Under this key stands a context that is sealed, alone in its map. A driver's own keys have no slash with this
/// prefix: it is drover's domain.
pub const SEALED: &str = "drover.dev/sealed";
/// What the key is used for; it keeps these texts apart from those of other protocols.
const INFO: &[u8] = b"drover.dev publish context v1";
/// Length of an X25519 key, and of an encapsulated secret, in bytes.
const KEY_LENGTH: usize = 32;

/// Why something was not sealed or not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The key is none of the suite.
    #[error("the sealing key is not {KEY_LENGTH} bytes in base64")]
    Key,
    /// The text is none that [`seal`] has made.
    #[error("what is sealed is damaged")]
    Damaged,
    /// It was sealed to another key or for another claim, or it was changed.
    #[error("it was sealed to another key of this node, or for another claim")]
    Foreign,
    /// The cryptographic library refused; nothing that an input explains.
    #[error("the library refuses: {0}")]
    Library(String),
}

/// The claim that a context is for; it opens for no other.
#[derive(Clone, Copy, Debug)]
pub struct ClaimId<'a> {
    /// Namespace of the volume's object.
    pub namespace: &'a str,
    /// Name of the volume's object.
    pub volume: &'a str,
    /// metadata.uid of the allocation.
    pub alloc_id: &'a str,
}

impl ClaimId<'_> {
    /// None of the three can hold the separator.
    fn bytes(&self) -> Vec<u8> {
        [self.namespace, self.volume, self.alloc_id].join("\n").into_bytes()
    }
}

/// The key of a node.
pub struct NodeKey {
    public: [u8; KEY_LENGTH],
    private: HpkePrivateKey,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKey").field("public", &self.public()).finish_non_exhaustive()
    }
}

impl NodeKey {
    /// A new one, from the system's random numbers.
    ///
    /// # Errors
    /// When the library has none.
    pub fn generate() -> Result<Self, SealError> {
        let (public, private) = SUITE.generate_key_pair().map_err(|error| library(&error))?;
        let public = public.0.try_into().map_err(|_| SealError::Key)?;
        Ok(Self { public, private })
    }

    /// What [`NodeKey::to_text`] has written.
    ///
    /// # Errors
    /// When the text is none of it.
    pub fn from_text(text: &str) -> Result<Self, SealError> {
        let (public, private) = text.trim().split_once('.').ok_or(SealError::Key)?;
        Ok(Self { public: key_of(public)?, private: HpkePrivateKey::from(key_of(private)?.to_vec()) })
    }

    /// Both halves, for a file that only the agent reads.
    pub fn to_text(&self) -> String {
        format!("{}.{}", self.public(), STANDARD.encode(self.private.secret_bytes()))
    }

    /// The half that everyone may know: 32 bytes in base64.
    pub fn public(&self) -> String {
        STANDARD.encode(self.public)
    }

    /// The context for a claim; one that is not sealed as it is.
    ///
    /// # Errors
    /// When it is sealed, and not to this key and for this claim.
    pub fn open(
        &self,
        context: &BTreeMap<String, String>,
        claim: ClaimId<'_>,
    ) -> Result<BTreeMap<String, String>, SealError> {
        let Some(sealed) = context.get(SEALED) else { return Ok(context.clone()) };
        let bytes = STANDARD.decode(sealed).map_err(|_| SealError::Damaged)?;
        let (secret, text) = bytes.split_at_checked(KEY_LENGTH).ok_or(SealError::Damaged)?;
        let secret = EncapsulatedSecret(secret.to_vec());
        let opened = SUITE.open(&secret, INFO, &claim.bytes(), text, &self.private).map_err(|_| SealError::Foreign)?;
        serde_json::from_slice(&opened).map_err(|_| SealError::Damaged)
    }
}

/// The context as only the owner of the public key reads it. An empty one holds nothing and stays so; without a key, as
/// of an agent of the version before, it stays as it is.
///
/// # Errors
/// When the key is none.
pub fn seal(
    context: &BTreeMap<String, String>,
    public: &str,
    claim: ClaimId<'_>,
) -> Result<BTreeMap<String, String>, SealError> {
    if context.is_empty() || public.is_empty() {
        return Ok(context.clone());
    }
    let key = HpkePublicKey(key_of(public)?.to_vec());
    let text = serde_json::to_vec(context).map_err(|error| SealError::Library(error.to_string()))?;
    let (secret, sealed) = SUITE.seal(INFO, &claim.bytes(), &text, &key).map_err(|error| library(&error))?;
    let whole = STANDARD.encode([secret.0, sealed].concat());
    Ok(BTreeMap::from([(SEALED.to_owned(), whole)]))
}

fn key_of(text: &str) -> Result<[u8; KEY_LENGTH], SealError> {
    let bytes = STANDARD.decode(text).map_err(|_| SealError::Key)?;
    bytes.try_into().map_err(|_| SealError::Key)
}

fn library(error: &rustls::Error) -> SealError {
    SealError::Library(error.to_string())
}

#[cfg(test)]
mod tests;
