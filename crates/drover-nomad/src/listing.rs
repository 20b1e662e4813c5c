//! Lists: prefix, filter, order and pages (`spec/api.md` 1.2).
//!
//! Input: candidates in any order, each with its place. Output: the candidates of the page, in order, and the token of
//! the next page. O(n log n) of the candidates that a filter leaves.

use crate::fault::Fault;
use crate::filter::Filter;
use crate::query::Query;

/// Where an object stands in a list. A token is the place of the first object of the next page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// By when it was made, then by id.
    Created(u64, String),
    /// By namespace, then by id.
    Scoped(String, String),
    /// By id.
    Id(String),
}

/// How a list is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Allocations, evaluations and deployments: by when they were made; by id where a prefix is asked for.
    Created,
    /// Jobs and volumes: by namespace and id.
    Scoped,
    /// All others: by id.
    Id,
}

impl Place {
    /// The place of an object in such a list.
    pub(crate) fn new(order: Order, query: &Query, namespace: &str, id: &str, created: u64) -> Self {
        match order {
            Order::Created if query.text("prefix").is_none() => Self::Created(created, id.to_owned()),
            Order::Scoped => Self::Scoped(namespace.to_owned(), id.to_owned()),
            Order::Created | Order::Id => Self::Id(id.to_owned()),
        }
    }

    /// The id of the object that stands there.
    fn id(&self) -> &str {
        match self {
            Self::Created(_, id) | Self::Scoped(_, id) | Self::Id(id) => id,
        }
    }

    fn token(&self) -> String {
        match self {
            Self::Created(created, id) => format!("{created}.{id}"),
            Self::Scoped(namespace, id) => format!("{namespace}.{id}"),
            Self::Id(id) => id.clone(),
        }
    }

    /// The place that a token names, in a list of such places.
    fn read(order: Order, query: &Query, token: &str) -> Result<Self, Fault> {
        let wrong = || Fault::bad(format!("next_token is {token:?}: give the X-Nomad-NextToken of the page before"));
        match order {
            Order::Created if query.text("prefix").is_none() => {
                let (created, id) = token.split_once('.').ok_or_else(wrong)?;
                Ok(Self::Created(created.parse().map_err(|_| wrong())?, id.to_owned()))
            }
            Order::Scoped => {
                let (namespace, id) = token.split_once('.').ok_or_else(wrong)?;
                Ok(Self::Scoped(namespace.to_owned(), id.to_owned()))
            }
            Order::Created | Order::Id => Ok(Self::Id(token.to_owned())),
        }
    }
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page<T> {
    /// Its objects, in order.
    pub(crate) items: Vec<T>,
    /// Where the next page begins.
    pub(crate) next: Option<String>,
}

/// Chooses the page that is asked for. `full` is an object as its own read shows it, which filters look at.
///
/// # Errors
/// 400 for a filter or a token that cannot be read.
pub(crate) fn page<T>(
    order: Order,
    query: &Query,
    candidates: impl Iterator<Item = (Place, T)>,
    full: impl Fn(&T) -> serde_json::Value,
) -> Result<Page<T>, Fault> {
    let prefix = query.text("prefix").unwrap_or_default();
    let filter = query.text("filter").map(Filter::parse).transpose()?;
    let begin = query.text("next_token").map(|token| Place::read(order, query, token)).transpose()?;
    let is_reversed = order == Order::Created && query.is("reverse", false);
    let mut chosen: Vec<(Place, T)> = candidates.filter(|(place, _)| place.id().starts_with(prefix)).collect();
    chosen.sort_by(|(a, _), (b, _)| if is_reversed { b.cmp(a) } else { a.cmp(b) });
    let is_before =
        |place: &Place| begin.as_ref().is_some_and(|begin| if is_reversed { place > begin } else { place < begin });
    let most = if query.per_page() == 0 { usize::MAX } else { query.per_page() };
    let mut page = Page { items: Vec::new(), next: None };
    for (place, item) in chosen.into_iter().skip_while(|(place, _)| is_before(place)) {
        if let Some(filter) = &filter
            && !filter.matches(&full(&item))?
        {
            continue;
        }
        if page.items.len() >= most {
            page.next = Some(place.token());
            break;
        }
        page.items.push(item);
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    type Item = (u64, &'static str);

    const ITEMS: [Item; 5] = [(10, "c3"), (9, "d4"), (9, "a1"), (100, "b2"), (10, "ab")];

    fn ask(order: Order, text: &str) -> Result<(Vec<&'static str>, Option<String>), Fault> {
        let query = Query::parse(text)?;
        let candidates = ITEMS.iter().map(|item| (Place::new(order, &query, "shop", item.1, item.0), *item));
        let page = page(order, &query, candidates, |item| json!({ "ID": item.1, "CreateIndex": item.0 }))?;
        Ok((page.items.iter().map(|item| item.1).collect(), page.next))
    }

    fn pages(order: Order, text: &str) -> Vec<Vec<&'static str>> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let (items, token) = ask(order, &format!("{text}&next_token={next}")).expect("a page");
            all.push(items);
            match token {
                None => return all,
                Some(token) => next = token,
            }
        }
    }

    #[test]
    fn times_compare_as_numbers_and_newest_first_is_the_other_way_round() {
        assert_eq!(ask(Order::Created, "").expect("a list").0, ["a1", "d4", "ab", "c3", "b2"]);
        assert_eq!(ask(Order::Created, "reverse").expect("a list").0, ["b2", "c3", "ab", "d4", "a1"]);
        assert_eq!(ask(Order::Id, "reverse").expect("a list").0, ["a1", "ab", "b2", "c3", "d4"]);
    }

    #[test]
    fn pages_hold_each_object_once_in_both_directions() {
        assert_eq!(pages(Order::Created, "per_page=2"), [vec!["a1", "d4"], vec!["ab", "c3"], vec!["b2"]]);
        assert_eq!(pages(Order::Created, "per_page=2&reverse"), [vec!["b2", "c3"], vec!["ab", "d4"], vec!["a1"]]);
        assert_eq!(pages(Order::Scoped, "per_page=5"), [vec!["a1", "ab", "b2", "c3", "d4"]]);
        assert_eq!(pages(Order::Created, "per_page=1&prefix=a"), [vec!["a1"], vec!["ab"]]);
    }

    #[test]
    fn a_token_names_the_first_object_of_the_next_page_and_goes_on_when_that_is_gone() {
        assert_eq!(ask(Order::Created, "per_page=2").expect("a page").1.as_deref(), Some("10.ab"));
        assert_eq!(ask(Order::Created, "prefix=a&per_page=1").expect("a page").1.as_deref(), Some("ab"));
        assert_eq!(ask(Order::Scoped, "per_page=1").expect("a page").1.as_deref(), Some("shop.ab"));
        assert_eq!(ask(Order::Created, "next_token=10.b").expect("a page").0, ["c3", "b2"]);
        assert_eq!(ask(Order::Created, "reverse&next_token=10.b").expect("a page").0, ["ab", "d4", "a1"]);
        for token in ["x", "x.a1", "-1.a1"] {
            assert_eq!(ask(Order::Created, &format!("next_token={token}")).map_err(|it| it.code), Err(400), "{token}");
        }
    }

    #[test]
    fn a_filter_comes_before_the_pages() {
        let text = "per_page=2&filter=CreateIndex+!%3D+10";
        assert_eq!(ask(Order::Created, text).expect("a page"), (vec!["a1", "d4"], Some("100.b2".to_owned())));
        assert_eq!(ask(Order::Created, "filter=x+y").map_err(|it| it.code), Err(400));
    }

    proptest! {
        #[test]
        fn pages_are_the_whole_list_in_parts(per_page in 1_usize..7, is_reversed: bool, prefix in "[a-d]?") {
            let text = format!("prefix={prefix}{}", if is_reversed { "&reverse" } else { "" });
            let whole = ask(Order::Created, &text).expect("a list").0;
            prop_assert_eq!(pages(Order::Created, &format!("{text}&per_page={per_page}")).concat(), whole);
        }
    }
}
