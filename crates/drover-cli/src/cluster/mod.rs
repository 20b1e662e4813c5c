//! The cluster, as a command sees it: how it is reached, its objects, one manifest, and what its errors mean.

pub(crate) mod api_errors;
pub(crate) mod connect;
pub(crate) mod manifest;
pub(crate) mod objects;
pub(crate) mod watching;
