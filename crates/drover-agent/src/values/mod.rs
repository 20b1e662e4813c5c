//! Values of Secrets and `ConfigMaps` that tasks use, from the gateway: agents hold no right to read any.
//!
//! `requests` is what runners see: an object that is followed, and what is known of it. `keeper` holds one connection
//! to a replica of the gateway as long as anything is followed, and begins again where one breaks: what was known stays
//! known. Values live in memory and nowhere else.

mod keeper;
mod requests;

pub(crate) use keeper::ValueKeeper;
pub(crate) use requests::{Followed, GivenValues, NoValues, ValueRequest, ValueRequests, ValueState, Values};
