//! `drover nomad …`: programs that speak Nomad's HTTP API reach the gateway with a kubeconfig alone.

mod command;
mod environment;
mod proxy;
mod secret;

pub(crate) use command::{NomadArgs, run};
