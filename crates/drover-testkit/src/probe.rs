//! What drover's processes answer to probes and scrapes.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use http::StatusCode;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Asks the process that answers at this address for a path, for example `/metrics`; the answer's status and text.
///
/// # Errors
/// When no server answers, or with what is no text.
pub async fn get(address: SocketAddr, path: &str) -> Result<(StatusCode, String)> {
    let asked = || format!("asking {address} for {path}");
    let uri = format!("http://{address}{path}").parse().with_context(asked)?;
    let client: Client<_, Empty<&[u8]>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(uri).await.with_context(asked)?;
    let status = answer.status();
    let body = answer.into_body().collect().await.with_context(asked)?;
    Ok((status, String::from_utf8(body.to_bytes().into()).with_context(asked)?))
}

/// Where a process of drover answers, once its log says so.
#[must_use]
pub fn address_in(log: &str) -> Option<SocketAddr> {
    loopback_in(log.lines().find(|line| line.contains("probes and scrapes are answered"))?)
}

/// Where a gateway answers `users` or `agents`, once its log says so.
#[must_use]
pub fn gateway_in(log: &str, who: &str) -> Option<SocketAddr> {
    let who = format!("who=\"{who}\"");
    loopback_in(log.lines().find(|line| line.contains("listens") && line.contains(&who))?)
}

fn loopback_in(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    port.parse().ok().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)))
}
