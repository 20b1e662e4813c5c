//! Finds circles in arrows.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::arrows::Arrows;
use super::sources::FileId;

/// Files that all reach one another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// All of them.
    pub(super) files: Vec<FileId>,
    /// One shortest way around: each file uses the next, and the last uses the first.
    pub(super) shortest: Vec<FileId>,
}

type Ways = BTreeMap<FileId, BTreeSet<FileId>>;

/// Returns every circle once. O(files x arrows).
pub(super) fn all(arrows: &Arrows) -> Vec<Circle> {
    let mut ways = Ways::new();
    for &(from, to) in arrows.keys() {
        ways.entry(from).or_default().insert(to);
    }
    let below: BTreeMap<FileId, BTreeSet<FileId>> = ways.keys().map(|&from| (from, reach(&ways, from))).collect();
    let reaches = |from: FileId, to: FileId| below.get(&from).is_some_and(|files| files.contains(&to));
    let mut known = BTreeSet::new();
    let mut circles = Vec::new();
    for &file in ways.keys() {
        if !reaches(file, file) || known.contains(&file) {
            continue;
        }
        let files: Vec<FileId> =
            ways.keys().copied().filter(|&other| reaches(file, other) && reaches(other, file)).collect();
        known.extend(files.iter().copied());
        let around = files.iter().filter_map(|&file| way_back(&ways, file));
        let shortest = around.min_by_key(Vec::len).unwrap_or_default();
        circles.push(Circle { files, shortest });
    }
    circles
}

/// The files that one uses, and those that these use, and so on: the file itself only where it lies in a circle.
fn reach(ways: &Ways, from: FileId) -> BTreeSet<FileId> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        next.extend(ways.get(&file).into_iter().flatten().filter(|&&to| reached.insert(to)));
    }
    reached
}

/// A shortest way from a file to itself.
fn way_back(ways: &Ways, file: FileId) -> Option<Vec<FileId>> {
    let mut came_from = BTreeMap::new();
    let mut next = VecDeque::from([file]);
    while let Some(at) = next.pop_front() {
        for &to in ways.get(&at).into_iter().flatten() {
            if to == file {
                let mut way: Vec<FileId> = std::iter::successors(Some(at), |at| came_from.get(at).copied()).collect();
                way.reverse();
                return Some(way);
            }
            if let Entry::Vacant(unseen) = came_from.entry(to) {
                unseen.insert(at);
                next.push_back(to);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(arrows: &[(FileId, FileId)]) -> Vec<Circle> {
        all(&arrows.iter().map(|&arrow| (arrow, BTreeSet::new())).collect())
    }

    #[test]
    fn a_tree_has_none() {
        assert_eq!(circles(&[(0, 1), (0, 2), (1, 3), (2, 3)]), []);
    }

    #[test]
    fn each_is_found_once_with_a_shortest_way_around() {
        let found = circles(&[(0, 1), (1, 2), (2, 0), (2, 1), (3, 0), (4, 5), (5, 4)]);
        let expected = [(vec![0, 1, 2], vec![1, 2]), (vec![4, 5], vec![4, 5])];
        assert_eq!(found, expected.map(|(files, shortest)| Circle { files, shortest }));
    }
}
