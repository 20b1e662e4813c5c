//! What a program proves to the proxy that it was started for: on a machine of several users, and in a browser, anyone
//! reaches loopback.

use anyhow::Context as _;
use drover_api::names::hex;
use rustix::rand::{GetRandomFlags, getrandom};

/// The bytes of a secret.
const LENGTH: usize = 24;

/// A secret of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    /// Draws one.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut bytes = [0; LENGTH];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty()).context("drawing a secret")?;
        anyhow::ensure!(filled == LENGTH, "drawing a secret: the kernel gave {filled} of {LENGTH} bytes");
        Ok(Self(hex(&bytes)))
    }

    /// The text that clients send as their token.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a text is it, in a time that does not tell how much of it is right.
    pub(super) fn is(&self, text: &str) -> bool {
        let same = self.0.bytes().zip(text.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        self.0.len() == text.len() && same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_itself_and_nothing_else() {
        let (one, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        assert!(one.is(one.text()) && !one.is(other.text()) && !one.is("") && !one.is(&one.text()[1..]));
        assert_eq!(one.text().len(), 2 * LENGTH);
    }
}
