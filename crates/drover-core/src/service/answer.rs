//! What the answer to a probe means.

use crate::health::CheckState;

/// The most bytes of a body that a probe reads.
pub const MAX_BODY_BYTES: usize = 3 * 1024;

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckAnswer {
    /// What follows for the check.
    pub state: CheckState,
    /// What was answered, or why there was no answer; at most [`MAX_BODY_BYTES`].
    pub output: String,
    /// The status code of an HTTP answer.
    pub status_code: Option<u16>,
}

impl CheckAnswer {
    /// The probe did not succeed, because of this.
    pub fn failure(reason: impl Into<String>) -> Self {
        let output = cut(&reason.into(), MAX_BODY_BYTES).to_owned();
        Self { state: CheckState::Failure, output, status_code: None }
    }

    /// A connection was accepted.
    pub fn connected() -> Self {
        Self { state: CheckState::Success, output: "tcp ok".to_owned(), status_code: None }
    }
}

/// What an HTTP answer means: 200 and all other codes below 400 are successes.
pub fn http_answer(status: u16, body: &[u8]) -> CheckAnswer {
    let body = &body[..body.len().min(MAX_BODY_BYTES)];
    let output = if status == 200 {
        "http ok".to_owned()
    } else {
        // What is no text becomes longer when it is replaced.
        cut(&String::from_utf8_lossy(body), MAX_BODY_BYTES).to_owned()
    };
    let state = if status < 400 { CheckState::Success } else { CheckState::Failure };
    CheckAnswer { state, output, status_code: Some(status) }
}

/// At most this many bytes of a text, whole characters.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_137_what_an_http_answer_means() {
        let table = [
            (200, "whatever".to_owned(), CheckState::Success, "http ok".len()),
            (201, "made".to_owned(), CheckState::Success, 4),
            (302, String::new(), CheckState::Success, 0),
            (399, "odd".to_owned(), CheckState::Success, 3),
            (404, "no".to_owned(), CheckState::Failure, 2),
            (500, "x".repeat(10 * 1024), CheckState::Failure, 3072),
        ];
        for (status, body, state, length) in table {
            let answer = http_answer(status, body.as_bytes());
            assert_eq!((answer.state, answer.output.len(), answer.status_code), (state, length, Some(status)));
        }
    }

    #[test]
    fn a_body_that_is_no_text_is_cut_at_a_whole_character() {
        let answer = http_answer(503, &[0xff; 5000]);
        assert!(answer.output.len() <= MAX_BODY_BYTES && answer.output.starts_with('\u{fffd}'));
        assert_eq!(CheckAnswer::failure("é".repeat(4000)).output.len(), MAX_BODY_BYTES);
    }
}
