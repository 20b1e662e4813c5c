//! `drover job …`: what users do with jobs. Requests go into specs, under the user's field manager; the controller acts
//! on them.

mod after;
mod dispatch;
mod history;
mod import;
mod inspect;
mod logs;
mod parts;
mod restart;
mod run;
mod scale;
mod start;
mod status;
mod stop;
mod validate;

pub(crate) use dispatch::{DispatchArgs, PeriodicCommand, dispatch, periodic};
pub(crate) use history::{HistoryArgs, RevertArgs, history, revert};
pub(crate) use import::{ImportArgs, import};
pub(crate) use inspect::{InspectArgs, inspect};
pub(crate) use logs::{JobLogsArgs, logs};
pub(crate) use restart::{RestartJobArgs, restart};
pub(crate) use run::{RunArgs, run};
pub(crate) use scale::{ScaleArgs, scale};
pub(crate) use start::{StartJobArgs, start};
pub(crate) use status::{JobStatusArgs, status};
pub(crate) use stop::{StopJobArgs, stop};
pub(crate) use validate::{Args as ValidateArgs, run as validate};
