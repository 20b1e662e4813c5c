//! What makes addresses and names of Services lead somewhere: Kubernetes' own proxy on each node, and a DNS beside the
//! control plane; and a program that asks a server by its name.
//!
//! Built only for clusters that want it. Must never know which Services there are, but for that of the DNS.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{from_value, json};

use super::settings::DNS_SERVICE;
use crate::image;
use crate::programs::{GoModule, Output, Programs};
use crate::progress::Progress;
use crate::workspace;

/// The image of a pod that asks a server again and again: its arguments are a URL and how often in a second.
pub const REQUESTS_IMAGE: &str = "drover.dev/requests:1";
/// Where the DNS answers: an address of the control plane's namespace.
pub(super) const DNS_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 53);
/// The namespace of what a cluster brings along.
const SYSTEM: &str = "kube-system";

const PROGRAMS: Programs = Programs {
    name: "service-network",
    modules: &[
        GoModule {
            folder: "tools/kube-proxy",
            packages: &["k8s.io/kubernetes/cmd/kube-proxy"],
            links_version: true,
            ..GoModule::PLAIN
        },
        GoModule { folder: "tools/coredns", packages: &["."], output: Output::File("coredns"), ..GoModule::PLAIN },
        GoModule { folder: "tools/requests", packages: &["."], output: Output::File("requests"), ..GoModule::PLAIN },
    ],
    instead: "run tests of Services where Go is installed (a build takes about 2 minutes)",
};

/// The folder of the programs, which are built when they are missing.
///
/// # Errors
/// When nftables is not installed, by which the proxy works, Go is not, or a build fails.
pub(super) fn find_or_build(progress: &Progress) -> Result<PathBuf> {
    if workspace::find_on_path("nft").is_none() {
        bail!("nft is missing, by which kube-proxy works: `apt-get install nftables`");
    }
    PROGRAMS.find_or_build(progress).context("the programs of a cluster's Services")
}

/// The proxy's program.
pub(super) fn proxy(programs: &Path) -> PathBuf {
    programs.join("kube-proxy")
}

/// The DNS's program, with its arguments after its configuration is written into this folder.
///
/// # Errors
/// When that cannot be written.
pub(super) fn dns(programs: &Path, folder: &Path, kubeconfig: &Path) -> Result<(PathBuf, Vec<String>)> {
    let file = folder.join("Corefile");
    let text = format!(
        "cluster.local:53 {{
    bind {DNS_ADDRESS}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
        ttl 5
    }}
    cache 5
}}
",
        kubeconfig = kubeconfig.display(),
    );
    fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    Ok((programs.join("coredns"), vec!["-conf".to_owned(), file.display().to_string()]))
}

/// Makes the Service by which pods find the DNS.
///
/// # Errors
/// When the API server refuses it.
pub(super) async fn publish_dns(client: Client) -> Result<()> {
    let service = json!({
        "metadata": { "name": "kube-dns", "namespace": SYSTEM },
        "spec": { "clusterIP": DNS_SERVICE, "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
        ] },
    });
    let slice = json!({
        "metadata": { "name": "kube-dns", "namespace": SYSTEM, "labels": {
            "kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": "drover-testkit",
        } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [DNS_ADDRESS.to_string()] }],
        "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" },
        ],
    });
    let service: Service = from_value(service).context("the Service of the DNS")?;
    let slice: EndpointSlice = from_value(slice).context("the endpoints of the DNS")?;
    let options = PostParams::default();
    let services: Api<Service> = Api::namespaced(client.clone(), SYSTEM);
    services.create(&options, &service).await.context("making the Service of the DNS")?;
    let slices: Api<EndpointSlice> = Api::namespaced(client, SYSTEM);
    slices.create(&options, &slice).await.context("making the endpoints of the DNS")?;
    Ok(())
}

/// The archive of [`REQUESTS_IMAGE`], in this folder.
///
/// # Errors
/// When it cannot be written.
pub(super) fn requests_image(programs: &Path, folder: &Path) -> Result<PathBuf> {
    image::archive_of(REQUESTS_IMAGE, "requests", &programs.join("requests"), &folder.join("requests.tar"))
}
