//! The ways in: from a file's text to manifests.

use serde_json::Value;

use crate::document;
use crate::inputs::Inputs;
use crate::mapping;
use crate::source::{Fault, Source};
use crate::tree::{self, Tree};

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

/// The manifest of a job in the JSON of Nomad's HTTP API: the job alone, or as the member `Job` of a request. It is
/// that of the same job in HCL; what Nomad always writes and means a default is as if it were not there.
///
/// `name` is what errors call the file.
///
/// # Errors
/// Everything that is wrong, each with the path to it, as `Job.TaskGroups[0].Tasks[1].Vault`. What stands in no table
/// and says something is an error too.
pub fn wire_manifest(name: &str, text: &str) -> Result<Value, Vec<Fault>> {
    let source = Source::new(name, text);
    let tree = Tree::parse(source.text).map_err(|fault| vec![source.fault(fault.offset, fault.message)])?;
    mapping::wire_manifest(&tree, source.with(&tree))
}

/// The manifests of the volume in a request of Nomad's HTTP API that registers or creates one (`{"Volumes": […]}`): a
/// CSIVolume, behind the Secret that it names where the request holds secrets. They are those of the same volume in a
/// volume file.
///
/// `name` is what errors call the request.
///
/// # Errors
/// Everything that is wrong, each with the path to it, as `Volumes[0].PluginID`; none and several volumes are errors
/// too.
pub fn wire_volume_manifests(name: &str, text: &str) -> Result<Vec<Value>, Vec<Fault>> {
    let source = Source::new(name, text);
    let tree = Tree::parse(source.text).map_err(|fault| vec![source.fault(fault.offset, fault.message)])?;
    mapping::wire_volume(&tree, source.with(&tree))
}

/// Whether a text is a job in Nomad's JSON: an object that names no `apiVersion`, and a `Job`, or `TaskGroups` of its
/// own. A text that is no JSON is none.
pub fn is_wire(text: &str) -> bool {
    let names = tree::names(text.strip_prefix('\u{feff}').unwrap_or(text));
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    !has("apiVersion") && (has("Job") || has("TaskGroups"))
}
