//! Brace ranges in names: `n-{0..9}` is ten names; `{i}` and `{i%3}` in the other strings of a node are its number.

use anyhow::{Context, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Most names of one range.
const MOST: u64 = 100_000;

/// A range in a name.
struct Range<'a> {
    before: &'a str,
    first: u64,
    last: u64,
    width: usize,
    after: &'a str,
}

fn range(text: &str) -> anyhow::Result<Option<Range<'_>>> {
    let Some((before, rest)) = text.split_once('{') else { return Ok(None) };
    let (inside, after) = rest.split_once('}').with_context(|| format!("{text:?}: a brace is not closed"))?;
    let Some((first, last)) = inside.split_once("..") else { return Ok(None) };
    let number = |part: &str| part.parse::<u64>().with_context(|| format!("{text:?}: {part:?} is no number"));
    let width = if first.starts_with('0') && first.len() > 1 { first.len() } else { 0 };
    let (first, last) = (number(first)?, number(last)?);
    ensure!(first <= last && last - first < MOST, "{text:?}: the range is empty or has more than {MOST} names");
    Ok(Some(Range { before, first, last, width, after }))
}

/// Every name of a list, with ranges expanded.
pub(super) fn names(names: &[String]) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for name in names {
        match range(name)? {
            None => all.push(name.clone()),
            Some(Range { before, first, last, width, after }) => {
                all.extend((first..=last).map(|i| format!("{before}{i:0width$}{after}")));
            }
        }
    }
    Ok(all)
}

/// Every one of a range in `name`, which is the item's name.
pub(super) fn items<T: Clone + Serialize + DeserializeOwned>(name: &str, item: &T) -> anyhow::Result<Vec<T>> {
    let Some(Range { before, first, last, width, after }) = range(name)? else { return Ok(vec![item.clone()]) };
    let template = serde_json::to_value(item).context("a node")?;
    let one = |i: u64| -> anyhow::Result<T> {
        let mut value = template.clone();
        number_strings(&mut value, i)?;
        value["name"] = Value::String(format!("{before}{i:0width$}{after}"));
        serde_json::from_value(value).with_context(|| format!("node {name:?}"))
    };
    (first..=last).map(one).collect()
}

fn number_strings(value: &mut Value, i: u64) -> anyhow::Result<()> {
    match value {
        Value::String(text) if text.contains("{i") => *text = numbered(text, i)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| number_strings(item, i))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| number_strings(field, i))?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

/// A text with `{i}`, `{i%3}` and `{i/3}` replaced.
fn numbered(text: &str, i: u64) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{i") {
        let (operation, after) = after.split_once('}').with_context(|| format!("{text:?}: a brace is not closed"))?;
        let operand = |text: &str| {
            let number: u64 = text.parse().with_context(|| format!("{text:?} is no number"))?;
            ensure!(number > 0, "{text:?} must be above 0");
            Ok(number)
        };
        let value = match operation.split_at_checked(1) {
            None => i,
            Some(("%", by)) => i % operand(by)?,
            Some(("/", by)) => i / operand(by)?,
            Some(_) => anyhow::bail!("{text:?}: use {{i}}, {{i%3}} or {{i/3}}"),
        };
        out.push_str(before);
        out.push_str(&value.to_string());
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_names() {
        let list = ["n-{8..10}", "x", "r{01..03}a"].map(str::to_owned);
        assert_eq!(names(&list).unwrap(), ["n-8", "n-9", "n-10", "x", "r01a", "r02a", "r03a"]);
        assert!(names(&["n-{3..1}".to_owned()]).is_err());
    }

    #[test]
    fn other_strings_take_the_number() {
        assert_eq!(numbered("r{i%3}-{i}-{i/2}", 7).unwrap(), "r1-7-3");
        assert!(numbered("{i*2}", 7).is_err());
    }
}
