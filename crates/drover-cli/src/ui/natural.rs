//! The order in which people count: `web-2` before `web-10`.

use std::cmp::Ordering;

/// Compares names so that numbers in them count as numbers. Total: names that differ are never equal.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let (text_a, number_a, rest_a) = split(left);
        let (text_b, number_b, rest_b) = split(right);
        // Without leading zeros the longer number is the larger one, however long it is.
        let size = |number: &str| number.trim_start_matches('0').len();
        let by_part = text_a.cmp(text_b).then(size(number_a).cmp(&size(number_b)));
        let by_part = by_part.then(number_a.trim_start_matches('0').cmp(number_b.trim_start_matches('0')));
        if by_part != Ordering::Equal {
            return by_part;
        }
        if rest_a.is_empty() || rest_b.is_empty() {
            return rest_a.len().cmp(&rest_b.len()).then_with(|| a.cmp(b));
        }
        (left, right) = (rest_a, rest_b);
    }
}

/// What comes before the first number, that number, and what follows.
fn split(name: &str) -> (&str, &str, &str) {
    let begin = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (text, rest) = name.split_at(begin);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    (text, number, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_comes_after_two() {
        let mut names =
            ["web-10-a", "web-2-b", "web-1-c", "web", "web-02", "api-3", "web-2", "web-100000000000000000000000"];
        names.sort_by(|a, b| order(a, b));
        let sorted =
            ["api-3", "web", "web-1-c", "web-02", "web-2", "web-2-b", "web-10-a", "web-100000000000000000000000"];
        assert_eq!(names, sorted);
        for (a, b) in [("a1", "a01"), ("a", "b"), ("1", "a"), ("a1b", "a1")] {
            assert_eq!(order(a, b), order(b, a).reverse(), "{a} {b}");
            assert_ne!(order(a, b), Ordering::Equal, "{a} {b}");
        }
    }
}
