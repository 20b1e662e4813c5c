//! A commit of a git repository: its objects, in a pack, without history. The library that reads them starts no program
//! and reads no configuration.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use drover_core::artifact::GitTree;
use gix_error::Class;
use gix_hash::{Kind as HashKind, ObjectId};
use gix_pack::Bundle;
use gix_pack::bundle::write;
use gix_protocol::fetch::negotiate::{Action, Round, one_round};
use gix_protocol::fetch::{Arguments, Context, Negotiate, Options, Response, Shallow, Tags};
use gix_protocol::handshake::Ref;
use gix_protocol::ls_refs::RefPrefixes;
use gix_protocol::{Handshake, LsRefsCommand};
use gix_transport::client::blocking_io::http::Transport;
use gix_transport::{Protocol, Service};
use gix_utils::progress::Discard;

use crate::budget::Budget;
use crate::exchange::Web;
use crate::order::Order;
use crate::pack::{Commit, MOST_OBJECT};
use crate::part::{Form, Part};
use crate::smart_http::{Repository, SmartHttp};
use crate::waiting::Waiting;

/// The folder of the pack.
const PACK: &str = "git";
/// What servers are told.
const AGENT: &str = "git/drover-fetch";
/// Where a name is looked for, in this order: as git-clone(1) does for `--branch`, and then as a full name.
const PLACES: [&str; 3] = ["refs/heads/", "refs/tags/", ""];

/// Downloads the commit of the plan's repository into a folder.
pub(crate) fn download(
    (order, tree): (&Order, &GitTree),
    web: Web<'_>,
    folder: &Path,
    waiting: &Waiting,
) -> Result<Vec<Part>, String> {
    let budget = Cell::new(Budget::new(order.limits));
    let repository = Repository { web, plan: &order.plan, waiting, budget: &budget };
    let url = gix_url::Url::from_bytes(order.plan.url.as_bytes().into());
    let url = url.map_err(|error| format!("{}: {}", order.plan.url, error.probable_cause()))?;
    let mut transport = Transport::new_http(SmartHttp::new(repository)?, url, Protocol::V2, false);
    let failed = |error: gix_error::Error| {
        let cause = match error.dominant_class() {
            Some(Class::ResourceExhaustion(_)) => {
                format!("it has a file of more than {} MiB, or too many; fetch an archive of it", MOST_OBJECT >> 20)
            }
            _ => error.probable_cause().to_string(),
        };
        format!("{}: {error}: {cause}", order.plan.url)
    };
    let no_credentials = |_| Ok(None);
    let upload = Service::UploadPack;
    let hands = gix_protocol::handshake(&mut transport, upload, no_credentials, vec![], &mut Discard);
    let mut hands = hands.map_err(failed)?;
    let id = match tree.commit() {
        Some(digits) => ObjectId::from_hex(digits.as_bytes()).map_err(|error| error.to_string())?,
        None => found(tree, &references(tree, &mut hands, &mut transport).map_err(failed)?)?,
    };
    let pack = folder.join(PACK);
    std::fs::create_dir(&pack).map_err(|error| format!("the download cannot be kept: {error}"))?;
    let mut file = None;
    gix_protocol::fetch(
        &mut Wanted(id),
        |bytes, progress, interrupt| {
            let options =
                write::Options { thread_limit: Some(1), alloc_limit_bytes: Some(MOST_OBJECT), ..Default::default() };
            let none = None::<gix_object::find::Never>;
            let written =
                Bundle::write_to_directory(bytes, Some(&pack), progress, interrupt, none, HashKind::Sha1, options)?;
            file = written.data_path;
            Ok(true)
        },
        Discard,
        &AtomicBool::new(false),
        Context { handshake: &mut hands, transport: &mut transport, user_agent: agent(), trace_packetlines: false },
        Options {
            shallow_file: pack.join("shallow"),
            shallow: &Shallow::DepthAtRemote(NonZeroU32::MIN),
            tags: Tags::None,
            reject_shallow_remote: false,
        },
    )
    .map_err(failed)?;
    let file = file.ok_or_else(|| format!("{}: the server sent nothing of {id}", order.plan.url))?;
    let commit = Commit { id, folder: tree.folder.clone(), is_file: order.plan.is_whole };
    Ok(vec![Part { file, name: order.plan.file_name.clone(), form: Form::Pack(commit) }])
}

fn agent() -> (&'static str, Option<String>) {
    ("agent", Some(AGENT.to_owned()))
}

/// What the repository has of the names that the plan's may be.
fn references<T>(tree: &GitTree, hands: &mut Handshake, transport: &mut T) -> gix_error::Result<Vec<Ref>>
where
    T: gix_transport::client::blocking_io::Transport,
{
    if let Some(all) = hands.refs.take() {
        return Ok(all);
    }
    let mut prefixes = RefPrefixes::new();
    prefixes.extend(names(tree).map(Into::into));
    LsRefsCommand::new(Some(prefixes), &hands.capabilities, agent()).invoke_blocking(transport, &mut Discard, false)
}

/// Full names of what the plan's reference may be, the best first.
fn names(tree: &GitTree) -> impl Iterator<Item = String> {
    let name = tree.reference.as_deref().unwrap_or("HEAD");
    PLACES.iter().map(move |place| format!("{place}{name}")).skip(if tree.reference.is_none() { 2 } else { 0 })
}

fn found(tree: &GitTree, all: &[Ref]) -> Result<ObjectId, String> {
    let is = |name: &str| {
        all.iter().find_map(|reference| match reference {
            Ref::Peeled { full_ref_name, tag, .. } if *full_ref_name == name => Some(*tag),
            Ref::Direct { full_ref_name, object } if *full_ref_name == name => Some(*object),
            Ref::Symbolic { full_ref_name, tag, object, .. } if *full_ref_name == name => Some(tag.unwrap_or(*object)),
            _ => None,
        })
    };
    names(tree).find_map(|name| is(&name)).ok_or_else(|| match &tree.reference {
        Some(name) => format!(
            "the repository has no branch and no tag {name:?} (getterOptions.ref); a commit needs all its 40 digits"
        ),
        None => "the repository has no commit at HEAD; name a branch in getterOptions.ref".to_owned(),
    })
}

/// One commit is wanted, by who has nothing.
struct Wanted(ObjectId);

impl Negotiate for Wanted {
    fn mark_complete_and_common_ref(&mut self) -> gix_error::Result<Action> {
        Ok(Action::MustNegotiate { remote_ref_target_known: vec![false] })
    }

    fn add_wants(&mut self, arguments: &mut Arguments, _: &[bool]) -> bool {
        arguments.want(self.0);
        true
    }

    fn one_round(
        &mut self,
        _: &mut one_round::State,
        _: &mut Arguments,
        _: Option<&Response>,
    ) -> gix_error::Result<(Round, bool)> {
        let nothing =
            Round { haves_sent: 0, in_vain: 0, haves_to_send: 0, previous_response_had_at_least_one_in_common: false };
        Ok((nothing, true))
    }
}
