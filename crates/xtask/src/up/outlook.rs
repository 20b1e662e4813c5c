//! What has to be built before anything can start, and how long that takes: the first `up` on a machine is a long one.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use drover_testkit::control_plane::Binaries;
use drover_testkit::progress::Progress;

use super::layout::Layout;

/// The size of the machine that [`Part::took`] was measured on.
const MEASURED_CORES: usize = 2;

/// Something that is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The programs of the control plane, from Go.
    ControlPlane,
    /// The daemon, from Rust.
    Droverd,
}

impl Part {
    /// How long it took from nothing, alone on the machine.
    fn took(self) -> Duration {
        match self {
            Self::ControlPlane => Duration::from_mins(5),
            Self::Droverd => Duration::from_mins(2),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ControlPlane => "etcd and Kubernetes",
            Self::Droverd => "droverd",
        })
    }
}

/// The parts that are missing, and those of them that are not done.
#[derive(Debug)]
pub(super) struct Outlook {
    progress: Progress,
    started: Instant,
    missing: Vec<Part>,
    left: Mutex<Vec<Part>>,
}

impl Outlook {
    /// Looks for what is missing, and says so. What is only out of date takes seconds and is not worth a line.
    pub(super) fn open(layout: &Layout, needs_plane: bool, progress: &Progress) -> Self {
        let has_plane = !needs_plane || Binaries::is_built();
        let has_daemon = layout.bin().join("droverd").is_file();
        let parts = [(Part::ControlPlane, has_plane), (Part::Droverd, has_daemon)];
        let missing: Vec<Part> = parts.into_iter().filter(|(_, is_there)| !is_there).map(|(part, _)| part).collect();
        if !missing.is_empty() {
            let n_cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            progress.note(before(&missing, n_cores));
        }
        Self { progress: progress.clone(), started: Instant::now(), left: Mutex::new(missing.clone()), missing }
    }

    /// Says that a part is done, and what is left.
    pub(super) fn done(&self, part: Part) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let n_before = left.len();
        left.retain(|other| *other != part);
        if left.len() < n_before {
            self.progress.note(after(&self.missing, &left, self.started.elapsed()));
        }
    }
}

fn before(missing: &[Part], n_cores: usize) -> String {
    let parts: Vec<String> = missing.iter().map(|part| format!("{part} ({} min)", minutes(part.took()))).collect();
    let all: Duration = missing.iter().map(|part| part.took()).sum();
    format!(
        "to build, once: {}; about {} min on {MEASURED_CORES} cores with the modules at hand, and this machine has {n_cores}",
        parts.join(", "),
        minutes(all)
    )
}

fn after(missing: &[Part], left: &[Part], elapsed: Duration) -> String {
    let done: Vec<String> = missing.iter().filter(|part| !left.contains(part)).map(ToString::to_string).collect();
    let done = done.join(", ");
    if left.is_empty() {
        return format!("built after {} min: {done}; nothing is left", minutes(elapsed));
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    format!("built after {} min: {done}; left: {}", minutes(elapsed), left.join(", "))
}

/// Rounded up: an early end disappoints less than a late one.
fn minutes(duration: Duration) -> u64 {
    duration.as_secs().div_ceil(60).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_time_that_it_takes() {
        assert_eq!(
            before(&[Part::ControlPlane, Part::Droverd], 8),
            "to build, once: etcd and Kubernetes (5 min), droverd (2 min); about 7 min on 2 cores with the modules at hand, and this machine has 8"
        );
    }

    #[test]
    fn each_end_says_what_is_left() {
        let all = [Part::ControlPlane, Part::Droverd];
        assert_eq!(
            after(&all, &[Part::ControlPlane], Duration::from_secs(130)),
            "built after 3 min: droverd; left: etcd and Kubernetes"
        );
        assert_eq!(
            after(&all, &[], Duration::from_mins(5)),
            "built after 5 min: etcd and Kubernetes, droverd; nothing is left"
        );
    }
}
