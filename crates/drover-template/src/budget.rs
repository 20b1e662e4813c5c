//! How much one rendering may still take. Every loop and every recursion asks here, so that none has no end.
//!
//! The depth is limited twice: by the number of templates in templates, and by the bytes of stack in use, which are
//! measured and not estimated. So a recursion ends with an error whatever the frames of this build are large.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::fault::{Fault, Outcome, RenderLimit};
use crate::order::RenderLimits;

/// Stack of the thread that renders.
pub(crate) const STACK_BYTES: usize = 192 * 1024 * 1024;
/// What no recursion may use: code that asks no more, as that of a regular expression, needs some.
const STACK_RESERVE: usize = 16 * 1024 * 1024;
/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u64 = 256;
/// What counts as one step, of bytes that are made.
const BYTES_PER_STEP: u64 = 256;

/// What is left of the limits.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: RenderLimits,
    steps: Cell<u64>,
    made: Cell<u64>,
    looked_at: Cell<u64>,
    deadline: Instant,
    stack_base: usize,
    stack_bytes: usize,
}

impl Budget {
    /// For a rendering that begins now, on a thread with so much stack left.
    pub(crate) fn new(limits: RenderLimits, stack_bytes: usize) -> Self {
        Self {
            limits,
            steps: Cell::new(0),
            made: Cell::new(0),
            looked_at: Cell::new(0),
            deadline: Instant::now() + Duration::from_secs(limits.seconds),
            stack_base: here(),
            stack_bytes: stack_bytes.saturating_sub(STACK_RESERVE.min(stack_bytes / 2)),
        }
    }

    /// One step of work.
    pub(crate) fn step(&self) -> Outcome<()> {
        self.steps(1)
    }

    /// Several steps of work.
    pub(crate) fn steps(&self, n: u64) -> Outcome<()> {
        let steps = self.steps.get().saturating_add(n);
        self.steps.set(steps);
        if steps > self.limits.steps {
            return Err(Fault::Limit(
                RenderLimit::Steps,
                format!("it takes more than {} steps, which is the limit (steps)", self.limits.steps),
            ));
        }
        if steps - self.looked_at.get() >= STEPS_PER_LOOK {
            self.looked_at.set(steps);
            if Instant::now() > self.deadline {
                return Err(Fault::Limit(
                    RenderLimit::Time,
                    format!("it takes longer than {}s, which is the limit (seconds)", self.limits.seconds),
                ));
            }
        }
        Ok(())
    }

    /// One recursion deeper.
    pub(crate) fn deeper(&self) -> Outcome<()> {
        self.step()?;
        if self.stack_base.abs_diff(here()) > self.stack_bytes {
            return Err(Fault::Limit(RenderLimit::Depth, "it is nested too deeply (depth)".to_owned()));
        }
        Ok(())
    }

    /// Whether so many templates may be in each other.
    pub(crate) fn templates(&self, depth: u64) -> Outcome<()> {
        if depth > self.limits.depth {
            return Err(Fault::Limit(
                RenderLimit::Depth,
                format!("templates call each other more than {} deep, which is the limit (depth)", self.limits.depth),
            ));
        }
        self.deeper()
    }

    /// So many bytes of values more, for as long as the rendering takes.
    pub(crate) fn make(&self, bytes: usize) -> Outcome<()> {
        let bytes = bytes as u64;
        let made = self.made.get().saturating_add(bytes);
        if made > self.limits.memory_bytes {
            return Err(self.too_large());
        }
        self.made.set(made);
        self.steps(bytes / BYTES_PER_STEP)
    }

    /// Whether so many bytes could be made; they are not counted yet.
    pub(crate) fn may_make(&self, bytes: usize) -> Outcome<()> {
        if self.made.get().saturating_add(bytes as u64) > self.limits.memory_bytes {
            return Err(self.too_large());
        }
        Ok(())
    }

    /// Whether the text may be so long.
    pub(crate) fn output(&self, bytes: usize) -> Outcome<()> {
        if bytes as u64 > self.limits.output_bytes {
            return Err(Fault::Limit(
                RenderLimit::Output,
                format!("its text is longer than {} bytes, which is the limit (outputBytes)", self.limits.output_bytes),
            ));
        }
        Ok(())
    }

    fn too_large(&self) -> Fault {
        Fault::Limit(
            RenderLimit::Memory,
            format!("its values need more than {} bytes, which is the limit (memoryBytes)", self.limits.memory_bytes),
        )
    }
}

/// About where the stack is now.
#[inline(never)]
fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&mark)).addr()
}
