//! Identities of tasks: what a token says of its task, for how long, and for whom it still counts (`spec/agent.md`
//! 7.5).
//!
//! Must never know: keys and signatures, files, how a token travels.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::group::Group;
use drover_api::task::{ChangeMode, Identity, Task};
use drover_api::value_object::{ValueKind, ValueObject};
use drover_api::{Allocation, GoDuration, JobSpec};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::template::ChangeReaction;
use crate::dispatch;

/// The identity that drover's own API takes: it names no audience, has no limit, and counts as long as its allocation
/// has not ended.
pub const DEFAULT: &str = "default";
/// Whom the default identity is meant for.
pub const DEFAULT_AUDIENCE: &str = "drover.dev";
/// Most identities of `ServiceAccounts` in a job: the admission policy `drover-secrets` of the chart asks for the right
/// to each.
pub const JOB_MAX_ACCOUNTS: usize = 4;
/// The shortest life that the API server gives a token.
pub const SHORTEST_ACCOUNT_LIFE: Duration = Duration::from_mins(10);
/// How long a `ServiceAccount`'s token counts where the job does not say.
const ACCOUNT_LIFE: Duration = Duration::from_hours(1);
/// A token is renewed at the earliest so long after it was made.
const SHORTEST_LIFE: Duration = Duration::from_secs(10);

/// An identity as agent and gateway name it to each other: the task's name, a slash, its own.
pub fn object_of(task: &str, identity: &Identity) -> ValueObject {
    ValueObject { kind: ValueKind::Identity, name: format!("{task}/{}", identity.name) }
}

/// The identity of a group that is named so; none: the group has none of that name.
pub fn find<'a>(group: &'a Group, object: &ValueObject) -> Option<(&'a Task, &'a Identity)> {
    let (task, name) = object.name.split_once('/').filter(|_| object.kind == ValueKind::Identity)?;
    let task = group.tasks.iter().find(|it| it.name == task)?;
    Some((task, task.identities.iter().find(|it| it.name == name)?))
}

/// Whether an identity can have this name: it becomes part of a file's name and of a variable's.
pub fn is_name(name: &str) -> bool {
    (1..=63).contains(&name.len()) && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_')
}

/// The variable that holds an identity's token.
pub fn variable(identity: &Identity) -> String {
    if identity.name == DEFAULT { "NOMAD_TOKEN".to_owned() } else { format!("NOMAD_TOKEN_{}", identity.name) }
}

/// The file that holds an identity's token, below the task's directory.
pub fn file(identity: &Identity) -> String {
    match (identity.filepath.as_str(), identity.name.as_str()) {
        ("", DEFAULT) => "secrets/nomad_token".to_owned(),
        ("", name) => format!("secrets/nomad_{name}.jwt"),
        (given, _) => given.to_owned(),
    }
}

/// What a token says. Names and meanings are Nomad's, so that who trusts those can trust these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityClaims {
    /// Who has made it: the configured issuer; none: none is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    /// `region:namespace:job:group:task:identity`.
    pub sub: String,
    /// Whom it is meant for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aud: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub iat: i64,
    /// From when it counts.
    pub nbf: i64,
    /// When it ends; none: with its allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// A number of its own.
    pub jti: String,
    /// The job's namespace.
    pub nomad_namespace: String,
    /// The job; of a dispatched or periodic one, its parent.
    pub nomad_job_id: String,
    /// The allocation: the object's uid.
    pub nomad_allocation_id: String,
    /// And its name, by which it is found.
    pub drover_allocation: String,
    /// The task.
    pub nomad_task: String,
    /// What the job says beside that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_claims: BTreeMap<String, String>,
}

/// Whose token it is to be.
#[derive(Clone, Copy, Debug)]
pub struct IdentityHolder<'a> {
    /// The allocation.
    pub allocation: &'a Allocation,
    /// Its version of the job.
    pub job: &'a JobSpec,
    /// The task.
    pub task: &'a Task,
    /// The task's identity.
    pub identity: &'a Identity,
}

/// How a token is made.
#[derive(Clone, Copy, Debug)]
pub struct IdentityMaking<'a> {
    /// Who makes it; none: it does not say.
    pub issuer: Option<&'a str>,
    /// A number that no other token has.
    pub number: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// What a token of this identity says.
pub fn claims(holder: IdentityHolder<'_>, making: IdentityMaking<'_>) -> IdentityClaims {
    let IdentityHolder { allocation, job, task, identity } = holder;
    let namespace = allocation.metadata.namespace.clone().unwrap_or_default();
    let own = job.id_or(&allocation.spec.job_name);
    let id = dispatch::parent_id(job).unwrap_or(own);
    let region = if job.region.is_empty() { "global" } else { &job.region };
    let iat = making.now.as_second();
    let is_default = identity.name == DEFAULT;
    let ttl = identity.ttl.map(GoDuration::to_std).filter(|ttl| !ttl.is_zero() && !is_default);
    let aud =
        if is_default && identity.aud.is_empty() { vec![DEFAULT_AUDIENCE.to_owned()] } else { identity.aud.clone() };
    IdentityClaims {
        iss: making.issuer.map(str::to_owned),
        sub: format!("{region}:{namespace}:{id}:{}:{}:{}", allocation.spec.group, task.name, identity.name),
        aud,
        iat,
        nbf: iat,
        exp: ttl.map(|ttl| iat.saturating_add(i64::try_from(ttl.as_secs().max(1)).unwrap_or(i64::MAX))),
        jti: making.number.to_owned(),
        nomad_namespace: namespace,
        nomad_job_id: id.to_owned(),
        nomad_allocation_id: allocation.metadata.uid.clone().unwrap_or_default(),
        drover_allocation: allocation.metadata.name.clone().unwrap_or_default(),
        nomad_task: task.name.clone(),
        extra_claims: identity.extra_claims.clone(),
    }
}

/// How many identities of `ServiceAccounts` a job's tasks have.
pub fn count_accounts(job: &JobSpec) -> usize {
    let tasks = job.groups.iter().flat_map(|group| &group.tasks);
    tasks.flat_map(|task| &task.identities).filter(|identity| identity.kubernetes.is_some()).count()
}

/// How many seconds a `ServiceAccount`'s token counts.
pub fn account_seconds(identity: &Identity) -> i64 {
    let life = identity.ttl.map(GoDuration::to_std).filter(|ttl| !ttl.is_zero()).unwrap_or(ACCOUNT_LIFE);
    i64::try_from(life.as_secs()).unwrap_or(i64::MAX)
}

/// When a token is renewed that was made and ends then, in seconds since 1970: at half of its life, and not at once.
pub fn renewal(made: i64, ends: i64) -> i64 {
    let half = ends.saturating_sub(made).max(0) / 2;
    made.saturating_add(half.max(i64::try_from(SHORTEST_LIFE.as_secs()).unwrap_or(i64::MAX)))
}

/// Why a token does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Nothing is signed so.
    #[error("the token is none that was made here: {0}")]
    Unknown(String),
    /// Its time is over or has not come.
    #[error("the token does not count at this time")]
    Time,
    /// It is for others.
    #[error("the token is for {0:?}, not for {DEFAULT_AUDIENCE}; use the identity named {DEFAULT}")]
    Audience(Vec<String>),
    /// There is no such allocation.
    #[error("the token's allocation is not there any more")]
    NoAllocation,
    /// It has ended.
    #[error("the token's allocation has ended")]
    Ended,
}

/// Whether what a signed token says counts: at this time, for drover's own API, and for an allocation that has not
/// ended. One that is only to stop may still use it.
///
/// # Errors
/// Why not.
pub fn check(claims: &IdentityClaims, allocation: Option<&Allocation>, now: Timestamp) -> Result<(), IdentityError> {
    let now = now.as_second();
    if claims.nbf > now || claims.exp.is_some_and(|exp| exp <= now) {
        return Err(IdentityError::Time);
    }
    if !claims.aud.iter().any(|it| it == DEFAULT_AUDIENCE) {
        return Err(IdentityError::Audience(claims.aud.clone()));
    }
    let id = Some(claims.nomad_allocation_id.as_str());
    let allocation = allocation.filter(|it| it.metadata.uid.as_deref() == id).ok_or(IdentityError::NoAllocation)?;
    if allocation.has_ended() { Err(IdentityError::Ended) } else { Ok(()) }
}

/// What follows on renewed tokens of a task that runs. A restart makes signals needless.
pub fn reaction<'a>(renewed: impl IntoIterator<Item = &'a Identity>) -> ChangeReaction {
    let mut all = ChangeReaction::default();
    for identity in renewed {
        match identity.change_mode.unwrap_or(ChangeMode::Noop) {
            ChangeMode::Restart => all.restart = true,
            ChangeMode::Signal => drop(all.signals.insert(identity.change_signal.clone())),
            // Scripts are templates' own: validation refuses the mode here.
            ChangeMode::Noop | ChangeMode::Script => {}
        }
    }
    if all.restart {
        all.signals.clear();
    }
    all
}

/// When the allocations that live were made, at the earliest: keys that were used before that are kept no longer.
pub fn oldest_living<'a>(allocations: impl IntoIterator<Item = &'a Allocation>) -> Option<Timestamp> {
    let lives = |it: &&Allocation| !it.has_ended();
    allocations.into_iter().filter(lives).filter_map(|it| it.metadata.creation_timestamp.as_ref()).map(|at| at.0).min()
}

#[cfg(test)]
mod tests {
    mod tokens;

    use serde_json::json;

    use super::*;

    fn identity(fields: &serde_json::Value) -> Identity {
        serde_json::from_value(fields.clone()).expect("an identity")
    }

    fn allocation(status: &str, desired: &str) -> Allocation {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": "web-g-0-x", "namespace": "shop", "uid": "a-1" },
            "spec": { "jobName": "web", "jobUID": "job-1", "jobVersion": 3, "group": "g", "index": 0, "nodeName": "n-1",
                      "desiredStatus": desired },
            "status": { "clientStatus": status },
        }))
        .expect("an allocation")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn made(job: &serde_json::Value, fields: &serde_json::Value) -> IdentityClaims {
        let job: JobSpec = serde_json::from_value(job.clone()).expect("a job");
        let task: Task = serde_json::from_value(json!({ "name": "t", "driver": "exec" })).expect("a task");
        let (allocation, identity) = (allocation("running", "run"), identity(fields));
        let holder = IdentityHolder { allocation: &allocation, job: &job, task: &task, identity: &identity };
        claims(holder, IdentityMaking { issuer: None, number: "1", now: at(1000) })
    }

    #[test]
    fn a_176_a_token_says_which_task_it_is_and_for_how_long() {
        let default = made(&json!({}), &json!({ "name": "default", "ttl": "1h" }));
        assert_eq!(
            serde_json::to_value(&default).expect("claims"),
            json!({ "sub": "global:shop:web:g:t:default", "aud": ["drover.dev"], "iat": 1000, "nbf": 1000, "jti": "1",
                    "nomad_namespace": "shop", "nomad_job_id": "web", "nomad_allocation_id": "a-1",
                    "drover_allocation": "web-g-0-x", "nomad_task": "t" }),
            "the default identity has no limit"
        );
        let extra = json!({ "name": "db", "aud": ["db"], "ttl": "90s", "extraClaims": { "team": "shop" } });
        let own = made(&json!({ "id": "Web", "region": "north" }), &extra);
        assert_eq!((own.sub.as_str(), own.exp), ("north:shop:Web:g:t:db", Some(1090)));
        assert_eq!((own.aud, own.extra_claims["team"].as_str()), (vec!["db".to_owned()], "shop"));
        assert_eq!(made(&json!({}), &json!({ "name": "db" })).aud, Vec::<String>::new());
    }

    #[test]
    fn a_146_a_token_counts_as_long_as_its_allocation_has_not_ended() {
        let token = made(&json!({}), &json!({ "name": "default" }));
        let judged = |allocation: &Allocation| check(&token, Some(allocation), at(2000));
        for (status, desired) in [("running", "run"), ("pending", "run"), ("running", "stop"), ("unknown", "run")] {
            assert_eq!(judged(&allocation(status, desired)), Ok(()), "{status}, desired {desired}");
        }
        for status in ["complete", "failed", "lost"] {
            assert_eq!(judged(&allocation(status, "run")), Err(IdentityError::Ended), "{status}");
        }
        assert_eq!(check(&token, None, at(2000)), Err(IdentityError::NoAllocation));
        // One of the same name that came later is another one.
        let mut other = allocation("running", "run");
        other.metadata.uid = Some("a-2".to_owned());
        assert_eq!(judged(&other), Err(IdentityError::NoAllocation));
    }

    #[test]
    fn a_token_for_others_or_of_another_time_does_not_count() {
        let running = allocation("running", "run");
        let limited = made(&json!({}), &json!({ "name": "own", "aud": ["db", "drover.dev"], "ttl": "1m" }));
        let judged = |claims: &IdentityClaims, now: i64| check(claims, Some(&running), at(now));
        assert_eq!([1000, 1059].map(|now| judged(&limited, now)), [Ok(()), Ok(())]);
        for now in [999, 1060, 5000] {
            assert_eq!(judged(&limited, now), Err(IdentityError::Time), "{now}");
        }
        let other = made(&json!({}), &json!({ "name": "db", "aud": ["db"] }));
        let error = judged(&other, 1000).expect_err("for others").to_string();
        assert_eq!(error, "the token is for [\"db\"], not for drover.dev; use the identity named default");
    }

    #[test]
    fn renewals_come_at_half_of_a_life_and_not_at_once() {
        let renewals = [(0, 3600), (100, 122), (100, 101), (100, 0)].map(|(made, ends)| renewal(made, ends));
        assert_eq!(renewals, [1800, 111, 110, 110]);
    }

    #[test]
    fn tokens_of_accounts_last_an_hour_or_as_the_job_says_and_are_counted() {
        let account = |more: &serde_json::Value| {
            let mut fields = json!({ "name": "aws", "kubernetes": { "serviceAccount": "web" } });
            fields.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            identity(&fields)
        };
        let lives =
            [json!({}), json!({ "ttl": "0s" }), json!({ "ttl": "2h" })].map(|more| account_seconds(&account(&more)));
        assert_eq!(lives, [3600, 3600, 7200]);
        let tasks = json!([{ "name": "a", "driver": "exec", "identities": [account(&json!({})), identity(&json!({ "name": "default" }))] },
                           { "name": "b", "driver": "exec", "identities": [account(&json!({}))] }]);
        let job: JobSpec =
            serde_json::from_value(json!({ "groups": [{ "name": "g", "tasks": tasks }] })).expect("a job");
        assert_eq!(count_accounts(&job), 2);
    }

    #[test]
    fn what_follows_on_renewals_is_a_restart_or_the_signals_once_each() {
        let of = |fields: &serde_json::Value| identity(fields);
        let hup = of(&json!({ "name": "a", "changeMode": "signal", "changeSignal": "SIGHUP" }));
        let again = of(&json!({ "name": "b", "changeMode": "signal", "changeSignal": "SIGHUP" }));
        let (nothing, restart) = (of(&json!({ "name": "c" })), of(&json!({ "name": "d", "changeMode": "restart" })));
        assert!(reaction([&nothing]).is_nothing());
        let signals = reaction([&hup, &again, &nothing]);
        assert_eq!((signals.restart, signals.signals.len()), (false, 1));
        let all = reaction([&hup, &restart]);
        assert!(all.restart && all.signals.is_empty());
    }

    #[test]
    fn files_and_variables_are_those_that_nomad_has() {
        let (default, vault) = (of_name("default"), of_name("vault"));
        assert_eq!([&default, &vault].map(variable), ["NOMAD_TOKEN", "NOMAD_TOKEN_vault"]);
        assert_eq!([&default, &vault].map(file), ["secrets/nomad_token", "secrets/nomad_vault.jwt"]);
        let placed = Identity { filepath: "local/x".to_owned(), ..vault };
        assert_eq!(file(&placed), "local/x");
        for (name, is_one) in [("a-B_9", true), ("", false), ("a.b", false), ("a/b", false), (&"x".repeat(64), false)] {
            assert_eq!(is_name(name), is_one, "{name}");
        }
    }

    fn of_name(name: &str) -> Identity {
        identity(&json!({ "name": name }))
    }
}
