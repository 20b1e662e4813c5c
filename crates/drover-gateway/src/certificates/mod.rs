//! The gateway's own certificates: made by whichever replica is first, kept in one Secret under its resourceVersion,
//! published before they sign, renewed while a third of their time is left.
//!
//! `authority` decides, `keeper` carries out, `tls` hands them to the listeners. Must never know who connects.

mod authority;
mod keeper;
mod optional;
mod tls;

pub(crate) use keeper::{CERTIFICATE, Keeper, Watched, withdraw};
pub(crate) use optional::{Believer, OptionalCertificates};
pub(crate) use tls::{HTTP2, Served, agents_config, provider, users_config};
