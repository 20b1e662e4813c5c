//! Bodies of answers.

use std::io;

use bytes::Bytes;
use serde::ser::{Serialize, SerializeSeq as _, Serializer};
use serde_json::Value;

use crate::fault::Fault;
use crate::listing::Page;
use crate::query::Query;

/// Bytes of a piece.
const PIECE: usize = 256 * 1024;

/// JSON in pieces: a text of many megabytes would be copied again and again while it grows, and be kept as a whole
/// until its last byte is sent. Clones share the pieces that are full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    full: Vec<Bytes>,
    last: Vec<u8>,
}

impl Pieces {
    /// How many bytes they are.
    pub fn n_bytes(&self) -> usize {
        self.full.iter().map(Bytes::len).sum::<usize>() + self.last.len()
    }

    /// They, in order; none of them is empty.
    pub fn into_inner(self) -> Vec<Bytes> {
        let last = Some(self.last).filter(|last| !last.is_empty()).map(Bytes::from);
        self.full.into_iter().chain(last).collect()
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(last: Vec<u8>) -> Self {
        Self { full: Vec::new(), last }
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.last.len() >= PIECE {
            self.full.push(std::mem::take(&mut self.last).into());
        }
        let taken = bytes.get(..PIECE - self.last.len()).unwrap_or(bytes);
        self.last.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the bytes of an answer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// JSON.
    #[default]
    Json,
    /// Metrics, as they are scraped.
    Metrics,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its bytes.
    pub body: Pieces,
    /// What they are.
    pub form: Form,
    /// Where the next page begins.
    pub next_token: Option<String>,
}

impl Reply {
    /// An answer of one value.
    ///
    /// # Errors
    /// 500 for a value that cannot be written.
    pub fn of(value: &Value, query: &Query) -> Result<Self, Fault> {
        let mut body = Pieces::default();
        let written = if query.is_pretty() {
            serde_json::to_writer_pretty(&mut body, value)
        } else {
            serde_json::to_writer(&mut body, value)
        };
        written.map_err(|error| unwritable(&error))?;
        Ok(Self { body, ..Self::default() })
    }

    /// An answer without a body.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// An answer that is a text.
    pub(super) fn text(form: Form, text: &str) -> Self {
        Self { body: text.as_bytes().to_vec().into(), form, next_token: None }
    }

    /// A page of a list. Objects are written one by one: all of them as values would take many times the memory.
    pub(super) fn page<T, W: Serialize>(page: Page<T>, query: &Query, wire: impl Fn(&T) -> W) -> Result<Self, Fault> {
        let mut body = Pieces::default();
        let written = if query.is_pretty() {
            list(&mut serde_json::Serializer::pretty(&mut body), &page.items, wire)
        } else {
            list(&mut serde_json::Serializer::new(&mut body), &page.items, wire)
        };
        written.map_err(|error| unwritable(&error))?;
        Ok(Self { body, next_token: page.next, ..Self::default() })
    }
}

fn list<T, W: Serialize, S: Serializer>(to: S, items: &[T], wire: impl Fn(&T) -> W) -> Result<(), S::Error> {
    let mut list = to.serialize_seq(Some(items.len()))?;
    for item in items {
        list.serialize_element(&wire(item))?;
    }
    list.end().map(drop)
}

fn unwritable(error: &serde_json::Error) -> Fault {
    Fault::new(500, format!("the answer cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn pieces_are_full_but_for_the_last_one_and_hold_all_that_was_written() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut pieces, mut whole) = (Pieces::default(), Vec::new());
        for n in [0, 1, PIECE - 1, 1, PIECE, 2 * PIECE + 5, 3, 0] {
            let bytes: Vec<u8> = (0..n).map(|_| random.u8(..)).collect();
            pieces.write_all(&bytes).unwrap();
            whole.extend(bytes);
        }
        assert_eq!(pieces.n_bytes(), whole.len());
        let pieces = pieces.into_inner();
        let (last, before) = pieces.split_last().unwrap();
        assert!(before.iter().all(|piece| piece.len() == PIECE) && !last.is_empty());
        assert_eq!(pieces.concat(), whole);
    }

    #[test]
    fn an_answer_that_is_no_list_of_pieces_is_one() {
        assert!(Pieces::from(Vec::new()).into_inner().is_empty());
        assert_eq!(Pieces::from(vec![7; PIECE + 1]).into_inner(), [vec![7; PIECE + 1]]);
    }

    #[test]
    fn a_list_is_the_same_text_as_one_value() {
        for text in ["", "pretty"] {
            let query = Query::parse(text).unwrap();
            for items in [vec![], vec![1], vec![1, 2, 3]] {
                let wire = |n: &i32| serde_json::json!({ "n": n, "list": [n] });
                let value: Value = items.iter().map(wire).collect();
                let page = Page { items, next: None };
                assert_eq!(Reply::page(page, &query, wire).unwrap(), Reply::of(&value, &query).unwrap());
            }
        }
    }
}
