//! What has been written of a request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::world::{Kind, version};

/// What a write left.
#[derive(Clone, Debug)]
pub struct Written {
    /// The kind.
    pub kind: Kind,
    /// The metadata of the object as the API server has it now; of a deleted one as they were known.
    pub meta: ObjectMeta,
}

impl Written {
    /// The index at which readers see it.
    pub fn index(&self) -> u64 {
        version(&self.meta)
    }
}
