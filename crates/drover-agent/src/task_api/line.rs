//! The connection to a replica of the gateway, where its callers are answered: opened when it is needed, and again
//! where it has ended.

use std::time::Duration;

use drover_store::Store;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::refusals::ApiRefusal;
use crate::gateway::{Dialer, GatewayPort};
use crate::random::Random;

/// How long a connection may take to be there: a task is not kept waiting for a gateway that is away.
const DIAL_TIMEOUT: Duration = Duration::from_millis(900);
/// How long an answer may take to begin.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection, or none yet.
#[derive(Debug)]
pub(super) struct GatewayLine<S> {
    dialer: Dialer<S>,
    random: Random,
    way: Option<SendRequest<Incoming>>,
    /// What drives it.
    driven: JoinSet<()>,
}

impl<S: Store> GatewayLine<S> {
    /// None yet.
    pub(super) fn new(dialer: Dialer<S>, random: Random) -> Self {
        Self { dialer, random, way: None, driven: JoinSet::new() }
    }

    /// How the gateway is called.
    pub(super) fn server_name(&self) -> &str {
        self.dialer.server_name()
    }

    /// Sends a request and waits for the answer's head.
    ///
    /// # Errors
    /// 503 when no replica is reached within a second, 504 when the answer does not come.
    pub(super) async fn send(&mut self, request: Request<Incoming>) -> Result<Response<Incoming>, ApiRefusal> {
        let away = |why: &str| ApiRefusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("no gateway answers: {why}"));
        let mut open = self.way.take();
        if let Some(way) = &mut open
            && way.ready().await.is_err()
        {
            open = None;
        }
        let mut way = match open {
            Some(way) => way,
            None => match tokio::time::timeout(DIAL_TIMEOUT, self.dial()).await {
                Ok(Ok(way)) => way,
                Ok(Err(reason)) => return Err(away(&reason)),
                Err(_) => return Err(away("it is not reached within a second")),
            },
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, way.send_request(request)).await {
            Ok(Ok(answer)) => {
                self.way = Some(way);
                Ok(answer)
            }
            Ok(Err(error)) => Err(away(&error.to_string())),
            Err(_) => Err(ApiRefusal::new(StatusCode::GATEWAY_TIMEOUT, "the gateway has not answered for a minute")),
        }
    }

    /// Tries the replicas, from any of them on.
    async fn dial(&mut self) -> Result<SendRequest<Incoming>, String> {
        let known = self.dialer.replicas().addresses(GatewayPort::Users).await.map_err(|error| error.to_string())?;
        let mut all: Vec<String> = known.into_iter().collect();
        let first = self.random.place(all.len());
        all.rotate_left(first);
        let mut failed = "no replica of it is ready".to_owned();
        for address in all {
            match self.dialer.connect(&address).await {
                Ok(connection) => {
                    let (way, driver) =
                        http1::handshake(TokioIo::new(connection)).await.map_err(|error| error.to_string())?;
                    // An older one has ended, or is ended.
                    self.driven = JoinSet::new();
                    self.driven.spawn(async move {
                        if let Err(error) = driver.with_upgrades().await {
                            tracing::debug!(%error, "a task's connection to the gateway broke");
                        }
                    });
                    return Ok(way);
                }
                Err(reason) => failed = format!("{address}: {reason}"),
            }
        }
        Err(failed)
    }
}
