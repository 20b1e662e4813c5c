//! Paths of the API.

use crate::answers::Refusal;
use crate::reviews::Meanwhile;
use drover_api::names::{NAME_LIMIT, is_dns_label};
use http::Method;

/// An operation on an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subresource {
    /// A task's output.
    Log,
    /// A command in a task.
    Exec,
    /// Files.
    Fs,
    /// What the tasks use.
    Stats,
    /// What its checks found last.
    Checks,
    /// Starts tasks again.
    Restart,
    /// Sends a signal.
    Signal,
    /// Ends the allocation.
    Stop,
    /// Deletes the files of one that has ended.
    Gc,
}

/// Every operation.
pub(super) const SUBRESOURCES: [Subresource; 9] = [
    Subresource::Log,
    Subresource::Exec,
    Subresource::Fs,
    Subresource::Stats,
    Subresource::Checks,
    Subresource::Restart,
    Subresource::Signal,
    Subresource::Stop,
    Subresource::Gc,
];

impl Subresource {
    /// Its name in paths and roles.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Exec => "exec",
            Self::Fs => "fs",
            Self::Stats => "stats",
            Self::Checks => "checks",
            Self::Restart => "restart",
            Self::Signal => "signal",
            Self::Stop => "stop",
            Self::Gc => "gc",
        }
    }

    /// What happens while the API server cannot be asked: reads go on for a while, and what does something does not.
    pub(super) const fn meanwhile(self) -> Meanwhile {
        match self {
            Self::Log | Self::Fs | Self::Stats | Self::Checks => Meanwhile::GoesOn,
            Self::Exec | Self::Restart | Self::Signal | Self::Stop | Self::Gc => Meanwhile::Stops,
        }
    }

    const fn method(self) -> Method {
        match self {
            Self::Log | Self::Exec | Self::Fs | Self::Stats | Self::Checks => Method::GET,
            Self::Restart | Self::Signal | Self::Stop | Self::Gc => Method::POST,
        }
    }
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) namespace: String,
    pub(super) allocation: String,
    pub(super) subresource: Subresource,
}

const PREFIX: &str = "/apis/subresources.drover.dev/v1alpha1/namespaces/";

/// Reads a path. Names are not decoded: none that Kubernetes allows needs it.
///
/// # Errors
/// 404 for what is no path of the API, 405 for a wrong method.
pub(super) fn parse(method: &Method, path: &str) -> Result<Route, Refusal> {
    let unknown = || Refusal::new(404, format!("{path} is not known here"));
    let parts: Vec<&str> = path.strip_prefix(PREFIX).ok_or_else(unknown)?.split('/').collect();
    let [namespace, "allocations", allocation, subresource] = parts[..] else { return Err(unknown()) };
    let subresource = SUBRESOURCES.into_iter().find(|known| known.name() == subresource).ok_or_else(unknown)?;
    if !is_dns_label(namespace) || !is_name(allocation) {
        return Err(Refusal::new(400, "namespace and allocation must be names of objects"));
    }
    if *method != subresource.method() {
        let name = subresource.name();
        return Err(Refusal::new(405, format!("{name} is asked for by {}", subresource.method())));
    }
    Ok(Route { namespace: namespace.to_owned(), allocation: allocation.to_owned(), subresource })
}

fn is_name(text: &str) -> bool {
    text.len() <= NAME_LIMIT
        && !text.is_empty()
        && text.split('.').all(|part| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(method: &Method, path: &str) -> u16 {
        parse(method, path).map_or_else(|refusal| refusal.code, |_| 200)
    }

    #[test]
    fn a_path_names_namespace_allocation_and_operation() {
        let base = "/apis/subresources.drover.dev/v1alpha1/namespaces/shop/allocations/web-g-0-1f";
        let found = parse(&Method::GET, &format!("{base}/log")).expect("a route");
        let wanted =
            Route { namespace: "shop".to_owned(), allocation: "web-g-0-1f".to_owned(), subresource: Subresource::Log };
        assert_eq!(found, wanted);
        assert_eq!(code(&Method::POST, &format!("{base}/log")), 405);
        assert_eq!(code(&Method::GET, &format!("{base}/restart")), 405);
        assert_eq!(code(&Method::POST, &format!("{base}/restart")), 200);
        for path in ["", "/log/more", "/nothing", "/"] {
            assert_eq!(code(&Method::GET, &format!("{base}{path}")), 404, "{path}");
        }
        assert_eq!(code(&Method::GET, "/"), 404);
        let strange = "/apis/subresources.drover.dev/v1alpha1/namespaces/shop/allocations/..%2f/log";
        assert_eq!(code(&Method::GET, strange), 400);
    }
}
