//! Which deployment of a job is the newest.

use std::sync::Arc;

use drover_api::Deployment;
use drover_api::names::deployment_name;
use jiff::Timestamp;

use crate::model;

/// What tells how old a deployment is.
#[derive(Clone, Copy, Debug)]
pub struct DeploymentAge<'a> {
    created_at: Timestamp,
    version: i64,
    name: &'a str,
    uid: &'a str,
    job: &'a str,
    job_uid: &'a str,
}

impl DeploymentAge<'_> {
    /// Whether it was made when the other one was its job's newest.
    fn is_next_of(&self, other: &DeploymentAge<'_>) -> bool {
        *self.name == deployment_name(self.job, self.job_uid, self.version, Some(other.uid))
    }
}

/// A deployment, in whichever form.
pub trait Aged {
    /// How old it is.
    fn age(&self) -> DeploymentAge<'_>;
}

impl Aged for model::Deployment {
    fn age(&self) -> DeploymentAge<'_> {
        DeploymentAge {
            created_at: self.created_at,
            version: self.job_version,
            name: &self.key.name,
            uid: self.uid.as_str(),
            job: &self.job.name,
            job_uid: self.job_uid.as_str(),
        }
    }
}

impl Aged for Deployment {
    fn age(&self) -> DeploymentAge<'_> {
        let (meta, spec) = (&self.metadata, &self.spec);
        DeploymentAge {
            created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::MIN, |at| at.0),
            version: spec.job_version,
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
            job: &spec.job_name,
            job_uid: &spec.job_uid,
        }
    }
}

impl<D: Aged> Aged for Arc<D> {
    fn age(&self) -> DeploymentAge<'_> {
        (**self).age()
    }
}

/// The newest of the deployments of a job. The API server dates objects to the second: of those of one second and
/// version it is the one that none was made after, as their names tell. O(their number, and the square of those of the
/// last second).
pub fn newest<'a, D: Aged + 'a>(of_job: impl Iterator<Item = &'a D>) -> Option<&'a D> {
    let all: Vec<(&D, DeploymentAge<'_>)> = of_job.map(|one| (one, one.age())).collect();
    let last = all.iter().map(|(_, age)| (age.created_at, age.version)).max()?;
    let of_last = || all.iter().filter(|(_, age)| (age.created_at, age.version) == last);
    let has_next = |age: &DeploymentAge<'_>| of_last().any(|(_, other)| other.is_next_of(age));
    of_last().find(|(_, age)| !has_next(age)).or_else(|| of_last().next_back()).map(|(one, _)| *one)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deployment of a second and version, with a name and uid.
    struct MadeDeployment {
        second: i64,
        version: i64,
        name: String,
        uid: String,
    }

    impl Aged for MadeDeployment {
        fn age(&self) -> DeploymentAge<'_> {
            DeploymentAge {
                created_at: Timestamp::from_second(self.second).expect("a time"),
                version: self.version,
                name: &self.name,
                uid: &self.uid,
                job: "web",
                job_uid: "j",
            }
        }
    }

    /// One that was made when the deployment of uid `after` was the newest.
    fn made(second: i64, version: i64, uid: &str, after: Option<&str>) -> MadeDeployment {
        MadeDeployment { second, version, name: deployment_name("web", "j", version, after), uid: uid.to_owned() }
    }

    fn newest_of(all: &[MadeDeployment]) -> Option<&str> {
        newest(all.iter()).map(|one| one.uid.as_str())
    }

    #[test]
    fn the_second_goes_before_the_version_and_the_version_before_the_name() {
        assert_eq!(newest_of(&[]), None);
        let second = [made(5, 9, "early", None), made(6, 1, "late", None)];
        assert_eq!(newest_of(&second), Some("late"));
        let version = [made(5, 10, "ten", None), made(5, 9, "nine", Some("ten"))];
        assert_eq!(newest_of(&version), Some("ten"), "a name tells only among those of one version");
    }

    #[test]
    fn of_one_second_it_is_the_end_of_the_chain_in_whatever_order_they_are_listed() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let length = rng.usize(1..7);
            let uids: Vec<String> = (0..length).map(|n| format!("uid-{n}")).collect();
            let mut all: Vec<MadeDeployment> = (0..length)
                .map(|n| made(5, 2, &uids[n], n.checked_sub(1).map(|before| uids[before].as_str())))
                .collect();
            all.push(made(4, 2, "older", Some(&uids[length - 1])));
            rng.shuffle(&mut all);
            assert_eq!(newest_of(&all), uids.last().map(String::as_str), "seed {seed}");
        }
    }

    #[test]
    fn names_that_tell_nothing_or_go_round_still_give_one() {
        let mut foreign = [made(5, 2, "a", None), made(5, 2, "b", None)];
        foreign[0].name = "by-hand".to_owned();
        foreign[1].name = "by-hand-too".to_owned();
        assert_eq!(newest_of(&foreign), Some("a"), "the first that none was made after");
        let round = [made(5, 2, "a", Some("b")), made(5, 2, "b", Some("a"))];
        assert_eq!(newest_of(&round), Some("b"), "the last of a circle");
    }
}
