//! Images from a registry or an archive, by containerd's transfer service.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use futures::StreamExt;
use prost::Message as _;
use prost_types::Any;
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use crate::CallError;
use crate::api::streaming::StreamInit;
use crate::api::streaming::streaming_client::StreamingClient;
use crate::api::transfers::TransferRequest;
use crate::api::transfers::transfer_client::TransferClient;
use crate::api::types::Platform;
use crate::api::types::transfer::{
    AuthRequest, AuthResponse, AuthType, Data, ImageImportStream, ImageReference, ImageStore, OciRegistry,
    RegistryResolver, UnpackConfiguration, WindowUpdate,
};
use crate::containerd::{Containerd, any, unique_name, within};

/// Bytes of an archive in one message.
const PART_BYTES: usize = 32 * 1024;
/// Messages of a stream that wait for being sent.
const PARTS: usize = 4;

// The names of the messages that travel inside of others.
const REGISTRY: &str = "containerd.types.transfer.OCIRegistry";
const ARCHIVE: &str = "containerd.types.transfer.ImageImportStream";
const STORE: &str = "containerd.types.transfer.ImageStore";
const STREAM: &str = "containerd.services.streaming.v1.StreamInit";
const DATA: &str = "containerd.types.transfer.Data";
const AUTH_RESPONSE: &str = "containerd.types.transfer.AuthResponse";
const WINDOW: &str = "containerd.types.transfer.WindowUpdate";

/// What is pulled, and for which snapshotter it is unpacked.
#[derive(Clone, Debug)]
pub struct Pull {
    /// The image's full name.
    pub reference: String,
    /// For which machine.
    pub platform: Platform,
    /// The snapshotter.
    pub snapshotter: String,
    /// A folder with a `hosts.toml` for each registry, as of containerd; empty: none.
    pub hosts_dir: String,
    /// What the registry is shown that asks for it; none: nothing.
    pub login: Option<Login>,
    /// Labels of the image.
    pub labels: HashMap<String, String>,
}

/// What a registry is shown. It goes to containerd over a stream, when the registry has asked, and into no file.
#[derive(Clone)]
pub struct Login {
    /// The registry's hosts: no other is shown anything.
    pub hosts: Vec<String>,
    /// The user's name; empty: the secret is a token that is exchanged for one of the registry's.
    pub username: String,
    /// The password, or the token.
    pub secret: String,
}

impl std::fmt::Debug for Login {
    /// Not what it is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a login at {:?}", self.hosts)
    }
}

/// What is taken in, and for which snapshotter it is unpacked.
#[derive(Clone, Debug)]
pub struct Import {
    /// The repository of images that have only a tag in the archive.
    pub repository: String,
    /// For which machine.
    pub platform: Platform,
    /// The snapshotter.
    pub snapshotter: String,
}

impl Containerd {
    /// Downloads an image and unpacks it.
    ///
    /// # Errors
    /// What the registry says, or that it has not answered in time.
    pub async fn pull(&self, pull: Pull, limit: Duration) -> Result<(), CallError> {
        let mut resolver = RegistryResolver { host_dir: pull.hosts_dir, ..RegistryResolver::default() };
        let answering = match pull.login {
            None => None,
            Some(login) => {
                resolver.auth_stream = unique_name("login");
                // The stream must be known before what names it is asked for.
                Some(self.answer(resolver.auth_stream.clone(), login).await?)
            }
        };
        let source = OciRegistry { reference: pull.reference.clone(), resolver: Some(resolver) };
        let unpack = UnpackConfiguration { platform: Some(pull.platform.clone()), snapshotter: pull.snapshotter };
        let store = ImageStore {
            name: pull.reference,
            labels: pull.labels,
            platforms: vec![pull.platform],
            unpacks: vec![unpack],
            ..ImageStore::default()
        };
        let transfer = self.transfer(any(REGISTRY, &source), any(STORE, &store), limit);
        let Some(answering) = answering else { return transfer.await };
        tokio::pin!(transfer);
        tokio::select! {
            biased;
            done = &mut transfer => done,
            // Without a stream the registry gets nothing more, and says so.
            () = answering => transfer.await,
        }
    }

    /// Opens a stream on which containerd asks what a registry is to be shown.
    async fn answer(&self, id: String, login: Login) -> Result<impl Future<Output = ()>, CallError> {
        let (answers, mut asked) = self.open(id).await?;
        Ok(async move {
            while let Some(Ok(message)) = asked.next().await {
                let Ok(request) = AuthRequest::decode(message.value.as_slice()) else { return };
                let response = if login.hosts.contains(&request.host) {
                    let kind = if login.username.is_empty() { AuthType::Refresh } else { AuthType::Credentials };
                    AuthResponse {
                        auth_type: kind.into(),
                        secret: login.secret.clone(),
                        username: login.username.clone(),
                        ..AuthResponse::default()
                    }
                } else {
                    AuthResponse { auth_type: AuthType::None.into(), ..AuthResponse::default() }
                };
                if answers.send(any(AUTH_RESPONSE, &response)).await.is_err() {
                    return;
                }
            }
        })
    }

    /// Opens a stream of this name: what is sent on it, and what containerd says.
    async fn open(&self, id: String) -> Result<(mpsc::Sender<Any>, Streaming<Any>), CallError> {
        let (parts, queue) = mpsc::channel::<Any>(PARTS);
        let outgoing = futures::stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)));
        parts.send(any(STREAM, &StreamInit { id })).await.map_err(|_| hung_up())?;
        let mut client = StreamingClient::new(self.channel());
        let mut incoming = client.stream(self.request(outgoing)).await?.into_inner();
        // The first answer says that the stream is known.
        incoming.message().await?;
        Ok((parts, incoming))
    }

    /// Takes in the images of an archive, under the names that it gives them, and unpacks them. One without a name is
    /// left out.
    ///
    /// # Errors
    /// When it is no archive of images, or takes too long.
    pub async fn import(
        &self,
        import: Import,
        archive: impl Read + Send + 'static,
        limit: Duration,
    ) -> Result<(), CallError> {
        let stream = unique_name("import");
        // The stream must be known before what names it is asked for, and lives as long as that.
        let sending = self.send(stream.clone(), archive).await?;
        let source = ImageImportStream { stream, ..ImageImportStream::default() };
        let reference = ImageReference {
            name: import.repository,
            is_prefix: true,
            // Names that are whole count as they are.
            allow_overwrite: true,
            ..ImageReference::default()
        };
        let unpack = UnpackConfiguration { platform: Some(import.platform.clone()), snapshotter: import.snapshotter };
        let store = ImageStore {
            platforms: vec![import.platform],
            extra_references: vec![reference],
            unpacks: vec![unpack],
            ..ImageStore::default()
        };
        let transfer = self.transfer(any(ARCHIVE, &source), any(STORE, &store), limit);
        tokio::pin!(transfer);
        tokio::select! {
            biased;
            done = &mut transfer => done,
            sent = sending => match sent {
                // A stream that is given up is one that was broken off, whatever was sent before.
                Ok(_open) => transfer.await,
                Err(error) => Err(error),
            },
        }
    }

    async fn transfer(&self, source: Any, destination: Any, limit: Duration) -> Result<(), CallError> {
        let mut client = TransferClient::new(self.channel());
        let request = TransferRequest { source: Some(source), destination: Some(destination), options: None };
        within(limit, client.transfer(self.request(request))).await
    }

    /// Opens a stream by which containerd reads these bytes, as fast as it asks for them.
    async fn send(
        &self,
        id: String,
        mut bytes: impl Read + Send + 'static,
    ) -> Result<impl Future<Output = Result<Streaming<Any>, CallError>>, CallError> {
        let (parts, mut asked) = self.open(id).await?;
        Ok(async move {
            let mut room = 0_usize;
            let mut part = vec![0; PART_BYTES];
            loop {
                while room == 0 {
                    let Some(update) = asked.next().await else { return Err(hung_up()) };
                    room += asked_for(&update?);
                }
                let most = room.min(PART_BYTES);
                let n = bytes
                    .read(&mut part[..most])
                    .map_err(|error| CallError::new(Code::Aborted, format!("the archive cannot be read: {error}")))?;
                if n == 0 {
                    return Ok(asked);
                }
                parts.send(any(DATA, &Data { data: part[..n].to_vec() })).await.map_err(|_| hung_up())?;
                room -= n;
            }
        })
    }
}

fn hung_up() -> CallError {
    CallError::new(Code::Unavailable, "containerd has closed a stream")
}

/// How many more bytes containerd takes.
fn asked_for(message: &Any) -> usize {
    if !message.type_url.ends_with(WINDOW) {
        return 0;
    }
    WindowUpdate::decode(message.value.as_slice())
        .ok()
        .and_then(|update| usize::try_from(update.update).ok())
        .unwrap_or(0)
}
