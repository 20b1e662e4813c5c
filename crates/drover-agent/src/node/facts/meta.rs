//! Metadata of the node: what the configuration says, and what people set at run time, which wins.

use std::collections::BTreeMap;

/// Values to set; none hides a configured key and takes another one away.
pub(crate) type Changes = BTreeMap<String, Option<String>>;

/// The metadata's two sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    fixed: BTreeMap<String, String>,
    dynamic: Changes,
}

impl Meta {
    /// After a start. What hid a key that is not configured any more is dropped.
    pub(crate) fn restored(fixed: BTreeMap<String, String>, mut dynamic: Changes) -> Self {
        dynamic.retain(|key, value| value.is_some() || fixed.contains_key(key));
        Self { fixed, dynamic }
    }

    /// What it would be with these changes.
    pub(crate) fn with(&self, changes: Changes) -> Self {
        let mut dynamic = self.dynamic.clone();
        dynamic.extend(changes);
        Self::restored(self.fixed.clone(), dynamic)
    }

    /// What was set at run time.
    pub(crate) fn dynamic(&self) -> &Changes {
        &self.dynamic
    }

    /// The same for the node's object, where an empty value hides.
    pub(crate) fn on_the_wire(&self) -> BTreeMap<String, String> {
        self.dynamic.iter().map(|(key, value)| (key.clone(), value.clone().unwrap_or_default())).collect()
    }

    /// What the configuration says.
    pub(crate) fn fixed(&self) -> &BTreeMap<String, String> {
        &self.fixed
    }
}

/// What holds: the configured values, overlaid by the ones of run time, of which empty ones hide.
pub(crate) fn effective(
    fixed: &BTreeMap<String, String>,
    dynamic: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut effective = fixed.clone();
    for (key, value) in dynamic {
        if value.is_empty() {
            effective.remove(key);
        } else {
            effective.insert(key.clone(), value.clone());
        }
    }
    effective
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed() -> BTreeMap<String, String> {
        [("a".to_owned(), "1".to_owned())].into()
    }

    fn change(key: &str, value: Option<&str>) -> Changes {
        [(key.to_owned(), value.map(str::to_owned))].into()
    }

    #[test]
    fn a_012_a_hidden_key_stays_hidden_over_a_restart() {
        let meta = Meta::restored(fixed(), Changes::new()).with(change("a", None));
        let meta = Meta::restored(fixed(), meta.dynamic().clone());
        assert_eq!(effective(meta.fixed(), &meta.on_the_wire()), BTreeMap::new());
        assert_eq!((meta.fixed()["a"].as_str(), &meta.dynamic()["a"]), ("1", &None));
        let unset = Meta::restored(BTreeMap::new(), meta.dynamic().clone());
        assert!(unset.dynamic().is_empty(), "what hides nothing is dropped");
    }

    #[test]
    fn a_013_a_key_that_is_not_configured_goes_without_a_trace() {
        let meta = Meta::restored(fixed(), Changes::new()).with(change("b", Some("2")));
        assert_eq!(effective(meta.fixed(), &meta.on_the_wire())["b"], "2");
        let meta = meta.with(change("b", None));
        assert_eq!(meta, Meta::restored(fixed(), Changes::new()));
    }

    #[test]
    fn what_is_set_at_run_time_wins() {
        let meta = Meta::restored(fixed(), Changes::new()).with(change("a", Some("3")));
        assert_eq!(effective(meta.fixed(), &meta.on_the_wire())["a"], "3");
    }
}
