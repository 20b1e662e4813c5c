//! What a template looks up by a name that stands in its text: Secrets, `ConfigMaps`, and whether services.
//!
//! Input: the text, and its delimiters. Output: what is named. A name that is put together, or comes through a `|`, is
//! not found: the task says at its start what it misses. What stands outside of actions and in comments names nothing.
//!
//! Must never know: what functions do, whether the text is well formed.

use std::collections::BTreeSet;

use drover_api::task::{Task, Template};
use drover_api::value_object::{ValueKind, ValueObject};

/// The delimiters of a template that names none.
const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const COMMENT: (&str, &str) = ("/*", "*/");

/// An object that a template names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The object.
    pub object: ValueObject,
    /// As it is written, without slashes around it: slashes stand for dots.
    pub path: String,
}

/// Each object that a template names in its text, once, in the order of their first places.
pub fn named_in(template: &Template) -> Vec<NamedObject> {
    let (tokens, mut known) = (tokens(template), BTreeSet::new());
    let named = tokens.windows(2).filter_map(|pair| match pair {
        [Token::Name(function), Token::Text(text)] => object(function, text),
        _ => None,
    });
    named.filter(|named| known.insert(named.object.clone())).collect()
}

/// Whether a task's templates look up services.
pub fn looks_up_services(task: &Task) -> bool {
    let is_look_up =
        |token: &Token<'_>| matches!(token, Token::Name("service" | "services" | "nomadService" | "nomadServices"));
    task.templates.iter().any(|template| tokens(template).iter().any(is_look_up))
}

/// The object behind a function's argument; none: the function looks up something else, or the argument names none.
fn object(function: &str, argument: &str) -> Option<NamedObject> {
    let path = argument.trim().trim_matches('/');
    let (kind, path) = match function {
        "secret" | "nomadVar" | "nomadVarExists" => (ValueKind::Secret, path),
        // The last part is a key.
        "key" | "keyExists" | "keyOrDefault" => (ValueKind::ConfigMap, path.rsplit_once('/')?.0),
        "ls" | "safeLs" | "tree" | "safeTree" => (ValueKind::ConfigMap, path),
        _ => return None,
    };
    let object = ValueObject { kind, name: path.replace('/', ".") };
    (!path.is_empty()).then(|| NamedObject { object, path: path.to_owned() })
}

/// What matters of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A word that is neither a field nor a variable.
    Name(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    Other,
}

/// The tokens of all actions.
fn tokens(template: &Template) -> Vec<Token<'_>> {
    let or = |given: &'_ str, default: &'static str| if given.is_empty() { default } else { given }.to_owned();
    let (left, right) = (or(&template.left_delimiter, LEFT), or(&template.right_delimiter, RIGHT));
    let (mut rest, mut found) = (template.embedded_tmpl.as_str(), Vec::new());
    while let Some(start) = rest.find(&left) {
        rest = &rest[start + left.len()..];
        let inner = rest.strip_prefix('-').unwrap_or(rest).trim_start();
        if let Some(comment) = inner.strip_prefix(COMMENT.0) {
            rest = comment.find(COMMENT.1).map_or("", |end| &comment[end + COMMENT.1.len()..]);
            continue;
        }
        while !rest.is_empty() && !rest.starts_with(&right) {
            let (token, length) = first(rest);
            found.extend(token);
            rest = &rest[length..];
        }
    }
    found
}

/// The first token of what is left of an action, none for a space, and its length in bytes.
fn first(rest: &str) -> (Option<Token<'_>>, usize) {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let word = |text: &str| text.find(|char| !is_word(char)).unwrap_or(text.len());
    let Some(char) = rest.chars().next() else { return (None, 0) };
    match char {
        _ if char.is_whitespace() => (None, char.len_utf8()),
        '"' | '`' => {
            let inner = &rest[1..];
            let end = end_of_text(inner, char);
            (Some(Token::Text(&inner[..end])), (end + 2).min(rest.len()))
        }
        '.' | '$' => (Some(Token::Other), 1 + word(&rest[1..])),
        _ if is_word(char) => (Some(Token::Name(&rest[..word(rest)])), word(rest)),
        _ => (Some(Token::Other), char.len_utf8()),
    }
}

/// Where a string ends that began with this quote: in a `"` one what stands behind a `\` does not end it.
fn end_of_text(inner: &str, quote: char) -> usize {
    let mut is_escaped = false;
    let end = inner.char_indices().find(|(_, char)| {
        let is_end = *char == quote && !is_escaped;
        is_escaped = quote == '"' && *char == '\\' && !is_escaped;
        is_end
    });
    end.map_or(inner.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    mod actions;

    use super::*;

    fn template(text: &str) -> Template {
        Template { embedded_tmpl: text.to_owned(), ..Template::default() }
    }

    fn named(template: &Template) -> String {
        named_in(template)
            .iter()
            .map(|named| format!("{} ({})", named.object, named.path))
            .collect::<Vec<_>>()
            .join(", ")
    }

    #[test]
    fn an_object_is_found_once_behind_each_function_that_looks_one_up() {
        for (text, expected) in [
            ("{{ with secret \"db-creds\" }}{{ .Data.k }}{{ end }}", "Secret db-creds (db-creds)"),
            (
                "{{nomadVar `nomad/jobs/web`}}{{nomadVarExists \"nomad/jobs/web\"}}",
                "Secret nomad.jobs.web (nomad/jobs/web)",
            ),
            ("{{ key \"app/x/mode\" }}{{ keyOrDefault \"/app.x/o\" \"none\" }}", "ConfigMap app.x (app/x)"),
            ("{{ range (tree \"app\") }}{{ end }}{{ if keyExists \"b/k\" }}", "ConfigMap app (app), ConfigMap b (b)"),
            ("{{- key \"a\\\"/b\" -}}", "ConfigMap a\\\" (a\\\")"),
            ("{{ \"a }} b\" }}{{ ls \"c\" }}", "ConfigMap c (c)"),
            ("{{- /* key \"a/b\" }} */ -}}{{ safeLs \"d\" }}", "ConfigMap d (d)"),
        ] {
            assert_eq!(named(&template(text)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_look_up_with_a_name_in_the_text_names_nothing() {
        for text in [
            "key \"a/b\" secret \"c\"",
            "{{ end }} key \"a/b\" {{ if true }}",
            "{{ .key \"a/b\" }}{{ $key := \"x\" }}{{ $secret \"y\" }}{{ template \"key\" \"z\" }}",
            "{{ key (print \"a\" \"/b\") }}{{ secret $name }}{{ key \"alone\" }}{{ ls \"/\" }}{{ secret \"\" }}",
            "{{ \"a/b\" | key }}{{ service \"web\" }}{{ env \"X\" }}{{ monkey \"a/b\" }}",
            "{{ \"secret \\\"x\\\"\" }}{{ `key \"a/b\"` }}",
            "{{ key",
            "{{ \"open",
        ] {
            assert_eq!(named(&template(text)), "", "{text}");
        }
    }

    #[test]
    fn a_template_has_its_own_delimiters() {
        let (left_delimiter, right_delimiter) = ("[[".to_owned(), "]]".to_owned());
        let text = template("{{ key \"a/b\" }}[[ key \"c/d\" ]] ]] {{ ls \"x\" }}");
        assert_eq!(named(&Template { left_delimiter, right_delimiter, ..text }), "ConfigMap c (c)");
    }

    #[test]
    fn services_are_looked_up_by_four_functions_wherever_their_names_come_from() {
        let task = |text: &str| -> Task {
            let templates = [template("x"), template(text)];
            serde_json::from_value(serde_json::json!({ "name": "t", "driver": "exec", "templates": templates }))
                .expect("a task")
        };
        for text in ["{{ service $n }}", "{{range nomadService \"web\"}}", "{{ services }}", "{{ len nomadServices }}"]
        {
            assert!(looks_up_services(&task(text)), "{text}");
        }
        for text in ["service nomadService", "{{ .service }}", "{{ \"service\" }}", "{{/* services */}}"] {
            assert!(!looks_up_services(&task(text)), "{text}");
        }
    }
}
