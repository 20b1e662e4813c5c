//! Tasks as callers: by the tokens of their default identities, which this gateway has signed. What they may follows
//! from `RoleBindings` to the user and the groups that they are.

use drover_core::task::identity::{self, IdentityClaims, IdentityError};
use kube::Client;

use super::allocations;
use crate::answers::Refusal;
use crate::identities::IdentitySigner;
use crate::reviews::{Identity, TASKS_OF_JOB};

/// How the names of users and groups begin that are tasks, and no others.
pub(super) const OWN_NAMES: &str = "drover:";

/// Knows tasks.
#[derive(Clone)]
pub(super) struct Workloads {
    client: Client,
    signer: IdentitySigner,
}

impl Workloads {
    /// Those whose tokens are read so.
    pub(super) fn new(client: Client, signer: IdentitySigner) -> Self {
        Self { client, signer }
    }

    /// Whether this is a token of a task, or pretends to be: the API server takes none that are signed so.
    pub(super) fn is_meant(token: &str) -> bool {
        IdentitySigner::is_meant(token)
    }

    /// The task whose token it is.
    ///
    /// # Errors
    /// 403 when it does not count, 503 when the API server cannot be asked.
    pub(super) async fn identify(&self, token: &str) -> Result<Identity, Refusal> {
        let refused = |error: IdentityError| Refusal::new(403, error.to_string());
        let claims = self.signer.read(token).map_err(refused)?;
        let found = allocations::find(&self.client, &claims.nomad_namespace, &claims.drover_allocation).await?;
        identity::check(&claims, found.as_ref(), self.signer.now()).map_err(refused)?;
        let group = found.map(|it| it.spec.group).unwrap_or_default();
        Ok(of_task(&claims, &group))
    }
}

/// The user that a task is, and its groups (`spec/gateway.md` 5).
fn of_task(claims: &IdentityClaims, group: &str) -> Identity {
    let IdentityClaims { nomad_namespace: namespace, nomad_job_id: job, nomad_task: task, .. } = claims;
    let groups = vec![
        "drover:tasks".to_owned(),
        format!("drover:tasks:{namespace}"),
        format!("{TASKS_OF_JOB}{namespace}:{job}"),
        "system:authenticated".to_owned(),
    ];
    Identity { user: format!("drover:task:{namespace}:{job}:{group}:{task}"), groups, ..Identity::default() }
}

/// Refuses a caller from elsewhere that has a name of a task.
///
/// # Errors
/// 401, with the name.
pub(super) fn from_elsewhere(identity: Identity) -> Result<Identity, Refusal> {
    let names = std::iter::once(&identity.user).chain(&identity.groups);
    match names.into_iter().find(|name| name.starts_with(OWN_NAMES)) {
        None => Ok(identity),
        Some(name) => Err(Refusal::new(401, format!("{name:?} is a name of tasks, whose own tokens say so"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g_060_no_one_from_elsewhere_is_a_task() {
        let caller = |user: &str, groups: &[&str]| Identity {
            user: user.to_owned(),
            groups: groups.iter().map(|it| (*it).to_owned()).collect(),
            ..Identity::default()
        };
        assert_eq!(from_elsewhere(caller("ann", &["dev"])).map(|it| it.user), Ok("ann".to_owned()));
        for forged in [caller("drover:task:shop:web:g:t", &[]), caller("ann", &["dev", "drover:tasks:shop"])] {
            let refusal = from_elsewhere(forged).expect_err("forged");
            assert!(refusal.code == 401 && refusal.message.contains("is a name of tasks"), "{}", refusal.message);
        }
    }
}
