//! `drover nomad env`: what leads clients to the gateway's own port, with the proof that a kubeconfig holds.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::config::AuthInfo;
use kube::{Api, Client, ResourceExt as _};
use secrecy::ExposeSecret;

use crate::cluster::connect::ConnectArgs;
use crate::ui::stdio::answer;

/// The gateway's Service.
const SERVICE: &str = "drover-gateway";
/// What holds the authority of its certificate, and under which key.
const AUTHORITY: (&str, &str) = ("drover-gateway-ca", "ca.crt");

/// Arguments of `drover nomad env`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The gateway must be reached from here by its own port. Where it is not, take `drover nomad proxy`. A kubeconfig \
                  that runs a program for each token has none to print; then too."
)]
pub(crate) struct EnvironmentArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// drover's own namespace.
    #[arg(long, default_value = drover_api::SYSTEM_NAMESPACE)]
    system_namespace: String,
    /// Where the gateway is reached, as `https://10.0.0.7:8443`; default the address of its Service.
    #[arg(long)]
    address: Option<String>,
}

/// Prints it.
pub(super) async fn print(args: &EnvironmentArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let space = args.system_namespace.as_str();
    let name = format!("{SERVICE}.{space}.svc");
    let address = match &args.address {
        Some(address) => address.clone(),
        None => service_address(&connection.client, space, &name).await?,
    };
    let authority = authority(&connection.client, space).await?;
    let folder = folder()?;
    let mut all = vec![
        ("NOMAD_ADDR", address),
        ("NOMAD_TLS_SERVER_NAME", name),
        ("NOMAD_CACERT", keep(&folder, "ca.crt", authority.as_bytes())?),
        ("NOMAD_NAMESPACE", connection.namespace),
    ];
    all.extend(proof(&args.connect.config().await?.auth_info, &folder)?);
    answer(exports(&all).as_bytes())?;
    Ok(0)
}

/// Lines of a shell that set variables.
pub(super) fn exports(all: &[(&str, String)]) -> String {
    let quoted = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
    all.iter().map(|(name, value)| ["export ", name, "=", &quoted(value), "\n"].concat()).collect()
}

async fn service_address(client: &Client, namespace: &str, name: &str) -> anyhow::Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services.get(SERVICE).await.with_context(|| {
        format!("reading service/{SERVICE} in namespace {namespace}; give --address, or --system-namespace")
    })?;
    let balancer = service.status.and_then(|status| status.load_balancer).and_then(|it| it.ingress);
    let outside = balancer.into_iter().flatten().find_map(|ingress| ingress.ip.or(ingress.hostname));
    Ok(format!("https://{}:443", outside.unwrap_or_else(|| name.to_owned())))
}

async fn authority(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let (name, key) = AUTHORITY;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get(name).await.with_context(|| format!("reading configmap/{name} in namespace {namespace}"))?;
    let found = map.data.as_ref().and_then(|data| data.get(key)).filter(|text| !text.is_empty());
    found.cloned().with_context(|| format!("configmap/{} has no {key} yet: is the gateway running?", map.name_any()))
}

/// By what the user of a kubeconfig proves itself.
fn proof(user: &AuthInfo, folder: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    if let Some(token) = &user.token {
        return Ok(vec![("NOMAD_TOKEN", token.expose_secret().to_owned())]);
    }
    if let Some(file) = &user.token_file {
        let token = fs::read_to_string(file).with_context(|| format!("reading the token in {file}"))?;
        return Ok(vec![("NOMAD_TOKEN", token.trim().to_owned())]);
    }
    let certificate = (&user.client_certificate, &user.client_certificate_data);
    let key = (&user.client_key, &user.client_key_data);
    let kept = |path: &Option<String>, data: Option<&str>, name: &str| -> anyhow::Result<Option<String>> {
        match (path, data) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Some(data)) => {
                let bytes: k8s_openapi::ByteString = serde_json::from_value(data.into())
                    .with_context(|| format!("the kubeconfig's {name} is not base64"))?;
                Ok(Some(keep(folder, name, &bytes.0)?))
            }
            (None, None) => Ok(None),
        }
    };
    let certificate = kept(certificate.0, certificate.1.as_deref(), "client.crt")?;
    let key = kept(key.0, key.1.as_ref().map(ExposeSecret::expose_secret), "client.key")?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(vec![("NOMAD_CLIENT_CERT", certificate), ("NOMAD_CLIENT_KEY", key)]),
        _ => bail!(
            "the kubeconfig's user has neither a token nor a certificate of its own: take `drover nomad proxy`, or a token by \
             `kubectl create token`"
        ),
    }
}

/// Where files for clients lie.
fn folder() -> anyhow::Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")));
    let folder = cache.context("neither XDG_CACHE_HOME nor HOME is set: set one")?.join("drover").join("nomad");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Writes a file that only its user reads; its path.
fn keep(folder: &Path, name: &str, bytes: &[u8]) -> anyhow::Result<String> {
    let (path, unfinished) = (folder.join(name), folder.join(format!("{name}.{}", std::process::id())));
    let written = || -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        std::io::Write::write_all(&mut file, bytes)?;
        // Another shell may be reading the old one.
        fs::rename(&unfinished, &path)
    };
    written().with_context(|| format!("writing {}", path.display()))?;
    Ok(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_lines_that_a_shell_reads_back() {
        let text = exports(&[("A", "it's $x".to_owned()), ("B", String::new())]);
        assert_eq!(text, "export A='it'\\''s $x'\nexport B=''\n");
    }

    #[test]
    fn the_proof_is_a_token_else_a_certificate_and_else_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |user: serde_json::Value| proof(&serde_json::from_value(user).unwrap(), folder.path());
        let token = of(serde_json::json!({ "token": "t" })).unwrap();
        assert_eq!(token, [("NOMAD_TOKEN", "t".to_owned())]);
        let data = serde_json::json!({ "client-certificate-data": "YQ==", "client-key-data": "Yg==" });
        let kept = of(data).unwrap();
        let read = |at: usize| fs::read_to_string(&kept[at].1).unwrap();
        assert_eq!(
            (kept[0].0, read(0), kept[1].0, read(1)),
            ("NOMAD_CLIENT_CERT", "a".to_owned(), "NOMAD_CLIENT_KEY", "b".to_owned())
        );
        assert!(of(serde_json::json!({})).unwrap_err().to_string().contains("drover nomad proxy"));
    }
}
