//! `-o jsonpath=TEMPLATE`: kubectl's templates, as `{range .items[*]}{.metadata.name}{"\n"}{end}`.
//!
//! The templates, and what kubectl's paths have beyond RFC 9535, are read here; the paths are followed by a library. As
//! in kubectl a field that is not there prints nothing, results of one path are parted by spaces, and no line end is
//! added. Source: <https://kubernetes.io/docs/reference/kubectl/jsonpath/>.

use std::iter::Peekable;
use std::str::Chars;

use jsonpath_rust::JsonPath;
use jsonpath_rust::parser::parse_json_path;
use serde_json::Value;

/// A template that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Path(Path),
    Range(Path, Vec<Piece>),
}

/// A path as RFC 9535 writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    /// Whether it begins at the whole document, also in a range.
    is_of_whole: bool,
    query: String,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut rest = text;
        let pieces = pieces(&mut rest, false)?;
        let has_path = pieces.iter().any(|piece| !matches!(piece, Piece::Text(_)));
        if has_path { Ok(Self(pieces)) } else { Err(format!("`{text}` has no path; write {{.metadata.name}}")) }
    }

    /// The text that it makes of a document.
    pub(crate) fn fill(&self, whole: &Value) -> String {
        let mut text = String::new();
        fill(&self.0, whole, whole, &mut text);
        text
    }
}

/// Reads up to the end of the text, or up to `{end}`.
fn pieces(rest: &mut &str, is_range: bool) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    loop {
        let Some(begin) = rest.find('{') else {
            if is_range {
                return Err("{range} without {end}".to_owned());
            }
            pieces.extend((!rest.is_empty()).then(|| Piece::Text((*rest).to_owned())));
            return Ok(pieces);
        };
        pieces.extend((begin > 0).then(|| Piece::Text(rest[..begin].to_owned())));
        let inside = &rest[begin + 1..];
        let end = end_of(inside, '}').ok_or_else(|| format!("`{{{inside}` is not closed; write `}}`"))?;
        *rest = &inside[end + 1..];
        match inside[..end].trim() {
            "end" if is_range => return Ok(pieces),
            "end" => return Err("{end} without {range}".to_owned()),
            quoted if quoted.starts_with(['"', '\'']) => pieces.push(Piece::Text(unquoted(quoted)?)),
            path => match path.strip_prefix("range ") {
                Some(path) => pieces.push(Piece::Range(Path::read(path.trim())?, self::pieces(rest, true)?)),
                None => pieces.push(Piece::Path(Path::read(path)?)),
            },
        }
    }
}

/// Where `close` stands outside quotes.
fn end_of(text: &str, close: char) -> Option<usize> {
    let mut quote = None;
    let mut is_escaped = false;
    for (at, one) in text.char_indices() {
        match quote {
            _ if is_escaped => is_escaped = false,
            _ if one == '\\' => is_escaped = true,
            Some(open) => quote = Some(open).filter(|open| *open != one),
            None if one == close => return Some(at),
            None => quote = Some(one).filter(|one| ['"', '\''].contains(one)),
        }
    }
    None
}

/// Text in quotes, with its escapes.
fn unquoted(quoted: &str) -> Result<String, String> {
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let inner = inner.or_else(|| quoted.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')));
    let inner = inner.ok_or_else(|| format!("{quoted} is not closed as it was opened"))?;
    serde_json::from_str(&format!("\"{}\"", inner.replace("\\'", "'"))).map_err(|error| format!("{quoted}: {error}"))
}

impl Path {
    fn read(text: &str) -> Result<Self, String> {
        let is_of_whole = text.starts_with('$');
        let steps = text.strip_prefix(['$', '@']).unwrap_or(text);
        if !steps.is_empty() && !steps.starts_with(['.', '[']) {
            return Err(format!("`{text}` is no path; write {{.{text}}}"));
        }
        let query = format!("${}", query(steps).map_err(|error| format!("`{text}`: {error}"))?);
        match parse_json_path(&query) {
            Ok(_) => Ok(Self { is_of_whole, query }),
            Err(error) => Err(format!("`{text}` is no path: {error}")),
        }
    }

    fn values<'a>(&self, whole: &'a Value, item: &'a Value) -> Vec<&'a Value> {
        let from = if self.is_of_whole { whole } else { item };
        // It was read before, and what is not there is no error.
        from.query(&self.query).unwrap_or_default()
    }
}

/// Steps of kubectl's as RFC 9535 writes them, which takes fewer names without quotes. To kubectl a name in quotes is a
/// path too, so that the dots of a name are escaped in any case.
fn query(steps: &str) -> Result<String, &'static str> {
    let mut query = String::new();
    let mut rest = steps;
    while let Some(one) = rest.chars().next() {
        if one == '[' {
            let end = end_of(rest, ']').ok_or("`[` is not closed; write `]`")?;
            let inside = rest[1..end].trim();
            rest = &rest[end + 1..];
            if !inside.starts_with(['\'', '"']) {
                query.extend(["[", inside, "]"]);
            } else if end_of(inside, ',').is_some() {
                return Err("several names in brackets are not read; write a path for each");
            } else {
                query.push_str(&self::query(&format!(".{}", inside.trim_matches(['\'', '"'])))?);
            }
            continue;
        }
        let is_deep = rest.starts_with("..");
        let mut chars = rest[if is_deep { 2 } else { 1 }..].chars().peekable();
        let name = name(&mut chars);
        rest = &rest[rest.len() - chars.map(char::len_utf8).sum::<usize>()..];
        if is_deep {
            query.push_str("..");
        }
        match name.as_str() {
            // A dot before a bracket, or at the end, says nothing.
            "" => {}
            "*" => query.push_str("[*]"),
            name => query.extend(["['", &name.replace('\\', "\\\\").replace('\'', "\\'"), "']"]),
        }
    }
    Ok(query)
}

/// The name up to the next dot or bracket that no backslash is before.
fn name(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut name = String::new();
    while let Some(one) = chars.next_if(|one| !['.', '['].contains(one)) {
        name.push(if one == '\\' { chars.next().unwrap_or(one) } else { one });
    }
    name
}

fn fill(pieces: &[Piece], whole: &Value, item: &Value, text: &mut String) {
    for piece in pieces {
        match piece {
            Piece::Text(it) => text.push_str(it),
            Piece::Path(path) => {
                let found: Vec<String> = path.values(whole, item).into_iter().map(printed).collect();
                text.push_str(&found.join(" "));
            }
            Piece::Range(path, body) => {
                for item in path.values(whole, item) {
                    fill(body, whole, item, text);
                }
            }
        }
    }
}

fn printed(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a template makes of two nodes; the templates are kubectl's own examples, turned to drover's objects.
    fn filled(template: &str) -> Result<String, String> {
        let node = |name: &str, ready: &str, phase: &str| {
            json!({ "metadata": { "name": name, "labels": { "topology.kubernetes.io/zone": format!("z-{name}"), "a-b": "c" } },
                "status": { "phase": phase, "cpu": 4, "limits": { "pids": 9 }, "conditions": [{ "type": "Ready", "status": ready }] } })
        };
        let items = json!([node("n1", "True", "ready"), node("n2", "False", "down")]);
        Template::read(template).map(|template| template.fill(&json!({ "kind": "List", "items": items })))
    }

    #[test]
    fn templates_mean_what_they_mean_to_kubectl() {
        for (template, expected) in [
            ("{.kind}", "List"),
            ("{$.kind} {@.kind}", "List List"),
            ("{.items[*].metadata.name}", "n1 n2"),
            ("{.items[0].status.limits}", r#"{"pids":9}"#),
            ("{.items[-1:].metadata.name}", "n2"),
            ("{.items[*]['metadata.name']}", "n1 n2"),
            ("{..name}", "n1 n2"),
            ("{.items[?(@.status.phase==\"down\")].metadata.name}", "n2"),
            ("{.items[*].status.conditions[?(@.type==\"Ready\")].status}", "True False"),
            (r"{.items[0].metadata.labels.topology\.kubernetes\.io/zone}", "z-n1"),
            ("{.items[0].metadata.labels.a-b}", "c"),
            (r"{.items[0].metadata.labels['topology\.kubernetes\.io/zone']}", "z-n1"),
            (r#"{range .items[*]}{.metadata.name}={$.kind}{"\t"}{'}'}{"\n"}{end}."#, "n1=List\t}\nn2=List\t}\n."),
            ("{range .items[*]}{range .status.conditions[*]}{.type}{end};{end}", "Ready;Ready;"),
            ("nothing: {.items[0].status.nope}", "nothing: "),
        ] {
            assert_eq!(filled(template), Ok(expected.to_owned()), "{template}");
        }
    }

    #[test]
    fn what_is_no_template_says_why() {
        for (template, expected) in [
            (".kind", "`.kind` has no path; write {.metadata.name}"),
            ("{.kind", "`{.kind` is not closed; write `}`"),
            ("{kind}", "`kind` is no path; write {.kind}"),
            ("{.items[0}", "`.items[0`: `[` is not closed; write `]`"),
            ("{.a['b', 'c']}", "`.a['b', 'c']`: several names in brackets are not read; write a path for each"),
            ("{range .items[*]}{.kind}", "{range} without {end}"),
            ("{.kind}{end}", "{end} without {range}"),
            ("{\"a'}{.kind}", "`{\"a'}{.kind}` is not closed; write `}`"),
        ] {
            assert_eq!(filled(template), Err(expected.to_owned()), "{template}");
        }
        assert!(filled("{.items[?(]}").is_err_and(|error| error.starts_with("`.items[?(]` is no path: ")));
    }
}
