//! What is asked of a fetch, and what it answers: one line of JSON each.

use drover_core::artifact::FetchPlan;
use drover_core::service::Cidr;
use serde::{Deserialize, Serialize};

/// The folder of the result, in the working directory.
pub const RESULT: &str = "result";

/// How much a fetch may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FetchLimits {
    /// Bytes that are downloaded, and bytes that come out of them.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Seconds of the whole.
    pub seconds: u64,
}

/// What is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// From where, and what becomes of it.
    pub plan: FetchPlan,
    /// Addresses that may be reached although they are the node's or its neighbours'.
    pub allowed: Vec<Cidr>,
    /// How much it may take.
    pub limits: FetchLimits,
    /// The number of the user and group that the process becomes; none: it stays who it is.
    pub user: Option<u32>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// It lies in [`RESULT`].
    Fetched,
    /// Why not.
    Failed(String),
}
