//! What a path and a method ask for.
//!
//! Input: a method, and a path below `/v1/` with or without `%2F`: the API server decodes it when it carries a request.
//! Ids of jobs may hold `/`, so that actions are found by how a path ends. Must never know what is answered.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::acl::AclEndpoint;
use crate::client::{self, ClientEndpoint, NodeCall};
use crate::endpoint::{self, Endpoint};
use crate::fault::Fault;
use crate::paths::some_id;
use crate::search::Manner;
use crate::unbuilt;
use crate::writes::{self, WriteEndpoint};

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A read without a body.
    Read(Endpoint),
    /// A search, whose body says for what.
    Search(Manner),
    /// A change, or a question with a body.
    Write(WriteEndpoint),
    /// What would become of a job; its id.
    Plan(String),
    /// What changes from now on.
    Events,
    /// Who asks.
    Acl(AclEndpoint),
    /// What the agent of a node answers about an allocation.
    Client(ClientEndpoint),
    /// What it answers about the node.
    Node(NodeCall),
}

/// Reads a path.
///
/// # Errors
/// 404 for an unknown path, 400 with the remedy for one of Nomad's that drover does not serve, 405 for a wrong method.
pub fn read(method: &Method, path: &str) -> Result<Route, Fault> {
    let decoded = percent_decode_str(path).decode_utf8();
    let path = decoded.map_err(|_| Fault::bad("the path is no text: encode it as UTF-8"))?;
    let path = path.as_ref();
    if let Some(endpoint) = AclEndpoint::of(method, path) {
        return Ok(Route::Acl(endpoint));
    }
    if let Some(id) = planned(path) {
        let refused = || Fault::new(405, format!("/v1/{path} is asked for by PUT or POST"));
        return is_write(method).then_some(Route::Plan(id)).ok_or_else(refused);
    }
    if let Some(endpoint) = writes::endpoint(method, path) {
        return Ok(Route::Write(endpoint));
    }
    if writes::is_written(path) {
        return Err(Fault::new(405, format!("/v1/{path} is asked for by PUT, POST or DELETE")));
    }
    if let Some(call) = NodeCall::of(method, path) {
        return call.map(Route::Node);
    }
    if let Some(endpoint) = client::of(path) {
        return endpoint.by(method, path).map(Route::Client);
    }
    let Some(route) = known(path) else {
        return Err(unbuilt::refusal(path).unwrap_or_else(|| Fault::new(404, format!("/v1/{path} is not known here"))));
    };
    let is_search = matches!(route, Route::Search(_));
    let is_right = if is_search { is_write(method) } else { *method == Method::GET };
    if is_right {
        return Ok(route);
    }
    let refused = unbuilt::refusal_of_write(method, path);
    Err(refused.unwrap_or_else(|| {
        let right = if is_search { "PUT or POST" } else { "GET" };
        Fault::new(405, format!("/v1/{path} is asked for by {right}"))
    }))
}

/// Both are one.
fn is_write(method: &Method) -> bool {
    *method == Method::PUT || *method == Method::POST
}

/// The job whose plan a path asks for.
fn planned(path: &str) -> Option<String> {
    some_id(path.strip_prefix("job/")?.strip_suffix("/plan")?)
}

fn known(path: &str) -> Option<Route> {
    match path {
        "search" => Some(Route::Search(Manner::Prefix)),
        "search/fuzzy" => Some(Route::Search(Manner::Fuzzy)),
        "event/stream" => Some(Route::Events),
        _ => endpoint::of(path).map(Route::Read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &Method, path: &str) -> u16 {
        read(method, path).map_or_else(|fault| fault.code, |_| 200)
    }

    fn of(path: &str) -> Endpoint {
        let Route::Read(endpoint) = read(&Method::GET, path).expect(path) else { panic!("no read") };
        endpoint
    }

    #[test]
    fn a_job_is_what_its_action_leaves_of_the_path() {
        for id in ["a/b", "a%2Fb"] {
            assert_eq!(of(&format!("job/{id}/allocations")), Endpoint::JobAllocations("a/b".to_owned()));
            assert_eq!(of(&format!("job/{id}")), Endpoint::Job("a/b".to_owned()));
        }
        assert_eq!(of("job/web/deployment"), Endpoint::JobDeployment("web".to_owned()));
        assert_eq!(of("job/web/deployments"), Endpoint::JobDeployments("web".to_owned()));
        assert_eq!(of("job/allocations"), Endpoint::Job("allocations".to_owned()));
        assert_eq!(of("job/a%20%C3%A4/summary"), Endpoint::JobSummary("a ä".to_owned()));
        assert_eq!(of("volume/csi/a%2Fb"), Endpoint::Volume("a/b".to_owned()));
        assert_eq!(of("volume/host/u"), Endpoint::HostVolume("u".to_owned()));
        assert_eq!(of("volumes/snapshot"), Endpoint::Snapshots);
        assert_eq!(of("volumes/external"), Endpoint::ExternalVolumes);
        assert_eq!(of("deployment/allocations/u"), Endpoint::DeploymentAllocations("u".to_owned()));
        assert_eq!(of("node/u/allocations"), Endpoint::NodeAllocations("u".to_owned()));
    }

    #[test]
    fn p_012_a_wrong_method_is_405() {
        assert_eq!(code(&Method::POST, "allocations"), 405);
        assert_eq!(code(&Method::GET, "search"), 405);
        assert_eq!((code(&Method::GET, "event/stream"), code(&Method::PUT, "event/stream")), (200, 405));
        for path in ["search", "search/fuzzy"] {
            assert_eq!(
                (code(&Method::PUT, path), code(&Method::POST, path), code(&Method::GET, path)),
                (200, 200, 405)
            );
        }
        for path in [
            "job/web/dispatch",
            "job/a/b/plan",
            "node/u/drain",
            "allocation/u/stop",
            "validate/job",
            "volume/csi/v/create",
        ] {
            assert_eq!((code(&Method::PUT, path), code(&Method::GET, path)), (200, 405), "{path}");
        }
        for path in ["nodes", "regions", "agent/self", "deployments", "job/web/summary", "allocation/u"] {
            assert_eq!((code(&Method::GET, path), code(&Method::DELETE, path)), (200, 405), "{path}");
        }
    }

    #[test]
    fn g_046_a_path_of_nomads_that_is_not_served_says_what_to_do_instead_and_others_are_unknown() {
        for (method, path, remedy) in [
            (Method::POST, "job/a/b/action", "drover alloc exec"),
            (Method::PUT, "client/allocation/u/pause", "no schedule"),
            (Method::GET, "var/nomad/jobs/web", "Secret"),
            (Method::PUT, "vars", "Secret"),
            (Method::POST, "quota", "ResourceQuota"),
            (Method::PUT, "acl/policy/ops", "RBAC"),
            (Method::PUT, "operator/scheduler/configuration", "controller.config.scheduler"),
            (Method::PUT, "volume/host/create", "kubectl apply"),
            (Method::DELETE, "volume/host/u/delete", "kubectl apply"),
            (Method::DELETE, "evaluations", "go by themselves"),
        ] {
            let fault = read(&method, path).expect_err(path);
            assert_eq!(fault.code, 400, "{path}");
            assert!(fault.message.contains(remedy), "{path}: {}", fault.message);
        }
        for path in [
            "",
            "job",
            "job/",
            "jobz",
            "allocation/a/b",
            "node/u/nothing",
            "plugin/u",
            "deployment/",
            "v1/jobs",
            "client/fs/rm/u",
        ] {
            assert_eq!(code(&Method::GET, path), 404, "{path}");
        }
        assert_eq!(code(&Method::GET, "job/%ff"), 400);
    }
}
