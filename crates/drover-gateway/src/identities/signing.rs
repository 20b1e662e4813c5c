//! Tokens: made with the key that signs now, and read with the one that they name.

use std::sync::{Arc, PoisonError, RwLock};

use drover_clock::SharedClock;
use drover_core::task::identity::{self, IdentityClaims, IdentityError, IdentityHolder, IdentityMaking};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};

use super::keys::IdentityKeys;

/// Makes tokens and reads them; clones are the same.
#[derive(Clone)]
pub(crate) struct IdentitySigner {
    issuer: Option<Arc<str>>,
    clock: SharedClock,
    keys: Arc<RwLock<Arc<IdentityKeys>>>,
}

impl std::fmt::Debug for IdentitySigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdentitySigner")
    }
}

impl IdentitySigner {
    /// One without keys. An empty issuer is none.
    pub(crate) fn new(issuer: &str, clock: SharedClock) -> Self {
        Self { issuer: (!issuer.is_empty()).then(|| issuer.into()), clock, keys: Arc::default() }
    }

    /// Who tokens say has made them.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The time by which keys and tokens are judged.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// The keys as they are now.
    pub(super) fn keys(&self) -> Arc<IdentityKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes other keys.
    pub(super) fn replace(&self, keys: IdentityKeys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// A token, and what it says.
    ///
    /// # Errors
    /// When no key is there, or it cannot sign.
    pub(crate) fn sign(&self, holder: IdentityHolder<'_>) -> Result<(String, IdentityClaims), String> {
        let (keys, now) = (self.keys(), self.clock.now());
        let none = "the gateway has no key to sign identities with yet";
        let key = keys.active(now).ok_or(none)?;
        let private = key.private().ok_or("the gateway's key for identities is none")?;
        let number = format!("{:032x}", fastrand::u128(..));
        let making = IdentityMaking { issuer: self.issuer.as_deref(), number: &number, now };
        let claims = identity::claims(holder, making);
        let header = Header { kid: Some(key.kid.clone()), ..Header::new(Algorithm::EdDSA) };
        let token = jsonwebtoken::encode(&header, &claims, &EncodingKey::from_ed_der(&private));
        token.map(|token| (token, claims)).map_err(|error| format!("an identity cannot be signed: {error}"))
    }

    /// Whether a token is signed as these are, or pretends to be.
    pub(crate) fn is_meant(token: &str) -> bool {
        jsonwebtoken::decode_header(token).is_ok_and(|header| header.alg == Algorithm::EdDSA)
    }

    /// What a token says, if a key of these has signed it. Whether that still counts is asked with
    /// [`identity::check`].
    ///
    /// # Errors
    /// When no such key has.
    pub(crate) fn read(&self, token: &str) -> Result<IdentityClaims, IdentityError> {
        let unknown = |why: &dyn std::fmt::Display| IdentityError::Unknown(why.to_string());
        let header = jsonwebtoken::decode_header(token).map_err(|error| unknown(&error))?;
        let keys = self.keys();
        let key =
            header.kid.as_deref().and_then(|kid| keys.named(kid)).ok_or_else(|| unknown(&"its key is unknown"))?;
        // Time and audience are judged with the allocation, by one clock.
        let mut validation = Validation::new(Algorithm::EdDSA);
        (validation.validate_exp, validation.validate_aud) = (false, false);
        validation.required_spec_claims.clear();
        let key = DecodingKey::from_ed_components(&key.x).map_err(|error| unknown(&error))?;
        let read = jsonwebtoken::decode::<IdentityClaims>(token, &key, &validation);
        read.map(|read| read.claims).map_err(|error| unknown(&error))
    }
}
