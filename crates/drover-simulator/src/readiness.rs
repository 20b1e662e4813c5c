//! Whether requests come to what a slice names.

use serde_json::Value;

/// Whether an endpoint of this slice is ready.
pub(super) fn is_ready(slice: &Value) -> bool {
    slice["endpoints"].as_array().into_iter().flatten().any(|endpoint| endpoint["conditions"]["ready"] == true)
}
