//! Who stopped a job, in words, and how it starts again.
//!
//! Input is what the API server has recorded of the writer of `spec.stop`. Must never know how that record looks.

use std::borrow::Cow;

use drover_api::field_manager;
use jiff::{Timestamp, Unit};

use crate::ids::JobKey;

/// The writer of `spec.stop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopper {
    /// Its field manager.
    pub manager: String,
    /// When it wrote last.
    pub at: Timestamp,
}

/// Field managers of well-known programs, by how their names begin, and what people call them.
const KNOWN: [(&str, &str); 9] = [
    (field_manager::CLI, "`drover job stop`"),
    ("kubectl-client-side-apply", "`kubectl apply`"),
    ("kubectl-edit", "`kubectl edit`"),
    ("kubectl-patch", "`kubectl patch`"),
    ("kubectl-replace", "`kubectl replace`"),
    ("kubectl", "`kubectl apply --server-side`"),
    ("helm", "Helm"),
    ("kustomize-controller", "Flux"),
    ("argocd", "Argo CD"),
];

/// That a job is stopped, by whom and since when, and what starts it.
pub(super) fn explain(job: &JobKey, stopper: Option<&Stopper>) -> String {
    let by = stopper.map_or_else(String::new, |Stopper { manager, at }| {
        let second = at.round(Unit::Second).unwrap_or(*at);
        format!(" by {} at {second}", words(manager))
    });
    let JobKey { namespace, name } = job;
    format!(
        "the job was stopped{by}; start it with `drover job start {name} -n {namespace}`, or set spec.stop to false"
    )
}

fn words(manager: &str) -> Cow<'static, str> {
    let known = KNOWN.iter().find(|(prefix, _)| manager.starts_with(prefix));
    known.map_or_else(|| Cow::Owned(format!("field manager {manager}")), |(_, words)| Cow::Borrowed(*words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stopped_a_job_is_said_in_words() {
        let job = JobKey::new("shop", "web");
        let at = "2026-01-02T03:04:05Z".parse().unwrap();
        let by = |manager: &str| explain(&job, Some(&Stopper { manager: manager.to_owned(), at }));
        let remedy = "start it with `drover job start web -n shop`, or set spec.stop to false";
        for (manager, words) in [
            ("drover-cli", "`drover job stop`"),
            ("kubectl-client-side-apply", "`kubectl apply`"),
            ("kubectl", "`kubectl apply --server-side`"),
            ("kubectl-patch", "`kubectl patch`"),
            ("argocd-controller", "Argo CD"),
            ("terraform", "field manager terraform"),
        ] {
            assert_eq!(by(manager), format!("the job was stopped by {words} at 2026-01-02T03:04:05Z; {remedy}"));
        }
        assert_eq!(explain(&job, None), format!("the job was stopped; {remedy}"));
    }
}
