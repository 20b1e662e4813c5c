//! Finalizers: set and removed by the controller only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// On a Job: its allocations are stopped before it goes.
pub const STOP_ALLOCATIONS: &str = "drover.dev/stop-allocations";
/// On an Allocation: nothing of it is left on its node before it goes.
pub const NODE_CLEANUP: &str = "drover.dev/node-cleanup";
/// On a CSIVolume: its claims are released before it goes.
pub const RELEASE_CLAIMS: &str = "drover.dev/release-claims";
/// On a HostVolume: no allocation uses it, and its node has taken away what drover made, before it goes.
pub const REMOVE_VOLUME: &str = "drover.dev/remove-volume";

/// Whether this finalizer holds the object.
pub fn is_held(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|one| one == name)
}

/// The object's finalizers but for this one: what a merge writes to release it.
pub fn without<'a>(meta: &'a ObjectMeta, name: &str) -> Vec<&'a str> {
    meta.finalizers.iter().flatten().map(String::as_str).filter(|one| *one != name).collect()
}
