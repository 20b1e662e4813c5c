//! A download over HTTP: into a file, with what it sums up to.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use drover_api::names::hex;
use drover_core::artifact::{Checksum, ChecksumKind, WebAddress};
use http::{StatusCode, header};
use md5::Md5;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha512};

use crate::budget::Budget;
use crate::exchange::{Coming, Headers, Heads, Web, shown};

/// What is taken of an answer, mostly.
pub(crate) const ANYTHING: Headers<'_> = &[("accept", "*/*")];

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) url: &'a str,
    /// Headers for the first server alone.
    pub(crate) headers: &'a BTreeMap<String, String>,
    /// Headers for any: the kinds that are taken.
    pub(crate) asks: Headers<'a>,
    /// What it must sum up to, and who says so.
    pub(crate) checksum: Option<(&'a Checksum, &'a str)>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// It is in the file.
    Taken,
    /// The first server wants to know who asks, and says how that is shown.
    Challenged(String),
}

impl Web<'_> {
    /// Downloads into a new file and compares what it sums up to.
    pub(crate) async fn download(self, ask: Ask<'_>, to: &Path, budget: &mut Budget) -> Result<Got, String> {
        let first = WebAddress::parse(ask.url).map_err(|error| error.to_string())?;
        let (from, response) = self.get(&first, Heads { asks: ask.asks, own: ask.headers }).await?;
        let status = response.status();
        let how = response.headers().get(header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        match how {
            Some(how) if status == StatusCode::UNAUTHORIZED && from == first => {
                return Ok(Got::Challenged(how.to_owned()));
            }
            _ if !status.is_success() => return Err(format!("{}: answered {status}", shown(&from))),
            _ => {}
        }
        let taken = take_in(ask, response.into_body(), (to, budget)).await;
        taken.map(|()| Got::Taken).map_err(|error| format!("{}: {error}", shown(&from)))
    }

    /// The same, where a server that wants to know who asks gives nothing.
    pub(crate) async fn download_plain(self, ask: Ask<'_>, to: &Path, budget: &mut Budget) -> Result<(), String> {
        match self.download(ask, to, budget).await? {
            Got::Taken => Ok(()),
            Got::Challenged(_) => {
                let at = WebAddress::parse(ask.url).map_err(|error| error.to_string())?;
                Err(format!("{}: answered {}", shown(&at), StatusCode::UNAUTHORIZED))
            }
        }
    }
}

async fn take_in(ask: Ask<'_>, mut body: Coming, (to, budget): (&Path, &mut Budget)) -> Result<(), String> {
    // A server that says so is believed at once.
    budget.clone().take_bytes(body.announced())?;
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let mut file: File = opened.map_err(|error| format!("the download cannot be kept: {error}"))?;
    let mut sum = ask.checksum.map(|(wanted, who)| (hasher(wanted.kind), wanted, who));
    while let Some(data) = body.next().await? {
        budget.take_bytes(data.len() as u64)?;
        if let Some((sum, ..)) = &mut sum {
            sum.update(&data);
        }
        file.write_all(&data).map_err(|error| format!("the download cannot be kept: {error}"))?;
    }
    sum.map_or(Ok(()), |(sum, wanted, who)| compare(&sum.finalize(), wanted, who))
}

fn hasher(kind: ChecksumKind) -> Box<dyn DynDigest + Send> {
    match kind {
        ChecksumKind::Md5 => Box::new(Md5::default()),
        ChecksumKind::Sha1 => Box::new(Sha1::default()),
        ChecksumKind::Sha256 => Box::new(Sha256::default()),
        ChecksumKind::Sha512 => Box::new(Sha512::default()),
    }
}

fn compare(sum: &[u8], wanted: &Checksum, who: &str) -> Result<(), String> {
    let found = hex(sum);
    if found == wanted.hex {
        return Ok(());
    }
    Err(format!("the checksum is {found}, not {} as {who} has it", wanted.hex))
}
