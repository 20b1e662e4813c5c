//! The verbs of `drover nomad`.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use anyhow::{Context as _, bail};
use clap::Subcommand;

use super::environment::{self, EnvironmentArgs};
use super::proxy::Proxy;
use super::secret::Secret;
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::ui::stdio::{answer, complain};

/// Where Nomad's agents listen, and clients look for one by themselves.
const USUAL_PORT: u16 = 4646;
/// The exit code of a program that a signal has ended, less the signal's number.
const BY_SIGNAL: i32 = 128;

/// Arguments of `drover nomad`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Without a verb: `drover nomad -- job status` runs `nomad job status` with the rights of the kubeconfig. Its exit \
                  code is that of nomad."
)]
pub(crate) struct NomadArgs {
    #[command(subcommand)]
    command: Option<NomadCommand>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// The arguments of nomad.
    #[arg(last = true)]
    args: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum NomadCommand {
    /// Leads from a port of this machine to the gateway, through the API server, until Ctrl-C, and prints what clients
    /// need in their environment.
    Proxy {
        #[command(flatten)]
        connect: ConnectArgs,
        /// The port; 0: one that is free.
        #[arg(long, default_value_t = USUAL_PORT)]
        port: u16,
    },
    /// Prints what clients need in their environment to reach the gateway's own port: `eval "$(drover nomad env)"`.
    Env(EnvironmentArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &NomadArgs) -> anyhow::Result<u8> {
    match &args.command {
        Some(NomadCommand::Proxy { connect, port }) => block_on(proxy(connect, *port)),
        Some(NomadCommand::Env(args)) => block_on(environment::print(args)),
        None if args.args.is_empty() => bail!("nothing to run: `drover nomad -- job status` runs `nomad job status`"),
        None => block_on(nomad(&args.connect, &args.args)),
    }
}

/// What a client of the proxy needs in its environment.
async fn open(connect: &ConnectArgs, port: u16) -> anyhow::Result<(Proxy, [(&'static str, String); 3])> {
    let connection = connect.connect_for_streams().await?;
    let secret = Secret::new()?;
    let proxy = Proxy::listen(port, connection.client, secret.clone()).await?;
    let environment = [
        ("NOMAD_ADDR", proxy.address()?),
        ("NOMAD_TOKEN", secret.text().to_owned()),
        ("NOMAD_NAMESPACE", connection.namespace),
    ];
    Ok((proxy, environment))
}

async fn proxy(connect: &ConnectArgs, port: u16) -> anyhow::Result<u8> {
    let (proxy, environment) = open(connect, port).await?;
    answer(environment::exports(&environment).as_bytes())?;
    complain("the gateway answers there until Ctrl-C");
    tokio::select! {
        () = proxy.serve() => Ok(1),
        ended = tokio::signal::ctrl_c() => ended.context("listening for Ctrl-C").map(|()| 0),
    }
}

async fn nomad(connect: &ConnectArgs, args: &[OsString]) -> anyhow::Result<u8> {
    let (proxy, environment) = open(connect, 0).await?;
    let [address, token, namespace] = environment;
    let mut command = tokio::process::Command::new("nomad");
    command.args(args).envs([address, token]).stdin(Stdio::inherit()).kill_on_drop(true);
    // Who has chosen one stays there.
    if std::env::var_os(namespace.0).is_none() {
        command.env(namespace.0, namespace.1);
    }
    let started = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow::anyhow!(
            "there is no program `nomad` in PATH: install it, or give another client what `drover nomad proxy` prints"
        ),
        _ => anyhow::Error::new(error).context("starting nomad"),
    });
    let mut child = started?;
    let serving = proxy.serve();
    tokio::pin!(serving);
    loop {
        let ended = tokio::select! {
            ended = child.wait() => ended.context("waiting for nomad")?,
            () = &mut serving => bail!("the proxy has ended"),
            // nomad gets it too, and ends in its own way.
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.context("listening for Ctrl-C")?;
                continue;
            }
        };
        let by_signal = || std::os::unix::process::ExitStatusExt::signal(&ended).map(|signal| BY_SIGNAL + signal);
        let code = ended.code().or_else(by_signal).unwrap_or(1);
        return Ok(u8::try_from(code).unwrap_or(1));
    }
}
