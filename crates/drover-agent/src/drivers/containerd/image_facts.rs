//! What an image says of itself: what runs in it, as whom, and where its layers are.
//!
//! Input: its documents in containerd. Output: facts, or what is wrong with the image and what to take.

use drover_containerd::api::types::Descriptor;
use drover_containerd::{CallError, Containerd, Layer};
use oci_spec::image::{ImageConfiguration, ImageIndex, ImageManifest};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::machine;
use crate::drivers::driver::StartError;

/// The most bytes of a document of an image.
const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// What an image says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ImageFacts {
    /// The digest of its manifest.
    pub(super) digest: String,
    /// What runs.
    pub(super) entrypoint: Vec<String>,
    /// With which words.
    pub(super) cmd: Vec<String>,
    /// `NAME=VALUE`.
    pub(super) env: Vec<String>,
    /// As whom; empty: as root.
    pub(super) user: String,
    /// Where; empty: at the top.
    pub(super) work_dir: String,
    /// The digest of its configuration.
    pub(super) config: String,
    /// Its layers, the lowest first.
    pub(super) layers: Vec<Layer>,
}

impl ImageFacts {
    /// Reads them, from the document that the name of an image leads to.
    ///
    /// # Errors
    /// When a document is missing or malformed, or none is for this machine.
    pub(super) async fn read(api: &Containerd, name: &str, target: &Descriptor) -> Result<Self, StartError> {
        let documents = Documents { api, name };
        let mut digest = target.digest.clone();
        if is_index(&target.media_type) {
            let index: ImageIndex = documents.read(&digest).await?;
            digest = for_this_machine(name, &index)?;
        }
        let manifest: ImageManifest = documents.read(&digest).await?;
        let config = manifest.config().digest().to_string();
        let configuration: ImageConfiguration = documents.read(&config).await?;
        let archives: Vec<Descriptor> = manifest.layers().iter().map(archive).collect();
        let layers = layers(archives, configuration.rootfs().diff_ids());
        Ok(Self { digest, config, layers, ..Self::of(name, &configuration)? })
    }

    /// The name of the snapshot of its layers; empty: it has none.
    pub(super) fn snapshot(&self) -> &str {
        self.layers.last().map_or("", |layer| &layer.snapshot)
    }

    fn of(name: &str, configuration: &ImageConfiguration) -> Result<Self, StartError> {
        let (own, theirs) = (machine::architecture(), configuration.architecture().to_string());
        if theirs != own {
            return Err(StartError::Invalid(format!(
                "image {name} is for {theirs}, and this node is {own}: take one that is for {own}, or a constraint on \
                 ${{attr.cpu.arch}}"
            )));
        }
        let Some(config) = configuration.config() else { return Ok(Self::default()) };
        let words = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        Ok(Self {
            entrypoint: words(config.entrypoint()),
            cmd: words(config.cmd()),
            env: words(config.env()),
            user: config.user().clone().unwrap_or_default(),
            work_dir: config.working_dir().clone().unwrap_or_default(),
            ..Self::default()
        })
    }
}

/// The documents of one image.
struct Documents<'a> {
    api: &'a Containerd,
    name: &'a str,
}

impl Documents<'_> {
    async fn read<T: DeserializeOwned>(&self, digest: &str) -> Result<T, StartError> {
        let failed = |error: CallError| {
            StartError::Recoverable(format!("image {}: {digest} cannot be read: {error}", self.name))
        };
        let bytes = self.api.blob(digest, MAX_DOCUMENT_BYTES).await.map_err(failed)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            StartError::Invalid(format!("image {}: {digest} is no document of an image: {error}", self.name))
        })
    }
}

fn is_index(media_type: &str) -> bool {
    media_type.ends_with("image.index.v1+json") || media_type.ends_with("manifest.list.v2+json")
}

/// The manifest for this machine. An image that says of none for what it is, is for any.
fn for_this_machine(name: &str, index: &ImageIndex) -> Result<String, StartError> {
    let own = machine::architecture();
    let platform = |architecture: &str, os: &str| architecture == own && os == "linux";
    let found = index.manifests().iter().find(|manifest| {
        manifest.platform().as_ref().is_none_or(|it| platform(&it.architecture().to_string(), &it.os().to_string()))
    });
    found.map(|manifest| manifest.digest().to_string()).ok_or_else(|| {
        let offered: Vec<String> = index
            .manifests()
            .iter()
            .filter_map(|manifest| manifest.platform().as_ref())
            .map(|platform| format!("{}/{}", platform.os(), platform.architecture()))
            .collect();
        StartError::Invalid(format!(
            "image {name} is for {}, and this node is linux/{own}: take one that is for linux/{own}",
            offered.join(", ")
        ))
    })
}

fn archive(layer: &oci_spec::image::Descriptor) -> Descriptor {
    Descriptor {
        media_type: layer.media_type().to_string(),
        digest: layer.digest().to_string(),
        size: i64::try_from(layer.size()).unwrap_or(i64::MAX),
        ..Descriptor::default()
    }
}

/// The layers, with the names of their snapshots as containerd makes them: a digest over the one below and the next.
fn layers(archives: Vec<Descriptor>, diff_ids: &[String]) -> Vec<Layer> {
    let mut below = String::new();
    let layer = |(archive, diff_id): (Descriptor, &String)| {
        let snapshot = if below.is_empty() {
            diff_id.clone()
        } else {
            let digest = Sha256::digest(format!("{below} {diff_id}").as_bytes());
            digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
        };
        below.clone_from(&snapshot);
        Layer { archive, diff_id: diff_id.clone(), snapshot }
    };
    archives.into_iter().zip(diff_ids).map(layer).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(architecture: &str) -> ImageConfiguration {
        let value = json!({
            "architecture": architecture, "os": "linux",
            "config": { "Entrypoint": ["/run"], "Cmd": ["-v"], "Env": ["A=b"], "User": "web", "WorkingDir": "/srv" },
            "rootfs": { "type": "layers", "diff_ids": ["sha256:a", "sha256:b"] },
        });
        serde_json::from_value(value).expect("a configuration")
    }

    #[test]
    fn b_001_an_image_says_what_runs_in_it() {
        let facts = ImageFacts::of("web", &configuration(machine::architecture())).expect("facts");
        assert_eq!((facts.entrypoint, facts.cmd), (vec!["/run".to_owned()], vec!["-v".to_owned()]));
        assert_eq!((facts.user.as_str(), facts.work_dir.as_str(), facts.env), ("web", "/srv", vec!["A=b".to_owned()]));
        let ids = ["sha256:a".to_owned(), "sha256:b".to_owned()];
        let snapshots = layers(vec![Descriptor::default(), Descriptor::default()], &ids);
        let snapshots: Vec<&str> = snapshots.iter().map(|layer| layer.snapshot.as_str()).collect();
        // printf 'sha256:a sha256:b' | sha256sum
        assert_eq!(snapshots, ["sha256:a", "sha256:970a948bffa8de94d6e22d747ba8c95030e6e546909f98f54e99a13005e173a8"]);
        assert_eq!(ImageFacts::default().snapshot(), "");
    }

    #[test]
    fn an_image_for_another_machine_is_refused_with_what_it_is_for() {
        let error = ImageFacts::of("web", &configuration("s390x")).expect_err("refused").to_string();
        assert!(error.contains("image web is for s390x") && error.contains(machine::architecture()), "{error}");
        let digest = format!("sha256:{}", "0".repeat(64));
        let index = |architectures: &[&str]| -> ImageIndex {
            let manifests: Vec<serde_json::Value> = architectures
                .iter()
                .map(|architecture| {
                    json!({
                        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 1,
                        "platform": { "architecture": architecture, "os": "linux" },
                    })
                })
                .collect();
            serde_json::from_value(json!({ "schemaVersion": 2, "manifests": manifests })).expect("an index")
        };
        assert_eq!(for_this_machine("web", &index(&["s390x", machine::architecture()])).expect("one"), digest);
        let error = for_this_machine("web", &index(&["s390x", "ppc64le"])).expect_err("none").to_string();
        assert!(error.contains("image web is for linux/s390x, linux/ppc64le"), "{error}");
    }
}
