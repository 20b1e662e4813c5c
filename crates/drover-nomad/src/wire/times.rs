//! Times as they travel.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// A date that is not set.
pub(crate) const UNSET: &str = "0001-01-01T00:00:00Z";

/// Nanoseconds since 1970; beyond the year 2262 the last that fits.
pub(crate) fn nanos(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

/// A date in RFC 3339.
pub(crate) fn date(at: Option<Timestamp>) -> Value {
    at.map_or_else(|| json!(UNSET), |at| json!(at.to_string()))
}

/// When an object was made, in nanoseconds since 1970.
pub(super) fn created_nanos(meta: &ObjectMeta) -> i64 {
    meta.creation_timestamp.as_ref().map_or(0, |time| nanos(time.0))
}

/// When an object was made, in seconds since 1970: what stands for `CreateIndex`, because no resourceVersion tells it.
pub(crate) fn created(meta: &ObjectMeta) -> u64 {
    meta.creation_timestamp.as_ref().map_or(0, |time| seconds(time.0))
}

/// Seconds since 1970.
pub(crate) fn seconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or(0)
}
