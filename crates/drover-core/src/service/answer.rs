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

/// What the end of a script means: 0 passes, 1 is a warning, and every other code, that of a signal too, a failure.
pub fn script_answer(exit_code: i32, output: &[u8]) -> CheckAnswer {
    let output = &output[..output.len().min(MAX_BODY_BYTES)];
    let text = String::from_utf8_lossy(output);
    let state = match exit_code {
        0 => CheckState::Success,
        1 => CheckState::Warning,
        _ => CheckState::Failure,
    };
    let output = match (exit_code, text.trim()) {
        (0, "") => "script ok".to_owned(),
        (0, text) => cut(text, MAX_BODY_BYTES).to_owned(),
        (code, "") => format!("exit code {code}"),
        (code, text) => cut(&format!("exit code {code}: {text}"), MAX_BODY_BYTES).to_owned(),
    };
    CheckAnswer { state, output, status_code: None }
}

/// What a server answers of one of its services by gRPC's health protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrpcHealth {
    /// It serves.
    Serving,
    /// It does not, or does not say.
    NotServing,
    /// It does not know the service.
    Unknown,
}

/// What an answer by gRPC's health protocol means: only that it serves is a success.
pub fn grpc_answer(service: &str, health: GrpcHealth) -> CheckAnswer {
    let name = if service.is_empty() { "the server".to_owned() } else { format!("service {service}") };
    match health {
        GrpcHealth::Serving => {
            CheckAnswer { state: CheckState::Success, output: "grpc ok".to_owned(), status_code: None }
        }
        GrpcHealth::NotServing => CheckAnswer::failure(format!("{name} says that it is not serving")),
        GrpcHealth::Unknown => {
            CheckAnswer::failure(format!("the server does not know {name}: see grpcService of the check"))
        }
    }
}

/// At most this many bytes of a text, whole characters.
pub(super) fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    mod bytes;

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
    fn what_the_end_of_a_script_means() {
        let long = "x".repeat(10 * 1024);
        let table = [
            (0, "", CheckState::Success, "script ok"),
            (0, " all well\n", CheckState::Success, "all well"),
            (1, "disk is filling\n", CheckState::Warning, "exit code 1: disk is filling"),
            (2, "", CheckState::Failure, "exit code 2"),
            (137, "late", CheckState::Failure, "exit code 137: late"),
            (-1, "", CheckState::Failure, "exit code -1"),
        ];
        for (code, output, state, shown) in table {
            let answer = script_answer(code, output.as_bytes());
            assert_eq!((answer.state, &*answer.output, answer.status_code), (state, shown, None));
        }
        assert_eq!(script_answer(2, long.as_bytes()).output.len(), MAX_BODY_BYTES);
        assert!(script_answer(0, &[0xff; 5000]).output.len() <= MAX_BODY_BYTES);
    }

    #[test]
    fn only_a_server_that_says_it_serves_passes() {
        let shown = |service: &str, health| {
            let answer = grpc_answer(service, health);
            (answer.state, answer.output)
        };
        assert_eq!(shown("a.B", GrpcHealth::Serving), (CheckState::Success, "grpc ok".to_owned()));
        let (state, output) = shown("", GrpcHealth::NotServing);
        assert_eq!((state, &*output), (CheckState::Failure, "the server says that it is not serving"));
        let (state, output) = shown("a.B", GrpcHealth::Unknown);
        assert_eq!(state, CheckState::Failure);
        assert_eq!(output, "the server does not know service a.B: see grpcService of the check");
    }

    #[test]
    fn a_body_that_is_no_text_is_cut_at_a_whole_character() {
        let answer = http_answer(503, &[0xff; 5000]);
        assert!(answer.output.len() <= MAX_BODY_BYTES && answer.output.starts_with('\u{fffd}'));
        assert_eq!(CheckAnswer::failure("é".repeat(4000)).output.len(), MAX_BODY_BYTES);
    }
}
