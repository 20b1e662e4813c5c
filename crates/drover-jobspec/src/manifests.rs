//! The one way in: from a file's text to manifests.

use serde_json::Value;

use crate::document;
use crate::inputs::Inputs;
use crate::mapping;
use crate::source::{Fault, Source};

/// The manifests of a job file (a Job) or of a volume file (a CSIVolume, behind the Secret that it names).
///
/// `name` is what errors call the file.
///
/// # Errors
/// Everything that is wrong, in the order of the file.
pub fn manifests(name: &str, text: &str, inputs: &Inputs<'_>) -> Result<Vec<Value>, Vec<Fault>> {
    let source = Source::new(name, text);
    let file = document::read(source, inputs)?;
    let is_volume = file.blocks.iter().all(|block| block.kind != "job")
        && file.attributes.iter().any(|attribute| matches!(attribute.name.as_str(), "plugin_id" | "type"));
    if is_volume {
        return mapping::volumes(&file, source);
    }
    mapping::job(&file, source).map(|job| vec![job])
}
