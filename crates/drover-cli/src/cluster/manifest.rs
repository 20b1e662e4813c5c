//! A manifest with one object, as the commands take it that apply one.

use std::path::Path;

use anyhow::{Context, anyhow, bail, ensure};
use drover_api::field_manager;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::connect::{ConnectArgs, Connection};
use crate::cluster::objects::Objects;
use crate::state::documents;
use crate::ui::stdio::read_input;

/// How a manifest is applied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Applying {
    /// The API server only checks it.
    pub(crate) is_dry_run: bool,
    /// Fields of other managers are taken over.
    pub(crate) takes_over: bool,
}

/// A kind, and what people call it, as `djob`.
pub(crate) type Kind = (&'static str, &'static str);

/// A manifest with one object of drover's.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) value: Value,
    pub(crate) name: String,
    /// What people call its kind, as `djob`.
    short: &'static str,
}

impl Manifest {
    /// Reads a file with one object of a kind among these; `-` is standard input.
    pub(crate) fn read(file: &Path, kinds: &[Kind]) -> anyhow::Result<Self> {
        Self::parse(file, &read_input(file)?, kinds)
    }

    /// The same of a file's bytes, which a job in HCL or in Nomad's JSON was turned into.
    pub(crate) fn parse(file: &Path, bytes: &[u8], kinds: &[Kind]) -> anyhow::Result<Self> {
        let wanted: Vec<&str> = kinds.iter().map(|(kind, _)| *kind).collect();
        let wanted = wanted.join(" or ");
        let source = file.display().to_string();
        let found = documents::read(bytes).with_context(|| source.clone())?;
        ensure!(found.len() == 1, "{source}: holds {} objects; give a file with one {wanted}", found.len());
        let value = found[0].value().with_context(|| source.clone())?;
        let given = value["kind"].as_str().unwrap_or_default();
        ensure!(!given.is_empty(), "{source}: kind: is missing; write `kind: {wanted}`");
        let kind = kinds.iter().find(|(kind, _)| *kind == given && value["apiVersion"] == drover_api::API_VERSION);
        let (_, short) = kind.with_context(|| {
            format!(
                "{source}: holds a {given} of {}; give a {wanted} of {}",
                value["apiVersion"].as_str().unwrap_or_default(),
                drover_api::API_VERSION
            )
        })?;
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(Self { value, name, short })
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// Connects to the namespace that the manifest names, or the one that is asked for.
    pub(crate) async fn connect(&self, args: &ConnectArgs) -> anyhow::Result<Connection> {
        let mut connection = args.connect().await?;
        let own = self.value["metadata"]["namespace"].as_str().map(str::to_owned);
        connection.namespace = match (&args.namespace, own) {
            (Some(asked), Some(own)) if *asked != own => {
                bail!(
                    "{}/{}: the manifest names namespace {own}, and -n names {asked}; leave one out",
                    self.short,
                    self.name
                )
            }
            (_, Some(own)) => own,
            (_, None) => connection.namespace.clone(),
        };
        Ok(connection)
    }

    /// Applies it under the CLI's name.
    pub(crate) async fn apply<K>(&self, objects: &Objects<K>, how: Applying) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        self.send(objects, &self.value, how).await.map_err(|error| self.explain(objects, error))
    }

    /// Applies a value that was made of it.
    pub(crate) async fn send<K>(&self, objects: &Objects<K>, value: &Value, how: Applying) -> kube::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        let params = PatchParams {
            dry_run: how.is_dry_run,
            force: how.takes_over,
            field_manager: Some(field_manager::CLI.to_owned()),
            ..PatchParams::default()
        };
        objects.api.patch(&self.name, &params, &Patch::Apply(value)).await
    }

    /// Turns an error of an apply into one for people.
    pub(crate) fn explain<K>(&self, objects: &Objects<K>, error: kube::Error) -> anyhow::Error
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    {
        match error {
            // The API server names the fields and who has set them.
            kube::Error::Api(status) if status.code == 409 => anyhow!(
                "cannot apply {}/{}: {}; take these values over into the manifest, or give --force-conflicts to set them again",
                self.short,
                self.name,
                status.message
            ),
            error => objects.explain("apply", &self.name, error),
        }
    }
}
