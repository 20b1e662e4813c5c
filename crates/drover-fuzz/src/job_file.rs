//! Job files as people and clients of Nomad bring them: HCL, or Nomad's JSON.

use drover_api::Job;
use drover_jobspec::{Inputs, hcl, manifests, wire_job};

/// Reads one, and writes what comes of it in both forms, which must be readable again.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(made) = manifests("job.nomad.hcl", text, &Inputs::default()) else { return };
    let jobs = made.into_iter().filter(|manifest| manifest["kind"] == "Job");
    for job in jobs.filter_map(|manifest| serde_json::from_value::<Job>(manifest).ok()) {
        for written in [hcl(&job), serde_json::json!({ "Job": wire_job(&job) }).to_string()] {
            drop(manifests("again.nomad.hcl", &written, &Inputs::default()));
        }
    }
}
