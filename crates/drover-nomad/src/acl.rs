//! Nomad's access control, as far as its clients ask who they are: identities are Kubernetes'.
//!
//! Input: a path, who asks. Output: a token without its secret, or with that one which its owner has given. Policies
//! are the groups of the caller. Must never know how an identity is proved.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fault::Fault;

/// The one way to log in.
const METHOD: &str = "kubernetes";

/// A question about identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclEndpoint {
    /// Who asks.
    OwnToken,
    /// By what one logs in.
    Methods,
    /// Whose token this is.
    Login,
}

impl AclEndpoint {
    /// What a path and a method ask for.
    pub(crate) fn of(method: &Method, path: &str) -> Option<Self> {
        let is_write = *method == Method::PUT || *method == Method::POST;
        match path {
            "acl/token/self" if *method == Method::GET => Some(Self::OwnToken),
            "acl/auth-methods" if *method == Method::GET => Some(Self::Methods),
            "acl/login" if is_write => Some(Self::Login),
            _ => None,
        }
    }
}

/// Who asks, for Nomad's clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenFacts {
    /// The name of the user.
    pub user: String,
    /// Its uid; empty where it has none.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Whether it may do everything.
    pub is_management: bool,
}

/// A token. `secret` is what its owner has given, or nothing.
pub fn token(facts: &TokenFacts, secret: &str) -> Value {
    let TokenFacts { user, uid, groups, is_management } = facts;
    json!({
        "AccessorID": uid,
        "SecretID": secret,
        "Name": user,
        "Type": if *is_management { "management" } else { "client" },
        "Policies": groups,
        "Roles": [],
        "Global": true,
        "CreateTime": crate::wire::times::UNSET,
        "CreateIndex": 0,
        "ModifyIndex": 0,
    })
}

/// The ways to log in.
pub fn auth_methods() -> Value {
    json!([{ "Name": METHOD, "Type": "JWT", "Default": true, "CreateIndex": 0, "ModifyIndex": 0 }])
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Login {
    auth_method_name: String,
    login_token: String,
}

/// The token by which one wants to log in.
///
/// # Errors
/// 400 for a body that is none, for another way to log in, and without a token.
pub fn login_token(body: &[u8]) -> Result<String, Fault> {
    let login: Login = serde_json::from_slice(body)
        // The text of the error could hold a part of the token.
        .map_err(|_| Fault::bad("the body is no login: give AuthMethodName and LoginToken"))?;
    if !matches!(login.auth_method_name.as_str(), METHOD | "") {
        return Err(Fault::bad(format!("AuthMethodName is {:?}: there is {METHOD:?}", login.auth_method_name)));
    }
    if login.login_token.is_empty() {
        return Err(Fault::bad("LoginToken is empty: give a token of Kubernetes, as `kubectl create token` makes it"));
    }
    Ok(login.login_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_gives_a_token_and_its_errors_hold_none() {
        let of = |text: &str| login_token(text.as_bytes()).map_err(|fault| (fault.code, fault.message));
        assert_eq!(of(r#"{"AuthMethodName":"kubernetes","LoginToken":"canary"}"#), Ok("canary".to_owned()));
        assert_eq!(of(r#"{"LoginToken":"canary"}"#), Ok("canary".to_owned()));
        for text in [r#"{"LoginToken":["canary"]}"#, r#"{"LoginToken":"canary"#, "", "{}"] {
            let (code, message) = of(text).expect_err(text);
            assert!(code == 400 && !message.contains("canary"), "{text}: {message}");
        }
        let (_, message) = of(r#"{"AuthMethodName":"oidc","LoginToken":"canary"}"#).expect_err("refused");
        assert!(message.contains("kubernetes") && !message.contains("canary"), "{message}");
    }

    #[test]
    fn all_else_of_access_control_is_not_served_here() {
        assert_eq!(AclEndpoint::of(&Method::PUT, "acl/login"), Some(AclEndpoint::Login));
        for (method, path) in [(Method::GET, "acl/login"), (Method::PUT, "acl/token/self"), (Method::GET, "acl/tokens")]
        {
            assert_eq!(AclEndpoint::of(&method, path), None, "{method} {path}");
        }
    }
}
