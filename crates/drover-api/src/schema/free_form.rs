//! Objects whose fields are not described.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A schema of an object whose fields are not described: a driver's own settings.
pub(crate) fn free_form_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
