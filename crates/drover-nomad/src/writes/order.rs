//! What a request to change something comes to.

use drover_api::{CSIVolume, Job};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::outcome::Outcome;
use super::written::Written;
use crate::query::Query;
use crate::world::{Kind, Name, World};

/// What an order is made from.
#[derive(Clone, Copy, Debug)]
pub struct WriteView<'a> {
    /// What is known of the cluster.
    pub world: &'a World,
    /// What is asked for.
    pub query: &'a Query,
    /// The body.
    pub body: &'a [u8],
    /// The time.
    pub now: Timestamp,
    /// Drawn for each request.
    pub random: u32,
    /// A part of this request has been written, before another writer came in between: what it was to happen to once
    /// has happened.
    pub goes_on: bool,
}

/// What a caller must be allowed to do, as rules of RBAC say it. Any of the ways is enough; the first is named where
/// none is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The ways: each a right.
    pub any_of: Vec<Way>,
}

/// A right.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, in the plural.
    pub resource: &'static str,
    /// The subresource; empty for none.
    pub subresource: &'static str,
    /// What is done.
    pub verb: &'static str,
    /// Where; empty for the whole cluster.
    pub namespace: String,
    /// With which object; empty for all.
    pub name: String,
}

impl From<Way> for Demand {
    fn from(way: Way) -> Self {
        Self { any_of: vec![way] }
    }
}

/// An object as it is to be.
#[derive(Clone, Debug, PartialEq)]
pub enum WholeObject {
    /// A job.
    Job(Box<Job>),
    /// A volume.
    Volume(Box<CSIVolume>),
}

impl From<Job> for WholeObject {
    fn from(job: Job) -> Self {
        Self::Job(Box::new(job))
    }
}

impl From<CSIVolume> for WholeObject {
    fn from(volume: CSIVolume) -> Self {
        Self::Volume(Box::new(volume))
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// An object is made.
    Create(WholeObject),
    /// An object is replaced; its resourceVersion is the precondition.
    Replace(WholeObject),
    /// Fields of an object are set, as a merge patch; of a version, whose spec never changes, those of its status.
    Patch(Target, Value),
    /// An object is deleted.
    Delete(Target),
}

impl Change {
    /// The kind of the object that is written.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Create(WholeObject::Job(_)) | Self::Replace(WholeObject::Job(_)) => Kind::Job,
            Self::Create(WholeObject::Volume(_)) | Self::Replace(WholeObject::Volume(_)) => Kind::Volume,
            Self::Patch(target, _) | Self::Delete(target) => target.kind,
        }
    }
}

/// An object that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: Name,
    /// Its uid.
    pub uid: Option<String>,
    /// The state that the change was made from, where only that one may be changed.
    pub resource_version: Option<String>,
}

impl Target {
    /// The object with these metadata, if it is still the one.
    pub(super) fn same(kind: Kind, meta: &ObjectMeta) -> Self {
        Self { kind, name: Name::of(meta), uid: meta.uid.clone(), resource_version: None }
    }

    /// The object with these metadata, if it is still as it was.
    pub(super) fn unchanged(kind: Kind, meta: &ObjectMeta) -> Self {
        Self { resource_version: meta.resource_version.clone(), ..Self::same(kind, meta) }
    }
}

/// Makes the answer of what was written.
type Answer = Box<dyn FnOnce(&[Written]) -> Value + Send>;

/// What a request comes to.
pub struct WriteOrder {
    /// What its caller must be allowed to do.
    pub demands: Vec<Demand>,
    /// What is written, in this order.
    pub changes: Vec<Change>,
    /// What is waited for then, where the answer is not known when all is written.
    pub outcome: Option<Outcome>,
    answer: Answer,
}

impl std::fmt::Debug for WriteOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteOrder")
            .field("demands", &self.demands)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

impl WriteOrder {
    /// An order with its answer.
    pub(super) fn new(
        demands: Vec<Demand>,
        changes: Vec<Change>,
        answer: impl FnOnce(&[Written]) -> Value + Send + 'static,
    ) -> Self {
        Self { demands, changes, outcome: None, answer: Box::new(answer) }
    }

    /// One that is answered when others have done what the changes ask them for.
    pub(super) fn until(demands: Vec<Demand>, changes: Vec<Change>, outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..Self::new(demands, changes, |_| Value::Null) }
    }

    /// One that writes nothing.
    pub(super) fn nothing(demands: Vec<Demand>, answer: Value) -> Self {
        Self::new(demands, Vec::new(), move |_| answer)
    }

    /// What is answered when all is written: the body, less `Index`.
    pub fn answer(self, written: &[Written]) -> Value {
        (self.answer)(written)
    }
}
