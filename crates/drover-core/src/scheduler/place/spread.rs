//! How even allocations lie over the values of an attribute (`spec/scheduler.md` 5.5).

use std::collections::HashMap;

use drover_api::group::Group;
use drover_api::placement::Spread as Wanted;

use crate::arithmetic::{ratio, total};
use crate::definition::Definition;

/// The score of a node that no spread wants, and the start of the lowest boost.
const LEAST: f64 = -1.0;

/// One spread with what is in use.
#[derive(Debug)]
pub(super) struct Spread<'a> {
    pub(super) attribute: &'a str,
    share: f64,
    /// Wanted numbers, by value; none for an even spread.
    targets: Option<Targets>,
    values: HashMap<String, usize>,
    used: Vec<i64>,
}

#[derive(Debug)]
struct Targets {
    by_value: HashMap<String, f64>,
    /// What is left for all other values together.
    rest: Option<f64>,
}

/// The spreads of a group.
pub(super) fn spreads<'a>(definition: &'a Definition, group: &'a Group, count: i64) -> Vec<Spread<'a>> {
    let of_job = &definition.spec.spreads;
    let all: Vec<&Wanted> = group.spreads.iter().chain(of_job).collect();
    let total = total(all.iter().map(|spread| spread.weight));
    all.into_iter()
        .map(|spread| {
            // Of an attribute that both levels name, the job's targets and weight hold twice.
            let wanted = of_job.iter().find(|one| one.attribute == spread.attribute).unwrap_or(spread);
            Spread {
                attribute: &spread.attribute,
                share: ratio(wanted.weight, total.max(1)),
                targets: (!wanted.targets.is_empty()).then(|| Targets::new(wanted, count)),
                values: HashMap::new(),
                used: Vec::new(),
            }
        })
        .collect()
}

impl Targets {
    fn new(wanted: &Wanted, count: i64) -> Self {
        let desired = |percent: i64| ratio(percent, 100) * ratio(count, 1);
        let by_value: HashMap<String, f64> =
            wanted.targets.iter().map(|target| (target.value.clone(), desired(target.percent))).collect();
        let sum: f64 = by_value.values().sum();
        let rest = (sum > 0.0 && sum < ratio(count, 1)).then(|| ratio(count, 1) - sum);
        Self { by_value, rest }
    }
}

impl Spread<'_> {
    /// The number of a value, for [`Self::score`] and [`Self::add`].
    pub(super) fn value(&mut self, value: &str) -> usize {
        if let Some(known) = self.values.get(value) {
            return *known;
        }
        self.used.push(0);
        self.values.insert(value.to_owned(), self.used.len() - 1);
        self.used.len() - 1
    }

    /// Counts allocations of the group on a value.
    pub(super) fn add(&mut self, value: usize, by: i64) {
        self.used[value] += by;
    }

    /// The scores of all values, by their numbers. `lowest` is the lowest boost seen so far in this evaluation.
    pub(super) fn scores(&self, lowest: &mut f64) -> Vec<f64> {
        match &self.targets {
            Some(targets) => self.targeted(targets, lowest),
            None => self.even(),
        }
    }

    fn targeted(&self, targets: &Targets, lowest: &mut f64) -> Vec<f64> {
        let pooled: i64 = self
            .values
            .iter()
            .filter(|(name, _)| !targets.by_value.contains_key(*name))
            .map(|(_, number)| self.used[*number])
            .sum();
        let mut scores = vec![LEAST; self.used.len()];
        // In the order in which values were first seen, so that the lowest boost is the same in every run.
        let mut names: Vec<(&usize, &String)> = self.values.iter().map(|(name, number)| (number, name)).collect();
        names.sort_unstable();
        for (number, name) in names {
            let (desired, used) = match (targets.by_value.get(name), targets.rest) {
                (Some(desired), _) => (*desired, self.used[*number]),
                (None, Some(rest)) => (rest, pooled),
                (None, None) => continue,
            };
            scores[*number] = if desired > 0.0 {
                let boost = ((desired - ratio(used + 1, 1)) / desired) * self.share;
                *lowest = lowest.min(boost);
                boost
            } else {
                *lowest
            };
        }
        scores
    }

    fn even(&self) -> Vec<f64> {
        let in_use = || self.used.iter().copied().filter(|n| *n > 0);
        let (Some(min), Some(max)) = (in_use().min(), in_use().max()) else { return vec![0.0; self.used.len()] };
        self.used
            .iter()
            .map(|n| {
                if *n != min {
                    ratio(min - n, min)
                } else if min == max {
                    LEAST
                } else {
                    ratio(max - min, min)
                }
            })
            .collect()
    }

    /// The score of a node without the attribute.
    pub(super) const fn without_value() -> f64 {
        LEAST
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(spreads: &serde_json::Value, count: i64) -> std::sync::Arc<Definition> {
        let spec = json!({ "spreads": spreads, "groups": [{ "name": "g", "count": count, "tasks": [{ "name": "t", "driver": "mock" }] }] });
        Definition::new(&serde_json::from_value(spec).unwrap(), "j")
    }

    /// The score of each value with so many allocations on it.
    fn scores(spreads_of: &serde_json::Value, count: i64, used: &[(&str, i64)]) -> Vec<f64> {
        let definition = definition(spreads_of, count);
        let mut all = spreads(&definition, &definition.spec.groups[0], count);
        let spread = &mut all[0];
        for (value, n) in used {
            let number = spread.value(value);
            spread.add(number, *n);
        }
        let all = spread.scores(&mut LEAST.clone());
        used.iter().map(|(value, _)| all[spread.value(value)]).collect()
    }

    fn close(got: &[f64], wanted: &[f64]) {
        let is_close = got.len() == wanted.len() && got.iter().zip(wanted).all(|(g, w)| (g - w).abs() < 0.0005);
        assert!(is_close, "{got:?} {wanted:?}");
    }

    #[test]
    fn s_123_what_is_left_goes_to_all_other_values() {
        let spread = json!([{ "attribute": "${node.datacenter}", "weight": 100, "targets": [{ "value": "dc1", "percent": 80 }] }]);
        close(&scores(&spread, 10, &[("dc1", 2), ("dc2", 0)]), &[0.625, 0.5]);
    }

    #[test]
    fn s_124_spreads_share_by_their_weight() {
        let both = json!([
            { "attribute": "${node.datacenter}", "weight": 100, "targets": [{ "value": "dc1", "percent": 60 }, { "value": "dc2", "percent": 40 }] },
            { "attribute": "${meta.rack}", "weight": 50, "targets": [{ "value": "r1", "percent": 40 }, { "value": "r2", "percent": 60 }] },
        ]);
        let definition = definition(&both, 10);
        let mut all = spreads(&definition, &definition.spec.groups[0], 10);
        for (at, value, n) in [(0, "dc1", 2), (0, "dc2", 0), (1, "r1", 1), (1, "r2", 1)] {
            let number = all[at].value(value);
            all[at].add(number, n);
        }
        let mut lowest = LEAST;
        let (dc, rack) = (all[0].scores(&mut lowest), all[1].scores(&mut lowest));
        close(&[dc[0] + rack[0], dc[1] + rack[0], dc[0] + rack[1]], &[0.5, 0.667, 0.556]);
    }

    #[test]
    fn s_125_even_spreads_prefer_what_is_used_least() {
        let even = || json!([{ "attribute": "${node.datacenter}", "weight": 50 }]);
        close(&scores(&even(), 10, &[("dc1", 2), ("dc2", 0)]), &[-1.0, 1.0]);
        close(&scores(&even(), 10, &[("dc1", 2), ("dc2", 3)]), &[0.5, -0.5]);
        close(&scores(&even(), 10, &[("dc1", 0), ("dc2", 0)]), &[0.0, 0.0]);
    }

    #[test]
    fn s_126_values_that_are_no_target_are_the_last_choice() {
        let spread = json!([{ "attribute": "${node.datacenter}", "targets": [{ "value": "dc1", "percent": 80 }, { "value": "dc2", "percent": 20 }] }]);
        close(&scores(&spread, 10, &[("dc3", 0)]), &[-1.0]);
        close(&[Spread::without_value()], &[-1.0]);
    }
}
