//! Scores of spreads, beside the rows of `spec/scheduler.md` 5.5 for one value at a time.

use drover_api::JobSpec;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::definition::Definition;
use crate::scheduler::place::spread::{Spread, spreads};

/// The spreads of a job and of its only group, as they are written.
fn definition(of_job: &Value, of_group: &Value) -> std::sync::Arc<Definition> {
    let group = json!({ "name": "g", "spreads": of_group, "tasks": [{ "name": "t", "driver": "mock" }] });
    let spec: JobSpec = serde_json::from_value(json!({ "spreads": of_job, "groups": [group] })).expect("a job");
    Definition::new(&spec, "j")
}

/// A spread as the table speaks of it.
#[derive(Clone, Debug)]
struct SpreadRows {
    count: i64,
    /// Its part of all weights.
    share: f64,
    /// Wanted percent by value; none for an even spread.
    targets: Vec<(String, i64)>,
}

impl SpreadRows {
    fn desired(&self, value: &str) -> Option<f64> {
        let of = |percent: i64| f(percent) / 100.0 * f(self.count);
        let wanted = self.targets.iter().find(|(target, _)| target == value).map(|(_, percent)| of(*percent));
        let sum: f64 = self.targets.iter().map(|(_, percent)| of(*percent)).sum();
        let rest = (0.0 < sum && sum < f(self.count)).then(|| f(self.count) - sum);
        wanted.or(rest)
    }

    fn is_target(&self, value: &str) -> bool {
        self.targets.iter().any(|(target, _)| target == value)
    }

    /// The score of a value, and the lowest boost from then on.
    fn score(&self, used: &[(&str, i64)], value: &str, lowest: f64) -> (f64, f64) {
        let cur = used.iter().find(|(known, _)| *known == value).map_or(0, |(_, n)| *n);
        if self.targets.is_empty() {
            return (Self::even(used, cur), lowest);
        }
        let Some(desired) = self.desired(value) else { return (-1.0, lowest) };
        // Values outside the targets pool together.
        let pooled = used.iter().filter(|(known, _)| !self.is_target(known)).map(|(_, n)| n).sum();
        let n = if self.is_target(value) { cur } else { pooled };
        if desired == 0.0 {
            return (lowest, lowest);
        }
        let boost = (desired - f(n + 1)) / desired * self.share;
        (boost, lowest.min(boost))
    }

    fn even(used: &[(&str, i64)], cur: i64) -> f64 {
        let in_use = || used.iter().map(|(_, n)| *n).filter(|n| *n > 0);
        let (Some(min), Some(max)) = (in_use().min(), in_use().max()) else { return 0.0 };
        if cur != min {
            f(min - cur) / f(min)
        } else if min == max {
            -1.0
        } else {
            f(max - min) / f(min)
        }
    }
}

fn f(number: i64) -> f64 {
    f64::from(i32::try_from(number).expect("a small number"))
}

fn close(got: f64, wanted: f64) -> bool {
    (got - wanted).abs() < 1e-9
}

/// Puts so many allocations on values, in this order, and scores each of them.
fn scored(spread: &mut Spread<'_>, used: &[(&str, i64)], lowest: &mut f64) -> Vec<f64> {
    let numbers: Vec<usize> = used.iter().map(|(value, _)| spread.value(value)).collect();
    for (number, (_, n)) in numbers.iter().zip(used) {
        spread.add(*number, *n);
    }
    let scores = spread.scores(lowest);
    numbers.into_iter().map(|number| scores[number]).collect()
}

#[test]
fn each_value_scores_as_its_row_says() {
    let mut rng = Rng::with_seed(55);
    let mut rows = [0; 5];
    for _ in 0..5_000 {
        let percents = [vec![], vec![0], vec![60, 40], vec![70], vec![50, 25, 25], vec![0, 30], vec![100]];
        let targets: Vec<(String, i64)> =
            percents[rng.usize(..7)].iter().enumerate().map(|(n, percent)| (format!("v{n}"), *percent)).collect();
        let (weight, other) = (rng.i64(1..101), rng.i64(0..101));
        let table = SpreadRows { count: rng.i64(1..12), share: f(weight) / f(weight + other), targets };
        let written: Vec<Value> =
            table.targets.iter().map(|(value, percent)| json!({ "value": value, "percent": percent })).collect();
        let mut all = vec![json!({ "attribute": "${meta.rack}", "weight": weight, "targets": written })];
        if other > 0 {
            all.push(json!({ "attribute": "${node.datacenter}", "weight": other }));
        }
        let definition = definition(&json!([]), &Value::Array(all));
        let mut values: Vec<&str> = vec!["v0", "v1", "v2", "v3", "v4"];
        rng.shuffle(&mut values);
        values.truncate(rng.usize(1..6));
        let used: Vec<(&str, i64)> = values.into_iter().map(|value| (value, rng.i64(0..5))).collect();
        let mut spread = spreads(&definition, &definition.spec.groups[0], table.count).swap_remove(0);
        let mut lowest = [-1.0, -3.5][rng.usize(..2)];
        let mut low = lowest;
        let got = scored(&mut spread, &used, &mut lowest);
        for ((value, _), got) in used.iter().zip(got) {
            let (wanted, then) = table.score(&used, value, low);
            low = then;
            assert!(close(got, wanted), "{value} scores {got}, not {wanted}: {table:?} with {used:?}");
            rows[match (table.targets.is_empty(), table.desired(value)) {
                (true, _) => 0,
                (_, None) => 1,
                (_, Some(0.0)) => 2,
                (_, Some(_)) if table.is_target(value) => 3,
                _ => 4,
            }] += 1;
        }
        assert!(close(lowest, low), "the lowest boost is {lowest}, not {low}: {table:?} with {used:?}");
    }
    assert!(rows.iter().all(|n| *n > 300), "rows that were met: {rows:?}");
}

#[test]
fn weights_of_both_levels_share_the_score_and_the_jobs_targets_hold_twice() {
    let rack =
        |weight: i64, targets: &Value| json!({ "attribute": "${meta.rack}", "weight": weight, "targets": targets });
    let (of_group, of_job) =
        (rack(30, &json!([{ "value": "a", "percent": 100 }])), rack(60, &json!([{ "value": "b", "percent": 50 }])));
    let zone = json!({ "attribute": "${meta.zone}", "weight": 10, "targets": [{ "value": "z", "percent": 100 }] });
    let definition = definition(&json!([of_job]), &json!([of_group, zone]));
    let mut all = spreads(&definition, &definition.spec.groups[0], 4);
    assert_eq!(
        all.iter().map(|one| one.attribute).collect::<Vec<_>>(),
        ["${meta.rack}", "${meta.zone}", "${meta.rack}"]
    );
    let mut lowest = -1.0;
    for at in [0, 2] {
        // Two of four are wanted on b and two on all others: each free, at 60 of 100 parts.
        let scores = scored(&mut all[at], &[("a", 0), ("b", 0), ("c", 1)], &mut lowest);
        let wanted = [0.0, 0.5 * 0.6, 0.0];
        assert!(scores.iter().zip(wanted).all(|(got, wanted)| close(*got, wanted)), "spread {at}: {scores:?}");
    }
    let scores = scored(&mut all[1], &[("z", 0)], &mut lowest);
    assert!(close(scores[0], 0.75 * 0.1), "{scores:?}");
}

#[test]
fn what_ends_makes_its_value_as_wanted_as_before() {
    for targets in [json!([]), json!([{ "value": "a", "percent": 50 }])] {
        let definition = definition(&json!([{ "attribute": "${meta.rack}", "targets": targets }]), &json!([]));
        let mut spread = spreads(&definition, &definition.spec.groups[0], 6).swap_remove(0);
        let (a, b) = (spread.value("a"), spread.value("b"));
        assert_eq!((a, b, spread.value("a")), (0, 1, 0), "a value has one number");
        spread.add(b, 1);
        let before = spread.scores(&mut -1.0);
        spread.add(a, 1);
        let between = spread.scores(&mut -1.0);
        spread.add(a, -1);
        assert_eq!(spread.scores(&mut -1.0), before);
        assert!(between[a] < before[a], "{targets}: one more on a value makes it less wanted");
    }
}

#[test]
fn a_group_without_spreads_has_none_and_one_without_weights_shares_nothing() {
    let none = definition(&json!([]), &json!([]));
    assert!(spreads(&none, &none.spec.groups[0], 3).is_empty());
    let weightless =
        json!([{ "attribute": "${meta.rack}", "weight": 0, "targets": [{ "value": "a", "percent": 100 }] }]);
    let weightless = definition(&weightless, &json!([]));
    let mut all = spreads(&weightless, &weightless.spec.groups[0], 3);
    assert_eq!(scored(&mut all[0], &[("a", 0)], &mut -1.0), [0.0]);
    // As many as the targets want are there already: each further one counts against the value, beyond -1 too.
    let full = definition(
        &json!([{ "attribute": "${meta.rack}", "targets": [{ "value": "a", "percent": 100 }] }]),
        &json!([]),
    );
    let mut all = spreads(&full, &full.spec.groups[0], 2);
    let mut lowest = -1.0;
    let scores = scored(&mut all[0], &[("a", 6), ("b", 0)], &mut lowest);
    assert_eq!(scores, [-2.5, -1.0]);
    assert!(close(lowest, -2.5));
    assert_eq!(all[0].scores(&mut lowest), scores, "asking again changes nothing");
}
