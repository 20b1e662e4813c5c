//! Mount flags with values from the volume's Secret: `$(key)` in a flag stands for the value of that key, as `$(NAME)`
//! does in a container's arguments, and `$$` for a dollar sign. So no flag that holds a credential has to stand in an
//! object.

use std::collections::BTreeMap;

/// The flags with the Secret's values in place of their keys. O(length of all flags and values).
///
/// # Errors
/// Names the first key that the Secret does not have; never shows a value.
pub fn filled(flags: &[String], secret: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    flags.iter().map(|flag| filled_flag(flag, secret)).collect()
}

fn filled_flag(flag: &str, secret: &BTreeMap<String, String>) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), flag);
    while let Some((before, after)) = rest.split_once('$') {
        text += before;
        rest = if let Some(after) = after.strip_prefix('$') {
            text.push('$');
            after
        } else if let Some((key, after)) = after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            let value = secret.get(key).ok_or_else(|| {
                format!("mountOptions.mountFlags names $({key}), and the Secret of secretsRef has no key {key}; add it there, or write $$ for a dollar sign")
            })?;
            text += value;
            after
        } else {
            text.push('$');
            after
        };
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flag: &str) -> Result<String, String> {
        let secret = BTreeMap::from([("password", "a$(user)b"), ("user", "app")]);
        let secret = secret.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        filled(&[flag.to_owned()], &secret).map(|flags| flags.concat())
    }

    #[test]
    fn values_stand_in_the_place_of_their_keys_and_are_not_read_again() {
        for (flag, expected) in [
            ("noatime", "noatime"),
            ("password=$(password)", "password=a$(user)b"),
            ("u=$(user),p=$(password)!", "u=app,p=a$(user)b!"),
            ("a=$$(user)", "a=$(user)"),
            ("a=$$$(user)", "a=$app"),
            ("cost=5$", "cost=5$"),
            ("a=$(user", "a=$(user"),
            ("a=$user", "a=$user"),
            ("", ""),
        ] {
            assert_eq!(of(flag).as_deref(), Ok(expected), "{flag}");
        }
    }

    #[test]
    fn a_key_that_is_missing_is_named_and_no_value_is_shown() {
        let error = of("u=$(user),t=$(token)").expect_err("there is no token");
        assert!(error.contains("$(token)") && error.contains("secretsRef") && !error.contains("app"), "{error}");
    }
}
