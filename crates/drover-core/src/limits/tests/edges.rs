//! The last allocation that a limit lets through, and what is told of the next.

use super::*;

#[test]
fn a_job_may_ask_for_its_limit_and_not_for_one_more() {
    let mut all = Asked::default();
    let admit = |all: &mut Asked, kind, asked| all.admit(&key("a", "one"), kind, asked, LIMITS).map_err(|it| it.code);
    assert_eq!(admit(&mut all, JobType::Service, 6), Ok(()));
    assert_eq!(admit(&mut all, JobType::Service, 7), Err("JobLimit"));
    assert_eq!(admit(&mut all, JobType::Batch, 7), Err("JobLimit"));
    // One for each node is as many as there are nodes.
    assert_eq!(admit(&mut all, JobType::System, 10), Ok(()));
    assert_eq!(admit(&mut all, JobType::Sysbatch, 11), Err("NamespaceLimit"));
}

#[test]
fn what_is_over_is_told_with_limit_and_setting() {
    let error = |asked| {
        let mut all = Asked::default();
        all.restore(&key("a", "one"), 6);
        all.admit(&key("a", "two"), JobType::Service, asked, LIMITS).expect_err("over").to_string()
    };
    assert_eq!(
        error(7),
        "spec.groups: one job would have 7 allocations, and the limit is 6: lower the counts, stop other jobs, or let \
         the administrator of drover raise limits.allocationsPerJob in the controller's configuration (JobLimit)"
    );
    assert_eq!(
        error(5),
        "spec.groups: the jobs of namespace a together would have 11 allocations, and the limit is 10: lower the \
         counts, stop other jobs, or let the administrator of drover raise limits.allocationsPerNamespace in the \
         controller's configuration (NamespaceLimit)"
    );
}

#[test]
fn a_scaled_count_stands_for_the_groups_own_and_none_is_below_zero() {
    let all = |kind: &str, counts: &[i64], scaled: Option<(&str, i64)>| {
        asked(&definition(kind, counts), scaled.map(|(name, count)| (name.to_owned(), count)).as_ref(), 3)
    };
    for (counts, scaled, expected) in [
        (vec![2, 3], Some(("g0", 0)), 3),
        (vec![2, 3], Some(("g1", 1)), 3),
        (vec![2, 3], Some(("other", 9)), 5),
        (vec![2, 3], Some(("g0", -4)), 3),
        (vec![i64::MAX, 1], None, i64::MAX),
        (vec![], None, 0),
    ] {
        assert_eq!(all("service", &counts, scaled), expected, "{counts:?} {scaled:?}");
    }
    assert_eq!(all("system", &[0, 1, 5], Some(("g0", 9))), 6, "one of each group that has any, on each of 3 nodes");
}

#[test]
fn of_those_that_wait_the_smallest_is_told_first_and_names_break_ties() {
    let mut all = Asked::default();
    all.restore(&key("a", "big"), 10);
    for (name, asked) in [("d", 3), ("c", 2), ("b", 2), ("e", 4)] {
        all.admit(&key("a", name), JobType::Service, asked, LIMITS).expect_err("full");
    }
    all.release(&key("a", "big"));
    all.restore(&key("a", "small"), 3);
    // Seven are free: 2, 2 and 3 fit, 4 does not.
    let told = all.take_fitting(&"a".into(), LIMITS);
    assert_eq!(told, [key("a", "b"), key("a", "c"), key("a", "d")]);
    all.release(&key("a", "small"));
    assert_eq!(all.take_fitting(&"a".into(), LIMITS), [key("a", "e")]);
    assert_eq!(all.take_fitting(&"unknown".into(), LIMITS), []);
}

#[test]
fn a_job_that_asks_again_or_is_gone_does_not_wait_any_more() {
    let mut all = Asked::default();
    all.restore(&key("a", "old"), 9);
    let (two, three) = (key("a", "two"), key("a", "three"));
    all.admit(&two, JobType::Service, 5, LIMITS).expect_err("full");
    all.admit(&three, JobType::Service, 5, LIMITS).expect_err("full");
    all.admit(&two, JobType::Service, 7, LIMITS).expect_err("above the limit of one job");
    all.release(&three);
    all.release(&key("a", "old"));
    assert_eq!(all.take_fitting(&"a".into(), LIMITS), []);
    assert_eq!(all.admit(&two, JobType::Service, 1, LIMITS), Ok(()));
}
