//! How fast the frames of a server are read that is not trusted: a node must not take the time of those who serve all
//! nodes by frames that are cheap to send.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// The most frames that are read in a second; 64 KiB in each of them is more than a network carries.
const MOST_FRAMES: u32 = 20_000;
/// The most frames without a byte in them. A heartbeat is one, and there is one a second.
const MOST_EMPTY_FRAMES: u32 = 1000;
const SECOND: Duration = Duration::from_secs(1);

/// The frames of this second.
#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    n_frames: u32,
    n_empty_frames: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { since: Instant::now(), n_frames: 0, n_empty_frames: 0 }
    }
}

impl Pace {
    /// Counts a frame, and waits where it is one too many for now: what sends them has to wait too.
    ///
    /// # Errors
    /// When it is one of a flood.
    pub(crate) async fn frame(&mut self, carries_nothing: bool) -> io::Result<()> {
        if self.n_frames == MOST_FRAMES {
            tokio::time::sleep_until(self.since + SECOND).await;
        }
        if self.since.elapsed() >= SECOND {
            *self = Self::default();
        }
        self.n_frames += 1;
        self.n_empty_frames += u32::from(carries_nothing);
        if self.n_empty_frames > MOST_EMPTY_FRAMES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the agent floods with frames that carry nothing"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frames_beyond_those_of_a_second_wait_for_the_next_one() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        for _ in 0..3 * MOST_FRAMES {
            pace.frame(false).await.expect("no flood");
        }
        assert_eq!(begun.elapsed(), 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn frames_that_carry_nothing_are_a_flood_where_they_are_many_in_a_second_only() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            for _ in 0..MOST_EMPTY_FRAMES {
                pace.frame(true).await.expect("no flood");
            }
            tokio::time::advance(SECOND).await;
        }
        for _ in 0..MOST_EMPTY_FRAMES {
            pace.frame(true).await.expect("no flood");
        }
        pace.frame(true).await.expect_err("a flood");
    }
}
