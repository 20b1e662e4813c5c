//! Lists of cores as the kernel writes them, and what is left of them when some tasks have cores of their own. Pure.

use std::collections::BTreeSet;

/// Reads `0-3,5`; what is no number is left out.
pub(super) fn parse(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The cores that all others share. When none is left they share all: a task without a core could not run at all.
pub(super) fn shared(all: &BTreeSet<u32>, held: &BTreeSet<u32>) -> String {
    let left: Vec<u32> = all.difference(held).copied().collect();
    let cores = if left.is_empty() { all.iter().copied().collect() } else { left };
    cores.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_held_is_shared_and_never_nothing() {
        let all = parse("0-3,6\n");
        assert_eq!(all, [0, 1, 2, 3, 6].into());
        assert_eq!(shared(&all, &parse("1-2")), "0,3,6");
        assert_eq!(shared(&all, &all), "0,1,2,3,6");
        assert_eq!((parse(""), parse("x,2")), (BTreeSet::new(), [2].into()));
    }
}
