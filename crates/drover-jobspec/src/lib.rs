//! Job files in Nomad's HCL, turned into manifests.
//!
//! Input: the text of a job file or a volume file, values for its variables and, where the caller has them, the files
//! that it reads. Output: manifests as JSON, ready to be applied, or everything that is wrong with the file, each with
//! its line and column. Nothing of a file is dropped silently: what has no counterpart is named with what to do
//! instead. It must never know a cluster, and it opens no file itself.

mod document;
mod evaluate;
mod functions;
mod inputs;
mod mapping;
mod source;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use inputs::{Files, Inputs};
pub use source::Fault;

use serde_json::Value;

use source::Source;

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
