//! Whether a caller shows a token (`spec/api.md` 9): none is 401, one that cannot be any is 400. What it is worth the
//! gateway says.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::refusals::ApiRefusal;

/// The header that Nomad's clients show tokens in.
const NOMAD_TOKEN: &str = "x-nomad-token";

/// Looks for a token.
///
/// # Errors
/// 401 without one, 400 with what is none.
pub(super) fn check(headers: &HeaderMap) -> Result<(), ApiRefusal> {
    let unreadable = || ApiRefusal::new(StatusCode::BAD_REQUEST, "the token is no text");
    let text = |name: &str| headers.get(name).map(|value| value.to_str().map_err(|_| unreadable())).transpose();
    let bearer = text(header::AUTHORIZATION.as_str())?.map(|value| match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => value.trim(),
    });
    let token = match bearer.filter(|token| !token.is_empty()) {
        Some(token) => Some(token),
        None => text(NOMAD_TOKEN)?.map(str::trim).filter(|token| !token.is_empty()),
    };
    match token {
        None => Err(ApiRefusal::new(
            StatusCode::UNAUTHORIZED,
            "no token is shown: show that of an identity of the task, as by X-Nomad-Token",
        )),
        Some(token) if is_jwt(token) || is_uuid(token) => Ok(()),
        Some(_) => Err(ApiRefusal::new(StatusCode::BAD_REQUEST, "what is shown is no token: neither a JWT nor a UUID")),
    }
}

/// Tokens of tasks and of `ServiceAccounts` are JWTs.
fn is_jwt(token: &str) -> bool {
    let parts: Vec<&str> = token.split('.').collect();
    let is_object = |part: &&str| {
        let read = URL_SAFE_NO_PAD.decode(part).ok();
        read.is_some_and(|bytes| serde_json::from_slice::<Value>(&bytes).is_ok_and(|value| value.is_object()))
    };
    parts.len() == 3 && parts.iter().take(2).all(is_object)
}

/// Tokens of Nomad's access lists are UUIDs: none is known here, which the gateway says.
fn is_uuid(token: &str) -> bool {
    let lengths: Vec<usize> = token.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && token.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn answered(name: &'static str, value: &'static str) -> u16 {
        let headers = HeaderMap::from_iter([(
            header::HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("a header's value"),
        )]);
        check(&headers).map_or_else(|refusal| refusal.code(), |()| 200)
    }

    #[test]
    fn b_064_no_token_is_401_and_what_cannot_be_one_is_400() {
        let (jwt, uuid) = ("Bearer e30.e30.c2ln", "123e4567-e89b-12d3-a456-426614174000");
        for (name, value, code) in [
            ("accept", "*/*", 401),
            ("authorization", "", 401),
            ("authorization", "Bearer ", 401),
            ("authorization", jwt, 200),
            ("authorization", "bearer e30.e30.", 200),
            ("authorization", "Basic YTpi", 400),
            ("authorization", "Bearer garbage", 400),
            ("authorization", "Bearer a.b.c", 400),
            ("authorization", "Bearer e30.e30", 400),
            ("authorization", "Bearer e30.W10.c2ln", 400),
            ("x-nomad-token", uuid, 200),
            ("x-nomad-token", "e30.e30.c2ln", 200),
            ("x-nomad-token", "root", 400),
        ] {
            assert_eq!(answered(name, value), code, "{name}: {value}");
        }
    }
}
