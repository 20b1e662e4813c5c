//! Names with a meaning, so that one cannot stand where another belongs.

use std::fmt;
use std::sync::Arc;

macro_rules! name {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<Arc<str>>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// A node, by the name of its ClientNode.
    NodeName
}
name! {
    /// The metadata.uid of an object.
    Uid
}
name! {
    /// An evaluation, within one leader's term.
    EvalId
}

/// A namespaced object, by namespace and name. Keys are ordered by name first: of two that are compared nearly always
/// the names differ, and the namespaces need not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Its name in the namespace.
    pub name: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
}

impl ObjectKey {
    /// The key of an object.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A Job.
pub type JobKey = ObjectKey;
/// An Allocation.
pub type AllocKey = ObjectKey;
