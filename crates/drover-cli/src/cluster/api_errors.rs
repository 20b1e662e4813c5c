//! Errors of the API server, for people: what, on which object, why, and the next command.

use anyhow::anyhow;
use kube::Resource;

use crate::ui::output::short_kind;

/// An object that a command is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// What the command does to it, as a verb.
    pub(crate) verb: &'a str,
    /// Its namespace, where that says which one is meant.
    pub(crate) namespace: Option<&'a str>,
    /// Its name; empty for a list.
    pub(crate) name: &'a str,
}

/// That a namespace is missing, and what to do.
pub(crate) fn no_namespace(namespace: &str) -> String {
    format!(
        "there is no namespace {namespace}; make it with `kubectl create namespace {namespace}`, or choose another with -n"
    )
}

/// Turns an error of a request about a `K` into one for people.
pub(crate) fn explain<K: Resource<DynamicType = ()>>(about: About<'_>, error: kube::Error) -> anyhow::Error {
    let About { verb, namespace, name } = about;
    let kind = short_kind(&K::kind(&()));
    let what = if name.is_empty() { format!("{kind}s") } else { format!("{kind}/{name}") };
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let kube::Error::Api(status) = &error else {
        return anyhow::Error::new(error).context(format!(
            "cannot {verb} {what}{place}: the API server did not answer; `kubectl cluster-info` says whether it can be reached"
        ));
    };
    let reason = status.message.as_str();
    match status.code {
        404 if reason.contains("could not find the requested resource") => {
            anyhow!("cannot {verb} {what}: the cluster does not know drover's kinds; install drover, or apply crds/")
        }
        404 if reason.starts_with("namespaces ") => {
            anyhow!("cannot {verb} {what}: {}", no_namespace(namespace.unwrap_or_default()))
        }
        404 if namespace.is_none() => {
            anyhow!("cannot {verb} {what}: there is none; `kubectl get {kind}` shows all")
        }
        404 => anyhow!(
            "cannot {verb} {what}: there is none{place}; `kubectl get {kind} -A` shows all, -n NAMESPACE chooses another namespace"
        ),
        403 => {
            // Nodes are part of no namespace, and of no role that a namespace's users have.
            let is_node = kind == "cnode";
            let role = match verb {
                _ if is_node => "drover-node-admin",
                "read" | "list" => "drover-view",
                // Whoever may change an object's metadata may change its spec, which is the controller's.
                "free" => "cluster-admin",
                _ => "drover-edit",
            };
            anyhow!("you may not {verb} {what}{place}: {reason}; ask for the role {role}")
        }
        401 => anyhow!("cannot {verb} {what}: the API server does not know you; log in again, or give --kubeconfig"),
        409 => {
            let flag = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
            anyhow!(
                "cannot {verb} {what}: another writer changed it meanwhile; look at it with `kubectl get {what}{flag} -o yaml`, and try again"
            )
        }
        422 => anyhow!("cannot {verb} {what}{place}: {reason}"),
        _ => anyhow!("cannot {verb} {what}{place}: {reason}; try again"),
    }
}
