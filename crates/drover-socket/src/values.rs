//! Values of Secrets and `ConfigMaps` on their way from gateway to agent: lines of JSON in both directions over a
//! connection that the agent opens.
//!
//! The agent says what it wants for which allocation, and its token whenever that is renewed. The gateway answers each
//! request with what there is, and again at each change. Nothing is written to a disk on either side.

use std::collections::BTreeMap;
use std::fmt;

use drover_api::value_object::ValueObject;
use serde::{Deserialize, Serialize};

/// The protocol that the connection becomes.
pub const VALUES_PROTOCOL: &str = "drover-values/1";
/// Where an agent asks for it, by POST.
pub const VALUES_PATH: &str = "/values/v1";
/// The longest line of an agent, in bytes: a token and what belongs to it.
pub const MAX_ASK_BYTES: usize = 32 * 1024;
/// The longest line of a gateway, in bytes: an object has at most 1 MiB, and base64 makes 4 bytes of 3.
pub const MAX_VALUE_BYTES: usize = 2 * 1024 * 1024;

/// What an agent says.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ValueAsk {
    /// It wants an object for an allocation, and each change of it.
    Follow {
        /// The number by which this request is answered; the agent's to choose.
        id: u64,
        /// The allocation's namespace, and the object's.
        namespace: String,
        /// The allocation.
        allocation: String,
        /// Its uid: another one of the same name is not meant.
        uid: String,
        /// The object.
        object: ValueObject,
        /// The version of the values that the allocation has of it already; none: it cannot do without some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holds: Option<String>,
        /// Whether the agent tells of versions in the allocation's status, and understands [`ValueAnswer::Kept`]: older
        /// ones do not, and get each value at once.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_turn: bool,
    },
    /// It does not want it any more.
    Drop {
        /// The request's number.
        id: u64,
    },
    /// Its token, renewed.
    Token {
        /// The token.
        token: String,
    },
}

impl fmt::Debug for ValueAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Follow { id, namespace, allocation, object, .. } => {
                write!(f, "Follow({id}, {namespace}/{allocation}, {object})")
            }
            Self::Drop { id } => write!(f, "Drop({id})"),
            Self::Token { .. } => f.write_str("Token"),
        }
    }
}

/// What a gateway says of a request.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueNews {
    /// The request's number.
    pub id: u64,
    /// What is known now.
    pub value: ValueAnswer,
    /// Of values: the object's `metadata.resourceVersion`; empty: they have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
}

impl fmt::Debug for ValueNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.id, self.value)
    }
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ValueAnswer {
    /// Its values by key, as base64.
    Values(BTreeMap<String, String>),
    /// There is no such object.
    Absent,
    /// It is not given out: why, and what to do.
    Refused(String),
    /// It cannot be read now; the gateway goes on to try.
    Unavailable(String),
    /// There are new values, and the allocation does not get them yet.
    Kept(Kept),
}

/// Why an allocation keeps the values that it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Why, as a sentence for people.
    pub reason: String,
    /// Whether that lasts until something is done about it.
    pub is_stopped: bool,
}

impl fmt::Debug for ValueAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(values) => write!(f, "{} values", values.len()),
            Self::Absent => f.write_str("absent"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::Unavailable(reason) => write!(f, "unavailable: {reason}"),
            Self::Kept(kept) => write!(f, "kept: {}", kept.reason),
        }
    }
}
