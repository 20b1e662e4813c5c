//! The table of targets.

use std::path::PathBuf;

use crate::{job_file, job_spec, nomad_request, nomad_write};

/// Something that reads bytes of others.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder of its inputs.
    pub name: &'static str,
    /// Whose bytes it reads.
    pub reads: &'static str,
    /// Reads them.
    pub(crate) run: fn(&[u8]),
    /// Whether its inputs are JSON, so that they can be changed as such.
    pub is_json: bool,
}

/// The memory that one input may take at a time, in bytes.
const MOST_BYTES: u64 = 64 << 20;

impl Target {
    /// Reads an input, and returns the memory that this took at most at a time, in bytes.
    ///
    /// # Panics
    /// When the input breaks something, or takes more than 64 MiB.
    #[must_use]
    pub fn read(&self, input: &[u8]) -> u64 {
        let taken = allocation_counter::measure(|| (self.run)(input)).bytes_max;
        assert!(taken <= MOST_BYTES, "{} has taken {taken} bytes of memory for one input", self.name);
        taken
    }

    /// The folder of its inputs.
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}

/// All of them.
pub const fn targets() -> &'static [Target] {
    &[
        Target { name: "job_spec", reads: "the spec of a Job, an editor's", run: job_spec::run, is_json: true },
        Target {
            name: "supervisor_protocol",
            reads: "requests and answers of the supervisor's socket",
            run: drover_supervisor::fuzzing::protocol,
            is_json: false,
        },
        Target {
            name: "socket_protocol",
            reads: "requests to the agent's socket",
            run: drover_agent::fuzzing::socket,
            is_json: false,
        },
        Target {
            name: "csi_answers",
            reads: "what a CSI driver answers",
            run: drover_agent::fuzzing::csi_answers,
            is_json: false,
        },
        Target {
            name: "state_file",
            reads: "the agent's state file",
            run: drover_agent::fuzzing::state_file,
            is_json: true,
        },
        Target {
            name: "nomad_request",
            reads: "paths, parameters, filters and searches of Nomad's clients",
            run: nomad_request::run,
            is_json: false,
        },
        Target {
            name: "nomad_write",
            reads: "writes of Nomad's clients, whose bodies are JSON",
            run: nomad_write::run,
            is_json: false,
        },
        Target { name: "job_file", reads: "job files in HCL and JSON", run: job_file::run, is_json: false },
        Target { name: "scenario", reads: "scenarios", run: drover_simulator::fuzzing::scenario, is_json: false },
    ]
}

/// One of them.
pub fn by_name(name: &str) -> Option<&'static Target> {
    targets().iter().find(|target| target.name == name)
}
