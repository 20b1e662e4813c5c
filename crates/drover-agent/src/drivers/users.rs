//! The user that a task names, as the accounts of the node know it.
//!
//! Input: `NAME`, `UID`, `NAME:GROUP` or `UID:GID`. Output: ids, groups, name and home directory; or what is wrong,
//! with the field. Must never know: what a task does.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::node::beneath::NOBODY;
use drover_supervisor::protocol::Credentials;
use nix::unistd::{Gid, Group, Uid, User};

/// An account of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its name; the number of one that has none.
    pub(crate) name: String,
    /// Its numbers.
    pub(crate) credentials: Credentials,
    /// Its home directory.
    pub(crate) home: PathBuf,
}

impl Account {
    /// The user that one allocation has for itself, of which the node's list of users knows nothing.
    pub(crate) fn of_allocation(number: u32) -> Self {
        let credentials = Credentials { uid: number, gid: number, groups: vec![number] };
        Self { name: "task".to_owned(), credentials, home: PathBuf::from("/local") }
    }
}

/// Finds the account.
///
/// # Errors
/// The field and what is wrong with it.
pub(crate) fn find(text: &str) -> Result<Account, String> {
    let refused = |reason: String| format!("user {text:?}: {reason}");
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let number = user.parse().ok();
    let known = number.map_or_else(|| User::from_name(user), |uid| User::from_uid(Uid::from_raw(uid)));
    let known = known.map_err(|error| refused(error.to_string()))?;
    let group = group.map(find_group).transpose().map_err(refused)?;
    let Some(known) = known else {
        // Numbers need no account.
        let uid = number.ok_or_else(|| refused("there is no such user on this node".to_owned()))?;
        let gid = group
            .ok_or_else(|| refused(format!("this node has no such user, and so no group of it: write {uid}:GID")))?;
        let credentials = Credentials { uid, gid, groups: vec![gid] };
        return Ok(Account { name: user.to_owned(), credentials, home: PathBuf::from("/") });
    };
    let (uid, own_gid) = (known.uid.as_raw(), known.gid.as_raw());
    let credentials = if let Some(gid) = group {
        Credentials { uid, gid, groups: vec![gid] }
    } else {
        let login = std::ffi::CString::new(known.name.as_str()).map_err(|error| refused(error.to_string()))?;
        let groups = nix::unistd::getgrouplist(&login, known.gid).map_err(|error| refused(error.to_string()))?;
        Credentials { uid, gid: own_gid, groups: groups.into_iter().map(Gid::as_raw).collect() }
    };
    Ok(Account { name: known.name, credentials, home: known.dir })
}

fn find_group(text: &str) -> Result<u32, String> {
    if let Ok(gid) = text.parse() {
        return Ok(gid);
    }
    let group = Group::from_name(text).map_err(|error| error.to_string())?;
    group.map(|group| group.gid.as_raw()).ok_or_else(|| format!("there is no group {text} on this node"))
}

/// Finds an account that is neither root's nor that of an allocation, by its number or by one of its groups. The
/// allocations' users are those of the given range.
///
/// # Errors
/// As [`find`]; and what of it is whose.
pub(crate) fn find_unprivileged(text: &str, of_allocations: &RangeInclusive<u32>) -> Result<Account, String> {
    let account = find(text)?;
    let Credentials { uid, gid, groups } = &account.credentials;
    if let Some(what) = of_root(&account.credentials) {
        return Err(format!(
            "user {text:?} has {what}, which is root's: tasks of driver exec never run with it; name another user of \
             the node, or leave it out"
        ));
    }
    let taken = [uid, gid].into_iter().chain(groups).copied().find(|number| of_allocations.contains(number));
    match taken {
        Some(number) => Err(format!(
            "user {text:?} has number {number}, which is kept for allocations (drivers.exec.uidRange of the agent's \
             configuration): name another user of the node, or leave it out"
        )),
        None => Ok(account),
    }
}

/// What of these is root's; none: nothing.
fn of_root(credentials: &Credentials) -> Option<&'static str> {
    match credentials {
        Credentials { uid: 0, .. } => Some("uid 0"),
        Credentials { gid: 0, .. } => Some("gid 0"),
        Credentials { groups, .. } if groups.contains(&0) => Some("group 0 among its groups"),
        Credentials { .. } => None,
    }
}

/// The files by which programs in a sandbox find names of users: `passwd` and `group` with root's, `nobody`'s and this
/// account's entries.
pub(crate) fn account_files(account: &Account) -> [(&'static str, String); 2] {
    let Credentials { uid, gid, groups } = &account.credentials;
    let own = format!("{}:x:{uid}:{gid}::{}:/usr/sbin/nologin\n", account.name, account.home.display());
    let nobody = format!("nobody:x:{NOBODY}:{NOBODY}:nobody:/nonexistent:/usr/sbin/nologin\n");
    let nobody = Some(nobody).filter(|_| *uid != NOBODY);
    let root = "root:x:0:0:root:/root:/usr/sbin/nologin\n".to_owned();
    let passwd = [root].into_iter().chain(nobody).chain([own]).collect();
    let mut gids: Vec<u32> = groups.iter().copied().chain([*gid]).filter(|gid| *gid != 0).collect();
    gids.sort_unstable();
    gids.dedup();
    let entry = |gid: u32| {
        let known = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
        let unknown = || if gid == NOBODY { "nogroup".to_owned() } else { gid.to_string() };
        format!("{}:x:{gid}:\n", known.unwrap_or_else(unknown))
    };
    let group = ["root:x:0:\n".to_owned()].into_iter().chain(gids.into_iter().map(entry)).collect();
    [("passwd", passwd), ("group", group)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: RangeInclusive<u32> = 2_000_000..=2_999_999;

    #[test]
    fn must_survive_x_004_root_by_any_of_its_names() {
        for text in ["0", "root", "0:0", "nobody:0", "nobody:root", "0:65534", "12345:0", "00", "+0"] {
            let error = find_unprivileged(text, &OWN).expect_err(text);
            assert!(error.contains(&format!("user {text:?}")) && error.contains("root's"), "{error}");
        }
        // Another name for uid 0, as `toor`, is an account as any other until its numbers are looked at.
        let toor = Credentials { uid: 0, gid: 1000, groups: vec![1000] };
        assert_eq!(of_root(&toor), Some("uid 0"));
        let wheel = Credentials { uid: 1000, gid: 1000, groups: vec![1000, 0] };
        assert_eq!(of_root(&wheel), Some("group 0 among its groups"));
    }

    #[test]
    fn must_survive_x_005_the_number_of_another_allocation() {
        for text in ["2000007:2000007", "nobody:2000007", "2999999:1000", "2000000:1000"] {
            let error = find_unprivileged(text, &OWN).expect_err(text);
            assert!(error.contains("kept for allocations") && error.contains("uidRange"), "{error}");
        }
        find_unprivileged("1999999:3000000", &OWN).expect("numbers of nobody");
    }

    #[test]
    fn users_are_found_by_name_and_by_number_with_and_without_a_group() {
        let nobody = find_unprivileged("nobody", &OWN).expect("an account");
        assert_eq!((nobody.credentials.uid, nobody.name.as_str()), (NOBODY, "nobody"));
        assert_eq!(find_unprivileged("65534", &OWN).expect("an account"), nobody);
        let other = find_unprivileged("nobody:4321", &OWN).expect("an account");
        assert_eq!((other.credentials.gid, other.credentials.groups), (4321, vec![4321]));
        let stranger = find_unprivileged("54321:4321", &OWN).expect("numbers need no account");
        assert_eq!((stranger.credentials.uid, stranger.name.as_str()), (54321, "54321"));
        for (text, wanted) in [
            ("54321", "54321:GID"),
            ("nobody-of-that-name", "no such user"),
            ("nobody:no-such-group", "no group no-such-group"),
            ("", "no such user"),
            ("4294967296:1", "no such user"),
        ] {
            let error = find(text).expect_err(text);
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn a_sandbox_knows_the_names_of_its_own_account_and_of_no_other() {
        let account = find("54321:4321").expect("an account");
        let [(_, passwd), (_, group)] = account_files(&account);
        let names =
            |text: &str| text.lines().map(|line| line.split(':').next().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&passwd), ["root", "nobody", "54321"]);
        assert_eq!(names(&group), ["root", "4321"]);
        assert!(passwd.lines().all(|line| line.split(':').count() == 7), "{passwd}");
    }
}
