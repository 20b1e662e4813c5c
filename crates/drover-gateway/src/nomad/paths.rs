//! The two places at which the API stands.

/// On the users' port.
const OWN: &str = "/v1/";
/// Behind the API server, where a kubeconfig is enough.
const PROXIED: &str = "/apis/subresources.drover.dev/v1alpha1/gateways/nomad/proxy/v1/";

/// What is asked for, below `/v1/`; none: the path is none of this API.
pub(crate) fn path_of(path: &str) -> Option<&str> {
    path.strip_prefix(OWN).or_else(|| path.strip_prefix(PROXIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_places_lead_to_one_path() {
        let proxied = "/apis/subresources.drover.dev/v1alpha1/gateways/nomad/proxy/v1/job/a%2Fb";
        assert_eq!((path_of("/v1/job/a%2Fb"), path_of(proxied)), (Some("job/a%2Fb"), Some("job/a%2Fb")));
        assert_eq!((path_of("/v1"), path_of("/v2/jobs"), path_of("/apis/v1/jobs")), (None, None, None));
    }
}
