//! A task's output over its rotated files, as one stream.

use std::collections::BTreeMap;

use super::files::{FileError, Files};
use super::folder_news::{FolderNews, FollowedFolder};
use drover_socket::protocol::{LogStream, Origin};

/// Where reading begins: a file's number and a position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) index: u64,
    pub(crate) offset: u64,
}

/// The name of a numbered file.
pub(crate) fn file(task: &str, stream: LogStream, index: u64) -> String {
    format!("alloc/logs/{task}.{}.{index}", name(stream))
}

fn name(stream: LogStream) -> &'static str {
    match stream {
        LogStream::Stdout => "stdout",
        LogStream::Stderr => "stderr",
    }
}

/// The folder of all output, followed from now on; none: it cannot be, and is looked at again and again.
pub(crate) fn followed(files: &Files, news: &FolderNews) -> Option<FollowedFolder> {
    let followed = files.folder("alloc/logs").map(|folder| news.follow(&folder));
    match followed {
        Ok(Ok(followed)) => Some(followed),
        Ok(Err(error)) => {
            tracing::warn!(%error, "a log's folder cannot be followed");
            None
        }
        Err(_) => None,
    }
}

/// The numbered files of a stream with their sizes.
pub(crate) fn sizes(files: &Files, task: &str, stream: LogStream) -> Result<BTreeMap<u64, u64>, FileError> {
    let prefix = format!("{task}.{}.", name(stream));
    let listed = files.list("alloc/logs")?;
    Ok(listed.into_iter().filter_map(|it| Some((it.name.strip_prefix(&prefix)?.parse().ok()?, it.size))).collect())
}

/// Walks from the origin over the files. Before the first byte is the first byte, beyond the last is the end; without
/// files there is no place.
pub(crate) fn walk(sizes: &BTreeMap<u64, u64>, origin: Origin, offset: u64) -> Option<LogPosition> {
    let mut left = offset;
    match origin {
        Origin::Start => {
            for (index, size) in sizes {
                if left < *size {
                    return Some(LogPosition { index: *index, offset: left });
                }
                left -= size;
            }
            sizes.last_key_value().map(|(index, size)| LogPosition { index: *index, offset: *size })
        }
        Origin::End => {
            for (index, size) in sizes.iter().rev() {
                if left <= *size {
                    return Some(LogPosition { index: *index, offset: size - left });
                }
                left -= size;
            }
            sizes.first_key_value().map(|(index, _)| LogPosition { index: *index, offset: 0 })
        }
    }
}

/// Goes on at a position that was seen before. What was rotated away since is lost: then the next file's beginning.
pub(crate) fn resume(sizes: &BTreeMap<u64, u64>, at: LogPosition) -> Option<LogPosition> {
    match sizes.range(at.index..).next() {
        Some((index, _)) if *index == at.index => Some(at),
        Some((index, _)) => Some(LogPosition { index: *index, offset: 0 }),
        // Nothing newer is kept: the end of what is.
        None => sizes.last_key_value().map(|(index, size)| LogPosition { index: *index, offset: *size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_walked_over_the_files() {
        let sizes: BTreeMap<u64, u64> = (0..4).map(|index| (index, 100)).collect();
        let at = |index, offset| Some(LogPosition { index, offset });
        let from_first: BTreeMap<u64, u64> = (1..4).map(|index| (index, 100)).collect();
        assert_eq!(walk(&from_first, Origin::Start, 110), at(2, 10));
        assert_eq!(walk(&sizes, Origin::End, 110), at(2, 90));
        assert_eq!(walk(&sizes, Origin::End, 1000), at(0, 0));
        assert_eq!(walk(&sizes, Origin::Start, 1000), at(3, 100));
        assert_eq!(walk(&BTreeMap::new(), Origin::Start, 0), None);
    }

    #[test]
    fn reading_goes_on_where_it_was_also_after_a_rotation() {
        let sizes: BTreeMap<u64, u64> = (3..6).map(|index| (index, 100)).collect();
        let from = |index, offset| resume(&sizes, LogPosition { index, offset }).map(|at| (at.index, at.offset));
        assert_eq!(from(4, 10), Some((4, 10)));
        assert_eq!(from(1, 10), Some((3, 0)), "what was in between is lost");
        assert_eq!(from(9, 10), Some((5, 100)));
        assert_eq!(resume(&BTreeMap::new(), LogPosition { index: 0, offset: 0 }), None);
    }
}
