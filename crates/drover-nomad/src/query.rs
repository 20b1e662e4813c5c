//! The parameters of a request.
//!
//! Input: the text behind `?`. Output: a checked [`Query`]. A parameter that is known and wrong is refused with 400,
//! whichever path it stands at; unknown ones are ignored. Must never know what is asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_api::GoDuration;

use crate::fault::Fault;

/// The longest that a blocking read waits, and how long it does where nothing is asked for.
pub const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// The longest filter, in bytes.
pub const MOST_FILTER_BYTES: usize = 4096;

/// Parameters that are true or false.
const FLAGS: &[&str] = &[
    "all",
    "diffs",
    "follow",
    "force",
    "global",
    "meta",
    "no_shutdown_delay",
    "os",
    "plain",
    "purge",
    "related",
    "reschedule",
    "resources",
    "reverse",
    "stale",
    "task_states",
    "tty",
    "ws_handshake",
];

/// The namespaces that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// This one.
    One(String),
    /// Each that the caller may see.
    All,
}

/// A read that waits for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocking {
    /// What the caller knows already: it waits for something newer.
    pub index: u64,
    /// For how long at most, before the random part is added.
    pub wait: Duration,
}

/// The parameters of a request, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    values: BTreeMap<String, String>,
    flags: BTreeMap<&'static str, bool>,
    per_page: usize,
    blocking: Option<Blocking>,
}

impl Query {
    /// Reads the text behind `?`. Of a parameter that stands there twice the first counts.
    ///
    /// # Errors
    /// 400 for a value that a known parameter cannot have, 500 for a region that is not this one.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            values.entry(name.into_owned()).or_insert_with(|| value.into_owned());
        }
        let mut flags = BTreeMap::new();
        for name in FLAGS {
            if let Some(text) = values.get(*name) {
                flags.insert(*name, flag(name, text)?);
            }
        }
        if let Some(region) = values.get("region").filter(|region| !matches!(region.as_str(), "" | "global")) {
            return Err(Fault::new(500, format!("no path to region {region:?}: this cluster is region \"global\"")));
        }
        let per_page = match values.get("per_page").map(String::as_str) {
            None | Some("") => 0,
            Some(text) => text.parse().map_err(|_| {
                Fault::bad(format!("per_page is {text:?}: give the number of objects of a page, or 0 for all"))
            })?,
        };
        if values.get("filter").is_some_and(|filter| filter.len() > MOST_FILTER_BYTES) {
            return Err(Fault::bad(format!("filter is longer than {MOST_FILTER_BYTES} bytes: shorten it")));
        }
        let blocking = blocking(&values)?;
        Ok(Self { values, flags, per_page, blocking })
    }

    /// A parameter's text; none where it is absent or empty.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Whether a parameter is true; `otherwise` where it is absent. It must be one of those that are checked.
    pub fn is(&self, name: &'static str, otherwise: bool) -> bool {
        self.flags.get(name).copied().unwrap_or(otherwise)
    }

    /// The namespaces; without any, `default`.
    pub fn namespaces(&self) -> Asked {
        match self.text("namespace") {
            None => Asked::One("default".to_owned()),
            Some("*") => Asked::All,
            Some(name) => Asked::One(name.to_owned()),
        }
    }

    /// The one namespace of an object: `*` is for lists, and an object is then looked for in `default`.
    pub fn namespace(&self) -> String {
        match self.namespaces() {
            Asked::One(name) => name,
            Asked::All => "default".to_owned(),
        }
    }

    /// How many objects a page has; 0: all.
    pub(crate) const fn per_page(&self) -> usize {
        self.per_page
    }

    /// Whether the answer waits for a change.
    pub const fn blocking(&self) -> Option<Blocking> {
        self.blocking
    }

    /// Whether two requests for the same thing are answered the same at any one moment: when does not count.
    pub fn is_as(&self, other: &Self) -> bool {
        fn lasting(query: &Query) -> impl Iterator<Item = (&String, &String)> {
            query.values.iter().filter(|(name, _)| !matches!(name.as_str(), "index" | "wait"))
        }
        lasting(self).eq(lasting(other))
    }

    /// Whether the answer is indented.
    pub fn is_pretty(&self) -> bool {
        self.values.get("pretty").is_some_and(|text| text != "0")
    }
}

/// A parameter without a value is true, as in `?stale`.
fn flag(name: &str, text: &str) -> Result<bool, Fault> {
    match text {
        "" | "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(Fault::bad(format!("{name} is {other:?}: give true or false"))),
    }
}

fn blocking(values: &BTreeMap<String, String>) -> Result<Option<Blocking>, Fault> {
    let text = |name: &str| values.get(name).map(String::as_str).filter(|text| !text.is_empty());
    let wait = match text("wait") {
        None => Duration::ZERO,
        Some(text) => {
            let parsed: Option<GoDuration> = text.parse().ok().filter(|wait: &GoDuration| !wait.is_negative());
            parsed.ok_or_else(|| Fault::bad(format!("wait is {text:?}: give a duration, as 30s or 5m")))?.to_std()
        }
    };
    let index: u64 = match text("index") {
        None => 0,
        Some(text) => text
            .parse()
            .map_err(|_| Fault::bad(format!("index is {text:?}: give the X-Nomad-Index of an earlier answer")))?,
    };
    let wait = if wait.is_zero() { LONGEST_WAIT } else { wait.min(LONGEST_WAIT) };
    Ok((index > 0).then_some(Blocking { index, wait }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<(u16, String)> {
        Query::parse(text).err().map(|fault| (fault.code, fault.message))
    }

    #[test]
    fn every_parameter_that_is_true_or_false_refuses_anything_else() {
        for name in FLAGS {
            for (text, wanted) in [("true", true), ("", true), ("1", true), ("F", false), ("0", false)] {
                let query = Query::parse(&format!("{name}={text}")).expect("a query");
                assert_eq!(query.is(name, !wanted), wanted, "{name}={text}");
            }
            let (code, message) = refused(&format!("{name}=maybe")).expect("refused");
            assert!(code == 400 && message.contains(name), "{message}");
        }
        assert!(Query::parse("stale").expect("a query").is("stale", false));
        assert!(!Query::parse("").expect("a query").is("stale", false));
    }

    #[test]
    fn a_wait_is_cut_at_five_minutes_and_index_0_waits_for_nothing() {
        let of = |text: &str| Query::parse(text).expect("a query").blocking().map(|it| (it.index, it.wait.as_millis()));
        assert_eq!(of("index=7&wait=2s"), Some((7, 2000)));
        assert_eq!(of("index=7&wait=1h"), Some((7, 300_000)));
        assert_eq!(of("index=7"), Some((7, 300_000)));
        assert_eq!(of("index=7&wait=0s"), Some((7, 300_000)));
        assert_eq!((of("index=0&wait=2s"), of("wait=2s"), of("")), (None, None, None));
        for text in ["wait=abc", "wait=-1s", "wait=5", "index=x", "index=-1", "index=99999999999999999999"] {
            assert_eq!(refused(text).map(|it| it.0), Some(400), "{text}");
        }
    }

    #[test]
    fn namespaces_regions_and_pages_have_defaults() {
        let of = |text: &str| Query::parse(text).expect("a query");
        assert_eq!(of("").namespaces(), Asked::One("default".to_owned()));
        assert_eq!(of("namespace=%2A").namespaces(), Asked::All);
        assert_eq!(
            (of("namespace=*").namespace(), of("namespace=shop").namespace()),
            ("default".into(), "shop".into())
        );
        assert_eq!(of("namespace=a&namespace=b").namespace(), "a");
        assert_eq!((of("per_page=2").per_page(), of("per_page=").per_page(), of("").per_page()), (2, 0, 0));
        assert_eq!(
            (of("region=global").is_pretty(), of("pretty").is_pretty(), of("pretty=0").is_pretty()),
            (false, true, false)
        );
        assert_eq!(refused("per_page=two").map(|it| it.0), Some(400));
        assert_eq!(refused("region=europe").map(|it| it.0), Some(500));
        assert_eq!(refused(&format!("filter={}", "a".repeat(MOST_FILTER_BYTES + 1))).map(|it| it.0), Some(400));
    }
}
