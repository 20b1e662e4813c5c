//! The order of nodes by their scores, beside a list that is sorted for each question.

use fastrand::Rng;

use crate::scheduler::place::score_index::{Descending, Row, ScoreGroup, ScoreIndex};

/// Most nodes of a case.
const ROWS: usize = 24;

/// A node that is in the order: its group, its own sum, and its rank among equals.
type RankedNode = (ScoreGroup, f64, u32);

/// The final score of a node: its own sum with what its group gets, over the number of scores. Quarters over powers of
/// two, so that equals are equal.
fn total(extra: &[f64; 4]) -> impl Fn(ScoreGroup, f64) -> f64 + '_ {
    |(tuple, n), sum| (sum + extra[tuple as usize]) / f64::from(n)
}

fn quarters(rng: &mut Rng) -> f64 {
    f64::from(rng.i32(-6..7)) / 4.0
}

fn place(rng: &mut Rng) -> (ScoreGroup, f64) {
    ((rng.u32(..4), [1, 2, 4][rng.usize(..3)]), quarters(rng))
}

fn sorted(list: &[Option<RankedNode>], n: usize, without: &[Row], extra: &[f64; 4]) -> Vec<(f64, u32, Row)> {
    let total = total(extra);
    let mut all: Vec<(f64, u32, Row)> = list
        .iter()
        .zip(0..)
        .filter(|(_, row)| !without.contains(row))
        .filter_map(|(listed, row)| listed.map(|(key, sum, rank)| (total(key, sum), rank, row)))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    all.truncate(n);
    all
}

#[test]
fn the_best_are_the_first_of_a_sorted_list_after_every_change() {
    let mut rng = Rng::with_seed(51);
    let mut most = 0;
    for _ in 0..400 {
        let n_rows = rng.usize(1..ROWS);
        let mut ranks: Vec<u32> = (0..u32::try_from(n_rows).expect("few")).collect();
        rng.shuffle(&mut ranks);
        let mut list: Vec<Option<RankedNode>> = ranks
            .iter()
            .map(|rank| (rng.u8(..4) > 0).then(|| place(&mut rng)).map(|(key, sum)| (key, sum, *rank)))
            .collect();
        let filled =
            list.iter().zip(0..).filter_map(|(listed, row)| listed.map(|(key, sum, rank)| (row, rank, key, sum)));
        let mut index = ScoreIndex::fill(n_rows, filled);
        for _ in 0..20 {
            let extra = [0.0, quarters(&mut rng), quarters(&mut rng), quarters(&mut rng)];
            let n = rng.usize(..7);
            let without: Vec<Row> = (0..rng.usize(..3)).map(|_| rng.u32(..24)).collect();
            let best = index.best(n, &without, total(&extra));
            assert_eq!(best, sorted(&list, n, &without, &extra), "{n} without {without:?} of {list:?}, {extra:?}");
            most = most.max(best.len());
            let row = rng.usize(..n_rows);
            let now = (rng.u8(..3) > 0).then(|| place(&mut rng));
            list[row] = now.map(|(key, sum)| (key, sum, ranks[row]));
            index.set(u32::try_from(row).expect("few"), ranks[row], now);
        }
    }
    assert_eq!(most, 6);
}

#[test]
fn every_number_sorts_as_it_is() {
    let numbers =
        [f64::MIN, -18.0, -1.0, -f64::MIN_POSITIVE, 0.0, f64::MIN_POSITIVE, 0.1, 1.0, f64::MAX, f64::INFINITY];
    for (at, one) in numbers.iter().enumerate() {
        for (other, two) in numbers.iter().enumerate() {
            let order = Descending::new(*one).cmp(&Descending::new(*two));
            assert_eq!(order, other.cmp(&at), "{one} and {two}");
        }
    }
}

#[test]
fn a_node_that_is_taken_out_twice_or_put_in_again_is_there_once() {
    let total = |_: ScoreGroup, sum: f64| sum;
    let mut index = ScoreIndex::fill(2, std::iter::empty());
    assert_eq!(index.best(5, &[], total), []);
    index.set(1, 7, None);
    index.set(1, 7, Some(((3, 8), 0.5)));
    index.set(1, 7, Some(((0, 1), 0.25)));
    assert_eq!(index.best(5, &[], total), [(0.25, 7, 1)]);
    assert_eq!(index.best(0, &[], total), []);
    assert_eq!(index.best(5, &[1], total), []);
    index.set(1, 7, None);
    index.set(1, 7, None);
    assert_eq!(index.best(5, &[], total), []);
}
