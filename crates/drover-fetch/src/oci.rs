//! An artifact of an OCI registry, by the distribution specification: its manifest, and the layers that it names, each
//! compared with its digest.
//!
//! A layer with a title is a file of that name, as ORAS writes them; one that is marked to be unpacked is a directory.
//! A layer without a title is one of an image, an archive; what a later one deletes of an earlier one stays.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drover_core::artifact::{ArchiveForm, Checksum, ChecksumKind, Compression, sha256_of};
use serde::Deserialize;

use crate::budget::Budget;
use crate::download::{ANYTHING, Ask, Got};
use crate::exchange::{Headers, Web};
use crate::order::{FetchLimits, Order};
use crate::part::{Form, Part};

/// Largest manifest, and largest answer of who gives out tokens: what registries take at most.
const MOST_MANIFEST: u64 = 4 * 1024 * 1024;
/// Kinds of manifests.
const MANIFESTS: Headers<'_> = &[(
    "accept",
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json",
)];
/// The name of a layer that is a file.
const TITLE: &str = "org.opencontainers.image.title";
/// Whether a layer is a directory, packed.
const UNPACK: &str = "io.deis.oras.content.unpack";

/// A manifest, or a list of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Manifest {
    layers: Vec<Descriptor>,
    /// Of a list.
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Descriptor {
    media_type: String,
    digest: String,
    annotations: BTreeMap<String, String>,
    platform: Option<Platform>,
}

/// What a manifest of a list is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Platform {
    architecture: String,
    os: String,
}

/// What gives out tokens answers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GivenToken {
    token: String,
    access_token: String,
}

/// A registry that is asked.
struct Registry<'a> {
    web: Web<'a>,
    order: &'a Order,
    folder: &'a Path,
    /// Up to the name of the repository.
    base: &'a str,
    headers: BTreeMap<String, String>,
    n_files: usize,
}

/// Downloads the layers of the plan's artifact into a folder.
pub(crate) async fn download(order: &Order, web: Web<'_>, folder: &Path) -> Result<Vec<Part>, String> {
    let plan = &order.plan;
    let no_manifest = || format!("{} is no address of a manifest", plan.url);
    let (base, reference) = plan.url.rsplit_once("/manifests/").ok_or_else(no_manifest)?;
    let mut registry = Registry { web, order, folder, base, headers: plan.headers.clone(), n_files: 0 };
    let mut manifest = registry.manifest(reference).await?;
    if !manifest.manifests.is_empty() {
        let digest = of_this_machine(&manifest.manifests)?.digest.clone();
        manifest = registry.manifest(&digest).await?;
    }
    if manifest.layers.is_empty() || (plan.is_whole && manifest.layers.len() > 1) {
        let n = manifest.layers.len();
        return Err(format!("the artifact has {n} layers; getterMode file takes one, and any at least one"));
    }
    let (mut budget, mut parts) = (Budget::new(order.limits), Vec::new());
    for layer in &manifest.layers {
        budget.take_file()?;
        let (form, name) = if plan.is_whole {
            (ArchiveForm::File(Compression::None), plan.file_name.clone())
        } else {
            becomes(layer)?
        };
        let file = registry.blob(&layer.digest, &mut budget).await?;
        parts.push(Part { file, form: Form::Archive(form), name });
    }
    Ok(parts)
}

impl Registry<'_> {
    async fn manifest(&mut self, reference: &str) -> Result<Manifest, String> {
        let file = self.get(("manifests", reference), MANIFESTS, &mut small(self.order)).await?;
        read(&file)
    }

    async fn blob(&mut self, digest: &str, budget: &mut Budget) -> Result<PathBuf, String> {
        if sha256_of(digest).is_none() {
            let shown: String = digest.chars().take(80).collect();
            return Err(format!("a layer has the digest {shown:?}; only sha256 is compared: push it with that"));
        }
        self.get(("blobs", digest), ANYTHING, budget).await
    }

    /// Gets something of the repository into a file of its own, with a token where the registry wants one.
    async fn get(
        &mut self,
        (kind, reference): (&str, &str),
        asks: Headers<'_>,
        budget: &mut Budget,
    ) -> Result<PathBuf, String> {
        let url = format!("{}/{kind}/{reference}", self.base);
        let digest = sha256_of(reference).map(|hex| Checksum { kind: ChecksumKind::Sha256, hex: hex.to_owned() });
        let checksum = digest.as_ref().map(|digest| (digest, "its digest"));
        let to = self.next_file();
        let asked = self.web.download(Ask { url: &url, headers: &self.headers, asks, checksum }, &to, budget).await?;
        if let Got::Challenged(how) = asked {
            let token = self.token(&how).await?;
            self.headers.insert("authorization".to_owned(), format!("Bearer {token}"));
            let ask = Ask { url: &url, headers: &self.headers, asks, checksum };
            self.web.download_plain(ask, &to, budget).await?;
        }
        Ok(to)
    }

    fn next_file(&mut self) -> PathBuf {
        self.n_files += 1;
        self.folder.join(format!("download-{}", self.n_files))
    }

    /// A token as anyone gets it from where the registry says.
    async fn token(&mut self, how: &str) -> Result<String, String> {
        let wrong = || format!("the registry wants credentials; give the header Authorization ({})", short(how));
        let realm = how.get(..7).filter(|word| word.eq_ignore_ascii_case("bearer ")).map(|_| parameters(&how[7..]));
        let mut parameters = realm.ok_or_else(wrong)?;
        let realm = parameters.remove("realm").ok_or_else(wrong)?;
        if self.base.starts_with("https://") && !realm.starts_with("https://") {
            return Err(format!("the registry gives out tokens at {}, which has no TLS", short(&realm)));
        }
        let wanted = ["service", "scope"].into_iter().filter_map(|name| Some((name, parameters.remove(name)?)));
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(wanted).finish();
        let url = format!("{realm}{}{query}", if realm.contains('?') { '&' } else { '?' });
        let to = self.next_file();
        let ask = Ask { url: &url, headers: &BTreeMap::new(), asks: ANYTHING, checksum: None };
        self.web.download_plain(ask, &to, &mut small(self.order)).await?;
        let given: GivenToken = read(&to)?;
        let token = if given.token.is_empty() { given.access_token } else { given.token };
        if token.is_empty() { Err(wrong()) } else { Ok(token) }
    }
}

/// A budget for what is read as a whole.
fn small(order: &Order) -> Budget {
    Budget::new(FetchLimits { bytes: MOST_MANIFEST.min(order.limits.bytes), ..order.limits })
}

/// Reads what was downloaded, and takes the file away.
fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<T, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("the download cannot be read: {error}"))?;
    std::fs::remove_file(file).map_err(|error| format!("the download cannot be removed: {error}"))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("the registry's answer is not understood: {error}"))
}

/// The manifest for machines like this one; one that is for none in particular is the only one.
fn of_this_machine(all: &[Descriptor]) -> Result<&Descriptor, String> {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let fits = |it: &&Descriptor| {
        it.platform.as_ref().is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture)
    };
    let only = all.first().filter(|_| all.len() == 1);
    let none = || format!("the artifact is for several kinds of machines, and for none with linux and {architecture}");
    all.iter().find(fits).or(only).ok_or_else(none)
}

/// What becomes of a layer, and its name.
fn becomes(layer: &Descriptor) -> Result<(ArchiveForm, String), String> {
    let kind = layer.media_type.as_str();
    let packed = if kind.ends_with("+zstd") {
        Compression::Zst
    } else if kind.ends_with("gzip") || layer.annotations.contains_key(UNPACK) {
        Compression::Gz
    } else {
        Compression::None
    };
    match layer.annotations.get(TITLE).filter(|name| !name.is_empty()) {
        Some(_) if layer.annotations.get(UNPACK).is_some_and(|value| value == "true") => {
            Ok((ArchiveForm::Tar(packed), String::new()))
        }
        Some(name) => Ok((ArchiveForm::File(Compression::None), name.clone())),
        None if kind.contains(".tar") || kind.contains("+tar") => Ok((ArchiveForm::Tar(packed), String::new())),
        None => Err(format!(
            "a layer of kind {} has no name; push it with the annotation {TITLE}, or take getterMode file",
            short(kind)
        )),
    }
}

/// The parameters of a challenge (RFC 9110, section 11.2), those in quotes.
fn parameters(text: &str) -> BTreeMap<String, String> {
    let mut pieces = text.split('"');
    let mut found = BTreeMap::new();
    while let (Some(name), Some(value)) = (pieces.next(), pieces.next()) {
        let name = name.trim_matches(|char: char| char == ',' || char.is_whitespace()).trim_end_matches('=');
        found.insert(name.trim().to_ascii_lowercase(), value.to_owned());
    }
    found
}

fn short(text: &str) -> String {
    format!("{:?}", text.chars().take(120).collect::<String>())
}
