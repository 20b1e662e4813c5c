//! What one job file may cost: a file of a few lines can ask for more than any machine has.

use std::cell::Cell;

use crate::value::Value;

/// Expressions that are evaluated, over all (`spec/gateway.md`, section 7).
const STEPS: u64 = 1_000_000;
/// Bytes of one value.
const VALUE_BYTES: usize = 1 << 20;
/// Bytes of all values that were made, the dropped ones too.
const TOTAL_BYTES: usize = 64 << 20;
/// Blocks after `dynamic` ones are written out.
const BLOCKS: u64 = 5_000;

/// What is left of these.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: Cell<u64>,
    bytes: Cell<usize>,
    blocks: Cell<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: Cell::new(STEPS), bytes: Cell::new(TOTAL_BYTES), blocks: Cell::new(BLOCKS) }
    }
}

impl Budget {
    /// One expression more.
    pub(crate) fn step(&self) -> Result<(), String> {
        take(&self.steps, 1).ok_or_else(|| format!("takes more than {STEPS} steps; make the loops smaller"))
    }

    /// One block more.
    pub(crate) fn block(&self) -> Result<(), String> {
        take(&self.blocks, 1).ok_or_else(|| format!("makes more than {BLOCKS} blocks; split the job"))
    }

    /// One value more.
    pub(crate) fn value(&self, value: &Value) -> Result<(), String> {
        self.bytes(value.size())
    }

    /// One value more, before it is made.
    pub(crate) fn bytes(&self, size: usize) -> Result<(), String> {
        if size > VALUE_BYTES {
            return Err(format!("makes a value of over {VALUE_BYTES} bytes; make it smaller"));
        }
        match self.bytes.get().checked_sub(size) {
            Some(left) => {
                self.bytes.set(left);
                Ok(())
            }
            None => Err(format!("makes values of over {TOTAL_BYTES} bytes in all; make the loops smaller")),
        }
    }
}

fn take(left: &Cell<u64>, n: u64) -> Option<()> {
    left.set(left.get().checked_sub(n)?);
    Some(())
}
