//! How ids are found in paths. Those of jobs may hold `/`, so that what is meant of them is found by how a path ends.

/// Makes an endpoint of an id.
pub(crate) type OfId<T> = fn(String) -> T;

/// What stands before the first of these ends that a path has, and what is made of it.
pub(crate) fn by_end<'a, T>(ends: &[(&str, OfId<T>)], path: &'a str) -> Option<(&'a str, OfId<T>)> {
    ends.iter().find_map(|(end, of)| Some((path.strip_suffix(end)?, *of)))
}

/// What stands between the first of these beginnings and ends, where it is one part of a path.
pub(crate) fn by_ends<T>(ends: &[(&str, &str, OfId<T>)], path: &str) -> Option<T> {
    ends.iter().find_map(|(begin, end, of)| {
        let id = path.strip_prefix(begin)?.strip_suffix(end)?;
        (!id.contains('/')).then(|| some_id(id)).flatten().map(of)
    })
}

/// An id that is there.
pub(crate) fn some_id(id: &str) -> Option<String> {
    (!id.is_empty()).then(|| id.to_owned())
}
