//! Actions of templates letter by letter, against a slow reading of Go's rules of strings and comments.

use fastrand::Rng;

use super::*;

/// The words and strings of all actions, as `n:word` and `t:string`; other signs are `o`.
fn slow(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let is = |at: usize, sign: &str| sign.chars().enumerate().all(|(n, one)| letters.get(at + n) == Some(&one));
    let is_word = |at: usize| letters.get(at).is_some_and(|one| one.is_alphanumeric() || *one == '_');
    let (mut found, mut at) = (vec![], 0);
    while at < letters.len() {
        if !is(at, "{{") {
            at += 1;
            continue;
        }
        at += 2;
        let mut inner = at + usize::from(is(at, "-"));
        while letters.get(inner).is_some_and(|one| one.is_whitespace()) {
            inner += 1;
        }
        if is(inner, "/*") {
            at = inner + 2;
            while at < letters.len() && !is(at, "*/") {
                at += 1;
            }
            at += 2;
            continue;
        }
        while at < letters.len() && !is(at, "}}") {
            let from = at;
            at += 1;
            match letters[from] {
                one if one.is_whitespace() => {}
                quote @ ('"' | '`') => {
                    let mut inner = String::new();
                    while at < letters.len() && letters[at] != quote {
                        if quote == '"' && letters[at] == '\\' {
                            inner.push('\\');
                            at += 1;
                        }
                        inner.extend(letters.get(at));
                        at += 1;
                    }
                    at += 1;
                    found.push(format!("t:{inner}"));
                }
                one => {
                    while (is_word(from) || one == '.' || one == '$') && is_word(at) {
                        at += 1;
                    }
                    let word: String = letters[from..at].iter().collect();
                    found.push(if is_word(from) { format!("n:{word}") } else { "o".to_owned() });
                }
            }
        }
        // What ends an action is read again as text, which it does not begin.
    }
    found
}

#[test]
fn each_word_and_string_of_an_action_is_read_once() {
    let mut rng = Rng::with_seed(59);
    let parts = ["{{", "}}", "-", "/*", "*/", "\"", "`", "\\", ".", "$", "key", " ", "é", "|", "a1", "\n"];
    for _ in 0..50_000 {
        let text: String = (0..rng.usize(..14)).map(|_| parts[rng.usize(..parts.len())]).collect();
        let template = template(&text);
        let found: Vec<String> = tokens(&template)
            .into_iter()
            .map(|token| match token {
                Token::Name(name) => format!("n:{name}"),
                Token::Text(text) => format!("t:{text}"),
                Token::Other => "o".to_owned(),
            })
            .collect();
        assert_eq!(found, slow(&text), "{text:?}");
    }
}

#[test]
fn each_function_looks_up_its_own_kind_of_object() {
    for (functions, argument, expected) in [
        ("secret nomadVar nomadVarExists", "a/b/c", "Secret a.b.c (a/b/c)"),
        ("secret nomadVar nomadVarExists", " /a/ ", "Secret a (a)"),
        ("key keyExists keyOrDefault", "a/b/c", "ConfigMap a.b (a/b)"),
        ("key keyExists keyOrDefault", "/a/b/", "ConfigMap a (a)"),
        ("key keyExists keyOrDefault", "a", ""),
        ("key keyExists keyOrDefault", "", ""),
        ("ls safeLs tree safeTree", "a/b", "ConfigMap a.b (a/b)"),
        ("ls safeLs tree safeTree", "//", ""),
        ("nomadVarList nomadVarListSafe service env file Key keys treeSafe", "a/b", ""),
    ] {
        for function in functions.split(' ') {
            let found = named(&template(&format!("{{{{ {function} \"{argument}\" }}}}")));
            assert_eq!(found, expected, "{function} {argument:?}");
        }
    }
}

#[test]
fn an_object_is_named_by_its_first_path_however_often_it_is_looked_up() {
    for (text, expected) in [
        ("{{ secret \"b\" }}{{ secret \"a\" }}{{ secret \"b\" }}", "Secret b (b), Secret a (a)"),
        ("{{ secret \"a/b\" }}{{ secret \"a.b\" }}", "Secret a.b (a/b)"),
        ("{{ ls \"a\" }}{{ secret \"a\" }}", "ConfigMap a (a), Secret a (a)"),
        ("{{ key \"a/x\" }}{{ key \"a/y\" }}{{ tree \"a\" }}", "ConfigMap a (a)"),
        ("{{ keyOrDefault \"a/b\" (key \"c/d\") }}", "ConfigMap a (a), ConfigMap c (c)"),
        ("{{ secret\"a\" }}", "Secret a (a)"),
        ("{{ secret \"a\" \"b\" }}", "Secret a (a)"),
        // The next action begins with a string of its own.
        ("{{ secret }}{{ \"a\" }}", "Secret a (a)"),
    ] {
        assert_eq!(named(&template(text)), expected, "{text}");
    }
}
