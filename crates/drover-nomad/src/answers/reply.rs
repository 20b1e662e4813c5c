//! Bodies of answers.

use serde_json::Value;

use crate::fault::Fault;
use crate::listing::Page;
use crate::query::Query;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// JSON.
    pub body: Vec<u8>,
    /// Where the next page begins.
    pub next_token: Option<String>,
}

impl Reply {
    /// An answer of one value.
    ///
    /// # Errors
    /// 500 for a value that cannot be written.
    pub fn of(value: &Value, query: &Query) -> Result<Self, Fault> {
        let body = if query.is_pretty() { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) };
        Ok(Self { body: body.map_err(|error| unwritable(&error))?, next_token: None })
    }

    /// A page of a list. Objects are written one by one: all of them as values would take many times the memory.
    pub(super) fn page<T>(page: Page<T>, query: &Query, wire: impl Fn(&T) -> Value) -> Result<Self, Fault> {
        let mut body = vec![b'['];
        for item in &page.items {
            if body.len() > 1 {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &wire(item)).map_err(|error| unwritable(&error))?;
        }
        body.push(b']');
        if query.is_pretty() {
            let value: Value = serde_json::from_slice(&body).map_err(|error| unwritable(&error))?;
            body = serde_json::to_vec_pretty(&value).map_err(|error| unwritable(&error))?;
        }
        Ok(Self { body, next_token: page.next })
    }
}

fn unwritable(error: &serde_json::Error) -> Fault {
    Fault::new(500, format!("the answer cannot be written: {error}"))
}
