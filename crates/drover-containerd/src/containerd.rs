//! The calls, each with its time limit, in one namespace.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use prost_types::Any;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::CallError;
use crate::api::containers::containers_client::ContainersClient;
use crate::api::containers::{Container, CreateContainerRequest, DeleteContainerRequest, ListContainersRequest};
use crate::api::content::ReadContentRequest;
use crate::api::content::content_client::ContentClient;
use crate::api::images::images_client::ImagesClient;
use crate::api::images::{
    CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, ListImagesRequest, UpdateImageRequest,
};
use crate::api::runc::Options;
use crate::api::snapshots::snapshots_client::SnapshotsClient;
use crate::api::snapshots::{
    ListSnapshotsRequest, MountsRequest, PrepareSnapshotRequest, RemoveSnapshotRequest, StatSnapshotRequest,
};
use crate::api::task::Process;
use crate::api::tasks::tasks_client::TasksClient;
use crate::api::tasks::{CreateTaskRequest, DeleteTaskRequest, GetRequest, KillRequest, StartRequest, WaitRequest};
use crate::api::types::Mount;
use crate::api::version::version_client::VersionClient;

/// How long a call may take that only reads or writes containerd's own records.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// How long a call may take that runs programs or copies files: a busy machine takes its time.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_mins(2);
/// How long containerd has for saying that it works.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read: lists of containers carry their whole specifications.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// The type of a container's specification, as containerd's clients name it.
const RUNTIME_SPEC_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
/// The type of the options of its runtime.
const RUNC_OPTIONS_TYPE: &str = "containerd.runc.v1.Options";

/// A node's containerd, seen in one namespace; cheap to clone. It connects when it is called, and again after
/// containerd was restarted.
#[derive(Clone, Debug)]
pub struct Containerd {
    channel: Channel,
    namespace: MetadataValue<Ascii>,
    /// What is made by this one is kept by the lease of this name.
    pub(crate) lease: Option<MetadataValue<Ascii>>,
}

/// The first process of a container that is to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewTask {
    /// The container's id.
    pub id: String,
    /// Its root.
    pub rootfs: Vec<Mount>,
    /// The FIFO of its standard output; empty: none.
    pub stdout: String,
    /// The FIFO of its standard error; empty: none.
    pub stderr: String,
    /// Whether it has a terminal.
    pub terminal: bool,
}

impl Containerd {
    /// The containerd that listens at this socket. Nothing is connected yet.
    ///
    /// # Errors
    /// A namespace that no header can carry.
    pub fn new(socket: &Path, namespace: &str) -> Result<Self, CallError> {
        let namespace = namespace
            .parse()
            .map_err(|_| CallError::new(Code::InvalidArgument, format!("{namespace:?} is no name of a namespace")))?;
        let socket = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
        });
        // The name is asked for and means nothing on a Unix socket.
        let channel = Endpoint::from_static("http://containerd.sock").connect_with_connector_lazy(connector);
        Ok(Self { channel, namespace, lease: None })
    }

    /// Its version.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn version(&self) -> Result<String, CallError> {
        let mut client = VersionClient::new(self.channel());
        Ok(within(PROBE_TIMEOUT, client.version(self.request(()))).await?.version)
    }

    /// The image of this name; none: it is not here.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn image(&self, name: &str) -> Result<Option<Image>, CallError> {
        let mut client = ImagesClient::new(self.channel());
        let answer = within(TIMEOUT, client.get(self.request(GetImageRequest { name: name.to_owned() }))).await;
        Ok(found(answer)?.and_then(|answer| answer.image))
    }

    /// All images.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn images(&self) -> Result<Vec<Image>, CallError> {
        let mut client = ImagesClient::new(self.channel()).max_decoding_message_size(MAX_ANSWER_BYTES);
        Ok(within(TIMEOUT, client.list(self.request(ListImagesRequest::default()))).await?.images)
    }

    /// Gives an image a name, or the name another image.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn put_image(&self, image: Image) -> Result<(), CallError> {
        let mut client = ImagesClient::new(self.channel());
        let create = CreateImageRequest { image: Some(image.clone()), source_date_epoch: None };
        match within(TIMEOUT, client.create(self.request(create))).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_existing() => {
                let update = UpdateImageRequest { image: Some(image), ..UpdateImageRequest::default() };
                within(TIMEOUT, client.update(self.request(update))).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes an image; one that is gone is deleted. Its files go when containerd next collects what no image has.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn delete_image(&self, name: &str) -> Result<(), CallError> {
        let mut client = ImagesClient::new(self.channel());
        let request = DeleteImageRequest { name: name.to_owned(), ..DeleteImageRequest::default() };
        found(within(TIMEOUT, client.delete(self.request(request))).await).map(drop)
    }

    /// The bytes of this digest, which are at most so many.
    ///
    /// # Errors
    /// When there is none, it is larger, or containerd does not answer.
    pub async fn blob(&self, digest: &str, max_bytes: usize) -> Result<Vec<u8>, CallError> {
        let mut client = ContentClient::new(self.channel());
        let read = async {
            let request = ReadContentRequest { digest: digest.to_owned(), ..ReadContentRequest::default() };
            let mut parts = client.read(self.request(request)).await?.into_inner();
            let mut bytes = Vec::new();
            while let Some(part) = parts.message().await? {
                bytes.extend_from_slice(&part.data);
                if bytes.len() > max_bytes {
                    let reason = format!("{digest} has more than {max_bytes} bytes, which none of its kind needs");
                    return Err(CallError::new(Code::OutOfRange, reason));
                }
            }
            Ok(bytes)
        };
        tokio::time::timeout(TIMEOUT, read).await.unwrap_or_else(|_| Err(late(TIMEOUT)))
    }

    /// Whether there is a snapshot of this name.
    ///
    /// # Errors
    /// When there is no such snapshotter, or containerd does not answer.
    pub async fn has_snapshot(&self, snapshotter: &str, key: &str) -> Result<bool, CallError> {
        let mut client = SnapshotsClient::new(self.channel());
        let request = StatSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
        Ok(found(within(TIMEOUT, client.stat(self.request(request))).await)?.is_some())
    }

    /// Makes a snapshot that can be written, of another one, and says how it is mounted.
    ///
    /// # Errors
    /// When there is no such snapshotter or parent, or containerd does not answer.
    pub async fn prepare_snapshot(&self, request: PrepareSnapshotRequest) -> Result<Vec<Mount>, CallError> {
        let mut client = SnapshotsClient::new(self.channel());
        let again = MountsRequest { snapshotter: request.snapshotter.clone(), key: request.key.clone() };
        match within(LONG_TIMEOUT, client.prepare(self.request(request))).await {
            Ok(made) => Ok(made.mounts),
            Err(error) if error.is_existing() => {
                Ok(within(LONG_TIMEOUT, client.mounts(self.request(again))).await?.mounts)
            }
            Err(error) => Err(error),
        }
    }

    /// The names of the snapshots that have this label.
    ///
    /// # Errors
    /// When there is no such snapshotter, or containerd does not answer.
    pub async fn snapshots(&self, snapshotter: &str, label: &str) -> Result<Vec<String>, CallError> {
        let mut client = SnapshotsClient::new(self.channel());
        let read = async {
            // As containerd's filters write it: the label is there.
            let filters = vec![format!("labels.\"{label}\"")];
            let request = ListSnapshotsRequest { snapshotter: snapshotter.to_owned(), filters };
            let mut parts = client.list(self.request(request)).await?.into_inner();
            let mut names = Vec::new();
            while let Some(part) = parts.message().await? {
                names.extend(part.info.into_iter().map(|info| info.name));
            }
            Ok(names)
        };
        tokio::time::timeout(TIMEOUT, read).await.unwrap_or_else(|_| Err(late(TIMEOUT)))
    }

    /// Removes a snapshot; one that is gone is removed.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn remove_snapshot(&self, snapshotter: &str, key: &str) -> Result<(), CallError> {
        let mut client = SnapshotsClient::new(self.channel());
        let request = RemoveSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
        found(within(LONG_TIMEOUT, client.remove(self.request(request))).await).map(drop)
    }

    /// All containers.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn containers(&self) -> Result<Vec<Container>, CallError> {
        let mut client = ContainersClient::new(self.channel()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let request = ListContainersRequest::default();
        Ok(within(TIMEOUT, client.list(self.request(request))).await?.containers)
    }

    /// Writes down a container. Nothing runs yet.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn create_container(&self, container: Container) -> Result<(), CallError> {
        let mut client = ContainersClient::new(self.channel());
        let request = CreateContainerRequest { container: Some(container) };
        within(TIMEOUT, client.create(self.request(request))).await.map(drop)
    }

    /// Deletes a container that has no task; one that is gone is deleted.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn delete_container(&self, id: &str) -> Result<(), CallError> {
        let mut client = ContainersClient::new(self.channel());
        let request = DeleteContainerRequest { id: id.to_owned() };
        found(within(TIMEOUT, client.delete(self.request(request))).await).map(drop)
    }

    /// Makes the first process of a container, which waits for its start. Returns its pid.
    ///
    /// # Errors
    /// When its runtime refuses, or containerd does not answer.
    pub async fn create_task(&self, task: NewTask) -> Result<u32, CallError> {
        let mut client = TasksClient::new(self.channel());
        let NewTask { id, rootfs, stdout, stderr, terminal } = task;
        let request =
            CreateTaskRequest { container_id: id, rootfs, stdout, stderr, terminal, ..CreateTaskRequest::default() };
        Ok(within(LONG_TIMEOUT, client.create(self.request(request))).await?.pid)
    }

    /// Lets the first process of a container begin.
    ///
    /// # Errors
    /// When its runtime refuses, or containerd does not answer.
    pub async fn start_task(&self, id: &str) -> Result<(), CallError> {
        let mut client = TasksClient::new(self.channel());
        let request = StartRequest { container_id: id.to_owned(), exec_id: String::new() };
        within(LONG_TIMEOUT, client.start(self.request(request))).await.map(drop)
    }

    /// The first process of a container; none: it has none.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub async fn task(&self, id: &str) -> Result<Option<Process>, CallError> {
        let mut client = TasksClient::new(self.channel());
        let request = GetRequest { container_id: id.to_owned(), exec_id: String::new() };
        Ok(found(within(TIMEOUT, client.get(self.request(request))).await)?.and_then(|answer| answer.process))
    }

    /// Waits until the first process of a container has ended. One that is gone has ended.
    ///
    /// # Errors
    /// When containerd does not answer, or it does not end.
    pub async fn wait_task(&self, id: &str) -> Result<(), CallError> {
        let mut client = TasksClient::new(self.channel());
        let request = WaitRequest { container_id: id.to_owned(), exec_id: String::new() };
        found(within(LONG_TIMEOUT, client.wait(self.request(request))).await).map(drop)
    }

    /// Kills all processes of a container; one that has none is dead.
    ///
    /// # Errors
    /// When containerd refuses or does not answer.
    pub async fn kill_task(&self, id: &str, signal: u32) -> Result<(), CallError> {
        let mut client = TasksClient::new(self.channel());
        let request = KillRequest { container_id: id.to_owned(), exec_id: String::new(), signal, all: true };
        found(within(TIMEOUT, client.kill(self.request(request))).await).map(drop)
    }

    /// Forgets the ended first process of a container. One that is gone is forgotten.
    ///
    /// # Errors
    /// When it still runs, or containerd does not answer.
    pub async fn delete_task(&self, id: &str) -> Result<(), CallError> {
        let mut client = TasksClient::new(self.channel());
        let request = DeleteTaskRequest { container_id: id.to_owned() };
        found(within(LONG_TIMEOUT, client.delete(self.request(request))).await).map(drop)
    }

    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("containerd-namespace", self.namespace.clone());
        if let Some(lease) = &self.lease {
            request.metadata_mut().insert("containerd-lease", lease.clone());
        }
        request
    }
}

/// A name that no other caller of this containerd takes.
pub(crate) fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The answer to a call, within its time.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(late(limit)),
    }
}

fn late(limit: Duration) -> CallError {
    CallError::new(Code::DeadlineExceeded, format!("containerd has not answered within {limit:?}"))
}

/// None for what does not exist.
fn found<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The specification of a container, in JSON, as containerd keeps it.
pub fn spec_of(json: Vec<u8>) -> Any {
    Any { type_url: RUNTIME_SPEC_TYPE.to_owned(), value: json }
}

/// Options of the runtime `io.containerd.runc.v2`, as containerd keeps them.
pub fn runc_options(options: &Options) -> Any {
    any(RUNC_OPTIONS_TYPE, options)
}

/// A message inside of another, named as containerd looks it up.
pub(crate) fn any(name: &str, message: &impl prost::Message) -> Any {
    Any { type_url: name.to_owned(), value: message.encode_to_vec() }
}
