//! Identities of tasks: the keys that sign them, tokens, and what others need to check these.
//!
//! `keys` decides which key is made, signs and goes, over what is stored and the time; `keeper` carries that out on one
//! Secret, which all replicas share; `signing` makes tokens and reads them; `documents` is what anyone may read.
//!
//! Invariants: a key is published before it signs; the private part of a key goes when the next one signs; its public
//! part stays as long as an allocation lives that was made before that.

mod documents;
mod keeper;
mod keys;
mod signing;

pub(crate) use documents::IdentityDocuments;
pub(crate) use keeper::IdentityKeeper;
pub(crate) use signing::IdentitySigner;
